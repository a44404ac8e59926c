"""`migrator plan`: what a mapping's table would take, measured on the rows of its source, before there is a table."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

import click
from markupsafe import Markup

from migrator.cli.command_line import print_json
from migrator.cli.cost import write_limit
from migrator.cli.options import print_folded, say, stdout, stop_on_signals
from migrator.cli.page import refuse_unwritable, write_page
from migrator.commands.mapping_source import null_doubts
from migrator.features.plan.text import (
    plan_data,
    plan_page,
    print_plan,
    print_views,
    views_data,
    views_fragment,
)
from migrator.mapping.capacity.ways import Host
from migrator.mapping.items.changes import unread_tables
from migrator.mapping.model.capacity import Capacity, Writes
from migrator.runtime.errors import CLEAN, DIFFERENT, MigratorError, SettingsError
from migrator.settings.job import Job, TargetSettings, Tuning, is_job
from migrator.settings.source import SourceSettings
from migrator.settings.transforms import USUAL_REGION, known_regions, price_of
from migrator.stages.design.capacity import Around, capacity_of
from migrator.stages.design.shown import Showing
from migrator.stages.design.sizing import Bounds, Sizing
from migrator.stages.design.views import Views
from migrator.stages.process.session import MOST_UNASKED, usable_cores
from migrator.stages.session.job import read_job, region_of, source_name
from migrator.stages.session.live import ONCE
from migrator.stages.session.session import JobSession
from migrator.stages.session.workload import Workload

_TRIGGER = re.compile(r"\bCREATE (?:OR REPLACE )?TRIGGER\b")
_OURS = '<meta name="generator" content="migrator '


@dataclass(frozen=True)
class Asked:
    """What the command line asked for."""

    source: str | None
    statements: Path | None
    rows_exact: int
    region: str | None
    whole_keys: bool


def plan(
    design: Path, other: Path | None, html: Path | None, show: str | None, as_json: bool, **values: object
) -> int:
    """The exit code of `migrator plan`."""
    asked = Asked(**values)  # type: ignore[arg-type]
    if show is not None:
        if other is not None or html is not None:
            raise click.UsageError("--pk goes with neither OTHER nor --html")
        return _show(_job_of(design, asked), show, asked, as_json=as_json)
    if html is not None:
        _refuse_other_file(html)
    jobs = [_job_of(path, asked) for path in (design, other) if path is not None]
    _refuse_other_source(jobs)
    with ExitStack() as until:
        stop = until.enter_context(stop_on_signals())
        sessions = [until.enter_context(_session(job, stop)) for job in jobs]
        # Faults of the second design are told before the rows of the first one are read.
        _ = [session.checked for session in sessions]
        capacities = [_capacity(session, asked) for session in sessions]
        for name, what in null_doubts(sessions[0].source, sessions[0].checked):
            say(f"warning: {name}: {what}")
        collections = _collections(sessions[0], asked) if html is not None else None
    if html is not None:
        write_page(html, plan_page(capacities, collections))
        say(f"{html}: written")
    if as_json:
        print_json(plan_data(capacities))
    else:
        print_plan(stdout(), capacities)
    return DIFFERENT if capacities[0].misfits else CLEAN


# ── what is planned ──


def _session(job: Job, stop: Event | None = None) -> JobSession:
    return JobSession(job, "plan", workers=1, live_patience=ONCE, stop=stop)


def _job_of(path: Path, asked: Asked) -> Job:
    """The job; of a mapping one that has no more than its source.

    Raises: SettingsError, MappingError.
    """
    if is_job(path):
        return read_job(path)
    if asked.source is None:
        what = f"{path}: a mapping does not say where its rows are"
        raise SettingsError(f"{what}; add --source URL, set MIGRATOR_SOURCE_URL, or name a job")
    source = SourceSettings.model_construct(url=asked.source)
    return Job("plan", path, path, source, TargetSettings(), Tuning())


def _refuse_other_source(jobs: Sequence[Job]) -> None:
    if len({source_name(job) for job in jobs}) > 1:
        what = f"{jobs[1].path} reads another source than {jobs[0].path}"
        raise SettingsError(f"{what}: two designs can be compared of the same rows alone; name one source")


def _refuse_other_file(path: Path) -> None:
    """Raises: SettingsError where a page cannot be written, or what stands there is no page of ours."""
    refuse_unwritable(path)
    if path.exists() and _OURS not in path.read_bytes()[:4_096].decode("utf-8", "replace"):
        raise SettingsError(f"--html {path}: there already, and no page of migrator's; name another file")


# ── item collections of real rows ──


def _views(session: JobSession, asked: Asked) -> tuple[Views, Showing]:
    mapping, plans = session.checked.mapping, session.plans
    showing = Showing(mapping, plans, whole_keys=asked.whole_keys, whole_values=False)
    return Views(mapping, session.checked.entities, showing, session.source), showing


def _collections(session: JobSession, asked: Asked) -> Markup:
    """A fragment of the page: the table and each index with collections of a few rows, values masked."""
    views, showing = _views(session, asked)
    return views_fragment([showing.view(view) for view in views.all()])


def _show(job: Job, key: str, asked: Asked, *, as_json: bool) -> int:
    """The item collections under one partition key, which rows would make; no other row is read."""
    with _session(job) as session:
        views, showing = _views(session, asked)
        found, notes = views.under(key, time.time())
        shown = [showing.view(view) for view in found]
    if as_json:
        print_json({"views": views_data(shown), "notes": notes})
    else:
        print_views(stdout(), shown)
        print_folded("" if shown else "no row makes an item under this partition key")
        notes += [] if shown else views.key_forms()
    for note in notes:
        say(note)
    return CLEAN if shown else DIFFERENT


# ── figures ──


def _capacity(session: JobSession, asked: Asked) -> Capacity:
    checked, source = session.checked, session.source
    around = _around(session, asked)
    bounds = Bounds(asked.rows_exact, min(asked.rows_exact, Bounds.sampled))
    sized = Sizing(source, checked.mapping, checked.entities, bounds, time.time()).sized()
    if checked.mapping.documents:
        return capacity_of(checked, sized, around)
    counted = _workload(session).fan_outs(checked.plans, sized.rows, asked.rows_exact)
    return capacity_of(checked, sized, replace(around, fan_outs=counted))


def _around(session: JobSession, asked: Asked) -> Around:
    job, source = session.job, session.source
    options = job.target.options
    set_region = asked.region or region_of(job)
    region = set_region or USUAL_REGION
    price = price_of(region, options.table_class)
    known = ", ".join(known_regions())
    triggers, notes = _triggers(session)
    if not set_region:
        notes.append(f"no region is set: prices are those of {USUAL_REGION}; say --region for others")
    units_per_s, limit = write_limit(job)
    return Around(
        mapping=str(job.mapping),
        triggers=triggers,
        unread_tables=unread_tables(source.facts(), session.plans, source.views()),
        fan_outs=(),
        writes=_writes(session, asked),
        page_rows=job.tuning.page_rows,
        units_per_s=units_per_s,
        limit=limit,
        price=price,
        host=Host(min(usable_cores(), MOST_UNASKED), on_server=job.journal is not None),
        unpriced="" if price else f"no price is known for the region {region}; known: {known}; say --region",
        notes=tuple(notes),
        whole_keys=asked.whole_keys,
    )


def _triggers(session: JobSession) -> tuple[int, list[str]]:
    """(triggers that capture would install, why they are not known)."""
    try:
        stage = replace(session.capture, marked_by=session.live.marked_by())
        steps = stage.steps(session.plans)
    except MigratorError as error:
        return 0, [f"the triggers of capture are not counted: {error}"]
    return sum(len(_TRIGGER.findall(statement)) for step in steps for statement in step.statements), []


def _writes(session: JobSession, asked: Asked) -> Writes:
    if asked.statements is None:
        return Writes(why="no file of SQL with rates is given: --statements FILE")
    return _workload(session).writes(asked.statements)


def _workload(session: JobSession) -> Workload:
    return Workload(session.sql, session.source.facts())
