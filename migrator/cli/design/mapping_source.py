"""`migrator mapping` with a source at hand: the mapping against its schema, and one row's items."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import click

from migrator.cli.command_line import print_json
from migrator.cli.row_keys import entity_named, row_key
from migrator.mapping.heart.changes import unread_tables
from migrator.mapping.heart.encoder import compile_encoder
from migrator.mapping.heart.items import CompiledEntity, items_for
from migrator.mapping.language.parse import ParsedMapping
from migrator.mapping.show.redaction import json_text
from migrator.model.errors import DIFFERENT, Fault, RowError, SettingsError
from migrator.output.text import item_text, row_tree_lines
from migrator.settings.source import SourceSettings
from migrator.settings.transforms import checked_on, read_mapping, volatile_warnings
from migrator.stages.patterns.question import statement_faults
from migrator.wiring import job

_TABLES_NAMED = 20


def check_on_source(
    url: str, parsed: ParsedMapping, leave: Sequence[str] = ()
) -> tuple[Sequence[Fault], str]:
    """Faults and warnings by the source's schema, and what can be said of a mapping without faults. `leave`: tables that
    have no entity on purpose, with * for anything. Raises: MappingError."""
    with job.open_source(SourceSettings.model_construct(url=url), parsed) as source:
        checked = checked_on(source, parsed)
        refused = list(statement_faults(source, checked.mapping))
        doubts = volatile_warnings(source, parsed, checked)
        unread = unread_tables(source.facts(), checked.plans, source.views())
    faults = [
        parsed.document.fault(
            ("access_patterns", refusal.pattern, "sql", *([refusal.part] if refusal.part else [])),
            refusal.what,
        )
        for refusal in refused
    ]
    faults += _unmapped(
        parsed, [name for name in unread if not any(fnmatchcase(name, glob) for glob in leave)]
    )
    count = len(checked.entities)  # compiled, too: a check is to find whatever stands in the way of items
    return [*checked.warnings, *doubts, *faults], f"{count} entities fit the source"


def _unmapped(parsed: ParsedMapping, unread: Sequence[str]) -> list[Fault]:
    """A warning that names the tables which no entity reads: their rows stay behind."""
    if not unread:
        return []
    named = ", ".join(unread[:_TABLES_NAMED])
    more = f" and {len(unread) - _TABLES_NAMED} more" if len(unread) > _TABLES_NAMED else ""
    what = f"{len(unread)} table(s) of the source have no entity: {named}{more}"
    advice = "map them, or name them in the job when they stay on purpose: cutover: {leave: […]}"
    return [parsed.document.fault(("entities",), f"{what}; {advice}", warning=True)]


def try_(file: Path, source: str, entity: str, keys: tuple[str, ...], show_code: bool, as_json: bool) -> int:
    """The exit code of `migrator mapping try`."""
    parsed = read_mapping(file)
    if not keys and not show_code:
        raise SettingsError("name a row: --key 42, or --key a=1 --key b=2; or give --show-code")
    with job.open_source(SourceSettings.model_construct(url=source), parsed) as opened:
        compiled = entity_named(checked_on(opened, parsed), entity)
        if show_code:
            return _show_code(compiled, as_json=as_json)
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


def _show_code(entity: CompiledEntity, *, as_json: bool) -> int:
    encoder = compile_encoder(entity)
    code = None if encoder is None else encoder.code
    if as_json:
        print_json({"entity": entity.name, "code": code})
    elif code is None:
        why = "a transform, objects in S3, or attributes that are keys of an index by their names"
        click.echo(f"{entity.name} has no such function: its items need {why}; items_for() makes them")
    else:
        click.echo(code, nl=False)
    return 0
