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

from migrator.cli.drawings import bars_of, columns_of, curves_of, moves_at, number_text
from migrator.cli.lag import Lag, lag_of
from migrator.cli.options import belonging, stdout, stop_on_signals
from migrator.cli.page import environment_of_pages, part_of_page, policy_of, refuse_unwritable, write_page
from migrator.features.report.costs import LIGHT
from migrator.features.report.gather import Report, ReportContext, ReportOptions, ReportRecords, ReportSides
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
from migrator.journal.findings import SqlFindingGroups
from migrator.journal.operations import SqlProcesses
from migrator.journal.phases import SqlEvidence, SqlPhases
from migrator.journal.runs import SqlJournal
from migrator.mapping.capacity.ways import Host
from migrator.mapping.model.capacity import Capacity, Writes
from migrator.mapping.model.durations import age_text
from migrator.mapping.model.evidence import PHASES
from migrator.mapping.model.report import LagReport, ReportModel
from migrator.runtime.errors import Interrupted, MappingError, MigratorError, SettingsError
from migrator.settings.job import Job
from migrator.settings.transforms import USUAL_REGION, load_transforms, price_of, sound_mapping
from migrator.stages.design.capacity import NEW_TABLE_UNITS, Around, capacity_of
from migrator.stages.design.sizing import Sizing
from migrator.stages.session import job as job_wiring
from migrator.stages.session import live
from migrator.stages.session.job import CommandJob, JobContext

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
def report(
    command_job: CommandJob, html: Path | None, since_s: float, as_json: bool, **how: bool | None
) -> int:
    """The exit code of `migrator report`."""
    read = command_job.job
    samples = how["samples"]
    options = ReportOptions(since_s, samples is not False, bool(samples), bool(how["whole_keys"]))
    if html is not None:
        refuse_unwritable(html)
    with ExitStack() as stack:
        stack.enter_context(stop_on_signals())
        journal, file = command_job.journal(), command_job.path
        stage = Report(
            _records(journal, read), _sides(stack, read, options), _around(read, journal, file), options
        )
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


def _records(journal: SqlJournal, job: Job) -> ReportRecords:
    database = journal.database
    return ReportRecords(
        journal,
        SqlFindingGroups(database),
        SqlEvidence(database, job.name),
        SqlPhases(database, job.name),
        SqlProcesses(database, job.name),
    )


def _around(job: Job, journal: SqlJournal, file: Path) -> ReportContext:
    service_registry = live.registry_of(job, journal)
    own, lag = version("single-table-migrator"), _lag(lag_of(job, journal))
    needed = job.cutover.comparisons_min
    return ReportContext(job.name, str(file), journal.name, own, service_registry, lag, needed)


def _lag(lag: Lag) -> LagReport:
    kinds = lag.kinds_at_work
    if lag.marks is None:
        return LagReport(writers=kinds, reason=lag.reason, open_findings=lag.open_findings)
    state = lag.marks
    return LagReport(state.waiting, state.oldest_age_s, state.failed, kinds, open_findings=lag.open_findings)


def _sides(stack: ExitStack, job: Job, options: ReportOptions) -> ReportSides:
    """Source and table as far as they can be reached: what the journal holds is shown all the same.

    Raises: MappingError, SettingsError where the job or the mapping is wrong.
    """
    patience_s = min(job.tuning.give_up_after_s, _PATIENCE_S)
    job = replace(job, tuning=job.tuning.model_copy(update={"give_up_after_s": patience_s}))
    parsed = load_transforms(sound_mapping(job.mapping))[0]
    table = job_wiring.design_for(job, parsed.mapping.table)
    notes: list[str] = []
    try:
        context = stack.enter_context(job_wiring.open_job(job, "report", workers=1))
    except (MappingError, SettingsError):
        raise
    except MigratorError as error:
        return ReportSides(parsed.mapping, table, notes=[f"the source cannot be asked: {error}"])
    capacity = _capacity(context, options, notes)
    store = None
    try:
        target = job_wiring.open_target(job, context.checked.mapping.table, lambda: False)
        target.table_id()
        store = target.store
    except MigratorError as error:
        notes.append(f"the table cannot be asked: {error}")
    checked = context.checked
    return ReportSides(checked.mapping, table, checked.read, context.source, store, capacity, notes)


def _capacity(context: JobContext, options: ReportOptions, notes: list[str]) -> Capacity | None:
    """What patterns read, measured on some rows; None where rows are not to be read, or cannot be: `notes` says why."""
    if not options.values:
        return None
    job, checked, source = context.job, context.checked, context.source
    region = job_wiring.region_of(job)
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
