"""Replay: runs access patterns against both sides with sampled parameters, compares, and keeps the evidence."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as Dict
from threading import Event
from typing import Protocol

from msgspec import Struct, field

from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.language.redaction import hidden_by_pattern
from migrator.mapping.model.edges import ItemStore, Source
from migrator.mapping.model.evidence import SAMPLES_KEPT, Evidence, Sample, Side, Window
from migrator.mapping.model.mapping import Mapping, Pattern
from migrator.mapping.model.results import PatternReplay, ReplayResult
from migrator.mapping.patterns.designs import Designs
from migrator.runtime.retry import nap
from migrator.stages.core.parallel import in_parallel
from migrator.stages.patterns.latencies import Latencies
from migrator.stages.patterns.param_sampling import ParamSet, RowSample, draw, kinds_of
from migrator.stages.patterns.recheck import LONGEST, Comparer, Comparison, ReplayMismatch, Sampler

# ── Counting the answers of a replay: differences by class, part and attribute, with a few examples of each ──


def count_same(replay: PatternReplay, look: Comparison) -> None:
    """Counts a sample whose answers were the same in the first comparison."""
    replay.same += 1
    replay.empty += look.empty


def count_different(suspect: ReplayMismatch) -> None:
    """Counts a sample that differed in every comparison, with each of its lasting differences."""
    replay = suspect.replay
    replay.different += 1
    replay.failed[suspect.draw.kind] += bool(suspect.look.errors)
    replay.found.update(suspect.counts)
    for kind, examples in suspect.examples.items():
        kept = replay.examples.setdefault(kind, [])
        kept += examples[: SAMPLES_KEPT - len(kept)]


# ── Replay of access patterns with parameters drawn from the source: shadow reads without a service ──

_ROUNDS = (0.1, 0.3, 0.6, 1.0)
"""When mismatches are compared again, as shares of the time to settle."""
_WHILE_ON_THEIR_WAY = (1.5, 2.0, 2.5, LONGEST)
"""Further shares, used as long as changes from before the first comparison wait for a relay."""
_ERRORS_IN_A_ROW = 10
"""After so many errors a pattern is given up: its side is down, and each further question would wait for a time-out."""


class ReplayProgress(Protocol):
    def pattern_started(self, pattern: str, samples: int) -> None: ...

    def sample_done(self, pattern: str) -> None: ...

    def pattern_done(self, pattern: str, samples: int, suspects: int) -> None: ...


class ReplayOptions(Struct, frozen=True):
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
        plans = [entity.plan for entity in entities]
        self.designs = Designs(plans)
        self.source = source
        self.store = store
        self.options = options
        self.progress = progress
        self.stop = stop or Event()
        self.lag_s = lag_s
        self.sleep = sleep
        self._hidden = hidden_by_pattern(mapping, plans)
        self._pool = RowSample(source, entities, options.seed)

    def run(self, patterns: Sequence[Pattern]) -> ReplayResult:
        """The results of all patterns. An error of one side is counted as a difference and ends nothing.

        Raises: what the source raises where no parameters can be drawn; Interrupted after `stop`.
        """
        began = time.monotonic()
        replays: list[PatternReplay] = []
        suspects: list[ReplayMismatch] = []
        for pattern in patterns:
            made, doubtful = self._first_looks(pattern)
            replays.append(made)
            suspects += doubtful
        lasting = self._settled(suspects)
        for suspect in lasting:
            count_different(suspect)
        took_s = time.monotonic() - began
        lag_s = self.lag_s() if lasting else 0.0
        return ReplayResult(replays, self.options.seed, self.store is None, took_s, lag_s)

    def _first_looks(self, pattern: Pattern) -> tuple[PatternReplay, list[ReplayMismatch]]:
        """(the pattern's result with equal samples counted, the samples that differed)."""
        drawn = draw(self.mapping, pattern, self._pool, self.options.samples, self.options.seed)
        hidden = self._hidden[pattern.name]
        replay = PatternReplay(pattern, 0, drawn.origins, hidden, missing_why=drawn.why)
        comparer = Comparer(self.mapping, pattern, self.designs, self.source, self.store)
        suspects: list[ReplayMismatch] = []
        latencies: dict[Side, Latencies] = {"table": Latencies(), "sql": Latencies()}
        failing = 0

        def waiting() -> Iterator[ParamSet]:
            yield from (params for params in drawn.draws if failing < _ERRORS_IN_A_ROW)

        def first(params: ParamSet) -> tuple[ParamSet, Comparison]:
            return params, comparer.look(params.values)

        compared: list[ParamSet] = []
        self.progress.pattern_started(pattern.name, len(drawn.draws))
        for params, look in in_parallel(first, waiting(), self.options.workers, self.stop):
            compared.append(params)
            failing = failing + 1 if look.errors else 0
            for side, took_ms in look.took_ms.items():
                latencies[side].record(took_ms)
            if look.same:
                count_same(replay, look)
            else:
                suspects.append(ReplayMismatch(replay, comparer, params, look))
            self.progress.sample_done(pattern.name)
        self.progress.pattern_done(pattern.name, len(compared), len(suspects))
        _sum_up(replay, compared, len(drawn.draws), latencies)
        return replay, suspects

    def _settled(self, suspects: list[ReplayMismatch]) -> list[ReplayMismatch]:
        """The mismatches that still differ after the time to settle; the others are counted as transient."""
        began = time.monotonic()
        for share in self._shares(began) if self.options.settle_s else ():
            if not suspects:
                break
            nap(began + share * self.options.settle_s - time.monotonic(), self.stop.is_set, self.sleep)
            looked = list(in_parallel(ReplayMismatch.look_again, suspects, self.options.workers, self.stop))
            for mismatch in looked:
                mismatch.replay.transient += not mismatch.lasting
            suspects = [mismatch for mismatch in suspects if mismatch.lasting]
        return suspects

    def _shares(self, began: float) -> Iterator[float]:
        """When to compare again: for longer while a change that SQL showed may not have reached the table yet."""
        yield from _ROUNDS
        for share in _WHILE_ON_THEIR_WAY:
            if self.lag_s() < time.monotonic() - began:
                return
            yield share


def _sum_up(
    replay: PatternReplay, compared: Sequence[ParamSet], drawn: int, latencies: dict[Side, Latencies]
) -> None:
    replay.samples = len(compared)
    replay.kinds = kinds_of(compared)
    replay.absent = sum(params.absent for params in compared)
    replay.latency = {
        side: summary
        for side, latencies_of_side in latencies.items()
        if (summary := latencies_of_side.summary()) is not None
    }
    replay.histograms = {side: latencies[side].text() for side in replay.latency}
    if len(compared) < drawn:
        replay.missing_why = (
            f"{_ERRORS_IN_A_ROW} errors in a row; the other {drawn - len(compared):,} were not asked"
        )


# ── A replay as evidence: its comparisons are kept in the journal, like those of services ──

SERVICE = "shadow replay"


class ReplayRecord(Struct, frozen=True):
    """`revision`: of the mapping that was replayed; `answers`: by pattern, the digest of what its answer is made of;
    `writer`: the id of this replay."""

    evidence: Evidence
    revision: str
    answers: Dict[str, str]
    writer: str = field(default_factory=lambda: f"replay-{secrets.token_hex(8)}")

    def begin(self, stop: Callable[[], bool], sleep: Callable[[float], None] = time.sleep) -> int:
        """The next whole second by the journal's clock, waited for: what is compared from then on is younger than any move
        before, also than one of the same second. Raises: StoppedError, Interrupted."""
        now_s = self.evidence.now_s()
        begun_at = math.ceil(now_s)
        nap(begun_at - now_s, stop, sleep)
        return begun_at

    def keep(self, result: ReplayResult, begun_at: int) -> None:
        """Keeps the comparisons, dated at the second in which the replay began, so that they are no evidence for a pattern
        moved since. A control keeps nothing, since it reads no items.

        Raises: StoppedError where the journal cannot be asked.
        """
        replays = [replay for replay in result.patterns if replay.samples]
        if result.control or not replays:
            return
        now_s = self.evidence.now_s()
        windows = [self._window(replay, begun_at) for replay in replays]
        self.evidence.keep(windows, [sample for replay in replays for sample in self._samples(replay, now_s)])

    def _window(self, replay: PatternReplay, begun_at: int) -> Window:
        failed = replay.failed.total()
        return Window(
            pattern=replay.pattern.name,
            begun_at=begun_at,
            writer=self.writer,
            service=SERVICE,
            revision=self.revision,
            origin="replay",
            answered={side: latency.answers for side, latency in replay.latency.items()},
            errors={
                side: count
                for side in ("table", "sql")
                if (
                    count := sum(
                        n
                        for kind, n in replay.found.items()
                        if (kind.kind, kind.attribute) == ("error", side)
                    )
                )
            },
            compared=replay.samples - failed,
            same=replay.same,
            transient=replay.transient,
            different=replay.different - failed,
            kinds={
                ",".join(kind): left
                for kind, count in replay.kinds.items()
                if (left := count - replay.failed[kind])
            },
            found=dict(replay.found),
            latency=dict(replay.histograms),
            answer=self.answers[replay.pattern.name],
        )

    def _samples(self, replay: PatternReplay, now_s: float) -> list[Sample]:
        sampler = Sampler(replay.pattern, replay.hidden, self.writer, self.revision)
        return [
            sampler.sample(kind, example, now_s) for kind, kept in replay.examples.items() for example in kept
        ]
