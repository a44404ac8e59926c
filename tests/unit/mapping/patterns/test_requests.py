"""Access patterns as parameters of DynamoDB's calls."""

from __future__ import annotations

import json
import textwrap
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from migrator.mapping.model.mapping import Mapping, Param, ParamType, Pattern
from migrator.mapping.model.results import Nearby
from migrator.mapping.model.table import Item, Value
from migrator.mapping.patterns.answers import answer_of, nearest
from migrator.mapping.patterns.params import read_params
from migrator.mapping.patterns.requests import Requests
from migrator.runtime.errors import SettingsError
from tests import pins
from tests.golden import heart
from tests.golden.heart import check, facts, table
from tests.golden.patterns import request

GET = """
params: {tenant: text, id: integer}
get: {key: ["EVENT#{tenant}", "E#{id:04}"], consistent: true}
"""
BATCH = """
params: {tenant: text, ids: list of integer}
batch_get: {key: ["EVENT#{tenant}", "E#{ids:04}"]}
"""
FILTERED = """
params: {tenant: text, kind: optional text, least: optional integer, since: optional timestamp}
query:
  key: ["EVENT#{tenant}"]
  consistent: true
  filter:
    kind: kind
    n: {between: [least, 99]}
    seen: {ge: "{since|iso:s}"}
    region: {const: eu}
    lat: {le: {const: 5}}
    lng: {exists: true}
    gone: {exists: false}
"""
TENANT = """
params: {tenant: text, region: text, kind: optional text, least: optional integer}
query: {index: ByTenant, key: [["{tenant}", "{region}"], ["{kind}", {ge: "{least}"}]]}
"""
SHARDS = """
params: {kind: text, limit: optional integer}
query: {index: ByShard, key: ["S#{kind}#{*|shard:4}"], descending: true, limit: limit}
"""
DAYS = """
params: {since: timestamp, until: timestamp}
query: {index: ByDay, key: ["D#{*since,until|bucket:day}", {between: ["{since|iso:s}", "{until|iso:s}#~"]}]}
"""
NEAR = """
params: {lat: number, lng: number, radius: number}
query: {index: ByCell, key: ["G#{*lat,lng|geohash:6}"], limit: 5}
near: {from: [lat, lng], at: [lat, lng], within_m: radius}
"""


def test_a_whole_key_is_a_get_item() -> None:
    made = request(GET, tenant="acme", id="7")
    assert made.operation == "get"
    assert made.sent == ({"Key": {"PK": "EVENT#acme", "SK": "E#0007"}, "ConsistentRead": True},)


def test_list_of_keys_is_a_batch_get_in_order_without_duplicates() -> None:
    made = request(BATCH, tenant="a", ids="3,1,3,2")
    assert made.operation == "batch_get"
    (sent,) = made.sent
    assert [key["SK"] for key in sent["Keys"]] == ["E#0003", "E#0001", "E#0002"]
    assert sent["ConsistentRead"] is False


def test_list_in_a_partition_key_is_one_query_per_distinct_value() -> None:
    made = request('params: {ids: list of integer}\nquery: {key: ["EVENT#{ids}", {ge: "E#"}]}', ids="3,1,3")
    assert made.operation == "query"
    keys = [one["ExpressionAttributeValues"][":p0"] for one in made.sent]
    assert keys == ["EVENT#3", "EVENT#1"]


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (100, [100]), (201, [100, 100, 1])])
def test_a_batch_has_a_hundred_keys_at_most(count: int, sizes: list[int]) -> None:
    made = request(BATCH, tenant="a", ids=",".join(map(str, range(count))))
    assert [len(one["Keys"]) for one in made.sent] == sizes


def test_filter_binds_its_names_and_values_and_omits_unset_ones() -> None:
    (sent,) = request(FILTERED, tenant="a", kind="k", since="2026-01-02T03:04:05").sent
    assert sent == {
        "KeyConditionExpression": "#p0 = :p0",
        "FilterExpression": "#f0 = :f0 AND #f1 >= :f1 AND #f2 = :f2 AND #f3 <= :f3"
        " AND attribute_exists(#f4) AND attribute_not_exists(#f5)",
        "ExpressionAttributeNames": {
            "#p0": "PK",
            "#f0": "kind",
            "#f1": "seen",
            "#f2": "region",
            "#f3": "lat",
            "#f4": "lng",
            "#f5": "gone",
        },
        "ExpressionAttributeValues": {
            ":p0": "EVENT#a",
            ":f0": "k",
            ":f1": "2026-01-02T03:04:05",
            ":f2": "eu",
            ":f3": 5,
        },
        "ScanIndexForward": True,
        "ConsistentRead": True,
    }


def test_a_parameter_of_a_filter_keeps_its_type() -> None:
    (sent,) = request(FILTERED, tenant="a", least="7").sent
    assert sent["FilterExpression"] == (
        "#f0 BETWEEN :f0 AND :f1 AND #f1 = :f2 AND #f2 <= :f3"
        " AND attribute_exists(#f3) AND attribute_not_exists(#f4)"
    )
    assert sent["ExpressionAttributeValues"] == {":p0": "EVENT#a", ":f0": 7, ":f1": 99, ":f2": "eu", ":f3": 5}


def test_every_attribute_of_an_index_key_is_bound_in_its_type() -> None:
    (sent,) = request(TENANT, tenant="a", region="eu", kind="k", least="7").sent
    assert sent == {
        "IndexName": "ByTenant",
        "KeyConditionExpression": "#p0 = :p0 AND #p1 = :p1 AND #s0 = :s0 AND #s1 >= :s1",
        "ExpressionAttributeNames": {"#p0": "tenant", "#p1": "region", "#s0": "kind", "#s1": "n"},
        "ExpressionAttributeValues": {":p0": "a", ":p1": "eu", ":s0": "k", ":s1": 7},
        "ScanIndexForward": True,
    }


def test_sort_key_conditions_end_at_an_unset_parameter() -> None:
    (sent,) = request(TENANT, tenant="a", region="eu", kind="k").sent
    assert sent["KeyConditionExpression"] == "#p0 = :p0 AND #p1 = :p1 AND #s0 = :s0"
    with pytest.raises(SettingsError) as caught:
        request(TENANT, tenant="a", region="eu", least="7")
    assert str(caught.value) == pins.text()


def test_a_binary_key_is_bound_as_bytes() -> None:
    pattern = 'params: {d: binary}\nquery: {index: ByDigest, key: ["{d}"]}\nreturns: [PK]'
    (sent,) = request(pattern, d="AAE=").sent
    assert sent["ExpressionAttributeValues"] == {":p0": b"\x00\x01"}


def test_every_shard_is_read() -> None:
    made = request(SHARDS, kind="k", limit="3")
    asked = [one["ExpressionAttributeValues"][":p0"] for one in made.sent]
    assert asked == ["S#k#0", "S#k#1", "S#k#2", "S#k#3"]
    assert (made.sort, made.descending, made.limit, made.key) == (("ShardSK",), True, 3, ("PK", "SK"))


def test_every_bucket_between_two_times_is_read() -> None:
    made = request(DAYS, since="2026-02-28T22:00:00", until="2026-03-01T01:00:00")
    assert [one["ExpressionAttributeValues"] for one in made.sent] == [
        {":p0": f"D#{day}", ":s0": "2026-02-28T22:00:00", ":s1": "2026-03-01T01:00:00#~"}
        for day in ("2026-02-28", "2026-03-01")
    ]


def test_empty_range_is_not_queried() -> None:
    # DynamoDB refuses a BETWEEN whose bounds are swapped; SQL answers with nothing.
    assert request(DAYS, since="2026-02-02T22:00:00", until="2026-02-02T01:00:00").sent == ()
    assert request(DAYS, since="2026-02-02T00:00:00", until="2026-02-01T01:00:00").sent == ()


def test_place_is_queried_with_the_cells_around_it() -> None:
    made = request(NEAR, lat="35.6586", lng="139.7454", radius="450.5")
    assert made.sent[0]["ExpressionAttributeValues"] == {":p0": "G#xn76gg"}
    assert len(made.sent) == 9
    assert made.near == Nearby((35.6586, 139.7454), ("lat", "lng"), 450.5)
    assert made.limit == 5


WRONG = [
    (BATCH.replace("list", "optional list"), {"tenant": "a"}, "p: a parameter of the key is not set"),
    (GET.replace("{tenant: text", "{tenant: optional text"), {"id": "1"}, "p: a parameter of the key is not set"),
    (DAYS, {"since": "2025-01-01", "until": "2026-06-01"}, "p: more than 400 buckets (day) between both times; use a shorter range"),
    (DAYS.replace("since: t", "since: optional t"), {"until": "2026-06-01"}, "p: only one bound of DaySK is set; give both or neither, or write |or: in each bound"),
    (NEAR, {"lat": "91", "lng": "0", "radius": "1"}, "p: the latitude is not between -90 and 90 degrees"),
    (NEAR, {"lat": "1", "lng": "0", "radius": "0"}, "p: the distance must be a number of metres above 0"),
    (NEAR, {"lat": "0", "lng": "0", "radius": "611"}, "p: nine cells of geohash:6 reach 610 m at this latitude, not 611 m; geohash:5 is enough"),
    (NEAR, {"lat": "80", "lng": "0", "radius": "500.5"}, "p: nine cells of geohash:6 reach 212 m at this latitude, not 500.5 m; geohash:5 is enough"),
    (NEAR, {"lat": "90", "lng": "0", "radius": "500"}, "p: nine cells of geohash:6 reach 0 m at this latitude, not 500 m; no geohash is enough"),
    (DAYS, {"since": "2026-06-01T10:00:00.5", "until": "2026-06-02"}, "p: the key contains only the second of parameter 'since'; give the start of one"),
    (FILTERED, {"tenant": "a", "since": "2026-06-01T10:00:00.000001"}, "p: the key contains only the second of parameter 'since'; give the start of one"),
    (DAYS.replace("{until|iso:s}", "{until|iso:ms}"), {"since": "2026-06-01", "until": "2026-06-02T10:00:00.0005"}, "p: the key contains only the millisecond of parameter 'until'; give the start of one"),
    (SHARDS, {"kind": "k", "limit": "0"}, "p: the limit must be a whole number above 0"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "given", "message"), WRONG, ids=[case[2] for case in WRONG])
def test_parameters_that_make_no_request(pattern: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        request(pattern, **given)
    assert str(caught.value) == message


def test_single_item_key_may_contain_only_the_second_of_a_time() -> None:
    """Of a bound it is refused: SQL compares all of it."""
    pattern = """
params: {day: date, at: timestamp, id: integer}
query: {index: ByDay, key: ["D#{day|date}", "{at|iso:s}#{id:04}"]}
"""
    given = {"day": "2026-06-01", "at": "2026-06-01T10:00:00.5", "id": "1"}
    assert "2026-06-01T10:00:00#0001" in repr(request(pattern, **given).sent)
    with pytest.raises(SettingsError, match="contains only the second of parameter 'at'"):
        request(pattern.replace('"{at|iso:s}#{id:04}"', '{ge: "{at|iso:s}#{id:04}"}'), **given)


BARE_HEAD = "mapping: 1\ntable: {name: Bare, key: [PK, SK], type: type}\n"
BARE = """
entities:
  t: {items: {T: {key: ["{a}", "{b}"], keep: [n]}}}
access_patterns:
  p:
%s
    returns: [n]
    sql: SELECT n FROM t
"""
BARE_FACTS = heart.facts(heart.table("t", {"a": "text!", "b": "text!", "n": "integer"}, key=("a", "b")))


def bare(pattern: str, **params: str) -> tuple[dict[str, Any], ...]:
    """What is asked of items whose keys are texts of their rows alone."""
    checked = heart.check(BARE % textwrap.indent(pattern, "    "), BARE_FACTS, BARE_HEAD)
    made = checked.mapping.patterns["p"]
    return Requests(checked.mapping, made).of(read_params(made, params)).sent


KEYED = 'params: {t: text, s: text}\nget: {key: ["{t}", "{s}"]}'
KEYED_LIST = 'params: {t: text, s: list of text}\nbatch_get: {key: ["{t}", "{s}"]}'


@pytest.mark.parametrize(
    ("partition", "sort", "is_asked"),
    [
        ("", "x", False),
        ("x", "", False),
        ("x" * 2048, "y" * 1024, True),
        ("x" * 2049, "y", False),
        ("é" * 1025, "y", False),
        ("x", "y" * 1025, False),
        ("x", "é" * 513, False),
    ],
    ids=["no partition", "no sort key", "longest", "long partition", "bytes", "long sort key", "bytes of it"],
)
def test_key_that_no_item_can_have_is_not_queried(partition: str, sort: str, is_asked: bool) -> None:
    assert bool(bare(KEYED, t=partition, s=sort)) == is_asked
    listed = bare(KEYED_LIST, t=partition, s=f'["{sort}", "other"]')
    keys = [key["SK"] for one in listed for key in one["Keys"]]
    assert (sort in keys) == is_asked
    assert ("other" in keys) == (0 < len(partition.encode()) <= 2048)


def ranged(condition: str, **params: str) -> dict[str, Any] | None:
    """The values of the one Query; None where nothing is asked."""
    pattern = f'params: {{t: text, a: text, b: text}}\nquery: {{key: ["{{t}}", {condition}]}}'
    sent = bare(pattern, **({"t": "T", "a": "", "b": ""} | params))
    return sent[0] if sent else None


@pytest.mark.parametrize(
    ("condition", "params", "asked"),
    [
        ('"{a}"', {}, None),
        ('"{a}"', {"a": "x" * 1025}, None),
        ('{begins_with: "{a}"}', {}, ""),
        ('{begins_with: "{a}"}', {"a": "x" * 1025}, None),
        ('{ge: "{a}"}', {}, ""),
        ('{gt: "{a}"}', {}, ""),
        ('{le: "{a}"}', {}, None),
        ('{lt: "{a}"}', {}, None),
        ('{between: ["{a}", "{b}"]}', {}, None),
        ('{between: ["{a}", "{b}"]}', {"b": "m"}, "#s0 <= :s0"),
        ('{between: ["{a}", "{b}"]}', {"a": "m"}, None),
        ('{between: ["{a}", "{b}"]}', {"a": "n", "b": "m"}, None),
        ('{between: ["{a}", "{b}"]}', {"a": "m", "b": "m"}, "#s0 BETWEEN :s0 AND :s1"),
        ('{ge: "{a}"}', {"a": "m"}, "#s0 >= :s0"),
    ],
)
def test_range_is_queried_in_dynamodbs_form_or_not_at_all(
    condition: str, params: dict[str, str], asked: str | None
) -> None:
    query = ranged(condition, **params)
    if asked is None:
        assert query is None
    else:
        assert query is not None
        assert query["KeyConditionExpression"] == " AND ".join(filter(None, ["#p0 = :p0", asked]))


@pytest.mark.parametrize("given", [{"a": "m"}, {"b": "m"}])
@pytest.mark.parametrize(
    "query",
    [
        '{key: ["{t}", {between: ["{a}", "{b}"]}]}',
        '{key: ["{t}"], filter: {n: {between: [a, b]}}}',
    ],
)
def test_a_range_with_one_bound_is_refused(query: str, given: dict[str, str]) -> None:
    pattern = f"params: {{t: text, a: optional text, b: optional text}}\nquery: {query}"
    with pytest.raises(SettingsError):
        bare(pattern, t="T", **given)
    assert bare(pattern, t="T")


@pytest.mark.parametrize(
    ("condition", "number", "asked"),
    [
        ({"begins_with": "N#{n:06.2f}"}, "-1", None),
        *(({"ge": "N#{n:06.2f}"}, n, [f"N#{t}"]) for n, t in [("-1", "000.00"), ("9.991", "010.00"), ("1000", ":")]),
        *(({"gt": "N#{n:06.2f}"}, n, [f"N#{t}"]) for n, t in [("-1", "-"), ("9.991", "009.99"), ("1000", "999.99")]),
        *(({"le": "N#{n:06.2f}#~"}, n, [f"N#{t}#~"]) for n, t in [("-1", "-"), ("9.991", "009.99"), ("1000", "999.99")]),
        *(({"lt": "N#{n:06.2f}"}, n, [f"N#{t}"]) for n, t in [("-0.5", "000.00"), ("9.991", "010.00"), ("1000", ":")]),
        ({"between": ["N#{n:06.2f}", "N#{n:06.2f}~"]}, "9.991", None),
        ({"between": ["N#{n:06.2f}", "N#{m:06.2f}~"]}, "-1", ["N#000.00", "N#005.00~"]),
    ],
)  # fmt: skip
def test_number_beyond_its_format_asks_as_sql_compares(
    condition: Any, number: str, asked: list[str] | None
) -> None:
    pattern = f"params: {{t: text, n: number, m: number}}\nquery: {{key: ['{{t}}', {json.dumps(condition)}]}}"
    sent = bare(pattern, t="T", n=number, m="5")
    values = sent[0]["ExpressionAttributeValues"].items() if sent else []
    assert ([value for place, value in values if ":s" in place] or None) == asked


def test_bound_with_text_after_its_number_is_refused() -> None:
    pattern = 'params: {t: text, n: number}\nquery: {key: ["{t}", {ge: "{n:06.2f}#{t}"}]}'
    assert bare(pattern, t="T", n="9.99")
    with pins.refused(SettingsError):
        bare(pattern, t="T", n="9.991")


def test_key_with_a_value_that_no_row_can_have_is_not_queried() -> None:
    assert request(GET, tenant="a", id="-1").sent == ()
    listed = request(BATCH, tenant="a", ids="1,-1,99999")
    assert listed.sent == request(BATCH, tenant="a", ids="1").sent


@pytest.mark.parametrize("operator", ["ge", "gt", "le", "lt"])
def test_a_bound_that_is_longer_than_any_key_is_refused(operator: str) -> None:
    with pins.refused(SettingsError):
        ranged(f'{{{operator}: "{{a}}"}}', a="x" * 1025)


def test_partition_that_no_item_can_be_in_is_not_queried() -> None:
    assert ranged('{ge: "{a}"}', t="", a="m") is None
    assert ranged('{ge: "{a}"}', t="x" * 2049, a="m") is None


@pytest.mark.parametrize(("low", "high", "is_asked"), [("7", "9", True), ("9", "9", True), ("9", "7", False)])
def test_filter_between_reversed_bounds_is_not_queried(low: str, high: str, is_asked: bool) -> None:
    pattern = (
        "params: {t: text, low: integer, high: integer}\n"
        'query: {key: ["EVENT#{t}"], filter: {n: {between: [low, high]}}}'
    )
    assert bool(request(pattern, t="a", low=low, high=high).sent) == is_asked


def test_a_limit_is_never_more_than_dynamodb_takes() -> None:
    assert request(SHARDS, kind="k", limit=str(10**12)).limit == 2**31 - 1


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
    request = Requests(mapping, pattern(mapping, "recent")).of(params)
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
    (query,) = Requests(mapping, pattern(mapping, "by_status")).of(params).sent
    assert query["KeyConditionExpression"] == "#p0 = :p0"
    assert query["IndexName"] == "GSI1"


def test_parameters_are_of_their_types(mapping: Mapping) -> None:
    given = {"user_id": "42", "since": "2021-01-02T03:04:05", "n": "5"}
    params = read_params(pattern(mapping, "recent"), given)
    assert params == {"user_id": 42, "since": datetime(2021, 1, 2, 3, 4, 5), "n": 5}
    request = Requests(mapping, pattern(mapping, "recent")).of(params)
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
        Requests(mapping, pattern(mapping, "recent")).of(params)


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
def test_parameter_of_another_type_error_shows_the_syntax(type_: ParamType, text: str) -> None:
    pattern = Pattern("p", (Param("one", type_),), "get", ())
    with pytest.raises(SettingsError) as caught:
        read_params(pattern, {"one": text})
    assert pins.said(str(caught.value))
    assert "|text" not in str(caught.value)


def test_a_missing_list_is_named(lists: Pattern) -> None:
    with pytest.raises(SettingsError) as caught:
        read_params(lists, {"user_id": "1"})
    assert str(caught.value) == pins.text()


def test_nearest_item_comes_first_and_placeless_ones_are_absent() -> None:
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


def test_cached_requests_equal_new_ones(mapping: Mapping) -> None:
    found = pattern(mapping, "recent")
    kept = Requests(mapping, found)
    for given in (
        {"user_id": "1"},
        {"user_id": "2", "since": "2021-01-02T03:04:05"},
        {"user_id": "1", "n": "3"},
    ):
        params = read_params(found, given)
        kept.refuse_unfit(params)
        assert kept.of(params) == Requests(mapping, found).of(params)


def test_unfit_parameters_are_refused_without_building_a_request(mapping: Mapping) -> None:
    kept = Requests(mapping, pattern(mapping, "recent"))
    params = read_params(pattern(mapping, "recent"), {"user_id": "1", "n": "0"})
    with pins.refused(SettingsError):
        kept.refuse_unfit(params)
