from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import pytest
import sqlalchemy as sa

from migrator.mapping.items.values import decoder
from migrator.mapping.model.facts import EntityPlan, Kind, SchemaFacts
from migrator.mapping.model.table import decode_key
from migrator.runtime.errors import RowError, SourceError
from migrator.source.engines.base import Address, ConnectionOptions
from migrator.source.engines.connect import read_engine, source_url
from migrator.source.engines.mysql.engine import SQL
from migrator.source.reader import SqlSource
from migrator.source.sql.selects import KeyRange, RootSelect, root_select
from tests import pins
from tests.support_mysql import connect, is_mariadb, numbers, run_script, settings_of
from tests.support_source import TABLES, list_of, number_of, plan_of
from tests.support_source_databases import past_the_gate


@contextmanager
def reading(url: str, script: str = "") -> Iterator[SqlSource]:
    if script:
        run_script(url, script)
    with closing(SqlSource(source_url(url), connection_options=ConnectionOptions(lock_wait_s=1))) as source:
        yield source


def plan_of_table(facts: SchemaFacts, name: str, **more: Any) -> EntityPlan:
    return plan_of(facts.tables[name], **more)


def together(pages: Sequence[list[Any]]) -> list[Any]:
    return [row for page in pages for row in page]


# ── the connection ──


def test_every_read_is_a_read_only_snapshot_in_utc(mysql_database: str) -> None:
    with reading(mysql_database) as source:
        assert source.query("SELECT @@SESSION.time_zone, @@character_set_results", {}) == [
            ("+00:00", "utf8mb4")
        ]
        assert source.query("SELECT @@SESSION.sql_mode", {}) == [("PIPES_AS_CONCAT,ANSI_QUOTES",)]
        named = settings_of(mysql_database)
        asked = f"SELECT @@SESSION.{named.isolation}, @@SESSION.{named.read_only}"
        assert source.query(asked, {}) == [("REPEATABLE-READ", 1)]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t VALUES (2)",
        "DROP TABLE t",
        "SELECT 1; DROP TABLE t",
        "COMMIT",
        "SET SESSION TRANSACTION READ WRITE",
        "LOCK TABLES t WRITE",
    ],
)
def test_no_statement_writes(mysql_database: str, statement: str) -> None:
    with reading(
        f"{mysql_database}?client_flag=65536", "CREATE TABLE t (a int); INSERT INTO t VALUES (1)"
    ) as source:
        for _ in range(2):
            with pins.refused(SourceError, "syntax"):
                past_the_gate(source, statement)
        with pins.refused(SourceError, "read"):
            past_the_gate(source, "INSERT INTO t VALUES (3)")
        assert source.query("SELECT a FROM t", {}) == [(1,)]


def test_an_altered_table_is_not_waited_for_without_end(mysql_database: str) -> None:
    with (
        reading(mysql_database, "CREATE TABLE t (a int primary key)") as source,
        connect(mysql_database) as other,
        other.cursor() as cursor,
    ):
        facts = source.facts()
        cursor.execute("LOCK TABLES t WRITE")
        with pins.refused(SourceError):
            source.count(plan_of_table(facts, "t"))


def test_a_dropped_connection_is_replaced(mysql_database: str) -> None:
    with reading(mysql_database) as source:
        (number,) = source.query("SELECT CONNECTION_ID()", {})[0]
        run_script(mysql_database, f"KILL {number}")
        assert source.query("SELECT CONNECTION_ID()", {}) != [(number,)]


def test_a_password_may_hold_any_character(mysql_database: str) -> None:
    user, password = f"migrator_{secrets.token_hex(4)}", "pä ss:@/ł'"
    parts = urlsplit(mysql_database)
    literal = password.replace("'", "''")
    run_script(
        mysql_database,
        f"CREATE USER {user} IDENTIFIED BY '{literal}'; GRANT SELECT ON {parts.path[1:]}.* TO {user}",
    )
    place = f"{user}:{quote(password, safe='')}@{parts.hostname}:{parts.port}"
    try:
        with reading(urlunsplit(parts._replace(netloc=place))) as source:
            assert source.query("SELECT 1", {}) == [(1,)]
    finally:
        run_script(mysql_database, f"DROP USER {user}")


# ── values ──


def test_a_statement_agrees_with_its_other_copies(mysql_database: str) -> None:
    with reading(mysql_database) as source:
        rows = source.query("""SELECT 'a' || 'b%' AS "x y", :a, 'it''s ' || ':'""", {"a": "100%s \\ '"})
        assert rows == [("ab%", "100%s \\ '", "it's :")]
        moment = datetime.fromisoformat("2024-05-01 14:00:00.5+02:00")
        assert source.query("SELECT CAST(:at AS datetime(1))", {"at": moment}) == [
            (datetime(2024, 5, 1, 12, 0, 0, 500_000),)
        ]


def test_values_come_exactly_and_with_their_kind(mysql_database: str) -> None:
    uuid = "uuid" if is_mariadb(mysql_database) else "char(36)"
    script = """
        CREATE TABLE t (id bigint unsigned PRIMARY KEY, flag bit(1), bits bit(12), truth boolean, price decimal(20,4),
            f float, d double, y year, at timestamp(6) NULL, local datetime(3), day date, clock time(6),
            mood enum('sad','glad'), tags set('x','y'), notes json, id2 {uuid},
            small varchar(9) CHARACTER SET latin1, bin varchar(9) COLLATE utf8mb4_bin, raw blob, fixed binary(3));
        SET time_zone = '+02:00';
        INSERT INTO t VALUES (18446744073709551615, b'1', b'100000000001', true, 1234567890123456.7800,
            16777216, 0.1, 2024, '2024-05-01 14:00:00.5', '2024-05-01 14:00:00.25', '2024-05-01', '23:59:59.000001',
            'glad', 'x,y', '{"a": 1.10}', '123e4567-e89b-12d3-a456-426655440000', 'naïve', '日本😀', x'00ff', 'a');
    """
    with reading(mysql_database, script.replace("{uuid}", uuid)) as source:
        plan = plan_of_table(source.facts(), "t")
        (row,) = source.read_page(plan, None, None)
        values = [decoder(slot.column.kind)(value) for slot, value in zip(plan.slots, row, strict=True)]
    assert values == [
        18446744073709551615,
        True,
        "100000000001",
        True,
        Decimal("1234567890123456.7800"),
        Decimal(16777216),
        Decimal("0.1"),
        2024,
        datetime(2024, 5, 1, 12, 0, 0, 500_000, UTC),
        datetime(2024, 5, 1, 14, 0, 0, 250_000),
        date(2024, 5, 1),
        time(23, 59, 59, 1),
        "glad",
        ["x", "y"],
        {"a": Decimal("1.10")},
        "123e4567-e89b-12d3-a456-426655440000",
        "naïve",
        "日本😀",
        b"\x00\xff",
        b"a\x00\x00",
    ]


def test_a_value_that_python_has_not_refuses_its_row_only(mysql_database: str) -> None:
    script = """
        SET sql_mode = '';
        CREATE TABLE t (id int PRIMARY KEY, day date, local datetime, at timestamp NULL, clock time,
            word varchar(9) CHARACTER SET utf8mb3, truth boolean);
        INSERT INTO t VALUES (1, '0000-00-00', '2024-00-10 00:00', '0000-00-00', '-25:00:00', x'EDA080', 2);
        INSERT INTO t VALUES (2, '2024-05-01', '2024-05-01', '2024-05-01', '24:00:00', 'a', 0);
    """
    with reading(mysql_database, script) as source:
        plan = plan_of_table(source.facts(), "t")
        bad, good = source.read_page(plan, None, None)
    for slot, value in list(zip(plan.slots, bad, strict=True))[1:]:
        if value == "":
            assert not is_mariadb(mysql_database)  # MySQL stores no bytes that are no text
            continue
        with pytest.raises(RowError):
            decoder(slot.column.kind)(value)
    assert good[1:4] == (date(2024, 5, 1), datetime(2024, 5, 1), datetime(2024, 5, 1, tzinfo=UTC))
    assert good[5] == "a"


# ── keys ──


KEYS: dict[str, list[Any]] = {
    "word varchar(9) COLLATE utf8mb4_general_ci": ["b", "B!", "c d", "Ä", "ss", "x'"],
    "word varchar(9) COLLATE utf8mb4_bin": ["a", "A", "B", "Ä", "ä"],
    "mood enum('z','a','M')": ["z", "a", "M"],
    "tags set('z','a')": ["", "z", "a", "z,a"],
    "f float": [0.1, 0.2, 16777216, -1.5, 3.1415927],
    "d date": ["0000-00-00", "2024-00-00", "2024-05-01"],
    "at timestamp(6)": ["2024-05-01 12:00:00", "2024-05-01 12:00:00.000001", "1970-01-01 00:00:01"],
    "n decimal(30,4)": ["12345678901234567.0001", "12345678901234567.0002", "-0.1"],
    "b bit(9)": [0, 5, 256],
    "u bigint unsigned": [0, 2**63, 2**64 - 1],
    "i inet6": ["::1", "ffff::", "10::"],
    "y year": [1999, 2024],
    "long_one text": ["a", "b", "c"],
}


@pytest.mark.parametrize(
    "declared",
    [pytest.param(name, marks=[pytest.mark.mariadb] if "inet6" in name else []) for name in KEYS],
)
@pytest.mark.parametrize("others", ["", "id int, "], ids=["alone", "first of two"])
def test_pages_by_any_key_hold_every_row_once(mysql_database: str, declared: str, others: str) -> None:
    name = declared.split()[0]
    part = f"{name}(5)" if "text" in declared else name
    with connect(mysql_database) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute(
            f"CREATE TABLE t ({declared} NOT NULL, id int, PRIMARY KEY ({part}{', id' if others else ''}))"
        )
        rows = [(value, number) for value in KEYS[declared] for number in range(3 if others else 1)]
        cursor.executemany("INSERT INTO t VALUES (%s, %s)", rows)
    with reading(mysql_database) as source:
        plan = plan_of_table(source.facts(), "t")
        bounds = list(source.page_bounds(plan, 2))
        pages = [
            source.read_page(plan, after, upto)
            for after, upto in zip([None, *bounds], [*bounds, None], strict=True)
        ]
        single = list(source.page_bounds(plan, 1))
        assert [len(page) for page in pages] == [2] * (len(rows) // 2) + [len(rows) % 2]
        assert together(pages) == source.read_page(plan, None, None)
        assert len(set(single)) == len(rows)
        assert set(source.read_rows(plan, single)) == set(together(pages))


def test_children_find_a_parent_with_a_differently_spelled_key(mysql_database: str) -> None:
    script = """
        CREATE TABLE parent (k varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, name text);
        CREATE TABLE child (id int PRIMARY KEY, k varchar(9) COLLATE utf8mb4_general_ci REFERENCES parent (k));
        INSERT INTO parent VALUES ('ABC', 'one'), ('b', 'two'), ('Ç ', 'three');
        INSERT INTO child VALUES (1, 'abc'), (2, 'Abc'), (3, 'B'), (4, 'c'), (5, NULL);
    """
    with reading(mysql_database, script) as source:
        facts = source.facts()
        child = facts.tables["child"]
        parts = [list_of("children", child, [("k", "k")], ["id"]), number_of("count", child, [("k", "k")])]
        plan = plan_of(facts.tables["parent"], ["k"], collections=parts)
        bounds = list(source.page_bounds(plan, 1))
        pages = [
            source.read_page(plan, after, upto)
            for after, upto in zip([None, *bounds], [*bounds, None], strict=True)
        ]
        assert together(pages) == [("ABC", ((1,), (2,)), 2), ("b", ((3,),), 1), ("Ç ", ((4,),), 1)]
        assert source.read_rows(plan, bounds) == together(pages)


def test_a_page_is_a_range_of_the_primary_key(mysql_database: str) -> None:
    script = f"""
        CREATE TABLE pair (a varchar(20), b bigint, n bigint, PRIMARY KEY (a, b));
        INSERT INTO pair SELECT CONCAT('word', seq DIV 100), seq % 100, seq FROM {numbers(20_000)};
        ANALYZE TABLE pair;
    """
    plan = plan_of(TABLES["pair"])
    with reading(mysql_database, script) as source:
        bounds = list(source.page_bounds(plan, 500))
        assert len(bounds) == 40
        assert len(source.read_page(plan, bounds[20], bounds[21])) == 500
    page = root_select(plan, KeyRange(decode_key(bounds[20]), decode_key(bounds[21])))
    next_bound = RootSelect(plan).bound(KeyRange(decode_key(bounds[20])), 500)
    for statement, rows in ((page, 700), (next_bound, 20_000)):
        explained = explain(mysql_database, statement)
        assert (explained["type"], explained["key"]) == ("range", "PRIMARY")
        assert int(explained["rows"]) <= rows
        assert "filesort" not in explained["Extra"]


def explain(url: str, statement: sa.Select[Any]) -> dict[str, Any]:
    """The one line of the server's plan."""
    engine = read_engine(Address.of(source_url(url)), ConnectionOptions(pool_size=1))
    compiled = statement.compile(dialect=engine.dialect)
    with engine.connect() as connection:
        (line,) = connection.exec_driver_sql(
            f"EXPLAIN FORMAT = TRADITIONAL {compiled}", compiled.params
        ).mappings()
    engine.dispose()
    return {**line, "Extra": line["Extra"] or ""}


@pytest.mark.parametrize(
    ("kind", "value", "bound"),
    [
        (Kind("bits"), "00101", 5),
        (Kind("float", single=True), Decimal("0.1"), 0.10000000149011612),
        (Kind("float", single=True), "0.1", 0.10000000149011612),
        (Kind("float"), Decimal("0.1"), Decimal("0.1")),
        (Kind("text"), "00101", "00101"),
    ],
)
def test_comparable_value_of_a_key_is_all_that_the_column_holds(kind: Kind, value: Any, bound: Any) -> None:
    assert SQL.comparable(value, kind) == bound
