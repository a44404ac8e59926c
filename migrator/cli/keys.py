"""The keys that findings are printed with: masked, or whole where somebody says --show-keys."""

from __future__ import annotations

from collections.abc import Sequence

import click

from migrator.errors import MigratorError
from migrator.mapping.shown_keys import key_templates
from migrator.model import Mapping, Template
from migrator.ports import Finding
from migrator.report.findings import masked
from migrator.settings import Job
from migrator.transforms import read_mapping


def as_asked(found: Sequence[Finding], mapping: Mapping | None, *, whole_keys: bool) -> list[Finding]:
    """The findings as they may be printed. Without a mapping no text of a key is known to name nobody."""
    templates: Sequence[Template] = () if mapping is None else key_templates(mapping)
    return list(found) if whole_keys else [masked(one, templates) for one in found]


def mapping_of(job: Job) -> Mapping | None:
    """The job's mapping as far as it can be read: findings are shown even where it cannot be any more."""
    try:
        return read_mapping(job.mapping).mapping
    except MigratorError:
        return None


def tell_masked(printed: Sequence[Finding], found: Sequence[Finding]) -> None:
    """One line on standard error where a key was masked."""
    if list(printed) != list(found)[: len(printed)]:
        click.echo("…: a part of a key that may name somebody; --show-keys prints keys whole", err=True)
