"""`migrator plan`: the capacity of a design, before a table exists."""

from __future__ import annotations

from pathlib import Path

import click

from migrator.cli import command_line as cli


@click.command(cls=cli.Leaf, example="jobs/shop.yaml --out plan.html")
@click.argument("design", type=click.Path(path_type=Path), metavar="JOB|MAPPING")
@click.argument("other", type=click.Path(path_type=Path), metavar="[OTHER]", required=False)
@cli.option("--source", f"{cli.SOURCE_HELP} Of a MAPPING; a JOB names its own.", envvar="MIGRATOR_SOURCE_URL")
@cli.option("--out FILE", "Also write it as one HTML file.", "html", type=click.Path(path_type=Path))
@cli.option(
    "--statements FILE",
    "Writing statements with rates (-- 12.5/s): how often rows change.",
    type=click.Path(path_type=Path),
)
@cli.option(
    "--rows-exact",
    "Read entities with up to this many rows completely, larger ones by a random sample.",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
)
@cli.option(
    "--pk KEY", "Only the items that rows would make under this partition key, such as ARTIST#90.", "show"
)
@cli.option("--region", "Region of the prices (default: the job's, or AWS's own setting).")
@cli.keys_option
@cli.json_option
def plan() -> cli.Work:
    """Estimate size, load and cost of a mapping's table from the rows of its source. Nothing is created or written.

    It prints reads, pages and dollars of each access pattern, item collections and their largest keys, the items that
    one change rewrites, what does not fit, possible savings, and time and cost to fill the table. OTHER, a job or mapping
    of the same source, is compared with it.

    Exit code 0: it fits; 1: something does not; 2: wrong use; 3: the source is unavailable.
    """
    from migrator.features.plan.work import plan

    return plan
