"""`migrator backfill`, and what it found: `migrator status --findings`."""

from __future__ import annotations

import click

from migrator.cli import command_line as cli


@click.command(cls=cli.Leaf, example="jobs/shop.yaml --max-write-units 500")
@cli.job_argument
@cli.entity_option
@cli.option("--workers", "Pages under way at once.", type=click.IntRange(1, 64))
@cli.flag(
    "--join",
    "Work on pages of the backfill of this job that is at work, on this host or another, until it ends.",
)
@cli.part_option
@cli.spark_option
@cli.option("--limit", "Only the first rows of each entity.", type=click.IntRange(1))
@cli.flag("--dry-run", "Read and build everything, write nothing.")
@cli.flag("--explain", "With --dry-run: show the source's plans for a page.")
@cli.flag("--restart", "Read and write everything once more after a finished run.")
@cli.flag("--into-existing", "Write into a table that holds other items; none of them is replaced.")
@cli.option("--max-write-units", "Write units a second, at most, of table or index.", type=click.IntRange(1))
@cli.option("--max-cost USD", "Do not start where writing would cost more than this.", type=cli.MONEY)
@cli.flag("--yes", "Do not ask about the cost (tuning.confirm_above).")
@cli.flag(
    "--force", "Also where every pattern is complete, or one that DynamoDB answers gets another answer."
)
@cli.metrics_option
@cli.keys_option
@cli.json_option
def backfill() -> cli.Work:
    """Write every row of the source into the table; go on where a run before this one stopped.

    Exit code 0: all is written; 1: more rows were refused than tuning.max_refused allows (see `migrator status --findings`);
    3 and 130: stopped, the same command goes on.
    """
    from migrator.commands.backfill_work import backfill

    return backfill
