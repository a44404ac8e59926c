"""What access patterns cost a month in DynamoDB, now and when it answers every call, and the largest item collections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from migrator.mapping.model.capacity import SECONDS_A_MONTH, Capacity, Costs, PatternCost
from migrator.mapping.model.evidence import Side
from migrator.stages.design.shown import Windows
from migrator.stages.design.sizing import Bounds

LIGHT = Bounds(rows_exact=2_000, sampled=1_000, calls=20)
"""A report is made often, and reads less than a plan."""
_LEAST_S = 60.0


def costs_of(capacity: Capacity | None, windows: Windows, since: float, patterns: Sequence[str]) -> Costs:
    """`capacity`: of the mapping, measured on some rows; None where the source could not be asked.

    Calls are those that services made since the pattern's last move, as far as the report looks; of a pattern without any
    the mapping's frequency is what every call would come to.
    """
    if capacity is None:
        return Costs(why="rows of the source were not read")
    reads, price = {one.pattern: one for one in capacity.patterns}, capacity.usd_a_million_reads
    costs = []
    for name in patterns:
        measured = reads.get(name)
        units = measured.units if measured is not None and measured.calls else None
        now, full = _rates(windows, name, since)
        if full is None and measured is not None:
            full = measured.calls_per_s
        monthly = _monthly(units, price)
        costs.append(PatternCost(name, units, now, full, monthly(now), monthly(full)))
    largest = [place for place in capacity.places if place.hottest]
    return Costs(
        costs, largest, capacity.exact, capacity.bills.source, capacity.bills.why if price is None else ""
    )


def _monthly(units: float | None, price: Decimal | None) -> Callable[[float | None], float | None]:
    def usd(calls_per_s: float | None) -> float | None:
        if units is None or price is None or calls_per_s is None:
            return None
        return units * calls_per_s * SECONDS_A_MONTH * float(price) / 1_000_000

    return usd


def _rates(windows: Windows, pattern: str, since: float) -> tuple[float | None, float | None]:
    """(calls of DynamoDB a second, calls a second if it answered all), None where no service called.

    Each side is called at most once for a call, so the side that was called most was called for each.
    """
    seen = [
        window
        for window in windows.all
        if window.pattern == pattern
        and window.origin == "service"
        and windows.is_since_move(pattern, window.begun_at)
    ]
    if not seen:
        return None, None
    lasted_s = max(_LEAST_S, windows.now_s - max(since, min(window.begun_at for window in seen)))
    calls: Counter[Side] = Counter()
    for window in seen:
        calls.update(_called(window.answered, window.errors))
    if not calls:
        return None, None
    return calls["table"] / lasted_s, max(calls.values()) / lasted_s


def _called(answered: Mapping[Side, int], errors: Mapping[Side, int]) -> Counter[Side]:
    return Counter(answered) + Counter(errors)
