"""Sums of comparison windows of a pattern, and binomial tests of shares against limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import exp, lgamma, log, log1p
from typing import Any

from migrator.mapping.model.evidence import Origin, Side, Window
from migrator.stages.patterns.latencies import Latencies

# ── Sums over the windows of one pattern: calls, differences, errors, parameter kinds, latencies of both sides ──


@dataclass
class Aggregate:
    """The sums of windows. `unsettled`: calls that differed and were not compared again, for lack of time or because it
    failed; `ended`: because the process ended; neither is counted in `compared`. `newest_at`: when the newest window began,
    None where there is none."""

    compared: int = 0
    different: int = 0
    transient: int = 0
    unsettled: int = 0
    ended: int = 0
    answered: Counter[Side] = field(default_factory=Counter)
    errors: Counter[Side] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    origins: Counter[Origin] = field(default_factory=Counter)
    found: Counter[Any] = field(default_factory=Counter)
    latency: dict[Side, Latencies] = field(default_factory=lambda: {"table": Latencies(), "sql": Latencies()})
    newest_at: float | None = None

    def add(self, window: Window) -> None:
        self.compared += window.compared
        self.different += window.different
        self.transient += window.transient
        self.unsettled += window.dropped.get("unsettled", 0)
        self.ended += window.dropped.get("ended", 0)
        self.answered.update(window.answered)
        self.errors.update(window.errors)
        self.kinds.update({kind: count for kind, count in window.kinds.items() if count})
        self.origins[window.origin] += window.compared
        self.found.update(window.found)
        for side, text in window.latency.items():
            if side in self.latency:
                self.latency[side].add(text)
        self.newest_at = max(window.begun_at, self.newest_at or 0.0)

    def calls(self, side: Side) -> int:
        """Calls of the side, failed ones included."""
        return self.answered[side] + self.errors[side]


def counted(windows: Iterable[Window]) -> Aggregate:
    """The sum of the windows."""
    total = Aggregate()
    for window in windows:
        total.add(window)
    return total


# ── Tests whether a share is above or below a limit, by exact binomial tails, so that few calls prove little ──

_NEGLIGIBLE = 1e-18


def chance_of_more(count: int, of: int, share: float) -> float:
    """The probability of `count` or more hits in `of` trials, each a hit with probability `share` (0 < share < 1)."""
    if count <= 0:
        return 1.0
    return _tail(count, of, share, step=1)


def chance_of_fewer(count: int, of: int, share: float) -> float:
    """The probability of `count` or fewer hits in `of` trials, each a hit with probability `share` (0 < share < 1)."""
    if count >= of:
        return 1.0
    return _tail(count, of, share, step=-1)


def _tail(count: int, of: int, share: float, *, step: int) -> float:
    """The sum of the binomial's terms from `count` on in one direction; 1 where that direction holds the mean.

    A tail that holds the mean is at least about one half, which proves nothing, and its sum would be long.
    """
    middle = of * share
    if (count - middle) * step <= 0:
        return 1.0
    term = exp(_log_term(count, of, share))
    total, here = term, count
    odds = share / (1 - share)
    while 0 < here < of if step < 0 else here < of:
        # Each term is smaller than the one before it: the sum runs away from the middle.
        term *= (of - here) / (here + 1) * odds if step > 0 else here / (of - here + 1) / odds
        here += step
        total += term
        if term < total * _NEGLIGIBLE:
            break
    return min(1.0, total)


def _log_term(count: int, of: int, share: float) -> float:
    ways = lgamma(of + 1) - lgamma(count + 1) - lgamma(of - count + 1)
    return ways + count * log(share) + (of - count) * log1p(-share)
