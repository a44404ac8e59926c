"""What every memory of keys and contests does: the fake one, and journals of every kind."""

from __future__ import annotations

from collections.abc import Callable, Set
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from migrator.journal.memory import SqlMemory
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.live import KeyRequest, Memory, Remembered, Root
from migrator.mapping.model.table import ItemKey
from tests.fakes.journal import FakeMemory

ONE: Root = ("order", "[1]")
TWO: Root = ("order", "[2]")
A: ItemKey = ("ORDER#1", "A")
B: ItemKey = ("ORDER#1", "B")
C: ItemKey = ("ORDER#1", "C")

MakeMemory = Callable[[str], Memory]


@pytest.fixture
def make(journal_or_fake: SqlJournal | None) -> MakeMemory:
    """A function from a table's id to its memory."""
    made: dict[str, Memory] = {}
    if journal_or_fake is None:
        return lambda table_id: made.setdefault(table_id, FakeMemory())
    database = journal_or_fake.database
    return lambda table_id: SqlMemory(database, table_id)


@pytest.fixture
def memory(make: MakeMemory) -> Memory:
    return make("table-1")


def keys_of(memory: Memory, root: Root = ONE) -> tuple[int, Set[ItemKey]]:
    """What is remembered, read without changing anything."""
    found = memory.remember(-1, {root: []})[root]
    return found.ticket, found.keys


def test_intended_keys_are_passed_to_the_next_and_add_up(memory: Memory) -> None:
    assert memory.remember(5, {ONE: [A], TWO: []}) == {ONE: Remembered(), TWO: Remembered()}
    assert memory.remember(6, {ONE: [B]}) == {ONE: Remembered(5, frozenset({A}))}
    assert memory.remember(6, {ONE: [B, C]}) == {ONE: Remembered(6, frozenset({A, B}))}
    assert keys_of(memory) == (6, {A, B, C})
    assert keys_of(memory, TWO) == (5, frozenset())
    assert memory.remember(9, {}) == {}


def test_late_writer_changes_nothing_and_is_notified(memory: Memory) -> None:
    memory.remember(6, {ONE: [A]})
    found = memory.remember(5, {ONE: [B], TWO: [C]})
    assert found == {ONE: Remembered(6, frozenset({A})), TWO: Remembered()}
    assert keys_of(memory) == (6, {A})
    assert keys_of(memory, TWO) == (5, {C})


def test_only_current_keys_stay_without_a_writer_in_between(memory: Memory) -> None:
    memory.remember(5, {ONE: [A, B], TWO: [A]})
    memory.remember(6, {TWO: [B]})
    memory.settle(5, {ONE: [B], TWO: [], ("order", "[3]"): [A]})
    assert keys_of(memory) == (5, {B})
    assert keys_of(memory, TWO) == (6, {A, B})
    memory.settle(6, {TWO: []})
    assert keys_of(memory, TWO) == (6, frozenset())
    # A key that was never intended is not remembered by settling.
    memory.settle(5, {ONE: [B, C]})
    assert keys_of(memory) == (5, {B})


def test_a_root_without_keys_still_knows_its_ticket(memory: Memory) -> None:
    memory.remember(6, {ONE: [A]})
    memory.settle(6, {ONE: []})
    assert memory.remember(5, {ONE: [B]}) == {ONE: Remembered(6, frozenset())}


def test_tables_have_memories_of_their_own(make: MakeMemory) -> None:
    make("table-1").remember(5, {ONE: [A]})
    make("table-1").request_keys([KeyRequest(A, ONE)], 1)
    assert make("table-2").remember(4, {ONE: [B]}) == {ONE: Remembered()}
    assert make("table-2").requests_of([A]) == []


def test_keys_are_of_any_type_and_as_long_as_dynamodb_takes(memory: Memory) -> None:
    keys: list[ItemKey] = [(Decimal("1.50"), b"\x00\xff"), ("x" * 2048, "ä" * 512), (7,), ("'\"", "\\ 😀")]
    memory.remember(5, {ONE: keys})
    assert keys_of(memory) == (5, set(keys))
    memory.request_keys([KeyRequest(key, TWO) for key in keys], 1)
    assert {one.key for one in memory.requests_of(keys)} == set(keys)


def test_equal_numbers_are_one_key(memory: Memory) -> None:
    memory.remember(5, {ONE: [(Decimal("1.50"), 7)]})
    memory.remember(5, {ONE: [(Decimal("1.5"), Decimal("7.0"))]})
    assert keys_of(memory) == (5, {(Decimal("1.5"), 7)})
    memory.settle(5, {ONE: [(Decimal("1.500"), 7)]})
    assert len(keys_of(memory)[1]) == 1


def test_names_that_look_alike_are_two_roots(memory: Memory) -> None:
    roots: list[Root] = [
        ("order", "[1]"),
        ("Order", "[1]"),
        ("order", '["1"]'),
        ("order", '["a"]'),
        ("order", '["A "]'),
    ]
    for number, root in enumerate(roots):
        assert memory.remember(number, {root: [A]}) == {root: Remembered()}


def test_thousands_of_roots_in_one_call(memory: Memory) -> None:
    intended: dict[Root, list[ItemKey]] = {
        ("order", f"[{n}]"): [("P", f"{n}"), ("Q", f"{n}")] for n in range(1000)
    }
    assert set(memory.remember(5, intended).values()) == {Remembered()}
    memory.settle(5, {root: keys[:1] for root, keys in intended.items()})
    found = memory.remember(6, intended)
    assert found == {root: Remembered(5, frozenset(keys[:1])) for root, keys in intended.items()}


def test_of_many_at_once_none_is_forgotten(memory: Memory) -> None:
    roots: list[Root] = [("order", f"[{n}]") for n in range(60)]

    def work(ticket: int) -> None:
        order = roots if ticket % 2 else list(reversed(roots))
        told = memory.remember(ticket, {root: [("K", f"{ticket}")] for root in order})
        mine = {root: [("K", f"{ticket}")] for root, before in told.items() if before.ticket <= ticket}
        memory.settle(ticket, mine)

    with ThreadPoolExecutor(6) as executor:
        list(executor.map(work, range(1, 25)))
    for root in roots:
        assert keys_of(memory, root) == (24, {("K", "24")})


def test_the_highest_ticket_that_was_reached_stays_known(make: MakeMemory) -> None:
    memory = make("table-1")
    assert memory.highest() == 0
    for ticket in (3, 10**12 + 5, 7, 10**12 + 5):
        memory.reached(ticket)
    assert memory.highest() == 10**12 + 5
    assert make("table-2").highest() == 0
    with ThreadPoolExecutor(6) as executor:
        list(executor.map(memory.reached, range(2 * 10**12, 2 * 10**12 + 40)))
    assert memory.highest() == 2 * 10**12 + 39


# ── key requests ──


def test_a_contest_lasts_until_it_is_conceded(memory: Memory) -> None:
    wishes = [KeyRequest(A, ONE), KeyRequest(A, TWO), KeyRequest(B, ONE)]
    memory.request_keys(wishes, 1)
    memory.request_keys(wishes[:1], 1)
    assert sorted(memory.requests_of([A, B, C]), key=repr) == sorted(wishes, key=repr)
    assert memory.requests_of([B, B]) == [KeyRequest(B, ONE)]
    memory.withdraw([KeyRequest(A, ONE), KeyRequest(C, TWO)], 1)
    assert memory.requests_of([A]) == [KeyRequest(A, TWO)]
    memory.withdraw([], 1)
    memory.request_keys([], 1)
    assert memory.requests_of([]) == []


def test_a_request_that_a_later_reading_made_is_not_withdrawn(memory: Memory) -> None:
    request = KeyRequest(A, ONE)
    memory.request_keys([request], 7)
    memory.request_keys([request], 5)
    memory.withdraw([request], 6)
    assert memory.requests_of([A]) == [request]
    memory.withdraw([request], 7)
    assert memory.requests_of([A]) == []
