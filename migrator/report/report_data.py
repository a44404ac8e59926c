"""A report for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from migrator.report_results import ReportModel


def report_data(model: ReportModel) -> dict[str, Any]:
    """The report as plain values, in the order in which people see it; seconds and milliseconds are numbers."""
    plain = asdict(model)
    verdict = plain.pop("verdict")
    head = {
        name: plain.pop(name)
        for name in ("job", "journal", "table", "revision", "version", "made_at", "since_s")
    }
    patterns = [
        one | {"age_s": made.age_s} for one, made in zip(plain.pop("patterns"), model.patterns, strict=True)
    ]
    return {**head, "verdict": verdict, "never_compared": model.never_compared, "patterns": patterns, **plain}
