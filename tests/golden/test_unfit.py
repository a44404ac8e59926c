"""Golden cases of values that their kind has no form for: |text keeps them, everything else refuses the row."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from migrator.runtime.errors import RowError
from tests import pins
from tests.golden.heart import entity, items
from tests.golden.shop import PLAIN, SCHEMA, made

WIDE = "1" * 39

KEPT: list[tuple[str, str, dict[str, Any], Any]] = [
    ("a number of 39 digits", "weight|text", {"weight": Decimal(WIDE)}, WIDE),
    ("NaN", "weight|text", {"weight": Decimal("NaN")}, "NaN"),
    ("infinity of a float", "weight|text", {"weight": float("-inf")}, "-Infinity"),
    ("more decimals than declared", "total|text", {"total": Decimal("0.123")}, "0.123"),
    ("a date BC", "due|text", {"due": "0044-03-15 BC"}, "0044-03-15 BC"),
    ("a zero date", "created_at|text", {"created_at": "0000-00-00 00:00:00"}, "0000-00-00 00:00:00"),
    ("a number of seconds", "created_at|text", {"created_at": 1700000000}, "1700000000"),
    ("in a template", "'w {weight|text}'", {"weight": Decimal("NaN")}, "w NaN"),
    ("behind an or", "\"{weight|or:'-'|text}\"", {"weight": Decimal("NaN")}, "NaN"),
    ("an or of NULL", "\"{weight|or:'-'|text}\"", {}, "-"),
    ("a filter behind the text", "weight|text|lower", {"weight": Decimal("NaN")}, "nan"),
    ("of a value that has a form", "total|text", {"total": Decimal("1.50")}, "1.50"),
    (
        "of a moment that has one",
        "paid_at|text",
        {"paid_at": datetime(2024, 1, 2, tzinfo=UTC)},
        "2024-01-02T00:00:00.000000Z",
    ),
]


@pytest.mark.parametrize(
    ("value", "row", "text"), [case[1:] for case in KEPT], ids=[case[0] for case in KEPT]
)
def test_text_keeps_the_whole_value(value: str, row: dict[str, Any], text: str) -> None:
    assert made(f"attributes: {{x: {value}}}", row)["x"] == text


REFUSED = {
    "keep": "keep: [weight], attributes: {x: weight|text}",
    "an attribute": "attributes: {x: weight}",
    "a template": "attributes: {x: 'w {weight}'}",
    "a padding": "attributes: {x: '{weight:04}'}",
    "text behind another filter": "attributes: {x: weight|escape|text}",
    "json": "attributes: {x: weight|json}",
    "two values": "attributes: {x: 'a {weight,total|geohash:3}'}",
    "a condition": "when: {weight: [1]}",
}


@pytest.mark.parametrize("where", REFUSED)
def test_any_other_use_refuses_the_row(where: str) -> None:
    row = {"weight": Decimal("NaN"), "total": Decimal("1.00")}
    with pins.refused(RowError):
        made(REFUSED[where], row)


def test_a_ttl_that_has_no_form_refuses_the_row() -> None:
    with pins.refused(RowError):
        made("ttl: expires_at", {"expires_at": "infinity"})


def test_a_value_that_nothing_takes_refuses_nothing() -> None:
    assert made(
        "when: {status: [x]}, keep: [status], attributes: {x: weight|text}",
        {"status": "x", "weight": Decimal("NaN")},
    )


def test_a_transform_sees_its_text() -> None:
    def transform(row: Mapping[str, Any]) -> dict[str, Any]:
        return {"seen": row["weight"]}

    text = (
        PLAIN.replace("orders:\n", "orders:\n    transform: tests.x:transform\n")
        % "attributes: {x: transform.seen}"
    )
    compiled = entity(text, SCHEMA, transforms={"tests.x:transform": transform})
    (item,) = items(compiled, {"id": 7, "weight": Decimal("NaN")})
    assert item["x"] == "NaN"


@pytest.mark.parametrize(
    ("local", "seconds"),
    [
        ("2024-03-31 01:59:59", 1711846799),  # 00:59:59Z, the last second of winter
        ("2024-03-31 02:30:00", 1711848600),  # left out: 01:30Z by the offset before
        ("2024-03-31 03:00:00", 1711846800),  # 01:00Z
        ("2024-10-27 02:30:00", 1729989000),  # twice: 00:30Z is the first
        ("2024-10-27 03:00:00", 1729994400),  # 02:00Z
        (
            "0001-01-01 00:00:00",
            -62135596800 - 3208,
        ),  # local mean time of Berlin, before the calendar's first hour in UTC
    ],
)
def test_epoch_of_a_clock_that_changes(local: str, seconds: int) -> None:
    text = "source: {timezone: Europe/Berlin}\n" + PLAIN % "attributes: {x: created_at|epoch}"
    (item,) = items(entity(text, SCHEMA), {"id": 7, "created_at": local})
    assert item["x"] == seconds


@pytest.mark.parametrize(
    ("ttl", "seconds"),
    [("expires_s", 1_609_459_200_000), ("{from: expires_s, unit: milliseconds}", 7_258_118_400_000)],
)
def test_ttl_beyond_the_year_2200_refuses_the_row(ttl: str, seconds: int) -> None:
    with pins.refused(RowError):
        made(f"ttl: {ttl}", {"expires_s": seconds})


@pytest.mark.parametrize("document", ['{"": 1}', '[{"a": {"": []}}]', '{"a": [[{"": null}]]}'])
def test_empty_name_in_a_map_refuses_the_row_and_json_keeps_it(document: str) -> None:
    with pins.refused(RowError):
        made("attributes: {x: extra}", {"extra": document})
    assert made("attributes: {x: extra|json}", {"extra": document})["x"].count('""') == 1
