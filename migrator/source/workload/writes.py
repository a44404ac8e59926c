"""How often a source's rows change, and which columns updates set, by statements with rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct
from sqlglot import exp
from sqlglot.errors import SqlglotError

from migrator.mapping.items.changes import captured_name
from migrator.mapping.model.capacity import Writes
from migrator.mapping.model.facts import SchemaFacts, TableFacts
from migrator.mapping.model.questions import Statement
from migrator.source.adapter.statement import quietly
from migrator.source.sql.spelling import sqlglot_dialect
from migrator.source.workload.reading import LONGEST, first_word, marked

_WRITING = frozenset({"insert", "update", "delete", "replace"})


class _Change(Struct, frozen=True):
    """What one statement writes. `columns`: those that an update sets, by their real names."""

    table: str
    columns: tuple[str, ...]
    calls: float


def told_writes(statements: Iterable[Statement], facts: SchemaFacts) -> Writes:
    """Of statements whose calls are calls a second; each is taken to change one row."""
    changes = _changes(statements, facts)
    if not changes:
        return Writes(why="no statement of the file writes")
    per_s, updates = defaultdict[str, float](float), defaultdict[tuple[str, str], float](float)
    for change in changes:
        per_s[change.table] += change.calls
        for column in change.columns:
            updates[change.table, column] += change.calls
    return Writes(dict(per_s), dict(updates), "the file of statements")


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
