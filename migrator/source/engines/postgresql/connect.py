"""psycopg connections: read-only snapshots (or plain writes), exact values, one text per key."""

from __future__ import annotations

import ctypes
import socket
import sys
from collections.abc import Generator, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeVar

import psycopg
from psycopg._queries import PostgresQuery
from psycopg.abc import Buffer
from psycopg.adapt import Loader, Transformer
from psycopg.pq import Format
from psycopg.types.json import set_json_loads
from psycopg.types.string import StrDumper, TextLoader
from sqlalchemy import Executable
from sqlalchemy.engine import Connection as SqlConnection

from migrator.mapping.items.native import _native
from migrator.mapping.model.edges import RawPage
from migrator.mapping.model.table import RowTree
from migrator.runtime.errors import LongAnswerError
from migrator.source.engines.base import ConnectionOptions
from migrator.source.engines.postgresql.facts import TEXTS

_SETTINGS = {
    **TEXTS,
    # So that a text in a mapping's SQL ends where our check saw its end.
    "standard_conforming_strings": "on",
    # Types are told by their names in the catalogue.
    "quote_all_identifiers": "off",
    # An error if a policy would hide rows, as in pg_dump: the item of a hidden row would be deleted.
    "row_security": "off",
    # A page and a query of the catalogue take milliseconds; compiling their plans would take a third of a second each.
    "jit": "off",
}
"""Settings with which a key has one text for any role's defaults, and reads return every row or fail."""
_WRITES = {"synchronous_commit": "on"}
"""A ticket lost in a crash of the server would be drawn twice."""
_LEVELS = {True: "READ COMMITTED READ WRITE", False: "REPEATABLE READ READ ONLY"}
"""By whether the transaction writes."""

_TIMES = ("date", "time", "timetz", "timestamp", "timestamptz")
_RANGES = ("int4", "int8", "num", "date", "ts", "tstz")
_TEXTS = (
    "interval",
    "inet",
    "cidr",
    *(f"{name}range" for name in _RANGES),
    *(f"{name}multirange" for name in _RANGES),
)
"""Types whose Python value would lose something (an interval its months), or has no text form."""


def prepare(
    connection: psycopg.Connection[Any], record: Any, *, connection_options: ConnectionOptions
) -> None:
    """Set only the client side of a connection.

    Behind a pooler in transaction mode the server's session goes to a service next, with all its settings.
    """
    prepare_values(connection)
    # Transactions are opened by `begins` alone, with all that they need in one message.
    connection.autocommit = True
    # A statement that was prepared in one session of the server is unknown in the next one.
    connection.prepare_threshold = None
    connection.cursor_factory = OneStatement
    if not connection_options.writes:
        connection.cursor_factory = _BoundedCursor
        connection.server_cursor_factory = _BoundedServerCursor
        connection.answer_bytes = connection_options.answer_bytes  # type: ignore[attr-defined]
    own = connection.execute("SELECT pg_catalog.current_setting('statement_timeout')").fetchone()
    record.info[_HAS_OWN_LIMIT] = own != ("0",)
    if connection.info.parameter_status("server_encoding") == _ANY_BYTES:
        record.info[_ANY_BYTES] = True
        set_json_loads(_tolerant_text, connection)
        for name in _LETTERS:
            connection.adapters.register_loader(name, _TolerantTextLoader)
        connection.adapters.register_dumper(str, _TolerantStrDumper)


def begins(connection_options: ConnectionOptions, info: Mapping[Any, Any]) -> str:
    """BEGIN with the transaction's settings in the same message."""
    return _opening(connection_options, has_own=info[_HAS_OWN_LIMIT], any_bytes=_ANY_BYTES in info)


class OneStatement(psycopg.Cursor[Any]):
    """Rejects two statements in one text, of which the first could end the transaction."""

    def execute(self, query: Any, *words: Any, **named: Any) -> Any:
        return super().execute(_encoded(query), *words, **named)

    def executemany(self, query: Any, *words: Any, **named: Any) -> Any:
        return super().executemany(_encoded(query), *words, **named)

    def _execute_send(
        self, query: PostgresQuery, *, force_extended: bool = False, binary: bool | None = None
    ) -> None:
        # Only `begins` makes a text that begins so, and our check lets none pass. Source: PostgreSQL's documentation,
        # "Extended Query": its query string may hold one statement alone.
        is_single = force_extended or not query.query.startswith(_OPENS)
        super()._execute_send(query, force_extended=is_single, binary=binary)


Result = TypeVar("Result")


class _BoundedCursor(OneStatement):
    """Ends its connection if an answer exceeds `answer_bytes`."""

    def _execute_gen(self, *words: Any, **named: Any) -> Generator[Any, Any, None]:
        return _bounded(self.connection, super()._execute_gen(*words, **named))


class _BoundedServerCursor(psycopg.ServerCursor[Any]):
    def _fetch_gen(self, num: int | None) -> Generator[Any, Any, list[Any]]:
        return _bounded(self.connection, super()._fetch_gen(num))


_AT_FIRST = 2
"""A short answer needs one wait, so nothing is counted for it."""


def _bounded(connection: Any, waits: Generator[Any, Any, Result]) -> Generator[Any, Any, Result]:
    """Compares the system's count of bytes: libpq keeps an answer in memory until it is complete, without its
    size.
    """
    number, began, ended, waited_for = 0, 0, False, next(waits)
    while True:
        ready = yield waited_for
        number += 1
        if number == _AT_FIRST:
            began = _received(connection.pgconn.socket, unread=False)
        try:
            waited_for = waits.send(ready)
        except StopIteration as end:
            result, ended = end.value, True
        if number >= _AT_FIRST and _received(connection.pgconn.socket) - began > connection.answer_bytes:
            waits.close()
            connection.pgconn.finish()
            raise LongAnswerError
        if ended:
            return result  # type: ignore[no-any-return]


def _received(descriptor: int, *, unread: bool = True) -> int:
    """Bytes received on a TCP connection; 0 if the system does not count them (a Unix socket, another system).

    Source: Linux, include/uapi/linux/tcp.h, tcp_info.tcpi_bytes_received.
    """
    option = getattr(socket, "TCP_INFO", None)
    if option is None or sys.platform != "linux":
        return 0
    import fcntl  # not everywhere
    import termios

    found = socket.socket(fileno=descriptor)
    try:
        facts = found.getsockopt(socket.IPPROTO_TCP, option, _RECEIVED.stop)
        waiting = b"" if unread else fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
    except OSError:
        return 0
    finally:
        found.detach()
    return int.from_bytes(facts[_RECEIVED], sys.byteorder) - int.from_bytes(waiting, sys.byteorder)


_RECEIVED = slice(128, 136)


def _encoded(query: Any) -> Any:
    """Encode: in a database without an encoding psycopg would take the text for ASCII."""
    return query.encode() if isinstance(query, str) else query


_OPENS = b"BEGIN ISOLATION LEVEL "
_HAS_OWN_LIMIT = "migrator_has_own_limit"


@cache
def _opening(connection_options: ConnectionOptions, *, has_own: bool, any_bytes: bool) -> str:
    settings = {
        **_SETTINGS,
        # The server would reject a whole page for one text that is not valid UTF-8.
        **({"client_encoding": _ANY_BYTES} if any_bytes else {}),
        **(_WRITES if connection_options.writes else {}),
        **_limits(connection_options, has_own=has_own),
    }
    local = (f"SET LOCAL {name} = '{value}'" for name, value in settings.items())
    return "; ".join([f"{_OPENS.decode()}{_LEVELS[connection_options.writes]}", *local])


def prepare_values(context: psycopg.Connection[Any] | psycopg.Cursor[Any]) -> None:
    """Make a connection (or a cursor of a service's) return values as ours do."""
    # JSON stays text: a JSON string decoded by psycopg could not be distinguished from the text of a document.
    set_json_loads(_text, context)
    for name in _TIMES:
        context.adapters.register_loader(name, _tolerant_loader(name))
    for name in _TEXTS:
        context.adapters.register_loader(name, TextLoader)


def _limits(connection_options: ConnectionOptions, *, has_own: bool) -> dict[str, str]:
    """Time limits in milliseconds; at least 1, since 0 disables a limit. `has_own`: whether the server limits
    this role.
    """
    limits_s = {
        "statement_timeout": connection_options.limit_s(1 if has_own else 0),
        "lock_timeout": connection_options.lock_wait_s,
        "idle_in_transaction_session_timeout": connection_options.idle_s,
    }
    return {name: str(max(1, round(s * 1000))) for name, s in limits_s.items() if s is not None}


def _text(document: str | bytes) -> str:
    return document if isinstance(document, str) else document.decode()


def _tolerant_loader(type_name: str) -> type[Loader]:
    """A loader that returns text if Python has no value (infinity, years before 1).

    Such a value refuses its row; psycopg's own loader would end the whole page.
    """
    strict: Any = psycopg.adapters.get_loader(psycopg.adapters.types[type_name].oid, Format.TEXT)

    class TolerantLoader(Loader):
        def __init__(self, oid: int, context: Any = None) -> None:
            super().__init__(oid, context)
            self._strict = strict(oid, context)

        def load(self, data: Buffer) -> Any:
            try:
                return self._strict.load(data)
            except psycopg.DataError:
                return bytes(data).decode()

    return TolerantLoader


# ── Databases without an encoding (SQL_ASCII): texts that are not UTF-8 refuse their row, not the page ──

_ANY_BYTES = "SQL_ASCII"
_UNKNOWN = 705
_LETTERS: tuple[int | str, ...] = ("text", "varchar", "bpchar", "name", '"char"', _UNKNOWN, 0, *_TEXTS)
"""Types whose values are loaded as text; 0 is any type unknown to psycopg (enums, citext)."""


def _tolerant_text(document: str | bytes) -> str:
    return document if isinstance(document, str) else bytes(document).decode(errors="surrogateescape")


class _TolerantTextLoader(Loader):
    """A byte that is not UTF-8 becomes half of a surrogate pair, which refuses the row, as with other engines."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode(errors="surrogateescape")


class _TolerantStrDumper(StrDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj) if obj.isascii() else obj.encode(errors="surrogateescape")


# ── Rows with the server's own text ──

_RAW = frozenset(
    psycopg.adapters.types[name].oid
    for name in ("int2", "int4", "int8", "oid", "numeric", "date", "time", "timestamp", "timestamptz", "uuid")
)
"""Types whose text has one form under _SETTINGS."""
_TEXT = psycopg.adapters.types["text"].oid


def fetched(connection: SqlConnection, statement: Executable, raw: frozenset[int]) -> RawPage:
    with connection.execute(statement) as result:
        cursor: Any = result.cursor
        types = [column.type_code for column in cursor.description]
        if not raw or not all(types[place] in _RAW for place in raw):
            return RawPage(cursor.fetchall())
        # Loaders are psycopg's by type; of two columns of one type only one may be wanted as text.
        chosen = [_TEXT if place in raw else type_ for place, type_ in enumerate(types)]
        cursor._tx.set_loader_types(chosen, Format.TEXT)
        rows = _in_place(connection, cursor, chosen) or cursor.fetchall()
    # Made here: a moment with a zone is loaded in the zone of the transaction.
    transformer = Transformer(cursor.connection)
    loads = [(place, transformer.get_loader(types[place], Format.TEXT).load) for place in sorted(raw)]

    def whole(row: RowTree) -> RowTree:
        values = list(row)
        for place, load in loads:
            if values[place] is not None:
                values[place] = load(values[place].encode())
        return tuple(values)

    return RawPage(rows, raw, whole)


def _in_place(connection: SqlConnection, cursor: Any, types: list[int]) -> Sequence[RowTree] | None:
    functions = _functions()
    # Texts are read as they are, so they must be UTF-8.
    if (
        _native is None
        or functions is None
        or connection.info.get(_ANY_BYTES)
        or cursor.connection.info.encoding != "utf-8"
    ):
        return None
    transformer = cursor._tx
    of_text = type(transformer.get_loader(_TEXT, Format.TEXT))
    loaders = [transformer.get_loader(type_, Format.TEXT) for type_ in types]
    loads = tuple(None if type(loader) is of_text else loader.load for loader in loaders)
    rows = partial(transformer.load_rows, make_row=tuple)
    return _native.Result(cursor.pgresult, functions, loads, rows)


@cache
def _functions() -> tuple[int, int, int] | None:
    try:
        library = ctypes.CDLL(str(sys.modules[psycopg.pq.PGresult.__module__].__file__))
        value, length, is_null = (ctypes.cast(library[name], ctypes.c_void_p).value for name in _READING)
    except (OSError, AttributeError):
        return None
    return (value, length, is_null) if value and length and is_null else None


_READING = ("PQgetvalue", "PQgetlength", "PQgetisnull")
