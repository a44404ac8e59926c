"""Rules 5 to 8, the fences and the pre-marks taken away, one at a time: the simulation must find every one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from migrator.model.live import Mark, Remembered, Root, Writer
from migrator.model.table import ItemKey
from migrator.stages.live.writers import Purge
from tests.simulation.actors import Cast
from tests.simulation.broken import found_out
from tests.simulation.database import Database, Transaction
from tests.simulation.journal import Memory, Writers
from tests.simulation.world import LIFETIMES, Parts
from tests.support_fence import no_fence

# ── rule 5 ──


class FinishedFirst(Database):
    def take(self, count: int, lease_s: float) -> list[Mark]:
        marks = super().take(count, lease_s)
        for mark in marks:
            self.marks.pop(mark.id)
        return marks


def test_rule_5_a_mark_that_goes_before_its_items_is_found_out() -> None:
    found_out(parts=Parts(database=FinishedFirst))


# ── rule 6 ──


class HastyPurge(Cast):
    """Looks at no clock and at no writer that may be on its way."""

    def network(self, times: int) -> None:
        self.schedule.start(self.purge)
        super().network(times)

    def purge(self) -> None:
        for _ in range(200):
            self.schedule.step()
            design = self.world.table.design
            pages = [list(self.world.table.items.values())]
            no_writers = Writers(self.schedule)
            list(Purge(self.world.table, no_writers, design, LIFETIMES, no_fence).run(pages, 1e12))


def test_rule_6_a_tombstone_that_goes_too_early_is_found_out() -> None:
    found_out(HastyPurge, first=7000)


# ── rule 7 ──


class Forgetful(Memory):
    def remember(self, ticket: int, intended: Mapping[Root, Collection[ItemKey]]) -> dict[Root, Remembered]:
        return dict.fromkeys(intended, Remembered())


class NeverBehind(Memory):
    """Gives the keys, but not that another writer has a higher ticket."""

    def remember(self, ticket: int, intended: Mapping[Root, Collection[ItemKey]]) -> dict[Root, Remembered]:
        before = {}
        for root, keys in intended.items():
            remembered = self.remembered.get(root, Remembered())
            self.remembered[root] = Remembered(max(ticket, remembered.ticket), remembered.keys | set(keys))
            before[root] = Remembered(-1, remembered.keys)
        return before


@pytest.mark.parametrize("broken", [Forgetful, NeverBehind])
def test_rule_7_keys_that_are_not_remembered_are_found_out(broken: type[Memory]) -> None:
    found_out(parts=Parts(memory=broken), first=1600 if broken is NeverBehind else 0)


# ── rule 8 ──


class Unraised(Cast):
    """The source is restored, and its counter is not checked."""

    def raise_epoch(self) -> None:
        self.world.memory.ticket = 0


def test_rule_8_tickets_that_go_back_are_found_out() -> None:
    found_out(Unraised)


# ── the fast path, and strict mode ──


class NoFence(Writers):
    def fence(self) -> list[Writer]:
        return []


def test_a_relay_that_starts_beside_a_fast_run_is_found_out() -> None:
    found_out(parts=Parts(writers=NoFence))


class NoPreMarks(Cast):
    def write_first(self, work: Transaction, begun_at: float) -> None:
        marks = set(self.database.marks)
        try:
            super().write_first(work, begun_at)
        finally:
            for number in set(self.database.marks) - marks:
                self.database.marks.pop(number)


def test_strict_writes_without_pre_marks_are_found_out() -> None:
    found_out(NoPreMarks)
