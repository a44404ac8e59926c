"""A shop whose services write items alone, a stream of them, and the way back into rows in memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from migrator.mapping.check.check import check_mapping
from migrator.mapping.inverse.rows import compile_inverse
from migrator.mapping.items.items import items_for
from migrator.mapping.model.facts import Column, ForeignKey, Kind, SchemaFacts, TableFacts
from migrator.mapping.model.live import StreamPosition, StreamRecord
from migrator.mapping.model.table import Item, ItemKey
from migrator.source.dynamodb.reader import StreamReader
from migrator.stages.reverse.stage import Reverse, WrittenTable, items_by_row
from tests.fakes.reverse import FakeReverseJournal, FakeRowWriter
from tests.fakes.source import MemorySource
from tests.support_mapping import parse_mapping
from tests.unit.stages.core.stream_world import Dying, Steps, World

MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities:
  customer: {items: {Customer: {key: ["C#{id}", M], attributes: {id: id, name: name}}}}
  orders:
    items:
      Order: {key: ["C#{customer_id}", "O#{id}"], attributes: {id: id, customer_id: customer_id, total: total}}
      Hot: {key: ["HOT", "O#{id}"], when: {hot: true}, attributes: {id: id}}
  line: {items: {Line: {key: ["O#{order_id}", "L#{no}"], attributes: {order_id: order_id, no: no, sku: sku}}}}
"""


def _column(name: str, kind: str = "integer", *, nullable: bool = False) -> Column:
    return Column(name, name, Kind(kind), nullable)  # type: ignore[arg-type]


FACTS = SchemaFacts(
    "memory",
    {
        "customer": TableFacts(
            "customer",
            "customer",
            (_column("id"), _column("name", "text", nullable=True)),
            ("id",),
            unique=(("name",),),
        ),
        "orders": TableFacts(
            "orders",
            "orders",
            (
                *(_column("id"), _column("customer_id")),
                *(_column("total", nullable=True), _column("hot", "boolean")),
            ),
            ("id",),
            foreign_keys=(ForeignKey(("customer_id",), "customer", ("id",)),),
        ),
        "line": TableFacts(
            "line",
            "line",
            (_column("order_id"), _column("no"), _column("sku", "text", nullable=True)),
            ("order_id", "no"),
            foreign_keys=(ForeignKey(("order_id",), "orders", ("id",)),),
        ),
    },
    loosely_typed=False,
)


def customer(number: int, name: str = "") -> Item:
    return {"PK": f"C#{number}", "SK": "M", "type": "Customer", "id": number, "name": name or f"n{number}"}


def order(number: int, of: int, total: int | None = None) -> Item:
    item: Item = {"PK": f"C#{of}", "SK": f"O#{number}", "type": "Order", "id": number, "customer_id": of}
    return item if total is None else {**item, "total": total}


def hot(number: int) -> Item:
    return {"PK": "HOT", "SK": f"O#{number}", "type": "Hot", "id": number}


def line(of: int, number: int, sku: str = "s") -> Item:
    return {
        **{"PK": f"O#{of}", "SK": f"L#{number}", "type": "Line"},
        **{"order_id": of, "no": number, "sku": sku},
    }


@dataclass
class Items:
    world: World

    def get(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Item]:
        return {key: dict(self.world.fake.items[key]) for key in keys if key in self.world.fake.items}


@dataclass
class Shop:
    """`held`: at each write of rows, the keys of order rows that an item held all the while since the last turn."""

    page_records: int = 1000
    settle_s: float = 15.0
    deleted: list[tuple[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(page_records=self.page_records)
        self.clock = self.world.fake.clock
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in FACTS.tables}
        self.checked = check_mapping(parse_mapping(MAPPING, "shop.yaml"), FACTS)
        self.source = MemorySource(FACTS, self.rows)
        self.inverse = compile_inverse(self.checked.mapping, self.checked.plans)
        assert all(table.invertible for table in self.inverse.tables), self.inverse.tables
        self.writer = FakeRowWriter(FACTS, self.rows)
        self.journal = FakeReverseJournal(self.clock)
        self.tables = {
            plan.table.name: WrittenTable(plan.table, tuple(column.name for column in plan.key))
            for plan in self.checked.plans
        }

    # ── what services do ──

    def put(self, *items: Item) -> None:
        for item in items:
            self.world.fake.put(item)

    def delete(self, *items: Item) -> None:
        for item in items:
            self.world.fake.delete(item)

    def shard_of(self, partition: str) -> str:
        """The shard that takes changes of it now."""
        hashed = zlib.crc32(partition.encode())
        return next(one.id for one in self.world.fake.open_shards if one.begin <= hashed < one.end)

    def records(self, shard: str) -> list[StreamRecord]:
        arn, source = self.world.fake.arn, self.world.source
        return source.records(
            arn, shard, source.iterator(arn, shard, StreamPosition("TRIM_HORIZON")), 1000
        ).records

    # ── the way back ──

    def reverse(self, steps: Steps | None = None, names: Collection[str] = tuple(FACTS.tables)) -> Reverse:
        """`names`: the entities whose rows it makes."""

        def dying(edge: Any) -> Any:
            return edge if steps is None else Dying(edge, steps)

        edges = (dying(Items(self.world)).get, dying(self.writer), dying(self.journal))
        made = partial(items_by_row, self.source.read_rows, self.checked.entities)
        plans = [plan for plan in self.checked.plans if plan.entity.written in names]
        tables = {plan.table.name: self.tables[plan.table.name] for plan in plans}
        inverse = compile_inverse(self.checked.mapping, plans)
        return Reverse(inverse, tables, *edges, made, self.settle_s)

    def passed_at(self) -> float:
        shards = self.world.journal.read(self.world.fake.arn).shards
        return min((one.passed_at for one in shards if not one.is_finished), default=float("-inf"))

    def turn(self, reader: StreamReader, reverse: Reverse) -> None:
        reader.turn()
        reverse.again(self.passed_at(), lambda: None)

    def drain(self, turns: int = 12, each_s: float = 8.0) -> None:
        """A new process works all that there is, and waits for what has to wait."""
        self.world.fake.advance(61.0)
        reverse = self.reverse()
        with self.world.reader("last", work=reverse.work) as reader:
            for _ in range(turns):
                self.turn(reader, reverse)
                self.world.fake.advance(each_s)

    def held(self) -> dict[str, set[Any]]:
        """By table the keys of rows that items hold now."""
        items = self.world.fake.items.values()
        return {
            "customer": {item["id"] for item in items if item["type"] == "Customer"},
            "orders": {item["id"] for item in items if item["type"] == "Order"},
            "line": {(item["order_id"], item["no"]) for item in items if item["type"] == "Line"},
        }

    def there(self) -> dict[str, set[Any]]:
        return {
            "customer": {row["id"] for row in self.rows["customer"]},
            "orders": {row["id"] for row in self.rows["orders"]},
            "line": {(row["order_id"], row["no"]) for row in self.rows["line"]},
        }

    def items_of_rows(self) -> dict[ItemKey, Item]:
        own = self.inverse.table.own_attributes
        made = (
            item
            for entity in self.checked.entities
            for tree in self.source.read_page(entity.plan, None, None)
            for item in items_for(entity, tree)
        )
        return {
            self.inverse.table.key_of(item): {name: value for name, value in item.items() if name not in own}
            for item in made
        }

    def is_equal(self) -> bool:
        return self.items_of_rows() == self.world.fake.items and not self.journal.waits

    def never_absent(self) -> Callable[[], None]:
        """Watches that no row goes that an item holds."""
        before = self.there()

        def look() -> None:
            now, held = self.there(), self.held()
            for name, keys in now.items():
                assert not (before[name] - keys) & held[name], f"a row of {name} is gone that an item holds"
            before.update(now)

        return look
