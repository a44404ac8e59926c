"""Services that write through SQLAlchemy beside installed triggers: what the adapter sees, and what the triggers left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from migrator.mapping.model.facts import Captured
from migrator.source.adapter.driver import Driver
from migrator.source.adapter.events import EventHooks
from migrator.source.adapter.images import RowImages
from migrator.source.adapter.marks import Changed, Marking, TransactionState, UnknownRows
from migrator.source.adapter.tables import watched_tables
from migrator.source.capture.marks import Images as Decoded
from migrator.source.engines.connect import engine_at
from tests.support_capture import Capturing
from tests.support_mysql import is_mariadb

DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql", "sqlite": "sqlite"}
ASYNC_DRIVERS = {
    "postgresql": "postgresql+psycopg_async",
    "mariadb": "mysql+aiomysql",
    "sqlite": "sqlite+aiosqlite",
}


@dataclass
class Seen:
    """A Watcher that keeps what it is told."""

    changed: list[Changed] = field(default_factory=list)
    leaves: bool = False
    reads: bool = True
    leaves_any: bool = True

    def begins(self, driver: Driver) -> None:
        """Everything fits."""

    def leaves_marks(self, changed: Changed) -> bool:
        self.changed.append(changed)
        return self.leaves

    def commits(self, connection: sa.Connection, work: TransactionState) -> None:
        """Outbox mode: nothing is to be done."""

    def prepares(self, work: TransactionState) -> None:
        """Nor here."""


def service_url(engine: str, url: str, drivers: dict[str, str] = DRIVERS) -> sa.URL:
    """SQLAlchemy's dialect for MariaDB refuses MySQL."""
    driver = drivers[engine]
    if driver.startswith("mariadb") and not is_mariadb(url):
        driver = driver.replace("mariadb", "mysql")
    return sa.make_url(url).set(drivername=driver)


def listening(
    capturing: Capturing,
    captured: Sequence[Captured],
    unknown: UnknownRows = "refuse",
    *,
    leaves: bool = False,
    keeps_images: bool = True,
) -> tuple[EventHooks, Seen]:
    """The adapter's ears for the captured tables, attached to no engine yet."""
    with capturing.writing.engine.connect() as connection:
        tables, ddl = watched_tables(connection, captured), engine_at(connection).capturing.ddl(connection)
    seen = Seen(leaves=leaves)
    return EventHooks(Marking(tables, RowImages(tables, ddl), unknown, keeps_images), seen), seen


Shown = tuple[str, str, str]


def seen_marks(capturing: Capturing, seen: Seen) -> list[Shown]:
    """What the adapter saw, values decoded as the relay would, in the order of their texts."""
    # In a transaction, as a relay does: what the driver makes of a text hangs on settings that end with it.
    with capturing.writing.engine.begin() as connection:
        images = Decoded(engine_at(connection).capturing, connection, {})
        marks = [
            _shown(change.table.name, images.read(change.before), images.read(change.after))
            for change in seen.changed
        ]
    seen.changed.clear()
    return sorted(marks)


def left_marks(capturing: Capturing) -> list[Shown]:
    """What the triggers left, in the same form; taken away."""
    return sorted(_shown(mark.table, mark.before, mark.after) for mark in capturing.left())


def _shown(table: str, before: Any, after: Any) -> Shown:
    # MySQL keeps the names of a JSON object in an order of its own.
    old, new = (repr(image and dict(sorted(image.items()))) for image in (before, after))
    return table, old, new
