"""The report's charts as SVG coordinates: the timeline of comparisons and the latency curves; no text of a row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from migrator.model.evidence import Side
from migrator.model.report import Curve, Span, Timeline

_BAR, _GAP = 10.0, 2.0
_LANE, _LOWER = 64.0, 36.0
_LEFT, _TOP, _WIDE, _HIGH = 46.0, 12.0, 250.0, 108.0
_NINES = 3.0
"""The width of a curve's picture, as nines: 3 is 99.9 %."""
_TICKS = (0.0, 50.0, 90.0, 99.0, 99.9)
_STEPS = (1, 2, 5)


@dataclass(frozen=True)
class Bar:
    """`kind`: same, transient, different or errors, which decides its colour."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    span: Span


@dataclass(frozen=True)
class Bars:
    """Two lanes: above, all that was compared; below, on a scale of its own, what differed or failed."""

    width: float
    height: float
    middle: float
    bars: Sequence[Bar]
    most: int
    most_bad: int


def bars_of(timeline: Timeline) -> Bars:
    spans = timeline.spans
    most = max((span.all for span in spans), default=0)
    most_bad = max((span.different + span.errors for span in spans), default=0)
    drawn = [
        bar for position, span in enumerate(spans) for bar in _bars(position, span, most or 1, most_bad or 1)
    ]
    width = max(1, len(spans)) * _BAR
    return Bars(width, _LANE + 2 * _GAP + _LOWER, _LANE + _GAP, drawn, most, most_bad)


def _bars(position: int, span: Span, most: int, most_bad: int) -> Iterator[Bar]:
    x, width = position * _BAR + _GAP / 2, _BAR - _GAP
    y = _LANE
    for kind, count in (("same", span.same), ("transient", span.transient)):
        height = _LANE * count / most
        y -= height
        if count:
            yield Bar(kind, x, round(y, 2), width, round(height, 2), span)
    y = _LANE + 2 * _GAP
    for kind, count in (("different", span.different), ("errors", span.errors)):
        height = _LOWER * count / most_bad
        if count:
            yield Bar(kind, x, round(y, 2), width, round(height, 2), span)
        y += height


@dataclass(frozen=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True)
class Curves:
    """Percentiles from left to right, each nine as wide as the one before; milliseconds from below, logarithmic."""

    width: float
    height: float
    left: float
    right: float
    bottom: float
    paths: Mapping[Side, str]
    across: Sequence[Tick]
    up: Sequence[Tick]


def curves_of(latency: Mapping[Side, Curve]) -> Curves:
    """The curves of one pattern, on one scale."""
    values = [max(ms, 0.001) for curve in latency.values() for _, ms in curve.points]
    ticks = list(_powers(min(values), max(values)))
    low, high = math.log10(ticks[0]), math.log10(ticks[-1])

    def up(ms: float) -> float:
        return round(_TOP + _HIGH * (1 - (math.log10(max(ms, 0.001)) - low) / (high - low)), 2)

    paths: dict[Side, str] = {
        side: "M" + "L".join(f"{_across(share)},{up(ms)}" for share, ms in curve.points)
        for side, curve in latency.items()
    }
    return Curves(
        width=_LEFT + _WIDE + 20,
        height=_TOP + _HIGH + 22,
        left=_LEFT,
        right=_LEFT + _WIDE,
        bottom=_TOP + _HIGH,
        paths=paths,
        across=[Tick(_across(share), "min" if not share else f"p{share:g}") for share in _TICKS],
        up=[Tick(up(ms), ms_text(ms)) for ms in ticks],
    )


def _across(percentile: float) -> float:
    nines = -math.log10(1 - percentile / 100)
    return round(_LEFT + _WIDE * min(nines, _NINES) / _NINES, 2)


def _powers(low: float, high: float) -> Iterator[float]:
    """Round numbers from below the lowest to above the highest: powers of ten, with steps between where they are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps: Sequence[int] = (1,) if last - first > 2 else _STEPS
    every = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    below = max((step for step in every if step <= low), default=every[0])
    above = min((step for step in every if step >= high and step > below), default=10.0 ** (last + 1))
    yield from (step for step in every if below <= step < above)
    yield above


def ms_text(ms: float) -> str:
    """Such as 0.42 ms, 18 ms, 2.5 s."""
    if ms >= 1_000_000:
        return f"{ms / 1_000:,.0f} s"
    if ms >= 1_000:
        return f"{ms / 1_000:.3g} s"
    return f"{ms:.3g} ms"
