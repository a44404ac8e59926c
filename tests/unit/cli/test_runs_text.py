"""What is said while pages are planned, on a terminal and in the log."""

from __future__ import annotations

import io
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from structlog.testing import capture_logs

from migrator.cli.runs_text import (
    LINE_S,
    Bars,
    Lines,
    print_backfill_verdict,
    print_verify,
    print_verify_verdict,
)
from migrator.mapping.model.journal import Run, RunIdentity, Tally
from migrator.mapping.model.results import BackfillResult, StoredRead, VerifyResult
from migrator.runtime.logs import get_logger
from tests import pins


def test_log_reports_planned_pages_periodically() -> None:
    now = [0.0]
    lines = Lines(get_logger("test"), clock=lambda: now[0])
    with capture_logs() as logs:
        for number in range(1, 31):
            lines.page_planned("order", number)
            now[0] += LINE_S / 10
        lines.entity_started("order", 0, 100)
    assert [(one["event"], one.get("pages")) for one in logs] == [
        ("pages_planned", 11),
        ("pages_planned", 21),
        ("entity_started", None),
    ]


def test_small_table_logs_nothing_of_its_planning() -> None:
    with capture_logs() as logs:
        lines = Lines(get_logger("test"), clock=lambda: 0.0)
        lines.page_planned("order", 1)
        lines.entity_started("order", 0, 1)
    assert [one["event"] for one in logs] == ["entity_started"]


def test_log_reports_rows_done_periodically_and_pages_on_debug() -> None:
    now = [0.0]
    lines = Lines(get_logger("test"), clock=lambda: now[0])
    lines.entity_started("order", 100, 1000)
    with capture_logs() as logs:
        for number in range(1, 22):
            now[0] += LINE_S / 10
            lines.page_done("order", number, Tally(rows=10), 5)
    told = [(one["rows_done"], one["rows_total"]) for one in logs if one["log_level"] == "info"]
    assert told == [(200, 1000), (300, 1000)]
    assert sum(one["event"] == "page_done" for one in logs) == 21


def test_terminal_shows_planned_pages_until_rows_are_copied() -> None:
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


def test_terminal_shows_one_bar_for_two_reads_without_speed() -> None:
    screen = StringIO()
    bars: Any = Bars(Console(file=screen, force_terminal=True, width=100))
    with bars:
        bars.entity_started("(table)", 0, 10)
        bars.entity_done("(table)")
        bars.entity_started("order", 0, 8)
        bars.page_done("order", 1, Tally(rows=8), 5)
        bars.entity_started("(table)", 0, 10)
        assert [task.description for task in bars._bars.tasks] == ["order", "(table)"]
    assert "0 rows/s" not in screen.getvalue()


@pytest.mark.parametrize("findings", [{}, {"different": 8}], ids=["agreed-later", "different"])
def test_resolved_differences_are_shown_with_a_clean_verdict(findings: dict[str, int]) -> None:
    tally = Tally(rows=10, items=10, different=8)
    run = Run(1, RunIdentity("verify", "shop", "table", "revision"), "done", "2026-01-01T00:00:00Z")
    printed = io.StringIO()
    result = VerifyResult(run, {"user": tally}, tally, 10, findings, (), 1.0, StoredRead("one scan"))
    console = Console(file=printed, width=120)
    print_verify(console, result)
    print_verify_verdict(console, result)
    assert pins.said(printed.getvalue(), "scan")
    assert pins.said(printed.getvalue(), "told")
    assert ("agreed" in printed.getvalue()) == (not findings)


@pytest.mark.parametrize(("refused", "allowed"), [(0, 0), (3, 0), (3, 3), (4, 3)])
def test_the_verdict_of_a_backfill_is_that_of_its_exit_code(refused: int, allowed: int) -> None:
    tally = Tally(rows=10, items=10 - refused, refused=refused)
    run = Run(1, RunIdentity("backfill", "shop", "table", "revision"), "done", "2026-01-01T00:00:00Z")
    findings = {"refused": refused} if refused else {}
    printed = io.StringIO()
    result = BackfillResult(run, {"user": tally}, tally, findings, 1.0)
    print_backfill_verdict(Console(file=printed, width=120), result, allowed)
    assert printed.getvalue().startswith("not complete" if refused > allowed else "complete")
    assert ("3 refused" in printed.getvalue()) == (refused == 3)
