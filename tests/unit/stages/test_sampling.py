from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from migrator.journal.store import SqlJournal
from migrator.mapping.check import check_mapping
from migrator.mapping.parse import parse_mapping
from migrator.ports import Page, RunIdentity
from migrator.results import Sample
from migrator.source.reader import SqlSource
from migrator.source.url import source_url
from migrator.stages.sampling import plan_sample

MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities: {note: {items: {Note: {key: ["N#{id}", META]}}}}
"""


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SqlSource]:
    with sqlite3.connect(tmp_path / "notes.db") as connection:
        connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO note VALUES (?)", [(n,) for n in range(1, 3001)])
    made = SqlSource(source_url(f"sqlite:///{tmp_path / 'notes.db'}"))
    yield made
    made.close()


def pages(source: SqlSource, sample: Sample) -> list[Page]:
    journal = SqlJournal.in_memory()
    run = journal.start_run(RunIdentity("verify", "shop", "T", "1", ""))
    (entity,) = check_mapping(parse_mapping(MAPPING, "m.yaml"), source.facts()).entities
    for _ in range(2):
        plan_sample(source, journal, run, entity.plan, sample=sample, page_rows=500, total=3000)
    return list(journal.open_pages(run, "note"))


def test_the_same_seed_chooses_the_same_pages_and_another_one_others(source: SqlSource) -> None:
    first = pages(source, Sample(7, share=Fraction(10, 100)))
    assert len(first) == 11
    assert [page.number for page in first] == sorted({page.number for page in first})
    assert pages(source, Sample(7, share=Fraction(10, 100))) == first
    assert pages(source, Sample(8, share=Fraction(10, 100))) != first


def test_a_sample_of_all_rows_is_all_pages(source: SqlSource) -> None:
    found = pages(source, Sample(7, share=Fraction(1)))
    assert [page.number for page in found] == list(range(1, len(found) + 1))
    assert (found[0].after, found[-1].upto) == (None, None)


@pytest.mark.parametrize(
    ("sample", "rows", "total", "wanted"),
    [
        (Sample(1, share=Fraction(1, 100)), 5000, 9000, 50),
        (Sample(1, share=Fraction(1, 200)), 1001, 1001, 6),
        (Sample(1, share=Fraction(1, 100)), 3, 9000, 1),
        (Sample(1, share=Fraction(1)), 77, 77, 77),
        (Sample(1, share=Fraction(1)), 0, 77, 0),
        (Sample(1, rows=1000), 6000, 8000, 750),
        (Sample(1, rows=1000), 10, 20, 10),
    ],
)
def test_how_many_rows_a_sample_wants(sample: Sample, rows: int, total: int, wanted: int) -> None:
    assert sample.wanted(rows, total) == wanted


def test_a_sample_says_what_it_is() -> None:
    assert str(Sample(1, share=Fraction("0.5") / 100)) == "0.5%"
    assert str(Sample(1, rows=1000)) == "1000 rows"
