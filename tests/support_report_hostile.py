"""Reports with thousands of differences, and with text that a page or a terminal might obey."""

from __future__ import annotations

import random

from migrator.mapping.model.report import (
    Cell,
    Facet,
    Group,
    InstanceReport,
    LagReport,
    PhaseMove,
    Refused,
    ReportModel,
    SampleItem,
    ShownCollection,
    ShownDifference,
    View,
)
from migrator.runtime.values import replace
from tests.support_report import EMAIL, MODEL, NOW_S, PATTERNS

HOSTILE = (
    "<script>window.pwned = 1</script>",
    "<img src=x onerror=window.pwned=2>",
    "javascript:window.pwned=3",
    "</style><style>body{display:none}</style>",
    "</script><script>window.pwned=4</script>",
    '" onmouseover="window.pwned=5" x=\'',
    "a\u2028b\u2029c",
    "\u202eright to left\u2069\u200f",
    "\x00\x07\x1b[31mred\x1b[0m",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt; &amp;",
    "half \ud800 a letter",
    "<a href='http://198.51.100.1/'>x</a><link rel=stylesheet href=//198.51.100.1/x.css>",
)
"""What rows may hold, each of which some page somewhere has obeyed."""


def many(count: int = 5_000) -> ReportModel:
    """The report with so many differences more, of which two in a hundred are of one entity."""
    rng = random.Random(7)
    made = [
        ShownDifference(
            "g-many",
            row_key=f"[{number}]",
            item_key=f'["PRODUCT#{number:07}","META#{rng.randrange(16**6):06x}"]',
            why="no item is stored under this key",
        )
        for number in range(count)
    ]
    rare, common = made[: count // 50], made[count // 50 :]
    groups = [
        replace(
            EMAIL, id=f"g-{name}", where=name, kind="missing", attribute="", count=len(part), differences=part
        )
        for name, part in (("warehouse", rare), ("product", common))
    ]
    return replace(MODEL, groups=(*groups, *MODEL.groups))


def hostile() -> ReportModel:
    """The report with hostile text in every place that can hold some of a row's, a mapping's or a person's."""
    groups, views = [], []
    for number, text in enumerate(HOSTILE):
        cells = [Cell(text, text, f"{text}!", True), Cell("id", None, text, True)]
        difference = ShownDifference(f"g-{number}", NOW_S, {text: text}, text, text, cells, text)
        groups.append(
            Group(f"g-{number}", ("replay",), text, text, "value", text, 1, text, text, (difference,))
        )
        item = SampleItem(text, {"PK": text, "SK": text}, {text: text})
        facet = Facet(text, text, {"PK": text, "SK": text}, (text,))
        views.append(View(text, ("PK",), ("SK",), text, (facet,), (ShownCollection(text, (item,)),)))
    text = "".join(HOSTILE)
    return replace(
        MODEL,
        job=text,
        table=text,
        verdict=replace(MODEL.verdict, title=text, reasons=HOSTILE, command=text, purpose=text),
        patterns=[replace(pattern, name=f"{pattern.name}{text}") for pattern in PATTERNS],
        moves=[PhaseMove(NOW_S, text, "off", "shadow", text, text, True)],
        groups=groups,
        lag=LagReport(None, reason=text),
        refused=[Refused(text, text, 1, HOSTILE)],
        instances=[InstanceReport(text, text, "read", "", 1.0, False, True)],
        views=views,
        notes=HOSTILE,
    )
