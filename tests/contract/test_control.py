"""The control item of a table: the fake one's and DynamoDB's."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from migrator.errors import TargetError
from migrator.model import KeyAttribute, TableDesign
from migrator.ports import ItemStore
from migrator.ports.live import Control
from migrator.target.client import dynamodb_client
from migrator.target.control import ControlItem, control_key
from migrator.target.store import DynamoStore
from migrator.target.table import DynamoTableAdmin
from tests.fakes.store import FakeStore

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
        fake = FakeStore(design)
        yield Table(design, fake, fake)
        return
    client = dynamodb_client(region=None, profile=None, endpoint=request.getfixturevalue("dynamodb_url"))
    DynamoTableAdmin(client).create(design)
    real = DynamoStore(client, design)
    yield Table(design, ControlItem(real), real)
    client.delete_table(TableName=design.name)


def test_the_highest_ticket_only_grows(table: Table) -> None:
    assert table.control.read_control() == 0
    for ticket, highest in ((5, 5), (3, 5), (5, 5), (10**12 + 1, 10**12 + 1), (6, 10**12 + 1)):
        table.control.raise_control(ticket)
        assert table.control.read_control() == highest
    (item,) = (one for page in table.items.scan(0, 1) for one in page.items)
    assert table.design.is_hidden(item)


def test_of_many_at_once_the_highest_stays(table: Table) -> None:
    with ThreadPoolExecutor(4) as executor:
        list(executor.map(table.control.raise_control, [7, 30, 2, 29, 11, 30, 1, 28]))
    assert table.control.read_control() == 30


def test_an_item_of_somebody_elses_in_its_place_is_told(table: Table) -> None:
    table.items.put([{**control_key(table.design), "type": "Order", "_tk": 3}])
    with pytest.raises(TargetError, match="control item stands another item"):
        table.control.read_control()
    with pytest.raises(TargetError, match="control item stands another item"):
        table.control.raise_control(5)
