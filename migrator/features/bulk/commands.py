"""`migrator table export` and `migrator table import`: a new table filled by DynamoDB's import from S3."""

from __future__ import annotations

import click

from migrator.cli import command_line as cli
from migrator.commands.prepare import table


@table.command(name="import", example="jobs/shop.yaml --from s3://shop-migration/items")
@cli.job_argument
@cli.option("--from S3", "The place of the exported items: s3://bucket/prefix.", "place", required=True)
@cli.flag("--dry-run", "Check the export and every file of it, import nothing.")
@cli.json_option
def import_items() -> cli.Work:
    """Let DynamoDB create the job's table and fill it from the files of `migrator table export`.

    Every file is read and compared with the manifest first. The table must not exist. After the import, items
    are counted, options that an import does not take are set (TTL, recovery, stream, tags, protection), and the export's
    pages count as written: a backfill has nothing left to do, and the relay may start.

    Exit code 0: imported; 1: DynamoDB did not take all items (see `migrator status --findings`); 3 and 130: stopped, the
    same command resumes.
    """
    from migrator.features.bulk.import_work import import_table

    return import_table


@table.command(name="export", example="jobs/shop.yaml --to s3://shop-migration/items")
@cli.job_argument
@cli.option(
    "--to S3|DIR",
    "An empty place, used for nothing else: s3://bucket/prefix, or a folder.",
    "place",
    required=True,
)
@cli.option("--workers", "Pages processed in parallel.", type=click.IntRange(1, 64))
@cli.flag("--restart", "Replace an existing export, or one that was stopped.")
@cli.keys_option
@cli.json_option
def export_items() -> cli.Work:
    """Write the items of every row as files for `migrator table import`; resume a run that was stopped.

    DynamoDB JSON with gzip, shuffled by key, and a manifest with the digest of each file. Nothing is published while a row
    is refused or two rows make one key. If services write, run `migrator capture install` first.

    Exit code 0: published; 1: rows were refused (see `migrator status --findings`); 3 and 130: stopped, the same
    command resumes.
    """
    from migrator.features.bulk.export import export_items

    return export_items
