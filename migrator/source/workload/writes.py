"""How often a source's rows change: by statements with rates, or by what its server counted; which columns updates set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import SqlglotError

from migrator.mapping.design.questions import Statement
from migrator.mapping.heart.changes import captured_name
from migrator.model.capacity import Writes
from migrator.model.durations import age_text
from migrator.model.errors import SettingsError, SourceError
from migrator.model.facts import SchemaFacts, TableFacts
from migrator.source.adapter.statement import quietly
from migrator.source.connect import engine_of
from migrator.source.sql.spelling import sqlglot_dialect
from migrator.source.workload.reading import LONGEST, first_word, marked
from migrator.source.workload.statements import Ask, recorded_statements

_WRITING = frozenset({"insert", "update", "delete", "replace"})


@dataclass(frozen=True, slots=True)
class _Change:
    """What one statement writes. `columns`: those that an update sets, by their real names."""

    table: str
    columns: tuple[str, ...]
    calls: float


def told_writes(statements: Iterable[Statement], facts: SchemaFacts) -> Writes:
    """Of statements whose calls are calls a second; each is taken to change one row."""
    changes = _changes(statements, facts)
    if not changes:
        return Writes(why="no statement of the file writes")
    return _rates(changes, 1.0, "the file of statements")


def measured_writes(ask: Ask, facts: SchemaFacts) -> Writes:
    """What the server counted since its figures were last reset; and, where it records statements, what updates set."""
    recorded = engine_of(facts.dialect).server.recorded
    if recorded is None:
        return Writes(why="the source counts no changes; give a file of SQL with rates: --statements FILE")
    try:
        rows = ask(recorded.changed, {})
    except SourceError as error:
        return Writes(why=f"the changes that the server counted cannot be read ({error}); {recorded.grant}")
    names = {(table.schema, table.real): captured_name(table) for table in facts.tables.values()}
    per_s: dict[str, float] = {}
    seconds = 0.0
    for schema, table, changes, since_s in rows:
        name = names.get((None, str(table))) or names.get((str(schema), str(table)))
        seconds = max(seconds, float(since_s or 0.0))
        if name is not None and since_s:
            per_s[name] = per_s.get(name, 0.0) + float(changes) / float(since_s)
    if not any(per_s.values()):
        return Writes(why=f"the server has counted no change; {recorded.advice}, or give --statements FILE")
    updates: dict[tuple[str, str], float] = {}
    with suppress(SettingsError):
        changed = _changes(recorded_statements(ask, facts.dialect), facts)
        updates = dict(_rates(changed, seconds, "").updates_per_s)
    return Writes(per_s, updates, f"what the server counted in the last {age_text(seconds)}")


def _rates(changes: Iterable[_Change], seconds: float, source: str) -> Writes:
    per_s, updates = defaultdict[str, float](float), defaultdict[tuple[str, str], float](float)
    for change in changes:
        per_s[change.table] += change.calls / seconds
        for column in change.columns:
            updates[change.table, column] += change.calls / seconds
    return Writes(dict(per_s), dict(updates), source)


def _changes(statements: Iterable[Statement], facts: SchemaFacts) -> list[_Change]:
    """Those that can be read and write to a table of the source."""
    read = (_change(statement, facts) for statement in statements)
    return [change for change in read if change is not None]


def _change(statement: Statement, facts: SchemaFacts) -> _Change | None:
    if first_word(statement.sql) not in _WRITING or len(statement.sql) > LONGEST:
        return None
    text, _ = marked(statement.sql.strip().rstrip(";"), facts.dialect)
    try:
        with quietly():
            trees = sqlglot_dialect(facts.dialect).parse(text)
    except (SqlglotError, RecursionError):
        return None
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, (exp.Insert, exp.Update, exp.Delete)):
        return None
    named = tree.find(exp.Table)
    table = None if named is None else _table(named, facts)
    if table is None:
        return None
    return _Change(captured_name(table), tuple(_set_columns(tree, table)), statement.calls)


def _table(named: exp.Table, facts: SchemaFacts) -> TableFacts | None:
    return next(
        (
            table
            for table in facts.tables.values()
            if table.real.lower() == named.name.lower()
            and (not named.db or table.schema is None or table.schema.lower() == named.db.lower())
        ),
        None,
    )


def _set_columns(tree: exp.Expression, table: TableFacts) -> list[str]:
    if not isinstance(tree, exp.Update):
        return []
    reals = {column.real.lower(): column.real for column in table.columns}
    sides = (part.this for part in tree.expressions if isinstance(part, exp.EQ))
    return [reals[side.name.lower()] for side in sides if side.name.lower() in reals]
