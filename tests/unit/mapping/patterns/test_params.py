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
    ("given", "said"),
    [
        ({}, "p: parameter 'n' (integer) is missing"),
        ({"n": 1, "nmaes": []}, "p has no parameter 'nmaes'; did you mean 'names'?"),
        ({"n": "7"}, "p: parameter 'n' is of type integer; this str is not"),
        ({"n": True}, "this bool is not"),
        ({"n": None}, "this None is not"),
        ({"n": 2**64}, "p: parameter 'n' is an integer beyond 64 bits"),
        ({"n": -(2**63) - 1}, "beyond 64 bits"),
        ({"n": 1, "at": 5}, "'at' is of type timestamp; this int is not"),
        ({"n": 1, "at": "soon"}, "'at' is of type timestamp; this str is not"),
        ({"n": 1, "on": datetime(2026, 1, 1)}, "'on' is of type date; this datetime is not"),
        (
            {"n": 1, "price": float("nan")},
            "'price' is of type number; the value is NaN; NaN and infinity are no DynamoDB numbers",
        ),
        (
            {"n": 1, "at": "infinity"},
            "'at' is of type timestamp; the value is infinity; a timestamp of an item is in",
        ),
        ({"n": 1, "id": "secret"}, "'id' is of type uuid; this str is not"),
        ({"n": 1, "names": "ab"}, "'names' is of type a list of text; this str is not"),
        ({"n": 1, "names": [1]}, "'names' is of type a list of text; this list is not"),
        ({"n": 1, "names": ["\ud800"]}, "'names' is of type a list of text; this list is not"),
    ],
)
def test_what_is_wrong_is_named_without_its_value(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as error:
        checked_params(PATTERN, given)
    assert said in str(error.value)
    assert "secret" not in str(error.value)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(SettingsError) as error:
        checked_params(PATTERN, {"n": "x", "at": 1, "unknown": 2})
    assert len(str(error.value).splitlines()) == 3
