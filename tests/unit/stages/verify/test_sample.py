from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import check_mapping
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.journal import Page, RunIdentity
from migrator.mapping.model.results import SampleSize
from migrator.mapping.model.table import SourceKey
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.verify.stage import plan_sample
from tests.support_mapping import parse_mapping

MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities: {note: {items: {Note: {key: ["N#{id}", META]}}}}
"""


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SqlSource]:
    with closing(SqlSource(source_url(notes(tmp_path)))) as made:
        yield made


def notes(folder: Path) -> str:
    with sqlite3.connect(folder / "notes.db") as connection:
        connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO note VALUES (?)", [(n,) for n in range(1, 3001)])
    return f"sqlite:///{folder / 'notes.db'}"


@cache
def plan_of(source: SqlSource) -> EntityPlan:
    (entity,) = check_mapping(parse_mapping(MAPPING, "m.yaml"), source.facts()).entities
    return entity.plan


def pages(source: SqlSource, sample: SampleSize, rows: int = 3000) -> list[Page]:
    journal = SqlJournal.in_memory()
    run = journal.start_run(RunIdentity("verify", "shop", "T", "1", ""))
    for _ in range(2):
        plan_sample(
            source, journal, run, plan_of(source), sample=sample, page_rows=500, rows=rows, total=rows
        )
    return journal.claim_pages(run, "note", "a", 100_000, 60)


def test_same_seed_chooses_the_same_pages_and_another_differs(source: SqlSource) -> None:
    first = pages(source, SampleSize(7, share=Fraction(10, 100)))
    assert len(first) == 11
    assert [page.number for page in first] == sorted({page.number for page in first})
    assert pages(source, SampleSize(7, share=Fraction(10, 100))) == first
    assert pages(source, SampleSize(8, share=Fraction(10, 100))) != first


def rows_of(source: SqlSource, planned: list[Page]) -> list[int]:
    plan = plan_of(source)
    return [row[0] for page in planned for row in source.read_page(plan, page.after, page.upto)]


@pytest.mark.parametrize(
    "sample", [SampleSize(3, rows=1), SampleSize(3, rows=60), SampleSize(3, share=Fraction(9, 100))], ids=str
)
def test_small_sample_has_random_rows_without_duplicates(source: SqlSource, sample: SampleSize) -> None:
    found = pages(source, sample)
    rows = rows_of(source, found)
    wanted = sample.wanted(3000, 3000)
    assert 0.7 * wanted <= len(rows) <= 1.2 * wanted + 1
    assert len(set(rows)) == len(rows)
    assert pages(source, sample) == found
    assert pages(source, SampleSize(4, share=sample.share, rows=sample.rows)) != found


@pytest.mark.slow
def test_every_row_may_be_in_a_small_sample(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "few.db") as connection:
        connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO note VALUES (?)", [(n,) for n in range(60)])
    with closing(SqlSource(source_url(f"sqlite:///{tmp_path / 'few.db'}"))) as few:
        found = {row for seed in range(80) for row in rows_of(few, pages(few, SampleSize(seed, rows=5), 60))}
    assert found == set(range(60))


class Sparing(SqlSource):
    """Finds few keys by chance, and few places."""

    def random_keys(self, plan: EntityPlan, number: int, rows: int, seed: int) -> list[SourceKey]:
        assert number <= 200
        return super().random_keys(plan, 4, rows, seed) if number > 10 else []


def test_sparse_keys_are_sampled_along_the_index(tmp_path: Path) -> None:
    with closing(Sparing(source_url(notes(tmp_path)))) as source:
        found = pages(source, SampleSize(3, rows=100))
        assert len(found) in (10, 11)
        assert len({row // 300 for row in rows_of(source, found)}) >= 8
        assert pages(source, SampleSize(4, rows=100)) != found


def test_of_a_large_sample_several_pages_are_at_each_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.stages.verify.stage._PLACES", 4)
    with closing(SqlSource(source_url(notes(tmp_path)))) as source:
        found = pages(source, SampleSize(3, rows=200))
        rows = rows_of(source, found)
    assert 100 <= len(rows) <= 260
    assert len(set(rows)) == len(rows)
    assert sum(row - 1 not in rows for row in rows) <= 5


def test_a_sample_of_all_rows_is_all_pages(source: SqlSource) -> None:
    found = pages(source, SampleSize(7, share=Fraction(1)))
    assert [page.number for page in found] == list(range(1, len(found) + 1))
    assert (found[0].after, found[-1].upto) == (None, None)


@pytest.mark.parametrize(
    ("sample", "rows", "total", "wanted"),
    [
        (SampleSize(1, share=Fraction(1, 100)), 5000, 9000, 50),
        (SampleSize(1, share=Fraction(1, 200)), 1001, 1001, 6),
        (SampleSize(1, share=Fraction(1, 100)), 3, 9000, 1),
        (SampleSize(1, share=Fraction(1)), 77, 77, 77),
        (SampleSize(1, share=Fraction(1)), 0, 77, 0),
        (SampleSize(1, rows=1000), 6000, 8000, 750),
        (SampleSize(1, rows=1000), 10, 20, 10),
    ],
)
def test_how_many_rows_a_sample_wants(sample: SampleSize, rows: int, total: int, wanted: int) -> None:
    assert sample.wanted(rows, total) == wanted


def test_a_sample_is_labelled() -> None:
    assert str(SampleSize(1, share=Fraction("0.5") / 100)) == "0.5%"
    assert str(SampleSize(1, rows=1000)) == "1000 rows"
