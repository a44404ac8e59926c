"""Old tables of DynamoDB's do what every source of row trees does: they say what the source in memory says."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from migrator.dynamodb.tables import ReadPage, TableReader
from migrator.mapping.items.changes import captured_tables
from migrator.mapping.model.facts import CollectionPlan, EntityPlan
from migrator.mapping.model.mapping import Collection
from migrator.mapping.model.table import SourceKey, Value
from migrator.runtime.errors import NotCountedError
from migrator.runtime.retry import RateLimit, Retry
from migrator.source.dynamodb.source import DocumentSource
from tests import pins
from tests.fakes.source import MemorySource
from tests.support_documents import declared, documents_of, key_types, old_tables, plan_declared
from tests.support_source import (
    CUSTOMER,
    CUSTOMER_OF_PURCHASE,
    LINE,
    LINES,
    NODE,
    PAIR,
    PURCHASE,
    REGION,
    REGION_OF_CUSTOMER,
    SHELF,
    SHELF_OF_LINE,
    column_of,
    decoded,
    facts_by_hand,
    keys_of,
    list_of,
    number_of,
    plan_of,
    rows_of_the_schema,
    slots_at,
)

READ = (REGION, CUSTOMER, SHELF, PURCHASE, LINE, NODE, PAIR)
INDEXES = {
    "purchase": {"Deleted": {"customer_id": "N", "deleted_at": "S"}, "ByCustomer": {"customer_id": "N"}}
}
"""The first one lacks the purchases that are not deleted."""
ON_SHELVES = list_of(
    "lines", LINE, LINES, ["product", "shelf.label"], joins=[SHELF_OF_LINE], order_by=["product"]
)
OF_SHELF = list_of("lines", LINE, (("house", "house"), ("shelf_no", "number")), ["purchase_id", "line_no"])
CLIMB = CollectionPlan(
    Collection("line", "climb", "node", by=()),
    NODE,
    (("parent_id", "id"),),
    slots=slots_at(NODE, (), ["id", "name"]),
)
PLANS = {
    "all columns": plan_of(PURCHASE),
    "two keys": plan_of(PAIR),
    "parents of parents": plan_of(
        PURCHASE, ["id", "customer.name", "region.name"], [CUSTOMER_OF_PURCHASE, REGION_OF_CUSTOMER]
    ),
    "a parent by two columns": plan_of(LINE, ["purchase_id", "line_no", "shelf.label"], [SHELF_OF_LINE]),
    "children by their key": plan_of(PURCHASE, ["id"], collections=[ON_SHELVES]),
    "children by a scan": plan_of(SHELF, ["house", "number", "label"], collections=[OF_SHELF]),
    "children by an index": plan_of(
        CUSTOMER, ["id"], collections=[list_of("orders", PURCHASE, (("CustomerId", "id"),), ["status", "id"])]
    ),
    "numbers of children": plan_of(
        PURCHASE,
        ["id"],
        collections=[
            *(number_of(kind, LINE, LINES, "amount") for kind in ("sum", "min", "max")),
            number_of("count", LINE, LINES),
        ],
    ),
    "those that are not deleted": plan_of(
        PURCHASE,
        ["id"],
        where=((column_of(PURCHASE, "deleted_at"), (None,)), (column_of(PURCHASE, "paid"), (True,))),
    ),
    "ancestors": plan_of(NODE, ["id"], collections=[CLIMB]),
}


@dataclass
class Both:
    memory: MemorySource
    documents: DocumentSource


@pytest.fixture(scope="module")
def both(dynamodb_url: str) -> Iterator[Both]:
    rows, mark = rows_of_the_schema(), secrets.token_hex(3)
    # DynamoDB takes no empty text in a key.
    rows["pair"] = [row for row in rows["pair"] if row["a"]]
    real = {table.name: f"{mark}-{table.name}" for table in READ}
    with old_tables(dynamodb_url) as tables:
        for table in READ:
            made = documents_of(table, rows[table.real])
            tables.make(real[table.name], key_types(table), made, indexes=INDEXES.get(table.name))
        yield Both(MemorySource(facts_by_hand(), rows), tables.source(list(map(declared, READ)), real))


def _trees(plan: EntityPlan, trees: Any) -> list[Any]:
    return sorted(map(_plain, decoded(plan, trees)), key=repr)


def _plain(value: Any) -> Any:
    """Without the difference of 1 and 1.0, which DynamoDB does not know."""
    return tuple(map(_plain, value)) if isinstance(value, (tuple, list)) else value


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest) -> EntityPlan:
    return PLANS[request.param]


@pytest.mark.parametrize("page_rows", [2, 1000])
def test_pages_together_are_every_row_tree_once(both: Both, plan: EntityPlan, page_rows: int) -> None:
    own = plan_declared(plan)
    bounds: list[SourceKey | None] = [None, *both.documents.page_bounds(own, page_rows), None]
    pages = [both.documents.read_page(own, after, upto) for after, upto in pairwise(bounds)]
    assert (len(pages) > 1) is (page_rows == 2)
    assert _trees(own, [tree for page in pages for tree in page]) == _trees(
        plan, both.memory.read_page(plan, None, None)
    )
    assert both.documents.count(own) == both.memory.count(plan)


def test_row_trees_are_found_by_their_keys(both: Both, plan: EntityPlan) -> None:
    own = plan_declared(plan)
    trees = both.memory.read_page(plan, None, None)
    keys = keys_of(plan, trees)
    assert _trees(own, both.documents.read_rows(own, keys[::2])) == _trees(plan, trees[::2])
    assert both.documents.read_rows(own, []) == []


def test_a_changed_row_leads_to_the_same_roots(both: Both, plan: EntityPlan) -> None:
    here, there = captured_tables([plan]), captured_tables([plan_declared(plan)])
    asked: list[dict[str, Value]] = [
        {"id": 1},
        {"id": 2},
        {"id": 3},
        {"house": "A", "number": 2},
        {"purchase_id": 50},
        {"parent_id": 2},
    ]
    looked = 0
    for (name, table), other in zip(here.items(), there.values(), strict=True):
        for lookup, own in zip(table.lookups, other.lookups, strict=True):
            for values in [tuple(row.values()) for row in asked if len(row) == len(lookup.values)]:
                if isinstance(values[0], str) is not (name == "shelf" or "house" in lookup.values):
                    continue
                found = both.documents.find_roots(plan_declared(plan), own, [values], None, 1000)
                assert sorted(found) == sorted(both.memory.find_roots(plan, lookup, [values], None, 1000)), (
                    lookup
                )
                looked += 1
    assert looked or plan in (PLANS["two keys"], PLANS["a parent by two columns"])


def test_page_ends_at_the_same_place_despite_deletes(dynamodb_url: str) -> None:
    name = f"{secrets.token_hex(3)}-pair"
    plan = plan_declared(plan_of(PAIR))
    rows = [{"a": f"k{number}", "b": number, "n": number} for number in range(40)]
    with old_tables(dynamodb_url) as tables:
        tables.make(name, key_types(PAIR), rows)
        source = tables.source([declared(PAIR)], {"pair": name})
        bounds: list[SourceKey | None] = [None, *source.page_bounds(plan, 5), None]
        before = [source.read_page(plan, after, upto) for after, upto in pairwise(bounds)]
        largest = max(range(len(before)), key=lambda number: len(before[number]))
        gone = before[largest][-1]
        tables.client.delete_item(TableName=name, Key={"a": {"S": gone[0]}, "b": {"N": str(gone[1])}})
        after = [source.read_page(plan, begin, end) for begin, end in pairwise(bounds)]
    before[largest].remove(gone)
    assert after == before


@pytest.mark.parametrize("is_beside", [False, True], ids=["alone", "beside a relay"])
def test_page_with_a_relay_sees_children_written_after_the_last(dynamodb_url: str, is_beside: bool) -> None:
    """Only a scan finds them. Kept from an earlier page, they would be written over newer ones with a later ticket."""
    mark = secrets.token_hex(3)
    real = {table.name: f"{mark}-{table.name}" for table in (SHELF, LINE)}
    plan, rows = plan_declared(PLANS["children by a scan"]), rows_of_the_schema()
    with old_tables(dynamodb_url) as tables:
        for table in (SHELF, LINE):
            tables.make(real[table.name], key_types(table), documents_of(table, rows[table.real]))
        source = tables.source(list(map(declared, (SHELF, LINE))), real)
        source = source.at_primary() if is_beside else source
        before = sum(len(tree[-1]) for tree in source.read_page(plan, None, None))
        shelf = rows["shelf"][0]
        child = {**rows[LINE.real][0], "Line No": 99, "house": shelf["house"], "shelf_no": shelf["number"]}
        tables.put(real[LINE.name], documents_of(LINE, [child]))
        after = sum(len(tree[-1]) for tree in source.read_page(plan, None, None))
    assert after - before == is_beside


@pytest.mark.parametrize("house", ["", "x" * 2049], ids=["empty", "too long"])
def test_parent_that_no_key_can_name_is_missing(dynamodb_url: str, house: str) -> None:
    mark = secrets.token_hex(3)
    real = {table.name: f"{mark}-{table.name}" for table in (SHELF, LINE)}
    plan, rows = plan_declared(PLANS["a parent by two columns"]), rows_of_the_schema()
    lines = [{**row, "house": house} if row["Line No"] == 1 else row for row in rows[LINE.real]]
    with old_tables(dynamodb_url) as tables:
        tables.make(real[SHELF.name], key_types(SHELF), documents_of(SHELF, rows[SHELF.real]))
        tables.make(real[LINE.name], key_types(LINE), documents_of(LINE, lines))
        read = tables.source(list(map(declared, (SHELF, LINE))), real).read_page(plan, None, None)
    assert len(read) == len(lines)
    assert {tree[-1] for tree in read if tree[1] == 1} == {None}
    assert any(tree[-1] for tree in read if tree[1] != 1)


@pytest.mark.parametrize(
    ("name", "is_late"),
    [("all columns", False), ("children by their key", False), ("children by an index", True)],
)
def test_items_found_by_a_global_index_are_read_again(both: Both, name: str, is_late: bool) -> None:
    assert both.documents.goes_by_index(plan_declared(PLANS[name])) == is_late


def test_behind_a_row_the_others_follow(both: Both) -> None:
    plan = plan_declared(plan_of(PAIR))
    keys = keys_of(plan, both.documents.read_page(plan, None, None))
    bounds = list(both.documents.page_bounds(plan, 7, keys[2], None))
    assert bounds[:2] == [keys[9], keys[16]]
    assert keys_of(plan, both.documents.read_page(plan, bounds[0], bounds[1])) == keys[10:17]
    assert len(both.documents.read_page(plan, keys[2], None, 3)) == 3


def test_random_keys_are_keys_of_rows(both: Both) -> None:
    plan = plan_declared(plan_of(PAIR))
    keys = both.documents.random_keys(plan, 10, both.documents.rows_about(plan), 7)
    assert keys == both.documents.random_keys(plan, 10, both.documents.rows_about(plan), 7)
    assert 0 < len(keys) <= 10
    assert len(both.documents.read_rows(plan, keys)) == len(set(keys)) == len(keys)


def test_nothing_is_added_up(both: Both) -> None:
    plan = plan_declared(plan_of(PURCHASE))
    with pins.refused(NotCountedError):
        both.documents.sums(plan, [column_of(declared(PURCHASE), "total")])
    status = column_of(declared(PURCHASE), "status")
    assert both.documents.count_where(plan, [(status, ("P",))]) == 2


class Counting(TableReader):
    """Knows which tables were scanned, a segment at a time."""

    def __init__(self, client: Any, retry: Retry, units: RateLimit) -> None:
        super().__init__(client, retry, units)
        self.scans: list[str] = []

    def scan(self, table: str, *where: Any, **words: Any) -> Iterator[ReadPage]:
        self.scans.append(table)
        return super().scan(table, *where, **words)


@pytest.mark.ministack
def test_child_scan_count_equals_the_scans_of_pages(dynamodb_url: str) -> None:
    plan, rows, mark = plan_declared(PLANS["children by a scan"]), rows_of_the_schema(), secrets.token_hex(3)
    real = {table.name: f"{mark}-{table.name}" for table in (SHELF, LINE)}
    with old_tables(dynamodb_url) as tables:
        for table in (SHELF, LINE):
            tables.make(real[table.name], key_types(table), documents_of(table, rows[table.real]))
        source = tables.source([declared(SHELF), declared(LINE)], real)
        reader = source.finder.reader
        counting = Counting(reader.client, reader.retry, reader.units)
        source.finder.reader, scans = counting, counting.scans
        units = {table.name: source.scan_units(declared(table)) for table in (SHELF, LINE)}
        assert units[LINE.name] > 0
        pages = min(8, len(rows["shelf"]))  # so many segments at most
        beside = (source.at_primary(), pages, "once for each page")
        for rows_of, times, words in ((source, 1, "once, and kept"), beside):
            scans.clear()
            bounds: list[SourceKey | None] = [None, *source.page_bounds(plan, 1), None]
            read = [rows_of.read_page(plan, after, upto) for after, upto in pairwise(bounds)]
            # A page without rows, as there are few in a small table, asks for no children.
            assert scans.count(real[LINE.name]) == min(times, sum(map(bool, read)))
            assert rows_of.read_units([plan], 1) == units[SHELF.name] + times * units[LINE.name]
            (line,) = rows_of.read_words([plan], 1)
            assert words in line
