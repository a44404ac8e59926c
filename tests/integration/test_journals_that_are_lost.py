"""A relay with another or a lost journal, and phases that a fresh journal knows nothing of."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from migrator.api import Migration
from migrator.runtime.errors import SettingsError
from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import (
    OTHER,
    PATTERN,
    change,
    compared,
    cutover_shop,
    desk_of,
    filled,
    force,
    live,
    obey,
    phase,
    reader,
)

pytestmark = pytest.mark.slow

LOST = "was written with another journal than this one"
PET = """\
  pet:
    table: invoice
    join: {owner: {table: customer, on: {customer_id: id}}}
    items: {Pet: {key: ["OWNER#{owner.name}", "PET#{id}"], keep: [id]}}
access_patterns:
"""


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """A relay has written, and a pattern is live; a key of it is made of two rows."""
    made = cutover_shop(tmp_path, dynamodb_url)
    mapping = made.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("access_patterns:\n", PET))
    filled(made)
    change(made, "UPDATE customer SET name = 'one' WHERE id = 1")
    made.done("relay", "--once", str(made.job))
    for words in (["advance"], ["ramp", "100"], ["advance"]):
        force(made, words[0], str(made.job), PATTERN, *words[1:])
    assert phase(made) == "live"
    return made


def lose(shop: Project) -> list[Path]:
    """The journal is gone; where it is now."""
    home = Path(shop.environment["MIGRATOR_HOME"])
    return [file.rename(file.with_suffix(f"{file.suffix}.old")) for file in sorted(home.glob("shop.db*"))]


def words_for(shop: Project) -> list[Sequence[str]]:
    job = str(shop.job)
    return [
        ["relay", job, "--once"],
        ["backfill", job, "--into-existing"],
        ["verify", job, "--repair", "--settle", "0s"],
        ["clean", "--all-items", job, "--yes", "--force"],
        ["clean", "--tombstones", job],
        ["clean", "--row", job, "--entity", "customer", "--key", "99", "--yes"],
        ["cutover", "status", job],
        ["cutover", "status", "--history", job],
        ["cutover", "advance", job, PATTERN, "--override", "x"],
        ["cutover", "ramp", job, PATTERN, "5", "--override", "x"],
        ["cutover", "rollback", job, PATTERN],
        ["cutover", "watch", job, "--once"],
        ["decommission", "check", job],
        ["clean", "--attributes", job, "--yes"],
        ["report", job],
        ["status", job],
        ["shadow", "replay", job, "--sample", "1"],
        ["capture", "install", job],
    ]


def test_every_command_that_writes_or_shows_phases_refuses(shop: Project) -> None:
    lose(shop)
    change(shop, "UPDATE customer SET name = 'two' WHERE id = 1")
    before = shop.items()
    for words in words_for(shop):
        refused = shop.run(*words)
        assert (refused.code, LOST in refused.err, "journal-lost" in refused.err) == (2, True, True), (
            words,
            refused.err,
        )
    for words in (["relay", "--once"], ["backfill"], ["clean", "--all-items", "--yes"]):
        agreed_to_another_thing = shop.run(*words, str(shop.job), "--force")
        assert (agreed_to_another_thing.code, LOST in agreed_to_another_thing.err) == (2, True), words
    assert shop.items() == before
    assert phase(shop) == "off", "nothing was made up either"


def test_the_journal_that_is_put_back_resumes(shop: Project) -> None:
    files = lose(shop)
    assert shop.run("relay", str(shop.job), "--once").code == 2
    for file in Path(shop.environment["MIGRATOR_HOME"]).glob("shop.db*"):
        if file not in files:
            file.unlink()
    for file in files:
        file.rename(file.with_suffix(""))
    shop.done("relay", str(shop.job), "--once")
    assert phase(shop) == "live"


def test_forced_job_takes_over_the_record_of_the_table(shop: Project) -> None:
    """The phases, and the keys that the lost journal remembered: one that moves leaves nothing behind."""
    lose(shop)
    forced = shop.done("recover", str(shop.job), "journal-lost", "--settle", "0s")
    assert f"migrator verify {shop.job} --repair" in forced.out
    assert phase(shop) == "live"
    shop.done("cutover", "status", str(shop.job))
    history = json.loads(shop.done("cutover", "status", "--history", str(shop.job), "--json").out)
    assert "journal" in history[-1]["reason"]
    change(shop, "UPDATE customer SET name = 'three' WHERE id = 1")
    shop.done("relay", str(shop.job), "--once")
    pets = [item for item in shop.items() if item["type"] == "Pet" and item["PK"] == "OWNER#one"]
    assert pets == [], "the items under the former name are gone"
    shop.done("verify", str(shop.job), "--settle", "0s")


@pytest.mark.parametrize("stale", [False, True], ids=["captured", "a trigger is missing"])
def test_older_copy_of_the_journal_is_detected_and_repaired(shop: Project, stale: bool) -> None:
    """A backup of the journal from before some moves and some writes; what is `stale` is installed first."""
    home = Path(shop.environment["MIGRATOR_HOME"])
    backup = {file: file.read_bytes() for file in home.glob("shop.db*")}
    force(shop, "advance", str(shop.job), OTHER)
    change(shop, "UPDATE customer SET name = 'two' WHERE id = 1")
    shop.done("relay", str(shop.job), "--once")
    for file in home.glob("shop.db*"):
        file.unlink()
    for file, content in backup.items():
        file.write_bytes(content)
    change(shop, "UPDATE customer SET name = 'three' WHERE id = 1")
    if stale:
        trigger = "SELECT 'DROP TRIGGER ' || name FROM sqlite_master WHERE type = 'trigger' LIMIT 1"
        with closing(sqlite3.connect(shop.folder / "shop.db")) as source:
            source.execute(source.execute(trigger).fetchone()[0])
            source.commit()
        assert shop.run("verify", str(shop.job), "--repair").code == 2
        shop.done("capture", "install", str(shop.job))
    refused = shop.run("relay", str(shop.job), "--once")
    assert (refused.code, f"`migrator verify {shop.job} --repair`" in refused.err) == (2, True), refused.err
    assert shop.run("verify", str(shop.job), "--repair", "--settle", "0s").code == 1
    shop.done("relay", str(shop.job), "--once")
    shop.done("verify", str(shop.job), "--settle", "0s")
    pets = [item for item in shop.items() if item["type"] == "Pet" and item["PK"] == "OWNER#two"]
    assert pets == []


def test_complete_and_direct_are_kept(
    tmp_path: Path, dynamodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = live(filled(cutover_shop(tmp_path, dynamodb_url)))
    shop.done("relay", str(shop.job), "--once")
    with desk_of(shop) as session:
        compared(session, shop, OTHER)
        obey(session, one := reader(session, shop))
        compared(session, shop, OTHER)
        shop.done("cutover", "advance", str(shop.job), OTHER, "--yes", "--one-way")
        session.instances.leave(one)
    shop.job.write_text(shop.job.read_text() + "writes: {direct: [invoice]}\n")
    shop.done("capture", "install", str(shop.job))
    lose(shop)
    for words in (["relay", str(shop.job), "--once"], ["cutover", "status", str(shop.job)]):
        refused = shop.run(*words)
        assert (refused.code, "complete" in refused.err, "invoice" in refused.err) == (2, True, True), (
            refused.err
        )
    for name, value in shop.environment.items():
        monkeypatch.setenv(name, value)
    with Migration.load(shop.job) as migration, pytest.raises(SettingsError, match=LOST):
        migration.begin_reading()
    shop.done("recover", str(shop.job), "journal-lost", "--settle", "0s")
    assert phase(shop, OTHER) == "complete"
    shop.done("relay", str(shop.job), "--once")


def test_unreachable_table_does_not_block_a_rollback(shop: Project) -> None:
    job = shop.job.read_text()
    shop.job.write_text(job.replace(shop.endpoint, "http://127.0.0.1:9"))
    shop.done("cutover", "rollback", str(shop.job), PATTERN)
    assert phase(shop) == "shadow"
    shop.job.write_text(job)
    shop.done("cutover", "status", str(shop.job))


def test_renamed_job_sees_only_the_phases_that_the_table_keeps(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is the file's, so another file is another job, which knows of no phase."""
    renamed = shop.job.with_name("another.yaml")
    renamed.write_text(shop.job.read_text())
    for words in (
        ["cutover", "status"],
        ["status"],
        ["report"],
        ["relay", "--once"],
        ["cutover", "rollback", "--all"],
    ):
        refused = shop.run(*words, str(renamed))
        assert (refused.code, "job shop" in refused.err) == (2, True), (words, refused.out, refused.err)
    dry = shop.run("cutover", "advance", str(renamed), PATTERN, "--dry-run")
    assert (dry.code, "job shop" in dry.err) == (2, True)
    for name, value in shop.environment.items():
        monkeypatch.setenv(name, value)
    with Migration.load(renamed) as migration, pins.refused(SettingsError):
        migration.begin_reading()
