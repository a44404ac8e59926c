"""The requests that writes send, byte by byte on each lane, and as botocore makes them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.conditional import ConditionalWrites
from migrator.dynamodb.exchange import BOTOCORE
from migrator.dynamodb.store import DynamoStore
from migrator.mapping.items.wire import base64_text, decode_item, encode_item
from migrator.mapping.model.table import TOMBSTONE, Item, KeyAttribute, TableDesign
from tests.support_fence import no_fence
from tests.support_items import put_items, write_items, write_texts
from tests.support_lanes import by_botocore

Request = tuple[str, bytes]
"""An operation and its body."""


def item(number: int, **more: Any) -> Item:
    return {"PK": f"P#{number % 7}", "SK": number, "type": "T", "_src": f"order:[{number}]", "_tk": 5, **more}


OF_ALL_TYPES = [
    item(100, text="é\u2028\"\\'/\x7f\n", price=Decimal("1.50"), tiny=Decimal("1E-130"), whole=10**37),
    item(101, none=None, true=True, binary=b"\x00\xff", listed=[1, {"ü": b"x", "deep": [None, []]}]),
    item(102, **{"a 'quoted' \"name\"": 1, "ü": {}, "a.b": "", "\\": 1}),
    item(103, **{f"{number:0300}": number for number in range(30)}),
    item(104, large="x" * 390_000),
    item(105),
]
ITEMS = [*map(item, range(60)), *OF_ALL_TYPES]
THERE: list[Item] = [
    item(3, _tk=9),
    item(4, _src="order:[0]"),
    item(5, _src="order:[0]", _tk=9, type=TOMBSTONE),
    item(6, _tk=1),
    item(101, _tk=9),
    {"PK": "P#0", "SK": 105},
]


@pytest.fixture
def design() -> TableDesign:
    return TableDesign(f"T{secrets.token_hex(6)}", (KeyAttribute("PK"), KeyAttribute("SK", "number")), "type")


BY_BOTOCORE = "requests made by botocore"

Ways = Callable[[str, Callable[[DynamoStore], Any]], tuple[list[Request], Any, list[Item]]]


@pytest.fixture
def sent(dynamodb_url: str, design: TableDesign, monkeypatch: pytest.MonkeyPatch) -> Ways:
    """The requests that a way sends to a table that holds THERE, what it gives, and what the table holds after it."""

    def on_a_new_table(lane: str, way: Callable[[DynamoStore], Any]) -> tuple[list[Request], Any, list[Item]]:
        monkeypatch.setenv("MIGRATOR_LANE", lane)
        client = dynamodb_client(region=None, profile=None, endpoint=dynamodb_url)
        client = by_botocore(client) if lane == BY_BOTOCORE else client
        admin = dynamodb_client(region=None, profile=None, endpoint=dynamodb_url)
        DynamoTableAdmin(admin).create(design)
        put_items(DynamoStore(admin, design, no_fence), THERE)
        store = DynamoStore(client, design, no_fence)
        requests: list[Request] = []
        client.meta.events.register(
            "before-send.dynamodb", lambda request, **_: requests.append(noted(request))
        )
        given_back = way(store)
        client.meta.events.unregister("before-send.dynamodb")
        wrote = list(requests)
        stored = [one for page in store.scan(0, 1) for one in page.items]
        client.delete_table(TableName=design.name)
        return sorted(wrote), given_back, sorted(stored, key=lambda one: repr(sorted(one.items())))

    return on_a_new_table


def noted(request: Any) -> Request:
    target = request.headers["X-Amz-Target"]
    text = target.decode() if isinstance(target, bytes) else target
    return text.rpartition(".")[2], bytes(request.body)


def read(requests: list[Request]) -> list[tuple[str, Any]]:
    return sorted(((name, json.loads(body)) for name, body in requests), key=repr)


def by_plain_requests(store: DynamoStore) -> None:
    """Puts by botocore, of requests that hold the items as values."""
    for at in range(0, len(ITEMS), 25):
        puts = [{"PutRequest": {"Item": encode_item(one)}} for one in ITEMS[at : at + 25]]
        store.client.batch_write_item(
            RequestItems={store.design.name: puts}, ReturnConsumedCapacity="INDEXES"
        )


def test_puts_are_the_requests_that_botocore_makes(sent: Ways) -> None:
    requests, receipt, stored = sent("exchange", lambda store: put_items(store, ITEMS))
    assert (requests, receipt, stored) == sent(BOTOCORE, lambda store: put_items(store, ITEMS))
    plain, _, stored_by_botocore = sent(BY_BOTOCORE, by_plain_requests)
    assert (read(requests), stored) == (read(plain), stored_by_botocore)
    assert [name for name, _ in requests] == ["BatchWriteItem"] * 3


def test_inserts_are_the_same_requests_on_each_lane(sent: Ways) -> None:
    def inserts(store: DynamoStore) -> list[Any]:
        outcomes = write_items(ConditionalWrites(store), ITEMS, fresh=True)
        return [outcome for outcome in outcomes if outcome.verdict != "stored"]

    made = sent("exchange", inserts)
    assert made == sent(BOTOCORE, inserts)
    requests, outcomes, _ = made
    verdicts = ["newer", "owned_by_other", "tombstoned_by_other", "newer", "owned_by_other"]
    assert [outcome.verdict for outcome in outcomes] == verdicts
    # Six meet what is there, and of one the statement would be too long.
    assert [name for name, _ in requests] == ["BatchExecuteStatement"] * 3 + ["PutItem"] * 7


def test_items_as_texts_are_inserted_by_the_same_requests(sent: Ways) -> None:
    short = [one for one in ITEMS if len(one) < 30]
    by_items = sent("exchange", lambda store: write_items(ConditionalWrites(store), short, fresh=True))
    assert by_items == sent("exchange", lambda store: write_texts(ConditionalWrites(store), short))
    # A statement that would be too long leaves its request to puts.
    requests, *by_texts = sent("exchange", lambda store: write_texts(ConditionalWrites(store), ITEMS))
    assert by_texts == list(
        sent("exchange", lambda store: write_items(ConditionalWrites(store), ITEMS, fresh=True))[1:]
    )
    assert [name for name, _ in requests].count("BatchExecuteStatement") == 2


def values() -> st.SearchStrategy[Any]:
    texts = st.text(st.characters(codec="utf-8"), max_size=20)
    numbers = st.integers(-(10**37), 10**37) | st.decimals(allow_nan=False, allow_infinity=False, places=6)
    plain = st.none() | st.booleans() | texts | numbers | st.binary(max_size=20)
    return st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=8)


@pytest.mark.slow
@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), values()))
def test_an_item_that_was_json_is_sent_as_it_was(made: Item) -> None:
    wired = orjson.dumps(encode_item(made), default=base64_text)
    assert orjson.dumps(encode_item(decode_item(orjson.loads(wired))), default=base64_text) == wired
