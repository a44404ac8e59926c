"""How a world is brought to rest: what is late lands, and marks are worked until none is left; or to a moment to go back to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from migrator.mapping.model.live import Root
from migrator.mapping.model.table import ItemKey
from tests.simulation.world import LIFETIMES, World

LATE_FAULTS = 0.3


def repair_key_requests(world: World) -> None:
    # What verify --repair does with key requests that a page read long ago may have left behind.
    root_keys: dict[Root, list[ItemKey]] = defaultdict(list)
    for request in world.memory.requests:
        root_keys[request.root].append(request.key)
    world.database.add(root_keys)
    drain(world)


def under_faults(world: World, actors: Sequence[Callable[[], object]]) -> None:
    """Changes are worked while requests fail. No backfill follows that would mend what was not written."""
    world.table.faults = LATE_FAULTS
    for actor in actors:
        world.schedule.start(actor)
    world.schedule.run()
    world.table.faults = 0.0
    world.schedule.now_s += 1000.0
    drain(world)
    repair_key_requests(world)


def drain(world: World) -> None:
    for _ in range(200):
        while world.table.late:
            world.table.deliver(0)
        if not world.database.pending():
            return
        world.schedule.now_s += 100.0
        # No actor takes part any more: as many at once as a real one takes.
        world.relay(most_marks=16).once()
    raise AssertionError(f"marks are never done: {world.database.marks}")


def comes_to_a_moment(world: World, crash_share: float) -> bool:
    """Whether the schedule reaches a moment at which no writer writes without tickets, or is about to read with one."""
    world.schedule.run(crash_share=crash_share, limit=world.schedule.random.randrange(20, 200))
    world.writers.fence()
    for _ in range(400):
        fast = any(writer.kind == "fast" for writer in world.writers.here.values())
        if not fast and not world.database.is_between_draw_and_read():
            return True
        if fast:
            world.schedule.now_s += 10.0
        world.schedule.run(limit=1)
        world.writers.here = {
            name: writer
            for name, writer in world.writers.here.items()
            if world.schedule.now_s - writer.alive_at <= LIFETIMES.gone_s
        }
    return False
