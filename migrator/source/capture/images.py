"""Images of marks, as the values that the driver gives when it reads the row itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from sqlalchemy.engine import Connection

Decode: TypeAlias = Callable[[str, str], Any]
"""(the word before the colon, the text behind it) -> the value."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Images:
    """Reads images on one connection. What was learnt of types is kept in `domains`."""

    def __init__(self, connection: Connection, domains: dict[int, int]) -> None:
        make = {"postgresql": _postgresql, "mysql": _mysql, "sqlite": _sqlite}[connection.dialect.name]
        self._decode = make(connection, domains)

    def read(self, text: str | None) -> dict[str, Any] | None:
        """The image. It stands by itself: a table that was altered or dropped since is not looked at.

        What no longer is a value of its type stays text; what is no image at all is an empty one.
        """
        if text is None:
            return None
        try:
            held = json.loads(text)
            return {name: self._value(value) for name, value in held.items()}
        except (ValueError, TypeError, AttributeError, ArithmeticError, LookupError, RecursionError):
            return {}

    def _value(self, held: str | None) -> Any:
        if held is None:
            return None
        word, _, text = held.partition(":")
        return self._decode(word, text)


# ── PostgreSQL: the type's oid, then its output; read by the connection's own loaders ──


def _postgresql(connection: Connection, domains: dict[int, int]) -> Decode:
    import psycopg
    from psycopg.adapt import Transformer
    from psycopg.pq import Format

    driver: Any = connection.connection.driver_connection

    def decode(word: str, text: str) -> Any:
        loads = Transformer(driver)
        loads.set_loader_types([_base_type(connection, int(word), domains)], Format.TEXT)
        try:
            return loads.load_sequence([text.encode()])[0]
        except psycopg.DataError:
            return text

    return decode


_LAST = 2**32 - 1
_FIRST_OF_USERS = 16_384
"""Below are PostgreSQL's own types. Source: PostgreSQL, src/include/access/transam.h, FirstNormalObjectId."""


def _base_type(connection: Connection, oid: int, known: dict[int, int]) -> int:
    """The type that the server names when it sends the value: a domain's base. A type that is gone is text."""
    if oid < _FIRST_OF_USERS:
        return oid
    if oid > _LAST:
        raise ValueError("no oid is as large as that")
    if oid not in known:
        asked = "SELECT typbasetype FROM pg_catalog.pg_type WHERE oid = %s AND typtype = 'd'"
        base = connection.exec_driver_sql(asked, (oid,)).scalar()
        known[oid] = oid if base is None else _base_type(connection, int(base), known)
    return known[oid]


# ── MariaDB and MySQL ──


def _mysql(_: Connection, __: dict[int, int]) -> Decode:
    from pymysql.constants import FIELD_TYPE

    from migrator.source.mysql import from_text

    own: dict[str, Callable[[str], Any]] = {"TEXT": str, "HEX": bytes.fromhex, "EPOCH": _moment}

    def decode(word: str, text: str) -> Any:
        return own[word](text) if word in own else from_text(getattr(FIELD_TYPE, word), text)

    return decode


def _moment(seconds: str) -> datetime | str:
    """A TIMESTAMP. The server has none at 0 seconds: that is its zero date, which the driver leaves as text."""
    number = Decimal(seconds)
    if not number:
        return "0000-00-00 00:00:00" + seconds[1:]
    whole = int(number)
    return _EPOCH + timedelta(seconds=whole, microseconds=int((number - whole) * 1_000_000))


# ── SQLite: the value's own type ──


def _sqlite(_: Connection, __: dict[int, int]) -> Decode:
    readers: dict[str, Callable[[str], Any]] = {
        "integer": int,
        "real": float,
        "text": str,
        "blob": bytes.fromhex,
    }
    return lambda word, text: readers[word](text)
