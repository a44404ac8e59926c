"""Words that all three forms of a report say alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from migrator.phase import Side
from migrator.report.relay import open_line
from migrator.report_results import Coverage, Found, Group, LagReport, PatternReport, ReportModel, RunReport

KIND_WORDS: Mapping[str, str] = {
    "missing": "SQL has it, the table has not",
    "unexpected": "the table has it, SQL has not",
    "value": "both have it, with another value",
    "type": "both have it, as another type",
    "order": "the same rows in another order",
    "error": "one side gave no answer",
    "different": "an attribute of the item is not what the row makes",
    "collision": "two rows make one key",
    "unwritten": "the table did not take the item",
    "count": "another number of items than of rows",
    "sum": "another sum than SQL's",
    "foreign": "an item that is not of this job",
    "schema": "the source's schema changed",
    "mark": "a mark that could not be worked",
    "apart": "items too many for one transaction",
}
SIDE_WORDS: Mapping[Side, str] = {"table": "DynamoDB", "sql": "SQL"}
_FOUND: Mapping[Found, str] = {
    "verify": "verify",
    "backfill": "backfill",
    "relay": "relay",
    "service": "services",
    "replay": "replay",
}
_STANDING = {"clean": "clean", "different": "not clean", "unproven": "not proven"}


def found_words(found: Sequence[Found]) -> str:
    """Who found it, for people."""
    return ", ".join(_FOUND[one] for one in found)


def rows_words(one: Group) -> str:
    """Of how many rows the differences of answers are; '' where that is not known, or each is of a row of its own."""
    if not one.rows:
        return ""
    rows, kept = f"{one.rows:,} row(s)", len(one.differences)
    return f"of {rows}" if kept == one.count else f"the {kept:,} example(s) that are kept are of {rows}"


def standing_word(model: ReportModel) -> str:
    return _STANDING[model.verdict.standing]


def kind_of_question(one: Coverage) -> str:
    """Which optional parameters were set."""
    return " + ".join(one.parameters) or "none set"


def lag_words(lag: LagReport) -> str:
    """One sentence on marks, and one on what relays found and still holds."""
    return "; ".join(filter(None, (_marks_words(lag), open_line(lag.open_findings))))


def _marks_words(lag: LagReport) -> str:
    if lag.reason:
        return f"the source cannot be asked: {lag.reason}"
    if lag.waiting is None:
        return "capture is not installed: changes leave no mark"
    if not lag.waiting:
        return "no mark waits" if lag.open_findings else "no mark waits: items are as new as rows"
    failed = f", {lag.failed:,} put back" if lag.failed else ""
    return f"{lag.waiting:,} mark(s) wait for a relay, the oldest for {lag.oldest_s:,.0f} s{failed}"


def run_words(one: RunReport) -> str:
    """One line on the last run of a kind."""
    scope = f" ({one.scope})" if one.scope else ""
    counts = f"{one.rows:,} rows, {one.items:,} items, {one.refused:,} refused"
    outdated = "; of another mapping" if one.current is False else ""
    return f"{one.kind} {one.number}{scope}: {one.state}, {counts}{outdated}"


def next_steps(model: ReportModel) -> Iterator[str]:
    """What would complete the evidence, beside the verdict's own command."""
    if never := [one.name for one in model.patterns if not one.compared and not one.before_move]:
        yield f"not compared in this time: {', '.join(never)}"
    if moved := [f"{one.name} ({one.before_move:,})" for one in model.patterns if one.before_move]:
        yield f"comparisons from before a pattern's last move are not counted: {', '.join(moved)}"
    if outdated := [one.name for one in model.patterns if one.outdated]:
        yield f"comparisons of an older mapping are left out: {', '.join(outdated)}"


def compared_words(one: PatternReport) -> str:
    """How many answers were compared since the pattern's last move."""
    return f"{one.compared:,}" if one.compared or one.before_move else "never"


def answered_words(one: PatternReport) -> str:
    """Errors and shadows that did not run, '' where there are none."""
    errors = [f"{count:,} error(s) of {SIDE_WORDS[side]}" for side, count in one.errors.items() if count]
    dropped = [
        f"{count:,} {_DROPPED.get(why, 'shadow(s) not run')} ({why})"
        for why, count in one.dropped.items()
        if count
    ]
    return ", ".join([*errors, *dropped])


_DROPPED = dict.fromkeys(("unsettled", "ended"), "that differed and were never settled")
