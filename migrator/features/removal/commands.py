"""`migrator clean` and `decommission`: what is taken away again."""

from __future__ import annotations

import click

from migrator.cli.command_line import (
    Branch,
    Leaf,
    Work,
    entity_option,
    force_option,
    job_argument,
    json_option,
)


@click.group(cls=Branch)
def decommission() -> None:
    """End a migration: find what still depends on SQL. `migrator clean --attributes` then removes what served the move."""


@decommission.command(example="jobs/shop.yaml")
@job_argument
@click.option("--steps", is_flag=True, help="Also print the steps that end the migration, in order.")
@json_option
def check() -> Work:
    """Check what still depends on SQL. Nothing is run or changed.

    Exit code 0: nothing does; 1: something does, or cannot be known.
    """
    from migrator.features.removal.work import check

    return check


@click.command(cls=Leaf, example="jobs/shop.yaml --all-items --dry-run")
@job_argument
@click.option(
    "--all-items", is_flag=True, help="The items that this job wrote, so that backfill can write them again."
)
@click.option("--row", is_flag=True, help="What is kept of one deleted row (--entity, --key).")
@click.option("--tombstones", is_flag=True, help="Tombstones that no late write can need any longer.")
@click.option("--attributes", is_flag=True, help="Our attributes, at the end of a migration.")
@entity_option
@click.option("--key", "keys", multiple=True, help="With --row: its key: 42, --key a=1 --key b=2, or '[42]'.")
@click.option("--yes", is_flag=True, help="Do not ask; for scripts.")
@click.option("--dry-run", is_flag=True, help="Count, change nothing.")
@force_option(
    "--all-items: also items of another job, or that callers read; --row: also if the row is still there."
)
@json_option
def clean() -> Work:
    """Remove from the table what is not needed any longer: one of the four kinds below.

    --all-items deletes the items whose _src names an entity that the job's backfill wrote into this table. It refuses where
    the journal does not know of one, or knows of another job that wrote the same entity, and while a relay, a backfill or a
    strict service writes; none begins before it has ended. Objects in S3 stay. An entity that the mapping has lost is named
    by --entity.

    --row removes marks, findings, claims, remembered keys and tombstones of a row. First delete the row in SQL and let the
    relay work that change (`migrator relay JOB --once`). It reads the whole table.

    --tombstones does what DynamoDB's TTL would do days later.

    --attributes takes _src, _tk and _rev out of the items, and tombstones and the control item out of the table, once every
    pattern is complete and nothing of ours writes. From then on `verify` and `clean` know no item.

    Exit code 0: done; 1: you said no, or something of the row must stay for a while (run the same command again); 2: it is
    too early, still needed, or it cannot ask without a terminal; 3 and 130: stopped, the same command goes on.
    """
    from migrator.features.removal.work import clean

    return clean
