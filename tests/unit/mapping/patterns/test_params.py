"""Parameters as a program gives them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from migrator.mapping.model.mapping import Param, ParamType, Pattern
from migrator.mapping.patterns.params import (
    absent_value,
    bucket_text,
    checked_params,
    kind_of,
    list_text,
    param_text,
    read_params,
    texts_of,
)
from migrator.runtime.errors import RowError, SettingsError
from tests import pins

PATTERN = Pattern(
    "p",
    (
        Param("n", "integer"),
        Param("at", "timestamp", optional=True),
        Param("on", "date", optional=True),
        Param("price", "number", optional=True),
        Param("id", "uuid", optional=True),
        Param("raw", "binary", optional=True),
        Param("yes", "boolean", optional=True),
        Param("names", "text", optional=True, many=True),
    ),
    "get",
    (),
)
A_UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"


def test_set_parameter_becomes_the_patterns_own_form() -> None:
    found = checked_params(
        PATTERN,
        {
            "n": 7,
            "at": datetime(2026, 1, 2, 3, tzinfo=UTC),
            "on": "2026-01-02",
            "price": 0.1,
            "id": UUID(A_UUID),
            "raw": bytearray(b"x"),
            "yes": False,
            "names": ("a,b", "c"),
        },
    )
    assert found["price"] == Decimal("0.1")
    assert found["on"] == date(2026, 1, 2)
    assert (found["id"], found["raw"], found["yes"], found["names"]) == (A_UUID, b"x", False, ["a,b", "c"])
    # The texts are the command line's, so that what a service asked can be asked again by hand.
    assert read_params(PATTERN, texts_of(PATTERN, found)) == found
    assert kind_of(PATTERN, found) == "at,id,names,on,price,raw,yes"


def test_integers_of_64_bits_are_taken_with_a_sign_and_without() -> None:
    for number in (-(2**63), 2**64 - 1):
        assert checked_params(PATTERN, {"n": number})["n"] == number


def test_what_is_optional_may_be_left_out() -> None:
    found = checked_params(PATTERN, {"n": 7, "at": None})
    assert set(found.values()) == {7, None}
    assert texts_of(PATTERN, found) == {"n": "7"}
    assert kind_of(PATTERN, found) == ""


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"n": 1, "nmaes": []},
        {"n": "7"},
        {"n": True},
        {"n": None},
        {"n": 2**64},
        {"n": -(2**63) - 1},
        {"n": 1, "at": 5},
        {"n": 1, "at": "soon"},
        {"n": 1, "on": datetime(2026, 1, 1)},
        {"n": 1, "price": float("nan")},
        {"n": 1, "at": "infinity"},
        {"n": 1, "id": "secret"},
        {"n": 1, "names": "ab"},
        {"n": 1, "names": [1]},
        {"n": 1, "names": ["\ud800"]},
    ],
    ids=[
        "parameter-missing",
        "you-mean",
        "parameter-str",
        "bool",
        "none",
        "beyond-bits",
        "beyond-bits-2",
        "timestamp-int",
        "timestamp-str",
        "date-datetime",
        "infinity-numbers",
        "timestamp-infinity",
        "uuid-str",
        "list-str",
        "type-list",
        "type-list-2",
    ],
)
def test_wrong_parameter_is_named_without_its_value(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as error:
        checked_params(PATTERN, given)
    assert pins.said(str(error.value))
    assert "secret" not in str(error.value)


def test_all_wrong_parameters_are_reported_at_once() -> None:
    with pytest.raises(SettingsError) as error:
        checked_params(PATTERN, {"n": "x", "at": 1, "unknown": 2})
    assert len(str(error.value).splitlines()) == 3


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
        ("week", datetime(2026, 12, 28), datetime(2027, 1, 4)),
        ("month", datetime(2026, 12, 1), datetime(2027, 1, 1)),
        ("quarter", datetime(2026, 10, 1), datetime(2027, 1, 1)),
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
def test_absent_values_are_beyond_all_existing_ones(values: list[Any]) -> None:
    assert all(one is None or absent_value(values) > one for one in values)


@pytest.mark.parametrize("values", [[], [None], [True, False], [b"x"], [{"a": 1}]])
def test_of_some_kinds_nothing_is_surely_absent(values: list[Any]) -> None:
    assert absent_value(values) is None
