from __future__ import annotations

import re
from contextlib import closing
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.mysql import pymysql

from migrator.mapping.model.facts import CollectionPlan, Column, EntityPlan, JoinPlan, Kind, TableFacts
from migrator.mapping.model.mapping import Collection
from migrator.runtime.values import replace
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource, count_select, sums_select, without_key_select
from migrator.source.sql.selects import (
    ColumnType,
    KeyRange,
    RootSelect,
    collection_select,
    root_select,
)
from tests import pins
from tests.support_mysql import numbers, run_script
from tests.support_source import (
    CUSTOMER_OF_PURCHASE,
    INTEGER,
    LINE,
    LINES,
    NUMBER,
    PAIR,
    PURCHASE,
    REGION_OF_CUSTOMER,
    SHELF_OF_LINE,
    TABLES,
    TEXT,
    TRIPLE,
    ZONED,
    column_of,
    list_of,
    number_of,
    plan_of,
)

DIALECTS = {"sqlite": sqlite.dialect(), "postgresql": sa.make_url("postgresql+psycopg://").get_dialect()()}
BY_TEXT = TABLES["by_text"]


def sql_of(statement: sa.Select[Any], dialect: str = "postgresql") -> str:
    """The statement as the driver gets it, on one line, with ? for every parameter, SQLite's casts of texts included."""
    compiled = str(statement.compile(dialect=DIALECTS[dialect], compile_kwargs={"render_postcompile": True}))
    return re.sub(r"%\(\w+\)s|\(CAST\(\? AS TEXT\)\)", "?", " ".join(compiled.split()))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_page_is_a_range_of_keys_in_key_order(dialect: str) -> None:
    statement = root_select(plan_of(BY_TEXT), KeyRange(("a",), ("b",)))
    assert sql_of(statement, dialect) == (
        'SELECT root."k", root."n" FROM "by_text" AS root WHERE root."k" > ? AND root."k" <= ? ORDER BY root."k"'
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_composite_key_is_compared_as_one_row(dialect: str) -> None:
    statement = root_select(plan_of(PAIR, ["a", "b"]), KeyRange(("a", 1), None))
    usual = '(root."a", root."b") > (?, ?)'
    asked = {"postgresql": f'({usual} AND root."a" >= ?)'}.get(dialect, usual)
    assert sql_of(statement, dialect) == (
        f'SELECT root."a", root."b" FROM "pair" AS root WHERE {asked} ORDER BY root."a", root."b"'
    )


def test_parameters_have_no_type_to_cast() -> None:
    statement = root_select(plan_of(BY_TEXT), KeyRange(("a",)))
    assert "::" not in sql_of(statement)
    assert "::" not in sql_of(root_select(plan_of(BY_TEXT), (("a",), ("b",))))


def test_joins_follow_each_other() -> None:
    plan = plan_of(PURCHASE, ["id", "region.name"], [CUSTOMER_OF_PURCHASE, REGION_OF_CUSTOMER])
    assert sql_of(root_select(plan, KeyRange())) == (
        'SELECT root."Id", j2."name" FROM "purchase" AS root '
        'LEFT OUTER JOIN "customer" AS j1 ON root."CustomerId" = j1."id" '
        'LEFT OUTER JOIN "region" AS j2 ON j1."RegionId" = j2."id" ORDER BY root."Id"'
    )


def test_one_table_may_be_joined_twice_and_to_itself() -> None:
    joins = [
        JoinPlan("root", "", PURCHASE, (("CustomerId", "Id"),)),
        JoinPlan("child", "root", PURCHASE, (("CustomerId", "Id"),)),
    ]
    statement = root_select(plan_of(PURCHASE, ["id", "root.id", "child.id"], joins), KeyRange())
    assert 'SELECT root."Id", j1."Id" AS "Id_1", j2."Id" AS "Id_2"' in sql_of(statement)


def test_keys_of_one_column_are_listed() -> None:
    statement = root_select(plan_of(BY_TEXT, ["k"]), (("a",), ("b",)))
    assert 'WHERE root."k" IN (?, ?)' in sql_of(statement)


def test_keys_of_several_columns_are_alternatives() -> None:
    statement = root_select(plan_of(PAIR, ["a", "b"]), (("a", 1), ("b", 2)))
    assert pins.said(sql_of(statement))


def test_nullable_key_column_is_filtered_for_a_value() -> None:
    key = (column_of(PURCHASE, "customer_id"), column_of(PURCHASE, "id"))
    statement = RootSelect(plan_of(PURCHASE, ["id", "customer_id"], key=key)).bound(KeyRange(), 500)
    assert 'WHERE root."CustomerId" IS NOT NULL ORDER BY' in sql_of(statement)


def test_a_bound_is_the_last_row_of_the_next_page() -> None:
    statement = RootSelect(plan_of(BY_TEXT)).bound(KeyRange(("a",)), 500)
    assert sql_of(statement).endswith(
        'WHERE root."k" > ? ORDER BY root."k" LIMIT ?::INTEGER OFFSET ?::INTEGER'
    )
    assert set(statement.compile(dialect=DIALECTS["postgresql"]).params.values()) == {"a", 1, 499}


def test_children_are_ordered_by_root_then_order_by_then_key() -> None:
    lines = list_of(
        "lines", LINE, LINES, ["shelf.label", "line_no"], joins=[SHELF_OF_LINE], order_by=["shelf.label"]
    )
    statement = collection_select(plan_of(PURCHASE, ["id"], collections=[lines]), lines, KeyRange())
    assert sql_of(statement) == (
        'SELECT root."Id", j1."label", child."Line No" FROM "purchase" AS root '
        'JOIN "Purchase Line" AS child ON child."PurchaseId" = root."Id" '
        'LEFT OUTER JOIN "shelf" AS j1 ON child."house" = j1."house" AND child."shelf_no" = j1."number" '
        'ORDER BY root."Id", j1."label", child."PurchaseId", child."Line No"'
    )


def test_an_aggregate_is_grouped_by_the_root_key() -> None:
    total = number_of("sum", LINE, LINES, "amount")
    statement = collection_select(plan_of(PURCHASE, ["id"], collections=[total]), total, KeyRange())
    assert sql_of(statement) == (
        'SELECT root."Id", sum(child."amount") AS sum_1 FROM "purchase" AS root '
        'JOIN "Purchase Line" AS child ON child."PurchaseId" = root."Id" GROUP BY root."Id"'
    )


def test_the_range_of_a_page_limits_the_children() -> None:
    lines = number_of("count", LINE, LINES)
    statement = collection_select(plan_of(PURCHASE, ["id"], collections=[lines]), lines, KeyRange((1,), (9,)))
    assert 'root."Id" <= ? AND child."PurchaseId" > ? AND child."PurchaseId" <= ?' in sql_of(statement)


def test_children_with_uncertain_text_order_get_no_range() -> None:
    statement = _children_of(BY_TEXT, "word", KeyRange(("a",), ("b",)))
    assert 'WHERE root."k" > ? AND root."k" <= ? GROUP BY' in sql_of(statement)
    assert 'child."word" >' not in sql_of(statement)


def test_no_range_is_given_to_children_of_another_kind() -> None:
    assert 'child."word" >' not in sql_of(_children_of(TABLES["by_uuid"], "word", KeyRange(("a",))))


def _children_of(root: TableFacts, name: str, rows: KeyRange) -> sa.Select[Any]:
    child = TABLES["triple"]
    plan = CollectionPlan(Collection("c", "count", child.name, by=()), child, ((name, "k"),))
    return collection_select(plan_of(root), plan, rows)


@pytest.mark.parametrize(
    ("allowed", "where"),
    [
        (None, 'root."status" IS NOT NULL'),
        ((None,), 'root."status" IS NULL'),
        (("P",), 'root."status" IN (?)'),
        (("P", "S"), 'root."status" IN (?, ?)'),
        (("P", None), 'root."status" IN (?) OR root."status" IS NULL'),
        ((), "false"),
    ],
)
def test_a_condition_lists_what_it_allows(allowed: Any, where: str) -> None:
    plan = plan_of(PURCHASE, where=((column_of(PURCHASE, "status"), allowed),))
    assert sql_of(count_select(plan)) == f'SELECT count(*) AS count_1 FROM "purchase" AS root WHERE {where}'


def test_conditions_of_a_count_are_added_to_the_plans() -> None:
    plan = _where_status()
    found = sql_of(count_select(plan, [(column_of(PURCHASE, "total"), (Decimal("1.5"), None))]))
    assert found.endswith('WHERE root."status" IN (?) AND (root."total" IN (?) OR root."total" IS NULL)')


def test_every_select_has_the_plans_conditions() -> None:
    plan = _where_status()
    lines = list_of("lines", LINE, LINES, ["product"])
    statements = [
        root_select(plan, KeyRange()),
        root_select(plan, ((1,),)),
        collection_select(plan, lines, KeyRange()),
        RootSelect(plan).bound(KeyRange(), 5),
        without_key_select(plan),
        sums_select(plan, [column_of(PURCHASE, "total")]),
    ]
    assert all('root."status" IN (?)' in sql_of(statement) for statement in statements)


def test_a_decimal_is_bound_as_text() -> None:
    plan = plan_of(PURCHASE, where=((column_of(PURCHASE, "total"), (Decimal("0.10"),)),))
    assert list(count_select(plan).compile().params.values()) == [["0.10"]]


def test_rows_without_a_key_have_null_in_a_nullable_key_column() -> None:
    key = (column_of(PURCHASE, "status"), replace(column_of(PURCHASE, "id"), nullable=False))
    found = sql_of(without_key_select(plan_of(PURCHASE, key=key)))
    assert found.endswith('WHERE root."status" IS NULL')


def test_names_are_quoted_and_the_schema_stands_before_them() -> None:
    odd = TableFacts('a"b', 'a"b', LINE.columns[:1], schema="My Schema")
    plan = plan_of(odd, ["purchase_id"], key=(LINE.columns[0],))
    assert pins.said(sql_of(root_select(plan, KeyRange())))


def _where_status() -> EntityPlan:
    return plan_of(PURCHASE, ["id"], where=((column_of(PURCHASE, "status"), ("P",)),))


def test_kept_select_gives_the_statement_of_each_range_and_set() -> None:
    plan = plan_of(PAIR, ["a", "b"])
    kept = RootSelect(plan)
    for rows in (
        KeyRange(("a", 1), None),
        (("a", 1), ("b", 2)),
        KeyRange(),
        KeyRange(("a", 1), ("b", 2)),
    ):
        assert sql_of(kept.of(rows, 3)) == sql_of(root_select(plan, rows, 3))


ROWS = 4000
DAYS = 40
PAGE_ROWS = 300
PARTS = [("p0", 10), ("p1", 20), ("p2", 30), ("p3", DAYS + 1)]
NUMBERS = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})"
TABLE = (
    "CREATE TABLE seen (day integer NOT NULL, id integer NOT NULL, note varchar(20), PRIMARY KEY (day, id))"
)
FILLED = f"INSERT INTO seen {NUMBERS} SELECT i * {DAYS} / {ROWS}, i, 'x' FROM n"


@pytest.fixture(params=["postgresql", "mariadb"])
def source(request: pytest.FixtureRequest) -> closing[SqlSource]:
    if request.param == "postgresql":
        import psycopg

        url = request.getfixturevalue("postgres_database")
        bounds = zip([0, *(end for _, end in PARTS)], PARTS, strict=False)
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(f"{TABLE} PARTITION BY RANGE (day)".encode())
            for begin, (name, end) in bounds:
                server.execute(
                    f"CREATE TABLE {name} PARTITION OF seen FOR VALUES FROM ({begin}) TO ({end})".encode()
                )
            server.execute(f"{FILLED}; ANALYZE seen".encode())
        return closing(SqlSource(source_url(url)))
    url = request.getfixturevalue("mysql_database")
    parts = ", ".join(f"PARTITION {name} VALUES LESS THAN ({end})" for name, end in PARTS)
    filled = f"INSERT INTO seen SELECT seq * {DAYS} DIV {ROWS}, seq, 'x' FROM {numbers(ROWS)}"
    run_script(
        url,
        f"{TABLE} PARTITION BY RANGE (day) ({parts}); {filled}; ANALYZE TABLE seen",
    )
    return closing(SqlSource(source_url(url)))


def whole_plan(source: SqlSource) -> EntityPlan:
    return plan_of(source.facts().tables["seen"])


def test_the_pages_of_a_partitioned_table_hold_every_row_once(source: closing[SqlSource]) -> None:
    with source as opened:
        plan = whole_plan(opened)
        bounds = [None, *opened.page_bounds(plan, PAGE_ROWS), None]
        pages = [opened.read_page(plan, after, upto) for after, upto in pairwise(bounds)]
    assert [len(page) for page in pages[:-1]] == [PAGE_ROWS] * (len(pages) - 1)
    assert sorted(row[1] for page in pages for row in page) == list(range(1, ROWS + 1))


def test_a_page_is_read_from_the_partitions_of_its_keys_alone(source: closing[SqlSource]) -> None:
    with source as opened:
        plan = whole_plan(opened)
        (explained,) = opened.explain(plan, PAGE_ROWS)
    # The first page ends on the fourth day.
    text = "\n".join(explained.lines)
    assert "p0" in text
    assert [name for name, _ in PARTS[1:] if name in text] == []


MYSQL = pymysql.dialect()
OTHERS = {"sqlite": sqlite.dialect(), "postgresql": sa.make_url("postgresql+psycopg://").get_dialect()()}


def mysql_sql_of(statement: sa.Select[Any], dialect: Any = MYSQL) -> str:
    """The statement as the driver gets it, on one line, with ? for every parameter."""
    compiled = str(statement.compile(dialect=dialect, compile_kwargs={"render_postcompile": True}))
    return re.sub(r"%\(\w+\)s|%s", "?", " ".join(compiled.split()))


def table_with_key(declared: str, kind: Kind) -> TableFacts:
    key = Column("k", "k", kind, nullable=False, declared=declared)
    return TableFacts("t", "t", (key, Column("n", "n", INTEGER)), ("k",))


def test_names_are_quoted() -> None:
    odd = TableFacts("a`b", "a`b", LINE.columns[:1])
    plan = plan_of(odd, ["purchase_id"], key=(LINE.columns[0],))
    assert mysql_sql_of(root_select(plan, KeyRange())) == (
        "SELECT root.`PurchaseId` FROM `a``b` AS root ORDER BY root.`PurchaseId`"
    )


def test_a_composite_key_is_compared_column_by_column() -> None:
    plan = replace(plan_of(TRIPLE, ["n"]), where=((column_of(TRIPLE, "n"), None),))
    assert mysql_sql_of(root_select(plan, KeyRange(("2024-01-01", "x", "a"), ("2024-02-01", "y", "b")))) == (
        "SELECT root.`n` FROM `triple` AS root"
        " WHERE (root.`at` > ? OR root.`at` = ? AND root.`id` > ?"
        " OR root.`at` = ? AND root.`id` = ? AND root.`word` > ?)"
        " AND (root.`at` < ? OR root.`at` = ? AND root.`id` < ?"
        " OR root.`at` = ? AND root.`id` = ? AND root.`word` <= ?)"
        " AND root.`n` IS NOT NULL ORDER BY root.`at`, root.`id`, root.`word`"
    )


def test_on_mysql_the_range_of_a_page_limits_the_children() -> None:
    lines = number_of("count", LINE, LINES)
    statement = collection_select(plan_of(PURCHASE, ["id"], collections=[lines]), lines, KeyRange((1,), (9,)))
    assert "root.`Id` <= ? AND child.`PurchaseId` > ? AND child.`PurchaseId` <= ?" in mysql_sql_of(statement)


def test_a_float_is_selected_and_compared_whole() -> None:
    plan = plan_of(table_with_key("float unsigned", Kind("float")))
    assert mysql_sql_of(root_select(plan, KeyRange((0.5,)))) == (
        "SELECT (root.`k` + 0e0) AS anon_1, root.`n` FROM `t` AS root"
        " WHERE (root.`k` + 0e0) > ? ORDER BY (root.`k` + 0e0)"
    )
    assert "sum((root.`k` + 0e0))" in mysql_sql_of(sums_select(plan, [plan.key[0]]))


@pytest.mark.parametrize("declared", ["enum('a','b')", "set('a','b')"])
def test_an_enum_in_a_key_is_ordered_as_it_is_compared(declared: str) -> None:
    plan = plan_of(table_with_key(declared, TEXT), ["k"])
    assert mysql_sql_of(RootSelect(plan).bound(KeyRange(("a",)), 5)).startswith(
        "SELECT (concat(root.`k`)) AS anon_1 FROM `t` AS root WHERE (concat(root.`k`)) > ? ORDER BY (concat(root.`k`))"
    )
    assert "WHERE root.`k` IN (?)" in mysql_sql_of(root_select(plan, (("a",),)))


AS_TEXT = "(CAST(? AS TEXT))"


@pytest.mark.parametrize("dialect", OTHERS)
@pytest.mark.parametrize(("declared", "kind"), [("float", Kind("float")), ("enum('a')", TEXT)])
def test_other_databases_see_nothing_of_it(dialect: str, declared: str, kind: Kind) -> None:
    plan = plan_of(table_with_key(declared, kind), ["k"])
    # SQLite's cast for texts that are not UTF-8.
    found = mysql_sql_of(root_select(plan, KeyRange(("a",))), OTHERS[dialect]).replace(AS_TEXT, "?")
    assert 'FROM "t" AS root WHERE root."k" > ? ORDER BY root."k"' in found
    bounds = KeyRange(("a", 1), ("b", 2))
    pair = mysql_sql_of(root_select(plan_of(PAIR), bounds), OTHERS[dialect]).replace(AS_TEXT, "?")
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
