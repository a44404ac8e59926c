"""How two answers differ, told as a person would."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.mapping.model.evidence import Diff, Row
from migrator.mapping.model.table import Item
from migrator.mapping.patterns import diff
from migrator.mapping.patterns.answers import Designs
from migrator.mapping.patterns.diff import AttributeDifference, differences, diffs, equal, row_key
from tests.golden.patterns import checked

NAMES = ("id", "total", "status")
ONE, TWO, THREE = (1, Decimal("5.00"), "new"), (2, Decimal("7.50"), "sent"), (3, None, "new")


def found(rows: list[Row], items: list[Row], *, ordered: bool = True) -> list[tuple[str, str]]:
    return [(one.kind, one.attribute) for one in diffs(NAMES, rows, items, ordered=ordered)]


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ([ONE, TWO, THREE], []),
        ([(1, 5, "new"), TWO, THREE], []),
        ([ONE, THREE], [("missing", "")]),
        ([ONE, TWO, THREE, (4, 1, "x")], [("unexpected", "")]),
        ([ONE, TWO, TWO, THREE], [("unexpected", "")]),
        ([ONE, (2, Decimal("7.51"), "sent"), THREE], [("value", "total")]),
        ([ONE, (2, "7.50", "sent"), THREE], [("type", "total")]),
        ([ONE, (2, None, "sent"), THREE], [("missing", "total")]),
        ([ONE, TWO, (3, 0, "new")], [("unexpected", "total")]),
        ([ONE, (2, 8, "lost"), THREE], [("missing", ""), ("unexpected", "")]),
        ([TWO, ONE, THREE], [("order", "")]),
        ([], [("missing", "")] * 3),
    ],
)
def test_each_difference_has_its_class(items: list[Row], told: list[tuple[str, str]]) -> None:
    assert found([ONE, TWO, THREE], items) == told


def test_order_counts_only_if_the_pattern_requires_it() -> None:
    assert found([ONE, TWO], [TWO, ONE], ordered=False) == []


def test_a_difference_shows_both_sides() -> None:
    other = (1, Decimal(6), "new")
    assert diffs(NAMES, [ONE], [other], ordered=True) == [Diff("value", "total", ONE, other)]


def test_nested_values_are_compared_by_type_and_content() -> None:
    row, same, other = ([{"a": Decimal("1.0")}],), ([{"a": 1}],), ([{"a": "1"}],)
    assert diffs(("x",), [row], [same], ordered=True) == []
    assert [one.kind for one in diffs(("x",), [row], [other], ordered=True)] == ["missing", "unexpected"]


def test_a_wrong_answer_of_many_rows_costs_little() -> None:
    rows: list[Row] = [(number, "a", "b") for number in range(3000)]
    items: list[Row] = [(number, "c", "b") for number in range(3000)]
    assert len(diffs(NAMES, rows, items, ordered=True)) == 6000


def test_pairs_are_found_with_few_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []
    equal = diff.equal

    def counting(one: Any, other: Any) -> bool:
        compared.append((one, other))
        return equal(one, other)

    monkeypatch.setattr("migrator.mapping.patterns.diff.equal", counting)
    rows: list[Row] = [(number, "a", "b") for number in range(200)]
    items: list[Row] = [(number, "c", "b") for number in reversed(range(200))]
    assert found(rows, items) == [("value", "total")] * 200
    unnamed: list[Row] = [(number // 2, "x", f"{number % 50}") for number in range(200)]
    assert found(unnamed, items) == [("missing", "")] * 200 + [("unexpected", "")] * 200
    assert len(compared) < 3 * diff._COMPARED_AT_MOST
    # One of few is found wherever it stands.
    compared.clear()
    assert found(rows[:30], [(30, "a", "b"), *rows[:29]]) == [("value", "id")]
    assert len(compared) <= 6


values = (
    st.none() | st.booleans() | st.integers(-2, 2) | st.decimals(-2, 2, places=1) | st.text("ab", max_size=2)
)
answers = st.lists(st.tuples(values, values), max_size=6)


@given(answers, answers, st.booleans())
def test_only_equal_answers_have_no_difference(rows: list[Any], items: list[Any], ordered: bool) -> None:
    assert diffs(("a", "b"), rows, rows, ordered=ordered) == []
    assert diffs(("a", "b"), rows, rows[::-1], ordered=False) == []
    back = diffs(("a", "b"), items, rows, ordered=ordered)
    assert bool(diffs(("a", "b"), rows, items, ordered=ordered)) == bool(back)


def test_rows_are_paired_by_the_key_that_names_them() -> None:
    def told(rows: list[Row], items: list[Row]) -> list[tuple[str, str]]:
        return [(one.kind, one.attribute) for one in diffs(NAMES, rows, items, ordered=True, key=("id",))]

    assert told([(1, 2, "a")], [(1, 3, "b")]) == [("value", "total"), ("value", "status")]
    many: list[Row] = [(number, 5, "x") for number in range(3000)]
    assert (
        told(many, [(number, 6, "y") for number, _, _ in many])
        == [("value", "total"), ("value", "status")] * 3000
    )
    # What names two rows of a side names none.
    assert told([(1, 2, "a"), (1, 4, "b")], [(1, 2, "z")]) == [("value", "status"), ("missing", "")]


def test_a_key_that_is_not_compared_names_nothing() -> None:
    (one,) = diffs(NAMES, [ONE], [(1, 9, "new")], ordered=True, key=("other",))
    assert (one.attribute, one.sign) == ("total", None)


def test_each_attribute_that_differs_is_named_once() -> None:
    expected: Item = {"a": 1, "b": "x", "c": True, "d": [1, {"e": 2}], "same": Decimal("1.0")}
    stored: Item = {"a": 2, "c": 1, "d": [1, {"e": 3}], "f": None, "same": 1}
    assert list(differences(expected, stored)) == [
        AttributeDifference("a", "value"),
        AttributeDifference("b", "missing"),
        AttributeDifference("c", "type"),
        AttributeDifference("d", "value"),
        AttributeDifference("f", "unexpected"),
    ]


def test_ignored_attributes_do_not_count() -> None:
    assert list(differences({"_tk": 1}, {"_tk": 2, "_rev": "x"}, frozenset({"_tk", "_rev"}))) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, Decimal("1.00"), True),
        (True, 1, False),
        ("1", 1, False),
        (b"a", "a", False),
        (None, "", False),
        ([1, 2], [2, 1], False),
        ({"a": True}, {"a": 1}, False),
        ({"a": [Decimal("2.0")]}, {"a": [2]}, True),
    ],
)
def test_equality_goes_all_the_way_down(one: Any, other: Any, same: bool) -> None:
    assert equal(one, other) is same


QUERY = 'params: {tenant: text}\nquery: {key: ["EVENT#{tenant}"]}\n'
GET = 'params: {tenant: text, id: integer}\nget: {key: ["EVENT#{tenant}", "E#{id:04}"]}\n'


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        (QUERY + "returns: [n, id]", ("id",)),
        (QUERY + "returns: [n, kind]", None),
        (QUERY + "returns: [PK, SK, n]", ("PK", "SK")),
        (QUERY + "returns: [SK, n]", None),
        (GET + "returns: [n]", ()),
        (QUERY + "returns: {all: {type: Event, one: true, attributes: [n]}}\nsql: {all: SELECT 1}", ()),
        (QUERY + "returns: {all: {type: Event, attributes: [id, n]}}\nsql: {all: SELECT 1}", ("id",)),
    ],
)
def test_row_key_is_the_rows_key_the_items_key_or_empty(pattern: str, named: tuple[str, ...] | None) -> None:
    made = checked(pattern)
    found = made.mapping.patterns["p"]
    designs = Designs([entity.plan for entity in made.entities])
    assert row_key(made.mapping, designs, found, found.parts[0]) == named
