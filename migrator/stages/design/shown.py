"""Display forms for a report: masked items, keys and differences; summaries of comparison windows."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from msgspec import Struct

from migrator.mapping.items.program import keys_of
from migrator.mapping.language.redaction import (
    hidden_by_pattern,
    integers_of,
    key_templates,
    mask,
    masked_keys,
    redaction_of,
    value_mask,
    value_text,
)
from migrator.mapping.model.evidence import SIDES, DiffKey, PatternPhase, Sample, Side, Window
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.instances import WorkMinute
from migrator.mapping.model.mapping import ItemDesign, Template
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.report import (
    Coverage,
    Curve,
    PatternReport,
    Series,
    ShownCollection,
    ShownDifference,
    Span,
    View,
    WorkSpan,
)
from migrator.mapping.model.results import Hidden
from migrator.mapping.model.table import Item
from migrator.runtime.values import replace
from migrator.stages.patterns.latencies import added
from migrator.stages.reads.metrics import MINUTE_S

# ── Items, keys and findings as texts that a report may show ──

_MASK = re.compile(r"…[0-9a-f]{4}")
LONGEST = 2_000
"""Characters of a value that are shown at most."""


class Showing:
    """`plans`: of all entities; none if the source is unreachable, and then no item is shown.

    `whole_keys`: show keys unmasked, also parts that may name a person.
    `whole_values`: show values without redaction.
    """

    def __init__(
        self, mapping: MappingModel, plans: Sequence[EntityPlan], *, whole_keys: bool, whole_values: bool
    ) -> None:
        self.table = mapping.table
        self.whole_keys = whole_keys
        self.whole_values = whole_values
        indexes = (index.own_attributes(mapping.table) for index in mapping.table.indexes)
        self.key_names = {attribute.name for own in (mapping.table.key, *indexes) for attribute in own}
        self._templates = key_templates(mapping)
        self._of_pattern = hidden_by_pattern(mapping, plans)
        self._names = frozenset(name for pattern in mapping.patterns.values() for name in pattern.redact)
        redaction = redaction_of(mapping, plans)
        designs = [(plan, design) for plan in plans for design in plan.entity.items]
        self._hidden = {(p.entity.name, d.type): redaction.hidden(p, d) for p, d in designs}
        self._secret_keys = {
            (plan.entity.name, design.type): frozenset(
                name for name, form in self.key_forms(design).items() if redaction.hides_key(plan, form)
            )
            for plan, design in designs
        }

    def key_forms(self, design: ItemDesign) -> dict[str, Template]:
        return {key.name: key.template for key in keys_of(self.table, design)}

    def key(self, text: str, row_key: str = "") -> str:
        """Mask a key as JSON text, or a text with keys in it. `row_key`: the key of its row."""
        templates = self._templates if row_key else ()
        return text if self.whole_keys else masked_keys(text, templates, integers_of(row_key))

    def item(self, entity: str, item: Item) -> dict[str, str]:
        """All attributes except the type and our own, as text; redacted ones, and keys made from them, are masked.

        All values of an unknown type are masked.
        """
        type_ = self.table.type_of(item)
        left_out = {self.table.type_attribute, *self.table.own_attributes}
        return {
            name: self._value(entity, type_, name, value)
            for name, value in item.items()
            if name not in left_out
        }

    def sample(self, pattern: str, names: Sequence[str], texts: Sequence[str]) -> list[str]:
        """Texts of a sample. Also masks values that this mapping redacts and the sample's mapping did not."""
        hidden_names = self._of_pattern.get(pattern, Hidden(self._names))
        pairs = zip(names, texts, strict=True)
        hidden = hidden_names.attributes | hidden_names.params
        return [
            clipped(text) if name not in hidden else text if _is_masked(text) else mask(text)
            for name, text in pairs
        ]

    def difference(self, difference: ShownDifference) -> ShownDifference:
        if self.whole_values:
            return difference
        cells = [
            replace(
                cell, sql=self._masked(cell.attribute, cell.sql), item=self._masked(cell.attribute, cell.item)
            )
            for cell in difference.cells
        ]
        params = {name: _masked_param(text) for name, text in difference.asked.items()}
        return replace(difference, cells=cells, asked=difference.asked if self.whole_keys else params)

    def view(self, view: View) -> View:
        if self.whole_values:
            return view
        return replace(
            view, collections=[self._collection(view, collection) for collection in view.collections]
        )

    def _collection(self, view: View, collection: ShownCollection) -> ShownCollection:
        items = [
            replace(item, key=self._all_masked(item.key), attributes=self._all_masked(item.attributes))
            for item in collection.items
        ]
        partition = " ".join(items[0].key[name] for name in view.partition)
        return ShownCollection(partition, items, collection.more)

    def _all_masked(self, texts: Mapping[str, str]) -> dict[str, str]:
        return {name: self._masked(name, text) or "" for name, text in texts.items()}

    def _masked(self, name: str, text: str | None) -> str | None:
        if text is None or _is_masked(text):
            return text
        if name not in self.key_names:
            return mask(text)
        if self.whole_keys:
            return text
        try:
            json.loads(text)
        except ValueError:
            return mask(text)  # it was clipped
        return masked_keys(f"[{text}]", self._templates)[1:-1]

    def _value(self, entity: str, type_: str, name: str, value: Any) -> str:
        place = (entity, type_)
        hidden = self._hidden.get(place)
        if hidden is None or name in hidden or name in self._names:
            return value_text(value, redacted=True)
        return value_mask(value) if name in self._secret_keys[place] else clipped(value_text(value))


def clipped(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} letters)"


def _is_masked(text: str) -> bool:
    return text == "null" or _MASK.fullmatch(text) is not None


def _masked_param(text: str) -> str:
    """Mask a parameter like a part of a key: numbers, UUIDs and times stay."""
    return text if _MASK.fullmatch(text) else str(json.loads(masked_keys(json.dumps([text]), ()))[0])


# ── Summaries of comparison windows: comparisons per pattern and their coverage, and counts over time ──

_SPANS_AT_LEAST, _SPANS_AT_MOST = 24, 96
_HISTOGRAMS = 300
"""Histograms merged for one curve, spread over the time; merging one takes a fifth of a millisecond."""
_WIDTHS_S = (60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400)


_Label = TypeVar("_Label", bound=str)
Age = Literal["standing", "verified", "moved"]
"""State of a difference in answers: it counts; or a later verify found nothing, or its pattern was moved since."""


@dataclass
class Counted:
    """`until`: when the last of them may have been found."""

    by_origin: Counter[str] = field(default_factory=Counter)
    until: float = 0.0

    def add(self, origin: str, count: int, until: float) -> None:
        self.by_origin[origin] += count
        self.until = max(self.until, until)


class Windows(Struct, frozen=True):
    """Windows of one report.

    Windows of another answer (`answers`: digests by pattern) do not count. Those before their pattern's last
    move are counted separately, since the next move is judged without them.
    `phases`: of patterns moved at least once.
    `verified_s`: start of the last verify if it found nothing, else 0; earlier differences are history.
    `samples`: of differences; they show when a replay ended.
    """

    all: Sequence[Window]
    answers: Mapping[str, str]
    now_s: float
    phases: Mapping[str, PatternPhase] = {}
    verified_s: float = 0.0
    samples: Sequence[Sample] = ()

    def age_of(self, pattern: str, key: DiffKey, at: float) -> Age:
        """Whether a difference at time `at` counts. Failed calls count regardless of rows and items."""
        return self._age_of(pattern, key, at, at)

    def is_since_move(self, pattern: str, at: float) -> bool:
        """Whether `at` is after the pattern's last move; always true if it never moved."""
        return at >= self._phase(pattern).since

    def patterns(self, names: Iterable[str]) -> list[PatternReport]:
        """The mapping's patterns, those never compared first, then by differences."""
        by_name: dict[str, list[Window]] = defaultdict(list)
        for window in self.all:
            by_name[window.pattern].append(window)
        reports = [self._pattern(self._phase(name), by_name[name]) for name in names]
        return sorted(reports, key=lambda report: (report.compared > 0, -report.different))

    def differences(self, age: Age = "standing") -> dict[tuple[str, DiffKey], Counted]:
        counted: dict[tuple[str, DiffKey], Counted] = defaultdict(Counted)
        for window in self.all:
            for key, count in window.found.items() if self._is_current(window) else ():
                until = self._ended_s(window)
                if self._age_of(window.pattern, key, window.begun_at, until) == age:
                    counted[window.pattern, key].add(window.origin, count, until)
        return counted

    def timeline(self, begun_s: float) -> Series[Span]:
        """All windows, in at most 96 spans from the first comparison after `begun_s` until now."""
        first = min((window.begun_at for window in self.all), default=int(self.now_s))
        width_s = _width_s(max(first, begun_s), self.now_s)
        counts: dict[int, Counter[str]] = defaultdict(Counter)
        for window in self.all:
            at = window.begun_at // width_s * width_s
            errors = sum(window.errors.values())
            counts[at].update(
                same=window.same, transient=window.transient, different=window.different, errors=errors
            )
        if not counts:
            return Series(width_s, ())
        places = _places(counts, width_s, self.now_s)
        return Series(width_s, tuple(Span(at, **counts[at]) for at in places))

    def _is_current(self, window: Window) -> bool:
        return window.answer == self.answers.get(window.pattern)

    # ── one pattern ──

    def _pattern(self, phase: PatternPhase, windows: Sequence[Window]) -> PatternReport:
        current = [window for window in windows if self._is_current(window)]
        since_move = [window for window in current if self.is_since_move(phase.pattern, window.begun_at)]
        differing = [window for window in since_move if window.different]
        mended = [window for window in differing if self._ended_s(window) <= self.verified_s]
        later = [window for window in since_move if window.begun_at >= self.verified_s]
        compared = _sum(since_move, "compared")
        return PatternReport(
            name=phase.pattern,
            phase=phase.state.masked,
            since=phase.since,
            compared=compared,
            same=_sum(since_move, "same"),
            transient=_sum(since_move, "transient"),
            different=_sum(since_move, "different"),
            mended=_sum(mended, "different"),
            mended_until=max(map(self._ended_s, mended), default=0.0),
            compared_after=_sum(later, "compared"),
            before_move=_sum(current, "compared") - compared,
            outdated=_sum(windows, "compared") - _sum(current, "compared"),
            answered=_united(window.answered for window in since_move),
            errors=_united(window.errors for window in since_move),
            dropped=_united(window.dropped for window in since_move),
            # Kinds of questions need not come again after every move, and a curve covers the whole time.
            coverage=self._coverage(current),
            latency=_curves(current),
        )

    def _phase(self, pattern: str) -> PatternPhase:
        return self.phases.get(pattern, PatternPhase(pattern))

    def _age_of(self, pattern: str, key: DiffKey, at: float, until: float) -> Age:
        if not self.is_since_move(pattern, at):
            return "moved"
        return "verified" if until <= self.verified_s and key.kind != "error" else "standing"

    def _ended_s(self, window: Window) -> float:
        """When an answer of the window may last have differed.

        Services count by minute; samples of a replay date from its end, unless newer ones replaced them.
        """
        ended_s = float((window.begun_at // MINUTE_S + 1) * MINUTE_S)
        if window.origin == "service":
            return ended_s
        kept = [sample for sample in self.samples if sample.pattern == window.pattern]
        own = [sample.at for sample in kept if sample.writer == window.writer]
        return max(own or [sample.at for sample in kept] or [ended_s])

    def _coverage(self, windows: Sequence[Window]) -> list[Coverage]:
        by_kind: dict[str, list[tuple[int, Window]]] = defaultdict(list)
        for window in windows:
            for kind, count in window.kinds.items():
                by_kind[kind].append((count, window))
        return [
            Coverage(
                parameters=tuple(kind.split(",")) if kind else (),
                compared=sum(count for count, _ in counted),
                age_s=max(0.0, self.now_s - max(item_window.begun_at for _, item_window in counted)),
                origins=sorted({item_window.origin for _, item_window in counted}),
            )
            for kind, counted in sorted(by_kind.items())
        ]


def _sum(windows: Sequence[Window], count: Literal["compared", "same", "transient", "different"]) -> int:
    return sum(getattr(window, count) for window in windows)


def _united(counts: Iterable[Mapping[_Label, int]]) -> dict[_Label, int]:
    united: Counter[_Label] = Counter()
    for one in counts:
        united.update(one)
    return dict(united)


def work_series(minutes: Sequence[WorkMinute], begun_s: float, now_s: float) -> Series[WorkSpan]:
    """Work of processes after `begun_s`, in spans as wide as a timeline's.

    Minutes hold totals since a process's start; one from before `begun_s` gives only the starting value.
    """
    if not minutes:
        return Series(MINUTE_S, ())
    width_s = _width_s(max(float(minutes[0].begun_at), begun_s), now_s)
    spans: dict[int, WorkSpan] = {}
    before: dict[str, WorkMinute] = {}
    for minute in minutes:
        last = before.get(minute.process)
        before[minute.process] = minute
        if minute.begun_at < begun_s:
            continue
        at = minute.begun_at // width_s * width_s
        span = spans.get(at, WorkSpan(at))
        spans[at] = WorkSpan(
            at,
            span.items + minute.items - (last.items if last else 0),
            span.write_units + minute.write_units - (last.write_units if last else 0.0),
            max(span.lag_s, minute.lag_s),
        )
    if not spans:
        return Series(width_s, ())
    return Series(width_s, tuple(spans.get(at, WorkSpan(at)) for at in _places(spans, width_s, now_s)))


def _width_s(begun_s: float, now_s: float) -> int:
    lasted_s = now_s - begun_s
    return next((width for width in _WIDTHS_S if width * _SPANS_AT_MOST >= lasted_s), _WIDTHS_S[-1])


def _places(counted: Iterable[int], width_s: int, now_s: float) -> range:
    """Starts of spans: without gaps until now, at least 24."""
    places = sorted(counted)
    last = max(places[-1], int(now_s) // width_s * width_s)
    begin = min(last - width_s * (_SPANS_AT_LEAST - 1), max(places[0], last - width_s * _SPANS_AT_MOST))
    return range(begin, last + 1, width_s)


def _curves(windows: Sequence[Window]) -> dict[Side, Curve]:
    texts = {side: [window.latency[side] for window in windows if side in window.latency] for side in SIDES}
    curves = {side: added(_spread(histograms)).curve() for side, histograms in texts.items()}
    return {side: curve for side, curve in curves.items() if curve is not None}


def _spread(texts: Sequence[str]) -> Sequence[str]:
    return texts[:: -(-len(texts) // _HISTOGRAMS) or 1]
