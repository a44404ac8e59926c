"""Readers of a real stream, with their checkpoints in a real journal, while items are written."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import pytest

from migrator.dynamodb.client import dynamodb_client, service_client
from migrator.dynamodb.tables import DynamoStream
from migrator.journal.reverse import SqlStreamJournal
from migrator.mapping.model.live import StreamPosition, StreamRecord
from migrator.runtime.retry import Retry
from migrator.source.dynamodb.reader import Check, StreamReader, begin
from tests.support_journal_file import journal_in_file

WRITERS, CHANGES, KEYS = 3, 20, 4


@pytest.fixture
def source(dynamodb_url: str) -> Iterator[DynamoStream]:
    where: dict[str, Any] = {"region": None, "profile": None, "endpoint": dynamodb_url}
    client, name = dynamodb_client(**where), f"Stream{secrets.token_hex(4)}"
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "PK", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    # The pause that AWS needs between two calls is not the embedded server's.
    yield DynamoStream(client, service_client("dynamodbstreams", **where), name, Retry(sleep=lambda _: None))
    client.delete_table(TableName=name)


def write(source: DynamoStream, writer: int) -> None:
    for number in range(1, CHANGES + 1):
        key = f"{writer}/{number % KEYS}"
        source.tables.put_item(TableName=source.table, Item={"PK": {"S": key}, "n": {"N": str(number)}})


class Readers:
    """Two of them, each of which breaks off every few pages, before the last record, and begins again."""

    def __init__(self, source: DynamoStream, journal: SqlStreamJournal) -> None:
        self.source = source
        self.journal = journal
        self.worked: dict[str, list[int]] = defaultdict(list)
        self.ended = Event()
        self.threads = [Thread(target=self._read) for _ in range(2)]
        self._at_work = Lock()
        self._pages = count()

    def read_to_the_end(self) -> None:
        """Until the checkpoint is the stream's last record."""
        state = self.source.state()
        where = (state.arn, state.shards[0].id)
        iterator = self.source.iterator(*where, StreamPosition("TRIM_HORIZON"))
        last = self.source.records(*where, iterator, 1000).records[-1].sequence
        while self.journal.read(state.arn).shards[0].sequence != last:
            assert any(thread.is_alive() for thread in self.threads)
            self.ended.wait(0.02)
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def _read(self) -> None:
        while not self.ended.is_set():
            with (
                suppress(RuntimeError),
                StreamReader(self.source, self.journal, self._work, page_records=7, list_s=0.2) as reader,
            ):
                while not self.ended.is_set():
                    reader.turn()

    def _work(self, records: Sequence[StreamRecord], check: Check) -> None:
        assert self._at_work.acquire(blocking=False), "two readers are at work on the one shard"
        breaks_off = next(self._pages) % 5 == 3
        try:
            for record in records[:-1] if breaks_off else records:
                check()
                assert record.new is not None
                number = record.new["n"]
                assert isinstance(number, int)
                self.worked[str(record.keys["PK"])].append(number)
            if breaks_off:
                raise RuntimeError("broken off")
        finally:
            self._at_work.release()


def test_interrupted_readers_skip_and_reorder_no_change(source: DynamoStream, tmp_path: Path) -> None:
    journal = SqlStreamJournal(journal_in_file(tmp_path / "shop.db").database, "shop", source.table)
    begin(source, journal)
    readers = Readers(source, journal)
    writers = [Thread(target=write, args=(source, number)) for number in range(WRITERS)]
    for thread in (*writers, *readers.threads):
        thread.start()
    for thread in writers:
        thread.join()
    written = {
        f"{writer}/{key}": range(key or KEYS, CHANGES + 1, KEYS)
        for writer in range(WRITERS)
        for key in range(KEYS)
    }
    readers.read_to_the_end()
    for key, numbers in written.items():
        assert sorted(set(readers.worked[key])) == list(numbers)
        steps = pairwise([0, *readers.worked[key]])
        assert all(after <= max(before, numbers[0] - KEYS) + KEYS for before, after in steps), (
            "in their order"
        )
