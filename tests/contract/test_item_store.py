"""What every item store does: the fake one and DynamoDB."""

from __future__ import annotations

import secrets
from decimal import Decimal

import pytest

from migrator.mapping.items.wire import decode_item
from migrator.mapping.model.edges import ItemStore
from migrator.mapping.model.table import Item, KeyAttribute, TableDesign
from tests.support_items import put_items


@pytest.fixture
def design() -> TableDesign:
    return TableDesign(f"T{secrets.token_hex(6)}", (KeyAttribute("PK"), KeyAttribute("SK")), "type")


def item(number: int, **more: object) -> Item:
    return {"PK": f"P#{number % 5}", "SK": f"S#{number:04}", "type": "T", "n": number, **more}  # type: ignore[dict-item]


VALUES: Item = {
    "text": "Ünïcode 🎵 #",
    "empty": "",
    "yes": True,
    "no": False,
    "null": None,
    "int": -(10**37),
    "exact": Decimal("0.1234567890123456789012345678901234567"),
    "tiny": Decimal("1E-130"),
    "huge": Decimal("9.99E+125"),
    "bytes": b"\x00\xff",
    "list": [1, "a", [], {"x": Decimal("1.5")}],
    "map": {"a": {"b": [True, None]}},
}


def test_every_value_comes_back_as_it_went(store: ItemStore) -> None:
    stored = item(1, **VALUES)
    receipt = put_items(store, [stored])
    (found,) = store.get([("P#1", "S#0001")]).values()
    assert found == stored
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in stored.items()
    }
    assert receipt.items == 1
    assert receipt.bytes > 0
    assert receipt.write_units >= 1


def test_a_put_replaces_the_whole_item(store: ItemStore) -> None:
    put_items(store, [item(1, old=1)])
    put_items(store, [item(1, new=2)])
    assert store.get([("P#1", "S#0001")]) == {("P#1", "S#0001"): item(1, new=2)}


def test_of_two_items_of_one_key_the_later_one_stays(store: ItemStore) -> None:
    put_items(store, [item(1, v=1), item(2), item(1, v=2)])
    assert store.get([("P#1", "S#0001")])["P#1", "S#0001"]["v"] == 2


@pytest.mark.parametrize("number", [0, 1, 25, 26, 130])
def test_any_number_of_items_goes_in_and_comes_out(store: ItemStore, number: int) -> None:
    items = [item(one) for one in range(number)]
    assert put_items(store, items).items == number
    keys = [(str(one["PK"]), str(one["SK"])) for one in items]
    found = store.get([*keys, *keys, ("P#9", "none")])
    assert found == dict(zip(keys, items, strict=True))


def test_the_segments_of_a_scan_hold_every_item_once(store: ItemStore) -> None:
    items = [item(number) for number in range(60)]
    put_items(store, items)
    found = [one for segment in range(3) for page in store.scan(segment, 3) for one in page.items]
    assert sorted(str(one["SK"]) for one in found) == [str(one["SK"]) for one in items]


def test_a_scan_resumes_behind_a_key(store: ItemStore) -> None:
    filler = "x" * 60_000
    put_items(store, [item(number, filler=filler) for number in range(60)])
    pages = store.scan(0, 1)
    first = next(pages)
    assert first.next_start is not None
    rest = [one for page in store.scan(0, 1, first.next_start) for one in page.items]
    assert sorted(str(one["SK"]) for one in [*first.items, *rest]) == [
        f"S#{number:04}" for number in range(60)
    ]


def test_scan_returns_each_decoded_item_in_dynamodb_form(store: ItemStore) -> None:
    items = [item(number, **VALUES) for number in range(40)]
    put_items(store, items)
    pages = [page for segment in range(2) for page in store.scan_encoded(segment, 2, decode_item)]
    found = [one for page in pages for one in page.items]
    assert sorted(found, key=lambda one: str(one["SK"])) == items
    first, *_ = pages
    rest = store.scan_encoded(0, 2, len, first.next_start) if first.next_start else iter(())
    whole = sum(len(page.items) for page in store.scan(0, 2))
    assert len(first.items) + sum(len(page.items) for page in rest) == whole


def test_deleted_items_are_gone(store: ItemStore) -> None:
    put_items(store, [item(number) for number in range(30)])
    store.delete([(f"P#{number % 5}", f"S#{number:04}") for number in range(29)])
    assert [one["n"] for page in store.scan(0, 1) for one in page.items] == [29]


def test_only_items_with_an_unchanged_source_are_deleted(store: ItemStore) -> None:
    put_items(
        store, [item(1, _src="order:[1]"), item(2, _src="order:[9]"), item(3), item(4, _src="order:[4]")]
    )
    seen = [item(number, _src=f"order:[{number}]") for number in (1, 2, 3)]
    # The one that is not there is gone, too.
    assert store.delete_own([*seen, item(0, _src="order:[0]")]) == 2
    left = [one["n"] for page in store.scan(0, 1) for one in page.items]
    assert sorted(map(str, left)) == ["2", "3", "4"]


def test_a_query_gives_a_partition_in_order(store: ItemStore) -> None:
    put_items(store, [item(number) for number in (11, 1, 6, 2)])
    request = {
        "KeyConditionExpression": "#p = :p",
        "ExpressionAttributeNames": {"#p": "PK"},
        "ExpressionAttributeValues": {":p": "P#1"},
    }
    page = store.query(request)
    assert [one["n"] for one in page.items] == [1, 6, 11]
    assert page.next_start is None
