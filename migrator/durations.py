"""How long: the one way in which a duration is written, in jobs and on the command line."""

from __future__ import annotations

import re

ADVICE = "write a duration such as 30s, 15m, 24h or 7d; a number alone is seconds"
LONGEST_S = 36_525 * 86_400.0
"""A hundred years: far more than anything lasts, and few enough seconds for every database."""

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_WRITTEN = re.compile(
    r"(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?|\.\d+) ?(?P<unit>s|min|m|h|d|)", re.ASCII
)


def seconds_of(text: str) -> float:
    """The seconds of a duration such as 90s, 5m, 2h, 1d, or of a number alone.

    Raises: ValueError, with what to write.
    """
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise ValueError(ADVICE)
    seconds = float(found["number"]) * _UNITS_S[found["unit"]]
    if seconds > LONGEST_S:
        raise ValueError(f"this is longer than a hundred years; {ADVICE}")
    return seconds
