"""Findings for people and for programs, with or without the parts of keys that could name a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.console import Console

from migrator.mapping.shown_keys import integers_of, masked_keys
from migrator.model import Template
from migrator.ports import Finding
from migrator.report.inert import plain

SHOWN = 20
"""How many findings a command prints by itself."""


def masked(finding: Finding, templates: Sequence[Template]) -> Finding:
    """The finding with masked keys, also in its reason; `templates` are those of the mapping's keys."""
    known = integers_of(finding.source_key)
    return replace(
        finding,
        source_key=masked_keys(finding.source_key, ()),
        item_key=masked_keys(finding.item_key, templates, known),
        reason=masked_keys(finding.reason, templates, known),
        owner=masked_keys(finding.owner, (), known),
    )


def print_findings(console: Console, findings: Sequence[Finding], counts: Mapping[str, int]) -> None:
    """The first findings, one line each, and how many more there are."""
    for finding in findings[:SHOWN]:
        console.print(finding_line(finding), markup=False, highlight=False, soft_wrap=True)
    more = sum(counts.values()) - min(len(findings), SHOWN)
    if more > 0:
        console.print(f"… and {more:,} more: see them with `migrator findings JOB --all`", markup=False)


def finding_line(finding: Finding) -> str:
    """kind, entity and row, item, attribute, reason: one line, whatever stands in them."""
    parts = [f"{finding.kind}:", finding.entity, finding.source_key]
    if finding.item_key or finding.item_type:
        parts += ["item", finding.item_type, finding.item_key]
    if finding.attribute:
        parts += ["attribute", finding.attribute]
    return plain(f"{' '.join(part for part in parts if part)}: {finding.reason}")
