"""`migrator undo`, `forget`, `purge` and `decommission`: what is taken away again."""

from __future__ import annotations

import click

from migrator.cli import names
from migrator.cli.command_line import (
    Branch,
    Leaf,
    Work,
    adopt_option,
    entity_option,
    force_option,
    job_argument,
    json_option,
)


@click.command(cls=Leaf, example="jobs/shop.yaml --dry-run")
@job_argument
@entity_option
@click.option("--yes", is_flag=True, help="Do not ask; for scripts.")
@click.option("--dry-run", is_flag=True, help="Count what would be deleted, delete nothing.")
@force_option(
    "Delete also what the journal does not know to be of this job alone, and what callers are answered from."
)
@json_option
@adopt_option
def undo() -> Work:
    """Delete the items that this job wrote, so that backfill can write them again.

    Only items whose _src names an entity that the job's backfill wrote into this table are deleted, and only while it
    still does. Where the journal does not know of one, or knows of another job that wrote the same entity, undo refuses:
    _src does not say which job an item is of. It refuses too while a relay, a backfill or a strict service writes to the
    table, and none begins before it has ended. Objects in S3 stay. An entity that the mapping does not have any more is
    named by --entity.

    Exit code 0: they are gone; 1: you said no; 2: nobody could be asked; 3 and 130: stopped, the same command goes on.
    """
    from migrator.features.removal.work import undo

    return undo


@click.command(cls=Leaf, example="jobs/shop.yaml --entity user --key 42")
@job_argument
@click.option(
    "--entity", required=True, shell_complete=names.entities, help="The entity whose root row it is."
)
@click.option(
    "--key", "keys", multiple=True, required=True, help="The row's key: 42, --key a=1 --key b=2, or '[42]'."
)
@click.option("--yes", is_flag=True, help="Do not ask; for scripts.")
@click.option("--dry-run", is_flag=True, help="Count what is kept, take nothing away.")
@force_option("Also where the row, or items of it, are still there.")
@json_option
@adopt_option
def forget() -> Work:
    """Take away what is kept of a row that was deleted: marks, findings, claims, remembered keys, tombstones.

    First delete the row in SQL and let the relay work that change (`migrator relay JOB --once`). Reads the whole table.
    Exit code 0: nothing is kept any more; 1: some of it must stay for a while (run the same command again), or you
    said no; 2: the row is still needed, or wrong use.
    """
    from migrator.features.removal.work import forget

    return forget


@click.group(cls=Branch)
def decommission() -> None:
    """End a migration: find what still depends on SQL, then take away what was only there for the move."""


@decommission.command(example="jobs/shop.yaml")
@job_argument
@click.option("--steps", is_flag=True, help="Also print the steps that end the migration, in order.")
@json_option
@adopt_option
def check() -> Work:
    """Check what still depends on SQL. Nothing is run or changed.

    Exit code 0: nothing does; 1: something does, or cannot be known.
    """
    from migrator.features.removal.work import check

    return check


@decommission.command(example="jobs/shop.yaml --dry-run")
@job_argument
@click.option("--dry-run", is_flag=True, help="Count, change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask; for scripts.")
@json_option
@adopt_option
def strip() -> Work:
    """Take our attributes (_src, _tk, _rev) out of the items, and tombstones and the control item out of the table.

    Only where every pattern is complete and nothing of ours writes. From then on `verify` and `undo` know no item any
    more. Write units are limited as everywhere (tuning: {max_write_units: …}).
    Exit code 0: done; 1: you said no; 2: it is too early; 3 and 130: stopped, the same command goes on.
    """
    from migrator.features.removal.work import strip

    return strip


@click.command(cls=Leaf, example="jobs/shop.yaml --dry-run")
@job_argument
@click.option("--dry-run", is_flag=True, help="Count, take nothing away.")
@adopt_option
@json_option
def purge() -> Work:
    """Remove tombstones that no late write can need any more; DynamoDB's TTL would do it days later."""
    from migrator.commands.relay_work import purge

    return purge
