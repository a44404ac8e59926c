"""What calls read: items counted in a stream, then pages and read units; each figure by hand."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.mapping.capacity.collections import (
    PAGE_BYTES,
    CallReads,
    WaitingReads,
    condition_text,
    reads_of,
)
from migrator.mapping.model.mapping import Mapping
from migrator.mapping.model.table import Item
from migrator.mapping.patterns.requests import Requests
from tests.support_mapping import parse_mapping

MAPPING = """
mapping: 1
table:
  name: Shop
  key: [PK, SK]
  type: entity
  indexes: {GSI1: {key: [GSI1PK, GSI1SK], project: keys}}
entities:
  order:
    items:
      Order: {key: ["C#{customer_id}", "O#{id:03}"], keep: [id, state], GSI1: ["S#{state}", "O#{id:03}"]}
access_patterns:
  all_of: {params: {c: integer}, query: {key: ["C#{c}", {begins_with: "O#"}]}, returns: [id], sql: S}
  first: {params: {c: integer}, query: {key: ["C#{c}"], limit: 2}, returns: [id], sql: S}
  last: {params: {c: integer, n: integer}, query: {key: ["C#{c}"], limit: n, descending: true}, returns: [id], sql: S}
  some: {params: {c: integer, a: integer, b: integer}, query: {key: ["C#{c}", {between: ["O#{a:03}", "O#{b:03}"]}], consistent: true}, returns: [id], sql: S}
  open: {params: {c: integer}, query: {key: ["C#{c}"], limit: 1, filter: {state: {const: open}}}, returns: [id], sql: S}
  known: {params: {c: integer}, query: {key: ["C#{c}"], limit: 1, filter: {state: {exists: true}}}, returns: [id], sql: S}
  lacking: {params: {c: integer}, query: {key: ["C#{c}"], limit: 1, filter: {told: {exists: false}}}, returns: [id], sql: S}
  telling: {params: {c: integer}, query: {key: ["C#{c}"], limit: 1, filter: {told: {exists: true}}}, returns: [id], sql: S}
  by_state: {params: {s: text}, query: {index: GSI1, key: ["S#{s}"]}, returns: [PK], sql: S}
  one: {params: {c: integer, id: integer}, get: {key: ["C#{c}", "O#{id:03}"]}, returns: [id], sql: S}
  several: {params: {c: integer, ids: list of integer}, batch_get: {key: ["C#{c}", "O#{ids:03}"]}, returns: [id], sql: S}
"""
KB = 1024


@pytest.fixture(scope="module")
def mapping() -> Mapping:
    return parse_mapping(MAPPING, "m.yaml").mapping


def item(number: int, state: str = "sent") -> Item:
    key = f"O#{number:03}"
    return {"PK": "C#7", "SK": key, "GSI1PK": f"S#{state}", "GSI1SK": key, "state": state, "id": number}


def reads(mapping: Mapping, pattern: str, sizes: list[int], states: str = "", **params: Any) -> CallReads:
    """Of orders 1, 2, … of these sizes; those in `states` with an o are open. In the index each takes 100 bytes."""
    made = WaitingReads(mapping)
    chosen = mapping.patterns[pattern]
    call = made.call(chosen, Requests(mapping, chosen), params)
    for number, size in enumerate(sizes, 1):
        state = "open" if states[number - 1 : number] == "o" else "sent"
        made.see(item(number, state), {"": size, "GSI1": 100})
    return call.reads()


def test_a_query_adds_up_its_items_and_rounds_up_once(mapping: Mapping) -> None:
    assert reads(mapping, "all_of", [3 * KB, 3 * KB, 3 * KB], c=7) == CallReads(3, 9 * KB, 1, 1.5)


def test_a_query_that_finds_nothing_takes_half_a_unit(mapping: Mapping) -> None:
    assert reads(mapping, "all_of", [3 * KB], c=8) == CallReads(0, 0, 1, 0.5)


def test_a_limit_reads_the_first_or_the_last_items(mapping: Mapping) -> None:
    assert reads(mapping, "first", [KB, 2 * KB, 300 * KB], c=7) == CallReads(2, 3 * KB, 1, 0.5)
    assert reads(mapping, "last", [KB, 2 * KB, 30 * KB], c=7, n=1) == CallReads(1, 30 * KB, 1, 4.0)


def test_range_uses_the_sort_key_and_consistent_reads_cost_twice(mapping: Mapping) -> None:
    assert reads(mapping, "some", [KB, 4 * KB, 4 * KB, KB], c=7, a=2, b=3) == CallReads(2, 8 * KB, 1, 2.0)


def test_filtered_items_are_read_in_pages_that_double_in_size(mapping: Mapping) -> None:
    # Pages of one, two and four items, until one has passed.
    sizes = [5 * KB] * 10
    assert reads(mapping, "open", sizes, "---o", c=7) == CallReads(7, 35 * KB, 3, 1.0 + 1.5 + 2.5)
    assert reads(mapping, "open", sizes, "o", c=7) == CallReads(1, 5 * KB, 1, 1.0)
    for pattern in ("known", "lacking"):
        assert reads(mapping, pattern, sizes, c=7) == CallReads(1, 5 * KB, 1, 1.0)
    assert reads(mapping, "telling", sizes, c=7).items == 10


def test_an_index_is_read_by_the_size_of_its_entries(mapping: Mapping) -> None:
    assert reads(mapping, "by_state", [300 * KB] * 50, "o" * 41, s="open") == CallReads(41, 4_100, 1, 1.0)


def test_a_megabyte_is_a_page(mapping: Mapping) -> None:
    call = reads(mapping, "all_of", [300 * KB] * 7, c=7)
    assert (call.pages, call.units) == (3, 300 * 7 / 4 / 2)


def test_single_items_are_rounded_up_each_found_or_not(mapping: Mapping) -> None:
    sizes = [KB, 5 * KB]
    assert reads(mapping, "one", sizes, c=7, id=2) == CallReads(1, 5 * KB, 1, 1.0)
    assert reads(mapping, "one", sizes, c=7, id=9) == CallReads(0, 0, 1, 0.5)
    assert reads(mapping, "several", sizes, c=7, ids=[1, 2, 9]) == CallReads(2, 6 * KB, 1, 2.0)


def test_items_known_by_their_sizes_alone_cost_the_same(mapping: Mapping) -> None:
    patterns = mapping.patterns
    assert reads_of(patterns["all_of"], [3 * KB] * 3, 1) == CallReads(3, 9 * KB, 1, 1.5)
    assert reads_of(patterns["all_of"], [PAGE_BYTES] * 2, 2) == CallReads(2, 2 * PAGE_BYTES, 2, 256.0)
    assert reads_of(patterns["several"], [KB, 5 * KB], 1) == CallReads(2, 6 * KB, 1, 1.5)
    assert reads_of(patterns["one"], [], 1) == CallReads(0, 0, 1, 0.5)


def test_a_key_condition_reads_as_the_mapping_has_it(mapping: Mapping) -> None:
    assert condition_text(mapping.patterns["some"]) == "C#{c}, between O#{a:03} and O#{b:03}"
    assert condition_text(mapping.patterns["one"]) == "C#{c}, O#{id:03}"
