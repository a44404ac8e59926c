"""One journal from every working directory, and one that was just made belongs to no job."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from migrator.api import Migration
from migrator.runtime.errors import SettingsError
from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import PATTERN, cutover_shop, filled, force
from tests.journeys.in_process import Ended, run_here

UNKNOWN = "knows nothing of that"


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """Captured and filled, its journal where it is by default, a pattern in shadow; the table keeps nothing of it."""
    (tmp_path / "jobs").mkdir()
    made = cutover_shop(tmp_path / "jobs", dynamodb_url)
    del made.environment["MIGRATOR_HOME"]
    filled(made)
    force(made, "advance", str(made.job), PATTERN)
    key = {"PK": {"S": "_migrator"}, "SK": {"S": "_migrator"}}
    made.store().client.delete_item(TableName=made.table, Key=key)
    return made


def elsewhere(shop: Project, *words: str, home: str = "") -> Ended:
    """The command from another folder. `home`: $MIGRATOR_HOME."""
    folder = shop.folder.parent / "elsewhere"
    folder.mkdir(exist_ok=True)
    return run_here(words, folder, shop.environment | ({"MIGRATOR_HOME": home} if home else {}))


def phase(ended: Ended) -> str:
    assert ended.code == 0, ended.err
    return str({one["pattern"]: one["phase"] for one in json.loads(ended.out)["patterns"]}[PATTERN])


def test_a_phase_is_the_same_from_every_folder(shop: Project) -> None:
    job = str(shop.job)
    assert phase(elsewhere(shop, "cutover", "status", job, "--json")) == "shadow"
    assert elsewhere(shop, "cutover", "rollback", job, PATTERN).code == 0
    assert phase(shop.done("cutover", "status", job, "--json")) == "off"
    assert not (shop.folder.parent / "elsewhere" / ".migrator").exists()


def words_for(shop: Project) -> list[Sequence[str]]:
    job = str(shop.job)
    return [
        ["cutover", "status", job],
        ["cutover", "status", "--history", job],
        ["cutover", "advance", job, PATTERN, "--override", "x"],
        ["cutover", "ramp", job, PATTERN, "5", "--override", "x"],
        ["cutover", "rollback", job, PATTERN],
        ["cutover", "watch", job, "--once"],
        ["decommission", "check", job],
        ["clean", "--all-items", job, "--yes"],
        ["relay", job, "--once"],
        ["backfill", job, "--into-existing"],
        ["clean", "--tombstones", job],
        ["status", job],
        ["report", job],
        ["capture", "install", job],
        ["capture", "uninstall", job],
    ]


def test_a_journal_that_was_just_made_is_refused(shop: Project) -> None:
    before = shop.items()
    # Runs that only compare make it no better.
    assert elsewhere(shop, "verify", str(shop.job), "--settle", "0s", home="fresh").code == 0
    for words in words_for(shop):
        refused = elsewhere(shop, *words, home="fresh")
        assert (refused.code, pins.said(refused.err)) == (2, True), (words, refused.err)
    assert shop.items() == before
    assert phase(elsewhere(shop, "cutover", "status", str(shop.job), "--json")) == "shadow"


def test_advice_names_a_command_that_has_the_option(shop: Project) -> None:
    refused = elsewhere(shop, "capture", "uninstall", str(shop.job), home="fresh").err
    assert pins.said(refused, "cutover", job=shop.job)
    assert pins.said(refused, "runs")
    assert refused.count("journal-lost") == 1


def test_doctor_reports_it(shop: Project) -> None:
    told = json.loads(elsewhere(shop, "doctor", str(shop.job), "--json", home="fresh").out)["checks"]
    (line,) = (one for one in told if one["name"] == "journal's job")
    assert (line["state"], pins.said(line["what"])) == ("failed", True)
    told = json.loads(elsewhere(shop, "doctor", str(shop.job), "--json").out)["checks"]
    assert "journal's job" not in {one["name"] for one in told}


def test_it_becomes_the_tables_once_confirmed(shop: Project) -> None:
    """The other one is lost for good. A pattern in shadow is off then: SQL answers it in both."""
    job = str(shop.job)
    forced = elsewhere(shop, "recover", job, "journal-lost", "--settle", "0s", home="fresh")
    assert pins.said(forced.out, "now")
    assert phase(elsewhere(shop, "cutover", "status", job, "--json", home="fresh")) == "off"
    assert elsewhere(shop, "relay", job, "--once", home="fresh").code == 0
    refused = shop.run("cutover", "status", job)
    assert (refused.code, pins.said(refused.err, "journal")) == (2, True)


def test_unreachable_source_does_not_excuse_a_fresh_journal(shop: Project) -> None:
    shop.environment["MIGRATOR_SOURCE_URL"] = "sqlite:////there/is/none.db"
    refused = elsewhere(shop, "cutover", "rollback", str(shop.job), PATTERN, home="fresh")
    assert (refused.code, pins.said(refused.err)) == (2, True), refused.err


def test_service_with_its_own_journal_does_not_start(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one with a copy of the job file in its own container."""
    copy = shutil.copytree(shop.folder, shop.folder.parent / "copy", ignore=lambda *_: [".migrator"])
    monkeypatch.setenv("MIGRATOR_SOURCE_URL", shop.environment["MIGRATOR_SOURCE_URL"])
    with Migration.load(copy / "shop.yaml") as migration:
        with pins.refused(SettingsError, "knows"):
            migration.begin_reading()
        with pins.refused(SettingsError, "nothing"):
            migration.begin_marking()
    with Migration.load(shop.job) as migration:
        migration.begin_reading()
        assert migration.phases()[PATTERN] == "shadow"


def test_capture_by_a_migration_file_can_be_the_first_step(tmp_path: Path, dynamodb_url: str) -> None:
    made = cutover_shop(tmp_path, dynamodb_url)
    job = str(made.job)
    made.done("table", "create", job)
    sql = made.done("capture", "install", job, "--as", "sql").out
    with closing(sqlite3.connect(tmp_path / "shop.db")) as source:
        source.executescript(sql)
    refused = made.run("relay", "--once", job)
    assert (refused.code, pins.said(refused.err)) == (2, True)
    made.done("backfill", job)
    made.done("relay", "--once", job)
    made.done("cutover", "status", job)


def test_command_that_creates_a_journal_reports_it_once(tmp_path: Path, dynamodb_url: str) -> None:
    made = cutover_shop(tmp_path, dynamodb_url)
    del made.environment["MIGRATOR_HOME"]
    first, second = (made.done("status", str(made.job), "--log-format", "json") for _ in range(2))
    lines = [json.loads(line) for line in first.err.splitlines() if "journal_made" in line]
    assert [line["journal"] for line in lines] == [str(tmp_path / ".migrator" / "shop.db")]
    assert "journal_made" not in second.err


def test_what_reads_the_journal_names_it(shop: Project) -> None:
    job, file = str(shop.job), str(shop.folder / ".migrator" / "shop.db")
    for words in (["status"], ["doctor"], ["cutover", "status"], ["report"]):
        assert json.loads(shop.run(*words, job, "--json").out)["journal"] == file
        more = ["--all"] if words == ["status"] else []
        assert file in elsewhere(shop, *words, job, *more).out
        assert str(Path(".migrator") / "shop.db") in shop.run(*words, job, *more).out
