"""What a report comes to, and the command that helps next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from migrator.report_results import LagReport, PatternReport, Refused, RunReport
from migrator.stages.report_verdict import Standings, verdict_of
from tests.support_report import EMAIL, PRICE

FILL = RunReport("backfill", 1, "done", "", "", "", 10, 10, 0, {}, None)
VERIFY = replace(FILL, kind="verify", number=2, current=True)
GOOD = PatternReport("get", "off", 0.0, compared=5, same=5)
CLEAN = Standings("jobs/shop.yaml", [], [], [GOOD], [FILL, VERIFY], LagReport(0))


def test_a_clean_job_goes_on_to_the_next_pattern_that_has_not_moved_all_the_way() -> None:
    done = replace(GOOD, name="done", phase="complete")
    verdict = verdict_of(replace(CLEAN, patterns=[done, GOOD]))
    assert (verdict.standing, verdict.command) == ("clean", "migrator cutover advance jobs/shop.yaml get")
    assert verdict.reasons == [
        "10 answer(s) of 2 pattern(s) compared, none differs",
        "10 row(s) and their items say the same",
    ]
    assert verdict_of(replace(CLEAN, patterns=[done])).command == "migrator decommission check jobs/shop.yaml"


POINTS: list[tuple[dict[str, Any], str, str, str]] = [
    (
        {"groups": [EMAIL]},
        "different",
        "migrator verify jobs/shop.yaml --repair",
        "2 difference(s) of 1 kind(s), in user",
    ),
    (
        {"groups": [EMAIL], "lag": LagReport(None)},
        "different",
        "migrator backfill jobs/shop.yaml --again",
        "2 difference(s) of 1 kind(s), in user",
    ),
    (
        {"groups": [PRICE]},
        "different",
        "migrator shadow replay jobs/shop.yaml",
        "214 difference(s) of 1 kind(s), in get_product",
    ),
    (
        {"refused": [Refused("order", "why", 3, ())]},
        "different",
        "migrator findings jobs/shop.yaml",
        "3 row(s) were refused and have no items",
    ),
    (
        {"lag": LagReport(7, 400.0)},
        "different",
        "migrator relay jobs/shop.yaml --once",
        "7 mark(s) wait for a relay; the oldest for 400 s",
    ),
    (
        {"lag": LagReport(7, 1.0, 2)},
        "different",
        "migrator relay jobs/shop.yaml --once",
        "7 mark(s) wait for a relay, 2 of them failed; the oldest for 1 s",
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
        "migrator shadow replay jobs/shop.yaml",
        "5 of 6 pattern(s) were not compared in this time by this mapping: a, b, c and 2 more",
    ),
    (
        {"patterns": [replace(GOOD, dropped={"unsettled": 2, "ended": 1, "busy": 9})]},
        "unproven",
        "migrator shadow replay jobs/shop.yaml",
        "3 answer(s) differed and were never looked at again, of get",
    ),
]


@pytest.mark.parametrize(
    ("change", "standing", "command", "reason"), POINTS, ids=[reason for *_, reason in POINTS]
)
def test_each_thing_against_it_is_said_with_what_helps(
    change: dict[str, Any], standing: str, command: str, reason: str
) -> None:
    verdict = verdict_of(replace(CLEAN, **change))
    assert (verdict.standing, verdict.command, list(verdict.reasons)) == (standing, command, [reason])


def test_differences_come_before_gaps_and_all_are_said() -> None:
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


def test_without_capture_the_next_step_is_to_install_it() -> None:
    assert (
        verdict_of(replace(CLEAN, lag=LagReport(None))).command == "migrator capture install jobs/shop.yaml"
    )
    away = replace(CLEAN, lag=LagReport(None, reason="it does not answer"))
    assert verdict_of(away).command == "migrator cutover advance jobs/shop.yaml get"


def test_a_few_young_marks_are_no_reason() -> None:
    assert verdict_of(replace(CLEAN, lag=LagReport(12, 3.0))).standing == "clean"


def test_a_mapping_without_patterns_is_no_gap() -> None:
    assert verdict_of(replace(CLEAN, patterns=[])).command == "migrator decommission check jobs/shop.yaml"
