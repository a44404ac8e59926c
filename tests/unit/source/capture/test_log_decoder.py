"""Messages of pgoutput as bytes: read as they are meant, and refused where they are cut or strange."""

from __future__ import annotations

import random
import struct
from contextlib import suppress

import pytest

from migrator.runtime.errors import SourceError
from migrator.source.capture.log.changes import UNCHANGED, RowChange
from migrator.source.capture.log.postgresql.protocol import (
    Begin,
    Commit,
    Emitted,
    LogColumn,
    Relation,
    Truncate,
    decode,
    is_visible,
    lsn_of,
    lsn_text,
)


def column(name: str, oid: int, *, is_key: bool) -> bytes:
    return struct.pack(">B", is_key) + name.encode() + b"\0" + struct.pack(">Ii", oid, -1)


def row(*values: bytes | None) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif value == b"<unchanged>":
            parts.append(b"u")
        else:
            parts.append(b"t" + struct.pack(">i", len(value)) + value)
    return b"".join(parts)


BEGIN = b"B" + struct.pack(">QqI", 0x1_0000_0002, 5_000_000, 77)
COMMIT = b"C" + struct.pack(">BQQq", 0, 1, 9, 5_000_000)
RELATION = (
    b"R"
    + struct.pack(">I", 16400)
    + b"public\0pet\0f"
    + struct.pack(">H", 2)
    + column("id", 23, is_key=True)
    + column("näme", 25, is_key=False)
)
INSERT = b"I" + struct.pack(">I", 16400) + b"N" + row(b"1", "Ä".encode())
UPDATE = b"U" + struct.pack(">I", 16400) + b"N" + row(b"1", b"<unchanged>")
UPDATE_OF_KEY = b"U" + struct.pack(">I", 16400) + b"K" + row(b"1", None) + b"N" + row(b"2", b"")
UPDATE_OF_FULL = b"U" + struct.pack(">I", 16400) + b"O" + row(b"1", b"x") + b"N" + row(b"1", b"y")
DELETE = b"D" + struct.pack(">I", 16400) + b"K" + row(b"1", None)
TRUNCATE = b"T" + struct.pack(">IBII", 2, 1, 16400, 16500)
EMITTED = b"M" + struct.pack(">BQ", 1, 9) + b"migrator\0" + struct.pack(">i", 2) + b"ab"
ALL = [BEGIN, COMMIT, RELATION, INSERT, UPDATE, UPDATE_OF_KEY, UPDATE_OF_FULL, DELETE, TRUNCATE, EMITTED]


def test_each_message_is_read() -> None:
    assert decode(BEGIN) == Begin(946_684_805.0, 77)
    assert decode(COMMIT) == Commit(9)
    columns = (LogColumn("id", 23, True), LogColumn("näme", 25, False))
    assert decode(RELATION) == Relation(16400, "public", "pet", "f", columns)
    assert decode(INSERT) == RowChange("insert", 16400, None, (b"1", "Ä".encode()))
    assert decode(UPDATE) == RowChange("update", 16400, None, (b"1", UNCHANGED))
    assert decode(UPDATE_OF_KEY) == RowChange("update", 16400, (b"1", None), (b"2", b""), True)
    assert decode(UPDATE_OF_FULL) == RowChange("update", 16400, (b"1", b"x"), (b"1", b"y"))
    assert decode(DELETE) == RowChange("delete", 16400, (b"1", None), None, True)
    assert decode(TRUNCATE) == Truncate((16400, 16500))
    assert decode(EMITTED) == Emitted("migrator")
    assert decode(b"Y" + struct.pack(">I", 1) + b"public\0mood\0") is None
    assert decode(b"O" + struct.pack(">Q", 1) + b"other\0") is None


@pytest.mark.parametrize("message", ALL)
def test_a_message_that_is_cut_or_too_long_is_refused(message: bytes) -> None:
    for end in range(len(message)):
        with pytest.raises(SourceError):
            decode(message[:end])
    with pytest.raises(SourceError):
        decode(message + b"\0")


@pytest.mark.parametrize(
    "message",
    [
        b"S" + struct.pack(">IB", 1, 1),
        b"I" + struct.pack(">I", 1) + b"X" + row(b"1"),
        b"I" + struct.pack(">I", 1) + b"N" + struct.pack(">H", 1) + b"b" + struct.pack(">i", 1) + b"1",
        b"I" + struct.pack(">I", 1) + b"N" + struct.pack(">H", 1) + b"t" + struct.pack(">i", -5),
        b"T" + struct.pack(">IB", 2**32 - 1, 0),
        b"R" + struct.pack(">I", 1) + b"no end",
    ],
)
def test_strange_messages_are_refused(message: bytes) -> None:
    with pytest.raises(SourceError):
        decode(message)


def test_hostile_bytes_are_read_or_refused() -> None:
    """Nothing but an error of ours comes of any bytes."""
    chance = random.Random(7)
    for _ in range(20_000):
        message = bytearray(chance.choice(ALL))
        for _ in range(chance.randrange(1, 4)):
            message[chance.randrange(len(message))] = chance.randrange(256)
        with suppress(SourceError):
            decode(bytes(message))


def test_positions_are_written_as_the_server_writes_them() -> None:
    assert lsn_text(0x16_B374D848) == "16/B374D848"
    assert lsn_of("16/B374D848") == 0x16_B374D848
    assert lsn_of(lsn_text(0)) == 0


def test_commit_in_the_log_is_hidden_while_its_transaction_runs() -> None:
    assert is_visible(700, "690:710:695,705")
    assert not is_visible(705, "690:710:695,705")
    assert not is_visible(710, "690:710:")
    # Numbers of transactions in the log have no epoch.
    assert is_visible(2**32 - 5, f"{2**32 + 3}:{2**32 + 9}:{2**32 + 4}")
    assert not is_visible(4, f"{2**32 + 3}:{2**32 + 9}:{2**32 + 4}")
    assert not is_visible(9, f"{2**32 + 3}:{2**32 + 9}:")
