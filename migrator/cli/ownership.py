"""Refuses a journal that is not its table's, before commands that write items or tell phases; adoption."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from migrator.journal.runs import SqlJournal
from migrator.model.errors import MappingError, MigratorError
from migrator.settings.job import Job
from migrator.stages.ownership import AnotherJobError, AnotherJournalError, OlderError, UnaskedSourceError
from migrator.target.store import by_condition
from migrator.wiring import job as job_wiring
from migrator.wiring import live as live_wiring
from migrator.wiring import ownership
from migrator.wiring.job import CommandJob, JobContext, Target
from migrator.wiring.live import ONCE, Live
from migrator.wiring.ownership import adoption_of, control_of, hasty_target, keep_on_record, keeping_of

_REASON = "taken from the table's control item: the journal was lost, or restored from a backup"
_TOLD = "the table could not be told of phases, which it keeps for the day on which this journal is lost"


def belonging(
    *,
    applies: Callable[[Mapping[str, Any]], bool] = lambda asked: True,
    older: bool = True,
    keeps: bool = False,
    tells: bool = False,
    begins: bool = False,
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Refuses a command whose journal is not the table's, unless --adopt-journal is given (`adopt_option`). The command is
    given the job with the journal that was asked.

    `applies`: whether the options asked for ask for it, too. `older`: whether one that went back is refused as well.
    `keeps`: it may have changed what the table is to keep of the journal. `tells`: it is given `table_away`, why the table
    could not be asked ('' where it could). `begins`: it may be the first that the journal hears of a job whose source is
    captured already (by a migration file), as long as the table is empty.
    """

    def decorated(command: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(command)
        def guarded(job: Path, adopt_journal: bool, **asked: Any) -> int:
            is_dry = bool(asked.get("dry_run"))
            with CommandJob(job) as command_job:
                # What tells or moves phases needs the right journal even where it only looks.
                if not applies(asked) or (is_dry and not keeps):
                    return command(command_job, **asked)
                away = ""
                if adopt_journal and not is_dry:
                    _adopt_journal(command_job)
                elif not adopt_journal:
                    away = refuse_strange(command_job, older=older, is_told=keeps, begins=begins)
                code = command(command_job, **asked, **({"table_away": away} if tells else {}))
                if keeps and not is_dry:
                    _keep(command_job)
                return code

        return guarded

    return decorated


def refuse_strange(command_job: CommandJob, *, older: bool, is_told: bool, begins: bool) -> str:
    """Why the table could not be asked, which is found out by the command itself, if it needs one; `is_told`: it may not.

    Raises: AnotherJobError, AnotherJournalError, OlderError, UnaskedSourceError.
    """
    job = command_job.job
    failures: list[str] = []
    with _asking(is_told=is_told):
        journal = command_job.journal()
        with _asking(is_told=is_told) as failures:
            ownership.refuse_strange(job, hasty_target(job), journal, older=older)
        # Also where the table does not answer: this is asked of the source.
        try:
            live_wiring.refuse_unknown(job, journal, begins=begins, unless=lambda: begins and _is_empty(job))
        except UnaskedSourceError:
            if not begins:  # these ask the source themselves, and say better what stands in the way
                raise
    return "".join(failures)


@contextmanager
def _asking(*, is_told: bool) -> Iterator[list[str]]:
    """What failed on the way, which is no reason to stop."""
    failures: list[str] = []
    try:
        yield failures
    except (AnotherJobError, AnotherJournalError, OlderError, UnaskedSourceError):
        raise
    except MigratorError as error:
        if is_told:
            _warn(error, "whether this journal is the table's could not be asked")
        failures.append(str(error))


def _is_empty(job: Job) -> bool:
    return not any(page.items for page in hasty_target(job).store.scan(0, 1))


def _keep(command_job: CommandJob) -> None:
    job = command_job.job
    try:
        target = hasty_target(job)
        journal = command_job.journal()
        keep_on_record(job, target, journal, lambda: live_wiring.existing_table(job, target))
    except MigratorError as error:
        _warn(error, f"{_TOLD}; `migrator cutover status` tells it again")


def _warn(error: MigratorError, what: str) -> None:
    # A mapping with faults is told in full by the command itself.
    if not isinstance(error, MappingError):
        click.echo(f"warning: {what}: {error}", err=True)


# ── adoption ──


def _adopt_journal(command_job: CommandJob) -> None:
    job = command_job.job
    with ExitStack() as stack:
        context = stack.enter_context(job_wiring.open_job(job, "journal", workers=1))
        target = job_wiring.open_target(job, context.checked.mapping.table, lambda: False)
        journal = command_job.journal()
        table_id = live_wiring.existing_table(job, target)
        opened = live_wiring.open_live(job, "journal", patience=ONCE, source=context.source)
        try:
            live_wiring.refuse_unknown(job, journal)
            _guard(job, stack.enter_context(opened), target, journal, table_id)
        except (AnotherJournalError, OlderError):
            adopt(context, target, journal, table_id)
            what = "this journal is the table's from now on"
            click.echo(f"{what}; run `migrator verify --repair`, then `migrator relay`", err=True)


def adopt_repaired(
    context: JobContext, live: Live, target: Target, journal: SqlJournal, table_id: str
) -> None:
    """Whatever went back goes on from here: what differs was marked. `live`: of the job's own source, wherever rows were
    read. Raises: AnotherJournalError."""
    try:
        _guard(context.job, live, target, journal, table_id)
    except OlderError:
        adopt(context, target, journal, table_id)
        click.echo("what went back goes on from here; run `migrator relay`", err=True)


def _guard(job: Job, live: Live, target: Target, journal: SqlJournal, table_id: str) -> None:
    ownership.refuse_strange(job, target, journal)
    if live.capture.installation() is not None:
        control = control_of(job, target.fenced(by_condition), journal)
        keeping_of(job, target, journal, table_id, live.tickets, control).guard()


def adopt(context: JobContext, target: Target, journal: SqlJournal, table_id: str) -> None:
    count = adoption_of(context, target, journal, table_id).run(_REASON)
    click.echo(f"{count:,} item key(s) remembered anew", err=True)
