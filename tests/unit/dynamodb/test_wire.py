from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from migrator.mapping.items.wire import decode_item, encode, encode_item, encode_sized, item_bytes
from migrator.runtime.errors import RowError
from tests import pins


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        ("a", {"S": "a"}),
        (True, {"BOOL": True}),
        (1, {"N": "1"}),
        (Decimal("1.500"), {"N": "1.5"}),
        (Decimal("100"), {"N": "100"}),
        (Decimal("-0"), {"N": "0"}),
        (Decimal("1E-130"), {"N": "1E-130"}),
        (Decimal("0.00"), {"N": "0"}),
        (None, {"NULL": True}),
        (b"x", {"B": b"x"}),
        ([1, {"a": "b"}], {"L": [{"N": "1"}, {"M": {"a": {"S": "b"}}}]}),
    ],
)
def test_a_value_on_the_wire(value: Any, wire: dict[str, Any]) -> None:
    assert encode(value) == wire


@pytest.mark.parametrize(
    "value",
    [
        "",
        "ö€",
        True,
        None,
        0,
        -1200,
        Decimal("0.99"),
        b"xy",
        [],
        {},
        [1, {"ü": ["b", None]}],
        {"k": {"l": b"z"}},
    ],
)
def test_size_computed_with_the_wire_form_is_that_of_the_item(value: Any) -> None:
    item = {"PK": "USER#1", "ü": value}
    assert encode_sized(item) == (encode_item(item), item_bytes(item))


@pytest.mark.parametrize("value", [1.5, object(), {1, 2}])
def test_what_has_no_type_is_refused_by_name(value: Any) -> None:
    with pins.refused(RowError):
        encode_item({"price": value})


def test_nesting_ends_at_32_levels() -> None:
    value: Any = "x"
    for _ in range(33):
        value = [value]
    with pins.refused(RowError):
        encode_item({"deep": value})


def test_sets_of_others_can_be_read() -> None:
    wire: dict[str, dict[str, Any]] = {
        "s": {"SS": ["b", "a"]},
        "n": {"NS": ["2", "1.5"]},
        "b": {"BS": [b"y", b"x"]},
    }
    assert decode_item(wire) == {"s": ["a", "b"], "n": [Decimal("1.5"), 2], "b": [b"x", b"y"]}
