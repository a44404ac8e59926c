"""Rows whose items are written together, on fakes: whatever is in the way of one, all of them come to what the row says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from migrator.mapping.items.encoder import encoded_of
from migrator.mapping.model.live import Outcome
from migrator.mapping.model.table import TOMBSTONE, EncodedItem, KeyAttribute, TableDesign
from migrator.runtime.errors import ItemRefusedError
from migrator.stages.backfill.write import WHOLE, write_concurrently
from migrator.stages.live.send import group_waves, sorted_out
from tests import pins
from tests.fakes.store import FakeStore
from tests.support_fence import no_fence, page_of
from tests.support_items import put_items
from tests.unit.stages.core.live_world import Shop

ATOMIC = """
access_patterns:
  user: {params: {id: integer}, get: {key: ["USER#{id}", META]}, returns: [name], atomic: true, sql: SELECT 1}
  by_email: {params: {e: text}, get: {key: ["EMAIL#{e}", EMAIL]}, returns: [PK], atomic: true, sql: SELECT 1}
"""
TABLE = TableDesign("T", (KeyAttribute("PK"),), "type")


class Noted(FakeStore):
    """Notes the size of each request of writing."""

    def __init__(self, design: TableDesign) -> None:
        super().__init__(design, no_fence)
        self.requests: list[int] = []

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        self.requests += [1] * len(items)
        return super().write(items, fresh=fresh)

    def write_together(self, groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
        self.requests += [len(group) for group in groups]
        return super().write_together(groups)


class Atomic(Shop):
    """A shop in which a user and its e-mail address are written together."""

    def __init__(self, **options: int) -> None:
        super().__init__(ATOMIC, **options)
        self.refresh.store = self.store = self.noted = Noted(self.checked.mapping.table)

    def users(self, *users: tuple[int, str, str | None]) -> None:
        for number, name, email in users:
            self.change("users", number, name=name, email=email)
        self.relay.once()
        self.noted.requests.clear()

    def emails(self) -> dict[str, str]:
        return {
            str(item["PK"])[6:]: str(item["_src"]) for key, item in self.live().items() if key[1] == "EMAIL"
        }

    def names(self) -> list[str]:
        return sorted(str(item["name"]) for key, item in self.live().items() if key[1] == "META")


@pytest.fixture
def shop() -> Atomic:
    return Atomic()


def test_all_items_of_a_row_and_its_tombstones_are_one_request(shop: Atomic) -> None:
    shop.users((1, "Ann", "a@x"))
    shop.change("users", 1, name="Bea", email="b@x")
    shop.relay.once()
    assert shop.noted.requests == [3]
    assert (shop.names(), shop.emails()) == (["Bea"], {"b@x": "users:[1]"})


def test_items_that_no_atomic_pattern_reads_are_written_singly(shop: Atomic) -> None:
    shop.users((1, "Ann", "a@x"))
    shop.change("orders", 1, user_id=1)
    shop.relay.once()
    assert shop.noted.requests == [1]


def test_five_rows_that_pass_their_keys_round_come_to_an_end(shop: Atomic) -> None:
    shop.users(*[(n, f"N{n}", f"{n}@x") for n in range(5)])
    for n in range(5):
        shop.change("users", n, name=f"M{n}", email=f"{(n + 1) % 5}@x")
    assert shop.relay.once().finished == 5
    assert shop.emails() == {f"{(n + 1) % 5}@x": f"users:[{n}]" for n in range(5)}
    assert shop.names() == [f"M{n}" for n in range(5)]


@pytest.mark.parametrize("first", [1, 2])
def test_key_that_moves_on_follows_any_order_of_marks(first: int) -> None:
    shop = Atomic(marks=1)
    shop.users((1, "Ann", "a@x"))
    shop.relay.once()
    if first == 1:
        shop.change("users", 1, name="Ann 2", email="c@x")
    shop.change("users", 2, name="Bob", email="a@x")
    if first == 2:
        shop.change("users", 1, name="Ann 2", email="c@x")
    while shop.relay.once().taken:
        pass
    assert shop.emails() == {"a@x": "users:[2]", "c@x": "users:[1]"}
    assert shop.names() == ["Ann 2", "Bob"]


def test_key_of_another_row_holds_back_no_other_item(shop: Atomic) -> None:
    shop.users((1, "Ann", "a@x"), (2, "Bob", "b@x"))
    shop.change("users", 2, name="Bob 2", email="a@x")
    (refreshed,) = shop.relay.once().refreshed
    assert [request.root for request in refreshed.collisions] == [("users", "[2]")]
    assert (shop.names(), shop.emails()) == (["Ann", "Bob 2"], {"a@x": "users:[1]"})
    shop.change("users", 1, email=None)
    shop.relay.once()
    assert shop.emails() == {"a@x": "users:[2]"}
    assert shop.memory.requests == {}


def test_key_of_a_foreign_item_holds_back_no_other_item(shop: Atomic) -> None:
    put_items(shop.store, [{"PK": "EMAIL#a@x", "SK": "EMAIL", "type": "Foreign"}])
    shop.users((1, "Ann", "a@x"))
    assert shop.names() == ["Ann"]
    assert shop.store.items["EMAIL#a@x", "EMAIL"]["type"] == "Foreign"


def test_key_given_away_long_ago_holds_back_no_other_item(shop: Atomic) -> None:
    """A mark of the past says that the row had a key which is another's by now."""
    shop.users((1, "Ann", "a@x"))
    shop.change("users", 1, email="b@x")
    shop.change("users", 2, name="Bob", email="a@x")
    shop.relay.once()
    shop.refresh({("users", "[1]"): [("EMAIL#a@x", "EMAIL")]})
    assert shop.emails() == {"a@x": "users:[2]", "b@x": "users:[1]"}
    assert shop.names() == ["Ann", "Bob"]


def test_one_item_that_was_written_newer_has_the_row_read_again(shop: Atomic) -> None:
    shop.users((1, "Ann", "a@x"))
    shop.store.items["USER#1", "META"] |= {"_tk": shop.tickets.draw() + 1, "name": "Bea"}
    shop.change("users", 1, name="Bea", email="b@x")
    shop.relay.once()
    assert (shop.names(), shop.emails()) == (["Bea"], {"b@x": "users:[1]"})
    assert len({item["_tk"] for item in shop.live().values()}) == 1


def test_a_row_of_which_all_is_newer_is_done(shop: Atomic) -> None:
    shop.users((1, "Ann", "a@x"))
    ticket = shop.tickets.highest() + 2

    def others_write() -> None:
        """Another writer draws a ticket after this row was read, and is faster."""
        shop.tickets.draw()
        for item in shop.live().values():
            item["_tk"] = ticket

    shop.refresh.check = others_write
    refreshed = shop.refresh({("users", "[1]"): []})
    assert (refreshed.newer, refreshed.stored, shop.noted.requests) == (2, 0, [2])


def test_page_writes_a_row_in_one_request_and_deletes_old_items(shop: Atomic) -> None:
    shop.users((1, "Ann", "a@x"))
    shop.change("users", 1, name="Bea", email="b@x")
    plan = shop.refresh.entities["users"].compiled.plan
    _, read = page_of(lambda: shop.source.read_page(plan, None, None))
    before = shop.tickets.highest()
    beside = write_concurrently(shop.refresh, "users", read, WHOLE)
    assert shop.noted.requests == [3]
    assert beside.tickets() == {("users", "[1]"): before + 2}, "it was read again"
    assert (shop.names(), shop.emails()) == (["Bea"], {"b@x": "users:[1]"})


def test_a_page_of_new_rows_is_a_request_a_row(shop: Atomic) -> None:
    for number in range(3):
        shop.change("users", number, name="Ann", email=f"{number}@x")
    plan = shop.refresh.entities["users"].compiled.plan
    _, read = page_of(lambda: shop.source.read_page(plan, None, None))
    before = shop.tickets.highest()
    beside = write_concurrently(shop.refresh, "users", read, WHOLE)
    assert (shop.noted.requests, len(beside.written)) == ([2, 2, 2], 6)
    assert set(beside.tickets().values()) == {before + 1}, "none was read again"


@pytest.mark.parametrize("singly", [False, True])
def test_refused_group_is_written_singly_or_fails_its_own_mark(shop: Atomic, *, singly: bool) -> None:
    class Refusing(Noted):
        def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
            if not singly and any(item.key[0] == "USER#2" for item in items):
                raise ItemRefusedError("DynamoDB refused put_item")
            return super().write(items, fresh=fresh)

        def write_together(self, groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
            if any(item.key[0] == "USER#2" for group in groups for item in group):
                raise ItemRefusedError("DynamoDB refused a transaction")
            return super().write_together(groups)

    shop.refresh.store = store = Refusing(shop.checked.mapping.table)
    for number in (1, 2, 3):
        shop.change("users", number, name="Ann", email=f"{number}@x")
    worked = shop.relay.once()
    assert (worked.finished, worked.put_back) == ((3, 0) if singly else (2, 1))
    assert ("EMAIL#3@x", "EMAIL") in store.items
    found = {one.source_key for refreshed in worked.refreshed for one in refreshed.apart}
    assert found == ({"[2]"} if singly else set())


# ── what goes with what ──


def item(key: str, source: str = "a:[1]", type_: str = "A", **more: str) -> EncodedItem:
    return encoded_of({"PK": key, "type": type_, "_src": source, **more}, TABLE)


TOGETHER = {"a": frozenset({"A", "B"})}


def test_only_types_read_together_and_tombstones_form_a_group() -> None:
    items = [item("1"), item("2", type_="B"), item("3", type_="C"), item("4", type_=TOMBSTONE)]
    others = [item("5", "b:[1]"), item("6", "b:[1]", TOMBSTONE), item("7", "a:[2]")]
    sending = sorted_out([*items, *others], TOGETHER)
    assert [[one.key[0] for one in group] for group in sending.groups] == [["1", "2", "4"]]
    assert [one.key[0] for one in sending.live] == ["3", "5", "7"]
    assert [one.key[0] for one in sending.tombstones] == ["6"]
    assert sending.findings() == []


def test_of_two_items_of_one_key_the_later_one_is_in_the_group() -> None:
    sending = sorted_out([item("1"), item("2"), item("1", type_="B")], TOGETHER)
    assert [[(one.key[0], one.type) for one in group] for group in sending.groups] == [
        [("1", "B"), ("2", "A")]
    ]


@pytest.mark.parametrize(("count", "is_whole"), [(99, True), (100, True), (101, False)])
def test_group_of_more_than_100_is_a_finding_and_written_singly(count: int, *, is_whole: bool) -> None:
    sending = sorted_out([item(str(n)) for n in range(count)], TOGETHER)
    assert ([len(group) for group in sending.groups], len(sending.live)) == (
        ([count], 0) if is_whole else ([], count)
    )
    assert [one.source_key for one in sending.findings()] == ([] if is_whole else ["[1]"])


def test_group_of_more_than_4_mb_is_a_finding_and_written_singly() -> None:
    large = [item(str(n), text="x" * 399_000) for n in range(11)]
    assert len(sorted_out(large[:10], TOGETHER).groups[0]) == 10
    sending = sorted_out(large, TOGETHER)
    assert (sending.groups, len(sending.live)) == ([], 11)
    (finding,) = sending.findings()
    assert pins.said(finding.reason)
    assert "xxx" not in finding.reason


def test_a_key_that_is_apart_is_in_no_group() -> None:
    sending = sorted_out([item("1"), item("2"), item("3")], TOGETHER, {(("a", "[1]"), ("2",))})
    assert [[one.key[0] for one in group] for group in sending.groups] == [["1", "3"]]
    assert [one.key[0] for one in sending.live] == ["2"]


def test_groups_sharing_a_key_are_sequential_tombstones_first() -> None:
    wants, gives, other = (
        [item("1")],
        [item("1", "a:[2]", TOMBSTONE), item("2", "a:[2]")],
        [item("3", "a:[3]")],
    )
    assert group_waves([wants, gives, other]) == [[gives, other], [wants]]
