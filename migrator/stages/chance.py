"""Whether counts say that a share is above a limit, or below it: exact binomial tails, so that few calls prove little."""

from __future__ import annotations

from math import exp, lgamma, log, log1p

_NEGLIGIBLE = 1e-18


def chance_of_more(count: int, of: int, share: float) -> float:
    """How likely `count` or more of `of` are where each is one with probability `share` (0 < share < 1)."""
    if count <= 0:
        return 1.0
    return _tail(count, of, share, step=1)


def chance_of_fewer(count: int, of: int, share: float) -> float:
    """How likely `count` or fewer of `of` are where each is one with probability `share` (0 < share < 1)."""
    if count >= of:
        return 1.0
    return _tail(count, of, share, step=-1)


def _tail(count: int, of: int, share: float, *, step: int) -> float:
    """The sum of the binomial's terms from `count` on in one direction; 1 where that is the side of its middle.

    What lies on the middle's side is at least about one half, which proves nothing; there the sum would be long.
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
