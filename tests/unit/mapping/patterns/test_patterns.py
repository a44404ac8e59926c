from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pytest

from migrator.mapping.patterns.answers import answer_of, nearest, read_params
from migrator.mapping.patterns.requests import Requests, request_for
from migrator.model.errors import SettingsError
from migrator.model.mapping import Mapping, Param, ParamType, Pattern
from migrator.model.results import Nearby
from migrator.model.table import Item, Value
from tests import pins
from tests.golden.heart import check, facts, table

TEXT = """
entities:
  orders:
    items:
      Order:
        key: ["USER#{user_id}", "ORDER#{created_at|iso:s}#{id:06}"]
        GSI1: ["STATUS#{status}", "{created_at|iso:s}"]
        keep: [id, status]
access_patterns:
  recent:
    params: {user_id: integer, since: optional timestamp, n: optional integer}
    query: {key: ["USER#{user_id}", {between: ["ORDER#{since|iso:s|or:''}", "ORDER#~"]}], descending: true, limit: n}
    returns: [id]
    sql: SELECT 1
  by_status:
    params: {status: text, since: optional timestamp}
    query: {index: GSI1, key: ["STATUS#{status}", {ge: "{since|iso:s}"}]}
    returns: {orders: {type: Order, attributes: [id]}, others: {type: Order, attributes: [status]}}
    sql: {orders: SELECT 1, others: SELECT 2}
"""


@pytest.fixture
def mapping() -> Mapping:
    orders = table(
        "orders", {"id": "integer!", "user_id": "integer!", "status": "text", "created_at": "timestamp!"}
    )
    return check(TEXT, facts(orders)).mapping


def pattern(mapping: Mapping, name: str) -> Pattern:
    return mapping.patterns[name]


def test_a_range_with_its_optional_bound_unset(mapping: Mapping) -> None:
    params = read_params(pattern(mapping, "recent"), {"user_id": "42"})
    request = request_for(mapping, pattern(mapping, "recent"), params)
    assert request.limit is None
    assert request.sent == (
        {
            "KeyConditionExpression": "#p0 = :p0 AND #s0 BETWEEN :s0 AND :s1",
            "ExpressionAttributeNames": {"#p0": "PK", "#s0": "SK"},
            "ExpressionAttributeValues": {":p0": "USER#42", ":s0": "ORDER#", ":s1": "ORDER#~"},
            "ScanIndexForward": False,
        },
    )


def test_a_sort_condition_with_an_unset_parameter_is_left_out(mapping: Mapping) -> None:
    params = read_params(pattern(mapping, "by_status"), {"status": "open"})
    (query,) = request_for(mapping, pattern(mapping, "by_status"), params).sent
    assert query["KeyConditionExpression"] == "#p0 = :p0"
    assert query["IndexName"] == "GSI1"


def test_parameters_are_of_their_types(mapping: Mapping) -> None:
    given = {"user_id": "42", "since": "2021-01-02T03:04:05", "n": "5"}
    params = read_params(pattern(mapping, "recent"), given)
    assert params == {"user_id": 42, "since": datetime(2021, 1, 2, 3, 4, 5), "n": 5}
    request = request_for(mapping, pattern(mapping, "recent"), params)
    assert request.limit == 5
    assert request.sent[0]["ExpressionAttributeValues"][":s0"] == "ORDER#2021-01-02T03:04:05"


def test_every_wrong_parameter_is_named_at_once(mapping: Mapping) -> None:
    with pytest.raises(SettingsError) as caught:
        read_params(pattern(mapping, "recent"), {"user": "1", "since": "soon"})
    text = str(caught.value)
    assert pins.said(text, "mean")
    assert pins.said(text, "missing")
    assert pins.said(text, "parameter")
    assert "soon" not in text


def test_a_limit_must_be_above_0(mapping: Mapping) -> None:
    params = read_params(pattern(mapping, "recent"), {"user_id": "1", "n": "0"})
    with pins.refused(SettingsError):
        request_for(mapping, pattern(mapping, "recent"), params)


def test_an_answer_has_its_parts_by_type(mapping: Mapping) -> None:
    items: list[Item] = [{"type": "Order", "id": 1}, {"type": "User", "id": 2}]
    assert answer_of(mapping, pattern(mapping, "by_status"), items) == {"orders": [(1,)], "others": [(None,)]}


LISTS = """
entities:
  orders: {items: {Order: {key: ["USER#{user_id}", "ORDER#{id:06}"], keep: [id]}}}
access_patterns:
  some:
    params: {user_id: integer, ids: list of integer, names: optional list of text, sums: optional list of number,
      marks: optional list of boolean, digests: optional list of binary}
    batch_get: {key: ["USER#{user_id}", "ORDER#{ids:06}"]}
    returns: [id]
    sql: SELECT 1
"""


@pytest.fixture
def lists() -> Pattern:
    return check(LISTS, facts(table("orders", {"id": "integer!", "user_id": "integer!"}))).mapping.patterns[
        "some"
    ]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("ids", "3, 1,2", [3, 1, 2]),
        ("ids", "[3, 1]", [3, 1]),
        ("ids", "7", [7]),
        ("ids", "", []),
        ("ids", "[]", []),
        ("names", "a, b", ["a", "b"]),
        ("names", '["a,b", " c", ""]', ["a,b", " c", ""]),
        ("sums", "[1.10, 2]", [Decimal("1.10"), Decimal(2)]),
        ("marks", "[true, false]", [True, False]),
        ("digests", "AAE=,/w==", [b"\x00\x01", b"\xff"]),
    ],
)
def test_a_list_is_written_with_commas_or_as_json(
    lists: Pattern, name: str, text: str, expected: list[object]
) -> None:
    assert read_params(lists, {"user_id": "1", "ids": "1", name: text})[name] == expected


@pytest.mark.parametrize("text", ["1,x", "1,,2", "[1, 2", "[[1]]", "[null]", "[1.5]", "[NaN]"])
def test_a_list_of_something_else_is_named(lists: Pattern, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_params(lists, {"user_id": "1", "ids": text})
    assert str(caught.value) == pins.text()


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("number", "NaN"),
        ("number", "twelve"),
        ("timestamp", "infinity"),
        ("timestamp", "0044-03-15 BC"),
        ("timestamp", "yesterday"),
        ("date", "infinity"),
        ("date", "31.5.2024"),
        ("boolean", "jein"),
    ],
    ids=[
        "infinity-numbers",
        "type-number",
        "timestamp-infinity",
        "timestamp-year",
        "write",
        "date-infinity",
        "type-date",
        "boolean-true",
    ],
)
def test_a_parameter_of_another_type_says_how_one_is_written(type_: ParamType, text: str) -> None:
    pattern = Pattern("p", (Param("one", type_),), "get", ())
    with pytest.raises(SettingsError) as caught:
        read_params(pattern, {"one": text})
    assert pins.said(str(caught.value))
    assert "|text" not in str(caught.value)


def test_a_missing_list_is_named(lists: Pattern) -> None:
    with pytest.raises(SettingsError) as caught:
        read_params(lists, {"user_id": "1"})
    assert str(caught.value) == pins.text()


def test_the_nearest_item_comes_first_and_one_without_a_place_not_at_all() -> None:
    near = Nearby((0.0, 0.0), ("lat", "lng"), 1000.0)
    places: dict[str, tuple[Value, Value]] = {
        "far": (0, Decimal("0.008")),
        "b": (0, Decimal("0.001")),
        "a": (Decimal("0.001"), 0),
        "out": (0, 1),
    }
    items: list[Item] = [{"PK": name, "lat": lat, "lng": lng} for name, (lat, lng) in places.items()]
    items += [
        {"PK": "half", "lat": 0},
        {"PK": "text", "lat": "0", "lng": "0"},
        {"PK": "truth", "lat": False, "lng": 0},
    ]
    assert [item["PK"] for item in nearest(items, near, ("PK",))] == ["a", "b", "far"]


def test_requests_that_are_kept_are_those_made_anew(mapping: Mapping) -> None:
    found = pattern(mapping, "recent")
    kept = Requests(mapping, found)
    for given in (
        {"user_id": "1"},
        {"user_id": "2", "since": "2021-01-02T03:04:05"},
        {"user_id": "1", "n": "3"},
    ):
        params = read_params(found, given)
        kept.refuse_unfit(params)
        assert kept.of(params) == request_for(mapping, found, params)


def test_parameters_that_make_no_request_are_refused_without_building_one(mapping: Mapping) -> None:
    kept = Requests(mapping, pattern(mapping, "recent"))
    params = read_params(pattern(mapping, "recent"), {"user_id": "1", "n": "0"})
    with pins.refused(SettingsError):
        kept.refuse_unfit(params)
