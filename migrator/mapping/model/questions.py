"""Questions to a database, as a design needs them: rows, conditions, order, and columns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Mapping as Dict
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from migrator.mapping.model.facts import Column, ForeignKey, SchemaFacts, TableFacts
from migrator.mapping.model.mapping import Aggregate

Path = tuple[str, str]
"""(alias of a parent, '' for the row itself; the column's written name)."""

NULLS_MOVED = "NULLS FIRST or NULLS LAST differs from the source's default"

Bound = Literal["=", "in", "<", "<=", ">", ">=", "prefix", "is null", "is not null"]


class Statement(Struct, frozen=True):
    """One recorded statement.

    `calls`: in total, or per second if a rate is given.
    `times`: occurrences with other constants or spacing.
    `per_s`: calls per second, None if unknown.
    `words`, `who`, `p99_ms`: question, author and latency budget in a team's list.
    `line`: in a file of SQL, else 0.
    """

    sql: str
    calls: float = 1.0
    name: str = ""
    times: int = 1
    per_s: float | None = None
    words: str = ""
    who: str = ""
    p99_ms: float | None = None
    line: int = 0


class QuestionCondition(Struct, frozen=True):
    """`params`: none for a constant `value`.
    `then`: of a comparison of rows, (a, b) < (?, ?), the further columns, each with a parameter.
    """

    path: Path
    bound: Bound
    params: tuple[str, ...] = ()
    value: str | int | bool | None = None
    lowered: bool = False
    then: tuple[Path, ...] = ()


class Joined(Struct, frozen=True):
    """A parent of the row, or of a parent. `on`: (column of the child, column of the parent) by written names."""

    alias: str
    parent: str
    table: str
    on: tuple[tuple[str, str], ...]


class Total(Struct, frozen=True):
    """A number computed from the children of a row, with their column that points to it.

    `nullable`: NULL for a row without children.
    """

    alias: str
    kind: Aggregate
    column: str
    table: str
    on: tuple[tuple[str, str], ...]
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class StatementQuestion:
    """The question of one statement: rows of `table`, with values of their parents.

    `sql`: with `:name` for each parameter.
    `required`: columns of the row without which SQL leaves it out.
    `order`: (path, whether the largest comes first); a total is the path ('', its alias).
    `nulls_moved`: paths whose NULLs are at the other end than by the source's default.
    `limit`: a number or a parameter's name.
    `notes`: differences between the pattern's statement and the recorded one.
    `with_parent`: the parent is in the answer even without rows of `table`.
    """

    statement: Statement
    sql: str
    table: str
    params: tuple[tuple[str, str], ...]
    conditions: tuple[QuestionCondition, ...]
    outputs: tuple[Path, ...]
    joins: tuple[Joined, ...] = ()
    required: tuple[str, ...] = ()
    order: tuple[tuple[Path, bool], ...] = ()
    limit: str | None = None
    total: Total | None = None
    nulls_moved: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    with_parent: bool = False

    def of(self, *bounds: Bound) -> tuple[QuestionCondition, ...]:
        return tuple(condition for condition in self.conditions if condition.bound in bounds)

    @property
    def ranges(self) -> tuple[QuestionCondition, ...]:
        return self.of("<", "<=", ">", ">=", "prefix")

    @property
    def constants(self) -> tuple[QuestionCondition, ...]:
        return tuple(condition for condition in self.conditions if not condition.params)


TableColumn = tuple[str, str]
"""(table, column), by written names."""


class OrderTerm(Struct, frozen=True):
    """One term of an ORDER BY.

    `is_column`: one column, except for `filters`: functions that the mapping has as filters.
    """

    sql: str
    columns: tuple[TableColumn, ...]
    is_column: bool
    filters: tuple[str, ...] = ()
    descends: bool = False


class Clauses(Struct, frozen=True):
    """Names in the clauses of a statement of any shape.

    `equal`: columns with one value in all rows.
    `groups`: a HAVING without a column.
    `limit`: a number, :name or ''.
    `once`: tables that are named once.
    """

    filters: tuple[TableColumn, ...] = ()
    equal: frozenset[TableColumn] = frozenset()
    groups: str = ""
    order: tuple[OrderTerm, ...] = ()
    offset: bool = False
    limit: str = ""
    once: frozenset[str] = frozenset()


class NotServed(Exception):
    """No access pattern, or no key, answers a question: a key of REASONS, and details."""

    def __init__(self, reason: str, what: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.what = what


class Unserved(Struct, frozen=True):
    """A statement that no access pattern answers. `reason`: one of REASONS."""

    statement: Statement
    reason: str
    what: str = ""


REASONS: Dict[str, tuple[str, str]] = {
    "aggregate": ("it aggregates many rows", "store the count with its row (collect:), or query a warehouse"),
    "ambiguous": (
        "a name in it matches no table of the source, or several",
        "write the table before each column",
    ),
    "case": (
        "it ignores the case of letters",
        "keep the text in lower case in a column with a collation that respects case, and query LIKE 'x%' of that",
    ),
    "catalogue": ("it queries the database's catalogue", "nothing: it is not an access pattern"),
    "columns": (
        "it compares two columns of a row",
        "compute the comparison as a column (columns: of the entity), and query an index that holds the rows with it"
        " (when:)",
    ),
    "computed": (
        "it returns what SQL computes",
        "compute it in the application, or name it in columns: of the entity",
    ),
    "condition": (
        "a condition in it is neither an equality nor a range of a column and a parameter",
        "split it into several queries, or filter in the application",
    ),
    "constant": (
        "it compares a column with a constant that a key cannot hold exactly",
        "make the constant a parameter",
    ),
    "cut": (
        "the server may have recorded only a part of it",
        "configure the server to keep whole statements (max_digest_length), or pass it in a file",
    ),
    "definition": ("it changes the schema", "nothing: it is not an access pattern"),
    "distinct": ("it reads only distinct values", "keep these values in a separate table"),
    "fault": ("the pattern generated for it has an error", "fix the error, then write the pattern by hand"),
    "function": (
        "a column is compared through a function",
        "keep the result as a column (columns: of the entity), and query that",
    ),
    "index": ("no index is left for it", "allow more with --max-indexes, or drop another query"),
    "join": (
        "it joins tables other than by whole keys from a row to its parents",
        "query the two separately",
    ),
    "key": (
        "a value in it cannot be stored in a key",
        "query by another column; if its table has no key, name the columns that identify a row (key: of the entity)",
    ),
    "limit": (
        "no key returns the first n rows that it reads",
        "where a column may be NULL, make it NOT NULL (if no row has NULL) or query with IS NOT NULL;"
        " otherwise order by numbers or times with the key at the end, or leave out the LIMIT",
    ),
    "list": (
        "it reads by several lists, or by a list of values that are not keys",
        "run one query for each value",
    ),
    "long": ("it is longer than the limit", "pass its shape in a file, with a list as one parameter"),
    "offset": (
        "it skips rows",
        "use keyset pagination: continue after the last key of the previous page, WHERE (a, id) > (?, ?)",
    ),
    "refused": ("the database refuses it", "run it in the database's client, and correct it there"),
    "scan": ("it reads a whole large table", "export the table, or query a range of time"),
    "search": ("it searches within texts", "use a search engine next to the table"),
    "session": ("it changes the session", "nothing: it is not an access pattern"),
    "shape": (
        "it is more than one SELECT of rows (UNION, WITH, a subquery, HAVING, a window)",
        "split it, or query a warehouse",
    ),
    "some": (
        "it aggregates only some of the rows of a parent",
        "add a generated column, 1 for these rows and 0 for the others, and query its SUM; or query the rows and count"
        " them",
    ),
    "unknown": ("it cannot be read as SQL of this database", "check the file"),
    "unordered": (
        "it reads the first n rows without an order",
        "order by the key or by a time, or leave out the LIMIT",
    ),
    "unsafe": ("it is a SELECT that locks, writes or reads outside the tables", "leave this part out"),
    "words": (
        "it is only described in words",
        "write the SQL statement next to the words, and pass the list again",
    ),
    "write": ("it writes", "nothing: capture or dual writes keep rows and items in step"),
}
"""By keyword, why a statement is not served, and what to do."""

NO_QUESTIONS = frozenset({"catalogue", "definition", "session", "write"})
"""Reasons of statements that ask for nothing."""

_CATALOGUES = frozenset({"information_schema", "performance_schema", "pg_catalog", "sys"})
_OF_THE_DATABASE = ("pg_", "sqlite_")
CUT = "..."
"""Mark of a truncated statement."""
_NO_LETTERS = re.compile(r"\W+")
_WORD_END = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def is_of_the_database(schema: str, table: str) -> bool:
    return schema.lower() in _CATALOGUES or table.lower().startswith(_OF_THE_DATABASE)


def plain_name(name: str) -> str:
    """Letters, digits and underscores in lower case: TrackId is track_id; 'x' if nothing is left."""
    return _WORD_END.sub("_", _NO_LETTERS.sub("_", name).strip("_")).lower() or "x"


def free_name(wanted: str, taken: Iterable[str]) -> str:
    names = set(taken)
    number, name = 1, wanted
    while name in names:
        number += 1
        name = f"{wanted}_{number}"
    return name


def parent_alias(
    root: TableFacts, parent: str, child: TableFacts, table: str, on: Iterable[tuple[str, str]]
) -> str:
    """The parent's alias in every row tree of `root`: the same for every question. `parent`: the alias of `child`."""
    pairs = tuple(on)
    own = tuple(column for column, _ in pairs)
    ways = [key for key in child.foreign_keys if key.table == table]
    alone = len(ways) == 1 and set(ways[0].columns) == set(own) and table != child.name
    alias = plain_name(table) if alone else f"{plain_name(table)}_by_{'_'.join(map(plain_name, own))}"
    alias = f"{parent}_{alias}" if parent else alias
    return free_name(alias, (column.name for column in root.columns))


def row_key(table: TableFacts) -> tuple[str, ...]:
    """Columns that identify a row and are never NULL; () if no constraint proves it."""
    nullable = {column.name for column in table.columns if column.nullable}
    if table.primary_key and table.primary_key in table.proved:
        return table.primary_key
    unique = sorted((key for key in table.proved if not set(key) & nullable), key=lambda key: (len(key), key))
    return unique[0] if unique else ()


def parent_keys(facts: SchemaFacts, table: TableFacts) -> tuple[ForeignKey, ...]:
    whole = [
        key
        for key in table.foreign_keys
        if key.table in facts.tables and set(key.referred) == set(row_key(facts.tables[key.table]))
    ]
    return tuple(sorted(whole, key=lambda key: (key.columns, key.table)))


def column_at(facts: SchemaFacts, question: StatementQuestion, path: Path) -> Column | None:
    tables = {"": question.table} | {joined.alias: joined.table for joined in question.joins}
    return facts.tables[tables[path[0]]].column(path[1])


class NumberSpan(Struct, frozen=True):
    """Minimum and maximum of a column's whole numbers."""

    least: int | None
    most: int | None


class Figures(Struct, frozen=True):
    """Measurements of a source.

    `totals`: maximum by table, column and grouping columns.
    `fan_out`: maximum rows of one parent, by table and columns.
    `exact`: counted tables, the others are estimated.
    `filled`: nullable columns without NULL.
    """

    rows: Dict[str, int] = {}
    spans: Dict[tuple[str, str], NumberSpan] = {}
    totals: Dict[tuple[str, str, tuple[str, ...]], NumberSpan] = {}
    fan_out: Dict[tuple[str, tuple[str, ...]], int] = {}
    exact: frozenset[str] = frozenset()
    filled: frozenset[TableColumn] = frozenset()
    writes: Dict[str, float] = {}
    """Changes of rows per second by real name of the table, if statements show them."""
    updated: Dict[str, frozenset[str]] = {}
    """Columns that statements update, by real names, of each table to which some write."""


class Wanted(Struct, frozen=True):
    """Measurements that a design needs.

    `spans`: columns by table.
    `totals`: (table, column, grouping columns).
    `fan_out`: (table, columns).
    `filled`: nullable columns by table.
    """

    spans: Dict[str, tuple[str, ...]]
    totals: tuple[tuple[str, str, tuple[str, ...]], ...]
    fan_out: tuple[tuple[str, tuple[str, ...]], ...]
    filled: Dict[str, tuple[str, ...]] = {}
