"""A page of which only a part is written: the item types that a new revision changes, and tombstones where keys were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from migrator.mapping.check.check import Checked
from migrator.mapping.difference.difference import PlannedRevision, difference
from migrator.mapping.items.encoder import item_of
from migrator.mapping.model.live import Outcome
from migrator.mapping.model.table import TOMBSTONE, EncodedItem, Item, ItemKey, RowTree
from migrator.runtime.values import replace
from migrator.stages.backfill.write import ConditionalPath, Copied, only_changed
from migrator.stages.live.relay import live_entities
from tests.fakes.source import MemorySource
from tests.golden.heart import check
from tests.support_fence import page_of
from tests.unit.stages.core.live_world import HEAD, MAPPING, SCHEMA, Shop

ATOMIC = """
access_patterns:
  user: {params: {id: integer}, get: {key: ["USER#{id}", META]}, returns: [name], atomic: true, sql: SELECT 1}
  by_email: {params: {e: text}, get: {key: ["EMAIL#{e}", EMAIL]}, returns: [PK], atomic: true, sql: SELECT 1}
"""
CONTROL = "_control"
MORE = MAPPING.replace("keep: [name]", "keep: [name, email]")
MOVED = MAPPING.replace("EMAIL#{email}", "MAIL#{email}")
GONE = MAPPING.replace('      Email: {key: ["EMAIL#{email}", EMAIL], when: email}\n', "")
SOME = MAPPING.replace("when: email", "when: {name: [Ann]}")
FEWER = MAPPING.replace("  users:\n    items", "  users:\n    where: {name: [Ann]}\n    items")


class Revised:
    """A shop whose table was written by one mapping, and pages of it by another one."""

    def __init__(self, text: str, more: str = "", newer: str | None = None) -> None:
        self.shop = Shop(more)
        self.shop.change("users", 1, name="Ann", email="a@x")
        self.shop.change("users", 2, name="Bea", email="b@x")
        self.shop.relay.once()
        self.new = check(text + (more if newer is None else newer), SCHEMA, HEAD)
        self.refresh = replace(
            self.shop.refresh,
            entities=live_entities(self.new.mapping, self.new.entities, self.shop.source),
            revision=self.new.mapping.revision,
        )
        self.between: Callable[[], None] = lambda: None

    class Source(MemorySource):
        """Between its two readings something happens."""

        def __init__(self, revised: Revised) -> None:
            super().__init__(SCHEMA, revised.shop.rows)
            self.revised = revised

        def read_page(self, *page: Any) -> list[RowTree]:
            rows = super().read_page(*page)
            between, self.revised.between = self.revised.between, lambda: None
            between()
            return rows

    def copy(self, *, is_first: bool = True) -> Copied:
        """The page of all users."""
        old, source = self.shop.checked, self.Source(self)
        found = {one.name: one for one in difference(_revision(old), _revision(self.new)).entities}
        live = self.refresh.entities["users"]
        former = next(entity for entity in old.entities if entity.name == "users")
        only = only_changed(found["users"], live.together, former, source, is_first=is_first)
        path = ConditionalPath(self.refresh, self.shop.open_findings, {"users": only})

        return path.copy(live.compiled, *page_of(lambda: source.read_page(live.compiled.plan, None, None)))

    def written(self) -> dict[ItemKey, Item]:
        """What the page wrote, by its ticket."""
        ticket = max(int(str(item["_tk"])) for item in self.shop.store.items.values() if "_tk" in item)
        items = self.shop.store.items.items()
        return {key: item for key, item in items if item.get("_tk") == ticket and item["type"] != CONTROL}


def _revision(checked: Checked) -> PlannedRevision:
    return PlannedRevision(checked.mapping, checked.plans)


def kinds(items: dict[ItemKey, Item]) -> dict[str, str]:
    return {str(key[0]): str(item["type"]) for key, item in sorted(items.items())}


def test_only_types_that_change_are_sent() -> None:
    revised = Revised(MORE)
    copied = revised.copy()
    assert kinds(revised.written()) == {"USER#1": "User", "USER#2": "User"}
    assert (copied.rows, copied.receipt.items, copied.receipt.write_units) == (2, 2, 2.0)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (MOVED, {"EMAIL#a@x": TOMBSTONE, "EMAIL#b@x": TOMBSTONE, "MAIL#a@x": "Email", "MAIL#b@x": "Email"}),
        (GONE, {"EMAIL#a@x": TOMBSTONE, "EMAIL#b@x": TOMBSTONE}),
        (SOME, {"EMAIL#a@x": "Email", "EMAIL#b@x": TOMBSTONE}),
        (FEWER, {"EMAIL#a@x": "Email", "EMAIL#b@x": TOMBSTONE, "USER#1": "User", "USER#2": TOMBSTONE}),
    ],
    ids=["moved", "a type gone", "some of a type", "fewer rows"],
)
def test_keys_that_rows_no_longer_have_become_their_tombstones(text: str, written: dict[str, str]) -> None:
    revised = Revised(text)
    revised.copy()
    assert kinds(revised.written()) == written
    dead = [item for item in revised.written().values() if item["type"] == TOMBSTONE]
    assert {item["_src"] for item in dead} <= {"users:[1]", "users:[2]"}


def test_what_a_relay_writes_meanwhile_stays() -> None:
    revised = Revised(MOVED)
    shop, key = revised.shop, ("MAIL#a@x", "EMAIL")

    def written() -> None:
        # Of a reading that is newer than the page's: the row has another address by now.
        ticket = shop.tickets.draw()
        shop.store.items[key] = item_of(revised.refresh.tombstone(("users", "[1]"), key, ticket))

    revised.between = written
    revised.copy()
    assert shop.store.items[key]["type"] == TOMBSTONE


def test_row_that_returns_between_both_readings_keeps_its_items() -> None:
    revised = Revised(FEWER)

    def renamed() -> None:
        next(row for row in revised.shop.rows["users"] if row["id"] == 2)["name"] = "Ann"

    revised.between = renamed
    revised.copy()
    assert kinds(revised.written())["USER#2"] == "User", "the older reading says nothing of what it is now"


def test_types_that_are_written_together_are_sent_together() -> None:
    revised = Revised(MORE, ATOMIC)
    revised.copy()
    assert set(kinds(revised.written()).values()) == {"User", "Email"}


def test_row_that_gives_up_keys_is_written_in_one_transaction() -> None:
    revised = Revised(MOVED, ATOMIC, ATOMIC.replace("EMAIL#{e}", "MAIL#{e}"))
    sizes: list[int] = []
    together = revised.shop.store.write_together

    def watched(groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
        sizes.extend(map(len, groups))
        return together(groups)

    revised.shop.store.write_together = watched  # type: ignore[method-assign]
    revised.copy()
    assert kinds(revised.written())["EMAIL#a@x"] == TOMBSTONE
    assert sizes == [3, 3], "the user, the new address, and the tombstone of the old one"


def tries(revised: Revised, *, is_first: bool) -> list[bool]:
    """Of each item that is sent, whether it is tried as an insert first."""
    tried: list[bool] = []
    write = revised.shop.store.write

    def counted(items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        tried.extend(fresh for item in items if not item.is_tombstone)
        return write(items, fresh=fresh)

    revised.shop.store.write = counted  # type: ignore[method-assign]
    revised.copy(is_first=is_first)
    return tried


def test_keys_that_the_job_has_left_are_not_tried_as_inserts() -> None:
    """Each would fail on the tombstone there, and be charged all the same."""
    assert tries(Revised(MOVED), is_first=True) == [True, True]
    assert tries(Revised(MOVED), is_first=False) == [False, False]
