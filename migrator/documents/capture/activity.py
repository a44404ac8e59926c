"""What old tables of DynamoDB tell of changes, by their streams; and how writes to them end, as commands of `aws`."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from migrator.documents.capture.install import CapturedStream
from migrator.model.errors import LostRecordsError, MigratorError, SourceError, StoppedError
from migrator.model.live import ActivityCounts
from migrator.model.streams.shards import Checkpoint, Position, StreamRecord

_AT_MOST = 1_000
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


@dataclass(frozen=True)
class StreamActivity:
    """model.live.Activity. DynamoDB keeps no transaction open, and does not tell who writes.

    `captured`: tables whose streams are read. `real`: the account's name of each table that the job names; `where`: options
    of `aws` that name the account's part. `marks`: those that wait, by table.
    """

    stream_of: Callable[[str], CapturedStream]
    marks: Callable[[], Mapping[str, int]]
    captured: Collection[str]
    real: Mapping[str, str]
    where: str

    def look(self, tables: Sequence[str]) -> ActivityCounts:
        """Raises: SourceError where a stream cannot be read; StoppedError."""
        if unread := [name for name in tables if not self.stream_of(name).checkpoints.stream()]:
            blind = f"the streams of {', '.join(unread)} are not read"
            return ActivityCounts({}, None, _COUNTED_BY, blind)
        return ActivityCounts({name: self._last(name) for name in tables}, None, _COUNTED_BY)

    def views(self) -> set[str]:
        return set()

    def named(self) -> set[str]:
        return set(self.real)

    def waiting(self) -> Mapping[str, int]:
        """Marks, and records that no relay has copied yet: of each shard a thousand at most."""
        waiting = Counter(self.marks())
        for name in self.captured:
            waiting[name] += sum(len(records) for _, records in self._unread(name))
        return +waiting

    def _last(self, table: str) -> str:
        """A text that is another one after every change: of each shard's last record, read or not."""
        last = [
            f"{shard.shard}={records[-1].sequence if records else shard.sequence}"
            for shard, records in self._unread(table)
        ]
        # A shard without a record is no change: shards are closed and opened while nothing is written.
        told = "\n".join(sorted(one for one in last if not one.endswith("=")))
        return hashlib.blake2b(told.encode(), digest_size=8).hexdigest()

    def _unread(self, table: str) -> list[tuple[Checkpoint, list[StreamRecord]]]:
        """By shard, its next records behind its checkpoint; of a stream that was not begun with nothing.

        Raises: SourceError where the stream does not tell of all changes any more.
        """
        stream = self.stream_of(table)
        try:
            arn, state = stream.checkpoints.stream(), stream.source.state()
            known = stream.checkpoints.read(arn).shards
            names = {shard.shard for shard in known}
            new = [Checkpoint(one.id, one.parent, "", 0.0) for one in state.shards if one.id not in names]
            if not stream.is_lost(state):
                return [(shard, _next(stream, arn, shard)) for shard in [*known, *(new if arn else [])]]
        except StoppedError:
            raise
        except MigratorError as error:
            raise SourceError(str(error)) from None
        what = f"the stream of table {stream.source.table} does not tell of all changes any more"
        raise SourceError(f"{what}; {stream.source.mend}")

    # ── the end of the old tables, printed and never run ──

    def read_only(self, tables: Sequence[str]) -> list[str]:
        """A policy of each table that nobody may write it by; whoever may change that policy still can."""
        arns = [self._arn(name) for name in tables]
        return [
            f"aws dynamodb put-resource-policy{self.where} --resource-arn {arn}"
            f" --policy {shlex.quote(json.dumps(_policy(arn)))}"
            for arn in arns
        ]

    def _arn(self, table: str) -> str:
        """As the stream's name says it that was begun with."""
        arn = self.stream_of(table).checkpoints.stream().partition("/stream/")[0]
        return arn or f"arn:aws:dynamodb:REGION:ACCOUNT:table/{self.real[table]}"

    def drops(self, tables: Sequence[str]) -> list[str]:
        return [line for name in tables for line in self._drop(self.real[name])]

    def _drop(self, real: str) -> Iterator[str]:
        """Alarms and scaling first: what watches a table that is gone wakes somebody."""
        named = shlex.quote(real)
        dimension = f"--namespace AWS/DynamoDB --dimensions Name=TableName,Value={named}"
        yield f"# {real}: its alarms, scaling and a backup, then the table"
        yield (
            f"aws cloudwatch describe-alarms{self.where} --query"
            f" \"MetricAlarms[?Dimensions[?Name=='TableName' && Value=='{real}']].AlarmName\""
        )
        yield f"aws cloudwatch delete-alarms{self.where} --alarm-names NAMES # those that the line above gave"
        yield f"aws cloudwatch list-metrics{self.where} {dimension} # what dashboards may still show"
        yield (
            f"aws application-autoscaling describe-scalable-targets{self.where} --service-namespace dynamodb"
            f" --resource-ids table/{named} # deregister-scalable-target each, of its indexes, too"
        )
        yield f"aws dynamodb create-backup{self.where} --table-name {named} --backup-name {named}-last"
        yield (
            f"aws dynamodb update-table{self.where} --table-name {named} --stream-specification StreamEnabled=false"
        )
        yield f"aws dynamodb update-table{self.where} --table-name {named} --no-deletion-protection-enabled"
        yield f"aws dynamodb delete-table{self.where} --table-name {named}"


def _next(stream: CapturedStream, arn: str, shard: Checkpoint) -> list[StreamRecord]:
    if shard.is_finished:
        return []
    iterator = _behind(stream, arn, shard)
    return stream.source.records(arn, shard.shard, iterator, _AT_MOST).records


def _behind(stream: CapturedStream, arn: str, shard: Checkpoint) -> str:
    """A stream that tells of all changes, and has dropped this record, still has all that follow it."""
    if shard.sequence:
        with suppress(LostRecordsError):
            return stream.source.iterator(arn, shard.shard, Position("AFTER_SEQUENCE_NUMBER", shard.sequence))
    return stream.source.iterator(arn, shard.shard, Position("TRIM_HORIZON"))


def _policy(arn: str) -> dict[str, object]:
    statement = {
        "Sid": "MigratedAway",
        "Effect": "Deny",
        "Principal": "*",
        "Action": [f"dynamodb:{action}" for action in _DENIED],
        "Resource": arn,
    }
    return {"Version": "2012-10-17", "Statement": [statement]}
