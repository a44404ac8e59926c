"""What patterns cost a month, now and when DynamoDB answers every call."""

from __future__ import annotations

from decimal import Decimal

import pytest

from migrator.features.report.gather import costs_of
from migrator.mapping.model.capacity import SECONDS_A_MONTH
from migrator.mapping.model.evidence import PatternPhase, State, Window
from migrator.runtime.values import replace
from migrator.stages.design.shown import Windows
from tests import pins
from tests.support_plan import PLAN, READS

NOW_S = 1_700_000_700.0
AT = int(NOW_S) - 600
WINDOW = Window(
    "orders_of_customer",
    AT,
    "w",
    "shop",
    "rev",
    "service",
    {"table": 60, "sql": 590},
    {"sql": 10},
    answer="answer",
)
ANSWERS = {WINDOW.pattern: WINDOW.answer}
CAPACITY = replace(PLAN, usd_a_million_reads=Decimal("0.25"))
NAMES = [reads.pattern for reads in READS]


def test_cost_now_uses_service_calls_and_cost_later_all_calls() -> None:
    replayed = replace(WINDOW, writer="r", origin="replay", answered={"table": 9_000})
    costs = costs_of(CAPACITY, Windows([WINDOW, replayed], ANSWERS, NOW_S), 0.0, NAMES)
    first = costs.patterns[0]
    assert (first.pattern, first.units) == ("orders_of_customer", 0.75)
    assert (first.now_per_s, first.all_per_s) == (0.1, 1.0)
    assert first.usd_all is not None
    assert first.usd_all == pytest.approx(0.75 * 1.0 * SECONDS_A_MONTH * 0.25 / 1_000_000)
    assert first.usd_now == pytest.approx(first.usd_all / 10)
    assert costs.usd_all == first.usd_all


def test_cost_without_calls_uses_the_mappings_frequency() -> None:
    idle = replace(WINDOW, answered={"table": 0, "sql": 0}, errors={})
    assert costs_of(CAPACITY, Windows([idle], ANSWERS, NOW_S), 0.0, NAMES).patterns[0].all_per_s == 12.5
    first, _, lost = costs_of(CAPACITY, Windows([], ANSWERS, NOW_S), 0.0, NAMES).patterns
    assert (first.now_per_s, first.usd_now, first.all_per_s) == (None, None, 12.5)
    assert first.usd_all == pytest.approx(0.75 * 12.5 * SECONDS_A_MONTH * 0.25 / 1_000_000)
    # What was never measured has no price, whatever its frequency.
    assert (lost.units, lost.usd_all) == (None, None)


def test_calls_from_before_the_last_move_are_of_another_share() -> None:
    moved = {WINDOW.pattern: PatternPhase(WINDOW.pattern, State("ramp", 50), 2, AT + 300.0)}
    after = replace(WINDOW, begun_at=AT + 300, answered={"table": 300, "sql": 150}, errors={})
    costs = costs_of(CAPACITY, Windows([WINDOW, after], ANSWERS, NOW_S, moved), 0.0, NAMES)
    assert (costs.patterns[0].now_per_s, costs.patterns[0].all_per_s) == (1.0, 1.0)


def test_what_is_missing_is_reported() -> None:
    windows = Windows([WINDOW], ANSWERS, NOW_S)
    assert costs_of(None, windows, 0.0, NAMES).why == pins.text("were")
    bills = replace(PLAN.bills, why="no price is known for the region x")
    unpriced = costs_of(replace(PLAN, usd_a_million_reads=None, bills=bills), windows, 0.0, NAMES)
    assert (unpriced.why, unpriced.are_known) == (pins.text("price"), False)
    assert [place.index for place in unpriced.largest] == ["", "GSI1"]
