"""MariaDB's and MySQL's types: the rule for each of them."""

from __future__ import annotations

from migrator.facts import Kind
from migrator.source.kinds import Kinds
from migrator.source.type_rules import DOCUMENT, FLOATS, NESTED, REFUSED, TypeRule

_INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
_ZERO = "Zero dates such as 0000-00-00 refuse their row, unless the mapping says `|text`."

RULES = (
    TypeRule(
        _INTEGERS,
        Kind("integer"),
        "N",
        "An exact integer, unsigned and zerofill too (its zeros are display, not value).",
        ("18446744073709551615", "18446744073709551615"),
    ),
    TypeRule(
        ("TINYINT(1)",),
        Kind("boolean"),
        "BOOL",
        (
            "What BOOLEAN is written as. Another number than 0 and 1 refuses its row: "
            'write a column `{sql: "x + 0", type: integer}`.'
        ),
        ("TRUE", "true"),
    ),
    TypeRule(("BIT(1)",), Kind("boolean"), "BOOL", "One bit is true or false.", ("b'1'", "true")),
    TypeRule(
        ("BIT",),
        Kind("bits"),
        "S of 0 and 1",
        'All its bits, leading zeros too; for a number write a column `{sql: "x + 0", type: integer}`.',
        ("b'00101'", '"00101"'),
    ),
    TypeRule(
        ("DECIMAL", "NUMERIC"),
        Kind("number"),
        "N",
        (
            "Exact, never through a float. More than 38 digits refuse their row, unless the mapping "
            "says `|text`; `check` warns where the declared precision is above 38."
        ),
        ("-12345678901234567890.1234", "-12345678901234567890.1234"),
    ),
    TypeRule(
        ("FLOAT",),
        Kind("float", single=True),
        "N",
        (
            "The shortest decimal that is this 32-bit value and no other, not the six digits that "
            "the server shows."
        ),
        ("16777217", "16777216"),
    ),
    TypeRule(
        ("DOUBLE",),
        Kind("float"),
        "N",
        f"The shortest decimal that is this 64-bit value and no other. {FLOATS}",
        ("0.1", "0.1"),
    ),
    TypeRule(
        ("VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"),
        Kind("text"),
        "S",
        "The text as it is: nothing is trimmed, normalised or changed in case.",
        ("' Ünï '", '" Ünï "'),
    ),
    TypeRule(
        ("CHAR",),
        Kind("text"),
        "S",
        "Without trailing spaces: the server takes them off itself, whatever its sql_mode.",
        ("'ab  '", '"ab"'),
    ),
    TypeRule(
        ("ENUM",),
        Kind("text"),
        "S",
        (
            "Its label. It sorts as text, not in the declared order; the label '' stands for a value "
            "that was refused."
        ),
        ("'large'", '"large"'),
    ),
    TypeRule(
        ("SET",),
        Kind("set"),
        "L of S",
        "A list of its members in the declared order; the empty set is an empty list.",
        ("'b,a'", '["a", "b"]'),
        NESTED,
    ),
    TypeRule(("DATE",), Kind("date"), "S, ISO 8601", _ZERO, ("'1969-07-20'", '"1969-07-20"')),
    TypeRule(
        ("TIME",),
        Kind("time"),
        "S, ISO 8601",
        (
            "A time of day, with microseconds where there are any. A span (negative, or from 24 "
            "hours on) refuses its row, unless the mapping says `|text`."
        ),
        ("'04:05:06.7'", '"04:05:06.700000"'),
    ),
    TypeRule(
        ("DATETIME",),
        Kind("timestamp"),
        "S, ISO 8601, 6 decimals",
        f"As it stands, without a zone. {_ZERO}",
        ("'2024-03-31 02:30'", '"2024-03-31T02:30:00.000000"'),
    ),
    TypeRule(
        ("TIMESTAMP",),
        Kind("timestamp", zone=True),
        "S, ISO 8601, 6 decimals, Z",
        f"In UTC, whatever zone the server or the writer has. {_ZERO}",
        ("'2024-10-27 02:30' at +01:00", '"2024-10-27T01:30:00.000000Z"'),
    ),
    TypeRule(("YEAR",), Kind("integer"), "N", "An integer; 0000 is 0.", ("1901", "1901")),
    TypeRule(
        ("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"),
        Kind("binary"),
        "B",
        "The bytes; BINARY(n) with the zero bytes that the server pads it with.",
        ("x'00ff'", "bytes 00 FF"),
    ),
    TypeRule(
        ("JSON",),
        Kind("json"),
        "M, L, S, N, BOOL or NULL",
        (
            "A document becomes maps and lists with exact numbers. MariaDB's is told by its CHECK "
            "(json_valid(…))."
        ),
        ("""'{"a": [1.10, null]}'""", '{"a": [1.1, null]}'),
        DOCUMENT,
    ),
    TypeRule(
        ("UUID",),
        Kind("uuid"),
        "S",
        "Lower case with hyphens.",
        ("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
    ),
    TypeRule(
        ("INET4", "INET6"), Kind("text"), "S", "The server's own text.", ("'2001:DB8::1'", '"2001:db8::1"')
    ),
    TypeRule(
        (
            "GEOMETRY",
            "POINT",
            "LINESTRING",
            "POLYGON",
            "MULTIPOINT",
            "MULTILINESTRING",
            "MULTIPOLYGON",
            "GEOMETRYCOLLECTION",
            "GEOMCOLLECTION",
        ),
        Kind("unknown", instead="ST_AsText({column})"),
        REFUSED,
        "It has several texts; say which one. For a geohash take `ST_X(at)` and `ST_Y(at)`.",
    ),
    TypeRule(
        ("VECTOR",),
        Kind("unknown", instead="VEC_ToText({column})"),
        REFUSED,
        "Newer than MariaDB 10.11. So is every type that is not named here.",
    ),
)

SHAPES = (
    TypeRule(
        ("a generated column",),
        Kind("plain"),
        "as its type",
        "VIRTUAL and PERSISTENT alike, read like any other column.",
    ),
    TypeRule(("an invisible column",), Kind("plain"), "as its type", "Read like any other column."),
)

KINDS = Kinds.of(RULES, lambda _: Kind("unknown", instead="CAST({column} AS char)"))
"""What each declared type holds."""
