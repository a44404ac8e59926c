"""The API of a service: `Migration.load(job)`, then `.dual_write(Session)` and `.read("pattern", …)`."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from migrator.runtime.errors import MigratorError, SettingsError

# All else is imported on first use: a process that only imports this module (another kind of worker, a command of the
# service) pays next to nothing.
if TYPE_CHECKING:
    from migrator.mapping.patterns.answers import Answer, Parts, Records
    from migrator.settings.job import ReadSettings
    from migrator.source.adapter.events import Adapter
    from migrator.stages.reads.functions import RoutedPattern
    from migrator.stages.reads.reads import MappedReads, Page
    from migrator.stages.session.service import Service, WritingOptions

__all__ = ["Answer", "DualWrite", "Migration", "Page", "Parts", "Records", "RoutedPattern", "worker_exit"]
_Messages: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_Application: TypeAlias = Callable[[MutableMapping[str, Any], _Messages, _Send], Awaitable[None]]
_ELSEWHERE = {
    **dict.fromkeys(("Answer", "Parts", "Records"), "migrator.mapping.patterns.answers"),
    "Page": "migrator.stages.reads.reads",
    "RoutedPattern": "migrator.stages.reads.functions",
}
"""Modules that define names exported here."""

if not TYPE_CHECKING:  # a type checker would accept any name of this module

    def __getattr__(name: str) -> Any:
        if name not in _ELSEWHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_ELSEWHERE[name]), name)


class Migration:
    """A job in a service. Made once per process by `load`. Thread-safe; survives a fork.

    It lives until it is closed, at the latest when the interpreter ends. A signal that ends the process
    without the interpreter (an unhandled SIGTERM) does not deregister it: see `lifespan`, and `worker_exit`.
    """

    def __init__(self, service: Service, stack: ExitStack) -> None:
        self._service = service
        self._begin(stack, service.session.job.reads)

    def _begin(self, stack: ExitStack, settings: ReadSettings) -> None:
        """State shared with its fake (migrator/testing)."""
        from migrator.stages.reads.functions import Threads

        self._stack = stack
        self._settings = settings
        self._by_hand: Adapter | None = None
        self._reading: MappedReads | None = None
        self._is_closed = False
        self._threads = Threads(settings.connections)
        stack.callback(self._threads.close)
        # A signal handler may close it while the interrupted thread opens it.
        self._lock = RLock()

    @classmethod
    def load(cls, job: str | Path, *, service: str = "", version: str = "") -> Migration:
        """The migration of a job file. Captures nothing yet.

        `service`: its name in `migrator status` (default: the job's name), `version`: the service's own.
        Raises: SettingsError, MappingError, SourceError with the fix: a service should not start then.
        """
        from migrator.stages.session.service import open_service

        with ExitStack() as stack:
            opened = stack.enter_context(open_service(Path(job), service, version))
            migration = cls(opened, stack.pop_all())
        _OPEN.add(migration)
        return migration

    def dual_write(
        self,
        sessions: Any,
        *,
        mode: Literal["outbox", "strict"] = "outbox",
        unknown_rows: Literal["refuse", "lock"] = "refuse",
        flush: bool = False,
        longest_transaction_s: float = 30.0,
        longest_write_s: float = 2.0,
    ) -> DualWrite:
        """Leave a mark of every further change through the sessions, in the same transaction.

        `sessions`: a sessionmaker, scoped_session, Session class, session or engine, sync or async, or a list
          of these.
        Everything through their engines is marked, with or without a session.
        `mode`: 'strict' also writes the items before the commit, which fails if they cannot be written.
        `unknown_rows`: an UPDATE or DELETE that names no keys is refused, or its rows are read first under
          lock.
        `flush`: write the items right after each session's commit, best effort.
        `longest_transaction_s`: of a strict transaction from its first change.
        `longest_write_s`: wait for DynamoDB, while row locks are held, before the commit fails.

        For old DynamoDB tables, `sessions` is a boto3 client or resource, or a list of them. Streams leave
        the marks.
        `mode='strict'` makes the items of each writing call before it returns. If they cannot be made, the
        call raises, although the old table has its change; `flush` does not raise (docs/documents.md).

        Raises: SettingsError, StoppedError, TargetError, SourceError with the fix. Later, a statement that
        cannot be marked raises UnmarkedError; strict mode raises the error that kept its items from being
        written.
        """
        from migrator.stages.session.service import WritingOptions, open_document_writing

        self._refuse_closed()
        refuse_options(sessions, mode, unknown_rows, longest_transaction_s, longest_write_s)
        options = WritingOptions(mode, unknown_rows, flush, longest_transaction_s, longest_write_s)
        with ExitStack() as stack:
            if self._service.session.checked.mapping.documents:
                stack.enter_context(open_document_writing(self._service, sessions, options))
            else:
                self._attach(stack, sessions, options)
            handle = DualWrite(stack.pop_all())
        self._stack.callback(handle.close)
        return handle

    def _attach(self, stack: ExitStack, sessions: Any, options: WritingOptions) -> None:
        from migrator.runtime.values import replace
        from migrator.source.adapter.events import connections_at_once
        from migrator.stages.session.service import open_dual_writing

        options = replace(options, sessions=connections_at_once(sessions))
        adapter, watched = stack.enter_context(open_dual_writing(self._service, options))
        watched.attach(sessions)
        stack.callback(self._forget, adapter)
        self._by_hand = self._by_hand or adapter

    def _forget(self, adapter: Adapter) -> None:
        if self._by_hand is adapter:
            self._by_hand = None

    # ── marks that a service leaves itself ──

    def mark_changed(
        self, connection: Any, table: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
    ) -> None:
        """Leave the mark of one changed row, in the connection's transaction; does nothing if triggers leave the marks.

        `connection`: of SQLAlchemy, a session, or of psycopg, PyMySQL or sqlite3. `before`, `after`: columns of the row and
        their values, None if the row does not exist; columns of keys and links are required.
        Raises: UnmarkedError, SettingsError.
        """
        from migrator.source.adapter import by_hand

        by_hand.mark_changed(self._marking(), connection, table, before, after)

    @contextmanager
    def changing(self, connection: Any, table: str, *keys: Any) -> Iterator[None]:
        """Mark the changes of the block to rows of the table with these primary keys, and to rows that foreign keys
        change with them.

        The rows are read before the block and after it, in the connection's transaction, which the service commits. A key
        of several columns is a tuple. Raises: UnmarkedError, SettingsError.
        """
        from migrator.source.adapter import by_hand

        with by_hand.changing(self._marking(), connection, table, keys):
            yield

    def begin_marking(self) -> None:
        """Prepare marks by hand without dual_write; otherwise the first of them does.

        A SQLite service calls it before its transaction begins, because SQLite has one writer at a time.
        """
        self._marking()

    def _marking(self) -> Adapter:
        from migrator.stages.session.service import WritingOptions, open_dual_writing

        with self._lock:
            self._refuse_closed()
            if self._by_hand is None:
                opened = open_dual_writing(self._service, WritingOptions())
                self._by_hand, _ = self._stack.enter_context(opened)
            return self._by_hand

    # ── reads ──

    def begin_reading(self) -> None:
        """Prepare reads, so that errors appear at the service's start; otherwise the first read does.

        Raises: StoppedError, SettingsError if the journal, which stores the phases, cannot be read; TargetError if the
        index of a pattern does not exist.
        """
        self._reads()

    def read(self, pattern: str, /, **params: Any) -> Answer:
        """The answer of an access pattern, from SQL or DynamoDB by the pattern's phase.

        A list of dicts by attribute; for a pattern with parts, a dict of these by part (a single dict, or
        None, for a part with `one: true`). `origin`: the side that answered, 'sql' or 'table'.
        Values are the same from both sides: str, int, Decimal, bool, bytes, None, list, dict; times are ISO
        text. `typed()` returns datetime, UUID and so on.
        Raises: SettingsError for a pattern or parameters unknown to the mapping; SourceError, StoppedError,
        TargetError of the side that answers.
        """
        return self._reads().read(pattern, params)

    async def read_async(self, pattern: str, /, **params: Any) -> Answer:
        """`read` for an event loop: in our own threads, up to `reads.connections` at once."""
        self._refuse_closed()
        return await self._threads.run(lambda: self._reads().read(pattern, params))

    def read_page(self, pattern: str, /, *, cursor: str | None = None, size: int = 20, **params: Any) -> Page:
        """One page of the answer, with the cursor of the next one.

        Raises: as `read`; SettingsError for a cursor that is damaged, forged, expired or of another question, and for a
        pattern without pages.
        """
        return self._reads().read_page(pattern, params, cursor, size)

    async def read_page_async(
        self, pattern: str, /, *, cursor: str | None = None, size: int = 20, **params: Any
    ) -> Page:
        self._refuse_closed()
        return await self._threads.run(lambda: self._reads().read_page(pattern, params, cursor, size))

    def pattern(self, name: str, /) -> Callable[[Callable[..., Any]], RoutedPattern]:
        """Decorate the service's function that answers the pattern from SQL; its `.table` decorates the one
        for DynamoDB.

        A call is answered by the side of the pattern's phase.
        Raises: SettingsError for an unknown pattern, or a function with other parameters.
        """
        from migrator.stages.reads.functions import RoutedPattern
        from migrator.stages.reads.reads import question_named

        question, shadow = question_named(self._service.questions, name), self._settings.shadow
        return lambda function: RoutedPattern(function, question, lambda: self._reads().reads, shadow)

    def phases(self) -> dict[str, str]:
        """Phase of each pattern that this service uses, such as 'shadow' or 'ramp 10 %'.

        Raises: as `begin_reading`.
        """
        reads = self._reads()
        return {name: str(reads.reads.phases.state(name)) for name in reads.questions}

    def _reads(self) -> MappedReads:
        reading = self._reading
        if reading is not None:
            return reading
        with self._lock:
            self._refuse_closed()
            if self._reading is None:
                self._reading = self._open_reading()
            return self._reading

    def _open_reading(self) -> MappedReads:
        from migrator.stages.session.service import open_reading

        return self._stack.enter_context(open_reading(self._service))

    # ── metrics ──

    @property
    def metrics(self) -> Any:
        """A collector of prometheus-client for the service's own registry: `REGISTRY.register(migration.metrics)`.

        Latency by pattern and side, comparisons and their verdicts, phases, consumed and throttled DynamoDB units, and
        journal latency. A scrape runs no query. A forked child has its own counts.
        """
        from migrator.cli.metrics import service_metrics  # only on use

        return service_metrics(self._service, lambda: self._reading)

    # ── end ──

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """The `lifespan=` of a FastAPI or Starlette application, or part of one: closes it when the server
        shuts down.

        uvicorn ends by the signal that stopped it, so Python's exit handlers do not run.
        """
        try:
            yield
        finally:
            # Running shadow reads may need the loop to finish.
            await asyncio.to_thread(self.close)

    def asgi(self, app: _Application) -> _Application:
        """The same ASGI application, for one without lifespan (Django's), closed when the server shuts down."""

        async def serve(scope: MutableMapping[str, Any], receive: _Messages, send: _Send) -> None:
            if scope["type"] != "lifespan":
                await app(scope, receive, send)
                return
            await receive()
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                await receive()
            await send({"type": "lifespan.shutdown.complete"})

        return serve

    def close(self) -> None:
        """Stop everything begun here, report the counts, and deregister. A later call raises SettingsError."""
        with self._lock:
            # From here on a read would not notice a move, and a move would not wait for this instance.
            self._is_closed, self._reading = True, None
        _OPEN.discard(self)
        self._stack.close()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise SettingsError("the migration is closed; load it again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DualWrite:
    """Active dual writes. They end with `close`, or with the process."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def close(self) -> None:
        """Stop capturing statements. Changes no longer leave marks, unless triggers do."""
        self._stack.close()


_OPEN: set[Migration] = set()
"""The migrations of this process; holding them here keeps unreferenced ones open."""


def worker_exit(server: object = None, worker: object = None) -> None:
    """Close every migration of this process; gunicorn's hook: `from migrator.api import worker_exit` in its configuration.

    gunicorn requires a hook with two arguments. The end of the interpreter does the same; if the journal is unreachable
    then, the instance stays listed as silent.
    """
    for migration in list(_OPEN):
        try:
            migration.close()
        except MigratorError as error:
            from migrator.runtime.logs import get_logger

            get_logger("service").warning("migration_not_closed", reason=str(error))


atexit.register(worker_exit)


def refuse_options(
    sessions: object, mode: str, unknown_rows: str, longest_transaction_s: float, longest_write_s: float
) -> None:
    """Raises: SettingsError with all faults."""
    wrong = []
    if isinstance(sessions, (list, tuple)) and not sessions:
        wrong.append("the list is empty, so no change would be captured: name each that writes")
    if mode not in ("outbox", "strict"):
        wrong.append(f"mode is outbox or strict, not {mode!r}")
    if unknown_rows not in ("refuse", "lock"):
        wrong.append(f"unknown_rows is refuse or lock, not {unknown_rows!r}")
    limits = {"longest_transaction_s": longest_transaction_s, "longest_write_s": longest_write_s}
    wrong += [
        f"{name} is a number of seconds, up to 3600"
        for name, limit_s in limits.items()
        if not (isinstance(limit_s, (int, float)) and 0 < limit_s <= 3600)
    ]
    if wrong:
        raise SettingsError("dual_write: " + "; ".join(wrong))
