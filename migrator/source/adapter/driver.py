"""A service's DB-API driver as the adapter needs it: cursors, transactions, waiting off the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeAlias, TypeVar

from sqlalchemy.util import await_only

from migrator.model.errors import UnmarkedError
from migrator.runtime.retry import in_context
from migrator.source.adapter.statement import StatementStyle, escaped, placeholder
from migrator.source.engines.base import Engine
from migrator.source.engines.table import engine_of

# ──
# Cursors of a driver that a service takes from under SQLAlchemy: what they write leaves no mark, so it is
# refused. SQLAlchemy tells of each connection that its pool hands out, and psycopg and PyMySQL let a
# connection say which class its cursors have. So each connection gets cursors that refuse to write watched
# tables, but for those that SQLAlchemy executes on itself, as its events tell, and ours. Other drivers
# have no such place: there nothing is seen.

Check = Callable[[str], None]
"""Raises where a statement writes a watched table."""
_DRIVERS = ("psycopg", "pymysql")
_CHECK = "_migrator_check"
_KNOWN = "_migrator_known"
_BY_HAND = "_migrator_by_hand"


def watch(driver_connection: Any, check: Check) -> None:
    """From now on the connection's new cursors ask before they execute what nobody heard of."""
    name = next((one for one in ("cursor_factory", "cursorclass") if hasattr(driver_connection, one)), None)
    factory: Any = getattr(driver_connection, name, None) if name else None
    bases = getattr(factory, "__mro__", ())
    if name is None or not any(one.__module__.partition(".")[0] in _DRIVERS for one in bases):
        return
    setattr(driver_connection, _CHECK, check)
    if not issubclass(factory, _Watched):
        setattr(driver_connection, name, _watched(factory))


def known(cursor: Any) -> None:
    """SQLAlchemy's own cursor, or ours: what it executes is heard in another way."""
    driver_cursor = getattr(cursor, "_cursor", cursor)
    if isinstance(driver_cursor, _Watched):
        setattr(driver_cursor, _KNOWN, True)


@contextmanager
def by_hand(driver_connection: Any) -> Iterator[None]:
    """Until the block ends the service leaves the marks of what it writes itself."""
    if not hasattr(driver_connection, _CHECK):
        yield
        return
    setattr(driver_connection, _BY_HAND, True)
    try:
        yield
    finally:
        setattr(driver_connection, _BY_HAND, False)


class _Watched:
    """Before a driver's class of cursors."""

    connection: Any

    def execute(self, query: Any, *words: Any, **named: Any) -> Any:
        self._ask(query)
        return super().execute(query, *words, **named)  # type: ignore[misc]

    def executemany(self, query: Any, *words: Any, **named: Any) -> Any:
        self._ask(query)
        return super().executemany(query, *words, **named)  # type: ignore[misc]

    def copy(self, statement: Any, *words: Any, **named: Any) -> Any:
        self._ask(statement)
        return super().copy(statement, *words, **named)  # type: ignore[misc]

    def callproc(self, name: Any, *words: Any, **named: Any) -> Any:
        self._ask("CALL")
        return super().callproc(name, *words, **named)  # type: ignore[misc]

    def _ask(self, query: Any) -> None:
        check = getattr(self.connection, _CHECK, None)
        if (
            check is not None
            and not getattr(self, _KNOWN, False)
            and not getattr(self.connection, _BY_HAND, False)
        ):
            check(_text(query, self))


def _text(query: Any, cursor: Any) -> str:
    if isinstance(query, (bytes, bytearray)):
        return bytes(query).decode(errors="replace")
    return str(query.as_string(cursor)) if hasattr(query, "as_string") else str(query)


@lru_cache(maxsize=64)
def _watched(factory: Any) -> Any:
    return type(factory.__name__, (_Watched, factory), {"__module__": factory.__module__})


def refusal(tables: str) -> UnmarkedError:
    what = f"dual write: a cursor of the driver's writes {tables}, and what it changes leaves no mark"
    advice = "execute it through SQLAlchemy (Connection.exec_driver_sql), or inside of Migration.changing"
    return UnmarkedError(f"{what}; {advice}")


# ──
# What the adapter asks of a service's own connection, in the words of its driver: any that SQLAlchemy
# speaks to.

Row: TypeAlias = tuple[Any, ...]


class _Array(list[Any]):
    """An array of PostgreSQL that can stand in a key; drivers take it for the list that it is."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


def key_of(values: Sequence[Any]) -> Row:
    """The values of a key, so that it can be looked up."""
    return tuple(_hashable(value) for value in values)


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return _Array(_hashable(one) for one in value)
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


@dataclass
class Sql:
    """A statement that grows with its parameters: `text` adds SQL, `value` a placeholder and its value."""

    paramstyle: str
    parts: list[str]
    values: list[Any]

    @classmethod
    def begun(cls, paramstyle: str, text: str) -> Sql:
        return cls(paramstyle, [escaped(text, paramstyle)], [])

    def text(self, more: str) -> Sql:
        self.parts.append(escaped(more, self.paramstyle))
        return self

    def value(self, value: Any) -> Sql:
        self.parts.append(placeholder(self.paramstyle, len(self.values)))
        self.values.append(value)
        return self

    def listed(self, values: Sequence[Any]) -> Sql:
        for number, value in enumerate(values):
            if number:
                self.text(", ")
            self.value(value)
        return self


@dataclass
class Driver:
    """Statements on one DB-API connection (SQLAlchemy's own adaption of an async one included).

    `info`: what is known of the connection, as long as it is open.
    """

    connection: Any
    dialect: str
    paramstyle: str
    has_returning: bool = False
    info: dict[Any, Any] = field(default_factory=dict)

    @property
    def engine(self) -> Engine:
        return engine_of(self.dialect)

    @property
    def raw(self) -> Any:
        """The driver's own connection."""
        return getattr(self.connection, "driver_connection", self.connection)

    @property
    def autocommits(self) -> bool:
        """Whether every statement is a transaction of its own, so that no mark can commit with it."""
        return self.engine.sessions.autocommits(self.raw)

    @property
    def counts_found(self) -> bool:
        """Whether a row that an upsert meets and leaves as it is counts as one."""
        return self.engine.sessions.counts_found(self.raw)

    @property
    def done(self) -> int:
        """How many rows were changed on this connection, where the driver counts them; else 0."""
        return self.engine.sessions.changes_so_far(self.raw)

    def spoken(self, text: str) -> StatementStyle:
        """How the statement is to be read. The session is asked what double quotes mean where it says so."""
        formats = self.paramstyle in ("format", "pyformat")
        by_session = '"' in text and self.engine.statements.quotes_by_session
        ansi = by_session and "ANSI_QUOTES" in self.one("SELECT @@sql_mode")
        return StatementStyle(self.dialect, formats, ansi)

    def one(self, text: str) -> str:
        """What a SELECT of one value gives, as text."""
        return str(self.rows(self.sql(text))[0][0])

    def sql(self, text: str) -> Sql:
        return Sql.begun(self.paramstyle, text)

    def cursor(self) -> Any:
        """A cursor that gives each row whole: of a dict, columns of one name are lost."""
        made = self._whole()
        known(made)
        return made

    def _plain(self) -> Any:
        made = self.connection.cursor()
        known(made)
        return made

    def _whole(self) -> Any:
        return self.engine.sessions.cursor(self.connection, self.raw)

    def rows(self, sql: Sql) -> list[Row]:
        cursor = self.cursor()
        try:
            cursor.execute("".join(sql.parts), tuple(sql.values))
            return [tuple(row) for row in plain(cursor)]
        finally:
            cursor.close()

    def run(self, sql: Sql) -> int:
        """How many rows the statement wrote, as the driver counts them."""
        cursor = self._plain()
        try:
            cursor.execute("".join(sql.parts), tuple(sql.values))
            return int(cursor.rowcount)
        finally:
            cursor.close()

    def many(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        cursor = self._plain()
        try:
            if len(rows) == 1:
                cursor.execute(text, tuple(rows[0]))
            else:
                cursor.executemany(text, [tuple(row) for row in rows])
        finally:
            cursor.close()

    def hold(self) -> None:
        """Takes the lock without which what is read might change before it is written."""
        begins = self.engine.sessions.begins
        if begins and not self.raw.in_transaction:
            cursor = self._plain()
            try:
                cursor.execute(begins)
            finally:
                cursor.close()

    def last_key(self, cursor: Any) -> int | None:
        """The key that the database made for the last row of an INSERT; None where it made none."""
        if asked := self.engine.outcomes.last_key:
            return int(self.rows(self.sql(asked))[0][0]) or None
        return cursor.lastrowid or None


def plain(cursor: Any) -> list[Any]:
    """The rows as sequences, whatever factory of rows the service's connection has."""
    rows = list(cursor.fetchall())
    if rows and isinstance(rows[0], dict):
        return [tuple(row.values()) for row in rows]
    return rows


def returned_rows(cursor: Any) -> list[Row]:
    """Rows that a statement gave back, which stay there for whoever executed it.

    Raises: UnmarkedError where the driver gives them once only.
    """
    rows = list(cursor.fetchall())
    held = getattr(cursor, "_rows", None)
    if type(cursor).__module__.startswith("sqlalchemy.") and isinstance(held, (deque, list)):
        # SQLAlchemy's adapted cursors hold all rows of an async driver's.
        cursor._rows = type(held)(rows)
    elif hasattr(cursor, "scroll"):
        cursor.scroll(0, mode="absolute")
    else:
        raise UnmarkedError(
            "this driver gives the keys that the database made only once; give the keys with the rows"
        )
    return [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in rows]


# ──
# Work that waits, called from what SQLAlchemy runs for an event loop: it must not keep the loop from
# others.

Result = TypeVar("Result")


def off_loop(work: Callable[[], Result]) -> Result:
    """What `work` gives: in a thread beside the loop where SQLAlchemy runs this for one, at once where it does not."""
    if not _is_awaited():
        return work()
    result: Result = await_only(asyncio.get_running_loop().run_in_executor(None, in_context(work)))
    return result


def _is_awaited() -> bool:
    try:
        # Comes with SQLAlchemy's asyncio extra; who has not got it has no async sessions.
        from greenlet import getcurrent
    except ImportError:
        return False
    return bool(getattr(getcurrent(), "__sqlalchemy_greenlet_provider__", False))


class AsyncBridge:
    """The same as what it stands before, each of its methods off the loop."""

    def __init__(self, one: Any) -> None:
        self._one = one

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._one, name)
        if not callable(found):
            return found
        return lambda *words, **named: off_loop(partial(found, *words, **named))
