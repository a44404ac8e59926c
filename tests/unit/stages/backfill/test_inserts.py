"""A page written concurrently with other writers, by generated code and by items_for()."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import pytest

from migrator.mapping.items.encoder import Encoder
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.live import Outcome
from migrator.mapping.model.table import EncodedItem
from migrator.runtime.errors import StoppedError
from migrator.stages.backfill.write import ConditionalPath, Copied, PagePath
from migrator.stages.live.relay import live_entities
from tests.fakes.source import MemorySource
from tests.support_fence import page_of
from tests.unit.stages.core.live_world import SCHEMA, Shop

NAMED = """
  named:
    table: users
    items:
      Named: {key: ["NAME#{name}", META], keep: [email]}
"""


def shop_with(prepare: Callable[[Shop], None]) -> Shop:
    shop = Shop(NAMED)
    shop.refresh.clock = lambda: 1_700_000_000.0
    prepare(shop)
    return shop


def copied(shop: Shop, path: PagePath, name: str) -> Copied:
    entity = shop.refresh.entities[name].compiled
    page = path.copy(entity, *page_of(lambda: shop.source.read_page(entity.plan, None, None)))
    return replace(page, written=list(page.written))


def new_rows(shop: Shop) -> None:
    shop.rows["users"] += [{"id": n, "name": f"Ann {n}", "email": f"{n}@x"} for n in range(1, 40)]


def a_row_that_lost_its_key(shop: Shop) -> None:
    shop.change("users", 1, name="Ann", email="a@x")
    shop.change("users", 2, name="Bea", email="b@x")
    shop.relay.once()
    shop.rows["users"][0]["name"] = None


def two_rows_of_one_key(shop: Shop) -> None:
    shop.rows["users"] += [{"id": n, "name": "Ann", "email": f"{n}@x"} for n in (1, 2)]
    shop.rows["users"].append({"id": 3, "name": "Bea", "email": "b@x"})


def a_key_that_another_row_has_given_up(shop: Shop) -> None:
    shop.change("users", 1, name="Ann", email="a@x")
    shop.relay.once()
    shop.rows["users"][:] = [
        {"id": 1, "name": "Bea", "email": "a@x"},
        {"id": 2, "name": "Ann", "email": "b@x"},
    ]


def an_item_that_is_newer(shop: Shop) -> None:
    shop.rows["users"] += [{"id": n, "name": f"Ann {n}", "email": f"{n}@x"} for n in (1, 2)]
    stale = ConditionalPath(shop.refresh, shop.open_findings, {})
    copied(shop, stale, "users")
    shop.store.items["USER#1", "META"]["_tk"] = shop.tickets.highest() + 1
    shop.tickets.draw()
    shop.tickets.draw()


def orders_of_which_some_have_expired(shop: Shop) -> None:
    shop.rows["users"].append({"id": 1, "name": "Ann", "email": "a@x"})
    expiries = [None, datetime(2020, 1, 1), datetime(2100, 1, 1)]
    shop.rows["orders"] += [
        {"id": n, "user_id": 1, "expires_at": expiry} for n, expiry in enumerate(expiries)
    ]


WORLDS = [
    new_rows,
    a_row_that_lost_its_key,
    two_rows_of_one_key,
    a_key_that_another_row_has_given_up,
    an_item_that_is_newer,
    orders_of_which_some_have_expired,
]


def by_items(shop: Shop) -> None:
    """Lets items_for() make all items."""
    entities = shop.refresh.entities.values()
    for entity in entities:
        entity.__dict__["encoder"] = Encoder(entity.compiled, "", None)


@pytest.mark.parametrize("prepare", WORLDS)
@pytest.mark.parametrize("name", ["users", "named", "orders"])
def test_a_page_of_generated_code_is_the_page_of_items_for(
    prepare: Callable[[Shop], None], name: str
) -> None:
    reference, shop = shop_with(prepare), shop_with(prepare)
    by_items(reference)
    assert shop.refresh.entities[name].encoder.native
    paths = [ConditionalPath(one.refresh, one.open_findings, {}) for one in (reference, shop)]
    page, by_reference = copied(shop, paths[1], name), copied(reference, paths[0], name)
    assert (page, page.tickets()) == (by_reference, by_reference.tickets())
    assert shop.store.items == reference.store.items
    assert shop.open_findings.read() == reference.open_findings.read()
    assert shop.tickets.highest() == reference.tickets.highest()


def test_key_of_two_rows_stays_with_the_first_until_given_up() -> None:
    shop = shop_with(two_rows_of_one_key)
    page = copied(shop, ConditionalPath(shop.refresh, shop.open_findings, {}), "named")
    assert [(finding.kind, finding.source_key) for finding in page.findings] == [("collision", "[2]")]
    assert shop.live()["NAME#Ann", "META"]["_src"] == "named:[1]"
    shop = shop_with(a_key_that_another_row_has_given_up)
    page = copied(shop, ConditionalPath(shop.refresh, shop.open_findings, {}), "named")
    assert (page.findings, shop.live()["NAME#Ann", "META"]["_src"]) == ([], "named:[2]")


def test_items_carry_the_ticket_of_the_reading() -> None:
    shop = shop_with(new_rows)
    before = shop.tickets.highest()
    copied(shop, ConditionalPath(shop.refresh, shop.open_findings, {}), "users")
    assert {item["_tk"] for item in shop.live().values()} == {before + 1}


def test_a_page_of_a_writer_that_must_stop_is_not_sent() -> None:
    def stop() -> None:
        raise StoppedError("another run has its place")

    shop = shop_with(new_rows)
    shop.refresh.check = stop
    with pytest.raises(StoppedError):
        copied(shop, ConditionalPath(shop.refresh, shop.open_findings, {}), "users")
    assert shop.live() == {}


def test_item_refused_by_the_table_is_reported_by_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = shop_with(new_rows)
    taken = shop.store._write

    def refusing(item: EncodedItem) -> Outcome:
        return Outcome(item, "unwritten", why="too large") if item.key[0] == "USER#2" else taken(item)

    monkeypatch.setattr(shop.store, "_write", refusing)
    page = copied(shop, ConditionalPath(shop.refresh, shop.open_findings, {}), "users")
    assert page.receipt.unwritten == {("USER#2", "META"): "too large"}
    assert (page.receipt.items, len(page.written)) == (77, 77)


def test_key_that_names_a_row_is_never_read_as_server_text() -> None:
    class RawSource(MemorySource):
        def raw_places(self, plan: EntityPlan) -> frozenset[int]:
            return frozenset(range(len(plan.slots)))

    shop = shop_with(new_rows)
    checked = shop.checked
    entities = live_entities(checked.mapping, checked.entities, RawSource(SCHEMA, shop.rows))
    users = entities["users"].encoder
    assert users.raw
    assert users.raw.isdisjoint(users.entity.key_places)
