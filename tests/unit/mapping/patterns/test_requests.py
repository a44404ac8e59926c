"""Access patterns as parameters of DynamoDB's calls."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from migrator.mapping.patterns.answers import read_params
from migrator.mapping.patterns.requests import request_for
from migrator.model.errors import SettingsError
from migrator.model.results import Nearby
from tests import pins
from tests.golden import heart
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


def test_a_list_of_keys_is_a_batch_get_in_the_order_asked_each_once() -> None:
    made = request(BATCH, tenant="a", ids="3,1,3,2")
    assert made.operation == "batch_get"
    (sent,) = made.sent
    assert [key["SK"] for key in sent["Keys"]] == ["E#0003", "E#0001", "E#0002"]
    assert sent["ConsistentRead"] is False


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (100, [100]), (201, [100, 100, 1])])
def test_a_batch_has_a_hundred_keys_at_most(count: int, sizes: list[int]) -> None:
    made = request(BATCH, tenant="a", ids=",".join(map(str, range(count))))
    assert [len(one["Keys"]) for one in made.sent] == sizes


def test_a_filter_has_its_names_and_values_bound_and_leaves_out_what_is_not_set() -> None:
    (sent,) = request(FILTERED, tenant="a", kind="k", since="2026-01-02T03:04:05").sent
    assert sent == {
        "KeyConditionExpression": "#p0 = :p0",
        "FilterExpression": "#f0 = :f0 AND #f1 >= :f1 AND #f2 = :f2 AND #f3 <= :f3",
        "ExpressionAttributeNames": {
            "#p0": "PK",
            "#f0": "kind",
            "#f1": "seen",
            "#f2": "region",
            "#f3": "lat",
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
    assert sent["FilterExpression"] == "#f0 BETWEEN :f0 AND :f1 AND #f1 = :f2 AND #f2 <= :f3"
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


def test_conditions_on_a_sort_key_end_where_a_parameter_is_not_set() -> None:
    (sent,) = request(TENANT, tenant="a", region="eu", kind="k").sent
    assert sent["KeyConditionExpression"] == "#p0 = :p0 AND #p1 = :p1 AND #s0 = :s0"
    with pytest.raises(SettingsError) as caught:
        request(TENANT, tenant="a", region="eu", least="7")
    assert str(caught.value) == pins.text()


def test_a_binary_key_is_bound_as_bytes() -> None:
    pattern = 'params: {d: binary}\nquery: {index: ByDigest, key: ["{d}"]}\nreturns: [PK]'
    (sent,) = request(pattern, d="AAE=").sent
    assert sent["ExpressionAttributeValues"] == {":p0": b"\x00\x01"}


def test_every_shard_is_asked() -> None:
    made = request(SHARDS, kind="k", limit="3")
    asked = [one["ExpressionAttributeValues"][":p0"] for one in made.sent]
    assert asked == ["S#k#0", "S#k#1", "S#k#2", "S#k#3"]
    assert (made.sort, made.descending, made.limit, made.key) == (("ShardSK",), True, 3, ("PK", "SK"))


def test_every_bucket_between_two_times_is_asked() -> None:
    made = request(DAYS, since="2026-02-28T22:00:00", until="2026-03-01T01:00:00")
    assert [one["ExpressionAttributeValues"] for one in made.sent] == [
        {":p0": f"D#{day}", ":s0": "2026-02-28T22:00:00", ":s1": "2026-03-01T01:00:00#~"}
        for day in ("2026-02-28", "2026-03-01")
    ]


def test_a_range_that_nothing_can_lie_in_is_not_asked() -> None:
    # DynamoDB refuses a BETWEEN whose bounds are swapped; SQL answers with nothing.
    assert request(DAYS, since="2026-02-02T22:00:00", until="2026-02-02T01:00:00").sent == ()
    assert request(DAYS, since="2026-02-02T00:00:00", until="2026-02-01T01:00:00").sent == ()


def test_a_place_is_asked_with_the_cells_around_it() -> None:
    made = request(NEAR, lat="35.6586", lng="139.7454", radius="450.5")
    assert made.sent[0]["ExpressionAttributeValues"] == {":p0": "G#xn76gg"}
    assert len(made.sent) == 9
    assert made.near == Nearby((35.6586, 139.7454), ("lat", "lng"), 450.5)
    assert made.limit == 5


WRONG = [
    (BATCH.replace("list", "optional list"), {"tenant": "a"}, "p: a parameter of the key is not set"),
    (GET.replace("{tenant: text", "{tenant: optional text"), {"id": "1"}, "p: a parameter of the key is not set"),
    (GET, {"tenant": "a", "id": "-1"}, "p: a parameter does not fit the key: a negative number cannot be padded to sort (04)"),
    (DAYS, {"since": "2025-01-01", "until": "2026-06-01"}, "p: more than 400 buckets (day) between both times; ask for a shorter time"),
    (DAYS.replace("since: t", "since: optional t"), {"until": "2026-06-01"}, "p: a parameter of the key is not set"),
    (NEAR, {"lat": "91", "lng": "0", "radius": "1"}, "p: the latitude is not between -90 and 90 degrees"),
    (NEAR, {"lat": "1", "lng": "0", "radius": "0"}, "p: the distance must be a number of metres above 0"),
    (NEAR, {"lat": "0", "lng": "0", "radius": "611"}, "p: nine cells of geohash:6 reach 610 m at this latitude, not 611 m; geohash:5 would do"),
    (NEAR, {"lat": "80", "lng": "0", "radius": "500.5"}, "p: nine cells of geohash:6 reach 212 m at this latitude, not 500.5 m; geohash:5 would do"),
    (NEAR, {"lat": "90", "lng": "0", "radius": "500"}, "p: nine cells of geohash:6 reach 0 m at this latitude, not 500 m; no geohash would do"),
    (SHARDS, {"kind": "k", "limit": "0"}, "p: the limit must be a whole number above 0"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "given", "message"), WRONG, ids=[case[2] for case in WRONG])
def test_parameters_that_make_no_request(pattern: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        request(pattern, **given)
    assert str(caught.value) == message


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
    return request_for(checked.mapping, made, read_params(made, params)).sent


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
def test_a_key_that_no_item_can_have_is_not_asked(partition: str, sort: str, is_asked: bool) -> None:
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
def test_a_range_is_asked_as_dynamodb_takes_it_or_not_at_all(
    condition: str, params: dict[str, str], asked: str | None
) -> None:
    query = ranged(condition, **params)
    if asked is None:
        assert query is None
    else:
        assert query is not None
        assert query["KeyConditionExpression"] == " AND ".join(filter(None, ["#p0 = :p0", asked]))


@pytest.mark.parametrize("operator", ["ge", "gt", "le", "lt"])
def test_a_bound_that_is_longer_than_any_key_is_refused(operator: str) -> None:
    with pytest.raises(SettingsError, match="longer than a key can be"):
        ranged(f'{{{operator}: "{{a}}"}}', a="x" * 1025)


def test_a_partition_that_no_item_can_be_in_is_not_asked() -> None:
    assert ranged('{ge: "{a}"}', t="", a="m") is None
    assert ranged('{ge: "{a}"}', t="x" * 2049, a="m") is None


@pytest.mark.parametrize(("low", "high", "is_asked"), [("7", "9", True), ("9", "9", True), ("9", "7", False)])
def test_a_filter_between_reversed_bounds_is_not_asked(low: str, high: str, is_asked: bool) -> None:
    pattern = (
        "params: {t: text, low: integer, high: integer}\n"
        'query: {key: ["EVENT#{t}"], filter: {n: {between: [low, high]}}}'
    )
    assert bool(request(pattern, t="a", low=low, high=high).sent) == is_asked


def test_a_limit_is_never_more_than_dynamodb_takes() -> None:
    assert request(SHARDS, kind="k", limit=str(10**12)).limit == 2**31 - 1
