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
    "Comparisons of this time: 90m, 24h, 7d.",
    "since_s",
    callback=cli.some_seconds,
    default="24h",
    show_default=True,
)
@click.option(
    "--show-values/--no-values",
    "samples",
    default=None,
    help="Show values of rows, and keys, whole; --no-values: no sample items, no examples side by side. Neither: masked.",
)
@cli.keys_option
@cli.json_option
def report() -> cli.Work:
    """Show what is on record of a job: differences with likely causes, phases, latency, lag, coverage, item collections.

    Values of rows, and parts of keys that may name a person, are masked (…3f9a); with --show-values as they are,
    but for those that a pattern redacts: keep such a report where they may be.
    Exit code 0: the report was made, whatever it says; 2: wrong use, or nothing is on record.
    """
    from migrator.features.report.work import report

    return report
