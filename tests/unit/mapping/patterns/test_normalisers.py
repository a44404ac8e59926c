"""Answers under a pattern's rules of comparison, and what is wrong with such rules."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from migrator.mapping.model.evidence import Row
from migrator.mapping.model.mapping import CompareRules
from migrator.mapping.patterns.diff import diffs, ruled
from tests.golden.patterns import faults, the_pattern

NAMES = ("id", "total", "email")
CENT = CompareRules(tolerance={"total": Decimal("0.01")})


def found(rows: list[Row], items: list[Row], rules: CompareRules) -> list[tuple[str, str]]:
    differing = diffs(*ruled(NAMES, rows, items, rules), ordered=True, tolerances=rules.tolerance)
    return [(one.kind, one.attribute) for one in differing]


def test_an_ignored_attribute_may_differ_and_is_gone() -> None:
    compared = ruled(NAMES, [(1, 5, "a")], [(1, 6, "a")], CompareRules(ignore=frozenset({"total"})))
    assert compared == (("id", "email"), [(1, "a")], [(1, "a")])


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ((1, Decimal("5.01"), "a"), []),
        ((1, Decimal("4.99"), "a"), []),
        ((1, Decimal("5.011"), "a"), [("value", "total")]),
        ((1, "5.00", "a"), [("type", "total")]),
        ((1, None, "a"), [("missing", "total")]),
        ((1, True, "a"), [("type", "total")]),
        # What differs elsewhere, too, is no other row for that, and its number no difference.
        ((2, Decimal("5.01"), "a"), [("value", "id")]),
        ((1, Decimal("5.01"), "b"), [("value", "email")]),
        ((2, Decimal("5.01"), "b"), [("missing", ""), ("unexpected", "")]),
        ((1, Decimal("5.02"), "b"), [("missing", ""), ("unexpected", "")]),
    ],
)
def test_numbers_within_the_tolerance_are_the_same(item: Row, told: list[tuple[str, str]]) -> None:
    assert found([(1, Decimal(5), "a")], [item], CENT) == told


def test_of_many_rows_that_differ_numbers_that_are_near_are_none() -> None:
    rows: list[Row] = [(number, Decimal(number), "a") for number in range(100)]
    items: list[Row] = [(number, Decimal(number) + Decimal("0.01"), "b") for number in range(100)]
    assert found(rows, items, CENT) == [("value", "email")] * 100


def test_each_row_is_near_one_item_only() -> None:
    cents: list[Row] = [(1, Decimal(number) / 100, "a") for number in (1, 2, 3)]
    shifted: list[Row] = [(1, Decimal(number) / 100, "a") for number in (2, 3, 4)]
    assert found(cents, shifted, CENT) == []
    assert [kind for kind, _ in found([*cents, cents[0]], shifted, CENT)] == ["missing"]


def test_a_tolerance_keeps_the_order_that_is_compared() -> None:
    one, two = (1, Decimal(5), "a"), (2, Decimal(7), "b")
    near = [(2, Decimal("7.01"), "b"), (1, Decimal("5.01"), "a")]
    assert found([one, two], near, CENT) == [("order", "")]


def test_many_equal_rows_with_a_tolerance_take_no_time() -> None:
    rows: list[Row] = [(1, Decimal(number), "a") for number in range(20_000)]
    assert found(rows, list(reversed(rows)), CENT) == [("order", "")]


@pytest.mark.parametrize(
    ("steps", "row", "item", "same"),
    [
        (("lower",), "Ann@X.example", "ann@x.EXAMPLE", True),
        (("upper",), "ß", "SS", True),
        (("trim",), " a", "a\n", True),
        (("trim", "lower"), " A", "a", True),
        (("lower",), " a", "a", False),
        (("unordered",), [2, {"a": 1}, "x"], ["x", 2, {"a": 1}], True),
        (("unordered",), [1, 1], [1], False),
        (("date",), "2026-01-02T10:11:12", "2026-01-02", True),
        (("date",), "2026-01-02 10:11:12Z", "2026-01-02T00:00:00", True),
        (("date",), "2026-01-02", "2026-01-03", False),
        (("date",), "2026-01-02xyz", "2026-01-02", False),
        (("date",), "no date", "no dates", False),
        (("six_digits",), Decimal("0.142857"), Decimal("0.14285715"), True),
        (("six_digits",), 16777200, 16777216, True),
        (("six_digits",), Decimal("0.142857"), Decimal("0.142858"), False),
        (("six_digits",), "0.1428571", "0.1428572", False),
        (("lower",), 5, "5", False),
        (("unordered",), None, None, True),
    ],
)
def test_values_are_normalised_on_both_sides(steps: Any, row: Any, item: Any, *, same: bool) -> None:
    rules = CompareRules(normalise={"email": steps})
    assert (found([(1, 1, row)], [(1, 1, item)], rules) == []) is same


# ── in a mapping ──

QUERY = 'params: {tenant: text}\nquery: {key: ["EVENT#{tenant}"]}\nreturns: [id, n, region]\n'


def test_rules_are_read_from_the_mapping() -> None:
    pattern = the_pattern(
        QUERY
        + "compare: {ignore: [region], tolerance: {n: 0.01}, normalise: {region: lower, id: [trim, date]}}"
        "\nredact: [n, tenant]"
    )
    assert pattern.compare == CompareRules(
        frozenset({"region"}), {"n": Decimal("0.01")}, {"region": ("lower",), "id": ("trim", "date")}
    )
    assert pattern.redact == ("n", "tenant")


WRONG = {
    "compare: {ignore: [regio]}": "compare.ignore.0: p returns no 'regio'; did you mean 'region'?",
    "compare: {tolerance: {m: 1}}": "compare.tolerance.m: p returns no 'm'; known: id, n, region",
    "compare: {normalise: {Region: lower}}": "compare.normalise.Region: p returns no 'Region'; did you mean 'region'?",
    "compare: {normalise: {region: lowr}}": "compare.normalise.region: write 'lower', 'upper', 'trim', 'unordered', 'date' or 'six_digits' here",
    "compare: {normalise: {region: []}}": "compare.normalise.region: write 1 or more values here",
    "compare: {tolerance: {n: 0}}": "compare.tolerance.n: write a value above 0",
    "compare: {tolerance: {n: .inf}}": "compare.tolerance.n: write a",
    "compare: {tolerance: {n: yes}}": "compare.tolerance.n: write a number here",
    "compare: {ignore: [id, n, region]}": "compare.ignore: leaves nothing of the answer to compare",
    "compare: {ignored: [id]}": "'ignored' is not a valid key here; did you mean 'ignore'?",
    "redact: [tenat]": "redact.0: p returns no 'tenat'; did you mean 'tenant'?",
}


@pytest.mark.parametrize("rule", sorted(WRONG))
def test_a_wrong_rule_is_reported_with_its_line(rule: str) -> None:
    told = [one for one in faults(QUERY + rule) if "warning" not in one]
    assert len(told) == 1
    assert WRONG[rule] in told[0]
    assert told[0].startswith("m.yaml:3")
