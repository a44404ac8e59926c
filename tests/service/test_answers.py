"""Which side an answer of a service came from, and its values as Python's own types, alike from both sides."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from migrator.api import Parts, Records
from tests.service.reading import ReadShop, open_read_shop, records, seen
from tests.support_mysql import is_mariadb

SIDES = {"off": "sql", "shadow": "sql", "ramp": "table", "live": "table", "complete": "table"}


@pytest.mark.engines("sqlite")
def test_answer_names_its_side_in_each_phase(read_shop: ReadShop) -> None:
    read_shop.sql("UPDATE orders SET status = 'sql'")
    with read_shop.migration() as migration:
        for phase, side in SIDES.items():
            for pattern in ("recent_orders", "user_and_orders"):
                read_shop.move(phase, 100 if phase == "ramp" else 0, pattern)
                seen(migration, phase, pattern)
            orders = migration.read("recent_orders", user_id=2, limit=1)
            page = migration.read_page("recent_orders", user_id=2, size=2)
            parts = migration.read("user_and_orders", user_id=2)
            assert isinstance(orders, Records)
            assert orders[0]["status"] == ("sql" if side == "sql" else "open")
            assert isinstance(parts, Parts)
            assert isinstance(parts["orders"], Records)
            assert {orders.origin, page.items.origin, parts.origin, parts["orders"].origin} == {side}


@pytest.mark.engines("sqlite")
def test_rollback_resets_origin_and_a_page_stays_on_its_side(read_shop: ReadShop) -> None:
    read_shop.move("live", 0, "recent_orders")
    with read_shop.migration() as migration:
        first = migration.read_page("recent_orders", user_id=2, size=2)
        read_shop.move("shadow", 0, "recent_orders")
        seen(migration, "shadow")
        second = migration.read_page("recent_orders", user_id=2, size=2, cursor=first.next)
        assert (first.items.origin, second.items.origin) == ("table", "table")
        assert migration.read("recent_orders", user_id=2).origin == "sql"


@pytest.mark.engines("sqlite")
def test_an_answer_is_a_list_or_dict_for_all_that_takes_one(read_shop: ReadShop) -> None:
    with read_shop.migration() as migration:
        orders, parts = (migration.read(name, user_id=2) for name in ("recent_orders", "user_and_orders"))
        assert isinstance(parts, Parts)
        for answer, plain in ((orders, list(orders)), (parts, dict(parts))):
            assert answer == plain
            assert json.dumps(answer, default=str) == json.dumps(plain, default=str)
            for copied in (pickle.loads(pickle.dumps(answer)), copy.deepcopy(answer)):
                assert (copied, copied.origin) == (answer, "sql")
                assert copied.typed() == answer.typed()


MOMENT = datetime(2024, 3, 31, 2, 30, 0, 250000)
ZONED = MOMENT.replace(tzinfo=UTC)
ID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
COMMON: tuple[tuple[str, str, Any], ...] = (
    ("INTEGER", "7", 7),
    ("NUMERIC(10, 2)", "12.50", Decimal("12.5")),
    ("NUMERIC(10, 2)", "-12.00", Decimal(-12)),
    ("DOUBLE PRECISION", "0.5", 0.5),
    ("DOUBLE PRECISION", "3", 3.0),
    ("VARCHAR(40)", "'2024-03-31'", "2024-03-31"),
    ("DATE", "'1969-07-20'", date(1969, 7, 20)),
    ("TIME", "'04:05:06'", time(4, 5, 6)),
    ("BOOLEAN", "TRUE", True),
)
COLUMNS: dict[str, tuple[tuple[str, str, Any], ...]] = {
    "sqlite": (
        *COMMON,
        ("TIMESTAMP", "'2024-03-31 02:30:00.25'", MOMENT),
        ("TIMESTAMP", "'2024-03-31 03:30:00.25+01:00'", ZONED),
        ("UUID", f"'{ID}'", UUID(ID)),
        ("BLOB", "x'00ff'", b"\x00\xff"),
    ),
    "postgresql": (
        *COMMON,
        ("TIMESTAMP", "'2024-03-31 02:30:00.25'", MOMENT),
        ("TIMESTAMPTZ", "'2024-03-31 03:30:00.25+01:00'", ZONED),
        ("TIMETZ", "'04:05:06+00:00'", time(4, 5, 6, tzinfo=UTC)),
        ("UUID", f"'{ID}'", UUID(ID)),
        ("REAL", "0.1", 0.1),
        ("DATE[]", "'{1969-07-20, NULL}'", [date(1969, 7, 20), None]),
        ("NUMERIC[]", "'{{1, 2.5}, {3, 4}}'", [[Decimal(1), Decimal("2.5")], [Decimal(3), Decimal(4)]]),
        ("JSONB", """'{"at": "2024-03-31", "n": 1.50}'""", {"at": "2024-03-31", "n": Decimal("1.5")}),
    ),
    "mariadb": (
        *COMMON,
        ("DATETIME(6)", "'2024-03-31 02:30:00.25'", MOMENT),
        ("TIMESTAMP(6) NULL", "'2024-03-31 02:30:00.25'", ZONED),
        ("UUID", f"'{ID}'", UUID(ID)),
        ("YEAR", "1901", 1901),
        ("JSON", """'{"n": 1.50}'""", {"n": Decimal("1.5")}),
    ),
}
ZONES = {"mariadb": "SET time_zone = '+00:00'"}


def types_of(value: Any) -> Any:
    """The value's type, and those of all that is in it; of a time whether it has a zone."""
    if isinstance(value, dict):
        return {name: types_of(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [types_of(inner) for inner in value]
    return type(value).__name__, getattr(value, "tzinfo", None) is None


def _mapping(columns: tuple[tuple[str, str, Any], ...]) -> str:
    names = [f"c{number}" for number in range(len(columns))]
    times = [n for n, (_, _, value) in zip(names, columns, strict=True) if isinstance(value, datetime)]
    attributes = ", ".join(f"short_{name}: '{name}|iso:s', day_{name}: '{name}|date'" for name in times)
    returned = [*names, *(f"{word}_{name}" for name in times for word in ("short", "day"))]
    selected = [*names, *(name for name in times for _ in range(2))]
    return f"""\
mapping: 1
source: {{timezone: UTC}}
table: {{name: Typed, key: [PK, SK], type: type}}
entities:
  thing:
    table: things
    attributes: {{{attributes}}}
    items: {{Thing: {{key: ["THING#{{id}}", META], keep: [{", ".join(names)}]}}}}
access_patterns:
  thing:
    params: {{id: integer}}
    get: {{key: ["THING#{{id}}", META]}}
    returns: [{", ".join(returned)}]
    sql: SELECT {", ".join(selected)} FROM things WHERE id = :id
"""


def test_typed_values_are_pythons_own_on_both_sides(
    engine_name: str, url: str, dynamodb_url: str, tmp_path: Path
) -> None:
    columns = COLUMNS[engine_name]
    if engine_name == "mariadb" and not is_mariadb(url):
        columns = tuple(one for one in columns if one[0] != "UUID")
    declared = ", ".join(f"c{number} {type_}" for number, (type_, _, _) in enumerate(columns))
    rows = (
        *([ZONES[engine_name]] if engine_name in ZONES else []),
        f"CREATE TABLE things (id INTEGER PRIMARY KEY, {declared})",
        f"INSERT INTO things VALUES (1, {', '.join(literal for _, literal, _ in columns)})",
        "INSERT INTO things (id) VALUES (2)",
    )
    expected = {f"c{number}": value for number, (_, _, value) in enumerate(columns)}
    opened = open_read_shop(engine_name, url, dynamodb_url, tmp_path, mapping=_mapping(columns), rows=rows)
    with opened as shop, shop.migration() as migration:
        from_sql, nothing = (records(migration.read("thing", id=number)) for number in (1, 2))
        shop.move("live", 0, "thing")
        seen(migration, "live", "thing")
        from_table, still_nothing = (records(migration.read("thing", id=number)) for number in (1, 2))
        assert (from_sql.origin, from_table.origin) == ("sql", "table")
        assert from_sql == from_table
        for answer in (from_sql, from_table):
            (found,) = answer.typed()
            assert {name: found[name] for name in expected} == expected
            assert types_of({name: found[name] for name in expected}) == types_of(expected)
            short = [value for name, value in found.items() if name.startswith("short_")]
            assert {value.replace(tzinfo=None) for value in short} == {MOMENT.replace(microsecond=0)}
            assert {value for name, value in found.items() if name.startswith("day_")} == {"2024-03-31"}
        assert set(nothing.typed()[0].values()) == set(still_nothing.typed()[0].values()) == {None}
