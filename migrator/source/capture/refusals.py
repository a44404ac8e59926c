"""Why a table's changes cannot be captured, and what to do: kinds of tables, privileges, circles of foreign keys."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.engine import Connection

from migrator.errors import SettingsError
from migrator.mapping.changes import Captured
from migrator.source.capture.design import Ddl
from migrator.source.engines.table import engine_at


def refusals(
    connection: Connection, ddl: Ddl, tables: Sequence[Captured], *, by_triggers: bool = True
) -> list[str]:
    """All of them at once. Not `by_triggers`: services leave the marks, and what only triggers need may be missing."""
    found = [what for one in tables if (what := _unseen(ddl, one))]
    told = engine_at(connection).capturing.refusals(connection, ddl, tables)
    return [*found, *(one.text for one in told if by_triggers or not one.triggers_only)]


def views(connection: Connection, ddl: Ddl) -> set[str]:
    """Names, as Captured has them, of what can be read like a table and has no triggers of its own."""
    return engine_at(connection).capturing.views(connection, ddl)


def _unseen(ddl: Ddl, captured: Captured) -> str:
    try:
        ddl.triggers(captured)
    except SettingsError as error:
        return str(error)
    return ""
