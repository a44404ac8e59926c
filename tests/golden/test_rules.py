"""One golden case for every rule of the mapping language in use."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from migrator.errors import RowError
from tests.golden.heart import entity, facts, items, table

ORDERS = table(
    "orders",
    {
        "id": "integer!",
        "user_id": "integer",
        "status": "text",
        "total": "number(2)",
        "created_at": "timestamp",
        "paid_at": "timestamp with zone",
        "due": "date",
        "invoice_no": "text",
        "open": "boolean",
        "token": "uuid",
        "weight": "float",
        "picture": "binary",
        "extra": "json",
        "expires_at": "timestamp",
        "expires_s": "integer",
    },
    references={"user_id": "users.id"},
)
USERS = table(
    "users",
    {"id": "integer!", "name": "text", "region_id": "integer"},
    references={"region_id": "regions.id"},
)
REGIONS = table("regions", {"id": "integer!", "name": "text"})
LINES = table(
    "lines",
    {"order_id": "integer!", "product_id": "integer!", "quantity": "integer", "price": "number(2)"},
    ("order_id", "product_id"),
    references={"order_id": "orders.id", "product_id": "products.id"},
)
PRODUCTS = table("products", {"id": "integer!", "name": "text"})
SCHEMA = facts(ORDERS, USERS, REGIONS, LINES, PRODUCTS)

PLAIN = """
entities:
  orders:
    items:
      Order: {key: ["ORDER#{id}", META], %s}
"""


def made(rest: str, row: dict[str, Any]) -> dict[str, Any]:
    """The one item of an order whose mapping has `rest`, without its key, type and source."""
    (item,) = items(entity(PLAIN % rest, SCHEMA), {"id": 7, **row})
    assert item.pop("PK") == "ORDER#7"
    assert item.pop("SK") == "META"
    assert item.pop("type") == "Order"
    assert item.pop("_src") == "orders:[7]"
    return item


VALUES: list[tuple[str, str, Any, Any]] = [
    ("an integer stays a number", "user_id", 12, 12),
    ("an exact number stays exact", "total", Decimal("1234567890.10"), Decimal("1234567890.10")),
    ("SQLite's float gets its declared decimals back", "total", 0.1 + 0.2, Decimal("0.30")),
    ("a sum blurred by floats is exact again", "total", 2328.59999999996, Decimal("2328.60")),
    ("an integer in a numeric column has the declared decimals", "total", 5, Decimal("5.00")),
    ("a float is its shortest text", "weight", 0.1, Decimal("0.1")),
    ("text is not touched", "status", "  Ünïcode #1 \n", "  Ünïcode #1 \n"),
    ("an empty text stays", "status", "", ""),
    ("true is true", "open", True, True),
    ("SQLite's 0 is false", "open", 0, False),
    (
        "a timestamp is ISO 8601 with 6 decimals",
        "created_at",
        datetime(2021, 1, 2, 3, 4, 5),
        "2021-01-02T03:04:05.000000",
    ),
    ("SQLite's text date is understood", "created_at", "2021-01-02 03:04:05", "2021-01-02T03:04:05.000000"),
    (
        "a timestamp with a zone is in UTC with Z",
        "paid_at",
        datetime(2021, 1, 2, 3, 4, 5, 600, timezone(timedelta(hours=2))),
        "2021-01-02T01:04:05.000600Z",
    ),
    ("a timestamp before 1970", "created_at", "1899-12-31 23:59:59.999999", "1899-12-31T23:59:59.999999"),
    ("a date is ISO 8601", "due", date(2024, 2, 29), "2024-02-29"),
    ("a uuid is lower-case text", "token", UUID(int=10), "00000000-0000-0000-0000-00000000000a"),
    ("bytes stay bytes", "picture", memoryview(b"\x00\xff"), b"\x00\xff"),
    ("JSON becomes a map with exact numbers", "extra", '{"a": [1.10, null]}', {"a": [Decimal("1.10"), None]}),
]


@pytest.mark.parametrize(
    ("column", "raw", "value"), [case[1:] for case in VALUES], ids=[case[0] for case in VALUES]
)
def test_a_value_in_an_attribute(column: str, raw: Any, value: Any) -> None:
    item = made(f"keep: [{column}]", {column: raw})
    assert item == {column: value}
    assert type(item[column]) is type(value)


def test_a_null_is_no_attribute() -> None:
    assert made("keep: [status, total]", {}) == {}


FILTERS: list[tuple[str, str, dict[str, Any], Any]] = [
    ("iso", "created_at|iso", {"created_at": "2021-01-02 03:04:05.5"}, "2021-01-02T03:04:05.500000"),
    (
        "iso of a zone",
        "paid_at|iso",
        {"paid_at": datetime(2021, 1, 1, tzinfo=UTC)},
        "2021-01-01T00:00:00.000000Z",
    ),
    ("iso:s cuts", "created_at|iso:s", {"created_at": "1969-12-31 23:59:59.999999"}, "1969-12-31T23:59:59"),
    ("iso:ms", "created_at|iso:ms", {"created_at": "2021-01-02 03:04:05.5"}, "2021-01-02T03:04:05.500"),
    ("iso:basic", "created_at|iso:basic", {"created_at": "2021-01-02 03:04:05"}, "20210102T030405"),
    ("date", "created_at|date", {"created_at": "2021-01-02 03:04:05"}, "2021-01-02"),
    ("month", "created_at|month", {"created_at": "2021-01-02 03:04:05"}, "2021-01"),
    ("year of a date", "due|year", {"due": "2021-01-02"}, "2021"),
    ("epoch", "created_at|epoch", {"created_at": "2021-01-01 00:00:00.9"}, 1609459200),
    ("epoch before 1970 is rounded down", "created_at|epoch", {"created_at": "1969-12-31 23:59:59.5"}, -1),
    ("lower is Unicode's", "status|lower", {"status": "STANISŁAW"}, "stanisław"),
    ("upper", "status|upper", {"status": "ab"}, "AB"),
    ("or, with a NULL", "status|or:'n/a'", {}, "n/a"),
    ("or, with a value", "status|or:'n/a'", {"status": ""}, ""),
    ("or with an empty text", "\"x{status|or:''}y\"", {}, "xy"),
    ("map", "status|map:status", {"status": "P"}, "pending"),
    ("text of a number", "total|text", {"total": Decimal("0.10")}, "0.10"),
    ("escape", "status|escape", {"status": "50%#1"}, "50%25%231"),
    ("hash", "status|hash", {"status": "a"}, "ca978112ca1bbdcafac231b39a23dc4d"),
    ("filters one after the other", "status|or:'A'|lower", {}, "a"),
    ("a template of several values", '"{user_id}/{status}"', {"user_id": 1, "status": "x"}, "1/x"),
    ("braces", '"{{{user_id}}}"', {"user_id": 1}, "{1}"),
    ("padding", '"{user_id:06}"', {"user_id": 42}, "000042"),
    ("padding with decimals", '"{total:09.2f}"', {"total": Decimal("149.90")}, "000149.90"),
    ("a boolean in a template", '"{open}"', {"open": True}, "true"),
    ("a template with a NULL is NULL", '"{user_id}#{status}"', {"user_id": 1}, None),
]


@pytest.mark.parametrize(
    ("value", "row", "result"), [case[1:] for case in FILTERS], ids=[case[0] for case in FILTERS]
)
def test_a_filter(value: str, row: dict[str, Any], result: Any) -> None:
    assert made(f"attributes: {{x: {value}}}", row).get("x") == result


def test_the_same_row_always_has_the_same_shard() -> None:
    shards = {made('attributes: {x: "{user_id|shard:4}"}', {"user_id": 3})["x"] for _ in range(3)}
    assert shards == {"3"}  # sha256("3") begins with 4e07408562bedb8b, and 0x8b is 3 modulo 4


def test_constants_maps_and_nested_maps() -> None:
    rest = "attributes: {channel: {const: web}, n: {const: 3}, at: {map: {s: status, in: {map: {t: total}}}}}"
    assert made(rest, {"status": "x"}) == {"channel": "web", "n": 3, "at": {"s": "x", "in": {}}}


def test_keep_all_but_some() -> None:
    item = made("keep: {except: [extra, picture, paid_at]}", {"status": "P", "extra": "{}", "total": 1})
    assert item == {"id": 7, "status": "P", "total": Decimal("1.00")}


def test_an_attribute_goes_over_a_kept_column_of_its_name() -> None:
    assert made("keep: [status], attributes: {status: status|map:status}", {"status": "S"}) == {
        "status": "shipped"
    }


def test_an_index_pair() -> None:
    row = {"user_id": 3, "created_at": "2021-01-02 03:04:05"}
    item = made('GSI1: ["USER#{user_id}", "{created_at|iso:s}#{id:06}"]', row)
    assert item == {"GSI1PK": "USER#3", "GSI1SK": "2021-01-02T03:04:05#000007"}


def test_a_null_in_an_index_key_leaves_the_item_out_of_that_index() -> None:
    assert made('GSI1: ["USER#{user_id}", META]', {}) == {}
    assert made('GSI1: [USERS, "{status}"]', {}) == {}


def test_an_index_pair_with_when_is_sparse() -> None:
    rest = 'GSI1: {key: [ACTIVE, "{id:06}"], when: {status: [pending, processing]}}'
    assert made(rest, {"status": "pending"}) == {"GSI1PK": "ACTIVE", "GSI1SK": "000007"}
    assert made(rest, {"status": "delivered"}) == {}
    assert made(rest, {}) == {}


def test_an_index_key_of_type_number() -> None:
    item = made('ByTotal: ["USER#{user_id}", "{total}"]', {"user_id": 1, "total": Decimal("9.50")})
    assert item == {"ByTotalPK": "USER#1", "rank": Decimal("9.50")}


def test_several_items_a_row_and_when() -> None:
    text = """
entities:
  orders:
    attributes: {orderId: id}
    items:
      Order: {key: ["ORDER#{id}", META]}
      ByInvoice: {key: ["INVOICE#{invoice_no}", INVOICE], when: invoice_no}
"""
    both = items(entity(text, SCHEMA), {"id": 1, "invoice_no": "A-1"})
    assert [item["PK"] for item in both] == ["ORDER#1", "INVOICE#A-1"]
    assert [item["orderId"] for item in both] == [1, 1]
    assert [item["PK"] for item in items(entity(text, SCHEMA), {"id": 1})] == ["ORDER#1"]


def test_when_allows_null_by_name() -> None:
    text = """
entities:
  orders:
    items:
      Open: {key: ["ORDER#{id}", META], when: {paid_at: null, status: [P, 1]}}
"""
    compiled = entity(text, SCHEMA)
    assert len(items(compiled, {"id": 1, "status": "P"})) == 1
    assert items(compiled, {"id": 1, "status": "P", "paid_at": datetime(2021, 1, 1, tzinfo=UTC)}) == []


def test_joins_one_after_the_other() -> None:
    text = """
entities:
  orders:
    join: {customer: user_id, region: customer.region_id}
    items:
      Order: {key: ["ORDER#{id}", META], attributes: {who: customer.name, where: region.name}}
"""
    compiled = entity(text, SCHEMA)
    (item,) = items(compiled, {"id": 1, "customer.name": "Ann", "region.name": "EU"})
    assert (item["who"], item["where"]) == ("Ann", "EU")
    (lonely,) = items(compiled, {"id": 1})
    assert "who" not in lonely


def test_collections() -> None:
    text = """
entities:
  orders:
    collect:
      lines: {of: lines, by: order_id, join: {product: product_id}, order_by: [product_id]}
      units: {sum: quantity, of: lines, by: order_id}
      best: {max: price, of: lines, by: order_id}
      count: {count: all, of: lines, by: order_id}
    items:
      Order:
        key: ["ORDER#{id}", META]
        GSI1: [BEST, "{units:08}"]
        attributes:
          units: units
          best: best
          lineCount: count
          lines: {each: lines, attributes: {productId: product_id, name: product.name, price: price}}
"""
    children = [
        {"product_id": 1, "product.name": "Mug", "price": 1.5},
        {"product_id": 2, "price": Decimal("0.10")},
    ]
    row = {"id": 1, "lines": children, "units": Decimal("5"), "best": 1.5, "count": 2}
    (item,) = items(entity(text, SCHEMA), row)
    assert item["GSI1SK"] == "00000005"
    assert (item["units"], item["best"], item["lineCount"]) == (5, Decimal("1.50"), 2)
    assert item["lines"] == [
        {"productId": 1, "name": "Mug", "price": Decimal("1.50")},
        {"productId": 2, "price": Decimal("0.10")},
    ]
    (empty,) = items(entity(text, SCHEMA), {"id": 1, "count": 0})
    assert empty["lines"] == []
    assert empty["lineCount"] == 0
    assert "units" not in empty
    assert "GSI1PK" not in empty


LISTED = """
entities:
  orders:
    collect: {lines: {of: lines, by: order_id, %s}}
    items:
      Order: {key: ["ORDER#{id}", META], attributes: {lines: {each: lines, attributes: {p: product_id}}}}
"""


def test_first_keeps_that_many_on_purpose() -> None:
    row = {"id": 1, "lines": [{"product_id": number} for number in (1, 2, 3)]}
    (item,) = items(entity(LISTED % "first: 2", SCHEMA), row)
    assert item["lines"] == [{"p": 1}, {"p": 2}]


def test_at_most_refuses_a_row_that_has_more() -> None:
    row = {"id": 1, "lines": [{"product_id": number} for number in (1, 2, 3)]}
    with pytest.raises(RowError, match="column lines: more than 2 children"):
        items(entity(LISTED % "at_most: 2", SCHEMA), row)


@pytest.mark.parametrize(
    ("ttl", "row", "expires"),
    [
        ("expires_at", {"expires_at": "2021-01-01 00:00:00"}, 1609459200),
        ("expires_s", {"expires_s": 1609459200}, 1609459200),
        ("{from: created_at, days: 90}", {"created_at": "2021-01-01 00:00:00"}, 1609459200 + 90 * 86400),
    ],
)
def test_a_ttl_is_in_epoch_seconds(ttl: str, row: dict[str, Any], expires: int) -> None:
    assert made(f"ttl: {ttl}", row) == {"expiresAt": expires}


def test_a_row_without_expiry_never_expires() -> None:
    assert made("ttl: expires_at", {}) == {}


def test_a_timestamp_without_a_zone_is_in_the_mapping_s_zone() -> None:
    from tests.golden.heart import HEAD

    head = HEAD.replace("mapping: 1", "mapping: 1\nsource: {timezone: Europe/Berlin}")
    compiled = entity(PLAIN % "ttl: expires_at", SCHEMA, head)
    (item,) = items(compiled, {"id": 7, "expires_at": "2021-01-01 01:00:00"})
    assert item["expiresAt"] == 1609459200


REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("a number with too many decimals", "keep: [total]", {"total": 0.123}, "column total: .*more decimals"),
    ("text in a numeric column", "keep: [total]", {"total": "abc"}, "column total: the value is no number"),
    (
        "text in an integer column",
        "keep: [user_id]",
        {"user_id": "abc"},
        "column user_id: the value is no integer",
    ),
    ("a blob in a text column", "keep: [status]", {"status": b"x"}, "column status: the value is no text"),
    ("NaN", "keep: [weight]", {"weight": float("nan")}, "NaN and infinity"),
    ("infinity", "keep: [weight]", {"weight": float("inf")}, "NaN and infinity"),
    ("half a surrogate pair", "keep: [status]", {"status": "\ud800"}, "not valid Unicode"),
    ("no date", "keep: [created_at]", {"created_at": "yesterday"}, "not a timestamp"),
    ("an unlisted value", "attributes: {s: status|map:status}", {"status": "X"}, "does not list"),
    ("a negative number in a padding", 'GSI1: [A, "{user_id:04}"]', {"user_id": -1}, "negative"),
    ("a number too wide for its padding", 'GSI1: [A, "{user_id:04}"]', {"user_id": 12345}, "wider"),
    ("an empty index key", 'GSI1: ["{status}", META]', {"status": ""}, "GSI1PK is empty"),
    (
        "a sort key over 1,024 bytes",
        'GSI1: [A, "{status}"]',
        {"status": "é" * 513},
        "GSI1SK takes 1026 bytes",
    ),
    ("an item over 400 KB", "keep: [status]", {"status": "x" * 410_000}, "DynamoDB takes 409600 at most"),
    ("a number of 39 digits", "keep: [weight]", {"weight": Decimal("1" * 39)}, "more than 38 digits"),
]


@pytest.mark.parametrize(
    ("rest", "row", "why"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_a_row_is_refused_without_quoting_its_values(rest: str, row: dict[str, Any], why: str) -> None:
    with pytest.raises(RowError, match=why) as caught:
        made(rest, row)
    assert str(caught.value).startswith("orders")
    for value in row.values():
        assert not isinstance(value, str) or value in ("", "X") or value not in str(caught.value)


def test_a_null_in_a_base_key_refuses_the_row() -> None:
    text = 'entities: {orders: {items: {Order: {key: ["USER#{user_id}", "ORDER#{id:06}"]}}}}'
    with pytest.raises(RowError, match=r"orders\.Order: PK has a NULL"):
        items(entity(text, SCHEMA), {"id": 1})
