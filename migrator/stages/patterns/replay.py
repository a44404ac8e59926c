"""Replays: sampled calls answered by both sides, with differences compared again before they count."""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Event
from typing import Any, Protocol

from msgspec import Struct, field

from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.language.redaction import hidden_by_pattern, mask, value_texts
from migrator.mapping.model.edges import ItemStore, Questions, Source
from migrator.mapping.model.evidence import SAMPLES_KEPT, SIDES, Diff, DiffKey, Evidence, Sample, Side, Window
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.mapping import Pattern
from migrator.mapping.model.results import (
    Example,
    Hidden,
    PartAnswer,
    PatternReplay,
    ReplayResult,
    SideAnswer,
)
from migrator.mapping.patterns.answers import Designs
from migrator.mapping.patterns.diff import as_text
from migrator.runtime.errors import Interrupted, MigratorError, amount
from migrator.runtime.retry import nap
from migrator.stages.core.parallel import in_parallel
from migrator.stages.patterns.latencies import Latencies
from migrator.stages.patterns.param_sampling import ParamSet, RowSample, draw
from migrator.stages.patterns.question import Question

# ── Comparison of both answers, repeated: a difference in every comparison counts, all else was in flight ──

LONGEST = 3.0
"""Multiple of the time to settle after which a difference counts even if earlier changes are still on their way: callers
of the table would see answers as old as that."""
EXAMPLES = 3
"""Examples of each kind of difference that one sample of a replay keeps at most."""
MANY = 1_000
"""The most differences of one answer that are distinguished by content; more count as "many"."""

Sign = tuple[str, str, int]
"""The identity of a difference: the part, its side or kind, and a digest of its row or item."""


class Comparison(Struct, frozen=True):
    """Both answers compared. `errors`: messages of sides that failed; nothing is compared then."""

    parts: tuple[PartAnswer, ...]
    took_ms: Mapping[Side, float]
    errors: Mapping[Side, str] = {}

    @property
    def same(self) -> bool:
        return not self.errors and all(part.same for part in self.parts)

    @property
    def empty(self) -> bool:
        return not any(part.items or part.rows for part in self.parts)

    def signs(self) -> frozenset[Sign]:
        all_signs: set[Sign] = {("", "error", hash(side)) for side in self.errors}
        for part in self.parts:
            all_signs |= set(_signs(part))
        return frozenset(all_signs)


def _signs(answer: PartAnswer) -> Iterator[Sign]:
    name = answer.part.name
    if answer.several:
        yield name, "several", 0
    if len(answer.diffs) > MANY:
        yield name, "many", 0
        return
    for diff in answer.diffs:
        yield from signs_of(name, diff)


def signs_of(part: str, diff: Diff) -> Iterator[Sign]:
    """The signs of a difference: its row and its item, however paired, or a different order.

    With a known row key also the differing attribute, which stays the same while other attributes change.
    """
    if diff.row is not None:
        yield part, "row", hash(as_text(diff.row))
    if diff.item is not None:
        yield part, "item", hash(as_text(diff.item))
    if diff.kind == "order":
        yield part, "order", 0
    elif diff.sign is not None:
        yield part, f"{diff.kind} {diff.attribute}", hash(as_text(diff.sign))


class Comparer:
    """Compares one pattern's two sides. Thread-safe."""

    def __init__(
        self,
        mapping: MappingModel,
        pattern: Pattern,
        designs: Designs,
        source: Questions,
        store: ItemStore | None,
    ) -> None:
        self._question = Question(mapping, pattern, designs)
        self._source = source
        self._store = store

    def look(self, params: Mapping[str, Any]) -> Comparison:
        """Compare once. Raises: Interrupted; other errors of migrator are part of the result."""
        errors: dict[Side, str] = {}
        first = _answer(errors, "table", lambda: self._first(params))
        second = _answer(errors, "sql", lambda: self._question.of_sql(params, self._source))
        answered: list[tuple[Side, SideAnswer | None]] = [("table", first), ("sql", second)]
        took_ms = {side: answer.ms for side, answer in answered if answer is not None}
        if first is None or second is None:
            return Comparison((), took_ms, errors)
        return Comparison(self._question.compared(first.rows, second.rows), took_ms)

    def _first(self, params: Mapping[str, Any]) -> SideAnswer:
        if self._store is None:
            return self._question.of_sql(params, self._source)
        return self._question.of_table(params, self._store)


def _answer(errors: dict[Side, str], side: Side, ask: Callable[[], SideAnswer]) -> SideAnswer | None:
    try:
        return ask()
    except Interrupted:
        raise
    except MigratorError as error:
        errors[side] = str(error)
        return None


class PendingMismatch:
    """An answer that differed at first. `lasting`: signs present in every comparison so far."""

    def __init__(self, look: Comparison) -> None:
        self.look = look
        self.lasting = look.signs()

    def looked(self, look: Comparison) -> None:
        """Add a comparison. An error hides differences, so counting starts again."""
        failed = bool(self.look.errors)
        self.look, signs = look, look.signs()
        self.lasting = signs if failed or look.errors else self.lasting & signs

    def lasts(self, part: str, diff: Diff) -> bool:
        return (part, "many", 0) in self.lasting or any(sign in self.lasting for sign in signs_of(part, diff))

    def found(self, texts: Mapping[str, str]) -> Iterator[tuple[DiffKey, Example]]:
        for side, why in self.look.errors.items():
            yield DiffKey("error", attribute=side), Example(texts, why=why)
        for answer in self.look.parts:
            name = answer.part.name
            if (name, "several", 0) in self.lasting:
                counted = f"{amount(len(answer.items), 'item')}, {amount(len(answer.rows), 'row')}"
                why = f"{counted}, although the part has one: true"
                yield DiffKey("unexpected", name), Example(texts, why=why)
            for diff in answer.diffs:
                if self.lasts(name, diff):
                    yield DiffKey(diff.kind, name, diff.attribute), Example(texts, answer.compared, diff)


class ReplayMismatch(PendingMismatch):
    """A replay's sample that differed at first.

    Keeps only counts and a few examples, since thousands may wait for their next comparison.
    """

    def __init__(self, replay: PatternReplay, comparer: Comparer, draw: ParamSet, look: Comparison) -> None:
        super().__init__(look)
        self.replay = replay
        self.draw = draw
        self._looker = comparer
        self._keep()

    def look_again(self) -> ReplayMismatch:
        self.looked(self._looker.look(self.draw.values))
        self._keep()
        return self

    def _keep(self) -> None:
        self.counts: Counter[DiffKey] = Counter()
        self.examples: dict[DiffKey, list[Example]] = {}
        for kind, example in self.found(self.draw.texts):
            self.counts[kind] += 1
            kept = self.examples.setdefault(kind, [])
            if len(kept) < EXAMPLES:
                kept.append(example)
        self.look = Comparison((), self.look.took_ms, self.look.errors)


# ── Differences of one pattern as samples for the journal, redacted before they leave the process ──


class Sampler(Struct, frozen=True):
    """`hidden`: what must not be shown. `writer`: id of the comparing process."""

    pattern: Pattern
    hidden: Hidden
    writer: str
    revision: str

    def sample(self, kind: DiffKey, example: Example, at: float) -> Sample:
        diff, params = example.diff, example.params
        compared = tuple(example.compared)
        row, item = (
            None if values is None else value_texts(compared, values, self.hidden.attributes)
            for values in ((None, None) if diff is None else (diff.row, diff.item))
        )
        key = None if diff is None else diff.key
        return Sample(
            pattern=self.pattern.name,
            key=kind,
            at=at,
            writer=self.writer,
            revision=self.revision,
            params={
                name: mask(text) if name in self.hidden.params else text for name, text in params.items()
            },
            attributes=compared if diff is not None else (),
            row=row,
            item=item,
            why=example.why,
            # Identifies the row; by the parameters for an answer of at most one row.
            subject="" if key is None else mask(as_text((kind.part, *(key or sorted(params.items()))))),
        )


# ── Counting the answers of a replay: differences by class, part and attribute, with a few examples of each ──


def count_different(suspect: ReplayMismatch) -> None:
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
"""Errors after which a pattern is given up: its side is down, and each further question would wait for a timeout."""


class ReplayProgress(Protocol):
    def pattern_started(self, pattern: str, samples: int) -> None: ...

    def sample_done(self, pattern: str) -> None: ...

    def pattern_done(self, pattern: str, samples: int, suspects: int) -> None: ...


class ReplayOptions(Struct, frozen=True):
    """`samples`: per pattern. `settle_s`: time both sides have to agree."""

    samples: int = 200
    seed: int = 0
    settle_s: float = 3.0
    workers: int = 4


class Replay:
    """`store`: None compares SQL with SQL, which shows the source's own noise.
    `lag_s`: age of the oldest change that has not reached the table.
    """

    def __init__(
        self,
        mapping: MappingModel,
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
        """Results of all patterns. An error of one side counts as a difference and ends nothing.

        Raises: the source's error if no parameters can be drawn; Interrupted after `stop`.
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
        drawn = draw(self.mapping, pattern, self._pool, self.options.samples, self.options.seed)
        hidden = self._hidden[pattern.name]
        replay = PatternReplay(pattern, 0, drawn.origins, hidden, missing_why=drawn.why)
        comparer = Comparer(self.mapping, pattern, self.designs, self.source, self.store)
        suspects: list[ReplayMismatch] = []
        latencies: dict[Side, Latencies] = {"table": Latencies(), "sql": Latencies()}
        failing = 0

        def first(params: ParamSet) -> tuple[ParamSet, Comparison]:
            return params, comparer.look(params.values)

        waiting = (params for params in drawn.draws if failing < _ERRORS_IN_A_ROW)
        compared: list[ParamSet] = []
        self.progress.pattern_started(pattern.name, len(drawn.draws))
        for params, look in in_parallel(first, waiting, self.options.workers, self.stop):
            compared.append(params)
            failing = failing + 1 if look.errors else 0
            for side, took_ms in look.took_ms.items():
                latencies[side].record(took_ms)
            if look.same:
                replay.same += 1
                replay.empty += look.empty
            else:
                suspects.append(ReplayMismatch(replay, comparer, params, look))
            self.progress.sample_done(pattern.name)
        self.progress.pattern_done(pattern.name, len(compared), len(suspects))
        _sum_up(replay, compared, len(drawn.draws), latencies)
        return replay, suspects

    def _settled(self, suspects: list[ReplayMismatch]) -> list[ReplayMismatch]:
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
        """When to compare again: longer while a change in SQL may not have reached the table."""
        yield from _ROUNDS
        for share in _WHILE_ON_THEIR_WAY:
            if self.lag_s() < time.monotonic() - began:
                return
            yield share


def _sum_up(
    replay: PatternReplay, compared: Sequence[ParamSet], drawn: int, latencies: dict[Side, Latencies]
) -> None:
    replay.samples = len(compared)
    replay.kinds = Counter(params.kind for params in compared)
    replay.absent = sum(params.absent for params in compared)
    replay.latency = {
        side: curve for side, of_side in latencies.items() if (curve := of_side.curve()) is not None
    }
    replay.histograms = {side: latencies[side].text() for side in replay.latency}
    if len(compared) < drawn:
        replay.missing_why = (
            f"{_ERRORS_IN_A_ROW} errors in a row; the other {drawn - len(compared):,} were not asked"
        )


# ── A replay as evidence: its comparisons are kept in the journal, like those of services ──

SERVICE = "shadow replay"


class ReplayRecord(Struct, frozen=True):
    """`answers`: by pattern, the digest of its answer. `writer`: id of this replay."""

    evidence: Evidence
    revision: str
    answers: Mapping[str, str]
    writer: str = field(default_factory=lambda: f"replay-{secrets.token_hex(8)}")

    def begin(self, stop: Callable[[], bool], sleep: Callable[[float], None] = time.sleep) -> int:
        """Wait for the journal's next whole second, and return it: comparisons are younger than earlier moves.

        Raises: StoppedError, Interrupted.
        """
        now_s = self.evidence.now_s()
        begun_at = math.ceil(now_s)
        nap(begun_at - now_s, stop, sleep)
        return begun_at

    def keep(self, result: ReplayResult, begun_at: int) -> None:
        """Record the comparisons, dated at the replay's start: they do not count for a pattern moved since.

        A control run records nothing, since it reads no items.
        Raises: StoppedError if the journal is unreachable.
        """
        replays = [replay for replay in result.patterns if replay.samples]
        if result.control or not replays:
            return
        now_s = self.evidence.now_s()
        windows = [self._window(replay, begun_at) for replay in replays]
        self.evidence.keep(windows, [sample for replay in replays for sample in self._samples(replay, now_s)])

    def _window(self, replay: PatternReplay, begun_at: int) -> Window:
        failed = replay.failed.total()
        errors: Counter[Side] = Counter()
        for kind, count in replay.found.items():
            errors.update({side: count for side in SIDES if (kind.kind, kind.attribute) == ("error", side)})
        kinds = {kind: count - replay.failed[kind] for kind, count in replay.kinds.items()}
        return Window(
            pattern=replay.pattern.name,
            begun_at=begun_at,
            writer=self.writer,
            service=SERVICE,
            revision=self.revision,
            origin="replay",
            answered={side: latency.answers for side, latency in replay.latency.items()},
            errors=dict(errors),
            compared=replay.samples - failed,
            same=replay.same,
            transient=replay.transient,
            different=replay.different - failed,
            kinds={",".join(kind): count for kind, count in kinds.items() if count},
            found=dict(replay.found),
            latency=dict(replay.histograms),
            answer=self.answers[replay.pattern.name],
        )

    def _samples(self, replay: PatternReplay, now_s: float) -> list[Sample]:
        sampler = Sampler(replay.pattern, replay.hidden, self.writer, self.revision)
        return [
            sampler.sample(kind, example, now_s) for kind, kept in replay.examples.items() for example in kept
        ]
