"""The store through the fault proxy: whatever goes wrong on the way, the table holds exactly the items."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.store import DynamoStore
from migrator.mapping.items.wire import item_bytes
from migrator.mapping.model.table import Index, Item, KeyAttribute, TableDesign
from migrator.runtime.errors import Interrupted, StoppedError, TargetError
from migrator.runtime.retry import Backoff
from tests import pins
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults, Wire
from tests.support_fence import no_fence
from tests.support_items import put_items
from tests.support_lanes import EACH_LANE, lane_of

QUICK = Backoff(attempts=6, base_s=0.001, cap_s=0.01, limit_s=120)
PATIENT = Backoff(attempts=40, base_s=0.001, cap_s=0.02, limit_s=60)


@pytest.fixture(params=EACH_LANE, autouse=True)
def lane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with lane_of(request.param, monkeypatch) as name:
        yield name


@contextmanager
def through(
    url: str,
    design: TableDesign,
    faults: Faults,
    backoff: Backoff = PATIENT,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[DynamoStore]:
    with FaultProxy(url, faults) as proxy:
        client = dynamodb_client(region=None, profile=None, endpoint=proxy.url)
        yield DynamoStore(client, design, no_fence, backoff, stop)


def items(number: int) -> list[Item]:
    return [{"PK": f"P#{one % 40}", "SK": f"S#{one:05}", "type": "T", "n": one} for one in range(number)]


def stored(url: str, design: TableDesign) -> list[Item]:
    store = DynamoStore(dynamodb_client(region=None, profile=None, endpoint=url), design, no_fence)
    found = [item for page in store.scan(0, 1) for item in page.items]
    return sorted(found, key=lambda item: str(item["SK"]))


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_and_nothing_comes_twice(dynamodb_url: str, design: TableDesign, seed: int) -> None:
    faults = Faults(unprocessed=0.3, throttle=0.1, errors=0.1, cut_before=0.05, cut_after=0.05, seed=seed)
    with through(dynamodb_url, design, faults) as store:
        receipt = put_items(store, items(1000))
        keys = [design.key_of(item) for item in items(1000)]
        assert sorted(store.get(keys).values(), key=lambda item: str(item["SK"])) == items(1000)
    assert receipt.items == 1000
    assert stored(dynamodb_url, design) == items(1000)
    for kind in ("unprocessed", "throttle", "errors", "cut_before", "cut_after"):
        assert faults.counts[kind] > 0, kind


def test_items_are_sent_again_and_one_that_is_refused_is_found(
    dynamodb_url: str, design: TableDesign
) -> None:
    faults = Faults(
        unprocessed=0.3,
        throttle=0.1,
        cut_after=0.05,
        refuses=lambda wire: "ValidationException" if is_number_3(wire) else "",
        seed=4,
    )
    with through(dynamodb_url, design, faults) as store:
        receipt = put_items(store, items(300))
    assert (receipt.items, list(receipt.unwritten)) == (299, [("P#3", "S#00003")])
    assert receipt.bytes == sum(item_bytes(item) for item in items(300) if item["n"] != 3)
    assert stored(dynamodb_url, design) == [item for item in items(300) if item["n"] != 3]
    assert faults.counts["unprocessed"] > 0


def is_number_3(wire: Wire) -> bool:
    return bool(wire["SK"]["S"] == "S#00003")


def test_item_never_accepted_is_unwritten_and_the_rest_is_stored(
    dynamodb_url: str, design: TableDesign
) -> None:
    with through(dynamodb_url, design, Faults(never=is_number_3), QUICK) as store:
        receipt = put_items(store, items(60))
    assert list(receipt.unwritten) == [("P#3", "S#00003")]
    assert receipt.items == 59
    assert [item["n"] for item in stored(dynamodb_url, design)] == [n for n in range(60) if n != 3]


def test_a_table_that_takes_nothing_stops_the_run(dynamodb_url: str, design: TableDesign) -> None:
    with (
        through(dynamodb_url, design, Faults(never=lambda wire: True), QUICK) as store,
        pins.refused(StoppedError),
    ):
        put_items(store, items(10))


def test_keys_that_are_never_read_stop_the_run(dynamodb_url: str, design: TableDesign) -> None:
    with (
        through(dynamodb_url, design, Faults(never=lambda wire: True), QUICK) as store,
        pytest.raises(StoppedError, match="batch_get_item"),
    ):
        store.get([("P#1", "S#00001")])


def test_keys_that_are_left_over_are_read_again(dynamodb_url: str, design: TableDesign) -> None:
    wanted = items(100)
    with through(dynamodb_url, design, Faults()) as store:
        put_items(store, wanted)
    keys = [{"PK": item["PK"], "SK": item["SK"]} for item in wanted]
    with through(dynamodb_url, design, Faults(unprocessed=0.4, throttle=0.2, seed=5)) as store:
        found = store.batch_get({"Keys": keys, "ConsistentRead": False})
    assert sorted(found.items, key=lambda item: str(item["SK"])) == wanted
    assert found.requests > 1


def test_a_refusal_is_sent_once(dynamodb_url: str) -> None:
    faults = Faults()
    nowhere = TableDesign("NoSuchTable", (KeyAttribute("PK"), KeyAttribute("SK")), "type")
    with through(dynamodb_url, nowhere, faults) as store, pins.refused(TargetError):
        put_items(store, items(1))
    assert faults.counts["requests BatchWriteItem"] == 1


def test_a_stop_ends_a_wait(dynamodb_url: str, design: TableDesign) -> None:
    slow = Backoff(attempts=50, base_s=600, cap_s=600, limit_s=6000)
    started = time.monotonic()
    with (
        through(
            dynamodb_url, design, Faults(throttle=1.0), slow, lambda: time.monotonic() - started > 0.5
        ) as store,
        pytest.raises(Interrupted),
    ):
        put_items(store, items(1))
    assert time.monotonic() - started < 120


def test_an_endpoint_that_does_not_answer_is_one_line(lane: str) -> None:
    client = dynamodb_client(region=None, profile=None, endpoint="http://127.0.0.1:1")
    design = TableDesign("Shop", (KeyAttribute("PK"),), "type")
    with pins.refused(StoppedError):
        DynamoTableAdmin(client).state(design)


@pytest.mark.parametrize(
    "kind", ["throttle", "slow_down", "errors", "unavailable", "in_use", "cut_before", "cut_after"]
)
def test_each_fault_by_itself_loses_nothing(dynamodb_url: str, design: TableDesign, kind: str) -> None:
    faults = Faults(**{kind: 0.4}, seed=3)  # type: ignore[arg-type]
    with through(dynamodb_url, design, faults) as store:
        put_items(store, items(400))
    assert stored(dynamodb_url, design) == items(400)
    assert faults.counts[kind] > 0


def test_late_answer_is_requested_again(dynamodb_url: str, design: TableDesign) -> None:
    faults = Faults(late=0.3, late_s=1.0, seed=2)
    with FaultProxy(dynamodb_url, faults) as proxy:
        client = dynamodb_client(region=None, profile=None, endpoint=proxy.url, timeout_s=0.4)
        put_items(DynamoStore(client, design, no_fence, PATIENT), items(200))
    assert stored(dynamodb_url, design) == items(200)
    assert faults.counts["late"] > 0
    # More than that where the machine itself is late.
    assert faults.counts["requests BatchWriteItem"] >= 8 + faults.counts["late"]


def test_credentials_that_expire_stop_the_run_and_new_ones_go_on(
    dynamodb_url: str, design: TableDesign
) -> None:
    faults = Faults(expires_after=3)
    with through(dynamodb_url, design, faults) as store:
        with pins.refused(StoppedError):
            put_items(store, items(200))
        assert len(stored(dynamodb_url, design)) == 75
        faults.renew()
        put_items(store, items(200))
    assert stored(dynamodb_url, design) == items(200)


@pytest.mark.parametrize("clock_s", [-734.0, 734.0], ids=["ahead", "behind"])
@pytest.mark.parametrize(
    "code", ["InvalidSignatureException", "SignatureDoesNotMatch", "RequestTimeTooSkewed", "RequestExpired"]
)
def test_wrong_clock_stops_the_run_and_is_named_with_its_seconds(
    dynamodb_url: str, design: TableDesign, clock_s: float, code: str
) -> None:
    faults = Faults(clock_s=clock_s, clock_code=code)
    with through(dynamodb_url, design, faults) as store:
        with pins.refused(StoppedError):
            put_items(store, items(30))
        assert faults.counts["requests BatchWriteItem"] == 1
        faults.clock_s = 0.0
        put_items(store, items(30))
    assert stored(dynamodb_url, design) == items(30)


def test_expired_signature_is_renewed(dynamodb_url: str, design: TableDesign) -> None:
    faults = Faults(aged=3)
    with through(dynamodb_url, design, faults) as store:
        put_items(store, items(60))
    assert stored(dynamodb_url, design) == items(60)
    assert (faults.counts["aged"], faults.counts["requests BatchWriteItem"]) == (3, 6)


def test_a_signature_that_is_wrong_is_a_matter_of_the_secret_key(
    dynamodb_url: str, design: TableDesign
) -> None:
    faults = Faults(aged=1, clock_message="The request signature we calculated does not match yours")
    with through(dynamodb_url, design, faults) as store, pins.refused(TargetError):
        put_items(store, items(1))
    assert faults.counts["requests BatchWriteItem"] == 1


def test_an_index_that_lags_answers_when_it_has_caught_up(dynamodb_url: str) -> None:
    index = Index("GSI1", (KeyAttribute("G"),))
    made = TableDesign(
        f"T{secrets.token_hex(6)}", (KeyAttribute("PK"), KeyAttribute("SK")), "type", indexes=(index,)
    )
    client = dynamodb_client(region=None, profile=None, endpoint=dynamodb_url)
    DynamoTableAdmin(client).create(made)
    request = {
        "IndexName": "GSI1",
        "KeyConditionExpression": "#g = :g",
        "ExpressionAttributeNames": {"#g": "G"},
        "ExpressionAttributeValues": {":g": "x"},
    }
    with through(dynamodb_url, made, Faults(blind_reads=2)) as store:
        put_items(store, [{"PK": "P", "SK": "S", "type": "T", "G": "x"}])
        assert [len(store.query(request).items) for _ in range(3)] == [0, 0, 1]
    client.delete_table(TableName=made.name)
