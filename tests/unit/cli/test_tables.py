from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from migrator.cli.text import FittedTable
from tests import pins

NAME = "list_products_by_discontinued_category_id"
CELLS = (NAME, "16.4 ms", "1,204", "every reader acts by it since Tuesday", "-")


def lines(width: int, *rows: tuple[str, ...], title: str = "") -> list[str]:
    table = FittedTable(box=None, pad_edge=False, title=title or None, title_justify="left")
    table.add_column("pattern")
    for number in ("DynamoDB p50", "different"):
        table.add_column(number, justify="right")
    for words in ("readers", "next"):
        table.add_column(words)
    for row in rows:
        table.add_row(*map(Text, row))
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 100, 120, 200])
def test_nothing_is_cut_at_any_width(width: int) -> None:
    told = lines(width, CELLS, ("get_user", "1.0 ms", "0", "", "complete"))
    assert all(len(line) <= width for line in told)
    text = "".join("".join(told).split())
    for word in (NAME, "16.4", "1,204", "every", "reader", "acts", "since", "Tuesday", "complete"):
        assert word in text
    assert "…" not in text


def test_name_that_is_too_wide_has_its_own_line() -> None:
    told = lines(72, CELLS, ("get_user", "1.0 ms", "0", "", "complete"))
    row = told.index(NAME) + 1
    assert told[row].split()[:2] == ["16.4", "ms"]
    heading, long, short = (
        next(line for line in told[at:] if word in line)
        for at, word in ((0, "different"), (row, "1,204"), (row, "1.0 ms"))
    )
    assert heading.index("different") + len("different") == long.index("1,204") + len("1,204")
    assert short.startswith("get_user  ")


@pytest.mark.parametrize("width", [110, 120, 200])
def test_names_and_numbers_stay_whole_in_columns(width: int) -> None:
    told = lines(width, CELLS)
    row = next(line for line in told if NAME in line)
    assert ("16.4 ms" in row, "1,204" in row) == (True, True)
    assert told[0].startswith("pattern")


def test_a_column_takes_what_the_others_leave() -> None:
    assert lines(120, CELLS)[-1] == pins.text()


def test_a_table_that_does_not_fit_is_a_block_a_row() -> None:
    assert lines(38, CELLS, ("get_user", "1.0 ms", "0", "", "complete"), title="Moves") == [
        "Moves",
        "list_products_by_discontinued_category",
        "_id",
        "  DynamoDB p50 16.4 ms; different",
        pins.text(),
        "  it since Tuesday; next -",
        "get_user",
        "  DynamoDB p50 1.0 ms; different 0;",
        "  next complete",
    ]


def test_a_table_without_rows_is_its_heading() -> None:
    assert lines(80) == ["pattern  DynamoDB p50  different  readers  next"]
