from __future__ import annotations

import pytest

from migrator.model.facts import Column, Kind, SchemaFacts, TableFacts
from migrator.source.reflect import expression_advice, snake_case, statement_advice


def table(real: str, *columns: str) -> TableFacts:
    facts = tuple(Column(snake_case(name), name, Kind("integer")) for name in columns)
    return TableFacts(snake_case(real), real, facts)


TABLES = [
    table("Track", "TrackId", "Name"),
    table("Order Line", "Line No", "TrackId", "name"),
    table("plain", "id", "name"),
]


def facts(dialect: str) -> SchemaFacts:
    return SchemaFacts(dialect, {one.name: one for one in TABLES}, loosely_typed=dialect == "sqlite")


def advice(dialect: str, sql: str, *, refused: bool = True) -> str:
    return statement_advice(sql, facts(dialect), refused=refused).rpartition("; write ")[2]


@pytest.mark.parametrize(
    ("dialect", "sql", "words"),
    [
        ("postgresql", "SELECT track_id FROM track", '"Track" for track, "TrackId" for track_id'),
        ("postgresql", "SELECT t.name FROM track t", '"Track" for track, "Name" for name'),
        ("postgresql", "SELECT TrackId FROM Track", '"Track" for Track, "TrackId" for TrackId'),
        ("postgresql", 'SELECT "TrackId" FROM "Track" WHERE track_id = 1', '"TrackId" for track_id'),
        ("postgresql", 'SELECT name FROM "Track", plain', ""),  # plain has it
        ("postgresql", 'SELECT "TrackId" AS track_id FROM "Track" ORDER BY track_id', ""),
        ("postgresql", "WITH track AS (SELECT id FROM plain) SELECT id FROM track", ""),
        ("postgresql", 'SELECT 1 FROM "Track" WHERE EXISTS (SELECT 1 FROM order_line)', '"Order Line" for order_line'),
        ("mysql", "SELECT track_id, name FROM track", "`Track` for track, `TrackId` for track_id"),
        ("sqlite", "SELECT track_id, name FROM track", '"TrackId" for track_id'),
        ("sqlite", "SELECT name FROM nowhere", ""),
        ("sqlite", "SELECT FROM WHERE", ""),
    ],
)  # fmt: skip
def test_what_to_write_instead_of_each_name_of_the_mapping(dialect: str, sql: str, words: str) -> None:
    assert advice(dialect, sql) == words


def test_sqlite_takes_an_unknown_quoted_name_for_a_text_so_it_is_told_of_though_nothing_is_refused() -> None:
    assert advice("sqlite", 'SELECT "track_id", name FROM track', refused=False) == '"TrackId" for track_id'
    assert advice("sqlite", 'SELECT "trackid" FROM track', refused=False) == ""
    assert advice("postgresql", 'SELECT "track_id" FROM "Track"', refused=False) == ""


def test_an_expression_is_advised_alike() -> None:
    line = TABLES[1]
    found = expression_advice("line_no + name", line, facts("postgresql"), refused=True)
    assert found.endswith('; write "Line No" for line_no')
    assert expression_advice('"line_no"', line, facts("sqlite"), refused=False).endswith("for line_no")
    assert expression_advice('"Line No"', line, facts("sqlite"), refused=False) == ""
