"""Calls of access patterns in a service: answered by the side that the phase names, shadowed by the other one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from migrator.errors import MigratorError
from migrator.mapping.handed import TooManyError
from migrator.mapping.params import kind_of, texts_of
from migrator.model import Pattern
from migrator.phase import ROUTES, Side, answering, share_of
from migrator.stages.ledger import Ledger
from migrator.stages.phase_cache import PhaseCache
from migrator.stages.shadow import Answered, Shadow
from migrator.stages.sides import Shadowed, SideError


@dataclass(frozen=True)
class Call:
    """One call of a pattern. `values`: its parameters as `checked_params` gives them. `shadowed`: what its shadow asks;
    None where there is none. `compares`: the answer as its shadow compares it, a copy where the caller could change it."""

    pattern: Pattern
    values: Mapping[str, Any]
    shadowed: Callable[[], Shadowed] | None
    compares: Callable[[Any], Any] = lambda answer: answer


@dataclass(frozen=True)
class Reads:
    """`clock`: seconds that only grow, for what an answer took."""

    phases: PhaseCache
    shadow: Shadow
    ledger: Ledger
    clock: Callable[[], float] = time.perf_counter

    def side_of(self, call: Call) -> Side:
        """The side that answers: always the same for the same parameters while nobody moves the pattern."""
        state = self.phases.state(call.pattern.name)
        if state.phase != "ramp":
            return ROUTES[state.phase].answers
        return answering(state, share_of(call.pattern.name, texts_of(call.pattern, call.values)))

    def answer(self, call: Call, side: Side, ask: Callable[[], Any]) -> Any:
        """What `ask` gives, timed and counted. Raises: what it raises."""
        began = self.clock()
        try:
            found = ask()
        except Exception:
            self.ledger.failed(call.pattern.name, side)
            raise
        self._answered(call, side, found, began)
        return found

    async def answer_async(self, call: Call, side: Side, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The same for a side that is awaited."""
        began = self.clock()
        try:
            found = await ask()
        except Exception:
            self.ledger.failed(call.pattern.name, side)
            raise
        self._answered(call, side, found, began)
        return found

    def _answered(self, call: Call, side: Side, found: Any, began: float) -> None:
        name = call.pattern.name
        self.ledger.answered(name, side, (self.clock() - began) * 1000)
        shadowed = call.shadowed
        if shadowed is None or not ROUTES[self.phases.state(name).phase].compares:
            return
        self.shadow.offer(
            name,
            lambda: Answered(
                shadowed(),
                side,
                _comparable(call, side, found),
                texts_of(call.pattern, call.values),
                kind_of(call.pattern, call.values),
            ),
        )


def _comparable(call: Call, side: Side, found: Any) -> Any:
    """Raises: TooManyError; SideError where the answer has no form that can be compared."""
    try:
        return call.compares(found)
    except TooManyError:
        raise
    except MigratorError as error:
        raise SideError(side, f"{call.pattern.name}: {error}") from None
