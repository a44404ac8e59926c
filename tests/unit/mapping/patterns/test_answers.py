from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from migrator.mapping.items.values import decoder
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import Part
from migrator.mapping.patterns.answers import _SHORTCUTS, Designs, _read, plain_rows, readers_for
from migrator.runtime.errors import RowError
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


USUAL_AND_ODD: dict[Kind, list[Any]] = {
    Kind("timestamp"): [
        *("2021-01-02 03:04:05", "2021-01-02T03:04:05", "2021-02-30 03:04:05", "2021-01-02 24:00:00"),
        *("2021-01-02 03:04:05.5", "2021-01-02 03:04:05Z", "2021-W01-1T03:04:05", "infinity"),
        *(datetime(1, 1, 1), datetime(2021, 1, 2, 3, 4, 5, 6), datetime(2021, 1, 2, tzinfo=UTC)),
        datetime(2021, 1, 2, tzinfo=timezone(timedelta(hours=2))),
    ],
    Kind("number", scale=2): [
        *(1.005, 0.1 + 0.2, -19.5, 0.0, -0.0, 1e15, 123456789012.25, 12345678901234.25, float("inf")),
        *(Decimal("1.50"), Decimal("1.5"), Decimal("0.00"), Decimal("1.005"), 3, True),
    ],
    Kind("boolean"): [0, 1, True, False, 2, -1, "t"],
    Kind("integer"): [0, 2**70, 1.0, 1.5, "7", True],
    Kind("text"): ["", "a", "\u00e9", b"a"],
}


@pytest.mark.parametrize(
    ("kind", "raw"), [(kind, raw) for kind, values in USUAL_AND_ODD.items() for raw in [*values, None]]
)
def test_shortcut_of_a_kind_gives_its_decoders_value(kind: Kind, raw: Any) -> None:
    def value_of(read: Callable[[Any], Any]) -> Any:
        try:
            return repr(read(raw))
        except RowError as error:
            return str(error)

    whole = partial(_read, decoder(kind))
    assert value_of(_SHORTCUTS[kind.name](kind, whole)) == value_of(whole)
