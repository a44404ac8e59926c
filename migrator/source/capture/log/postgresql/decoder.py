"""Decodes messages of pgoutput, the plugin of PostgreSQL's logical replication. Pure.

Source: PostgreSQL's documentation, "Logical Replication Message Formats". We use protocol version 1, in which only
committed transactions are sent, each as a whole; so messages of streamed and prepared transactions do not come.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct

from migrator.runtime.errors import SourceError
from migrator.source.capture.log.changes import UNCHANGED, Row, RowChange, Value

EPOCH_S = 946_684_800
"""PostgreSQL counts microseconds from 2000-01-01; this is that moment in seconds since 1970."""


class Begin(Struct, frozen=True):
    """`commit_lsn`: of the transaction's commit record. `at`: when it was committed, seconds since 1970. `xid`: without its
    epoch."""

    commit_lsn: int
    at: float
    xid: int


class Commit(Struct, frozen=True):
    """`end_lsn`: where the log continues after the transaction."""

    end_lsn: int


class LogColumn(Struct, frozen=True):
    """`is_key`: part of the table's replica identity."""

    name: str
    type_oid: int
    is_key: bool

    def written(self, value: bytes) -> str:
        return f"{self.type_oid}:{value.decode(errors='surrogateescape')}"


class Relation(Struct, frozen=True):
    """`identity`: REPLICA IDENTITY as the catalogue has it: d (default), n (nothing), f (full), i (index)."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[LogColumn, ...]


class Truncate(Struct, frozen=True):
    relations: tuple[int, ...]


class Emitted(Struct, frozen=True):
    """A message of pg_logical_emit_message()."""

    prefix: str
    is_transactional: bool
    lsn: int


class Ignored(Struct, frozen=True):
    """A message that says nothing of rows: the name of a type, the origin of a transaction."""


Message: TypeAlias = Begin | Commit | Relation | RowChange | Truncate | Emitted | Ignored


def decode(data: bytes) -> Message:
    """Raises: SourceError where the message is cut, overlong, or of an unknown kind."""
    kind = data[:1]
    read = _KINDS.get(kind)
    if read is None:
        raise SourceError(f"the log sent a message of an unknown kind ({kind!r}); {_ADVICE}")
    buffer = _Buffer(data)
    try:
        message = read(buffer)
    except (struct.error, ValueError, IndexError):
        raise SourceError(f"the log sent a message of kind {kind!r} that cannot be read; {_ADVICE}") from None
    if buffer.at != len(data) and not isinstance(message, Ignored):
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
    lsn, at = buffer.take(_INT64), buffer.take(_TIME)
    return Begin(lsn, EPOCH_S + at / 1_000_000, buffer.take(_INT32))


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
    flags, lsn, prefix = buffer.take(_INT8), buffer.take(_INT64), buffer.text()
    buffer.raw(buffer.take(_SIZE))
    return Emitted(prefix, bool(flags & 1), lsn)


def _ignored(_: _Buffer) -> Ignored:
    return Ignored()


def _expect(part: bytes, *expected: bytes) -> None:
    if part not in expected:
        raise ValueError("another part than expected")


_KINDS: Mapping[bytes, Callable[[_Buffer], Message]] = {
    b"B": _begin,
    b"C": _commit,
    b"R": _relation,
    b"I": _insert,
    b"U": _update,
    b"D": _delete,
    b"T": _truncate,
    b"M": _emitted,
    b"O": _ignored,
    b"Y": _ignored,
}


# ── Transactions that are in the log and not visible yet ──

_XIDS = 2**32


def is_visible(xid: int, snapshot: str) -> bool:
    """Whether a transaction that has committed is visible in a snapshot, as the text of pg_current_snapshot().

    The log has a commit before others see it: for a moment, or while it waits for a synchronous standby.
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
