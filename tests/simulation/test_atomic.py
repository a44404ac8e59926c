"""Items that an atomic pattern reads together: no reader, at any step of any schedule, sees a mix of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from migrator.mapping.model.live import KeyRequest, Outcome, Remembered, Root
from migrator.mapping.model.table import EncodedItem, Item, ItemKey, encode_key
from migrator.runtime.values import replace
from tests.simulation import table as tables
from tests.simulation.actors import OWNERS, Cast, run
from tests.simulation.broken import SCHEDULES
from tests.simulation.journal import Memory, Writers
from tests.simulation.scheduler import Scheduler
from tests.simulation.world import Parts, World
from tests.support_fence import no_fence

pytestmark = pytest.mark.slow

_SEEDS = 375


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

    def write_together(self, groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
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


@pytest.mark.parametrize(
    "chunk", [0, *(pytest.param(chunk, marks=pytest.mark.slow) for chunk in range(1, 16))]
)
def test_a_reader_never_sees_a_mix_of_an_atomic_row(chunk: int) -> None:
    first = chunk * _SEEDS
    assert [mix for seed in range(first, first + _SEEDS) for mix in mixes(seed)[:1]] == []


def test_mix_is_detected_if_a_group_is_written_item_by_item() -> None:
    assert any(map(partial(mixes, table=OneByOne), range(SCHEDULES)))


def test_mix_is_detected_if_other_marks_keys_are_not_remembered() -> None:
    assert any(map(partial(mixes, memory=NoOldKeys), range(SCHEDULES)))


def test_mix_is_detected_if_no_pattern_is_atomic() -> None:
    worlds = (run(seed, parts=Parts(table=Watched, writers=Guarded, atomic=False)) for seed in range(200))
    assert any(world.table.mixes for world in worlds if isinstance(world.table, Watched))


def test_row_completes_when_two_rows_own_its_keys() -> None:
    world = World(Scheduler(0), unique=False, faults=0.0, atomic=True)
    names = {1: "bob", 2: "ann", 3: None}
    world.database.tables["owner"] = {number: {"id": number, "name": name} for number, name in names.items()}
    first, second, third = (("owner", encode_key([number])) for number in OWNERS)
    for root in (first, second, third):
        world.refresh(no_fence)({root: []})
    names = {1: "bob", 2: "bob", 3: "ann"}
    world.database.tables["owner"] = {number: {"id": number, "name": name} for number, name in names.items()}
    del world.table.items["NAME#ann", "NAME"]
    world.refresh(no_fence)({third: []})
    world.refresh(no_fence)({second: [], third: []})
    assert list(world.memory.requests) == [KeyRequest(("NAME#bob", "NAME"), second)]
    assert world.differences() == []


@dataclass
class Beside(Memory):
    """Other processes get on at the end of each round, and before a key is requested in the fourth."""

    at_ends: list[Callable[[], None]] = field(default_factory=list)
    in_fourth: Callable[[], None] = lambda: None

    def request_keys(self, requests: Sequence[KeyRequest], ticket: int) -> None:
        if not self.at_ends:
            self.in_fourth()
        super().request_keys(requests, ticket)

    def highest(self) -> int:
        """Asked when a round begins."""
        if self.at_ends:
            self.at_ends.pop(0)()
        return super().highest()


def test_withdrawn_request_is_renewed_before_its_owner_is_read() -> None:
    """Row 2 wants the key of row 1, that of row 3, and that of row 1 again while it is refreshed; then row 1 gives it up."""
    world = World(Scheduler(0), unique=False, faults=0.0)
    first, second, third = (("owner", encode_key([number])) for number in OWNERS)

    def named(*names: str | None) -> None:
        rows = {number: {"id": number, "name": name} for number, name in zip(OWNERS, names, strict=True)}
        world.database.tables["owner"] = rows

    def given_up() -> None:
        beside.in_fourth = lambda: None
        named(None, "bob", "ann")
        world.refresh(no_fence)({first: [("NAME#bob", "NAME")]})

    named("bob", None, "ann")
    for root in (first, second, third):
        world.refresh(no_fence)({root: []})
    names = (("bob", "bob", "ann"), ("bob", "ann", "ann"), ("bob", "bob", "ann"), ("bob", "bob", "ann"))
    beside = Beside(world.schedule, at_ends=[partial(named, *each) for each in names], in_fourth=given_up)
    beside.remembered, beside.ticket, world.memory = world.memory.remembered, world.memory.ticket, beside
    world.refresh(no_fence)({second: []})
    assert world.table.live()["NAME#bob", "NAME"]["_src"] == "owner:[2]"


@dataclass
class Overtaken(Memory):
    """Before it withdraws requests, others get on."""

    meanwhile: Callable[[], None] = lambda: None

    def withdraw(self, requests: Sequence[KeyRequest], ticket: int) -> None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        super().withdraw(requests, ticket)


def test_a_request_that_a_later_reading_made_is_not_withdrawn() -> None:
    """Row 2 gives a key of row 1 up, which is read; before its request is withdrawn, it wants the key once more, and is read."""
    world = World(Scheduler(0), unique=False, faults=0.0)
    first, second, third = (("owner", encode_key([number])) for number in OWNERS)

    def named(*names: str | None) -> None:
        rows = {number: {"id": number, "name": name} for number, name in zip(OWNERS, names, strict=True)}
        world.database.tables["owner"] = rows

    def wanted_again() -> None:
        named("bob", "bob", "ann")
        world.refresh(no_fence)({second: []})

    named("bob", "bob", "ann")
    for root in (first, second, third):
        world.refresh(no_fence)({root: []})
    named("bob", None, "ann")
    overtaken = Overtaken(world.schedule, meanwhile=wanted_again)
    kept = world.memory
    overtaken.remembered, overtaken.requests, overtaken.ticket = kept.remembered, kept.requests, kept.ticket
    world.memory = overtaken
    # Both are read in one round, so that the owner need not be asked, and row 2 is not read again.
    world.refresh(no_fence)({first: [], second: [("NAME#bob", "NAME")]})
    assert list(overtaken.requests) == [KeyRequest(("NAME#bob", "NAME"), second)]
    named(None, "bob", "ann")
    world.refresh(no_fence)({first: [("NAME#bob", "NAME")]})
    assert world.table.live()["NAME#bob", "NAME"]["_src"] == "owner:[2]"
