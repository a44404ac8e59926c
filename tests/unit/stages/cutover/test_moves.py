from __future__ import annotations

import json

import pytest

from migrator.mapping.model.evidence import OFF, PHASES, Line, Move, MovedError, PatternPhase, State
from migrator.runtime.errors import SettingsError
from migrator.stages.cutover.moves import Cutover, WriteOwnership, next_step, way_back
from tests import pins
from tests.fakes.phases import FakePhases
from tests.unit.stages.core.live_world import Shop

GOOD = Line("verify", "a clean verify", "run 7: clean", "ok", 5.0)
BAD = Line("lag", "none", "unknown", "unknown")


@pytest.fixture
def cutover() -> Cutover:
    return Cutover(FakePhases(lambda: 1000.0), "ada@web-1", "rev")


def at(cutover: Cutover, *states: State) -> PatternPhase:
    known = PatternPhase("orders")
    for state in states:
        known = cutover.phases.move(Move("orders", known.state, state, "x"), known.version)
    return known


def test_steps_go_forward_one_by_one_and_a_ramp_begins_small() -> None:
    states = [OFF]
    while states[-1].phase != "complete":
        states.append(next_step(states[-1]))
    assert list(map(str, states)) == ["off", "shadow", "ramp 1 %", "live", "complete"]
    with pins.refused(SettingsError):
        next_step(states[-1])
    assert [str(way_back(state)) for state in states[1:4]] == ["off", "shadow", "shadow"]


def test_a_move_keeps_its_evidence_and_its_operator(cutover: Cutover) -> None:
    judged = cutover.judge(PatternPhase("orders"), State("shadow"), lambda known, after: [GOOD])
    assert cutover.move(judged, reason="first").version == 1
    line = cutover.phases.history()[0]
    assert (line.who, line.reason, line.override, line.revision) == ("ada@web-1", "first", False, "rev")
    assert json.loads(line.evidence)[0]["found"] == "run 7: clean"


def test_unknown_refuses_and_an_override_is_on_record(cutover: Cutover) -> None:
    judged = cutover.judge(PatternPhase("orders"), State("shadow"), lambda known, after: [GOOD, BAD])
    with pins.refused(SettingsError):
        cutover.move(judged)
    cutover.move(judged, reason="night shift", override=True)
    line = cutover.phases.history()[0]
    assert line.override
    assert json.loads(line.evidence)[1]["verdict"] == "unknown"


def test_invalid_move_is_refused_before_evidence_is_read(cutover: Cutover) -> None:
    def never(known: PatternPhase, after: State) -> list[Line]:
        raise AssertionError

    for after in (State("live"), State("ramp", 101), State("ramp", 0), OFF):
        with pins.refused(SettingsError):
            cutover.judge(PatternPhase("orders"), after, never)


def test_evidence_of_an_older_phase_moves_nothing(cutover: Cutover) -> None:
    judged = cutover.judge(PatternPhase("orders"), State("shadow"), lambda known, after: [GOOD])
    at(cutover, State("shadow"))
    with pins.refused(MovedError):
        cutover.move(judged)


STATES = {
    "shadow": [State("shadow")],
    "ramp": [State("shadow"), State("ramp", 10)],
    "live": [State("shadow"), State("ramp", 100), State("live")],
}


@pytest.mark.parametrize("phase", STATES)
def test_a_rollback_needs_no_evidence_from_any_phase(cutover: Cutover, phase: str) -> None:
    known = at(cutover, *STATES[phase])
    back = cutover.roll_back(known, None, "pager")
    assert back.state == State("off" if phase == "shadow" else "shadow")
    assert cutover.phases.history()[-1].reason == "pager"


def test_a_rollback_goes_back_only_and_not_from_complete(cutover: Cutover) -> None:
    with pins.refused(SettingsError, "already"):
        cutover.roll_back(PatternPhase("orders"), None, "")
    with pins.refused(SettingsError, "way"):
        cutover.roll_back(PatternPhase("orders"), State("shadow"), "")
    complete = at(cutover, *STATES["live"], State("complete"))
    with pins.refused(SettingsError, "phase"):
        cutover.roll_back(complete, State("off"), "")


def test_a_rollback_lowers_a_ramp(cutover: Cutover) -> None:
    known = at(cutover, *STATES["ramp"])
    assert cutover.roll_back(known, State("ramp", 1), "").state == State("ramp", 1)


PATTERNS = """
access_patterns:
  orders of a user:
    params: {user: integer}
    query: {key: ["USER#{user}", {begins_with: "ORDER#"}]}
    returns: [name]
    sql: SELECT 1
    order: any
  user by email: {params: {email: text}, get: {key: ["EMAIL#{email}", EMAIL]}, returns: [type], sql: SELECT 1}
"""


def ownership(direct: tuple[str, ...] = (), on_record: tuple[str, ...] = (), **states: str) -> WriteOwnership:
    phases = FakePhases(lambda: 1000.0)
    for name, phase in states.items():
        state = State("ramp", 5) if phase == "ramp" else State(next(one for one in PHASES if one == phase))
        phases.move(Move(name.replace("_", " "), State(), state, "ada"), 0)
    mapping = Shop(PATTERNS).checked.mapping
    return WriteOwnership(mapping, direct, phases, lambda: frozenset(on_record))


def test_rows_are_the_truth_until_every_pattern_is_complete() -> None:
    ownership().need_rows()
    ownership(orders_of_a_user="complete", user_by_email="live").need_rows()
    late = ownership(orders_of_a_user="complete", user_by_email="complete")
    assert late.is_service()
    with pins.refused(SettingsError):
        late.need_rows()


def test_items_that_callers_are_answered_from_are_not_taken_away() -> None:
    ownership(orders_of_a_user="shadow", user_by_email="live").refuse_answering({"orders"})
    with pins.refused(SettingsError):
        ownership(orders_of_a_user="ramp").refuse_answering({"orders"})


def test_entity_that_the_service_writes_is_left_out_of_every_job() -> None:
    ownership(("orders",), ("orders",), orders_of_a_user="complete").need_direct()
    with pins.refused(SettingsError, "orders"):
        ownership(("orders",), ("orders",), orders_of_a_user="live").need_direct()
    with pins.refused(SettingsError, "itself"):
        ownership((), ("orders",)).need_direct()
