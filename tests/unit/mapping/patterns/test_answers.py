from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from migrator.mapping.model.mapping import Part
from migrator.mapping.patterns.answers import Designs, plain_rows, readers_for
from tests.golden.heart import check, facts, table

TEXT = """
entities:
  orders:
    collect: {paid: {sum: amount, of: payments, by: order_id}}
    items:
      Order:
        key: ["ORDER#{id}", META]
        keep: all
        attributes:
          at: created_at
          second: created_at|iso:s
          month: created_at|month
          email: mail|lower
          label: "no {id}"
          paid: paid
      Other:
        key: ["OTHER#{id}", META]
        attributes: {at: id, flag: open}
  payments:
    items:
      Payment: {key: ["PAYMENT#{id}", META], keep: [amount]}
"""


def read(type_: str, name: str, *raw: Any) -> list[Any]:
    orders = table(
        "orders",
        {
            "id": "integer!",
            "created_at": "timestamp",
            "total": "number(2)",
            "open": "boolean",
            "mail": "text",
            "code": "uuid",
        },
    )
    payments = table("payments", {"id": "integer!", "order_id": "integer", "amount": "number(2)"})
    checked = check(TEXT, facts(orders, payments))
    part = Part("", type_, (name,))
    readers = readers_for(checked.mapping, Designs([entity.plan for entity in checked.entities]), part)
    return [row[0] for row in plain_rows(part, [(value,) for value in raw], readers)]


def test_times_of_any_engine_are_the_items_text() -> None:
    stored = "2021-01-02T03:04:05.000000"
    assert read("Order", "at", "2021-01-02 03:04:05", datetime(2021, 1, 2, 3, 4, 5), None) == [
        stored,
        stored,
        None,
    ]
    assert read("Order", "at", datetime(2021, 1, 2, 3, 4, 5, tzinfo=UTC)) == [stored + "Z"]


def test_time_is_filtered_and_text_made_by_sql_is_not() -> None:
    assert read("Order", "second", "2021-01-02 03:04:05.5", "soon") == ["2021-01-02T03:04:05", "soon"]
    assert read("Order", "month", "2021-01-02 03:04:05", "2021-01") == ["2021-01", "2021-01"]


@pytest.mark.parametrize("name", ["total", "paid"])
def test_floats_get_their_declared_decimals(name: str) -> None:
    assert read("Order", name, 2328.59999999996, Decimal("0.10"), 3) == [
        Decimal("2328.60"),
        Decimal("0.10"),
        3,
    ]


def test_a_float_that_is_another_number_stays_one() -> None:
    assert read("Order", "total", 0.125) == [Decimal("0.125")]


def test_truths_and_uuids() -> None:
    assert read("Other", "flag", 1, False, 2) == [True, False, 2]
    number = UUID(int=10)
    assert read("Order", "code", number, str(number).upper()) == [str(number)] * 2


def test_value_of_an_expression_stays_as_in_sql() -> None:
    assert read("Order", "email", "Ada@x.org") == ["Ada@x.org"]
    assert read("Order", "label", "no 1") == ["no 1"]
    assert read("Order", "nothing", "2021-01-02 03:04:05") == ["2021-01-02 03:04:05"]


def test_attribute_of_two_kinds_is_compared_as_it_is() -> None:
    assert read("", "at", "2021-01-02 03:04:05") == ["2021-01-02 03:04:05"]
    assert read("Other", "at", 7) == [7]
    assert read("", "amount", 0.1) == [Decimal("0.10")]
