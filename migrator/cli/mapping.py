"""`migrator mapping`: look at a mapping file before anything moves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from migrator import wiring
from migrator.cli.command_line import Branch
from migrator.cli.options import json_option
from migrator.cli.row_keys import entity_named, row_key
from migrator.errors import CLEAN, DIFFERENT, WRONG_USE, Fault, MappingError, RowError, SettingsError
from migrator.mapping.check import check_form
from migrator.mapping.items import items_for
from migrator.mapping.schema import mapping_schema
from migrator.mapping.shown_values import json_text
from migrator.report.faults import FAULT_FORMS
from migrator.report.shapes import item_text, row_tree_lines
from migrator.source_settings import SourceSettings
from migrator.stages.statements import statement_faults

_FILE = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
_SOURCE = (
    "URL of the source, such as postgresql://user@host/shop, mysql://user@host/shop or sqlite:///shop.db."
)


@click.group(cls=Branch)
def mapping() -> None:
    """Check mapping files and try them on single rows."""


@mapping.command()
@json_option
def schema(as_json: bool) -> int:
    """Print the JSON Schema of mapping files, so that editors complete them and CI validates them.

    It is JSON with --json and without.
    """
    click.echo(json.dumps(mapping_schema(), ensure_ascii=False, indent=2))
    return 0


@mapping.command()
@click.argument("files", type=click.Path(path_type=Path), metavar="FILE…", nargs=-1, required=True)
@click.option(
    "--source", envvar="MIGRATOR_SOURCE_URL", help=f"{_SOURCE} Without it only the form is checked."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(sorted(FAULT_FORMS)),
    default="text",
    show_default=True,
    help="github: annotations of a pull request.",
)
@json_option
def check(files: tuple[Path, ...], source: str | None, form: str, as_json: bool) -> int:
    """Report every fault of mapping FILEs at once, against the real schema when a source is given.

    Exit code 0: no faults (warnings are printed); 2: faults.
    """
    found = [(file, *_examined(file, source)) for file in files]
    wrong = sum(not fault.warning for _, faults, _ in found for fault in faults)
    if as_json or form == "json":
        click.echo("\n".join(FAULT_FORMS["json"]([fault for _, faults, _ in found for fault in faults])))
        return WRONG_USE if wrong else CLEAN
    for file, faults, verdict in found:
        for line in FAULT_FORMS[form](faults):
            click.echo(line, err=form == "text")
        warnings = sum(fault.warning for fault in faults)
        said = f"{file}: {verdict or f'{len(faults) - warnings} fault(s)'}, {warnings} warning(s)"
        click.echo(said, err=not verdict)
    return WRONG_USE if wrong else CLEAN


def _examined(file: Path, source: str | None) -> tuple[Sequence[Fault], str]:
    """All faults of the file, and what can be said of it where it has none ('' otherwise)."""
    try:
        faults, verdict = _found(file, source)
    except MappingError as error:
        return error.faults, ""
    return faults, "" if any(not fault.warning for fault in faults) else verdict


def _found(file: Path, url: str | None) -> tuple[Sequence[Fault], str]:
    """Faults and warnings, and what can be said of a mapping without faults."""
    parsed = wiring.read_mapping(file)
    if url is None:
        return check_form(parsed), "its form is right; give --source to check it against the schema"
    with wiring.open_source(SourceSettings(url), parsed) as source:
        checked = wiring.checked_on(source, parsed)
        refused = list(statement_faults(source, checked.mapping))
        doubts = wiring.volatile_warnings(source, parsed, checked)
    faults = [
        parsed.document.fault(
            ("access_patterns", one.pattern, "sql", *([one.part] if one.part else [])), one.what
        )
        for one in refused
    ]
    return [*checked.warnings, *doubts, *faults], f"{len(checked.entities)} entities fit the source"


@mapping.command(name="try")
@_FILE
@click.option("--source", envvar="MIGRATOR_SOURCE_URL", required=True, help=_SOURCE)
@click.option("--entity", required=True, help="The entity to build.")
@click.option(
    "--key", "keys", multiple=True, required=True, help="The row's key: 42, or --key a=1 --key b=2."
)
@json_option
def try_(file: Path, source: str, entity: str, keys: tuple[str, ...], as_json: bool) -> int:
    """Print one row tree and the items that it becomes."""
    parsed = wiring.read_mapping(file)
    with wiring.open_source(SourceSettings(source), parsed) as opened:
        compiled = entity_named(wiring.checked_on(opened, parsed), entity)
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
