"""Images of marks hold, on every engine and whatever the service's session says, what the source reads of the row."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from migrator.mapping.model.live import Mark
from migrator.mapping.model.table import encode_key
from tests.support_capture import Capturing, captured, rows
from tests.support_mysql import is_mariadb
from tests.support_source import plan_of

TABLE = "o\"rd`er's Ζεύς select"

COLUMNS: dict[str, list[tuple[str, str, list[str]]]] = {
    "postgresql": [
        ("small", "smallint", ["-32768", "7"]),
        ("big", "bigint", ["-9223372036854775808", "9223372036854775807"]),
        ("num", "numeric(10,2)", ["1.10", "-0.00"]),
        ("free", "numeric", ["12345678901234567890.1234500", "0"]),
        ("cash", "money", ["'-1234.50'", "'0.01'"]),
        ("word", "text", ["E'it''s \"x\" \\\\ 😀 Ζεύς\\n:a %s'", "''"]),
        ("code", "char(5)", ["'ab'", "'a c'"]),
        ("onechar", '"char"', ["'x'", "'y'"]),
        ("u", "uuid", ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "'00000000-0000-0000-0000-000000000000'"]),
        ("d", "date", ["'2024-02-29'", "'infinity'"]),
        ("t", "time", ["'04:05:06.000007'", "'24:00:00'"]),
        ("tz", "timetz", ["'04:05:06+05:30'", "'00:00Z'"]),
        ("at", "timestamp", ["'2024-03-31 02:30:00.000001'", "'0044-03-15 BC'"]),
        ("atz", "timestamptz", ["'2024-10-27 02:30:00.5 Europe/Berlin'", "'-infinity'"]),
        ("span", "interval", ["'1 year 2 days -03:04:05.6'", "'0'"]),
        ("bin", "bytea", ["decode('00ff61', 'hex')", "''"]),
        ("yes", "boolean", ["true", "false"]),
        ("f8", "double precision", ["0.1::float8 + 0.2::float8", "'NaN'"]),
        ("f4", "real", ["16777217", "1e-30"]),
        ("mood", "mood", ["'happy Ζ'", "'sad'"]),
        ("price", "price", ["12.50", "3"]),
        ("deep", "deep", ["12.50", "3"]),
        ("net", "inet", ["'10.1.2.3'", "'10.1.2.3/8'"]),
        ("j", "json", ["""'{"a": [1.10, null], "a": 2}'""", "'null'"]),
        ("jb", "jsonb", ["""'{"b": 1, "a": "é"}'""", "'3'"]),
        ("list", "int[]", ["'{{1,2},{3,NULL}}'", "'{}'"]),
        ("bits", "bit(5)", ["B'00101'", "B'11111'"]),
        ("rng", "int4range", ["'[1,5]'", "'empty'"]),
        ("Mixed Case", "integer", ["1", "2"]),
    ],
    "mariadb": [
        ("tiny", "tinyint unsigned", ["255", "0"]),
        ("yes", "boolean", ["true", "false"]),
        ("big", "bigint unsigned", ["18446744073709551615", "0"]),
        ("zero", "int(8) zerofill", ["42", "0"]),
        ("num", "decimal(10,2)", ["1.10", "-0.01"]),
        ("f4", "float", ["16777217", "0.1"]),
        ("f8", "double", ["0.1e0 + 0.2e0", "1e-300"]),
        ("word", "varchar(80)", ["'it''s \"x\" \\\\ 😀 Ζεύς\\n:a %s'", "''"]),
        ("latin", "varchar(20) character set latin1", ["'é'", "'ß '"]),
        ("code", "char(5)", ["'ab'", "'a c'"]),
        ("long", "longtext", ["REPEAT('ü', 70000)", "'x'"]),
        ("bin", "varbinary(20)", ["x'00ff61'", "''"]),
        ("padded", "binary(4)", ["'ab'", "x'00ff00ff'"]),
        ("blobbed", "blob", ["x'00'", "''"]),
        ("e", "enum('x','Ζεύς')", ["'Ζεύς'", "'x'"]),
        ("s", "set('p','q')", ["'p,q'", "''"]),
        ("bits", "bit(5)", ["b'00101'", "b'0'"]),
        ("bit1", "bit(1)", ["b'1'", "b'0'"]),
        ("d", "date", ["'2024-02-29'", "'0000-00-00'"]),
        ("t", "time(6)", ["'04:05:06.000007'", "'-26:00:00'"]),
        ("at", "datetime(6)", ["'2024-03-31 02:30:00.000001'", "'0000-00-00'"]),
        ("at3", "datetime(3)", ["'2024-03-31 02:30:00.001'", "'2024-01-01'"]),
        ("atz", "timestamp(6) null", ["'2024-10-27 02:30:00.123456'", "'0000-00-00'"]),
        ("atz0", "timestamp null", ["'2024-10-27 02:30:00'", "'0000-00-00'"]),
        ("y", "year", ["1901", "0"]),
        ("u", "uuid", ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "'00000000-0000-0000-0000-000000000000'"]),
        ("net", "inet6", ["'2001:DB8::1'", "'::'"]),
        ("j", "json", ["""'{"a": [1.10, null]}'""", "'3'"]),
        ("Mixed Case`", "integer", ["1", "2"]),
    ],
    "sqlite": [
        ("big", "BIGINT", ["-9223372036854775808", "9223372036854775807"]),
        ("num", "NUMERIC(10,2)", ["1.10", "'no number'"]),
        ("f8", "REAL", ["0.1 + 0.2", "5e-324"]),
        ("f2", "REAL", ["2", "9e999"]),
        ("word", "TEXT", ["'it''s \"x\" \\ 😀 Ζεύς :a %s'", "''"]),
        ("broken", "TEXT", ["CAST(x'61ff62' AS TEXT)", "'a' || char(0) || 'b'"]),
        ("nocase", "TEXT COLLATE NOCASE", ["'aB'", "'Ab'"]),
        ("u", "UUID", ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "x'00ff'"]),
        ("at", "TIMESTAMP", ["'2024-03-31 02:30'", "1711852200"]),
        ("yes", "BOOLEAN", ["1", "0"]),
        ("bin", "BLOB", ["x'00ff61'", "x''"]),
        ("anything", "ANY", ["1.5", "'text:with:colons'"]),
        ("Mixed Case", "INTEGER", ["1", "2"]),
    ],
}
HOSTILE = {
    "postgresql": [
        "SET DateStyle = 'German, DMY'",
        "SET TimeZone = 'Asia/Kolkata'",
        "SET extra_float_digits = -15",
        "SET bytea_output = 'escape'",
        "SET IntervalStyle = 'sql_standard'",
        "SET search_path = ''",
        "SET standard_conforming_strings = off",
        "SET backslash_quote = on",
    ],
    "mariadb": ["SET sql_mode = 'ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH'", "SET time_zone = '+05:30'"],
    "sqlite": [],
}
USERS_TYPES = [
    "CREATE TYPE mood AS ENUM ('happy Ζ', 'sad')",
    "CREATE DOMAIN price AS numeric(10,2)",
    "CREATE DOMAIN deep AS price",
]


def columns_on(each: Capturing) -> list[tuple[str, str, list[str]]]:
    """MySQL has not all types of MariaDB."""
    alone = () if each.engine != "mariadb" or is_mariadb(each.url) else ("uuid", "inet6")
    return [one for one in COLUMNS[each.engine] if one[1] not in alone]


@pytest.fixture
def typed(each: Capturing) -> Capturing:
    """A captured table with a column of each type."""
    columns = ", ".join(f"{_quoted(name)} {type_}" for name, type_, _ in columns_on(each))
    each.run(*(USERS_TYPES if each.engine == "postgresql" else []))
    each.run(f"CREATE TABLE {_quoted(TABLE)} (id integer PRIMARY KEY, n integer, {columns})")
    table = each.table(TABLE)
    each.install(captured(table, [column.name for column in table.columns]))
    return each


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _as_keys(image: Any) -> dict[str, tuple[str, str]]:
    """By column, the value's type and its text as a key, which NaN has too."""
    return {name: (type(value).__name__, encode_key([value])) for name, value in image.items()}


def test_images_are_what_the_source_reads(typed: Capturing) -> None:
    plan = plan_of(typed.table(TABLE))
    table, names = (
        f"{'public.' if typed.engine == 'postgresql' else ''}{_quoted(TABLE)}",
        columns_on(typed),
    )
    with typed.service() as service:
        for setting in HOSTILE[typed.engine]:
            service.execute(setting)
        for number in (0, 1):
            values = ", ".join(examples[number] for _, _, examples in names)
            service.execute(f"INSERT INTO {table} VALUES ({number + 1}, 0, {values})")
        service.execute(f"INSERT INTO {table} (id, n) VALUES (3, 0)")
        first = rows(typed.source, plan, ["[1]", "[2]", "[3]"])
        # Every row takes the values of another one.
        for number, given in ((1, 1), (2, 0)):
            changes = ", ".join(f"{_quoted(name)} = {examples[given]}" for name, _, examples in names)
            service.execute(f"UPDATE {table} SET n = 1, {changes} WHERE id = {number}")
        second = rows(typed.source, plan, ["[1]", "[2]", "[3]"])
        service.execute(f"DELETE FROM {table} WHERE id = 1")
    marks = typed.left()
    assert len(first) == 3
    assert first["[1]"] != second["[1]"]
    images = [(mark.before and _as_keys(mark.before), mark.after and _as_keys(mark.after)) for mark in marks]
    expected = [
        *((None, _as_keys(first[key])) for key in ("[1]", "[2]", "[3]")),
        *((_as_keys(first[key]), _as_keys(second[key])) for key in ("[1]", "[2]")),
        (_as_keys(second["[1]"]), None),
    ]
    assert [_different(*pair) for pair in zip(images, expected, strict=True)] == [{}] * len(expected)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_images_of_each_type_alone_ignore_the_sessions_settings(each: Capturing) -> None:
    """A trigger sets only the settings by which the texts of its table's types differ."""
    names = {f"t{place}": one for place, one in enumerate(columns_on(each))}
    each.run(
        *USERS_TYPES,
        *(
            f"CREATE TABLE {table} (k {type_}, id integer PRIMARY KEY)"
            for table, (_, type_, _) in names.items()
        ),
    )
    each.install(*(captured(each.table(table), ["id", "k"]) for table in names))
    with each.service() as service:
        for setting in HOSTILE["postgresql"]:
            service.execute(setting)
        for table, (_, _, examples) in names.items():
            for number, example in enumerate(examples):
                service.execute(f"INSERT INTO public.{table} VALUES ({example}, {number})")
    images = [_as_keys(mark.after) for mark in each.left()]
    read = [
        _as_keys(row)
        for table in names
        for row in rows(each.source, plan_of(each.table(table)), ["[0]", "[1]"]).values()
    ]
    assert images == [{name: row[name] for name in ("id", "k")} for row in read]


def _different(images: Any, expected: Any) -> dict[str, Any]:
    """By column, the two sides that are not equal."""
    return {
        name: (image and image.get(name), wanted and wanted.get(name))
        for image, wanted in zip(images, expected, strict=True)
        for name in {**(image or {}), **(wanted or {})}
        if (image and image.get(name)) != (wanted and wanted.get(name))
    }


def test_marks_of_a_table_that_is_gone_are_read_like_the_others(typed: Capturing) -> None:
    typed.run(f"INSERT INTO {_quoted(TABLE)} (id, n) VALUES (1, 5)", f"DROP TABLE {_quoted(TABLE)}")
    (mark,) = typed.left()
    assert isinstance(mark, Mark)
    assert mark.after is not None
    assert (mark.after["id"], mark.after["n"]) == (1, 5)


def test_images_of_generated_columns_contain_the_computed_values(each: Capturing) -> None:
    """Stored or virtual; PostgreSQL has virtual ones from 18 on (tests/nightly/postgres18)."""
    kinds = ("STORED",) if each.engine == "postgresql" else ("STORED", "VIRTUAL")
    generated = {f"is_{kind.lower()}": f"integer GENERATED ALWAYS AS (a * 2) {kind}" for kind in kinds}
    columns = ", ".join(f"{name} {words}" for name, words in generated.items())
    each.run(f"CREATE TABLE made (id integer PRIMARY KEY, a integer, {columns})")
    each.install(captured(each.table("made"), ["id", *generated]))
    each.run(
        "INSERT INTO made (id, a) VALUES (1, 3)", "UPDATE made SET a = 4", "UPDATE made SET id = 2", "DELETE FROM made"
    )  # fmt: skip

    def image(id_: int, value: int) -> dict[str, int]:
        return {"id": id_, **dict.fromkeys(generated, value)}

    images = [(mark.before, mark.after) for mark in each.left()]
    states = [None, image(1, 6), image(1, 8), image(2, 8), None]
    assert images == list(pairwise(states))
