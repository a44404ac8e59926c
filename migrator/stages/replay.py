"""Access patterns asked of both sides with parameters drawn from the source, and compared: a shadow without a service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Protocol

from migrator.mapping.items import CompiledEntity
from migrator.mapping.redaction import hidden_by_pattern
from migrator.model import Mapping, Pattern
from migrator.phase import Side
from migrator.ports import ItemStore, Source
from migrator.replay_results import PatternReplay, ReplayResult
from migrator.retry import nap
from migrator.stages.draws import Draw, draw, kinds_of
from migrator.stages.latencies import Latencies
from migrator.stages.looks import LONGEST, Look, Looker, Suspect
from migrator.stages.pool import in_parallel
from migrator.stages.replay_tally import count_different, count_same
from migrator.stages.row_pool import RowPool

_ROUNDS = (0.1, 0.3, 0.6, 1.0)
"""When differences are looked at again, as shares of the time to settle."""
_WHILE_ON_THEIR_WAY = (1.5, 2.0, 2.5, LONGEST)
"""The same, as long as changes from before the first of these looks wait for a relay."""
_ERRORS_IN_A_ROW = 10
"""After so many a pattern is asked no more: its side is down, and each further question would wait for it in vain."""


class ReplayProgress(Protocol):
    def pattern_started(self, pattern: str, samples: int) -> None: ...

    def sample_done(self, pattern: str) -> None: ...

    def pattern_done(self, pattern: str, samples: int, suspects: int) -> None: ...


@dataclass(frozen=True)
class ReplayOptions:
    """`samples`: of each pattern. `settle_s`: how long both sides may take to come to the same answer."""

    samples: int = 200
    seed: int = 0
    settle_s: float = 3.0
    workers: int = 4


class Replay:
    """`store`: None compares SQL with SQL, which shows the noise of the source itself. `lag_s`: how old the oldest change is
    that has not reached the table."""

    def __init__(
        self,
        mapping: Mapping,
        entities: Sequence[CompiledEntity],
        source: Source,
        store: ItemStore | None,
        options: ReplayOptions = ReplayOptions(),
        *,
        progress: ReplayProgress,
        stop: Event | None = None,
        lag_s: Callable[[], float] = lambda: 0.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.mapping = mapping
        self.plans = [entity.plan for entity in entities]
        self.source = source
        self.store = store
        self.options = options
        self.progress = progress
        self.stop = stop or Event()
        self.lag_s = lag_s
        self.sleep = sleep
        self._hidden = hidden_by_pattern(mapping, self.plans)
        self._pool = RowPool(source, entities, options.seed)

    def run(self, patterns: Sequence[Pattern]) -> ReplayResult:
        """What each pattern came to. An error of one side is counted as a difference and ends nothing.

        Raises: what the source raises where no parameters can be drawn; Interrupted after `stop`.
        """
        began = time.monotonic()
        found: list[PatternReplay] = []
        suspects: list[Suspect] = []
        for pattern in patterns:
            made, doubtful = self._first_looks(pattern)
            found.append(made)
            suspects += doubtful
        lasting = self._settled(suspects)
        for suspect in lasting:
            count_different(suspect)
        took_s = time.monotonic() - began
        lag_s = self.lag_s() if lasting else 0.0
        return ReplayResult(found, self.options.seed, self.store is None, took_s, lag_s)

    def _first_looks(self, pattern: Pattern) -> tuple[PatternReplay, list[Suspect]]:
        """The pattern with all samples that are the same counted, and the others."""
        drawn = draw(self.mapping, pattern, self._pool, self.options.samples, self.options.seed)
        hidden = self._hidden[pattern.name]
        replay = PatternReplay(pattern, 0, drawn.origins, hidden, missing_why=drawn.why)
        looker = Looker(self.mapping, pattern, self.plans, self.source, self.store)
        suspects: list[Suspect] = []
        latencies: dict[Side, Latencies] = {"table": Latencies(), "sql": Latencies()}
        failing = 0

        def waiting() -> Iterator[Draw]:
            yield from (one for one in drawn.draws if failing < _ERRORS_IN_A_ROW)

        def first(one: Draw) -> tuple[Draw, Look]:
            return one, looker.look(one.values)

        asked: list[Draw] = []
        self.progress.pattern_started(pattern.name, len(drawn.draws))
        for one, look in in_parallel(first, waiting(), self.options.workers, self.stop):
            asked.append(one)
            failing = failing + 1 if look.errors else 0
            for side, took_ms in look.took_ms.items():
                latencies[side].record(took_ms)
            if look.same:
                count_same(replay, look)
            else:
                suspects.append(Suspect(replay, looker, one, look))
            self.progress.sample_done(pattern.name)
        self.progress.pattern_done(pattern.name, len(asked), len(suspects))
        _sum_up(replay, asked, len(drawn.draws), latencies)
        return replay, suspects

    def _settled(self, suspects: list[Suspect]) -> list[Suspect]:
        """Those that still differ when both sides have had the time to settle; the others are counted as transient."""
        began = time.monotonic()
        for share in self._shares(began) if self.options.settle_s else ():
            if not suspects:
                break
            nap(began + share * self.options.settle_s - time.monotonic(), self.stop.is_set, self.sleep)
            looked = list(in_parallel(Suspect.look_again, suspects, self.options.workers, self.stop))
            for one in looked:
                one.replay.transient += not one.lasting
            suspects = [one for one in suspects if one.lasting]
        return suspects

    def _shares(self, began: float) -> Iterator[float]:
        """When to look again: longer where a change that SQL showed at first may not have reached the table yet."""
        yield from _ROUNDS
        for share in _WHILE_ON_THEIR_WAY:
            if self.lag_s() < time.monotonic() - began:
                return
            yield share


def _sum_up(
    replay: PatternReplay, asked: Sequence[Draw], drawn: int, latencies: dict[Side, Latencies]
) -> None:
    replay.samples = len(asked)
    replay.kinds = kinds_of(asked)
    replay.absent = sum(one.absent for one in asked)
    replay.latency = {
        side: summary for side, one in latencies.items() if (summary := one.summary()) is not None
    }
    replay.histograms = {side: latencies[side].text() for side in replay.latency}
    if len(asked) < drawn:
        replay.missing_why = (
            f"{_ERRORS_IN_A_ROW} errors in a row; the other {drawn - len(asked):,} were not asked"
        )
