"""Commands of the runbook and of the tutorial run as printed, from the first to the last, and say what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.journeys.console import Command, with_blocks
from tests.journeys.runbook import PAGES, RUNBOOK, TUTORIAL, Page, played

DIFFERS = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|\+00:00| UTC)?", "TIME"),
    (r"\b[\d,.]+ (?:ms|s|min|rows/s)(?=\W|$)", "TOOK"),
    (r"\bby \S+@\S+", "by WHO"),
    (r"\bon \S+:\d+", "on WHERE"),
    # Requests for what another one has deleted, or that came when eight others were being served.
    (r"(?:, )?\b\d+ × (?:4\d\d|not asked)\b", ""),
    (r"\d+\.\d\.\d+|\d+\.\d+(?= +ok)|\bnow\b", "VERSION"),
)
"""What differs from one run to the next, whatever is done."""
COUNTS = (r"\d[\d,.]*(?= |$|\)|;|%|:|/)", "N")
"""Beside it, once customers change things."""


def told(command: Command, *, is_busy: bool) -> list[str]:
    """The output by lines, without what differs; a table of evidence by words, since it wraps as its words are long."""
    text = command.said
    for pattern, name in (*DIFFERS, *([COUNTS] if is_busy else [])):
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return sorted(text.split()) if text.lstrip().startswith("evidence") else lines


def _name(page: Page) -> str:
    return page.file.stem


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_command_prints_what_the_page_shows(page: Page, tmp_path: Path) -> None:
    """Twice where need be: what customers of a few seconds prove depends on what else the machine does."""
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        differs = _differing(page.blocks, played(page, folder))
        if not differs:
            return
        print(f"run {number}: {differs}")
    pytest.fail(differs)


def _differing(page: list[list[Command]], again: list[list[Command]]) -> str:
    """The first command that says something else than the page; '' where none does."""
    is_busy = False
    for written, said in zip(
        (c for block in page for c in block), (c for block in again for c in block), strict=True
    ):
        is_busy = is_busy or "load.py" in written.text
        if told(said, is_busy=is_busy) != told(written, is_busy=is_busy):
            return f"{written.text}\nit said:\n{said.said}\nand the page:\n{written.said}"
    return ""


@pytest.mark.parametrize(("page", "commands"), [(RUNBOOK, 50), (TUTORIAL, 20)], ids=["runbook", "tutorial"])
def test_page_is_rewritten_with_nothing_else_changed(page: Page, commands: int) -> None:
    assert with_blocks(page.text, page.blocks) == page.text
    assert sum(map(len, page.blocks)) > commands


def test_a_reader_of_the_tutorial_saves_the_files_that_it_gives() -> None:
    files = dict(TUTORIAL.files)
    assert list(files) == ["northwind.sql", "questions.sql", "changes.sql", "spoil.py"]
    assert files["changes.sql"].startswith("UPDATE orders SET status = 'shipped'")


@pytest.mark.parametrize(
    ("said", "again", "same"),
    [
        ("took 1.2 s, 3 rows", "took 0.4 s, 3 rows", True),
        ("took 1.2 s, 3 rows", "took 1.2 s, 4 rows", False),
        ("clean", "not clean", False),
        ("by ann@one", "by bob@two", True),
    ],
)
def test_times_may_differ_and_facts_may_not(said: str, again: str, same: bool) -> None:
    one, other = (told(Command("x", text), is_busy=False) for text in (said, again))
    assert (one == other) is same
