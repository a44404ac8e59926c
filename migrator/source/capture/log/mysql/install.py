"""Capture from MySQL's binary log, installed and inspected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Captured
from migrator.mapping.model.live import Step, TableCapture
from migrator.source.capture.log.changes import tables_text
from migrator.source.capture.log.install import LogCapture
from migrator.source.capture.log.mysql.server import (
    cascaded,
    create_log,
    first_place,
    right_faults,
    server_limits,
    setting_faults,
    settings,
    table_faults,
)
from migrator.source.capture.log.reader import LogPlace
from migrator.source.engines.ddl import Ddl
from migrator.source.engines.mysql.capture import home_of
from migrator.source.engines.mysql.facts import literal
from migrator.source.engines.mysql.server import is_mariadb


class BinlogCapture(LogCapture):
    """LogCapture of MySQL, whose server has nothing of ours but our tables."""

    means_of_log = "binary log and place"
    taken_words = "our place in the binary log and our tables are taken away"

    def _literal(self, text: str) -> str:
        return literal(text)

    def _faults(self, connection: Connection, ddl: Ddl, tables: Sequence[Captured]) -> Iterator[str]:
        found, home = settings(connection), home_of(ddl)
        yield from setting_faults(found)
        if not is_mariadb(found["version"]):
            yield from right_faults(connection, home)
            yield from table_faults(connection, found, tables, home)

    def _log_limits(self, connection: Connection) -> Iterator[str]:
        yield from server_limits(connection)

    def _create_log(self, ddl: Ddl) -> str:
        return create_log(ddl)

    def _begin_steps(
        self, connection: Connection, ddl: Ddl, tables: Sequence[Captured], place: LogPlace | None, lost: str
    ) -> Iterator[Step]:
        if place is None or lost:
            yield Step("", (first_place(connection, ddl, tables_text(tables)),))

    def _end_steps(self, connection: Connection) -> Iterator[Step]:
        yield from ()

    def _unlogged(
        self, connection: Connection, ddl: Ddl, place: LogPlace, tables: Sequence[Captured]
    ) -> Mapping[str, TableCapture]:
        names, found = {table.name for table in tables}, settings(connection)
        if not any(setting_faults(found)):
            names = set(cascaded(connection, found, tables, home_of(ddl)))
        return {name: TableCapture(name, "missing") for name in names}
