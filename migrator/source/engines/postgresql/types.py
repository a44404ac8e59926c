"""Kinds of PostgreSQL's types, with domains, enums, arrays, composites and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.model.facts import Alike, Kind
from migrator.source.engines.catalogue import (
    FLOATS,
    MOMENTS,
    NESTED,
    NO_ORDER,
    OVER_38,
    REFUSED,
    Kinds,
    TypeRule,
)

# ── PostgreSQL's types: the rule for each of them ──

_INTEGERS = ("SMALLINT", "INTEGER", "BIGINT", "INT2", "INT4", "INT8", "INT")
_SERIALS = ("SMALLSERIAL", "SERIAL", "BIGSERIAL")
_REGS = (
    "REGCLASS",
    "REGCOLLATION",
    "REGCONFIG",
    "REGDICTIONARY",
    "REGNAMESPACE",
    "REGOPER",
    "REGOPERATOR",
    "REGPROC",
    "REGPROCEDURE",
    "REGROLE",
    "REGTYPE",
)
_UNORDERED = ("CID", "XID", "PG_SNAPSHOT", "TXID_SNAPSHOT", "REFCURSOR", "ACLITEM")
_SERVER_TEXT = "PostgreSQL's own text, whole."

RULES = (
    TypeRule(
        (*_INTEGERS, *_SERIALS),
        Kind("integer"),
        "N",
        "An exact integer.",
        ("-9223372036854775808", "-9223372036854775808"),
    ),
    TypeRule(("OID",), Kind("integer"), "N", "An exact integer.", ("4294967295", "4294967295")),
    TypeRule(
        ("NUMERIC", "DECIMAL", "DEC"),
        Kind("number"),
        "N",
        f"Exact, never through a float. {OVER_38} `check` warns where the declared precision is above 38.",
        ("12345678901234567890.123456789", "12345678901234567890.123456789"),
    ),
    TypeRule(
        ("MONEY",),
        Kind("number", read_as="numeric"),
        "N",
        (
            "An exact number, read as numeric on the server, so that no locale's currency sign or "
            "comma comes along."
        ),
        ("'-1234.50'", "-1234.50"),
    ),
    TypeRule(
        ("REAL", "DOUBLE PRECISION", "FLOAT", "FLOAT4", "FLOAT8", "DOUBLE"),
        Kind("float"),
        "N",
        f"The shortest decimal that is this binary value and no other. {FLOATS}",
        ("0.1", "0.1"),
    ),
    TypeRule(
        ("TEXT", "CHARACTER VARYING", "VARCHAR", "NAME", '"CHAR"', "CITEXT", "LTREE"),
        Kind("text"),
        "S",
        "The text as it is: nothing is trimmed, normalised or changed in case (of citext neither).",
        ("' Ünï '", '" Ünï "'),
    ),
    TypeRule(
        ("CHARACTER", "CHAR", "BPCHAR"),
        Kind("text"),
        "S",
        "The text with its padding, as PostgreSQL gives it; in a key write `{code|trim}`.",
        ("'ab'::char(4)", '"ab  "'),
    ),
    TypeRule(("BOOLEAN", "BOOL"), Kind("boolean"), "BOOL", "True or false.", ("true", "true")),
    TypeRule(("DATE",), Kind("date"), "S, ISO 8601", MOMENTS, ("'1969-07-20'", '"1969-07-20"')),
    TypeRule(
        ("TIME", "TIME WITHOUT TIME ZONE"),
        Kind("time"),
        "S, ISO 8601",
        "Microseconds where there are any. 24:00:00 refuses its row, unless the mapping says `|text`.",
        ("'04:05:06.7'", '"04:05:06.700000"'),
    ),
    TypeRule(
        ("TIME WITH TIME ZONE", "TIMETZ"),
        Kind("time", zone=True),
        "S, ISO 8601 with the offset",
        (
            "With the offset that it was stored with. 24:00:00 refuses its row, unless the mapping "
            "says `|text`."
        ),
        ("'04:05:06+05:30'", '"04:05:06+05:30"'),
    ),
    TypeRule(
        ("TIMESTAMP", "TIMESTAMP WITHOUT TIME ZONE"),
        Kind("timestamp", precision=6),
        "S, ISO 8601, 6 decimals",
        f"As it stands, without a zone. {MOMENTS}",
        ("'2024-03-31 02:30'", '"2024-03-31T02:30:00.000000"'),
    ),
    TypeRule(
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"),
        Kind("timestamp", zone=True, precision=6),
        "S, ISO 8601, 6 decimals, Z",
        f"In UTC, whatever zone the server, the role or the writer has. {MOMENTS}",
        ("'2024-10-27 02:30 Europe/Berlin'", '"2024-10-27T01:30:00.000000Z"'),
    ),
    TypeRule(
        ("INTERVAL",),
        Kind("text"),
        "S, an ISO 8601 duration",
        (
            "Years and months, days, and time stay apart, as PostgreSQL keeps them; each may be "
            "negative. Does not sort."
        ),
        ("'1 year 2 days -03:04:05.6'", '"P1Y2DT-3H-4M-5.6S"'),
    ),
    TypeRule(
        ("UUID",),
        Kind("uuid"),
        "S",
        "Lower case with hyphens.",
        ("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
    ),
    TypeRule(("BYTEA",), Kind("binary"), "B", "The bytes.", (r"'\x00ff'", "bytes 00 FF")),
    TypeRule(
        ("JSON",),
        Kind("json"),
        "M, L, S, N, BOOL or NULL",
        "A document becomes maps and lists with exact numbers; the last of two equal names is kept. "
        "The document `null` becomes the attribute NULL; SQL's NULL leaves the attribute out.",
        ("""'{"a": [1.10, null]}'""", '{"a": [1.1, null]}'),
        NO_ORDER,
    ),
    TypeRule(
        ("JSONB",),
        Kind("json"),
        "M, L, S, N, BOOL or NULL",
        "A document becomes maps and lists with exact numbers. "
        "The document `null` becomes the attribute NULL; SQL's NULL leaves the attribute out.",
        ("""'{"a": [1.10, null]}'""", '{"a": [1.1, null]}'),
    ),
    TypeRule(
        ("HSTORE",),
        Kind("map", element=Kind("text")),
        "M of S",
        "A map of texts; a value that is NULL is NULL in the map.",
        ("'a=>1, b=>NULL'", '{"a": "1", "b": null}'),
        NESTED,
    ),
    TypeRule(
        ("BIT", "BIT VARYING", "VARBIT"),
        Kind("bits"),
        "S of 0 and 1",
        "All its bits, leading zeros too; bit(1) as well.",
        ("B'0101'", '"0101"'),
    ),
    TypeRule(
        ("INET", "CIDR", "MACADDR", "MACADDR8"),
        Kind("text"),
        "S",
        "PostgreSQL's own text; a host has no /32.",
        ("'10.1.2.3/8'", '"10.1.2.3/8"'),
    ),
    TypeRule(
        ("INT4RANGE", "INT8RANGE", "NUMRANGE", "DATERANGE", "TSRANGE", "TSTZRANGE"),
        Kind("text"),
        "S",
        "PostgreSQL's canonical text, times in UTC; ranges that a user made alike.",
        ("int4range(1, 5, '[]')", '"[1,6)"'),
    ),
    TypeRule(
        (
            "INT4MULTIRANGE",
            "INT8MULTIRANGE",
            "NUMMULTIRANGE",
            "DATEMULTIRANGE",
            "TSMULTIRANGE",
            "TSTZMULTIRANGE",
        ),
        Kind("text"),
        "S",
        "PostgreSQL's canonical text, in order and merged.",
        ("'{[1,2], [2,5)}'::int4multirange", '"{[1,5)}"'),
    ),
    TypeRule(("TSVECTOR", "TSQUERY"), Kind("text"), "S", _SERVER_TEXT, ("'b a'::tsvector", "\"'a' 'b'\"")),
    TypeRule(
        ("XML",),
        # As a value of its own it is sent without its declaration.
        Kind("text", read_as="text"),
        "S",
        "The text as it was written, with its declaration.",
        ("'<?xml version=\"1.0\"?><a/>'::xml", '"<?xml version=\\"1.0\\"?><a/>"'),
        NO_ORDER,
    ),
    TypeRule(
        ("JSONPATH",),
        Kind("text"),
        "S",
        _SERVER_TEXT,
        ("'$.a'::jsonpath", '"$.\\"a\\""'),
        NO_ORDER,
    ),
    TypeRule(
        ("POINT", "LINE", "LSEG", "BOX", "PATH", "POLYGON", "CIRCLE"),
        Kind("text"),
        "S",
        (
            "PostgreSQL's own text, numbers as short as they are exact. "
            'For a geohash take its numbers: `{sql: "(at)[0]", type: float}`.'
        ),
        ("'(1.5, -2)'", '"(1.5,-2)"'),
        NO_ORDER,
    ),
    TypeRule(
        ("TID", "XID8", "PG_LSN"),
        Kind("text"),
        "S",
        _SERVER_TEXT,
        ("'16/B374D848'::pg_lsn", '"16/B374D848"'),
    ),
    TypeRule(_UNORDERED, Kind("text"), "S", _SERVER_TEXT, ("'5'::xid", '"5"'), NO_ORDER),
    TypeRule(
        _REGS,
        Kind("text"),
        "S",
        "The name that PostgreSQL shows for it.",
        ("'integer'::regtype", '"integer"'),
        "PostgreSQL compares it by the oid behind its name",
    ),
    TypeRule(
        ("GEOMETRY", "GEOGRAPHY"),
        Kind("unknown", instead="ST_AsText({column})"),
        REFUSED,
        "PostGIS has several texts; say which one.",
    ),
    TypeRule(
        ("RASTER", "CUBE", "SEG", "LQUERY", "LTXTQUERY"),
        Kind("unknown", instead="CAST({column} AS text)"),
        REFUSED,
        "So is every base type of an extension that is not named here.",
    ),
)

SHAPES = (
    TypeRule(
        ("an enum",),
        Kind("text"),
        "S",
        "Its label. It sorts as text, not in the declared order.",
        ("'happy'", '"happy"'),
    ),
    TypeRule(
        ("a domain",),
        Kind("plain"),
        "as its base",
        "As the type that it is made of.",
        ("12.50::price", "12.50"),
    ),
    TypeRule(
        ("an array",),
        Kind("list"),
        "L",
        (
            "A list, of lists where it has more dimensions; each element by its own type's rule, a "
            "NULL is NULL in the list. Lower bounds are not kept."
        ),
        ("'{{1,2},{3,NULL}}'::int[]", "[[1, 2], [3, null]]"),
        NESTED,
    ),
    TypeRule(
        ("a composite type",),
        Kind("map"),
        "M",
        (
            "A map of its fields, each by its own type's rule; a field that is NULL is left out. "
            "Refused where a field is, or is money, which only a column's own cast reads without a "
            "currency sign: `check` says how to have all its fields as the text of a JSON document."
        ),
        ("ROW('Main St', 5)::address", '{"street": "Main St", "no": 5}'),
        NESTED,
    ),
    TypeRule(("a generated column",), Kind("plain"), "as its type", "Read like any other column.", ("", "")),
)
"""Types that users of PostgreSQL define; recognised by the catalogue, not by a name."""

KINDS = Kinds.of(RULES, lambda _: Kind("unknown", instead="CAST({column} AS text)"))
"""What each declared type holds."""


# ── Kinds from the catalogue, with domains, enums, arrays, composites and ranges ──

# The types of the schema's columns, and all types that these are made of.
_USED = """
    WITH RECURSIVE used (oid) AS (
        SELECT a.atttypid FROM pg_catalog.pg_attribute a
        JOIN pg_catalog.pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = :schema
        WHERE a.attnum > 0 AND NOT a.attisdropped
        UNION
        SELECT part.oid FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid
        CROSS JOIN LATERAL (
            SELECT t.typelem AS oid WHERE t.typelem <> 0
            UNION ALL SELECT t.typbasetype WHERE t.typtype = 'd'
            UNION ALL SELECT f.atttypid FROM pg_catalog.pg_attribute f
                WHERE t.typtype = 'c' AND f.attrelid = t.typrelid AND f.attnum > 0 AND NOT f.attisdropped
        ) part
    )
"""
_TYPES = sa.text(
    _USED
    + """
    SELECT t.oid, t.typtype AS form, t.typbasetype AS base, t.typtypmod AS modifier,
        pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(t.typname) AS qualified,
        CASE WHEN n.nspname = 'pg_catalog' THEN pg_catalog.format_type(t.oid, NULL) ELSE t.typname END AS name,
        (SELECT e.oid FROM pg_catalog.pg_type e WHERE e.oid = t.typelem AND e.typarray = t.oid) AS element
    FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
"""
)
_FIELDS = sa.text(
    _USED
    + """
    SELECT t.oid, f.attname AS name, f.atttypid AS type, f.atttypmod AS modifier
    FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid AND t.typtype = 'c'
    JOIN pg_catalog.pg_attribute f ON f.attrelid = t.typrelid AND f.attnum > 0 AND NOT f.attisdropped
    ORDER BY t.oid, f.attnum
"""
)
_LABELS = sa.text(
    _USED
    + "SELECT e.enumtypid AS oid, e.enumlabel AS label FROM used u JOIN pg_catalog.pg_enum e ON e.enumtypid = u.oid"
)
_NO_MODIFIER = -1
_VARLENA = 4
"""Bytes included in the modifiers of numeric, varchar and char. Source: PostgreSQL, src/include/varatt.h."""
_ALIKE: Mapping[str, tuple[Alike, ...]] = {"citext": ("case",), "character": ("trailing spaces",)}
_LENGTHS = {
    "character varying": _VARLENA,
    "character": _VARLENA,
    "bit": 0,
    "bit varying": 0,
    "timestamp without time zone": 0,
    "timestamp with time zone": 0,
}


@dataclass(frozen=True)
class Types:
    """The schema's types by their oid, the (name, oid, modifier) of each field of its composites, and labels of enums."""

    rows: Mapping[int, sa.Row[Any]]
    fields: dict[int, list[tuple[str, int, int]]] = field(default_factory=dict)
    labels: dict[int, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, connection: Connection, schema: str | None) -> Types:
        types = cls({row.oid: row for row in connection.execute(_TYPES, {"schema": schema})})
        for row in connection.execute(_FIELDS, {"schema": schema}):
            types.fields.setdefault(row.oid, []).append((row.name, row.type, row.modifier))
        for row in connection.execute(_LABELS, {"schema": schema}):
            types.labels.setdefault(row.oid, []).append(row.label)
        return types

    def words(self, oid: int) -> tuple[str, ...]:
        """Labels of enums, and names of fields, that values of the type are spelled by."""
        row = self._base(oid)
        if row.element is not None:
            return self.words(row.element)
        fields = self.fields.get(row.oid, [])
        inner = [f"{name}.{word}" for name, type_, _ in fields for word in ("", *self.words(type_))]
        return (*sorted(self.labels.get(row.oid, [])), *inner)

    def column_kind(self, oid: int, modifier: int = _NO_MODIFIER) -> Kind:
        """The kind of a column; `modifier`: its length or precision as pg_attribute has it.

        No operator compares a domain over an enum, not even with itself; a cast to the enum does.
        """
        kind, base = self.kind(oid, modifier), self._base(oid)
        return replace(kind, read_as=base.qualified) if base.form == "e" and base.oid != oid else kind

    def alike(self, oid: int) -> tuple[Alike, ...]:
        """Differences between texts that the type ignores, whatever the collation."""
        return _ALIKE.get(self._base(oid).name, ())

    def _base(self, oid: int) -> sa.Row[Any]:
        """The base type of a domain, through any number of domains."""
        row = self.rows[oid]
        return self._base(row.base) if row.form == "d" else row

    def kind(self, oid: int, modifier: int = _NO_MODIFIER) -> Kind:
        """The kind of a value of the type, in a column or in a part of one."""
        row = self.rows[oid]
        if row.form == "d":
            return self.kind(row.base, modifier if row.modifier == _NO_MODIFIER else row.modifier)
        if row.form == "c":
            return self._composite(oid)
        if row.form in ("e", "r", "m"):
            return Kind("text")
        if row.element is not None:
            return self._array(self.kind(row.element, modifier))
        return KINDS.kind_of(_with_arguments(row.name, modifier))

    def _array(self, element: Kind) -> Kind:
        if element.name == "unknown":
            return Kind("unknown", instead="CAST({column} AS text)")
        return Kind("list", element=element, read_as=f"{element.read_as}[]" if element.read_as else "")

    def _composite(self, oid: int) -> Kind:
        fields = tuple(
            (name, self.kind(type_, modifier)) for name, type_, modifier in self.fields.get(oid, [])
        )
        # A cast that works for a column cannot be applied to a part of a composite.
        if any(kind.name == "unknown" or kind.read_as for _, kind in fields):
            return Kind("unknown", instead="CAST(to_jsonb({column}) AS text)")
        return Kind("map", fields=fields)


def _with_arguments(name: str, modifier: int) -> str:
    """The type as it is declared: numeric(10,2). Source of the bits: PostgreSQL, src/backend/utils/adt/numeric.c."""
    if modifier == _NO_MODIFIER:
        return name
    if name == "numeric":
        packed = modifier - _VARLENA
        precision, scale = packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024
        return f"numeric({precision},{scale})"
    return f"{name}({modifier - _LENGTHS[name]})" if name in _LENGTHS else name
