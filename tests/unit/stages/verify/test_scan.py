"""Items that no row makes, and totals of rows and items."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import check_mapping
from migrator.mapping.model.edges import Rows
from migrator.mapping.model.facts import Column, EntityPlan, SchemaFacts, TableFacts
from migrator.mapping.model.journal import RunIdentity
from migrator.mapping.model.table import KeyAttribute, SourceKey, TableDesign
from migrator.runtime.errors import TooSlowError
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.backfill.stage import estimate
from migrator.stages.verify.scan import ScanTotals, Tracer, check_totals
from tests import pins
from tests.fakes.source import MemorySource
from tests.support_mapping import parse_mapping
from tests.support_source import INTEGER, column


def test_a_foreign_item_has_a_next_step() -> None:
    no_rows = cast("Rows", None)  # an item that names no row asks for none
    table = TableDesign("Shop", (KeyAttribute("PK"), KeyAttribute("SK")), "type")
    (finding,) = Tracer(no_rows, {}, table).untraced([{"PK": "a", "SK": "b"}])
    assert (finding.kind, pins.said(finding.reason, "next")) == ("foreign", True)


MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities: {seen: {items: {Seen: {key: ["SEEN#{id}", SEEN], keep: [size]}}}}
"""
TABLE = TableFacts("seen", "seen", (column("id", INTEGER, nullable=False), column("size", INTEGER)), ("id",))


class Hurried(MemorySource):
    """Neither counts nor adds up nor jumps far."""

    def count(self, plan: EntityPlan) -> int:
        raise TooSlowError("too slow")

    def rows_about(self, plan: EntityPlan) -> int:
        return 900

    def sums(self, plan: EntityPlan, columns: Sequence[Column]) -> dict[str, Any]:
        raise TooSlowError("too slow")

    def page_bounds(
        self, plan: EntityPlan, page_rows: int, after: SourceKey | None = None, upto: SourceKey | None = None
    ) -> Iterator[SourceKey]:
        if page_rows > 100:
            raise TooSlowError("too slow")
        return super().page_bounds(plan, page_rows, after, upto)


SOURCE = Hurried(
    SchemaFacts("sqlite", {"seen": TABLE}, loosely_typed=True),
    {"seen": [{"id": n, "size": 1} for n in range(1000)]},
)
ENTITIES = check_mapping(parse_mapping(MAPPING, "m.yaml"), SOURCE.facts()).entities


def test_estimate_reads_only_first_rows_if_jumps_take_too_long() -> None:
    found = estimate(SOURCE, ENTITIES, 0.0)
    assert (found.rows, found.items) == (900, 900)


def test_totals_that_take_too_long_are_reported_and_end_nothing() -> None:
    journal = SqlJournal.in_memory()
    run = journal.start_run(RunIdentity("verify", "shop", "table-1", "rev1"))
    told = check_totals(SOURCE, journal, run, ENTITIES, ScanTotals())
    assert [one.what for one in told] == ["Seen", pins.text()]
    assert all("statement_timeout_s" in one.why for one in told)
    assert journal.finding_counts(run) == {}
    journal.close()


@pytest.mark.parametrize("copies", [1, 3])
def test_totals_of_many_digits_are_compared_exactly(copies: int) -> None:
    large = 10**39 + 7
    mapping = MAPPING.replace("SEEN#{id}", "SEEN#{id}#{*|shard:3}" if copies > 1 else "SEEN#{id}")
    rows = [{"id": 1, "size": large}, {"id": 2, "size": 1}]
    source = MemorySource(SchemaFacts("sqlite", {"seen": TABLE}, loosely_typed=True), {"seen": rows})
    entities = check_mapping(parse_mapping(mapping, "m.yaml"), source.facts()).entities
    journal = SqlJournal.in_memory()
    run = journal.start_run(RunIdentity("verify", "shop", "table-1", "rev1"))
    for missing in (0, 1):
        total = Decimal(copies * (large + 1) - missing)
        scanned = ScanTotals(
            2 * copies, Counter({("seen", "Seen"): 2 * copies}), {("seen", "Seen", "size"): total}
        )
        assert check_totals(source, journal, run, entities, scanned) == []
        assert journal.finding_counts(run) == ({"sum": 1} if missing else {})
    journal.close()


@pytest.mark.parametrize(
    ("declared", "sizes", "total", "left_out", "findings"),
    [
        ("numeric", "(0.1), (0.2), (0.3)", "0.6", 1, {}),
        ("numeric", "(1), (9007199254740993)", "9007199254740994", 0, {}),
        ("numeric", "(1), (9007199254740993)", "9007199254740993", 0, {"sum": 1}),
        ("decimal(10,2)", "(0.1), (0.2), (0.3)", "0.6", 0, {}),
        ("decimal(10,2)", "(0.1), (0.2), (0.3)", "0.61", 0, {"sum": 1}),
        ("decimal(14,2)", "(0.1), (999999999999.99)", "1000000000000.09", 1, {}),
    ],
)
def test_a_sum_of_floats_is_compared_where_the_declared_decimals_make_it_exact(
    tmp_path: Path, declared: str, sizes: str, total: str, left_out: int, findings: dict[str, int]
) -> None:
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.execute(f"CREATE TABLE seen (id integer PRIMARY KEY, size {declared})")
        connection.execute(f"INSERT INTO seen (size) VALUES {sizes}")
        connection.commit()
    source, journal = SqlSource(source_url(f"sqlite:///{tmp_path / 's.db'}")), SqlJournal.in_memory()
    entities = check_mapping(parse_mapping(MAPPING, "m.yaml"), source.facts()).entities
    run = journal.start_run(RunIdentity("verify", "shop", "table-1", "rev1"))
    rows = sizes.count("(")
    scanned = ScanTotals(rows, Counter({("seen", "Seen"): rows}), {("seen", "Seen", "size"): Decimal(total)})
    assert len(check_totals(source, journal, run, entities, scanned)) == left_out
    assert journal.finding_counts(run) == findings
    source.close()
    journal.close()
