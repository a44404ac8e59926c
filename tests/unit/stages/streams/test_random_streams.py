"""Random trees of shards, read by readers that are killed, late, and fewer or more: nothing is lost, all is in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from migrator.model.errors import StoppedError
from migrator.stages.streams.reader import StreamReader
from tests.unit.stages.stream_world import Killed, Steps, World

KEYS = ("ant", "bee", "cat", "dog", "eel", "fox")
NUMBER = st.integers(0, 7)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(st.sampled_from(KEYS), min_size=1, max_size=6)),
        st.tuples(st.just("split"), NUMBER),
        st.tuples(st.just("roll"), NUMBER),
        st.tuples(st.just("turn"), NUMBER),
        # A heartbeat, a lease, an iterator's life.
        st.tuples(st.just("wait"), st.sampled_from([1, 11, 25, 61, 901])),
        st.tuples(st.just("kill"), st.integers(1, 25)),
    ),
    max_size=40,
)


class Readers:
    """Two processes; one that was killed is started again under another name, as processes are."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.started = 0
        self.steps: list[Steps] = []
        self.running: list[StreamReader] = []
        for _ in range(2):
            self._start(len(self.running))

    def _start(self, place: int) -> None:
        self.started += 1
        steps = Steps()
        reader = self.world.reader(f"reader {self.started}", steps)
        reader.__enter__()
        self.steps[place : place + 1], self.running[place : place + 1] = [steps], [reader]

    def turn(self, number: int) -> None:
        place = number % 2
        try:
            self.running[place].turn()
        except StoppedError:
            pass  # its lease ran out: the daemon goes on with the next turn
        except Killed:
            self._start(place)

    def kill(self, after: int) -> None:
        """In so many steps."""
        self.steps[after % 2].left = after


@given(STEPS, st.integers(1, 4), st.integers(1, 3))
def test_each_change_is_worked_and_none_before_the_one_before_it(
    script: list[tuple[str, object]], page_records: int, names_at_once: int
) -> None:
    world = World(page_records=page_records, names_at_once=names_at_once)
    readers = Readers(world)
    acts: dict[str, Callable[[Any], object]] = {
        "write": lambda keys: world.write(*keys),
        "split": world.fake.split,
        "roll": world.fake.roll,
        "turn": readers.turn,
        "wait": world.fake.advance,
        "kill": readers.kill,
    }
    for name, argument in script:
        acts[name](argument)
    world.drain()
    world.require_all_in_order()
