"""Opens the source of a job or a URL, without requiring a table or a journal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from migrator.mapping.language.parse import ParsedMapping
from migrator.runtime.retry import RateLimit, Retry
from migrator.settings.job import SourceSettings, TargetSettings
from migrator.source.engines.base import ConnectionOptions, name_of
from migrator.source.engines.connect import SecretProviders, address_of, refuse_documents

if TYPE_CHECKING:
    from migrator.source.dynamodb.source import DocumentSource
    from migrator.source.reader import SqlSource

JobSource: TypeAlias = "SqlSource | DocumentSource"
_AWS = TargetSettings()


class SourceWork(Struct, frozen=True):
    """A command's use of the source. `apart`: other pools that share the limit of connections."""

    name: str = name_of()
    workers: int = 1
    retry: Retry = Retry()
    secret_providers: SecretProviders | None = None
    apart: int = 1


def secret_providers(folder: Path, target: TargetSettings = _AWS) -> SecretProviders:
    """Providers for reading a URL. Files are below `folder`; secrets use the target's profile."""

    def secret(name: str) -> str:
        from migrator.dynamodb.client import read_secret  # only a URL in a secret needs AWS

        return read_secret(name, region=target.region, profile=target.profile)

    return SecretProviders(folder, os.environ, secret)


@contextmanager
def open_source(
    settings: SourceSettings, parsed: ParsedMapping, work: SourceWork = SourceWork()
) -> Iterator[JobSource]:
    mapping = parsed.mapping
    if settings.dynamodb is not None:
        from migrator.source.dynamodb.opening import open_document_source  # only old tables need AWS

        with closing(open_document_source(settings, mapping, work.workers, work.retry)) as documents:
            yield documents
        return
    refuse_documents(mapping)
    with open_database(settings, mapping.schemas_read, work) as source:
        yield source


@contextmanager
def open_database(
    settings: SourceSettings, schemas: Sequence[str] = (), work: SourceWork = SourceWork()
) -> Iterator[SqlSource]:
    from migrator.source.reader import SqlSource  # only commands that read rows need it

    providers = work.secret_providers or secret_providers(Path())
    source = SqlSource(
        address_of(settings.url, settings.command, providers),
        ConnectionOptions(
            name=work.name,
            pool_size=settings.connections(work.workers + 1, apart=work.apart),
            statement_timeout_s=settings.statement_timeout_s,
        ),
        schemas=schemas,
        pace=RateLimit(settings.max_rows_per_s, work.retry.stop),
        retry=work.retry,
        replica=address_of(settings.read_url, (), providers) if settings.read_url else None,
    )
    try:
        yield source
    finally:
        source.close()
