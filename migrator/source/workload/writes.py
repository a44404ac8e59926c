"""How often a source's rows change, and which columns updates set, by statements with rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct
from sqlglot import exp

from migrator.mapping.items.changes import captured_name
from migrator.mapping.model.capacity import Writes
from migrator.mapping.model.facts import SchemaFacts, TableFacts
from migrator.mapping.model.questions import Statement
from migrator.source.workload.reading import LONGEST, first_word, marked, tree_of
from migrator.source.workload.scope import column_named, table_named

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
    tree = tree_of(text, facts.dialect)
    if not isinstance(tree, (exp.Insert, exp.Update, exp.Delete)):
        return None
    named = tree.find(exp.Table)
    table = None if named is None else table_named(facts, named)
    if table is None:
        return None
    return _Change(captured_name(table), tuple(_set_columns(tree, table)), statement.calls)


def _set_columns(tree: exp.Expression, table: TableFacts) -> list[str]:
    if not isinstance(tree, exp.Update):
        return []
    sides = (part.this.this for part in tree.expressions if isinstance(part, exp.EQ))
    names = (side for side in sides if isinstance(side, exp.Identifier))
    return [column.real for name in names if (column := column_named(table, name)) is not None]
