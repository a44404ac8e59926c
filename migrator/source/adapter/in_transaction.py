"""Reads inside a service's own transaction, which return the same values as our own connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from migrator.runtime.errors import SettingsError
from migrator.source.adapter.driver import Driver
from migrator.source.adapter.events import driver_of
from migrator.source.adapter.images import FOR_READING, as_wanted
from migrator.source.sql.transactions import Reading, source_error

Result = TypeVar("Result")


class InTransaction:
    """A Reading in the service's transaction, which sees its uncommitted changes."""

    def __init__(self, reading: Reading | InTransaction, borrowed: Any) -> None:
        self.engine: Engine = reading.engine
        self.place: str = reading.place
        self._borrowed = borrowed

    def read(self, doing: str, work: Callable[[Connection], Result]) -> Result:
        """Try once. Raises: SourceError."""
        # Without the events of our engine, which would begin another transaction.
        connection = Connection(self.engine, self._borrowed, _has_events=False)
        try:
            return work(connection)
        except (SQLAlchemyError, self.engine.dialect.loaded_dbapi.Error) as error:
            raise source_error(error, self.place, doing) from None

    def close(self) -> None:
        """Does nothing: the connection is the service's."""


@contextmanager
def within(reading: Reading | InTransaction, connection: Connection) -> Iterator[InTransaction]:
    """Raises: SettingsError if the service's driver is not the one of our reads."""
    driver = driver_of(connection)
    raw = driver.raw
    sessions = driver.engine.sessions
    drivers = sessions.reads_through
    if not any(base.__module__.partition(".")[0] in drivers for base in type(raw).__mro__):
        what = f"strict mode reads through the service's connection by {' or '.join(drivers)}"
        raise SettingsError(
            f"dual write: {what}, and it is of {type(raw).__module__}; use outbox mode, or that driver"
        )
    manner = _for_transaction if sessions.settings == "transaction" else _for_session
    with manner(driver, raw) as borrowed:
        yield InTransaction(reading, borrowed)


class _Borrowed:
    """A connection that ignores commit, rollback, close and invalidate: the service ends its transaction."""

    is_valid = True

    def __init__(self, raw: Any, cursor: Callable[[], Any]) -> None:
        self.dbapi_connection = self.driver_connection = raw
        self._cursor = cursor

    def cursor(self, *_: Any, **__: Any) -> Any:
        return self._cursor()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dbapi_connection, name)

    def commit(self, *_: object) -> None:
        """Does nothing: the service commits. Its pool notices a broken connection."""

    rollback = close = invalidate = commit


@contextmanager
def _for_transaction(driver: Driver, raw: Any) -> Iterator[_Borrowed]:
    from psycopg.rows import tuple_row

    from migrator.source.engines.postgresql import connect

    def cursor() -> Any:
        made = driver.connection.cursor()
        # For an async connection SQLAlchemy returns a cursor that wraps the driver's.
        own = getattr(made, "_cursor", made)
        own.row_factory = tuple_row
        connect.prepare_values(own)
        return made

    # Row security is off only for our own reads: reset it before the service's next statement.
    with as_wanted(driver, FOR_READING):
        yield _Borrowed(raw, cursor)


_MYSQL_SESSION = ("time_zone", "sql_mode", "group_concat_max_len", "sql_select_limit")


@contextmanager
def _for_session(driver: Driver, raw: Any) -> Iterator[_Borrowed]:

    from migrator.source.engines.mysql import connect

    names = ", ".join(f"@@SESSION.{name}" for name in _MYSQL_SESSION)
    before = dict(zip(_MYSQL_SESSION, driver.rows(driver.sql(f"SELECT {names}"))[0], strict=True))
    is_async = hasattr(raw, "_encoding")
    kept = connect.values_of(raw, is_async=is_async)
    _set(driver, connect.SESSION)
    connect.prepare_values(raw, is_async=is_async)
    plain = driver.connection.cursor if is_async else partial(raw.cursor, connect.PlainCursor)
    try:
        yield _Borrowed(raw, plain)
    finally:
        for name, value in kept.items():
            setattr(raw, name, value)
        # On a broken connection there is nothing to reset.
        with suppress(Exception):
            _set(driver, before)


def _set(driver: Driver, values: Mapping[str, Any]) -> None:
    sql = driver.sql("SET ")
    for number, (name, value) in enumerate(values.items()):
        sql.text(f"{', ' if number else ''}SESSION {name} = ").value(value)
    driver.run(sql)
