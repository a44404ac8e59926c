"""`migrator backfill`, and what it found: `migrator status --findings`."""

from __future__ import annotations

import click

from migrator.cli.command_line import (
    MONEY,
    Leaf,
    Work,
    entity_option,
    force_option,
    job_argument,
    json_option,
    keys_option,
    metrics_option,
    part_option,
    spark_option,
)


@click.command(cls=Leaf, example="jobs/shop.yaml --max-write-units 500")
@job_argument
@entity_option
@click.option("--workers", type=click.IntRange(1, 64), help="Pages under way at once.")
@click.option(
    "--join",
    is_flag=True,
    help="Work on pages of the backfill of this job that is at work, on this host or another, until it ends.",
)
@part_option
@spark_option
@click.option("--limit", type=click.IntRange(1), help="Only the first rows of each entity.")
@click.option("--dry-run", is_flag=True, help="Read and build everything, write nothing.")
@click.option("--explain", is_flag=True, help="With --dry-run: show the source's plans for a page.")
@click.option(
    "--restart",
    is_flag=True,
    help="Read and write everything once more after a finished run.",
)
@click.option(
    "--into-existing",
    is_flag=True,
    help="Write into a table that holds other items; none of them is replaced.",
)
@click.option(
    "--max-write-units", type=click.IntRange(1), help="Write units a second, at most, of table or index."
)
@click.option(
    "--max-cost", type=MONEY, metavar="USD", help="Do not start where writing would cost more than this."
)
@click.option("--yes", is_flag=True, help="Do not ask about the cost (tuning.confirm_above).")
@force_option("Also where every pattern is complete, or one that DynamoDB answers gets another answer.")
@metrics_option
@keys_option
@json_option
def backfill() -> Work:
    """Write every row of the source into the table; go on where a run before this one stopped.

    Exit code 0: all is written; 1: more rows were refused than tuning.max_refused allows (see `migrator status --findings`);
    3 and 130: stopped, the same command goes on.
    """
    from migrator.commands.backfill_work import backfill

    return backfill
