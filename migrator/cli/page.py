"""HTML pages that need no network and no scripts: templates, policy and files."""

from __future__ import annotations

import base64
import hashlib
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct

from migrator.cli.inert import inert, name_text, plain
from migrator.cli.lag import open_line
from migrator.cli.text import usd
from migrator.mapping.model.durations import age_text, minute
from migrator.mapping.model.evidence import Side
from migrator.mapping.model.report import Curve, PhaseMove, Series, Span, WorkSpan
from migrator.runtime.errors import SettingsError, amount


def environment_of_pages() -> Environment:
    pages = Environment(
        loader=PackageLoader("migrator.cli"),
        autoescape=True,
        undefined=StrictUndefined,
        # Also if a template omits it: text is escaped, and invisible characters are written out.
        finalize=lambda value: inert(value) if isinstance(value, str) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {
        "amount": amount,
        "plain": plain,
        "name": name_text,
        "moment": minute,
        "age": age_text,
        "ms": ms_text,
        "number": number_text,
        "rate": rate_text,
        "size": size_text,
        "usd": lambda amount: money(None if amount is None else Decimal(str(amount))),
        "count": lambda number: f"{number:,}",
        "open": open_line,
        # Not capitalize: it makes all the rest small, and SQL with it.
        "sentence": lambda text: f"{text[:1].upper()}{text[1:]}",
    }
    return pages


def part_of_page(pages: Environment, name: str) -> Markup:
    """Style or script unchanged, so that its hash is the file's."""
    loader = pages.loader
    assert loader is not None
    return Markup(loader.get_source(pages, name)[0].strip())


def policy_of(style: str, script: str) -> str:
    """Content security policy: only this style and this script; no address, form, frame or evaluated text."""
    words: Mapping[str, Any] = {
        "default-src": "'none'",
        "style-src": digest(style),
        "script-src": digest(script) if script else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
    }
    return "; ".join(f"{name} {value}" for name, value in words.items())


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def refuse_unwritable(path: Path) -> None:
    """Raises: SettingsError, before minutes of work."""
    # Not Path.is_dir(): it raises for a name that is too long, and the reason is shown when the file is written.
    if os.path.isdir(path):
        raise SettingsError(
            f"--out {path}: this is a folder; name a file in it, such as {path / 'report.html'}"
        )
    if not os.path.isdir(path.parent):
        raise SettingsError(f"--out {path}: the folder {path.parent} does not exist; make it first")
    if not os.access(path.parent, os.W_OK):
        raise SettingsError(f"--out {path}: the folder {path.parent} cannot be written to")


def write_page(path: Path, text: str) -> None:
    """Write all of the file or nothing, so that readers never see half of it."""
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            "wb", dir=path.parent, prefix=f".{path.name[:80]}.", delete=False
        ) as file:
            temporary = Path(file.name)
            file.write(text.encode("utf-8", "backslashreplace"))
        # It keeps the mode that it was made with: the page holds values of rows, and is its owner's alone.
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise SettingsError(f"--out {path}: it cannot be written ({error.strerror})") from None


# ── Drawings ──


_BAR, _GAP = 10.0, 2.0
_LANE, _LOWER = 64.0, 36.0
_LEFT, _TOP, _WIDE, _HIGH = 46.0, 12.0, 250.0, 108.0
_LEAST = 1.0
"""The least height of a column that is not 0."""
_NINES = 3.0
"""The width of a curve's picture, as nines: 3 is 99.9 %."""
_TICKS = (0.0, 50.0, 90.0, 99.0, 99.9)
_STEPS = (1, 2, 5)


class Bar(Struct, frozen=True):
    """`kind`: same, transient, different or errors, which decides its colour. `value`: of writes or lag."""

    kind: str
    x: float
    y: float
    height: float
    span: Span | WorkSpan
    value: float = 0.0


def bars_of(timeline: Series[Span]) -> dict[str, Any]:
    spans = timeline.spans
    most = max((span.all for span in spans), default=0)
    most_bad = max((span.different + span.errors for span in spans), default=0)
    drawn = [
        bar for position, span in enumerate(spans) for bar in _bars(position, span, most or 1, most_bad or 1)
    ]
    return {
        **{"width": max(1, len(spans)) * _BAR, "height": _LANE + 2 * _GAP + _LOWER},
        **{"bar": _BAR - _GAP, "middle": _LANE + _GAP, "bars": drawn, "most": most, "most_bad": most_bad},
    }


def _bars(position: int, span: Span, most: int, most_bad: int) -> Iterator[Bar]:
    x = position * _BAR + _GAP / 2
    y = _LANE
    for kind, count in (("same", span.same), ("transient", span.transient)):
        height = _LANE * count / most
        y -= height
        if count:
            yield Bar(kind, x, round(y, 2), round(height, 2), span)
    y = _LANE + 2 * _GAP
    for kind, count in (("different", span.different), ("errors", span.errors)):
        height = _LOWER * count / most_bad
        if count:
            yield Bar(kind, x, round(y, 2), round(height, 2), span)
        y += height


# ── writes over time, and their lag ──


def columns_of(work: Series[WorkSpan], moves: Sequence[PhaseMove]) -> list[dict[str, Any]]:
    """Each figure over time, a span is a column of `column` width. `moves`: by x. `most`: sets the scale."""
    marks = moves_at(work.width_s, [span.begun_at for span in work.spans], moves)
    return [
        _columns(name, [(span, value(span)) for span in work.spans], marks)
        for name, value in _FIGURES.items()
        if work.spans
    ]


_FIGURES: Mapping[str, Callable[[WorkSpan], float]] = {
    "items": lambda span: span.items,
    "write units": lambda span: span.write_units,
    "lag": lambda span: span.lag_s,
}


def _columns(
    name: str, values: Sequence[tuple[WorkSpan, float]], marks: Sequence[tuple[float, PhaseMove]]
) -> dict[str, Any]:
    most = max(value for _, value in values)
    drawn = [
        Bar("same", place * _BAR + _GAP / 2, round(_LOWER - height, 2), round(height, 2), span, value)
        for place, (span, value) in enumerate(values)
        if value and (height := max(_LEAST, _LOWER * value / most))
    ]
    size = {"width": len(values) * _BAR, "height": _LOWER, "column": _BAR - _GAP}
    return {"name": name, **size, "columns": drawn, "moves": marks, "most": most}


def moves_at(
    width_s: int, places: Sequence[int], moves: Sequence[PhaseMove]
) -> list[tuple[float, PhaseMove]]:
    """The moves that are in the picture, by their x."""
    if not places:
        return []
    shares = [((move.at - places[0]) / width_s, move) for move in moves]
    return [(round(share * _BAR, 2), move) for share, move in shares if 0 <= share <= len(places)]


def curves_of(latency: Mapping[Side, Curve]) -> dict[str, Any]:
    """Percentiles from left to right, each nine as wide as the one before; milliseconds upwards, logarithmic.

    `across`, `up`: places of the ticks, and their labels.
    """
    values = [max(ms, 0.001) for curve in latency.values() for _, ms in curve.points]
    ticks = list(_powers(min(values), max(values)))
    low, high = math.log10(ticks[0]), math.log10(ticks[-1])

    def up(ms: float) -> float:
        return round(_TOP + _HIGH * (1 - (math.log10(max(ms, 0.001)) - low) / (high - low)), 2)

    paths: dict[Side, str] = {
        side: "M" + "L".join(f"{_across(share)},{up(ms)}" for share, ms in curve.points)
        for side, curve in latency.items()
    }
    return {
        **{"width": _LEFT + _WIDE + 20, "height": _TOP + _HIGH + 22},
        **{"left": _LEFT, "right": _LEFT + _WIDE, "bottom": _TOP + _HIGH, "paths": paths},
        "across": [(_across(share), "min" if not share else f"p{share:g}") for share in _TICKS],
        "up": [(up(ms), ms_text(ms)) for ms in ticks],
    }


def _across(percentile: float) -> float:
    nines = -math.log10(1 - percentile / 100)
    return round(_LEFT + _WIDE * min(nines, _NINES) / _NINES, 2)


def _powers(low: float, high: float) -> Iterator[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps: Sequence[int] = (1,) if last - first > 2 else _STEPS
    every = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    below = max((step for step in every if step <= low), default=every[0])
    above = min((step for step in every if step >= high and step > below), default=10.0 ** (last + 1))
    yield from (step for step in every if below <= step < above)
    yield above


def number_text(number: float) -> str:
    """Three significant digits; no decimals above."""
    return f"{number:,.0f}" if number >= 100 else f"{number:,.3g}"


def size_text(size_bytes: float) -> str:
    for unit in ("B", "KB", "MB"):
        if size_bytes < 1024:
            return f"{size_bytes:,.0f} B" if unit == "B" else f"{size_bytes:,.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:,.1f} GB"


def money(amount: Decimal | None) -> str:
    return "–" if amount is None else usd(amount)


def rate_text(per_s: float | None) -> str:
    """Calls per second, in a readable unit; '–' if unknown."""
    if per_s is None:
        return "–"
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3_600)):
        if per_s * seconds >= 1:
            return f"{per_s * seconds:,.4g}/{unit}"
    return f"{per_s * 86_400:,.4g}/day"


def ms_text(ms: float) -> str:
    if ms >= 1_000_000:
        return f"{ms / 1_000:,.0f} s"
    if ms >= 1_000:
        return f"{ms / 1_000:.3g} s"
    return f"{ms:.3g} ms"


def about(exact: bool) -> str:
    return "" if exact else "about "


def hours_text(hours: float) -> str:
    seconds = hours * 3_600
    if seconds < 60:
        return "less than a minute"
    minutes = round(seconds / 60)
    return f"{minutes} minute{'s' * (minutes > 1)}" if hours < 2 else f"{hours:,.1f} hours"
