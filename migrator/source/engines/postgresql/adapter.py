"""The adapter's rules for PostgreSQL: a service's statements, connections and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Column
from migrator.source.engines.base import Outcomes, Sessions, Statements, Typed
from migrator.source.engines.catalogue import Below, Links, Place
from migrator.source.engines.shared import COMMON_QUOTES

# ── connections ──


def _cursor(connection: Any, driver: Any) -> Any:
    if not hasattr(driver, "row_factory") and hasattr(driver, "cursor_factory"):
        return connection.cursor(cursor_factory=_psycopg2_cursor())
    cursor = connection.cursor()
    # For an async connection SQLAlchemy returns a cursor that wraps the driver's.
    own = getattr(cursor, "_cursor", cursor)
    if hasattr(own, "row_factory"):
        own.row_factory = _psycopg_rows()
    return cursor


def _psycopg_rows() -> Any:
    from psycopg.rows import tuple_row

    return tuple_row


def _psycopg2_cursor() -> Any:
    return import_module("psycopg2.extensions").cursor


# ── values ──


def _typed(column: Column, value: Any) -> Typed:
    """A domain over an enum is cast to the enum: no operator compares the domain."""
    enum = column.kind.read_as if column.kind.name == "text" else ""
    return "CAST(", value, f" AS {enum or column.declared})"


# ── tables ──

_NAMES = """
    JOIN pg_catalog.pg_class p ON p.oid = {parent} JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
    JOIN pg_catalog.pg_class c ON c.oid = {child} JOIN pg_catalog.pg_namespace cn ON cn.oid = c.relnamespace
"""
_FOUR = "pn.nspname AS parent_schema, p.relname AS parent, cn.nspname AS child_schema, c.relname AS child"
_HEIRS = sa.text(
    f"SELECT {_FOUR} FROM pg_catalog.pg_inherits i {_NAMES.format(parent='i.inhparent', child='i.inhrelid')}"
    " WHERE c.relkind IN ('r', 'p', 'f')"
)
_VIEWS = sa.text(
    f"SELECT DISTINCT {_FOUR} FROM pg_catalog.pg_depend d"
    " JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass"
    f" {_NAMES.format(parent='d.refobjid', child='r.ev_class')}"
    " WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND c.relkind = 'v' AND c.oid <> p.oid"
)
_RULES = sa.text(
    f"SELECT DISTINCT {_FOUR}, r.ev_type AS event, pg_catalog.quote_ident(p.relname) AS written,"
    " pg_catalog.pg_get_ruledef(r.oid) AS text FROM pg_catalog.pg_depend d"
    " JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass"
    f" {_NAMES.format(parent='d.refobjid', child='r.ev_class')}"
    " WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND c.relkind IN ('r', 'p') AND r.ev_type <> '1'"
)
_ACTIONS = {"2": "update", "3": "insert", "4": "delete"}
_WRITES = r"\b(?:INSERT INTO|UPDATE|DELETE FROM)\s+(?:ONLY\s+)?(?:\S+\.)?{}(?![\w$\"])"
_REFERRING = sa.text(
    f"SELECT {_FOUR} FROM pg_catalog.pg_constraint k {_NAMES.format(parent='k.confrelid', child='k.conrelid')}"
    " WHERE k.contype = 'f'"
)
_ROOTS = _NAMES.format(
    parent="coalesce(pg_catalog.pg_partition_root(k.confrelid), k.confrelid)",
    child="coalesce(pg_catalog.pg_partition_root(k.conrelid), k.conrelid)",
)
# A key that PostgreSQL copied to partitions belongs to their table; one made for a partition changes the table's rows.
_ACTING = sa.text(f"""
    SELECT {
    _FOUR
}, k.confdeltype IN ('c', 'n', 'd') AS on_delete, k.confupdtype IN ('c', 'n', 'd') AS on_update,
        ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u(number, at) JOIN pg_catalog.pg_attribute a
            ON a.attrelid = k.conrelid AND a.attnum = u.number ORDER BY u.at) AS own,
        ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u(number, at) JOIN pg_catalog.pg_attribute a
            ON a.attrelid = k.confrelid AND a.attnum = u.number ORDER BY u.at) AS theirs
    FROM pg_catalog.pg_constraint k {_ROOTS}
    WHERE k.contype = 'f' AND k.conparentid = 0 AND (k.confdeltype IN ('c', 'n', 'd') OR k.confupdtype IN ('c', 'n', 'd'))
    ORDER BY k.oid
""")


def _pairs(connection: Connection, statement: sa.TextClause) -> list[tuple[Place, Place]]:
    return [
        (Place(row.parent_schema, row.parent), Place(row.child_schema, row.child))
        for row in connection.execute(statement)
    ]


def _acting(connection: Connection) -> list[tuple[Place, Below]]:
    return [
        (
            Place(row.parent_schema, row.parent),
            Below(
                Place(row.child_schema, row.child),
                tuple(zip(row.own, row.theirs, strict=True)),
                row.on_delete,
                row.on_update,
            ),
        )
        for row in connection.execute(_ACTING)
    ]


def _rules(connection: Connection) -> list[tuple[Place, Place, str]]:
    """A rule also depends on tables that it only reads: its text distinguishes them from those that it writes."""
    return [
        (Place(row.parent_schema, row.parent), Place(row.child_schema, row.child), _ACTIONS[row.event])
        for row in connection.execute(_RULES)
        if re.search(_WRITES.format(re.escape(row.written)), row.text.partition(" DO ")[2])
    ]


def _links(connection: Connection, _: Iterable[str | None]) -> Links:
    heirs, views = _pairs(connection, _HEIRS), _pairs(connection, _VIEWS)
    emptied = [*heirs, *_pairs(connection, _REFERRING)]
    return Links(_acting(connection), heirs, views, emptied, _rules(connection))


STATEMENTS = Statements(
    reader="postgres",
    # A name may hold a $ as well.
    bound=re.compile(r"(?<![\w$])\$(?P<place>\d+)"),
    quotes=re.compile(r"(?is)(?<!\w)E'(?:[^'\\]|\\.|'')*'|\$((?:[^\W\d]\w*)?)\$.*?\$\1\$|" + COMMON_QUOTES),
    nests_comments=True,
    runs_comments=False,
    modifiers=None,
    overriding=re.compile(r"(?i)\bOVERRIDING\s+SYSTEM\s+VALUE(?=\s+(?:VALUES|SELECT)\b)"),
    deletes_by_using=False,
    tables_keep_case=False,
    decimals_are_floats=False,
    quotes_by_session=False,
)
SESSIONS = Sessions(
    drivers=("psycopg", "psycopg_async", "psycopg2", "asyncpg"),
    modules={"psycopg": "format", "psycopg2": "format"},
    reads_through=("psycopg",),
    settings="transaction",
    # asyncpg's own connection has no such attribute, SQLAlchemy's wrapper of it has.
    autocommits=lambda connection, _: bool(connection.autocommit),
    counts_found=lambda _: True,
    changes_so_far=lambda _: 0,
    cursor=_cursor,
    begins="",
    charset="",
    home="SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.oid = pg_catalog.to_regclass({name})",
    has_search_path=True,
    keeps_last_id=False,
)
OUTCOMES = Outcomes(
    # Inserting a child does not wait for a parent whose key does not change.
    locks={
        "key": " FOR UPDATE",
        "met": " FOR UPDATE",
        "row": " FOR NO KEY UPDATE",
        "own": "",
        "upserted": "",
        "none": "",
    },
    locks_gaps=False,
    # ON CONFLICT DO UPDATE locks the row that it meets, so its new version has an xmax; a new row has none.
    met=lambda alias, _: [f"{alias}.xmax <> 0"],
    compares_types=True,
    typed=_typed,
    marks_at_once=True,
    returns_keys=True,
    rereads_returned=True,
    last_key=None,
    counts_keys_on=False,
    zero_makes_key=False,
    keeps_refused="nothing",
    counts_twice=False,
    counts_late=False,
    locks_all=False,
    folds_tables=lambda _: False,
    links=_links,
    hidden=lambda *_: (),
    knows_heirs=True,
    has_conflict_rules=False,
)
