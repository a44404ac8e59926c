"""What has to be so before the service may write an entity past SQL: doubt means no."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from migrator.mapping.model.evidence import PatternPhase, State
from migrator.mapping.model.instances import Instance, InstanceRole, ServiceRegistry
from migrator.mapping.model.live import ActivityCounts, MarksState
from migrator.runtime.values import replace
from migrator.settings.job import CutoverSettings
from migrator.stages.cutover.dependence import (
    Dependence,
    before_the_end,
    may_be_direct,
    still_needed,
)
from migrator.stages.cutover.evidence import Unknown, VerifyOnRecord
from tests import pins
from tests.unit.stages.core.evidence_world import GONE_S, NOW_S, READER

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


LOOK = ActivityCounts({"shop.a": "7", "shop.b": "1"}, 5, "pg_stat_user_tables")
CLEAN = VerifyOnRecord(7, 0, 60.0, LOOK)
DONE = Dependence(
    phases={"p": PatternPhase("p", State("complete"), 5)},
    service_registry=ServiceRegistry((), NOW_S, GONE_S),
    tables=("shop.a", "shop.b"),
    unread=(),
    looks=(LOOK, LOOK),
    apart_s=10,
    marks=MarksState(),
    waiting={},
    verified=CLEAN,
    tombstones=(0, 0),
    revision="rev",
)
SILENT = replace(READER, id="b", alive_at=NOW_S - 3600)
WRITER = replace(READER, role="dual_write")
GAP = replace(LOOK, whole=None, blind="no relay has read for a day")
BLIND = ActivityCounts({}, 5, "changes", "SQLite counts no changes by table")
WRONG: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "a pattern that SQL answers": (
        {"phases": {"p": PatternPhase("p", State("ramp", 100), 3)}},
        {"patterns": "no", "complete": "no"},
    ),
    "a pattern that is live": ({"phases": {"p": PatternPhase("p", State("live"), 3)}}, {"complete": "no"}),
    "a service that writes": (
        {"service_registry": ServiceRegistry((WRITER,), NOW_S, GONE_S)},
        {"services": "no", "writers": "no"},
    ),
    "a service that reads through migrator still": (
        {"service_registry": ServiceRegistry((READER,), NOW_S, GONE_S), "confirmed": {"a": {"p": 5}}},
        {"services": "no"},
    ),
    "a reader that acts by an older phase": (
        {"service_registry": ServiceRegistry((READER,), NOW_S, GONE_S), "confirmed": {"a": {"p": 4}}},
        {"services": "no", "confirmed": "no"},
    ),
    "a reader by another mapping": (
        {
            "service_registry": ServiceRegistry((replace(READER, revision="x"),), NOW_S, GONE_S),
            "confirmed": {"a": {"p": 5}},
        },
        {"services": "no", "confirmed": "no"},
    ),
    "a silent reader": (
        {"service_registry": ServiceRegistry((SILENT,), NOW_S, GONE_S)},
        {"silent": "unknown"},
    ),
    "a table that changes": (
        {"looks": (LOOK, replace(LOOK, tables={"shop.a": "7", "shop.b": "2"}))},
        {"changes": "no", "verify": "no"},
    ),
    "a table that comes": ({"looks": (replace(LOOK, tables={"shop.a": "7"}), LOOK)}, {"changes": "no"}),
    "marks that come": (
        {"looks": (BLIND, replace(BLIND, whole=6)), "verified": replace(CLEAN, look=BLIND)},
        {"changes": "no", "verify": "no"},
    ),
    "capture that goes": (
        {"looks": (BLIND, replace(BLIND, whole=None)), "verified": replace(CLEAN, look=BLIND)},
        {"changes": "no", "verify": "unknown"},
    ),
    "nothing that counts": (
        {"looks": (replace(BLIND, whole=None),) * 2, "verified": replace(CLEAN, look=BLIND)},
        {"changes": "unknown", "verify": "unknown"},
    ),
    "a table that is not counted": (
        {
            "looks": (replace(LOOK, tables={"shop.a": "7"}, whole=None),) * 2,
            "verified": replace(CLEAN, look=replace(LOOK, tables={"shop.a": "7"})),
        },
        {"changes": "unknown"},
    ),
    "a source that is away": (
        {"looks": Unknown("away"), "marks": Unknown("away"), "waiting": Unknown("away")},
        {"changes": "unknown", "transactions": "unknown", "marks": "unknown"},
    ),
    "a source that has dropped what it told of changes before": (
        {"looks": (GAP, GAP), "waiting": Unknown("no relay has read for a day")},
        {"marks": "unknown", "verify": "unknown"},
    ),
    "one that changes all the same": (
        {"looks": (GAP, replace(GAP, tables={"shop.a": "8", "shop.b": "1"}))},
        {"changes": "no", "verify": "no"},
    ),
    "a transaction that writes a table of ours": (
        {"looks": (LOOK, replace(LOOK, open={"3/7": "shop.a"}))},
        {"transactions": "no"},
    ),
    "a transaction that was open all the time": (
        {"looks": (replace(LOOK, open={"77": ""}),) * 2},
        {"transactions": "no"},
    ),
    "transactions that may not be seen": (
        {"looks": (replace(LOOK, open=None, unseen="no right"),) * 2},
        {"transactions": "unknown"},
    ),
    "marks": ({"marks": MarksState(2, 1.0), "waiting": {"shop.a": 2}}, {"marks": "no"}),
    "marks that are not ripe": ({"marks": MarksState(unripe=1), "waiting": {"shop.a": 1}}, {"marks": "no"}),
    "marks that failed": ({"marks": MarksState(failed=1)}, {"marks": "no"}),
    "a change since the verify": (
        {"verified": replace(CLEAN, look=replace(LOOK, tables={"shop.a": "6", "shop.b": "1"}))},
        {"verify": "no"},
    ),
    "marks since the verify": ({"verified": replace(CLEAN, look=replace(LOOK, whole=4))}, {"verify": "no"}),
    "a verify without a look before it": ({"verified": replace(CLEAN, look=None)}, {"verify": "unknown"}),
    "a verify before anything was captured": (
        {"looks": (BLIND, BLIND), "verified": replace(CLEAN, look=replace(BLIND, whole=None))},
        {"verify": "unknown"},
    ),
    "findings": ({"verified": VerifyOnRecord(7, 1, 60.0)}, {"verify": "no"}),
    "an old verify": (
        {"verified": replace(CLEAN, age_s=90_000.0), "phases": {"p": PatternPhase("p", State("live"), 3)}},
        {"verify": "no", "complete": "no"},
    ),
    "no verify": ({"verified": None}, {"verify": "unknown"}),
    "a verify that goes on": ({"verified": VerifyOnRecord(7, 0, None)}, {"verify": "unknown"}),
    "a table that cannot be asked": ({"verified": Unknown("away")}, {"verify": "unknown"}),
    "tables left": ({"unread": ("audit", "kept_1")}, {"unmigrated": "no"}),
    "tombstones": ({"tombstones": (3, 1)}, {"tombstones": "no"}),
}


def failing(found: Dependence, limits: CutoverSettings = CutoverSettings()) -> dict[str, str]:  # noqa: B008
    return {line.name: line.verdict for line in before_the_end(found, limits) if line.verdict != "ok"}


def test_a_job_of_which_nothing_depends_on_sql_is_done() -> None:
    assert failing(DONE) == {}
    passing = replace(LOOK, open={"78": ""})
    assert failing(replace(DONE, looks=(replace(LOOK, open={"77": ""}), passing))) == {}
    blind = replace(DONE, looks=(BLIND, BLIND), verified=replace(CLEAN, look=BLIND))
    assert failing(blind) == {}
    said = {line.name: line.found for line in still_needed(blind, CutoverSettings())}
    assert said["changes"] == pins.text()


def test_two_looks_without_a_change_are_quiet_despite_the_past() -> None:
    said = {line.name: line for line in still_needed(replace(DONE, looks=(GAP, GAP)), CutoverSettings())}
    assert said["changes"].found == pins.text("day")
    assert (said["changes"].verdict, said["transactions"].verdict) == ("ok", "ok")
    assert said["verify"].found == (pins.text("finding"))
    assert said["verify"].mend == pins.text("somebody")


@pytest.mark.parametrize("what", WRONG)
def test_remaining_dependence_on_sql_blocks_the_end(what: str) -> None:
    wrong, said = WRONG[what]
    assert failing(replace(DONE, **wrong)) == said


def test_pattern_that_still_reads_sql_is_named_with_its_reader() -> None:
    service_registry = ServiceRegistry(
        (replace(READER, role="dual_write,read", mode="outbox"),), NOW_S, GONE_S
    )
    found = replace(DONE, service_registry=service_registry, confirmed={"a": {"p": 4}})
    said = {line.name: line.found for line in before_the_end(found, CutoverSettings())}
    assert said["confirmed"] == pins.text()
    assert said["services"] == "1: shop on web-1:1"


def test_an_instance_that_fell_silent_counts_for_a_day() -> None:
    old = ServiceRegistry((replace(SILENT, alive_at=NOW_S - 90_000),), NOW_S, GONE_S)
    assert failing(replace(DONE, service_registry=old)) == {}
    live = {"p": PatternPhase("p", State("live"), 4)}
    for phases, mend in ((live, "--evict b"), (DONE.phases, "for a day")):
        found = replace(DONE, phases=phases, service_registry=ServiceRegistry((SILENT,), NOW_S, GONE_S))
        said = {line.name: line.mend for line in before_the_end(found, CutoverSettings())}
        assert mend in said["silent"]


def test_verify_does_not_age_after_complete_while_source_rests() -> None:
    """By then the table may be newer than the rows, and no later verify could be clean."""
    assert failing(replace(DONE, verified=replace(CLEAN, age_s=90_000.0))) == {}
    changed = replace(LOOK, tables={"shop.a": "6", "shop.b": "1"})
    assert failing(replace(DONE, verified=replace(CLEAN, age_s=90_000.0, look=changed))) == {"verify": "no"}


def test_a_mark_left_after_the_last_move_is_not_the_relays() -> None:
    said = {
        one.name: one.mend
        for one in before_the_end(replace(DONE, marks=MarksState(2, 1.0), waiting={"": 2}), CutoverSettings())
    }
    assert "`migrator relay --once --force`" in said["marks"]
    assert "--discard-marks" in said["marks"]


def test_a_move_to_complete_wants_its_readers_alive() -> None:
    found = replace(
        DONE, service_registry=ServiceRegistry((READER,), NOW_S, GONE_S), confirmed={"a": {"p": 5}}
    )
    assert {line.verdict for line in still_needed(found, CutoverSettings())} == {"ok"}


def test_users_that_change_a_table_are_named_else_possible_ones() -> None:
    before = replace(LOOK, open={"3/7": "shop.a"}, who={"3/7": "app (nightly batch)"})
    may = {"shop.a": ["app", "root"], "shop.b": ["app", "root"]}
    after = replace(before, tables={"shop.a": "8", "shop.b": "2"}, may_write=may)
    found = {
        line.name: line.found
        for line in before_the_end(replace(DONE, looks=(before, after)), CutoverSettings())
    }
    assert found["changes"] == (
        "by pg_stat_user_tables: shop.a (by app (nightly batch)), shop.b (app, root may write)"
    )
    assert found["transactions"] == "1, writing to shop.a, of app (nightly batch)"


def test_tables_are_left_on_purpose_by_name() -> None:
    found = replace(DONE, unread=("audit", "kept_1", "kept_2"))
    assert failing(found, CutoverSettings(leave=("kept_*", "audit"))) == {}
    assert failing(found, CutoverSettings(leave=("kept_*",))) == {"unmigrated": "no"}


def test_unread_shard_is_not_a_mark_if_no_table_has_waiting_ones() -> None:
    """A stream of old tables counts as behind once the last relay has ended."""
    found = replace(DONE, marks=MarksState(3, 900.0), waiting={})
    assert failing(found) == {}


def test_waiting_changes_are_counted_by_table() -> None:
    found = replace(DONE, marks=MarksState(3, 1.0), waiting={"shop.a": 2, "": 1})
    said = {line.name: line.found for line in still_needed(found, CutoverSettings())}
    assert said["marks"] == pins.text()
