"""Opens what exports and imports of items need: a bucket, ImportTable, and the records of a table that is imported."""

from __future__ import annotations

from collections.abc import Callable

from migrator.dynamodb.admin.imports import DynamoImports
from migrator.dynamodb.files import S3Files
from migrator.features.bulk.imports import Records
from migrator.journal.memory import SqlMemory
from migrator.journal.run_starts import count_as_done
from migrator.mapping.model.journal import Run, RunIdentity
from migrator.settings.definition import import_parameters
from migrator.settings.job import Job
from migrator.stages.core.adoption import KeysOfItems
from migrator.stages.live.relay import live_entities, remembered
from migrator.stages.session.job import Target, backoff_of, client_of
from migrator.stages.session.session import JobSession


def files_of_bucket(job: Job, bucket: str, prefix: str, stop: Callable[[], bool]) -> S3Files:
    """`prefix`: '' or one that ends with a slash."""
    return S3Files(client_of(job, "s3"), bucket, prefix, backoff_of(job), stop)


def imports_of(
    job: Job, target: Target, files: S3Files, below: str, stop: Callable[[], bool]
) -> DynamoImports:
    """Of every file whose name begins with `below`."""
    request = {
        "S3BucketSource": {"S3Bucket": files.bucket, "S3KeyPrefix": f"{files.prefix}{below}"},
        "InputFormat": "DYNAMODB_JSON",
        "InputCompressionType": "GZIP",
        "TableCreationParameters": import_parameters(target.design, job.target.options),
    }
    clients = (client_of(job, "dynamodb"), client_of(job, "logs"))
    return DynamoImports(*clients, request, files.prefix, backoff_of(job), stop)


def keys_of(session: JobSession) -> Callable[[str], KeysOfItems]:
    """By the id of the table, what its items tell of keys that must be remembered."""
    names = remembered(live_entities(session.checked.mapping, session.checked.entities, session.source))
    design, database = session.target.design, session.journal.database
    return lambda table_id: KeysOfItems(design, names, SqlMemory(database, table_id))


def records_of(
    session: JobSession,
    target: Target,
    exported: Run,
    identity: Callable[[str], RunIdentity],
    installation: str,
) -> Records:
    """`identity`: by the table's id, of a backfill of all of it. `target`: as a writer has it."""

    def count(table_id: str) -> None:
        count_as_done(session.journal.database, exported, identity(table_id), installation)

    return Records(
        job=session.job.name,
        table=target.design.name,
        identity=session.identity,
        control=session.control_of(target),
        on_record=session.on_record,
        count=count,
        captured=bool(installation),
    )
