"""`migrator capture`: what tells of every change in the source: triggers that leave marks, or streams of old tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from migrator.cli.command_line import print_json
from migrator.cli.cutover_text import marking_line
from migrator.cli.options import belonging, console_on, print_evidence, print_folded, say, stop_on_signals
from migrator.cli.relay_text import STANDINGS
from migrator.cli.runs import refuse_living
from migrator.cli.text import alembic_text, sql_text
from migrator.journal.runs import SqlJournal
from migrator.journal.writers import newest_of
from migrator.mapping.model.capture import Installation, MarkedBy
from migrator.mapping.model.evidence import Line
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.instances import Standing
from migrator.runtime.errors import DIFFERENT, MigratorError, RefusedError, SettingsError
from migrator.settings.job import Job
from migrator.settings.transforms import sound_mapping
from migrator.stages.core.ownership import AnotherJournalError
from migrator.stages.live.capture import MEANINGS, CaptureStage, CaptureStatus, Installed, of_another
from migrator.stages.process.write_path import need_unanswered, tell_registered
from migrator.stages.session import job as job_wiring
from migrator.stages.session import live as live_wiring
from migrator.stages.session.cutover import open_evidence
from migrator.stages.session.job import CommandJob, JobContext, on_record
from migrator.stages.session.live import Live, job_journal_of


@dataclass(frozen=True)
class _Session:
    command_job: CommandJob
    job: Job
    context: JobContext
    live: Live
    stage: CaptureStage
    plans: list[EntityPlan]


@contextmanager
def _session(
    command_job: CommandJob, command: str, marked_by: MarkedBy | None = "triggers"
) -> Iterator[_Session]:
    """The job's mapping laid over its source, and capture's edges there. `marked_by` None: as it is installed."""
    job = command_job.job
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        context = stack.enter_context(job_wiring.open_job(job, f"capture {command}", stop=stop.is_set))
        live = stack.enter_context(
            live_wiring.open_live(job, f"capture {command}", stop=stop.is_set, source=context.source)
        )
        origin = marked_by or live_wiring.marked_by(live)
        stage = CaptureStage(live.capture, job.name, context.checked.mapping.table, origin)
        plans = context.plans
        yield _Session(command_job, job, context, live, stage, plans)


# Triggers are what a journal that went back needs to be made whole: it is no reason to refuse them.
@belonging(applies=lambda options: not options["form"], older=False, keeps=True, begins=True)
def install(
    command_job: CommandJob,
    dry_run: bool,
    form: str | None,
    by_services: bool,
    from_log: bool,
    by_triggers: bool,
    force: bool,
    as_json: bool,
    take_back: bool = False,
    go_back: bool = False,
) -> int:
    """The exit code of `migrator capture install`. `take_back`, `go_back`: as `migrator recover` has it."""
    if by_services + from_log + by_triggers > 1:
        raise click.UsageError("--by-services, --from-log and --by-triggers exclude each other")
    marked_by: MarkedBy | None = (
        "services" if by_services else "log" if from_log else "triggers" if by_triggers else None
    )
    with _session(command_job, "install", marked_by) as session:
        if not form:
            need_unanswered(
                session.context, session.command_job.journal(), say, goes_back=go_back, force=force
            )
        if dry_run or form:
            return _print_install(session, form or "sql", as_json=as_json)
        _need_direct(session, take_back=take_back, as_json=as_json)
        session.stage.refuse(session.plans)
        journal = session.command_job.journal()
        before = register(session.context, journal, go_back=go_back, take_back=take_back)
        try:
            done = session.stage.install(session.plans)
        except MigratorError:
            if before in ("new", "old"):
                click.echo(_HALF.format(means=session.live.capture.means), err=True)
            raise
        for limit in session.stage.limits():
            click.echo(f"warning: {limit}", err=True)
        means = session.live.capture.means
        unverified = _unverified(session, session.live.capture.installation())
    if done.lost_marks:
        what = "warning: the table of marks was gone, and changes with it; it is there again"
        if session.stage.marked_by == "log":
            what = "warning: the slot was lost, and changes with it; there is a new one"
        click.echo(f"{what}: run `migrator verify --repair`, then `migrator relay`", err=True)
    if unverified:
        click.echo(f"warning: {unverified}", err=True)
    if as_json:
        print_json(asdict(done) | {"unverified": unverified})
    else:
        print_folded("\n".join(_installed_by_services(done) if by_services else _installed(done, means)))
    return 0


def _print_install(session: _Session, form: str, *, as_json: bool) -> int:
    if form == "alembic" and session.stage.marked_by == "log":
        what = "a migration of Alembic is one transaction, and a slot cannot be made in one that writes"
        raise SettingsError(f"{what}; use --as sql, in which each step is a transaction of its own")
    for refusal in session.stage.refusals(session.plans):
        click.echo(f"warning: {refusal}", err=True)
    steps = session.stage.steps(session.plans)
    text = alembic_text(steps, session.job.name) if form == "alembic" else sql_text(steps)
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


def register(context: JobContext, journal: SqlJournal, *, go_back: bool, take_back: bool) -> Standing:
    """What the mapping was to the job. Before triggers change: relays by the mapping before cannot read all that new ones
    hold."""
    newest = newest_of(journal.database, context.job.name)
    own = live_wiring.own_revision(context)
    # An entity that is direct no more, or once more, makes the job what it was before; another mapping than the newest
    # does not.
    is_same = newest is not None and newest.revision.mapping == own.mapping
    is_turn = is_same and (take_back or bool(context.job.direct))
    before = live_wiring.revisions_of(context, journal).register(go_back=go_back or is_turn)
    tell_registered(before, say)
    return before


def _need_direct(session: _Session, *, take_back: bool, as_json: bool) -> None:
    """Returns where the job's direct entities may be direct from now on, which goes on record; new ones need evidence,
    which is shown. Raises: SettingsError where one was taken out of the job; RefusedError where evidence is against it."""
    job = session.job
    job_journal = job_journal_of(job, session.command_job.journal())
    recorded = on_record(job, job_journal.journal).direct
    if recorded == set(job.direct):
        return
    if not take_back and (taken_out := sorted(recorded - set(job.direct))):
        what = f"the service writes {', '.join(taken_out)} itself, and writes.direct does not say so any more"
        raise SettingsError(
            f"{what}; `migrator cutover rollback JOB PATTERN` makes rows the truth again. Or write it there again; or, for"
            " an entity that it never wrote, `migrator recover JOB entity-taken-back`: old rows replace newer items"
        )
    with open_evidence(job_journal, "capture install", lambda: False) as evidence_sources:
        if set(job.direct) - recorded:
            _need_proof(job, evidence_sources.gatherer.direct_lines(job.direct, recorded), as_json=as_json)
        # Before the triggers go: a process that finds them gone must find the reason, too.
        evidence_sources.keep_direct()


def _need_proof(job: Job, lines: Sequence[Line], *, as_json: bool) -> None:
    print_evidence(lines, every=False, console=console_on(sys.stderr) if as_json else None)
    unproven = [line.name for line in lines if line.verdict != "ok"]
    if unproven:
        what = f"refused: {', '.join(job.direct)} cannot be written directly yet; not proven: {', '.join(unproven)}"
        raise RefusedError(f"{what}. Nothing was changed")


def _installed(done: Installed, means: str) -> Iterator[str]:
    for table in done.changed:
        yield f"{means} changed: {table}"
    what = f"{len(done.changed)} table(s) changed" if done.changed or done.new else "nothing to change"
    yield f"{len(done.tables)} table(s) captured, {what}"
    if done.switched:
        yield f"{means} leave the marks from now on; services that run may go on, and stop marking when they start again"


def _installed_by_services(done: Installed) -> Iterator[str]:
    yield f"{'our two tables are made' if done.new else 'nothing to change'}; no trigger is"
    yield f"services are to mark their changes of {len(done.tables)} table(s): {', '.join(done.tables)}"
    if done.new:
        yield "their users need SELECT on our tickets, INSERT on our marks (PostgreSQL: USAGE on schema migrator)"
        yield "then start every service with the adapter, and only then `migrator backfill`"


def status(job: Path, as_json: bool) -> int:
    """The exit code of `migrator capture status`."""
    with CommandJob(job) as command_job, _session(command_job, "status") as session:
        capture = session.stage.status(session.plans)
        service_registry = None
        if capture.marked_by == "services":
            service_registry = live_wiring.registry_of(session.job, command_job.journal())
        standing, unverified = _standing(session), _unverified(session, capture.installation)
        lag = live_wiring.slot_lag(session.live)
    if as_json:
        marking = {} if service_registry is None else {"marking": len(service_registry.marking)}
        slot = {} if lag is None else {"slot": asdict(lag)}
        print_json(asdict(capture) | marking | slot | {"mapping": standing, "unverified": unverified})
    else:
        _print(capture)
        if lag is not None:
            print_folded(lag.line())
        if service_registry is not None:
            print_folded(marking_line(service_registry))
        if another := of_another(capture.installation, session.job.name):
            print_folded(another)
        elif capture.installation is not None:
            print_folded(STANDINGS[standing])
        if unverified and not another:
            print_folded(f"warning: {unverified}")
    is_whole = capture.whole and (service_registry is None or bool(service_registry.marking))
    if not as_json:
        print_folded(
            "whole: every change leaves a mark" if is_whole else "not whole: changes may leave no mark"
        )
    return 0 if is_whole else DIFFERENT


def _unverified(session: _Session, installation: Installation | None) -> str:
    return live_wiring.unverified(session.command_job.journal(), session.job, installation)


def _standing(session: _Session) -> Standing:
    return live_wiring.revisions_of(session.context, session.command_job.journal()).standing()


def _print(capture: CaptureStatus) -> None:
    for table in capture.tables:
        print_folded(f"{table.table}: {table.state}: {MEANINGS[table.state]}")
        if table.came:
            print_folded(f"  not captured yet: column(s) {', '.join(table.came)}")
        if table.gone:
            print_folded(
                f"  captured, and no longer read or no longer there: column(s) {', '.join(table.gone)}"
            )
    here = capture.installation
    if here is None:
        print_folded("capture is not installed")
        return
    print_folded(f"installed for job {here.job}, epoch {here.epoch}, last ticket {here.ticket}")


def uninstall(job: Path, dry_run: bool, discard_marks: bool, force: bool, as_json: bool) -> int:
    """The exit code of `migrator capture uninstall`."""
    read = job_wiring.read_job(job)
    design = sound_mapping(read.mapping).mapping.table
    with live_wiring.open_live(read, "capture uninstall") as live:
        if dry_run:
            _print_text("sql", sql_text(live.capture.uninstall_steps()), as_json=as_json)
            return 0
        if not force:
            _refuse_living(read)
        steps = CaptureStage(live.capture, read.name, design).uninstall(
            live.marks, discard_marks=discard_marks
        )
        tables = [step.table for step in steps if step.table]
        message = live.capture.taken_away(tables)
    if as_json:
        print_json({"was_installed": bool(steps), "tables": tables})
    else:
        print_folded(message if steps else "capture is not installed")
    return 0


def _refuse_living(job: Job) -> None:
    """Raises: SettingsError where services mark changes, or may: a journal that was just made knows none of them."""
    with job_wiring.open_journal(job) as journal:
        try:
            live_wiring.refuse_unknown(job, journal)
        except AnotherJournalError as error:
            raise SettingsError(f"{error}; --force where no service runs") from None
        refuse_living(live_wiring.registry_of(job, journal))
