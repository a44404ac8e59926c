"""Opens exported files, in a folder or a bucket, and the import of them into a new table."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from migrator.dynamodb.admin.imports import DynamoImports
from migrator.dynamodb.client import EMBEDDED
from migrator.dynamodb.files import FolderFiles, S3Files
from migrator.mapping.model.files import PARTS, Files, TableImports
from migrator.mapping.model.table import TableDesign
from migrator.runtime.errors import SettingsError
from migrator.settings.definition import import_parameters
from migrator.settings.job import Job
from migrator.stages.session.job import backoff_of, client_of

_S3 = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?")


def files_at(job: Job, place: str, stop: Callable[[], bool]) -> Files:
    """`place`: s3://bucket/prefix, or a folder. Raises: SettingsError."""
    if not place.startswith("s3:"):
        return FolderFiles(Path(place).absolute())
    matched = _S3.fullmatch(place)
    if matched is None:
        raise SettingsError(f"{place} is no place in S3; write s3://bucket/prefix")
    prefix = (matched["prefix"] or "").strip("/")
    s3 = client_of(job, "s3")
    files = S3Files(s3, matched["bucket"], f"{prefix}/" if prefix else "", backoff_of(job), stop)
    if job.target.endpoint == EMBEDDED:
        files.make_bucket()
    return files


def import_request(job: Job, design: TableDesign, files: Files) -> dict[str, Any]:
    """ImportTable's parameters for all parts of an export in a bucket, without the token."""
    assert isinstance(files, S3Files)
    return {
        "S3BucketSource": {"S3Bucket": files.bucket, "S3KeyPrefix": f"{files.prefix}{PARTS}"},
        "InputFormat": "DYNAMODB_JSON",
        "InputCompressionType": "GZIP",
        "TableCreationParameters": import_parameters(design, job.target.options),
    }


def imports_of(job: Job, design: TableDesign, files: Files, stop: Callable[[], bool]) -> TableImports:
    assert isinstance(files, S3Files)
    clients = (client_of(job, "dynamodb"), client_of(job, "logs"))
    return DynamoImports(*clients, import_request(job, design, files), files.prefix, backoff_of(job), stop)
