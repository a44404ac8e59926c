"""How a world is brought to rest: what is late lands, and marks are worked until none is left."""

from __future__ import annotations

from collections import defaultdict

from migrator.model.live import Root
from migrator.model.table import ItemKey
from tests.simulation.world import World


def repair_key_requests(world: World) -> None:
    # What verify --repair does with key requests that a page read long ago may have left behind.
    root_keys: dict[Root, list[ItemKey]] = defaultdict(list)
    for request in world.memory.requests:
        root_keys[request.root].append(request.key)
    world.database.add(root_keys)
    drain(world)


def drain(world: World) -> None:
    for _ in range(200):
        while world.table.late:
            world.table.deliver(0)
        if not world.database.marks:
            return
        world.schedule.now_s += 100.0
        # No actor takes part any more: as many at once as a real one takes.
        world.relay(most_marks=16).once()
    raise AssertionError(f"marks are never done: {world.database.marks}")
