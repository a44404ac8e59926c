"""What differs between the item that a row says there should be and the item that is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from migrator.model import Item, Value


@dataclass(frozen=True, slots=True)
class Difference:
    """One attribute that differs; never its value.

    missing: expected, not stored. unexpected: stored, not expected. type: stored as another type.
    """

    attribute: str
    kind: Literal["missing", "unexpected", "type", "value"]


def differences(expected: Item, stored: Item, ignored: frozenset[str] = frozenset()) -> Iterator[Difference]:
    """Every attribute that differs, `ignored` left out. Numbers are compared as numbers, texts byte by byte."""
    for name in sorted(expected.keys() - ignored):
        if name not in stored:
            yield Difference(name, "missing")
        elif type_of(expected[name]) != type_of(stored[name]):
            yield Difference(name, "type")
        elif not equal(expected[name], stored[name]):
            yield Difference(name, "value")
    for name in sorted(stored.keys() - expected.keys() - ignored):
        yield Difference(name, "unexpected")


def equal(one: Value, other: Value) -> bool:
    """Whether two values are the same in type and content, all the way down."""
    if type_of(one) != type_of(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def type_of(value: Value) -> str:
    """DynamoDB's type, as far as values are compared: all numbers are one."""
    if isinstance(value, bool):
        return "BOOL"
    return "N" if isinstance(value, (int, Decimal)) else type(value).__name__
