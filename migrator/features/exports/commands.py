"""`migrator export`: a mapping as text for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from migrator.cli import command_line as cli
from migrator.settings.roles import ROLES, SQL_ROLES

KINDS = (
    *("terraform", "cloudformation", "cdk-ts", "cdk-py", "iam", "grants"),
    *("python", "boto3", "electrodb", "json-schema", "workbench"),
)
"""The formats, in the order of the help."""


def _user(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    if name is not None and not (name.isprintable() and 0 < len(name) <= 128):
        raise click.BadParameter("a user's name is printable, and has 128 characters at most")
    return name


@click.command(cls=cli.Leaf, example="jobs/shop.yaml --as terraform --out infra")
@cli.job_argument
@cli.option("--as FORMAT", "One of the formats above.", "kind", type=click.Choice(KINDS), required=True)
@cli.option("--out", "The folder to write into.", type=click.Path(path_type=Path, file_okay=False))
@cli.flag("--dry-run", "Write nothing; exit code 1 if the folder's contents differ.")
@cli.flag("--force", "Replace a file that this command did not write.")
@cli.option(
    "--role ROLE",
    f"iam, grants: only this role: {', '.join(sorted({*ROLES, *SQL_ROLES}))}; repeat it for more.",
    "roles",
    multiple=True,
    type=click.Choice(sorted({*ROLES, *SQL_ROLES})),
)
@cli.option("--region", "iam: the table's region (default: the job's, then AWS_REGION).")
@cli.option(
    "--from S3", "iam: the place of exported items, for the role import: s3://bucket/prefix.", "items_at"
)
@cli.option(
    "--user NAME",
    "grants: the user's name (default: migrator_ROLE); MariaDB and MySQL: name@host, or a name for every host.",
    callback=_user,
)
@cli.flag(
    "--allow-missing", "python, boto3: leave out and list what cannot be generated; without it, exit code 2."
)
@cli.flag(
    "--show-values",
    "workbench: samples of the source's first rows; only values that a pattern redacts are masked.",
)
@cli.json_option
def export() -> cli.Work:
    """Write a job's table, rights, items and access patterns for other tools, and as code.

    \b
    terraform       the table as a Terraform file in JSON
    cloudformation  the table as a template, with its ARNs as outputs
    cdk-ts, cdk-py  a CDK construct that includes the template
    iam             an IAM policy for each role
    grants          the SQL rights of each role, as GRANT statements
    python          a typed module: rows, items, a function for each pattern
    boto3           the same on boto3 alone, with writes, for the time after
    electrodb       items, keys and patterns as TypeScript for ElectroDB
    json-schema     a JSON Schema of every item type
    workbench       a model of NoSQL Workbench (format 3.0), with samples

    The text goes to standard output, or with --out into a folder. It names the command and the revision of the mapping that
    made it, and depends on nothing else. AWS is never read; the source's schema is read by grants,
    python, boto3, electrodb, json-schema and workbench. Nothing is granted or created.

    The functions of python call `Migration.read`. With --as boto3 the same classes and functions use boto3 alone, with
    writes that keep all items of a row in step: a service changes one import.
    """
    from migrator.features.exports.work import export

    return export


def _terraform(*given: Any) -> list[str]:
    from migrator.features.exports.definitions import terraform

    return terraform(*given)


def _cloudformation(*given: Any) -> list[str]:
    from migrator.features.exports.definitions import cloudformation

    return cloudformation(*given)


cli.DEFINITIONS.update({"terraform": _terraform, "cloudformation": _cloudformation})
