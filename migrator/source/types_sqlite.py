"""SQLite's types: the rule for the names that tables use, and for any other by its affinity."""

from __future__ import annotations

from migrator.facts import Kind
from migrator.source.kinds import Kinds
from migrator.source.type_rules import TypeRule

_OTHERWISE = "Anything else in the column refuses its row."

_INTEGERS = (
    "INTEGER",
    "INT",
    "TINYINT",
    "SMALLINT",
    "MEDIUMINT",
    "BIGINT",
    "INT2",
    "INT4",
    "INT8",
    "SERIAL",
    "BIGSERIAL",
    "SMALLSERIAL",
    "UNSIGNED BIG INT",
    "INT UNSIGNED",
    "INTEGER UNSIGNED",
    "BIGINT UNSIGNED",
)
_TEXTS = (
    "TEXT",
    "VARCHAR",
    "CHAR",
    "CHARACTER",
    "CHARACTER VARYING",
    "VARYING CHARACTER",
    "NATIVE CHARACTER",
    "NVARCHAR",
    "NCHAR",
    "NTEXT",
    "CLOB",
    "VARCHAR2",
    "NVARCHAR2",
    "BPCHAR",
    "CITEXT",
    "NAME",
)
_ZONED = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ", "DATETIMEOFFSET")

RULES = (
    TypeRule(
        _INTEGERS,
        Kind("integer"),
        "N",
        f"An exact integer, also one that is stored as a whole float. {_OTHERWISE}",
        ("9007199254740993", "9007199254740993"),
    ),
    TypeRule(
        ("NUMERIC", "DECIMAL", "DEC", "MONEY"),
        Kind("number"),
        "N",
        (
            "With its declared decimals, which take away the noise of SQLite's floats; more decimals "
            f"refuse the row. SQLite itself keeps 15 digits of a number. {_OTHERWISE}"
        ),
        ("12.30", "12.30"),
    ),
    TypeRule(
        ("REAL", "DOUBLE", "DOUBLE PRECISION", "FLOAT", "FLOAT4", "FLOAT8"),
        Kind("float"),
        "N",
        (
            "The shortest decimal that is this binary value and no other; infinity refuses its row, "
            "unless the mapping says `|text`."
        ),
        ("0.1", "0.1"),
    ),
    TypeRule(
        _TEXTS,
        Kind("text"),
        "S",
        f"The text as it is, CHAR(n) too (SQLite neither pads nor cuts). {_OTHERWISE}",
        ("' Ünï '", '" Ünï "'),
    ),
    TypeRule(
        ("BOOLEAN", "BOOL"),
        Kind("boolean"),
        "BOOL",
        "1 is true, 0 is false. Anything else refuses its row.",
        ("1", "true"),
    ),
    TypeRule(
        ("DATE",),
        Kind("date"),
        "S, ISO 8601",
        (
            "Text in ISO 8601 form. Other text and numbers refuse their row, unless the mapping says "
            "`|text`; of seconds since 1970 write a column `{sql: \"date(d, 'unixepoch')\", type: "
            "date}`."
        ),
        ("'1969-07-20'", '"1969-07-20"'),
    ),
    TypeRule(
        ("TIME", "TIME WITHOUT TIME ZONE"),
        Kind("time"),
        "S, ISO 8601",
        "Text in ISO 8601 form, as for DATE.",
        ("'04:05:06'", '"04:05:06"'),
    ),
    TypeRule(
        ("TIME WITH TIME ZONE", "TIMETZ"),
        Kind("time", zone=True),
        "S, ISO 8601",
        "Text in ISO 8601 form with its offset, as for DATE.",
        ("'04:05:06+05:30'", '"04:05:06+05:30"'),
    ),
    TypeRule(
        ("TIMESTAMP", "DATETIME", "DATETIME2", "TIMESTAMP WITHOUT TIME ZONE"),
        Kind("timestamp"),
        "S, ISO 8601, 6 decimals",
        "Text in ISO 8601 form, as for DATE. A text with an offset is in UTC and has a Z.",
        ("'2024-03-31 02:30'", '"2024-03-31T02:30:00.000000"'),
    ),
    TypeRule(
        _ZONED,
        Kind("timestamp", zone=True),
        "S, ISO 8601, 6 decimals",
        "As TIMESTAMP; a text without an offset stays without a Z.",
        ("'2024-10-27 02:30+01:00'", '"2024-10-27T01:30:00.000000Z"'),
    ),
    TypeRule(
        ("UUID", "GUID", "UNIQUEIDENTIFIER"),
        Kind("uuid"),
        "S",
        f"Lower case with hyphens. {_OTHERWISE}",
        ("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
    ),
    TypeRule(
        ("BLOB", "BYTEA", "BINARY", "VARBINARY"),
        Kind("binary"),
        "B",
        f"The bytes. {_OTHERWISE}",
        ("x'00ff'", "bytes 00 FF"),
    ),
    TypeRule(
        ("JSON", "JSONB"),
        Kind("json"),
        "M, L, S, N, BOOL or NULL",
        f"A text that is a document becomes maps and lists with exact numbers. {_OTHERWISE}",
        ("""'{"a": [1.10, null]}'""", '{"a": [1.1, null]}'),
    ),
    TypeRule(
        ("ANY", ""),
        Kind("plain"),
        "N, S or B",
        (
            "Each value by its own type: of STRICT tables' ANY, and of columns (of views, too) that "
            "declare nothing."
        ),
        ("x'00ff'", "bytes 00 FF"),
    ),
)

AFFINITIES = (
    (("INT",), Kind("plain")),
    (("CHAR", "CLOB", "TEXT"), Kind("text")),
    (("BLOB",), Kind("binary")),
    (("REAL", "FLOA", "DOUB"), Kind("float")),
    (("",), Kind("plain")),
)
"""Words in a name that is not listed above, in SQLite's order. Source: sqlite.org/datatype3.html, "Determination Of
Column Affinity". What SQLite makes a number of where it can (INT in the name, or nothing known) may still be text."""

SHAPES = (
    TypeRule(("any other name with CHAR, CLOB or TEXT",), Kind("text"), "S", "As TEXT."),
    TypeRule(("any other name with BLOB",), Kind("binary"), "B", "As BLOB."),
    TypeRule(("any other name with REAL, FLOA or DOUB",), Kind("float"), "N", "As REAL."),
    TypeRule(
        ("any other name",),
        Kind("plain"),
        "N, S or B",
        (
            "Each value by its own type, as ANY. SQLite turns text that looks like a number into one "
            "when it is stored: '007' is 7."
        ),
    ),
    TypeRule(
        ("a generated column",),
        Kind("plain"),
        "as its type",
        "VIRTUAL and STORED alike, read like any other column.",
    ),
)


def _by_affinity(type_name: str) -> Kind:
    return next(kind for words, kind in AFFINITIES if any(word in type_name for word in words))


KINDS = Kinds.of(RULES, _by_affinity)
"""What each declared type holds."""
