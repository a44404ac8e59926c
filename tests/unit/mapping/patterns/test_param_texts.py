"""Values of rows as parameters are written."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from migrator.mapping.patterns.answers import read_params
from migrator.mapping.patterns.params import absent_value, bucket_text, list_text, param_text
from migrator.model.errors import RowError
from migrator.model.mapping import Param, ParamType, Pattern
from tests import pins

MOMENT = datetime(2026, 12, 31, 10, 11, 12, 5)


@pytest.mark.parametrize(
    ("value", "type_", "read"),
    [
        (7, "integer", 7),
        (Decimal("7.00"), "integer", 7),
        (Decimal("1E+3"), "number", Decimal(1000)),
        (7, "text", "7"),
        ('a,"b]', "text", 'a,"b]'),
        (True, "boolean", True),
        (b"\x00\xff", "binary", b"\x00\xff"),
        (date(2026, 1, 2), "date", date(2026, 1, 2)),
        (MOMENT, "date", date(2026, 12, 31)),
        (MOMENT, "timestamp", MOMENT),
        (MOMENT.replace(tzinfo=UTC), "timestamp", MOMENT.replace(tzinfo=UTC)),
        (date(2026, 1, 2), "timestamp", datetime(2026, 1, 2)),
        ("5fd3a0b6-8a0e-4f4f-9d5e-3f3f0a4f1b11", "uuid", "5fd3a0b6-8a0e-4f4f-9d5e-3f3f0a4f1b11"),
    ],
)
@pytest.mark.parametrize("many", [False, True])
def test_the_text_is_read_as_the_value(value: Any, type_: ParamType, read: Any, *, many: bool) -> None:
    pattern = Pattern("p", (Param("x", type_, many=many),), "get", ())
    text = param_text(value, type_)
    found = read_params(pattern, {"x": list_text([text, text]) if many else text})
    assert found == {"x": [read, read] if many else read}


@pytest.mark.parametrize(
    ("unit", "begun", "next_"),
    [
        ("hour", datetime(2026, 12, 31, 10), datetime(2026, 12, 31, 11)),
        ("day", datetime(2026, 12, 31), datetime(2027, 1, 1)),
        ("month", datetime(2026, 12, 1), datetime(2027, 1, 1)),
        ("year", datetime(2026, 1, 1), datetime(2027, 1, 1)),
    ],
)
def test_a_bucket_begins_and_ends(unit: str, begun: datetime, next_: datetime) -> None:
    param = Param("x", "timestamp")
    pattern = Pattern("p", (param,), "get", ())
    for zone in (None, UTC):
        moment = MOMENT.replace(tzinfo=zone)
        assert read_params(pattern, {"x": bucket_text(moment, unit, param)}) == {
            "x": begun.replace(tzinfo=zone)
        }
        assert read_params(pattern, {"x": bucket_text(moment, unit, param, after=True)}) == {
            "x": next_.replace(tzinfo=zone)
        }
    assert bucket_text(MOMENT, unit, Param("x", "date")) == begun.date().isoformat()


def test_what_is_no_time_has_no_bucket() -> None:
    with pins.refused(RowError):
        bucket_text("2026-01-01", "day", Param("x", "text"))


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 3],
        [5],
        [Decimal("1.5"), Decimal("9.25")],
        ["a", "zz", "z"],
        [date(2026, 1, 2)],
        [datetime(2026, 1, 2), datetime(2025, 1, 2)],
        [None, 4],
    ],
)
def test_what_is_absent_is_past_all_that_is_there(values: list[Any]) -> None:
    assert all(one is None or absent_value(values) > one for one in values)


@pytest.mark.parametrize("values", [[], [None], [True, False], [b"x"], [{"a": 1}]])
def test_of_some_kinds_nothing_is_surely_absent(values: list[Any]) -> None:
    assert absent_value(values) is None
