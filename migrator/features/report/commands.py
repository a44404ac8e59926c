"""`migrator report`: the state of a migration."""

from __future__ import annotations

from pathlib import Path

import click

from migrator.cli import command_line as cli


@click.command(cls=cli.Leaf, example="jobs/shop.yaml --out report.html")
@cli.job_argument
@cli.option("--out FILE", "Write it as one HTML file.", "html", type=click.Path(path_type=Path))
@cli.option(
    "--since DURATION",
    "Comparisons of the last 90m, 24h, 7d.",
    "since_s",
    callback=cli.some_seconds,
    default="24h",
    show_default=True,
)
@click.option(
    "--show-values/--no-values",
    "samples",
    default=None,
    help="Show values and keys of rows; --no-values: no sample items, no examples. Neither: masked.",
)
@cli.keys_option
@cli.json_option
def report() -> cli.Work:
    """Show the report of a job: differences with likely causes, phases, latency, lag, coverage, item collections.

    Values of rows, and parts of keys that may name a person, are masked (…3f9a); with --show-values only
    those that a pattern redacts are: keep such a report where the source's data may be.
    Exit code 0: the report was made, with any verdict; 2: wrong use, or nothing is on record.
    """
    from migrator.features.report.work import report

    return report
