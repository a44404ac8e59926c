from __future__ import annotations

import pytest

from migrator.errors import SettingsError
from migrator.facts import Column, Kind, TableFacts
from migrator.source.statements import translated_expression

NAMES = {"track_id": "TrackId", "name": "Name", "album_id": "AlbumId", "total": "Total", "id": "id"}
TRACK = TableFacts(
    "track", "Track", tuple(Column(name, real, Kind("integer")) for name, real in NAMES.items())
)


@pytest.mark.parametrize(
    ("dialect", "written", "real"),
    [
        ("sqlite", "total - album_id", '"Total" - "AlbumId"'),
        (
            "mysql",
            "CASE WHEN name = 'total' THEN 1 ELSE total END",
            "CASE WHEN `Name` = 'total' THEN 1 ELSE `Total` END",
        ),
        ("postgresql", "lower(name) || ' -- ; :x'", "lower(\"Name\") || ' -- ; :x'"),
        ("postgresql", "total::int", '"Total"::int'),
        ("postgresql", "nobody + 1", "nobody + 1"),
        ("postgresql", "CURRENT_DATE", "CURRENT_DATE"),
    ],
)
def test_an_expression_is_spelled_as_the_source_does(dialect: str, written: str, real: str) -> None:
    assert translated_expression(written, TRACK, dialect).sql == real


def test_an_expression_says_whose_columns_they_are() -> None:
    found = translated_expression("total - album_id", TRACK, "postgresql", alias="root").sql
    assert found == 'root."Total" - root."AlbumId"'
    assert translated_expression("id + 1", TRACK, "postgresql", alias="root").sql == "root.id + 1"


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql", "mysql"])
@pytest.mark.parametrize(
    "sql",
    [
        "1; DROP TABLE track",
        "total;",
        "total) , (name",
        "total, name",
        "(total, name)",
        "total AS x",
        "total x",
        "total FROM track",
        "total -- ",
        "total /* x */",
        "/* x",
        "SELECT 1",
        "(SELECT 1)",
        "EXISTS (SELECT 1)",
        "sum(total)",
        "row_number() OVER ()",
        "*",
        "track.*",
        "track.total",
        ":x",
        "?",
        "",
        "'open",
        "DROP TABLE track",
        "DISTINCT total",
        "total INTO x",
        "total LIMIT 1",
        "total UNION SELECT 1",
        "1 OR 1=1) --",
    ],
)
def test_anything_but_one_value_of_one_row_is_no_expression(sql: str, dialect: str) -> None:
    with pytest.raises(SettingsError):
        translated_expression(sql, TRACK, dialect)
