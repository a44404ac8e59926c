"""A relay whose items are made as JSON at once: what keeps it right, taken away one at a time, is found out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from migrator.mapping.heart.encoder import EncodedItem
from migrator.model.live import Outcome
from migrator.stages.backfill.inserts import items_of
from migrator.stages.live.rounds import Round
from tests.simulation import table as tables
from tests.simulation.actors import run
from tests.simulation.broken import found_out
from tests.simulation.world import Parts, live_encoders

Named = Sequence[tuple[str, EncodedItem]]


class Unconditional(tables.Table):
    def write_encoded(self, items: Named, ticket: int, *, fresh: bool = False) -> list[Outcome]:
        for item in items_of([item for _, item in items]):
            self._send([item], conditional=False)
        return []


class Believed(tables.Table):
    """Whatever refuses an item, it counts as stored."""

    def write_encoded(self, items: Named, ticket: int, *, fresh: bool = False) -> list[Outcome]:
        super().write_encoded(items, ticket, fresh=fresh)
        return []


@pytest.mark.parametrize("broken", [Unconditional, Believed])
def test_a_weaker_write_is_found_out(broken: type[tables.Table]) -> None:
    found_out(parts=Parts(table=broken))


def test_keys_that_a_row_no_longer_has_and_that_are_left_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_encoded = Round.read_encoded

    def forgetful(self: Round, *words: object) -> object:
        try:
            return read_encoded(self, *words)  # type: ignore[arg-type]
        finally:
            for (name, _), keys in self.had_keys.items():
                if name in live_encoders(atomic=False):
                    keys.clear()

    monkeypatch.setattr(Round, "read_encoded", forgetful)
    found_out()


def test_relays_go_this_way(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []

    class Counted(tables.Table):
        def write_encoded(self, items: Named, ticket: int, *, fresh: bool = False) -> list[Outcome]:
            written.append(len(items))
            return super().write_encoded(items, ticket, fresh=fresh)

    for seed in range(20):
        run(seed, parts=Parts(table=Counted))
    assert sum(written) > 20
