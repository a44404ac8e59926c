"""An index is removed only where nothing known asks it."""

from __future__ import annotations

import pytest

from migrator.commands.table_work import refuse_readers
from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.model.evidence import PatternPhase, State
from migrator.mapping.model.instances import Instance, Newest, Revision
from migrator.runtime.errors import SettingsError
from tests import pins

PATTERNS = examine_mapping(
    """
mapping: 1
table: {name: Table, key: [PK], type: type, indexes: {GSI1: {key: [G]}, GSI2: {key: [H]}}}
entities: {a: {items: {A: {key: ["A#{id}"], GSI1: ["G#{n}"], GSI2: ["H#{n}"]}}}}
access_patterns:
  by_g: {params: {n: text}, query: {index: GSI1, key: ["G#{n}"]}, returns: [n], sql: SELECT n FROM a WHERE n = :n}
  by_h: {params: {n: text}, query: {index: GSI2, key: ["H#{n}"]}, returns: [n], sql: SELECT n FROM a WHERE n = :n}
""",
    "m.yaml",
).mapping.patterns
OWN = "aaaa"
NEWEST = Newest(Revision("digest", OWN), 0.0, 0)


def phase(name: str, state: State) -> dict[str, PatternPhase]:
    return {name: PatternPhase(name, state, 1)}


def service(revision: str, role: str = "read") -> Instance:
    return Instance("shop-api", "host", 1, "1", "1", role, "", revision, "")  # type: ignore[arg-type]


def refused(
    newest: Newest | None = NEWEST,
    instances: tuple[Instance, ...] = (),
    phases: dict[str, PatternPhase] | None = None,
) -> str:
    try:
        refuse_readers(["GSI1"], OWN, newest, instances, phases or {}, PATTERNS)
    except SettingsError as error:
        return str(error)
    return ""


def test_nothing_known_asks_it() -> None:
    assert refused() == ""
    assert refused(newest=None) == ""
    assert refused(instances=(service(OWN), service("bbbb", "dual_write"))) == ""


def test_a_file_that_is_not_the_newest() -> None:
    assert pins.said(refused(Newest(Revision("digest", "bbbb"), 0.0, 0)))


def test_a_service_of_another_revision_that_reads() -> None:
    assert pins.said(refused(instances=(service("bbbb"),)), "reads")
    assert pins.said(refused(instances=(service("bbbb", "dual_write,read"),)), "mapping")


@pytest.mark.parametrize(
    ("name", "state", "is_refused"),
    [
        ("by_g", State("live"), True),
        ("by_g", State("ramp", 5), True),
        ("by_g", State("complete"), True),
        ("by_g", State("shadow"), False),
        ("by_h", State("live"), False),  # it asks another index
        ("gone", State("live"), True),
        ("gone", State("shadow"), False),
    ],
)
def test_a_pattern_that_dynamodb_answers(name: str, state: State, is_refused: bool) -> None:
    said = refused(phases=phase(name, state))
    assert bool(said) is is_refused
    assert not is_refused or pins.said(said, name=name, phase=state.phase)


def test_everything_in_the_way_is_named_at_once() -> None:
    said = refused(
        Newest(Revision("digest", "bbbb"), 0.0, 0), (service("bbbb"),), phase("by_g", State("live"))
    )
    assert len(said.splitlines()) == 4
