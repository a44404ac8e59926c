"""Capture of DynamoDB tables: a stream of each, switched on, begun with, and compared with what was begun with."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Protocol

from msgspec import Struct

from migrator.mapping.items.changes import captured_tables
from migrator.mapping.model.facts import Captured, EntityPlan, TableFacts
from migrator.mapping.model.live import (
    ALL_OF_IT,
    FRESH_S,
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
    StreamSource,
    StreamState,
    TableCapture,
)
from migrator.runtime.errors import (
    LostRecordsError,
    MigratorError,
    SettingsError,
    SourceError,
    StoppedError,
    TargetError,
)


class SwitchedStream(StreamSource, Protocol):
    """A stream that can be switched on."""

    def switch_on(self) -> None:
        """With both images; returns when all that is written from then on is in it."""


class CapturedStream(Struct, frozen=True):
    """The stream of one table of the source, and how far it is read."""

    source: SwitchedStream
    checkpoints: StreamJournal

    def is_lost(self, state: StreamState) -> bool:
        """Whether it tells no more of all changes since it was begun with: by the rule by which a reader stops."""
        begun = self.checkpoints.stream()
        return bool(begun) and (not state.is_on or state.arn != begun or self.has_gap(begun))

    def has_gap(self, begun: str) -> bool:
        """Whether it was not read for so long that it may have dropped records which no reader has seen."""
        known = self.checkpoints.read(begun)
        old = [
            shard
            for shard in known.shards
            if not shard.is_finished and known.now - shard.passed_at >= FRESH_S
        ]
        return not all(self._goes_on(begun, shard) for shard in old)

    def _goes_on(self, stream: str, shard: Checkpoint) -> bool:
        if not shard.sequence:
            return False
        try:
            self.source.iterator(stream, shard.shard, StreamPosition("AFTER_SEQUENCE_NUMBER", shard.sequence))
        except LostRecordsError:
            return False
        return True

    def begin(self) -> None:
        """What is written from here on is read; its shards are known, so that it counts as waiting until one reads it."""
        state = self.source.state()
        self.checkpoints.begin(state.arn)
        self.checkpoints.list_shards(state.arn, state.shards, 0.0)


_SWITCH_ON = (
    "aws dynamodb update-table --table-name {table}"
    f" --stream-specification StreamEnabled=true,StreamViewType={ALL_OF_IT}"
)
_BEGIN = "begin with the stream of {table}"
_RECORD = "record a new installation of capture in the journal"
_FORGET = "take the record of capture, and the marks that wait, out of the journal"
_SERVICES = (
    "services leave no marks for a source of DynamoDB tables, whose streams tell of every change whoever makes it; install"
    " without --by services"
)
_NO_LOG = "a source of DynamoDB tables is captured by their streams; install without --by log"
LIMITS = (
    "a stream keeps a change for 24 hours: a relay that is away for longer stops when it comes back, and"
    " `migrator capture install` and `migrator verify --repair` mend it",
    "a table that is restored, or created anew, has another stream: what was written between is in neither, and the relay"
    " stops, for the same mend",
)
"""Source: Developer Guide, "Change data capture for DynamoDB Streams"."""


class StreamCapture(Struct, frozen=True):
    """`model.live.Capture` by streams. `stream_of`: of a table by its name.

    A stream is never switched off by us: others may read it, and it costs nothing where nobody reads."""

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
        # First: were a stream begun with and the record not changed, nobody would know what was lost.
        return [Step("", (_RECORD,), (_FORGET,)), *steps] if is_new or is_anything_lost else steps

    def refuse_steps(self, tables: Sequence[TableFacts]) -> list[Step]:
        """Raises: SettingsError."""
        names = ", ".join(table.name for table in tables)
        what = f"{names}: nothing can refuse what others write to a DynamoDB table"
        raise SettingsError(f"{what}, and rows that follow items are for SQL databases; leave `reverse` out")

    def uninstall_steps(self) -> list[Step]:
        return [] if self.record.installed() is None else [Step("", (_FORGET,))]

    def taken_away(self, tables: Sequence[str]) -> str:
        return "capture's record and marks are taken out of the journal; streams stay on, for others may read them"

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

    def _state(self, table: str) -> CaptureState:
        stream = self.stream_of(table)
        state, begun = stream.source.state(), stream.checkpoints.stream()
        is_read = begun and state.is_on and state.view == ALL_OF_IT and not stream.is_lost(state)
        return "captured" if is_read else "unread"

    def _unfit(self, table: str) -> str:
        """Why the table's changes cannot be captured; '' for nothing."""
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
"""Several may be needed to come to records, and nothing says how many (docs/decisions/0029-streams.md)."""
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
    """model.live.Activity. DynamoDB keeps no transaction open, and does not tell who writes.

    `real`: the account's name of each table that the job names. `marks`: those that wait, by table.
    """

    stream_of: Callable[[str], CapturedStream]
    marks: Callable[[], Mapping[str, int]]
    real: Mapping[str, str]
    aws: AwsCalls

    def look(self, tables: Sequence[str]) -> ActivityCounts:
        """Raises: SourceError where a stream cannot be read; StoppedError."""
        if unbegun := [name for name in tables if not self.stream_of(name).checkpoints.stream()]:
            blind = f"the streams of {', '.join(unbegun)} are not read"
            return ActivityCounts({}, None, _COUNTED_BY, blind)
        ahead = self._ahead(tables)
        gaps = [name for name, unread in ahead.items() if unread.has_gap]
        counts = {name: unread.last for name, unread in ahead.items()}
        return ActivityCounts(counts, None, _COUNTED_BY, _not_told(gaps) if gaps else "")

    def views(self) -> set[str]:
        return set()

    def named(self) -> set[str]:
        return set(self.real)

    def waiting(self, tables: Sequence[str]) -> Mapping[str, int]:
        """Marks, and records that no relay has copied yet: of each shard a thousand at most."""
        ahead = self._ahead(tables)
        if gaps := [name for name, unread in ahead.items() if unread.has_gap]:
            raise SourceError(_not_told(gaps))
        unread = Counter({name: stream.unread for name, stream in ahead.items()})
        return +(Counter(self.marks()) + unread)

    def _ahead(self, tables: Sequence[str]) -> dict[str, _Ahead]:
        """Raises: SourceError where a table has another stream than the one that was begun with, or none."""
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
        """A policy of each table that nobody may write it by; whoever may change that policy still can."""
        return [line for name in tables for line in self._denied(self.real[name], self._arn(name))]

    def _denied(self, table: str, arn: str) -> Iterator[str]:
        expiry = f"{self.aws.dynamodb('describe-time-to-live')} --table-name {shlex.quote(table)}"
        yield f"{expiry} # what expires is a change, too, which no policy denies: update-time-to-live switches it off"
        yield f"{self.aws.dynamodb('get-resource-policy')} --resource-arn {arn} # put replaces one that is there"
        written = shlex.quote(json.dumps(_policy(arn)))
        yield f"{self.aws.dynamodb('put-resource-policy')} --resource-arn {arn} --policy {written}"

    def _arn(self, table: str) -> str:
        """As the stream's name says it that was begun with."""
        arn = self.stream_of(table).checkpoints.stream().partition("/stream/")[0]
        return arn or f"arn:aws:dynamodb:REGION:ACCOUNT:table/{self.real[table]}"

    def drops(self, tables: Sequence[str]) -> list[str]:
        return [
            line
            for name in tables
            for line in self.aws.drop(self.real[name], self.stream_of(name).checkpoints.stream())
        ]


class AwsCalls(Struct, frozen=True):
    """Lines for `aws`. `options`: region and profile, a space before each. `endpoint`: of DynamoDB, None is AWS."""

    options: str = ""
    endpoint: Callable[[], str | None] = lambda: None

    def dynamodb(self, command: str) -> str:
        return f"aws dynamodb {command}{self._options(is_aws=False)}"

    def drop(self, table: str, stream: str) -> Iterator[str]:
        """`stream`: its ARN, '' for none. Scaling and alarms first: what watches a table that is gone wakes somebody.

        Scaling has alarms of its own, which go with it.
        """
        named, endpoint = shlex.quote(table), self.endpoint()
        words = {
            "dynamodb": self._options(is_aws=False),
            # A server that is not AWS's has all services, or none; AWS must not be asked in its place.
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


# ── what streams hold behind their checkpoints ──


@dataclass
class _ShardPlace:
    """How far a shard is read here: its first page of records, and where that ends or none was found yet."""

    shard: Checkpoint
    iterator: str | None
    records: list[StreamRecord]

    @property
    def sequence(self) -> str:
        return self.records[-1].sequence if self.records else self.shard.sequence


@dataclass
class _Ahead:
    """`has_gap`: the stream has dropped what no relay has read. Nothing is claimed or kept by reading on."""

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
        """A text that is another one after every change: of each shard's last record, read by a relay or not."""
        # A shard without a record is no change: shards are closed and opened while nothing is written.
        last = sorted(f"{place.shard.shard}={place.sequence}" for place in self.places if place.sequence)
        return hashlib.blake2b("\n".join(last).encode(), digest_size=8).hexdigest()


def _ahead_of(stream: CapturedStream) -> _Ahead:
    """Of a stream that was not begun with nothing."""
    arn, state = stream.checkpoints.stream(), stream.source.state()
    if not arn:
        return _Ahead(stream, "", [], has_gap=False)
    if not state.is_on or state.arn != arn:
        what = f"the stream of table {stream.source.table} does not tell of all changes any more"
        raise SourceError(f"{what}; {stream.source.mend}")
    known = stream.checkpoints.read(arn).shards
    names = {shard.shard for shard in known}
    new = [Checkpoint(one.id, one.parent, "", 0.0) for one in state.shards if one.id not in names]
    places = [_ShardPlace(shard, _iterator(stream, arn, shard), []) for shard in (*known, *new)]
    return _Ahead(stream, arn, places, stream.has_gap(arn))


def _iterator(stream: CapturedStream, arn: str, shard: Checkpoint) -> str | None:
    """Behind the checkpoint; where the stream has dropped that record, at the first that it holds; None where it holds the
    shard no more."""
    if shard.is_finished:
        return None
    after = [StreamPosition("AFTER_SEQUENCE_NUMBER", shard.sequence)] if shard.sequence else []
    for position in (*after, StreamPosition("TRIM_HORIZON")):
        with suppress(LostRecordsError):
            return stream.source.iterator(arn, shard.shard, position)
    return None


def _not_told(tables: Sequence[str]) -> str:
    what = f"no relay has read the streams of {', '.join(tables)} for a day, and they keep no more"
    return f"{what}; the tables' ConsumedWriteCapacityUnits in CloudWatch tell whether they were written"


def _policy(arn: str) -> dict[str, object]:
    statement = {
        "Sid": "MigratedAway",
        "Effect": "Deny",
        "Principal": "*",
        "Action": [f"dynamodb:{action}" for action in _DENIED],
        "Resource": arn,
    }
    return {"Version": "2012-10-17", "Statement": [statement]}
