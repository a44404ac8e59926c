from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.mapping.check.check import Checked, check_mapping
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.backfill.stage import estimate
from tests.support_mapping import parse_mapping

MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, indexes: {GSI1: {key: [GSI1PK, GSI1SK]}}}
entities:
  note:
    items:
      Note: {key: ["N#{id}", META], keep: [body], GSI1: [NOTES, "{id:06}"]}
      Short: {key: ["S#{id}", META], when: {kind: [short]}}
"""


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SqlSource]:
    with sqlite3.connect(tmp_path / "notes.db") as connection:
        connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, kind TEXT, body TEXT)")
        # The bodies grow along the key: a sample of the beginning alone would be far off.
        rows = [(n, "short" if n % 2 else "long", "x" * n) for n in range(1, 4001)]
        connection.executemany("INSERT INTO note VALUES (?, ?, ?)", rows)
    made = SqlSource(source_url(f"sqlite:///{tmp_path / 'notes.db'}"))
    yield made
    made.close()


def checked(source: SqlSource) -> Checked:
    return check_mapping(parse_mapping(MAPPING, "m.yaml"), source.facts())


def test_a_sample_over_all_keys_comes_near(source: SqlSource) -> None:
    found = estimate(source, checked(source).entities, 0.0)
    assert (found.rows, found.items) == (4000, 6000)
    # By hand: bodies of 1 to 4,000 bytes are 2.5 units on average, in the table and in the index; Short is one.
    assert found.table_units == pytest.approx(4000 * 2.5 + 2000, rel=0.2)
    assert found.index_units == pytest.approx(4000 * 2.5, rel=0.2)


def test_a_few_rows_are_exact_and_written_ones_do_not_count(source: SqlSource) -> None:
    entities = checked(source).entities
    assert estimate(source, entities, 0.0, limit=100).rows == 100
    left = estimate(source, entities, 0.0, done={"note": 3900})
    assert left.rows == 100
    assert estimate(source, entities, 0.0, done={"note": 4000}).items == 0
