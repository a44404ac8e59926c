"""Cursors of a driver that a service takes from under SQLAlchemy: what they write leaves no mark, so it is refused.

SQLAlchemy tells of each connection that its pool hands out, and psycopg and PyMySQL let a connection say which class its
cursors have. So each connection gets cursors that refuse to write watched tables, but for those that SQLAlchemy executes
on itself, as its events tell, and ours. Other drivers have no such place: there nothing is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from migrator.errors import UnmarkedError

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
