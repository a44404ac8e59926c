"""Opens old tables of DynamoDB's: a client, paces, and the source made of both; live change by their streams."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from typing import Any, TypedDict

from msgspec import Struct

from migrator.dynamodb.client import dynamodb_client, endpoint_of, is_loopback, service_client
from migrator.dynamodb.tables import DynamoStream, TableReader
from migrator.journal.database import Database
from migrator.journal.reverse import SqlStreamJournal
from migrator.journal.source_capture import JournalMarks, JournalTickets
from migrator.mapping.check.check import check_mapping
from migrator.mapping.items.changes import captured_tables
from migrator.mapping.language.documents import facts_of
from migrator.mapping.model.edges import WiredItem
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.live import MEND_OF_SOURCE
from migrator.mapping.model.mapping import Mapping
from migrator.runtime.errors import SettingsError
from migrator.runtime.retry import RateLimit, Retry
from migrator.settings.job import DocumentSettings, Job, SourceSettings
from migrator.settings.transforms import load_transforms, sound_mapping, with_writes
from migrator.source.dynamodb.capture import AwsCalls, CapturedStream, StreamActivity, StreamCapture
from migrator.source.dynamodb.finding import Finder, value_of
from migrator.source.dynamodb.marks import (
    READER_LEASE_S,
    RecordImages,
    SourceStream,
    StreamMarks,
)
from migrator.source.dynamodb.reader import StreamReader, Work
from migrator.source.dynamodb.source import MOST_SEGMENTS, MOST_SEGMENTS_HERE, DocumentSource, ReadPace

_SAMPLED_SEGMENTS = 16


def open_reader(settings: DocumentSettings, workers: int, retry: Retry) -> tuple[TableReader, int]:
    """What reads the account's tables, and how many segments they are divided into, at most."""
    endpoint = endpoint_of(settings.endpoint)
    client = dynamodb_client(
        region=settings.region,
        profile=settings.profile,
        endpoint=endpoint,
        connections=2 * workers + 8,
    )
    is_here = endpoint is not None and is_loopback(endpoint)
    units = RateLimit(settings.max_read_units, retry.stop)
    return TableReader(client, retry, units), MOST_SEGMENTS_HERE if is_here else MOST_SEGMENTS


def sample_of(reader: TableReader, table: str, most_segments: int, number: int) -> list[WiredItem]:
    """Documents of a table, `number` at most, from the beginnings of segments all over it; the same ones each time."""
    of = min(most_segments, _SAMPLED_SEGMENTS)
    each = -(-number // of)
    found: list[WiredItem] = []
    for segment in range(of):
        page = next(reader.scan(table, segment, of, limit=each))
        found += page.items
    return found[:number]


def open_document_source(
    settings: SourceSettings, mapping: Mapping, workers: int, retry: Retry
) -> DocumentSource:
    """Raises: SettingsError where the mapping declares no tables, or others than the job names."""
    documents = settings.dynamodb
    if documents is None or not mapping.documents:
        what = f"{mapping.name}: the source is tables of DynamoDB's, which the mapping must declare"
        raise SettingsError(f"{what}: source: {{tables: …}} (`migrator init` proposes it)")
    if missing := sorted(set(mapping.documents) - set(documents.real_names)):
        what = f"{mapping.name} declares {', '.join(missing)}, and the job does not name them"
        raise SettingsError(f"{what}; write them among source: dynamodb: tables:")
    reader, most = open_reader(documents, workers, retry)
    pace = ReadPace(RateLimit(settings.max_rows_per_s, retry.stop), reader.units)
    return DocumentSource(mapping, Finder(reader, documents.real_names), pace, most)


# ── Live change: streams of the tables; marks and tickets in the job's journal ──

AGAIN_AFTER_S = 60.0
"""An index of an old table follows it within a second as a rule; nothing says at most when."""


class _Where(TypedDict):
    region: str | None
    profile: str | None
    endpoint: str | None


class OldStreams(Struct, frozen=True, dict=True):
    """The streams of the job's old tables. Nothing is asked, and no client is made, before one of them is."""

    job: str
    settings: DocumentSettings
    database: Database
    retry: Retry

    @cached_property
    def _clients(self) -> tuple[Any, Any]:
        where: _Where = {
            "region": self.settings.region,
            "profile": self.settings.profile,
            "endpoint": endpoint_of(self.settings.endpoint),
        }
        return dynamodb_client(**where), service_client("dynamodbstreams", **where)

    def stream(self, table: str) -> DynamoStream:
        """`table`: by the mapping's name."""
        return DynamoStream(
            *self._clients, self.settings.real_names.get(table, table), self.retry, MEND_OF_SOURCE
        )

    def checkpoints(self, table: str) -> SqlStreamJournal:
        return SqlStreamJournal(self.database, self.job, f"source {table}")

    def captured(self, table: str) -> CapturedStream:
        return CapturedStream(self.stream(table), self.checkpoints(table))

    def marking(self, table: str, again_after_s: float) -> SourceStream:
        def reader(work: Work) -> StreamReader:
            return StreamReader(self.stream(table), self.checkpoints(table), work, lease_s=READER_LEASE_S)

        return SourceStream(table, self.checkpoints(table), reader, again_after_s)


class DocumentLive(Struct, frozen=True):
    """Capture's edges of old tables; close them, and others have the shards of their streams at once."""

    capture: StreamCapture
    marks: StreamMarks
    tickets: JournalTickets
    activity: StreamActivity

    def close(self) -> None:
        self.marks.close()


def open_document_live(
    job: Job,
    settings: DocumentSettings,
    database: Database,
    retry: Retry,
    source: object,
    is_over: Callable[[], bool],
) -> DocumentLive:
    """`source`: the open tables, which know their indexes; None: each change is looked at a second time. `is_over`: whether
    no relay is to read the streams any more.

    Raises: MappingError.
    """
    plans = _plans(job)
    tables = captured_tables(plans)
    images = RecordImages(tables, value_of)
    kept, tickets = JournalMarks(database, job.name, images.read), JournalTickets(database, job.name)
    streams = OldStreams(job.name, settings, database, retry)
    late = _late(plans, source) if isinstance(source, DocumentSource) else tables
    marking = [streams.marking(name, AGAIN_AFTER_S if name in late else 0.0) for name in tables]
    marks = StreamMarks(kept, images, marking, retry.wait, is_over=is_over)
    aws = AwsCalls(settings.aws_options, partial(endpoint_of, settings.endpoint))
    activity = StreamActivity(streams.captured, kept.by_table, settings.real_names, aws)
    return DocumentLive(StreamCapture(streams.captured, tickets, kept), marks, tickets, activity)


def _plans(job: Job) -> list[EntityPlan]:
    """Of the job's mapping, laid over what it declares: no table is asked."""
    parsed = sound_mapping(job.mapping)
    revised, transforms = load_transforms(parsed)
    checked = check_mapping(revised, facts_of(parsed.mapping), transforms)
    return list(with_writes(checked, job.direct).plans)


def _late(plans: Sequence[EntityPlan], source: DocumentSource) -> Collection[str]:
    """Tables of whose changes something follows that is found by an index, which may not know yet what was just written."""
    return captured_tables([plan for plan in plans if source.goes_by_index(plan)]).keys()
