"""Fan-outs by plain SQL, and how often rows change by statements with rates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from migrator.mapping.check.check import check_mapping
from migrator.mapping.model.capacity import FanOut, Spread, WriteRates
from migrator.source.reader import SqlSource
from migrator.source.workload.statements import statements_of, told_writes
from migrator.source.workload.statistics import fan_outs
from tests import pins
from tests.support_design import SHOP, source_with
from tests.support_mapping import parse_mapping

MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: entity, ttl: expires}
entities:
  order:
    table: orders
    join: {customer: customer_id, region: customer.region_id}
    collect: {lines: {of: lines, by: order_id, join: {product: product_id}}}
    items:
      Order:
        key: ["O#{id}", META]
        attributes: {name: "{customer.name}", region: "{region.name}", lines: {each: lines, attributes: {n: "{product.name}"}}}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSource]:
    with source_with(tmp_path_factory.mktemp("shop"), SHOP) as made:
        yield made


def counted(source: SqlSource, rows_exact: int) -> dict[str, FanOut]:
    plans = check_mapping(parse_mapping(MAPPING, "m.yaml"), source.facts()).plans
    made = fan_outs(source.query, "sqlite", plans, {"order": 3}, rows_exact)
    return {one.table: one for one in made}


def test_fan_outs_are_counted_through_joins_and_lists(source: SqlSource) -> None:
    """By hand: Ann (region EU) has orders 42 and 43, Bob, in no region, 44. A cap is in 42 and 43, a mug in 42."""
    roots = {table: (one.roots, one.mean) for table, one in counted(source, 1_000).items()}
    assert roots == {
        "orders": (Spread(1, 1, 1), 1.0),
        "customers": (Spread(1, 2, 2), 1.5),
        "regions": (Spread(0, 2, 2), 1.0),
        "lines": (Spread(1, 1, 1), 1.0),
        "products": (Spread(1, 2, 2), 1.5),
    }


def test_rows_of_a_large_entity_are_not_grouped(source: SqlSource) -> None:
    made = counted(source, 2)
    assert made["orders"].roots == Spread(1, 1, 1)
    assert made["customers"].roots is None
    assert made["customers"].why == pins.text()


def test_only_columns_that_items_hold_count(source: SqlSource) -> None:
    columns = counted(source, 1_000)["customers"].columns
    assert columns is not None
    assert "name" in columns
    assert "email" not in columns


TOLD = """
-- 5/s
UPDATE orders SET status = ?, total = 5 WHERE id = ?;
-- 2/s
INSERT INTO orders VALUES (1, 2, 'x', 'y', NULL, 3);
-- 1/s
delete from "lines" where order_id = $1;
-- 100/s
SELECT id FROM orders WHERE id = ?;
UPDATE nothing SET a = 1;
UPDATE orders | SET <b>;
"""


def test_statements_with_rates_tell_what_changes(source: SqlSource) -> None:
    writes = told_writes(statements_of(TOLD, "sqlite"), source.facts())
    assert writes.per_s == {"orders": 7.0, "lines": 1.0}
    assert writes.updates_per_s == {("orders", "status"): 5.0, ("orders", "total"): 5.0}
    assert writes.source == pins.text()


def test_statements_that_only_read_tell_nothing(source: SqlSource) -> None:
    writes = told_writes(statements_of("SELECT 1;", "sqlite"), source.facts())
    assert writes == WriteRates(why=pins.text())
