"""`migrator mapping` with a source: the mapping against its schema, a row's items, and columns that items restore."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import click

from migrator.cli.command_line import print_json
from migrator.mapping.check.check import Checked, check_mapping
from migrator.mapping.check.patterns import question_warnings, sparse_keys
from migrator.mapping.inverse.rows import TableInverse, compile_inverse
from migrator.mapping.items.changes import unread_tables
from migrator.mapping.items.items import CompiledEntity, items_for
from migrator.mapping.items.program import compile_program, program_lines
from migrator.mapping.items.templates import format_width
from migrator.mapping.language.document import where_of
from migrator.mapping.language.documents import facts_of
from migrator.mapping.language.parse import ParsedMapping
from migrator.mapping.language.plan import Reference, references_of
from migrator.mapping.language.redaction import json_text
from migrator.mapping.model.edges import Database, Source
from migrator.mapping.model.facts import Column, EntityPlan, TableFacts, tables_of
from migrator.mapping.model.questions import Clauses
from migrator.runtime.errors import CLEAN, DIFFERENT, Fault, RowError, SettingsError, amount, verb
from migrator.settings.job import SourceSettings, is_job, load_job
from migrator.settings.transforms import checked_on, load_transforms, read_mapping, volatile_warnings
from migrator.stages.patterns.question import statement_faults
from migrator.stages.session.source import open_source

if TYPE_CHECKING:
    from migrator.stages.session.workload import Workload

_TABLES_NAMED = 20


def check_on_source(
    url: str, parsed: ParsedMapping, leave: Sequence[str] = ()
) -> tuple[Sequence[Fault], str]:
    """Faults and warnings by the source's schema, and a summary for a mapping without faults.

    `leave`: tables without an entity on purpose, with * as wildcard. Raises: MappingError.
    """
    from migrator.stages.session.workload import Workload  # only this check parses SQL

    with open_source(_settings(url), parsed) as source:
        # Old tables of DynamoDB's are declared, and checked without a source.
        workload = Workload(cast("Database", source), source.facts())
        checked = checked_on(source, parsed, workload.facts)
        clauses = workload.clauses(checked.mapping)
        faults = [
            parsed.document.fault(
                ("access_patterns", pattern, "sql", *([part] if part else [])),
                f"{name} ({what})" if name else what,
            )
            for (pattern, part), what in statement_faults(workload.source, checked.mapping).items()
            for name in [workload.unknown_name(checked.mapping, pattern, part)]
        ]
        doubts = volatile_warnings(source, parsed, checked)
        unread = unread_tables(workload.facts, checked.plans, source.views())
        hidden = list(_hidden(source.hidden_faults, parsed, checked.plans))
        doubts += _of_rows(workload, [*_zeros(parsed, checked.plans), *_unpadded(parsed, checked.plans)])
        doubts += [
            parsed.document.fault(("access_patterns", name, "sql"), what, warning=True)
            for name, what in _nulls(workload, checked, clauses)
        ]
    doubts += question_warnings(checked.mapping, parsed.document, checked.plans, clauses)
    faults += hidden
    faults += _unmapped(
        parsed, [name for name in unread if not any(fnmatchcase(name, glob) for glob in leave)]
    )
    count = len(checked.entities)  # also compiled: a check must find all that prevents items
    return [*checked.warnings, *doubts, *faults], f"{amount(count, 'entity', 'fit')} the source"


def _hidden(
    hidden_faults: Callable[[Sequence[TableFacts]], list[str]],
    parsed: ParsedMapping,
    plans: Sequence[EntityPlan],
) -> Iterator[Fault]:
    entities: dict[str, tuple[EntityPlan, TableFacts]] = {}
    for plan in plans:
        for table in plan.tables:
            entities.setdefault(table.name, (plan, table))
    faults = hidden_faults([table for _, table in entities.values()])
    for (plan, _), what in zip(entities.values(), faults, strict=True):
        if what:
            yield parsed.document.fault(("entities", plan.entity.written), what)


_Doubt: TypeAlias = tuple[tuple[TableFacts, Column, str], Fault]
"""A column and a condition, and the warning if a row meets it."""


def _of_rows(workload: Workload, doubts: Sequence[_Doubt | None]) -> list[Fault]:
    possible = [doubt for doubt in doubts if doubt is not None]
    holds = workload.have_rows([condition for condition, _ in possible])
    return [warning for (_, warning), is_so in zip(possible, holds, strict=True) if is_so]


def _zeros(parsed: ParsedMapping, plans: Sequence[EntityPlan]) -> Iterator[_Doubt | None]:
    for plan in plans:
        for item in plan.entity.items:
            if item.expiry is None or item.expiry.zero:
                continue
            what = f"'{item.expiry.path}' is 0 in some row, and its items count as expired and are not shown"
            advice = "write ttl: {from: …, zero: never}, or zero: expired where they are"
            at = ("entities", plan.entity.written, "items", item.type, "ttl")
            warning = parsed.document.fault(at, f"{what}; {advice}", warning=True)
            yield _of_number(plan, item.expiry.path, "= 0", warning)


def _unpadded(parsed: ParsedMapping, plans: Sequence[EntityPlan]) -> Iterator[_Doubt | None]:
    for plan in plans:
        references: dict[tuple[str, str], Reference] = {}
        for reference in references_of(plan.entity):
            if reference.ref and reference.ref.format and reference.collection is None:
                references.setdefault((reference.path, reference.ref.format), reference)
        for (path, form), reference in references.items():
            width, decimals = format_width(form)
            nines = "9" * (width - decimals - 1 if decimals else width)
            most = f"{nines}.{'9' * decimals}" if decimals else nines
            what = f"'{path}' is negative or above {most} in some row, which the format {form} refuses"
            advice = "write a wider format, or leave these rows out (where:)"
            warning = parsed.document.fault(reference.at, f"{what}; {advice}", warning=True)
            yield _of_number(plan, path, f"NOT BETWEEN 0 AND {most}", warning)


def _of_number(plan: EntityPlan, path: str, condition: str, warning: Fault) -> _Doubt | None:
    alias, _, name = path.rpartition(".")
    tables = tables_of(plan)
    column = tables[alias].column(name) if alias in tables else None
    if column is None or column.sql or column.kind.name not in ("integer", "number", "float"):
        return None
    return (tables[alias], column, condition), warning


def null_doubts(source: Source, checked: Checked) -> Iterator[tuple[str, str]]:
    """(pattern, sentence) for each index that lacks rows of the pattern's SQL, because a key column is NULL.

    Nothing for old DynamoDB tables, which have no SQL.
    """
    if checked.mapping.documents:
        return
    from migrator.stages.session.workload import Workload  # only this check parses SQL

    workload = Workload(cast("Database", source), source.facts())
    yield from _nulls(workload, checked, workload.clauses(checked.mapping))


def _nulls(
    workload: Workload, checked: Checked, clauses: Mapping[tuple[str, str], Clauses]
) -> Iterator[tuple[str, str]]:
    sparse = list(sparse_keys(checked.mapping, checked.plans, clauses))
    holds = workload.have_rows([(table, column, "IS NULL") for _, _, table, column in sparse])
    for (name, index, _, column), is_so in zip(sparse, holds, strict=True):
        if is_so:
            what = f"its SQL returns rows with NULL in '{column.name}', and {index} does not hold them"
            yield (
                name,
                f"{what}; ask with IS NOT NULL, write {{{column.name}|or:…}} into the key, or fill the column",
            )


def _settings(source: str) -> SourceSettings:
    """Settings of a URL, or of a job: old DynamoDB tables do not have URLs."""
    path = Path(source)
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return load_job(path, os.environ).source
    return SourceSettings.model_construct(url=source)


def check_on_declarations(parsed: ParsedMapping, leave: Sequence[str] = ()) -> tuple[Sequence[Fault], str]:
    """Like check_on_source, for old DynamoDB tables, of which only the declarations are known."""
    revised, transforms = load_transforms(parsed)
    facts = facts_of(revised.mapping)
    checked = check_mapping(revised, facts, transforms)
    unread = [
        name
        for name in unread_tables(facts, checked.plans, set())
        if not any(fnmatchcase(name, glob) for glob in leave)
    ]
    count = len(checked.entities)
    return [
        *checked.warnings,
        *_unmapped(parsed, unread),
    ], f"{amount(count, 'entity', 'fit')} the tables that it declares"


def _unmapped(parsed: ParsedMapping, unread: Sequence[str]) -> list[Fault]:
    if not unread:
        return []
    named = ", ".join(unread[:_TABLES_NAMED])
    more = f" and {len(unread) - _TABLES_NAMED} more" if len(unread) > _TABLES_NAMED else ""
    what = (
        f"{amount(len(unread), 'table')} of the source {verb(len(unread), 'have')} no entity: {named}{more}"
    )
    advice = "map them, or name them in the job when they stay on purpose: cutover: {leave: […]}"
    return [parsed.document.fault(("entities",), f"{what}; {advice}", warning=True)]


def try_(file: Path, source: str, entity: str, keys: tuple[str, ...], as_json: bool) -> int:
    # Here: a check waits for no journal, no AWS and no console.
    from migrator.cli.options import entity_named, row_key
    from migrator.cli.text import item_text, row_tree_lines

    parsed = read_mapping(file)
    with open_source(_settings(source), parsed) as opened:
        compiled = entity_named(checked_on(opened, parsed), entity)
        if not keys:
            return _print_program(compiled, as_json=as_json)
        rows = opened.read_rows(compiled.plan, [row_key(compiled, keys)])
    if not rows:
        raise SettingsError(f"{entity}: no row with this key (or its where: excludes it)")
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
    click.echo(f"becomes {amount(len(items), 'item')}")
    for item in items:
        click.echo(item_text(item))
    return 0


def _print_program(entity: CompiledEntity, *, as_json: bool) -> int:
    program = compile_program(entity.mapping, entity.plan)
    lines = [] if isinstance(program, str) else list(program_lines(program))
    if as_json:
        print_json({"entity": entity.name, "program": lines})
    elif isinstance(program, str):
        click.echo(f"{entity.name} has no program: {program}; items_for() makes its items")
    else:
        click.echo("\n".join(lines))
    return 0


# ── `migrator mapping check --invertible` ──


def invertible(files: tuple[Path, ...], source: str | None, as_json: bool) -> int:
    if source is None:
        what = "whether rows come back depends on the types of columns: give --source"
        raise SettingsError(f"mapping check --invertible: {what}")
    results = [(parsed, _tables(parsed, source)) for parsed in map(_mapping, files)]
    if as_json:
        print_json([inverse_data(parsed, table) for parsed, tables in results for table in tables])
    else:
        for parsed, tables in results:
            click.echo("\n".join(inverse_lines(parsed, tables)))
    return CLEAN if all(table.invertible for _, tables in results for table in tables) else DIFFERENT


def _mapping(file: Path) -> ParsedMapping:
    return read_mapping(load_job(file, os.environ).mapping if is_job(file) else file)


def _tables(parsed: ParsedMapping, url: str) -> tuple[TableInverse, ...]:
    with open_source(_settings(url), parsed) as source:
        checked = checked_on(source, parsed)
        return compile_inverse(checked.mapping, checked.plans, source.views()).tables


def inverse_lines(parsed: ParsedMapping, tables: tuple[TableInverse, ...]) -> Iterator[str]:
    for table in tables:
        yield f"{table.table}: {_verdict(table)}"
        for lost in table.lost:
            needed = " (a new row needs it: NOT NULL, no default)" if lost.needed else ""
            yield f"  {lost.column} is lost: {lost.why}{needed}"
        if table.mend:
            yield f"  {_place(parsed, table)}: write {table.mend}"
    good = sum(table.invertible for table in tables)
    yield f"{parsed.document.file}: {good} of {len(tables)} tables come back from their items"


def _verdict(table: TableInverse) -> str:
    if table.rows_lost:
        return f"lost: {table.rows_lost}"
    if table.lost:
        return f"{amount(len(table.lost), 'column')} lost"
    return "invertible, but for the rows that where: leaves out" if table.left_out else "invertible"


def _place(parsed: ParsedMapping, table: TableInverse) -> str:
    return f"{parsed.document.file}:{parsed.document.line(table.at)}: {where_of(table.at)}"


def inverse_data(parsed: ParsedMapping, table: TableInverse) -> dict[str, Any]:
    return {
        "file": parsed.document.file,
        "table": table.table,
        "entities": list(table.entities),
        "invertible": table.invertible,
        "where_leaves_rows_out": table.left_out,
        "rows_lost": table.rows_lost or None,
        "lost": [
            {"column": one.column, "cause": one.cause, "why": one.why, "needed": one.needed}
            for one in table.lost
        ],
        "mend": table.mend or None,
        "line": parsed.document.line(table.at),
        "where": where_of(table.at),
    }
