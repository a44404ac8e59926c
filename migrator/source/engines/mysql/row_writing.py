"""Rows written into MariaDB and MySQL: values in the form of the column, refusals by the server's numbers."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from migrator.mapping.model.facts import Column, TableFacts
from migrator.mapping.model.rows import RefusalKind
from migrator.runtime.server_errors import mysql_number
from migrator.source.engines.base import RowWriting, as_text, refuse_inexact, refuse_longer, single


def _prepare(connection: Any) -> None:
    """A key of 0 is a key, and no wish for the next number; and triggers of ours that refuse others let it pass."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = CONCAT(@@SESSION.sql_mode, ',NO_AUTO_VALUE_ON_ZERO')")
        cursor.execute("SET @migrator_reverse = DATABASE()")


def _bound(column: Column, value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, bytes)):
        return value
    refuse_inexact(column, value)
    refuse_longer(column, value)
    name = column.kind.name
    if name == "bits":
        return int(value, 2)
    if name == "set":
        return ",".join(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        # The session's zone is UTC; MariaDB takes no offset in a moment.
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
    if name == "float":
        # The greatest FLOAT, as short as it is written, is out of its own range.
        return single(value) if column.kind.single else float(value)
    return as_text(column.kind, value)


_BY_NUMBER: dict[int, RefusalKind] = {
    **dict.fromkeys((1216, 1217, 1451, 1452), "foreign key"),
    **dict.fromkeys((1062, 1169, 1586), "unique"),
    **dict.fromkeys((1048, 1364), "not null"),
    **dict.fromkeys((1264, 1265, 1292, 1366, 1406, 1411, 1690, 3140, 3819, 4025), "value"),
    1644: "trigger",
}
"""Source: MariaDB Knowledge Base, "MariaDB Error Code Reference"; MySQL Reference Manual, "Server Error Messages"."""


def _refusal(error: BaseException) -> RefusalKind | None:
    return _BY_NUMBER.get(mysql_number(error))


SEQUENCES = sa.text("""
    SELECT COLUMN_NAME, COLUMN_DEFAULT FROM information_schema.COLUMNS
    WHERE TABLE_NAME = :table AND TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND COLUMN_DEFAULT LIKE 'nextval(%'
""")
"""Of columns whose default draws from a sequence, which MariaDB has since 10.3: nextval(`schema`.`name`)."""


def _move_counters(connection: Connection, table: TableFacts) -> None:
    """MariaDB's sequences: SETVAL moves one up alone. InnoDB moves AUTO_INCREMENT past each number that is inserted."""
    quote = connection.dialect.identifier_preparer.quote_identifier
    place = quote(table.real) if table.schema is None else f"{quote(table.schema)}.{quote(table.real)}"
    for name, default in connection.execute(SEQUENCES, {"table": table.real, "schema": table.schema}).all():
        highest = connection.exec_driver_sql(f"SELECT max({quote(name)}) FROM {place}").scalar()
        if isinstance(highest, (int, Decimal)):
            sequence = default[len("nextval(") : -1]
            connection.exec_driver_sql(f"SELECT SETVAL({sequence}, {int(highest)}, 1)")


ROWS = RowWriting(
    prepare=_prepare,
    begin=lambda _: None,
    end=lambda _: None,
    bound=_bound,
    upserts=False,
    defer="",
    overriding="",
    locks=" FOR UPDATE",
    refusal=_refusal,
    move_counters=_move_counters,
    unchanging=lambda *_: frozenset(),
    # ON UPDATE of a column does nothing where the statement gives the column a value, as all of ours do.
    changing_triggers=(
        "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE ACTION_TIMING = 'BEFORE'"
        " AND EVENT_MANIPULATION <> 'DELETE' AND EVENT_OBJECT_TABLE = :name"
        " AND EVENT_OBJECT_SCHEMA = coalesce(:schema, DATABASE())"
    ),
)
