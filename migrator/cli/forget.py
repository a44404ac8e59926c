"""`migrator forget`: what is kept of one row, taken away for good."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import click

from migrator import forget_wiring, live_wiring, wiring
from migrator.cli.belonging import belonging
from migrator.cli.options import need_yes, read_job, stop_on_signals
from migrator.cli.row_keys import entity_named, row_key
from migrator.errors import DIFFERENT, SettingsError
from migrator.journal.lease import RunLease
from migrator.mapping.check import Checked
from migrator.mapping.items import CompiledEntity
from migrator.model import SourceKey
from migrator.ports.live import Root
from migrator.report.forget import forget_data, forgotten_lines, found_lines, hint_lines, left_lines, left_of
from migrator.results import Forgotten, RowTraces
from migrator.stages.forget import Forget
from migrator.target.store import reads_only
from migrator.wiring import Laid


@belonging()
def forget(job: Path, entity: str, keys: tuple[str, ...], as_json: bool, **how: bool) -> int:
    """The exit code of `migrator forget`."""
    read = read_job(job)
    if not (how["yes"] or how["dry_run"] or sys.stdin.isatty()):
        what = "forget takes traces away for good and nobody can be asked here"
        raise SettingsError(f"{what}; say --yes, or --dry-run to count")
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        laid = stack.enter_context(wiring.lay(read, "forget", stop=stop.is_set))
        compiled = entity_named(laid.checked, entity)
        stage = _stage(stack, laid, compiled, row_key(compiled, keys), stop, alone=not how["dry_run"])
        found = stage.look()
        left = left_of(found, in_s3=bool(compiled.contents))
        if how["dry_run"]:
            _print(found, None, left, as_json=as_json)
            return 0
        _refuse(found, force=how["force"])
        if not how["yes"]:
            click.echo("\n".join(found_lines(found)), err=True)
            need_yes("Take these traces away for good?")
        done = stage.forget(found)
        _print(found, done, left, as_json=as_json)
    return 0 if done.is_all else DIFFERENT


def _stage(
    stack: ExitStack, laid: Laid, compiled: CompiledEntity, key: SourceKey, stop: Event, *, alone: bool
) -> Forget:
    """`alone`: holding the job's lease, so that no run of it begins meanwhile."""
    job = laid.job
    target = wiring.open_target(job, laid.checked.mapping.table, stop.is_set)
    table_id = live_wiring.existing_table(job, target)
    journal = stack.enter_context(wiring.open_journal(job, stop.is_set))
    live = stack.enter_context(live_wiring.open_live(job, "forget", stop=stop.is_set, source=laid.source))
    is_captured = live_wiring.found_installation(live, laid) is not None
    check = stack.enter_context(RunLease(journal, job.name)).check if alone else reads_only
    return forget_wiring.forgetting(
        laid,
        target.fenced(check),
        journal,
        table_id,
        _roots(laid.checked, compiled, key),
        check=check,
        live=live if is_captured else None,
        stop=stop,
    )


def _roots(checked: Checked, compiled: CompiledEntity, key: SourceKey) -> list[Root]:
    """The row under that key, once for each entity that is made of rows of its table."""
    plan = compiled.plan
    others = [
        one.name
        for one in checked.entities
        if one.plan.table == plan.table and one.plan.key == plan.key and one.name != compiled.name
    ]
    return [(name, key) for name in (compiled.name, *others)]


def _refuse(found: RowTraces, *, force: bool) -> None:
    """Raises: SettingsError where something is still to be done with the row."""
    if found.waiting:
        what = f"{found.waiting:,} mark(s) of this row wait, and without them its items would stay"
        raise SettingsError(f"{what}; run `migrator relay JOB --once` first, then forget it")
    if found.is_there and not force:
        what = "the row is still in the source, and the relay would write it again"
        raise SettingsError(f"{what}; delete it there, run `migrator relay JOB --once`, or say --force")
    if found.items and not force:
        what = f"{found.items:,} item(s) of this row are still in the table, though the row is gone"
        advice = "run `migrator verify JOB --repair` and `migrator relay JOB --once` first, or say --force"
        raise SettingsError(f"{what}; {advice}")


def _print(found: RowTraces, done: Forgotten | None, left: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(forget_data(found, done, left), sort_keys=True))
        return
    lines = found_lines(found) if done is None else forgotten_lines(done)
    click.echo("\n".join([*lines, *hint_lines(found), *left_lines(left)]))
