"""Each line of evidence: right, wrong, and not known, which counts as a no."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.mapping.model.evidence import Line, State
from migrator.mapping.model.instances import Instance, ServiceRegistry
from migrator.mapping.model.live import MarksState
from migrator.runtime.values import replace
from migrator.settings.job import CutoverSettings
from migrator.stages.cutover.evidence import Facts, Unknown, VerifyOnRecord, answers_needed, judge
from tests import pins
from tests.unit.stages.core.evidence_world import (
    GONE_S,
    NOW_S,
    PATTERN,
    RAMP,
    READER,
    facts,
    slow,
    window,
    windows,
)

LIMITS = CutoverSettings()
HIGHER = State("ramp", 50)


def lines(found: Facts, after: State = HIGHER, limits: CutoverSettings = LIMITS) -> dict[str, Line]:
    return {line.name: line for line in judge(found, limits, after)}


def failing(found: Facts, after: State = HIGHER, limits: CutoverSettings = LIMITS) -> dict[str, str]:
    return {name: line.verdict for name, line in lines(found, after, limits).items() if line.verdict != "ok"}


def test_a_pattern_of_which_all_is_right_may_go_forward() -> None:
    assert failing(facts()) == {}
    assert failing(facts(State("shadow")), State("ramp", 1)) == {}
    assert failing(facts(State("ramp", 100)), State("live")) == {}
    assert failing(facts(State("off")), State("shadow")) == {}


def test_relay_line_counts_relays_and_not_their_writers() -> None:
    assert lines(facts(relays=2))["relay"].found == pins.text()


@pytest.mark.parametrize("before", [State("ramp", 10), State("ramp", 100), State("live")])
def test_rollback_needs_nothing(before: State) -> None:
    for after in (State("ramp", 5), State("shadow"), State("off")):
        assert judge(facts(before, verified=None, relays=0), LIMITS, after) == []


def test_live_comes_after_a_whole_ramp() -> None:
    assert failing(facts(State("ramp", 99)), State("live")) == {"ramp": "no"}


def test_shadow_needs_the_table_and_the_marks() -> None:
    found = facts(State("off"), table_fault="there is no index GSI1", capture_fault="not installed", relays=0)
    assert failing(found, State("shadow")) == {"table": "no", "capture": "no"}
    assert "no index GSI1" in lines(found, State("shadow"))["table"].found


def test_a_mark_as_old_as_the_limit_allows_may_wait() -> None:
    oldest_s = LIMITS.lag_max_s
    assert failing(facts(marks=MarksState(1, oldest_s))) == {}
    assert failing(facts(marks=MarksState(1, oldest_s + 0.001))) == {"lag": "no"}


WRONG: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "no relay": ({"relays": 0}, {"relay": "no"}),
    "a journal that knows of no table": ({"relays": Unknown("away")}, {"relay": "unknown"}),
    "lag": ({"marks": MarksState(9, 11.0)}, {"lag": "no"}),
    "a mark that failed": ({"marks": MarksState(1, 1.0, failed=1)}, {"lag": "no"}),
    "a source that is away": ({"marks": Unknown("away")}, {"lag": "unknown"}),
    "no verify": ({"verified": None}, {"verify": "unknown"}),
    "a verify that goes on": ({"verified": VerifyOnRecord(7, 0, None)}, {"verify": "unknown"}),
    "an old verify": ({"verified": VerifyOnRecord(7, 0, 90_000.0)}, {"verify": "no"}),
    "findings": ({"verified": VerifyOnRecord(7, 2, 5.0)}, {"verify": "no"}),
    "a table that is away": ({"table_fault": Unknown("away")}, {"table": "unknown"}),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_or_unknown_evidence_blocks_a_move(what: str) -> None:
    wrong, said = WRONG[what]
    assert failing(facts(**wrong)) == said


COMPLETE = State("complete")
AGAINST_COMPLETE: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "a table that differs": ({"table_fault": "no index GSI1"}, {"table": "no"}),
    "changes that leave no mark": ({"capture_fault": "not installed"}, {"capture": "no"}),
    "a source that is away": ({"capture_fault": Unknown("away")}, {"capture": "unknown"}),
    "few comparisons since live": (
        {"seen": [window(compared=990)]},
        {"comparisons": "no", "mismatches": "unknown", "errors": "unknown"},
    ),
    "only replayed ones": (
        {"seen": windows(origin="replay")},
        {"comparisons": "no", "mismatches": "unknown", "errors": "unknown", "p99": "unknown"},
    ),
    "differences": ({"seen": [window(compared=1000, different=4)]}, {"mismatches": "no"}),
    "errors": ({"seen": [window(compared=1000, errors={"table": 10})]}, {"errors": "no"}),
    "slow answers": ({"seen": [slow("table", 1000, 16)]}, {"p99": "no"}),
    "no reader": ({"service_registry": ServiceRegistry((), NOW_S, GONE_S)}, {"instances": "no"}),
}


@pytest.mark.parametrize("what", AGAINST_COMPLETE)
def test_one_way_move_needs_a_healthy_pattern(what: str) -> None:
    wrong, said = AGAINST_COMPLETE[what]
    assert failing(facts(State("live")), COMPLETE) == {}
    assert failing(facts(State("live"), **wrong), COMPLETE) == said


def test_nothing_compared_is_unknown_not_clean() -> None:
    said = failing(facts(seen=[]))
    assert said == {
        "comparisons": "no",
        "kinds": "no",
        "mismatches": "unknown",
        "errors": "unknown",
        "p99": "unknown",
    }


def test_windows_of_another_mapping_are_reported_and_not_counted() -> None:
    found = facts(seen=windows(answer="old"))
    assert failing(found)["comparisons"] == "no"
    assert pins.said(lines(found)["comparisons"].found)


def test_changed_pattern_loses_its_evidence_despite_equal_items() -> None:
    found = facts(seen=windows(answer="old"))
    assert {window.revision for window in found.windows} == {found.revision}
    assert failing(found)["comparisons"] == "no"


def test_evidence_counts_if_other_parts_of_the_mapping_change() -> None:
    assert failing(facts(seen=windows(revision="of before"))) == {}


def test_windows_before_the_last_move_and_old_ones_do_not_count() -> None:
    before = [window(minutes) for minutes in range(11, 16)]
    assert lines(facts(seen=before))["comparisons"].found.startswith("0 (")
    old = [window(2 * 24 * 60, compared=5000)]
    never_moved = replace(facts(State("off"), old).phase, since=0.0, version=0)
    assert lines(facts(State("shadow"), old, phase=never_moved))["comparisons"].found.startswith("0 (")


def test_replayed_answers_count_until_the_table_answers() -> None:
    replayed = windows(origin="replay")
    assert failing(facts(State("shadow"), replayed), State("ramp", 1)) == {}
    assert failing(facts(State("ramp", 1), replayed))["comparisons"] == "no"
    assert "kinds" not in failing(facts(State("ramp", 1), replayed))


def test_half_of_the_parameter_kinds_suffice_and_fewer_do_not() -> None:
    three = replace(PATTERN, params=tuple(replace(PATTERN.params[1], name=name) for name in "abc"))
    said = lines(facts(pattern=three))["kinds"]
    assert (said.found, said.verdict) == ("2 of 8", "no")


def test_few_answers_prove_no_share_and_many_do() -> None:
    few = [window(compared=990)]
    assert failing(facts(seen=few)) == {"comparisons": "no", "mismatches": "unknown", "errors": "unknown"}
    one = [window(compared=1000, different=1)]
    assert failing(facts(seen=one)) == {"mismatches": "unknown"}
    assert failing(facts(seen=[window(compared=1600, different=1)])) == {}
    assert failing(facts(seen=[window(compared=1000, different=4)])) == {"mismatches": "no"}


@pytest.mark.parametrize("different", [0, 1, 2])
def test_advice_names_the_answers_that_make_a_share_sure(different: int) -> None:
    limits = LIMITS.model_copy(update={"comparisons_min": 5, "mismatch_max": 0.25})
    few = [window(compared=10, different=different, origin="replay")]
    mend = lines(facts(State("shadow"), few), State("ramp", 1), limits)["mismatches"].mend
    lacking = int(mend.partition("--sample ")[2].rstrip("`"))
    for more, is_ok in ((lacking, True), (lacking - 1, False)):
        seen = [*few, window(compared=more, origin="replay")]
        verdict = lines(facts(State("shadow"), seen), State("ramp", 1), limits)["mismatches"].verdict
        assert (verdict == "ok") == is_ok


def test_a_move_needs_the_answers_that_make_every_share_sure() -> None:
    assert answers_needed(LIMITS) == 1000
    small = LIMITS.model_copy(update={"comparisons_min": 50})
    assert answers_needed(small) == 998
    found = facts(State("shadow"), windows(1, compared=998, origin="replay"))
    assert failing(found, State("ramp", 1), small) == {}
    found = facts(State("shadow"), windows(1, compared=997, origin="replay"))
    assert failing(found, State("ramp", 1), small) == {"mismatches": "unknown", "errors": "unknown"}


def test_refusal_for_counts_names_how_they_begin_again() -> None:
    wrong = lines(facts(seen=[replace(slow("table", 1000, 16), different=40, errors={"table": 40})]))
    for name in ("mismatches", "errors", "p99"):
        assert (wrong[name].verdict, pins.said(wrong[name].mend)) == ("no", True)


def test_unsettled_comparisons_may_have_differed() -> None:
    for why in ("unsettled", "ended"):
        found = facts(seen=[window(compared=1600, dropped={why: 20})])
        assert failing(found) == {"mismatches": "unknown"}
        line = lines(found)["mismatches"]
        assert line.found == pins.text()
        assert "reads.shadow.per_s" in line.mend
    assert failing(facts(seen=[window(compared=3000, dropped={"unsettled": 1, "busy": 5000})])) == {}
    wrong = [window(compared=1000, different=40, dropped={"unsettled": 20})]
    assert failing(facts(seen=wrong)) == {"mismatches": "no"}


def test_errors_of_the_table_count_and_those_of_sql_do_not() -> None:
    wrong = [window(compared=1000, errors={"table": 10})]
    assert failing(facts(seen=wrong)) == {"errors": "no"}
    assert failing(facts(seen=[window(compared=1000, errors={"sql": 100})])) == {}


def test_p99_is_judged_by_the_budget_or_by_sqls() -> None:
    assert failing(facts(seen=[slow("table", 1000, 14)])) == {}
    assert failing(facts(seen=[slow("table", 1000, 16)])) == {"p99": "no"}
    tight = replace(PATTERN, p99_ms=10)
    assert failing(facts(seen=[slow("table", 1000, 14)], pattern=tight)) == {"p99": "no"}
    wide = replace(PATTERN, p99_ms=20)
    assert failing(facts(seen=[slow("table", 1000, 16)], pattern=wide)) == {}
    alone = [window(compared=1000, latency={"table": slow("sql", 1000, 5).latency["table"]})]
    assert failing(facts(seen=alone)) == {"p99": "unknown"}


def test_every_reader_acts_by_the_phase_and_has_the_mapping() -> None:
    other = replace(READER, id="b", host="web-2")
    two = ServiceRegistry((READER, other), NOW_S, GONE_S)
    assert failing(facts(service_registry=two)) == {"confirmed": "no"}
    assert "shop on web-2:1" in lines(facts(service_registry=two))["confirmed"].found
    assert failing(facts(service_registry=two, confirmed={"a": 3, "b": 3})) == {}
    stranger = ServiceRegistry((READER, replace(other, revision="old")), NOW_S, GONE_S)
    assert failing(facts(service_registry=stranger, confirmed={"a": 3, "b": 3})) == {"instances": "no"}
    assert failing(facts(service_registry=ServiceRegistry((), NOW_S, GONE_S))) == {"instances": "no"}


def test_dead_unregistered_instance_stops_moves_until_evicted() -> None:
    dead = replace(READER, id="dead", alive_at=NOW_S - GONE_S - 1)
    found = facts(service_registry=ServiceRegistry((READER, dead), NOW_S, GONE_S))
    assert failing(found) == {"silent": "unknown"}
    assert "--evict dead" in lines(found)["silent"].mend


DEAD = replace(READER, id="dead", alive_at=NOW_S - 500)
NEWER = replace(READER, since=NOW_S - 400)


@pytest.mark.parametrize(
    ("service_registry", "to_live", "to_complete"),
    [
        ((DEAD, NEWER), {}, {"silent": "unknown"}),
        ((DEAD, READER), {"silent": "unknown"}, {"silent": "unknown"}),
        ((DEAD, replace(NEWER, host="b"), READER), {"silent": "unknown"}, {"silent": "unknown"}),
        ((DEAD, replace(NEWER, service="b"), READER), {"silent": "unknown"}, {"silent": "unknown"}),
        (
            (DEAD, replace(NEWER, id="b", alive_at=NOW_S - 300), READER),
            {"silent": "unknown"},
            {"silent": "unknown"},
        ),
    ],
    ids=["newer-host", "fell-silent", "case", "case-dead", "fell-silent-too"],
)
def test_a_silent_instance_stands_against_moves_until(
    service_registry: tuple[Instance, ...], to_live: dict[str, str], to_complete: dict[str, str]
) -> None:
    """Before complete SQL is true for a reader that acts by an old phase; from complete on it is not."""
    found = facts(
        RAMP,
        service_registry=ServiceRegistry(service_registry, NOW_S, GONE_S),
        confirmed={one.id: 3 for one in service_registry},
    )
    assert failing(found) == to_live
    live = facts(
        State("live"),
        service_registry=ServiceRegistry(service_registry, NOW_S, GONE_S),
        confirmed={one.id: 3 for one in service_registry},
    )
    assert failing(live, State("complete")) == to_complete


def test_living_instance_blocks_moves_despite_newer_ones() -> None:
    """Workers of one host: the first one has not seen the last move yet."""
    late, *others = (replace(READER, id=id_, pid=pid) for pid, id_ in enumerate(("late", "b", "c", "d")))
    newer = [replace(one, since=NOW_S - 3) for one in others]
    service_registry = ServiceRegistry((late, *newer), NOW_S, GONE_S)
    assert service_registry.replaced == []
    assert failing(facts(service_registry=service_registry, confirmed={"b": 3, "c": 3, "d": 3})) == {
        "confirmed": "no"
    }


def test_a_replaced_instance_is_named_anyway() -> None:
    said = lines(facts(service_registry=ServiceRegistry((DEAD, NEWER), NOW_S, GONE_S)))["silent"]
    assert said.found == pins.text()
    assert said.mend == ""


def test_evidence_from_windows_reports_their_age() -> None:
    for found in (facts(), facts(seen=[window(compared=1600, dropped={"unsettled": 20})]), facts(seen=[])):
        said = lines(found)
        ages = {said[name].age_s for name in ("comparisons", "mismatches", "errors", "p99")}
        assert ages == {said["comparisons"].age_s}


def test_ages_are_those_of_the_newest_window_and_never_negative() -> None:
    assert lines(facts())["comparisons"].age_s == pytest.approx(60, abs=60)
    ahead = [window(-10, compared=2000)]
    assert lines(facts(seen=ahead))["comparisons"].age_s == 0


@pytest.mark.parametrize(("seconds_late", "counted"), [(0, 500), (1, 0)])
def test_a_window_counts_up_to_the_age_that_is_allowed(seconds_late: int, counted: int) -> None:
    oldest = int(NOW_S - LIMITS.evidence_max_age_s) - seconds_late
    found = facts(seen=[replace(window(), begun_at=oldest)])
    assert found.counts(LIMITS, since_move=False).compared == counted


@pytest.mark.parametrize(("seconds_late", "counted"), [(0, 500), (1, 0)])
def test_window_begun_with_the_move_counts_and_an_earlier_not(seconds_late: int, counted: int) -> None:
    made = facts()
    begun_at = int(made.phase.since) - seconds_late
    found = replace(made, windows=[replace(window(), begun_at=begun_at)])
    assert found.counts(LIMITS, since_move=True).compared == counted
