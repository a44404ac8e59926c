"""Re-check of answers: a mismatch is compared again, and becomes a redacted sample if it still differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from migrator.mapping.language.redaction import mask, value_texts
from migrator.mapping.model.edges import ItemStore, Questions
from migrator.mapping.model.evidence import Diff, DiffKey, Sample, Side
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.mapping import Pattern
from migrator.mapping.model.results import Example, Hidden, PartAnswer, PatternReplay
from migrator.mapping.patterns.designs import Designs
from migrator.mapping.patterns.diff import as_text
from migrator.runtime.errors import Interrupted, MigratorError, amount
from migrator.stages.patterns.param_sampling import ParamSet
from migrator.stages.patterns.question import Question, SqlSide, TableSide

# ── Comparison of both answers, repeated: what differs every time is a difference, all else was in flight ──

LONGEST = 3.0
"""Multiple of the time to settle after which a difference counts even if earlier changes are still on their way: callers
of the table would see answers as old as that."""
EXAMPLES = 3
"""Examples of each kind of difference that one sample of a replay keeps at most."""
MANY = 1_000
"""Differences of one answer that are told apart by their content at most; more count as "many"."""

Sign = tuple[str, str, int]
"""The identity of a difference: the part, its side or kind, and a digest of its row or item."""


class Comparison(Struct, frozen=True):
    """Both answers compared; `errors`: messages of sides that gave no answer, with which nothing is compared."""

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
        """The signs of all differences, by which they can be recognised in another comparison."""
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
    """The signs of a difference: its row and its item, however they are paired, or the fact that the order differs.

    If the row's key is known, also the differing attribute, which stays the same while other attributes change.
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
    """One pattern and its two sides. Safe to share between threads."""

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
        """Both answers, compared. Raises: Interrupted; any other error of ours is part of the result."""
        errors: dict[Side, str] = {}
        first = _answer(errors, "table", lambda: self._first(params))
        second = _answer(errors, "sql", lambda: self._question.of_sql(params, self._source))
        answered: list[tuple[Side, TableSide | SqlSide | None]] = [("table", first), ("sql", second)]
        took_ms = {side: answer.took.ms for side, answer in answered if answer is not None}
        if first is None or second is None:
            return Comparison((), took_ms, errors)
        return Comparison(self._question.compared(first.parts, second.parts), took_ms)

    def _first(self, params: Mapping[str, Any]) -> TableSide | SqlSide:
        if self._store is None:
            return self._question.of_sql(params, self._source)
        return self._question.of_table(params, self._store)


def _answer(
    errors: dict[Side, str], side: Side, ask: Callable[[], TableSide | SqlSide]
) -> TableSide | SqlSide | None:
    try:
        return ask()
    except Interrupted:
        raise
    except MigratorError as error:
        errors[side] = str(error)
        return None


class PendingMismatch:
    """An answer that differed in the first comparison. `lasting`: signs that were in every comparison so far."""

    def __init__(self, look: Comparison) -> None:
        self.look = look
        self.lasting = look.signs()

    def looked(self, look: Comparison) -> None:
        """Takes another comparison into account. After an error, which hides differences, counting begins anew."""
        failed = bool(self.look.errors)
        self.look, signs = look, look.signs()
        self.lasting = signs if failed or look.errors else self.lasting & signs

    def lasts(self, part: str, diff: Diff) -> bool:
        """Whether the difference, one of the last comparison, was in every comparison."""
        return (part, "many", 0) in self.lasting or any(sign in self.lasting for sign in signs_of(part, diff))

    def found(self, texts: Mapping[str, str]) -> Iterator[tuple[DiffKey, Example]]:
        """Every difference that lasted. `texts`: the parameters that show it."""
        for side, why in self.look.errors.items():
            yield DiffKey("error", attribute=side), Example(texts, why=why)
        for answer in self.look.parts:
            name = answer.part.name
            if (name, "several", 0) in self.lasting:
                counted = f"{amount(len(answer.items), 'item')}, {amount(len(answer.rows), 'row')}"
                why = f"{counted}, though the part says one: true"
                yield DiffKey("unexpected", name), Example(texts, why=why)
            for diff in answer.diffs:
                if self.lasts(name, diff):
                    yield DiffKey(diff.kind, name, diff.attribute), Example(texts, answer.compared, diff)


class ReplayMismatch(PendingMismatch):
    """A sample of a replay whose answers differed in the first comparison.

    It keeps counts of the differences and a few examples only, since thousands may wait for their next comparison.
    """

    def __init__(self, replay: PatternReplay, comparer: Comparer, draw: ParamSet, look: Comparison) -> None:
        super().__init__(look)
        self.replay = replay
        self.draw = draw
        self._looker = comparer
        self._keep()

    def look_again(self) -> ReplayMismatch:
        """This mismatch after another comparison."""
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
    """`hidden`: what must not be shown. `writer`: the id of the comparing process; `revision`: of the mapping."""

    pattern: Pattern
    hidden: Hidden
    writer: str
    revision: str

    def sample(self, kind: DiffKey, example: Example, at: float) -> Sample:
        """The example as the journal keeps it. `at`: seconds since 1970."""
        diff = example.diff
        compared = tuple(example.compared)
        sides = [
            None if values is None else value_texts(compared, values, self.hidden.attributes)
            for values in (() if diff is None else (diff.row, diff.item))
        ]
        return Sample(
            pattern=self.pattern.name,
            key=kind,
            at=at,
            writer=self.writer,
            revision=self.revision,
            params={
                name: mask(text) if name in self.hidden.params else text
                for name, text in example.params.items()
            },
            attributes=compared if diff is not None else (),
            row=sides[0] if sides else None,
            item=sides[1] if sides else None,
            why=example.why,
            subject=_subject(kind, example),
        )


def _subject(kind: DiffKey, example: Example) -> str:
    """A mask that identifies the row; of an answer with one row at most its parameters do."""
    key = example.diff.key if example.diff is not None else None
    if key is None:
        return ""
    return mask(as_text((kind.part, *(key or sorted(example.params.items())))))
