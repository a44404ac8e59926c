"""What old tables of DynamoDB tell of changes, by their streams; and how writes to them end, as commands of `aws`."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from migrator.documents.capture.install import CapturedStream
from migrator.model.errors import LostRecordsError, MigratorError, SourceError, StoppedError
from migrator.model.live import ActivityCounts
from migrator.model.streams.shards import Checkpoint, Position, StreamRecord, StreamState

_AT_MOST = 1_000
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


@dataclass(frozen=True)
class StreamActivity:
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
        ahead = {name: self._ahead(name) for name in tables}
        gaps = [name for name, unread in ahead.items() if unread.has_gap]
        counts = {name: unread.last for name, unread in ahead.items()}
        return ActivityCounts(counts, None, _COUNTED_BY, _not_told(gaps) if gaps else "")

    def views(self) -> set[str]:
        return set()

    def named(self) -> set[str]:
        return set(self.real)

    def waiting(self, tables: Sequence[str]) -> Mapping[str, int]:
        """Marks, and records that no relay has copied yet: of each shard a thousand at most."""
        ahead = {name: self._ahead(name) for name in tables}
        if gaps := [name for name, unread in ahead.items() if unread.has_gap]:
            raise SourceError(_not_told(gaps))
        unread = Counter({name: stream.records for name, stream in ahead.items()})
        return +(Counter(self.marks()) + unread)

    def _ahead(self, table: str) -> _Ahead:
        """Raises: SourceError where the table has another stream than the one that was begun with, or none."""
        stream = self.stream_of(table)
        try:
            arn, state = stream.checkpoints.stream(), stream.source.state()
            if not arn or (state.is_on and state.arn == arn):
                return _ahead_of(stream, arn, state)
        except StoppedError:
            raise
        except MigratorError as error:
            raise SourceError(str(error)) from None
        what = f"the stream of table {stream.source.table} does not tell of all changes any more"
        raise SourceError(f"{what}; {stream.source.mend}")

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


@dataclass(frozen=True)
class AwsCalls:
    """Lines for `aws`. `options`: region and profile, a space before each. `endpoint`: of DynamoDB, None is AWS."""

    options: str = ""
    endpoint: Callable[[], str | None] = lambda: None

    def dynamodb(self, command: str) -> str:
        endpoint = self.endpoint()
        return f"aws dynamodb {command}{self.options}{f' --endpoint-url {endpoint}' if endpoint else ''}"

    def other(self, command: str) -> str:
        """Of another service: a server that is not AWS's has them all, or none; AWS must not be asked in its place."""
        endpoint = self.endpoint()
        is_aws = endpoint is None or any(domain in endpoint for domain in _AWS)
        return f"aws {command}{self.options}{'' if is_aws else f' --endpoint-url {endpoint}'}"

    def drop(self, table: str, stream: str) -> Iterator[str]:
        """`stream`: its ARN, '' for none. Scaling and alarms first: what watches a table that is gone wakes somebody.

        Scaling has alarms of its own, which go with it.
        """
        named = shlex.quote(table)
        dimension = f"--namespace AWS/DynamoDB --dimensions Name=TableName,Value={named}"
        yield f"# {table}: who still uses it, readers of its stream, its scaling, alarms and a backup, then the table"
        for metric, of in (("Read", "reads it"), ("Write", "writes it")):
            daily = "--period 86400 --statistics Sum --start-time FROM --end-time TO"
            used = f"{self.other('cloudwatch get-metric-statistics')} --metric-name Consumed{metric}CapacityUnits"
            yield f"{used} {dimension} {daily} # 0 where nobody {of} any more"
        if stream:
            yield f"{self.other('lambda list-event-source-mappings')} --event-source-arn {stream} # others that read it"
        yield from self._scaling(named)
        yield (
            f"{self.other('cloudwatch describe-alarms')} --query"
            f" \"MetricAlarms[?Dimensions[?Name=='TableName' && Value=='{table}']].AlarmName\""
        )
        yield f"{self.other('cloudwatch delete-alarms')} --alarm-names NAMES # those that the line above gave"
        yield f"{self.other('cloudwatch list-metrics')} {dimension} # what dashboards may still show"
        backup = f"{self.dynamodb('create-backup')} --table-name {named} --backup-name {named}-last"
        yield f"{backup} # AVAILABLE before the table goes"
        update = f"{self.dynamodb('update-table')} --table-name {named}"
        yield f"{update} --stream-specification StreamEnabled=false"
        yield f"{update} --no-deletion-protection-enabled"
        yield f"{self.dynamodb('delete-table')} --table-name {named}"

    def _scaling(self, named: str) -> Iterator[str]:
        space, command = "--service-namespace dynamodb", self.other("application-autoscaling {}")
        look = f"{command.format('describe-scalable-targets')} {space}"
        yield f"{look} --resource-ids table/{named} # indexes: table/{named}/index/NAME"
        for dimension in ("ReadCapacityUnits", "WriteCapacityUnits"):
            away = f"{command.format('deregister-scalable-target')} {space} --resource-id table/{named}"
            yield f"{away} --scalable-dimension dynamodb:table:{dimension} # where the line above gave it"


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What a stream holds behind its checkpoints. `last`: a text that is another one after every change. `has_gap`: it has
    dropped what no relay has read."""

    last: str
    records: int
    has_gap: bool


def _ahead_of(stream: CapturedStream, arn: str, state: StreamState) -> _Ahead:
    """Of a stream that was not begun with nothing."""
    known = stream.checkpoints.read(arn).shards
    names = {shard.shard for shard in known}
    new = [Checkpoint(one.id, one.parent, "", 0.0) for one in state.shards if arn and one.id not in names]
    unread = [(shard, _next(stream, arn, shard)) for shard in (*known, *new)]
    last = ((shard.shard, records[-1].sequence if records else shard.sequence) for shard, records in unread)
    # A shard without a record is no change: shards are closed and opened while nothing is written.
    told = "\n".join(sorted(f"{shard}={sequence}" for shard, sequence in last if sequence))
    digest = hashlib.blake2b(told.encode(), digest_size=8).hexdigest()
    return _Ahead(digest, sum(len(records) for _, records in unread), bool(arn) and stream.has_gap(arn))


def _not_told(tables: Sequence[str]) -> str:
    what = f"no relay has read the streams of {', '.join(tables)} for a day, and they keep no more"
    return f"{what}; the tables' ConsumedWriteCapacityUnits in CloudWatch tell whether they were written"


def _next(stream: CapturedStream, arn: str, shard: Checkpoint) -> list[StreamRecord]:
    """Those behind the checkpoint; none where the stream has dropped the shard itself."""
    if shard.is_finished:
        return []
    with suppress(LostRecordsError):
        iterator = _behind(stream, arn, shard)
        return stream.source.records(arn, shard.shard, iterator, _AT_MOST).records
    return []


def _behind(stream: CapturedStream, arn: str, shard: Checkpoint) -> str:
    """Where the stream has dropped that record, it still has all that it holds after it."""
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
