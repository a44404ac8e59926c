"""Open old DynamoDB tables with a client and rate limits, and capture their changes by streams."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.resources import files
from typing import Any

from msgspec import Struct

from migrator.dynamodb.client import dynamodb_client, endpoint_of, is_loopback, service_client
from migrator.dynamodb.tables import DynamoStream, TableReader
from migrator.journal.database import Database
from migrator.journal.reverse import SqlStreamJournal
from migrator.journal.source_capture import JournalMarks, JournalTickets
from migrator.mapping.check.check import check_mapping
from migrator.mapping.items.changes import captured_tables
from migrator.mapping.language.documents import facts_of
from migrator.mapping.model.edges import ActionProbe, WiredItem
from migrator.mapping.model.facts import Captured, EntityPlan, TableFacts
from migrator.mapping.model.live import (
    ALL_OF_IT,
    FRESH_S,
    MEND_OF_SOURCE,
    ActivityCounts,
    CaptureRecord,
    CaptureState,
    Checkpoint,
    Installation,
    MarkedBy,
    MarkKeeper,
    Step,
    StreamJournal,
    StreamPosition,
    StreamRecord,
    StreamState,
    TableCapture,
)
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.runtime.errors import (
    LostRecordsError,
    MigratorError,
    SettingsError,
    SourceError,
    StoppedError,
    TargetError,
)
from migrator.runtime.retry import RateLimit, Retry
from migrator.settings.job import DocumentSettings, Job, SourceSettings
from migrator.settings.transforms import load_transforms, sound_mapping, with_writes
from migrator.source.dynamodb.finding import Finder, value_of
from migrator.source.dynamodb.marks import READER_LEASE_S, RecordImages, SourceStream, StreamMarks
from migrator.source.dynamodb.reader import StreamReader, Work
from migrator.source.dynamodb.source import MOST_SEGMENTS, MOST_SEGMENTS_HERE, DocumentSource, ReadPace


class CapturedStream(Struct, frozen=True):
    source: DynamoStream
    checkpoints: StreamJournal

    def is_lost(self, state: StreamState) -> bool:
        """Whether the stream no longer has all changes since reading began, by the rule at which a reader stops."""
        begun = self.checkpoints.stream()
        return bool(begun) and (not state.is_on or state.arn != begun or self.has_gap(begun))

    def has_gap(self, begun: str) -> bool:
        known = self.checkpoints.read(begun)
        for shard in known.shards:
            if shard.is_finished or known.now - shard.passed_at < FRESH_S:
                continue
            if not shard.sequence:
                return True
            position = StreamPosition("AFTER_SEQUENCE_NUMBER", shard.sequence)
            try:
                self.source.iterator(begun, shard.shard, position)
            except LostRecordsError:
                return True
        return False

    def begin(self) -> None:
        """Begin; known shards count as pending until they are read."""
        state = self.source.state()
        self.checkpoints.begin(state.arn)
        self.checkpoints.list_shards(state.arn, state.shards, 0.0)


_SWITCH_ON = (
    "aws dynamodb update-table --table-name {table}"
    f" --stream-specification StreamEnabled=true,StreamViewType={ALL_OF_IT}"
)
_BEGIN = "begin with the stream of {table}"
_RECORD = "record a new installation of capture in the journal"
_FORGET = "remove the record of capture and the pending changes from the journal"
_SERVICES = (
    "services capture no changes of old DynamoDB tables, whose streams contain every change by anyone; install"
    " without --by services"
)
_NO_LOG = "a source of DynamoDB tables is captured by their streams; install without --by log"
LIMITS = (
    "a stream keeps a change for 24 hours: a relay that is away for longer stops when it comes back, and"
    " `migrator capture install` and `migrator verify --repair` repair it",
    "a table that is restored, or re-created, has another stream: what was written between is in neither, and the relay"
    " stops, for the same repair",
)
"""Source: Developer Guide, "Change data capture for DynamoDB Streams"."""


class StreamCapture(Struct, frozen=True):
    """Capture by streams. migrator never disables a stream: others may read it, and an unread stream is free."""

    stream_of: Callable[[str], CapturedStream]
    record: CaptureRecord
    marks: MarkKeeper
    means = "streams"

    def captured(self, plans: Sequence[EntityPlan]) -> list[Captured]:
        return [table for _, table in sorted(captured_tables(plans).items())]

    def refusals(self, tables: Sequence[Captured], marked_by: MarkedBy = "triggers") -> list[str]:
        if marked_by == "services":
            return [_SERVICES]
        if marked_by == "log":
            return [_NO_LOG]
        return [what for table in tables if (what := self._unfit(table.name))]

    def limits(self, marked_by: MarkedBy = "triggers") -> list[str]:
        return list(LIMITS)

    def installation(self) -> Installation | None:
        return self.record.installed()

    def install_steps(
        self, tables: Sequence[Captured], job: str, marked_by: MarkedBy = "triggers"
    ) -> list[Step]:
        is_new = self.record.installed() is None
        steps, is_anything_lost = [], False
        for table in tables:
            stream = self.stream_of(table.name)
            state = stream.source.state()
            is_lost = stream.is_lost(state)
            is_anything_lost |= is_lost
            texts = [] if state.is_on else [_SWITCH_ON]
            texts += [_BEGIN] if is_new or is_lost or not stream.checkpoints.stream() else []
            if texts:
                steps.append(
                    Step(table.name, tuple(text.format(table=stream.source.table) for text in texts))
                )
        # First: if reading began without this record, later losses would go unnoticed.
        return [Step("", (_RECORD,), (_FORGET,)), *steps] if is_new or is_anything_lost else steps

    def refuse_steps(self, tables: Sequence[TableFacts]) -> list[Step]:
        names = ", ".join(table.name for table in tables)
        what = f"{names}: nothing can refuse what others write to a DynamoDB table"
        raise SettingsError(f"{what}, and rows that follow items are for SQL databases; leave `reverse` out")

    def uninstall_steps(self) -> list[Step]:
        return [] if self.record.installed() is None else [Step("", (_FORGET,))]

    def taken_away(self, tables: Sequence[str]) -> str:
        return "capture and its pending changes are removed from the journal; streams stay on, for others may read them"

    def do(self, step: Step) -> None:
        actions: dict[str, Callable[[], None]] = {_RECORD: self.record.install, _FORGET: self._forget}
        if step.table:
            stream = self.stream_of(step.table)
            real = stream.source.table
            actions |= {
                _SWITCH_ON.format(table=real): stream.source.switch_on,
                _BEGIN.format(table=real): stream.begin,
            }
        for statement in step.statements:
            actions[statement]()

    def states(self, tables: Sequence[Captured]) -> list[TableCapture]:
        is_installed = self.record.installed() is not None
        return [
            TableCapture(table.name, self._state(table.name) if is_installed else "unread")
            for table in tables
        ]

    def probe(self, tables: Sequence[Captured]) -> Iterator[tuple[str, list[ActionProbe]]]:
        """The probes of each table's stream, by the table's real name."""
        for table in tables:
            source = self.stream_of(table.name).source
            yield source.table, source.probe()

    def _state(self, table: str) -> CaptureState:
        stream = self.stream_of(table)
        state, begun = stream.source.state(), stream.checkpoints.stream()
        is_read = begun and state.is_on and state.view == ALL_OF_IT and not stream.is_lost(state)
        return "captured" if is_read else "unread"

    def _unfit(self, table: str) -> str:
        source = self.stream_of(table).source
        try:
            state = source.state()
        except (TargetError, LostRecordsError) as error:
            return str(error)
        if not state.is_on or state.view == ALL_OF_IT:
            return ""
        what = f"the table {source.table} has a stream of the view {state.view}, and {ALL_OF_IT} is needed"
        why = "a table has one stream, and another program may read this one"
        return f"{what}: {why}; switch it off when none does, and run `migrator capture install` again"

    def _forget(self) -> None:
        self.marks.discard()
        self.record.uninstall()


_AT_MOST = 1_000
_CALLS = 4
"""Several may be needed to reach records; their number is unknown (docs/decisions/0029-streams.md)."""
_AWS = (".amazonaws.com", ".api.aws")
_COUNTED_BY = "the last records of the tables' streams"
_DENIED = (
    "PutItem",
    "UpdateItem",
    "DeleteItem",
    "BatchWriteItem",
    "PartiQLInsert",
    "PartiQLUpdate",
    "PartiQLDelete",
)


class StreamActivity(Struct, frozen=True):
    """`real`: table names in the AWS account.
    `marks`: pending ones, by table.

    DynamoDB keeps no transaction open, and does not report who writes.
    """

    stream_of: Callable[[str], CapturedStream]
    marks: Callable[[], Mapping[str, int]]
    real: Mapping[str, str]
    aws: AwsCalls

    def look(self, tables: Sequence[str]) -> ActivityCounts:
        """Raises: SourceError if a stream cannot be read; StoppedError."""
        if unbegun := [name for name in tables if not self.stream_of(name).checkpoints.stream()]:
            blind = f"the streams of {', '.join(unbegun)} are not read"
            return ActivityCounts({}, None, _COUNTED_BY, blind)
        ahead = self._ahead(tables)
        gaps = [name for name, unread in ahead.items() if unread.has_gap]
        counts = {name: unread.last for name, unread in ahead.items()}
        return ActivityCounts(counts, None, _COUNTED_BY, _unread_gap(gaps) if gaps else "")

    def views(self) -> set[str]:
        return set()

    def named(self) -> set[str]:
        """Tables that the job names, as in capture: facts may not contain them."""
        return set(self.real)

    def waiting(self, tables: Sequence[str]) -> Mapping[str, int]:
        """Pending marks, and records not copied yet: at most a thousand per shard."""
        ahead = self._ahead(tables)
        if gaps := [name for name, unread in ahead.items() if unread.has_gap]:
            raise SourceError(_unread_gap(gaps))
        unread = Counter({name: stream.unread for name, stream in ahead.items()})
        return +(Counter(self.marks()) + unread)

    def _ahead(self, tables: Sequence[str]) -> dict[str, _Ahead]:
        """Raises: SourceError if a stream is missing or was replaced."""
        try:
            ahead = {name: _ahead_of(self.stream_of(name)) for name in tables}
            for _ in range(_CALLS):
                for stream in ahead.values():
                    stream.read_on()
        except (StoppedError, SourceError):
            raise
        except MigratorError as error:
            raise SourceError(str(error)) from None
        return ahead

    # ── the end of the old tables, printed and never run ──

    def read_only(self, tables: Sequence[str]) -> list[str]:
        """Policies that deny all writes; users who may change a policy can still lift it."""
        return [line for name in tables for line in self._denied(self.real[name], self._arn(name))]

    def _denied(self, table: str, arn: str) -> Iterator[str]:
        expiry = f"{self.aws.dynamodb('describe-time-to-live')} --table-name {shlex.quote(table)}"
        yield f"{expiry} # expiry is also a change, which no policy denies: update-time-to-live switches it off"
        yield f"{self.aws.dynamodb('get-resource-policy')} --resource-arn {arn} # put replaces one that is there"
        written = shlex.quote(json.dumps(_policy(arn)))
        yield f"{self.aws.dynamodb('put-resource-policy')} --resource-arn {arn} --policy {written}"

    def _arn(self, table: str) -> str:
        arn = self.stream_of(table).checkpoints.stream().partition("/stream/")[0]
        return arn or f"arn:aws:dynamodb:REGION:ACCOUNT:table/{self.real[table]}"

    def drops(self, tables: Sequence[str]) -> list[str]:
        return [
            line
            for name in tables
            for line in self.aws.drop(self.real[name], self.stream_of(name).checkpoints.stream())
        ]


class AwsCalls(Struct, frozen=True):
    """Lines for `aws`.

    `options`: region and profile, each after a space.
    `endpoint`: None is AWS.
    """

    options: str = ""
    endpoint: Callable[[], str | None] = lambda: None

    def dynamodb(self, command: str) -> str:
        return f"aws dynamodb {command}{self._options(is_aws=False)}"

    def drop(self, table: str, stream: str) -> Iterator[str]:
        """Commands that drop a table. Scaling (with its own alarms) and alarms first: those on a deleted table
        would go off. `stream`: its ARN or ''.
        """
        named, endpoint = shlex.quote(table), self.endpoint()
        words = {
            "dynamodb": self._options(is_aws=False),
            # A server other than AWS has all services or none; AWS must not be called in its place.
            "other": self._options(is_aws=any(domain in endpoint for domain in _AWS) if endpoint else True),
            "dimension": f"--namespace AWS/DynamoDB --dimensions Name=TableName,Value={named}",
            "daily": "--period 86400 --statistics Sum --start-time FROM --end-time TO",
            "scaled": "--service-namespace dynamodb",
        }
        lines = (files("migrator.source.dynamodb") / "drop.txt").read_text(encoding="utf-8").splitlines()
        for line in lines:
            if stream or "{stream}" not in line:
                yield line.format(table=table, named=named, stream=stream, **words)

    def _options(self, *, is_aws: bool) -> str:
        endpoint = None if is_aws else self.endpoint()
        return f"{self.options}{f' --endpoint-url {endpoint}' if endpoint else ''}"


# ── unread records of streams ──


@dataclass
class _ShardPlace:
    """A shard's first page of records, or how far the search for one has come."""

    shard: Checkpoint
    iterator: str | None
    records: list[StreamRecord]

    @property
    def sequence(self) -> str:
        return self.records[-1].sequence if self.records else self.shard.sequence


@dataclass
class _Ahead:
    """`has_gap`: the stream has dropped unread records. Reading on claims and stores nothing."""

    stream: CapturedStream
    arn: str
    places: list[_ShardPlace]
    has_gap: bool

    def read_on(self) -> None:
        for place in self.places:
            if place.iterator is None or place.records:
                continue
            # What the stream has dropped by now is a gap, or was read.
            with suppress(LostRecordsError):
                page = self.stream.source.records(self.arn, place.shard.shard, place.iterator, _AT_MOST)
                place.records, place.iterator = page.records, page.next_iterator

    @property
    def unread(self) -> int:
        return sum(len(place.records) for place in self.places)

    @property
    def last(self) -> str:
        """Changes with every change: from each shard's last record, read by a relay or not."""
        # A shard without records is not a change: shards are closed and opened without writes.
        last = sorted(f"{place.shard.shard}={place.sequence}" for place in self.places if place.sequence)
        return hashlib.blake2b("\n".join(last).encode(), digest_size=8).hexdigest()


def _ahead_of(stream: CapturedStream) -> _Ahead:
    arn, state = stream.checkpoints.stream(), stream.source.state()
    if not arn:
        return _Ahead(stream, "", [], has_gap=False)
    if not state.is_on or state.arn != arn:
        what = f"the stream of table {stream.source.table} no longer contains all changes"
        raise SourceError(f"{what}; {stream.source.mend}")
    known = stream.checkpoints.read(arn).shards
    names = {shard.shard for shard in known}
    new = [Checkpoint(one.id, one.parent, "", 0.0) for one in state.shards if one.id not in names]
    places = [_ShardPlace(shard, _iterator(stream, arn, shard), []) for shard in (*known, *new)]
    return _Ahead(stream, arn, places, stream.has_gap(arn))


def _iterator(stream: CapturedStream, arn: str, shard: Checkpoint) -> str | None:
    if shard.is_finished:
        return None
    after = [StreamPosition("AFTER_SEQUENCE_NUMBER", shard.sequence)] if shard.sequence else []
    for position in (*after, StreamPosition("TRIM_HORIZON")):
        with suppress(LostRecordsError):
            return stream.source.iterator(arn, shard.shard, position)
    return None


def _unread_gap(tables: Sequence[str]) -> str:
    what = f"no relay has read the streams of {', '.join(tables)} for a day, and they keep only 24 hours"
    return f"{what}; the tables' ConsumedWriteCapacityUnits in CloudWatch show whether they were written"


def _policy(arn: str) -> dict[str, object]:
    statement = {
        "Sid": "MigratedAway",
        "Effect": "Deny",
        "Principal": "*",
        "Action": [f"dynamodb:{action}" for action in _DENIED],
        "Resource": arn,
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


_SAMPLED_SEGMENTS = 16


def open_reader(settings: DocumentSettings, workers: int, retry: Retry) -> tuple[TableReader, int]:
    endpoint = endpoint_of(settings.endpoint)
    client = dynamodb_client(
        region=settings.region, profile=settings.profile, endpoint=endpoint, connections=2 * workers + 8
    )
    is_here = endpoint is not None and is_loopback(endpoint)
    units = RateLimit(settings.max_read_units, retry.stop)
    return TableReader(client, retry, units), MOST_SEGMENTS_HERE if is_here else MOST_SEGMENTS


def sample_of(reader: TableReader, table: str, most_segments: int, number: int) -> list[WiredItem]:
    """At most `number` documents from the beginnings of segments; the same ones each time."""
    of = min(most_segments, _SAMPLED_SEGMENTS)
    each = -(-number // of)
    pages = (next(reader.scan(table, segment, of, limit=each)) for segment in range(of))
    return [item for page in pages for item in page.items][:number]


def open_document_source(
    settings: SourceSettings, mapping: MappingModel, workers: int, retry: Retry
) -> DocumentSource:
    """Raises: SettingsError if the mapping's tables are not those of the job."""
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
"""An index of an old table usually follows it within a second; without an upper bound."""


class OldStreams(Struct, frozen=True, dict=True):
    job: str
    settings: DocumentSettings
    database: Database
    retry: Retry

    @cached_property
    def _clients(self) -> tuple[Any, Any]:
        settings, endpoint = self.settings, endpoint_of(self.settings.endpoint)
        where: dict[str, Any] = {"region": settings.region, "profile": settings.profile, "endpoint": endpoint}
        return dynamodb_client(**where), service_client("dynamodbstreams", **where)

    def stream(self, table: str) -> DynamoStream:
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


def open_document_live(
    job: Job,
    settings: DocumentSettings,
    database: Database,
    retry: Retry,
    source: object,
    is_over: Callable[[], bool],
) -> tuple[StreamCapture, StreamMarks, StreamActivity]:
    """`source`: knows its indexes; None: each change is processed twice. `is_over`: whether no relay will read
    the streams. Closing the marks frees the streams' shards at once.

    Raises: MappingError.
    """
    parsed = sound_mapping(job.mapping)
    revised, transforms = load_transforms(parsed)
    checked = check_mapping(revised, facts_of(parsed.mapping), transforms)
    plans = with_writes(checked, job.direct).plans
    tables = captured_tables(plans)
    images = RecordImages(tables, value_of)
    kept = JournalMarks(database, job.name, images.read)
    streams = OldStreams(job.name, settings, database, retry)
    late: Collection[str] = tables
    if isinstance(source, DocumentSource):
        # An index may lack the latest write.
        late = captured_tables([plan for plan in plans if source.goes_by_index(plan)])
    marking = [streams.marking(name, AGAIN_AFTER_S if name in late else 0.0) for name in tables]
    marks = StreamMarks(kept, images, marking, retry.wait, is_over=is_over)
    aws = AwsCalls(settings.aws_options, partial(endpoint_of, settings.endpoint))
    activity = StreamActivity(streams.captured, kept.by_table, settings.real_names, aws)
    record = JournalTickets(database, job.name)
    return StreamCapture(streams.captured, record, kept), marks, activity
