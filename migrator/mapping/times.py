"""Dates, times of day and timestamps: from what a driver gives to Python's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from typing import Any

from migrator.errors import RowError
from migrator.facts import Kind
from migrator.mapping.unfit import NotHeldError, misfit

# Python takes it for the next midnight from 3.13 on; a time of day has no such thing, and no two versions may differ.
_END_OF_DAY = re.compile(r"(?:^|[T ])24")


def date_decoder(_: Kind) -> Callable[[Any], date]:
    def decode(raw: Any) -> date:
        moment = _from_iso(raw, datetime, "a date") if isinstance(raw, str) else raw
        if isinstance(moment, datetime):
            if moment.time() != time(0):
                raise misfit("the value has a time of day, though the column is declared as a date", raw)
            return moment.date()
        if isinstance(moment, date):
            return moment
        raise misfit("the value is no date, though the column is declared as one", raw)

    return decode


def time_decoder(_: Kind) -> Callable[[Any], time]:
    def decode(raw: Any) -> time:
        value = _from_iso(raw, time, "a time") if isinstance(raw, str) else raw
        if isinstance(value, time):
            return value
        raise misfit("the value is no time, though the column is declared as one", raw)

    return decode


def timestamp_decoder(_: Kind) -> Callable[[Any], datetime]:
    """Gives a datetime in UTC where the value has a zone, and one without a zone where it has none."""

    def decode(raw: Any) -> datetime:
        value = _from_iso(raw, datetime, "a timestamp") if isinstance(raw, str) else raw
        if not isinstance(value, datetime):
            raise misfit("the value is no timestamp, though the column is declared as one", raw)
        try:
            return value.astimezone(UTC) if value.tzinfo else value
        except OverflowError:
            raise misfit("the moment is outside of the years 1 to 9999 in UTC", raw) from None

    return decode


def moment_of(value: Any) -> datetime:
    """A decoded date or timestamp as a datetime; a date is its midnight.

    Raises: RowError for anything else, which a column without a declared type may hold.
    """
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    raise RowError("the filter takes a timestamp or a date; give the column that type")


def _from_iso(raw: str, form: Any, called: str) -> Any:
    try:
        if not _END_OF_DAY.search(raw):
            return form.fromisoformat(raw.strip())
    except ValueError:
        pass
    as_text = "write |text to keep it as text"
    unknown = next((name for form, name in _BEYOND if form.fullmatch(raw.strip())), "")
    if unknown:
        what = f"the value is {unknown}; {called} of an item is in the years 1 to 9999"
        raise NotHeldError(f"{what}; {as_text}", raw)
    what = f"the text is not {called} in ISO 8601 form (or has no day of the years 1 to 9999)"
    raise misfit(f"{what}; {as_text}", raw)


_BEYOND = (
    (re.compile(r"\+?infinity", re.IGNORECASE), "infinity"),
    (re.compile(r"-infinity", re.IGNORECASE), "-infinity"),
    (re.compile(r"[0-9 :.+-]{1,60} BC"), "a year BC"),
)
"""Moments of PostgreSQL's that Python has no value for, and what they are called."""
