"""What keeps the writes of relays and pages right, taken away one at a time, is found out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import pytest

from migrator.mapping.model.live import Outcome, Root
from migrator.mapping.model.table import EncodedItem, ItemKey
from migrator.runtime.errors import StoppedError
from migrator.stages.live.refresh import _Refreshing
from migrator.stages.live.send import Round
from tests.simulation import table as tables
from tests.simulation.broken import found_out
from tests.simulation.world import Parts


def stored(items: Sequence[EncodedItem]) -> list[Outcome]:
    return [Outcome(item, "stored") for item in items]


class UnconditionalTogether(tables.Table):
    def write_together(self, groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
        return [outcome for group in groups for outcome in self._send(group, conditional=False)]


class Believed(tables.Table):
    """Whatever refuses an item, it counts as stored."""

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        super().write(items, fresh=fresh)
        return stored(items)


class BelievedTogether(tables.Table):
    """The same of transactions."""

    def write_together(self, groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
        super().write_together(groups)
        return stored([item for group in groups for item in group])


class Lost(tables.Table):
    """An item with a request that had no answer counts as stored."""

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        outcomes = {item.key: Outcome(item, "stored") for item in items}
        for item in items:
            with suppress(StoppedError):
                (outcomes[item.key],) = super().write([item], fresh=fresh)
        return list(outcomes.values())


class LostTogether(tables.Table):
    """The same of a transaction."""

    def write_together(self, groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for group in groups:
            try:
                outcomes += super().write_together([group])
            except StoppedError:
                outcomes += stored(group)
        return outcomes


@pytest.mark.parametrize("broken", [Believed, Lost])
def test_a_weaker_write_is_found_out(broken: type[tables.Table]) -> None:
    found_out(parts=Parts(table=broken))


@pytest.mark.parametrize("broken", [UnconditionalTogether, BelievedTogether, LostTogether])
def test_a_weaker_transaction_is_found_out(broken: type[tables.Table]) -> None:
    found_out(parts=Parts(table=broken, atomic=True))


def test_keys_that_are_remembered_after_the_items_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    write = _Refreshing._write

    def intended(
        work: _Refreshing, states: Mapping[Root, Mapping[ItemKey, EncodedItem]]
    ) -> dict[Root, list[ItemKey]]:
        remembered = work.stage.entities
        return {root: list(items) for root, items in states.items() if remembered[root[0]].remembered}

    def only_recalled(self: _Refreshing, refresh_round: Round) -> list[Root]:
        before = self.stage.memory.remember(-1, dict.fromkeys(intended(self, refresh_round.states), ()))
        behind = [root for root, known in before.items() if known.ticket > refresh_round.ticket]
        for root in behind:
            del refresh_round.states[root]
        refresh_round.recalled |= {root: before[root].keys for root in before.keys() - set(behind)}
        return behind

    def remembered_late(self: _Refreshing, refresh_round: Round) -> None:
        write(self, refresh_round)
        self.stage.memory.remember(refresh_round.ticket, intended(self, refresh_round.states))

    monkeypatch.setattr(_Refreshing, "_remember", only_recalled)
    monkeypatch.setattr(_Refreshing, "_write", remembered_late)
    found_out()


def test_leftover_keys_that_a_row_no_longer_has_are_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = Round.read

    def forgetful(self: Round, *words: object) -> object:
        try:
            return read(self, *words)  # type: ignore[arg-type]
        finally:
            for keys in self.had_keys.values():
                keys.clear()

    monkeypatch.setattr(Round, "read", forgetful)
    found_out()
