"""Functions that generated modules carry a copy of: what `*` and `near` of access patterns stand for.

As `values`, which stands before it: copied as far as it is needed, and held against the heart by tests.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

from migrator.features.exports.python.values import (
    RefusedError,
    _filter_bucket,
    _filter_geohash,
    _naive,
    _shard_text,
)

# ── places and times that a question goes over ──


def _buckets(unit: str, since: dt.date, until: dt.date) -> list[str]:
    """The buckets of time from the one that holds `since` to that of `until`, 400 at most."""
    found: list[str] = []
    moment, last = _naive(since), _filter_bucket(until, unit)
    while (text := _filter_bucket(moment, unit)) <= last:
        if len(found) == 400:
            raise RefusedError(
                f"more than 400 buckets ({unit}) between both times; ask for a shorter time"
            )
        found.append(text)
        try:
            moment = _following(unit, moment)
        except (OverflowError, ValueError):
            break  # the year 9999 is the last one that there is
    return found


def _following(unit: str, moment: dt.datetime) -> dt.datetime:
    if unit == "year":
        return moment.replace(year=moment.year + 1, month=1, day=1)
    if unit == "month":
        return moment.replace(
            year=moment.year + moment.month // 12, month=moment.month % 12 + 1, day=1
        )
    return moment + (dt.timedelta(hours=1) if unit == "hour" else dt.timedelta(days=1))


def _shards(count: int) -> list[str]:
    return [_shard_text(number, count) for number in range(count)]


def _cells(latitude: Any, longitude: Any, precision: int) -> list[str]:
    """The place's cell and then its neighbours, each once: over the date line too, and none beyond a pole."""
    height, width = _cell_degrees(precision)
    _filter_geohash(latitude, longitude, str(precision))  # refuses what is not on the earth
    row = min(math.floor((float(latitude) + 90) / height), round(180 / height) - 1)
    column = min(math.floor((float(longitude) + 180) / width), round(360 / width) - 1)
    around = [(0, 0), *((up, right) for up in (-1, 0, 1) for right in (-1, 0, 1))]
    cells: dict[str, None] = {}
    for up, right in around:
        lat = (row + up + 0.5) * height - 90
        if abs(lat) < 90:
            lng = ((column + right + 0.5) * width) % 360 - 180
            cells[_filter_geohash(lat, lng, str(precision))] = None
    return list(cells)


def _cell_degrees(precision: int) -> tuple[float, float]:
    bits = 5 * precision
    return 180 / 2 ** (bits // 2), 360 / 2 ** (bits - bits // 2)


_EARTH_M = 6_371_008.8


def _reach_m(latitude: Any, precision: int) -> float:
    """The largest radius around any place of this latitude that its cell and the neighbours are sure to cover."""
    height, width = (math.radians(side) for side in _cell_degrees(precision))
    across = math.asin(math.sin(width) * max(0.0, math.cos(math.radians(float(latitude)))))
    return _EARTH_M * min(height, across)


def _distance_m(start: tuple[Any, Any], end: tuple[Any, Any]) -> float:
    """Metres between two places over the ground, by the haversine formula on a sphere."""
    lat, lng, end_lat, end_lng = (math.radians(float(value)) for value in (*start, *end))
    half = (
        math.sin((end_lat - lat) / 2) ** 2
        + math.cos(lat) * math.cos(end_lat) * math.sin((end_lng - lng) / 2) ** 2
    )
    return 2 * _EARTH_M * math.asin(math.sqrt(min(1.0, half)))
