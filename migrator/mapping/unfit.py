"""Values that their column's kind has no form for, and the text that `|text` keeps of them instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from migrator.errors import RowError

# No longer than any number or moment, and of characters that a check of keys can count on (uniqueness.py).
_PLAIN_TEXT = re.compile(r"[0-9A-Za-z :.+,/-]{1,100}")


class NoFormError(RowError):
    """A RowError about a value that has a `text` nevertheless, which is the whole value."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason)
        self.text = text


class NotHeldError(NoFormError):
    """Of a value that has a name of its own, which is said: NaN, infinity, a year BC."""


def without_advice(error: RowError) -> str:
    """The reason without what only a mapping can do about it."""
    return str(error).partition("; write |text")[0]


@dataclass(frozen=True, slots=True)
class Unfit:
    """What stands in a decoded row for such a value: whoever takes it as anything but text refuses the row.

    `text` None: it has none either, as a list of too many children, and whoever takes it refuses.
    """

    text: str | None
    reason: str

    def __iter__(self) -> Iterator[object]:
        raise RowError(self.reason)


def of_column(path: str, error: RowError) -> str:
    """The reason with the column, which the advice names, too: `total|text` can be copied into the mapping."""
    return f"column {path}: {str(error).replace('write |text', f'write {path}|text')}"


def misfit(reason: str, raw: Any) -> RowError:
    """What to raise about a driver's value: with its text where that is a number, or short and plain."""
    if isinstance(raw, bool):
        return RowError(reason)
    if isinstance(raw, (int, float, Decimal)):
        return NoFormError(reason, number_text(raw))
    if isinstance(raw, str) and _PLAIN_TEXT.fullmatch(raw):
        return NoFormError(reason, raw)
    return RowError(reason)


def number_text(raw: int | float | Decimal) -> str:
    """All digits of a number without an exponent; NaN, Infinity or -Infinity."""
    number = Decimal(repr(raw)) if isinstance(raw, float) else Decimal(raw)
    return format(number, "f")


def as_text(value: Any) -> Any:
    """`value`, or its text where it is one of those."""
    return value.text if type(value) is Unfit else value


def fitting(value: Any) -> Any:
    """`value`, if it is none of those. Raises: RowError."""
    if type(value) is Unfit:
        raise RowError(value.reason)
    return value
