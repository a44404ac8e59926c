"""Kinds of PostgreSQL's types, with domains, enums, arrays, composites and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Alike, Kind
from migrator.runtime.values import replace
from migrator.source.engines.catalogue import (
    Kinds,
)

KINDS = Kinds(
    "migrator.source.engines.postgresql", lambda _: Kind("unknown", instead="CAST({column} AS text)")
)
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
    SELECT t.oid, f.attname AS name, f.atttypid AS type, f.atttypmod AS modifier, f.attnum AS number
    FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid AND t.typtype = 'c'
    JOIN pg_catalog.pg_attribute f ON f.attrelid = t.typrelid AND f.attnum > 0 AND NOT f.attisdropped
    ORDER BY t.oid, f.attnum
"""
)
_LABELS = sa.text(
    _USED + "SELECT e.enumtypid AS oid, e.oid AS number, e.enumlabel AS label"
    " FROM used u JOIN pg_catalog.pg_enum e ON e.enumtypid = u.oid"
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


class Types(Struct, frozen=True):
    """The schema's types by their oid, the (name, oid, modifier, number) of each field of its composites, and labels
    of enums as `words` has them."""

    rows: Mapping[int, sa.Row[Any]]
    fields: dict[int, list[tuple[str, int, int, int]]] = {}
    labels: dict[int, list[str]] = {}

    @classmethod
    def of(cls, connection: Connection, schema: str | None) -> Types:
        types = cls({row.oid: row for row in connection.execute(_TYPES, {"schema": schema})})
        for row in connection.execute(_FIELDS, {"schema": schema}):
            types.fields.setdefault(row.oid, []).append((row.name, row.type, row.modifier, row.number))
        for row in connection.execute(_LABELS, {"schema": schema}):
            types.labels.setdefault(row.oid, []).append(f"{row.label}@{row.number}")
        return types

    def words(self, oid: int) -> tuple[str, ...]:
        """Labels of enums, and names of fields, that values of the type are spelled by. Each has the number that a
        rename leaves, so that two that swap their names are noticed."""
        row = self._base(oid)
        if row.element is not None:
            return self.words(row.element)
        fields = self.fields.get(row.oid, [])
        inner = [
            f"{name}.{word}"
            for name, type_, _, number in fields
            for word in (f"@{number}", *self.words(type_))
        ]
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
            (name, self.kind(type_, modifier)) for name, type_, modifier, _ in self.fields.get(oid, [])
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
