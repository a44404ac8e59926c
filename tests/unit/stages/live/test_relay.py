from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import pytest

from migrator.mapping.items.items import Reach
from migrator.mapping.model.live import Mark, Outcome
from migrator.mapping.model.table import EncodedItem, Item, source_text
from migrator.runtime.errors import ItemRefusedError, MigratorError, SettingsError, StoppedError, TargetError
from migrator.stages.backfill.write import ConditionalPath
from migrator.stages.live.relay import Ahead
from tests import pins
from tests.fakes.marks import MemoryMarks, MemoryTickets
from tests.fakes.store import FakeStore
from tests.support_fence import no_fence, page_of
from tests.unit.stages.core.live_world import Shop


def test_marks_read_before_the_ids_began_again_are_not_finished() -> None:
    """A restored source gives the same ids to other marks."""
    root, generations = ("user", "[1]"), ["first", "first", "second"]
    ahead = Ahead(MemoryMarks(), lambda mark: Reach({root: set()}), lambda: generations.pop(0))
    ahead.add([Mark(1), Mark(2)])
    assert [mark.id for mark in ahead.done([("user", "[2]")], ())] == []
    assert ahead.done([root], ()) == []


def test_marks_are_not_finished_if_ids_begin_again_before_a_read() -> None:
    root, now = ("user", "[1]"), ["first"]
    ahead = Ahead(MemoryMarks(), lambda mark: Reach({root: set()}), lambda: now[0])
    ahead.add([Mark(1)])
    now[0] = "second"
    assert ahead.done([root], ()) == []
    ahead.add([Mark(1)])
    assert [mark.id for mark in ahead.done([root], ())] == [1]


def test_parent_of_many_is_processed_in_pages_and_others_first() -> None:
    shop = Shop(roots=10, marks=1)
    shop.change("users", 1, name="Ann")
    for number in range(1, 36):
        shop.change("orders", number, user_id=1)
    while shop.relay.once().taken:
        pass
    shop.change("users", 1, name="Zoë")
    shop.change("users", 2, name="Bob")
    assert shop.relay.once().advanced == 1
    shop.relay.once()
    assert ("USER#2", "META") in shop.live()
    assert shop.marks.state().waiting == 1
    pages = 0
    while (worked := shop.relay.once()).taken:
        pages += worked.advanced
    assert pages == 2
    assert {item["name"] for key, item in shop.live().items() if key[1] != "META"} == {"Zoë"}


def test_marks_past_the_limit_of_roots_at_once_are_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("migrator.stages.live.relay.VALUES_A_SELECT", 2)
    shop = Shop(roots_at_once=3)
    for number in range(1, 7):
        shop.change("users", number, name="Ann")
    turns = []
    while (worked := shop.relay.once()).taken:
        turns.append((worked.taken, worked.finished))
    # Two marks are looked up at once; a third is below what there is room for, so its neighbour goes along.
    assert turns == [(6, 4), (2, 2)]
    assert len(shop.live()) == 6
    assert shop.marks.state().failed == 0


def test_second_parent_of_many_waits_while_a_turn_is_full() -> None:
    shop = Shop(marks=2, roots=3, roots_at_once=4)
    for user in (1, 2):
        shop.change("users", user, name="Ann")
        for number in range(4):
            shop.change("orders", 10 * user + number, user_id=user)
    while shop.relay.once().taken:
        pass
    for user in (1, 2):
        shop.change("users", user, name="Zoë")
    # A parent and three of its rows are as many as one turn takes.
    assert shop.relay.once().advanced == 1


def test_failing_mark_stops_no_other_and_is_retried_later() -> None:
    shop = Shop()
    shop.marks.leave("dropped", {"id": 1}, None)
    shop.change("users", 1, name="Ann")
    worked = shop.relay.once()
    assert ("USER#1", "META") in shop.live()
    assert [one.kind for one in worked.findings] == ["mark"]
    state = shop.marks.state()
    assert (state.waiting, state.failed, state.unripe) == (0, 1, 1)


def test_unreadable_mark_becomes_a_finding_and_stops_no_other() -> None:
    shop = Shop()
    shop.marks.keep(Mark(0, root=("users", '["1"]'), fault="its item keys are damaged"))
    shop.change("users", 1, name="Ann")
    worked = shop.relay.once()
    assert ("USER#1", "META") in shop.live()
    (found,) = worked.findings
    assert pins.said(found.reason)
    assert shop.marks.state().failed == 1


def test_a_mark_that_lacks_the_mappings_columns_is_kept() -> None:
    shop = Shop()
    shop.marks.leave("users", {}, {})
    worked = shop.relay.once()
    assert pins.said(worked.findings[0].reason)
    assert (worked.finished, shop.marks.state().unripe) == (0, 1)


def test_unreadable_names_pending_marks_of_another_mapping_alone() -> None:
    shop = Shop()
    shop.change("users", 1, name="Ann")
    assert list(shop.relay.unreadable()) == []
    shop.marks.leave("users", {}, {})
    shop.marks.leave("dropped", {"id": 1}, None)
    found = list(shop.relay.unreadable())
    assert len(found) == 2
    shop.marks.finish(found)
    shop.relay.once()
    assert shop.marks.state().failed == 0


class Watched(FakeStore):
    """Knows which items came as inserts, and which as puts."""

    tried: list[tuple[str, bool]]

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        self.tried += [(str(item.key[0]), fresh) for item in items]
        return super().write(items, fresh=fresh)


def test_items_of_new_rows_are_inserted_first_and_others_put() -> None:
    shop = Shop()
    for number in (1, 2, 3):
        shop.change("users", number, name="Ann")
    shop.relay.once()
    shop.refresh.store = store = Watched(shop.checked.mapping.table, no_fence)
    store.items, store.tried = shop.store.items, []
    shop.change("users", 1, name="Bob")
    shop.change("users", 2)
    shop.change("users", 2, name="Cleo")
    shop.change("users", 3)
    shop.change("users", 4, name="Dora")
    shop.change("users", 4, name="Dorothy")
    shop.relay.once()
    assert sorted(store.tried) == [("USER#1", False), ("USER#2", False), ("USER#3", False), ("USER#4", True)]
    assert store.items["USER#4", "META"]["name"] == "Dorothy"


class Refusing(FakeStore):
    """Takes no item of one key."""

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        if any(item.key[0] == "USER#2" for item in items):
            raise ItemRefusedError("DynamoDB refused put_item")
        return super().write(items, fresh=fresh)


def test_an_item_that_the_table_refuses_is_one_marks_trouble() -> None:
    shop = Shop()
    shop.refresh.store = store = Refusing(shop.checked.mapping.table, no_fence)
    for number in (1, 2, 3):
        shop.change("users", number, name="Ann")
    worked = shop.relay.once()
    assert sorted(store.items) == [("USER#1", "META"), ("USER#3", "META")]
    assert (worked.finished, worked.put_back) == (2, 1)


def test_one_mark_in_trouble_costs_its_neighbours_few_tickets() -> None:
    shop = Shop()
    shop.refresh.store = Refusing(shop.checked.mapping.table, no_fence)
    for number in range(1, 65):
        shop.change("users", number, name="Ann")
    before = shop.tickets.highest()
    worked = shop.relay.once()
    assert (worked.finished, worked.put_back) == (63, 1)
    # All of them, then twice half of what is left, six times.
    assert shop.tickets.highest() - before == 1 + 2 * 6


def test_marks_that_fail_again_cost_others_nothing() -> None:
    shop = Shop(wait_s=0.0)
    shop.refresh.store = Refusing(shop.checked.mapping.table, no_fence)
    shop.change("users", 2, name="Ann")
    assert shop.relay.once().put_back == 1
    for number in range(3, 67):
        shop.change("users", number, name="Ann")
    before = shop.tickets.highest()
    worked = shop.relay.once()
    assert (worked.finished, worked.put_back) == (64, 1)
    # All of them, and the one that has failed before.
    assert shop.tickets.highest() - before == 2


def test_mark_seen_ahead_that_failed_is_finished_once() -> None:
    shop = Shop(marks=2, wait_s=0.0)
    shop.refresh.store = Refusing(shop.checked.mapping.table, no_fence)
    for number in (1, 3, 2, 4):
        shop.change("users", number, name="Ann")
    # A full take looks ahead at the others, of which one fails in the next take.
    assert [shop.relay.once().put_back for _ in range(2)] == [0, 1]
    shop.refresh.store = shop.store
    shop.change("users", 2, name="Bea")
    worked = shop.relay.once()
    assert (worked.taken, worked.finished, len(worked.changes)) == (2, 2, 2)
    assert shop.live()["USER#2", "META"]["name"] == "Bea"


class Slow(FakeStore):
    """Takes `takes_s` for every write."""

    now_s, takes_s = 0.0, 0.0

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        self.now_s += self.takes_s
        return super().write(items, fresh=fresh)


def test_slow_table_gets_fewer_marks_at_once_and_a_quick_more() -> None:
    shop = Shop(marks=200, lease_s=4.0)
    shop.refresh.store = store = Slow(shop.checked.mapping.table, no_fence)
    shop.relay.clock = lambda: store.now_s
    for number in range(1, 701):
        shop.change("users", number, name="Ann")
    taken = []
    for store.takes_s in (1.1, 1.1, 1.1, 0.5, 0.2, 0.2, 0.2, 0.2, 0.2):
        taken.append(shop.relay.once().taken)
    assert taken == [100, 50, 25, 25, 25, 50, 100, 200, 125]


@dataclass
class Away(FakeStore):
    error: MigratorError

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        raise self.error


@pytest.mark.parametrize("error", [StoppedError("no answer"), TargetError("not allowed")])
def test_while_the_table_is_away_marks_stay_and_none_has_failed(error: MigratorError) -> None:
    shop = Shop(lease_s=0.0)
    shop.refresh.store = Away(error)
    shop.change("users", 1, name="Ann")
    with pytest.raises(type(error)):
        shop.relay.once()
    assert shop.marks.state().failed == 0
    shop.refresh.store = shop.store
    assert shop.relay.once().finished == 1
    assert ("USER#1", "META") in shop.live()


def test_a_row_that_is_refused_loses_its_items_and_is_a_finding() -> None:
    shop = Shop()
    shop.change("users", 1, name="Ann", email="a@x")
    shop.relay.once()
    shop.change("users", 1, email="")
    shop.relay.once()
    shop.change("users", 1, email="x" * 3000)
    (refreshed,) = shop.relay.once().refreshed
    assert [one.kind for one in refreshed.refused] == ["refused"]
    assert shop.live() == {}


def test_an_expired_row_is_buried_not_put() -> None:
    shop = Shop()
    shop.change("users", 1, name="Ann")
    shop.change("orders", 1, user_id=1, expires_at=datetime(2999, 1, 1))
    shop.relay.once()
    assert ("USER#1", "ORDER#000001") in shop.live()
    shop.change("orders", 1, expires_at=datetime(2001, 1, 1))
    shop.relay.once()
    assert ("USER#1", "ORDER#000001") not in shop.live()


def test_row_that_was_not_requested_is_left_alone() -> None:
    """A source whose keys ignore case answers with another row."""
    shop = Shop()
    shop.change("users", 1, name="Ann")
    others = shop.source.read_rows
    shop.source.read_rows = lambda plan, keys: others(plan, ["[1]"])  # type: ignore[method-assign]
    shop.refresh({("users", "[2]"): [("USER#2", "META")]})
    assert shop.live() == {}


def test_decreased_counter_stops_the_relay_and_draws_nothing() -> None:
    shop = Shop(lease_s=0.0)
    shop.memory.reached(5 * 10**12)
    before = shop.tickets.highest()
    shop.change("users", 1, name="Ann")
    for _ in range(3):
        with pins.refused(SettingsError):
            shop.relay.once()
    assert shop.tickets.highest() == before
    state = shop.marks.state()
    assert (state.waiting, state.failed) == (1, 0)


def test_a_cursor_of_another_mapping_begins_again() -> None:
    shop = Shop(roots=2)
    shop.change("users", 1, name="Ann")
    for number in range(1, 6):
        shop.change("orders", number, user_id=1)
    while shop.relay.once().taken:
        pass
    shop.change("users", 1, name="Zoë")
    shop.relay.once()
    shop.refresh.revision = "another mapping's"
    while shop.relay.once().taken:
        pass
    assert {item["name"] for item in shop.live().values() if item["type"] == "Order"} == {"Zoë"}


def test_row_that_gives_up_a_key_leaves_it_to_the_requesting_row() -> None:
    shop = Shop()
    shop.change("users", 1, name="Ann", email="a@x")
    shop.relay.once()
    shop.change("users", 2, name="Bob", email="a@x")
    (refreshed,) = shop.relay.once().refreshed
    assert [request.root for request in refreshed.collisions] == [("users", "[2]")]
    assert shop.live()["EMAIL#a@x", "EMAIL"]["_src"] == "users:[1]"
    shop.change("users", 1, email="b@x")
    shop.relay.once()
    assert shop.live()["EMAIL#a@x", "EMAIL"]["_src"] == "users:[2]"
    assert shop.memory.requests == {}


REFUSING = """
  named:
    table: users
    items:
      Named: {key: ["NAME#{name}", META]}
"""


def test_refused_row_opens_before_its_mark_ends_until_refreshed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Shop(REFUSING)
    shop.change("users", 1, email="a@x")

    def crash(ids: object) -> None:
        raise StoppedError("the source is away")

    with monkeypatch.context() as patched:
        patched.setattr(shop.marks, "finish", crash)
        with pytest.raises(StoppedError):
            shop.relay.once()
    assert [(one.kind, one.entity, one.source_key) for one in shop.open_findings.read()] == [
        ("refused", "named", "[1]")
    ]
    shop.change("users", 1, name="Ann")
    shop.relay.once()
    assert shop.open_findings.read() == []


def test_refused_row_that_is_deleted_is_processed() -> None:
    shop = Shop(REFUSING)
    shop.change("users", 1, email="a@x")
    shop.relay.once()
    assert shop.open_findings.counts() == {"refused": 1}
    shop.change("users", 1)
    shop.relay.once()
    assert shop.open_findings.read() == []


def test_conditional_backfill_closes_fixed_findings_only() -> None:
    shop = Shop(REFUSING)
    for number in (1, 2):
        shop.change("users", number, email=f"{number}@x")
    shop.relay.once()
    shop.rows["users"][0]["name"] = "Ann"
    named = next(one for one in shop.checked.entities if one.name == "named")
    path = ConditionalPath(shop.refresh, shop.open_findings, {})
    path.copy(named, *page_of(lambda: shop.source.read_page(named.plan, None, None)))
    assert shop.open_findings.roots() == [("named", "[2]")]


def test_relay_that_may_no_longer_write_acknowledges_no_mark() -> None:
    """Its lease ended, or another mapping became the newest, after its items were stored."""
    shop = Shop(roots=1)
    shop.change("users", 1, name="Ann")
    stored = shop.store.write

    def write(items: Sequence[EncodedItem], **how: bool) -> list[Outcome]:
        outcomes = stored(items, **how)
        shop.refresh.check = ended
        return outcomes

    def ended() -> None:
        raise StoppedError("another mapping is the newest")

    shop.store.write = write  # type: ignore[method-assign]
    with pytest.raises(StoppedError):
        shop.relay.once()
    assert ("USER#1", "META") in shop.live()
    shop.refresh.check = no_fence
    shop.store.write = stored  # type: ignore[method-assign]
    assert shop.marks.state().waiting + shop.marks.state().unripe == 1


# ── marks of a row beyond the take ──


def worked_off(shop: Shop) -> tuple[int, int]:
    """Marks that were acknowledged, and rows that were read for them, until no mark is left."""
    turns = []
    while (worked := shop.relay.once()).taken:
        turns.append(worked)
    assert shop.marks.state().waiting == 0
    return sum(one.finished for one in turns), sum(
        refreshed.roots for one in turns for refreshed in one.refreshed
    )


def test_a_backlog_costs_its_rows_not_its_marks() -> None:
    shop = Shop(marks=2)
    for turn in range(20):
        for user in range(1, 6):
            shop.change("users", user, name=f"Ann {turn}")
    assert worked_off(shop) == (100, 5)
    assert {item["name"] for item in shop.live().values()} == {"Ann 19"}


def test_a_backlog_of_a_parent_costs_its_children_once() -> None:
    shop = Shop(marks=2)
    shop.change("users", 1, name="Ann")
    shop.change("orders", 1, user_id=1)
    worked_off(shop)
    for turn in range(20):
        shop.change("users", 1, name=f"Ann {turn}")
    assert worked_off(shop) == (20, 2)
    assert shop.live()["USER#1", "ORDER#000001"]["name"] == "Ann 19"


def _of_one_parent(shop: Shop, changes: int) -> None:
    shop.rows["orders"] += [{"id": number, "user_id": 1, "expires_at": None} for number in range(1, 12)]
    for turn in range(changes):
        shop.change("users", 1, name=f"name {turn}")


def test_a_backlog_of_one_parent_costs_its_rows_not_its_changes() -> None:
    shop = Shop(marks=20, roots=3, ahead_after=8)
    _of_one_parent(shop, 40)
    finished, rows = worked_off(shop)
    # One walk a take: 11 rows of the parent, and the parent itself.
    assert (finished, rows) == (40, 2 * 12)
    assert {item["name"] for item in shop.live().values()} == {"name 39"}


def test_marks_waiting_for_a_slow_walk_are_given_back() -> None:
    shop = Shop(marks=20, roots=3, lease_s=0)
    _of_one_parent(shop, 3)
    worked = shop.relay.once()
    assert (worked.taken, worked.finished, worked.advanced) == (3, 0, 1)
    assert shop.marks.state().waiting == 3
    worked_off(shop)
    assert {item["name"] for item in shop.live().values()} == {"name 2"}


def test_change_during_a_walk_of_parent_rows_waits_for_another() -> None:
    shop = Shop(marks=20, roots=3)
    _of_one_parent(shop, 3)
    shop.refresh.store = store = Changing(shop.checked.mapping.table, no_fence)
    written: list[int] = []

    def change() -> None:
        written.append(1)
        if len(written) == 2:
            shop.change("users", 1, name="late")

    store.change = change
    worked = shop.relay.once()
    assert (worked.finished, shop.marks.state().waiting) == (3, 1)
    worked_off(shop)
    assert {item["name"] for item in store.items.values()} == {"late"}


def test_all_keys_of_a_backlog_are_tombstoned() -> None:
    shop = Shop(marks=1)
    for email in ("a@x", "b@x", "c@x", "d@x"):
        shop.change("users", 1, name="Ann", email=email)
        shop.store.items["EMAIL#" + email, "EMAIL"] = _item_of(shop, email)
    finished, rows = worked_off(shop)
    assert (finished, rows) == (4, 1)
    assert set(shop.live()) == {("USER#1", "META"), ("EMAIL#d@x", "EMAIL")}


def _item_of(shop: Shop, email: str) -> Item:
    table = shop.checked.mapping.table
    key = {"PK": f"EMAIL#{email}", "SK": "EMAIL", "type": "Email"}
    return {**key, table.source_attribute: source_text("users", "[1]"), table.ticket_attribute: 0}


class Changing(FakeStore):
    """Changes a row of the shop, after it was read and before its item is stored."""

    change: Callable[[], None]

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        self.change()
        return super().write(items, fresh=fresh)


def test_pending_marks_of_a_row_that_fails_are_not_acknowledged() -> None:
    shop = Shop(marks=1)
    shop.refresh.store = Refusing(shop.checked.mapping.table, no_fence)
    for _ in range(3):
        shop.change("users", 2, name="Ann")
    worked = shop.relay.once()
    assert (worked.finished, worked.put_back) == (0, 1)
    assert shop.marks.state().waiting == 2


def test_a_mark_of_two_rows_waits_for_both() -> None:
    shop = Shop(marks=1)
    shop.change("users", 1, name="Ann")
    shop.marks.leave("users", {"id": 1, "email": None}, {"id": 2, "email": None})
    assert shop.relay.once().finished == 1
    assert shop.relay.once().finished == 1


@pytest.mark.parametrize(
    "renew", [MemoryTickets.install, lambda tickets: tickets.raise_epoch(tickets.highest())]
)
def test_marks_of_another_generation_are_not_acknowledged(renew: Callable[[MemoryTickets], object]) -> None:
    shop = Shop(marks=1)
    for user in (1, 2, 1, 2):
        shop.change("users", user, name="Ann")
    assert shop.relay.once().finished == 2
    renew(shop.tickets)
    shop.marks = MemoryMarks()
    shop.relay.marks = shop.relay._ahead.marks = shop.marks
    for user in (2, 3, 4):
        shop.change("users", user, name="Zoë")
    worked_off(shop)
    assert {key[0]: item["name"] for key, item in shop.live().items()} == {
        **{"USER#1": "Ann", "USER#2": "Zoë"},
        **{"USER#3": "Zoë", "USER#4": "Zoë"},
    }


def test_relay_looks_ahead_only_after_full_takes_in_a_row() -> None:
    shop = Shop(marks=1, ahead_after=2)
    for _ in range(6):
        shop.change("users", 1, name="Ann")
    assert [shop.relay.once().finished for _ in range(3)] == [1, 1, 4]


@pytest.mark.parametrize(("repeated", "looked"), [(0, 20), (2, 20), (40, 100)])
def test_a_relay_looks_further_ahead_only_if_that_spares_takes(
    repeated: int, looked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.stages.live.relay.TRIAL", 20)
    shop = Shop(marks=10, ahead=100)
    monkeypatch.setattr("migrator.stages.live.relay.FEWEST_MARKS", 1)
    for number in range(200):
        shop.change("users", number % 10 if 10 <= number < 10 + repeated else number, name="Ann")
    seen = set[int]()

    def look(after: int, count: int, *, free: bool = False) -> list[Mark]:
        marks = MemoryMarks.look(shop.marks, after, count, free=free)
        seen.update(mark.id for mark in marks)
        return marks

    monkeypatch.setattr(shop.marks, "look", look)
    shop.relay.once()
    assert len(seen) == 20
    shop.relay.once()
    assert len(seen) >= looked if repeated == 40 else len(seen) == looked
    worked_off(shop)


@pytest.mark.parametrize(("trial", "finished"), [(100, [1, 3]), (1, [1, 1])])
def test_relay_stops_looking_ahead_when_it_spares_nothing(
    trial: int, finished: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.stages.live.relay.TRIAL", trial)
    shop = Shop(marks=1)
    for user in (1, 2, 3, 4):
        shop.change("users", user, name="Ann")
    first = shop.relay.once().finished
    for _ in range(2):
        shop.change("users", 2, name="Zoë")
    assert [first, shop.relay.once().finished] == finished
    worked_off(shop)
    assert {key[0]: item["name"] for key, item in shop.live().items()}["USER#2"] == "Zoë"
