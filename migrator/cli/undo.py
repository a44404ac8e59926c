"""`migrator undo`: what a job wrote, taken out of the table again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import click

from migrator import live_wiring, truth_wiring, wiring
from migrator.cli.belonging import belonging
from migrator.cli.options import console_on, need_yes, read_job, stdout, stop_on_signals, stopped_says
from migrator.errors import MappingError, SettingsError, StoppedError
from migrator.journal.lease import RunLease
from migrator.journal.store import SqlJournal
from migrator.journal.writers import SqlWriters
from migrator.mapping.document import did_you_mean
from migrator.mapping.tenants import entities_of
from migrator.model import Mapping
from migrator.report.undo import print_undo, undo_data
from migrator.results import UndoCounts
from migrator.settings import Job
from migrator.stages.undo import AnyRevision, Undo
from migrator.target.store import reads_only
from migrator.transforms import read_mapping
from migrator.wiring import Target


@belonging()
def undo(job: Path, entities: tuple[str, ...], yes: bool, as_json: bool, **how: bool) -> int:
    """The exit code of `migrator undo`."""
    read, dry_run = read_job(job), how["dry_run"]
    mapping = _mapping(read)
    wanted = _chosen(mapping, entities, read.direct)
    if not (yes or dry_run or sys.stdin.isatty()):
        raise SettingsError(
            "undo deletes items and nobody can be asked here; say --yes, or --dry-run to count"
        )
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        target = wiring.open_target(read, mapping.table, stop.is_set)
        table_id = live_wiring.existing_table(read, target)
        journal = stack.enter_context(wiring.open_journal(read, stop.is_set))
        _refuse_late(read, mapping, journal, wanted, how)
        names = _own(journal, read, table_id, wanted, named=bool(entities), force=how["force"])
        if dry_run:
            _print(_counted(_stage(read, target, names, reads_only, stop)), dry_run=True, as_json=as_json)
            return 0
        lease = stack.enter_context(RunLease(journal, read.name))
        alone = target.fenced(_enter_alone(stack, read, target, journal, table_id))
        stage = _stage(read, alone, names, lease.check, stop)
        if not yes:
            _need_yes(_counted(stage), target)
        # Before the deletes: a crash between them leaves items whose pages are worked again; the other order
        # leaves pages that count as done and whose items are gone.
        journal.reopen_pages(read.name, table_id, sorted(names))
        _print(_deleted(stage), dry_run=False, as_json=as_json)
    return 0


def _counted(stage: Undo) -> UndoCounts:
    with stopped_says(lambda: "stopped while it counted; nothing was deleted"):
        return stage.count()


def _deleted(stage: Undo) -> UndoCounts:
    def done() -> str:
        return f"{stage.gone:,} item(s) are deleted; the others are still in the table"

    try:
        with stopped_says(lambda: f"stopped; {done()}, and the same command deletes them"):
            return stage.delete()
    except StoppedError as error:
        raise StoppedError(f"{error}; {done()}") from None


def _refuse_late(
    job: Job, mapping: Mapping, journal: SqlJournal, wanted: frozenset[str], how: dict[str, bool]
) -> None:
    """Raises: SettingsError where the service may have written what goes, or callers read it; a dry run only warns."""
    try:
        truth_wiring.refuse_taken_out(job, journal)
        if not how["force"]:
            truth_wiring.refuse_complete(job, mapping, journal)
            truth_wiring.refuse_answering(job, mapping, journal, wanted)
    except SettingsError as error:
        if not how["dry_run"]:
            raise
        click.echo(f"warning: undo itself would be refused: {error}", err=True)


def _enter_alone(
    stack: ExitStack, job: Job, target: Target, journal: SqlJournal, table_id: str
) -> Callable[[], None]:
    """The check of a place among the writers, kept until the stack unwinds.

    Raises: SettingsError where anybody writes to the table.
    """
    writers = SqlWriters(journal.database, table_id)
    presences = stack.enter_context(live_wiring.presences_of(writers, AnyRevision(), job, target))
    presence = presences.enter("undo")
    stack.push(lambda kind, *_: presences.leave(presence, clean=kind is None))
    return presences.check


def _own(
    journal: SqlJournal, job: Job, table_id: str, wanted: frozenset[str], *, named: bool, force: bool
) -> frozenset[str]:
    """Those of the wanted entities that this job wrote into the table, and no other job that the journal knows.

    With `force` those of another job as well; what the journal knows of no job only where it was `named`, or where the
    journal knows of nothing: the agreement to one thing is none to another.
    Raises: SettingsError where there is none, where one that was `named` is not among them, or where another job
    wrote one of them, too.
    """
    writers = journal.writers(table_id)
    mine = wanted & writers.get(job.name, set())
    if force:
        return wanted if named or not mine else mine
    if not mine or (named and mine != wanted):
        missing = f" of {', '.join(sorted(wanted - mine))}" if named else ""
        what = f"the journal knows of no backfill{missing} by job {job.name} into this table"
        raise SettingsError(f"{what}; name the journal that it used (journal:), or say --force")
    for other, entities in sorted(writers.items()):
        if other != job.name and entities & mine:
            what = f"job {other} wrote {', '.join(sorted(entities & mine))} into this table, too"
            advice = "undo other entities with --entity, or say --force to delete the items of both"
            raise SettingsError(f"{what}, and _src does not say which job an item is of; {advice}")
    return mine


def _mapping(job: Job) -> Mapping:
    parsed = read_mapping(job.mapping)
    if parsed.faults:
        raise MappingError(parsed.faults)
    return parsed.mapping


def _chosen(mapping: Mapping, names: tuple[str, ...], direct: Sequence[str]) -> frozenset[str]:
    """The named entities; where none is named, all of the mapping's that the service does not write itself."""
    known = [entity.name for entity in entities_of(mapping) if entity.written not in direct]
    for name in names:
        if name.partition("@")[0] in direct:
            raise SettingsError(
                f"the service writes {name} itself (writes.direct of the job): its items are not to be undone"
            )
        if name not in known:
            raise SettingsError(f"the mapping has no entity '{name}'{did_you_mean(name, known)}")
    return frozenset(names or known)


def _stage(job: Job, target: Target, names: frozenset[str], check: Callable[[], None], stop: Event) -> Undo:
    tuning = job.tuning
    return Undo(target.store, target.design, names, check, tuning.scan_segments, tuning.workers, stop)


def _need_yes(counts: UndoCounts, target: Target) -> None:
    """Raises: RefusedError where the person who is shown the counts says no."""
    print_undo(console_on(sys.stderr), counts, dry_run=True)
    need_yes(f"Delete {counts.items:,} item(s) from table {target.design.name}?")


def _print(counts: UndoCounts, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(undo_data(counts), sort_keys=True))
    else:
        print_undo(stdout(), counts, dry_run=dry_run)
