"""What has to be so before the service may write an entity past SQL: doubt means no."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from migrator.model.evidence import PatternPhase, State
from migrator.model.instances import Instance, InstanceRole, ServiceRegistry
from migrator.model.live import ActivityCounts, MarksState
from migrator.stages.cutover.dependence import Dependence, may_be_direct
from migrator.stages.cutover.evidence import Unknown

QUIET = ActivityCounts({"invoice": "3"}, None, "pg_stat_user_tables")
GOOD = Dependence(
    phases={"mine": PatternPhase("mine", State("complete"), 4), "other": PatternPhase("other")},
    service_registry=ServiceRegistry((), 100.0, 30.0),
    tables=["invoice"],
    unread=[],
    looks=(QUIET, QUIET),
    apart_s=1,
    marks=MarksState(),
    waiting={},
    verified=None,
)


def refused(found: Dependence, writing: list[str] | None = None) -> list[str]:
    lines = may_be_direct(found, ["mine"], writing or [], "rev")
    return [line.name for line in lines if line.verdict != "ok"]


def instance(role: InstanceRole = "read", revision: str = "rev", alive_at: float = 99.0) -> Instance:
    return Instance("api", "host", 1, "1", "1", role, "", revision, "", "id", 0.0, alive_at)


def test_all_is_well() -> None:
    assert refused(GOOD) == []
    assert refused(replace(GOOD, service_registry=ServiceRegistry((instance(),), 100.0, 30.0))) == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda: replace(GOOD, phases={"mine": PatternPhase("mine", State("live"), 3)}), "complete"),
        (lambda: replace(GOOD, marks=MarksState(unripe=1), waiting={"shop.a": 1}), "marks"),
        (lambda: replace(GOOD, marks=Unknown("the source does not answer")), "marks"),
        (lambda: replace(GOOD, looks=(QUIET, replace(QUIET, tables={"invoice": "4"}))), "changes"),
        (lambda: replace(GOOD, looks=(QUIET, replace(QUIET, open={"3/7": "invoice"}))), "transactions"),
        (
            lambda: replace(GOOD, service_registry=ServiceRegistry((instance("dual_write"),), 100.0, 30.0)),
            "writers",
        ),
        (
            lambda: replace(GOOD, service_registry=ServiceRegistry((instance(revision="old"),), 100.0, 30.0)),
            "instances",
        ),
        (
            lambda: replace(GOOD, service_registry=ServiceRegistry((instance(alive_at=1.0),), 100.0, 30.0)),
            "instances",
        ),
    ],
)
def test_one_thing_in_doubt_refuses(change: Callable[[], Dependence], line: str) -> None:
    assert refused(change()) == [line]


def test_a_source_that_does_not_answer_refuses() -> None:
    away = replace(GOOD, looks=Unknown("the source does not answer"))
    assert refused(away) == ["changes", "transactions"]


def test_a_process_that_began_before_stands_in_the_way() -> None:
    assert refused(GOOD, ["relay"]) == ["ours"]
