from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from migrator.mapping.model.facts import Kind
from migrator.source.engines import catalogue
from migrator.source.engines.base import Engine, GrantObject
from migrator.source.engines.catalogue import TypeRule
from migrator.source.engines.connect import ENGINES, engine_of
from migrator.source.engines.mysql import facts
from migrator.source.engines.postgresql import facts as postgresql_facts
from migrator.source.engines.sqlite import engine as sqlite


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("INTEGER", Kind("integer")),
        ("int", Kind("integer")),
        ("TINYINT", Kind("integer")),
        ("UNSIGNED BIG INT", Kind("integer")),
        ("INT(11)", Kind("integer")),
        ("NUMERIC(10,2)", Kind("number", scale=2)),
        ("NUMERIC ( 10 , 2 )", Kind("number", scale=2)),
        ("DECIMAL(10)", Kind("number")),
        ("NUMERIC", Kind("number")),
        ("DOUBLE PRECISION", Kind("float")),
        ("REAL", Kind("float")),
        ("NVARCHAR(160)", Kind("text", length=160)),
        ("TEXT", Kind("text")),
        ("character varying(7)", Kind("text", length=7)),
        ("BOOLEAN", Kind("boolean")),
        ("DATE", Kind("date")),
        ("TIME", Kind("time")),
        ("DATETIME", Kind("timestamp")),
        ("TIMESTAMP WITH TIME ZONE", Kind("timestamp", zone=True)),
        ("GUID", Kind("uuid")),
        ("BLOB", Kind("binary")),
        ("JSON", Kind("json")),
        ("", Kind("plain")),
        ("ANY", Kind("plain")),
        ("STRING", Kind("plain")),
        ("POINT", Kind("plain")),
        ("MEDIUMTEXT(9)", Kind("text", length=9)),
        ("LONGBLOB", Kind("binary")),
        ("DOUBLE UNSIGNED", Kind("float")),
    ],
)
def test_a_type_of_sqlite_has_a_kind(declared: str, kind: Kind) -> None:
    assert engine_of("sqlite").schema.kinds.kind_of(declared) == kind


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("BIGINT", Kind("integer")),
        ("SMALLINT", Kind("integer")),
        ("NUMERIC(10, 2)", Kind("number", scale=2)),
        ("NUMERIC(10, 0)", Kind("number", scale=0)),
        ("NUMERIC", Kind("number")),
        ("DOUBLE PRECISION", Kind("float")),
        ("FLOAT(24)", Kind("float")),
        ("CHAR(3)", Kind("text", length=3)),
        ("CITEXT", Kind("text")),
        ("TIMESTAMP WITHOUT TIME ZONE", Kind("timestamp")),
        ("TIMESTAMP(3) WITH TIME ZONE", Kind("timestamp", zone=True)),
        ("UUID", Kind("uuid")),
        ("BYTEA", Kind("binary")),
        ("JSONB", Kind("json")),
        ("INTEGER[]", Kind("unknown")),
        ("VARCHAR(3)[]", Kind("unknown")),
        ("INTERVAL", Kind("text")),
        ("INTERVAL DAY TO SECOND(3)", Kind("text")),
        ("MONEY", Kind("number")),
        ("bit varying(5)", Kind("bits", length=5)),
        ('"char"', Kind("text")),
        ("DATETIME", Kind("unknown")),
    ],
)
def test_a_type_of_postgresql_has_a_kind(declared: str, kind: Kind) -> None:
    assert engine_of("postgresql").schema.kinds.kind_of(declared) == kind


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("int(11)", Kind("integer")),
        ("int", Kind("integer")),
        ("bigint(20) unsigned zerofill", Kind("integer")),
        ("tinyint(4)", Kind("integer")),
        ("tinyint(1)", Kind("boolean")),
        ("tinyint(1) unsigned", Kind("integer")),
        ("bit(1)", Kind("boolean")),
        ("bit(12)", Kind("bits", length=12)),
        ("year(4)", Kind("integer")),
        ("decimal(10,2)", Kind("number", scale=2)),
        ("decimal(10,0) unsigned", Kind("number", scale=0)),
        ("float", Kind("float", single=True)),
        ("text /*M!100301 COMPRESSED*/", Kind("text")),
        ("double(10,2) unsigned", Kind("float")),
        ("varchar(200)", Kind("text", length=200)),
        ("char(0)", Kind("text", length=0)),
        ("longtext", Kind("text")),
        ("enum('a','b(1) unsigned')", Kind("text")),
        ("set('x','it''s\n','(2)')", Kind("set")),
        ("inet6", Kind("text")),
        ("date", Kind("date")),
        ("time(6)", Kind("time")),
        ("datetime(3)", Kind("timestamp")),
        ("timestamp", Kind("timestamp", zone=True)),
        ("timestamp(6)", Kind("timestamp", zone=True)),
        ("uuid", Kind("uuid")),
        ("binary(16)", Kind("binary")),
        ("mediumblob", Kind("binary")),
        ("json", Kind("json")),
        ("point", Kind("unknown")),
        ("vector(3)", Kind("unknown")),
    ],
)
def test_a_type_of_mysql_has_a_kind(declared: str, kind: Kind) -> None:
    assert engine_of("mysql").schema.kinds.kind_of(declared) == kind


@pytest.mark.parametrize("rules", [sqlite.KINDS.rules, postgresql_facts.KINDS.rules, facts.KINDS.rules])
def test_a_type_has_one_rule_an_example_and_a_sentence(rules: Sequence[TypeRule]) -> None:
    names = Counter(name for rule in rules for name in rule.names)
    assert [name for name, count in names.items() if count > 1] == []
    for rule in rules:
        refused = rule.kind.name == "unknown"
        assert refused == (rule.form == "none") == bool(rule.kind.instead)
        assert refused or all(rule.example)
        assert rule.rule.endswith(".")


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_queries_are_those_that_the_code_names(engine: Engine) -> None:
    package = Path(*engine.queries.engine.split("."))
    shared = ["capture/install.py", "sql/row_writing.py", "sql/statements.py"]
    paths = [*package.glob("*.py"), *(package.parents[1] / name for name in shared)]
    code = "".join(path.read_text() for path in paths)
    names = engine.queries.names()
    parts = {*re.findall(r"{(\w+)}", (package / "queries.sql").read_text())}
    asked = {*re.findall(r'"(\w+)"', code)} | {f"has_{kind}" for kind in get_args(GrantObject)}
    assert {*re.findall(r'QUERIES\["(\w+)"', code)} | parts <= names <= asked | parts
    assert not any("{" in engine.queries.text(name) for name in names)


@pytest.mark.parametrize(
    ("kinds", "declared", "digits"),
    [
        (facts.KINDS, "timestamp(3)", 3),
        (facts.KINDS, "datetime(6)", 6),
        (facts.KINDS, "datetime", 0),
        (facts.KINDS, "decimal(10,2)", 10),
        (postgresql_facts.KINDS, "timestamp(3) without time zone", 3),
        (postgresql_facts.KINDS, "timestamp without time zone", 6),
        (postgresql_facts.KINDS, "numeric(12,2)", 12),
    ],
)
def test_a_type_has_its_digits(kinds: catalogue.Kinds, declared: str, digits: int) -> None:
    assert kinds.kind_of(declared).precision == digits
