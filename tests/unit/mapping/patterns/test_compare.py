from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from migrator.mapping.patterns.diff import Difference, differences, equal
from migrator.model.table import Item


def test_each_attribute_that_differs_is_named_once() -> None:
    expected: Item = {"a": 1, "b": "x", "c": True, "d": [1, {"e": 2}], "same": Decimal("1.0")}
    stored: Item = {"a": 2, "c": 1, "d": [1, {"e": 3}], "f": None, "same": 1}
    assert list(differences(expected, stored)) == [
        Difference("a", "value"),
        Difference("b", "missing"),
        Difference("c", "type"),
        Difference("d", "value"),
        Difference("f", "unexpected"),
    ]


def test_ignored_attributes_do_not_count() -> None:
    assert list(differences({"_tk": 1}, {"_tk": 2, "_rev": "x"}, frozenset({"_tk", "_rev"}))) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, Decimal("1.00"), True),
        (True, 1, False),
        ("1", 1, False),
        (b"a", "a", False),
        (None, "", False),
        ([1, 2], [2, 1], False),
        ({"a": True}, {"a": 1}, False),
        ({"a": [Decimal("2.0")]}, {"a": [2]}, True),
    ],
)
def test_equality_goes_all_the_way_down(one: Any, other: Any, same: bool) -> None:
    assert equal(one, other) is same
