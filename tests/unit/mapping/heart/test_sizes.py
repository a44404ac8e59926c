"""Sizes worked out by hand from the guide's rules."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from migrator.mapping.heart.wire import item_bytes, value_bytes, write_units


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("", 0),
        ("abc", 3),
        ("ö€", 5),
        (b"\x00\x01", 2),
        (True, 1),
        (None, 1),
        (0, 1),
        (1, 2),
        (1200, 2),
        (123, 3),
        (-123, 4),
        (Decimal("0.99"), 2),
        (int("9" * 38), 20),
        ([], 3),
        (["ab", 1], 3 + 2 + 2 + 2),
        ({"k": "ab"}, 3 + 1 + 2 + 1),
    ],
)
def test_the_size_of_a_value(value: Any, size: int) -> None:
    assert value_bytes(value) == size


def test_attribute_names_count() -> None:
    assert item_bytes({"PK": "USER#1", "ü": True}) == 2 + 6 + 2 + 1


@pytest.mark.parametrize(("size", "units"), [(1, 1), (1024, 1), (1025, 2), (409_600, 400)])
def test_write_units_are_whole_kilobytes(size: int, units: int) -> None:
    assert write_units(size) == units
