"""Sets of DynamoDB's: their form, their bytes, and the order of their members."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from migrator.mapping.items.wire import (
    Estimate,
    Price,
    decode,
    encode,
    encode_value,
    item_bytes,
    measure,
    value_bytes,
    write_units,
)
from migrator.mapping.model.table import Index, Item, KeyAttribute, TableDesign


@pytest.mark.parametrize(
    ("wired", "size"),
    [({"SS": ["a", "é"]}, 3), ({"NS": ["2", "10", "1.5"]}, 6), ({"BS": [b"\x01", b"\x02\x03"]}, 3)],
)
def test_a_set_stays_a_set_with_its_members_in_order(wired: dict[str, Any], size: int) -> None:
    value = decode(wired)
    again, bytes_ = encode_value(value)
    assert {form: sorted(members) for form, members in again.items()} == {
        form: sorted(members) for form, members in wired.items()
    }
    assert (bytes_, value_bytes(value)) == (size, size)
    assert encode(list(value)) != again  # type: ignore[arg-type]


PRICE = Price("nowhere", Decimal("0.625"), Decimal("0.125"), Decimal("0.25"), "today")
ALL = Index("All", (KeyAttribute("a"),), (KeyAttribute("b", "number"),))
KEYS = Index("Keys", (KeyAttribute("a"),), projection="keys")
SOME = Index("Some", (KeyAttribute("c"),), projection=("x",))
LOCAL = Index("Local", (KeyAttribute("PK"),), (KeyAttribute("b", "number"),), "keys", local=True)


def table(*indexes: Index) -> TableDesign:
    return TableDesign("T", (KeyAttribute("PK"), KeyAttribute("SK")), "type", indexes=indexes)


def test_item_costs_a_unit_per_kilobyte_and_bytes_with_overhead() -> None:
    item: Item = {"PK": "P", "SK": "S", "x": "x" * 2000}
    found = measure(1, [item], table())
    assert found == Estimate(1, 1, 2, 0, item_bytes(item) + 100)


def test_each_index_costs_units_for_the_part_that_it_projects() -> None:
    item: Item = {"PK": "P", "SK": "S", "a": "A", "b": 1, "c": "C", "x": "x" * 1500, "y": "y" * 3000}
    whole = item_bytes(item)
    small = item_bytes({name: item[name] for name in ("PK", "SK", "a")})
    some = item_bytes({name: item[name] for name in ("PK", "SK", "c", "x")})
    near = item_bytes({name: item[name] for name in ("PK", "SK", "b")})
    found = measure(1, [item], table(ALL, KEYS, SOME, LOCAL))
    assert (found.table_units, found.index_units) == (5, 5 + 1 + 2 + 1)
    assert found.stored_bytes == whole * 2 + small + some + near + 5 * 100


def test_an_item_without_the_keys_of_an_index_is_not_in_it() -> None:
    found = measure(1, [{"PK": "P", "SK": "S", "a": "A"}], table(ALL, KEYS, SOME, LOCAL))
    assert (found.table_units, found.index_units) == (1, 1)


def test_a_sample_is_scaled_up_and_rounded_up() -> None:
    assert Estimate(3, 6, 9, 3, 300).scaled(10) == Estimate(10, 20, 30, 10, 1000)
    assert Estimate(3, 1, 1, 0, 100).scaled(10) == Estimate(10, 4, 4, 0, 334)
    assert Estimate().scaled(10) == Estimate(rows=10)


def test_costs_are_exact() -> None:
    found = Estimate(table_units=3_000_000, index_units=1_000_000, stored_bytes=2 * 1024**3)
    assert found.write_cost(PRICE) == Decimal("2.5")
    assert found.storage_cost(PRICE) == Decimal("0.5")


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
