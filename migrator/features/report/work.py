"""`migrator report`: a job's state, differences, latency and evidence, on a terminal, as JSON or as an HTML page."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import click
from jinja2 import Environment

from migrator.cli.lag import Lag, lag_of
from migrator.cli.options import belonging, stdout, stop_on_signals
from migrator.cli.page import (
    bars_of,
    columns_of,
    curves_of,
    environment_of_pages,
    moves_at,
    number_text,
    part_of_page,
    policy_of,
    refuse_unwritable,
    write_page,
)
from migrator.features.report.gather import (
    LIGHT,
    Report,
    ReportContext,
    ReportOptions,
    ReportRecords,
    ReportSides,
)
from migrator.features.report.terminal import (
    KIND_WORDS,
    SIDE_WORDS,
    answered_words,
    compared_words,
    finder_words,
    history_words,
    moved_words,
    next_steps,
    print_report,
    report_data,
    rows_words,
)
from migrator.mapping.capacity.ways import Host
from migrator.mapping.model.capacity import Capacity, Writes
from migrator.mapping.model.durations import age_text
from migrator.mapping.model.evidence import PHASES
from migrator.mapping.model.report import LagReport, ReportModel
from migrator.runtime.errors import Interrupted, MappingError, MigratorError, SettingsError
from migrator.settings.transforms import USUAL_REGION, load_transforms, price_of, sound_mapping
from migrator.stages.design.capacity import NEW_TABLE_UNITS, Around, capacity_of
from migrator.stages.design.sizing import Sizing
from migrator.stages.session.job import design_for, region_of
from migrator.stages.session.session import JobSession

# ── The report as one HTML file that needs no network and can be read without scripts ──


_EXAMPLES = 3
"""Shown side by side in a group."""


def html_page(model: ReportModel) -> str:
    """The whole page. What it holds of rows is text, never markup."""
    pages = _environment()
    style, script = (part_of_page(pages, name) for name in ("report.css", "report.js"))
    return pages.get_template("report.html").render(
        model=model,
        version=model.version,
        style=style,
        script=script,
        policy=policy_of(style, script),
        bars=bars_of(model.timeline),
        columns=columns_of(model.work, model.moves),
        moves=moves_at(model.timeline.width_s, [span.begun_at for span in model.timeline.spans], model.moves),
        figures={"items": number_text, "write units": number_text, "lag": age_text},
        curves={pattern.name: curves_of(pattern.latency) for pattern in model.patterns if pattern.latency},
        examples=_EXAMPLES,
        phases=PHASES,
    )


def _environment() -> Environment:
    """The templates of pages, with the report's own words."""
    pages = environment_of_pages()
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
"""How long a side that does not answer is asked again: the rest is worth showing without it."""


@belonging()
def report(session: JobSession, html: Path | None, since_s: float, as_json: bool, **how: bool | None) -> int:
    """The exit code of `migrator report`."""
    read = session.job
    samples = how["samples"]
    options = ReportOptions(since_s, samples is not False, bool(samples), bool(how["whole_keys"]))
    if html is not None:
        refuse_unwritable(html)
    with ExitStack() as stack:
        stack.enter_context(stop_on_signals(session.stop))
        _, file = session.journal, session.path
        stage = Report(_records(session), _sides(stack, session, options), _around(session), options)
        if stage.is_empty():
            what = f"job {read.name}: nothing is on record yet"
            raise SettingsError(
                f"{what}; run `migrator backfill {file}` or `migrator shadow replay {file}` first"
            )
        model = stage.gather()
    if html is not None:
        write_page(html, html_page(model))
        click.echo(f"{html}: {model.verdict.title}", err=True)
    if as_json:
        click.echo(json.dumps(report_data(model), ensure_ascii=True))
    elif html is None:
        print_report(stdout(), model)
    return 0


# ── what it is made of ──


def _records(session: JobSession) -> ReportRecords:
    runs, tally, groups = session.runs_as_they_stand(), session.journal.tally, session.finding_groups
    return ReportRecords(runs, tally, groups, session.evidence, session.phases, session.processes.minutes)


def _around(session: JobSession) -> ReportContext:
    own, lag, job = version("single-table-migrator"), _lag(lag_of(session)), session.job
    names = (job.name, str(session.path), session.journal.name, own)
    return ReportContext(*names, session.service_registry(), lag, job.cutover.comparisons_min)


def _lag(lag: Lag) -> LagReport:
    kinds = lag.kinds_at_work
    if lag.marks is None:
        return LagReport(writers=kinds, reason=lag.reason, open_findings=lag.open_findings)
    state = lag.marks
    return LagReport(state.waiting, state.oldest_age_s, state.failed, kinds, open_findings=lag.open_findings)


def _sides(stack: ExitStack, session: JobSession, options: ReportOptions) -> ReportSides:
    """Source and table as far as they can be reached: what the journal holds is shown all the same.

    Raises: MappingError, SettingsError where the job or the mapping is wrong.
    """
    job = session.job
    patience_s = min(job.tuning.give_up_after_s, _PATIENCE_S)
    job = replace(job, tuning=job.tuning.model_copy(update={"give_up_after_s": patience_s}))
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
    """What patterns read, measured on some rows; None where rows are not to be read, or cannot be: `notes` says why."""
    if not options.values:
        return None
    job, checked, source = session.job, session.checked, session.source
    region = region_of(job)
    price = price_of(region or USUAL_REGION, job.target.options.table_class)
    around = Around(
        mapping=str(job.mapping),
        triggers=0,
        unread_tables=(),
        fan_outs=(),
        writes=Writes(),
        page_rows=job.tuning.page_rows,
        units_per_s=float(NEW_TABLE_UNITS),
        limit="",
        price=price,
        unpriced=f"no price is known for the region {region}",
        host=Host(1, on_server=False),
        whole_keys=options.whole_keys or options.whole_values,
    )
    try:
        return capacity_of(
            checked,
            Sizing(source, checked.mapping, checked.entities, LIGHT, time.time()).sized(),
            around,
        )
    except Interrupted:
        raise
    except MigratorError as error:
        notes.append(f"costs and the largest item collections are missing: {error}")
        return None


# ── the file ──
