"""Replay: access patterns asked of both sides with sampled parameters, compared, kept as evidence."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

from migrator.mapping.heart.items import CompiledEntity
from migrator.mapping.show.redaction import hidden_by_pattern
from migrator.model.edges import ItemStore, Source
from migrator.model.entities import Mapping
from migrator.model.evidence import SAMPLES_KEPT, Evidence, Sample, Window
from migrator.model.patterns import Pattern
from migrator.model.phase import Side
from migrator.model.results import PatternReplay, ReplayResult
from migrator.runtime.retry import nap
from migrator.stages.parallel import in_parallel
from migrator.stages.patterns.latencies import Latencies
from migrator.stages.patterns.param_sampling import ParamSet, RowSample, draw, kinds_of
from migrator.stages.patterns.recheck import LONGEST, Comparer, Comparison, ReplayMismatch, Sampler

# ── Answers of a replay counted: every difference by its class, part and attribute, a few of each kept ──


def count_same(replay: PatternReplay, look: Comparison) -> None:
    """Counts a sample whose answers were the same at first sight."""
    replay.same += 1
    replay.empty += look.empty


def count_different(suspect: ReplayMismatch) -> None:
    """Counts a sample that differed to the end, with each of its differences that lasted."""
    replay = suspect.replay
    replay.different += 1
    replay.failed[suspect.draw.kind] += bool(suspect.look.errors)
    replay.found.update(suspect.counts)
    for kind, examples in suspect.examples.items():
        kept = replay.examples.setdefault(kind, [])
        kept += examples[: SAMPLES_KEPT - len(kept)]


# ──
# Access patterns asked of both sides with parameters drawn from the source, and compared: a shadow without
# a service.

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
        self._pool = RowSample(source, entities, options.seed)

    def run(self, patterns: Sequence[Pattern]) -> ReplayResult:
        """What each pattern came to. An error of one side is counted as a difference and ends nothing.

        Raises: what the source raises where no parameters can be drawn; Interrupted after `stop`.
        """
        began = time.monotonic()
        found: list[PatternReplay] = []
        suspects: list[ReplayMismatch] = []
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

    def _first_looks(self, pattern: Pattern) -> tuple[PatternReplay, list[ReplayMismatch]]:
        """The pattern with all samples that are the same counted, and the others."""
        drawn = draw(self.mapping, pattern, self._pool, self.options.samples, self.options.seed)
        hidden = self._hidden[pattern.name]
        replay = PatternReplay(pattern, 0, drawn.origins, hidden, missing_why=drawn.why)
        comparer = Comparer(self.mapping, pattern, self.plans, self.source, self.store)
        suspects: list[ReplayMismatch] = []
        latencies: dict[Side, Latencies] = {"table": Latencies(), "sql": Latencies()}
        failing = 0

        def waiting() -> Iterator[ParamSet]:
            yield from (one for one in drawn.draws if failing < _ERRORS_IN_A_ROW)

        def first(one: ParamSet) -> tuple[ParamSet, Comparison]:
            return one, comparer.look(one.values)

        asked: list[ParamSet] = []
        self.progress.pattern_started(pattern.name, len(drawn.draws))
        for one, look in in_parallel(first, waiting(), self.options.workers, self.stop):
            asked.append(one)
            failing = failing + 1 if look.errors else 0
            for side, took_ms in look.took_ms.items():
                latencies[side].record(took_ms)
            if look.same:
                count_same(replay, look)
            else:
                suspects.append(ReplayMismatch(replay, comparer, one, look))
            self.progress.sample_done(pattern.name)
        self.progress.pattern_done(pattern.name, len(asked), len(suspects))
        _sum_up(replay, asked, len(drawn.draws), latencies)
        return replay, suspects

    def _settled(self, suspects: list[ReplayMismatch]) -> list[ReplayMismatch]:
        """Those that still differ when both sides have had the time to settle; the others are counted as transient."""
        began = time.monotonic()
        for share in self._shares(began) if self.options.settle_s else ():
            if not suspects:
                break
            nap(began + share * self.options.settle_s - time.monotonic(), self.stop.is_set, self.sleep)
            looked = list(in_parallel(ReplayMismatch.look_again, suspects, self.options.workers, self.stop))
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
    replay: PatternReplay, asked: Sequence[ParamSet], drawn: int, latencies: dict[Side, Latencies]
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


# ── A replay as evidence: what it compared goes into the journal beside what services compare ──

SERVICE = "shadow replay"


@dataclass(frozen=True)
class ReplayRecord:
    """`revision`: of the mapping that was replayed; `writer` tells this replay from others."""

    evidence: Evidence
    revision: str
    writer: str = field(default_factory=lambda: f"replay-{secrets.token_hex(8)}")

    def keep(self, result: ReplayResult) -> None:
        """Keeps what was compared, all of it as of the second in which the replay began: of a pattern that was moved since,
        it is no evidence. Of a control nothing: no item took part in it.

        Raises: StoppedError where the journal cannot be asked.
        """
        asked = [one for one in result.patterns if one.samples]
        if result.control or not asked:
            return
        now_s = self.evidence.now_s()
        windows = [self._window(one, int(now_s - result.took_s)) for one in asked]
        self.evidence.keep(windows, [sample for one in asked for sample in self._samples(one, now_s)])

    def _window(self, one: PatternReplay, begun_at: int) -> Window:
        failed = one.failed.total()
        return Window(
            pattern=one.pattern.name,
            begun_at=begun_at,
            writer=self.writer,
            service=SERVICE,
            revision=self.revision,
            origin="replay",
            answered={side: found.answers for side, found in one.latency.items()},
            errors={
                side: count
                for side in ("table", "sql")
                if (
                    count := sum(
                        n for kind, n in one.found.items() if (kind.kind, kind.attribute) == ("error", side)
                    )
                )
            },
            compared=one.samples - failed,
            same=one.same,
            transient=one.transient,
            different=one.different - failed,
            kinds={
                ",".join(kind): left
                for kind, count in one.kinds.items()
                if (left := count - one.failed[kind])
            },
            found=dict(one.found),
            latency=dict(one.histograms),
        )

    def _samples(self, one: PatternReplay, now_s: float) -> list[Sample]:
        sampler = Sampler(one.pattern, one.hidden, self.writer, self.revision)
        return [
            sampler.sample(kind, example, now_s) for kind, kept in one.examples.items() for example in kept
        ]
