"""`migrator mapping` and `migrator table`: a mapping checked and tried, and its table, before a row moves."""

from __future__ import annotations

from pathlib import Path

import click

from migrator.cli import names
from migrator.cli.command_line import Branch, Leaf, Work, force_option, job_argument, json_option, keys_option
from migrator.features.bulk.commands import import_items

_FILE = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
_SOURCE = (
    "URL of the source, such as postgresql://user@host/shop, mysql://user@host/shop or sqlite:///shop.db."
)


@click.group(cls=Branch)
def mapping() -> None:
    """Check mapping files and try them on single rows."""


@mapping.command(example="> mapping.schema.json")
@click.option("--of-jobs", is_flag=True, help="That of job files instead.")
@json_option
def schema() -> Work:
    """Print the JSON Schema of mapping files, so that editors complete and explain each word, and CI validates them.

    It is JSON with --json and without.
    """
    from migrator.commands.mapping_work import schema

    return schema


@mapping.command(example="mappings/shop.yaml --source env:SHOP_URL")
@click.argument("files", type=click.Path(path_type=Path), metavar="FILE…", nargs=-1, required=True)
@click.option(
    "--source", envvar="MIGRATOR_SOURCE_URL", help=f"{_SOURCE} Without it only the form is checked."
)
@click.option(
    "--invertible",
    is_flag=True,
    help="Say of each table whether its rows can be made of their items again, and what would be lost (with --source).",
)
@json_option
def check() -> Work:
    """Report every fault of mapping or job FILEs at once, against the real schema when a source is given.

    Of a job the file itself is checked, and then the mapping that it names. With --source tables that have no entity are
    named, too, but for those that the job leaves on purpose (cutover: {leave: […]}).

    It reads no journal and no DynamoDB table: `migrator doctor JOB` checks both.

    With --invertible it says instead, table by table, which columns items do not give back, why, and the line of the mapping
    that would keep them.

    Exit code 0: no faults (warnings are printed), or every table comes back; 1: some do not (--invertible); 2: faults.
    """
    from migrator.commands.mapping_work import check

    return check


@mapping.command(name="try", example="shop.yaml --source env:SHOP_URL --entity order --key 42")
@_FILE
@click.option("--source", envvar="MIGRATOR_SOURCE_URL", required=True, help=_SOURCE)
@click.option("--entity", required=True, shell_complete=names.entities, help="The entity to build.")
@click.option("--key", "keys", multiple=True, help="The row's key: 42, or --key a=1 --key b=2.")
@click.option(
    "--show-code", is_flag=True, help="Print the function that encodes the entity's rows; no row is read."
)
@json_option
def try_() -> Work:
    """Print one row tree and the items that it becomes.

    With --show-code it prints the function instead that a fast backfill encodes rows with, generated from the mapping.
    """
    from migrator.commands.mapping_source import try_

    return try_


@mapping.command(name="diff", example="git:main mappings/shop.yaml --source env:SHOP_URL")
@click.argument("old", metavar="OLD")
@click.argument("new", type=click.Path(path_type=Path), metavar="NEW")
@click.option(
    "--source", envvar="MIGRATOR_SOURCE_URL", help=f"{_SOURCE} Without it rows and costs are not counted."
)
@click.option(
    "--job", type=click.Path(path_type=Path), metavar="JOB", help="Its source, region and write limit."
)
@click.option(
    "--rows-exact",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Read all rows of an entity of up to so many; of a larger one some by chance.",
)
@click.option("--region", help="Whose prices (default: the job's region, or AWS's own setting).")
@json_option
def diff() -> Work:
    """Say what the mapping NEW changes of OLD: items and their keys, patterns, columns, indexes, and what that takes.

    OLD and NEW are mapping files, or jobs that name one; OLD may be a revision of git's: git:REV, or git:REV:PATH. What
    means the same is the same, in whatever order it is written. Nothing is written anywhere.

    Exit code 0: both mean the same; 1: they differ; 2: writers of both cannot be at work on one table, or wrong use.
    """
    from migrator.features.revisions.diff_work import diff

    return diff


class _Url(click.types.StringParamType):
    """A text that the environment may give in place of the command line; where neither does, both are named."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"Give the URL of the database, or set {param.envvar}"


@click.command(cls=Leaf, example="env:SHOP_URL --out shop.yaml")
@click.argument("source", type=_Url(), envvar="MIGRATOR_SOURCE_URL")
@click.option(
    "--statements",
    metavar="auto|none|FILE",
    help="auto, the default: what the server recorded; none: ask by keys alone; FILE: SQL with rates in comments"
    " (-- 12.5/s).",
)
@click.option(
    "--worksheet",
    "listed",
    type=click.Path(path_type=Path),
    metavar="FILE.csv|md",
    help="A team's own list of questions: name, question, SQL, rate, latency, who asks. Alone, or beside --statements.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The mapping to write, such as shop.yaml; shop.job.yaml and shop.patterns.md are written beside it.",
)
@click.option("--table", help="The name of the table (default: from the file's).")
@click.option(
    "--max-indexes", type=click.IntRange(0, 20), default=5, show_default=True, help="Global indexes at most."
)
@click.option(
    "--rows-exact",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Count tables of up to so many rows; larger ones are not read as a whole.",
)
@click.option(
    "--leave-out",
    "leave_out",
    multiple=True,
    metavar="TABLE",
    help="A table that the mapping must not contain; repeat it for more.",
)
@force_option("Replace files that are there.")
@click.option(
    "--prove/--no-prove",
    default=True,
    show_default=True,
    help="Try the proposal: move rows into an embedded DynamoDB of its own, and ask each pattern of both sides.",
)
@json_option
def init() -> Work:
    """Propose a mapping for the database SOURCE, from its schema and the statements that it is asked.

    It passes `mapping check` without a fault. The worksheet has every statement: served, and by which index and key, or
    not, why, and what to do. Nothing is written to the database. Where the extra `local` is installed, the proposal is
    tried on rows of the database.

    SOURCE may be a job (job.yaml) whose source is tables of DynamoDB. Then a mapping is written that declares what a sample
    of their documents has, and says what varies; the other options are of databases.

    Exit code 0: every question is served, and no answer differs; 1: some are not, or differ (the files are written all
    the same).
    """
    from migrator.features.init.work import init

    return init


@click.command(cls=Leaf, example="shop")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path("examples"))
@force_option("Replace files that are there.")
@json_option
def examples() -> Work:
    """Copy the mappings, jobs and designs that this package brings along into FOLDER, or into examples."""
    from migrator.features.init.examples import examples

    return examples


@click.command(cls=Leaf, example="jobs/shop.yaml --html plan.html")
@click.argument("design", type=click.Path(path_type=Path), metavar="JOB|MAPPING")
@click.option("--source", envvar="MIGRATOR_SOURCE_URL", help=f"{_SOURCE} Of a MAPPING; a JOB names its own.")
@click.option(
    "--compare",
    type=click.Path(path_type=Path),
    metavar="OTHER",
    help="Another job or mapping of the same source, to be shown beside it.",
)
@click.option(
    "--html", type=click.Path(path_type=Path), metavar="FILE", help="Write it as one HTML file, too."
)
@click.option(
    "--statements",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="How often rows change: statements that write, with rates (-- 12.5/s).",
)
@click.option(
    "--rows-exact",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Read all rows of an entity of up to so many; of a larger one some by chance.",
)
@click.option(
    "--show",
    metavar="KEY",
    help="Only the items that rows would make under this partition key, such as ARTIST#90.",
)
@click.option("--region", help="Whose prices (default: the job's region, or AWS's own setting).")
@keys_option
@json_option
def plan() -> Work:
    """Say what a mapping's table would take, from the rows of its source: nothing is created and nothing is written.

    Reads, pages and dollars of each access pattern, item collections and their largest keys, what one change rewrites,
    what does not fit and what could be less, time and cost of filling the table.

    Exit code 0: it fits; 1: something does not; 2: wrong use; 3: the source is away.
    """
    from migrator.features.plan.work import plan

    return plan


@click.group(cls=Branch)
def table() -> None:
    """Create the table of a job, compare it with the mapping, and change its indexes."""


@table.command(example="jobs/shop.yaml")
@job_argument
@click.option("--dry-run", is_flag=True, help="Print the CreateTable request as JSON, create nothing.")
@json_option
def create() -> Work:
    """Create the table with its keys, indexes, TTL and options, and wait until it is ready.

    A table that is there and fits is left as it is.
    """
    from migrator.commands.table_work import create

    return create


@table.command(name="check", example="jobs/shop.yaml")
@job_argument
@click.option(
    "--as", "form", type=click.Choice(["cloudformation", "terraform"]), help="Print the lines to edit, too."
)
@json_option
def check_table() -> Work:
    """Say how the table differs from the mapping and from the job's options. Exit code 1 when it does."""
    from migrator.commands.table_work import check

    return check


@table.command(name="change", example="jobs/shop.yaml")
@job_argument
@click.option(
    "--as",
    "form",
    type=click.Choice(["cloudformation", "terraform"]),
    help="Print the lines to edit instead.",
)
@click.option("--dry-run", is_flag=True, help="Print the UpdateTable requests as JSON, change nothing.")
@click.option("--yes", is_flag=True, help="Remove indexes without asking.")
@json_option
def change_table() -> Work:
    """Add the global indexes that the table lacks, then remove those that the mapping does not have, one at a time.

    It waits until DynamoDB has filled each of them. Stopped, it goes on where it is given again. An index that a pattern
    or a service may still ask is not removed, and none is without a question or --yes. Key and projection of an index
    cannot be altered: write the new one under another name.

    Exit code 0: the indexes are the mapping's; 1: some are not, or would be changed; 130: stopped.
    """
    from migrator.commands.table_change import change

    return change


table.add_command(import_items)
