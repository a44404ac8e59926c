from __future__ import annotations

import pytest

from migrator.facts import Kind
from migrator.source.kinds import kind_of


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
        ("", Kind("unknown")),
        ("STRING", Kind("unknown")),
        ("POINT", Kind("unknown")),
    ],
)
def test_a_type_of_sqlite_has_a_kind(declared: str, kind: Kind) -> None:
    assert kind_of(declared, "sqlite") == kind


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
        ("INTERVAL", Kind("unknown")),
        ("INTERVAL DAY TO SECOND(3)", Kind("unknown")),
        ("MONEY", Kind("unknown")),
        ("DATETIME", Kind("unknown")),
    ],
)
def test_a_type_of_postgresql_has_a_kind(declared: str, kind: Kind) -> None:
    assert kind_of(declared, "postgresql") == kind
