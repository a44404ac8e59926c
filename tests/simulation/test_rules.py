"""Each rule of docs/protocol.md taken away, one at a time: the simulation must find every one."""

from __future__ import annotations

import copy
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from greenlet import getcurrent

from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.live import KeyRequest, Mark, Outcome, Root, Verdict
from migrator.mapping.model.table import EncodedItem, ItemKey
from migrator.runtime.errors import StoppedError
from migrator.runtime.values import replace
from migrator.stages.live.refresh import Refresh
from migrator.stages.live.relay import Ahead, Part
from migrator.stages.live.writers import WriterLease
from tests.simulation import table as tables
from tests.simulation.actors import Cast, run
from tests.simulation.broken import found_out
from tests.simulation.database import Database, Kept, Reader, Transaction
from tests.simulation.journal import Memory, Writers
from tests.simulation.world import Parts

pytestmark = pytest.mark.slow

# ── rule 1 ──


class MarksAfterwards(Cast):
    """The change is committed, then its marks in a transaction of their own."""

    def commit(self, work: Transaction) -> None:
        marks = list(work.marks)
        work.commit(lambda _: [])
        self.schedule.step()
        for mark in marks:
            self.database.keep(Kept(mark))


class NoImageBefore(Cast):
    def commit(self, work: Transaction) -> None:
        work.commit(lambda marks: [replace(mark, before=None) if mark.after else mark for mark in marks])


def test_rule_1_mark_not_committed_with_its_change_is_detected() -> None:
    found_out(MarksAfterwards, first=700)


def test_rule_1_a_mark_without_the_image_before_is_found_out() -> None:
    found_out(NoImageBefore)


# ── rule 2 ──


class SnapshotFirst(Database):
    """Remembers, for each actor, what was there before its ticket was drawn."""

    def draw(self) -> int:
        tables = copy.deepcopy(self.tables)
        self.snapshots[getcurrent()] = Transaction(Database(self.schedule, self.captured, tables=tables))
        for _ in range(20):
            self.schedule.step()
        return super().draw()

    @functools.cached_property
    def snapshots(self) -> dict[object, Transaction]:
        return {}


class EarlyReader(Reader):
    def _view(self) -> Transaction:
        assert isinstance(self.database, SnapshotFirst)
        return self.database.snapshots.get(getcurrent()) or super()._view()


class ReadsEarly(Cast):
    def refresh_of(self, writer_lease: WriterLease) -> Refresh:
        refresh = super().refresh_of(writer_lease)
        refresh.rows = EarlyReader(self.database)
        return refresh


def test_rule_2_a_snapshot_older_than_its_ticket_is_found_out() -> None:
    found_out(ReadsEarly, Parts(database=SnapshotFirst), first=200)


# ── rule 3 ──


class Unconditional(tables.Table):
    def _apply(self, item: EncodedItem, *, conditional: bool) -> Outcome:
        return super()._apply(item, conditional=False)


class NoTickets(tables.Table):
    def _apply(self, item: EncodedItem, *, conditional: bool) -> Outcome:
        there = self.items.get(item.key)
        if there is not None:
            there["_tk"] = 0
        return super()._apply(item, conditional=conditional)


class NoSources(tables.Table):
    """Asks for the ticket alone."""

    def _apply(self, item: EncodedItem, *, conditional: bool) -> Outcome:
        there = self.items.get(item.key)
        older = there is None or there["_tk"] <= item.ticket  # type: ignore[operator]
        return super()._apply(item, conditional=conditional and not older)


class PlainDeletes(tables.Table):
    """A delete leaves nothing behind."""

    def _apply(self, item: EncodedItem, *, conditional: bool) -> Outcome:
        outcome = super()._apply(item, conditional=conditional)
        if item.is_tombstone and outcome.verdict == "stored":
            self.items.pop(item.key)
        return outcome


class InsertsOver(tables.Table):
    """An INSERT replaces what is there."""

    def _insert(self, item: EncodedItem) -> Outcome:
        return self._apply(item, conditional=False)


class BelievesInserts(tables.Table):
    """An INSERT that is refused counts as one that was not."""

    def _insert(self, item: EncodedItem) -> Outcome:
        super()._insert(item)
        return Outcome(item, "stored")


@pytest.mark.parametrize(
    "broken", [Unconditional, NoTickets, NoSources, PlainDeletes, InsertsOver, BelievesInserts]
)
def test_rule_3_a_weaker_condition_is_found_out(broken: type[tables.Table]) -> None:
    found_out(parts=Parts(table=broken), first=1300)


class Credulous(tables.Table):
    """Takes an answer that says nothing for one that says that all is well."""

    def lacks(self, parts: Iterator[str]) -> bool:
        return False


class BelievesWrites(Credulous):
    """The same of 200 alone."""

    def _unread(
        self, items: Sequence[EncodedItem], verdict: Verdict, missing: Iterator[str]
    ) -> list[Outcome]:
        if verdict == "owned_by_other":
            raise StoppedError("no answer")
        return super()._unread(items, verdict, missing)


class BelievesRefusals(Credulous):
    """The same of refusals that do not say what was in the way."""

    def _unread(
        self, items: Sequence[EncodedItem], verdict: Verdict, missing: Iterator[str]
    ) -> list[Outcome]:
        if verdict == "stored":
            raise StoppedError("no answer")
        return super()._unread(items, verdict, missing)


@pytest.mark.parametrize(("broken", "first"), [(BelievesWrites, 100), (BelievesRefusals, 800)])
def test_rule_5_trusting_an_empty_answer_is_detected(broken: type[tables.Table], first: int) -> None:
    found_out(parts=Parts(table=broken), first=first)


class _LooksLate(Ahead):
    """Also acknowledges marks that were committed after their rows were read."""

    def done(self, parts: Iterable[Part], taken: Collection[int]) -> list[Mark]:
        for mark in self.marks.look(0, 100, free=True):
            self._add(mark)
        return super().done(parts, taken)


class _LooksAtUnripe(Ahead):
    """Also acknowledges pre-marks, of transactions that are still open."""

    def look(self, first: int) -> None:
        super().look(first)
        for mark in self.marks.look(0, 100):
            self._add(mark)


@pytest.mark.parametrize("broken", [_LooksLate, _LooksAtUnripe])
def test_rule_5_marks_that_the_reading_did_not_see_are_found_out(
    broken: type[Ahead], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.stages.live.relay.Ahead", broken)
    found_out()


class Deaf(Memory):
    """Forgets which roots want a key that another root has."""

    def requests_of(self, keys: Sequence[ItemKey]) -> list[KeyRequest]:
        return []


def test_rule_3_freed_key_offered_to_no_row_is_detected() -> None:
    found_out(parts=Parts(memory=Deaf))


# ── rule 4 ──


class Recording(Database):
    """Keeps the image that the last mark taken of a row holds."""

    def take(self, count: int, lease_s: float) -> list[Mark]:
        marks = super().take(count, lease_s)
        for mark in marks:
            if mark.table == "owner":
                key = (mark.after or mark.before or {})["id"]
                self.images[("owner", key)] = None if mark.after is None else dict(mark.after)
        return marks

    @functools.cached_property
    def images(self) -> dict[tuple[str, int], dict[str, Any] | None]:
        return {}


class ReplayingReader(Reader):
    """Gives the row that the mark describes instead of the row as it is."""

    def _view(self) -> Transaction:
        assert isinstance(self.database, Recording)
        view = super()._view()
        view.changes |= self.database.images
        return view


class Replays(Cast):
    def refresh_of(self, writer_lease: WriterLease) -> Refresh:
        refresh = super().refresh_of(writer_lease)
        refresh.rows = ReplayingReader(self.database)
        return refresh


def test_rule_4_a_relay_that_replays_the_change_is_found_out() -> None:
    found_out(Replays, Parts(database=Recording))


class KeysForgotten(Cast):
    """Writes the current state, and leaves the keys that the row had before."""

    def refresh_of(self, writer_lease: WriterLease) -> Refresh:
        class WithoutKeys(Refresh):
            def __call__(
                self, root_keys: Mapping[Root, Collection[ItemKey]], inserted: Collection[Root] = ()
            ) -> Any:
                return super().__call__(dict.fromkeys(root_keys, ()), inserted)

        refresh = super().refresh_of(writer_lease)
        refresh.__class__ = WithoutKeys
        return refresh


def test_rule_4_lost_keys_that_keep_their_items_are_detected() -> None:
    found_out(KeysForgotten)


# ── every row, or none ──


class HidesRows(Database):
    """Row security is on: a policy leaves rows out, and says nothing."""

    def admit(self, plan: EntityPlan) -> None:
        pass


def test_rows_that_a_policy_hides_from_a_reader_are_found_out() -> None:
    found_out(parts=Parts(database=HidesRows))


# ── the harness itself ──


class Same(Database):
    """Nothing is broken; the parts are only other classes."""


def test_parts_that_break_nothing_are_not_found_out() -> None:
    parts = Parts(database=SnapshotFirst, writers=type("SameWriters", (Writers,), {}))
    assert [run(seed, Cast, parts).differences() for seed in range(200)] == [[]] * 200
    assert [run(seed, Cast, Parts(database=Recording)).differences() for seed in range(200)] == [[]] * 200
