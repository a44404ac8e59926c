"""The adapter's ears: every statement of a service's engines, and the ends of its transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from migrator.errors import SettingsError, UnmarkedError
from migrator.source.adapter import cursors
from migrator.source.adapter.driver import Driver, plain
from migrator.source.adapter.keys import Parameters
from migrator.source.adapter.leaving import leave_marks
from migrator.source.adapter.made import made_alone
from migrator.source.adapter.marking import Changed, Marking, Pending
from migrator.source.adapter.works import Watcher, Works
from migrator.source.adapter.write import words_of
from migrator.source.adapter.written import may_write
from migrator.source.engines.table import engine_of

BY_HAND = "migrator_marked"
"""The execution option by which a service says that it leaves a statement's marks itself."""
_PENDING = "_migrator_pending"
_LISTENED: WeakSet[Engine] = WeakSet()
"""Engines that any adapter of this process listens to."""


@dataclass
class Listening:
    """Attached to engines, marks what goes through them; safe for many threads, each on connections of its own."""

    marking: Marking
    watcher: Watcher
    clock: Callable[[], float] = time.monotonic
    _engines: WeakSet[Engine] = field(default_factory=WeakSet)
    works: Works = field(init=False)

    def __post_init__(self) -> None:
        self.works = Works(self.watcher, self.clock)

    def attach(self, engine: Engine) -> None:
        """Listens to the engine from now on; for the second time is once.

        Raises: SettingsError where another adapter does: each change would be marked twice.
        """
        if engine in self._engines:
            return
        if engine in _LISTENED:
            what = "dual_write: another dual_write already listens to this engine"
            raise SettingsError(f"{what}; name all session makers of one engine in one call, as a list")
        _LISTENED.add(engine)
        self._engines.add(engine)
        self._listen(engine)

    def attach_begun(self, connection: Connection) -> None:
        """Listens to the engine of a connection that was made before anybody listened, and to the connection itself."""
        if connection.engine not in self._engines:
            self.attach(connection.engine)
            self._listen(connection)
            cursors.watch(connection.connection.driver_connection, self._on_a_cursor)

    def _listen(self, to: Engine | Connection) -> None:
        for name, listener in self._listeners():
            if isinstance(to, Engine) or not name.startswith(("do_", "handle_", "checkout")):
                sa.event.listen(to, name, listener, **_OPTIONS.get(name, {}))

    def detach(self) -> None:
        for engine in list(self._engines):
            for name, listener in self._listeners():
                if sa.event.contains(engine, name, listener):
                    sa.event.remove(engine, name, listener)
            _LISTENED.discard(engine)
        self._engines.clear()

    def knows(self, engine: Engine) -> bool:
        return engine in self._engines

    def _listeners(self) -> Sequence[tuple[str, Callable[..., Any]]]:
        return (
            ("checkout", self._handed_out),
            ("before_cursor_execute", self._before),
            ("after_cursor_execute", self._after),
            ("handle_error", self._failed),
            ("do_executemany", self._execute_alone),
            ("do_execute", self._execute_for_keys),
            ("do_execute_no_params", self._execute_for_keys),
            ("savepoint", self.works.saves),
            ("rollback_savepoint", self.works.goes_back),
            ("release_savepoint", self.works.goes_on),
            ("commit", self.works.commits),
            ("rollback", self.works.ended),
            ("prepare_twophase", self.works.prepares),
            ("commit_twophase", self.works.commits_twophase),
            ("rollback_twophase", self.works.ended),
        )

    # ── cursors that SQLAlchemy does not execute on ──

    def _handed_out(self, _: Any, record: Any, __: Any) -> None:
        cursors.watch(record.driver_connection, self._on_a_cursor)

    def _on_a_cursor(self, statement: str) -> None:
        """Raises: UnmarkedError where what a service executes on a driver's cursor would leave no mark."""
        tables = self.marking.tables
        if not self._engines or not self.watcher.leaves_any or not may_write(statement, tables.dialect):
            return
        if tables.mentioned(statement) or self.marking.runs_code(statement):
            named = tables.named(words_of(statement))
            raise cursors.refusal(", ".join(named) or "what nobody can know")

    # ── statements ──

    def _before(
        self, connection: Connection, cursor: Any, statement: str, parameters: Any, *rest: Any
    ) -> tuple[str, Any]:
        cursors.known(cursor)
        context = rest[0]
        # Most statements are SELECTs: they are told by their first word.
        if (
            not may_write(statement, self.marking.tables.dialect)
            or connection.get_execution_options().get(BY_HAND)
            or _option(context)
        ):
            return statement, parameters
        if not self.marking.tables.mentioned(statement) and not self.marking.runs_code(statement):
            return statement, parameters
        driver = driver_of(connection)
        if not self.watcher.reads:
            self.watcher.begins(driver)
            self.works.begin(connection)
            return statement, parameters
        try:
            pending = self.marking.before(driver, statement, _each(parameters), self.watcher.begins)
        except connection.dialect.loaded_dbapi.Error as error:
            # As an error of the statement itself: SQLAlchemy's early 2.0 tells what listeners raise as it is.
            connection._handle_dbapi_exception(error, statement, parameters, None, context)
            raise
        setattr(context, _PENDING, pending)
        if pending is not None:
            pending.done_before = driver.done
            self.works.begin(connection)
        return statement, parameters

    def _after(self, connection: Connection, cursor: Any, *rest: Any) -> None:
        context = rest[2]
        pending: Pending | None = getattr(context, _PENDING, None)
        if pending is None:
            return
        setattr(context, _PENDING, None)
        driver = driver_of(connection)
        try:
            changed = self.marking.after(driver, pending, cursor)
            self.left(driver, changed)
        except BaseException:
            # The change is done, and a caller may go on as if nothing were.
            self.works.fail(connection)
            raise
        if self.marking.keeps_images:
            self.works.add(connection, changed)

    def _failed(self, failure: sa.engine.ExceptionContext) -> None:
        """A statement failed, and a caller may go on: what the database keeps of it has no mark."""
        context, connection = failure.execution_context, failure.connection
        pending: Pending | None = getattr(context, _PENDING, None)
        if pending is None or connection is None or failure.is_disconnect:
            return
        setattr(context, _PENDING, None)
        is_refused = isinstance(failure.original_exception, connection.dialect.loaded_dbapi.Error)
        if pending.may_be_kept(driver_of(connection), failure.statement or "", is_refused=is_refused):
            self.works.fail(connection)

    def left(self, driver: Driver, changed: Sequence[Changed]) -> None:
        """Leaves the marks that no trigger leaves, in the transaction of the change."""
        leave_marks(
            driver, self.marking.images.ddl, [one for one in changed if self.watcher.leaves_marks(one)]
        )

    def _execute_alone(self, cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
        """Runs an INSERT once for each of its parameters, so that the keys that the database makes are known."""
        pending: Pending | None = getattr(context, _PENDING, None)
        if pending is None or not pending.is_alone:
            return False
        driver = driver_of(context.root_connection)
        text = statement.rstrip().rstrip(";") + pending.returning if driver.has_returning else statement
        count = 0
        for one in parameters:
            cursor.execute(text, one)
            pending.made += made_alone(driver, cursor)
            # SQLite counts when all is fetched.
            count += max(cursor.rowcount, 0)
        context._rowcount = count
        return True

    def _execute_for_keys(self, _: Any, statement: str, *rest: Any) -> bool:
        """Runs an INSERT on a cursor of our own, with RETURNING for the keys that the database makes.

        The service's cursor gives what it would have given: no rows.
        """
        context = rest[-1]
        pending: Pending | None = getattr(context, _PENDING, None)
        if (
            pending is None
            or not pending.returning
            or pending.is_alone
            or not engine_of(context.dialect.name).outcomes.returns_keys
        ):
            return False
        own = driver_of(context.root_connection).connection.cursor()
        cursors.known(own)
        try:
            text = statement.rstrip().rstrip(";") + pending.returning
            own.execute(text, *rest[:-1])
            pending.made = [tuple(row) for row in plain(own)]
            context._rowcount = own.rowcount
        finally:
            own.close()
        return True


_OPTIONS: Mapping[str, Mapping[str, Any]] = {"before_cursor_execute": {"retval": True}}


def driver_of(connection: Connection) -> Driver:
    """The connection in its driver's words."""
    dialect = connection.dialect
    name = engine_of(dialect.name).name
    returning = bool(getattr(dialect, "insert_returning", False))
    return Driver(
        connection.connection, name, dialect.paramstyle, has_returning=returning, info=connection.info
    )


def _each(parameters: Any) -> list[Parameters]:
    return list(parameters) if isinstance(parameters, list) else [parameters or ()]


def _option(context: Any) -> bool:
    return bool(context is not None and context.execution_options.get(BY_HAND))


def refuse_autocommit(driver: Driver) -> None:
    """Raises: UnmarkedError on a connection on which every statement commits by itself."""
    if driver.autocommits:
        what = "dual write: this connection commits every statement by itself, so no mark can commit with a change"
        raise UnmarkedError(f"{what}; use a connection without AUTOCOMMIT")
