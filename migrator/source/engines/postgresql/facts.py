"""Schema facts of PostgreSQL, from its catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection, Inspector
from sqlalchemy.engine.interfaces import ReflectedForeignKeyConstraint

from migrator.mapping.model.facts import Alike, Column, Kind
from migrator.runtime.values import replace
from migrator.source.engines import catalogue

KINDS = catalogue.Kinds(
    "migrator.source.engines.postgresql", lambda _: Kind("unknown", instead="CAST({column} AS text)")
)
"""What each declared type holds."""
QUERIES = catalogue.Queries("migrator.source.engines.postgresql")
TEXTS = {
    "DateStyle": "ISO",
    "TimeZone": "UTC",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
}
"""Settings by which a value has the same text on every connection, and floats are exact."""


# ── Kinds from the catalogue, with domains, enums, arrays, composites and ranges ──

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
    """Types by oid, the (name, oid, modifier, number) of each field of composites, and labels of enums as in
    `words`.
    """

    rows: Mapping[int, sa.Row[Any]]
    fields: dict[int, list[tuple[str, int, int, int]]] = {}
    labels: dict[int, list[str]] = {}

    @classmethod
    def of(cls, connection: Connection, schema: str | None) -> Types:
        types = cls({row.oid: row for row in connection.execute(QUERIES["types"], {"schema": schema})})
        for row in connection.execute(QUERIES["fields"], {"schema": schema}):
            types.fields.setdefault(row.oid, []).append((row.name, row.type, row.modifier, row.number))
        for row in connection.execute(QUERIES["labels"], {"schema": schema}):
            types.labels.setdefault(row.oid, []).append(f"{row.label}@{row.number}")
        return types

    def words(self, oid: int) -> tuple[str, ...]:
        """Labels of enums and names of fields, each with the number that a rename leaves: a swap of two names is
        noticed.
        """
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
        """`modifier`: length or precision as in pg_attribute.

        No operator compares a domain over an enum, not even with itself; a cast to the enum does.
        """
        kind, base = self.kind(oid, modifier), self._base(oid)
        return replace(kind, read_as=base.qualified) if base.form == "e" and base.oid != oid else kind

    def alike(self, oid: int) -> tuple[Alike, ...]:
        return _ALIKE.get(self._base(oid).name, ())

    def _base(self, oid: int) -> sa.Row[Any]:
        row = self.rows[oid]
        return self._base(row.base) if row.form == "d" else row

    def kind(self, oid: int, modifier: int = _NO_MODIFIER) -> Kind:
        row = self.rows[oid]
        if row.form == "d":
            return self.kind(row.base, modifier if row.modifier == _NO_MODIFIER else row.modifier)
        if row.form == "c":
            return self._composite(oid)
        if row.form in ("e", "r", "m"):
            return Kind("text", strict=True)
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
    """The type as declared: numeric(10,2). Source of the bits: PostgreSQL, src/backend/utils/adt/numeric.c."""
    if modifier == _NO_MODIFIER:
        return name
    if name == "numeric":
        packed = modifier - _VARLENA
        precision, scale = packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024
        return f"numeric({precision},{scale})"
    return f"{name}({modifier - _LENGTHS[name]})" if name in _LENGTHS else name


def reflected(connection: Connection, schema: str | None) -> catalogue.Reflected:
    inspector = sa.inspect(connection)
    schema = schema or inspector.default_schema_name
    columns_by_table = columns(connection, schema)
    keys = catalogue.primary_keys_of(inspector, schema)
    indexes = connection.execute(QUERIES["unique_indexes"], {"schema": schema}).all()
    unique: dict[str, dict[tuple[str, ...], None]] = {}
    for index in indexes:
        if not index.is_primary:
            unique.setdefault(index.table_name, {})[tuple(index.names)] = None
    return catalogue.Reflected(
        schema,
        {name: columns_by_table[name] for name in catalogue.the_users(columns_by_table)},
        keys,
        {table: list(columns) for table, columns in unique.items()},
        _foreign_keys(connection, inspector, schema),
        doubts=_doubts(indexes),
        left_out=_left_out(connection, schema),
    )


def _left_out(connection: Connection, schema: str | None) -> dict[str, str]:
    unpopulated = "a materialized view that is not populated; REFRESH MATERIALIZED VIEW fills it"
    why = {
        "of_extension": "a table of an extension, not of the application",
        "unpopulated": unpopulated,
        "unreadable": catalogue.UNREADABLE,
    }
    found = {row[0]: row[1] for row in connection.execute(QUERIES["left_out"], {"schema": schema, **why})}
    return {name: found[name] for name in catalogue.the_users(found)}


def columns(connection: Connection, schema: str | None) -> dict[str, list[Column]]:
    types = Types.of(connection, schema)
    alike = _alike_by_oid(connection)
    by_table: dict[str, list[Column]] = {}
    for row in connection.execute(QUERIES["columns"], {"schema": schema}):
        column = Column(
            row.name,
            row.name,
            types.column_kind(row.type, row.modifier),
            row.nullable,
            row.declared,
            alike=types.alike(row.type) or alike.get(row.collation, ()),
            widest=row.widest,
            default=row.has_default,
            generated=row.computed,
            words=(
                f"@{row.number}",
                *types.words(row.type),
                *([f"= {row.expression}"] if row.expression else []),
            ),
            virtual=row.expression if row.virtual else "",
        )
        by_table.setdefault(row.table_name, []).append(column)
    return by_table


def _alike_by_oid(connection: Connection) -> Mapping[int, tuple[Alike, ...]]:
    ask = "SELECT 'a' = 'A' COLLATE {0}, 'a' = 'a ' COLLATE {0}"
    rows = connection.execute(QUERIES["nondeterministic"]).all()
    return catalogue.alike_by(connection, {row.oid: ask.format(row.name).replace("%", "%%") for row in rows})


def _foreign_keys(
    connection: Connection, inspector: Inspector, schema: str | None
) -> dict[str, list[ReflectedForeignKeyConstraint]]:
    proved = {row[:2]: row.proved for row in connection.execute(QUERIES["foreign_keys"], {"schema": schema})}
    by_table = catalogue.foreign_keys_of(inspector, schema)
    for table, keys in by_table.items():
        keys[:] = [key for key in keys if (table, key["name"]) in proved]
        for key in keys:
            key["options"]["proved"] = proved[table, key["name"]]
    return by_table


def _doubts(indexes: Sequence[sa.Row[Any]]) -> dict[str, list[tuple[tuple[str, ...], str]]]:
    proven: set[tuple[str, frozenset[str]]] = set()
    doubted: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for row in indexes:
        if why := _why_not_unique(row):
            doubted.setdefault(row.table_name, []).append((tuple(row.names), why))
        else:
            proven.add((row.table_name, frozenset(row.names)))
    return {
        table: [(key, why) for key, why in keys if (table, frozenset(key)) not in proven]
        for table, keys in doubted.items()
    }


def _why_not_unique(index: sa.Row[Any]) -> str:
    if index.inherited:
        return "tables inherit from it, and their rows, which are read as its own, have keys of their own"
    if not index.valid:
        return "its unique index is INVALID (drop it and build it again)"
    return (
        "" if index.immediate else "its constraint is DEFERRABLE, and holds only when a transaction commits"
    )
