"""DynamoDB Streams as AWS answers them, in memory: shards that split, iterators that expire, records that are trimmed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

from migrator.mapping.items.wire import encode_item
from migrator.mapping.model.table import Item

KEPT_S = 24 * 3600.0
EXPIRES_S = 15 * 60.0
PAGE_BYTES = 1024 * 1024
_HASHES = 2**32


@dataclass
class FakeShard:
    """`begin` to `end`: hashes of the partition keys whose changes it takes."""

    id: str
    begin: int
    end: int
    parent: str = ""
    records: list[dict[str, Any]] = field(default_factory=list)
    trimmed: int = 0
    closed_at: float | None = None


class FakeStreams:
    """A table with a stream, and both clients of it: `describe_table` beside the operations of DynamoDB Streams.

    `now`: seconds since 1970, moved on by `advance` and `sleep`. `names_at_once`: shards in one answer of DescribeStream.
    `key`: the table's key attributes, the partition key first.
    """

    def __init__(
        self,
        table: str = "Shop",
        view: str = "NEW_AND_OLD_IMAGES",
        names_at_once: int = 100,
        key: tuple[str, ...] = ("PK", "SK"),
    ) -> None:
        self.table = table
        self.key = key
        self.view = view
        self.names_at_once = names_at_once
        self.now = 1_800_000_000.0
        self.meta = SimpleNamespace(endpoint_url="http://fake")
        self.items: dict[tuple[Any, ...], Item] = {}
        self.calls: list[str] = []
        self.failing: list[str] = []
        """Codes of errors that the next calls end with."""
        self.empty_pages = 0
        """How many come before the first records of each iterator that is asked for."""
        self._number = 0
        self.create_anew()

    # ── what happens to the table ──

    def put(self, item: Item) -> None:
        before = self.items.get(self._key(item))
        self.items[self._key(item)] = dict(item)
        if before != item:
            self._record("INSERT" if before is None else "MODIFY", item, before, item)

    def delete(self, key: Item) -> None:
        before = self.items.pop(self._key(key), None)
        if before is not None:
            self._record("REMOVE", key, before, None)

    def split(self, number: int = 0) -> None:
        """Closes one of the open shards; two children take its keys."""
        parent = self.open_shards[number % len(self.open_shards)]
        middle = (parent.begin + parent.end) // 2
        self._close(parent)
        for begin, end in ((parent.begin, middle), (middle, parent.end)):
            self._add(begin, end, parent.id)

    def roll(self, number: int = 0) -> None:
        """Closes one of the open shards; one child takes its keys, as every few hours."""
        parent = self.open_shards[number % len(self.open_shards)]
        self._close(parent)
        self._add(parent.begin, parent.end, parent.id)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self._trim()

    def switch_off(self) -> None:
        self.is_on = False
        for shard in self.open_shards:
            self._close(shard)

    def create_anew(self) -> None:
        self._number += 1
        self.is_on = True
        self.shards: list[FakeShard] = []
        self.items = {}
        self.arn = f"arn:aws:dynamodb:eu-central-1:123456789012:table/{self.table}/stream/{self._number:09d}"
        self._add(0, _HASHES, "")

    @property
    def open_shards(self) -> list[FakeShard]:
        return [shard for shard in self.shards if shard.closed_at is None]

    # ── the clients ──

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def close(self) -> None:
        return

    def describe_table(self, TableName: str) -> dict[str, Any]:
        self._called("DescribeTable")
        if TableName != self.table:
            raise _error("ResourceNotFoundException", "DescribeTable")
        specification = {"StreamSpecification": {"StreamEnabled": True}} if self.is_on else {}
        return {"Table": {"LatestStreamArn": self.arn, "TableStatus": "ACTIVE", **specification}}

    def update_table(self, TableName: str, StreamSpecification: dict[str, Any]) -> dict[str, Any]:
        self._called("UpdateTable")
        if TableName != self.table:
            raise _error("ResourceNotFoundException", "UpdateTable")
        if StreamSpecification["StreamEnabled"] == self.is_on:
            raise _error("ValidationException", "UpdateTable")
        items, self.view = self.items, StreamSpecification["StreamViewType"]
        self.create_anew()
        self.items = items
        return {"TableDescription": {"LatestStreamArn": self.arn}}

    def describe_stream(
        self, StreamArn: str, ExclusiveStartShardId: str = "", Limit: int = 100
    ) -> dict[str, Any]:
        self._called("DescribeStream")
        self._require(StreamArn, "DescribeStream")
        names = [shard for shard in self.shards if shard.id > ExclusiveStartShardId]
        page = names[: self.names_at_once]
        last = {"LastEvaluatedShardId": page[-1].id} if len(names) > len(page) else {}
        described = [
            {"ShardId": one.id, **({"ParentShardId": one.parent} if one.parent else {})} for one in page
        ]
        status = "ENABLED" if self.is_on else "DISABLED"
        view = {"StreamStatus": status, "StreamViewType": self.view}
        return {"StreamDescription": {"StreamArn": self.arn, **view, "Shards": described, **last}}

    def get_shard_iterator(
        self, StreamArn: str, ShardId: str, ShardIteratorType: str, SequenceNumber: str = ""
    ) -> dict[str, Any]:
        self._called("GetShardIterator")
        self._require(StreamArn, "GetShardIterator")
        shard = self._shard(ShardId, "GetShardIterator")
        at = {"TRIM_HORIZON": shard.trimmed, "LATEST": shard.trimmed + len(shard.records)}.get(
            ShardIteratorType
        )
        if at is None:
            numbers = [record["dynamodb"]["SequenceNumber"] for record in shard.records]
            if SequenceNumber not in numbers:
                raise _error("TrimmedDataAccessException", "GetShardIterator")
            at = shard.trimmed + numbers.index(SequenceNumber)
            at += ShardIteratorType == "AFTER_SEQUENCE_NUMBER"
        return {"ShardIterator": json.dumps([self.arn, shard.id, at, self.now, self.empty_pages])}

    def get_records(self, ShardIterator: str, Limit: int) -> dict[str, Any]:
        self._called("GetRecords")
        assert 1 <= Limit <= 1000
        arn, name, at, issued_at, empty = json.loads(ShardIterator)
        if self.now - issued_at >= EXPIRES_S or arn != self.arn:
            raise _error("ExpiredIteratorException", "GetRecords")
        shard = self._shard(name, "GetRecords")
        if at < shard.trimmed:
            raise _error("TrimmedDataAccessException", "GetRecords")
        if empty:
            return {
                "Records": [],
                "NextShardIterator": json.dumps([self.arn, name, at, self.now, empty - 1]),
            }
        page = list(_within(shard.records[at - shard.trimmed :][:Limit], PAGE_BYTES))
        reached = at + len(page)
        is_last = shard.closed_at is not None and reached == shard.trimmed + len(shard.records)
        following = (
            {} if is_last else {"NextShardIterator": json.dumps([self.arn, name, reached, self.now, 0])}
        )
        return {"Records": page, **following}

    # ── ──

    def _key(self, item: Item) -> tuple[Any, ...]:
        return tuple(item[name] for name in self.key)

    def _called(self, operation: str) -> None:
        self.calls.append(operation)
        if self.failing:
            raise _error(self.failing.pop(0), operation)

    def _require(self, arn: str, operation: str) -> None:
        if arn != self.arn:
            raise _error("ResourceNotFoundException", operation)

    def _shard(self, name: str, operation: str) -> FakeShard:
        for shard in self.shards:
            if shard.id == name:
                return shard
        raise _error("ResourceNotFoundException", operation)

    def _add(self, begin: int, end: int, parent: str) -> None:
        self._number += 1
        self.shards.append(FakeShard(f"shardId-{self._number:020d}", begin, end, parent))

    def _close(self, shard: FakeShard) -> None:
        shard.closed_at = self.now

    def _record(self, event: str, key: Item, old: Item | None, new: Item | None) -> None:
        if not self.is_on:
            return
        self._number += 1
        images = {"OldImage": old, "NewImage": new}
        change = {
            "ApproximateCreationDateTime": datetime.fromtimestamp(int(self.now), UTC),
            "Keys": encode_item({name: key[name] for name in self.key}),
            "SequenceNumber": f"{self._number:021d}",
            **{name: encode_item(image) for name, image in images.items() if image is not None},
        }
        hashed = zlib.crc32(str(key[self.key[0]]).encode())
        shard = next(shard for shard in self.open_shards if shard.begin <= hashed < shard.end)
        shard.records.append({"eventName": event, "dynamodb": change})

    def _trim(self) -> None:
        """Records go when they are a day old, a closed shard a day after its end."""
        horizon = self.now - KEPT_S
        for shard in self.shards:
            while shard.records and _created_at(shard.records[0]) < horizon:
                del shard.records[0]
                shard.trimmed += 1
        self.shards = [
            shard for shard in self.shards if shard.closed_at is None or shard.closed_at >= horizon
        ]


def _created_at(record: dict[str, Any]) -> float:
    return float(record["dynamodb"]["ApproximateCreationDateTime"].timestamp())


def _within(records: list[dict[str, Any]], size: int) -> Iterator[dict[str, Any]]:
    """Records up to so many bytes, one at least."""
    taken = 0
    for record in records:
        taken += len(json.dumps(record, default=str))
        if taken > size and taken > len(json.dumps(record, default=str)):
            return
        yield record


def _error(code: str, operation: str) -> ClientError:
    answer = {"Error": {"Code": code, "Message": "so it is"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    return ClientError(answer, operation)
