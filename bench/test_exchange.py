"""CPU of this process for a request of 25 items, into a sink that answers at once, by each way of sending.

Ways alternate in one run; figures are medians. Making items from rows is not included.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.conditional import ConditionalWrites
from migrator.dynamodb.store import DynamoStore
from migrator.mapping.items.wire import encode_item
from migrator.mapping.model.table import BATCH_WRITE_ITEMS, Item, KeyAttribute, TableDesign
from tests.support_fence import no_fence
from tests.support_items import encoded
from tests.support_lanes import by_botocore

REQUESTS = 100
ROUNDS = int(os.environ.get("MIGRATOR_TEST_ROUNDS", 15))
DESIGN = TableDesign("Bench", (KeyAttribute("PK"), KeyAttribute("SK")), "type")


def item(number: int) -> Item:
    keys = {"PK": f"USER#{number:09}", "SK": "PROFILE", "GSI1PK": f"EMAIL#user{number}@example.com"}
    columns: Item = {
        "id": number,
        "email": f"user{number}@example.com",
        "name": "Ann Example",
        "visits": number * 7,
    }
    texts = {
        "note": "x" * 120,
        "created_at": "2026-01-02T03:04:05",
        "GSI1SK": f"USER#{number}",
        "type": "User",
    }
    return {**keys, **columns, **texts, "_src": f"users:[{number}]", "_rev": "0a1b2c3d", "_tk": 5}


ITEMS = [item(number) for number in range(REQUESTS * BATCH_WRITE_ITEMS)]


def client_of(sink: str) -> Any:
    return dynamodb_client(region=None, profile=None, endpoint=sink)


def put_by_botocore(store: DynamoStore) -> None:
    for at in range(0, len(ITEMS), BATCH_WRITE_ITEMS):
        batch = ITEMS[at : at + BATCH_WRITE_ITEMS]
        puts = [{"PutRequest": {"Item": encode_item(one)}} for one in batch]
        store.client.batch_write_item(RequestItems={DESIGN.name: puts}, ReturnConsumedCapacity="INDEXES")


def test_cpu_of_a_request(sink: str) -> None:
    ours, botocores = (
        DynamoStore(client, DESIGN, no_fence) for client in (client_of(sink), by_botocore(client_of(sink)))
    )
    items = encoded(ITEMS, DESIGN)
    inserts = ConditionalWrites(ours)
    ways: dict[str, Callable[[], object]] = {
        "items by botocore": lambda: put_by_botocore(botocores),
        "items": lambda: ours.put(items),
        "inserts": lambda: inserts.write(items, fresh=True),
    }
    figures: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            before = time.process_time()
            way()
            figures[name].append((time.process_time() - before) / REQUESTS * 1e6)
    for name, found in figures.items():
        print(
            f"\n{name}: {statistics.median(found):.0f} µs of CPU a request (least {min(found):.0f})", end=""
        )
    print()
