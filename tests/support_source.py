"""One small schema with awkward keys, as facts and as rows, and plans for it by hand."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from migrator.mapping.items.values import decoder
from migrator.mapping.model.facts import (
    CollectionPlan,
    Column,
    EntityPlan,
    ForeignKey,
    JoinPlan,
    Kind,
    SchemaFacts,
    Slot,
    TableFacts,
)
from migrator.mapping.model.mapping import Collection, Entity
from migrator.mapping.model.table import RowTree, SourceKey, encode_key
from migrator.runtime.values import replace

Row = dict[str, Any]

INTEGER, NUMBER, TEXT = Kind("integer"), Kind("number", scale=2), Kind("text")
TIMESTAMP, ZONED = Kind("timestamp"), Kind("timestamp", zone=True)


def column(name: str, kind: Kind, real: str | None = None, *, nullable: bool = True) -> Column:
    return Column(name, real or name, kind, nullable)


def table_of(name: str, key: Sequence[str], columns: Sequence[Column], **facts: Any) -> TableFacts:
    """Facts of a table; the columns of its key are NOT NULL."""
    real = facts.pop("real", name)
    own_columns = tuple(replace(each, nullable=each.nullable and each.name not in key) for each in columns)
    return TableFacts(name, real, own_columns, tuple(key), **facts)


def _keyed(name: str, kind: Kind) -> TableFacts:
    return table_of(name, ["k"], [column("k", kind), column("n", INTEGER)])


REGION = table_of("region", ["id"], [column("id", INTEGER), column("name", TEXT)])
CUSTOMER = table_of(
    "customer",
    ["id"],
    [column("id", INTEGER), column("name", TEXT), column("region_id", INTEGER, "RegionId")],
    foreign_keys=(ForeignKey(("region_id",), "region", ("id",)),),
)
SHELF = table_of(
    "shelf",
    ["house", "number"],
    [column("house", TEXT), column("number", INTEGER), column("label", TEXT)],
    unique=(("label", "house"),),
)
PURCHASE = table_of(
    "purchase",
    ["id"],
    [
        column("id", INTEGER, "Id"),
        column("customer_id", INTEGER, "CustomerId"),
        column("status", TEXT),
        column("total", NUMBER),
        column("paid", Kind("boolean")),
        column("placed_at", TIMESTAMP),
        column("deleted_at", TIMESTAMP),
        column("notes", Kind("json")),
    ],
    foreign_keys=(ForeignKey(("customer_id",), "customer", ("id",)),),
)
LINE = table_of(
    "purchase_line",
    ["purchase_id", "line_no"],
    [
        column("purchase_id", INTEGER, "PurchaseId"),
        column("line_no", INTEGER, "Line No"),
        column("product", TEXT),
        column("amount", NUMBER),
        column("house", TEXT),
        column("shelf_no", INTEGER),
    ],
    real="Purchase Line",
    foreign_keys=(
        ForeignKey(("house", "shelf_no"), "shelf", ("house", "number")),
        ForeignKey(("purchase_id",), "purchase", ("id",)),
    ),
)
NODE = table_of("node", ["id"], [column("id", INTEGER), column("parent_id", INTEGER), column("name", TEXT)])
"""Trees without a declared foreign key, so that there may be cycles."""
PAIR = table_of("pair", ["a", "b"], [column("a", TEXT), column("b", INTEGER), column("n", INTEGER)])
TRIPLE = table_of(
    "triple",
    ["at", "id", "word"],
    [column("at", ZONED), column("id", Kind("uuid")), column("word", TEXT), column("n", INTEGER)],
)
KEYED = [
    _keyed("by_integer", INTEGER),
    _keyed("by_text", TEXT),
    _keyed("by_uuid", Kind("uuid")),
    _keyed("by_timestamp", TIMESTAMP),
    _keyed("by_zoned", ZONED),
    _keyed("by_date", Kind("date")),
    _keyed("by_time", Kind("time")),
    _keyed("by_number", NUMBER),
    _keyed("by_float", Kind("float")),
    _keyed("by_binary", Kind("binary")),
    PAIR,
    TRIPLE,
]
TABLES = {table.name: table for table in (REGION, CUSTOMER, SHELF, PURCHASE, LINE, NODE, *KEYED)}

WORDS = ["a", "A", "a b", "a-b", "ab", "B", "b", "", " ", "#", "a#b", "a#", "O'Neil", 'say "x"', "é", "e"]
WORDS += ["ß", "ss", "Z", "z", "zz", "日本", "Ω", "%", "%(x)s", ":x", "\\", "10", "9", "😀", "a_b"]
WORDS += ["NULL", "a\nb"]
_START = datetime(2024, 2, 28, 23, 59, 59, 999_999)


def _uuid(number: int) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_OID, str(number))


def _numbered(table: TableFacts, keys: Sequence[Any]) -> list[Row]:
    return [{"k": key, "n": number} for number, key in enumerate(keys)]


def rows_of_the_schema() -> dict[str, list[Row]]:
    """Rows by real table name, as Python values; made anew, so that a test may change them."""
    keys: dict[str, list[Any]] = {
        "by_integer": [-5, 0, 1, 2, 10, 100, 32_768, 2**31, 2**53 + 1, -(2**63)],
        "by_text": WORDS,
        "by_uuid": [_uuid(number) for number in range(9)],
        "by_timestamp": [_START + timedelta(hours=number, microseconds=number) for number in range(9)],
        "by_zoned": [(_START + timedelta(hours=7 * number)).replace(tzinfo=UTC) for number in range(9)],
        "by_date": [date(2024, 2, 26) + timedelta(days=number) for number in range(8)],
        "by_time": [time(number, 0, 0, number) for number in range(8)],
        "by_number": [Decimal(text) for text in ("-1.50", "0.00", "0.10", "0.20", "2.00", "10.00", "9.99")],
        "by_float": [-1.5, 0.1, 0.2, 0.30000000000000004, 1e100, 1e-120, 2.0],
        "by_binary": [b"", b"\x00", b"\x00\x01", b"a", b"\xff", b"ab", b"'"],
    }
    places = zip(WORDS * 2, range(2 * len(WORDS)), strict=True)
    moments = [_START.replace(tzinfo=UTC), (_START + timedelta(days=1)).replace(tzinfo=UTC)]
    triples = [(at, _uuid(number), word) for at in moments for number in (1, 2) for word in ("", "b", "B#")]
    return {
        **{name: _numbered(TABLES[name], found) for name, found in keys.items()},
        "pair": [{"a": word, "b": number % 5 + number, "n": number} for word, number in places],
        "triple": [{"at": at, "id": id_, "word": word, "n": n} for n, (at, id_, word) in enumerate(triples)],
        "region": [{"id": 1, "name": "Nord"}, {"id": 2, "name": "Süd"}],
        "customer": [
            {"id": 1, "name": "Ada", "RegionId": 1},
            {"id": 2, "name": "Bob", "RegionId": None},
            {"id": 3, "name": None, "RegionId": 2},
        ],
        "shelf": [
            {"house": "A", "number": 1, "label": "top"},
            {"house": "A", "number": 2, "label": "low"},
            {"house": "B", "number": 1, "label": "top"},
        ],
        "purchase": _purchases(),
        "Purchase Line": _lines(),
        "node": _nodes(),
    }


def _purchases() -> list[Row]:
    at = datetime(2024, 5, 1, 12, 30)
    common = {"placed_at": at, "paid": True, "deleted_at": None, "notes": {"a": [1, None, "ä"]}}
    return [
        {"Id": 10, "CustomerId": 1, "status": "P", "total": Decimal("10.10"), **common},
        {"Id": 20, "CustomerId": 2, "status": "S", "total": Decimal("0.30"), **common, "paid": False},
        {"Id": 30, "CustomerId": None, "status": None, "total": None, **common, "paid": None, "notes": None},
        {"Id": 40, "CustomerId": 3, "status": "X", "total": Decimal("99.99"), **common, "deleted_at": at},
        {"Id": 50, "CustomerId": 1, "status": "P", "total": Decimal("5.00"), **common},
    ]


def _nodes() -> list[Row]:
    """A tree below 1, a cycle of 6 and 7 with 8 below, 9 below itself, and a line of 130 below 1000."""
    parents: dict[int, int | None] = {1: None, 2: 1, 3: 2, 4: 3, 5: 1, 6: 7, 7: 6, 8: 7, 9: 9, 1000: None}
    parents |= {number: number - 1 for number in range(1001, 1131)}
    return [{"id": id_, "parent_id": parent, "name": f"n{id_}"} for id_, parent in parents.items()]


def _lines() -> list[Row]:
    lines = [
        (10, 2, "pear", "1.10", "A", 2),
        (10, 1, "plum", "2.20", "A", 1),
        (10, 3, "fig", None, None, None),
        (20, 1, "fig", "0.30", "B", 1),
        (40, 1, "apple", "7.00", "A", None),
        (50, 2, "apple", None, "B", 1),
        (50, 1, "apple", None, "B", 1),
    ]
    names = ("PurchaseId", "Line No", "product", "amount", "house", "shelf_no")
    rows = [dict(zip(names, line, strict=True)) for line in lines]
    return [{**row, "amount": row["amount"] and Decimal(row["amount"])} for row in rows]


# ── plans by hand ──


def plan_of(
    table: TableFacts,
    paths: Sequence[str] | None = None,
    joins: Sequence[JoinPlan] = (),
    collections: Sequence[CollectionPlan] = (),
    **fields: Any,
) -> EntityPlan:
    """A plan with the slots at `paths` (None: every column of the root); fields: key and where of the plan."""
    key = fields.pop("key", None) or tuple(table.column(name) for name in table.primary_key)
    chosen = [root_column.name for root_column in table.columns] if paths is None else paths
    slots = slots_at(table, joins, chosen)
    entity = Entity(table.name, table.name, items=())
    return EntityPlan(entity, table, key, slots, tuple(joins), tuple(collections), **fields)


def slots_at(table: TableFacts, joins: Sequence[JoinPlan], paths: Sequence[str]) -> tuple[Slot, ...]:
    tables = {"": table, **{join.alias: join.table for join in joins}}
    parts = [(path, *path.rpartition(".")[::2]) for path in paths]
    return tuple(Slot(path, alias, column_of(tables[alias], name)) for path, alias, name in parts)


def column_of(table: TableFacts, name: str) -> Column:
    found_column = table.column(name)
    assert found_column is not None, name
    return found_column


def list_of(
    alias: str, table: TableFacts, link: Sequence[tuple[str, str]], paths: Sequence[str], **options: Any
) -> CollectionPlan:
    """A collection that is a list; options: joins, order_by."""
    joins = tuple(options.pop("joins", ()))
    order_by = tuple(options.pop("order_by", table.primary_key))
    collection = Collection(alias, "list", table.name, by=())
    return CollectionPlan(collection, table, tuple(link), joins, slots_at(table, joins, paths), order_by)


def number_of(
    kind: Any, table: TableFacts, link: Sequence[tuple[str, str]], name: str = ""
) -> CollectionPlan:
    """A collection that is one aggregate, of the column `name` where there is one."""
    summed = column_of(table, name) if name else None
    return CollectionPlan(Collection(kind, kind, table.name, by=()), table, tuple(link), column=summed)


CUSTOMER_OF_PURCHASE = JoinPlan("customer", "", CUSTOMER, (("CustomerId", "id"),))
REGION_OF_CUSTOMER = JoinPlan("region", "customer", REGION, (("RegionId", "id"),))
SHELF_OF_LINE = JoinPlan("shelf", "", SHELF, (("house", "house"), ("shelf_no", "number")))

LINES = (("PurchaseId", "Id"),)
"""How lines are linked to their purchase."""


def decoded(plan: EntityPlan, trees: Sequence[RowTree]) -> list[tuple[Any, ...]]:
    """Trees with every value in the heart's one form per kind, so that all sources can be compared."""
    return [_decoded_tree(plan, tree) for tree in trees]


def _decoded_tree(plan: EntityPlan, tree: RowTree) -> tuple[Any, ...]:
    width = len(plan.slots)
    assert len(tree) == width + len(plan.collections)
    parts = zip(plan.collections, tree[width:], strict=True)
    return (
        *_decoded_row(plan.slots, tree[:width]),
        *(_decoded_part(collection, part) for collection, part in parts),
    )


def _decoded_row(slots: Sequence[Slot], row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(decoder(slot.column.kind)(value) for slot, value in zip(slots, row, strict=True))


def _decoded_part(plan: CollectionPlan, part: Any) -> Any:
    if plan.collection.is_list:
        assert isinstance(part, tuple)
        return tuple(_decoded_row(plan.slots, child) for child in part)
    is_count = plan.collection.kind == "count"
    return decoder(INTEGER if plan.column is None or is_count else plan.column.kind)(part)


def keys_of(plan: EntityPlan, trees: Sequence[RowTree]) -> list[SourceKey]:
    places = [[slot.path for slot in plan.slots].index(key_column.name) for key_column in plan.key]
    return [encode_key([tree[place] for place in places]) for tree in trees]


def facts_by_hand(dialect: str = "memory") -> SchemaFacts:
    return SchemaFacts(dialect, dict(TABLES), loosely_typed=dialect == "sqlite")
