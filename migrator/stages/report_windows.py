"""Windows of comparisons summed up: what was compared of each pattern, how well it is covered, how it went over time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from migrator.phase import SIDES, Side
from migrator.ports.evidence import DiffKey, Window
from migrator.ports.phases import PatternPhase
from migrator.report_results import Coverage, Curve, PatternReport, Span, Timeline
from migrator.stages.latencies import added

_SPANS_AT_LEAST, _SPANS_AT_MOST = 24, 96
_HISTOGRAMS = 300
"""Merged for one curve, spread over the time; a day of four instances has more, and each takes a fifth of a millisecond."""
_WIDTHS_S = (60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400)


@dataclass(frozen=True)
class Windows:
    """Windows of one report. Those of another `revision` of the mapping are no evidence for this one. Those from before
    the last move of their pattern are told apart: the next move is judged without them, too.

    `phases`: of the patterns that were ever moved.
    """

    all: Sequence[Window]
    revision: str
    now_s: float
    phases: Mapping[str, PatternPhase] = field(default_factory=dict)

    def is_since_move(self, pattern: str, at: float) -> bool:
        """Of a pattern that nobody ever moved everything is."""
        return at >= self._phase(pattern).since

    def patterns(self, names: Iterable[str]) -> list[PatternReport]:
        """Each pattern of the mapping, those never compared first, then by differences."""
        by_name: dict[str, list[Window]] = defaultdict(list)
        for one in self.all:
            by_name[one.pattern].append(one)
        found = [self._pattern(self._phase(name), by_name[name]) for name in names]
        return sorted(found, key=lambda one: (one.compared > 0, -one.different))

    def found(self, *, since_move: bool = True) -> dict[tuple[str, DiffKey], Counter[str]]:
        """Differences by pattern and kind: counts by who found them, since the pattern's last move or before it."""
        counted: dict[tuple[str, DiffKey], Counter[str]] = defaultdict(Counter)
        for window in self.all:
            if window.revision == self.revision and self._is_since_move(window) == since_move:
                for key, count in window.found.items():
                    counted[window.pattern, key][window.origin] += count
        return counted

    def timeline(self, begun_s: float) -> Timeline:
        """All windows, in at most 96 spans from the first comparison after `begun_s` until now."""
        first = min((one.begun_at for one in self.all), default=int(self.now_s))
        lasted_s = self.now_s - max(first, begun_s)
        width_s = next((one for one in _WIDTHS_S if one * _SPANS_AT_MOST >= lasted_s), _WIDTHS_S[-1])
        counts: dict[int, Counter[str]] = defaultdict(Counter)
        for one in self.all:
            at = one.begun_at // width_s * width_s
            errors = sum(one.errors.values())
            counts[at].update(same=one.same, transient=one.transient, different=one.different, errors=errors)
        if not counts:
            return Timeline(width_s, ())
        last = max(max(counts), int(self.now_s) // width_s * width_s)
        begin = min(last - width_s * (_SPANS_AT_LEAST - 1), max(min(counts), last - width_s * _SPANS_AT_MOST))
        places = range(begin, last + 1, width_s)
        return Timeline(width_s, tuple(Span(at, **counts[at]) for at in places))

    # ── one pattern ──

    def _pattern(self, phase: PatternPhase, windows: Sequence[Window]) -> PatternReport:
        current = [one for one in windows if one.revision == self.revision]
        mine = [one for one in current if self._is_since_move(one)]
        answered: Counter[Side] = Counter()
        errors: Counter[Side] = Counter()
        dropped: Counter[str] = Counter()
        for one in mine:
            answered.update(one.answered)
            errors.update(one.errors)
            dropped.update(one.dropped)
        return PatternReport(
            name=phase.pattern,
            phase=str(phase.state),
            since=phase.since,
            compared=sum(one.compared for one in mine),
            same=sum(one.same for one in mine),
            transient=sum(one.transient for one in mine),
            different=sum(one.different for one in mine),
            before_move=sum(one.compared for one in current) - sum(one.compared for one in mine),
            outdated=sum(one.compared for one in windows) - sum(one.compared for one in current),
            answered=dict(answered),
            errors=dict(errors),
            dropped=dict(dropped),
            # Kinds of questions need not come again after every move, and a curve shows the whole time.
            coverage=self._coverage(current),
            latency=_curves(current),
        )

    def _phase(self, pattern: str) -> PatternPhase:
        return self.phases.get(pattern, PatternPhase(pattern))

    def _is_since_move(self, one: Window) -> bool:
        return self.is_since_move(one.pattern, one.begun_at)

    def _coverage(self, windows: Sequence[Window]) -> list[Coverage]:
        by_kind: dict[str, list[tuple[int, Window]]] = defaultdict(list)
        for window in windows:
            for kind, count in window.kinds.items():
                by_kind[kind].append((count, window))
        return [
            Coverage(
                parameters=tuple(kind.split(",")) if kind else (),
                compared=sum(count for count, _ in found),
                age_s=max(0.0, self.now_s - max(one.begun_at for _, one in found)),
                origins=sorted({one.origin for _, one in found}),
            )
            for kind, found in sorted(by_kind.items())
        ]


def _curves(windows: Sequence[Window]) -> dict[Side, Curve]:
    texts = {side: [one.latency[side] for one in windows if side in one.latency] for side in SIDES}
    curves = {side: added(_spread(found)).curve() for side, found in texts.items()}
    return {side: curve for side, curve in curves.items() if curve is not None}


def _spread(texts: Sequence[str]) -> Sequence[str]:
    return texts[:: -(-len(texts) // _HISTOGRAMS) or 1]
