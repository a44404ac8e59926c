"""The report on a terminal and as JSON, and the words that all forms of it share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from migrator.model.durations import age_text, minute
from migrator.model.phase import SIDES, Side
from migrator.model.report import (
    Coverage,
    Difference,
    Found,
    Group,
    LagReport,
    PatternReport,
    ReportModel,
    RunReport,
    Timeline,
    View,
)
from migrator.output.inert import plain
from migrator.output.relay import open_line
from migrator.output.report.drawings import ms_text
from migrator.output.text import whole_names

# ── Words that all three forms of a report say alike ──

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


# ── A report for a terminal: the same things in the same order as on the page, the longest of them cut ──

_GROUPS = 20
_MOVES = 5
_BLOCKS = " ▁▂▃▄▅▆▇█"
_COLOURS = {"clean": "green", "different": "red", "unproven": "yellow"}


def print_report(console: Console, model: ReportModel) -> None:
    """The whole report; nothing of a row is obeyed by the terminal."""
    made, since = minute(model.made_at), age_text(model.since_s)
    _say(console, f"{model.job} into {model.table}, {made}, comparisons of the last {since}")
    console.print(
        Text(
            f"{standing_word(model)}: {plain(model.verdict.title)}",
            f"bold {_COLOURS[model.verdict.standing]}",
        )
    )
    for line in [*model.verdict.reasons, *model.notes]:
        _say(console, f"  - {line}")
    _say(console, f"next, to {model.verdict.purpose}: {model.verdict.command}")
    for title, lines in (
        ("Access patterns", _patterns(console, model)),
        ("Differences", _differences(console, model.groups)),
        ("Over time", _timeline(model.timeline)),
        ("Latency", _latency(console, model.patterns)),
        ("Lag and runs", _work(model)),
        ("Coverage", _coverage(console, model)),
        ("Item collections", _views(model.views)),
    ):
        console.print(Text(f"\n{title}", "bold"))
        for line in lines:
            _say(console, line)


def _say(console: Console, text: str) -> None:
    console.print(Text(plain(text)), soft_wrap=True)


def _table(*columns: str) -> Table:
    """A column whose name ends in a space holds numbers."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name.strip(), justify="right" if name.endswith(" ") else "left", overflow="fold")
    return table


def _cells(*cells: object) -> list[Text]:
    return [Text(plain(cell)) for cell in cells]


# ── parts, each: tables are printed, lines are given ────────────────────────────────────────────


def _patterns(console: Console, model: ReportModel) -> Iterator[str]:
    if not model.patterns:
        yield "the mapping has no access patterns"
        return
    table = _table("pattern", "phase", "compared ", "same ", "in flight ", "different ", "last")
    for one in model.patterns:
        counts = (f"{count:,}" for count in (one.same, one.transient, one.different))
        age = "–" if one.age_s is None else f"{age_text(one.age_s)} ago"
        table.add_row(*_cells(one.name, one.phase, compared_words(one), *counts, age))
    console.print(whole_names(table, (one.name for one in model.patterns)))
    for one in model.patterns:
        if words := answered_words(one):
            yield f"{one.name}: {words}"
        if one.budget_ms is not None and one.is_over_budget:
            p99, budget = ms_text(one.latency["table"].at(99.0)), ms_text(one.budget_ms)
            yield f"{one.name}: DynamoDB's p99 of {p99} is over its budget of {budget}"
    for move in model.moves[:_MOVES]:
        against = " against its evidence" if move.override else ""
        reason = f": {move.reason}" if move.reason else ""
        yield f"{minute(move.at)} {move.pattern}: {move.before} → {move.after} by {move.who}{against}{reason}"


def _differences(console: Console, groups: Sequence[Group]) -> Iterator[str]:
    if not groups:
        yield "none on record"
        return
    for one in groups[:_GROUPS]:
        attribute = SIDE_WORDS.get(one.attribute, one.attribute) if one.kind == "error" else one.attribute  # type: ignore[call-overload]
        where = " › ".join(filter(None, (one.where, one.part, attribute)))
        when, colour = (", before its last move", "bold") if one.before_move else ("", "bold red")
        console.print(Text(plain(f"{one.count:,} {one.kind} {where}{when}"), colour), soft_wrap=True)
        of_rows = f" in answers, {said}" if (said := rows_words(one)) else ""
        _say(console, f"  likely: {one.cause or 'unknown'}; found by {found_words(one.found_by)}{of_rows}")
        _say(console, f"  helps: {one.advice.replace('`', '')}")
        if one.differences:
            _example(console, one.differences[0])
    if len(groups) > _GROUPS:
        yield f"… and {len(groups) - _GROUPS:,} kinds more: see them with --html or --json"


def _example(console: Console, one: Difference) -> None:
    asked = " ".join(f"{name}={text}" for name, text in one.asked.items())
    words = (
        f"asked {asked}" if asked else "",
        f"row {one.row_key}" if one.row_key else "",
        one.item_key,
        one.why,
    )
    if any(words):
        _say(console, f"  such as {', '.join(filter(None, words))}")
    if one.cells:
        table = _table("  attribute", "SQL says", "the item says")
        for cell in one.cells:
            sides = ("(not there)" if text is None else text for text in (cell.sql, cell.item))
            name = f"{'»' if cell.differs else ' '} {cell.attribute}"
            table.add_row(*_cells(name, *sides), style="bold" if cell.differs else "")
        console.print(table)


def _timeline(timeline: Timeline) -> Iterator[str]:
    if not timeline.spans:
        yield "nothing was compared in this time"
        return
    for name, counts in (
        ("compared", [one.all for one in timeline.spans]),
        ("different", [one.different + one.errors for one in timeline.spans]),
    ):
        most = max(counts)
        drawn = "".join(_BLOCKS[-(-count * (len(_BLOCKS) - 1) // most) if most else 0] for count in counts)
        yield f"{name:>9} │{drawn}│ at most {most:,} in {age_text(timeline.width_s)}"
    yield f"{'':>9}  from {minute(timeline.spans[0].begun_at)} to {minute(timeline.spans[-1].begun_at)}"


def _latency(console: Console, patterns: Sequence[PatternReport]) -> Iterator[str]:
    timed = [one for one in patterns if one.latency]
    if not timed:
        yield "no answer was timed in this time"
        return
    table = _table("pattern", "side", "answers ", "p50 ", "p90 ", "p99 ", "p99.9 ")
    for one in timed:
        for side in SIDES:
            if (curve := one.latency.get(side)) is not None:
                shares = (ms_text(curve.at(share)) for share in (50.0, 90.0, 99.0, 99.9))
                table.add_row(*_cells(one.name, SIDE_WORDS[side], f"{curve.answers:,}", *shares))
    console.print(whole_names(table, (one.name for one in timed)))


def _work(model: ReportModel) -> Iterator[str]:
    yield f"journal: {model.journal}"
    yield lag_words(model.lag)
    for run in model.runs:
        yield run_words(run)
    for refused in model.refused:
        keys = ", ".join(key for key in refused.row_keys if key)
        yield f"{refused.count:,} refused {refused.entity}: {refused.reason}{f'; such as {keys}' if keys else ''}"
    for one in model.instances:
        state = "no goodbye" if one.silent else "fits" if one.fits else "mapping differs"
        yield f"{one.service} on {one.where}, {one.role}: {state}, heard of {age_text(one.heard_s)} ago"


def _coverage(console: Console, model: ReportModel) -> Iterator[str]:
    yield from next_steps(model)
    table = _table("pattern", "optional parameters set", "compared ", "last ", "by")
    for one in model.patterns:
        for kind in one.coverage:
            words = (
                kind_of_question(kind),
                f"{kind.compared:,}",
                f"{age_text(kind.age_s)} ago",
                found_words(kind.origins),
            )
            table.add_row(*_cells(one.name, *words))
    if table.row_count:
        console.print(whole_names(table, (one.name for one in model.patterns if one.coverage)))


def _views(views: Sequence[View]) -> Iterator[str]:
    for view in views:
        yield f"{f'index {view.name}' if view.name else 'the table'}: {', '.join([*view.partition, *view.sort])}"
        for facet in view.facets:
            keys = ", ".join(f"{name} = {form}" for name, form in facet.keys.items())
            yield f"  {facet.type} ({facet.entity}): {keys}"


# ── A report for programs ──


def report_data(model: ReportModel) -> dict[str, Any]:
    """The report as plain values, in the order in which people see it; seconds and milliseconds are numbers."""
    plain = asdict(model)
    verdict = plain.pop("verdict")
    head = {
        name: plain.pop(name)
        for name in ("job", "journal", "table", "revision", "version", "made_at", "since_s")
    }
    patterns = [
        one | {"age_s": made.age_s} for one, made in zip(plain.pop("patterns"), model.patterns, strict=True)
    ]
    return {**head, "verdict": verdict, "never_compared": model.never_compared, "patterns": patterns, **plain}
