"""Parameters as they are written on the command line, out of the decoded values of rows. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from migrator.errors import RowError
from migrator.mapping.buckets import bucket, following
from migrator.mapping.values import text
from migrator.model import Param, ParamType


def param_text(value: Any, type_: ParamType) -> str:
    """What `read_params` reads the value from. Raises: RowError for a value that has no text."""
    if type_ == "binary" and isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if type_ == "date" and isinstance(value, datetime):
        value = value.date()
    if type_ == "integer" and isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    return text(value)


def list_text(texts: Sequence[str]) -> str:
    """The list as a JSON array, so that commas stay in their values."""
    return json.dumps(list(texts), ensure_ascii=False)


def bucket_text(value: Any, unit: str, param: Param, *, after: bool = False) -> str:
    """The first moment of the bucket that a time falls into, or (`after`) of the next one.

    Raises: RowError for what is no time.
    """
    if not isinstance(value, date):
        raise RowError("a bucket of time takes a timestamp or a date")
    begun = datetime.fromisoformat(_WHOLE[unit](bucket(unit, value)))
    moment = following(unit, begun) if after else begun
    zone = value.tzinfo if isinstance(value, datetime) else None
    return param_text(moment.replace(tzinfo=zone), param.type)


_WHOLE: dict[str, Callable[[str], str]] = {
    "hour": lambda begun: f"{begun}:00",
    "day": lambda begun: begun,
    "month": lambda begun: f"{begun}-01",
    "year": lambda begun: f"{begun}-01-01",
}


_PAST = 20
"""What part of the range of known numbers the absent one lies behind its end."""


def absent_value(values: Sequence[Any]) -> Any:
    """A value of their kind that is past the last one; None where the kind has none that is sure to be no row's."""
    numbers = [one for one in values if isinstance(one, (int, Decimal)) and not isinstance(one, bool)]
    if numbers:
        # Well past the last one that is known, since the very last row of the table may not be.
        return max(numbers) + 1 + int(max(numbers) - min(numbers)) // _PAST
    texts = [one for one in values if isinstance(one, str)]
    if texts:
        return f"{max(texts)}0"
    times = [one for one in values if isinstance(one, date)]
    return max(times) + timedelta(days=366) if times else None
