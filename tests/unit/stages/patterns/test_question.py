"""What is asked of a store for a request, and in which order the answer comes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import Any

import pytest

from migrator.commands.query_work import answer_data, explanation
from migrator.mapping.model.edges import QueryPage
from migrator.mapping.model.results import Answer
from migrator.mapping.model.table import CONTROL, TOMBSTONE, Item, KeyAttribute, TableDesign
from migrator.mapping.patterns.params import read_params
from migrator.runtime.values import replace
from migrator.stages.patterns.question import ReadMeter, ask, fetch
from tests import pins
from tests.fakes.source import MemorySource
from tests.fakes.store import FakeStore
from tests.golden.patterns import SCHEMA, checked, items, request, row
from tests.support_fence import no_fence
from tests.support_items import put_items

SHARDS = """
params: {kind: text, least: optional integer, limit: optional integer}
query: {index: ByShard, key: ["S#{kind}#{*|shard:4}"], limit: limit, filter: {n: {ge: least}}}
"""
ONE = """
params: {tenant: text, least: optional integer, limit: optional integer}
query: {key: ["EVENT#{tenant}"], limit: limit, filter: {n: {ge: least}}}
"""
NEAR = """
params: {lat: number, lng: number, limit: optional integer}
query: {index: ByCell, key: ["G#{*lat,lng|geohash:6}"], limit: limit}
near: {from: [lat, lng], at: [lat, lng], within_m: 500}
"""
GET = """
params: {tenant: text, id: integer}
get: {key: ["EVENT#{tenant}", "E#{id:04}"]}
"""
BATCH = """
params: {tenant: text, ids: list of integer}
batch_get: {key: ["EVENT#{tenant}", "E#{ids:04}"]}
"""
DAYS = """
params: {since: timestamp, until: timestamp}
query: {index: ByDay, key: ["D#{*since,until|date}"]}
"""


@pytest.fixture
def store() -> FakeStore:
    made = checked(ONE)
    found = FakeStore(made.mapping.table, no_fence)
    put_items(found, items(made, *(row(number) for number in range(100))))
    return found


def ids(found: list[Item]) -> list[Any]:
    return [item["id"] for item in found]


def test_all_shards_are_merged_by_the_sort_key(store: FakeStore) -> None:
    found = fetch(store, request(SHARDS, kind="k"))
    assert ids(found.items) == list(range(100))
    assert found.requests == len(store.queries) > 100 // 7


def test_they_are_merged_from_the_last_one_on(store: FakeStore) -> None:
    pattern = SHARDS.replace("limit: limit,", "limit: limit, descending: true,")
    assert ids(fetch(store, request(pattern, kind="k")).items) == list(range(99, -1, -1))
    assert ids(fetch(store, request(pattern, kind="k", limit="3")).items) == [99, 98, 97]


def test_a_limit_reads_no_more_than_it_needs(store: FakeStore) -> None:
    found = fetch(store, request(SHARDS, kind="k", limit="5"))
    assert ids(found.items) == [0, 1, 2, 3, 4]
    assert found.requests == 4
    assert {query["Limit"] for query in store.queries} == {5}


def test_a_limit_over_many_pages(store: FakeStore) -> None:
    found = fetch(store, request(ONE, tenant="acme", limit="10"))
    assert ids(found.items) == list(range(10))
    assert [query["Limit"] for query in store.queries] == [10, 3]
    assert ids(fetch(store, request(ONE, tenant="acme", limit="500")).items) == list(range(100))


@pytest.mark.parametrize("pattern", [ONE, SHARDS], ids=["one partition", "shards"])
def test_behind_a_filter_a_limit_gives_as_many_items(store: FakeStore, pattern: str) -> None:
    given = {"tenant": "acme"} if pattern == ONE else {"kind": "k"}
    found = fetch(store, request(pattern, least="60", limit="3", **given))
    assert ids(found.items) == [60, 61, 62]
    assert [query["Limit"] for query in store.queries][-2:] != [3, 3]


def test_a_filter_that_nothing_meets_reads_to_the_end(store: FakeStore) -> None:
    assert fetch(store, request(ONE, tenant="acme", least="1000", limit="3")).items == []


@pytest.fixture
def haunted(store: FakeStore) -> FakeStore:
    """Between every two events two tombstones, and a hundred in front."""
    for item in list(store.items.values()):
        key = f"{item['SK']!s}#"
        put_items(store, [{**item, "SK": f"{key}{number}", "type": TOMBSTONE} for number in range(2)])
    put_items(
        store, [{"PK": "EVENT#acme", "SK": f"A#{number:03}", "type": TOMBSTONE} for number in range(100)]
    )
    put_items(store, [{"PK": "EVENT#acme", "SK": "A#control", "type": CONTROL}])
    return store


@pytest.mark.parametrize("descending", [False, True])
def test_behind_tombstones_a_limit_gives_as_many_items(haunted: FakeStore, *, descending: bool) -> None:
    turned = ONE.replace("limit: limit,", f"limit: limit, descending: {str(descending).lower()},")
    found = fetch(haunted, request(turned, tenant="acme", limit="10"))
    assert ids(found.items) == (list(range(99, 89, -1)) if descending else list(range(10)))
    # However many they are, they do not cost a request each.
    sizes = [query["Limit"] for query in haunted.queries]
    assert sizes == [10 * 2**number for number in range(len(sizes))]


def test_tombstones_are_in_no_answer(haunted: FakeStore) -> None:
    assert ids(fetch(haunted, request(ONE, tenant="acme")).items) == list(range(100))
    assert ids(fetch(haunted, request(ONE, tenant="acme", least="60", limit="3")).items) == [60, 61, 62]
    assert ids(fetch(haunted, request(SHARDS, kind="k", limit="5")).items) == [0, 1, 2, 3, 4]
    for number in (3, 99):
        haunted.items["EVENT#acme", f"E#{number:04}"]["type"] = TOMBSTONE
    assert ids(fetch(haunted, request(BATCH, tenant="acme", ids="7,3,500,99,3")).items) == [7]
    assert fetch(haunted, request(GET, tenant="acme", id="3")).items == []
    assert ids(fetch(haunted, request(GET, tenant="acme", id="4")).items) == [4]


EXPIRING = {"one partition": (ONE, {"tenant": "acme"}), "shards": (SHARDS, {"kind": "k"})}


@pytest.mark.parametrize("named", EXPIRING)
def test_expired_items_are_in_no_answer_and_do_not_use_the_limit(store: FakeStore, named: str) -> None:
    pattern, given = EXPIRING[named]
    asked = replace(request(pattern, limit="10", **given), ttl_attribute="n")
    # An item expires in the very second that its TTL names.
    assert ids(fetch(store, asked, now_s=59).items) == list(range(60, 70))
    assert ids(fetch(store, replace(asked, limit=None), now_s=97.5).items) == [98, 99]
    assert ids(fetch(store, asked, now_s=1e9).items) == []


def test_expired_items_of_requested_keys_are_absent(store: FakeStore) -> None:
    got = replace(request(GET, tenant="acme", id="3"), ttl_attribute="n")
    assert ids(fetch(store, got, now_s=2).items) == [3]
    assert fetch(store, got).items == []
    batch = replace(request(BATCH, tenant="acme", ids="7,3"), ttl_attribute="n")
    assert ids(fetch(store, batch, now_s=3).items) == [7]


def test_a_ttl_that_is_no_number_never_comes(store: FakeStore) -> None:
    asked = replace(request(ONE, tenant="acme"), ttl_attribute="kind")
    assert len(fetch(store, asked).items) == 100


def test_a_batch_keeps_the_requested_order(store: FakeStore) -> None:
    found = fetch(store, request(BATCH, tenant="acme", ids="7,3,500,99,3"))
    assert ids(found.items) == [7, 3, 99]
    assert (found.requests, found.read_units) == (1, 0.5)


def test_a_batch_of_nothing_asks_nothing(store: FakeStore) -> None:
    found = fetch(store, request(BATCH, tenant="acme", ids=""))
    assert (found.items, found.requests) == ([], 0)


def test_days_are_read_one_by_one(store: FakeStore) -> None:
    found = fetch(store, request(DAYS, since="2026-01-02", until="2026-01-03"))
    assert ids(found.items) == list(range(4, 12))
    assert found.requests == 2


def test_the_limit_of_a_place_counts_the_nearest() -> None:
    made = checked(NEAR)
    store = FakeStore(made.mapping.table, no_fence)
    places = [row(number, lat=number * 10**-3, lng=0) for number in range(8, -1, -1)]
    put_items(store, items(made, *places))
    assert ids(fetch(store, request(NEAR, lat="0", lng="0")).items) == [0, 1, 2, 3, 4]
    assert ids(fetch(store, request(NEAR, lat="0.002", lng="0", limit="2")).items) == [2, 1]


class MovingStore(FakeStore):
    """An item that is in two partitions, because it moved between two requests."""

    def query(self, request: Mapping[str, Any], start: Mapping[str, Any] | None = None) -> QueryPage:
        page = super().query(request, start)
        moved: Item = {"PK": "P", "SK": "moved", "ShardSK": "2026", "id": -1}
        return QueryPage([moved, *page.items] if start is None else page.items, page.next_start)


def test_an_item_that_comes_twice_is_given_once(store: FakeStore) -> None:
    moving = MovingStore(store.design, no_fence)
    moving.items = store.items
    assert ids(fetch(moving, request(SHARDS, kind="k")).items) == [-1, *range(100)]
    assert ids(fetch(moving, request(SHARDS, kind="k", limit="3")).items) == [-1, 0, 1]


def test_partitions_without_a_sort_key_come_in_requested_order() -> None:
    store = FakeStore(TableDesign("T", (KeyAttribute("PK"),), "type"), no_fence)
    put_items(store, [{"PK": f"S#{number}", "n": number} for number in range(4)])
    made = request(
        SHARDS.replace("index: ByShard, ", "").replace('"S#{kind}#{*|shard:4}"', '"EVENT#{kind}"'), kind="k"
    )
    sent = [{**made.sent[0], "ExpressionAttributeValues": {":p0": f"S#{number}"}} for number in (2, 0, 3)]
    asked = type(made)("query", tuple(sent), ("PK",))
    assert [item["n"] for item in fetch(store, asked).items] == [2, 0, 3]


PARTS = """
params: {tenant: text, least: optional integer}
query: {key: ["EVENT#{tenant}"], filter: {n: {ge: least}}, descending: true, consistent: true, limit: 5}
returns:
  first: {type: Event, one: true, attributes: [id]}
  all: {type: Event, attributes: [id, n]}
sql: {first: FIRST, all: ALL}
"""
PLAIN_GET = 'params: {tenant: text, id: integer}\nget: {key: ["EVENT#{tenant}", "E#{id:04}"]}\n'
PLAIN_BATCH = """
params: {tenant: text, ids: list of integer}
batch_get: {key: ["EVENT#{tenant}", "E#{ids:04}"], consistent: true}
order: any
"""
PLAIN_SHARDS = 'params: {kind: text}\nquery: {index: ByShard, key: ["S#{kind}#{*|shard:4}"], limit: 2}\n'
PLAIN_NEAR = """
params: {lat: number, lng: number}
query: {index: ByCell, key: ["G#{*lat,lng|geohash:6}"]}
near: {from: [lat, lng], at: [lat, lng], within_m: 12.5}
"""
PLAIN_DAYS = 'params: {since: date, until: date}\nquery: {index: ByDay, key: ["D#{*since,until|date}"]}\n'


def _rows(rows: list[tuple[Any, ...]], params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return rows


def asked(pattern: str, answers: Mapping[str, list[tuple[Any, ...]]], rows: int = 3, **given: str) -> Answer:
    """The answer where SQL answers with `answers`; every look at the clock is 2 ms after the one before."""
    made = checked(pattern)
    found = made.mapping.patterns["p"]
    store = FakeStore(made.mapping.table, no_fence)
    put_items(store, items(made, *(row(number, lat=0, lng=0) for number in range(rows))))
    source = MemorySource(SCHEMA, {}, {sql: partial(_rows, found) for sql, found in answers.items()})
    ticks = count()
    params = read_params(found, given)
    return ask(made.mapping, found, params, source, store, clock=lambda: next(ticks) * 0.002)


def test_equal_answers_are_the_same() -> None:
    answer = asked(PLAIN_GET, {"SELECT 1": [(2,)]}, tenant="acme", id="2")
    assert answer.same
    assert answer_data(answer) == {
        "pattern": "p",
        "same": True,
        "parts": [{"part": "", "attributes": ["id"], "items": [[2]], "rows": [[2]], "same": True}],
        "operation": "GetItem",
        "requests": [{"Key": {"PK": "EVENT#acme", "SK": "E#0002"}, "ConsistentRead": False}],
        "round_trips": 1,
        "read_units": 0.5,
        "reported_read_units": 0.5,
        "took_ms": 2.0,
        "sql_round_trips": 1,
        "sql_took_ms": 2.0,
    }


@pytest.mark.parametrize("rows", [[], [(3,)], [(2,), (3,)]])
def test_other_answers_are_not(rows: list[tuple[Any, ...]]) -> None:
    assert not asked(PLAIN_GET, {"SELECT 1": rows}, tenant="acme", id="2").same


def test_second_row_is_a_difference_if_a_part_has_one() -> None:
    one, two = [(0, 0)], [(1, 1), (0, 0)]
    assert asked(PARTS, {"FIRST": [(0,)], "ALL": one}, rows=1, tenant="acme").same
    answer = asked(PARTS, {"FIRST": [(1,), (0,)], "ALL": two}, rows=2, tenant="acme")
    assert [(part.same, part.several) for part in answer.parts] == [(False, True), (True, False)]
    assert not answer.same


def test_sql_gets_a_list_as_a_list() -> None:
    seen: list[Any] = []
    made = checked(PLAIN_BATCH)

    def answer(params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        seen.append(params["ids"])
        return [(1,)]

    source = MemorySource(SCHEMA, {}, {"SELECT 1": answer})
    found = made.mapping.patterns["p"]
    store = FakeStore(made.mapping.table, no_fence)
    put_items(store, items(made, row(1)))
    assert ask(made.mapping, found, {"tenant": "acme", "ids": [1, 2]}, source, store).same
    assert seen == [[1, 2]]


@pytest.mark.parametrize(
    ("pattern", "given", "lines"),
    [
        (PLAIN_GET, {"tenant": "acme", "id": "2"}, ['GetItem: PK = "EVENT#acme", SK = "E#0002"']),
        (
            PLAIN_BATCH,
            {"tenant": "acme", "ids": "2,1"},
            [
                "BatchGetItem: 2 keys; consistent",
                '  PK = "EVENT#acme", SK = "E#0002"',
                '  PK = "EVENT#acme", SK = "E#0001"',
            ],
        ),
        (
            PLAIN_SHARDS,
            {"kind": "k"},
            [
                *(f'Query on ByShard: ShardPK = "S#k#{shard}"' for shard in range(4)),
                "merged by ShardSK",
                "limit 2",
            ],
        ),
        (
            PARTS,
            {"tenant": "a", "least": "0"},
            ['Query on the table: PK = "EVENT#a"; filter n >= 0; descending; consistent', "limit 5"],
        ),
        (
            PLAIN_DAYS,
            {"since": "2026-01-02", "until": "2026-01-01"},
            ["no request: no item can match these parameters"],
        ),
    ],
)
def test_an_explanation_shows_each_request(pattern: str, given: dict[str, Any], lines: list[str]) -> None:
    answer = asked(pattern, {"SELECT 1": [], "FIRST": [], "ALL": []}, **given)
    found = list(explanation(answer))
    assert found[:-2] == lines
    assert found[-1] == pins.text(parts=len(answer.parts))


def test_explanation_shows_the_cost_of_both_sides() -> None:
    found = list(explanation(asked(PLAIN_NEAR, {"SELECT 1": []}, lat="0", lng="0")))
    assert len(found) == 9 + 3
    assert found[0] == pins.text("query")
    assert found[-3:] == [pins.text("sorted"), pins.text("reported"), pins.text("trip")]


WIDE = """
params: {tenant: text, least: optional integer}
query: {key: ["EVENT#{tenant}"], filter: {n: {ge: least}}, consistent: %s}
"""


def units_of(answer: Answer) -> float:
    assert answer.read_units == answer_data(answer)["read_units"]
    return answer.read_units


def test_read_units_follow_from_the_sizes_of_a_page_together() -> None:
    """Some 50 items of some 150 bytes each: 0.5 units a page of 4 KB, not one an item; twice as many where consistent."""
    eventually = asked(WIDE % "false", {"SELECT 1": []}, rows=50, tenant="acme")
    pages = eventually.table.round_trips
    assert pages > 1
    assert units_of(eventually) == pages * 0.5
    assert units_of(asked(WIDE % "true", {"SELECT 1": []}, rows=50, tenant="acme")) == pages


def test_a_filter_does_not_lower_read_units() -> None:
    whole = asked(WIDE % "false", {"SELECT 1": []}, rows=50, tenant="acme")
    few = asked(WIDE % "false", {"SELECT 1": []}, rows=50, tenant="acme", least="40")
    assert units_of(few) == units_of(whole)
    assert few.dropped == 40
    assert pins.said(list(explanation(few))[-2])
    assert "about" in list(explanation(few))[-2]


def test_each_key_of_a_batch_is_a_read_by_itself() -> None:
    answer = asked(PLAIN_BATCH, {"SELECT 1": []}, rows=3, tenant="acme", ids="1,2,77")
    assert units_of(answer) == 3


class Keeping:
    """A store that answers with one page."""

    def __init__(self, page: QueryPage) -> None:
        self.page = page

    def query(self, request: Mapping[str, Any], start: Mapping[str, Any] | None = None) -> QueryPage:
        return self.page


@pytest.mark.parametrize(("index", "units"), [({}, 201.0), ({"IndexName": "ByShard"}, 201.0)])
def test_thousands_of_items_cost_units_by_their_bytes(index: dict[str, str], units: float) -> None:
    table = checked(PLAIN_GET).mapping.table
    item: Item = {"PK": "P", "SK": "S", "ShardPK": "A", "ShardSK": "B", "x": "x" * 181}
    meter = ReadMeter(Keeping(QueryPage([item] * 8057, read_units=1.5)))  # type: ignore[arg-type]
    meter.query(index)
    assert meter.units(table) == units


def test_item_in_an_index_is_as_large_as_its_projection() -> None:
    table = checked(PLAIN_GET).mapping.table
    (index,) = [one for one in table.indexes if one.name == "ByShard"]
    sparse = replace(table, indexes=(replace(index, projection="keys"),))
    item: Item = {"PK": "P", "SK": "S", "ShardPK": "A", "ShardSK": "B", "x": "x" * 9000}
    meter = ReadMeter(Keeping(QueryPage([item])))  # type: ignore[arg-type]
    meter.query({"IndexName": "ByShard"})
    assert meter.units(sparse) == 0.5
    assert meter.units(table) == 1.5
