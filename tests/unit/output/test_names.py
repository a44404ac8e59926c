"""Names of access patterns are whole in every table, however narrow the terminal, so that they can be copied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from migrator.model.evidence import PatternPhase, State
from migrator.output.cutover import PhaseView, views_table
from migrator.output.patterns import print_replay
from migrator.output.report.terminal import print_report
from tests.support_report import MODEL
from tests.unit.output.test_replay import result

NAME = "all_invoices_of_a_customer_between_two_days"


def phases(console: Console) -> None:
    views = [PhaseView(PatternPhase(name, State("live"), 3, 0.0), 2, 1) for name in (NAME, "short")]
    console.print(views_table(views, 100.0))


def replayed(console: Console) -> None:
    given = result(found=False)
    (one,) = given.patterns
    print_replay(console, replace(given, patterns=[replace(one, pattern=replace(one.pattern, name=NAME))]))


def reported(console: Console) -> None:
    print_report(console, replace(MODEL, patterns=(replace(MODEL.patterns[0], name=NAME),), groups=()))


@pytest.mark.parametrize("width", [50, 60, 80, 100])
@pytest.mark.parametrize("told", [phases, replayed, reported])
def test_a_name_is_whole_in_each_of_its_tables(told: Callable[[Console], None], width: int) -> None:
    screen, wide = StringIO(), StringIO()
    told(Console(file=screen, width=width))
    told(Console(file=wide, width=400))
    assert screen.getvalue().count(NAME) == wide.getvalue().count(NAME) > 0
