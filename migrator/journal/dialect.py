"""The statements in which journals on SQLite, PostgreSQL and MySQL (MariaDB too) differ."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Double,
    Engine,
    Insert,
    Table,
    func,
    inspect,
    literal_column,
    select,
)
from sqlalchemy.dialects import sqlite

_SETTING_UP = 0x6D696772
"""Any number, as long as it stays the same: the lock under which a server sets a journal up."""
_SETTING_UP_S = 60

_CLOCKS = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "extract(epoch FROM clock_timestamp())",
    "mysql": "UNIX_TIMESTAMP(SYSDATE(6))",
}


def insert_or_ignore(connection: Connection, table: Table) -> Insert:
    """INSERT that leaves a row alone that is there already."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql  # slow to import, and SQLite does without

        return postgresql.insert(table).on_conflict_do_nothing()
    if connection.dialect.name == "mysql":
        from sqlalchemy.dialects import mysql

        # Not INSERT IGNORE: it swallows other faults too, and two that find one row deleted would lock each other out.
        kept = next(column for column in table.columns if column is not table.autoincrement_column)
        return mysql.insert(table).on_duplicate_key_update({kept.name: kept})
    return sqlite.insert(table).on_conflict_do_nothing()


def insert_or_replace(connection: Connection, table: Table) -> Insert:
    """INSERT that gives a row with the same primary key, where there is one, its other values."""
    others = [column.name for column in table.columns if not column.primary_key]
    if connection.dialect.name == "mysql":
        from sqlalchemy.dialects import mysql

        made = mysql.insert(table)
        return made.on_duplicate_key_update({name: made.inserted[name] for name in others})
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        put = postgresql.insert(table)
        return put.on_conflict_do_update(
            index_elements=list(table.primary_key), set_={name: put.excluded[name] for name in others}
        )
    new = sqlite.insert(table)
    return new.on_conflict_do_update(
        index_elements=list(table.primary_key), set_={name: new.excluded[name] for name in others}
    )


def seconds(connection: Connection) -> float:
    """The time by the database's clock, in seconds since 1970."""
    clock: ColumnElement[float] = literal_column(_CLOCKS[connection.dialect.name], Double())
    return float(connection.execute(select(clock)).scalar_one())


def add_columns(connection: Connection, columns: Collection[Column[Any]]) -> None:
    """Adds those that a table does not have yet; in all rows they are NULL."""
    there = {
        table: {column["name"] for column in inspect(connection).get_columns(table.name)}
        for table in {column.table for column in columns}
    }
    for column in columns:
        if column.name not in there[column.table]:
            kind = column.type.compile(connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {column.table.name} ADD COLUMN {column.name} {kind}")


@contextmanager
def set_up_alone(engine: Engine) -> Iterator[Connection]:
    """A transaction in which nobody else sets a journal up; SQLite's transactions take turns anyway.

    Two CREATE TABLE at once fail on PostgreSQL, IF NOT EXISTS or not; on MySQL each of them is a commit.
    """
    if engine.dialect.name == "mysql":
        with engine.connect() as holder:
            name = func.concat(f"migrator {_SETTING_UP} ", func.left(func.md5(func.database()), 16))
            holder.execute(select(func.get_lock(name, _SETTING_UP_S)))
            try:
                with engine.begin() as connection:
                    yield connection
            finally:
                holder.execute(select(func.release_lock(name)))
        return
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_SETTING_UP)))
        yield connection
