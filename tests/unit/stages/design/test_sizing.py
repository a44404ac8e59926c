"""Items of a design measured on rows: all of them, or some by chance that stand for all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event

from migrator.mapping.check.check import Checked, check_mapping
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.design.sizing import SampleBounds, Sized, Sizing
from tests.support_mapping import parse_mapping

MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: entity, ttl: expires, indexes: {GSI1: {key: [GSI1PK, GSI1SK]}}}
entities:
  note:
    items:
      Note: {key: ["A#{author}", "N#{id:06}"], keep: [id, body], GSI1: ["K#{kind}", "N#{id:06}"]}
access_patterns:
  of_author:
    params: {author: integer}
    query: {key: ["A#{author}", {begins_with: "N#"}]}
    returns: [id]
    frequency: 3/s
    sql: SELECT id FROM note WHERE author = :author ORDER BY id
  of_kind:
    params: {kind: text}
    query: {index: GSI1, key: ["K#{kind}"]}
    returns: [id]
    sql: SELECT id FROM note WHERE kind = :kind ORDER BY id
"""
ROWS, AUTHORS = 3_000, 100


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSource]:
    folder: Path = tmp_path_factory.mktemp("notes")
    with closing(sqlite3.connect(folder / "notes.db")) as connection:
        connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, author INTEGER, kind TEXT, body TEXT)")
        # Bodies of one author in a thousand bytes each, those of others in a hundred.
        rows = [
            (
                n,
                n % AUTHORS,
                "long" if n % AUTHORS == 7 else "short",
                "x" * (1_000 if n % AUTHORS == 7 else 100),
            )
            for n in range(1, ROWS + 1)
        ]
        connection.executemany("INSERT INTO note VALUES (?, ?, ?, ?)", rows)
        connection.commit()
    made = SqlSource(source_url(f"sqlite:///{folder / 'notes.db'}"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def checked(source: SqlSource) -> Checked:
    return check_mapping(parse_mapping(MAPPING, "m.yaml"), source.facts())


def sized(source: SqlSource, checked: Checked, bounds: SampleBounds) -> Sized:
    return Sizing(source, checked.mapping, checked.entities, bounds, now_s=0.0).sized()


def test_all_rows_are_exact(source: SqlSource, checked: Checked) -> None:
    made = sized(source, checked, SampleBounds())
    assert made.exact
    size = made.types["Note"].size("Note", exact=True)
    # A long item takes two units in the table and two in the index, a short one takes one in each.
    assert size.items == ROWS
    assert size.units == pytest.approx((30 * 4 + 2_970 * 2) / ROWS)
    assert (made.places[""].collections, made.places[""].counts.most) == (AUTHORS, 30)
    assert made.places["GSI1"].collections == 2
    asked = {reads.pattern: reads for reads in made.patterns}
    assert {reads.exact for reads in made.patterns} == {True}
    assert asked["of_author"].items == 30
    assert asked["of_author"].calls_per_s == 3.0


def test_sampled_rows_stand_for_all_and_sql_counts_pattern_reads(source: SqlSource, checked: Checked) -> None:
    exact, made = (
        sized(source, checked, SampleBounds()),
        sized(source, checked, SampleBounds(rows_exact=1_000, sampled=500)),
    )
    assert not made.exact
    assert made.read["note"] <= 500 < made.rows["note"]
    assert made.types["Note"].items == pytest.approx(ROWS, rel=0.05)
    assert made.types["Note"].bytes == pytest.approx(exact.types["Note"].bytes, rel=0.2)
    assert made.types["Note"].table_units == pytest.approx(exact.types["Note"].table_units, rel=0.1)
    assert made.places["GSI1"].largest[0].bytes == pytest.approx(
        exact.places["GSI1"].largest[0].bytes, rel=0.2
    )
    asked = {reads.pattern: reads for reads in made.patterns}
    of_author = asked["of_author"]
    assert (of_author.exact, of_author.items, of_author.calls) == (False, 30, 10)
    assert of_author.units == pytest.approx(1.0, abs=0.5)


def test_the_same_rows_are_chosen_each_time(source: SqlSource, checked: Checked) -> None:
    bounds = SampleBounds(rows_exact=1_000, sampled=200)
    first, second = (sized(source, checked, bounds) for _ in range(2))
    assert first.places == second.places
    assert first.patterns == second.patterns


def test_an_empty_table_is_counted_once_and_not_read(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "notes.db")) as connection:
        connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, author INTEGER, kind TEXT, body TEXT)")
    empty = SqlSource(source_url(f"sqlite:///{tmp_path / 'notes.db'}"))
    checked = check_mapping(parse_mapping(MAPPING, "m.yaml"), empty.facts())
    sent: list[str] = []
    event.listen(empty.engine, "before_cursor_execute", lambda *asked: sent.append(asked[2]))
    made = sized(empty, checked, SampleBounds())
    empty.close()
    assert [statement.split()[:2] for statement in sent if statement != "BEGIN"] == [["SELECT", "count(*)"]]
    assert (made.rows, made.exact) == ({"note": 0}, True)
    assert {reads.why for reads in made.patterns} == {"no row to read"}
