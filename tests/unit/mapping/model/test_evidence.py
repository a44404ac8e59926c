"""Phases: which side answers, which moves are allowed, and that a ramp is sticky."""

from __future__ import annotations

import pytest

from migrator.mapping.model.evidence import (
    BACK,
    FORWARD,
    PHASES,
    ROUTES,
    Phase,
    State,
    answering,
    is_back,
    move_fault,
    share_of,
)
from tests import pins

SOME: dict[Phase, State] = {phase: State(phase, 10 if phase == "ramp" else 0) for phase in PHASES}


def test_every_phase_has_a_route_and_all_but_the_last_a_way_on() -> None:
    assert set(ROUTES) == set(PHASES)
    assert [FORWARD[one] for one in PHASES[:-1]] == list(PHASES[1:])


@pytest.mark.parametrize("phase", PHASES)
def test_which_side_answers_and_which_is_compared(phase: Phase) -> None:
    low, high = answering(SOME[phase], 0.05, {}), answering(SOME[phase], 0.5, {})
    expected = {"off": "sql sql", "shadow": "sql sql", "ramp": "table sql"}.get(phase, "table table")
    assert f"{low} {high}" == expected
    assert ROUTES[phase].compares == (phase in ("shadow", "ramp", "live"))


@pytest.mark.parametrize("before", PHASES)
@pytest.mark.parametrize("after", PHASES)
def test_move_goes_one_step_forward_or_any_back_except_complete(before: Phase, after: Phase) -> None:
    steps = PHASES.index(after) - PHASES.index(before)
    allowed = before != "complete" and (steps == 1 or steps < 0)
    assert (move_fault(SOME[before], SOME[after]) == "") == allowed
    assert all(PHASES.index(one) < PHASES.index(phase) for phase, ones in BACK.items() for one in ones)


@pytest.mark.parametrize("percent", [-1, 0, 101])
def test_a_ramp_has_a_share_between_1_and_100(percent: int) -> None:
    assert "1 to 100" in move_fault(State("shadow"), State("ramp", percent))


def test_a_ramp_goes_up_and_down_and_no_other_phase_has_a_share() -> None:
    assert move_fault(State("ramp", 10), State("ramp", 50)) == ""
    assert move_fault(State("ramp", 50), State("ramp", 1)) == ""
    assert "already" in move_fault(State("ramp", 50), State("ramp", 50))
    assert "percent" in move_fault(State("ramp", 50), State("live", 50))


def test_share_ignores_parameter_order_and_is_even() -> None:
    assert share_of("p", {"a": "1", "b": "2"}) == share_of("p", {"b": "2", "a": "1"})
    assert share_of("p", {"a": "1"}) != share_of("q", {"a": "1"})
    shares = [share_of("p", {"id": str(number)}) for number in range(10_000)]
    for tenth in range(10):
        assert 900 < sum(tenth / 10 <= one < (tenth + 1) / 10 for one in shares) < 1100


AIMED = State("ramp", 0, (("tenant", "acme"), ("user_id", "42")))


def test_ramp_covers_its_targets_at_any_share() -> None:
    calls = [
        {"user_id": "42", "limit": "5"},
        {"user_id": "7", "tenant": "acme"},
        {"user_id": "7"},
        {"limit": "42"},
    ]
    assert [answering(AIMED, 0.0, call) for call in calls] == ["table", "table", "sql", "sql"]
    assert answering(State("ramp", 1, AIMED.audience), 0.5, {"user_id": "42"}) == "table"


def test_only_a_ramp_has_targets_and_adding_some_moves_forward() -> None:
    assert move_fault(State("shadow"), AIMED) == ""
    assert "1 to 100" in move_fault(State("shadow"), State("live", 0, AIMED.audience))
    fewer, wider = State("ramp", 0, AIMED.audience[:1]), State("ramp", 5, AIMED.audience)
    assert is_back(AIMED, fewer)
    assert is_back(AIMED, State("shadow"))
    assert is_back(wider, AIMED)
    assert not is_back(fewer, AIMED)
    assert not is_back(AIMED, wider)
    # Less of a share, and for one more: that one's calls go to the table, which needs evidence.
    assert not is_back(State("ramp", 5, fewer.audience), AIMED)


def test_targets_are_told_and_can_be_masked() -> None:
    assert str(AIMED) == "ramp 0 % for tenant=acme, user_id=42"
    assert (AIMED.word, AIMED.masked) == ("ramp 0 %", pins.text())
    assert (str(State("ramp", 5)), State("ramp", 5).masked) == ("ramp 5 %", "ramp 5 %")


def test_a_key_in_a_ramp_stays_in_it_when_it_grows() -> None:
    shares = [share_of("p", {"id": str(number)}) for number in range(1000)]
    small = {one for one in shares if answering(State("ramp", 10), one, {}) == "table"}
    large = {one for one in shares if answering(State("ramp", 50), one, {}) == "table"}
    assert small < large
    assert all(answering(State("ramp", 100), one, {}) == "table" for one in shares)
