"""What SQLite says about a table and SQLAlchemy's inspector does not pass on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Inspector
from sqlalchemy.exc import DBAPIError

from migrator.facts import Column
from migrator.source import collations
from migrator.source.reflection import Reflected, foreign_keys_of, primary_keys_of, the_users
from migrator.source.sqlite_meetings import meetings
from migrator.source.types_sqlite import KINDS

_TYPES = sa.text("SELECT name, type FROM pragma_table_xinfo(:table)")
_VIEWS = sa.text("SELECT name FROM sqlite_master WHERE type = 'view'")
_UNIQUE = sa.text(
    "SELECT i.name, c.name FROM pragma_index_list(:table) i JOIN pragma_index_info(i.name) c "
    "WHERE i.\"unique\" = 1 AND i.partial = 0 AND i.origin <> 'pk' ORDER BY i.seq DESC, c.seqno"
)


def reflected(connection: Connection, _: str | None) -> Reflected:
    """Tables and views of a schema (None: the default one)."""
    inspector = sa.inspect(connection)
    views = set(inspector.get_view_names()) - broken_views(connection)
    names = list(the_users([*inspector.get_table_names(), *views]))
    keys = primary_keys_of(inspector, None)
    columns = {name: list(_sqlite_columns(connection, inspector, name, keys.get(name, []))) for name in names}
    unique = {name: unique_columns(connection, name) for name in names}
    met = {name: meetings(connection, name) for name in names}
    return Reflected(None, columns, keys, unique, foreign_keys_of(inspector, None), met)


def _sqlite_columns(
    connection: Connection, inspector: Inspector, table: str, key: Sequence[str]
) -> Iterator[Column]:
    """The columns with the types that the table's author wrote; SQLAlchemy knows fewer names of them."""
    declared = declared_types(connection, table)
    columns = inspector.get_columns(table)
    alike = collations.on_sqlite(connection, table, [one["name"] for one in columns])
    for one in columns:
        name = one["name"]
        # INTEGER PRIMARY KEY is the rowid, which is never NULL whatever the declaration says.
        rowid = [name] == list(key) and declared[name].upper() == "INTEGER"
        nullable = one["nullable"] and not rowid
        kind = KINDS.kind_of(declared[name])
        yield Column(name, name, kind, nullable, declared[name], alike=alike.get(name, ()))


def declared_types(connection: Connection, table: str) -> dict[str, str]:
    """Per column, the type as the table's author wrote it ('' where there is none)."""
    rows = connection.execute(_TYPES, {"table": table})
    return {row.name: row.type for row in rows}


def unique_columns(connection: Connection, table: str) -> list[tuple[str, ...]]:
    """The columns of each unique constraint or index of columns only that holds for every row."""
    found: dict[str, list[str | None]] = {}
    for index, column in connection.execute(_UNIQUE, {"table": table}):
        found.setdefault(index, []).append(column)
    names = (tuple(name for name in columns if name) for columns in found.values() if None not in columns)
    return list(dict.fromkeys(names))


def broken_views(connection: Connection) -> set[str]:
    """Views that cannot be read, because what they read is gone; SQLite keeps them."""
    return {view for view in connection.scalars(_VIEWS) if not _can_be_read(connection, view)}


def _can_be_read(connection: Connection, view: str) -> bool:
    try:
        connection.execute(_TYPES, {"table": view}).all()
    except DBAPIError:
        return False
    return True
