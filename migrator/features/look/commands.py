"""`migrator look` and `migrator ui`: one item collection compared with its rows, on a terminal and as pages."""

from __future__ import annotations

import click

from migrator.cli import command_line as cli
from migrator.cli import names

_values_option = cli.flag(
    "--show-values",
    "Print values and keys whole, but for what a pattern redacts; without it they are masked (…3f9a).",
    "whole_values",
)


@click.command(
    cls=cli.Leaf,
    example="jobs/shop.yaml --pk STATUS#paid --index GSI2 --show-values",
    for_words=lambda given: "-p" if given["pattern"] else "--pk",
)
@cli.job_argument
@cli.option(
    "--pk KEY",
    "The partition key; once per attribute if it has several. Bytes as base64.",
    "partition",
    multiple=True,
)
@cli.option(
    "--pattern NAME",
    "Run this access pattern on the table, and print its answer next to SQL's.",
    shell_complete=names.patterns,
)
@click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the pattern; a list with commas or as a JSON array: -p product_ids=1,2,3",
)
@cli.flag("--explain", "With --pattern: show each request, and the time of both sides.")
@cli.option("--sk KEY", "Only items with this prefix of the sort key.", "sort", default="")
@cli.option("--index NAME", "Of this index (default: of the table).")
@cli.option(
    "--limit", "Maximum of stored items.", type=click.IntRange(1, 10_000), default=100, show_default=True
)
@cli.flag("--all", "Every attribute of every item, not only those that differ.", "everything")
@cli.keys_option
@_values_option
@cli.json_option
def look() -> cli.Work:
    """Compare the stored items of one partition key with those that the rows make now, attribute by attribute; with
    --pattern, the two answers of an access pattern.

    It also shows missing items, tombstones, and items that no row makes. It writes to neither side. While services write, a
    difference may be a pending change: run it again.

    Exit code 0: nothing differs; 1: something differs, or a row is refused; 3: a store is unavailable.
    """
    from migrator.features.look.work import look

    return look


@click.command(cls=cli.Leaf, example="jobs/shop.yaml --port 8123 --for 1h")
@cli.job_argument
@cli.option(
    "--port", "The port; 0 takes a free one.", type=click.IntRange(0, 65_535), default=0, show_default=True
)
@cli.duration("--for", "Stop after this time (default: run until Ctrl-C).", "for_s")
@cli.keys_option
@_values_option
@cli.json_option
def ui() -> cli.Work:
    """Serve `migrator look` and `migrator status` as pages on this machine, until Ctrl-C.

    It listens on 127.0.0.1 only, and only at the printed address, which has a new token each time. The pages contain no
    script and change nothing.

    Exit code 0: stopped; 2: wrong use, or the port is taken; 3: a store is unavailable.
    """
    from migrator.features.look.server import ui

    return ui
