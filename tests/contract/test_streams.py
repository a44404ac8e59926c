"""The stream of a table: AWS's as the fake plays it, and the embedded server's, which has one shard that never splits.

The embedded server leaves no record of PartiQL writes and of deletes by TTL; AWS and the fake do. What only the fake can
play (splits, expired places, trims) is in tests/unit/stages/streams.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from migrator.dynamodb.client import dynamodb_client, service_client
from migrator.dynamodb.tables import DynamoStream
from migrator.mapping.items.wire import encode_item
from migrator.mapping.model.live import StreamPosition, StreamRecord
from migrator.mapping.model.table import Item
from migrator.runtime.errors import LostRecordsError
from migrator.runtime.retry import Retry
from tests import pins
from tests.fakes.streams import FakeStreams
from tests.support_services import is_ministack

HORIZON, LATEST = StreamPosition("TRIM_HORIZON"), StreamPosition("LATEST")


class Table(Protocol):
    """A table with a stream, and what happens to it."""

    def put(self, item: Item) -> None: ...

    def delete(self, key: Item) -> None: ...

    def switch_off(self) -> None: ...

    def create_anew(self) -> None: ...


@dataclass
class RealTable:
    client: Any
    name: str

    def create(self) -> None:
        view = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
        self.client.create_table(
            TableName=self.name,
            KeySchema=[
                {"AttributeName": "PK", "KeyType": "HASH"},
                {"AttributeName": "SK", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK")],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification=view,
        )

    def put(self, item: Item) -> None:
        self.client.put_item(TableName=self.name, Item=encode_item(item))

    def delete(self, key: Item) -> None:
        self.client.delete_item(TableName=self.name, Key=encode_item(key))

    def switch_off(self) -> None:
        self.client.update_table(TableName=self.name, StreamSpecification={"StreamEnabled": False})

    def create_anew(self) -> None:
        self.client.delete_table(TableName=self.name)
        self.create()


@pytest.fixture(params=["fake", "dynamodb"])
def stream_of(request: pytest.FixtureRequest) -> Iterator[tuple[Table, DynamoStream]]:
    if request.param == "fake":
        fake = FakeStreams()
        yield fake, DynamoStream(fake, fake, "Shop", Retry(sleep=fake.sleep, clock=fake.clock))
        return
    where: dict[str, Any] = {
        "region": None,
        "profile": None,
        "endpoint": request.getfixturevalue("dynamodb_url"),
    }
    table = RealTable(dynamodb_client(**where), f"Stream{secrets.token_hex(4)}")
    table.create()
    # Its calls come five in a second, as AWS takes them; here nobody has to wait for it.
    quick = Retry(sleep=lambda seconds: None)
    yield table, DynamoStream(table.client, service_client("dynamodbstreams", **where), table.name, quick)
    table.client.delete_table(TableName=table.name)


def item(key: str, **attributes: Any) -> Item:
    return {"PK": key, "SK": "A", **attributes}


def read(source: DynamoStream, position: StreamPosition = HORIZON, limit: int = 1000) -> list[StreamRecord]:
    """What the one shard holds from there on."""
    state = source.state()
    (shard,) = state.shards
    iterator: str | None = source.iterator(state.arn, shard.id, position)
    records: list[StreamRecord] = []
    while iterator is not None:
        page = source.records(state.arn, shard.id, iterator, limit)
        records += page.records
        iterator = page.next_iterator if page.records else None
    return records


def test_stream_reports_its_settings_and_shards(stream_of: tuple[Table, DynamoStream]) -> None:
    state = stream_of[1].state()
    assert (state.is_on, state.view, len(state.shards)) == (True, "NEW_AND_OLD_IMAGES", 1)
    assert f"table/{stream_of[1].table}/stream/" in state.arn
    assert state.shards[0].id != ""
    assert state.shards[0].parent == ""


def test_records_are_the_changes_in_their_order_with_both_images(
    stream_of: tuple[Table, DynamoStream],
) -> None:
    table, source = stream_of
    first, second = item("a", n=1, blob=b"\x00", texts=["x", None]), item("a", n=2)
    for change in (first, second):
        table.put(change)
    table.delete(item("a"))
    table.put(item("b"))
    records = read(source)
    assert [(record.old, record.new) for record in records] == [
        (None, first),
        (first, second),
        (second, None),
        (None, item("b")),
    ]
    assert [record.keys for record in records] == [item("a")] * 3 + [item("b")]
    sequences = [record.sequence for record in records]
    assert sequences == sorted(set(sequences)), "each has a number of its own, and they grow"
    now = source.retry.clock() if isinstance(table, FakeStreams) else time.time()
    assert all(0 <= now - record.created_at < 120 for record in records)


def test_a_put_that_changes_nothing_leaves_no_record(stream_of: tuple[Table, DynamoStream]) -> None:
    table, source = stream_of
    for _ in range(2):
        table.put(item("a", n=1))
    assert len(read(source)) == 1


def test_position_is_at_after_before_or_behind_records(
    stream_of: tuple[Table, DynamoStream],
) -> None:
    table, source = stream_of
    for number in range(4):
        table.put(item("a", n=number))
    records = read(source)
    assert read(source, StreamPosition("AT_SEQUENCE_NUMBER", records[2].sequence)) == records[2:]
    assert read(source, StreamPosition("AFTER_SEQUENCE_NUMBER", records[2].sequence)) == records[3:]
    assert read(source, StreamPosition("AFTER_SEQUENCE_NUMBER", records[3].sequence)) == []
    assert read(source, LATEST) == []


def test_position_at_the_end_returns_only_later_records(stream_of: tuple[Table, DynamoStream]) -> None:
    table, source = stream_of
    state = source.state()
    shard = state.shards[0].id
    iterator: str | None = source.iterator(state.arn, shard, LATEST)
    for number in range(2):
        assert iterator is not None
        empty = source.records(state.arn, shard, iterator, 10)
        assert empty.records == []
        assert empty.next_iterator is not None
        table.put(item("a", n=number))
        page = source.records(state.arn, shard, empty.next_iterator, 10)
        assert [record.new for record in page.records] == [item("a", n=number)]
        iterator = page.next_iterator


def test_page_is_bound_by_its_record_limit_and_a_megabyte(
    stream_of: tuple[Table, DynamoStream],
) -> None:
    table, source = stream_of
    for number in range(5):
        table.put(item(f"k{number}", text="x" * 300_000))
    state = source.state()
    shard = state.shards[0].id
    sizes = []
    for limit in (2, 5000):
        iterator = source.iterator(state.arn, shard, HORIZON)
        sizes.append(len(source.records(state.arn, shard, iterator, limit).records))
    assert sizes == [2, 3]
    assert len(read(source)) == 5


def test_disabled_stream_is_reported_and_readable_to_its_end(
    stream_of: tuple[Table, DynamoStream],
) -> None:
    table, source = stream_of
    table.put(item("a"))
    before = source.state()
    shard = before.shards[0].id
    table.switch_off()
    assert not source.state().is_on
    page = source.records(before.arn, shard, source.iterator(before.arn, shard, HORIZON), 10)
    assert (len(page.records), page.next_iterator) == (1, None)


def test_stream_is_enabled_with_both_images_and_stays_if_enabled(
    stream_of: tuple[Table, DynamoStream],
) -> None:
    table, source = stream_of
    before = source.state().arn
    source.switch_on()
    assert source.state().arn == before
    table.switch_off()
    source.switch_on()
    table.put(item("a"))
    state = source.state()
    assert (state.is_on, state.view, len(read(source))) == (True, "NEW_AND_OLD_IMAGES", 1)
    assert state.arn != before


def test_recreated_table_has_another_stream(stream_of: tuple[Table, DynamoStream]) -> None:
    table, source = stream_of
    before = source.state()
    table.create_anew()
    table.put(item("a"))
    after = source.state()
    assert after.is_on
    assert after.arn != before.arn
    assert len(read(source)) == 1


def test_a_table_that_is_not_there_is_reported(stream_of: tuple[Table, DynamoStream]) -> None:
    source = stream_of[1]
    gone = DynamoStream(source.tables, source.streams, "NoSuchTable", source.retry)
    with pins.refused(LostRecordsError):
        gone.state()


def test_a_partiql_insert_leaves_a_record_on_all_but_ministack(dynamodb_url: str) -> None:
    """As soon as this fails, the tests that watch our own inserts may use MiniStack, too.

    Source: Amazon DynamoDB Developer Guide, "Change data capture for DynamoDB Streams": any modification of an item.
    """
    where: dict[str, Any] = {"region": None, "profile": None, "endpoint": dynamodb_url}
    table = RealTable(dynamodb_client(**where), f"Stream{secrets.token_hex(4)}")
    table.create()
    statement = f"INSERT INTO \"{table.name}\" VALUE {{'PK': 'a', 'SK': 'A'}}"
    table.client.execute_statement(Statement=statement)
    source = DynamoStream(table.client, service_client("dynamodbstreams", **where), table.name)
    assert len(read(source)) == (0 if is_ministack(dynamodb_url) else 1)
    table.client.delete_table(TableName=table.name)
