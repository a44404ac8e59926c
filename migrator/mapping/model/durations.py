"""Durations as text (`90s`, `5m`, `2h`, `1d`), and moments and ages as people read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

# ── How long: the one way in which a duration is written, in jobs and on the command line ──

ADVICE = "write a duration such as 30s, 15m, 24h or 7d; a number alone is seconds"
LONGEST_S = 36_525 * 86_400.0
"""A hundred years: far more than anything lasts, and few enough seconds for every database."""

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_WRITTEN = re.compile(
    r"(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?|\.\d+) ?(?P<unit>s|min|m|h|d|)", re.ASCII
)


def seconds_of(text: str) -> float:
    """Seconds of a duration such as 90s, 5m, 2h, 1d, or of a number.

    Raises: ValueError, with the valid forms.
    """
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise ValueError(ADVICE)
    seconds = float(found["number"]) * _UNITS_S[found["unit"]]
    if seconds > LONGEST_S:
        raise ValueError(f"longer than a hundred years; {ADVICE}")
    return seconds


# ── Moments and spans of time as people read them ──

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def moment(seconds: float) -> str:
    """UTC of seconds since 1970: 2026-03-01 14:05:09+00:00."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "seconds")


def minute(seconds: float) -> str:
    """UTC of seconds since 1970: 2026-03-01 14:05 UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def age_text(age_s: float) -> str:
    """5 s, 3 min or 2 h, rounded down; 0 s below a second."""
    size, unit = next(((size, unit) for size, unit in _UNITS if age_s >= size), (1.0, "s"))
    return f"{int(age_s / size)} {unit}"


def limit_text(limit_s: float) -> str:
    """A limit in the largest unit that makes it a whole number: 36 h, 90 s."""
    for size, unit in _UNITS[:-1]:
        if limit_s >= size and limit_s % size == 0:
            return f"{limit_s / size:g} {unit}"
    return f"{limit_s:g} s"
