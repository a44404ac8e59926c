"""`migrator clean` and `decommission`: removal."""

from __future__ import annotations

import click

from migrator.cli import command_line as cli


@click.group(cls=cli.Branch)
def decommission() -> None:
    """End a migration: find what still depends on SQL. `migrator clean --attributes` then removes migrator's attributes."""


@decommission.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.flag("--explain", "Also print the steps that end the migration, in order.")
@cli.json_option
def check() -> cli.Work:
    """Check what still depends on SQL. Nothing is run or changed.

    Exit code 0: nothing does; 1: something does, or is unknown.
    """
    from migrator.features.removal.work import check

    return check


@click.command(cls=cli.Leaf, example="jobs/shop.yaml --all-items --dry-run")
@cli.job_argument
@cli.flag("--all-items", "The items that this job wrote, so that backfill can write them again.")
@cli.flag("--row", "Traces of one deleted row (--entity, --key).")
@cli.flag("--tombstones", "Tombstones that no late write needs any longer.")
@cli.flag("--attributes", "migrator's own attributes, at the end of a migration.")
@cli.entity_option
@cli.option("--key", "With --row: its key: 42, --key a=1 --key b=2, or '[42]'.", "keys", multiple=True)
@cli.flag("--yes", "Do not ask; for scripts.")
@cli.flag("--dry-run", "Count, change nothing.")
@cli.flag(
    "--force",
    "--all-items: also items of another job, or that callers read; --row: also if the row is still there.",
)
@cli.json_option
def clean() -> cli.Work:
    """Remove one of four kinds of data that is no longer needed.

    --all-items deletes the items whose _src names an entity that the job's backfill wrote into this table. It refuses if
    the journal knows no such backfill, or another job that wrote the same entity, and while a relay, a backfill or a
    strict service is running; none starts before it has ended. Objects in S3 stay. Name an entity that the mapping no
    longer has with --entity.

    --row removes pending changes, findings, claims, remembered keys and tombstones of a row. First delete the row in SQL
    and let the relay process that change (`migrator relay JOB --once`). It reads the whole table.

    --tombstones deletes now the tombstones that DynamoDB's TTL would delete days later.

    --attributes takes _src, _tk and _rev out of the items, and tombstones and the control item out of the table, once every
    pattern is complete and migrator no longer writes. Afterwards `verify` and `clean` do not recognise the items.

    Exit code 0: done; 1: you answered no, or a trace of the row must stay for a while (run the same command again); 2: it is
    too early, still needed, or it cannot ask without a terminal; 3 and 130: stopped; the same command resumes.
    """
    from migrator.features.removal.work import clean

    return clean
