"""A relay whose items are made as JSON at once: what keeps it right, taken away one at a time, is found out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import pytest

from migrator.mapping.model.live import Outcome, Root
from migrator.mapping.model.table import EncodedItem, ItemKey
from migrator.runtime.errors import StoppedError
from migrator.stages.backfill.inserts import items_of
from migrator.stages.live.refresh import _Refreshing
from migrator.stages.live.rounds import Round, State
from tests.simulation import table as tables
from tests.simulation.actors import run
from tests.simulation.broken import found_out
from tests.simulation.mappings import compiled
from tests.simulation.world import Parts

Named = Sequence[tuple[str, EncodedItem]]


Groups = Sequence[tuple[str, Sequence[EncodedItem]]]


class Unconditional(tables.Table):
    def write_encoded(self, items: Named, ticket: int, *, fresh: bool = False) -> list[Outcome]:
        for item in items_of([item for _, item in items]):
            self._send([item], conditional=False)
        return []


class UnconditionalTogether(tables.Table):
    def write_encoded_together(self, groups: Groups, ticket: int) -> list[Outcome]:
        for _, items in groups:
            self._send(items_of(items), conditional=False)
        return []


class Believed(tables.Table):
    """Whatever refuses an item, it counts as stored."""

    def write_encoded(self, items: Named, ticket: int, *, fresh: bool = False) -> list[Outcome]:
        super().write_encoded(items, ticket, fresh=fresh)
        return []


class BelievedTogether(tables.Table):
    """The same of transactions."""

    def write_encoded_together(self, groups: Groups, ticket: int) -> list[Outcome]:
        super().write_encoded_together(groups, ticket)
        return []


class Lost(tables.Table):
    """An item whose request had no answer counts as stored."""

    def write_encoded(self, items: Named, ticket: int, *, fresh: bool = False) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for item in items:
            with suppress(StoppedError):
                outcomes += super().write_encoded([item], ticket, fresh=fresh)
        return outcomes


class LostTogether(tables.Table):
    """The same of a transaction."""

    def write_encoded_together(self, groups: Groups, ticket: int) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for group in groups:
            with suppress(StoppedError):
                outcomes += super().write_encoded_together([group], ticket)
        return outcomes


@pytest.mark.parametrize("broken", [Unconditional, Believed, Lost])
def test_a_weaker_write_is_found_out(broken: type[tables.Table]) -> None:
    found_out(parts=Parts(table=broken))


@pytest.mark.parametrize(
    ("broken", "first"), [(UnconditionalTogether, 0), (BelievedTogether, 0), (LostTogether, 1200)]
)
def test_a_weaker_transaction_is_found_out(broken: type[tables.Table], first: int) -> None:
    found_out(parts=Parts(table=broken, atomic=True), first=first)


def test_keys_that_are_remembered_after_the_items_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    remember, write = _Refreshing._remember, _Refreshing._write

    def intended(work: _Refreshing, states: Mapping[Root, State]) -> dict[Root, list[ItemKey]]:
        remembered = work.stage.entities
        return {root: list(items) for root, items in states.items() if remembered[root[0]].remembered}

    def only_recalled(self: _Refreshing, refresh_round: Round) -> list[Root]:
        if not self.stage.encoders:
            return remember(self, refresh_round)
        before = self.stage.memory.remember(-1, dict.fromkeys(intended(self, refresh_round.states), ()))
        behind = [root for root, known in before.items() if known.ticket > refresh_round.ticket]
        for root in behind:
            del refresh_round.states[root]
        refresh_round.recalled |= {root: before[root].keys for root in before.keys() - set(behind)}
        return behind

    def remembered_late(self: _Refreshing, refresh_round: Round) -> None:
        write(self, refresh_round)
        if self.stage.encoders:
            self.stage.memory.remember(refresh_round.ticket, intended(self, refresh_round.states))

    monkeypatch.setattr(_Refreshing, "_remember", only_recalled)
    monkeypatch.setattr(_Refreshing, "_write", remembered_late)
    found_out()


def test_keys_that_a_row_no_longer_has_and_that_are_left_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_encoded = Round.read_encoded

    def forgetful(self: Round, *words: object) -> object:
        try:
            return read_encoded(self, *words)  # type: ignore[arg-type]
        finally:
            for (name, _), keys in self.had_keys.items():
                if name in compiled().encoders(atomic=False):
                    keys.clear()

    monkeypatch.setattr(Round, "read_encoded", forgetful)
    found_out()


def test_relays_go_this_way(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    together: list[int] = []

    class Counted(tables.Table):
        def write_encoded(self, items: Named, ticket: int, *, fresh: bool = False) -> list[Outcome]:
            written.append(len(items))
            return super().write_encoded(items, ticket, fresh=fresh)

        def write_encoded_together(self, groups: Groups, ticket: int) -> list[Outcome]:
            together.extend(len(items) for _, items in groups)
            return super().write_encoded_together(groups, ticket)

    for seed in range(20):
        run(seed, parts=Parts(table=Counted))
    assert sum(written) > 20
    assert sum(together) > 20
    assert {
        entity.remembered
        for name, entity in compiled().together.items()
        if name in compiled().encoders(atomic=True)
    } == {
        False,
        True,
    }
