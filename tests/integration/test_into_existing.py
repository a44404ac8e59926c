"""A table that holds others' items, too: none of them is replaced, none is deleted, and each one in the way is told."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from migrator.mapping.model.table import Item
from tests.journeys.command import Project
from tests.journeys.small import small_shop
from tests.support_items import put_items

STRANGERS: list[Item] = [
    {"PK": "C#1", "SK": "META", "type": "Account", "iban": "DE00"},
    {"PK": "C#2", "SK": "META", "type": "Account", "_src": "account:[2]"},
    {"PK": "I#3", "SK": "META", "type": "Account", "_src": "no source of ours"},
    {"PK": "X#1", "SK": "META", "type": "Account"},
]
IN_THE_WAY = {"C#1", "C#2", "I#3"}
OWN = 150 - len(IN_THE_WAY)


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    made = small_shop(tmp_path, dynamodb_url)
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("type: type}", "type: type, ttl: expiresAt}", 1))
    made.store().client.update_time_to_live(
        TableName=made.table, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expiresAt"}
    )
    put_items(made.store(), STRANGERS)
    return made


def theirs(shop: Project) -> list[Item]:
    return sorted((one for one in shop.items() if one["type"] == "Account"), key=lambda one: str(one["PK"]))


def own(shop: Project) -> int:
    return len([one for one in shop.items() if one["type"] in ("Customer", "Invoice", "InvoiceById")])


def told(shop: Project) -> set[str]:
    """Partition keys of the findings of the last run."""
    rows = shop.done("status", "--findings", str(shop.job), "--json", "--show-keys", "--all").data["findings"]
    assert {one["kind"] for one in rows} == {"collision"}
    return {part for part in IN_THE_WAY for one in rows if f'"{part}"' in one["item_key"]}


def test_nothing_of_others_is_replaced(shop: Project) -> None:
    job = str(shop.job)
    assert "pass --into-existing" in shop.run("backfill", job).err
    assert shop.run("backfill", job, "--into-existing").code == 1
    assert (theirs(shop), own(shop), told(shop)) == (STRANGERS, OWN, IN_THE_WAY)
    # A run that needs the option no more, since the journal knows of the table now.
    assert shop.run("backfill", job, "--restart").code == 1
    assert (theirs(shop), own(shop), told(shop)) == (STRANGERS, OWN, IN_THE_WAY)
    shop.done("clean", "--all-items", job, "--yes")
    assert (theirs(shop), own(shop)) == (STRANGERS, 0)


def test_own_items_are_written_again(shop: Project) -> None:
    job = str(shop.job)
    shop.run("backfill", job, "--into-existing")
    changed = [{**one, "name": "old"} for one in shop.items() if one["type"] == "Customer"]
    put_items(shop.store(), changed)
    shop.run("backfill", job, "--restart")
    assert "old" not in {one.get("name") for one in shop.items()}


@pytest.mark.parametrize("path", ["fast", "conditional"])
def test_while_a_relay_runs(shop: Project, path: str) -> None:
    job = str(shop.job)
    shop.done("capture", "install", job)
    if path == "conditional":
        shop.done("relay", job, "--once")
    ended = shop.run("backfill", job, "--into-existing")
    assert (ended.code, f"path: {path}" in ended.err) == (1, True), ended.err
    assert (theirs(shop), own(shop), told(shop)) == (STRANGERS, OWN, IN_THE_WAY)


def test_relay_begun_before_the_first_backfill_is_not_foreign(tmp_path: Path, dynamodb_url: str) -> None:
    """It has told the table which journal is its own; its run is not in the journal yet, and no ticket drawn."""
    shop = small_shop(tmp_path, dynamodb_url)
    job, mapping = str(shop.job), tmp_path / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("type: type}", "type: type, ttl: expiresAt}", 1))
    shop.store().client.update_time_to_live(
        TableName=shop.table, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expiresAt"}
    )
    shop.done("capture", "install", job)
    shop.done("relay", job, "--once")
    (control,) = shop.items()
    assert control["type"] == "_control"
    put_items(shop.store(), [control | {"_tk": 0}])
    with closing(sqlite3.connect(tmp_path / ".migrator" / "shop.db")) as journal:
        journal.execute("DELETE FROM migrator_run")
        journal.execute("UPDATE migrator_record SET value = '0' WHERE kind = 'reached_ticket'")
        journal.execute(
            "UPDATE migrator_record SET value = json_set(value, '$.ticket', 0) WHERE kind = 'seen_table'"
        )
        journal.commit()
    shop.done("backfill", job)
    shop.done("verify", job)


def test_what_another_job_wrote_is_a_strangers(tmp_path: Path, dynamodb_url: str) -> None:
    """All that a backfill writes has `_src` and `_tk`, whatever job it is of."""
    shop = small_shop(tmp_path, dynamodb_url)
    shop.done("backfill", str(shop.job))
    other = tmp_path / "other.yaml"
    other.write_text(shop.job.read_text())
    refused = shop.run("backfill", str(other))
    assert (refused.code, "pass --into-existing" in refused.err) == (2, True)
