"""The two backends of a pattern in a service (SQL and the table), bounded in rows and time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, wait
from typing import Any, cast

from msgspec import Struct

from migrator.mapping.model.edges import ItemStore, QueryPage, Questions
from migrator.mapping.model.evidence import Side
from migrator.mapping.model.mapping import Pattern, Statement
from migrator.mapping.model.results import PartAnswer
from migrator.mapping.patterns.answers import TooManyError, names_fault, records_of, rows_of
from migrator.runtime.errors import MigratorError, StoppedError
from migrator.stages.patterns.question import Question

# ──
# The edges as a shadow sees them: no answer of more rows than are compared, and nothing asked past its
# time.


class Bounds:
    """`at_most`: rows of a statement, or items read for a request. `late`: past its deadline."""

    def __init__(self, at_most: int, late: Callable[[], bool]) -> None:
        self.at_most = at_most
        self.late = late

    def check(self, read: int = 0) -> None:
        if read > self.at_most:
            raise TooManyError(f"too many: more than {self.at_most:,} rows, which are not compared")
        if self.late():
            raise StoppedError("its deadline is over (reads.shadow.deadline_s)")


class BoundedSource:
    def __init__(self, source: Questions, bounds: Bounds) -> None:
        self._source = source
        self._bounds = bounds

    def query(
        self,
        statement: Statement,
        params: Mapping[str, Any],
        schema: str | None = None,
        *,
        at_most: int | None = None,
    ) -> list[tuple[Any, ...]]:
        self._bounds.check()
        most = self._bounds.at_most if at_most is None else min(at_most, self._bounds.at_most)
        rows = self._source.query(statement, params, schema, at_most=most)
        self._bounds.check(len(rows))
        return rows


class BoundedStore:
    """The reading part of model.edges.ItemStore. Items read but not shown also count."""

    def __init__(self, store: ItemStore, bounds: Bounds) -> None:
        self._store = store
        self._bounds = bounds
        # Threads of one question add to it; a lost count lets one page more through.
        self._read = 0

    def query(self, request: Mapping[str, Any], start: Mapping[str, Any] | None = None) -> QueryPage:
        self._bounds.check()
        # One more than is allowed shows that there are too many.
        limit = min(int(request.get("Limit", self._bounds.at_most + 1)), self._bounds.at_most + 1)
        return self._counted(self._store.query({**request, "Limit": limit}, start))

    def get_item(self, request: Mapping[str, Any]) -> QueryPage:
        self._bounds.check()
        return self._counted(self._store.get_item(request))

    def batch_get(self, request: Mapping[str, Any]) -> QueryPage:
        self._bounds.check()
        return self._counted(self._store.batch_get(request))

    def _counted(self, page: QueryPage) -> QueryPage:
        self._read += len(page.items)
        self._bounds.check(self._read)
        return page


# ── Both sides of an access pattern for a service: by the mapping, or by functions of its own ──

_LOOP_TICK_S = 0.05
"""How often a waiting thread checks that a loop still runs: a loop that stops does not notify those that wait for it."""


class SideError(MigratorError):
    def __init__(self, side: Side, why: str) -> None:
        super().__init__(why)
        self.side = side


class LoopGoneError(MigratorError):
    """The calling event loop has ended, such as a framework's loop per request: neither side is at fault."""


def blamed(error: BaseException, asked_side: Side) -> tuple[Side, str]:
    """The side at fault, and why. An error of a service's function may contain values: only its type is shown."""
    if isinstance(error, SideError):
        return error.side, str(error)
    if isinstance(error, MigratorError):
        return asked_side, str(error)
    return asked_side, f"{type(error).__name__} was raised"


class ShadowedCall(Struct, frozen=True):
    """An answered call for its shadow. It shares nothing with the caller and never changes.

    `ask`: requests a side's answer again in the background; raises the side's errors.
    `compared`: items with rows.
    """

    pattern: Pattern
    ask: Callable[[Side, Bounds], Any]
    compared: Callable[[Any, Any], tuple[PartAnswer, ...]]


# ── by the mapping ──


class Backends(Struct, frozen=True):
    source: Questions
    store: ItemStore

    def within(self, bounds: Bounds) -> Backends:
        return Backends(
            cast("Questions", BoundedSource(self.source, bounds)),
            cast("ItemStore", BoundedStore(self.store, bounds)),
        )


# ── by functions of the service's own ──


class OwnCall(Struct, frozen=True):
    """A call answered by two functions of the service. `loop`: their event loop, if they are async."""

    question: Question
    functions: Mapping[Side, Callable[..., Any]]
    arguments: Mapping[str, Any]
    loop: asyncio.AbstractEventLoop | None
    deadline_s: float

    def shadowed(self) -> ShadowedCall:
        return ShadowedCall(self.question.pattern, self._ask, self._compared)

    def _ask(self, side: Side, bounds: Bounds) -> Any:
        bounds.check()
        function, pattern = self.functions.get(side), self.question.pattern
        if function is None:
            raise SideError(side, missing_function(pattern.name, side))
        answer = function(**self.arguments) if self.loop is None else self._on_loop(function)
        return records_of(pattern, answer, bounds.at_most)

    def _on_loop(self, function: Callable[..., Any]) -> Any:
        """Run on the service's loop, which owns its connections. This thread waits, the loop does not.

        Raises: LoopGoneError.
        """
        assert self.loop is not None
        gone = LoopGoneError("the calling event loop has ended")
        if not self.loop.is_running():
            raise gone
        work = _harmless(function, self.arguments)
        try:
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:  # it was closed meanwhile
            work.close()
            raise gone from None
        ends_at = time.monotonic() + self.deadline_s
        while not wait([future], _LOOP_TICK_S).done:
            if not self.loop.is_running():
                future.cancel()
                raise gone
            if time.monotonic() >= ends_at:
                future.cancel()
                raise StoppedError("its deadline is over (reads.shadow.deadline_s)")
        try:
            return future.result()
        except CancelledError:
            # As asyncio.run cancels, at its end, all that is under way.
            raise gone from None

    def _compared(self, items: Any, rows: Any) -> tuple[PartAnswer, ...]:
        parts, readers = self.question.pattern.parts, self.question.readers
        for part in parts:
            for side, ours, others in (("sql", rows, items), ("table", items, rows)):
                fault = names_fault(part, ours[part.name], others[part.name])
                if fault:
                    where = f"the function of {_SIDE_WORDS[side]}"
                    raise SideError(cast("Side", side), f"{self.question.pattern.name}: {where}: {fault}")
        return self.question.compared(
            {part.name: rows_of(part, items[part.name], ()) for part in parts},
            {part.name: rows_of(part, rows[part.name], readers[part.name]) for part in parts},
        )


async def _harmless(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Raises: the function's errors, except those that would end the service's loop."""
    try:
        return await function(**arguments)
    except (SystemExit, KeyboardInterrupt) as error:
        raise StoppedError(f"{type(error).__name__} was raised") from None


_SIDE_WORDS = {"sql": "SQL", "table": "the table"}


def missing_function(pattern: str, side: Side) -> str:
    word = ".table" if side == "table" else "@migration.pattern"
    return f"{pattern}: no function answers from {_SIDE_WORDS[side]}; give one with {word}"
