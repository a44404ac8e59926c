from __future__ import annotations

import math
import random
from decimal import Decimal

import pytest

from migrator.mapping.items.filters import cell, cells_around, distance_m, precision_for, reach_m
from migrator.runtime.errors import RowError
from tests import pins

TOKYO = (35.6586, 139.7454)


@pytest.mark.parametrize(
    ("latitude", "longitude", "expected"),
    [
        (Decimal("35.6586"), Decimal("139.7454"), "xn76gg"),
        (35.6586, 139.7454, "xn76gg"),
        (0, 0, "s00000"),
        (90, 180, "zzzzzz"),
        (-90, -180, "000000"),
        # Source: Wikipedia, "Geohash", worked example.
        (57.64911, 10.40744, "u4pruy"),
    ],
)
def test_numbers_of_every_kind_have_a_cell(latitude: object, longitude: object, expected: str) -> None:
    assert cell(latitude, longitude, 6) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("latitude", "longitude", "called"),
    [(90.01, 0, "latitude"), (0, Decimal("-180.5"), "longitude"), (math.nan, 0, "latitude")],
)
def test_what_is_not_on_the_earth_is_refused(latitude: float, longitude: float, called: str) -> None:
    with pins.refused(RowError, called=called):
        cell(latitude, longitude, 6)


def test_a_cell_has_eight_neighbours_and_itself() -> None:
    expected = {"u4pruy", "u4prvn", "u4pruz", "u4prux", "u4pruw", "u4prut", "u4pruv", "u4prvp", "u4prvj"}
    assert set(cells_around(57.64911, 10.40744, 6)) == expected
    assert cells_around(57.64911, 10.40744, 6)[0] == "u4pruy"


@pytest.mark.parametrize("longitude", [180, -180, 179.9999, -179.9999])
def test_neighbours_go_on_behind_the_date_line(longitude: float) -> None:
    found = cells_around(10, longitude, 5)
    assert len(found) == 9
    assert {name[0] for name in found} == {"x", "8"}


@pytest.mark.parametrize("latitude", [90, -90, 89.9999])
def test_there_is_nothing_behind_a_pole(latitude: float) -> None:
    assert len(cells_around(latitude, 20, 5)) == 6


def test_distances_over_the_ground() -> None:
    assert distance_m((0, 0), (0, 1)) == pytest.approx(111_195, abs=1)
    assert distance_m((90, 0), (-90, 77)) == pytest.approx(math.pi * 6_371_008.8)
    assert distance_m((0, 179.5), (0, -179.5)) == pytest.approx(111_195, abs=1)
    # Paris to London. Source: 343.5 km by any great-circle calculator.
    assert distance_m((48.8566, 2.3522), (51.5074, -0.1278)) == pytest.approx(343_556, abs=100)
    assert distance_m(TOKYO, (Decimal("35.6586"), Decimal("139.7454"))) == 0


def test_reach_is_the_smaller_side_and_shrinks_towards_the_poles() -> None:
    assert reach_m(0, 6) == pytest.approx(610.8, abs=0.1)
    assert reach_m(0, 5) == pytest.approx(4886.5, abs=1)
    assert reach_m(80, 6) == pytest.approx(212, abs=1)
    assert reach_m(90, 1) == pytest.approx(0, abs=1e-6)


def test_the_precision_that_would_do() -> None:
    assert precision_for(0, 500) == 6
    assert precision_for(0, 1000) == 5
    assert precision_for(80, 500) == 5
    assert precision_for(0, 6_000_000) is None


@pytest.mark.parametrize("precision", [1, 2, 3, 5, 6, 9])
def test_no_place_within_the_reach_lies_outside_of_the_cells(precision: int) -> None:
    chance = random.Random(precision)
    for _ in range(400):
        latitude = math.degrees(math.asin(chance.uniform(-1, 1)))
        longitude = chance.uniform(-180, 180)
        radius = reach_m(latitude, precision) * 0.999
        place = _moved(latitude, longitude, radius, chance.uniform(0, 2 * math.pi))
        assert distance_m((latitude, longitude), place) <= radius * 1.0001 + 0.1
        assert cell(*place, precision) in cells_around(latitude, longitude, precision)


def _moved(latitude: float, longitude: float, metres: float, bearing: float) -> tuple[float, float]:
    """The place that lies so many metres away. Source: the direct formula on a sphere."""
    lat, lng, angle = math.radians(latitude), math.radians(longitude), metres / 6_371_008.8
    sine = math.sin(lat) * math.cos(angle) + math.cos(lat) * math.sin(angle) * math.cos(bearing)
    east = math.atan2(
        math.sin(bearing) * math.sin(angle) * math.cos(lat), math.cos(angle) - math.sin(lat) * sine
    )
    return math.degrees(math.asin(sine)), (math.degrees(lng + east) + 540) % 360 - 180
