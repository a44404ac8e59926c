"""Rows written into PostgreSQL: values as texts that take the column's own type, refusals by SQLSTATE, sequences."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Column, Kind, TableFacts
from migrator.mapping.model.rows import RefusalKind
from migrator.source.engines.base import RowWriting, as_text, refuse_inexact, refuse_longer

# ── values ──


def _bound(column: Column, value: Any) -> Any:
    """A text, without a cast: as a value of an unknown type it takes the column's, and what is too long is an error.

    Source: PostgreSQL's documentation, "Value Storage"; an explicit CAST to varchar(n) would cut.
    """
    if value is None or isinstance(value, bytes):
        return value
    refuse_inexact(column, value)
    refuse_longer(column, value)
    return _text(column.kind, value)


def _text(kind: Kind, value: Any) -> str:
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if kind.name == "list":
        return _array(kind.element or Kind("plain"), value)
    if kind.name != "map":
        return as_text(kind, value)
    if kind.element is not None:
        pairs = (f'"{_escaped(name)}"=>{_quoted(kind.element, one)}' for name, one in value.items())
        return ", ".join(pairs)
    # A field that is NULL is nothing between two commas.
    fields = (
        "" if value.get(name) is None else _quoted(field, value[name], twice='""')
        for name, field in kind.fields
    )
    return f"({','.join(fields)})"


def _array(element: Kind, values: Any) -> str:
    texts = (
        _array(element, one) if isinstance(one, list) and element.name != "json" else _quoted(element, one)
        for one in values
    )
    return f"{{{','.join(texts)}}}"


def _quoted(kind: Kind, value: Any, twice: str = '\\"') -> str:
    return "NULL" if value is None else f'"{_escaped(_text(kind, value), twice)}"'


def _escaped(text: str, twice: str = '\\"') -> str:
    return text.replace("\\", "\\\\").replace('"', twice)


# ── refusals ──

_BY_STATE: dict[str, RefusalKind] = {
    "23503": "foreign key",
    "23001": "foreign key",
    "23505": "unique",
    "23P01": "unique",
    "23502": "not null",
    "23514": "value",
    "P0001": "trigger",
}
"""Source: PostgreSQL's documentation, "PostgreSQL Error Codes"."""


def _refusal(error: BaseException) -> RefusalKind | None:
    state = getattr(error, "sqlstate", None) or ""
    # A driver that cannot write a NUL within a text has asked no server.
    is_value = state.startswith("22") or type(error).__name__ == "DataError"
    return _BY_STATE.get(state) or ("value" if is_value else None)


# ── counters ──

SEQUENCES = sa.text("""
    SELECT a.attname AS column, s.oid AS oid, n.nspname AS schema, s.relname AS name
    FROM pg_catalog.pg_class t
    JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = t.oid AND d.adnum = a.attnum
    JOIN pg_catalog.pg_depend p ON
        p.classid = 'pg_catalog.pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_catalog.pg_class'::regclass
        OR p.classid = 'pg_catalog.pg_class'::regclass AND p.refclassid = 'pg_catalog.pg_class'::regclass
            AND p.refobjid = t.oid AND p.refobjsubid = a.attnum AND p.deptype = 'i'
    JOIN pg_catalog.pg_class s ON s.relkind = 'S'
        AND s.oid = CASE p.classid WHEN 'pg_catalog.pg_attrdef'::regclass THEN p.refobjid ELSE p.objid END
    JOIN pg_catalog.pg_namespace n ON n.oid = s.relnamespace
    WHERE t.relname = :table AND t.relnamespace = COALESCE(
        (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = :schema),
        (SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = to_regclass(quote_ident(:table))))
""")
"""Of serial and identity columns, and of any other whose default draws from a sequence."""


def _move_counters(connection: Connection, table: TableFacts) -> None:
    quote = connection.dialect.identifier_preparer.quote_identifier
    place = quote(table.real) if table.schema is None else f"{quote(table.schema)}.{quote(table.real)}"
    for row in connection.execute(SEQUENCES, {"table": table.real, "schema": table.schema or ""}).all():
        highest = connection.exec_driver_sql(f"SELECT max({quote(row.column)}) FROM {place}").scalar()
        sequence = f"{quote(row.schema)}.{quote(row.name)}"
        last, is_called = connection.exec_driver_sql(f"SELECT last_value, is_called FROM {sequence}").one()
        if isinstance(highest, (int, Decimal)) and (highest > last or (highest == last and not is_called)):
            connection.execute(sa.text("SELECT setval(:oid, :at)"), {"oid": row.oid, "at": int(highest)})


_ALWAYS = sa.text("""
    SELECT attname FROM pg_catalog.pg_attribute
    WHERE attidentity = 'a' AND attrelid = to_regclass(:table)
""")


def _unchanging(connection: Connection, place: str) -> frozenset[str]:
    """Columns that are GENERATED ALWAYS AS IDENTITY: an INSERT may give one a value, and no UPDATE may name it."""
    return frozenset(connection.execute(_ALWAYS, {"table": place}).scalars())


def _begin(connection: Connection) -> None:
    # What is refused is to be known by its statement, and not at the commit.
    connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")
    connection.exec_driver_sql("SET LOCAL migrator.reverse = 'on'")


ROWS = RowWriting(
    prepare=lambda _: None,
    begin=_begin,
    end=lambda _: None,
    bound=_bound,
    upserts=True,
    defer="SET CONSTRAINTS ALL DEFERRED",
    overriding=" OVERRIDING SYSTEM VALUE",
    locks=" FOR UPDATE",
    refusal=_refusal,
    move_counters=_move_counters,
    unchanging=_unchanging,
    # Bits of tgtype: 1 for each row, 2 before, 4 of an INSERT, 16 of an UPDATE. Source: src/include/catalog/pg_trigger.h.
    changing_triggers=(
        "SELECT t.tgname FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        " WHERE NOT t.tgisinternal AND t.tgtype & 3 = 3 AND t.tgtype & 20 <> 0 AND c.relname = :name"
        " AND n.nspname = coalesce(CAST(:schema AS name), current_schema())"
    ),
)
