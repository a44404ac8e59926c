"""PostgreSQL's streaming replication over psycopg's libpq: a slot's messages, by protocol version 1 of pgoutput.

That sends only committed transactions, each as a whole. Source: PostgreSQL's documentation, "Streaming
Replication Protocol"; "Logical Replication Message Formats".
"""

from __future__ import annotations

import select
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol, TypeAlias, TypeVar

import psycopg
import sqlalchemy as sa
from msgspec import Struct
from psycopg import pq
from psycopg.conninfo import make_conninfo
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from migrator.runtime.errors import SourceError
from migrator.runtime.logs import get_logger
from migrator.runtime.server_errors import ALIVE
from migrator.source.capture.log.changes import UNCHANGED, Row, RowChange, Value
from migrator.source.engines.base import Address
from migrator.source.engines.catalogue import Queries
from migrator.source.engines.ddl import Ddl
from migrator.source.engines.postgresql.facts import TEXTS
from migrator.source.sql.transactions import Writing

EPOCH_S = 946_684_800
"""PostgreSQL counts microseconds from 2000-01-01; this is that moment in seconds since 1970."""


class Begin(Struct, frozen=True):
    """`at`: commit time, seconds since 1970. `xid`: without its epoch."""

    at: float
    xid: int


class Commit(Struct, frozen=True):
    end_lsn: int


class LogColumn(Struct, frozen=True):
    """A column in the log. `is_key`: part of the replica identity."""

    name: str
    type_oid: int
    is_key: bool

    def written(self, value: bytes) -> str:
        return f"{self.type_oid}:{value.decode(errors='surrogateescape')}"


class Relation(Struct, frozen=True):
    """`identity`: as in the catalogue: d (default), n (nothing), f (full), i (index)."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[LogColumn, ...]


class Truncate(Struct, frozen=True):
    relations: tuple[int, ...]


class Emitted(Struct, frozen=True):
    prefix: str


Message: TypeAlias = Begin | Commit | Relation | RowChange | Truncate | Emitted


def decode(data: bytes) -> Message | None:
    """None for a message without information on rows. Raises: SourceError if it is malformed or of an unknown
    kind.
    """
    kind = data[:1]
    read = _KINDS.get(kind)
    if read is None:
        raise SourceError(f"the log sent a message of an unknown kind ({kind!r}); {_ADVICE}")
    buffer = _Buffer(data)
    try:
        message = read(buffer)
    except (struct.error, ValueError, IndexError):
        raise SourceError(f"the log sent a message of kind {kind!r} that cannot be read; {_ADVICE}") from None
    if message is not None and buffer.at != len(data):
        raise SourceError(f"the log sent a message of kind {kind!r} that is longer than its form; {_ADVICE}")
    return message


_ADVICE = "the server may be of a version that this migrator does not know; nothing was skipped"


class _Buffer:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 1

    def take(self, form: struct.Struct) -> int:
        (value,) = form.unpack_from(self._data, self.at)
        self.at += form.size
        return int(value)

    def raw(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self._data):
            raise ValueError("cut")
        found = self._data[self.at : end]
        self.at = end
        return found

    def text(self) -> str:
        end = self._data.index(b"\0", self.at)
        found = self._data[self.at : end]
        self.at = end + 1
        return found.decode(errors="surrogateescape")


_INT8, _INT16, _INT32, _INT64 = (struct.Struct(f">{form}") for form in "BHIQ")
_TIME = struct.Struct(">q")
_SIZE = struct.Struct(">i")


def _begin(buffer: _Buffer) -> Begin:
    buffer.take(_INT64)
    return Begin(EPOCH_S + buffer.take(_TIME) / 1_000_000, buffer.take(_INT32))


def _commit(buffer: _Buffer) -> Commit:
    buffer.take(_INT8)
    buffer.take(_INT64)
    end = buffer.take(_INT64)
    buffer.take(_TIME)
    return Commit(end)


def _relation(buffer: _Buffer) -> Relation:
    oid, schema, name = buffer.take(_INT32), buffer.text(), buffer.text()
    identity = buffer.raw(1).decode()
    columns = tuple(_column(buffer) for _ in range(buffer.take(_INT16)))
    # The schema pg_catalog is sent as an empty name.
    return Relation(oid, schema or "pg_catalog", name, identity, columns)


def _column(buffer: _Buffer) -> LogColumn:
    flags, name, type_oid = buffer.take(_INT8), buffer.text(), buffer.take(_INT32)
    buffer.take(_INT32)
    return LogColumn(name, type_oid, bool(flags & 1))


def _row(buffer: _Buffer) -> Row:
    return tuple(_value(buffer) for _ in range(buffer.take(_INT16)))


def _value(buffer: _Buffer) -> Value:
    match buffer.raw(1):
        case b"n":
            return None
        case b"u":
            return UNCHANGED
        case b"t":
            return buffer.raw(buffer.take(_SIZE))
        case _:
            raise ValueError("binary values are not requested")


def _insert(buffer: _Buffer) -> RowChange:
    oid = buffer.take(_INT32)
    _expect(buffer.raw(1), b"N")
    return RowChange("insert", oid, None, _row(buffer))


def _update(buffer: _Buffer) -> RowChange:
    oid, part = buffer.take(_INT32), buffer.raw(1)
    old = None
    is_key = part == b"K"
    if part in (b"K", b"O"):
        old, part = _row(buffer), buffer.raw(1)
    _expect(part, b"N")
    return RowChange("update", oid, old, _row(buffer), is_key)


def _delete(buffer: _Buffer) -> RowChange:
    oid, part = buffer.take(_INT32), buffer.raw(1)
    _expect(part, b"K", b"O")
    return RowChange("delete", oid, _row(buffer), None, part == b"K")


def _truncate(buffer: _Buffer) -> Truncate:
    count = buffer.take(_INT32)
    buffer.take(_INT8)
    if count > len(buffer._data):
        raise ValueError("cut")
    return Truncate(tuple(buffer.take(_INT32) for _ in range(count)))


def _emitted(buffer: _Buffer) -> Emitted:
    buffer.take(_INT8)
    buffer.take(_INT64)
    prefix = buffer.text()
    buffer.raw(buffer.take(_SIZE))
    return Emitted(prefix)


def _expect(part: bytes, *expected: bytes) -> None:
    if part not in expected:
        raise ValueError("another part than expected")


_KINDS: Mapping[bytes, Callable[[_Buffer], Message | None]] = {
    b"B": _begin,
    b"C": _commit,
    b"R": _relation,
    b"I": _insert,
    b"U": _update,
    b"D": _delete,
    b"T": _truncate,
    b"M": _emitted,
    b"O": lambda _: None,
    b"Y": lambda _: None,
}


# ── Transactions that are in the log and not visible yet ──

_XIDS = 2**32


def is_visible(xid: int, snapshot: str) -> bool:
    """Whether a committed transaction is visible in the text of pg_current_snapshot().

    A commit is in the log before others see it: for a moment, or while it waits for a synchronous standby.
    """
    _, xmax, running = snapshot.split(":")
    if (xid - int(xmax)) % _XIDS < _XIDS // 2:
        return False
    return xid not in {int(other) % _XIDS for other in running.split(",") if other}


# ── Positions in the log ──


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


CONNECT_TIMEOUT_S = 10
_ANY_BYTES = b"SQL_ASCII"
IN_USE = "55006"
_HEADER = struct.Struct(">cQQQ")
_KEEPALIVE = struct.Struct(">cQqB")
_STATUS = struct.Struct(">cQQQqB")
_REFUSED = {
    "42501": "the user may not read the log; ALTER ROLE … REPLICATION (on RDS and Aurora: GRANT rds_replication TO …)",
    "28000": "pg_hba.conf has no line that lets this user open a replication connection to this database",
    "53300": "no replication connection is left; raise max_wal_senders",
}

_POOLED = "a pooler lets no replication connection through; name the server itself in the URL"


class SlotInUseError(SourceError):
    """Another reader has the slot."""


class NoReplicationError(SourceError):
    """A pooler or a proxy rejects replication connections."""


class Keepalive(Struct, frozen=True):
    """The log up to `lsn` was sent.

    `at`: server time, seconds since 1970.
    `wants_reply`: the server expects a heartbeat.
    """

    lsn: int
    at: float
    wants_reply: bool


Received: TypeAlias = bytes | Keepalive
"""A message of the log, or a sign that there is none."""


class Stream(Protocol):
    @property
    def waits(self) -> bool: ...

    def start(self, slot: str, publication: str) -> None: ...

    def receive(self, wait_s: float) -> Received | None: ...

    def confirm(self, lsn: int) -> None: ...

    def ask(self) -> None: ...

    def close(self) -> None: ...


_TEXTS = {**TEXTS, "lc_monetary": "C"}
"""Settings of a reader of the log: it has a column's own text, which for money depends on the locale."""


class SlotStream:
    """Streams a slot from its confirmed position. For one thread at a time. Only `confirm` confirms anything."""

    waits = False

    def __init__(self, address: Address, name: str, place: str) -> None:
        self._place = place
        self._connection = pq.PGconn.connect(_conninfo(address, name))
        if self._connection.status != pq.ConnStatus.OK:
            why = _words_of(self._connection)
            self.close()
            kind = NoReplicationError if why == _POOLED else SourceError
            raise kind(f"{place}: connecting to read the log: {why}")
        self._confirmed = 0
        try:
            for setting, value in self._settings().items():
                self._run(f"SET {setting} = '{value}'")
        except BaseException:
            self.close()
            raise

    def start(self, slot: str, publication: str) -> None:
        # 0/0: from the slot's confirmed position.
        named = publication.replace('"', '""').replace("'", "''")
        options = f"(proto_version '1', publication_names '\"{named}\"', messages 'true')"
        self._run(f'START_REPLICATION SLOT "{slot}" LOGICAL 0/0 {options}', pq.ExecStatus.COPY_BOTH)

    def receive(self, wait_s: float) -> Received | None:
        """Return None if no message came in time. Raises: SourceError if the stream ended."""
        try:
            size, data = self._connection.get_copy_data(1)
            if not size and self._wait(wait_s):
                self._connection.consume_input()
                size, data = self._connection.get_copy_data(1)
        except psycopg.Error:
            raise self._ended() from None
        if size < 0:
            raise self._ended()
        if not size:
            return None
        payload = bytes(data)
        if payload[:1] == b"w":
            return payload[_HEADER.size :]
        if payload[:1] == b"k" and len(payload) == _KEEPALIVE.size:
            _, lsn, at, wants_reply = _KEEPALIVE.unpack(payload)
            return Keepalive(lsn, EPOCH_S + at / 1_000_000, bool(wants_reply))
        raise SourceError(f"{self._place}: the log sent what no replication stream has; nothing was skipped")

    def confirm(self, lsn: int) -> None:
        """Everything up to `lsn` is stored: the server may remove that part of its log. Raises: SourceError."""
        self._confirmed = max(self._confirmed, lsn)
        self._tell(asks=False)

    def ask(self) -> None:
        """Request a keepalive with the position of the log. Raises: SourceError."""
        self._tell(asks=True)

    def close(self) -> None:
        self._connection.finish()

    def _tell(self, *, asks: bool) -> None:
        now = int((time.time() - EPOCH_S) * 1_000_000)
        status = _STATUS.pack(b"r", self._confirmed, self._confirmed, self._confirmed, now, asks)
        try:
            self._connection.put_copy_data(status)
            self._connection.flush()
        except psycopg.Error:
            raise self._ended() from None

    def _wait(self, wait_s: float) -> bool:
        waiting = select.poll()
        waiting.register(self._connection.socket, select.POLLIN)
        return bool(waiting.poll(wait_s * 1000))

    def _settings(self) -> Mapping[str, str]:
        encoding = self._connection.parameter_status(b"server_encoding")
        return {
            **_TEXTS,
            "client_encoding": "SQL_ASCII" if encoding == _ANY_BYTES else "UTF8",
        }

    def _run(self, command: str, expected: pq.ExecStatus | None = None) -> pq.abc.PGresult:
        result = self._connection.exec_(command.encode())
        allowed = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK) if expected is None else (expected,)
        if result.status in allowed:
            return result
        raise self._error(result, command.split()[0])

    def _error(self, result: pq.abc.PGresult, doing: str) -> SourceError:
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        if state == IN_USE:
            return SlotInUseError(f"{self._place}: another reader has the slot")
        why = _REFUSED.get(state, "see the database's own log; nothing was skipped")
        return SourceError(
            f"{self._place}: reading the log ({doing}): error {state or 'without a code'}: {why}"
        )

    def _ended(self) -> SourceError:
        result = self._connection.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return self._error(result, "stream")
        return SourceError(f"{self._place}: reading the log: the server ended the stream; it is opened again")


def _conninfo(address: Address, name: str) -> bytes:
    url = address.url()
    words, named = url.get_dialect()().create_connect_args(url)
    options = {"connect_timeout": CONNECT_TIMEOUT_S, **ALIVE, **named, "application_name": name}
    return make_conninfo(*words, **options, replication="database").encode()


def _words_of(connection: pq.abc.PGconn) -> str:
    """Classify the error without the server's text, which may name a user."""
    text = connection.error_message.decode(errors="replace")
    for sign, why in (
        ("pg_hba.conf", _REFUSED["28000"]),
        ("must be superuser or replication role", _REFUSED["42501"]),
        ("permission denied to start WAL sender", _REFUSED["42501"]),
        ("max_wal_senders", _REFUSED["53300"]),
        ("startup parameter", _POOLED),
        ("authentication", "user or password are wrong"),
    ):
        if sign in text:
            return why
    return "the connection failed; look at host, port, user and password of the source's URL"


# ── Reads a slot by SQL, for poolers and proxies that refuse replication connections. Each look decodes the log again ──

LOG_QUERIES = Queries("migrator.source.capture.log.postgresql")
POLL_S = 0.5
_MESSAGES = 5_000
"""One poll ends with the transaction that exceeds this number."""
_END = sa.text(
    "SELECT pg_catalog.pg_current_wal_flush_lsn()::text, extract(epoch FROM clock_timestamp())::float8"
)
_log = get_logger("log_capture")
Result = TypeVar("Result")


def open_stream(writing: Writing, address: Address, name: str) -> Stream:
    """Falls back to a PolledSlot if only SQL gets through. Raises: SourceError."""
    try:
        return SlotStream(address, name, writing.place)
    except NoReplicationError as error:
        _log.warning("log_is_polled", reason=str(error))
        return PolledSlot(writing)


class PolledSlot:
    """A Stream by polling, without its own session. Two readers may poll in turn: duplicate marks are harmless."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._slot = self._publication = ""
        self._received: deque[Received] = deque()
        self._look_at = float("-inf")
        self.waits = False

    def start(self, slot: str, publication: str) -> None:
        self._slot, self._publication = slot, publication
        self._look()

    def receive(self, wait_s: float) -> Received | None:
        now = time.monotonic()
        if not self._received and not self.waits and now >= self._look_at:
            # If another one is polling: the next time.
            with suppress(SlotInUseError):
                self._look()
        if self._received:
            return self._received.popleft()
        time.sleep(0.0 if self.waits else max(0.0, min(wait_s, self._look_at - now)))
        return None

    def confirm(self, lsn: int) -> None:
        def work(connection: Connection, _: Ddl) -> None:
            connection.execute(LOG_QUERIES["advance"], {"slot": self._slot, "lsn": lsn_text(lsn)})

        with suppress(SlotInUseError):
            self._written("confirming the log", work)
        # A poll begins at the confirmed position: everything from the last one must be stored before the next.
        self.waits = bool(self._received)

    def ask(self) -> None:
        self._look_at = float("-inf")

    def close(self) -> None:
        self._received.clear()

    def _look(self) -> None:
        def work(connection: Connection, _: Ddl) -> list[Received]:
            for setting, value in _TEXTS.items():
                connection.exec_driver_sql(f"SET LOCAL {setting} = '{value}'")
            # First: everything committed by then is among the changes.
            end, now = connection.execute(_END).one()
            names = {"slot": self._slot, "publication": self._publication, "count": _MESSAGES}
            found: list[Received] = [bytes(data) for data in connection.scalars(LOG_QUERIES["look"], names)]
            is_all = len(found) < _MESSAGES
            return [*found, Keepalive(lsn_of(end), now, wants_reply=False)] if is_all else found

        try:
            received = self._written("reading the log", work)
        finally:
            self._look_at = time.monotonic() + POLL_S
        self.waits = len(received) > 1
        self._received.extend(received)

    def _written(self, doing: str, work: Callable[[Connection, Ddl], Result]) -> Result:
        def unless_in_use(connection: Connection, ddl: Ddl) -> Result:
            try:
                return work(connection, ddl)
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", "") != IN_USE:
                    raise
            raise SlotInUseError(f"{self._writing.place}: another reader has the slot")

        return self._writing.write(doing, unless_in_use)
