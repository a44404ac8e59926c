"""Triggers and tables of ours that a source has, by its own catalogue."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.source.capture.design import Ddl, Found
from migrator.source.engines.table import engine_at


def found_triggers(connection: Connection, ddl: Ddl) -> list[Found]:
    """In the order of their tables."""
    return list(engine_at(connection).capturing.found(connection, ddl))


def has_tables(connection: Connection, ddl: Ddl) -> bool:
    """Whether capture was installed: its counter is there."""
    return _has(connection, "ticket")


def has_marks(connection: Connection, ddl: Ddl) -> bool:
    """Whether the marks' table is there; somebody may have dropped it alone."""
    return _has(connection, "mark")


def _has(connection: Connection, name: str) -> bool:
    capturing = engine_at(connection).capturing
    return sa.inspect(connection).has_table(f"{capturing.prefix}{name}", schema=capturing.schema)
