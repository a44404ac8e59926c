"""The report in a terminal, against a golden text that was read by a person."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from migrator.features.report.work import print_report
from migrator.mapping.model.report import ReportModel
from migrator.runtime.values import replace
from tests import pins
from tests.support_report import MODEL, PRICE
from tests.support_report_hostile import hostile, many

GOLDEN = Path(__file__).parents[3] / "golden" / "report" / "terminal.txt"


def printed(model: ReportModel, *, colours: bool = False) -> str:
    out = io.StringIO()
    print_report(
        Console(file=out, width=120, force_terminal=colours, color_system="standard" if colours else None),
        model,
    )
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def test_it_prints_the_golden_text() -> None:
    assert printed(MODEL) == GOLDEN.read_text(encoding="utf-8")


def test_what_is_older_than_a_move_is_marked() -> None:
    moved = replace(MODEL.patterns[1], compared=0, same=0, different=0, before_move=2_400)
    text = printed(replace(MODEL, groups=(replace(PRICE, before_move=True),), patterns=(moved,)))
    assert pins.said(text)
    assert "never" not in text
    assert "not counted: get_product (2,400)" in text


def test_control_sequences_of_a_terminal_are_written_out() -> None:
    text = printed(hostile())
    for unseen in "\x1b\x00\x07\u202e\u2028\ud800":
        assert unseen not in text
    assert r"\u001b[31mred" in text
    text.encode()


def test_markup_of_the_library_is_text() -> None:
    assert "[31m" in printed(hostile(), colours=True)


def test_of_many_kinds_only_the_first_are_shown() -> None:
    text = printed(many(100))
    assert text.count("such as row") <= 5
    assert len(text.splitlines()) < 120
