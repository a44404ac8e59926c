"""What is said while pages are planned, on a terminal and in the log."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console
from structlog.testing import capture_logs

from migrator.output.runs import PLANNING_S, Bars, Lines
from migrator.runtime.logs import get_logger


def test_the_log_is_told_now_and_then_how_many_pages_are_planned() -> None:
    now = [0.0]
    lines = Lines(get_logger("test"), clock=lambda: now[0])
    with capture_logs() as logs:
        for number in range(1, 31):
            lines.page_planned("order", number)
            now[0] += PLANNING_S / 10
        lines.entity_started("order", 0, 100)
    assert [(one["event"], one.get("pages")) for one in logs] == [
        ("pages_planned", 11),
        ("pages_planned", 21),
        ("entity_started", None),
    ]


def test_a_small_table_says_nothing_of_its_planning() -> None:
    with capture_logs() as logs:
        lines = Lines(get_logger("test"), clock=lambda: 0.0)
        lines.page_planned("order", 1)
        lines.entity_started("order", 0, 1)
    assert [one["event"] for one in logs] == ["entity_started"]


def test_a_terminal_shows_the_pages_that_are_planned_until_rows_are_copied() -> None:
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    bars: Any = Bars(console)
    with bars:
        bars.page_planned("order", 1)
        bars.page_planned("order", 1234)
        bars._bars.refresh()
        assert "order: planning" in screen.getvalue()
        assert "1234" in screen.getvalue()
        bars.entity_started("order", 0, 10)
        assert [task.description for task in bars._bars.tasks] == ["order"]
