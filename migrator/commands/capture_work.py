"""`migrator capture` and `migrator relay`: capture of changes in the source, and items made from the marks."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from migrator.cli import options as cli
from migrator.cli.command_line import print_json
from migrator.cli.cutover_text import marking_line
from migrator.cli.lag import STANDINGS, RelayReport, lag_line, lag_watch, open_line
from migrator.cli.metrics import relay_part
from migrator.cli.options import belonging, print_result, say, shown_live, stop_on_signals
from migrator.cli.runs import RunEnd, kept_mapping, known_revision, older_file, refuse_living
from migrator.cli.text import alembic_text, sql_text
from migrator.cli.watched import Watched, address_of, failure_kept, signs_of
from migrator.commands.processes import end_with_parent, options_of, part_of, reserved, started
from migrator.mapping.language.parse import ParsedMapping
from migrator.mapping.model.evidence import Line
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.instances import Share, Standing
from migrator.mapping.model.journal import Run
from migrator.mapping.model.live import MarkedBy
from migrator.runtime.errors import (
    DIFFERENT,
    Interrupted,
    MigratorError,
    RefusedError,
    SettingsError,
    StoppedError,
    amount,
)
from migrator.runtime.logs import get_logger
from migrator.runtime.values import asdict, replace
from migrator.settings.job import Job
from migrator.stages import process as runs
from migrator.stages.core.ownership import AnotherJournalError
from migrator.stages.live.capture import (
    MEANINGS,
    ROWS_CAPTURED,
    CaptureStage,
    CaptureStatus,
    Installed,
    of_another,
)
from migrator.stages.live.daemon import Daemon
from migrator.stages.process import (
    begin_revision,
    need_unanswered,
    tell_registered,
    tell_unmarked,
    tell_unverified,
)
from migrator.stages.session.evidence import gatherer_of
from migrator.stages.session.job import ONCE
from migrator.stages.session.reverse import keep_direct
from migrator.stages.session.session import ConcurrentEdges, JobSession


# Triggers are the first step to repair a journal that went back: that does not refuse them.
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
        what = "warning: the table of changes was gone, and changes with it; it was created again"
        if stage.marked_by == "log":
            what = "warning: our place in the log was lost, and changes with it; there is a new one"
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
        what = "a migration of Alembic is one transaction, and a place in the log cannot be taken in one that writes"
        raise SettingsError(f"{what}; use --as sql, in which each step is a transaction of its own")
    for refusal in stage.refusals(plans):
        click.echo(f"warning: {refusal}", err=True)
    steps = stage.steps(plans)
    text = alembic_text(steps, stage.job) if form == "alembic" else sql_text(steps)
    _print_text(form, text, as_json=as_json)
    return 0


def _print_text(form: str, text: str, *, as_json: bool) -> None:
    if as_json:
        print_json({form: text})
    else:
        click.echo(text, nl=False)


_HALF = (
    "the job already uses this mapping, and not all of its {means} exist: writers wait until the same"
    " command has succeeded, or `migrator recover JOB older-mapping` with the mapping of before"
)


def register(session: JobSession, *, go_back: bool, take_back: bool) -> Standing:
    """The mapping's former standing in the job. Registered before triggers change, whose marks relays by the
    former mapping cannot all read.
    """
    newest, own = session.newest(), session.own_revision()
    # An entity that stops or starts being direct returns the job to a former state; another mapping than the
    # newest does not.
    is_same = newest is not None and newest.revision.mapping == own.mapping
    is_turn = is_same and (take_back or bool(session.job.direct))
    before = session.revisions.register(go_back=go_back or is_turn)
    tell_registered(before, cli.say)
    return before


def _need_direct(session: JobSession, *, take_back: bool, as_json: bool) -> None:
    """Check that the job's direct entities may be direct, and record it. Evidence for new ones is printed.

    Raises: SettingsError if one was removed from the job; RefusedError if evidence is against it.
    """
    job = session.job
    recorded = session.on_record().direct
    if recorded == set(job.direct):
        return
    if not take_back and (taken_out := sorted(recorded - set(job.direct))):
        what = f"the service writes {', '.join(taken_out)} itself, and writes.direct no longer names it"
        raise SettingsError(
            f"{what}; `migrator cutover rollback JOB PATTERN` makes rows the truth again. Or write it there again; or, for"
            " an entity that it never wrote, `migrator recover JOB entity-taken-back`: old rows replace newer items"
        )
    with session.another("capture install", live_patience=ONCE) as session:
        gatherer = gatherer_of(session)
        if set(job.direct) - recorded:
            _need_proof(job, gatherer.direct_lines(job.direct, recorded), as_json=as_json)
        # Before the triggers are dropped: a process that finds them missing must also find the reason.
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
    changed = f"{amount(len(done.changed), 'table')} changed"
    again = "from now on" if done.lost_marks else "nothing to change"
    what = changed if done.changed or done.new else again
    yield f"{amount(len(done.tables), 'table')} captured, {what}"
    if done.switched:
        yield f"{means} capture changes from now on; running services continue, and stop capturing when they restart"


def _installed_by_services(done: Installed) -> Iterator[str]:
    made = "our two tables are made" if done.new else "our table of changes is made again"
    yield f"{made if done.new or done.lost_marks else 'nothing to change'}; no trigger is"
    yield f"services must capture their changes of {amount(len(done.tables), 'table')}: {', '.join(done.tables)}"
    if done.new or done.lost_marks:
        yield "their users need SELECT on our tickets, INSERT on our marks (PostgreSQL: USAGE on schema migrator)"
    if done.new:
        yield "then start every service with the adapter, and only then `migrator backfill`"


def status(job: Path, as_json: bool) -> int:
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
    lines += ["whole: every change is captured" if is_whole else "not whole: changes may not be captured"]
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
    """Raises: SettingsError if services mark changes, or may: a new journal knows none of them."""
    try:
        session.refuse_unknown()
    except AnotherJournalError as error:
        raise SettingsError(f"{error}; --force where no service runs") from None
    refuse_living(session.service_registry())


# ──
# Whether changes still leave marks: a relay whose triggers or streams are gone would be idle, without an error.

LOOK_S = 10.0
_SHARE = 0.02
"""Share of the time for checks, if a source with many tables answers slowly."""
_log = get_logger("relay")


@dataclass
class CaptureCheck:
    """Reports tables without capture at each check, and ends the relay at the second one.

    A single check may coincide with a running install. A new partition is reported once.
    `status`: reads the source.
    """

    status: Callable[[], CaptureStatus]
    clock: Callable[[], float] = time.monotonic
    _next_at: float | None = None
    _unmarked: frozenset[str] = frozenset()
    _partitions: set[str] = field(default_factory=set)

    def __call__(self) -> None:
        started = self.clock()
        if self._next_at is None:
            # The start has looked already.
            self._next_at = started + LOOK_S
        if started < self._next_at:
            return
        capture = self.status()
        ended = self.clock()
        self._next_at = ended + max(LOOK_S, (ended - started) / _SHARE)
        self._judge(capture)

    def _judge(self, capture: CaptureStatus) -> None:
        open_ = {table.table: table.state for table in capture.tables if table.state not in ROWS_CAPTURED}
        if capture.installation is None or open_:
            _log.warning(
                "changes_leave_no_mark", tables=open_, installed=capture.installation is not None, see=_SEE
            )
        before, self._unmarked = self._unmarked, frozenset(capture.unmarked_tables)
        if lasting := sorted(before & self._unmarked):
            what = f"changes of {', '.join(lasting)} are no longer captured: {capture.means} are gone or disabled"
            raise SettingsError(f"{what}, and the relay ends rather than seem well; {_MEND}")
        if set(capture.partitions) - self._partitions:
            _log.warning("truncate_leaves_no_mark", new_partitions=capture.partitions, mend=_INSTALL)
        self._partitions = set(capture.partitions)


_INSTALL = "migrator capture install"
_SEE = "`migrator capture status`; after `migrator capture install` run `migrator verify --repair`"
_MEND = "run `migrator capture install`, then `migrator verify --repair`, and start it again"


# ──
# `migrator relay`: marks made into items.

_WRITTEN_ALL_THE_SAME = {"apart"}
"""Kinds of findings of rows that have their items anyway."""
RELAYS = "relays"
"""All relays of a job share its budgets, however they were started."""
DISCARDED_TRIES = 3
"""A mark that failed less often may have met a failure that passes."""


@belonging()
def relay(
    session: JobSession, once: bool, dry_run: bool, workers: int, part: str | None, **options: Any
) -> int:
    is_marks_alone = dry_run or options["discard_marks"]
    processes = 1 if part or is_marks_alone else session.job.tuning.relay_processes
    who, connections = part_of(part)
    read = _job_of(session.job, processes, connections)
    with failure_kept("relay", session), ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals(session.stop))
        if part:
            end_with_parent(stop)
        parsed = _mapping_gone_back_to(session)
        session = stack.enter_context(session.another("relay", job=read, workers=workers, parsed=parsed))
        runs.need_bucket(read, session.checked.entities)
        if is_marks_alone:
            return _marks_alone(session, discard=not dry_run, as_json=options["as_json"])
        return _work(stack, session, who, workers, processes - 1, once=once, **options)


def _job_of(job: Job, processes: int, connections: int | None) -> Job:
    """The job as this relay sees it; only the relay that started the others calls hooks."""
    if connections is None:
        return runs.divided(job, processes)
    return replace(runs.with_connections(job, connections), hooks=())


def _mapping_gone_back_to(session: JobSession) -> ParsedMapping | None:
    """The journal's mapping, if the job has gone back from the file's; None for the file's.

    A supervisor restarts the relay while the file is still the abandoned one.
    """
    job = session.job
    own, newest = known_revision(job), session.newest()
    if own is None or newest is None or newest.revision.mapping == own or not session.changes.is_left(own):
        return None
    revision = newest.revision.mapping
    say(
        f"warning: {job.mapping}: the job has gone back from this mapping to {revision}, and the relay works by that one."
        f" Put its file in place ({older_file(job, revision)})"
    )
    return kept_mapping(session, revision)


def _work(
    stack: ExitStack, session: JobSession, who: str, workers: int, others: int, *, once: bool, **options: Any
) -> int:
    """`who`: this process's name in the journal. `others`: number of relays to start."""
    read, journal, stop = session.job, session.journal, session.stop
    edges, run = _open(stack, session, force=options["force"])
    keep = partial(_keep, edges, CaptureCheck(session.capture_status), force=options["force"])
    later = stack.enter_context(ThreadPoolExecutor(1, "hooks"))
    lag = lag_watch(read, later, edges.live.marks.state)
    report = RelayReport(
        *(session, run, edges.live.marks, edges.open_findings, keep, lag.see),
        state=edges.live.marks.state(),
        signs=signs_of(read.tuning),
        entities=edges.entities_by_table(),
    )
    highest = edges.session.memory.highest()
    address = address_of(read.tuning.metrics_host, options["metrics_port"])
    own = Share(who, RELAYS, connections=runs.taken_by(read, workers))
    parts = reserved(session, RELAYS, others, own.connections)
    watched = Watched("relay", session, report.signs, address, own)
    pace = watched.open(stack, report.advance, [partial(relay_part, report)])
    if once and pace.throttle.paused:
        what = f"job {read.name} is {pace.held}: no change was processed"
        raise StoppedError(f"{what}. Run `migrator pace {read.path} --resume`, then run this command again")
    edges_of_daemon = (edges.relay, edges.heartbeats, report, edges.guard)
    daemon = Daemon(*edges_of_daemon, workers, stop, held=lambda: pace.held)
    words = {"--json": True, "--once": once, "--workers": workers, "--force": options["force"]}
    with RunEnd(journal.end_run, run, read.hooks), shown_live(report.line):
        _run(daemon, report, parts, ["relay", str(read.path), *options_of(words)], once=once)
    if once:
        edges.guard()
    _print_end(report, daemon, as_json=options["as_json"])
    failed = edges.live.marks.state().failed
    open_kinds = edges.open_findings.counts(above=highest).keys() - _WRITTEN_ALL_THE_SAME
    unmarked = session.capture_status().unmarked() if once else []
    for what in unmarked:
        click.echo(f"warning: {what}", err=True)
    if once and stop.is_set() and not session.ownership.is_service():
        raise Interrupted("stopped before every change was read; the same command resumes")
    return DIFFERENT if once and (failed or daemon.left or open_kinds or unmarked) else 0


def _print_end(report: RelayReport, daemon: Daemon, *, as_json: bool) -> None:
    print_result(report.data() | {"left_to_others": daemon.left}, report.summary(), as_json=as_json)
    if daemon.left:
        what = f"{amount(daemon.left, 'change', 'are')} another relay's, which did not finish within a lease"
        click.echo(f"warning: {what}; see whether it is stuck, and run the same command again", err=True)


def _marks_alone(session: JobSession, *, discard: bool, as_json: bool) -> int:
    session.need_installation()
    if discard:
        discarded = session.live.marks.discard_failed(DISCARDED_TRIES)
        data = {"discarded": discarded}
        line = f"{amount(discarded, 'change')} discarded; run `migrator verify --repair`"
    else:
        counts = session.open_findings.counts()
        state = session.live.marks.state()
        data = asdict(state) | {"open_findings": counts}
        if data["slot"] is None:
            del data["slot"]
        line = "\n".join(filter(None, (lag_line(state, counts), open_line(counts))))
    print_result(data, line, as_json=as_json)
    return 0


def _open(stack: ExitStack, session: JobSession, *, force: bool) -> tuple[ConcurrentEdges, Run]:
    edges = stack.enter_context(session.open_concurrent())
    session.ownership.need_rows(force=force)
    session.revisions.refuse_old()
    installation = session.capture_by(edges.live).need_installation(session.plans)
    edges.guard()
    tell_unmarked(session, installation, say)
    tell_unverified(session, installation, say)
    begin_revision(edges, say, force=force)
    edges.open_findings.keep_entities(edges.entities)
    identity = runs.identity_of("relay", session, session.table_id, session.checked.entities)
    return edges, runs.begin(session.journal, identity, again=True, after=0)


def _keep(edges: ConcurrentEdges, check_capture: CaptureCheck, *, force: bool) -> None:
    """Periodic work. Ends the relay if the service may write the table itself, unless `force`."""
    edges.guard()
    check_capture()
    if not force and edges.session.ownership.is_service():
        click.echo(
            "every access pattern is complete: items are no longer made from rows; the relay ends", err=True
        )
        edges.session.stop.set()


def _run(
    daemon: Daemon, report: RelayReport, parts: Sequence[Share], words: Sequence[str], *, once: bool
) -> None:
    """`words`: the command line of the other relays. A failed one is restarted, unless `once`."""
    with ExitStack() as beside:
        children = started(beside, report.session, parts, words, daemon.stop, again=not once)
        # A relay is stopped by an interrupt; its taken marks come again.
        with suppress(Interrupted):
            daemon.run(once=once)
            if once:
                children.wait()
                daemon.recount(report.marks.state().waiting)
    for printed in filter(None, children.printed):
        report.others.update(json.loads(printed)["worked"])
