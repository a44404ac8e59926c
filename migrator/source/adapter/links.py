"""How the tables of a database hang together: foreign keys that act by themselves, partitions, tables that inherit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

_ACTS = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})


@dataclass(frozen=True, slots=True)
class Place:
    """A table by its schema and name; `schema` None where the source has no schemas."""

    schema: str | None
    name: str


@dataclass(frozen=True, slots=True)
class Below:
    """A foreign key by which the database itself changes rows of `child`. `columns`: (child's, own) real names."""

    child: Place
    columns: tuple[tuple[str, str], ...]
    on_delete: bool
    on_update: bool


Pairs = Sequence[tuple[Place, Place]]
"""(parent, child)."""


@dataclass(frozen=True, slots=True)
class Links:
    """`acting`: (parent, foreign key) of every one that changes rows by itself. `heirs`: partitions and tables that
    inherit. `views`: with what they read. `emptied`: what TRUNCATE … CASCADE of the first takes along."""

    acting: Sequence[tuple[Place, Below]]
    heirs: Pairs = ()
    views: Pairs = ()
    emptied: Pairs = ()


def links_of(connection: Connection, schemas: Iterable[str | None]) -> Links:
    """Those of all tables; on MariaDB and MySQL, of the databases from which foreign keys lead to tables of these."""
    if connection.dialect.name == "sqlite":
        return Links(_acting_on_sqlite(connection))
    if connection.dialect.name != "postgresql":
        return Links(_acting_on_mysql(sa.inspect(connection), schemas))
    heirs, views = _pairs(connection, _HEIRS), _pairs(connection, _VIEWS)
    return Links(_acting_on_postgresql(connection), heirs, views, [*heirs, *_pairs(connection, _REFERRING)])


def above(pairs: Pairs, places: Iterable[Place]) -> set[Place]:
    """The places, and all from which a line of pairs leads to one."""
    return _closed([(child, parent) for parent, child in pairs], places)


def beneath(pairs: Pairs, places: Iterable[Place]) -> set[Place]:
    """The places, and all to which a line of pairs leads from one."""
    return _closed(pairs, places)


def _closed(pairs: Pairs, places: Iterable[Place]) -> set[Place]:
    following: dict[Place, list[Place]] = {}
    for one, other in pairs:
        following.setdefault(one, []).append(other)
    found = set(places)
    left = list(found)
    while left:
        new = set(following.get(left.pop(), ())) - found
        found |= new
        left += new
    return found


# ── PostgreSQL ──

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
_REFERRING = sa.text(
    f"SELECT {_FOUR} FROM pg_catalog.pg_constraint k {_NAMES.format(parent='k.confrelid', child='k.conrelid')}"
    " WHERE k.contype = 'f'"
)
_ROOTS = _NAMES.format(
    parent="coalesce(pg_catalog.pg_partition_root(k.confrelid), k.confrelid)",
    child="coalesce(pg_catalog.pg_partition_root(k.conrelid), k.conrelid)",
)
# A key that PostgreSQL copied to partitions is its table's; one that was made for a partition changes its table's rows.
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


def _acting_on_postgresql(connection: Connection) -> list[tuple[Place, Below]]:
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


# ── SQLite ──

# SQLAlchemy does not read what a key does that stands beside its column.
_KEYS = sa.text("""
    SELECT m.name AS child, f.id AS id, f."table" AS parent, f."from" AS own, f."to" AS theirs,
        f.on_delete AS on_delete, f.on_update AS on_update
    FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) f WHERE m.type = 'table' ORDER BY m.name, f.id, f.seq
""")


def _acting_on_sqlite(connection: Connection) -> list[tuple[Place, Below]]:
    inspector = sa.inspect(connection)
    # A key may spell its table in another case.
    spelled = {name.lower(): name for name in inspector.get_table_names()}
    keys: dict[tuple[str, int], list[sa.Row[Any]]] = {}
    for row in connection.execute(_KEYS):
        if row.parent.lower() in spelled and not _ACTS.isdisjoint((row.on_delete, row.on_update)):
            keys.setdefault((row.child, row.id), []).append(row)
    found = []
    for (child, _), rows in keys.items():
        parent, one = spelled[rows[0].parent.lower()], rows[0]
        theirs = [row.theirs for row in rows if row.theirs is not None]
        referred = theirs or inspector.get_pk_constraint(parent)["constrained_columns"]
        pairs = tuple(zip((row.own for row in rows), referred, strict=True))
        acts = (one.on_delete in _ACTS, one.on_update in _ACTS)
        found.append((Place(None, parent), Below(Place(None, child), pairs, *acts)))
    return found


# ── MariaDB and MySQL ──


def _acting_on_mysql(inspector: sa.Inspector, schemas: Iterable[str | None]) -> list[tuple[Place, Below]]:
    """Read database by database: a parent may be in another one, and have parents of its own there."""
    left, seen = list(schemas), set[str | None]()
    found: list[tuple[Place, Below]] = []
    while left:
        if (schema := left.pop()) not in seen:
            seen.add(schema)
            new = _acting_in(inspector, schema)
            left += [parent.schema for parent, _ in new]
            found += new
    return found


def _acting_in(inspector: sa.Inspector, schema: str | None) -> list[tuple[Place, Below]]:
    found = []
    for (_, child), keys in inspector.get_multi_foreign_keys(schema=schema).items():
        for key in keys:
            options = key.get("options", {})
            acts = [str(options.get(name, "")).upper() in _ACTS for name in ("ondelete", "onupdate")]
            if any(acts):
                parent = Place(key["referred_schema"] or schema, key["referred_table"])
                pairs = tuple(zip(key["constrained_columns"], key["referred_columns"], strict=True))
                found.append((parent, Below(Place(schema, child), pairs, *acts)))
    return found
