"""What the mapping alone tells: entries nobody asks, narrower projections, columns of keys, what is left out; and advice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.mapping.capacity.advice import Design, advice_of, repeated
from migrator.mapping.capacity.collections import ItemCollections, Measured
from migrator.mapping.capacity.design import (
    KeyColumn,
    KeyMask,
    key_columns,
    narrower,
    repeated_entries,
    unasked_entries,
    unmapped_columns,
)
from migrator.mapping.check.check import Checked, check_mapping
from migrator.mapping.items.changes import unread_tables
from migrator.mapping.model.capacity import Advice, TypeSize, WriteRates
from migrator.mapping.model.facts import SchemaFacts
from tests.support_design import SHOP, source_with
from tests.support_mapping import parse_mapping

MAPPING = """
mapping: 1
table:
  {name: Shop, key: [PK, SK], type: entity, ttl: expires, indexes: {GSI1: {key: [GSI1PK, GSI1SK]}, GSI2: {key: [GSI2PK, GSI2SK]}}}
entities:
  customer:
    table: customers
    join: {region: region_id}
    items:
      Customer: {key: ["C#{id}", META], keep: [id, name], attributes: {region: "{region.name}"}, GSI1: [ALL, "{email}"]}
  order:
    table: orders
    items:
      Order: {key: ["C#{customer_id}", "O#{id:08}"], keep: [id, status, total], GSI1: ["S#{status}", "{placed_at|iso:s}"], GSI2: ["M#{placed_at|month}", "{placed_at|iso:s}#{id}"]}
access_patterns:
  by_status:
    params: {status: text, n: integer}
    query: {index: GSI1, key: ["S#{status}"], limit: n}
    returns: [id]
    redact: [status]
    sql: SELECT id FROM orders WHERE status = :status ORDER BY placed_at LIMIT :n
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaFacts]:
    folder: Path = tmp_path_factory.mktemp("shop")
    with source_with(folder, SHOP) as source:
        yield source.facts()


@pytest.fixture(scope="module")
def checked(facts: SchemaFacts) -> Checked:
    return check_mapping(parse_mapping(MAPPING, "m.yaml"), facts)


def test_entries_that_no_pattern_asks_are_named(checked: Checked) -> None:
    assert unasked_entries(checked.mapping) == [("GSI1", "Customer"), ("GSI2", "Order")]


REPEATED = """
mapping: 1
table:
  {name: Shop, key: [PK, SK], type: entity, indexes: {GSI1: {key: [GSI1PK, GSI1SK]}, GSI2: {key: [GSI2PK, GSI2SK]}}}
entities:
  order:
    table: orders
    items:
      Order: {key: ["C#{customer_id}", "O#{id:06}"], keep: [id], GSI1: ["BY_C#{customer_id}", "%s"], GSI2: %s}
  customer:
    table: customers
    items:
      Customer: {key: ["C#{id}", META], keep: [id], GSI1: ["CUSTOMER#{id}", "{name}"], GSI2: ["G#{id}", META]}
access_patterns:
  orders: {params: {c: integer}, query: {index: GSI1, key: ["BY_C#{c}"]}, returns: [id], order: any, sql: S}
  customer: {params: {c: integer}, query: {index: GSI1, key: ["CUSTOMER#{c}"]}, returns: [id], order: any, sql: S}
  together: {params: {c: integer}, query: {index: GSI2, key: ["G#{c}"]}, returns: [PK], order: any, sql: S}
"""
IN_GROUP = '["G#{customer_id}", "O#{id:06}"]'


@pytest.mark.parametrize(
    ("sort", "in_group", "repeats"),
    [
        ("O#{id:06}", IN_GROUP, [("GSI1", "Order", ""), ("GSI1", "Customer", "")]),
        ("ALL", IN_GROUP, [("GSI1", "Order", ""), ("GSI1", "Customer", "")]),
        (
            "O#{id:06}",
            '["X#{customer_id}", "O#{id:06}"]',
            [("GSI1", "Order", ""), ("GSI1", "Customer", ""), ("GSI2", "Customer", "")],
        ),
        ("O#{placed_at|iso}", IN_GROUP, [("GSI1", "Customer", "")]),
        ("O#{id}", IN_GROUP, [("GSI1", "Customer", "")]),
        ("O#{total}", IN_GROUP, [("GSI1", "Customer", "")]),
        (
            "O#{id:06}",
            '["X#{status}", "O#{id:06}"]',
            [("GSI1", "Order", ""), ("GSI1", "Customer", ""), ("GSI2", "Customer", "")],
        ),
    ],
)
def test_index_entries_that_repeat_table_keys_are_reported(
    sort: str, in_group: str, repeats: list[tuple[str, str, str]]
) -> None:
    made = parse_mapping(REPEATED % (sort, in_group), "m.yaml").mapping
    assert repeated_entries(made) == repeats
    assert [advice.where for advice in repeated(repeats)] == [index for index, _, _ in repeats]


def test_narrower_projection_has_returned_and_own_attributes(checked: Checked) -> None:
    made = narrower(checked.mapping)
    assert {name: index.projection for name, index in made.items()} == {"GSI1": ("entity", "expires", "id")}


def test_columns_of_keys_are_reported_with_their_place(checked: Checked) -> None:
    columns = key_columns(checked.mapping, checked.plans)
    assert KeyColumn("orders", "status", "Order", "GSI1") in columns
    assert KeyColumn("orders", "customer_id", "Order", "") in columns
    assert {key.column for key in columns} == {"id", "email", "customer_id", "status", "placed_at"}


def test_what_no_entity_reads_is_left_out(facts: SchemaFacts, checked: Checked) -> None:
    assert unread_tables(facts, checked.plans) == ["lines", "notes", "products", "staff"]
    assert unmapped_columns(checked.plans) == {"customers": ("active",), "orders": ("shipped_at",)}


def test_redacted_key_is_masked_even_if_keys_are_shown(checked: Checked) -> None:
    for whole in (False, True):
        masking = KeyMask.of(checked.mapping, checked.plans, whole=whole)
        assert "secret" not in masking.text("GSI1", ("S#secret",), ("Order",))
        assert masking.text("", ("C#7",), ("Order",)) == "C#7"
    shown = KeyMask.of(checked.mapping, checked.plans, whole=False).text("GSI1", ("Ann",), ("Customer",))
    assert "Ann" not in shown


def places(**of: tuple[str, int, str]) -> dict[str, Measured]:
    """By index one item collection: its key, its items of 100 bytes, their type."""
    made = {}
    for index, (key, items, type_) in of.items():
        collections = ItemCollections()
        for _ in range(items):
            collections.add((key,), type_, 100, 1.0)
        made["" if index == "table" else index] = collections.measured(10)
    return made


def advice(checked: Checked, of: dict[str, Measured], **given: object) -> list[Advice]:
    types = {
        "Order": TypeSize("Order", "order", 2_000, 200_000, given.get("largest", 100), 3.0, {"GSI1": 1.0, "GSI2": 1.0}, given.get("near", 0), True),  # type: ignore[arg-type]
        "Customer": TypeSize("Customer", "customer", 2_000, 200_000, 100, 2.0, {"GSI1": 1.0}, 0, True),
    }  # fmt: skip
    empty = {index: ItemCollections().measured(10) for index in ("", "GSI1", "GSI2")}
    rates = given.get("rates", {})
    writes = WriteRates(source="told") if rates else WriteRates()
    design = Design(checked.mapping, types, empty | of, given.get("local"), writes, rates)  # type: ignore[arg-type]
    return advice_of(design, (), ())


@pytest.mark.parametrize(
    ("of", "kind", "way_out"),
    [
        ({"GSI1": ("S#open", 2_000, "Order")}, "unbounded collection", "top-N"),
        ({"GSI1": ("ALL", 2_000, "Customer")}, "unbounded collection", "shard"),
        ({"table": ("C#7", 2_000, "Order")}, "unbounded collection", "shard"),
    ],
)
def test_an_unbounded_collection_has_a_way_out(
    checked: Checked, of: dict[str, tuple[str, int, str]], kind: str, way_out: str
) -> None:
    (told,) = advice(checked, places(**of))
    assert (told.weight, told.kind) == ("warning", kind)
    assert told.way_out.startswith(way_out)


def test_a_collection_of_one_month_is_bounded(checked: Checked) -> None:
    assert advice(checked, places(GSI2=("M#2026-06", 2_000, "Order"))) == []


def test_a_small_collection_is_no_matter(checked: Checked) -> None:
    assert advice(checked, places(GSI1=("ALL", 999, "Customer"))) == []


@pytest.mark.parametrize(("rate", "weight"), [(900.0, "warning"), (1_001.0, "misfit")])
def test_a_partition_with_all_writes_is_weighed_by_its_limit(
    checked: Checked, rate: float, weight: str
) -> None:
    told = advice(checked, places(GSI2=("M#2026-06", 2_000, "Order")), rates={"Order": rate})
    assert [(one.weight, one.kind, one.where) for one in told] == [(weight, "write units", "GSI2")]
    half = advice(checked, places(GSI2=("M#2026-06", 1_000, "Order")), rates={"Order": rate})
    assert half == []


def test_items_and_local_indexes_near_their_limits_are_reported(checked: Checked) -> None:
    (large,) = advice(checked, {}, largest=390_000, near=3)
    assert (large.kind, "3 items" in large.what) == ("large items", True)
    heavy = ItemCollections()
    heavy.add(("C#7",), "Order", 11 * 1024**3, 1.0)
    (local,) = advice(checked, {}, local=heavy.measured(1))
    assert (local.weight, local.kind) == ("misfit", "local index")
