"""The adapter: SQLAlchemy event hooks on a service's engines that leave marks for each change."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias
from weakref import WeakSet

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session, SessionTransaction, scoped_session, sessionmaker
from sqlalchemy.pool import QueuePool

from migrator.mapping.model.facts import Captured
from migrator.mapping.model.live import Change, Installation
from migrator.runtime.errors import MissingNameError, SettingsError, UnmarkedError
from migrator.runtime.server_errors import is_broken, is_contended
from migrator.source.adapter import driver as adapter_driver
from migrator.source.adapter.driver import Driver, off_loop, plain
from migrator.source.adapter.images import Parameters, RowImages
from migrator.source.adapter.marks import (
    Changed,
    Marking,
    Pending,
    TransactionState,
    TransactionStates,
    UnknownRows,
    Watcher,
    changes,
    leave_marks,
    made_alone,
)
from migrator.source.adapter.statement import appended, may_write, words_of
from migrator.source.adapter.tables import watched_tables
from migrator.source.engines.catalogue import Place
from migrator.source.engines.connect import engine_of
from migrator.source.engines.ddl import Ddl
from migrator.source.sql.transactions import Writing, source_error

# ── Event hooks: every statement of a service's engines, and the ends of its transactions ──

BY_HAND = "migrator_marked"
"""The execution option for a statement whose marks the service leaves itself."""
_PENDING = "_migrator_pending"
_LISTENED: WeakSet[Engine] = WeakSet()
"""Engines that an adapter of this process listens to."""


@dataclass
class EventHooks:
    """Marks the changes of its attached engines; safe for many threads, each with its own connections."""

    marking: Marking
    watcher: Watcher
    clock: Callable[[], float] = time.monotonic
    is_strict: bool = False
    _engines: WeakSet[Engine] = field(default_factory=WeakSet)
    works: TransactionStates = field(init=False)

    def __post_init__(self) -> None:
        self.works = TransactionStates(self.watcher, self.clock)

    def attach(self, engine: Engine) -> None:
        """Attaching an engine again changes nothing.

        Raises: SettingsError for an untested driver, and if another adapter listens: each change would be
        marked twice.
        """
        if engine in self._engines:
            return
        refuse_driver(engine.dialect, is_strict=self.is_strict)
        if engine in _LISTENED:
            what = "dual_write: another dual_write already listens to this engine"
            raise SettingsError(f"{what}; name all session makers of one engine in one call, as a list")
        _LISTENED.add(engine)
        self._engines.add(engine)
        self._listen(engine)

    def attach_begun(self, connection: Connection) -> None:
        if connection.engine not in self._engines:
            self.attach(connection.engine)
            self._listen(connection)
            adapter_driver.watch(adapter_driver.own_connection(connection.connection), self._on_a_cursor)

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
            ("release_savepoint", self.works.released),
            ("commit", self.works.commits),
            ("rollback", self.works.ended),
            ("prepare_twophase", self.works.prepares),
            ("commit_twophase", self.works.commits_twophase),
            ("rollback_twophase", self.works.ended),
        )

    # ── the driver's own cursors ──

    def _handed_out(self, _: Any, record: Any, __: Any) -> None:
        adapter_driver.watch(record.driver_connection, self._on_a_cursor)

    def _on_a_cursor(self, statement: str) -> None:
        """Raises: UnmarkedError if a statement on a driver's own cursor would leave no mark."""
        tables = self.marking.tables
        if not self._engines or not self.watcher.leaves_any or not may_write(statement, tables.dialect):
            return
        if self.marking.concerns(statement):
            named = tables.named(words_of(statement))
            raise adapter_driver.refusal(", ".join(named) or "tables that cannot be known")

    # ── statements ──

    def _before(
        self, connection: Connection, cursor: Any, statement: str, parameters: Any, *rest: Any
    ) -> tuple[str, Any]:
        adapter_driver.exempt(cursor)
        context = rest[0]
        # Most statements are SELECTs, recognised by their first word.
        if (
            not may_write(statement, self.marking.tables.dialect)
            or connection.get_execution_options().get(BY_HAND)
            or (context is not None and context.execution_options.get(BY_HAND))
        ):
            return statement, parameters
        if not self.marking.concerns(statement):
            return statement, parameters
        driver = driver_of(connection)
        if not self.watcher.reads:
            self.watcher.begins(driver)
            self.works.begin(connection)
            return statement, parameters
        try:
            pending = self.marking.before(driver, statement, _each(parameters), self.watcher.begins)
        except connection.dialect.loaded_dbapi.Error as error:
            # As an error of the statement itself: early SQLAlchemy 2.0 passes on what listeners raise unchanged.
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
            # The change is done, and the caller may continue as if nothing had failed.
            self.works.fail(connection)
            raise
        if self.marking.keeps_images:
            self.works.add(connection, changed)

    def _failed(self, failure: sa.engine.ExceptionContext) -> None:
        """Mark the transaction as failed if the database may keep a part of the failed statement, which has no mark."""
        context, connection = failure.execution_context, failure.connection
        pending: Pending | None = getattr(context, _PENDING, None)
        if pending is None or connection is None or failure.is_disconnect:
            return
        setattr(context, _PENDING, None)
        is_refused = isinstance(failure.original_exception, connection.dialect.loaded_dbapi.Error)
        if pending.may_be_kept(driver_of(connection), failure.statement or "", is_refused=is_refused):
            self.works.fail(connection)

    def left(self, driver: Driver, changed: Sequence[Changed]) -> None:
        leave_marks(
            driver,
            self.marking.images.ddl,
            [change for change in changed if self.watcher.leaves_marks(change)],
        )

    def _execute_alone(self, cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
        pending: Pending | None = getattr(context, _PENDING, None)
        if pending is None or not pending.is_alone:
            return False
        driver = driver_of(context.root_connection)
        text = appended(statement, pending.returning, driver.dialect) if driver.has_returning else statement
        count = 0
        for parameter_set in parameters:
            cursor.execute(text, parameter_set)
            pending.made += made_alone(driver, cursor)
            # SQLite counts only when all rows are fetched.
            count += max(cursor.rowcount, 0)
        context._rowcount = count
        return True

    def _execute_for_keys(self, _: Any, statement: str, *rest: Any) -> bool:
        """Run an INSERT on our own cursor with RETURNING: the service's cursor returns no rows, as without
        migrator.
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
        driver = driver_of(context.root_connection)
        with closing(driver.connection.cursor()) as own:
            adapter_driver.exempt(own)
            own.execute(appended(statement, pending.returning, driver.dialect), *rest[:-1])
            pending.made = [tuple(row) for row in plain(own)]
            context._rowcount = own.rowcount
        return True


_OPTIONS: Mapping[str, Mapping[str, Any]] = {"before_cursor_execute": {"retval": True}}


def driver_of(connection: Connection) -> Driver:
    dialect = connection.dialect
    name = engine_of(dialect.name).name
    returning = bool(getattr(dialect, "insert_returning", False))
    return Driver(
        connection.connection, name, dialect.paramstyle, has_returning=returning, info=connection.info
    )


def _each(parameters: Any) -> list[Parameters]:
    return list(parameters) if isinstance(parameters, list) else [parameters or ()]


def refuse_driver(dialect: sa.Dialect, *, is_strict: bool) -> None:
    """Raises: SettingsError for an untested SQLAlchemy driver, or one that strict mode cannot read through."""
    sessions = engine_of(dialect.name).sessions
    drivers = [
        name
        for name in sessions.drivers
        if not is_strict or name.removesuffix("_async") in sessions.reads_through
    ]
    if dialect.driver not in drivers:
        what = f"dual_write: unsupported driver '{dialect.name}+{dialect.driver}'"
        mode = " in strict mode" if is_strict else ""
        raise SettingsError(f"{what}{mode}; use one of {', '.join(drivers)}")


def refuse_autocommit(driver: Driver) -> None:
    """Raises: UnmarkedError on a connection that commits every statement separately."""
    if driver.autocommits:
        what = (
            "dual write: this connection commits every statement separately, so no change is captured with it"
        )
        raise UnmarkedError(f"{what}; use a connection without AUTOCOMMIT")


# ── The adapter: a service's writes on its own connections leave the same marks as triggers ──

BeforeCommit = Callable[[Connection, Sequence[Change], float], None]
"""(the service's connection, the changes of its transaction, start time of the first)."""
_FITS = "migrator_fits"


class Rules(Struct, frozen=True):
    """`capture`: the installation that the service's database must have, for these tables.
    `check`: raises if the service must stop changing rows.
    `writes`: whether items are written before or after commits, from stored images.
    """

    capture: Installation
    tables: frozenset[str]
    unknown_rows: UnknownRows
    check: Callable[[], None]
    before_commit: BeforeCommit | None
    clock: Callable[[], float]
    writes: bool

    @property
    def triggered(self) -> frozenset[str]:
        return self.tables if self.capture.marked_by != "services" else frozenset()

    @property
    def reads(self) -> bool:
        """Whether changed rows must be read, because triggers do not mark all changes."""
        return self.writes or self.capture.marked_by == "services"


class Adapter:
    def __init__(self, writing: Writing, captured: Sequence[Captured], rules: Rules) -> None:
        def look(connection: Connection) -> RowImages:
            return RowImages(watched_tables(connection, captured), writing.ddl(connection))

        images = writing.read("looking at foreign keys", look)
        self.rules = rules
        marking = Marking(images.tables, images, rules.unknown_rows, rules.writes)
        self.listening = EventHooks(marking, self, rules.clock, rules.before_commit is not None)

    @property
    def ddl(self) -> Ddl:
        return self.listening.marking.images.ddl

    # ── Watcher ──

    @property
    def reads(self) -> bool:
        return self.rules.reads

    def begins(self, driver: Driver) -> None:
        self.rules.check()
        if self.reads:
            refuse_autocommit(driver)
        if driver.info.get(_FITS) != self.rules.capture.id:
            self._look_at(driver)
            driver.info[_FITS] = self.rules.capture.id

    def leaves_marks(self, changed: Changed) -> bool:
        return changed.table.name not in self.rules.triggered

    @property
    def leaves_any(self) -> bool:
        tables = self.listening.marking.tables.tables.values()
        return self.reads and any(
            table.captured is not None and table.name not in self.rules.triggered for table in tables
        )

    def commits(self, connection: Connection, work: TransactionState) -> None:
        # A process may have been suspended since its statement, so check again whether it may still commit.
        self.rules.check()
        if self.rules.before_commit is not None and work.changed:
            self.rules.before_commit(connection, changes(work.changed), work.begun_at)

    def prepares(self, work: TransactionState) -> None:
        self.rules.check()
        if self.rules.before_commit is not None:
            what = "dual write: strict mode cannot write items before a commit in two phases"
            raise UnmarkedError(f"{what}; use outbox mode for this transaction's session")

    # ── a connection seen for the first time ──

    def _look_at(self, driver: Driver) -> None:
        """Raises: UnmarkedError if this is not the captured database or marks cannot be left in it."""
        statement = f"SELECT installation FROM {self.ddl.ticket} WHERE id = 1"
        nothing = (
            f"INSERT INTO {self.ddl.mark} (table_name, changed_at)"
            f" SELECT '', 0 FROM (SELECT 1 AS one) AS no_row WHERE 1 = 0"
        )
        try:
            rows = driver.rows(driver.sql(statement))
            if self.reads:
                driver.run(driver.sql(nothing))
        except Exception as error:
            if is_contended(error) or is_broken(error):
                raise  # like any statement of the service
            why = source_error(error, "dual write", "this connection cannot use capture's tables")
            if not isinstance(why, MissingNameError):
                grants = f"GRANT SELECT ON {self.ddl.ticket}, INSERT ON {self.ddl.mark}"
                raise UnmarkedError(
                    f"{why}; {grants} to its user, or run `migrator capture install`"
                ) from None
            rows = []
        if [tuple(row) for row in rows] != [(self.rules.capture.id,)]:
            what = (
                "dual write: this connection is not to the database that the job captures, or capture was"
                " removed or installed again"
            )
            advice = "give dual_write only sessions to the job's source, or run `migrator capture install`"
            raise UnmarkedError(f"{what}; {advice}, and restart the service")
        if driver.engine.sessions.charset and self.reads:
            _refuse_charset(driver)
        if driver.engine.server.hides_rows and self.reads:
            _refuse_hidden_rows(driver, self.listening.marking.tables.tables)


def _refuse_hidden_rows(driver: Driver, tables: Iterable[Place]) -> None:
    """Raises: UnmarkedError if a policy hides rows from us that foreign keys or an UPDATE without WHERE may change."""
    query = driver.sql(
        "SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_class c"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relrowsecurity AND pg_catalog.row_security_active(c.oid) AND n.nspname || '.' || c.relname IN ("
    )
    query.listed([f"{place.schema}.{place.name}" for place in tables])
    if hidden := sorted(str(name) for (name,) in driver.rows(query.text(") "))):
        what = f"dual write: row level security hides rows of {', '.join(hidden)} from this service, and changes of them"
        advice = "let triggers capture the changes (`migrator capture install`), in outbox mode; or ALTER ROLE … BYPASSRLS"
        raise UnmarkedError(f"{what} would go unmarked; {advice}")


def _refuse_charset(driver: Driver) -> None:
    query = driver.sql(driver.engine.sessions.charset)
    if any(name != "utf8mb4" for name in driver.rows(query)[0]):
        what = "dual write: this connection does not speak utf8mb4, so that keys would lose letters"
        raise UnmarkedError(f"{what}; write ?charset=utf8mb4 into its URL")


Committed = Callable[[Sequence[Change]], object]
_CONNECTIONS = "migrator_connections"


class WatchedSessions:
    """Attaches the adapter's event hooks. A bare AsyncSession class is rejected: its sessions belong to the
    whole process.
    """

    def __init__(self, listening: EventHooks, committed: Committed | None = None) -> None:
        self.listening = listening
        self.committed = committed
        self._watched: list[Any] = []

    def attach(self, given: Any) -> None:
        """Raises: SettingsError if it makes no connections, or another adapter listens to it."""
        if isinstance(given, (list, tuple)):
            for member in given:
                self.attach(member)
            return
        engines, sessions = list(_engines_of(given)), _sessions_of(given)
        if not engines and sessions is None:
            what = f"dual_write: a {type(given).__name__} is neither an engine nor makes sessions"
            raise SettingsError(
                f"{what}; give a sessionmaker, a Session class, a session or an engine, sync or async"
            )
        if sessions is None and self.committed is not None:
            what = (
                f"dual_write: flush follows the commits of sessions, and a {type(given).__name__} makes none"
            )
            raise SettingsError(f"{what}; give a sessionmaker or a session")
        for engine in engines:
            self.listening.attach(engine)
        if sessions is not None and not any(other is sessions for other in self._watched):
            self._watched.append(sessions)
            for name, listener in self._listeners():
                sa.event.listen(sessions, name, listener)

    def detach(self) -> None:
        self.listening.detach()
        for sessions in self._watched:
            for name, listener in self._listeners():
                if sa.event.contains(sessions, name, listener):
                    sa.event.remove(sessions, name, listener)
        self._watched.clear()

    def _listeners(self) -> list[tuple[str, Callable[..., None]]]:
        after = [] if self.committed is None else [("after_commit", self._committed)]
        return [("after_begin", self._began), *after]

    def _began(self, session: Session, _: SessionTransaction, connection: Connection) -> None:
        self.listening.attach_begun(connection)
        session.info.setdefault(_CONNECTIONS, WeakSet()).add(connection)

    def _committed(self, session: Session) -> None:
        for connection in list(session.info.get(_CONNECTIONS, ())):
            changed = self.listening.works.committed(connection)
            if changed and self.committed is not None:
                off_loop(partial(self.committed, changes(changed)))


def connections_at_once(given: Any) -> int | None:
    if isinstance(given, (list, tuple)):
        limits = [connections_at_once(member) for member in given]
        return None if None in limits else sum(limit for limit in limits if limit is not None)
    engines = list(_engines_of(given))
    pools = [engine.pool for engine in engines]
    if not pools or not all(isinstance(pool, QueuePool) for pool in pools):
        return None
    counts = [(pool.size(), pool._max_overflow) for pool in pools if isinstance(pool, QueuePool)]
    is_open = any(overflow < 0 for _, overflow in counts)
    return None if is_open else sum(map(sum, counts))


def _sync(given: Any) -> Any:
    if hasattr(given, "session_factory"):
        return given  # reading a scoped_session's attributes would create a session
    for name in ("sync_engine", "sync_session"):
        if (inner := getattr(given, name, None)) is not None:
            return inner
    return given


def _engines_of(given: Any) -> Iterator[Engine]:
    target = _sync(given)
    if isinstance(target, Engine):
        yield target
    elif isinstance(target, Connection):
        yield target.engine
    options = getattr(getattr(target, "session_factory", target), "kw", None)
    binds = [target.bind] if isinstance(target, Session) else []
    if isinstance(options, dict):
        binds += [options.get("bind"), *(options.get("binds") or {}).values()]
    for bind in binds:
        if bind is not None:
            yield from _engines_of(bind)


def _sessions_of(given: Any) -> Any:
    target = _sync(given)
    if isinstance(target, (Session, sessionmaker, scoped_session)):
        return target
    if isinstance(target, type) and issubclass(target, Session):
        return target
    return _async_sessions(getattr(target, "session_factory", target))


def _async_sessions(maker: Any) -> Any:
    options = getattr(maker, "kw", None)
    if not isinstance(options, dict) or not hasattr(maker, "class_"):
        return None
    base = options.get("sync_session_class") or maker.class_.sync_session_class
    if not base.__dict__.get("_migrator_own"):
        base = type(f"Marked{base.__name__}", (base,), {"_migrator_own": True})
        maker.configure(sync_session_class=base)
    return base


# ── Statements that a service's test records, without marks ──

Action: TypeAlias = Literal["insert", "update", "delete"]
_WRITTEN = re.compile(
    r"\s*(?:/\*.*?\*/\s*)?(?P<action>INSERT|REPLACE|UPDATE|DELETE)\b(?:\s+(?:INTO|FROM|OR\s+\w+|IGNORE|ONLY))*\s+"
    r"(?P<table>[\w.\"`\[\]]+)",
    re.IGNORECASE | re.DOTALL,
)


class Write(Struct, frozen=True):
    """One row that a service changed, or a statement that changed rows.

    `values`: a statement's parameters by name; for a change by hand the row's columns after it, or only its
    key.
    """

    table: str
    action: Action
    values: Mapping[str, Any] = {}


class Recording:
    """Replaces the adapter's event hooks: calls `write` with each written row, including rolled back ones."""

    def __init__(self, write: Callable[[Write], object]) -> None:
        self._write = write
        self._engines: list[Engine] = []

    def attach(self, engine: Engine) -> None:
        if engine not in self._engines:
            self._engines.append(engine)
            sa.event.listen(engine, "after_cursor_execute", self._executed)

    def attach_begun(self, connection: Connection) -> None:
        """Attach the engine of a connection with which a session began, if its maker was not attached."""
        self.attach(connection.engine)

    def detach(self) -> None:
        for engine in self._engines:
            sa.event.remove(engine, "after_cursor_execute", self._executed)
        self._engines.clear()

    def _executed(
        self, connection: Connection, cursor: Any, statement: str, given: Any, context: Any, many: bool
    ) -> None:
        found = _WRITTEN.match(statement)
        if found is None:
            return
        action = found["action"].lower()
        table = found["table"].rpartition(".")[2].strip('"`[]')
        for values in _rows(context, given, many):
            self._write(Write(table, "insert" if action == "replace" else action, values))  # type: ignore[arg-type]


def _rows(context: Any, given: Any, many: bool) -> Iterator[dict[str, Any]]:
    """The parameters of each row: by name if SQLAlchemy compiled the statement, or its text names them."""
    compiled = getattr(context, "compiled_parameters", None)
    rows = compiled or (given if many else [given])
    for row in rows:
        yield dict(row) if isinstance(row, Mapping) else {str(n): value for n, value in enumerate(row or ())}
