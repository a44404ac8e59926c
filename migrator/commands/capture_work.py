"""`migrator capture`: what tells of every change in the source: triggers that leave marks, or streams of old tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from migrator.cli import options as cli
from migrator.cli.command_line import print_json
from migrator.cli.cutover_text import marking_line
from migrator.cli.lag import STANDINGS
from migrator.cli.runs import refuse_living
from migrator.cli.text import alembic_text, sql_text
from migrator.mapping.model.capture import MarkedBy
from migrator.mapping.model.evidence import Line
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.instances import Standing
from migrator.runtime.errors import DIFFERENT, MigratorError, RefusedError, SettingsError, amount
from migrator.runtime.values import asdict, replace
from migrator.settings.job import Job
from migrator.stages.core.ownership import AnotherJournalError
from migrator.stages.live.capture import MEANINGS, CaptureStage, CaptureStatus, Installed, of_another
from migrator.stages.process.write_path import need_unanswered, tell_registered
from migrator.stages.session.live import ONCE
from migrator.stages.session.reverse import gatherer_of, keep_direct
from migrator.stages.session.session import JobSession


# Triggers are what a journal that went back needs to be made whole: it is no reason to refuse them.
@cli.belonging(applies=lambda options: not options["form"], older=False, keeps=True, begins=True)
def install(
    session: JobSession,
    dry_run: bool,
    form: str | None,
    marked_by: MarkedBy | None,
    force: bool,
    as_json: bool,
    take_back: bool = False,
    go_back: bool = False,
) -> int:
    """The exit code of `migrator capture install`. `take_back`, `go_back`: as `migrator recover` has it."""
    with cli.stop_on_signals(session.stop), session.another("capture install") as session:
        plans = session.plans
        stage = replace(session.capture, marked_by=marked_by or session.live.marked_by())
        if not form:
            need_unanswered(session, cli.say, goes_back=go_back, force=force)
        if dry_run or form:
            return _print_install(stage, plans, form or "sql", as_json=as_json)
        _need_direct(session, take_back=take_back, as_json=as_json)
        stage.refuse(plans)
        before = register(session, go_back=go_back, take_back=take_back)
        try:
            done = stage.install(plans)
        except MigratorError:
            if before in ("new", "old"):
                click.echo(_HALF.format(means=session.live.capture.means), err=True)
            raise
        for limit in stage.limits():
            click.echo(f"warning: {limit}", err=True)
        means = session.live.capture.means
        unverified = session.unverified(session.live.capture.installation())
    if done.lost_marks:
        what = "warning: the table of marks was gone, and changes with it; it is there again"
        if stage.marked_by == "log":
            what = "warning: the slot was lost, and changes with it; there is a new one"
        click.echo(f"{what}: run `migrator verify --repair`, then `migrator relay`", err=True)
    if unverified:
        click.echo(f"warning: {unverified}", err=True)
    cli.print_result(
        asdict(done) | {"unverified": unverified},
        "\n".join(_installed_by_services(done) if marked_by == "services" else _installed(done, means)),
        as_json=as_json,
    )
    return 0


def _print_install(stage: CaptureStage, plans: Sequence[EntityPlan], form: str, *, as_json: bool) -> int:
    if form == "alembic" and stage.marked_by == "log":
        what = "a migration of Alembic is one transaction, and a slot cannot be made in one that writes"
        raise SettingsError(f"{what}; use --as sql, in which each step is a transaction of its own")
    for refusal in stage.refusals(plans):
        click.echo(f"warning: {refusal}", err=True)
    steps = stage.steps(plans)
    text = alembic_text(steps, stage.job) if form == "alembic" else sql_text(steps)
    _print_text(form, text, as_json=as_json)
    return 0


def _print_text(form: str, text: str, *, as_json: bool) -> None:
    """What would run, as a file for the people that change the source."""
    if as_json:
        print_json({form: text})
    else:
        click.echo(text, nl=False)


_HALF = (
    "the job has gone on to this mapping already, and not all of its {means} are there: no writer goes on until the same"
    " command has succeeded, or `migrator recover JOB older-mapping` with the mapping of before"
)


def register(session: JobSession, *, go_back: bool, take_back: bool) -> Standing:
    """What the mapping was to the job. Before triggers change: relays by the mapping before cannot read all that new ones
    hold."""
    newest, own = session.newest(), session.own_revision()
    # An entity that is direct no more, or once more, makes the job what it was before; another mapping than the newest
    # does not.
    is_same = newest is not None and newest.revision.mapping == own.mapping
    is_turn = is_same and (take_back or bool(session.job.direct))
    before = session.revisions.register(go_back=go_back or is_turn)
    tell_registered(before, cli.say)
    return before


def _need_direct(session: JobSession, *, take_back: bool, as_json: bool) -> None:
    """Returns where the job's direct entities may be direct from now on, which goes on record; new ones need evidence,
    which is shown. Raises: SettingsError where one was taken out of the job; RefusedError where evidence is against it."""
    job = session.job
    recorded = session.on_record().direct
    if recorded == set(job.direct):
        return
    if not take_back and (taken_out := sorted(recorded - set(job.direct))):
        what = f"the service writes {', '.join(taken_out)} itself, and writes.direct does not say so any more"
        raise SettingsError(
            f"{what}; `migrator cutover rollback JOB PATTERN` makes rows the truth again. Or write it there again; or, for"
            " an entity that it never wrote, `migrator recover JOB entity-taken-back`: old rows replace newer items"
        )
    with session.another("capture install", live_patience=ONCE) as session:
        gatherer = gatherer_of(session)
        if set(job.direct) - recorded:
            _need_proof(job, gatherer.direct_lines(job.direct, recorded), as_json=as_json)
        # Before the triggers go: a process that finds them gone must find the reason, too.
        keep_direct(session, gatherer.table_id)


def _need_proof(job: Job, lines: Sequence[Line], *, as_json: bool) -> None:
    cli.print_evidence(lines, every=False, console=cli.console_on(sys.stderr) if as_json else None)
    unproven = [line.name for line in lines if line.verdict != "ok"]
    if unproven:
        what = f"refused: {', '.join(job.direct)} cannot be written directly yet; not proven: {', '.join(unproven)}"
        raise RefusedError(f"{what}. Nothing was changed")


def _installed(done: Installed, means: str) -> Iterator[str]:
    for table in done.changed:
        yield f"{means} changed: {table}"
    what = (
        f"{amount(len(done.changed), 'table')} changed" if done.changed or done.new else "nothing to change"
    )
    yield f"{amount(len(done.tables), 'table')} captured, {what}"
    if done.switched:
        yield f"{means} leave the marks from now on; services that run may go on, and stop marking when they start again"


def _installed_by_services(done: Installed) -> Iterator[str]:
    yield f"{'our two tables are made' if done.new else 'nothing to change'}; no trigger is"
    yield f"services are to mark their changes of {amount(len(done.tables), 'table')}: {', '.join(done.tables)}"
    if done.new:
        yield "their users need SELECT on our tickets, INSERT on our marks (PostgreSQL: USAGE on schema migrator)"
        yield "then start every service with the adapter, and only then `migrator backfill`"


def status(job: Path, as_json: bool) -> int:
    """The exit code of `migrator capture status`."""
    with JobSession(job, "capture status") as session, cli.stop_on_signals(session.stop):
        capture = session.capture.status(session.plans)
        service_registry = session.service_registry() if capture.marked_by == "services" else None
        standing, unverified = session.revisions.standing(), session.unverified(capture.installation)
        lag = session.live.slot_lag()
    is_whole = capture.whole and (service_registry is None or bool(service_registry.marking))
    another, lines = of_another(capture.installation, session.job.name), list(_lines(capture))
    lines += [] if lag is None else [lag.line()]
    lines += [] if service_registry is None else [marking_line(service_registry)]
    lines += [another or STANDINGS[standing]] if capture.installation is not None else []
    lines += [f"warning: {unverified}"] if unverified and not another else []
    lines += ["whole: every change leaves a mark" if is_whole else "not whole: changes may leave no mark"]
    marking = {} if service_registry is None else {"marking": len(service_registry.marking)}
    slot = {} if lag is None else {"slot": asdict(lag)}
    data = asdict(capture) | marking | slot | {"mapping": standing, "unverified": unverified}
    cli.print_result(data, lines, as_json=as_json)
    return 0 if is_whole else DIFFERENT


def _lines(capture: CaptureStatus) -> Iterator[str]:
    for table in capture.tables:
        yield f"{table.table}: {table.state}: {MEANINGS[table.state]}"
        if table.came:
            yield f"  columns not captured yet: {', '.join(table.came)}"
        if table.gone:
            yield f"  columns captured, and no longer read or no longer there: {', '.join(table.gone)}"
    here = capture.installation
    if here is None:
        yield "capture is not installed"
    else:
        yield f"installed for job {here.job}, epoch {here.epoch}, last ticket {here.ticket}"


def uninstall(job: Path, dry_run: bool, discard_marks: bool, force: bool, as_json: bool) -> int:
    """The exit code of `migrator capture uninstall`."""
    with JobSession(job) as session, session.open_own_live("capture uninstall") as live:
        stage = session.capture_by(live)
        if dry_run:
            _print_text("sql", sql_text(live.capture.uninstall_steps()), as_json=as_json)
            return 0
        if not force:
            _refuse_living(session)
        steps = stage.uninstall(live.marks, discard_marks=discard_marks)
        tables = [step.table for step in steps if step.table]
        message = live.capture.taken_away(tables)
    cli.print_result(
        {"was_installed": bool(steps), "tables": tables},
        message if steps else "capture is not installed",
        as_json=as_json,
    )
    return 0


def _refuse_living(session: JobSession) -> None:
    """Raises: SettingsError where services mark changes, or may: a journal that was just made knows none of them."""
    try:
        session.refuse_unknown()
    except AnotherJournalError as error:
        raise SettingsError(f"{error}; --force where no service runs") from None
    refuse_living(session.service_registry())
