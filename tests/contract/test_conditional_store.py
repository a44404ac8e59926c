"""What every store of conditional writes does: the fake one and DynamoDB."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from threading import Event, Thread
from typing import Any

import pytest

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.conditional import ConditionalWrites
from migrator.dynamodb.store import DynamoStore
from migrator.mapping.model.edges import ItemStore
from migrator.mapping.model.live import ConditionalStore, Outcome
from migrator.mapping.model.table import TOMBSTONE, Item, KeyAttribute, TableDesign
from tests.fakes.store import FakeStore
from tests.support_fence import no_fence
from tests.support_items import encoded, put_items, write_groups, write_items


@dataclass
class Table:
    design: TableDesign
    writes: ConditionalStore
    items: ItemStore

    def verdicts(self, *items: Item, fresh: bool = False) -> list[tuple[str, str]]:
        outcomes = write_items(self.writes, items, fresh=fresh)
        assert [one.item for one in outcomes] == encoded(items, self.design)
        return [(one.verdict, one.owner) for one in outcomes]

    def together(self, *groups: list[Item]) -> list[tuple[str, str]]:
        outcomes = write_groups(self.writes, groups)
        assert [one.item for one in outcomes] == [
            item for group in groups for item in encoded(group, self.design)
        ]
        return [(one.verdict, one.owner) for one in outcomes]

    def stored(self) -> list[Item]:
        found = [one for page in self.items.scan(0, 1) for one in page.items]
        return sorted(found, key=lambda one: repr(self.design.key_of(one)))


KEYS: dict[str, tuple[KeyAttribute, ...]] = {
    "text": (KeyAttribute("PK"), KeyAttribute("SK")),
    "numbers": (KeyAttribute("PK", "number"), KeyAttribute("SK", "number")),
    "binary": (KeyAttribute("PK", "binary"), KeyAttribute("SK", "binary")),
    "alone": (KeyAttribute('it\'s a "key"'),),
}


@pytest.fixture(params=["fake", "dynamodb"])
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    callspec: Any = request.node.callspec
    key = KEYS[callspec.params.get("key", "text")]
    design = TableDesign(f"T{secrets.token_hex(6)}", key, "type", ttl="expires")
    if request.param == "fake":
        store = FakeStore(design, no_fence)
        yield Table(design, store, store)
        return
    client = dynamodb_client(region=None, profile=None, endpoint=request.getfixturevalue("dynamodb_url"))
    DynamoTableAdmin(client).create(design)
    real = DynamoStore(client, design, no_fence)
    yield Table(design, ConditionalWrites(real), real)
    client.delete_table(TableName=design.name)


def item(number: int, source: str | None = "order:[1]", ticket: int | None = 5, **more: Any) -> Item:
    made: Item = {"PK": "P", "SK": f"S#{number:04}", "type": "Order", **more}
    made |= {} if source is None else {"_src": source}
    return made if ticket is None else {**made, "_tk": ticket}


def dead(number: int, source: str = "order:[1]", ticket: int = 5) -> Item:
    return {**item(number, source, ticket), "type": TOMBSTONE, "expires": 2_000_000_000}


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    ("there", "verdict"),
    [
        (item(1, ticket=4), ("stored", "")),
        (item(1, ticket=5), ("stored", "")),
        (item(1, ticket=0), ("stored", "")),
        (item(1, ticket=None), ("stored", "")),
        (item(1, ticket=6), ("newer", "")),
        (dead(1, ticket=5), ("stored", "")),
        (dead(1, ticket=6), ("newer", "")),
        (dead(1, "order:[2]", 4), ("stored", "")),
        (dead(1, "order:[2]", 5), ("stored", "")),
        (dead(1, "order:[2]", 6), ("tombstoned_by_other", "order:[2]")),
        (item(1, "order:[2]", 4), ("owned_by_other", "order:[2]")),
        (item(1, "order:[2]", 6), ("owned_by_other", "order:[2]")),
        (item(1, None, None), ("owned_by_other", "")),
        ({"PK": "P", "SK": "S#0001"}, ("owned_by_other", "")),
    ],
    ids=lambda value: (
        "" if isinstance(value, tuple) else f"{value.get('type')} {value.get('_src')} {value.get('_tk')}"
    ),
)
def test_nothing_newer_and_nothing_of_anothers_is_replaced(
    table: Table, there: Item, verdict: tuple[str, str], *, fresh: bool
) -> None:
    put_items(table.items, [there])
    new = item(1, ticket=5, n=1)
    assert table.verdicts(new, fresh=fresh) == [verdict]
    assert table.stored() == [new if verdict[0] == "stored" else there]


@pytest.mark.parametrize("way", ["write", "insert", "together"])
def test_kept_attributes_outlive_every_write_despite_changes(dynamodb_url: str, way: str) -> None:
    client = dynamodb_client(region=None, profile=None, endpoint=dynamodb_url)
    design = TableDesign(
        f"T{secrets.token_hex(6)}", KEYS["text"], "type", ttl="expires", kept=frozenset({"flag", "visits"})
    )
    DynamoTableAdmin(client).create(design)
    real = DynamoStore(client, design, no_fence)
    store = ConditionalWrites(real)
    put_items(real, [item(1, ticket=1, old=1, flag=True, visits=0, unnamed="x"), item(2, ticket=9, n=0)])
    counted = Event()

    def count() -> None:
        for _ in range(60):
            client.update_item(
                TableName=design.name,
                Key={"PK": {"S": "P"}, "SK": {"S": "S#0001"}},
                UpdateExpression="ADD visits :one",
                ExpressionAttributeValues={":one": {"N": "1"}},
            )
        counted.set()

    def write(ticket: int) -> list[Outcome]:
        items = [item(number, ticket=ticket, n=ticket, flag="ours") for number in (1, 2, 3)]
        if way == "together":
            return write_groups(store, [items[:1], items[1:]])
        return write_items(store, items, fresh=way == "insert")

    service = Thread(target=count)
    service.start()
    ticket = 10
    while not counted.is_set() or ticket < 12:
        ticket += 1
        assert {one.verdict for one in write(ticket)} <= {"stored"}
    service.join()
    assert real.get([("P", "S#0001")])[("P", "S#0001")] == item(
        1, ticket=ticket, n=ticket, flag=True, visits=60
    )
    assert not {"flag", "visits"} & real.get([("P", "S#0003")])[("P", "S#0003")].keys()
    assert [one.verdict for one in write(10)][:1] == ["newer"]
    assert [one.verdict for one in write_items(store, [dead(1, ticket=ticket)])] == ["stored"]
    assert real.get([("P", "S#0001")])[("P", "S#0001")] == dead(1, ticket=ticket)
    client.delete_table(TableName=design.name)


@pytest.mark.parametrize("fresh", [False, True])
def test_invalid_ticket_is_lower_than_any(table: Table, *, fresh: bool) -> None:
    assert table.verdicts(item(1, ticket=0), item(2, ticket=1), fresh=fresh) == [("stored", "")] * 2
    assert table.verdicts(item(1, ticket=0), item(2, ticket=0), fresh=fresh) == [
        ("stored", ""),
        ("newer", ""),
    ]


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 24, 25, 26, 30, 130])
def test_outcomes_come_in_the_order_of_any_number_of_items(table: Table, count: int, *, fresh: bool) -> None:
    put_items(table.items, [item(number, "order:[2]") for number in range(0, count, 3)])
    put_items(table.items, [item(number, ticket=9) for number in range(1, count, 3)])
    expected = [("owned_by_other", "order:[2]"), ("newer", ""), ("stored", "")]
    new = [item(number, n=number) for number in range(count)]
    assert table.verdicts(*new, fresh=fresh) == [expected[number % 3] for number in range(count)]
    assert [one for one in table.stored() if "n" in one] == new[2::3]


@pytest.mark.parametrize("fresh", [False, True])
def test_delete_of_a_missing_item_leaves_its_tombstone(table: Table, *, fresh: bool) -> None:
    assert table.verdicts(dead(1, ticket=7), fresh=fresh) == [("stored", "")]
    assert table.verdicts(item(1, ticket=6), fresh=fresh) == [("newer", "")]
    assert table.verdicts(item(1, "order:[2]", 6), fresh=fresh) == [("tombstoned_by_other", "order:[1]")]
    assert table.verdicts(item(1, "order:[2]", 8), fresh=fresh) == [("stored", "")]


def test_a_tombstone_is_removed_while_it_still_is_the_same(table: Table) -> None:
    put_items(table.items, [dead(1), dead(2, ticket=6), item(3), dead(4, "order:[2]")])
    assert table.writes.remove_tombstones([dead(number) for number in range(1, 6)]) == 3
    assert table.stored() == [dead(2, ticket=6), item(3)]
    assert table.writes.remove_tombstones([]) == 0


VALUES: Item = {
    "text": "Ünïcode 🎵 '#\" ?",
    'it\'s "quoted" {and} more: ?': 1,
    "empty": "",
    "yes": True,
    "null": None,
    "exact": Decimal("0.1234567890123456789012345678901234567"),
    "bytes": b"\x00\xff",
    "list": [1, "a", [], {"x": Decimal("1.5")}],
    "map": {"a": {"b": [True, None]}, "none": {}},
}


@pytest.mark.parametrize("fresh", [False, True])
def test_every_value_comes_back_as_it_went(table: Table, *, fresh: bool) -> None:
    whole = item(1) | VALUES
    assert table.verdicts(whole, fresh=fresh) == [("stored", "")]
    assert table.stored() == [whole]


@pytest.mark.parametrize("fresh", [False, True])
def test_an_item_of_very_many_attributes_is_written(table: Table, *, fresh: bool) -> None:
    many = item(1) | {f"attribute number {number}": number for number in range(500)}
    assert table.verdicts(many, item(2), fresh=fresh) == [("stored", "")] * 2
    assert table.stored() == [many, item(2)]


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("key", list(KEYS))
def test_keys_are_of_any_type_and_may_be_one_attribute(table: Table, key: str, *, fresh: bool) -> None:
    parts: dict[str, list[Any]] = {
        "text": ["a", "ä", "'"],
        "number": [0, -1, Decimal("1.50")],
        "binary": [b"\x00", b"a", b"\xff"],
    }
    items: list[Item] = []
    for number in range(3):
        attributes = {one.name: parts[one.type][number] for one in table.design.key}
        items.append({**attributes, "type": "Order", "_src": f"order:[{number}]", "_tk": 5})
    assert table.verdicts(*items, fresh=fresh) == [("stored", "")] * 3
    assert table.verdicts(*items, fresh=fresh) == [("stored", "")] * 3
    others = [{**one, "_src": "order:[9]"} for one in items]
    assert [verdict for verdict, _ in table.verdicts(*others, fresh=fresh)] == ["owned_by_other"] * 3
    tombs: list[Item] = [{**one, "type": TOMBSTONE, "_tk": 8} for one in items]
    assert table.verdicts(*tombs) == [("stored", "")] * 3
    assert [verdict for verdict, _ in table.verdicts(*others, fresh=fresh)] == ["tombstoned_by_other"] * 3
    assert table.writes.remove_tombstones(tombs) == 3
    assert table.stored() == []


@pytest.mark.parametrize("fresh", [False, True])
def test_of_writers_at_once_the_highest_ticket_stays(table: Table, *, fresh: bool) -> None:
    def write(ticket: int) -> None:
        write_items(table.writes, [item(number, ticket=ticket) for number in range(20)], fresh=fresh)

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(write, [3, 9, 1, 7, 2, 8]))
    assert [one["_tk"] for one in table.stored()] == [9] * 20


# ── groups ──


def test_a_group_is_written_whole(table: Table) -> None:
    put_items(table.items, [item(1, ticket=4), dead(2, ticket=4), dead(3, "order:[2]", 5)])
    group = [item(1, n=1), dead(2), item(3, n=1), item(4, n=1)]
    assert table.together(group) == [("stored", "")] * 4
    assert table.stored() == group


@pytest.mark.parametrize(
    ("there", "verdict"),
    [
        (item(2, ticket=6), ("newer", "")),
        (dead(2, ticket=6), ("newer", "")),
        (dead(2, "order:[2]", 6), ("tombstoned_by_other", "order:[2]")),
        (item(2, "order:[2]", 4), ("owned_by_other", "order:[2]")),
        (item(2, None, None), ("owned_by_other", "")),
    ],
    ids=["newer", "newer tombstone", "tombstoned_by_other", "owned_by_other", "foreign"],
)
@pytest.mark.parametrize("made", [item, dead])
def test_a_group_with_an_item_that_is_refused_is_not_written(
    table: Table, there: Item, verdict: tuple[str, str], made: Any
) -> None:
    before = [item(1, ticket=4), there]
    put_items(table.items, before)
    group = [item(1, n=1), made(2), dead(3), item(4)]
    rolled_back = ("rolled_back", "")
    assert table.together(group) == [rolled_back, verdict, rolled_back, rolled_back]
    assert table.stored() == before


def test_every_item_blocking_a_group_is_reported(table: Table) -> None:
    before = [item(1, "order:[2]"), item(2, ticket=9), dead(3, "order:[3]", 9)]
    put_items(table.items, before)
    told = table.together([item(number) for number in range(1, 5)])
    assert told == [
        ("owned_by_other", "order:[2]"),
        ("newer", ""),
        ("tombstoned_by_other", "order:[3]"),
        ("rolled_back", ""),
    ]
    assert table.stored() == before


def test_groups_stand_and_fall_by_themselves(table: Table) -> None:
    put_items(table.items, [item(3, "order:[2]")])
    told = table.together([item(1), item(2)], [item(3), item(4)], [], [item(5)])
    stored, rolled_back = ("stored", ""), ("rolled_back", "")
    assert told == [stored, stored, ("owned_by_other", "order:[2]"), rolled_back, stored]
    assert [one["SK"] for one in table.stored()] == ["S#0001", "S#0002", "S#0003", "S#0005"]


@pytest.mark.parametrize("count", [1, 2, 99, 100])
def test_a_group_is_of_100_items_at_most(table: Table, count: int) -> None:
    group = [item(number) if number % 3 else dead(number) for number in range(count)]
    assert table.together(group) == [("stored", "")] * count
    assert table.together([{**one, "_tk": 4} for one in group]) == [("newer", "")] * count
    assert table.stored() == group


def test_a_group_that_is_written_again_is_as_it_was(table: Table) -> None:
    group = [item(1), dead(2)]
    assert table.together(group) == table.together(group) == [("stored", "")] * 2
    assert table.stored() == group


def test_of_groups_at_once_one_is_seen_whole(table: Table) -> None:
    def write(ticket: int) -> None:
        table.together([item(number, ticket=ticket) for number in range(20)])

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(write, [3, 9, 1, 7, 2, 8]))
    assert [one["_tk"] for one in table.stored()] == [9] * 20


# ── alone, among items of others ──


def test_an_own_put_replaces_nothing_of_others(table: Table) -> None:
    own, other, plain, tombstone = (
        item(1, ticket=9),
        item(2, "order:[2]"),
        item(3, source=None),
        dead(4, "order:[4]"),
    )
    put_items(table.items, [own, other, plain, tombstone])
    wanted = [item(number, ticket=0) for number in range(5)]
    outcomes = table.writes.write_own(encoded(wanted, table.design))  # type: ignore[attr-defined]
    assert [(one.verdict, one.owner) for one in outcomes] == [
        ("stored", ""),
        ("stored", ""),
        ("owned_by_other", "order:[2]"),
        ("owned_by_other", ""),
        ("stored", ""),
    ]
    assert table.stored() == [wanted[0], wanted[1], other, plain, wanted[4]]
