"""Rules 5 to 8, the fences and the pre-marks taken away, one at a time: the simulation must find every one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

from migrator.mapping.model.live import Mark, Remembered, Root, Writer
from migrator.mapping.model.table import ItemKey, encode_key
from migrator.stages.live.writers import Purge
from tests.simulation.actors import Cast
from tests.simulation.broken import found_out
from tests.simulation.database import Database, Transaction
from tests.simulation.journal import Memory, Writers
from tests.simulation.scheduler import Scheduler
from tests.simulation.world import LIFETIMES, Parts, World
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
    found_out(HastyPurge, first=3500)


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


def test_rule_7_keys_that_are_not_remembered_are_found_out() -> None:
    found_out(parts=Parts(memory=Forgetful))


def keys_after_a_writer_was_overtaken(memory: type[Memory]) -> set[ItemKey]:
    """Where a tag is whose owner was renamed, and worked by another writer, after the first one's reading and before that one
    asked the memory: what chance makes so seldom that tens of thousands of schedules do not."""

    class Overtaken(memory):  # type: ignore[misc, valid-type]
        def remember(
            self, ticket: int, intended: Mapping[Root, Collection[ItemKey]]
        ) -> dict[Root, Remembered]:
            if owners[1]["name"] == "ann":
                owners[1] = {"id": 1, "name": "bob"}
                world.refresh(no_fence)({tag: []})
            return cast(dict[Root, Remembered], super().remember(ticket, intended))

    world, tag = World(Scheduler(0), faults=0.0, parts=Parts(memory=Overtaken)), ("tag", encode_key([1]))
    owners = world.database.tables["owner"]
    owners[1] = {"id": 1, "name": "ann"}
    world.database.tables["pet"][1] = {"id": 1, "owner_id": 1, "age": 0}
    world.refresh(no_fence)({tag: []})
    return set(world.table.live())


def test_rule_7_overtaken_writer_reads_again() -> None:
    assert keys_after_a_writer_was_overtaken(Memory) == {("TAG#bob", "PET#1")}
    assert keys_after_a_writer_was_overtaken(NeverBehind) == {("TAG#ann", "PET#1"), ("TAG#bob", "PET#1")}


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


def test_relay_started_during_a_fast_run_is_detected() -> None:
    found_out(parts=Parts(writers=NoFence), first=900)


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
