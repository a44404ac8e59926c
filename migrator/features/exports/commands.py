"""`migrator export` and `migrator import`: a mapping as text for other tools, and begun with what other tools have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from migrator.cli.command_line import Branch, Work, force_option, job_argument, json_option
from migrator.cli.extensions import DEFINITIONS
from migrator.commands.export import export
from migrator.dynamodb.admin.permissions import ROLES
from migrator.source.rights import SQL_ROLES

_EXPORTS = {
    "terraform": "Write the table as a Terraform file in JSON: keys, indexes, TTL, stream, recovery, capacity, tags.",
    "cloudformation": "Write the table as a CloudFormation template, with its ARNs as outputs.",
    "cdk-ts": "Write the table as a CDK construct in TypeScript that includes the CloudFormation template.",
    "cdk-py": "Write the table as a CDK construct in Python that includes the CloudFormation template.",
}
_DESCRIBED = {
    "electrodb": "Write items, keys and access patterns as TypeScript for ElectroDB.",
    "json-schema": "Write a JSON Schema of every item type, as items are in plain JSON, for any other language.",
}
_OF_EXPORTS = """

The text goes to standard output, or with --out into a folder. It says which command and which revision of the mapping
made it, and is the same for the same mapping and job. Nothing is asked of the source or of AWS."""

_IAM = (
    "Write an IAM policy for each role: who deploys, backfills, relays, verifies, reads, operates, reports."
)


def _account(ctx: click.Context, param: click.Parameter, text: str) -> str:
    if text != "*" and not (len(text) == 12 and text.isascii() and text.isdigit()):
        raise click.BadParameter("an AWS account has 12 digits, such as 123456789012")
    return text


def _written(command: Any) -> Any:
    """What each kind is told of where its text goes."""
    out = click.option(
        "--out", type=click.Path(path_type=Path, file_okay=False), help="The folder to write into."
    )
    what = "Write nothing; exit code 1 where the folder has something else."
    check = click.option("--check", is_flag=True, help=what)
    force = click.option("--force", is_flag=True, help="Replace a file that this command did not write.")
    return job_argument(out(check(force(json_option(command)))))


def _add_export(kind: str, what: str) -> None:
    @export.command(name=kind, help=what + _OF_EXPORTS, example="jobs/shop.yaml --out infra")
    @_written
    def exported() -> Work:
        from migrator.features.exports.work import exporter

        return exporter(kind)


for _kind, _what in _EXPORTS.items():
    _add_export(_kind, _what)


_FROM_SCHEMA = _OF_EXPORTS.replace(
    "Nothing is asked of the source or of AWS",
    "The source is asked for its schema, which says what columns hold; AWS is not asked",
)


def _add_described(kind: str, what: str) -> None:
    @export.command(name=kind, help=what + _FROM_SCHEMA, example="jobs/shop.yaml --out service/src")
    @_written
    def described() -> Work:
        from migrator.features.exports.work import describer

        return describer(kind)


for _kind, _what in _DESCRIBED.items():
    _add_described(_kind, _what)


_PYTHON = """Write a typed Python module for a service: classes of rows, items and answers, a function for each pattern.

Its functions call `Migration.read`. With --after the same classes and functions are on boto3 alone, with writes that keep
all items of a row in step: a service changes one import."""


@export.command(help=_PYTHON + _FROM_SCHEMA, example="jobs/shop.yaml --out service")
@click.option(
    "--through",
    type=click.Choice(["migration"]),
    help="What answers: migrator, as the phase of each pattern says (the default).",
)
@click.option("--after", is_flag=True, help="For the time after the migration: on boto3 alone, with writes.")
@click.option(
    "--allow-missing", is_flag=True, help="Leave out what has no Python, and say so; without it, exit code 2."
)
@_written
def python() -> Work:
    from migrator.features.exports.work import export_python

    return export_python


@export.command(help=_IAM + _OF_EXPORTS, example="jobs/shop.yaml --role relay --account 123456789012")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(list(ROLES)),
    metavar="ROLE",
    help=f"Only this one: {', '.join(ROLES)}; can be given again.",
)
@click.option("--region", help="The table's region (default: the job's, then AWS_REGION).")
@click.option(
    "--account",
    default="*",
    metavar="DIGITS",
    callback=_account,
    help="The table's account (default: any, which is that of the role).",
)
@click.option(
    "--items-at",
    default="",
    metavar="S3",
    help="Where items are exported to, for the role import: s3://bucket/prefix.",
)
@_written
def iam() -> Work:
    from migrator.features.exports.work import export_iam

    return export_iam


_GRANTS = """Write the SQL rights of each role as GRANT statements: who installs capture, backfills, relays, verifies, reads,
operates, reports.

The text goes to standard output, or with --out into a folder. The tables behind foreign keys are asked of the source,
which is PostgreSQL, MariaDB or MySQL: SQLite has no users. Nothing is granted."""


def _user(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    if name is not None and not (name.isprintable() and 0 < len(name) <= 128):
        raise click.BadParameter("a user's name is printable, and has 128 characters at most")
    return name


@export.command(help=_GRANTS, example="jobs/shop.yaml --role relay --user migrator")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(list(SQL_ROLES)),
    metavar="ROLE",
    help=f"Only this one: {', '.join(SQL_ROLES)}; can be given again.",
)
@click.option(
    "--user",
    metavar="NAME",
    callback=_user,
    help="To whom (default: migrator_ROLE); MariaDB and MySQL: name@host, or a name for every host.",
)
@_written
def grants() -> Work:
    from migrator.features.exports.work import export_grants

    return export_grants


_WORKBENCH = """Write the table as a model of NoSQL Workbench (format 3.0): keys, indexes, a facet for each type, samples.

The samples are items that the mapping makes of rows that are made up. Attributes and their types are asked of the source.
Local indexes and keys of several attributes have no place in the format: exit code 2."""


@export.command(help=_WORKBENCH, example="jobs/shop.yaml --out model")
@click.option(
    "--real",
    is_flag=True,
    help="Samples of the source's first rows instead; what a pattern redacts is masked, all else is as it is.",
)
@_written
def workbench() -> Work:
    from migrator.features.exports.work import export_workbench

    return export_workbench


@click.group(name="import", cls=Branch)
def import_model() -> None:
    """Begin a mapping with what other tools have: a model of NoSQL Workbench."""


@import_model.command(name="workbench", example="model.json --out shop.yaml")
@click.argument("file", type=click.Path(path_type=Path), metavar="MODEL.json")
@click.option("--table", help="Which table, of a model with several.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="The file to write (default: print it)."
)
@force_option("Replace a file that is there.")
@json_option
def import_workbench() -> Work:
    """Write a mapping's head from a model of NoSQL Workbench (format 3.0): table, keys, indexes, an entity for each facet.

    Tables, columns and access patterns are to be filled in. Exit code 2: the file is no such model, with each fault.
    """
    from migrator.commands.mapping_work import import_workbench

    return import_workbench


def _terraform(*given: Any) -> list[str]:
    from migrator.features.exports.terraform import terraform

    return terraform(*given)


def _cloudformation(*given: Any) -> list[str]:
    from migrator.features.exports.cloudformation import cloudformation

    return cloudformation(*given)


DEFINITIONS.update({"terraform": _terraform, "cloudformation": _cloudformation})
