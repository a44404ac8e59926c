"""Moments and spans of time as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def moment(seconds: float) -> str:
    """Seconds since 1970 as UTC, to the second: 2026-03-01 14:05:09+00:00."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "seconds")


def minute(seconds: float) -> str:
    """Seconds since 1970 as UTC, to the minute: 2026-03-01 14:05 UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def age_text(age_s: float) -> str:
    """Such as 5 s, 3 min or 2 h, rounded down; 0 s of what is younger than a second."""
    size, unit = next(((size, unit) for size, unit in _UNITS if age_s >= size), (1.0, "s"))
    return f"{int(age_s / size)} {unit}"


def limit_text(limit_s: float) -> str:
    """A limit as it was set, in the largest unit that makes it a whole number: 36 h, 90 s."""
    for size, unit in _UNITS[:-1]:
        if limit_s >= size and limit_s % size == 0:
            return f"{limit_s / size:g} {unit}"
    return f"{limit_s:g} s"
