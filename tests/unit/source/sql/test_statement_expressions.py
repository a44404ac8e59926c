from __future__ import annotations

import pytest

from migrator.model.errors import SettingsError
from migrator.model.facts import Column, Kind, TableFacts
from migrator.source.sql.statements import row_expression

TRACK = TableFacts(
    "track",
    "Track",
    tuple(
        Column(name, real, Kind("integer")) for name, real in [("album_id", "AlbumId"), ("total", "total")]
    ),
)


@pytest.mark.parametrize(
    ("dialect", "written", "placed"),
    [
        ("sqlite", 'total - "AlbumId"', 'root.total - root."AlbumId"'),
        ("sqlite", "TOTAL - AlbumId", "root.TOTAL - root.AlbumId"),
        (
            "mysql",
            "CASE WHEN `AlbumId` = 'total' THEN 1 ELSE total END",
            "CASE WHEN root.`AlbumId` = 'total' THEN 1 ELSE root.total END",
        ),
        ("postgresql", "lower(total) || ' -- ; :x'", "lower(root.total) || ' -- ; :x'"),
        ("postgresql", "total::int", "root.total::int"),
        ("postgresql", "album_id + nobody + 1", "album_id + nobody + 1"),
        ("postgresql", "CURRENT_DATE", "CURRENT_DATE"),
    ],
)
def test_an_expression_stays_and_says_whose_columns_they_are(dialect: str, written: str, placed: str) -> None:
    assert row_expression(written, TRACK, dialect).sql == written
    assert row_expression(written, TRACK, dialect, alias="root").sql == placed


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
        row_expression(sql, TRACK, dialect)
