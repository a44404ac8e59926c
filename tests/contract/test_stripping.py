"""Our attributes and items taken out of a table: the fake one and DynamoDB."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from migrator.dynamodb.control import DynamoStripping
from migrator.dynamodb.store import DynamoStore
from migrator.mapping.model.edges import ItemStore, Stripping
from migrator.mapping.model.table import CONTROL, TOMBSTONE, Item, KeyAttribute, TableDesign
from tests.fakes.store import FakeStore
from tests.fakes.stripping import FakeStripping
from tests.support_items import put_items


@pytest.fixture
def design() -> TableDesign:
    return TableDesign(
        f"S{secrets.token_hex(4)}", (KeyAttribute("PK"), KeyAttribute("SK")), "type", ttl="expiresAt"
    )


@pytest.fixture
def stripping(store: ItemStore) -> Iterator[FakeStripping | DynamoStripping]:
    if isinstance(store, FakeStore):
        yield FakeStripping(store)
        return
    assert isinstance(store, DynamoStore)
    with DynamoStripping(store) as made:
        yield made


def item(number: int, **more: object) -> Item:
    made = {"PK": f"P#{number}", "SK": "S", "type": "Order", "total": number, "tags": ["a", {"b": None}]}
    return made | {"_src": f"order:[{number}]", "_tk": 10**12, "_rev": "abc"} | more  # type: ignore[return-value]


def stored(store: ItemStore) -> dict[str, Item]:
    return {str(one["PK"]): one for page in store.scan(0, 1) for one in page.items}


def test_our_attributes_go_and_all_else_stays(store: ItemStore, stripping: Stripping) -> None:
    bare = item(2)
    del bare["_tk"], bare["_rev"]
    put_items(store, [item(1), bare, item(3)])
    assert stripping.strip([item(1), bare]) == 2
    plain = {name: value for name, value in item(1).items() if not name.startswith("_")}
    assert stored(store) == {"P#1": plain, "P#2": plain | {"PK": "P#2", "total": 2}, "P#3": item(3)}
    # Again, as after a lost answer: they have none.
    assert stripping.strip([item(1), bare]) == 2
    assert stripping.strip([]) == 0


def test_what_is_foreign_by_now_or_gone_stays_so(store: ItemStore, stripping: Stripping) -> None:
    theirs = item(1, _src="order:[7]", total=9)
    put_items(store, [theirs])
    assert stripping.strip([item(1), item(2)]) == 0
    assert stored(store) == {"P#1": theirs}


def test_our_own_items_go_while_they_are_that(store: ItemStore, stripping: Stripping) -> None:
    dead, control = item(1, type=TOMBSTONE), item(2, type=CONTROL)
    back = item(3)
    put_items(store, [dead, control, back])
    assert stripping.remove([dead, control, item(3, type=TOMBSTONE), item(4, type=TOMBSTONE)]) == 3
    assert stored(store) == {"P#3": back}


def test_stripping_restores_the_item_of_the_service(
    store: ItemStore, stripping: FakeStripping | DynamoStripping
) -> None:
    plain = {name: value for name, value in item(1, note="theirs").items() if not name.startswith("_")}
    copied, newer = item(2, _src="order:[9]"), item(3, _tk=3 * 10**12)
    put_items(store, [plain, copied, newer])
    ours = [item(number, _tk=2 * 10**12, total=0) for number in (1, 2, 3, 4)]
    # All else stays, what has a higher ticket too, and nothing comes where no item is.
    assert stripping.own(ours) == 2
    own = {"_src": "order:[1]", "_tk": 2 * 10**12, "_rev": "abc"}
    assert stored(store) == {"P#1": plain | own, "P#2": copied | own | {"_src": "order:[2]"}, "P#3": newer}
    assert stripping.own([]) == 0
