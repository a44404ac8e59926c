"""`migrator init` and `migrator examples`: a first mapping, proposed or shipped."""

from __future__ import annotations

from pathlib import Path

import click

from migrator.cli import command_line as cli


class _Url(click.types.StringParamType):
    """A text that may come from the environment; if it is missing, the error names both ways."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"Give the URL of the database, or set {param.envvar}"


@click.command(cls=cli.Leaf, example="env:SHOP_URL --out shop.yaml")
@click.argument("source", type=_Url(), envvar="MIGRATOR_SOURCE_URL")
@cli.option(
    "--statements auto|none|FILE",
    "auto, the default: what the server recorded; none: ask by keys alone; FILE: SQL with rates in comments"
    " (-- 300/min); FILE.csv or FILE.md: a team's own list of questions: name, question, SQL, rate, latency, who asks."
    " Give a list alone, or with one of the others.",
    multiple=True,
)
@cli.option(
    "--out",
    "The mapping to write, such as shop.yaml, with shop.job.yaml and shop.patterns.md; of a model the file (default:"
    " print it).",
    type=click.Path(path_type=Path, dir_okay=False),
)
@cli.option("--table", "The name of the table (default: the database's); of a model with several: which.")
@cli.option(
    "--max-indexes", "Global indexes at most.", type=click.IntRange(0, 20), default=5, show_default=True
)
@cli.option(
    "--rows-exact",
    "Count tables of up to so many rows; larger ones are not read as a whole.",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
)
@cli.option(
    "--entity PATTERN",
    "Tables to make entities of, by name or shell pattern ('order*'); default: all. Repeat it for more.",
    "only",
    multiple=True,
)
@cli.option(
    "--leave-out PATTERN",
    "Tables that the mapping must not contain, by name or shell pattern ('audit_*'). Repeat it for more.",
    "leave_out",
    multiple=True,
)
@cli.flag(
    "--strict",
    "Serve no question that an index answers only as long as no row has NULL in a column that may have it.",
)
@cli.flag("--force", "Replace files that are there.")
@click.option(
    "--prove/--no-prove",
    default=True,
    show_default=True,
    help="Try the proposal: move rows into a temporary embedded DynamoDB, and run each pattern on both sides.",
)
@cli.json_option
def init() -> cli.Work:
    """Propose a mapping for the database SOURCE, from its schema and its statements.

    It passes `mapping check` without a fault. The worksheet has every statement: served, and by which index and key, or
    not, why, and what to do. Nothing is written to the database. With the extra `local`, the proposal is tried
    on rows of the database.

    SOURCE may be a job (job.yaml) whose source is tables of DynamoDB. Then a mapping is written that declares what a sample
    of their documents has, and lists what varies; the other options are for databases.

    Or a model of NoSQL Workbench (model.json): then only the mapping's head is written, with table, keys, indexes and an
    entity for each facet; fill in tables, columns and access patterns.

    Exit code 0: every question is served, and no answer differs; 1: some are not, or differ (the files are
    written).
    """
    from migrator.features.init.work import init

    return init


@click.command(cls=cli.Leaf, example="shop")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path("examples"))
@cli.flag("--force", "Replace files that are there.")
@cli.json_option
def examples() -> cli.Work:
    """Copy the mappings, jobs and designs that this package brings along into FOLDER, or into examples."""
    from migrator.features.init.examples import examples

    return examples
