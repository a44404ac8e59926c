"""A service's DB-API driver as the adapter needs it: cursors, transactions, waiting off the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, TypeAlias, TypeVar

from sqlalchemy.util import await_only

from migrator.runtime.errors import UnmarkedError
from migrator.runtime.retry import in_context
from migrator.source.adapter.statement import StatementStyle, escaped, placeholder
from migrator.source.engines.base import Engine
from migrator.source.engines.connect import engine_of

# ── Guarded cursors ──
# A service may bypass SQLAlchemy with the driver's own cursor; its writes would leave no mark, so they are refused.
# SQLAlchemy has an event for each connection that its pool returns, and psycopg and PyMySQL let a connection set its cursor
# class. So each connection gets cursors that refuse to write watched tables, except the cursors of SQLAlchemy's own
# executions, known from its events, and ours. Other drivers have no such setting: their cursors are not guarded.

Check = Callable[[str], None]
"""Raises if a statement writes a watched table."""
_DRIVERS = ("psycopg", "pymysql")
_CHECK = "_migrator_check"
_KNOWN = "_migrator_known"
_BY_HAND = "_migrator_by_hand"


def watch(driver_connection: Any, check: Check) -> None:
    """Make the connection's new cursors call `check` before they execute a statement that no event announced."""
    name = "cursor_factory" if hasattr(driver_connection, "cursor_factory") else "cursorclass"
    factory: Any = getattr(driver_connection, name, None)
    bases = getattr(factory, "__mro__", ())
    if not any(base.__module__.partition(".")[0] in _DRIVERS for base in bases):
        return
    setattr(driver_connection, _CHECK, check)
    if not issubclass(factory, _Watched):
        setattr(driver_connection, name, _watched(factory))


def own_connection(connection: Any) -> Any:
    own = getattr(connection, "driver_connection", None)
    if own is not None:
        return own
    adapted = getattr(connection, "dbapi_connection", None) or connection
    return getattr(adapted, "driver_connection", None) or adapted


def exempt(cursor: Any) -> None:
    """Exempt SQLAlchemy's own cursor, or ours, from the check, since events handle its statements."""
    driver_cursor = getattr(cursor, "_cursor", cursor)
    if isinstance(driver_cursor, _Watched):
        setattr(driver_cursor, _KNOWN, True)


@contextmanager
def by_hand(driver_connection: Any) -> Iterator[None]:
    """Within the block, the service itself leaves the marks of its writes."""
    if not hasattr(driver_connection, _CHECK):
        yield
        return
    setattr(driver_connection, _BY_HAND, True)
    try:
        yield
    finally:
        setattr(driver_connection, _BY_HAND, False)


class _Watched:
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
    what = f"dual write: a cursor of the driver's writes {tables}, and what it changes is not captured"
    advice = "execute it through SQLAlchemy (Connection.exec_driver_sql), or inside of Migration.changing"
    return UnmarkedError(f"{what}; {advice}")


# ── Statements on a service's own connection, for any DB-API driver that SQLAlchemy supports ──

Row: TypeAlias = tuple[Any, ...]


class _Array(list[Any]):
    """A PostgreSQL array, which drivers pass as a list, hashable as part of a key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


def key_of(values: Sequence[Any]) -> Row:
    return tuple(_hashable(value) for value in values)


_NAN = Decimal("NaN")
"""The one NaN of all keys: PostgreSQL's equals itself, Python's only if it is the same object."""


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return _Array(_hashable(element) for element in value)
    if isinstance(value, (float, Decimal)) and value != value:
        return _NAN
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


@dataclass
class SqlText:
    """A statement that grows with its parameters: `text` adds SQL, `value` a placeholder and its value."""

    paramstyle: str
    parts: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def text(self, sql: str) -> SqlText:
        self.parts.append(escaped(sql, self.paramstyle))
        return self

    def value(self, value: Any) -> SqlText:
        self.parts.append(placeholder(self.paramstyle, len(self.values)))
        self.values.append(value)
        return self

    def listed(self, values: Sequence[Any]) -> SqlText:
        for number, value in enumerate(values):
            if number:
                self.text(", ")
            self.value(value)
        return self


@dataclass
class Driver:
    """Statements on one DB-API connection (including SQLAlchemy's adaption of an async one)."""

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
        return own_connection(self.connection)

    @property
    def autocommits(self) -> bool:
        return self.engine.sessions.autocommits(self.connection, self.raw)

    @property
    def counts_found(self) -> bool:
        """Whether an upsert that leaves a row unchanged counts it."""
        return self.engine.sessions.counts_found(self.raw)

    @property
    def done(self) -> int:
        return self.engine.sessions.changes_so_far(self.raw)

    def spoken(self, text: str) -> StatementStyle:
        """The statement's style; queries the session if the meaning of double quotes depends on it."""
        formats = self.paramstyle in ("format", "pyformat")
        by_session = '"' in text and self.engine.statements.quotes_by_session
        ansi = by_session and "ANSI_QUOTES" in self.scalar("SELECT @@sql_mode")
        return StatementStyle(self.dialect, formats, ansi)

    def scalar(self, text: str) -> str:
        return str(self.rows(self.sql(text))[0][0])

    def sql(self, text: str) -> SqlText:
        return SqlText(self.paramstyle).text(text)

    def cursor(self) -> Any:
        """A cursor that returns rows as sequences: a dict would lose columns of the same name."""
        made = self.engine.sessions.cursor(self.connection, self.raw)
        exempt(made)
        return made

    def _plain(self) -> Any:
        made = self.connection.cursor()
        exempt(made)
        return made

    def rows(self, sql: SqlText) -> list[Row]:
        with closing(self.cursor()) as cursor:
            cursor.execute("".join(sql.parts), tuple(sql.values))
            return [tuple(row) for row in plain(cursor)]

    def run(self, sql: SqlText) -> int:
        with closing(self._plain()) as cursor:
            cursor.execute("".join(sql.parts), tuple(sql.values))
            return int(cursor.rowcount)

    def many(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        with closing(self._plain()) as cursor:
            if len(rows) == 1:
                cursor.execute(text, tuple(rows[0]))
            else:
                cursor.executemany(text, [tuple(row) for row in rows])

    def hold(self) -> None:
        """Take a lock if the engine needs one to keep rows unchanged between reading and writing."""
        begins = self.engine.sessions.begins
        if begins and not self.raw.in_transaction:
            with closing(self._plain()) as cursor:
                cursor.execute(begins)

    def last_key(self, cursor: Any) -> int | None:
        if query := self.engine.outcomes.last_key:
            return int(self.rows(self.sql(query))[0][0]) or None
        return cursor.lastrowid or None


def plain(cursor: Any) -> list[Any]:
    rows = list(cursor.fetchall())
    if rows and isinstance(rows[0], dict):
        return [tuple(row.values()) for row in rows]
    return rows


def returned_rows(cursor: Any) -> list[Row]:
    """Leaves the rows for the caller to fetch.

    Raises: UnmarkedError if the driver returns them only once.
    """
    rows = list(cursor.fetchall())
    held = getattr(cursor, "_rows", None)
    if type(cursor).__module__.startswith("sqlalchemy.") and isinstance(held, (deque, list)):
        # SQLAlchemy's adapted cursors hold all rows of an async driver's cursor.
        cursor._rows = type(held)(rows)
    elif hasattr(cursor, "scroll"):
        cursor.scroll(0, mode="absolute")
    else:
        raise UnmarkedError(
            "this driver gives the keys that the database made only once; give the keys with the rows"
        )
    return [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in rows]


# ── Blocking work called from SQLAlchemy's greenlets for an event loop: it must not block the loop ──

Result = TypeVar("Result")


def off_loop(work: Callable[[], Result]) -> Result:
    """Run `work` in a thread if SQLAlchemy runs this for an event loop, else directly."""
    if not _is_awaited():
        return work()
    result: Result = await_only(asyncio.get_running_loop().run_in_executor(None, in_context(work)))
    return result


def _is_awaited() -> bool:
    try:
        # Part of SQLAlchemy's asyncio extra; async sessions require it.
        from greenlet import getcurrent
    except ImportError:
        return False
    return bool(getattr(getcurrent(), "__sqlalchemy_greenlet_provider__", False))


class AsyncBridge:
    """A proxy that runs each method of the wrapped object off the event loop."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._wrapped, name)
        if not callable(member):
            return member
        return lambda *words, **named: off_loop(partial(member, *words, **named))
