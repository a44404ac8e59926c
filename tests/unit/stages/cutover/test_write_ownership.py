"""Ownership of writes: rows, until every pattern is complete; the service, of entities that it writes itself."""

from __future__ import annotations

from migrator.model.errors import SettingsError
from migrator.model.evidence import PHASES, Move, State
from migrator.stages.cutover.moves import WriteOwnership
from tests import pins
from tests.fakes.phases import FakePhases
from tests.unit.stages.live_world import Shop

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


def test_an_entity_that_the_service_writes_is_left_alone_by_every_job() -> None:
    ownership(("orders",), ("orders",), orders_of_a_user="complete").need_direct()
    with pins.refused(SettingsError, "orders"):
        ownership(("orders",), ("orders",), orders_of_a_user="live").need_direct()
    with pins.refused(SettingsError, "itself"):
        ownership((), ("orders",)).need_direct()
