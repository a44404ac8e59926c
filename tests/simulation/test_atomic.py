"""Items that an atomic pattern reads together: no reader, at any step of any schedule, sees a mix of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from migrator.model.live import Outcome, Remembered, Root
from migrator.model.table import Item, ItemKey
from tests.simulation import table as tables
from tests.simulation.actors import OWNERS, Cast, run
from tests.simulation.broken import SCHEDULES
from tests.simulation.journal import Memory, Writers
from tests.simulation.world import Parts

_SEEDS = 1500


@dataclass
class Guarded(Writers):
    """A relay was here before: no page is written without conditions (fast pages come before all readers)."""

    guarded: bool = True


@dataclass
class Lasting(Cast):
    """No store goes back: until that is repaired, a reader sees what it left behind."""

    goes_back: bool = False


@dataclass
class Watched(tables.Table):
    """After each request that took effect a reader looks at every owner and its card, whose key changes with the name."""

    mixes: list[str] = field(default_factory=list)
    looks: int = 0

    def _land(self, request: tables.Request) -> list[Outcome]:
        outcomes = super()._land(request)
        for number in OWNERS:
            self._look([item for key, item in self.live().items() if key[0] == f"OWNER#{number}"])
        return outcomes

    def _look(self, items: Sequence[Item]) -> None:
        self.looks += 1
        seen = [
            (item["T"], item.get("name"), item.get("pets"), item["_tk"])
            for item in items
            if item["T"] != "Pet"
        ]
        whole = [type_ for type_, *_ in seen] in ([], ["Card", "Owner"], ["Owner", "Card"])
        if not whole or len({item[1:] for item in seen}) > 1:
            self.mixes.append(str(seen))


class OneByOne(Watched):
    """What would be a transaction is written item by item."""

    def write_together(self, groups: Sequence[Sequence[Item]]) -> list[Outcome]:
        return self.write([item for group in groups for item in group])


class NoOldKeys(Memory):
    """What an owner had before is known from the marks alone."""

    def remember(self, ticket: int, intended: Mapping[Root, Collection[ItemKey]]) -> dict[Root, Remembered]:
        before = super().remember(ticket, intended)
        return {
            root: replace(remembered, keys=frozenset()) if root[0] == "owner" else remembered
            for root, remembered in before.items()
        }


def mixes(seed: int, table: type[Watched] = Watched, memory: type[Memory] = Memory) -> list[str]:
    world = run(seed, Lasting, Parts(table=table, memory=memory, writers=Guarded, atomic=True))
    assert world.differences() == []
    assert isinstance(world.table, Watched)
    return world.table.mixes


@pytest.mark.parametrize("chunk", [0, *(pytest.param(chunk, marks=pytest.mark.soak) for chunk in (1, 2, 3))])
def test_a_reader_never_sees_a_mix_of_an_atomic_row(chunk: int) -> None:
    first = chunk * _SEEDS
    assert [mix for seed in range(first, first + _SEEDS) for mix in mixes(seed)[:1]] == []


def test_a_mix_is_seen_where_a_group_is_written_item_by_item() -> None:
    assert any(map(partial(mixes, table=OneByOne), range(SCHEDULES)))


def test_a_mix_is_seen_where_keys_that_other_marks_tell_are_not_remembered() -> None:
    assert any(map(partial(mixes, memory=NoOldKeys), range(SCHEDULES)))


def test_a_mix_is_seen_where_no_pattern_is_atomic() -> None:
    worlds = (run(seed, parts=Parts(table=Watched, writers=Guarded, atomic=False)) for seed in range(200))
    assert any(world.table.mixes for world in worlds if isinstance(world.table, Watched))
