"""Golden cases of values: what a column becomes, what a filter makes of it, and what refuses a row."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from migrator.runtime.errors import RowError
from tests import pins
from tests.golden import heart
from tests.golden.shop import made

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
    ("the JSON document null is NULL, and there", "extra", "null", None),
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
    ("week", "created_at|week", {"created_at": "2021-01-03 23:59:59"}, "2020-W53"),
    ("week of a date", "due|bucket:week", {"due": "2021-01-04"}, "2021-W01"),
    ("quarter", "created_at|quarter", {"created_at": "2021-03-31 23:59:59"}, "2021-Q1"),
    ("quarter of a date", "due|bucket:quarter", {"due": "2021-12-01"}, "2021-Q4"),
    ("the last week first", "due|week|desc", {"due": "2021-01-04"}, "7978-W98"),
    ("year of a date", "due|year", {"due": "2021-01-02"}, "2021"),
    ("epoch", "created_at|epoch", {"created_at": "2021-01-01 00:00:00.9"}, 1609459200),
    ("epoch before 1970 is rounded down", "created_at|epoch", {"created_at": "1969-12-31 23:59:59.5"}, -1),
    ("epoch:ms", "created_at|epoch:ms", {"created_at": "2021-01-01 00:00:00.9876"}, 1609459200987),
    ("epoch:ms of a date", "due|epoch:ms", {"due": "1970-01-02"}, 86400000),
    (
        "epoch:ms before 1970 is rounded down",
        "created_at|epoch:ms",
        {"created_at": "1969-12-31 23:59:59.9991"},
        -1,
    ),
    ("lower is Unicode's", "status|lower", {"status": "STANISŁAW"}, "stanisław"),
    ("upper", "status|upper", {"status": "ab"}, "AB"),
    ("trim takes spaces away, as SQL does", "status|trim", {"status": "  a b \t "}, "a b \t"),
    ("rtrim takes those at the end", "status|rtrim", {"status": "  a b \t  "}, "  a b \t"),
    ("or, with a NULL", "status|or:'n/a'", {}, "n/a"),
    ("or, with a value", "status|or:'n/a'", {"status": ""}, ""),
    ("or with an empty text", "\"x{status|or:''}y\"", {}, "xy"),
    ("map", "status|map:status", {"status": "P"}, "pending"),
    ("text of a number", "total|text", {"total": Decimal("0.10")}, "0.10"),
    ("escape", "status|escape", {"status": "50%#1"}, "50%25%231"),
    ("hash", "status|hash", {"status": "a"}, "ca978112ca1bbdcafac231b39a23dc4d"),
    ("hash of bytes is of the bytes", "picture|hash", {"picture": b"a"}, "ca978112ca1bbdcafac231b39a23dc4d"),
    ("hash of no bytes", "picture|hash", {"picture": b""}, "e3b0c44298fc1c149afbf4c8996fb924"),
    (
        "hash of bytes that are no text",
        "picture|hash",
        {"picture": b"\xff\x00"},
        "ea5dbf9596d187e9500f23e9a6801094",
    ),
    ("shard of bytes", "picture|shard:4", {"picture": b"3"}, "3"),
    ("filters one after the other", "status|or:'A'|lower", {}, "a"),
    ("a template of several values", '"{user_id}/{status}"', {"user_id": 1, "status": "x"}, "1/x"),
    ("braces", '"{{{user_id}}}"', {"user_id": 1}, "{1}"),
    ("padding", '"{user_id:06}"', {"user_id": 42}, "000042"),
    ("padding with decimals", '"{total:09.2f}"', {"total": Decimal("149.90")}, "000149.90"),
    ("json of the document null", "extra|json", {"extra": "null"}, "null"),
    ("or, with the document null", "extra|or:'n/a'|json", {"extra": "null"}, "null"),
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


REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("a number with too many decimals", "keep: [total]", {"total": 0.123}),
    ("text in a numeric column", "keep: [total]", {"total": "abc"}),
    ("text in an integer column", "keep: [user_id]", {"user_id": "abc"}),
    ("a blob in a text column", "keep: [status]", {"status": b"x"}),
    ("NaN", "keep: [weight]", {"weight": float("nan")}),
    ("infinity", "keep: [weight]", {"weight": float("-inf")}),
    ("a timestamp without an end", "keep: [created_at]", {"created_at": "infinity"}),
    ("a timestamp BC", "keep: [created_at]", {"created_at": "0044-03-15 12:00:00 BC"}),
    ("half a surrogate pair", "keep: [status]", {"status": "\ud800"}),
    ("no date", "keep: [created_at]", {"created_at": "yesterday"}),
    ("an unlisted value", "attributes: {s: status|map:status}", {"status": "X"}),
    ("a negative number in a padding", 'GSI1: [A, "{user_id:04}"]', {"user_id": -1}),
    ("a number too wide for its padding", 'GSI1: [A, "{user_id:04}"]', {"user_id": 12345}),
    ("an empty index key", 'GSI1: ["{status}", META]', {"status": ""}),
    ("a sort key over 1,024 bytes", 'GSI1: [A, "{status}"]', {"status": "é" * 513}),
    ("an item over 400 KB", "keep: [status]", {"status": "x" * 410_000}),
    ("a number of 39 digits", "keep: [weight]", {"weight": Decimal("1" * 39)}),
]


@pytest.mark.parametrize(("rest", "row"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_row_is_refused_without_quoting_its_values(rest: str, row: dict[str, Any]) -> None:
    with pins.refused(RowError) as caught:
        made(rest, row)
    assert str(caught.value).startswith("orders")
    for value in row.values():
        assert not isinstance(value, str) or value in ("", "X", "infinity") or value not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [("integer", None, "V#none"), ("integer", 0, "V#0"), ("text", None, "V#none"), ("text", "", "V#")],
)
def test_or_replaces_null_and_neither_zero_nor_an_empty_text(kind: str, value: Any, kept: str) -> None:
    entity = heart.entity(
        """
entities: {note: {items: {Note: {key: ["N#{id}", META], attributes: {kept: "V#{value|or:'none'}"}}}}}
""",
        heart.facts(heart.table("note", {"id": "integer!", "value": kind})),
    )
    (item,) = heart.items(entity, {"id": 1, "value": value})
    assert item["kept"] == kept
