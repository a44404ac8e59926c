"""The journal's database: connections, setup, retried transactions, dialects, and its errors as ours."""

from __future__ import annotations

import math
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import cache, update_wrapper
from importlib import import_module
from importlib.metadata import version as package_version
from pathlib import Path
from threading import RLock, local
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast
from urllib.parse import quote

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Double,
    Engine,
    Insert,
    Select,
    Table,
    create_engine,
    event,
    func,
    insert,
    inspect,
    literal_column,
    select,
    update,
)
from sqlalchemy.engine import URL, Dialect, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import Pool, StaticPool
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from migrator.journal import schema
from migrator.runtime.errors import AwayError, MigratorError, SettingsError, StoppedError
from migrator.runtime.measures import Answers
from migrator.runtime.retry import Retry, cut_off, cut_to_end, refuse_late
from migrator.runtime.server_errors import (
    ALIVE,
    connected,
    denial,
    is_broken,
    is_busy,
    is_contended,
    mysql_number,
    naming_options,
    own_reason,
    refuses_login,
    takes_no_writes,
    why_unreached,
)
from migrator.runtime.system import how_to_install, make_private, tell_of_forks

# ── A journal in a file of SQLite's, or in memory: its connections ──


READS = "migrator_reads"
"""Execution option of a connection whose transactions only read."""
_BUSY_S = 30
_LONGEST_GAP_S = 0.01
IN_MEMORY = (None, "", ":memory:")
_PRAGMAS = (
    "synchronous=FULL",
    # Digests of claimed keys are spread over their whole table: a cache holds its upper pages, and a page written many
    # times goes from the log into the file once. Larger values save little: 32 MB of memory, 16 MB of log.
    "cache_size=-32000",
    "wal_autocheckpoint=4000",
)


def sqlite_engine(url: URL) -> Engine:
    """Read-only if the file cannot be written. Raises: OSError if the file cannot be created."""
    if url.database in IN_MEMORY:
        engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
    elif _is_read_only(Path(str(url.database))):
        engine = create_engine(url, creator=lambda: _read_only(Path(str(url.database))))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        return engine
    else:
        make_private(Path(str(url.database)))
        engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": _BUSY_S})
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    return engine


def _is_read_only(file: Path) -> bool:
    """SQLite adds its log to the folder, unless another process has created it; that needs permission and space."""
    if not os.path.isfile(file):
        return False
    may_log = os.access(file.parent, os.W_OK) or _log_of(file).is_file()
    return not (os.access(file, os.W_OK) and may_log) or _is_disk_full(file)


def _is_disk_full(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=rw", uri=True)) as connection:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    except sqlite3.DatabaseError:
        pass  # the engine reports it
    return False


def _read_only(file: Path) -> sqlite3.Connection:
    # An existing log may contain what the file does not; without one the file cannot change while it is read here.
    how = "mode=ro" if _log_of(file).is_file() else "mode=ro&immutable=1"
    is_alone = _log_of(file).is_file() and os.access(file, os.W_OK) and _is_disk_full(file)
    address = f"file:{quote(str(file.absolute()))}?{'mode=rw' if is_alone else how}"
    connection = sqlite3.connect(
        address, uri=True, check_same_thread=False, timeout=_BUSY_S, isolation_level=None
    )
    if is_alone:
        # Without space for the shared index of the log no other process reads it, so keep the index in memory.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    return connection


def _log_of(file: Path) -> Path:
    return file.with_name(f"{file.name}-wal")


def _on_connect(connection: Any, record: Any) -> None:
    """We begin transactions ourselves; every commit reaches the disk."""
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").fetchall()
    # If several processes set the mode of a new file, SQLite reports it as locked to all but one, regardless of
    # busy_timeout.
    switching = Retrying(
        retry=retry_if_exception(lambda error: "locked" in str(error)),
        wait=wait_random(max=0.05),
        stop=stop_after_delay(_BUSY_S),
        reraise=True,
    )
    switching(connection.execute, "PRAGMA journal_mode=WAL").fetchall()


def _on_begin(connection: Connection) -> None:
    """Begin on SQLite; a transaction that writes waits here for other writers.

    SQLite's own waits grow to 100 ms and are unordered: between commits of others, a heartbeat could wait for
    seconds. A transaction that only reads does not wait.
    """
    if connection.get_execution_options().get(READS):
        connection.exec_driver_sql("BEGIN")
        return
    driver: Any = connection.connection.driver_connection
    ends_at = time.monotonic() + _BUSY_S
    driver.execute("PRAGMA busy_timeout=0").close()
    try:
        while True:
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                return
            except OperationalError as error:
                if "locked" not in str(error.orig) or time.monotonic() > ends_at:
                    raise
            time.sleep(random.uniform(0.0, _LONGEST_GAP_S))
    finally:
        driver.execute(f"PRAGMA busy_timeout={_BUSY_S * 1000}").close()


# ── Database errors of a journal as our errors: the fault, whether it can pass, and what to do ──


_BEGIN_ANEW = (
    "stop what uses it, put a backup in its place or move it away (of a file with its -wal and -shm), and continue as in"
    " docs/lost-journal.md: the source and the table are as they were, but finished pages, phases with their audit, and"
    " remembered keys are in the journal alone"
)
_DAMAGED_SQLITE = ("malformed", "SQLITE_CORRUPT")
_NO_ROOM = ("disk is full", "disk I/O")
_FULL_SQLSTATES = frozenset({"53100"})
_FULL_MYSQL = frozenset({1021, 1114})
_DENIED_MYSQL = frozenset({1044, 1142, 1143, 1227, 1370})
_LOST_SQLSTATES = frozenset({"42P01", "42703"})
_LOST_MYSQL = frozenset({1054, 1146})
_LOST_SQLITE = ("no such table", "no such column", "has no column named")
_DAMAGED_SQLSTATES = frozenset({"XX001", "XX002"})
_DAMAGED_MYSQL = frozenset({1034, 1194, 1195, 1712})


class PassingError(StoppedError):
    """The server was unreachable or busy, or another transaction conflicted; nothing was committed."""


class LostAnswerError(StoppedError):
    """The connection broke during a commit, which may or may not have taken effect."""


def in_words(
    error: SQLAlchemyError, where: str, *, on_server: bool, reached: bool, committing: bool
) -> MigratorError:
    """`where`: which journal. `reached`: the server was reachable before. `committing`: the commit failed."""
    cause = getattr(error, "orig", None) or error
    why = why_unreached(cause, "the journal's URL") if on_server else ""
    kind = f"{type(cause).__name__}{': ' * bool(why)}{why}"
    if is_broken(error) and committing:
        what = "its answer to a commit was lost, so it is not known whether it was made"
        return LostAnswerError(f"{where}: {what}; check its present state, then run the same command again")
    if is_busy(error) or (reached and is_broken(error)):
        return PassingError(f"{where} does not answer: {kind}; the same command resumes when it does")
    if is_contended(error) and on_server:
        return PassingError(f"{where} is in use by others: {kind}; the same command resumes")
    if denied := denial(error):
        return SettingsError(f"{where}: {denied}")
    if is_broken(error):
        return StoppedError(
            f"{where} does not answer: {kind}; the same command resumes when it does{own_reason(error)}"
        )
    return _lasting(cause, where, kind)


def _lasting(cause: BaseException, where: str, kind: str) -> MigratorError:
    text, state, number = str(cause).split("\n")[0], getattr(cause, "sqlstate", None), mysql_number(cause)
    if (
        any(word in text for word in _DAMAGED_SQLITE)
        or state in _DAMAGED_SQLSTATES
        or number in _DAMAGED_MYSQL
    ):
        return SettingsError(f"{where} is damaged; {_BEGIN_ANEW}")
    if "not a database" in text:
        return SettingsError(
            f"{where} is not a SQLite database; name another file; if it was the journal, {_BEGIN_ANEW}"
        )
    if "unable to open" in text:
        return SettingsError(
            f"{where} cannot be opened for writing; it must be a file, in a folder that this user may write"
        )
    if takes_no_writes(cause) or "readonly" in text:
        return SettingsError(
            f"{where} can only be read: this user may not write it or, for a file, its folder, or its disk is full;"
            " fix that, or name another"
        )
    if any(word in text for word in _NO_ROOM) or state in _FULL_SQLSTATES or number in _FULL_MYSQL:
        return StoppedError(
            f"{where} has no space left on its disk, or the disk fails; fix it and run the same command again"
        )
    if state in _LOST_SQLSTATES or number in _LOST_MYSQL or any(words in text for words in _LOST_SQLITE):
        return SettingsError(f"{where} has lost a table or a column; {_BEGIN_ANEW}")
    if state == "3F000":
        what = "this user's search_path names no schema for its tables; add ?options=-csearch_path%3DSCHEMA to the URL"
        return SettingsError(f"{where}: {what}")
    if state == "42501" or number in _DENIED_MYSQL:
        what = "this user may not do that there; GRANT it to make tables, and to SELECT, INSERT, UPDATE and DELETE in them"
        return SettingsError(f"{where}: {kind}: {what}")
    if refuses_login(cause):
        what = f"the user or the password is wrong; correct the journal's URL{own_reason(cause)}"
        return SettingsError(f"{where}: {kind}: {what}")
    if "locked" in text:
        return StoppedError(f"{where} is locked by another process; the same command resumes when it is not")
    return StoppedError(
        f"{where} failed: {kind}; the same command resumes when it works again{own_reason(cause)}"
    )


# ── The statements in which journals on SQLite, PostgreSQL and MySQL (MariaDB too) differ ──

_SETTING_UP = 0x6D696772
"""An arbitrary constant: the lock for setting up a journal on a server."""
_SETTING_UP_S = 60

_CLOCKS: dict[str, Select[Any]] = {
    dialect: select(literal_column(clock, Double()))
    for dialect, clock in {
        "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
        "postgresql": "extract(epoch FROM clock_timestamp())",
        "mysql": "UNIX_TIMESTAMP(SYSDATE(6))",
    }.items()
}


TEST_CLOCK = "MIGRATOR_TEST_CLOCK"
"""For tests of migrator only: seconds that the journal's clock is ahead. In a real job, leases would end early."""


def insert_or_ignore(connection: Connection, table: Table) -> Insert:
    insertion = _insertion(connection.dialect.name, table)
    if connection.dialect.name == "mysql":
        # Not INSERT IGNORE: it also hides other errors, and two that find the same deleted row would deadlock.
        any_column = next(column for column in table.columns if column is not table.autoincrement_column)
        return cast(Insert, insertion.on_duplicate_key_update({any_column.name: any_column}))
    return cast(Insert, insertion.on_conflict_do_nothing())


def insert_or_replace(connection: Connection, table: Table) -> Insert:
    """INSERT that updates the other columns of an existing row with the same primary key."""
    return _put_into(connection.dialect.name, table)


@cache
def _put_into(dialect: str, table: Table) -> Insert:
    others = [column.name for column in table.columns if not column.primary_key]
    return upsert(dialect, table, lambda new: {name: new[name] for name in others})


def upsert(dialect: str, table: Table, changes: Callable[[Any], dict[str, Any]]) -> Insert:
    insertion = _insertion(dialect, table)
    if dialect == "mysql":
        return cast(Insert, insertion.on_duplicate_key_update(changes(insertion.inserted)))
    columns, changed = list(table.primary_key), changes(insertion.excluded)
    return cast(Insert, insertion.on_conflict_do_update(index_elements=columns, set_=changed))


def _insertion(dialect: str, table: Table) -> Any:
    """INSERT with the dialect's own clauses. The other dialects, which load slowly, are not needed."""
    return import_module(f"sqlalchemy.dialects.{dialect}").insert(table)


CHUNK = 400
"""Rows or keys per statement."""
Piece = TypeVar("Piece")


def chunks(pieces: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    for start in range(0, len(pieces), CHUNK):
        yield pieces[start : start + CHUNK]


def seconds(connection: Connection) -> float:
    ahead_s = float(os.environ.get(TEST_CLOCK, 0))
    return float(connection.execute(_CLOCKS[connection.dialect.name]).scalar_one()) + ahead_s


def bring_back(
    connection: Connection, column: Column[Any], latest: float, *here: ColumnElement[bool]
) -> None:
    """Reset times later than `latest`, which no process can have written by this clock.

    A journal on a server has one clock. Processes on a SQLite file use their hosts' clocks. Without this, a
    lease of a killed process lasts longer by as much as its clock was ahead. A live process renews its own
    lease.
    """
    if connection.dialect.name == "sqlite":
        connection.execute(update(column.table).where(column > latest, *here).values({column: latest}))


@contextmanager
def set_up_alone(engine: Engine) -> Iterator[Connection]:
    """A transaction in which no other process sets up a journal; SQLite has one writer anyway.

    Two concurrent CREATE TABLE fail on PostgreSQL, with or without IF NOT EXISTS; on MySQL each commits. The
    name of a MySQL lock has at most 64 characters, and MySQL has no MD5() since 9.6.
    """
    if engine.dialect.name == "mysql":
        with engine.connect() as holder:
            name = func.concat(f"migrator {_SETTING_UP} ", func.left(func.sha2(func.database(), 256), 16))
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


PACKAGE = "single-table-migrator"


def set_up(engine: Engine, name: str, reached: Callable[[], None]) -> bool:
    """Create the tables of a new journal, also of one that was not finished. Returns whether it is new.

    `reached`: called as soon as the database has answered. Raises: SettingsError for a journal of another
    version, or without one of its tables.
    """
    with set_up_alone(engine) as connection:
        reached()
        inspector = inspect(connection)
        is_there = inspector.has_table(schema.meta.name)
        version = connection.execute(select(schema.meta.c.version)).scalar() if is_there else None
        if version not in (None, schema.VERSION):
            raise SettingsError(
                f"the journal {name} has version {version}, and migrator {package_version(PACKAGE)} uses version"
                f" {schema.VERSION}; install the migrator that wrote it, or name another journal"
            )
        # All names at once; SQLAlchemy would query each.
        there = inspector.get_table_names()
        missing = [table for table in schema.tables_on(engine.dialect.name) if table.name not in there]
        if version is None:
            schema.metadata.create_all(connection, missing)
            connection.execute(insert(schema.meta).values(version=schema.VERSION))
        elif missing:
            # An empty one would be taken for the truth: items of forgotten keys would stay.
            names = ", ".join(table.name for table in missing)
            raise SettingsError(
                f"the journal {name} has lost {names} (or this user may not see it); {_BEGIN_ANEW}"
            )
        return version is None


# ── A journal's database: opened, set up, and its failures put into words ──

Result = TypeVar("Result")
_DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
}
_EXTRAS = {"postgresql+psycopg": "postgres", "mysql+pymysql": "mysql"}
_CONNECT_TIMEOUT_S = 10
_MYSQL_SESSION = (
    "SET SESSION sql_mode = 'STRICT_TRANS_TABLES', sql_select_limit = 18446744073709551615, sql_safe_updates = 0,"
    " sql_big_selects = 1"
)
"""A server's own values could cut an answer or a text, or refuse a statement by how its rows are found."""
_FORK_WAIT_S = 5.0


_Ahead: TypeAlias = tuple[Table, ColumnElement[bool]]
"""Times that another host's clock has set too late, as for `bring_back`."""


class Database:
    """Transactions on the journal's tables. Thread-safe.

    `where`: the URL, or a server's engine with transactions that write, and whose statements each see all
    earlier commits.
    `retry`: for a server that is busy, or became unreachable.
    """

    def __init__(self, where: str | URL | Engine, retry: Retry | None = None) -> None:
        self.url = _url(where.url if isinstance(where, Engine) else where)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self._one_at_a_time = RLock() if self.sqlite else None
        self._retry = retry or Retry()
        self._held = self._reached = False
        self._of_thread = local()
        self.answers = Answers()
        self.is_new = False
        """Whether this opening created its tables."""
        # The parent's pools. Kept, since closing them here would end the parent's sessions on its servers.
        self._inherited: list[Pool] = []
        self.engine = where if isinstance(where, Engine) else _engine(self.url)
        tell_of_forks(self)
        self.tried(self._set_up, twice=True)

    @contextmanager
    def begin(self, *, reads: bool = False) -> Iterator[Connection]:
        """One transaction. SQLite has one writer, so its threads take turns here.

        `reads`: it only reads; on SQLite it does not wait for other processes.
        Raises: PassingError if nothing was committed and a retry may succeed; LostAnswerError if the commit
        is in doubt.
        """
        if reads and self._snapshot is not None:
            yield self._snapshot[0]
            return
        with self._begun({READS: True} if reads and self.sqlite else {}) as connection:
            yield connection

    @contextmanager
    def _begun(self, options: dict[str, Any]) -> Iterator[Connection]:
        committing, alone = False, self._one_at_a_time or nullcontext()
        try:
            with (
                alone,
                self.answers.timed(),
                self.engine.connect().execution_options(**options) as connection,
                nullcontext()
                if self.sqlite
                else cut_off(_socket_of(connection.connection.driver_connection)),
                connection.begin(),
            ):
                self._reached = True
                yield connection
                committing = True
        except SQLAlchemyError as error:
            raise self._in_words(error, committing=committing) from None

    def snapshot(self, work: Callable[[], Result]) -> Result:
        """The result of `work`, whose transactions that only read see one state of the journal; retried as a whole.

        One transaction stays open meanwhile, so nothing slow belongs in `work`.
        """

        def once() -> tuple[Result, list[_Ahead]]:
            with self._begun(
                {READS: True} if self.sqlite else {"isolation_level": "REPEATABLE READ"}
            ) as connection:
                ahead: list[_Ahead] = []
                self._of_thread.snapshot = (connection, ahead)
                try:
                    return work(), ahead
                finally:
                    self._of_thread.snapshot = None

        result, ahead = self.tried(once, twice=True)
        for table, here in ahead:
            self.bring_back(table, here)
        return self.tried(once, twice=True)[0] if ahead else result

    @property
    def _snapshot(self) -> tuple[Connection, list[_Ahead]] | None:
        """This thread's open transaction, and the times found in it."""
        return getattr(self._of_thread, "snapshot", None)

    def bring_back(self, table: Table, here: ColumnElement[bool]) -> None:
        """Reset heartbeats before a transaction that only reads; writes only if a process's clock was ahead."""
        if not self.sqlite:
            return
        with self.begin(reads=True) as connection:
            query = select(table.c.alive_at).where(here, table.c.alive_at > seconds(connection))
            if connection.execute(query.limit(1)).first() is None:
                return
        if self._snapshot is not None:
            self._snapshot[1].append((table, here))
            return
        # A read-only journal is read as it is.
        with suppress(SettingsError), self.begin() as connection:
            now = seconds(connection)
            for column in (column for column in table.columns if column.name in ("since", "alive_at")):
                bring_back(connection, column, now, here)

    def tried(self, work: Callable[[], Result], *, twice: bool) -> Result:
        """Retry `work` while the server is unreachable.

        `twice`: it is idempotent, so it is also retried if the answer to its commit was lost.
        """
        passing = (PassingError, LostAnswerError) if twice else (PassingError,)
        return self._retry.call("the journal", work, lambda error: isinstance(error, passing), _gave_up)

    def transaction(
        self, work: Callable[[Connection], Result], *, twice: bool, reads: bool = False
    ) -> Result:
        def once() -> Result:
            with self.begin(reads=reads) as connection:
                return work(connection)

        return self.tried(once, twice=twice)

    @property
    def name(self) -> str:
        return str(self.url.database) if self.sqlite else _without_secrets(self.url)

    def close(self) -> None:
        self.engine.dispose()

    def before_fork(self) -> None:
        """No connection to a SQLite file may be open in two processes; under the lock none is in use."""
        if self._one_at_a_time is not None:
            self._held = self._one_at_a_time.acquire(timeout=_FORK_WAIT_S)
            if self.url.database not in IN_MEMORY:
                self.engine.dispose()

    def after_fork(self, *, in_child: bool) -> None:
        """A child leaves connections to servers, and a held lock, to its parent."""
        if self._one_at_a_time is not None and self._held:
            self._one_at_a_time.release()
        if in_child and self._one_at_a_time is not None:
            self._one_at_a_time = RLock()
        elif in_child:
            self._inherited.append(self.engine.pool)
            self.engine.dispose(close=False)

    def _set_up(self) -> None:
        def reached() -> None:
            self._reached = True

        try:
            self.is_new = set_up(self.engine, _without_secrets(self.url), reached)
        except SQLAlchemyError as error:
            raise self._in_words(error, committing=False) from None

    def _in_words(self, error: SQLAlchemyError, *, committing: bool) -> MigratorError:
        where, on_server = f"the journal {_without_secrets(self.url)}", not self.sqlite
        return in_words(error, where, on_server=on_server, reached=self._reached, committing=committing)


class InDatabase:
    def __init__(self, database: Database) -> None:
        self.database = database


class OfJob(InDatabase):
    def __init__(self, database: Database, job: str) -> None:
        super().__init__(database)
        self.job = job


class OfJobTable(OfJob):
    """Records of one job and one table, by the table's id or name."""

    def __init__(self, database: Database, job: str, table: str) -> None:
        super().__init__(database, job)
        self.table = table


Owner = TypeVar("Owner", bound=InDatabase)
Words = ParamSpec("Words")


Method: TypeAlias = Callable[Concatenate[Owner, Connection, Words], Result]
"""The body of one transaction."""
Transaction: TypeAlias = Callable[Concatenate[Owner, Words], Result]


def repeatable(method: Method[Owner, Words, Result]) -> Transaction[Owner, Words, Result]:
    """One idempotent transaction: always retried while the server is unreachable."""
    return _transaction(method, twice=True)


def reading(method: Method[Owner, Words, Result]) -> Transaction[Owner, Words, Result]:
    """Like repeatable, and it only reads: on SQLite it does not wait for other processes."""
    return _transaction(method, twice=True, reads=True)


def once_only(method: Method[Owner, Words, Result]) -> Transaction[Owner, Words, Result]:
    """One transaction that is not idempotent: retried only while nothing of it was committed."""
    return _transaction(method, twice=False)


def _transaction(
    method: Method[Owner, Words, Result], *, twice: bool, reads: bool = False
) -> Transaction[Owner, Words, Result]:
    def transaction(self: Owner, /, *words: Words.args, **named: Words.kwargs) -> Result:
        def work(connection: Connection) -> Result:
            return method(self, connection, *words, **named)

        return self.database.transaction(work, twice=twice, reads=reads)

    return update_wrapper(transaction, method)


def _gave_up(error: BaseException, tried: str) -> MigratorError:
    return (
        type(error)(f"{error} (gave up after {tried})")
        if isinstance(error, StoppedError)
        else StoppedError(tried)
    )


def _url(text: str | URL) -> URL:
    advice = "write sqlite:///path, postgresql://… or mysql://…, or ${NAME} for a variable that holds one"
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise SettingsError(f"the job's journal is not a database URL; {advice}") from None
    kind = url.get_backend_name()
    if kind not in _DRIVERS:
        raise SettingsError(
            f"a journal is kept on SQLite, PostgreSQL, MariaDB or MySQL, not on {kind}; {advice}"
        )
    if kind != "sqlite" and any("@" in part for part in (url.host or "", url.database or "")):
        # Messages name the host, which would contain a part of the password.
        what = "the job's journal: the URL holds an '@' too many"
        raise SettingsError(f"{what}; write @ : / in a user name or password as %40 %3A %2F")
    return url.set(drivername=_DRIVERS[kind])


def _engine(url: URL) -> Engine:
    try:
        if url.get_backend_name() != "sqlite":
            is_postgresql = url.get_backend_name() == "postgresql"
            own = ALIVE if is_postgresql else {"init_command": _MYSQL_SESSION}
            defaults = {"connect_timeout": _CONNECT_TIMEOUT_S, **own}
            connect_args: dict[str, Any] = {
                name: value for name, value in defaults.items() if name not in url.query
            }
            if is_postgresql:
                # From a database without an encoding (SQL_ASCII) the driver would return bytes for text.
                connect_args["client_encoding"] = "utf8"
                # Behind a pooler, a statement prepared in one server session is unknown in the next.
                connect_args["prepare_threshold"] = None
            # The next statement must see what others have committed meanwhile: the default on PostgreSQL, not on MySQL.
            level = "READ COMMITTED"
            # Set per transaction, overriding what another client set for a pooled session.
            options = {"postgresql_readonly": False} if is_postgresql else {}
            with naming_options("the journal's URL"):
                engine = create_engine(
                    url,
                    pool_pre_ping=True,
                    connect_args=connect_args,
                    isolation_level=level,
                    execution_options=options,
                )
            event.listen(engine, "do_connect", _connect)
            ping = engine.dialect.do_ping

            def bounded_ping(connection: DBAPIConnection) -> bool:
                with cut_off(_socket_of(connection)):
                    return ping(connection)

            engine.dialect.do_ping = bounded_ping  # type: ignore[assignment,method-assign]
            return engine
        return sqlite_engine(url)
    except (NoSuchModuleError, ModuleNotFoundError):
        what = f"the journal {_without_secrets(url)} needs a driver that is not installed"
        raise SettingsError(f"{what}; {how_to_install(_EXTRAS[url.drivername])}") from None
    except OSError as error:
        what = f"the journal {_without_secrets(url)} cannot be created ({error.strerror})"
        raise SettingsError(f"{what}; name another place: `journal:` in the job, or MIGRATOR_HOME") from None


def _connect(dialect: Dialect, _: object, words: Sequence[Any], named: Mapping[str, Any]) -> DBAPIConnection:
    refuse_late(AwayError)
    if (left_s := cut_to_end(None)) is not None:
        named = {**named, "connect_timeout": math.ceil(left_s)}
    connection: DBAPIConnection = connected(dialect, words, named, "the journal's URL")
    return connection


def _socket_of(driver: Any) -> int:
    number: int = driver.fileno() if hasattr(driver, "fileno") else driver._sock.fileno()
    return number


def _without_secrets(url: URL) -> str:
    return url.set(query={}).render_as_string(hide_password=True)
