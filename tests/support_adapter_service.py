"""A service with the adapter on tables with triggers: both leave their marks, each in a table of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from migrator.source.adapter.events import EventHooks
from migrator.source.adapter.marks import UnknownRows
from migrator.source.capture.marks import Images as Decoded
from migrator.source.engines.connect import engine_at
from tests.support_adapter import Seen, left_marks, listening, seen_marks, service_url
from tests.support_adapter_models import Base, captured_models, first_rows
from tests.support_adapter_writes import UPSERTS, Step, rename_countries
from tests.support_capture import Capturing, captured

Steps = Sequence[tuple[Step, int, bool]]
"""What is done, with which number, and whether it is undone."""
OURS = "adapter_mark"
"""Where the adapter leaves its marks here, so that they can be told from the triggers'."""


@dataclass
class Service:
    """A service with the adapter, on tables with triggers."""

    shop: Capturing
    engine: sa.Engine
    ears: EventHooks

    def __repr__(self) -> str:
        return self.shop.engine  # short, for a failing example is shown with it

    def marks(self, connection: sa.Connection, table: str) -> Counter[Any]:
        """(table, before, after) of each mark, values decoded; taken away."""
        rows = connection.exec_driver_sql(f"SELECT table_name, image_before, image_after FROM {table}").all()
        connection.exec_driver_sql(f"DELETE FROM {table}")
        with self.shop.writing.engine.connect() as reading:
            images = Decoded(engine_at(reading).capturing, reading, {})
            return Counter(
                (name.rpartition(".")[2], repr(images.read(before)), repr(images.read(after)))
                for name, before, after in rows
            )

    @property
    def theirs(self) -> str:
        return "migrator.mark" if self.shop.engine == "postgresql" else "migrator_mark"


def prepared(name: str, engine: sa.Engine) -> None:
    """On SQLite by SQLAlchemy's recipe for savepoints that work."""
    if name == "sqlite":
        sa.event.listen(engine, "connect", _on_connect)
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))


def _on_connect(connection: Any, _: object) -> None:
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


@contextmanager
def served(shop: Capturing) -> Iterator[Service]:
    engine = sa.create_engine(service_url(shop.engine, shop.url))
    prepared(shop.engine, engine)
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        for row in first_rows():
            session.add(row)
            session.flush()
    tables = captured_models(shop)
    shop.install(*tables)
    ears, _ = listening(shop, tables, "lock", leaves=True)
    ddl: Any = ears.marking.images.ddl
    made = ddl.tables()[1] if shop.engine == "postgresql" else ddl.tables()[0]
    shop.run(made.replace(ddl.mark, OURS, 1))
    ddl.mark = OURS
    ears.attach(engine)
    try:
        yield Service(shop, engine, ears)
    finally:
        ears.detach()
        engine.dispose()


def do(session: Session, step: Step, number: int, *, undone: bool) -> None:
    """The step in a savepoint, which is rolled back where it is to be, or where it is refused."""
    savepoint = session.begin_nested()
    try:
        step(session, number)
        session.flush()
    except (sa.exc.IntegrityError, sa.exc.CircularDependencyError, LookupError):
        savepoint.rollback()
        return
    if savepoint.is_active:
        (savepoint.rollback if undone else savepoint.commit)()


def compare(service: Service, steps: Steps) -> None:
    """Raises: AssertionError where the adapter's marks are not the triggers'."""
    with service.engine.connect() as connection:
        ours, theirs = marks_of(service, connection, steps)
    assert_equal(service, steps, ours, theirs)


def marks_of(service: Service, connection: sa.Connection, steps: Steps) -> tuple[Counter[Any], Counter[Any]]:
    """The adapter's marks, and the triggers'; of a transaction that is undone at the end."""
    transaction = connection.begin()
    with Session(connection, join_transaction_mode="create_savepoint") as session:
        for step, number, undone in steps:
            do(session, step, number, undone=undone)
        session.commit()
    ours, theirs = (service.marks(connection, table) for table in (OURS, service.theirs))
    transaction.rollback()
    return ours, theirs


def assert_equal(service: Service, steps: Steps, ours: Counter[Any], theirs: Counter[Any]) -> None:
    if service.shop.engine == "sqlite" and not UPSERTS.isdisjoint(step for step, _, _ in steps):
        # A row that meets another one's key leaves a mark more there, which does no harm.
        assert touched(ours) <= touched(theirs)
        return
    extra = touched(ours) - touched(theirs)
    if service.shop.engine == "mariadb":
        # For what ON DELETE SET NULL leaves behind its triggers say only what was.
        extra = {(table, image) for table, image in extra if table not in ("vehicle", "employee")}
    assert (extra, touched(theirs) - touched(ours)) == (set(), set())
    # Where the database changes a part of a child's key, the adapter does not know which row was which.
    if service.shop.engine == "postgresql" and rename_countries not in {step for step, _, _ in steps}:
        assert ours == theirs


def touched(marks: Counter[Any]) -> set[tuple[str, str]]:
    """Each image with its table; that a change is one mark, or one of what was and one of what is, is all the same."""
    return {(table, image) for table, *images in marks for image in images if image != "None"}


@contextmanager
def heard(
    shop: Capturing, tables: Sequence[str], unknown: UnknownRows = "refuse", **words: Any
) -> Iterator[tuple[sa.Engine, Seen]]:
    """An engine of a service with the adapter, on tables whose triggers mark every column."""
    facts = shop.source.facts().tables
    captured_tables = [
        captured(facts[name], [column.name for column in facts[name].columns]) for name in tables
    ]
    shop.install(*captured_tables)
    ears, seen = listening(shop, captured_tables, unknown)
    engine = sa.create_engine(service_url(shop.engine, shop.url), **words)
    ears.attach(engine)
    try:
        yield engine, seen
    finally:
        ears.detach()
        engine.dispose()


def assert_same(shop: Capturing, seen: Seen, count: int) -> None:
    ours = seen_marks(shop, seen)
    assert ours == left_marks(shop)
    assert len(ours) == count
