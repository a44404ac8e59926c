"""`migrator capture`: the triggers in the source that leave a mark of every change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from migrator import live_wiring, wiring
from migrator.cli.options import job_argument, json_option, read_job, stop_on_signals
from migrator.errors import DIFFERENT, MigratorError
from migrator.facts import EntityPlan
from migrator.live_wiring import Live
from migrator.report.migrations import alembic_text, sql_text
from migrator.settings import Job
from migrator.stages.capture import MEANINGS, CaptureStage, CaptureStatus


@click.group()
def capture() -> None:
    """Leave a mark of every change in the source, by triggers, for the relay to work."""


@dataclass(frozen=True)
class _Session:
    job: Job
    live: Live
    stage: CaptureStage
    plans: list[EntityPlan]


@contextmanager
def _session(path: Path, command: str) -> Iterator[_Session]:
    """The job's mapping laid over its source, and capture's edges there."""
    job = read_job(path)
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        laid = stack.enter_context(wiring.lay(job, f"capture {command}", stop=stop.is_set))
        live = stack.enter_context(live_wiring.open_live(job, f"capture {command}", stop=stop.is_set))
        stage = CaptureStage(live.capture, job.name, laid.checked.mapping.table)
        yield _Session(job, live, stage, [entity.plan for entity in laid.checked.entities])


@capture.command()
@job_argument
@click.option("--dry-run", is_flag=True, help="Print the SQL that would run, change nothing.")
@click.option(
    "--as", "form", type=click.Choice(["sql", "alembic"]), help="Print a migration file, change nothing."
)
def install(job: Path, dry_run: bool, form: str | None) -> int:
    """Make our two tables and the triggers, one table a transaction; what is there already stays as it is."""
    with _session(job, "install") as session:
        if dry_run or form:
            for refusal in session.stage.refusals(session.plans):
                click.echo(f"warning: {refusal}", err=True)
            steps = session.stage.steps(session.plans)
            click.echo(
                alembic_text(steps, session.job.name) if form == "alembic" else sql_text(steps), nl=False
            )
            return 0
        done = session.stage.install(session.plans)
        for limit in session.live.capture.limits(session.live.capture.captured(session.plans)):
            click.echo(f"warning: {limit}", err=True)
    if done.lost_marks:
        what = "warning: the table of marks was gone, and changes with it; it is there again"
        click.echo(f"{what}: run `migrator verify --repair`, then `migrator relay`", err=True)
    for table in done.changed:
        click.echo(f"triggers changed: {table}")
    what = f"{len(done.changed)} table(s) changed" if done.changed or done.new else "nothing to change"
    click.echo(f"{len(done.tables)} table(s) captured, {what}")
    return 0


@capture.command()
@job_argument
@json_option
def status(job: Path, as_json: bool) -> int:
    """Compare the triggers with mapping and schema. Exit code 1 where a change could leave no mark."""
    with _session(job, "status") as session:
        found = session.stage.status(session.plans)
    if as_json:
        click.echo(json.dumps(asdict(found), sort_keys=True))
    else:
        _print(found)
    return 0 if found.whole else DIFFERENT


def _print(found: CaptureStatus) -> None:
    for one in found.tables:
        click.echo(f"{one.table}: {one.state}: {MEANINGS[one.state]}")
        if one.came:
            click.echo(f"  not captured yet: column(s) {', '.join(one.came)}")
        if one.gone:
            click.echo(f"  captured, and no longer read or no longer there: column(s) {', '.join(one.gone)}")
    here = found.installation
    if here is None:
        click.echo("capture is not installed")
        return
    click.echo(f"installed for job {here.job}, epoch {here.epoch}, last ticket {here.ticket}")


@capture.command()
@job_argument
@click.option("--dry-run", is_flag=True, help="Print the SQL that would run, change nothing.")
@click.option(
    "--discard-marks", is_flag=True, help="Also where marks wait; their changes are lost to the table."
)
def uninstall(job: Path, dry_run: bool, discard_marks: bool) -> int:
    """Take away the triggers and our tables, so that nothing of ours is left in the source."""
    read = read_job(job)
    design = wiring.sound_mapping(read.mapping).mapping.table
    with live_wiring.open_live(read, "capture uninstall") as live:
        if dry_run:
            click.echo(sql_text(live.capture.uninstall_steps()), nl=False)
            return 0
        steps = CaptureStage(live.capture, read.name, design).uninstall(
            live.marks, discard_marks=discard_marks
        )
    tables = len([step for step in steps if step.table])
    click.echo(f"triggers of {tables} table(s) taken away" if steps else "capture is not installed")
    return 0


@capture.command()
@job_argument
@click.option("--raise", "raising", is_flag=True, help="Move on above every ticket that is known.")
@click.option(
    "--above", type=int, default=0, metavar="TICKET", help="With --raise: a ticket known from elsewhere."
)
@click.option("--dry-run", is_flag=True, help="Say which epoch --raise would move to, change nothing.")
def epoch(job: Path, raising: bool, above: int, dry_run: bool) -> int:
    """Show the counter of tickets; --raise after a restore of the source or a fail-over that lost changes."""
    if not raising and (above or dry_run):
        raise click.UsageError("--above and --dry-run go with --raise")
    read = read_job(job)
    design = wiring.sound_mapping(read.mapping).mapping.table
    with live_wiring.open_live(read, "capture epoch") as live:
        if raising:
            known = [above, *_known(read, above)]
            if dry_run:
                highest = max([live.tickets.highest(), *known])
                click.echo(f"would move on above ticket {highest}")
                return 0
            CaptureStage(live.capture, read.name, design).raise_epoch(live.tickets, known)
        click.echo(f"last ticket {live.tickets.highest()} of installation {live.tickets.installation()}")
    return 0


def _known(job: Job, above: int) -> list[int]:
    """What journal and table know. They may be away where --above says enough."""
    try:
        return live_wiring.known_tickets(job)
    except MigratorError as error:
        if not above:
            raise
        click.echo(f"warning: {error}; --above is taken for enough", err=True)
        return []
