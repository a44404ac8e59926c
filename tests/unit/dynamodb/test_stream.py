"""Requests to DynamoDB Streams: in words what AWS refuses, asked again what can pass, no faster than it takes."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.dynamodb.tables import CALLS_PER_S, DynamoStream
from migrator.mapping.model.live import StreamPosition
from migrator.runtime.errors import ExpiredIteratorError, LostRecordsError, StoppedError, TargetError
from migrator.runtime.retry import Backoff, Retry
from tests import pins
from tests.fakes.streams import EXPIRES_S, KEPT_S, FakeStreams

HORIZON = StreamPosition("TRIM_HORIZON")


@pytest.fixture
def fake() -> FakeStreams:
    return FakeStreams()


@pytest.fixture
def source(fake: FakeStreams) -> DynamoStream:
    retry = Retry(Backoff(attempts=4), sleep=fake.sleep, clock=fake.clock)
    return DynamoStream(fake, fake, "Shop", retry)


def first_shard(source: DynamoStream) -> tuple[str, str]:
    state = source.state()
    return state.arn, state.shards[0].id


def test_all_answers_together_name_the_shards_with_their_parents(
    fake: FakeStreams, source: DynamoStream
) -> None:
    fake.names_at_once = 2
    for number in range(4):
        fake.split(number)
    shards = source.state().shards
    assert [(shard.id, shard.parent) for shard in shards] == [
        (shard.id, shard.parent) for shard in fake.shards
    ]
    assert len(shards) == 9
    assert fake.calls == ["DescribeTable", *["DescribeStream"] * 5]


@pytest.mark.parametrize("code", ["LimitExceededException", "ThrottlingException", "InternalServerError"])
def test_what_can_pass_is_requested_again(fake: FakeStreams, source: DynamoStream, code: str) -> None:
    fake.put({"PK": "a", "SK": "A"})
    where = first_shard(source)
    iterator = source.iterator(*where, HORIZON)
    fake.failing = [code] * 3
    assert len(source.records(*where, iterator, 10).records) == 1
    fake.failing = [code] * 9
    with pins.refused(StoppedError):
        source.records(*where, iterator, 10)


def test_shard_pages_are_read_no_faster_than_the_rate_limit(fake: FakeStreams, source: DynamoStream) -> None:
    fake.split()
    arn, first, second = (fake.arn, *(shard.id for shard in fake.open_shards))
    iterators = {shard: source.iterator(arn, shard, HORIZON) for shard in (first, second)}
    began = fake.now
    for shard in (first, second) * 20:
        source.records(arn, shard, iterators[shard], 10)
    assert fake.now - began == pytest.approx(19 / CALLS_PER_S), "each shard has its own rate"


def test_an_answer_without_records_is_not_the_end_of_a_shard(
    fake: FakeStreams, source: DynamoStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = first_shard(source)
    iterator = source.iterator(*where, HORIZON)
    answers: list[dict[str, Any]] = [{}, {"Records": [], "NextShardIterator": "next"}]
    monkeypatch.setattr(fake, "get_records", lambda **_: answers.pop(0))
    assert source.records(*where, iterator, 10).next_iterator == "next"


def test_expired_stream_position_differs_from_lost_records(fake: FakeStreams, source: DynamoStream) -> None:
    fake.put({"PK": "a", "SK": "A"})
    where = first_shard(source)
    iterator = source.iterator(*where, HORIZON)
    (record,) = source.records(*where, iterator, 10).records
    fake.advance(EXPIRES_S)
    with pins.refused(ExpiredIteratorError, "minutes"):
        source.records(*where, iterator, 10)
    fake.advance(KEPT_S - EXPIRES_S - 1)
    iterator = source.iterator(*where, HORIZON)
    fake.advance(2)
    with pins.refused(LostRecordsError, "reverse"):
        source.records(*where, iterator, 10)
    with pins.refused(LostRecordsError, "follows"):
        source.iterator(*where, StreamPosition("AFTER_SEQUENCE_NUMBER", record.sequence))


def test_a_shard_or_a_stream_that_is_gone_has_lost_its_records(
    fake: FakeStreams, source: DynamoStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    arn, shard = first_shard(source)
    with pytest.raises(LostRecordsError):
        source.iterator(arn, "shardId-none", HORIZON)
    with pytest.raises(LostRecordsError):
        source.iterator(f"{arn}9", shard, HORIZON)
    gone = fake.describe_table(TableName=source.table)["Table"] | {"LatestStreamArn": f"{arn}9"}
    monkeypatch.setattr(fake, "describe_table", lambda **_: {"Table": gone})
    with pytest.raises(LostRecordsError):
        source.state()


def test_refusal_names_the_operation_and_the_needed_right(fake: FakeStreams, source: DynamoStream) -> None:
    fake.failing = ["AccessDeniedException"]
    with pins.refused(TargetError, "describe"):
        source.state()
    where = first_shard(source)
    iterator = source.iterator(*where, HORIZON)
    fake.failing = ["AccessDeniedException"]
    with pins.refused(TargetError, "allow"):
        source.records(*where, iterator, 10)
