"""Which root rows a changed row touches, on every source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from migrator.mapping.items.changes import captured_tables
from migrator.mapping.model.edges import RootFinder
from migrator.mapping.model.facts import CollectionPlan, EntityPlan, Lookup
from migrator.mapping.model.mapping import Collection
from migrator.mapping.model.table import decode_key, encode_key
from tests.support_source import (
    CUSTOMER_OF_PURCHASE,
    KEYED,
    LINE,
    LINES,
    NODE,
    PURCHASE,
    REGION_OF_CUSTOMER,
    SHELF_OF_LINE,
    column_of,
    keys_of,
    list_of,
    plan_of,
    slots_at,
)

LINES_ON_SHELVES = list_of("lines", LINE, LINES, ["product", "shelf.label"], joins=[SHELF_OF_LINE])
ORDERS = plan_of(
    PURCHASE,
    ["id", "customer.name", "region.name"],
    [CUSTOMER_OF_PURCHASE, REGION_OF_CUSTOMER],
    [LINES_ON_SHELVES],
    where=((column_of(PURCHASE, "deleted_at"), (None,)),),
)
CLIMB = CollectionPlan(
    Collection("line", "climb", "node", by=()),
    NODE,
    (("parent_id", "id"),),
    slots=slots_at(NODE, (), ["id", "name"]),
)
NODES = plan_of(NODE, ["id"], collections=[CLIMB])


def reached(
    source: RootFinder, plan: EntityPlan, table: str, *values: Any, limit: int = 1000, after: Any = None
) -> list[Any]:
    """Keys that a change of the table's row with these values leads to, by all lookups that are not the root's own."""
    found: list[Any] = []
    for lookup in captured_tables([plan])[table].lookups:
        if not lookup.is_root and len(lookup.values) == len(values):
            keys = source.find_roots(plan, lookup, [values], after, limit)
            found += [decode_key(key) for key in keys]
    return [key[0] if len(key) == 1 else key for key in found]


@pytest.fixture
def finder(source: Any) -> RootFinder:
    finder: RootFinder = source
    return finder


@pytest.mark.parametrize(
    ("table", "values", "ids"),
    [
        ("customer", [1], [10, 50]),
        ("customer", [3], [40]),
        ("customer", [99], []),
        ("customer", [None], []),
        ("region", [1], [10, 50]),
        ("region", [2], [40]),
        ("Purchase Line", [10], [10]),
        ("Purchase Line", [30], [30]),
        ("shelf", ["A", 1], [10]),
        ("shelf", ["B", 1], [20, 50]),
        ("shelf", ["B", None], []),
    ],
)
def test_a_row_leads_to_the_roots_that_are_made_of_it(
    finder: RootFinder, table: str, values: Sequence[Any], ids: list[int]
) -> None:
    assert reached(finder, ORDERS, table, *values) == ids


def test_roots_come_in_pages_each_once(finder: RootFinder) -> None:
    (lookup,) = captured_tables([ORDERS])["shelf"].lookups
    first = finder.find_roots(ORDERS, lookup, [["B", 1]], None, 1)
    second = finder.find_roots(ORDERS, lookup, [["B", 1]], first[-1], 1)
    assert [first, second] == [[encode_key([20])], [encode_key([50])]]
    assert finder.find_roots(ORDERS, lookup, [["B", 1]], second[-1], 1) == []


def test_roots_of_a_key_of_several_columns_come_in_their_order(finder: RootFinder) -> None:
    plan = plan_of(LINE, None, [SHELF_OF_LINE])
    (lookup,) = captured_tables([plan])["shelf"].lookups
    keys = finder.find_roots(plan, lookup, [["B", 1]], None, 10)
    assert [decode_key(key) for key in keys] == [(20, 1), (50, 1), (50, 2)]
    pages: list[list[str]] = [[]]
    while not pages[1:] or pages[-1]:
        pages.append(finder.find_roots(plan, lookup, [["B", 1]], (pages[-1] or [None])[-1], 2))  # type: ignore[list-item]
    assert pages[1:] == [keys[:2], keys[2:], []]


@pytest.mark.parametrize("table", KEYED, ids=lambda table: table.name)
def test_the_roots_own_key_leads_to_it_if_it_is_there(source: Any, table: Any) -> None:
    plan = plan_of(table)
    lookup = captured_tables([plan])[table.real].lookups[0]
    trees = source.read_page(plan, None, None)
    places = [[slot.path for slot in plan.slots].index(one.name) for one in plan.key]
    for tree, key in list(zip(trees, keys_of(plan, trees), strict=True))[:5]:
        assert source.find_roots(plan, lookup, [[tree[place] for place in places]], None, 5) == [key]


@pytest.mark.parametrize("table", KEYED, ids=lambda table: table.name)
def test_values_of_any_kind_are_found_as_the_driver_gives_them(source: Any, table: Any) -> None:
    plan = plan_of(table)
    (slot,) = (slot for slot in plan.slots if slot.path == table.primary_key[-1])
    lookup = Lookup(table.name, (slot.path,), (slot.column.real,))
    trees = source.read_page(plan, None, None)
    place = plan.slots.index(slot)
    keys = dict(zip(keys_of(plan, trees), trees, strict=True))
    value = trees[2][place]
    found = source.find_roots(plan, lookup, [[value]], None, 500)
    assert found == [key for key, tree in keys.items() if tree[place] == value]


@pytest.mark.parametrize("table", KEYED, ids=lambda table: table.name)
def test_many_values_find_the_same_roots_as_each_alone(source: Any, table: Any) -> None:
    plan = plan_of(table)
    lookup = captured_tables([plan])[table.real].lookups[0]
    trees = source.read_page(plan, None, None)
    places = [[slot.path for slot in plan.slots].index(one.name) for one in plan.key]
    many = [[tree[place] for place in places] for tree in trees[1:4]]
    found = source.find_roots(plan, lookup, [*many, [None] * len(places), many[0]], None, 5)
    assert found == keys_of(plan, trees)[1:4]


def test_many_rows_lead_to_each_root_once(finder: RootFinder) -> None:
    (shelves,) = captured_tables([ORDERS])["shelf"].lookups
    found = finder.find_roots(ORDERS, shelves, [["A", 1], ["B", 1], ["Z", 9]], None, 10)
    assert found == [encode_key([number]) for number in (10, 20, 50)]
    (nodes,) = (one for one in captured_tables([NODES])["node"].lookups if one.climb)
    assert finder.find_roots(NODES, nodes, [[2], [4]], None, 10) == finder.find_roots(
        NODES, nodes, [[2]], None, 10
    )
    assert finder.find_roots(NODES, nodes, [[6], [9]], None, 3) == [encode_key([n]) for n in (6, 7, 8)]


# ── trees ──


@pytest.mark.parametrize(
    ("id_", "ids"),
    [
        (1, [2, 3, 4, 5]),
        (2, [3, 4]),
        (4, []),
        (6, [6, 7, 8]),
        (8, []),
        (9, [9]),
        (1100, list(range(1101, 1131))),
        # As deep as a line may be: those further down are refused anyway.
        (1000, list(range(1001, 1102))),
    ],
)
def test_a_row_of_a_tree_leads_to_all_below_it(finder: RootFinder, id_: int, ids: list[int]) -> None:
    assert reached(finder, NODES, "node", id_) == ids


def test_all_below_come_in_pages(finder: RootFinder) -> None:
    assert reached(finder, NODES, "node", 1, limit=2) == [2, 3]
    assert reached(finder, NODES, "node", 1, limit=2, after=encode_key([3])) == [4, 5]
    assert reached(finder, NODES, "node", 6, limit=2, after=encode_key([6])) == [7, 8]


def test_a_row_has_its_ancestors_root_first(source: Any) -> None:
    found = {
        tree[0]: [row[0] for row in tree[1]] for tree in source.read_page(NODES, None, encode_key([1099]))
    }
    assert [found[number] for number in (1, 4, 5)] == [[1], [1, 2, 3, 4], [1, 5]]
    assert found[1002] == [1000, 1001, 1002]
    assert [len(found[number]) for number in (6, 8, 9)] == [101, 101, 101]
