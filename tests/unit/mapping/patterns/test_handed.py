"""Answers as a service is handed them, and as its own functions hand them to us."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from migrator.mapping.model.mapping import Part, Pattern
from migrator.mapping.patterns.answers import (
    Records,
    TooManyError,
    handed,
    names_fault,
    own_value,
    records_of,
    rows_of,
)
from migrator.runtime.errors import SettingsError
from tests import pins

PLAIN = Pattern("p", (), "query", (), parts=(Part("", "", ("id", "total")),))
PARTS = Pattern(
    "q", (), "query", (), parts=(Part("user", "User", ("name",), one=True), Part("orders", "Order", ("id",)))
)


class Named(NamedTuple):
    id: int
    total: int


@dataclass
class Row:
    id: int
    total: int


class SqlRow:
    _mapping: dict[str, Any] = {"id": 1, "total": 2}  # noqa: RUF012


def test_an_answer_is_dicts_by_attribute() -> None:
    assert handed(PLAIN, {"": [(1, None), (2, "x")]}, "sql", {}) == [
        {"id": 1, "total": None},
        {"id": 2, "total": "x"},
    ]
    assert handed(PARTS, {"user": [("Ada",)], "orders": []}, "sql", {}) == {
        "user": {"name": "Ada"},
        "orders": [],
    }
    assert handed(PARTS, {"user": [], "orders": [(1,)]}, "sql", {}) == {"user": None, "orders": [{"id": 1}]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Decimal("5.00"), 5),
        (Decimal("5.50"), Decimal("5.5")),
        (Decimal("1E+3"), 1000),
        (Decimal("-0"), 0),
        (True, True),
        (b"x", b"x"),
        ({"a": [Decimal("2.0")]}, {"a": [2]}),
    ],
)
def test_equal_numbers_have_one_form(given: Any, expected: Any) -> None:
    found = own_value(given)
    assert (repr(found), type(found)) == (repr(expected), type(expected))


def test_results_share_nothing_with_the_rows() -> None:
    inner: dict[str, Any] = {"a": [1]}
    rows = [(1, inner)]
    found = handed(PLAIN, {"": rows}, "table", {})
    assert isinstance(found, Records)
    total = found[0]["total"]
    assert isinstance(total, dict)
    assert isinstance(total["a"], list)
    total["a"].append(2)
    assert inner == {"a": [1]}


@pytest.mark.parametrize("row", [{"id": 1, "total": 2, "other": 3}, Named(1, 2), Row(1, 2), SqlRow()])
def test_records_have_several_forms(row: Any) -> None:
    for answer in ([row], (row,), row):
        if answer is row and isinstance(row, tuple):
            continue
        records = records_of(PLAIN, answer, 10)[""]
        assert rows_of(PLAIN.parts[0], records) == [(1, 2)]
    assert records_of(PLAIN, None, 10) == {"": []}
    assert rows_of(PLAIN.parts[0], [{"id": 1}]) == [(1, None)]


def test_records_are_a_copy_in_the_form_of_items() -> None:
    inner = [1]
    row = {"id": inner, "total": {"b": {2, 1}, "c": (1, b"x"), "d": bytearray(b"y")}}
    records = records_of(PLAIN, [row], 10)[""]
    inner.append(2)
    row.clear()
    assert records == [{"id": [1], "total": {"b": [1, 2], "c": [1, b"x"], "d": b"y"}}]


@pytest.mark.parametrize(
    "answer", ["text", iter([]), [5], [object()]], ids=["gave-str", "gave-value", "value-int", "object-dicts"]
)
def test_another_form_is_refused(answer: Any) -> None:
    with pins.refused(SettingsError):
        records_of(PLAIN, answer, 10)


class Mapped:
    """What an ORM calls a dataclass; reading it would ask the database."""

    _sa_instance_state = None
    _mapping: dict[str, Any] = {"id": 1}  # noqa: RUF012


class Strict(Mapped, Row):
    def __getattribute__(self, name: str) -> Any:
        assert name not in ("id", "total"), "it was read"
        return super().__getattribute__(name)


@pytest.mark.parametrize("answer", [Mapped(), [Mapped()], [Strict(1, 2)], Strict(1, 2)])
def test_objects_of_an_orm_are_refused_unread(answer: Any) -> None:
    with pins.refused(SettingsError):
        records_of(PLAIN, answer, 10)


def test_only_what_the_pattern_returns_is_read() -> None:
    @dataclass
    class More(Row):
        other: Any = None

        def __getattribute__(self, name: str) -> Any:
            assert name != "other", "it was read"
            return super().__getattribute__(name)

    assert records_of(PLAIN, [More(1, 2)], 10)[""] == [{"id": 1, "total": 2, "other": None}]
    assert records_of(PLAIN, [{"id": 1, "other": object()}], 10)[""] == [{"id": 1, "other": None}]


class Status(StrEnum):
    OPEN = "open"


class Level(IntEnum):
    LOW = 1


class Bare(Enum):
    ONE = 1


@pytest.mark.parametrize("value", [object(), Bare.ONE, {"deep": [object()]}, {1: Bare.ONE}, 1j])
def test_values_that_items_do_not_have_are_refused(value: Any) -> None:
    with pins.refused(SettingsError):
        records_of(PLAIN, [{"id": value}], 10)


def test_values_with_a_plain_one_in_them_are_that() -> None:
    found = records_of(PLAIN, [{"id": Status.OPEN, "total": Level.LOW}], 10)[""]
    assert [(type(one), one) for one in found[0].values()] == [(str, "open"), (int, 1)]
    at, whose = datetime(2026, 1, 1), uuid4()
    assert records_of(PLAIN, [{"id": at, "total": whose}], 10)[""] == [{"id": at, "total": whose}]


def test_parts_are_reported_by_their_names() -> None:
    found = records_of(PARTS, {"user": {"name": "Ada"}, "orders": [{"id": 1}]}, 10)
    assert found == {"user": [{"name": "Ada"}], "orders": [{"id": 1}]}
    answers: tuple[Any, ...] = (
        [],
        {"user": None},
        {"users": None, "user": None, "orders": []},
        {"ann@x": 1, "user": None, "orders": []},  # a key may be a value of a row
        {"ann@x": 1, "order": []},
    )
    for answer in answers:
        with pins.refused(SettingsError):
            records_of(PARTS, answer, 10)


def test_too_many_records_are_not_looked_at() -> None:
    with pytest.raises(TooManyError):
        records_of(PLAIN, [{"id": 1}] * 11, 10)


@pytest.mark.parametrize(
    ("ours", "others"),
    [
        ([{"id": 1, "total": 2}], [{"id": 1, "total": 2}]),
        ([{"id": 1, "totl": 2}], [{"id": 1, "total": 2}]),
        ([{"a": 1, "b": 2}], [{"id": 1}]),
        # An item has no attribute where the row has NULL.
        ([{"id": 1}], [{"id": 1, "total": None}]),
        ([{"id": 1}], [{"id": 1, "total": 5}]),
        ([], [{"id": 1}]),
        ([{"id": 1, "totl": 2}], []),
    ],
    ids=["case", "you-mean", "gives-returns", "case-none", "case-2", "case-3", "did-you-mean"],
)
def test_names_that_differ_are_reported(ours: Any, others: Any) -> None:
    assert names_fault(PLAIN.parts[0], ours, others) == pins.text()
