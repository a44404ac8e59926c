"""The limit of write units over a real connection: what the endpoint says it consumed stays at or below it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.answers import consumed_by_meter
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.store import DynamoStore
from migrator.dynamodb.throttle import TABLE, LimitedRequest, WriteLimit
from migrator.mapping.model.table import Index, Item, KeyAttribute, TableDesign
from migrator.runtime.retry import Backoff
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults
from tests.support_fence import no_fence
from tests.support_items import put_items

GSI1 = Index("GSI1", (KeyAttribute("GSI1PK"),), (KeyAttribute("GSI1SK"),))
QUICK = Backoff(attempts=40, base_s=0.001, cap_s=0.02, limit_s=60)


class Watched:
    """A client whose writes are written down: when, and what each meter consumed."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.meta = client.meta
        self.spent: list[tuple[float, dict[str, float]]] = []

    def batch_write_item(self, **request: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.batch_write_item(**request)
        self.spent.append((time.monotonic(), consumed_by_meter(answer) or {}))
        return answer


def items(number: int) -> list[Item]:
    filler = "x" * 1100
    return [
        {"PK": f"P#{n}", "SK": "S", "type": "T", "GSI1PK": "G", "GSI1SK": f"{n}", "filler": filler}
        for n in range(number)
    ]


def test_two_writers_stay_below_the_limit_despite_throttling(dynamodb_url: str) -> None:
    design = TableDesign(
        f"T{secrets.token_hex(6)}", (KeyAttribute("PK"), KeyAttribute("SK")), "type", indexes=(GSI1,)
    )
    plain = dynamodb_client(region=None, profile=None, endpoint=dynamodb_url)
    DynamoTableAdmin(plain).create(design)
    limit = WriteLimit(100, ["GSI1"])
    all_items = items(200)
    with FaultProxy(dynamodb_url, Faults(throttle=0.1, unprocessed=0.02, seed=4)) as proxy:
        watched = Watched(dynamodb_client(region=None, profile=None, endpoint=proxy.url))
        store = DynamoStore(watched, design, no_fence, QUICK, limit=limit)
        halves: list[Callable[[], object]] = [
            lambda: put_items(store, all_items[:100]),
            lambda: put_items(store, all_items[100:]),
        ]
        began = time.monotonic()
        with ThreadPoolExecutor(2) as executor:
            for future in [executor.submit(half) for half in halves]:
                future.result()
        took_s = time.monotonic() - began
    assert len(DynamoStore(plain, design, no_fence).get([design.key_of(item) for item in all_items])) == 200
    plain.delete_table(TableName=design.name)
    for meter in (TABLE, "GSI1"):
        consumed = sum(spent.get(meter, 0.0) for _, spent in watched.spent)
        assert consumed >= 200, meter
        # A full bucket at the start, then the rate.
        assert consumed <= 100 * took_s + 100, meter


class Noted(WriteLimit):
    """Notes for how many units each request asked."""

    asked: list[float]

    def request(self, units: float) -> AbstractContextManager[LimitedRequest]:
        self.asked.append(units)
        return super().request(units)


def test_a_delete_asks_for_what_its_item_takes(dynamodb_url: str) -> None:
    design = TableDesign(f"T{secrets.token_hex(6)}", (KeyAttribute("PK"), KeyAttribute("SK")), "type")
    plain = dynamodb_client(region=None, profile=None, endpoint=dynamodb_url)
    DynamoTableAdmin(plain).create(design)
    limit = Noted(1000)
    limit.asked = []
    store = DynamoStore(plain, design, no_fence, QUICK, limit=limit)
    written: list[Item] = [
        {"PK": "P", "SK": name, "type": "T", "_src": "order:[1]", "filler": "x" * size}
        for name, size in (("small", 10), ("large", 5000))
    ]
    put_items(store, written)
    limit.asked.clear()
    assert store.delete_own(written) == 2
    assert limit.asked == [1, 5]
    plain.delete_table(TableName=design.name)
