"""Captured tables on real databases: a connection that writes as a service would, and the marks that it leaves."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from migrator.mapping.items.changes import captured_name
from migrator.mapping.model.facts import Captured, EntityPlan, TableFacts
from migrator.mapping.model.live import Mark
from migrator.mapping.model.table import encode_key
from migrator.runtime.retry import Backoff, Retry
from migrator.source.capture.install import SqlCapture
from migrator.source.capture.marks import SqlMarks, SqlTickets
from migrator.source.engines.base import Address, ConnectionOptions
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.source.sql.transactions import Writing
from tests import support_mysql

ENGINES = ["sqlite", "postgresql", "mariadb"]


@dataclass
class Capturing:
    """One database of one engine with capture's edges. `writing` is shared by all of them."""

    engine: str
    url: str
    source: SqlSource
    writing: Writing

    @property
    def capture(self) -> SqlCapture:
        return SqlCapture(self.writing)

    @property
    def marks(self) -> SqlMarks:
        return SqlMarks(self.writing)

    @property
    def tickets(self) -> SqlTickets:
        return SqlTickets(self.writing)

    def install(self, *tables: Captured) -> None:
        for step in self.capture.install_steps(tables, "shop"):
            self.capture.do(step)

    def uninstall(self) -> None:
        for step in self.capture.uninstall_steps():
            self.capture.do(step)

    def table(self, name: str) -> TableFacts:
        return self.source.facts().tables[name]

    def left(self) -> list[Mark]:
        """The marks that wait, which are taken away."""
        marks = self.marks.take(1000, 0)
        self.marks.finish([mark.id for mark in marks])
        return marks

    @contextmanager
    def service(self, url: str = "") -> Iterator[Any]:
        """A service's connection, in autocommit; its cursor or itself takes SQL by execute()."""
        opened = connect(self.engine, url or self.url)
        try:
            yield opened.cursor() if self.engine == "mariadb" else opened
        finally:
            opened.close()

    def run(self, *statements: str) -> None:
        with self.service() as service:
            for statement in statements:
                service.execute(statement)


def connect(engine: str, url: str) -> Any:
    if engine == "sqlite":
        connection = sqlite3.connect(source_url(url).database or "", isolation_level=None)
        connection.execute("PRAGMA foreign_keys = ON")
        return connection
    if engine == "postgresql":
        return psycopg.connect(url, autocommit=True)
    return support_mysql.connect(url)


@contextmanager
def capturing(engine: str, url: str) -> Iterator[Capturing]:
    source = SqlSource(source_url(url))
    retry = Retry(Backoff(attempts=30, base_s=0.3, cap_s=2.0, limit_s=60))
    writing = Writing(
        Address.of(source_url(url)), ConnectionOptions(name="migrator test", lock_wait_s=1), retry
    )
    try:
        yield Capturing(engine, url, source, writing)
    finally:
        source.close()
        writing.close()


def new_sqlite(path: Path) -> str:
    """The URL of a new file in WAL mode, which a SQLite file is only once something stands in it."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE first_of_all (id INTEGER PRIMARY KEY)")
    connection.close()
    return f"sqlite:///{path}"


def captured(table: TableFacts, columns: Sequence[str], watched: Sequence[str] | None = None) -> Captured:
    return Captured(
        captured_name(table), table, tuple(columns), None if watched is None else tuple(watched), ()
    )


def rows(source: SqlSource, plan: EntityPlan, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By key, the row's columns by written name, as the source reads them."""
    by_key = {}
    names = [slot.path for slot in plan.slots]
    places = [names.index(column.name) for column in plan.key]
    for tree in source.read_rows(plan, keys):
        by_key[encode_key([tree[place] for place in places])] = dict(zip(names, tree, strict=True))
    return by_key
