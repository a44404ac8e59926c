"""Geohash cells of places: the cells around one, distances, and how far nine cells reach."""

from __future__ import annotations

import math
from decimal import Decimal

import pygeohash

from migrator.runtime.errors import RowError

EARTH_RADIUS_M = 6_371_008.8
"""Mean radius R1. Source: Moritz, "Geodetic Reference System 1980"."""

PRECISIONS = range(1, 13)
_BITS = 5
"""Bits of one character; of all bits of a geohash the longitude has every other one, beginning with the first."""

Number = int | float | Decimal


def cell(latitude: Number, longitude: Number, precision: int) -> str:
    """The geohash of a place in degrees, `precision` characters long.

    Raises: RowError for a place that is not on the earth.
    """
    lat, lng = _degrees(latitude, 90, "latitude"), _degrees(longitude, 180, "longitude")
    return str(pygeohash.encode(lat, lng, precision))


def cells_around(latitude: Number, longitude: Number, precision: int) -> list[str]:
    """The place's cell and then its neighbours, each once: over the date line too, and none beyond a pole.

    Raises: RowError for a place that is not on the earth.
    """
    middle = pygeohash.decode_exactly(cell(latitude, longitude, precision))
    height, width = _cell_degrees(precision)
    cells = {cell(middle.latitude, middle.longitude, precision): None}
    for up in (-1, 0, 1):
        lat = middle.latitude + up * height
        if abs(lat) < 90:
            for right in (-1, 0, 1):
                lng = (middle.longitude + right * width + 180) % 360 - 180
                cells[cell(lat, lng, precision)] = None
    return list(cells)


def distance_m(start: tuple[Number, Number], end: tuple[Number, Number]) -> float:
    """Metres between two places (latitude, longitude) over the ground, by the haversine formula on a sphere."""
    lat, lng, end_lat, end_lng = (math.radians(float(value)) for value in (*start, *end))
    half = (
        math.sin((end_lat - lat) / 2) ** 2
        + math.cos(lat) * math.cos(end_lat) * math.sin((end_lng - lng) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, half)))


def reach_m(latitude: Number, precision: int) -> float:
    """The largest radius around any place of this latitude that its cell and the neighbours are sure to cover.

    That is the smaller side of a cell: the height, or the way to the meridian one cell's width away, which shrinks
    towards the poles.
    """
    height, width = (math.radians(side) for side in _cell_degrees(precision))
    across = math.asin(math.sin(width) * max(0.0, math.cos(math.radians(float(latitude)))))
    return EARTH_RADIUS_M * min(height, across)


def precision_for(latitude: Number, radius_m: float) -> int | None:
    """The highest precision whose cells reach `radius_m` at this latitude; None where no cell is that large."""
    return next(
        (precision for precision in reversed(PRECISIONS) if reach_m(latitude, precision) >= radius_m), None
    )


def _cell_degrees(precision: int) -> tuple[float, float]:
    """(height, width) of a cell in degrees."""
    bits = _BITS * precision
    return 180 / 2 ** (bits // 2), 360 / 2 ** (bits - bits // 2)


def _degrees(value: Number, most: int, called: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RowError(f"the {called} is no number") from None
    if not -most <= number <= most:
        raise RowError(f"the {called} is not between -{most} and {most} degrees")
    return number
