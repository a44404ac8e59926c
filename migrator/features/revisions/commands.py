"""`migrator mapping diff` and `migrate-mapping`: compare two revisions of a mapping; bring a job to the newer one."""

from __future__ import annotations

from pathlib import Path

import click

from migrator.cli import command_line as cli
from migrator.commands.prepare import mapping


@mapping.command(name="diff", example="git:main mappings/shop.yaml --source env:SHOP_URL")
@click.argument("old", metavar="OLD")
@click.argument("new", type=click.Path(path_type=Path), metavar="NEW")
@cli.option(
    "--source URL|JOB",
    f"{cli.SOURCE_HELP} Or a job: its source, region and write limit. Without it rows and costs are not counted.",
    envvar="MIGRATOR_SOURCE_URL",
)
@cli.option(
    "--rows-exact",
    "Read all rows of an entity of up to so many; of a larger one some by chance.",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
)
@cli.option("--region", "Whose prices (default: the job's region, or AWS's own setting).")
@cli.json_option
def diff() -> cli.Work:
    """Print what the mapping NEW changes in OLD: items and their keys, patterns, columns, indexes, and the work.

    OLD and NEW are mapping files, or jobs that name one; OLD may be a revision of git's: git:REV, or git:REV:PATH. Order and
    comments do not matter. Nothing is written.

    Exit code 0: both mean the same; 1: they differ; 2: writers of both cannot run on one table, or wrong use.
    """
    from migrator.features.revisions.diff_work import diff

    return diff


@click.command(name="migrate-mapping", cls=cli.Leaf, example="jobs/shop.yaml --dry-run")
@cli.job_argument
@cli.flag("--go-back", "Go back to the previous mapping, also during a change.")
@cli.flag("--restart", "Switch again to the file's mapping, which the job went back from.", "again")
@cli.option(
    "--settle",
    "How long the verify waits before it checks different rows again.",
    "settle_s",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
)
@cli.option("--max-write-units", "Write units a second, instead of the job's.", type=click.IntRange(min=1))
@cli.flag("--yes", "Skip the questions about removed indexes and about the cost.")
@cli.flag("--dry-run", "Print the steps and their cost, change nothing.")
@cli.flag(
    "--force", "Also if the answer of a pattern that DynamoDB answers changes, or every pattern is complete."
)
@cli.json_option
def migrate_mapping() -> cli.Work:
    """Switch a running job to a new version of its mapping.

    It adds missing indexes, makes the new mapping the newest (relays and backfills of the previous one stop), writes changed
    item types with tombstones in place of removed items, verifies the whole table, and removes unused indexes. If it was
    stopped or killed, run it again to resume. `migrator mapping diff` prints what it changes.

    Exit code 0: the job uses it; 1: findings or indexes are left, you answered no, a pattern's answer would change, or a
    dry run has steps; 2: refused; 3 and 130: stopped.
    """
    from migrator.features.revisions.migrate_work import migrate_mapping

    return migrate_mapping
