"""`migrator mapping diff` and `migrate-mapping`: two revisions of a mapping compared, and a job brought to the newer one."""

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
    """Say what the mapping NEW changes of OLD: items and their keys, patterns, columns, indexes, and what that takes.

    OLD and NEW are mapping files, or jobs that name one; OLD may be a revision of git's: git:REV, or git:REV:PATH. What
    means the same is the same, in whatever order it is written. Nothing is written anywhere.

    Exit code 0: both mean the same; 1: they differ; 2: writers of both cannot be at work on one table, or wrong use.
    """
    from migrator.features.revisions.diff_work import diff

    return diff


@click.command(name="migrate-mapping", cls=cli.Leaf, example="jobs/shop.yaml --dry-run")
@cli.job_argument
@cli.flag("--go-back", "Go back to the mapping of before, also in the middle of a change.")
@cli.flag("--restart", "Go once more to the file's mapping, which the job went back from.", "again")
@cli.option(
    "--settle",
    "Seconds that the verify gives rows which differ, before it looks at them again.",
    "settle_s",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
)
@cli.option("--max-write-units", "Write units a second, instead of the job's.", type=click.IntRange(min=1))
@cli.flag("--yes", "Do not ask: of indexes that go, and of what it costs.")
@cli.flag("--dry-run", "Print the steps and what they take, change nothing.")
@cli.flag(
    "--force", "Also where a pattern that DynamoDB answers gets another answer, or every one is complete."
)
@cli.json_option
def migrate_mapping() -> cli.Work:
    """Bring a job from the mapping that it works by to the one that its file says now, beside live traffic.

    Missing indexes are added; the new mapping becomes the newest, so that relays and backfills of the one before stop;
    of each row the item types that change are written, with tombstones where items were, also of entities that are gone; a
    verify of the whole table proves it; indexes that nothing asks are removed. Stopped or killed, it goes
    on where it is given again. What it changes `migrator mapping diff` says.

    Exit code 0: the job works by it; 1: findings or indexes are left, you said no, or it is refused because a pattern's
    answer would change, and always of a dry run that has steps; 2: refused; 3 and 130: stopped.
    """
    from migrator.features.revisions.migrate_work import migrate_mapping

    return migrate_mapping
