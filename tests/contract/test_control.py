"""The control item of a table: the fake one's and DynamoDB's."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.control import ControlItem, control_key
from migrator.dynamodb.store import DynamoStore
from migrator.mapping.model.edges import Control, ItemStore, Kept, KeptPhase
from migrator.mapping.model.table import KeyAttribute, TableDesign
from migrator.runtime.errors import TargetError
from tests import pins
from tests.fakes.store import FakeStore
from tests.support_fence import no_fence
from tests.support_items import put_items

KEYS: dict[str, tuple[KeyAttribute, ...]] = {
    "text": (KeyAttribute("PK"), KeyAttribute("SK")),
    "alone": (KeyAttribute("PK"),),
    "numbers": (KeyAttribute("PK", "number"), KeyAttribute("SK", "number")),
    "mixed": (KeyAttribute("PK", "binary"), KeyAttribute("SK", "text")),
}


@dataclass
class Table:
    design: TableDesign
    control: Control
    items: ItemStore


@pytest.fixture(params=["fake", "dynamodb"])
def store(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(params=KEYS)
def table(request: pytest.FixtureRequest, store: str) -> Iterator[Table]:
    design = TableDesign(f"T{secrets.token_hex(6)}", KEYS[request.param], "type")
    if store == "fake":
        fake = FakeStore(design, no_fence)
        yield Table(design, fake, fake)
        return
    client = dynamodb_client(region=None, profile=None, endpoint=request.getfixturevalue("dynamodb_url"))
    DynamoTableAdmin(client).create(design)
    real = DynamoStore(client, design, no_fence)
    yield Table(design, ControlItem(real, lambda state: None), real)
    client.delete_table(TableName=design.name)


def test_the_highest_ticket_only_grows(table: Table) -> None:
    assert table.control.read_control().ticket == 0
    for ticket, highest in ((5, 5), (3, 5), (5, 5), (10**12 + 1, 10**12 + 1), (6, 10**12 + 1)):
        table.control.raise_control(ticket)
        assert table.control.read_control().ticket == highest
    (item,) = (one for page in table.items.scan(0, 1) for one in page.items)
    assert table.design.is_hidden(item)


def test_of_many_at_once_the_highest_stays(table: Table) -> None:
    with ThreadPoolExecutor(4) as executor:
        list(executor.map(table.control.raise_control, [7, 30, 2, 29, 11, 30, 1, 28]))
    assert table.control.read_control().ticket == 30


def test_a_foreign_item_under_its_key_is_reported(table: Table) -> None:
    put_items(table.items, [{**control_key(table.design), "type": "Order", "_tk": 3}])
    with pins.refused(TargetError, "control"):
        table.control.read_control()
    with pins.refused(TargetError, "stands"):
        table.control.raise_control(5)


def test_control_raise_returns_a_ticket_that_is_as_high(table: Table) -> None:
    assert [table.control.raise_control(ticket) for ticket in (5, 3, 5, 6)] == [0, 5, 5, 0]


def test_record_of_a_job_outlives_tickets_and_other_jobs(table: Table) -> None:
    kept = Kept("one", {"orders": KeptPhase("live", 4)}, frozenset({"invoice"}), 3)
    table.control.keep("table-1", "shop", kept)
    table.control.raise_control(7)
    table.control.keep("table-1", "other", Kept("two"))
    state = table.control.read_control()
    assert (state.ticket, state.table_id, state.is_there) == (7, "table-1", True)
    assert state.jobs == {"shop": kept, "other": Kept("two")}
    (item,) = (one for page in table.items.scan(0, 1) for one in page.items)
    assert table.design.is_hidden(item)


def test_item_that_existed_before_is_not_created_again(table: Table) -> None:
    table.control.raise_control(5)
    table.items.delete([table.design.key_of(control_key(table.design))])
    with pins.refused(TargetError):
        table.control.raise_control(6)
    assert not table.control.read_control().is_there


def test_an_item_of_an_older_migrator_is_raised_and_kept_in(table: Table) -> None:
    put_items(table.items, [{**control_key(table.design), "type": "_control", "_tk": 3}])
    assert (table.control.read_control().version, table.control.raise_control(4)) == (0, 0)
    table.control.keep("table-1", "shop", Kept("one"))
    assert (table.control.read_control().ticket, table.control.raise_control(5)) == (4, 0)


def test_writer_is_notified_if_another_journal_owns_the_table(dynamodb_url: str) -> None:
    design = TableDesign(f"T{secrets.token_hex(6)}", KEYS["text"], "type")
    client = dynamodb_client(region=None, profile=None, endpoint=dynamodb_url)
    DynamoTableAdmin(client).create(design)
    told: list[str] = []
    writer = ControlItem(
        DynamoStore(client, design, no_fence), lambda state: told.append(state.jobs["shop"].journal)
    )
    writer.keep("table-1", "shop", Kept("one"))
    writer.raise_control(5)
    ControlItem(DynamoStore(client, design, no_fence), lambda state: None).keep(
        "table-1", "shop", Kept("two")
    )
    assert (writer.raise_control(6), told) == (0, ["two"])
    client.delete_table(TableName=design.name)
