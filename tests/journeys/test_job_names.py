"""Two job files of one name and one journal: the second is another job, and is refused."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from migrator.api import Migration
from migrator.runtime.errors import SettingsError
from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import PATTERN, cutover_shop, filled, force, phase


@pytest.fixture
def production(tmp_path: Path, dynamodb_url: str) -> Project:
    """A pattern of it is in shadow; its journal is in a folder that other jobs share."""
    (tmp_path / "production").mkdir()
    made = filled(cutover_shop(tmp_path / "production", dynamodb_url))
    force(made, "advance", str(made.job), PATTERN)
    return made


def staging(production: Project, change: Callable[[str], str]) -> str:
    """The other job's file: of the same name, in another folder."""
    folder = production.folder.parent / "staging"
    shutil.copytree(production.folder, folder, ignore=lambda *_: [".migrator"])
    job = folder / production.job.name
    job.write_text(change(job.read_text()))
    return str(job)


def other_table(text: str) -> str:
    return text.replace("{table: ", "{table: Staging")


def other_source(text: str) -> str:
    return text.replace("'${MIGRATOR_SOURCE_URL}'", "../staging/shop.db")


@pytest.mark.parametrize(("change", "kind"), [(other_table, "table"), (other_source, "source")])
def test_another_job_of_one_name_moves_nothing(
    production: Project, change: Callable[[str], str], kind: str
) -> None:
    job = staging(production, change)
    for words in (
        ["cutover", "rollback", job, PATTERN],
        ["cutover", "status", job],
        ["relay", "--once", job],
        ["backfill", job],
        ["status", job],
        ["status", "--findings", job],
        ["clean", "--all-items", job, "--yes"],
        ["capture", "install", job],
    ):
        refused = production.run(*words)
        assert (refused.code, f"the {kind} is " in refused.err, "write `name:`" in refused.err) == (
            2,
            True,
            True,
        ), (words, refused.err)
    assert phase(production) == "shadow"
    (line,) = (
        one
        for one in json.loads(production.run("doctor", job, "--json").out)["checks"]
        if one["name"] == "journal"
    )
    assert (line["state"], f"the {kind} is " in line["what"]) == ("failed", True)


def test_nothing_is_kept_of_a_job_that_is_refused(production: Project) -> None:
    """A journal of an older version knows the tables that were written, and no source."""
    with closing(sqlite3.connect(Path(production.environment["MIGRATOR_HOME"]) / "shop.db")) as journal:
        journal.execute("DELETE FROM migrator_record WHERE kind = 'job_name'")
        journal.commit()
    assert (
        production.run("status", staging(production, lambda text: other_source(other_table(text)))).code == 2
    )
    assert phase(production) == "shadow"


def test_job_with_its_own_name_leaves_the_other_job_alone(production: Project) -> None:
    job = staging(production, lambda text: f"{other_source(other_table(text))}\nname: staging\n")
    # Its source is a copy, triggers and all: it may as well be production's in a file of another name.
    assert pins.said(production.run("status", job).err)
    assert phase(production) == "shadow"


def test_second_job_of_a_captured_source_fills_its_own_table(production: Project) -> None:
    job = staging(production, lambda text: f"{other_table(text)}\nname: staging\n")
    production.done("table", "create", job)
    filled = production.done("backfill", job, "--json")
    assert (filled.data["entities"] != {}, pins.said(filled.err, "is for job")) == (True, True)
    again = production.folder.parent / "staging" / "again.yaml"
    again.write_text(f"{production.job.read_text()}\nname: again\n")
    assert pins.said(production.run("backfill", str(again)).err, "same table")


def test_source_with_another_name_is_accepted_once_confirmed(production: Project) -> None:
    """Such as a fail-over's, or a tunnel's; the former name goes on to be right."""
    job = staging(production, lambda text: text.replace("'${MIGRATOR_SOURCE_URL}'", "other.db"))
    other = production.folder / "other.db"
    (production.folder / "shop.db").rename(other)
    refused = production.run("status", job)
    assert (refused.code, f"migrator recover {job} renamed" in refused.err) == (2, True)
    assert str(other) in production.done("recover", job, "renamed").out
    production.done("cutover", "status", job)
    other.rename(production.folder / "shop.db")
    production.done("cutover", "status", str(production.job))


def test_two_captured_jobs_writing_one_table_are_reported(production: Project) -> None:
    job = staging(production, lambda text: f"{other_source(text)}\nname: staging\n")
    checks = json.loads(production.run("doctor", job, "--json").out)["checks"]
    (told,) = (one for one in checks if one["name"] == "jobs of the table")
    assert (told["state"], pins.said(told["what"])) == ("warning", True)
    own = json.loads(production.run("doctor", str(production.job), "--json").out)["checks"]
    assert "jobs of the table" not in {one["name"] for one in own}


def test_a_service_of_another_job_does_not_start(
    production: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = staging(production, other_table)
    for name in ("MIGRATOR_SOURCE_URL", "MIGRATOR_HOME"):
        monkeypatch.setenv(name, production.environment[name])
    with pins.refused(SettingsError):
        Migration.load(job)


def test_a_journal_is_not_moved_to_another_job(production: Project) -> None:
    """Both ran in one working directory with an older version, which kept one journal for them."""
    del production.environment["MIGRATOR_HOME"]
    job = staging(production, other_table)
    # A job file of that name stands there, so the journal is its own, and the other job has none.
    refused = production.run("status", job)
    assert (refused.code, pins.said(refused.err)) == (2, True)
    assert phase_without_home(production) == "shadow"


def phase_without_home(shop: Project) -> str:
    told = json.loads(shop.done("cutover", "status", str(shop.job), "--json").out)
    return {one["pattern"]: str(one["phase"]) for one in told["patterns"]}[PATTERN]
