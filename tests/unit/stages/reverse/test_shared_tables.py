"""A table of lists that is an entity's own, too: its rows are made one way."""

from __future__ import annotations

from migrator.mapping.check.check import Checked, check_mapping
from migrator.mapping.inverse.rows import Inverse, compile_inverse
from migrator.stages.reverse.daemon import shared_tables
from migrator.wiring.reverse import written_tables
from tests import pins
from tests.support_mapping import parse_mapping
from tests.unit.stages.reverse_world import FACTS

MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities:
  orders:
    collect: {lines: {of: line, by: order_id}}
    items:
      Order:
        key: ["O#{id}", M]
        attributes: {id: id, customer_id: customer_id, total: total, hot: hot, lines: {each: lines, attributes: {no: no, sku: sku}}}
  line: {items: {Line: {key: ["L#{order_id}", "L#{no}"], attributes: {order_id: order_id, no: no, sku: sku}}}}
"""


def _made(*names: str) -> tuple[Checked, Inverse, list[str]]:
    checked = check_mapping(parse_mapping(MAPPING, "shop.yaml"), FACTS)
    plans = [entity.plan for entity in checked.named(names)]
    inverse = compile_inverse(checked.mapping, plans)
    return checked, inverse, sorted(written_tables(inverse, plans, checked.besides(names)))


def test_rows_that_another_entity_is_made_of_are_not_written() -> None:
    checked, inverse, written = _made("orders")
    assert {one.table for one in inverse.tables} == {"orders", "line"}
    assert written == ["orders"]
    (told,) = shared_tables(checked.besides(["orders"]), inverse)
    assert told == (pins.text())


def test_they_are_where_both_are_direct() -> None:
    checked, inverse, written = _made("orders", "line")
    assert written == ["line", "orders"]
    assert list(shared_tables(checked.besides(["orders", "line"]), inverse)) == []
