from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.mysql import pymysql

from migrator.model.facts import Column, Kind, TableFacts
from migrator.source.related import collection_select
from migrator.source.selects import ColumnType, KeyRange, KeySet, bound_select, root_select
from migrator.source.totals import sums_select
from tests import pins
from tests.support_source import (
    INTEGER,
    LINE,
    LINES,
    NUMBER,
    PAIR,
    PURCHASE,
    TEXT,
    TRIPLE,
    ZONED,
    column_of,
    number_of,
    plan_of,
)

MYSQL = pymysql.dialect()
OTHERS = {"sqlite": sqlite.dialect(), "postgresql": sa.make_url("postgresql+psycopg://").get_dialect()()}


def sql_of(statement: sa.Select[Any], dialect: Any = MYSQL) -> str:
    """The statement as the driver gets it, on one line, with ? for every parameter."""
    compiled = str(statement.compile(dialect=dialect, compile_kwargs={"render_postcompile": True}))
    return re.sub(r"%\(\w+\)s|%s", "?", " ".join(compiled.split()))


def table_with_key(declared: str, kind: Kind) -> TableFacts:
    key = Column("k", "k", kind, nullable=False, declared=declared)
    return TableFacts("t", "t", (key, Column("n", "n", INTEGER)), ("k",))


def test_names_are_quoted() -> None:
    odd = TableFacts("a`b", "a`b", LINE.columns[:1])
    plan = plan_of(odd, ["purchase_id"], key=(LINE.columns[0],))
    assert sql_of(root_select(plan, KeyRange())) == (
        "SELECT root.`PurchaseId` FROM `a``b` AS root ORDER BY root.`PurchaseId`"
    )


def test_a_composite_key_is_compared_column_by_column() -> None:
    plan = replace(plan_of(TRIPLE, ["n"]), where=((column_of(TRIPLE, "n"), None),))
    assert sql_of(root_select(plan, KeyRange(("2024-01-01", "x", "a"), ("2024-02-01", "y", "b")))) == (
        "SELECT root.`n` FROM `triple` AS root"
        " WHERE (root.`at` > ? OR root.`at` = ? AND root.`id` > ?"
        " OR root.`at` = ? AND root.`id` = ? AND root.`word` > ?)"
        " AND (root.`at` < ? OR root.`at` = ? AND root.`id` < ?"
        " OR root.`at` = ? AND root.`id` = ? AND root.`word` <= ?)"
        " AND root.`n` IS NOT NULL ORDER BY root.`at`, root.`id`, root.`word`"
    )


def test_the_range_of_a_page_holds_for_the_children_too() -> None:
    lines = number_of("count", LINE, LINES)
    statement = collection_select(plan_of(PURCHASE, ["id"], collections=[lines]), lines, KeyRange((1,), (9,)))
    assert "root.`Id` <= ? AND child.`PurchaseId` > ? AND child.`PurchaseId` <= ?" in sql_of(statement)


def test_a_float_is_selected_and_compared_whole() -> None:
    plan = plan_of(table_with_key("float unsigned", Kind("float")))
    assert sql_of(root_select(plan, KeyRange((0.5,)))) == (
        "SELECT (root.`k` + 0e0) AS anon_1, root.`n` FROM `t` AS root"
        " WHERE (root.`k` + 0e0) > ? ORDER BY (root.`k` + 0e0)"
    )
    assert "sum((root.`k` + 0e0))" in sql_of(sums_select(plan, [plan.key[0]]))


@pytest.mark.parametrize("declared", ["enum('a','b')", "set('a','b')"])
def test_an_enum_in_a_key_is_ordered_as_it_is_compared(declared: str) -> None:
    plan = plan_of(table_with_key(declared, TEXT), ["k"])
    assert sql_of(bound_select(plan, KeyRange(("a",)), 5)).startswith(
        "SELECT (concat(root.`k`)) AS anon_1 FROM `t` AS root WHERE (concat(root.`k`)) > ? ORDER BY (concat(root.`k`))"
    )
    assert "WHERE root.`k` IN (?)" in sql_of(root_select(plan, KeySet((("a",),))))


@pytest.mark.parametrize("dialect", OTHERS)
@pytest.mark.parametrize(("declared", "kind"), [("float", Kind("float")), ("enum('a')", TEXT)])
def test_other_databases_see_nothing_of_it(dialect: str, declared: str, kind: Kind) -> None:
    plan = plan_of(table_with_key(declared, kind), ["k"])
    found = sql_of(root_select(plan, KeyRange(("a",))), OTHERS[dialect])
    assert 'FROM "t" AS root WHERE root."k" > ? ORDER BY root."k"' in found
    pair = sql_of(root_select(plan_of(PAIR), KeyRange(("a", 1), ("b", 2))), OTHERS[dialect])
    assert pins.said(pair, "root")
    assert pins.said(pair, "root-2")


@pytest.mark.parametrize(
    ("kind", "value", "bound"),
    [
        (NUMBER, "10.10", Decimal("10.10")),
        (NUMBER, "12345678901234567.89", Decimal("12345678901234567.89")),
        (NUMBER, "no number", "no number"),
        (NUMBER, 5, 5),
        (ZONED, "2024-05-01 12:00:00.000001+00:00", "2024-05-01 12:00:00.000001"),
        (ZONED, "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
        (Kind("timestamp"), "2024-05-01 12:00:00", "2024-05-01 12:00:00"),
        (TEXT, "10.10", "10.10"),
        (TEXT, "at +00:00", "at +00:00"),
        (Kind("binary"), b"10", b"10"),
    ],
)
def test_a_parameter_is_compared_as_its_column_is(kind: Kind, value: Any, bound: Any) -> None:
    found = ColumnType(kind).process_bind_param(value, MYSQL)
    assert (found, type(found)) == (bound, type(bound))
    assert ColumnType(kind).process_bind_param(value, OTHERS["sqlite"]) == value
