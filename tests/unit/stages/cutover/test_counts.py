"""Binomial tails beside sums of exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest

from migrator.stages.cutover.evidence import chance_of_fewer, chance_of_more


def exact(counts: range, of: int, share: Fraction) -> float:
    return float(sum(comb(of, one) * share**one * (1 - share) ** (of - one) for one in counts))


@pytest.mark.parametrize(
    ("of", "share"), [(10, Fraction(1, 2)), (200, Fraction(1, 100)), (300, Fraction(99, 100))]
)
def test_tails_are_those_of_the_sum(of: int, share: Fraction) -> None:
    middle = of * share
    for count in range(of + 1):
        more, fewer = chance_of_more(count, of, float(share)), chance_of_fewer(count, of, float(share))
        if count > middle:
            assert more == pytest.approx(exact(range(count, of + 1), of, share), rel=1e-9)
        else:
            assert more == 1.0
        if count < middle:
            assert fewer == pytest.approx(exact(range(count + 1), of, share), rel=1e-9)
        else:
            assert fewer == 1.0


def test_thousand_without_one_are_below_0_3_percent_at_p_0_05() -> None:
    assert chance_of_fewer(0, 1000, 0.003) < 0.05 < chance_of_fewer(0, 990, 0.003)
    assert chance_of_fewer(1, 1000, 0.003) > 0.05


def test_millions_take_equal_work_and_zero_proves_nothing() -> None:
    assert chance_of_more(10_500, 10**6, 0.01) < 1e-6
    assert chance_of_more(10_001, 10**6, 0.01) == pytest.approx(0.5, abs=0.01)
    assert chance_of_more(10**9, 10**9, 0.01) == 0.0
    assert chance_of_fewer(0, 10**9, 0.01) == 0.0
    assert chance_of_more(0, 0, 0.01) == chance_of_fewer(0, 0, 0.01) == 1.0
