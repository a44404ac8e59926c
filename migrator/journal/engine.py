"""A journal's database: opened, set up, and its failures put into words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import Pool, StaticPool

from migrator.errors import SettingsError, StoppedError
from migrator.forks import tell_of_forks
from migrator.journal import schema
from migrator.journal.dialect import set_up_alone

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
    statement, and write.
    """

    def __init__(self, where: str | URL | Engine) -> None:
        self.url = _url(where.url if isinstance(where, Engine) else where)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self._one_at_a_time = RLock() if self.sqlite else None
        self._held = False
        # Pools of the parent. They are kept: closing them here would say goodbye to its servers.
        self._inherited: list[Pool] = []
        self.engine = where if isinstance(where, Engine) else _engine(self.url)
        tell_of_forks(self)
        with self._told():
            self._set_up()

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A connection inside of one transaction. SQLite has one writer, so its threads take turns here."""
        with self._told():
            if self._one_at_a_time is None:
                with self.engine.begin() as connection:
                    yield connection
            else:
                with self._one_at_a_time, self.engine.begin() as connection:
                    yield connection

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

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise _in_words(error, self.url) from None

    def _set_up(self) -> None:
        with set_up_alone(self.engine) as connection:
            schema.metadata.create_all(connection)
            version = connection.execute(select(schema.meta.c.version)).scalar()
            if version is None:
                connection.execute(insert(schema.meta).values(version=schema.VERSION))
            elif version != schema.VERSION:
                what = f"the journal {_shown(self.url)} is of version {version}, this migrator writes {schema.VERSION}"
                raise SettingsError(
                    f"{what}; finish its runs with the migrator that began them, or name another journal"
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
            # What another has committed meanwhile must be seen by the next statement: the rule on PostgreSQL, not on MySQL.
            level = "READ COMMITTED"
            return create_engine(url, pool_pre_ping=True, connect_args=more, isolation_level=level)
        if url.database in _IN_MEMORY:
            engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
        else:
            Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
            engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": 30})
    except (NoSuchModuleError, ModuleNotFoundError):
        what = f"the journal {_shown(url)} needs a driver that is not installed"
        raise SettingsError(f"{what}; install single-table-migrator[{_EXTRAS[url.drivername]}]") from None
    except OSError as error:
        raise SettingsError(f"the journal {_shown(url)} cannot be created ({error.strerror})") from None
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _on_connect(connection: Any, record: Any) -> None:
    """Transactions are ours to begin; every commit reaches the disk."""
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _in_words(error: SQLAlchemyError, url: URL) -> SettingsError | StoppedError:
    cause = str(getattr(error, "orig", "") or "").split("\n")[0]
    where = f"the journal {_shown(url)}"
    if "not a database" in cause:
        return SettingsError(f"{where} is no SQLite database; name another file, or move it away")
    if "unable to open" in cause or "readonly" in cause:
        return SettingsError(f"{where} cannot be opened for writing; look at its folder's permissions")
    if "disk is full" in cause or "disk I/O" in cause:
        return StoppedError(
            f"{where} has no room left on its disk; make room and give the same command again"
        )
    kind = type(getattr(error, "orig", error)).__name__
    known = " (locked by another process)" if "locked" in cause else ""
    if isinstance(error, DatabaseError):
        return StoppedError(f"{where} does not answer: {kind}{known}; the same command goes on when it does")
    return StoppedError(f"{where} failed: {kind}")


def _shown(url: URL) -> str:
    return url.set(query={}).render_as_string(hide_password=True)
