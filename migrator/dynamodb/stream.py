"""The stream of one DynamoDB table: its shards, places in them, and pages of records, with our errors for AWS's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from migrator.dynamodb.answers import IncompleteAnswerError
from migrator.dynamodb.failures import error_code, gave_up, in_words, passes_at
from migrator.mapping.items.wire import decode_item
from migrator.mapping.model.live import (
    ALL_OF_IT,
    MEND,
    Position,
    RecordPage,
    Shard,
    StreamRecord,
    StreamState,
)
from migrator.runtime.errors import ExpiredIteratorError, LostRecordsError, MigratorError, TargetError
from migrator.runtime.retry import Retry
from migrator.runtime.system import Forked, tell_of_forks

MOST_RECORDS = 1000
CALLS_PER_S = 5
"""GetRecords on one shard. Source: API reference, GetRecords; Developer Guide, "Quotas", "DynamoDB Streams"."""


class DynamoStream(Forked):
    """model.streams.shards.StreamSource; safe to share between threads that read different shards.

    `tables`: a client of DynamoDB, `streams`: of DynamoDB Streams (`service_client("dynamodbstreams", …)`), whose requests
    are dynamodb:DescribeTable, DescribeStream, GetShardIterator and GetRecords to IAM;
    `switch_on` needs UpdateTable. `mend`: as the port has it.
    """

    def __init__(
        self, tables: Any, streams: Any, table: str, retry: Retry | None = None, mend: str = MEND
    ) -> None:
        self.tables = tables
        self.streams = streams
        self.table = table
        self.mend = mend
        self.retry = retry or Retry()
        self._next_call_at: dict[str, float] = {}
        tell_of_forks(self)

    def after_fork(self, *, in_child: bool) -> None:
        """A child that spoke on its parent's connections would read the parent's answers."""
        if in_child:
            self.tables.close()
            self.streams.close()

    def state(self) -> StreamState:
        described = self._table()
        # A stream that was switched off is still named; it says nothing of what is written now.
        if not described.get("StreamSpecification", {}).get("StreamEnabled"):
            return StreamState(described.get("LatestStreamArn", ""), is_on=False, view="")
        arn = str(described["LatestStreamArn"])
        shards: list[Shard] = []
        start: dict[str, str] = {}
        while True:
            asked = {"StreamArn": arn, **start}
            page = self._ask(self.streams, "describe_stream", "StreamDescription", **asked)[
                "StreamDescription"
            ]
            shards += (Shard(shard["ShardId"], shard.get("ParentShardId", "")) for shard in page["Shards"])
            if not page.get("LastEvaluatedShardId"):
                is_on = page["StreamStatus"] in ("ENABLING", "ENABLED")
                return StreamState(arn, is_on, page["StreamViewType"], tuple(shards))
            start = {"ExclusiveStartShardId": page["LastEvaluatedShardId"]}

    def switch_on(self) -> None:
        """A stream with both images; returns when all that is written from then on is in it. One that is on stays.

        Raises: TargetError where the table is not there or may not be changed.
        """
        view = {"StreamEnabled": True, "StreamViewType": ALL_OF_IT}
        try:
            words: dict[str, Any] = {"TableName": self.table, "StreamSpecification": view}
            self._ask(self.tables, "update_table", "TableDescription", **words)
        except TargetError:
            # Also where it is on by now, perhaps by a request of ours whose answer was lost.
            if not self.state().is_on:
                raise
        while (described := self._table())["TableStatus"] != "ACTIVE" or not self._is_enabled(described):
            self.retry.wait(1.0)

    def _table(self) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._ask(self.tables, "describe_table", "Table", TableName=self.table)[
            "Table"
        ]
        return answer

    def _is_enabled(self, described: Mapping[str, Any]) -> bool:
        asked = {"StreamArn": described["LatestStreamArn"], "Limit": 1}
        answer = self._ask(self.streams, "describe_stream", "StreamDescription", **asked)
        return bool(answer["StreamDescription"]["StreamStatus"] == "ENABLED")

    def iterator(self, stream: str, shard: str, position: Position) -> str:
        where = {"SequenceNumber": position.sequence} if position.sequence else {}
        words = {"StreamArn": stream, "ShardId": shard, "ShardIteratorType": position.kind, **where}
        return str(self._ask(self.streams, "get_shard_iterator", "ShardIterator", **words)["ShardIterator"])

    def records(self, stream: str, shard: str, iterator: str, limit: int) -> RecordPage:
        self._wait_for_call(f"{stream} {shard}")
        words = {"ShardIterator": iterator, "Limit": min(limit, MOST_RECORDS)}
        # An answer without records and without the next iterator says that the shard is done: it must be a whole one.
        answer = self._ask(self.streams, "get_records", "Records", **words)
        return RecordPage([_record(record) for record in answer["Records"]], answer.get("NextShardIterator"))

    def _wait_for_call(self, shard: str) -> None:
        """A call that comes too soon would be throttled, and those of another reader of the shard with it."""
        wait_s = self._next_call_at.get(shard, -math.inf) - self.retry.clock()
        if wait_s > 0:
            self.retry.wait(wait_s)
        self._next_call_at[shard] = self.retry.clock() + 1 / CALLS_PER_S

    def _ask(self, client: Any, operation: str, part: str, **words: Any) -> Mapping[str, Any]:
        """The answer, which has the part; what can pass is asked again."""

        def work() -> Mapping[str, Any]:
            answer: Mapping[str, Any] = getattr(client, operation)(**words)
            if answer.get(part) is None:
                raise IncompleteAnswerError(part=part)
            return answer

        def given_up(error: BaseException, tried: str) -> MigratorError:
            return gave_up(f"{operation} on table {self.table}", error, tried)

        what = f"{operation} on table {self.table}"
        try:
            return self.retry.call(what, work, lambda error: passes_at(client, error), given_up)
        except ClientError as error:
            known = _KNOWN.get((operation, error_code(error)))
            if known is not None:
                raise known(self.table, self.mend) from None
            raise in_words(error, operation, self.table, _endpoint(client)) from None
        except BotoCoreError as error:
            raise in_words(error, operation, self.table, _endpoint(client)) from None


def _endpoint(client: Any) -> str:
    return str(client.meta.endpoint_url)


def _record(record: Mapping[str, Any]) -> StreamRecord:
    change = record["dynamodb"]
    old, new = change.get("OldImage"), change.get("NewImage")
    return StreamRecord(
        change["SequenceNumber"],
        change["ApproximateCreationDateTime"].timestamp(),
        decode_item(change["Keys"]),
        None if old is None else decode_item(old),
        None if new is None else decode_item(new),
        old,
        new,
    )


def _expired(table: str, mend: str) -> MigratorError:
    what = f"the place in the stream of table {table} was not asked on from for 15 minutes"
    return ExpiredIteratorError(f"{what}; the checkpoint says where to go on")


def _lost(table: str, mend: str) -> MigratorError:
    what = f"the stream of table {table} does not hold any more what follows the checkpoint"
    return LostRecordsError(f"{what} (it keeps a change for 24 hours), so changes may be lost; {mend}")


def _gone(table: str, mend: str) -> MigratorError:
    """A table that is made again has another stream, so waiting for it would be in vain."""
    what = f"table {table}: there is no such table (any more), and so no stream that tells what changes in it"
    return LostRecordsError(f"{what}; once it is there (again), {mend}")


_KNOWN: dict[tuple[str, str], Callable[[str, str], MigratorError]] = {
    ("describe_table", "ResourceNotFoundException"): _gone,
    ("get_records", "ExpiredIteratorException"): _expired,
    ("get_records", "TrimmedDataAccessException"): _lost,
    ("get_shard_iterator", "TrimmedDataAccessException"): _lost,
    # Of a shard, or of a stream: both are kept for 24 hours behind their end.
    ("get_shard_iterator", "ResourceNotFoundException"): _lost,
    ("get_records", "ResourceNotFoundException"): _lost,
}
"""What AWS calls an error of these operations, and what it means. Source: API reference, "Errors" of each."""
