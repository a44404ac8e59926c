"""An access pattern asked of both sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from migrator.mapping.patterns.answers import read_params
from migrator.model.edges import QueryPage
from migrator.model.results import Answer
from migrator.model.table import Item
from migrator.output.patterns import answer_data, explanation
from migrator.stages.patterns.question import ReadMeter, ask
from tests import pins
from tests.fakes.source import MemorySource
from tests.fakes.store import FakeStore
from tests.golden.patterns import SCHEMA, checked, items, row
from tests.support_fence import no_fence

PARTS = """
params: {tenant: text, least: optional integer}
query: {key: ["EVENT#{tenant}"], filter: {n: {ge: least}}, descending: true, consistent: true, limit: 5}
returns:
  first: {type: Event, one: true, attributes: [id]}
  all: {type: Event, attributes: [id, n]}
sql: {first: FIRST, all: ALL}
"""
GET = 'params: {tenant: text, id: integer}\nget: {key: ["EVENT#{tenant}", "E#{id:04}"]}\n'
BATCH = """
params: {tenant: text, ids: list of integer}
batch_get: {key: ["EVENT#{tenant}", "E#{ids:04}"], consistent: true}
order: any
"""
SHARDS = 'params: {kind: text}\nquery: {index: ByShard, key: ["S#{kind}#{*|shard:4}"], limit: 2}\n'
NEAR = """
params: {lat: number, lng: number}
query: {index: ByCell, key: ["G#{*lat,lng|geohash:6}"]}
near: {from: [lat, lng], at: [lat, lng], within_m: 12.5}
"""
DAYS = 'params: {since: date, until: date}\nquery: {index: ByDay, key: ["D#{*since,until|date}"]}\n'


def _rows(rows: list[tuple[Any, ...]], params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return rows


def asked(pattern: str, answers: Mapping[str, list[tuple[Any, ...]]], rows: int = 3, **given: str) -> Answer:
    """The answer where SQL answers with `answers`; every look at the clock is 2 ms after the one before."""
    made = checked(pattern)
    found = made.mapping.patterns["p"]
    store = FakeStore(made.mapping.table, no_fence)
    store.put(items(made, *(row(number, lat=0, lng=0) for number in range(rows))))
    source = MemorySource(SCHEMA, {}, {sql: partial(_rows, found) for sql, found in answers.items()})
    ticks = count()
    params = read_params(found, given)
    return ask(made.mapping, found, params, source, store, clock=lambda: next(ticks) * 0.002)


def test_equal_answers_are_the_same() -> None:
    answer = asked(GET, {"SELECT 1": [(2,)]}, tenant="acme", id="2")
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
    assert not asked(GET, {"SELECT 1": rows}, tenant="acme", id="2").same


def test_more_than_one_is_a_difference_where_a_part_has_one() -> None:
    one, two = [(0, 0)], [(1, 1), (0, 0)]
    assert asked(PARTS, {"FIRST": [(0,)], "ALL": one}, rows=1, tenant="acme").same
    answer = asked(PARTS, {"FIRST": [(1,), (0,)], "ALL": two}, rows=2, tenant="acme")
    assert [(part.same, part.several) for part in answer.parts] == [(False, True), (True, False)]
    assert not answer.same


def test_sql_gets_a_list_as_a_list() -> None:
    seen: list[Any] = []
    made = checked(BATCH)

    def answer(params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        seen.append(params["ids"])
        return [(1,)]

    source = MemorySource(SCHEMA, {}, {"SELECT 1": answer})
    found = made.mapping.patterns["p"]
    store = FakeStore(made.mapping.table, no_fence)
    store.put(items(made, row(1)))
    assert ask(made.mapping, found, {"tenant": "acme", "ids": [1, 2]}, source, store).same
    assert seen == [[1, 2]]


@pytest.mark.parametrize(
    ("pattern", "given", "lines"),
    [
        (GET, {"tenant": "acme", "id": "2"}, ['GetItem: PK = "EVENT#acme", SK = "E#0002"']),
        (
            BATCH,
            {"tenant": "acme", "ids": "2,1"},
            [
                "BatchGetItem: 2 key(s); consistent",
                '  PK = "EVENT#acme", SK = "E#0002"',
                '  PK = "EVENT#acme", SK = "E#0001"',
            ],
        ),
        (
            SHARDS,
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
            DAYS,
            {"since": "2026-01-02", "until": "2026-01-01"},
            ["no request: no item can have what the parameters ask for"],
        ),
    ],
)
def test_an_explanation_shows_each_request(pattern: str, given: dict[str, Any], lines: list[str]) -> None:
    answer = asked(pattern, {"SELECT 1": [], "FIRST": [], "ALL": []}, **given)
    found = list(explanation(answer))
    assert found[:-2] == lines
    assert found[-1] == pins.text(parts=len(answer.parts))


def test_an_explanation_says_what_both_sides_took() -> None:
    found = list(explanation(asked(NEAR, {"SELECT 1": []}, lat="0", lng="0")))
    assert len(found) == 9 + 3
    assert found[0] == pins.text("query")
    assert found[-3:] == [
        pins.text("sorted"),
        pins.text("reported"),
        pins.text("trip"),
    ]


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
    answer = asked(BATCH, {"SELECT 1": []}, rows=3, tenant="acme", ids="1,2,77")
    assert units_of(answer) == 3


class Keeping:
    """A store that answers with one page."""

    def __init__(self, page: QueryPage) -> None:
        self.page = page

    def query(self, request: Mapping[str, Any], start: Mapping[str, Any] | None = None) -> QueryPage:
        return self.page


@pytest.mark.parametrize(("index", "units"), [({}, 201.0), ({"IndexName": "ByShard"}, 201.0)])
def test_thousands_of_items_take_as_many_units_as_they_have_bytes(
    index: dict[str, str], units: float
) -> None:
    table = checked(GET).mapping.table
    item: Item = {"PK": "P", "SK": "S", "ShardPK": "A", "ShardSK": "B", "x": "x" * 181}
    meter = ReadMeter(Keeping(QueryPage([item] * 8057, read_units=1.5)))  # type: ignore[arg-type]
    meter.query(index)
    assert meter.units(table) == units


def test_in_an_index_an_item_is_as_large_as_what_is_projected() -> None:
    table = checked(GET).mapping.table
    (index,) = [one for one in table.indexes if one.name == "ByShard"]
    sparse = replace(table, indexes=(replace(index, projection="keys"),))
    item: Item = {"PK": "P", "SK": "S", "ShardPK": "A", "ShardSK": "B", "x": "x" * 9000}
    meter = ReadMeter(Keeping(QueryPage([item])))  # type: ignore[arg-type]
    meter.query({"IndexName": "ByShard"})
    assert meter.units(sparse) == 0.5
    assert meter.units(table) == 1.5
