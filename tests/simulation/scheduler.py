"""Actors whose every step is chosen by a seeded scheduler: one runs until its next step, then another one."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

from greenlet import getcurrent, greenlet

_MANY_STEPS = 20_000


class Crash(BaseException):
    """kill -9: nothing of the actor's goes on."""


class Scheduler:
    """Runs actors to their ends, step by step. Everything that happens follows from the seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_s = 1_000_000.0
        self.steps = 0
        self._actors: list[greenlet] = []
        self._hub = getcurrent()
        self._is_alone = False

    def clock(self) -> float:
        return self.now_s

    def start(self, work: Callable[[], object]) -> None:
        """An actor that begins when it is chosen."""

        def guarded() -> None:
            with suppress(Crash):
                work()

        self._actors.append(greenlet(guarded, parent=self._hub))

    def step(self) -> None:
        """Called by an actor before whatever others can see: gives the others a chance."""
        if not self._is_alone and getcurrent() is not self._hub:
            self._hub.switch()

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def kill_all(self) -> None:
        for actor in self._actors:
            if actor:
                actor.throw(Crash)
        self._actors.clear()

    def run(self, *, crash_share: float = 0.0, limit: int = _MANY_STEPS) -> None:
        """Until every actor has ended, or the limit of steps is reached."""
        actors, rng = self._actors, self.random
        last = self.steps + limit
        chance = rng.random
        while actors and self.steps < last:
            self.steps += 1
            # No other actor is there to see what happens between its steps, and nothing ends it.
            self._is_alone = len(actors) == 1 and not crash_share and limit == _MANY_STEPS
            actor = actors[int(chance() * len(actors))]
            if crash_share and actor and chance() < crash_share:
                actor.throw(Crash)
            else:
                actor.switch()
            if actor.dead:
                actors.remove(actor)
        self._is_alone = False
        assert limit < _MANY_STEPS or not actors, "the actors never come to an end"
