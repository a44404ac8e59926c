"""Rows written into SQLite: values as the column's affinity keeps them, refusals by the names of its errors."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Column
from migrator.mapping.model.rows import RefusalKind
from migrator.source.engines.row_writing import RowWriting, as_text, refuse_inexact


def _prepare(connection: Any) -> None:
    """Without it SQLite would let children be written whose parents never come."""
    connection.execute("PRAGMA foreign_keys = ON")


def _bound(column: Column, value: Any) -> Any:
    if value is None or isinstance(value, (bytes, int)):
        return int(value) if isinstance(value, bool) else value
    refuse_inexact(column, value)
    if isinstance(value, Decimal):
        return _number(value)
    return as_text(column.kind, value)


def _number(value: Decimal) -> int | float:
    """As SQLite keeps it. Raises: ValueError where its 64 bits hold another number."""
    whole = value == value.to_integral_value()
    number = int(value) if whole and abs(value) < 2**63 else float(value)
    if Decimal(repr(number)) != value:
        raise ValueError("the number has more digits than SQLite keeps")
    return number


_BY_NAME: dict[str, RefusalKind] = {
    "SQLITE_CONSTRAINT_FOREIGNKEY": "foreign key",
    "SQLITE_CONSTRAINT_UNIQUE": "unique",
    "SQLITE_CONSTRAINT_PRIMARYKEY": "unique",
    "SQLITE_CONSTRAINT_ROWID": "unique",
    "SQLITE_CONSTRAINT_NOTNULL": "not null",
    "SQLITE_CONSTRAINT_CHECK": "value",
    "SQLITE_CONSTRAINT_DATATYPE": "value",
    "SQLITE_MISMATCH": "value",
    "SQLITE_TOOBIG": "value",
    "SQLITE_CONSTRAINT_TRIGGER": "trigger",
}
"""Source: SQLite, "Result and Error Codes"."""


def _refusal(error: BaseException) -> RefusalKind | None:
    return _BY_NAME.get(str(getattr(error, "sqlite_errorname", "")))


_HAS_MARKS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migrator_mark'"


def _begin(connection: Connection) -> None:
    """A session has no settings here that a trigger could ask for; nobody else sees a row that goes before the commit."""
    if connection.exec_driver_sql(_HAS_MARKS).first():
        connection.exec_driver_sql("INSERT INTO migrator_mark (id) VALUES (0)")


def _end(connection: Connection) -> None:
    if connection.exec_driver_sql(_HAS_MARKS).first():
        connection.exec_driver_sql("DELETE FROM migrator_mark WHERE id = 0")


ROWS = RowWriting(
    prepare=_prepare,
    begin=_begin,
    end=_end,
    bound=_bound,
    upserts=True,
    overriding="",
    # A transaction that writes is alone.
    locks="",
    refusal=_refusal,
    # A number that is inserted moves the rowid, and AUTOINCREMENT's own counter.
    move_counters=lambda *_: None,
    unchanging=lambda *_: frozenset(),
    defer="PRAGMA defer_foreign_keys = ON",
    # No trigger changes what is being written; one that updates its own table does so afterwards.
    changing_triggers=(
        "SELECT name FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(:name)"
        " AND :schema IS NULL AND lower(sql) LIKE '%update%' || lower(:name) || '%set%'"
    ),
)
