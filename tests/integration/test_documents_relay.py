"""Two tables of the embedded server under writers: relays by their streams are killed and end with the items of all rows."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client, service_client
from migrator.dynamodb.conditional import ConditionalWrites
from migrator.dynamodb.control import ControlItem
from migrator.dynamodb.store import DynamoStore
from migrator.dynamodb.stream import DynamoStream
from migrator.journal.database import TEST_CLOCK
from migrator.journal.memory import SqlMemory, SqlOpenFindings
from migrator.journal.reverse import SqlStreamJournal
from migrator.journal.source_capture import JournalMarks, JournalTickets
from migrator.mapping.items.changes import captured_tables
from migrator.mapping.items.items import items_for
from migrator.mapping.items.reach import image_keys
from migrator.mapping.items.wire import decode_item
from migrator.mapping.model.edges import WholeRows
from migrator.mapping.model.facts import EntityPlan, Lookup
from migrator.mapping.model.shards import MEND_OF_SOURCE
from migrator.mapping.model.table import Item, ItemKey, RowTree, SourceKey
from migrator.runtime.retry import Retry
from migrator.source.dynamodb.capture.install import CapturedStream, StreamCapture
from migrator.source.dynamodb.capture.marks import RecordImages, SourceStream, StreamMarks
from migrator.source.dynamodb.reader import StreamReader
from migrator.stages.live.capture import CaptureStage
from migrator.stages.live.refresh import Refresh
from migrator.stages.live.relay import Relay, RelayOptions, live_entities
from tests.fakes.source import MemorySource
from tests.golden.heart import check, facts, table
from tests.support_fence import no_fence
from tests.support_journal_file import journal_in_file
from tests.unit.source.dynamodb.capture.world import value_of
from tests.unit.stages.core.live_world import HEAD, MAPPING
from tests.unit.stages.core.stream_world import Dying, Killed, Steps

USERS, WRITERS, CHANGES, KILLS = 6, 4, 30, 6
LEASE_S = 1.0


class Documents(WholeRows):
    """The old tables `users` and `orders` under names of their own, and the new one. Rows are read by consistent scans."""

    def __init__(self, url: str, folder: Path) -> None:
        where: dict[str, Any] = {"region": None, "profile": None, "endpoint": url}
        self.client, self.streams = dynamodb_client(**where), service_client("dynamodbstreams", **where)
        mark = secrets.token_hex(4)
        self.names = {name: f"{name}_{mark}" for name in ("users", "orders")}
        users, orders = self.names.values()
        self.schema = facts(
            table(users, {"id": "integer!", "name": "text", "email": "text"}, unique=(("email",),)),
            table(
                orders,
                {"id": "integer!", "user_id": "integer!", "expires_at": "timestamp"},
                references={"user_id": f"{users}.id"},
            ),
        )
        mapping = MAPPING.replace("  users:\n", f"  users:\n    table: {users}\n").replace(
            "  orders:\n", f"  orders:\n    table: {orders}\n"
        )
        self.checked = check(mapping, self.schema, HEAD.replace("Shop", f"Shop{mark}"))
        self.plans = [entity.plan for entity in self.checked.entities]
        self.entities = live_entities(self.checked.mapping, self.checked.entities, self)
        self.database = journal_in_file(folder / "journal.db").database
        self.tickets = JournalTickets(self.database, "shop")
        self.images = RecordImages(captured_tables(self.plans), value_of)
        self.kept = JournalMarks(self.database, "shop", self.images.read)
        self.capture = StreamCapture(
            lambda name: CapturedStream(self.stream(name), self.checkpoints(name)), self.tickets, self.kept
        )

    def create(self) -> None:
        for name in self.names.values():
            self.client.create_table(
                TableName=name,
                KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "N"}],
                BillingMode="PAY_PER_REQUEST",
            )
        DynamoTableAdmin(self.client).create(self.design)

    def drop(self) -> None:
        for name in (*self.names.values(), self.design.name):
            self.client.delete_table(TableName=name)

    @property
    def design(self) -> Any:
        return self.checked.mapping.table

    def stream(self, name: str) -> DynamoStream:
        # The pause that AWS needs between two calls is not the embedded server's.
        quick = Retry(sleep=lambda _: None)
        return DynamoStream(self.client, self.streams, name, quick, MEND_OF_SOURCE)

    def checkpoints(self, name: str) -> SqlStreamJournal:
        return SqlStreamJournal(self.database, "shop", f"source {name}")

    def rows(self, name: str) -> list[dict[str, Any]]:
        found = self.client.scan(TableName=name, ConsistentRead=True)["Items"]
        columns = self.schema.tables[name].columns
        return [{column.real: value_of(item, column) for column in columns} for item in found]

    # ── model.live.RootFinder ──

    @property
    def now(self) -> MemorySource:
        """The rows as they are: each table at another moment, as of a source that has no snapshots."""
        return MemorySource(self.schema, {name: self.rows(name) for name in self.names.values()})

    def find_roots(
        self,
        plan: EntityPlan,
        lookup: Lookup,
        values: Sequence[Sequence[Any]],
        after: SourceKey | None,
        limit: int,
    ) -> list[SourceKey]:
        return self.now.find_roots(plan, lookup, values, after, limit)

    def read_rows(self, plan: EntityPlan, keys: Sequence[SourceKey]) -> list[RowTree]:
        return self.now.read_rows(plan, keys)

    # ── the relay ──

    @cached_property
    def store(self) -> DynamoStore:
        return DynamoStore(self.client, self.design, no_fence)

    def marks(self, steps: Steps) -> StreamMarks:
        def stream_of(name: str) -> SourceStream:
            def reader(work: Any) -> StreamReader:
                return StreamReader(
                    Dying(self.stream(name), steps),
                    Dying(self.checkpoints(name), steps),
                    work,
                    lease_s=LEASE_S,
                    page_records=25,
                    list_s=0.5,
                )

            return SourceStream(name, self.checkpoints(name), reader)

        return StreamMarks(
            Dying(self.kept, steps), self.images, [stream_of(name) for name in self.names.values()]
        )

    def relay(self, steps: Steps) -> Any:
        mapping = self.checked.mapping
        control = ControlItem(self.store, lambda state: None)
        refresh = Refresh(
            rows=self,
            store=Dying(ConditionalWrites(self.store), steps),
            tickets=Dying(self.tickets, steps),
            memory=SqlMemory(self.database, "a table"),
            control=control,
            entities=self.entities,
            table=self.design,
            revision=mapping.revision,
            check=no_fence,
        )
        findings = SqlOpenFindings(self.database, "shop", "a table")
        keys = {name: image_keys(mapping, entity.compiled.plan) for name, entity in self.entities.items()}
        options = RelayOptions(marks=25, lease_s=LEASE_S)
        captured = captured_tables(self.plans)
        return Relay(self.marks(steps), self, refresh, findings, captured, keys, options)

    # ── what is to come of it ──

    def expected(self) -> dict[ItemKey, Item]:
        source = self.now
        items: dict[ItemKey, Item] = {}
        for entity in self.checked.entities:
            for row in source.read_page(entity.plan, None, None):
                items |= {self.design.key_of(item): _plain(item) for item in items_for(entity, row)}
        return items

    def live(self) -> dict[ItemKey, Item]:
        found = (decode_item(item) for item in self.client.scan(TableName=self.design.name)["Items"])
        return {self.design.key_of(item): _plain(item) for item in found if not self.design.is_hidden(item)}


def _plain(item: Item) -> Item:
    return {name: value for name, value in item.items() if not name.startswith("_")}


@pytest.fixture
def documents(dynamodb_url: str, tmp_path: Path) -> Iterator[Documents]:
    made = Documents(dynamodb_url, tmp_path)
    made.create()
    yield made
    made.drop()


def write(documents: Documents, writer: int, ended: Event) -> None:
    """Users are named anew, orders move from one to another and go; each writer has users and orders of its own."""
    chosen = random.Random(writer)
    users, orders = documents.names.values()
    for number in range(CHANGES):
        if ended.wait(0.02):
            return
        user = str(writer + WRITERS * chosen.randrange(USERS))
        order = {"N": str(writer + WRITERS * chosen.randrange(USERS))}
        if number % 2:
            item = {
                "id": {"N": user},
                "name": {"S": f"name {number}"},
                "email": {"S": f"{writer}.{number}@x"},
            }
            documents.client.put_item(TableName=users, Item=item)
        elif number % 5:
            documents.client.put_item(TableName=orders, Item={"id": order, "user_id": {"N": user}})
        else:
            documents.client.delete_item(TableName=orders, Key={"id": order})


def test_killed_relays_end_with_the_items_of_all_rows(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = CaptureStage(documents.capture, "shop", documents.design)
    assert stage.install(documents.plans).new
    assert stage.status(documents.plans).whole
    ended, chosen = Event(), random.Random(5)
    writers = [Thread(target=write, args=(documents, number, ended)) for number in range(WRITERS)]
    for thread in writers:
        thread.start()
    for _ in range(KILLS):
        relay = documents.relay(Steps(chosen.randrange(20, 120)))
        with suppress(Killed):
            while True:
                relay.once()
    ended.set()
    for thread in writers:
        thread.join()
    monkeypatch.setenv(TEST_CLOCK, str(LEASE_S))
    relay = documents.relay(Steps())
    while True:
        relay.marks.from_the_first()
        if not relay.once().taken and not relay.marks.state().waiting:
            break
    assert documents.live() == documents.expected() != {}
    assert SqlOpenFindings(documents.database, "shop", "a table").roots() == []
    relay.marks.close()
    assert stage.uninstall(documents.marks(Steps()), discard_marks=False)
