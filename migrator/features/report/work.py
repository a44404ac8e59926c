"""`migrator report`: a job's state, differences, latency and evidence, on a terminal, as JSON or as HTML."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from decimal import Decimal
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import click
from jinja2 import Environment
from rich.console import Console
from rich.table import Table
from rich.text import Text

from migrator.cli import page
from migrator.cli.inert import plain
from migrator.cli.lag import Lag, lag_of, open_line
from migrator.cli.options import belonging, stdout, stop_on_signals
from migrator.cli.text import table_of
from migrator.features.report.gather import LIGHT, Report, ReportOptions, ReportRecords, ReportSides
from migrator.mapping.model.capacity import Capacity, Costs, PatternCost, WriteRates
from migrator.mapping.model.durations import age_text, minute
from migrator.mapping.model.evidence import PHASES, SIDES, Side
from migrator.mapping.model.report import (
    Found,
    Group,
    LagReport,
    PatternReport,
    ReportModel,
    RunReport,
    Series,
    ShownDifference,
    Span,
    View,
    WorkSpan,
)
from migrator.runtime.errors import Interrupted, MappingError, MigratorError, SettingsError, amount, verb
from migrator.runtime.values import asdict
from migrator.settings.transforms import USUAL_REGION, load_transforms, price_of, sound_mapping
from migrator.stages.cutover.evidence import answers_needed
from migrator.stages.design.capacity import NEW_TABLE_UNITS, CapacityContext, capacity_of
from migrator.stages.design.sizing import Sizing
from migrator.stages.session.job import design_for, region_of
from migrator.stages.session.session import JobSession

# ── Words shared by all three forms of a report ──

KIND_WORDS: Mapping[str, str] = {
    "missing": "SQL has it, the table has not",
    "unexpected": "the table has it, SQL has not",
    "value": "both have it, with another value",
    "type": "both have it, as another type",
    "order": "the same rows in another order",
    "error": "one side failed",
    "different": "an attribute of the item is not what the row makes",
    "collision": "two rows make one key",
    "unwritten": "the table did not take the item",
    "count": "another number of items than of rows",
    "sum": "another sum than SQL's",
    "foreign": "an item that is not of this job",
    "schema": "the source's schema changed",
    "mark": "a change that cannot be applied",
    "apart": "items too many for one transaction",
}
SIDE_WORDS: Mapping[Side, str] = {"table": "DynamoDB", "sql": "SQL"}
_STANDING = {"clean": "clean", "different": "not clean", "unproven": "not proven"}


def finder_words(finders: Sequence[Found]) -> str:
    return ", ".join("services" if finder == "service" else finder for finder in finders)


def rows_words(group: Group) -> str:
    """Number of rows behind the answers' differences; '' if unknown, or each has its own row."""
    if not group.rows:
        return ""
    rows, examples = amount(group.rows, "row"), len(group.differences)
    return (
        f"of {rows}"
        if examples == group.count
        else f"the {amount(examples, 'example')} kept {verb(examples, 'are')} of {rows}"
    )


def history_words(group: Group) -> str:
    """Why the differences no longer count, '' if they do."""
    if group.before_move:
        return "before its last move"
    return (
        f"until {minute(group.until)}, before the last verify, which found nothing"
        if group.is_history
        else ""
    )


def _marks_words(lag: LagReport) -> str:
    if lag.reason:
        return lag.reason
    if lag.waiting is None:
        return "capture is not installed: changes are not captured"
    if not lag.waiting:
        return (
            "no change is pending" if lag.open_findings else "no change is pending: items are as new as rows"
        )
    failed = f", {lag.failed:,} put back" if lag.failed else ""
    return (
        f"{amount(lag.waiting, 'change', 'wait')} for a relay, the oldest for {lag.oldest_s:,.0f} s{failed}"
    )


def run_words(run: RunReport) -> str:
    scope = f" ({run.scope})" if run.scope else ""
    counts = f"{amount(run.rows, 'row')}, {amount(run.items, 'item')}, {run.refused:,} refused"
    outdated = "; of another mapping" if run.current is False else ""
    return f"{run.kind} {run.number}{scope}: {run.state}, {counts}{outdated}"


def next_steps(model: ReportModel) -> Iterator[str]:
    if never := [
        pattern.name for pattern in model.patterns if not pattern.compared and not pattern.before_move
    ]:
        yield f"not compared in this time: {', '.join(never)}"
    yield from moved_words(model)


def moved_words(model: ReportModel) -> Iterator[str]:
    if moved := [
        f"{pattern.name} ({pattern.before_move:,})" for pattern in model.patterns if pattern.before_move
    ]:
        yield f"comparisons from before a pattern's last move are not counted: {', '.join(moved)}"
    if outdated := [pattern.name for pattern in model.patterns if pattern.outdated]:
        yield f"comparisons of an older mapping are left out: {', '.join(outdated)}"


def compared_words(pattern: PatternReport) -> str:
    return f"{pattern.compared:,}" if pattern.compared or pattern.before_move else "never"


def answered_words(pattern: PatternReport) -> str:
    """Errors, skipped shadows, and differences since fixed; '' for none."""
    errors = [
        f"{amount(count, 'error')} of {SIDE_WORDS[side]}" for side, count in pattern.errors.items() if count
    ]
    dropped = [
        f"{count:,} {_DROPPED.get(why, 'shadows not run')} ({why})"
        for why, count in pattern.dropped.items()
        if count
    ]
    until = f"until {minute(pattern.mended_until)}, before the last verify, which found nothing"
    mended = [f"{amount(pattern.mended, 'answer')} differed {until}"] if pattern.mended else []
    return ", ".join([*errors, *dropped, *mended])


_DROPPED = dict.fromkeys(("unsettled", "ended"), "that differed and were never settled")


# ── A report for a terminal: the same things in the same order as on the page, the longest of them cut ──

_GROUPS = 20
_MOVES = 5
_LARGEST = 3
_BLOCKS = " ▁▂▃▄▅▆▇█"
_COLOURS = {"clean": "green", "different": "red", "unproven": "yellow"}


def print_report(console: Console, model: ReportModel) -> None:
    made_at, since = minute(model.made_at), age_text(model.since_s)
    _say(console, f"{model.job} into {model.table}, {made_at}, comparisons of the last {since}")
    for title, lines in (
        ("Access patterns", _patterns(console, model)),
        ("Differences", _differences(console, model.groups)),
        ("Over time", chain(_timeline(model.timeline), _written(model.work))),
        ("Latency", _latency(console, model.patterns)),
        ("Costs", _costs(console, model.costs)),
        ("Lag and runs", _work(model)),
        ("Coverage", _coverage(console, model)),
        ("Item collections", _views(model.views)),
    ):
        console.print(Text(f"\n{title}", "bold"))
        for line in lines:
            _say(console, line)
    console.print(Text("\nVerdict", "bold"))
    for line in [*model.verdict.reasons, *model.notes]:
        _say(console, f"- {line}")
    _say(console, f"next, to {model.verdict.purpose}: {model.verdict.command}")
    console.print(
        Text(
            f"{_STANDING[model.verdict.standing]}: {plain(model.verdict.title)}",
            f"bold {_COLOURS[model.verdict.standing]}",
        )
    )


def _say(console: Console, text: str) -> None:
    console.print(Text(plain(text)), soft_wrap=True)


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    return table_of(columns, rows, header_style="dim")


# ── parts, each: tables are printed, lines are given ────────────────────────────────────────────


def _patterns(console: Console, model: ReportModel) -> Iterator[str]:
    if not model.patterns:
        yield "the mapping has no access patterns"
        return
    columns = ("pattern", "phase", "compared ", "same ", "in flight ", "different ", "last")
    console.print(_table(columns, map(_pattern_cells, model.patterns)))
    for pattern in model.patterns:
        if words := answered_words(pattern):
            yield f"{pattern.name}: {words}"
        if pattern.budget_ms is not None and pattern.is_over_budget:
            p99, budget = page.ms_text(pattern.latency["table"].at(99.0)), page.ms_text(pattern.budget_ms)
            yield f"{pattern.name}: DynamoDB's p99 of {p99} is over its budget of {budget}"
    for move in model.moves[:_MOVES]:
        against = " against its evidence" if move.override else ""
        reason = f": {move.reason}" if move.reason else ""
        yield f"{minute(move.at)} {move.pattern}: {move.before} → {move.after} by {move.who}{against}{reason}"


def _differences(console: Console, groups: Sequence[Group]) -> Iterator[str]:
    if not groups:
        yield "none on record"
        return
    for group in groups[:_GROUPS]:
        attribute = group.attribute
        if group.kind == "error":
            attribute = SIDE_WORDS.get(attribute, attribute)  # type: ignore[call-overload]
        where = " › ".join(filter(None, (group.where, group.part, attribute)))
        when, colour = history_words(group), "bold" if group.is_history else "bold red"
        title = f"{group.count:,} {group.kind} {where}{', ' if when else ''}{when}"
        console.print(Text(plain(title), colour), soft_wrap=True)
        of_rows = f" in answers, {rows_text}" if (rows_text := rows_words(group)) else ""
        _say(
            console, f"  likely: {group.cause or 'unknown'}; found by {finder_words(group.found_by)}{of_rows}"
        )
        _say(console, f"  helps: {group.advice.replace('`', '')}")
        if group.differences:
            _example(console, group.differences[0])
    if len(groups) > _GROUPS:
        yield f"… and {len(groups) - _GROUPS:,} kinds more: see them with --out or --json"


def _example(console: Console, difference: ShownDifference) -> None:
    question = " ".join(f"{name}={text}" for name, text in difference.asked.items())
    words = (
        f"asked {question}" if question else "",
        f"row {difference.row_key}" if difference.row_key else "",
        difference.item_key,
        difference.why,
    )
    if any(words):
        _say(console, f"  such as {', '.join(filter(None, words))}")
    if difference.cells:
        table = _table(("  attribute", "SQL", "item"), ())
        for cell in difference.cells:
            sides = ("(not there)" if text is None else text for text in (cell.sql, cell.item))
            name = f"{'»' if cell.differs else ' '} {cell.attribute}"
            cells = (Text(plain(text)) for text in (name, *sides))
            table.add_row(*cells, style="bold" if cell.differs else "")
        console.print(table)


def _pattern_cells(pattern: PatternReport) -> tuple[object, ...]:
    counts = (f"{count:,}" for count in (pattern.same, pattern.transient, pattern.differing))
    age = "–" if pattern.age_s is None else f"{age_text(pattern.age_s)} ago"
    return pattern.name, pattern.phase, compared_words(pattern), *counts, age


def _cost_cells(cost: PatternCost) -> tuple[str, ...]:
    units = "–" if cost.units is None else page.number_text(cost.units)
    amounts = (None if usd is None else Decimal(str(usd)) for usd in (cost.usd_now, cost.usd_all))
    return (
        cost.pattern,
        units,
        page.rate_text(cost.now_per_s),
        page.rate_text(cost.all_per_s),
        *map(page.money, amounts),
    )


def _timeline(timeline: Series[Span]) -> Iterator[str]:
    if not timeline.spans:
        yield "0 compared in this time"
        return
    for name, counts in (
        ("compared", [span.all for span in timeline.spans]),
        ("different", [span.different + span.errors for span in timeline.spans]),
    ):
        yield f"{name:>9} │{_drawn(counts)}│ at most {max(counts):,} in {age_text(timeline.width_s)}"
    yield f"{'':>9}  from {minute(timeline.spans[0].begun_at)} to {minute(timeline.spans[-1].begun_at)}"


def _written(work: Series[WorkSpan]) -> Iterator[str]:
    figures: Mapping[str, Sequence[float]] = {
        "items": [span.items for span in work.spans],
        "units": [span.write_units for span in work.spans],
        "lag": [span.lag_s for span in work.spans],
    }
    for name, numbers in figures.items() if work.spans else ():
        most = max(numbers)
        text = age_text(most) if name == "lag" else f"{page.number_text(most)} in {age_text(work.width_s)}"
        yield f"{name:>9} │{_drawn(numbers)}│ at most {text}"
    if work.spans:
        yield f"{'':>9}  from {minute(work.spans[0].begun_at)} to {minute(work.spans[-1].begun_at)}"


def _drawn(numbers: Sequence[float]) -> str:
    most = max(numbers)
    return "".join(
        _BLOCKS[math.ceil(number * (len(_BLOCKS) - 1) / most) if most else 0] for number in numbers
    )


def _latency(console: Console, patterns: Sequence[PatternReport]) -> Iterator[str]:
    timed = [pattern for pattern in patterns if pattern.latency]
    if not timed:
        yield "no answer was timed in this time"
        return
    rows = (
        (
            *(pattern.name, SIDE_WORDS[side], f"{curve.answers:,}"),
            *(page.ms_text(curve.at(share)) for share in (50.0, 90.0, 99.0, 99.9)),
        )
        for pattern in timed
        for side in SIDES
        if (curve := pattern.latency.get(side)) is not None
    )
    console.print(_table(("pattern", "side", "answers ", "p50 ", "p90 ", "p99 ", "p99.9 "), rows))


def _costs(console: Console, costs: Costs) -> Iterator[str]:
    if costs.patterns:
        columns = (
            *("pattern", "read units ", "calls now ", "calls at 100 % ", "a month now ", "a month at 100 % "),
        )
        console.print(_table(columns, map(_cost_cells, costs.patterns)))
    if costs.are_known:
        now, full = (page.money(Decimal(str(usd))) for usd in (costs.usd_now, costs.usd_all))
        yield f"all that is known: {now} a month now, {full} at 100 %; prices: {costs.prices}"
    if costs.why:
        yield costs.why
    for place in costs.largest:
        about = "" if place.exact else "about "
        for hot in place.hottest[:_LARGEST]:
            size = f"{about}{amount(hot.items, 'item')}, {page.size_text(hot.bytes)}"
            yield f"largest of {place.index or 'the table'}: {hot.key}: {size}"


def _work(model: ReportModel) -> Iterator[str]:
    yield f"journal: {model.journal}"
    yield "; ".join(filter(None, (_marks_words(model.lag), open_line(model.lag.open_findings))))
    for run in model.runs:
        yield run_words(run)
    for refused in model.refused:
        keys = ", ".join(key for key in refused.row_keys if key)
        yield f"{refused.count:,} refused {refused.entity}: {refused.reason}{f'; such as {keys}' if keys else ''}"
    for instance in model.instances:
        state = "timed out" if instance.silent else "fits" if instance.fits else "mapping differs"
        yield f"{instance.service} on {instance.where}, {instance.role}: {state}, heard of {age_text(instance.heard_s)} ago"


def _coverage(console: Console, model: ReportModel) -> Iterator[str]:
    yield from next_steps(model)
    rows = [
        (
            *(pattern.name, " + ".join(kind.parameters) or "none set", f"{kind.compared:,}"),
            *(f"{age_text(kind.age_s)} ago", finder_words(kind.origins)),
        )
        for pattern in model.patterns
        for kind in pattern.coverage
    ]
    if rows:
        console.print(_table(("pattern", "optional parameters set", "compared ", "last ", "by"), rows))


def _views(views: Sequence[View]) -> Iterator[str]:
    for view in views:
        yield f"{f'index {view.name}' if view.name else 'the table'}: {', '.join([*view.partition, *view.sort])}"
        for facet in view.facets:
            keys = ", ".join(f"{name} = {form}" for name, form in facet.keys.items())
            yield f"  {facet.type} ({facet.entity}): {keys}"


# ── A report for programs ──


def report_data(model: ReportModel) -> dict[str, Any]:
    """The report as plain values, in display order; seconds and milliseconds are numbers."""
    plain = asdict(model)
    verdict = plain.pop("verdict")
    head = {
        name: plain.pop(name)
        for name in ("job", "journal", "table", "revision", "version", "made_at", "since_s")
    }
    patterns = [
        data | {"age_s": pattern.age_s}
        for data, pattern in zip(plain.pop("patterns"), model.patterns, strict=True)
    ]
    return {**head, "verdict": verdict, "never_compared": model.never_compared, "patterns": patterns, **plain}


# ── The report as one HTML file that needs no network and can be read without scripts ──


_EXAMPLES = 3
"""Shown side by side in a group."""


def html_page(model: ReportModel) -> str:
    """The page. Values of rows in it are text, never markup."""
    pages = _environment()
    style, script = (page.part_of_page(pages, name) for name in ("report.css", "report.js"))
    return pages.get_template("report.html").render(
        model=model,
        version=model.version,
        style=style,
        script=script,
        policy=page.policy_of(style, script),
        bars=page.bars_of(model.timeline),
        columns=page.columns_of(model.work, model.moves),
        moves=page.moves_at(
            model.timeline.width_s, [span.begun_at for span in model.timeline.spans], model.moves
        ),
        figures={"items": page.number_text, "write units": page.number_text, "lag": age_text},
        curves={
            pattern.name: page.curves_of(pattern.latency) for pattern in model.patterns if pattern.latency
        },
        examples=_EXAMPLES,
        phases=PHASES,
    )


def _environment() -> Environment:
    pages = page.environment_of_pages()
    pages.filters |= {
        "found": finder_words,
        "compared": compared_words,
        "answered": answered_words,
        "history": history_words,
        "of_rows": rows_words,
    }
    pages.globals |= {
        "kinds": KIND_WORDS,
        "sides": SIDE_WORDS,
        "next_steps": next_steps,
        "moved_words": moved_words,
    }
    return pages


_PATIENCE_S = 5.0
"""How long an unreachable side is retried: the rest is worth showing without it."""


@belonging()
def report(session: JobSession, html: Path | None, since_s: float, as_json: bool, **how: bool | None) -> int:
    read = session.job
    samples = how["samples"]
    options = ReportOptions(since_s, samples is not False, bool(samples), bool(how["whole_keys"]))
    if html is not None:
        page.refuse_unwritable(html)
    with ExitStack() as stack:
        stack.enter_context(stop_on_signals(session.stop))
        _, file = session.journal, session.path
        stage = Report(_records(session), _sides(stack, session, options), options)
        if stage.is_empty():
            what = f"job {read.name}: nothing is on record yet"
            raise SettingsError(
                f"{what}; run `migrator backfill {file}` or `migrator shadow replay {file}` first"
            )
        model = stage.gather()
    if html is not None:
        page.write_page(html, html_page(model))
        click.echo(f"{html}: {model.verdict.title}", err=True)
    if as_json:
        click.echo(json.dumps(report_data(model), ensure_ascii=True))
    elif html is None:
        print_report(stdout(), model)
    return 0


# ── input of a report ──


def _records(session: JobSession) -> ReportRecords:
    job, journal = session.job, session.journal
    return ReportRecords(
        *(job.name, str(session.path), journal.name, version("single-table-migrator")),
        *(session.service_registry(), _lag(lag_of(session)), session.runs_as_they_stand(), journal.tally),
        *(journal, session.evidence, session.phases, session.processes.minutes),
        answers_needed(job.cutover),
    )


def _lag(lag: Lag) -> LagReport:
    kinds = lag.kinds_at_work
    if lag.marks is None:
        return LagReport(writers=kinds, reason=lag.reason, open_findings=lag.open_findings)
    state = lag.marks
    return LagReport(state.waiting, state.oldest_age_s, state.failed, kinds, open_findings=lag.open_findings)


def _sides(stack: ExitStack, session: JobSession, options: ReportOptions) -> ReportSides:
    """Source and table as far as reachable: the journal's records are shown anyway.

    Raises: MappingError, SettingsError if the job or the mapping is invalid.
    """
    job = session.job.with_patience(_PATIENCE_S)
    parsed = load_transforms(sound_mapping(job.mapping))[0]
    table = design_for(job, parsed.mapping.table)
    notes: list[str] = []
    try:
        session = stack.enter_context(session.another("report", job=job, workers=1))
    except (MappingError, SettingsError):
        raise
    except MigratorError as error:
        return ReportSides(parsed.mapping, table, notes=[f"the source cannot be asked: {error}"])
    capacity = _capacity(session, options, notes)
    store = None
    try:
        _ = session.table_id
        store = session.target.store
    except MigratorError as error:
        notes.append(f"the table cannot be asked: {error}")
    checked = session.checked
    return ReportSides(checked.mapping, table, checked.read, session.source, store, capacity, notes)


def _capacity(session: JobSession, options: ReportOptions, notes: list[str]) -> Capacity | None:
    """Reads of patterns, measured on some rows; None, with the reason in `notes`, if rows cannot be read."""
    if not options.values:
        return None
    job, checked, source = session.job, session.checked, session.source
    region = region_of(job)
    price = price_of(region or USUAL_REGION, job.target.options.table_class)
    around = CapacityContext(
        mapping=str(job.mapping),
        triggers=0,
        unread_tables=(),
        fan_outs=(),
        writes=WriteRates(),
        page_rows=job.tuning.page_rows,
        units_per_s=float(NEW_TABLE_UNITS),
        limit="",
        price=price,
        unpriced=f"no price is known for the region {region}",
        cores=1,
        is_journal_on_server=False,
        whole_keys=options.whole_keys or options.whole_values,
    )
    try:
        return capacity_of(
            checked, Sizing(source, checked.mapping, checked.entities, LIGHT, time.time()).sized(), around
        )
    except Interrupted:
        raise
    except MigratorError as error:
        notes.append(f"costs and the largest item collections are missing: {error}")
        return None


# ── the file ──
