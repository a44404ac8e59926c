"""Answers of 200 that say nothing, and refusals that do not say why: none of them counts as an answer."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client, service_client
from migrator.dynamodb.conditional import ConditionalWrites
from migrator.dynamodb.control import ControlItem, DynamoStripping
from migrator.dynamodb.objects import S3Objects
from migrator.dynamodb.store import DynamoStore
from migrator.mapping.model.edges import ControlState
from migrator.mapping.model.table import TOMBSTONE, Item, KeyAttribute, TableDesign
from migrator.runtime.errors import STOPPED, MigratorError, StoppedError
from migrator.runtime.retry import Backoff
from migrator.runtime.values import replace
from tests import pins
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults, Wire
from tests.journeys.small import small_shop
from tests.support_fence import no_fence
from tests.support_items import put_items, write_groups, write_items
from tests.support_lanes import every_lane  # noqa: F401

QUICK = Backoff(attempts=3, base_s=0.001, cap_s=0.01, limit_s=120)
PATIENT = Backoff(attempts=60, base_s=0.001, cap_s=0.01, limit_s=60)
BODIES = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b'"taken"',
    b"<html>Sign in</html>",
    b'{"Other": {"shape": 1}}',
    b'{"Items": 7',
]
QUERY = {
    "KeyConditionExpression": "#k = :k",
    "ExpressionAttributeNames": {"#k": "PK"},
    "ExpressionAttributeValues": {":k": "P"},
}


@pytest.fixture(scope="module")
def design(dynamodb_url: str) -> Iterator[TableDesign]:
    made = TableDesign(
        f"T{secrets.token_hex(6)}", (KeyAttribute("PK"), KeyAttribute("SK")), "type", ttl="expires"
    )
    client = dynamodb_client(region=None, profile=None, endpoint=dynamodb_url)
    DynamoTableAdmin(client).create(made)
    yield made
    client.delete_table(TableName=made.name)


@pytest.fixture
def table(dynamodb_url: str, design: TableDesign) -> Iterator[DynamoStore]:
    """The table without any fault on the way to it, and empty again after the test."""
    store = DynamoStore(dynamodb_client(region=None, profile=None, endpoint=dynamodb_url), design, no_fence)
    yield store
    store.delete([design.key_of(one) for one in stored(store)])


@contextmanager
def through(table: DynamoStore, faults: Faults, backoff: Backoff = QUICK) -> Iterator[DynamoStore]:
    with FaultProxy(str(table.client.meta.endpoint_url), faults) as proxy:
        client = dynamodb_client(region=None, profile=None, endpoint=proxy.url)
        yield DynamoStore(client, table.design, no_fence, backoff)


def item(number: int, ticket: int = 5, source: str = "") -> Item:
    source = source or f"order:[{number}]"
    return {"PK": "P", "SK": f"{number:05}", "type": "T", "_src": source, "_tk": ticket, "_rev": "r"}


def dead(number: int, ticket: int = 5, source: str = "") -> Item:
    return {**item(number, ticket, source), "type": TOMBSTONE, "expires": 2_000_000_000}


def stored(store: DynamoStore) -> list[Item]:
    return sorted((one for page in store.scan(0, 1) for one in page.items), key=lambda one: str(one["SK"]))


NEW = [item(number) for number in range(60)]
HERE = [item(number, 3) for number in range(4)]
DEAD = [dead(number, 3) for number in range(4)]
ALWAYS = 1_000_000
KEYS: list[tuple[str, str]] = [("P", f"{number:05}") for number in range(4)]
WIRED = [{"PK": "P", "SK": sort} for _, sort in KEYS]


def newer(count: int) -> list[Item]:
    """With another ticket each time: DynamoDB does a transaction once that is sent twice within ten minutes."""
    ticket = next(_TICKETS)
    return [item(number, ticket) for number in range(count)]


def untold(items: list[Item]) -> list[Item]:
    return [
        {**one, "_tk": 0} if one["type"] == "T" and one.get("_tk") not in (3, None) else one for one in items
    ]


def stripped(store: DynamoStore) -> tuple[int, int]:
    with DynamoStripping(store) as stripping:
        return stripping.strip(HERE), stripping.remove(DEAD)


def nobody_else(state: ControlState) -> None:
    raise AssertionError("no other process writes the control item")


_TICKETS = count(5)
Work = Callable[[DynamoStore], Any]
WRITES: dict[str, tuple[Work, list[Item]]] = {
    "put": (lambda store: put_items(store, NEW), []),
    "delete": (lambda store: store.delete(KEYS), HERE),
    "delete_own": (lambda store: store.delete_own(HERE), HERE),
    "write": (lambda store: write_items(ConditionalWrites(store), NEW[:4]), HERE),
    "insert": (lambda store: write_items(ConditionalWrites(store), NEW, fresh=True), []),
    "together": (lambda store: write_groups(ConditionalWrites(store), [newer(4)]), HERE),
    "remove_tombstones": (lambda store: ConditionalWrites(store).remove_tombstones(DEAD), DEAD),
    "strip": (lambda store: stripped(store)[0], HERE),
    "control": (lambda store: ControlItem(store, nobody_else).raise_control(7), []),
}
READS: dict[str, Work] = {
    "get": lambda store: store.get(KEYS),
    "get_item": lambda store: store.get_item({"Key": WIRED[0]}).items,
    "batch_get": lambda store: sorted(map(repr, store.batch_get({"Keys": WIRED}).items)),
    "query": lambda store: store.query(QUERY).items,
    "scan": stored,
    "state": lambda store: DynamoTableAdmin(store.client, store.retry.backoff).state(store.design),
}


@pytest.mark.parametrize("work", WRITES)
def test_write_with_an_empty_answer_is_not_a_write(table: DynamoStore, work: str) -> None:
    send, before = WRITES[work]
    put_items(table, before)
    faults = Faults(empty=1.0)
    with through(table, faults) as store:
        for faults.empty_body in BODIES:
            with pins.refused(StoppedError) as told:
                send(store)
            assert told.value.exit_code == STOPPED
    assert stored(table) == before


@pytest.mark.parametrize("work", WRITES)
def test_a_write_that_is_answered_with_nothing_is_sent_again(table: DynamoStore, work: str) -> None:
    send, before = WRITES[work]
    put_items(table, before)
    faults = Faults(empty=0.5, seed=4)
    with through(table, faults, PATIENT) as store:
        while not faults.counts["empty"]:
            send(store)
    done = stored(table)
    send(table)
    assert untold(stored(table)) == untold(done) != untold(before)


@pytest.mark.parametrize("work", READS)
def test_read_with_an_empty_answer_is_not_an_answer(table: DynamoStore, work: str) -> None:
    """Else verify would find that items are missing, or that none is there that should not be."""
    ask = READS[work]
    put_items(table, HERE)
    faults = Faults(empty=1.0)
    with through(table, faults) as store:
        for faults.empty_body in BODIES:
            with pytest.raises(StoppedError):
                ask(store)


@pytest.mark.parametrize("work", READS)
def test_read_with_an_empty_answer_is_retried(table: DynamoStore, work: str) -> None:
    ask = READS[work]
    put_items(table, HERE)
    expected = ask(table)
    faults = Faults(empty=0.5, seed=4)
    with through(table, faults, PATIENT) as store:
        while not faults.counts["empty"]:
            assert ask(store) == expected


# ── a part of the answer ──


def without(*names: str) -> Callable[[str, int, Wire], Wire]:
    return lambda operation, status, answer: {name: one for name, one in answer.items() if name not in names}


def reasons(change: Callable[[list[Any]], list[Any]]) -> Callable[[str, int, Wire], Wire]:
    def alter(operation: str, status: int, answer: Wire) -> Wire:
        found = answer.get("CancellationReasons")
        return answer if found is None else {**answer, "CancellationReasons": change(found)}

    return alter


def fewer(operation: str, status: int, answer: Wire) -> Wire:
    found = answer.get("Responses")
    return {**answer, "Responses": found[:-1]} if isinstance(found, list) else answer


@pytest.mark.parametrize(
    ("work", "alters"),
    [
        ("put", without("UnprocessedItems")),
        ("put", without("ConsumedCapacity")),
        ("write", without("ConsumedCapacity")),
        ("together", without("ConsumedCapacity")),
        ("insert", without("ConsumedCapacity")),
        ("insert", without("Responses")),
        ("insert", fewer),
        ("get", without("Responses")),
        ("get", without("UnprocessedKeys")),
        ("query", without("Items")),
        ("query", without("Count")),
        ("scan", without("Items")),
        ("scan", lambda operation, status, answer: answer | {"Items": answer["Items"][:-1]}),
        ("get_item", without("ConsumedCapacity")),
    ],
)
def test_every_part_of_an_answer_is_required(
    table: DynamoStore, work: str, alters: Callable[[str, int, Wire], Wire]
) -> None:
    send, before = WRITES.get(work) or (READS[work], HERE)
    put_items(table, before)
    with through(table, Faults(altered=ALWAYS, alters=alters)) as store, pytest.raises(StoppedError):
        send(store)
    faults = Faults(altered=2, alters=alters)
    with through(table, faults, PATIENT) as store:
        send(store)
    assert faults.counts["altered"] == 2


def test_refusal_without_a_code_is_retried(table: DynamoStore) -> None:
    put_items(table, [item(1, 7)])
    faults = Faults(altered=1, alters=without("__type"))
    with through(table, faults, PATIENT) as store:
        outcomes = write_items(ConditionalWrites(store), [dead(1)])
        faults.altered = 2
        state = DynamoTableAdmin(store.client, PATIENT).state(replace(table.design, name="Absent"))
    assert [one.verdict for one in outcomes] + [state] == ["newer", None]
    assert faults.counts["altered"] == 2


def test_delete_refused_without_the_item_is_retried(table: DynamoStore) -> None:
    """It would pass for another program's item, which gets no tombstone, and the mark would go."""
    put_items(table, [item(1, 7), item(2, 3)])
    faults = Faults(altered=2, alters=without("Item"))
    with through(table, faults, PATIENT) as store:
        outcomes = write_items(ConditionalWrites(store), [dead(1), dead(2)])
    assert [one.verdict for one in outcomes] == ["newer", "stored"]
    assert faults.counts["altered"] == 2
    with through(table, Faults(altered=ALWAYS, alters=without("Item"))) as store, pins.refused(StoppedError):
        write_items(ConditionalWrites(store), [dead(1)])


@pytest.mark.parametrize(
    "alters",
    [
        without("CancellationReasons"),
        reasons(lambda found: []),
        reasons(lambda found: found[:-1]),
        reasons(lambda found: [*found, {"Code": "None"}]),
        reasons(lambda found: [{} for _ in found]),
        reasons(
            lambda found: [{name: part for name, part in one.items() if name != "Item"} for one in found]
        ),
    ],
)
def test_transaction_cancelled_without_reasons_is_retried(
    table: DynamoStore, alters: Callable[[str, int, Wire], Wire]
) -> None:
    put_items(table, [item(1, 7)])
    faults = Faults(altered=2, alters=alters)
    with through(table, faults, PATIENT) as store:
        outcomes = write_groups(ConditionalWrites(store), [[dead(1), item(2)]])
    assert [one.verdict for one in outcomes] == ["newer", "rolled_back"]
    assert faults.counts["altered"] == 2
    with through(table, Faults(altered=ALWAYS, alters=alters)) as store, pytest.raises(StoppedError):
        write_groups(ConditionalWrites(store), [[dead(1), item(2)]])
    assert stored(table) == [item(1, 7)]


# ── objects ──


def test_object_with_an_answer_without_tag_is_not_stored(dynamodb_url: str) -> None:
    client = service_client("s3", region=None, profile=None, endpoint=dynamodb_url)
    bucket = f"b{secrets.token_hex(6)}"
    client.create_bucket(Bucket=bucket)
    with FaultProxy(dynamodb_url, Faults(empty=1.0, empty_body=b"")) as proxy:
        other = service_client("s3", region=None, profile=None, endpoint=proxy.url)
        with pytest.raises(MigratorError) as told:
            S3Objects(other, bucket, "", QUICK).put({"name": b"text"})
    assert told.value.exit_code == STOPPED
    assert S3Objects(client, bucket, "").sizes(["name"]) == {}


# ── a whole run ──


def test_backfill_of_empty_answers_stops_and_a_rerun_writes_all(tmp_path: Path, dynamodb_url: str) -> None:
    shop = small_shop(tmp_path, dynamodb_url)
    faults = Faults(empty=1.0, empty_of=frozenset({"BatchWriteItem", "PutItem"}))
    text = shop.job.read_text()
    with FaultProxy(dynamodb_url, faults) as proxy:
        quick = text.replace("tuning: {", "tuning: {attempts: 3, backoff_cap_s: 0.01").replace(
            dynamodb_url, proxy.url
        )
        shop.job.write_text(quick)
        ended = shop.run("backfill", str(shop.job))
    assert (ended.code, pins.said(ended.err)) == (STOPPED, True)
    assert shop.items() == []
    shop.job.write_text(text)
    shop.done("backfill", str(shop.job))
    assert len(shop.items()) == 150
    shop.done("verify", str(shop.job))
