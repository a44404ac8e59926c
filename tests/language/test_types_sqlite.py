"""What a value of each of SQLite's declared types becomes: by name, by affinity, in STRICT tables, and without a type."""

from __future__ import annotations

import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from migrator.mapping.items.wire import decode, encode
from migrator.runtime.errors import RowError
from migrator.source.engines.sqlite.engine import KINDS
from tests import pins
from tests.language.context import HEAD, items, plain
from tests.language.typed import Case, Made, assert_golden, made_of, script_of

N = Decimal
UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
BY_NAME: list[tuple[str, Any, str]] = [
    (
        "-9223372036854775808",
        -(2**63),
        "INTEGER INT TINYINT SMALLINT MEDIUMINT BIGINT INT2 INT4 INT8 SERIAL BIGSERIAL SMALLSERIAL",
    ),
    ("7.0", 7, "UNSIGNED_BIG_INT INT_UNSIGNED INTEGER_UNSIGNED BIGINT_UNSIGNED"),
    ("0.1", N("0.1"), "REAL DOUBLE DOUBLE_PRECISION FLOAT FLOAT4 FLOAT8 NUMERIC DECIMAL DEC MONEY"),
    (
        "'ab  '",
        "ab  ",
        (
            "TEXT VARCHAR(2) CHAR(9) CHARACTER(9) CHARACTER_VARYING(9) VARYING_CHARACTER(9) NATIVE_CHARACTER(9) NVARCHAR(9)"
            " NCHAR(9) NTEXT CLOB VARCHAR2(9) NVARCHAR2(9) BPCHAR CITEXT NAME LONGVARCHAR MEDIUMTEXT"
        ),
    ),
    ("1", True, "BOOLEAN BOOL"),
    ("'1969-07-20'", "1969-07-20", "DATE"),
    ("'04:05:06.7'", "04:05:06.700000", "TIME TIME_WITHOUT_TIME_ZONE"),
    ("'04:05:06+05:30'", "04:05:06+05:30", "TIME_WITH_TIME_ZONE TIMETZ"),
    (
        "'2024-03-31 02:30'",
        "2024-03-31T02:30:00.000000",
        "TIMESTAMP DATETIME DATETIME2 TIMESTAMP_WITHOUT_TIME_ZONE",
    ),
    (
        "'2024-10-27 02:30+01:00'",
        "2024-10-27T01:30:00.000000Z",
        "TIMESTAMP_WITH_TIME_ZONE TIMESTAMPTZ DATETIMEOFFSET",
    ),
    (f"'{UUID.upper()}'", UUID, "UUID GUID UNIQUEIDENTIFIER"),
    ("x'00ff'", b"\x00\xff", "BLOB BYTEA BINARY VARBINARY(9) LONGBLOB"),
    ("""'{"a": [1.10, null]}'""", {"a": [N("1.10"), None]}, "JSON JSONB"),
    ("x'00ff' ", b"\x00\xff", "ANY STRING POINT INTERVAL"),
]
CASES = [
    *(
        Case(name.replace("_", " "), literal, expected)
        for literal, expected, names in BY_NAME
        for name in names.split()
    ),
    Case("INTEGER", "9007199254740993", 9007199254740993),
    Case("INTEGER", "1.5", refused="not an integer", text="1.5"),
    Case("INTEGER", "'abc'", refused="not an integer", text="abc"),
    Case("INTEGER", "'a#1'", refused="not an integer"),
    Case("NUMERIC(10, 2)", "0.1 + 0.2", N("0.30")),
    Case("NUMERIC(10, 2)", "0.123", refused="more decimals", text="0.123"),
    Case("NUMERIC", "'n/a'", refused="not a number", text="n/a"),
    Case("REAL", "9e999", refused="NaN and infinity", text="Infinity"),
    Case("REAL", "1", N(1)),
    Case("TEXT", "5", "5"),
    Case("TEXT", "x'00'", refused="not a text"),
    Case("BLOB", "'x'", refused="not binary"),
    Case("BOOLEAN", "2", refused="neither true nor false", text="2"),
    Case("BOOLEAN", "'true'", refused="neither true nor false", text="true"),
    Case("DATE", "'-0044-03-15'", refused="years 1 to 9999", text="-0044-03-15"),
    Case("DATE", "'31/12/2024'", refused="not a date", text="31/12/2024"),
    Case("DATE", "'2024-01-01 00:00:00'", "2024-01-01"),
    Case("DATE", "'2400-02-03'", "2400-02-03"),
    Case("DATETIME", "' 2400-02-03 01:00:00'", "2400-02-03T01:00:00.000000"),
    Case("DATE", "'2024-01-01 12:00'", refused="time of day", text="2024-01-01 12:00"),
    Case("DATETIME", "1700000000", refused="not a timestamp", text="1700000000"),
    Case("DATETIME", "2460000.5", refused="not a timestamp", text="2460000.5"),
    Case("DATETIME", "'1899-12-31 23:59:59.999999'", "1899-12-31T23:59:59.999999"),
    Case("DATETIME", "'2024-10-27T02:30:00Z'", "2024-10-27T02:30:00.000000Z"),
    Case("DATETIME", "'2024-01-01 24:00:00'", refused="not a timestamp", text="2024-01-01 24:00:00"),
    Case(
        "TIMESTAMPTZ",
        "'0001-01-01 00:00+05:00'",
        refused="outside the years",
        text="0001-01-01 00:00+05:00",
    ),
    Case("TIME", "'24:00'", refused="not a time", text="24:00"),
    Case("UUID", "'abc'", refused="not a UUID"),
    Case("JSON", "'{'", refused="not JSON"),
    Case("JSON", "'null'", None),
    Case("JSON", """'{"a": 1, "b": 2, "a": 3}'""", {"a": 3, "b": 2}),
    Case("TEXT", "''", ""),
    Case("BLOB", "x''", b""),
    Case("", "1", 1),
    Case("", "'1'", "1"),
    Case("", "0.1", N("0.1")),
    Case("", "x'00'", b"\x00"),
    Case("", "NULL", None),
    Case("STRING", "'abc'", "abc"),
    Case("STRING", "'007'", 7),
    Case("ANY", "9e999", refused="NaN and infinity", text="Infinity"),
]
STRICT = [
    Case("INT", "7", 7),
    Case("INTEGER", "7", 7),
    Case("REAL", "7", N(7)),
    Case("TEXT", "7", "7"),
    Case("BLOB", "x'07'", b"\x07"),
    Case("ANY", "'007'", "007"),
    Case("ANY", "7", 7),
]


def database_with(path: Path, script: str) -> str:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
    return f"sqlite:///{path}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    url = database_with(tmp_path_factory.mktemp("types") / "a.db", script_of(CASES))
    return dict(zip(map(str, CASES), made_of(url, CASES), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_value_of_a_type(made: dict[str, Made], case: Case) -> None:
    assert_golden(case, made[str(case)])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_value_survives_the_wire(case: Case) -> None:
    assert decode(encode(case.expected)) == case.expected


def test_every_type_with_a_rule_has_a_golden_case() -> None:
    tested = {case.declared.partition("(")[0].upper() for case in CASES}
    assert set(KINDS.named) - tested == set()


def test_strict_tables_have_the_same_rules(tmp_path: Path) -> None:
    script = script_of(STRICT).replace(");\nINSERT", ") STRICT;\nINSERT")
    assert script.count("STRICT") == len(STRICT)
    for case, made in zip(STRICT, made_of(database_with(tmp_path / "a.db", script), STRICT), strict=True):
        assert_golden(case, made)


def test_generated_columns_and_those_of_views_are_read(tmp_path: Path) -> None:
    script = """CREATE TABLE t (id INTEGER PRIMARY KEY, price NUMERIC(10, 2),
            twice NUMERIC(10, 2) GENERATED ALWAYS AS (price * 2) VIRTUAL, thrice INTEGER AS (price * 4) STORED);
        INSERT INTO t (id, price) VALUES (1, 1.25);
        CREATE VIEW w AS SELECT id, price * 2 AS twice, 'x' || id AS name FROM t;"""
    text = """
entities:
  t: {items: {T: {key: ["T#{id}", M], keep: all}}}
  w: {key: [id], items: {W: {key: ["W#{id}", M], keep: all}}}
"""
    found = items(database_with(tmp_path / "a.db", script), HEAD + text)
    assert plain(found, "price", "twice", "thrice", "name") == [
        (N("1.25"), N("2.50"), 5, None),
        (None, N("2.5"), None, "x1"),
    ]


def test_a_filter_of_times_refuses_the_row_of_another_value(tmp_path: Path) -> None:
    case = Case("ANY", "'abc'", refused="the filter")
    url = database_with(tmp_path / "a.db", script_of([case]))
    text = HEAD + "entities: {t0: {items: {T: {key: ['T#{id}', M], attributes: {v: v|iso}}}}}"
    with pins.refused(RowError):
        items(url, text)
