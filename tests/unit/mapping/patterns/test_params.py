"""Parameters as a program gives them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from migrator.mapping.patterns.answers import read_params
from migrator.mapping.patterns.params import checked_params, kind_of, texts_of
from migrator.model.errors import SettingsError
from migrator.model.mapping import Param, Pattern
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


def test_what_is_set_becomes_the_pattern_s_own_form() -> None:
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
def test_what_is_wrong_is_named_without_its_value(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as error:
        checked_params(PATTERN, given)
    assert pins.said(str(error.value))
    assert "secret" not in str(error.value)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(SettingsError) as error:
        checked_params(PATTERN, {"n": "x", "at": 1, "unknown": 2})
    assert len(str(error.value).splitlines()) == 3
