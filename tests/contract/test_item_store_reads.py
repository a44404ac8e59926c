"""What every item store answers to the requests of access patterns: the fake one and DynamoDB."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import pytest

from migrator.mapping.model.edges import ItemStore
from migrator.mapping.model.table import Index, Item, KeyAttribute, TableDesign
from migrator.runtime.errors import TargetError
from tests.support_items import put_items

TENANT, REGION, CREATED = KeyAttribute("tenant"), KeyAttribute("region"), KeyAttribute("created", "number")


@pytest.fixture
def design() -> TableDesign:
    return TableDesign(
        f"T{secrets.token_hex(6)}",
        (KeyAttribute("PK"), KeyAttribute("SK")),
        "type",
        indexes=(
            Index("ByTenant", (TENANT, REGION), (KeyAttribute("kind"), CREATED)),
            Index("ByCreated", (KeyAttribute("PK"),), (CREATED,), local=True),
            Index("ByDigest", (KeyAttribute("digest", "binary"),)),
        ),
    )


def item(number: int, **more: Any) -> Item:
    return {
        "PK": f"P#{number % 2}",
        "SK": f"S#{number:03}",
        "type": "T",
        "n": number,
        "tenant": "acme",
        "region": "eu" if number % 2 else "us",
        "kind": "a" if number < 10 else "b",
        "created": 1000 - number,
        "digest": bytes([number]),
        **more,
    }


def query(condition: str, values: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """`condition` with the names of attributes in it, such as `PK = :p`."""
    words = ("PK", "SK", "tenant", "region", "kind", "created", "digest", "n")
    text = f"{condition} {more.get('FilterExpression', '')}"
    names = {f"#{word}": word for word in words if f"#{word}" in text}
    return {
        "KeyConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
        **more,
    }


def numbers(store: ItemStore, request: Mapping[str, Any]) -> list[Any]:
    """All pages."""
    found: list[Any] = []
    page = store.query(request)
    found += [one["n"] for one in page.items]
    while page.next_start is not None:
        page = store.query(request, page.next_start)
        found += [one["n"] for one in page.items]
    return found


@pytest.mark.parametrize(
    ("condition", "values", "expected"),
    [
        ("#SK = :s", {":s": "S#003"}, [3]),
        ("begins_with(#SK, :s)", {":s": "S#01"}, [11, 13, 15, 17, 19]),
        ("#SK BETWEEN :s AND :t", {":s": "S#004", ":t": "S#007"}, [5, 7]),
        ("#SK >= :s", {":s": "S#017"}, [17, 19]),
        ("#SK > :s", {":s": "S#017"}, [19]),
        ("#SK <= :s", {":s": "S#003"}, [1, 3]),
        ("#SK < :s", {":s": "S#003"}, [1]),
    ],
)
def test_a_condition_on_the_sort_key(
    store: ItemStore, condition: str, values: dict[str, str], expected: list[int]
) -> None:
    put_items(store, [item(number) for number in range(20)])
    request = query(f"#PK = :p AND {condition}", {":p": "P#1", **values})
    assert numbers(store, request) == expected
    assert numbers(store, {**request, "ScanIndexForward": False}) == expected[::-1]


def test_pages_follow_each_other_up_to_the_end(store: ItemStore) -> None:
    put_items(store, [item(number) for number in range(20)])
    assert numbers(store, query("#PK = :p", {":p": "P#0"}, Limit=3)) == list(range(0, 20, 2))


@pytest.mark.parametrize("forward", [True, False])
def test_a_query_resumes_behind_an_item_that_may_be_gone(store: ItemStore, *, forward: bool) -> None:
    put_items(store, [item(number) for number in range(20)])
    request = query("#PK = :p", {":p": "P#0"}, Limit=3, ScanIndexForward=forward)
    for gone in (False, True):
        if gone:
            store.delete([("P#0", "S#008")])
        start = store.start_after(request, {"PK": "P#0", "SK": "S#008"})
        expected = [10, 12, 14] if forward else [6, 4, 2]
        assert [one["n"] for one in store.query(request, start).items] == expected


@pytest.mark.parametrize(
    ("index", "condition", "expected"),
    [("ByTenant", {":t": "acme", ":r": "us"}, [2, 0, 12, 10]), ("ByCreated", {":p": "P#0"}, [2, 0])],
)
def test_a_query_of_an_index_resumes_behind_an_item(
    store: ItemStore, index: str, condition: dict[str, Any], expected: list[int]
) -> None:
    put_items(store, [item(number) for number in range(14)])
    words = {":t": "#tenant = :t", ":r": "#region = :r", ":p": "#PK = :p"}
    asked = query(" AND ".join(words[name] for name in condition), condition, IndexName=index)
    keys = ("PK", "SK", "created", *(("tenant", "region", "kind") if index == "ByTenant" else ()))
    start = store.start_after(asked, {name: item(4)[name] for name in keys})
    assert [one["n"] for one in store.query(asked, start).items] == expected


def test_filter_runs_after_the_limit_so_a_page_can_be_empty(store: ItemStore) -> None:
    put_items(store, [item(number) for number in range(20)])
    request = query("#PK = :p", {":p": "P#0", ":n": 16}, FilterExpression="#n >= :n", Limit=2)
    first = store.query(request)
    assert first.items == []
    assert first.next_start is not None
    assert first.read_units > 0
    assert numbers(store, request) == [16, 18]


def test_index_of_several_attributes_orders_by_each(store: ItemStore) -> None:
    put_items(store, [item(number) for number in range(14)])
    values = {":t": "acme", ":r": "us"}
    asked = query("#tenant = :t AND #region = :r", values, IndexName="ByTenant")
    assert numbers(store, asked) == [8, 6, 4, 2, 0, 12, 10]
    condition = "#tenant = :t AND #region = :r AND #kind = :k AND #created BETWEEN :s AND :u"
    of_a_kind = {**values, ":k": "a", ":s": 994, ":u": 998}
    assert numbers(store, query(condition, of_a_kind, IndexName="ByTenant")) == [6, 4, 2]


def test_local_index_is_read_consistently_and_a_global_one_never(store: ItemStore) -> None:
    put_items(store, [item(number) for number in range(6)])
    local = query("#PK = :p", {":p": "P#0"}, IndexName="ByCreated", ConsistentRead=True)
    assert numbers(store, local) == [4, 2, 0]
    values = {":t": "acme", ":r": "us"}
    asked = query("#tenant = :t AND #region = :r", values, IndexName="ByTenant", ConsistentRead=True)
    with pytest.raises(TargetError):
        store.query(asked)


def test_a_binary_key_is_read_by_bytes(store: ItemStore) -> None:
    put_items(store, [item(number) for number in range(6)])
    assert numbers(store, query("#digest = :d", {":d": b"\x03"}, IndexName="ByDigest")) == [3]


@pytest.mark.parametrize("consistent", [True, False])
def test_one_item_by_its_key(store: ItemStore, consistent: bool) -> None:
    put_items(store, [item(number) for number in range(3)])
    found = store.get_item({"Key": {"PK": "P#1", "SK": "S#001"}, "ConsistentRead": consistent})
    assert found.items == [item(1)]
    assert (found.next_start, found.requests) == (None, 1)
    assert found.read_units > 0
    assert store.get_item({"Key": {"PK": "P#1", "SK": "S#002"}, "ConsistentRead": consistent}).items == []


def test_a_hundred_items_by_their_keys(store: ItemStore) -> None:
    put_items(store, [item(number) for number in range(90)])
    keys = [{"PK": f"P#{number % 2}", "SK": f"S#{number:03}"} for number in range(100)]
    found = store.batch_get({"Keys": keys, "ConsistentRead": True})
    assert sorted(one["n"] for one in found.items) == list(range(90))  # type: ignore[type-var]
    assert found.requests >= 1
    assert found.read_units >= 0  # an emulator may leave out what a batch consumed


@pytest.mark.parametrize("numbers", [list(range(101)), [1, 1]], ids=["too many", "twice"])
def test_keys_that_dynamodb_refuses(store: ItemStore, numbers: list[int]) -> None:
    keys = [{"PK": "P#1", "SK": f"S#{number:03}"} for number in numbers]
    with pytest.raises(TargetError):
        store.batch_get({"Keys": keys, "ConsistentRead": False})
