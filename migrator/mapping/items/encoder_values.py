"""What generated functions are made of: the text of single attributes, and what they call for single values."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from json.encoder import encode_basestring
from string import Formatter
from typing import Any

import orjson

from migrator.mapping.items import values
from migrator.mapping.items.values import Decoder, stored
from migrator.mapping.items.wire import encode_value, number_bytes, number_text, text_bytes
from migrator.mapping.model.table import NUMBER_DIGITS, encode_key
from migrator.runtime.errors import RowError


class NoCodeError(Exception):
    """What the generated function raises for a value that it leaves to items_for()."""


def base64_text(value: Any) -> str:
    """Binary values as JSON has them. Raises: TypeError for anything else."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)


# ── Text of code ──


def literal(text: str) -> str:
    """`text` as it stands inside of f'…'."""
    plain = text.encode("unicode_escape").decode("ascii").replace("'", "\\'")
    return plain.replace("{", "{{").replace("}", "}}")


def name_of(text: str) -> str:
    """A name as JSON, with a comma before it and a colon behind it, as it stands inside of f'…'."""
    return literal("," + json.dumps(text, ensure_ascii=False) + ":")


def comment(text: str) -> str:
    """A name as it can stand in a comment."""
    return json.dumps(text)


@dataclass(frozen=True, slots=True)
class Piece:
    """An attribute as code: what stands inside of f'…', and by how much its bytes are more than those of that text.

    They are `more`, and what the expressions `counted` give. `escaped`: expressions of how many characters are in the text
    only because JSON escapes others: 0 where it has no backslash. `is_sure`: it is never left out.
    """

    name: str
    json: str
    more: int = 0
    counted: tuple[str, ...] = ()
    escaped: tuple[str, ...] = ()
    is_sure: bool = True

    def left_out_where_empty(self, text: str, more: str) -> Piece:
        """The same where variables hold its text, which may be empty, and its `more`."""
        escaped = tuple(f"({expression} if {text} else 0)" for expression in self.escaped)
        return Piece(self.name, f"{{{text}}}", 0, (more,), escaped, is_sure=False)


def more_of(pieces: Sequence[Piece]) -> str:
    """By how much the bytes of the pieces are more than those of their text, as an expression, escapes left aside."""
    return " + ".join([str(sum(p.more for p in pieces)), *(one for p in pieces for one in p.counted)])


def piece(name: str, value: str, counted: tuple[str, ...] = (), escaped: tuple[str, ...] = ()) -> Piece:
    """The attribute of a name whose value has this JSON, as it stands inside of f'…'.

    Of a value whose bytes are those that are put in for its variables, plus what is counted.
    """
    inner = name_of(name) + value
    # Not by ast.parse: before CPython 3.11.8 and 3.12.2 one of two threads that parse may fail with a SystemError.
    fixed = "".join(text for text, *_ in Formatter().parse(inner))
    constant = text_bytes(fixed.encode("ascii").decode("unicode_escape"))
    return Piece(name, inner, text_bytes(name) - constant, counted, escaped)


# ── What the generated function calls ──
#
# Values as items_for() and encode_item() make them.


def _no_code() -> Any:
    raise NoCodeError


def as_json(value: Any) -> tuple[str, int]:
    """A plain value as JSON in DynamoDB's form, and by how much its bytes are more than those of that."""
    wired, size = encode_value(stored(value))
    text = orjson.dumps(wired, default=base64_text)
    return text.decode(), size - len(text)


def _named(name: str, name_bytes: int, value: Any) -> tuple[str, int]:
    """An attribute of any value, and its `more`; nothing where it is NULL. `name`: as JSON."""
    if value is None:
        return "", 0
    text, more = as_json(value)
    return name + text, name_bytes - text_bytes(name) + more


def _whole_bytes(text: str) -> int:
    """number_bytes() of a whole number's text. Raises: NoCodeError where it has more digits than DynamoDB holds."""
    if len(text) > NUMBER_DIGITS:
        raise NoCodeError
    return number_bytes(int(text))


def _number(raw: Any, scale: int | None, decode: Decoder) -> tuple[str, int]:
    """The text of a number, as of what `decode` gives of it, and by how much its bytes are more than those of that."""
    plain = _plain_number(str(raw), scale) if type(raw) in _PLAIN_NUMBERS else None
    if plain is not None:
        return plain
    number = decode(raw)
    text = number_text(number)
    if "E" in text:
        raise NoCodeError
    return text, number_bytes(number) - len(text)


_PLAIN_NUMBERS = (float, Decimal, int)


def _raw_number(raw: str, scale: int | None) -> tuple[str, int]:
    """The same of a number's own text. Raises: NoCodeError."""
    plain = _plain_number(raw, scale)
    if plain is None:
        raise NoCodeError
    return plain


def _plain_number(text: str, scale: int | None) -> tuple[str, int] | None:
    """The same of a number that is written as digits, with no more decimals than `scale`; None for any other."""
    whole, _, decimals = text.partition(".")
    digits = whole[1:] if whole[0] == "-" else whole
    if not digits.isdecimal() or len(text) > NUMBER_DIGITS or (digits[0] == "0" and digits != "0"):
        return None
    if decimals:
        if not decimals.isdecimal() or (scale is not None and len(decimals) > scale):
            return None
        decimals = decimals.rstrip("0")
    made = f"{whole}.{decimals}" if decimals else whole
    if made in ("0", "-0"):
        return "0", 0
    significant = f"{digits}{decimals}".strip("0")
    return made, (len(significant) + 3 >> 1) + (digits is not whole) - len(made)


# Each gives '' for what it has no code for, or raises ValueError. What begins with 24, or has that hour, is left to
# values.py: it refuses an hour 24, which Python takes from 3.13 on.


def _timestamp(text: str) -> str:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None or text[7:8] != "-" or text[:2] == "24" or text[11:13] == "24":
        return ""
    if len(text) == 26 and text[19] == ".":
        return f"{text[:10]}T{text[11:]}"
    if len(text) == 19 and text[16] == ":":
        return f"{text[:10]}T{text[11:]}.000000"
    return moment.isoformat("T", "microseconds")


def _zoned(text: str) -> str:
    made = _timestamp(text.removesuffix("+00"))
    return made and made + "Z"


def _date(text: str) -> str:
    if len(text) != 10 or text[7] != "-" or text[:2] == "24":
        return ""
    return date.fromisoformat(text).isoformat()


def _time(text: str) -> str:
    if text[:2] == "24" or text[2:3] != ":":
        return ""
    moment = time.fromisoformat(text)
    return moment.isoformat() if moment.tzinfo is None else ""


RUNTIME: dict[str, Any] = {
    "quoted": encode_basestring,
    "text_bytes": text_bytes,
    "whole_bytes": _whole_bytes,
    "number": _number,
    "plain_numbers": _PLAIN_NUMBERS,
    "raw_number": _raw_number,
    "moment": datetime.fromisoformat,
    "timestamp": _timestamp,
    "zoned": _zoned,
    "date": _date,
    "time": _time,
    "text": values.text,
    "attribute": values.attribute,
    "base64": base64_text,
    "as_json": as_json,
    "named": _named,
    "encode_key": encode_key,
    "no_code": _no_code,
    "LEFT": (NoCodeError, RowError, TypeError, ValueError, AttributeError, ArithmeticError, LookupError),
}
"""UnicodeError is a ValueError."""
