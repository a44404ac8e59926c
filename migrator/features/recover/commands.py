"""`migrator recover`: the steps after a restored source, a lost journal, and the like."""

from __future__ import annotations

import click

from migrator.cli import command_line as cli

HAPPENED = (
    *("source-restored", "journal-lost", "renamed", "older-mapping", "entity-taken-back", "service-dead"),
)


@click.command(cls=cli.Leaf, example="jobs/shop.yaml source-restored")
@cli.job_argument
@click.argument("happened", type=click.Choice(HAPPENED), required=False, metavar="[WHAT]")
@cli.option(
    "--from TICKET",
    "source-restored: a ticket known from elsewhere, if journal or table is unavailable.",
    "above",
    type=click.IntRange(0),
    default=0,
)
@cli.duration(
    "--settle", "How long verify waits before it compares differences again (default 10s).", "settle_s"
)
@cli.flag("--dry-run", "Print the steps, change nothing.")
@cli.json_option
def recover() -> cli.Work:
    """Recover after a store was restored or lost, step by step.

    \b
    source-restored    the source was restored, or a fail-over lost changes
    journal-lost       the journal is lost, or was restored
    renamed            the job's table or source was renamed
    older-mapping      the job must return to the older mapping in its file
    entity-taken-back  an entity was removed from writes.direct, unwritten
    service-dead       an instance of a service ended without deregistering

    Without WHAT it lists these cases; on a terminal it asks which one. Stop relays and services first, except for
    service-dead. A command that was stopped can be run again.

    Exit code 0: all steps are done; 1: a step was refused; 3 and 130: stopped.
    """
    from migrator.features.recover.work import recover

    return recover
