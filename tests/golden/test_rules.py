"""One golden case for every rule of the mapping language in use."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from migrator.runtime.errors import RowError
from tests import pins
from tests.golden.heart import entity, facts, items, table
from tests.golden.shop import PLAIN, SCHEMA, made


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


def test_null_in_an_index_key_leaves_the_item_out_of_that_index() -> None:
    assert made('GSI1: ["USER#{user_id}", META]', {}) == {}
    assert made('GSI1: [USERS, "{status}"]', {}) == {}


def test_an_index_pair_with_when_is_sparse() -> None:
    rest = 'GSI1: {key: [ACTIVE, "{id:06}"], when: {status: [pending, processing]}}'
    assert made(rest, {"status": "pending"}) == {"GSI1PK": "ACTIVE", "GSI1SK": "000007"}
    assert made(rest, {"status": "delivered"}) == {}
    assert made(rest, {}) == {}


def test_an_index_key_of_type_number() -> None:
    item = made('ByTotal: ["USER#{user_id}", "{total}"]', {"user_id": 1, "total": Decimal("9.50")})
    assert item == {"ByTotalPK": "USER#1", "score": Decimal("9.50")}


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
      Open: {key: ["ORDER#{id}", META], when: {paid_at: null, status: [P, 1, null]}}
"""
    compiled = entity(text, SCHEMA)
    assert len(items(compiled, {"id": 1, "status": "P"})) == 1
    assert items(compiled, {"id": 1, "status": "None"}) == []
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
    with pins.refused(RowError):
        items(entity(LISTED % "at_most: 2", SCHEMA), row)


@pytest.mark.parametrize(
    ("ttl", "row", "expires"),
    [
        ("expires_at", {"expires_at": "2021-01-01 00:00:00"}, 1609459200),
        ("expires_s", {"expires_s": 1609459200}, 1609459200),
        ("{from: expires_s, unit: milliseconds}", {"expires_s": 1609459200999}, 1609459200),
        ("{from: expires_s, unit: milliseconds, days: 1}", {"expires_s": 1609459200000}, 1609459200 + 86400),
        ("expires_s", {"expires_s": 0}, 0),
        ("{from: expires_s, zero: expired}", {"expires_s": 0}, 0),
        ("{from: expires_s, zero: never}", {"expires_s": 1609459200}, 1609459200),
        ("expires_s", {"expires_s": 7258118399}, 7258118399),
        ("expires_at", {"expires_at": "9999-12-31 00:00:00"}, 253402214400),
        ("{from: created_at, days: 90}", {"created_at": "2021-01-01 00:00:00"}, 1609459200 + 90 * 86400),
    ],
)
def test_a_ttl_is_in_epoch_seconds(ttl: str, row: dict[str, Any], expires: int) -> None:
    assert made(f"ttl: {ttl}", row) == {"expiresAt": expires}


def test_a_row_without_expiry_never_expires() -> None:
    assert made("ttl: expires_at", {}) == {}
    assert made("ttl: {from: expires_s, zero: never}", {"expires_s": 0}) == {}


def test_a_timestamp_without_a_zone_is_in_the_mapping_s_zone() -> None:
    from tests.golden.heart import HEAD

    head = HEAD.replace("mapping: 1", "mapping: 1\nsource: {timezone: Europe/Berlin}")
    compiled = entity(PLAIN % "ttl: expires_at", SCHEMA, head)
    (item,) = items(compiled, {"id": 7, "expires_at": "2021-01-01 01:00:00"})
    assert item["expiresAt"] == 1609459200


def test_a_null_in_a_base_key_refuses_the_row() -> None:
    text = 'entities: {orders: {items: {Order: {key: ["USER#{user_id}", "ORDER#{id:06}"]}}}}'
    with pins.refused(RowError):
        items(entity(text, SCHEMA), {"id": 1})


def test_a_format_takes_numbers_of_38_digits() -> None:
    compiled = entity(
        'entities: {t: {items: {T: {key: [P, "{n:040}"]}}}}',
        facts(table("t", {"id": "integer!", "n": "number"})),
    )
    (item,) = items(compiled, {"id": 1, "n": Decimal(10**37 + 1)})
    assert item["SK"] == "0010000000000000000000000000000000000001"
    narrow = entity(
        'entities: {t: {items: {T: {key: [P, "{n:010}"]}}}}',
        facts(table("t", {"id": "integer!", "n": "number"})),
    )
    with pins.refused(RowError):
        items(narrow, {"id": 1, "n": Decimal(10**37)})
