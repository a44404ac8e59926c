"""The doctor by the installed command: well, ill in one place after the other, and on a server of its own."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.journey.command import Ended, Project
from tests.journey.small import small_shop


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return small_shop(tmp_path, dynamodb_url)


def states(ended: Ended) -> dict[str, str]:
    return {check["name"]: check["state"] for check in ended.data["checks"]}


def test_all_is_well(shop: Project) -> None:
    found = states(shop.done("doctor", str(shop.job), "--json"))
    assert [name for name, state in found.items() if state != "ok"] == ["permission BatchWriteItem"]
    assert {
        "job",
        "Python",
        "SELECT for invoice",
        "table",
        "permission Scan",
        "clock of DynamoDB",
        "journal",
    } <= set(found)
    written = states(shop.done("doctor", str(shop.job), "--json", "--write"))
    assert set(written.values()) == {"ok"}
    assert shop.items() == []
    told = shop.done("doctor", str(shop.job)).out
    assert "what mends it" in told
    assert f"SQLite {sqlite3.sqlite_version}" in told
    assert "migrator doctor --write" in told
    assert told.splitlines()[-1] == f"{len(found)} checks: {len(found) - 1} ok, 1 warning"


def test_what_is_wrong_fails_with_what_mends_it(shop: Project, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("DROP TABLE invoice")
    shop.job.write_text(shop.job.read_text().replace(f"table: {shop.table}", "table: NoSuchTable"))
    ended = shop.run("doctor", str(shop.job), "--json")
    found = states(ended)
    assert (ended.code, found["source and mapping"], found["table"], found["journal"]) == (
        1,
        "failed",
        "failed",
        "ok",
    )
    mends = [check["mend"] for check in ended.data["checks"] if check["name"] == "table"]
    assert mends == [f"migrator table create {shop.job}"]


def test_every_fault_of_the_mapping_is_shown(shop: Project) -> None:
    mapping = shop.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("[name]", "[nme]").replace("[total]", "[totl]"))
    found = shop.run("doctor", str(shop.job), "--json").data["checks"]
    (what,) = [check["what"] for check in found if check["name"] == "source and mapping"]
    assert "nme" in what
    assert "totl" in what
    told = shop.run("doctor", str(shop.job)).out
    assert "more line(s)" not in told
    assert "totl" in told


def test_an_index_that_is_not_there_is_no_matter_of_permissions(shop: Project) -> None:
    mapping = shop.folder / "mapping.yaml"
    index = "type: type, indexes: {GSI1: {key: [GSI1PK]}}"
    mapping.write_text(mapping.read_text().replace("type: type", index))
    found = {one["name"]: one for one in shop.run("doctor", str(shop.job), "--json").data["checks"]}
    assert found["table"]["state"] == "failed"
    asked = found["permission Query GSI1"]
    assert (asked["state"], asked["mend"], "table check" in asked["what"]) == ("failed", "", True)


def test_a_job_that_cannot_be_read_is_a_failed_check(shop: Project) -> None:
    shop.job.write_text("job: 1\n")
    ended = shop.run("doctor", str(shop.job), "--json")
    assert (ended.code, states(ended)["job"]) == (1, "failed")
