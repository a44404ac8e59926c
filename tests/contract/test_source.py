"""What every source of row trees does: the one in memory, SQLite, PostgreSQL and MariaDB alike."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from migrator.mapping.model.edges import Database, KeyCounts, QueryCall, Source
from migrator.mapping.model.facts import Column, EntityPlan, ForeignKey, Kind, TableFacts
from migrator.mapping.model.table import SourceKey, encode_key
from migrator.runtime.values import replace
from tests.support_source import (
    CUSTOMER_OF_PURCHASE,
    KEYED,
    LINE,
    LINES,
    PAIR,
    PURCHASE,
    REGION_OF_CUSTOMER,
    SHELF_OF_LINE,
    TABLES,
    TRIPLE,
    column_of,
    decoded,
    keys_of,
    list_of,
    number_of,
    plan_of,
    rows_of_the_schema,
)
from tests.support_source_databases import OUR_SELECTS, PRODUCT_SQL


def read_all(source: Source, plan: EntityPlan, page_rows: int) -> list[tuple[Any, ...]]:
    """The trees of all pages, one after the other."""
    bounds: list[SourceKey | None] = [None, *source.page_bounds(plan, page_rows), None]
    pages = [source.read_page(plan, after, upto) for after, upto in pairwise(bounds)]
    assert all(len(page) == page_rows for page in pages[:-1])
    assert len(pages[-1]) < page_rows
    return decoded(plan, [tree for page in pages for tree in page])


# ── pages ──


@pytest.mark.parametrize("table", KEYED, ids=lambda table: table.name)
def test_pages_of_any_size_hold_every_row_once_in_one_order(source: Source, table: Any) -> None:
    plan = plan_of(table, ["n", *table.primary_key])
    whole = decoded(plan, source.read_page(plan, None, None))
    assert sorted(tree[0] for tree in whole) == list(range(len(rows_of_the_schema()[table.real])))
    assert len(whole) == source.count(plan)
    for page_rows in (1, 2, 3, 7):
        assert read_all(source, plan, page_rows) == whole


def test_a_limit_cuts_the_page_and_its_collections(source: Source) -> None:
    plan = plan_of(PURCHASE, ["id"], collections=[list_of("lines", LINE, LINES, ["line_no"])])
    found = decoded(plan, source.read_page(plan, encode_key([10]), None, limit=2))
    assert found == [(20, ((1,),)), (30, ())]


def test_an_empty_range_is_an_empty_page(source: Source) -> None:
    plan = plan_of(PURCHASE, ["id"], collections=[list_of("lines", LINE, LINES, ["line_no"])])
    assert source.read_page(plan, encode_key([50]), None) == []
    assert list(source.page_bounds(plan, 6)) == []


def test_a_key_may_be_other_columns_than_the_primary_key(source: Source) -> None:
    key = (column_of(PAIR, "n"),)
    plan = plan_of(PAIR, ["n"], key=key)
    assert [tree[0] for tree in read_all(source, plan, 7)] == list(range(len(rows_of_the_schema()["pair"])))


def test_a_row_without_a_key_is_counted_and_on_no_page(source: Source) -> None:
    plan = plan_of(
        PURCHASE, ["id", "customer_id"], key=(column_of(PURCHASE, "customer_id"), PURCHASE.columns[0])
    )
    assert source.rows_without_key(plan) == 1
    assert sorted(tree[0] for tree in read_all(source, plan, 3)) == [10, 20, 40, 50]
    assert source.rows_without_key(plan_of(PURCHASE)) == 0


@pytest.mark.parametrize("table", KEYED, ids=lambda table: table.name)
def test_source_distinguishes_keys_by_value_and_as_text(source: Source, table: Any) -> None:
    plan = plan_of(table)
    rows = source.count(plan)
    assert source.key_counts(plan) == KeyCounts(rows, rows, rows)


def test_rows_that_share_a_key_are_counted(source: Source) -> None:
    by_customer = plan_of(PURCHASE, ["customer_id"], key=(column_of(PURCHASE, "customer_id"),))
    found = source.key_counts(by_customer)
    assert found.values == found.texts < found.rows < source.count(by_customer)


# ── rows by their keys ──


@pytest.mark.parametrize("table", KEYED, ids=lambda table: table.name)
def test_rows_are_found_by_their_keys(source: Source, table: Any) -> None:
    plan = plan_of(table)
    everything = source.read_page(plan, None, None)
    found = source.read_rows(plan, keys_of(plan, everything[::2]))
    assert sorted(decoded(plan, found), key=repr) == sorted(decoded(plan, everything[::2]), key=repr)


def test_a_key_that_is_not_there_is_left_out(source: Source) -> None:
    plan = plan_of(TRIPLE, ["n", *TRIPLE.primary_key])
    there = keys_of(plan, source.read_page(plan, None, None))[3]
    missing = there.replace("2024", "1999")
    assert len(source.read_rows(plan, [missing, there])) == 1
    assert source.read_rows(plan, []) == []


def test_more_keys_than_one_statement_takes_are_found(source: Source) -> None:
    plan = plan_of(PAIR)
    keys = keys_of(plan, source.read_page(plan, None, None))
    strangers = [encode_key(["stranger", number]) for number in range(450)]
    assert len(source.read_rows(plan, strangers + keys)) == len(keys)


def test_rows_by_keys_have_their_collections(source: Source) -> None:
    plan = plan_of(PURCHASE, ["id"], collections=[list_of("lines", LINE, LINES, ["product"])])
    found = decoded(plan, source.read_rows(plan, [encode_key([10]), encode_key([30])]))
    assert sorted(found) == [(10, (("plum",), ("pear",), ("fig",))), (30, ())]


# ── joins ──


def test_a_join_continues_to_the_parents_parent(source: Source) -> None:
    joins = [CUSTOMER_OF_PURCHASE, REGION_OF_CUSTOMER]
    plan = plan_of(PURCHASE, ["region.name", "id", "customer.name"], joins)
    assert decoded(plan, source.read_page(plan, None, None)) == [
        ("Nord", 10, "Ada"),
        (None, 20, "Bob"),
        (None, 30, None),
        ("Süd", 40, None),
        ("Nord", 50, "Ada"),
    ]


def test_a_composite_foreign_key_joins_by_all_its_columns(source: Source) -> None:
    plan = plan_of(LINE, ["purchase_id", "line_no", "shelf.label"], [SHELF_OF_LINE])
    found = decoded(plan, source.read_page(plan, None, None))
    assert [tree[2] for tree in found] == ["top", "low", None, "top", None, "top", "top"]


def test_values_keep_their_declared_kind(source: Source) -> None:
    plan = plan_of(PURCHASE, ["id", "total", "paid", "deleted_at", "notes"])
    first, second, third = decoded(plan, source.read_page(plan, None, encode_key([30])))
    assert first == (10, Decimal("10.10"), True, None, {"a": [1, None, "ä"]})
    assert second[1:3] == (Decimal("0.30"), False)
    assert third == (30, None, None, None, None)


# ── collections ──


def test_children_come_in_the_requested_order(source: Source) -> None:
    lines = list_of("lines", LINE, LINES, ["line_no", "product", "amount"])
    names = list_of("names", LINE, LINES, ["product"], order_by=["product"])
    plan = plan_of(PURCHASE, ["id"], collections=[lines, names])
    found = {tree[0]: tree[1:] for tree in decoded(plan, source.read_page(plan, None, None))}
    assert found[10] == (
        ((1, "plum", Decimal("2.20")), (2, "pear", Decimal("1.10")), (3, "fig", None)),
        (("fig",), ("pear",), ("plum",)),
    )
    assert found[30] == ((), ())


def test_equal_children_follow_their_key(source: Source) -> None:
    lines = list_of("lines", LINE, LINES, ["line_no"], order_by=["product"])
    plan = plan_of(PURCHASE, ["id"], collections=[lines])
    assert decoded(plan, source.read_rows(plan, [encode_key([50])])) == [(50, ((1,), (2,)))]


def test_children_have_own_parents_and_are_ordered_by_them(source: Source) -> None:
    lines = list_of(
        "lines", LINE, LINES, ["shelf.label", "line_no"], joins=[SHELF_OF_LINE], order_by=["shelf.label"]
    )
    plan = plan_of(PURCHASE, ["id"], collections=[lines], where=((column_of(PURCHASE, "id"), (20, 40, 50)),))
    found = decoded(plan, source.read_page(plan, None, None))
    assert found == [(20, (("top", 1),)), (40, ((None, 1),)), (50, (("top", 1), ("top", 2)))]


def test_aggregates_of_nothing_are_null_and_a_count_is_zero(source: Source) -> None:
    kinds = [number_of(kind, LINE, LINES, "amount") for kind in ("sum", "min", "max", "count")]
    plan = plan_of(PURCHASE, ["id"], collections=[*kinds, number_of("count", LINE, LINES)])
    found = {tree[0]: tree[1:] for tree in decoded(plan, source.read_page(plan, None, None))}
    assert found == {
        10: (Decimal("3.30"), Decimal("1.10"), Decimal("2.20"), 2, 3),
        20: (Decimal("0.30"), Decimal("0.30"), Decimal("0.30"), 1, 1),
        30: (None, None, None, 0, 0),
        40: (Decimal("7.00"), Decimal("7.00"), Decimal("7.00"), 1, 1),
        50: (None, None, None, 0, 2),
    }


def test_children_of_a_composite_key_find_their_row(source: Source) -> None:
    shelf = TABLES["shelf"]
    lines = list_of("lines", LINE, (("house", "house"), ("shelf_no", "number")), ["purchase_id", "line_no"])
    plan = plan_of(shelf, ["label", "house", "number"], collections=[lines])
    found = {tree[1:3]: tree[3] for tree in read_all(source, plan, 2)}
    assert found == {("A", 1): ((10, 1),), ("A", 2): ((10, 2),), ("B", 1): ((20, 1), (50, 1), (50, 2))}


def test_collections_are_read_for_every_page(source: Source) -> None:
    plan = plan_of(PURCHASE, ["id"], collections=[number_of("count", LINE, LINES)])
    assert read_all(source, plan, 2) == [(10, 3), (20, 1), (30, 0), (40, 1), (50, 2)]


# ── conditions, counts, sums ──


@pytest.mark.parametrize(
    ("name", "allowed", "ids"),
    [
        ("deleted_at", (None,), [10, 20, 30, 50]),
        ("deleted_at", None, [40]),
        ("status", ("P", "S"), [10, 20, 50]),
        ("status", ("P", None), [10, 30, 50]),
        ("status", (), []),
        ("paid", (True,), [10, 40, 50]),
        ("total", (Decimal("0.30"), 5), [20, 50]),
        ("id", (30, 40), [30, 40]),
    ],
)
def test_a_condition_selects_rows(source: Source, name: str, allowed: Any, ids: list[int]) -> None:
    condition = (column_of(PURCHASE, name), allowed)
    plan = plan_of(PURCHASE, ["id"], where=(condition,))
    assert [tree[0] for tree in read_all(source, plan, 2)] == ids
    assert source.count(plan) == len(ids)
    assert source.count_where(plan_of(PURCHASE), [condition]) == len(ids)
    assert len(source.read_rows(plan, [encode_key([id_]) for id_ in (10, 20, 30, 40, 50)])) == len(ids)


def test_conditions_hold_together(source: Source) -> None:
    plan = plan_of(PURCHASE, where=((column_of(PURCHASE, "deleted_at"), (None,)),))
    assert source.count_where(plan, [(column_of(PURCHASE, "status"), None)]) == 3


def test_sums_are_of_the_rows_that_take_part(source: Source) -> None:
    total, customer = column_of(PURCHASE, "total"), column_of(PURCHASE, "customer_id")
    plan = plan_of(PURCHASE, where=((column_of(PURCHASE, "status"), ("P", "S")),))
    found = source.sums(plan, [total, customer])
    assert round(Decimal(found["total"]), 2) == Decimal("15.40")
    assert found["customer_id"] == 4
    nothing = replace(plan, where=((column_of(PURCHASE, "status"), ("?",)),))
    assert source.sums(nothing, [total]) == {"total": None}
    assert source.sums(plan, []) == {}


# ── a user's statement, the schema ──


def test_a_statement_of_the_users_gives_plain_rows(source: Source) -> None:
    assert source.query(PRODUCT_SQL, {"id": 10}) == [("fig",), ("pear",), ("plum",)]
    assert source.query(PRODUCT_SQL, {"id": 30}) == []


def test_of_more_rows_than_are_wanted_one_more_comes(source: Source) -> None:
    for _ in range(3):  # on the same connections
        assert source.query(PRODUCT_SQL, {"id": 10}, at_most=1) == [("fig",), ("pear",)]
    assert source.query(PRODUCT_SQL, {"id": 10}, at_most=3) == [("fig",), ("pear",), ("plum",)]
    assert source.query(PRODUCT_SQL, {"id": 30}, at_most=1) == []
    assert source.query(PRODUCT_SQL, {"id": 10}) == [("fig",), ("pear",), ("plum",)]


def test_a_statement_is_examined_without_being_run(source: Source) -> None:
    fine, refused = QueryCall(PRODUCT_SQL, {"id": 1}), QueryCall("SELECT name FROM nowhere")
    assert [bool(fault) for fault in source.query_faults([fine, refused, fine])] == [False, True, False]
    assert source.query_faults([fine]) == [""]


def test_first_rows_of_our_own_selects_come_in_their_order(source: Database) -> None:
    rows = [next(iter(rows), ()) for rows in OUR_SELECTS.values()]
    assert source.first_row_of_each([*OUR_SELECTS] * 40, "a test") == rows * 40


def test_the_schema_is_read_in_the_sources_own_names(source: Source) -> None:
    found = {table.real: _in_own_names(table) for table in source.facts().tables.values()}
    assert found == {table.real: _in_own_names(table) for table in TABLES.values()}


def _in_own_names(table: TableFacts) -> TableFacts:
    def own(of: TableFacts, names: Sequence[str]) -> tuple[str, ...]:
        real = {column.name: column.real for column in of.columns}
        return tuple(real.get(name, name) for name in names)

    others = {**TABLES, **{other.real: other for other in TABLES.values()}}
    keys = [
        ForeignKey(own(table, key.columns), others[key.table].real, own(others[key.table], key.referred))
        for key in table.foreign_keys
    ]
    return replace(
        table,
        name=table.real,
        columns=tuple(replace(_undeclared(column), name=column.real) for column in table.columns),
        primary_key=own(table, table.primary_key),
        unique=tuple(own(table, key) for key in table.unique),
        foreign_keys=tuple(sorted(keys, key=lambda key: key.columns)),
        schema=None,
    )


def _undeclared(column: Column) -> Column:
    """The column without the words of one database. MariaDB's text of a key must have a length; MySQL has no UUIDs."""
    if column.declared == "char(36)":
        return replace(column, declared="", kind=Kind("uuid"), alike=(), widest=4)
    return replace(column, declared="", kind=replace(column.kind, length=None))


# ── by chance ──


@pytest.mark.parametrize("table", KEYED, ids=lambda table: table.name)
def test_random_keys_are_different_rows_in_the_order_of_pages(source: Source, table: Any) -> None:
    plan = plan_of(table, ["n", *table.primary_key])
    everything = keys_of(plan, source.read_page(plan, None, None))
    found = source.random_keys(plan, 5, len(everything), 7)
    assert 1 <= len(found) <= 5
    assert found == [key for key in everything if key in found]
    assert source.random_keys(plan, 5, len(everything), 7) == found


def test_a_row_without_a_key_is_never_chosen(source: Source) -> None:
    plan = plan_of(PURCHASE, key=(column_of(PURCHASE, "deleted_at"),))
    assert len(source.random_keys(plan, 5, 1000, 1)) == 1


def test_pages_begin_and_end_between_two_keys(source: Source) -> None:
    plan = plan_of(PURCHASE)
    after, upto = encode_key([10]), encode_key([40])
    assert list(source.page_bounds(plan, 2, after, upto)) == [encode_key([30])]
    assert list(source.page_bounds(plan, 3, after, upto)) == [upto]
    assert list(source.page_bounds(plan, 4, after, upto)) == []
