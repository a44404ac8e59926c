"""Buckets of time: the text of the hour, day, month or year that a moment falls into, and all buckets of a range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from typing import Any

MOST = 400
"""Buckets that one question may take: more than a year of days, each of them a request."""

_CHARACTERS = {"hour": 13, "day": 10, "month": 7, "year": 4}
UNITS = tuple(_CHARACTERS)


def bucket(unit: str, value: date | datetime) -> str:
    """The text of the bucket: 2026-06-10T14, 2026-06-10, 2026-06 or 2026. A date is its midnight."""
    return _moment(value).isoformat()[: _CHARACTERS[unit]]


def buckets_between(unit: str, since: date | datetime, until: date | datetime) -> list[str]:
    """The buckets from the one that holds `since` to the one that holds `until`, in order; none where they are swapped.

    Raises: ValueError for more than 400.
    """
    found: list[str] = []
    last = bucket(unit, until)
    for text in _from(unit, _moment(since)):
        if text > last:
            break
        if len(found) == MOST:
            raise ValueError(f"more than {MOST} buckets ({unit}) between both times; ask for a shorter time")
        found.append(text)
    return found


def following(unit: str, moment: datetime) -> datetime:
    """The same place in the next bucket. Raises: OverflowError or ValueError behind the year 9999."""
    return _NEXT[unit](moment)


def _from(unit: str, moment: datetime) -> Iterator[str]:
    yield bucket(unit, moment)
    try:
        while True:
            moment = _NEXT[unit](moment)
            yield bucket(unit, moment)
    except (OverflowError, ValueError):
        return  # the year 9999 is the last one that there is


def _moment(value: Any) -> datetime:
    """The date and time as it is written: in UTC where it has a zone, which the text of a key leaves out."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return datetime(value.year, value.month, value.day)


def _next_month(moment: datetime) -> datetime:
    return moment.replace(year=moment.year + moment.month // 12, month=moment.month % 12 + 1, day=1)


_NEXT: dict[str, Callable[[datetime], datetime]] = {
    "hour": lambda moment: moment + timedelta(hours=1),
    "day": lambda moment: moment + timedelta(days=1),
    "month": _next_month,
    "year": lambda moment: moment.replace(year=moment.year + 1, month=1, day=1),
}
