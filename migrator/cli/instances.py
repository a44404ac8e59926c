"""Instances of services, as commands see them: listed, counted where they mark changes, and in the way of an uninstall."""

from __future__ import annotations

from importlib.metadata import version

import click

from migrator import live_wiring, wiring
from migrator.cli.options import stdout
from migrator.errors import MigratorError, SettingsError
from migrator.journal.store import SqlJournal
from migrator.ports.capture import Installation
from migrator.ports.instances import Roster
from migrator.report.instances import instances_lines, instances_table, who
from migrator.settings import Job


def read_roster(job: Job) -> Roster:
    """The instances that the job's journal knows."""
    with wiring.open_journal(job) as journal:
        return live_wiring.roster_of(job, journal)


def known_revision(job: Job) -> str | None:
    """The revision of the job's mapping; None where it has faults, which other commands tell."""
    try:
        return wiring.revision_of(job)
    except MigratorError:
        return None


def print_instances(roster: Roster, revision: str | None) -> None:
    if roster.living:
        stdout().print(instances_table(roster, revision))
    for line in instances_lines(roster, revision, version("single-table-migrator")):
        click.echo(line)


def tell_unmarked(job: Job, journal: SqlJournal, installation: Installation) -> None:
    """Warns where services are to leave the marks, and none is there that would."""
    if installation.marked_by == "triggers":
        return
    roster = live_wiring.roster_of(job, journal)
    if not roster.marking:
        what = "warning: changes are marked by services, and no instance of one is alive: what is written now is missed"
        click.echo(f"{what}; start the services with the adapter first (see `migrator status`)", err=True)


def refuse_living(roster: Roster) -> None:
    """Raises: SettingsError, naming them, where instances live whose next write would fail or leave no mark."""
    if living := roster.marking:
        named = "\n".join(f"  {who(one)}" for one in living)
        what = f"{len(living)} instance(s) of services still mark changes, or count on triggers that do:\n{named}"
        advice = "stop them first; or say --force, and their writes fail, or are missed"
        raise SettingsError(f"{what}\n{advice}")
