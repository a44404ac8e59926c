"""Rows of a statement as the driver gives them: all, or only the first ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.source.engines.table import engine_at

_STREAMED = {"stream_results": True, "max_row_buffer": 100}


def first_rows(
    connection: Connection,
    statement: sa.Executable,
    params: Mapping[str, Any] | None = None,
    at_most: int | None = None,
) -> list[tuple[Any, ...]]:
    """The driver's own tuples: SQLAlchemy's Row around each of them would cost more than reading it.

    `at_most`: so many rows, and one more where there are more; the others are left where they are.
    """
    with connection.execute(
        statement, params, execution_options={} if at_most is None else _STREAMED
    ) as result:
        if not isinstance(result, sa.CursorResult) or result.cursor is None:
            raise sa.exc.ResourceClosedError("the statement does not return rows")
        if at_most is None:
            return list(result.cursor.fetchall())
        # Not the driver's cursor: a streamed result has taken the first rows out of it already.
        found = [tuple(row) for row in result.fetchmany(at_most + 1)]
        if len(found) > at_most and engine_at(connection).server.sends_to_the_end:
            _leave(connection)
        return found


def _leave(connection: Connection) -> None:
    """Ends the connection, and with it what the server still sends: nothing but reading on would give it back else."""
    unread = getattr(connection.connection.driver_connection, "_result", None)
    connection.invalidate()
    if unread is not None:
        # Or the cursor would wait for the end of it on a connection that is closed.
        unread.unbuffered_active = False
