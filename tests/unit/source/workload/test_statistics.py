"""Figures of tables at the limit up to which a table is read as a whole."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from migrator.mapping.model.questions import NumberSpan, Wanted
from migrator.source.workload.statistics import figures_of
from tests.support_design import source_with

MUGS = (
    "CREATE TABLE mug (id INTEGER PRIMARY KEY, price INTEGER); INSERT INTO mug VALUES (1, 5), (2, 7), (3, 9)"
)


@pytest.mark.parametrize(
    ("rows_exact", "exact", "spans"),
    [
        (3, frozenset({"mug"}), {("mug", "id"): NumberSpan(1, 3), ("mug", "price"): NumberSpan(5, 9)}),
        (2, frozenset(), {("mug", "id"): NumberSpan(1, 3)}),
    ],
)
def test_table_of_exactly_the_limit_is_read_whole(
    tmp_path: Path, rows_exact: int, exact: frozenset[str], spans: dict[tuple[str, str], NumberSpan]
) -> None:
    with source_with(tmp_path, MUGS) as source:
        wanted = Wanted({"mug": ("id", "price")}, (), ())
        figures = figures_of(
            partial(source.first_row_of_each, what="figures"), source.facts(), wanted, rows_exact
        )
    assert (figures.exact, figures.spans, figures.rows) == (exact, spans, {"mug": 3})
