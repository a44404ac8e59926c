"""Columns and values of row events of MySQL's binary log, written as triggers write them. Pure.

Source: mysql-server, libs/mysql/binlog/event/rows_event.h (metadata of columns), mysys/decimal and sql-common/my_time.cc
(decimals and times).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

Convert: TypeAlias = Callable[[str, bytes], str]
"""The text of bytes in this character set of the server."""

TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24, DATE, YEAR = 1, 2, 3, 4, 5, 8, 9, 10, 13
VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2, VECTOR, JSON, NEWDECIMAL = 15, 16, 17, 18, 19, 242, 245, 246
ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 247, 248, 252, 253, 254, 255

NUMBERS = frozenset({TINY, SHORT, INT24, LONG, LONGLONG, NEWDECIMAL, FLOAT, DOUBLE})
"""Types whose columns say whether they are unsigned."""
TEXTS = frozenset({STRING, VAR_STRING, VARCHAR, BLOB})
"""Types with a character set; ENUM and SET have theirs apart."""
LISTED = frozenset({ENUM, SET})
METADATA = {
    **dict.fromkeys((FLOAT, DOUBLE, BLOB, JSON, GEOMETRY, VECTOR, TIMESTAMP2, DATETIME2, TIME2), 1),
    **dict.fromkeys((VARCHAR, VAR_STRING, STRING, NEWDECIMAL, BIT, ENUM, SET), 2),
}
"""Bytes of metadata by type."""
_WIDTHS = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8, FLOAT: 4, DOUBLE: 8, DATE: 3, YEAR: 1}
_BEFORE_FRACTION = {TIMESTAMP2: 4, DATETIME2: 5, TIME2: 3}
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Of a decimal: bytes of so many digits."""


class LogColumn(Struct, frozen=True):
    """A column of a table as it was at the change. `code`: its type; `first`, `second`: metadata of that; `charset`:
    'binary' for bytes; `members`: of an ENUM or SET, in that character set; `convert`: gives the text of bytes."""

    name: str
    code: int
    first: int
    second: int
    convert: Convert
    unsigned: bool = False
    charset: str = ""
    members: tuple[bytes, ...] = ()
    is_key: bool = True

    def taken(self, data: bytes, at: int) -> tuple[bytes, int]:
        """The value that begins there, and where the next one does. Raises: ValueError for an unknown type."""
        if prefix := self._prefix():
            size = int.from_bytes(data[at : at + prefix], "little")
            at += prefix
        else:
            size = self._size()
        if at + size > len(data):
            raise ValueError("cut")
        return data[at : at + size], at + size

    def _prefix(self) -> int:
        """Bytes that hold the value's length."""
        if self.code in (VARCHAR, VAR_STRING, STRING):
            return 2 if self._length() > 255 else 1
        return self.first if self.code in (BLOB, JSON, GEOMETRY, VECTOR) else 0

    def _length(self) -> int:
        """Bytes that a text of the column may have."""
        if self.code == STRING:
            # The two highest bits of lengths of 256 and more are in those of the type, turned round.
            return self.second | (((self.first & 0x30) ^ 0x30) << 4)
        return self.first | self.second << 8

    def _size(self) -> int:
        if (width := _WIDTHS.get(self.code)) is not None:
            return width
        if (width := _BEFORE_FRACTION.get(self.code)) is not None:
            return width + (self.first + 1) // 2
        if self.code == NEWDECIMAL:
            return sum(_group_bytes(digits) for digits in (self.first - self.second, self.second))
        if self.code == BIT:
            return self.second + bool(self.first)
        if self.code in LISTED:
            return self.second
        raise ValueError(f"type {self.code}")

    def written(self, value: bytes) -> str:
        """The word and the text that our triggers write (source/engines/mysql/capture.py)."""
        if self.code in TEXTS:
            return self._text(value)
        if self.code in LISTED:
            return f"TEXT:{self._listed(int.from_bytes(value, 'little'))}"
        word, write = _WRITTEN.get(self.code, ("", _unwritten))
        return f"{word}:{write(self, value)}"

    def _text(self, value: bytes) -> str:
        if self.charset == "binary":
            # The log leaves out the zeros at the end of BINARY(n).
            padded = value.ljust(self._length(), b"\0") if self.code == STRING else value
            return f"HEX:{padded.hex().upper()}"
        if self.charset == "ucs2":
            return f"UCS2:{value.hex().upper()}"
        return f"TEXT:{self.convert(self.charset, value)}"

    def _listed(self, number: int) -> str:
        if self.code == ENUM:
            # 0 is a value that was refused, which reads as an empty text.
            chosen = self.members[number - 1 : number] if number else ()
        else:
            chosen = tuple(member for place, member in enumerate(self.members) if number >> place & 1)
        return ",".join(self.convert(self.charset, member) for member in chosen)


def _unwritten(column: LogColumn, _: bytes) -> str:
    raise ValueError(f"type {column.code}")


def _integer(column: LogColumn, value: bytes) -> str:
    return str(int.from_bytes(value, "little", signed=not column.unsigned))


def _float(_: LogColumn, value: bytes) -> str:
    return repr(struct.unpack("<f" if len(value) == 4 else "<d", value)[0])


def _year(_: LogColumn, value: bytes) -> str:
    return str(1900 + value[0]) if value[0] else "0000"


def _bits(_: LogColumn, value: bytes) -> str:
    return str(int.from_bytes(value, "big"))


def _group_bytes(digits: int) -> int:
    return digits // 9 * 4 + _DIGIT_BYTES[digits % 9]


def _decimal(column: LogColumn, value: bytes) -> str:
    """Groups of nine digits in four bytes, the odd ones outermost; the first bit is the sign, negative ones are inverted."""
    is_negative = not value[0] & 0x80
    data = bytes([value[0] ^ 0x80, *value[1:]])
    if is_negative:
        data = bytes(byte ^ 0xFF for byte in data)
    scale = column.second
    whole = column.first - scale
    groups = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    digits, at = "", 0
    for count in groups:
        size = _group_bytes(count)
        digits += str(int.from_bytes(data[at : at + size], "big")).zfill(count) if count else ""
        at += size
    before, after = digits[:whole].lstrip("0") or "0", digits[whole:]
    return f"{'-' if is_negative else ''}{before}{'.' if scale else ''}{after}"


def _date(_: LogColumn, value: bytes) -> str:
    number = int.from_bytes(value, "little")
    return f"{number >> 9:04d}-{number >> 5 & 15:02d}-{number & 31:02d}"


def _fraction(column: LogColumn, number: int) -> str:
    """`column.first`: digits that are shown, of the even number that is stored."""
    shown = column.first
    stored = (shown + 1) // 2 * 2
    return f".{str(number).zfill(stored)[:shown]}" if shown else ""


def _split(column: LogColumn, value: bytes) -> tuple[int, int]:
    bits = (column.first + 1) // 2 * 8
    number = int.from_bytes(value, "big")
    return number >> bits, number & (1 << bits) - 1


def _moment(column: LogColumn, value: bytes) -> str:
    seconds, fraction = _split(column, value)
    return f"{seconds}{_fraction(column, fraction)}"


def _datetime(column: LogColumn, value: bytes) -> str:
    number, fraction = _split(column, value)
    day, time = divmod(number - (1 << 39), 1 << 17)
    month = day >> 5
    text = f"{month // 13:04d}-{month % 13:02d}-{day & 31:02d} {_clock(time)}"
    return text + _fraction(column, fraction)


def _time(column: LogColumn, value: bytes) -> str:
    bits = (column.first + 1) // 2 * 8
    number = int.from_bytes(value, "big") - (1 << 23 + bits)
    time, fraction = divmod(abs(number), 1 << bits)
    return f"{'-' if number < 0 else ''}{_clock(time)}{_fraction(column, fraction)}"


def _clock(number: int) -> str:
    return f"{number >> 12 & 1023:02d}:{number >> 6 & 63:02d}:{number & 63:02d}"


_WRITTEN: dict[int, tuple[str, Callable[[LogColumn, bytes], str]]] = {
    **dict.fromkeys((TINY, SHORT, INT24, LONG, LONGLONG), ("LONGLONG", _integer)),
    YEAR: ("LONGLONG", _year),
    BIT: ("LONGLONG", _bits),
    FLOAT: ("DOUBLE", _float),
    DOUBLE: ("DOUBLE", _float),
    NEWDECIMAL: ("NEWDECIMAL", _decimal),
    DATE: ("DATE", _date),
    TIME2: ("TIME", _time),
    DATETIME2: ("DATETIME", _datetime),
    TIMESTAMP2: ("EPOCH", _moment),
}
