"""An item that the table never takes: a finding, its page left open, all else written; later it is written after all."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.store import DynamoStore
from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import check_mapping
from migrator.mapping.model.journal import Run, RunIdentity
from migrator.mapping.model.table import Item, TableDesign
from migrator.runtime.errors import ItemRefusedError, StoppedError
from migrator.runtime.retry import Backoff
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.backfill.stage import Backfill, BackfillOptions
from migrator.stages.backfill.write import Claims
from tests import pins
from tests.fakes.progress import Silent
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults, Wire
from tests.support_fence import no_fence, written_alone
from tests.support_items import put_items
from tests.support_lanes import every_lane  # noqa: F401
from tests.support_mapping import parse_mapping

TEXT = """
mapping: 1
table: {name: %s, key: [PK, SK], type: type}
entities:
  thing:
    items:
      Thing: {key: ["THING#{id}", META], keep: all}
"""
QUICK = Backoff(attempts=4, base_s=0.001, cap_s=0.005, limit_s=120)


@pytest.fixture
def design(dynamodb_url: str) -> Iterator[TableDesign]:
    made = parse_mapping(TEXT % f"T{secrets.token_hex(6)}", "m.yaml").mapping.table
    client = dynamodb_client(region=None, profile=None, endpoint=dynamodb_url)
    DynamoTableAdmin(client).create(made)
    yield made
    client.delete_table(TableName=made.name)


@pytest.fixture
def url(tmp_path: Path) -> str:
    connection = sqlite3.connect(tmp_path / "things.db")
    connection.execute("CREATE TABLE thing (id INTEGER PRIMARY KEY, name TEXT)")
    connection.executemany("INSERT INTO thing VALUES (?, ?)", [(n, f"n{n}") for n in range(1, 301)])
    connection.commit()
    connection.close()
    return f"sqlite:///{tmp_path}/things.db"


def backfill(url: str, store: DynamoStore, journal: SqlJournal, run: Run) -> None:
    source = SqlSource(source_url(url))
    checked = check_mapping(parse_mapping(TEXT % store.design.name, "m.yaml"), source.facts())
    entities = {entity.name: entity for entity in checked.entities}
    claims = Claims(journal, source, entities, checked.unproved, "table", memory=None)
    options = BackfillOptions(workers=2, page_rows=50)
    try:
        Backfill(source, journal, written_alone(store, claims), Silent(), options).run(run, checked.entities)
    finally:
        source.close()


def is_the_one(wire: Wire) -> bool:
    return bool(wire["PK"]["S"] == "THING#77")


def refusing(code: str) -> Faults:
    return Faults(refuses=lambda wire: code if is_the_one(wire) else "")


@pytest.mark.parametrize(
    "faults",
    [
        Faults(never=is_the_one),
        refusing("ValidationException"),
        refusing("ItemCollectionSizeLimitExceededException"),
    ],
    ids=["unprocessed", "case", "collection-passed"],
)
def test_it_is_a_finding_until_it_is_written(
    dynamodb_url: str, design: TableDesign, url: str, faults: Faults
) -> None:
    journal = SqlJournal.in_memory()
    identity = RunIdentity("backfill", "job", "table", "revision", "")
    run = journal.start_run(identity)
    direct = DynamoStore(dynamodb_client(region=None, profile=None, endpoint=dynamodb_url), design, no_fence)
    with FaultProxy(dynamodb_url, faults) as proxy:
        client = dynamodb_client(region=None, profile=None, endpoint=proxy.url)
        with pins.refused(StoppedError, "did"):
            backfill(url, DynamoStore(client, design, no_fence, QUICK), journal, run)
    assert sum(len(page.items) for page in direct.scan(0, 1)) == 299
    (found,) = journal.findings(run)
    assert (found.kind, found.item_key) == ("unwritten", '["THING#77","META"]')
    assert pins.said(found.reason, "why")
    resumed = journal.resume_run(run)
    assert journal.waiting_pages(resumed, "thing", 9) == [2]

    backfill(url, direct, journal, resumed)
    assert sum(len(page.items) for page in direct.scan(0, 1)) == 300
    assert journal.findings(run) == []
    assert journal.waiting_pages(run, "thing", 9) == []
    journal.close()


def test_full_collection_stops_nothing_and_a_refusing_table_does(
    dynamodb_url: str, design: TableDesign
) -> None:
    items: list[Item] = [{"PK": "THING#1", "SK": str(number), "type": "Thing"} for number in range(30)]
    full = Faults(refuses=lambda wire: "ItemCollectionSizeLimitExceededException")
    with FaultProxy(dynamodb_url, full) as proxy:
        client = dynamodb_client(region=None, profile=None, endpoint=proxy.url)
        receipt = put_items(DynamoStore(client, design, no_fence, QUICK), items)
    assert (receipt.items, len(receipt.unwritten)) == (0, 30)
    with FaultProxy(dynamodb_url, Faults(refuses=lambda wire: "ValidationException")) as proxy:
        client = dynamodb_client(region=None, profile=None, endpoint=proxy.url)
        with pins.refused(ItemRefusedError):
            put_items(DynamoStore(client, design, no_fence, QUICK), items)
