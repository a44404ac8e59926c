"""Tickets: a writer draws none that the journal or the table already knows (rule 8)."""

from __future__ import annotations

import pytest

from migrator.mapping.model.facts import SchemaFacts
from migrator.mapping.model.table import KeyAttribute, TableDesign
from migrator.stages.live.refresh import Refresh, RestoredError
from tests.fakes.journal import FakeMemory
from tests.fakes.marks import MemoryTickets
from tests.fakes.source import MemorySource
from tests.fakes.store import FakeStore
from tests.support_fence import no_fence


def store_of_a_table() -> FakeStore:
    return FakeStore(TableDesign("Shop", (KeyAttribute("PK"), KeyAttribute("SK")), "type"), no_fence)


def drawn(tickets: MemoryTickets, memory: FakeMemory, store: FakeStore) -> int:
    rows = MemorySource(SchemaFacts("sqlite", {}, loosely_typed=True), {})
    return Refresh(rows, store, tickets, memory, store, {}, store.design, "rev", no_fence).draw()


class RestoredBetween(MemoryTickets):
    """A counter that goes back by `lost` numbers after it was asked, before it is drawn from."""

    def __init__(self, lost: int) -> None:
        super().__init__()
        self._number, self._lost = 10, lost

    def draw(self) -> int:
        self._number -= self._lost
        return super().draw()


@pytest.mark.parametrize(("lost", "refused"), [(0, False), (1, True), (5, True)])
def test_a_ticket_drawn_twice_is_refused(lost: int, refused: bool) -> None:
    tickets, memory, store = RestoredBetween(lost), FakeMemory(), store_of_a_table()
    known = tickets.highest()
    memory.reached(known)
    if refused:
        with pytest.raises(RestoredError):
            drawn(tickets, memory, store)
        return
    assert drawn(tickets, memory, store) == known + 1
    assert memory.highest() == store.read_control().ticket == known + 1


def test_ticket_known_to_the_table_is_refused_and_journaled() -> None:
    tickets, memory, store = MemoryTickets(), FakeMemory(), store_of_a_table()
    store.raise_control(tickets.highest() + 1)
    with pytest.raises(RestoredError):
        drawn(tickets, memory, store)
    assert memory.highest() == tickets.highest() + 1
