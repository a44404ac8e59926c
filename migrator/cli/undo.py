"""`migrator undo`: what a job wrote, taken out of the table again."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import click

from migrator import wiring
from migrator.cli.options import entity_option, job_argument, json_option, read_job, stdout, stop_on_signals
from migrator.cli.runs import existing_table
from migrator.errors import DIFFERENT, MappingError, SettingsError
from migrator.journal.lease import RunLease
from migrator.journal.store import SqlJournal
from migrator.mapping.document import did_you_mean
from migrator.mapping.tenants import entities_of
from migrator.model import Mapping
from migrator.report.undo import print_undo, undo_data
from migrator.results import UndoCounts
from migrator.settings import Job
from migrator.stages.undo import Undo
from migrator.wiring import Target


@click.command()
@job_argument
@entity_option
@click.option("--yes", is_flag=True, help="Do not ask; for scripts.")
@click.option("--dry-run", is_flag=True, help="Count what would be deleted, delete nothing.")
@json_option
def undo(job: Path, entities: tuple[str, ...], yes: bool, dry_run: bool, as_json: bool) -> int:
    """Delete the items that this job wrote, so that backfill can write them again.

    Only items whose _src names an entity of the mapping are deleted, and only while it still does. Objects in S3 stay.
    Exit code 0: they are gone; 1: you said no; 2: nobody could be asked; 3 and 130: stopped, the same command goes on.
    """
    read = read_job(job)
    mapping = _mapping(read)
    names = _chosen(mapping, entities)
    if not (yes or dry_run or sys.stdin.isatty()):
        raise SettingsError(
            "undo deletes items and nobody can be asked here; say --yes, or --dry-run to count"
        )
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        target = wiring.open_target(read, mapping.table, stop.is_set)
        table_id = existing_table(read, target)
        stage = _stage(read, target, names, stop)
        if dry_run:
            _print(stage.count(), dry_run=True, as_json=as_json)
            return 0
        journal = stack.enter_context(wiring.open_journal(read))
        stage.check = stack.enter_context(RunLease(journal, read.name)).check
        if not yes and not _confirmed(stage.count(), read, target, journal, table_id):
            return DIFFERENT
        # Before the deletes: a crash between them leaves items whose pages are worked again; the other order
        # leaves pages that count as done and whose items are gone.
        journal.reopen_pages(read.name, table_id, sorted(names))
        _print(stage.delete(), dry_run=False, as_json=as_json)
    return 0


def _mapping(job: Job) -> Mapping:
    parsed = wiring.read_mapping(job.mapping)
    if parsed.faults:
        raise MappingError(parsed.faults)
    return parsed.mapping


def _chosen(mapping: Mapping, names: tuple[str, ...]) -> frozenset[str]:
    """The named entities; all of the mapping's where none is named."""
    known = [entity.name for entity in entities_of(mapping)]
    for name in names:
        if name not in known:
            raise SettingsError(f"the mapping has no entity '{name}'{did_you_mean(name, known)}")
    return frozenset(names or known)


def _stage(job: Job, target: Target, names: frozenset[str], stop: Event) -> Undo:
    tuning = job.tuning
    return Undo(target.store, target.design, names, tuning.scan_segments, tuning.workers, stop)


def _confirmed(counts: UndoCounts, job: Job, target: Target, journal: SqlJournal, table_id: str) -> bool:
    """Whether the person who is shown the counts says yes."""
    print_undo(stdout(), counts, dry_run=True)
    if table_id not in journal.written_tables(job.name):
        click.echo(f"warning: the journal knows of no backfill of job {job.name} into this table", err=True)
    return click.confirm(f"Delete {counts.items:,} item(s) from table {target.design.name}?")


def _print(counts: UndoCounts, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(undo_data(counts), sort_keys=True))
    else:
        print_undo(stdout(), counts, dry_run=dry_run)
