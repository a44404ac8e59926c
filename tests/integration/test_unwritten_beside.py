"""A key that the table never takes, beside other writers: the others go on, and its mark or page comes again."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.conditional import ConditionalWrites
from migrator.dynamodb.store import DynamoStore
from migrator.runtime.errors import StoppedError
from migrator.runtime.retry import Backoff
from migrator.runtime.values import replace
from migrator.stages.backfill.write import ConditionalPath
from tests import pins
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults, Wire
from tests.support_fence import no_fence, page_of
from tests.support_lanes import every_lane  # noqa: F401
from tests.unit.stages.core.live_world import Shop

QUICK = Backoff(attempts=4, base_s=0.001, cap_s=0.005, limit_s=120)
ATOMIC = """
access_patterns:
  user: {params: {id: integer}, get: {key: ["USER#{id}", META]}, returns: [name], atomic: true, sql: SELECT 1}
  by_email: {params: {e: text}, get: {key: ["EMAIL#{e}", EMAIL]}, returns: [PK], atomic: true, sql: SELECT 1}
"""


def is_the_one(wire: Wire) -> bool:
    return bool(wire["PK"]["S"] in ("USER#2", "EMAIL#old@x"))


def refused(wire: Wire) -> str:
    return "ItemCollectionSizeLimitExceededException" if is_the_one(wire) else ""


FAULTS = pytest.mark.parametrize(
    "faults", [Faults(never=is_the_one), Faults(refuses=refused)], ids=["throttled", "refused"]
)


@contextmanager
def shop_on(url: str, faults: Faults, more: str = "") -> Iterator[tuple[Shop, DynamoStore]]:
    shop = Shop(more)
    design = replace(shop.checked.mapping.table, name=f"T{secrets.token_hex(6)}")
    client = dynamodb_client(region=None, profile=None, endpoint=url)
    DynamoTableAdmin(client).create(design)
    with FaultProxy(url, faults) as proxy:
        through = dynamodb_client(region=None, profile=None, endpoint=proxy.url)
        shop.refresh.store = ConditionalWrites(DynamoStore(through, design, no_fence, QUICK))
        yield shop, DynamoStore(client, design, no_fence)
    client.delete_table(TableName=design.name)


def keys(store: DynamoStore) -> set[str]:
    return {
        str(item["PK"]) for page in store.scan(0, 1) for item in page.items if item["type"] != "_tombstone"
    }


@FAULTS
@pytest.mark.parametrize("more", ["", ATOMIC], ids=["apart", "together"])
def test_relay_puts_one_mark_back_and_processes_the_others(
    dynamodb_url: str, faults: Faults, more: str
) -> None:
    with shop_on(dynamodb_url, faults, more) as (shop, store):
        for number in range(1, 6):
            shop.change("users", number, name="Ann", email=f"{number}@x")
        worked = shop.relay.once()
        assert keys(store) >= {f"USER#{number}" for number in (1, 3, 4, 5)}
        assert "USER#2" not in keys(store)
        assert (worked.finished, worked.put_back) == (4, 1)
        assert shop.marks.state().failed == 1
        (finding,) = worked.findings
        assert finding.kind == "mark"
        assert pins.said(finding.reason)


def test_a_key_that_cannot_be_buried_stops_no_other(dynamodb_url: str) -> None:
    faults = Faults()
    with shop_on(dynamodb_url, faults) as (shop, store):
        shop.change("users", 1, name="Ann", email="old@x")
        shop.change("users", 3, name="Bob")
        shop.relay.once()
        faults.never = is_the_one
        shop.change("users", 1, email="new@x")
        shop.change("users", 3, name="Bea")
        worked = shop.relay.once()
        assert (worked.finished, worked.put_back) == (1, 1)
        assert "EMAIL#new@x" in keys(store)


@FAULTS
def test_a_page_reports_its_unwritten_items(dynamodb_url: str, faults: Faults) -> None:
    with shop_on(dynamodb_url, faults) as (shop, store):
        shop.rows["users"] += [{"id": n, "name": "Ann", "email": f"{n}@x"} for n in range(1, 31)]
        users = next(one for one in shop.checked.entities if one.name == "users")
        copied = ConditionalPath(shop.refresh, shop.open_findings, {}).copy(
            users, *page_of(lambda: shop.source.read_rows(users.plan, [f"[{n}]" for n in range(1, 31)]))
        )
        assert [key for key, _ in copied.receipt.unwritten] == ["USER#2"]
        assert copied.receipt.items == len(keys(store)) == 59


def test_refusing_table_stops_the_relay_and_counts_no_try(dynamodb_url: str) -> None:
    with shop_on(dynamodb_url, Faults(throttle=1.0)) as (shop, _):
        for number in range(1, 4):
            shop.change("users", number, name="Ann", email=f"{number}@x")
        with pins.refused(StoppedError):
            shop.relay.once()
        assert shop.marks.state().failed == 0
