from __future__ import annotations

import pytest

from migrator.model.durations import age_text, limit_text, minute, moment


def test_a_moment_is_utc_whatever_the_machine_s_zone_is() -> None:
    assert moment(1_772_373_909.7) == "2026-03-01 14:05:09+00:00"
    assert minute(1_772_373_909.7) == "2026-03-01 14:05 UTC"


@pytest.mark.parametrize(
    ("seconds", "age", "limit"),
    [
        (0.4, "0 s", "0.4 s"),
        (90, "1 min", "90 s"),
        (120, "2 min", "2 min"),
        (5_400, "1 h", "90 min"),
        (86_400, "1 d", "1 d"),
        (129_600, "1 d", "36 h"),
    ],
)
def test_an_age_is_rounded_down_and_a_limit_is_exact(seconds: float, age: str, limit: str) -> None:
    assert (age_text(seconds), limit_text(seconds)) == (age, limit)
