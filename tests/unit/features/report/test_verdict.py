"""Causes that values do not tell, and what helps."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.features.report.verdict import Circumstances, Standings, cause_of, found_nothing, verdict_of
from migrator.mapping.model.report import LagReport, PatternReport, Refused, RunReport
from migrator.runtime.values import replace
from tests import pins
from tests.support_report import EMAIL, PRICE

KNOWN = Circumstances()
RUN = replace(KNOWN, of_pattern=False)
BARE = replace(KNOWN, captured=False)
WAITING = replace(KNOWN, waiting=1_200)
EMPTY = replace(KNOWN, backfilled=False)

CASES = [
    ("missing", "", KNOWN, "never written or lost", "--repair"),
    ("missing", "", RUN, "never written or lost", "--repair"),
    ("missing", "", BARE, "never written or lost", "backfill JOB --restart"),
    ("missing", "", EMPTY, "no backfill has ended yet", "migrator backfill JOB"),
    ("missing", "", WAITING, "1,200 changes wait for a relay", "migrator relay JOB"),
    ("missing", "", replace(WAITING, refused=2), "2 rows are refused", "migrator status JOB --findings"),
    ("missing", "", replace(RUN, refused=2), "never written or lost", "--repair"),
    ("unexpected", "", KNOWN, "its row was deleted", "--repair"),
    ("unexpected", "", WAITING, "1,200 changes wait for a relay", "migrator relay JOB"),
    ("value", "total", KNOWN, "", "--repair"),
    ("value", "total", WAITING, "1,200 changes wait for a relay", "migrator relay JOB"),
    ("order", "", KNOWN, "the sort key keeps another order", "order: any"),
    ("error", "table", KNOWN, "DynamoDB did not answer", "DynamoDB"),
    ("error", "sql", KNOWN, "SQL did not answer", "SQL"),
    ("collision", "", RUN, "two rows make one key", "another part"),
    ("foreign", "", RUN, "another program", "writes: {leave"),
    ("sum", "total", RUN, "values differ", "other differences"),
    ("a kind that is not known", "", RUN, "", "--repair"),
]


@pytest.mark.parametrize(("kind", "attribute", "around", "likely", "advice"), CASES)
def test_each_kind_has_what_it_mostly_comes_from(
    kind: str, attribute: str, around: Circumstances, likely: str, advice: str
) -> None:
    found = cause_of(kind, attribute, [], around)
    assert likely in found.likely
    assert bool(likely) == bool(found.likely)
    assert advice in found.advice


def test_value_cause_comes_first_with_advice_for_its_place() -> None:
    pairs = [("1", "100"), ("2", "200")]
    of_answers, of_rows = (
        cause_of("value", "total", pairs, around) for around in (WAITING, replace(RUN, waiting=5))
    )
    assert of_answers.likely == of_rows.likely == pins.text("likely")
    assert "the pattern's SQL" in of_answers.advice
    assert "--repair" in of_rows.advice


def test_only_marks_older_than_a_finding_explain_it() -> None:
    around = replace(KNOWN, waiting=3, oldest_s=20.0, now_s=1_000.0)
    assert around.of(980.5).waiting == 3
    assert around.of(979.5).waiting == 0
    assert pins.said(cause_of("missing", "", [], around.of(990)).likely)
    assert "never written" in cause_of("missing", "", [], around.of(900)).likely


def test_marks_must_be_old_if_the_finding_has_no_time() -> None:
    around = replace(KNOWN, waiting=3, now_s=1_000.0)
    assert replace(around, oldest_s=299.0).of(None).waiting == 0
    assert replace(around, oldest_s=301.0).of(None).waiting == 3


def test_attribute_missing_from_all_items_was_added_after_them() -> None:
    assert pins.said(cause_of("missing", "total", [("1", "null"), ("2", "null")], KNOWN).likely, "attribute")
    assert cause_of("value", "total", [("1", "null"), ("2", "9")], KNOWN).likely == ""
    assert pins.said(cause_of("unexpected", "total", [("null", "1")], KNOWN).likely, "value")


def test_only_patterns_can_leave_something_out() -> None:
    assert "the pattern's" in cause_of("missing", "", [], KNOWN).likely
    assert "pattern" not in cause_of("missing", "", [], RUN).likely
    assert "pattern" not in cause_of("unexpected", "", [], RUN).likely


FILL = RunReport("backfill", 1, "done", "", "", "", 10, 10, 0, {}, None)
VERIFY = replace(FILL, kind="verify", number=2, current=True)
GOOD = PatternReport("get", "off", 0.0, compared=5, same=5)
MOVED = replace(GOOD, name="get_product", phase="shadow")
CLEAN = Standings("jobs/shop.yaml", [], [], [GOOD], [FILL, VERIFY], LagReport(0))


def test_clean_job_advances_the_next_incomplete_pattern() -> None:
    done = replace(GOOD, name="done", phase="complete")
    verdict = verdict_of(replace(CLEAN, patterns=[done, GOOD]))
    assert (verdict.standing, verdict.command) == ("clean", pins.text("advance"))
    assert verdict.reasons == [pins.text("differs"), pins.text("say")]
    assert verdict_of(replace(CLEAN, patterns=[done])).command == pins.text("decommission")


def test_few_failed_calls_are_not_a_difference() -> None:
    failed = replace(PRICE, kind="error", count=1)
    few = replace(GOOD, answered={"table": 999}, errors={"table": 1})
    verdict = verdict_of(replace(CLEAN, groups=[failed], patterns=[few]))
    assert verdict.standing == "clean"
    assert pins.said(verdict.reasons)


POINTS: list[tuple[dict[str, Any], str, str, str]] = [
    (
        {"groups": [EMAIL]},
        "different",
        "migrator verify jobs/shop.yaml --repair",
        "2 differences between rows and items, in user",
    ),
    (
        {"groups": [EMAIL, replace(EMAIL, kind="count", count=1), replace(EMAIL, kind="sum", count=5)]},
        "different",
        "migrator verify jobs/shop.yaml --repair",
        "2 differences between rows and items and 6 totals by plain SQL that differ, in user",
    ),
    (
        {"groups": [replace(EMAIL, kind="sum", count=1)]},
        "different",
        "migrator verify jobs/shop.yaml --repair",
        "1 total by plain SQL that differs, in user",
    ),
    (
        {"groups": [EMAIL], "lag": LagReport(None)},
        "different",
        "migrator backfill jobs/shop.yaml --restart",
        "2 differences between rows and items, in user",
    ),
    (
        {"groups": [PRICE], "lag": LagReport(None)},
        "different",
        "migrator shadow replay jobs/shop.yaml --pattern get --sample 195",
        "214 differences in answers, of get_product",
    ),
    (
        # No example was kept of any of them.
        {"patterns": [replace(GOOD, compared=400, same=388, different=12)], "lag": LagReport(None)},
        "different",
        "migrator shadow replay jobs/shop.yaml --pattern get --sample 200",
        "12 answers differ, of get",
    ),
    (
        {"groups": [replace(EMAIL, kind="foreign", where="", count=2)]},
        "different",
        "migrator status jobs/shop.yaml --findings",
        "2 stored items are of no row of this job",
    ),
    (
        {"refused": [Refused("order", "why", 3, ())]},
        "different",
        "migrator status jobs/shop.yaml --findings",
        "3 rows were refused and have no items",
    ),
    (
        {"lag": LagReport(7, 400.0)},
        "different",
        "migrator relay jobs/shop.yaml --once",
        "7 changes wait for a relay; the oldest for 400 s",
    ),
    (
        {"lag": LagReport(7, 1.0, 2)},
        "different",
        "migrator relay jobs/shop.yaml --once",
        "7 changes wait for a relay, 2 of them failed; the oldest for 1 s",
    ),
    (
        {"away": "table"},
        "unproven",
        "migrator doctor jobs/shop.yaml",
        "the table is unavailable",
    ),
    ({"runs": [VERIFY]}, "unproven", "migrator backfill jobs/shop.yaml", "no backfill was run"),
    (
        {"runs": [replace(FILL, state="failed"), VERIFY]},
        "unproven",
        "migrator backfill jobs/shop.yaml",
        "the last backfill is failed",
    ),
    ({"runs": [FILL]}, "unproven", "migrator verify jobs/shop.yaml", "rows and items were never compared"),
    (
        {"runs": [FILL, replace(VERIFY, state="interrupted")]},
        "unproven",
        "migrator verify jobs/shop.yaml",
        "the last verify is interrupted",
    ),
    (
        {"runs": [FILL, replace(VERIFY, scope="sample=1%;seed=1")]},
        "unproven",
        "migrator verify jobs/shop.yaml",
        "the last verify looked at a sample alone",
    ),
    (
        {"runs": [FILL, replace(VERIFY, current=False)]},
        "unproven",
        "migrator verify jobs/shop.yaml",
        "the last verify was of another mapping, or of other columns",
    ),
    (
        {"patterns": [GOOD, *(PatternReport(name, "off", 0.0) for name in "abcde")]},
        "unproven",
        "migrator shadow replay jobs/shop.yaml --sample 200",
        "5 of 6 patterns not compared in this time by this mapping: a, b, c and 2 more",
    ),
    (
        {"patterns": [replace(GOOD, dropped={"unsettled": 2, "ended": 1, "busy": 9})]},
        "unproven",
        "migrator shadow replay jobs/shop.yaml --pattern get --sample 200",
        "3 answers differed and never compared again, of get",
    ),
]


@pytest.mark.parametrize(
    ("change", "standing", "command", "reason"), POINTS, ids=[reason for *_, reason in POINTS]
)
def test_each_obstacle_is_shown_with_its_fix(
    change: dict[str, Any], standing: str, command: str, reason: str
) -> None:
    verdict = verdict_of(replace(CLEAN, **change))
    assert (verdict.standing, verdict.command, list(verdict.reasons)) == (standing, command, [reason])


def test_differences_come_before_gaps_and_all_are_shown() -> None:
    everything = replace(
        CLEAN, groups=[EMAIL], runs=[], patterns=[PatternReport("a", "off", 0.0)], lag=LagReport(1, 900.0)
    )
    verdict = verdict_of(everything)
    assert verdict.standing == "different"
    assert verdict.command == "migrator verify jobs/shop.yaml --repair"
    assert len(verdict.reasons) == 5


def test_differences_of_patterns_alone_ask_for_a_verify_first() -> None:
    verdict = verdict_of(replace(CLEAN, groups=[PRICE], runs=[FILL]))
    assert verdict.command == "migrator verify jobs/shop.yaml"


WAYS_OUT = {
    "off": "migrator cutover advance jobs/shop.yaml get_product",
    "shadow": "migrator cutover rollback jobs/shop.yaml get_product --to off && migrator cutover advance "
    "jobs/shop.yaml get_product",
}


@pytest.mark.parametrize("phase", ["off", "shadow", "ramp 10 %", "live"])
def test_findings_count_until_the_reset_that_the_verdict_names(phase: str) -> None:
    verdict = verdict_of(replace(CLEAN, groups=[PRICE], patterns=[replace(MOVED, phase=phase)]))
    way = WAYS_OUT["off" if phase == "off" else "shadow"]
    assert (
        verdict.command
        == f"{way} && migrator shadow replay jobs/shop.yaml --pattern get_product --sample 200"
    )
    assert pins.said(verdict.purpose, "purpose")


def test_from_complete_no_way_leads_back() -> None:
    verdict = verdict_of(replace(CLEAN, groups=[PRICE], patterns=[replace(MOVED, phase="complete")]))
    assert verdict.command == "migrator shadow replay jobs/shop.yaml --pattern get_product --sample 195"


def test_findings_before_the_last_move_do_not_count() -> None:
    before = replace(PRICE, before_move=True)
    assert verdict_of(replace(CLEAN, groups=[before])).standing == "clean"
    both = verdict_of(replace(CLEAN, groups=[EMAIL, before]))
    assert list(both.reasons) == [pins.text()]


MENDED = replace(
    MOVED, different=214, mended=214, mended_until=1_700_000_160.0, compared=400, compared_after=90
)
HISTORY = "214 answers differed until 2023-11-14 22:16 UTC, before the last verify, which found nothing"


def test_repaired_and_compared_differences_are_history() -> None:
    verdict = verdict_of(replace(CLEAN, patterns=[GOOD, MENDED], groups=[replace(PRICE, before_verify=True)]))
    assert (verdict.standing, list(verdict.reasons)[:2]) == (
        "clean",
        [pins.text("differs"), pins.text("product", history=HISTORY)],
    )
    assert verdict.command == pins.text("advance")
    # A move is judged by all that was compared since the last one.
    again = verdict_of(replace(CLEAN, patterns=[MENDED]))
    assert " --to off && " in again.command
    assert "mended" not in again.purpose


def test_repaired_differences_without_a_comparison_are_unproven() -> None:
    verdict = verdict_of(replace(CLEAN, patterns=[GOOD, replace(MENDED, compared_after=0)]))
    assert (verdict.standing, verdict.command) == (
        "unproven",
        "migrator shadow replay jobs/shop.yaml --pattern get_product --sample 200",
    )
    assert list(verdict.reasons) == [pins.text("since", history=HISTORY)]


@pytest.mark.parametrize(
    "change",
    [
        {"state": "interrupted"},
        {"scope": "sample=1%;seed=1"},
        {"current": None},
        {"current": False},
        {"findings": {"different": 1}},
    ],
)
def test_incomplete_or_failed_verify_makes_no_finding_history(
    change: dict[str, Any],
) -> None:
    assert found_nothing(replace(VERIFY, findings={"refused": 3}))
    assert not found_nothing(replace(VERIFY, **change))


def test_moved_pattern_needs_new_comparisons_unless_complete() -> None:
    moved = replace(MOVED, compared=0, same=0, before_move=700)
    verdict = verdict_of(replace(CLEAN, patterns=[GOOD, moved]))
    assert (verdict.standing, list(verdict.reasons)) == ("unproven", [pins.text("moved")])
    assert verdict_of(replace(CLEAN, patterns=[GOOD, replace(moved, phase="complete")])).standing == "clean"


def test_failed_calls_are_reported_with_their_number() -> None:
    failing = replace(GOOD, answered={"table": 900, "sql": 1_000}, errors={"table": 100})
    verdict = verdict_of(replace(CLEAN, patterns=[failing]))
    assert (verdict.standing, verdict.command) == ("different", "migrator doctor jobs/shop.yaml")
    assert list(verdict.reasons) == [pins.text("call")]
    assert verdict.title == pins.text("yet")
    of_sql = replace(failing, errors={"sql": 1_000})
    verdict = verdict_of(replace(CLEAN, patterns=[of_sql]))
    assert (verdict.standing, list(verdict.reasons)) == ("unproven", [pins.text("get")])


def test_few_failed_calls_are_reported_and_block_nothing() -> None:
    few = replace(GOOD, answered={"table": 5_000, "sql": 5_000}, errors={"table": 3, "sql": 1})
    verdict = verdict_of(replace(CLEAN, patterns=[few]))
    assert verdict.standing == "clean"
    assert pins.said(verdict.reasons)


def test_without_capture_the_next_step_is_to_install_it() -> None:
    assert verdict_of(replace(CLEAN, lag=LagReport(None))).command == pins.text("install")
    away = replace(CLEAN, lag=LagReport(None, reason="it does not answer"))
    assert verdict_of(away).command == pins.text("advance")


def test_a_few_young_marks_are_no_reason() -> None:
    assert verdict_of(replace(CLEAN, lag=LagReport(12, 3.0))).standing == "clean"


def test_a_mapping_without_patterns_is_no_gap() -> None:
    assert verdict_of(replace(CLEAN, patterns=[])).command == "migrator decommission check jobs/shop.yaml"


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        (GOOD, "migrator cutover advance jobs/shop.yaml get"),
        (
            replace(MOVED, compared=800),
            "migrator shadow replay jobs/shop.yaml --pattern get_product --sample 200",
        ),
        (replace(MOVED, compared=1_000), "migrator cutover advance --dry-run jobs/shop.yaml get_product"),
        (
            replace(MOVED, phase="ramp 10 %", compared=800),
            "migrator cutover advance --dry-run jobs/shop.yaml get_product",
        ),
        (
            replace(MOVED, phase="live", compared=2_600),
            "migrator cutover advance --dry-run jobs/shop.yaml get_product",
        ),
    ],
)
def test_the_next_command_is_one_that_is_not_refused_now(pattern: PatternReport, command: str) -> None:
    verdict = verdict_of(replace(CLEAN, patterns=[pattern], comparisons_min=1_000))
    assert (verdict.standing, verdict.command) == ("clean", command)


def test_patterns_compared_before_a_move_are_reported_as_such() -> None:
    moved = [replace(MOVED, name=name, compared=0, same=0, before_move=289) for name in "abcdefghi"]
    (reason,) = verdict_of(replace(CLEAN, patterns=moved, comparisons_min=1_000)).reasons
    assert pins.said(reason, "moved")
