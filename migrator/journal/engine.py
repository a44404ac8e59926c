"""A journal's database: opened, set up, and its failures put into words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import update_wrapper
from pathlib import Path
from threading import RLock
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import Pool, StaticPool

from migrator.errors import MigratorError, SettingsError, StoppedError, how_to_install
from migrator.files import make_private
from migrator.forks import tell_of_forks
from migrator.journal import steps
from migrator.journal.failures import LostAnswerError, PassingError, in_words, shown
from migrator.retry import Retry

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
_FORK_WAIT_S = 5.0
_IN_MEMORY = (None, "", ":memory:")
_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "busy_timeout=30000",
    # Digests of claimed keys fall anywhere into their table: a cache holds its upper pages, and a page that is written
    # many times goes from the log into the file once. More would save little: 32 MB of memory, 16 MB of log.
    "cache_size=-32000",
    "wal_autocheckpoint=4000",
)


class Database:
    """Transactions on the journal's tables, from any thread.

    `where`: the database's URL, or an engine of a server, whose transactions see what others committed before each
    statement, and write. `retry`: how long a server that is busy, or that was reached and went away, is waited for.
    """

    def __init__(self, where: str | URL | Engine, retry: Retry | None = None) -> None:
        self.url = _url(where.url if isinstance(where, Engine) else where)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self._one_at_a_time = RLock() if self.sqlite else None
        self._retry = retry or Retry()
        self._held = self._reached = False
        self.is_new = False
        """Whether its tables were made just now, by this very opening."""
        # Pools of the parent. They are kept: closing them here would say goodbye to its servers.
        self._inherited: list[Pool] = []
        self.engine = where if isinstance(where, Engine) else _engine(self.url)
        tell_of_forks(self)
        self.tried(self._set_up, twice=True)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A connection inside of one transaction. SQLite has one writer, so its threads take turns here.

        Raises: PassingError where nothing of it was committed and it may pass; LostAnswerError where nobody knows.
        """
        committing = False
        try:
            with self._one_at_a_time or nullcontext(), self.engine.begin() as connection:
                self._reached = True
                yield connection
                committing = True
        except SQLAlchemyError as error:
            raise in_words(error, self.url, reached=self._reached, committing=committing) from None

    def tried(self, work: Callable[[], Result], *, twice: bool) -> Result:
        """What `work` gives, tried again as a whole while the server is away.

        `twice`: it does no harm when it is done twice, so it is also tried again where the answer to its commit was lost.
        """
        passing = (PassingError, LostAnswerError) if twice else (PassingError,)
        return self._retry.call("the journal", work, lambda error: isinstance(error, passing), _gave_up)

    @property
    def name(self) -> str:
        """What people may call it: its file, or its URL without password and options."""
        return str(self.url.database) if self.sqlite else shown(self.url)

    def close(self) -> None:
        self.engine.dispose()

    def before_fork(self) -> None:
        """No connection to a file of SQLite's may be open in two processes; none is in use once the lock is ours."""
        if self._one_at_a_time is not None:
            self._held = self._one_at_a_time.acquire(timeout=_FORK_WAIT_S)
            if self.url.database not in _IN_MEMORY:
                self.engine.dispose()

    def after_fork(self, *, in_child: bool) -> None:
        """A child leaves connections to servers, and whoever holds the lock, to its parent."""
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
            self.is_new = steps.set_up(self.engine, shown(self.url), reached)
        except SQLAlchemyError as error:
            raise in_words(error, self.url, reached=self._reached, committing=False) from None


class _Kept(Protocol):
    """What is kept in a journal's database."""

    database: Database


Owner = TypeVar("Owner", bound=_Kept)
Words = ParamSpec("Words")


def repeatable(
    method: Callable[Concatenate[Owner, Words], Result],
) -> Callable[Concatenate[Owner, Words], Result]:
    """The method, one transaction that does no harm when it is done twice: tried again while the server is away."""
    return _tried(method, twice=True)


def once_only(
    method: Callable[Concatenate[Owner, Words], Result],
) -> Callable[Concatenate[Owner, Words], Result]:
    """The method, one transaction that is not the same twice: tried again only while nothing of it was committed."""
    return _tried(method, twice=False)


def _tried(
    method: Callable[Concatenate[Owner, Words], Result], *, twice: bool
) -> Callable[Concatenate[Owner, Words], Result]:
    def tried(self: Owner, /, *words: Words.args, **named: Words.kwargs) -> Result:
        return self.database.tried(lambda: method(self, *words, **named), twice=twice)

    return update_wrapper(tried, method)


def _gave_up(error: BaseException, tried: str) -> MigratorError:
    return (
        type(error)(f"{error} (gave up after {tried})")
        if isinstance(error, StoppedError)
        else StoppedError(tried)
    )


def _url(text: str | URL) -> URL:
    advice = "write sqlite:///path, postgresql://… or mysql://…"
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise SettingsError(f"the job's journal is no database URL; {advice}") from None
    kind = url.get_backend_name()
    if kind not in _DRIVERS:
        raise SettingsError(
            f"a journal is kept on SQLite, PostgreSQL, MariaDB or MySQL, not on {kind}; {advice}"
        )
    if kind != "sqlite" and any("@" in part for part in (url.host or "", url.database or "")):
        # A part of the password would stand where messages name the host.
        what = "the job's journal: the URL holds an '@' too many"
        raise SettingsError(f"{what}; write @ : / in a user name or password as %40 %3A %2F")
    return url.set(drivername=_DRIVERS[kind])


def _engine(url: URL) -> Engine:
    try:
        if url.get_backend_name() != "sqlite":
            more: dict[str, Any] = (
                {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_TIMEOUT_S}
            )
            if url.get_backend_name() == "postgresql":
                # Of a database that keeps any bytes (SQL_ASCII), the driver would give bytes for texts.
                more["client_encoding"] = "utf8"
                # Behind a pooler a statement that was prepared in one session of the server is unknown in the next one.
                more["prepare_threshold"] = None
            # What another has committed meanwhile must be seen by the next statement: the rule on PostgreSQL, not on MySQL.
            level = "READ COMMITTED"
            # Said with each transaction, whatever somebody set for a session that a pooler lends us.
            options = {"postgresql_readonly": False} if url.get_backend_name() == "postgresql" else {}
            return create_engine(
                url,
                pool_pre_ping=True,
                connect_args=more,
                isolation_level=level,
                execution_options=options,
            )
        if url.database in _IN_MEMORY:
            engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
        else:
            make_private(Path(str(url.database)))
            engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": 30})
    except (NoSuchModuleError, ModuleNotFoundError):
        what = f"the journal {shown(url)} needs a driver that is not installed"
        raise SettingsError(f"{what}; {how_to_install(_EXTRAS[url.drivername])}") from None
    except OSError as error:
        what = f"the journal {shown(url)} cannot be created ({error.strerror})"
        raise SettingsError(f"{what}; name another place: `journal:` in the job, or MIGRATOR_HOME") from None
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _on_connect(connection: Any, record: Any) -> None:
    """Transactions are ours to begin; every commit reaches the disk."""
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").fetchall()
