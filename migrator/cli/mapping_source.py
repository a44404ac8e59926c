"""`migrator mapping` with a source at hand: the mapping against its schema, and one row's items."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from migrator.cli.options import entity_named, row_key
from migrator.mapping.heart.items import items_for
from migrator.mapping.language.parse import ParsedMapping
from migrator.mapping.show.redaction import json_text
from migrator.model.errors import DIFFERENT, Fault, RowError, SettingsError
from migrator.output.text import item_text, row_tree_lines
from migrator.settings.source import SourceSettings
from migrator.settings.transforms import read_mapping
from migrator.stages.patterns.question import statement_faults
from migrator.wiring import job


def found_on(url: str, parsed: ParsedMapping) -> tuple[Sequence[Fault], str]:
    """Faults and warnings by the source's schema, and what can be said of a mapping without faults. Raises: MappingError."""
    with job.open_source(SourceSettings(url), parsed) as source:
        checked = job.checked_on(source, parsed)
        refused = list(statement_faults(source, checked.mapping))
        doubts = job.volatile_warnings(source, parsed, checked)
    faults = [
        parsed.document.fault(
            ("access_patterns", one.pattern, "sql", *([one.part] if one.part else [])), one.what
        )
        for one in refused
    ]
    return [*checked.warnings, *doubts, *faults], f"{len(checked.entities)} entities fit the source"


def try_(file: Path, source: str, entity: str, keys: tuple[str, ...], as_json: bool) -> int:
    """The exit code of `migrator mapping try`."""
    parsed = read_mapping(file)
    with job.open_source(SourceSettings(source), parsed) as opened:
        compiled = entity_named(job.checked_on(opened, parsed), entity)
        rows = opened.read_rows(compiled.plan, [row_key(compiled, keys)])
    if not rows:
        raise SettingsError(f"{entity}: there is no row with this key (or its where: leaves it out)")
    try:
        items = items_for(compiled, rows[0])
    except RowError as error:
        if as_json:
            raise
        click.echo("\n".join(row_tree_lines(compiled.plan, rows[0])))
        click.echo(f"refused: {error}{f' ({error.private})' if error.private else ''}", err=True)
        return DIFFERENT
    if as_json:
        click.echo(json_text(items))
        return 0
    click.echo("\n".join(row_tree_lines(compiled.plan, rows[0])))
    click.echo(f"becomes {len(items)} item(s)")
    for item in items:
        click.echo(item_text(item))
    return 0
