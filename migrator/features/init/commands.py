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
    "auto (default): statements that the server recorded; none: queries by keys only; FILE: SQL with rates in"
    " comments (-- 300/min); FILE.csv or FILE.md: a list of questions with name, question, SQL, rate, latency, who asks."
    " Pass a list alone, or with one of the others.",
    multiple=True,
)
@cli.option(
    "--out",
    "The mapping to write, such as shop.yaml, with shop.job.yaml and shop.patterns.md; from a model only the mapping"
    " (default: print it).",
    type=click.Path(path_type=Path, dir_okay=False),
)
@cli.option(
    "--table", "Name of the table (default: the database's name); with a model of several tables: which one."
)
@cli.option(
    "--max-indexes",
    "Maximum number of global secondary indexes.",
    type=click.IntRange(0, 20),
    default=5,
    show_default=True,
)
@cli.option(
    "--rows-exact",
    "Count tables with up to this many rows; larger ones are not read completely.",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
)
@cli.option(
    "--only PATTERN",
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
    "--strict", "Do not serve a query from an index that would miss rows with NULL in a nullable column."
)
@cli.flag("--force", "Overwrite existing files.")
@click.option(
    "--prove/--no-prove",
    default=True,
    show_default=True,
    help="Try the proposal: move rows into a temporary embedded DynamoDB, and run each pattern on both sides.",
)
@cli.json_option
def init() -> cli.Work:
    """Propose a mapping for the database SOURCE, from its schema and its statements.

    The mapping passes `mapping check`. The worksheet lists every statement: the index and key that serve it, or why it
    is not served and what to do instead. Nothing is written to the database. With the extra `local`, the proposal is
    tried on rows of the database.

    SOURCE may be a job (job.yaml) that reads old DynamoDB tables. The mapping then declares the attributes found in a
    sample of their documents, and lists those that vary. The other options apply to databases only.

    SOURCE may also be a NoSQL Workbench model (model.json). Then only the table, keys, indexes and an entity for each facet
    are written; fill in tables, columns and access patterns.

    Exit code 0: every statement is served, and all answers are equal; 1: some are not (the files are written).
    """
    from migrator.features.init.work import init

    return init


@click.command(cls=cli.Leaf, example="shop")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path("examples"))
@cli.flag("--force", "Overwrite existing files.")
@cli.json_option
def examples() -> cli.Work:
    """Copy the example mappings, jobs and designs into FOLDER, by default `examples`."""
    from migrator.features.init.examples import examples

    return examples
