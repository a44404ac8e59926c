"""Causes that values do not tell, and what helps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.stages.report.verdict import Circumstances, cause_of
from tests import pins

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
    ("missing", "", WAITING, "1,200 mark(s) wait for a relay", "migrator relay JOB"),
    ("unexpected", "", KNOWN, "its row was deleted", "--repair"),
    ("unexpected", "", WAITING, "1,200 mark(s) wait for a relay", "migrator relay JOB"),
    ("value", "total", KNOWN, "", "--repair"),
    ("value", "total", WAITING, "1,200 mark(s) wait for a relay", "migrator relay JOB"),
    ("order", "", KNOWN, "the sort key keeps another order", "order: any"),
    ("error", "table", KNOWN, "DynamoDB gave no answer", "DynamoDB"),
    ("error", "sql", KNOWN, "SQL gave no answer", "SQL"),
    ("collision", "", RUN, "two rows make one key", "another part"),
    ("foreign", "", RUN, "another program", "a table of its own"),
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


def test_what_values_tell_comes_first_and_is_mended_where_it_lies() -> None:
    pairs = [("1", "100"), ("2", "200")]
    of_answers, of_rows = (
        cause_of("value", "total", pairs, around) for around in (WAITING, replace(RUN, waiting=5))
    )
    assert (
        of_answers.likely
        == of_rows.likely
        == "the item is 100 times SQL's: another unit, such as cents beside whole ones"
    )
    assert "the pattern's SQL" in of_answers.advice
    assert "--repair" in of_rows.advice


def test_only_marks_that_are_older_than_what_was_found_explain_it() -> None:
    around = replace(KNOWN, waiting=3, oldest_s=20.0, now_s=1_000.0)
    assert around.of(980.5).waiting == 3
    assert around.of(979.5).waiting == 0
    assert pins.said(cause_of("missing", "", [], around.of(990)).likely)
    assert "never written" in cause_of("missing", "", [], around.of(900)).likely


def test_where_its_time_was_not_noted_marks_must_be_old() -> None:
    around = replace(KNOWN, waiting=3, now_s=1_000.0)
    assert replace(around, oldest_s=299.0).of(None).waiting == 0
    assert replace(around, oldest_s=301.0).of(None).waiting == 3


def test_an_attribute_that_no_item_has_was_not_there_when_they_were_written() -> None:
    assert pins.said(cause_of("missing", "total", [("1", "null"), ("2", "null")], KNOWN).likely, "attribute")
    assert cause_of("value", "total", [("1", "null"), ("2", "9")], KNOWN).likely == ""
    assert pins.said(cause_of("unexpected", "total", [("null", "1")], KNOWN).likely, "value")


def test_only_patterns_can_leave_something_out() -> None:
    assert "the pattern's" in cause_of("missing", "", [], KNOWN).likely
    assert "pattern" not in cause_of("missing", "", [], RUN).likely
    assert "pattern" not in cause_of("unexpected", "", [], RUN).likely
