"""Reads of old tables: segmented scans, queries, batches of keys; rate-limited, retried, never a write."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from msgspec import Struct

from migrator.dynamodb.answers import IncompleteAnswerError, consumed_units
from migrator.dynamodb.failures import Unprocessed, error_code, gave_up, in_words, passes_at
from migrator.mapping.items.wire import decode_item
from migrator.mapping.model.edges import ActionProbe, WiredItem
from migrator.mapping.model.live import (
    ALL_OF_IT,
    MEND,
    RecordPage,
    Shard,
    StreamPosition,
    StreamRecord,
    StreamState,
)
from migrator.mapping.model.table import BATCH_GET_KEYS
from migrator.runtime.errors import (
    ExpiredIteratorError,
    LostRecordsError,
    MigratorError,
    MissingNameError,
    NeverTakenError,
    StoppedError,
    TargetError,
    amount,
)
from migrator.runtime.retry import RateLimit, Retry

_NO_TABLE = "table not found; check tables, region, profile and endpoint of source: dynamodb: in the job"
_THROTTLED = (
    "too many reads for the table's capacity: raise its read capacity, or lower max_read_units"
    " (source: dynamodb: max_read_units); checkpoints are kept, the same command resumes"
)


class DescribedIndex(Struct, frozen=True):
    """`key`: each attribute with its type (S, N or B). Items without one of them are not in the index.
    `whole`: contains all attributes of an item.
    `is_local`: supports consistent reads.
    `partition`: number of attributes, the first ones, of the partition key.
    """

    name: str
    key: Mapping[str, str]
    whole: bool
    is_local: bool
    partition: int = 1


class DescribedTable(Struct, frozen=True):
    """`key`: each attribute with its type (S, N or B).
    `items`, `bytes`: up to six hours old.
    """

    id: str
    key: Mapping[str, str]
    indexes: tuple[DescribedIndex, ...]
    items: int
    bytes: int


class ReadPage(Struct, frozen=True):
    """`count`: items read, if only counts were requested.
    `next_start`: None on the last page.
    """

    items: Sequence[WiredItem]
    count: int
    next_start: Mapping[str, Any] | None


class TableReader:
    """Reads tables by their real names. Thread-safe. Items are in DynamoDB JSON.

    `units`: limit of read units a second.
    Raises, from every method: MissingNameError if the table is gone, StoppedError, TargetError, Interrupted.
    """

    def __init__(self, client: Any, retry: Retry, units: RateLimit) -> None:
        self.client = client
        self.retry = retry
        self.units = units

    def describe(self, table: str) -> DescribedTable:
        call = partial(self.client.describe_table, TableName=table)
        found = self._retried("describe_table", table, call)["Table"]
        types = {part["AttributeName"]: part["AttributeType"] for part in found["AttributeDefinitions"]}
        local, others = found.get("LocalSecondaryIndexes", ()), found.get("GlobalSecondaryIndexes", ())
        ready = [index for index in others if index.get("IndexStatus", "ACTIVE") == "ACTIVE"]
        return DescribedTable(
            str(found.get("TableId") or found.get("TableArn")),
            _key(found, types),
            (
                *(_index(index, types, is_local=True) for index in local),
                *(_index(index, types) for index in ready),
            ),
            int(found.get("ItemCount", 0)),
            int(found.get("TableSizeBytes", 0)),
        )

    def scan(
        self,
        table: str,
        segment: int = 0,
        segments: int = 1,
        start: Mapping[str, Any] | None = None,
        *,
        limit: int | None = None,
        counts: bool = False,
    ) -> Iterator[ReadPage]:
        """Pages of a segment, read consistently. `limit`: items per page. `counts`: return only the number of
        items.
        """
        words: dict[str, Any] = {"ConsistentRead": True}
        if segments > 1:
            words |= {"Segment": segment, "TotalSegments": segments}
        words |= ({"Limit": limit} if limit else {}) | ({"Select": "COUNT"} if counts else {})
        return self._pages("scan", table, words, start)

    def query(self, table: str, key: WiredItem, index: DescribedIndex | None = None) -> Iterator[WiredItem]:
        names = {f"#{number}": name for number, name in enumerate(key)}
        words: dict[str, Any] = {
            "KeyConditionExpression": " AND ".join(f"#{number} = :{number}" for number in range(len(key))),
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": {f":{number}": value for number, value in enumerate(key.values())},
            "ConsistentRead": index is None or index.is_local,
        }
        words |= {"IndexName": index.name, "Select": "ALL_PROJECTED_ATTRIBUTES"} if index else {}
        return self.asked(table, words)

    def asked(self, table: str, words: Mapping[str, Any]) -> Iterator[WiredItem]:
        for page in self._pages("query", table, words, None):
            yield from page.items

    def one(self, table: str, key: WiredItem, *, consistent: bool) -> list[WiredItem]:
        words = {"ConsistentRead": consistent, "ReturnConsumedCapacity": "TOTAL"}
        self.units.wait()
        call = partial(self.client.get_item, TableName=table, Key=key, **words)
        answer = self._retried("get_item", table, call)
        self.units.took(math.ceil(consumed_units(answer)))
        return [answer["Item"]] if answer.get("Item") else []

    def get(self, table: str, keys: Sequence[WiredItem], *, consistent: bool = True) -> Iterator[WiredItem]:
        """Existing items, in any order. Keys must be distinct."""
        for begin in range(0, len(keys), BATCH_GET_KEYS):
            yield from self._batch(table, list(keys[begin : begin + BATCH_GET_KEYS]), consistent=consistent)

    def _batch(self, table: str, keys: list[WiredItem], *, consistent: bool) -> list[WiredItem]:
        """Tries are counted from the last one that read something."""
        items: list[WiredItem] = []
        left = keys

        def once() -> None:
            nonlocal left
            request = {table: {"Keys": left, "ConsistentRead": consistent}}
            answer = self.client.batch_get_item(RequestItems=request, ReturnConsumedCapacity="TOTAL")
            self.units.took(math.ceil(consumed_units(answer)))
            items.extend(answer.get("Responses", {}).get(table, []))
            before, left = len(left), (answer.get("UnprocessedKeys") or {}).get(table, {}).get("Keys", [])
            if left and len(left) == before:
                raise Unprocessed(f"{amount(before, 'key')} not read")

        while left:
            self.units.wait()
            self._retried("batch_get_item", table, once)
        return items

    def _pages(
        self, operation: str, table: str, words: Mapping[str, Any], start: Mapping[str, Any] | None
    ) -> Iterator[ReadPage]:
        call = partial(
            getattr(self.client, operation), TableName=table, ReturnConsumedCapacity="TOTAL", **words
        )
        while True:
            self.units.wait()
            where = {"ExclusiveStartKey": dict(start)} if start else {}
            answer = self._retried(operation, table, partial(call, **where))
            self.units.took(math.ceil(consumed_units(answer)))
            start = answer.get("LastEvaluatedKey") or None
            yield ReadPage(answer.get("Items", ()), int(answer.get("Count", 0)), start)
            if start is None:
                return

    def _retried(self, operation: str, table: str, work: Callable[[], Any]) -> Any:
        what = f"DynamoDB {operation} on table {table}"

        def given_up(error: BaseException, tried: str) -> MigratorError:
            made = gave_up(what, error, tried)
            if not isinstance(made, NeverTakenError):
                return made
            return StoppedError(f"{what} was throttled to the last try, after {tried}; {_THROTTLED}")

        try:
            return self.retry.call(what, work, lambda error: passes_at(self.client, error), given_up)
        except (ClientError, BotoCoreError) as error:
            if error_code(error) == "ResourceNotFoundException":
                raise MissingNameError(f"table {table}: {_NO_TABLE}") from None
            raise in_words(error, operation, table, self.client.meta.endpoint_url) from None


def _index(index: Mapping[str, Any], types: Mapping[str, str], *, is_local: bool = False) -> DescribedIndex:
    whole = index.get("Projection", {}).get("ProjectionType") == "ALL"
    partition = sum(part["KeyType"] == "HASH" for part in index["KeySchema"])
    return DescribedIndex(index["IndexName"], _key(index, types), whole, is_local, partition)


def _key(of: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, str]:
    parts = sorted(of["KeySchema"], key=lambda part: str(part["KeyType"]))
    return {part["AttributeName"]: types[part["AttributeName"]] for part in parts}


# ── The stream of one DynamoDB table: its shards, places in them, and pages of records, with our errors for AWS's ──

MOST_RECORDS = 1000
CALLS_PER_S = 5
"""GetRecords calls per shard. Source: API reference, GetRecords; Developer Guide, "Quotas", "DynamoDB Streams"."""


_STREAM_ACTIONS = ("DescribeStream", "GetShardIterator", "GetRecords")
_NO_STREAM = "not tried: the table has no stream; `migrator capture install` switches one on"
_NOT_REACHED = (
    "not tried: it needs the answer of another action; run the command again once that one is allowed"
)


def _probe(action: str, call: Callable[[], None]) -> ActionProbe:
    try:
        call()
    except (KeyError, IndexError):
        return ActionProbe(action, _NOT_REACHED, tried=False)
    except StoppedError as error:  # a reader of the same shard may use up its calls
        return ActionProbe(action, str(error), tried=False)
    except TargetError as error:
        return ActionProbe(action, str(error))
    return ActionProbe(action)


class DynamoStream:
    """The stream of one table. Thread-safe for different shards.

    IAM actions: dynamodb:DescribeTable, DescribeStream, GetShardIterator and GetRecords; `switch_on` needs
    UpdateTable. `streams`: `service_client("dynamodbstreams", …)`.
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

    def state(self) -> StreamState:
        described = self._table()
        # A table keeps naming a stream that was disabled; it does not contain current writes.
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
        """Enable a stream with both images, unless one is enabled; return once it records all further writes.

        Raises: TargetError if the table does not exist or may not be changed.
        """
        view = {"StreamEnabled": True, "StreamViewType": ALL_OF_IT}
        try:
            words: dict[str, Any] = {"TableName": self.table, "StreamSpecification": view}
            self._ask(self.tables, "update_table", "TableDescription", **words)
        except TargetError:
            # Also if it is enabled by now, perhaps by our own request with a lost answer.
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

    def probe(self) -> list[ActionProbe]:
        """One probe per action that reads the stream; none is tried without a stream."""
        described = self._table()
        if not described.get("StreamSpecification", {}).get("StreamEnabled"):
            return [ActionProbe(action, _NO_STREAM, tried=False) for action in _STREAM_ACTIONS]
        stream = str(described["LatestStreamArn"])
        found: dict[str, Any] = {}

        def describe() -> None:
            words = {"StreamArn": stream, "Limit": 1}
            answer = self._ask(self.streams, "describe_stream", "StreamDescription", **words)
            found["shard"] = answer["StreamDescription"]["Shards"][0]["ShardId"]

        def iterate() -> None:
            found["iterator"] = self.iterator(stream, found["shard"], StreamPosition("TRIM_HORIZON"))

        def read() -> None:
            self.records(stream, found["shard"], found["iterator"], 1)

        return list(map(_probe, _STREAM_ACTIONS, (describe, iterate, read)))

    def iterator(self, stream: str, shard: str, position: StreamPosition) -> str:
        where = {"SequenceNumber": position.sequence} if position.sequence else {}
        words = {"StreamArn": stream, "ShardId": shard, "ShardIteratorType": position.kind, **where}
        return str(self._ask(self.streams, "get_shard_iterator", "ShardIterator", **words)["ShardIterator"])

    def records(self, stream: str, shard: str, iterator: str, limit: int) -> RecordPage:
        self._wait_for_call(f"{stream} {shard}")
        words = {"ShardIterator": iterator, "Limit": min(limit, MOST_RECORDS)}
        # Without records and a next iterator the answer ends the shard, so it must be complete.
        answer = self._ask(self.streams, "get_records", "Records", **words)
        return RecordPage([_record(record) for record in answer["Records"]], answer.get("NextShardIterator"))

    def _wait_for_call(self, shard: str) -> None:
        """Wait for the call rate: a call too soon is throttled, and so are those of the shard's other readers."""
        wait_s = self._next_call_at.get(shard, -math.inf) - self.retry.clock()
        if wait_s > 0:
            self.retry.wait(wait_s)
        self._next_call_at[shard] = self.retry.clock() + 1 / CALLS_PER_S

    def _ask(self, client: Any, operation: str, part: str, **words: Any) -> Mapping[str, Any]:
        def work() -> Mapping[str, Any]:
            answer: Mapping[str, Any] = getattr(client, operation)(**words)
            if answer.get(part) is None:
                raise IncompleteAnswerError(part=part)
            return answer

        what = f"{operation} on table {self.table}"
        try:
            return self.retry.call(what, work, partial(passes_at, client), partial(gave_up, what))
        except (ClientError, BotoCoreError) as error:
            known = _KNOWN.get((operation, error_code(error)))
            if known is not None:
                raise known(self.table, self.mend) from None
            raise in_words(error, operation, self.table, client.meta.endpoint_url) from None


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
    what = f"the place in the stream of table {table} was not read on for 15 minutes"
    return ExpiredIteratorError(f"{what}; the checkpoint has the place to resume from")


def _lost(table: str, mend: str) -> MigratorError:
    what = f"the stream of table {table} no longer has the records after the checkpoint"
    return LostRecordsError(f"{what} (it keeps a change for 24 hours), so changes may be lost; {mend}")


def _gone(table: str, mend: str) -> MigratorError:
    """The error of a missing table. A re-created one has another stream, so waiting does not help."""
    what = f"table {table} not found, so it has no stream of its changes"
    return LostRecordsError(f"{what}; once it exists, {mend}")


_KNOWN: dict[tuple[str, str], Callable[[str, str], MigratorError]] = {
    ("describe_table", "ResourceNotFoundException"): _gone,
    ("get_records", "ExpiredIteratorException"): _expired,
    ("get_records", "TrimmedDataAccessException"): _lost,
    ("get_shard_iterator", "TrimmedDataAccessException"): _lost,
    # Of a shard, or of a stream: both are kept for 24 hours.
    ("describe_stream", "ResourceNotFoundException"): _lost,
    ("get_shard_iterator", "ResourceNotFoundException"): _lost,
    ("get_records", "ResourceNotFoundException"): _lost,
}
"""What AWS's error codes of these operations mean. Source: API reference, "Errors" of each."""
