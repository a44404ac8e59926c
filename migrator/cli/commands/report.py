"""`migrator report` and `migrator doctor`: how a job stands, and whether it could run."""

from __future__ import annotations

from pathlib import Path

import click

from migrator.cli.command_line import Leaf, Work
from migrator.cli.commands.options import adopt_option, job_argument, json_option, keys_option, some_seconds


@click.command(cls=Leaf)
@job_argument
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write it as one HTML file.")
@click.option(
    "--since",
    "since_s",
    callback=some_seconds,
    metavar="DURATION",
    default="24h",
    show_default=True,
    help="Comparisons of this time: 90m, 24h, 7d.",
)
@click.option(
    "--samples/--no-samples",
    default=None,
    help="Show values of rows, and keys, whole; --no-samples: no sample items, no examples side by side. Neither: masked.",
)
@keys_option
@json_option
@adopt_option
def report() -> Work:
    """Show what is on record of a job: differences with likely causes, phases, latency, lag, coverage, item collections.

    Values of rows, and parts of keys that may name a person, are masked (…3f9a); with --samples as they are,
    but for those that a pattern redacts: keep such a report where they may be.
    Exit code 0: the report was made, whatever it says; 2: wrong use, or nothing is on record.
    """
    from migrator.cli.report import report

    return report


@click.command(cls=Leaf)
@job_argument
@click.option(
    "--write",
    is_flag=True,
    help="Try the permissions to write, too, on an item and an object of nobody's, which are taken away again.",
)
@json_option
def doctor() -> Work:
    """Check everything that a run of JOB needs: settings, packages, source, table, permissions, clocks, journal.

    Nothing is written but the journal's own file. Exit code 0: nothing failed; 1: something did.
    """
    from migrator.cli.table import doctor

    return doctor
