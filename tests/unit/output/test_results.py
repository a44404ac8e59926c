"""What `migrator verify` prints of its result."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from migrator.model.journal import Run, RunIdentity, Tally
from migrator.model.results import StoredRead, VerifyResult
from migrator.output.runs import print_verify
from tests import pins


@pytest.mark.parametrize(
    "findings",
    [{}, {"different": 8}],
    ids=["agreed-later", "different"],
)
def test_differences_that_went_away_are_told_where_the_verdict_is_clean(findings: dict[str, int]) -> None:
    tally = Tally(rows=10, items=10, different=8)
    run = Run(1, RunIdentity("verify", "shop", "table", "revision"), "done", "2026-01-01T00:00:00Z")
    printed = io.StringIO()
    result = VerifyResult(run, {"user": tally}, tally, 10, findings, (), 1.0, StoredRead("one scan"))
    print_verify(Console(file=printed, width=120), result)
    assert pins.said(printed.getvalue(), "scan")
    assert pins.said(printed.getvalue(), "told")
    assert ("agreed" in printed.getvalue()) == (not findings)
