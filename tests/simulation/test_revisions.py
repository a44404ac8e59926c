"""Two revisions of one job: at rest the items are the newest mapping's. Each guard, and each part of a change, taken away is found."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.mapping.items.items import project
from migrator.mapping.model.live import KeyRequest
from migrator.mapping.model.table import EncodedItem, encode_key
from migrator.runtime.errors import MigratorError, OldRevisionError
from migrator.stages.live.refresh import Refresh
from tests.simulation.database import Reader, Transaction
from tests.simulation.many import MANY, diverging, many
from tests.simulation.mappings import compiled
from tests.simulation.revisions import OLD, Going, PutAway, changed_entities, old_mapping, run_on
from tests.simulation.scheduler import Scheduler
from tests.simulation.world import World
from tests.support_fence import no_fence

SCHEDULES = 100
"""The first of those that a landing runs."""
MOST = 4_000
"""Until something wrong is found."""


def test_every_schedule_ends_with_items_of_the_newest_mapping() -> None:
    assert diverging(0, SCHEDULES, "two") == []


@pytest.mark.slow
def test_many_schedules() -> None:
    assert many(MANY, mappings="two") == []


def test_mappings_differ_as_their_names_state() -> None:
    assert {kind: sorted(changed_entities(old_mapping(kind), compiled())) for kind in OLD} == {
        "an attribute less": ["pet"],
        "another sort key": ["owner"],
        "another key that moves from row to row": ["owner"],
        "another key of each item": ["pet"],
        "a key that is not remembered": ["tag"],
        "no condition": ["pet"],
        "an item type more": ["owner"],
        "an entity more": ["label"],
        "an entity more that shares a key": ["nick"],
    }


# ── guards ──


def late(seed: int, *, asks: bool = True) -> list[int]:
    """Marks that relays of an older mapping put away though they knew of the newer one."""
    put_away = PutAway(asks)
    run_on(seed, put_away=put_away)
    return put_away.late


def test_a_relay_of_an_older_mapping_puts_away_no_mark() -> None:
    assert [seed for seed in range(SCHEDULES // 2) if late(seed)] == []
    assert any(late(seed, asks=False) for seed in range(MOST)), f"{MOST} schedules did not find it"


def found_out(cast_of: type[Going] = Going, **chosen: Any) -> None:
    for seed in range(MOST):
        try:
            if run_on(seed, cast_of, **chosen).differences():
                return
        except (AssertionError, MigratorError):
            return
    pytest.fail(f"{MOST} schedules did not find it")


def test_unrefused_writers_of_an_older_mapping_are_detected() -> None:
    found_out(refuses=False)


def test_change_that_does_not_wait_for_older_writers_is_detected() -> None:
    found_out(waits=False, kind="an entity more")


# ── parts of a change ──


class LeavesAll(Going):
    """Projects rows anew, and takes nothing away."""

    def take_away(self, refresh: Refresh) -> None:
        pass


class RowsAlone(Going):
    """Reads again each row, with the keys that it has by the other mapping as it is now: not those of rows that are gone,
    nor what rows had before a change whose mark still waits."""

    def take_away(self, refresh: Refresh) -> None:
        assert self.other is not None
        view, reader = Transaction(self.database), Reader(self.database, sees_all=True)
        for name, entity in self.other.apart.items():
            plan = entity.compiled.plan
            for number, _ in view.rows(plan.table.real) if name in refresh.entities else ():
                tree = reader._tree(view, plan, number)
                assert tree is not None
                items = project(entity.compiled, [tree], 0.0).items
                keys = [self.world.table.design.key_of(item) for item in items]
                refresh({(name, encode_key([number])): keys})


class SweepsFirst(Going):
    """Takes away beside writers of the older mapping that are still at work."""

    has_swept: bool = False

    def migrate(self, rows: int = 2) -> None:
        try:
            self.has_swept = super().sweep()
        except OldRevisionError:
            return
        super().migrate(rows)

    def sweep(self) -> bool:
        return self.has_swept


@pytest.mark.parametrize("broken", [LeavesAll, RowsAlone, SweepsFirst])
def test_items_of_an_older_mapping_that_stay_are_found_out(broken: type[Going]) -> None:
    found_out(broken)


class Unconditional(Going):
    """A tombstone goes wherever its key is, whatever is there by then."""

    def bury(self, refresh: Refresh, tombstone: EncodedItem) -> None:
        self.world.table.put(tombstone)


@pytest.mark.slow
def test_tombstones_without_a_condition_are_found_out() -> None:
    found_out(Unconditional, kind="no condition")


def test_freed_key_is_offered_to_no_row_of_a_removed_entity() -> None:
    world = World(Scheduler(0), faults=0.0)
    owner, name = ("owner", encode_key([1])), ("NAME#ann", "NAME")
    world.database.tables["owner"][1] = {"id": 1, "name": "ann"}
    world.refresh(no_fence)({owner: []})
    world.memory.request_keys([KeyRequest(name, ("nick", encode_key([2])))], world.memory.highest())
    world.database.tables["owner"][1] = {"id": 1, "name": "bob"}
    world.refresh(no_fence)({owner: [name]})
    assert not world.memory.requests
