"""What SQLite says about a table and SQLAlchemy's inspector does not pass on."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

_TYPES = sa.text("SELECT name, type FROM pragma_table_xinfo(:table)")
_VIEWS = sa.text("SELECT name FROM sqlite_master WHERE type = 'view'")
_UNIQUE = sa.text(
    "SELECT i.name, c.name FROM pragma_index_list(:table) i JOIN pragma_index_info(i.name) c "
    "WHERE i.\"unique\" = 1 AND i.partial = 0 AND i.origin <> 'pk' ORDER BY i.seq DESC, c.seqno"
)


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
