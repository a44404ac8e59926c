"""The two statements in which journals on SQLite and PostgreSQL differ."""

from __future__ import annotations

from sqlalchemy import Connection, Insert, Table, func, select
from sqlalchemy.dialects import sqlite

_SETTING_UP = 0x6D696772
"""Any number, as long as it stays the same: the lock under which PostgreSQL sets a journal up."""


def insert_or_ignore(connection: Connection, table: Table) -> Insert:
    """INSERT that leaves a row alone that is there already."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql  # slow to import, and SQLite does without

        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def set_up_alone(connection: Connection) -> None:
    """Waits until nobody else sets a journal up; SQLite's transactions take turns anyway.

    Two CREATE TABLE at once fail on PostgreSQL, IF NOT EXISTS or not.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_SETTING_UP)))
