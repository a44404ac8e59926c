"""A statement as a question: tables, joins by whole keys, conditions, order, columns; or the reason why it is
not one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct
from sqlglot import exp
from sqlglot.errors import SqlglotError

from migrator.mapping.model.facts import Column, ForeignKey, SchemaFacts, TableFacts
from migrator.mapping.model.mapping import Aggregate
from migrator.mapping.model.questions import (
    CUT,
    NULLS_MOVED,
    Bound,
    Joined,
    NotServed,
    Path,
    QuestionCondition,
    Statement,
    StatementQuestion,
    Total,
    Unserved,
    free_name,
    is_of_the_database,
    parent_alias,
    parent_keys,
    plain_name,
    row_key,
)
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace
from migrator.source.adapter.statement import quietly
from migrator.source.engines.connect import engine_of
from migrator.source.sql.spelling import Speller, folded, sqlglot_dialect
from migrator.source.sql.statements import CheckedStatement, read_select
from migrator.source.workload.folding import compares_columns, conjuncts, folded_statement, without_or

# ── Aggregates of a row's children: of each parent in the order of the aggregate ──


Pair = tuple[exp.Column, exp.Column]
On = tuple[tuple[str, str], ...]


@dataclass
class QueryScope:
    """Tables by their names in the statement.

    `root`: the table of the returned rows.
    `joined`: its parents.
    `optional`: those of a LEFT JOIN.
    `required`: columns of the root for which an inner join excludes NULL.
    `turned`: for a total, the child's columns that are the root's key.
    `parent_of`: the child of a LEFT JOIN, whose parent is returned even without one.
    """

    tables: dict[str, TableFacts] = field(default_factory=dict)
    root: str = ""
    joined: dict[str, Joined] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)
    required: set[str] = field(default_factory=set)
    turned: dict[tuple[str, str], str] = field(default_factory=dict)
    parent_of: str = ""

    def place(self, column: exp.Column) -> tuple[str, Column]:
        """Raises: NotServed if no column matches, or several."""
        if column.args.get("db") is not None or not isinstance(column.this, exp.Identifier):
            raise NotServed("ambiguous")
        named = [column.table.lower()] if column.table else list(self.tables)
        places = [
            (name, fact)
            for name in named
            if name in self.tables and (fact := column_named(self.tables[name], column.this)) is not None
        ]
        if len(places) != 1:
            raise NotServed("ambiguous")
        return places[0]

    def path(self, column: exp.Column) -> Path:
        """The path; a parent's key is the child's column that refers to it."""
        name, fact = self.place(column)
        return self._lifted(name, fact.name)

    def all_paths(self, name: str) -> list[Path]:
        if name not in self.tables or (self.turned and name != self.root):
            raise NotServed("ambiguous")
        return [
            self._lifted(name, column.name)
            for column in self.tables[name].columns
            if column.sql is None and not column.hidden
        ]

    def _lifted(self, name: str, column: str) -> Path:
        if name == self.root:
            return "", column
        if self.turned:
            if (name, column) not in self.turned:
                raise NotServed("aggregate")
            return "", self.turned[name, column]
        joined = self.joined[name]
        own = {theirs: ours for ours, theirs in joined.on}.get(column)
        if own is None or name in self.optional:
            return joined.alias, column
        child = next(
            (other for other, known in self.joined.items() if known.alias == joined.parent), self.root
        )
        return self._lifted(child, own)

    def turn(self, parent: str) -> None:
        joined = self.joined.pop(parent)
        self.turned = {(self.root, own): theirs for own, theirs in joined.on}
        self.root = parent
        self.required.clear()


def scope_of(select: exp.Select, facts: SchemaFacts, conditional: frozenset[str] = frozenset()) -> QueryScope:
    """`conditional`: tables that only restrict the rows.

    Raises: NotServed if the tables are not one row and its parents.
    """
    scope = QueryScope()
    _add_table(scope, select.args["from_"].this, facts)
    pairs: list[Pair] = []
    for join in select.args.get("joins") or []:
        side, kind = ((join.args.get(word) or "").upper() for word in ("side", "kind"))
        if side not in ("", "LEFT") or kind not in ("", "INNER", "CROSS", "OUTER") or join.args.get("method"):
            raise NotServed("join", f"{side or kind or 'NATURAL'} JOIN")
        name = _add_table(scope, join.this, facts)
        scope.optional |= {name} if side else set()
        pairs += _pairs_of(scope, join, name)
    # Equalities of columns in WHERE join tables listed with commas.
    pairs += [_pair(part) for part in conjuncts(select) if compares_columns(part)]
    _link(scope, pairs)
    if scope.root in conditional:
        raise NotServed("shape", "rows that have a child that a subquery finds: query the children by it")
    return scope


_WHOLE_TABLE = frozenset({"this", "db", "catalog", "alias", "hints", "indexed"})
"""Parts of a table in FROM that change none of its rows."""


def _add_table(scope: QueryScope, table: exp.Expr, facts: SchemaFacts) -> str:
    if (
        not isinstance(table, exp.Table)
        or not isinstance(table.this, exp.Identifier)
        or table.args.get("joins")
    ):
        raise NotServed("shape")
    alias = table.args.get("alias")
    if {name for name, value in table.args.items() if value} - _WHOLE_TABLE or (alias and alias.columns):
        raise NotServed(
            "shape", "it reads a part, a sample or another state of a table, or renames its columns"
        )
    named = table_named(facts, table)
    if named is None:
        # Of a mapping's tables, init reads those of one schema alone.
        others = "; only the connection's default schema was read" if table.db else ""
        raise NotServed("ambiguous", f"no table {'.'.join(filter(None, (table.db, table.name)))}{others}")
    name = table.alias_or_name.lower()
    if name in scope.tables:
        raise NotServed("ambiguous", "one name for two tables")
    scope.tables[name] = named
    return name


def table_named(facts: SchemaFacts, table: exp.Table) -> TableFacts | None:
    schemas = (None, table.db.lower())
    real = {
        known.real: known
        for known in facts.by_real_name.get(table.name.lower(), ())
        if not table.db or (known.schema and known.schema.lower()) in schemas
    }
    named = folded(real, exp.to_identifier(table.this, copy=False)) or folded(
        real, exp.to_identifier(table.name)
    )
    return None if named is None else real[named]


def _pairs_of(scope: QueryScope, join: exp.Join, name: str) -> list[Pair]:
    if join.args.get("using"):
        return [_using(scope, column, name) for column in join.args["using"]]
    on = join.args.get("on")
    parts = list(on.flatten()) if isinstance(on, exp.And) else [on] if on is not None else []
    return [_pair(part) for part in parts]


def _using(scope: QueryScope, column: exp.Expr, name: str) -> Pair:
    if not isinstance(column, exp.Identifier):
        raise NotServed("join", "USING names no column")
    owners = [other for other, table in scope.tables.items() if other != name and column_named(table, column)]
    if len(owners) != 1:
        raise NotServed("ambiguous", "a column of USING")
    return exp.column(column.copy(), owners[0]), exp.column(column.copy(), name)


def _pair(part: exp.Expr) -> Pair:
    part = part.unnest()
    if not compares_columns(part):
        raise NotServed("join", "a condition of the join is not an equality of two columns")
    return part.left.unnest(), part.right.unnest()  # type: ignore[attr-defined]


def column_named(table: TableFacts, identifier: exp.Identifier) -> Column | None:
    columns = {column.real: column for column in table.columns if column.sql is None}
    any_case = {real.lower(): column for real, column in columns.items()}
    return columns.get(folded(columns, identifier) or "") or any_case.get(identifier.name.lower())


def _link(scope: QueryScope, pairs: Sequence[Pair]) -> None:
    links: dict[frozenset[str], list[dict[str, str]]] = {}
    for pair in pairs:
        ends = {name: column.name for name, column in map(scope.place, pair)}
        links.setdefault(frozenset(ends), []).append(ends)
    parents: dict[str, tuple[str, On]] = {}
    for names, ends_of in links.items():
        if len(names) != 2:
            raise NotServed("join", "a table with itself by one name")
        child, parent, on = _directed(scope, sorted(names), ends_of)
        is_left = child in scope.optional and parent not in scope.optional
        if parent in parents or (is_left and scope.parent_of):
            raise NotServed("join", "a row with several children, or two LEFT JOINs of children")
        scope.parent_of = child if is_left else scope.parent_of
        parents[parent] = child, on
    roots = [name for name in scope.tables if name not in parents]
    if len(roots) != 1 or len(links) != len(scope.tables) - 1:
        raise NotServed("join", "tables that nothing joins, or that are joined in a circle")
    scope.root = roots[0]
    _join_parents(scope, parents, scope.root, "")
    if scope.parent_of == scope.root:
        scope.required.clear()
    elif scope.parent_of:
        raise NotServed("join", "a LEFT JOIN of children that have children")


def _directed(
    scope: QueryScope, names: Sequence[str], ends_of: Sequence[dict[str, str]]
) -> tuple[str, str, On]:
    ways = []
    for child, parent in (names, names[::-1]):
        on = tuple(sorted({(ends[child], ends[parent]) for ends in ends_of}))
        columns = {column for _, column in on}
        if len(columns) == len(on) and any(set(key) == columns for key in scope.tables[parent].proved):
            declared = any(
                key.proved
                and key.table == scope.tables[parent].name
                and set(zip(key.columns, key.referred, strict=True)) == set(on)
                for key in scope.tables[child].foreign_keys
            )
            ways.append((not declared, child, parent, on))
    if not ways:
        raise NotServed("join", "not by a whole key")
    undeclared, child, parent, on = min(ways)
    if undeclared and parent not in scope.optional:
        raise NotServed("join", "by no foreign key of the schema, so that rows may have no parent")
    return child, parent, on


def _join_parents(scope: QueryScope, parents: dict[str, tuple[str, On]], child: str, alias: str) -> None:
    for name, (of, on) in parents.items():
        if of != child:
            continue
        table, parent = scope.tables[child], scope.tables[name]
        own_alias = parent_alias(scope.tables[scope.root], alias, table, parent.name, on)
        if own_alias in (joined.alias for joined in scope.joined.values()):
            raise NotServed("join", "one parent twice")
        scope.joined[name] = Joined(own_alias, alias, parent.name, on)
        if name not in scope.optional:
            _require(scope, child, [own for own, _ in on])
        _join_parents(scope, parents, name, own_alias)


def _require(scope: QueryScope, child: str, columns: Sequence[str]) -> None:
    table = scope.tables[child]
    nullable = {name for name in columns if (column := table.column(name)) is not None and column.nullable}
    if nullable and child != scope.root:
        raise NotServed("join", "an inner join by a column of a parent that may be NULL")
    scope.required |= nullable


_KINDS: dict[type[exp.Expr], Aggregate] = {exp.Count: "count", exp.Sum: "sum", exp.Min: "min", exp.Max: "max"}
ALL = "all"
"""The argument of a count of rows."""


def total_of_each(select: exp.Select, scope: QueryScope, conditions: Sequence[QuestionCondition]) -> Total:
    """SUM, MIN or MAX of a table's rows per parent, which becomes the root of the scope.

    Raises: NotServed for every other aggregate of many rows.
    """
    function, group = _function(select), select.args.get("group")
    kind = _KINDS.get(type(function)) if isinstance(function.this, exp.Column) else None
    if isinstance(function, exp.Count) and group is not None and select.args.get("order"):
        raise NotServed("aggregate", _WITH_NONE)
    if group is None or conditions or kind in (None, "count") or len(scope.joined) != 1:
        raise NotServed("aggregate")
    assert kind is not None
    (parent, joined), child = next(iter(scope.joined.items())), scope.root
    name, column = scope.place(function.this)
    if not all(isinstance(value, exp.Column) for value in group.expressions):
        raise NotServed("aggregate")
    places = [scope.place(value) for value in group.expressions if isinstance(value, exp.Column)]
    by = {(owner, fact.name) for owner, fact in places}
    keys = {(child, own) for own, _ in joined.on}, {(parent, theirs) for _, theirs in joined.on}
    others = {place for place in by if place[0] == child} - keys[0]
    if name != child or column.nullable or others or not any(key <= by for key in keys):
        raise NotServed("aggregate")
    alias = f"{kind}_{plain_name(column.name)}_of_{plain_name(scope.tables[child].name)}"
    alias = free_name(alias, (fact.name for fact in scope.tables[parent].columns))
    total = Total(alias, kind, column.name, scope.tables[child].name, joined.on)
    scope.turn(parent)
    return total


def total_or_none(select: exp.Select, scope: QueryScope) -> Total:
    """An aggregate of the children of a LEFT JOIN by parent, which becomes the root of the scope.

    Raises: NotServed for every other aggregate.
    """
    function, group = _function(select), select.args.get("group")
    kind, value = _KINDS.get(type(function)), function.this
    if group is None or kind is None or len(scope.joined) != 1:
        raise NotServed("aggregate")
    (parent, joined), child = next(iter(scope.joined.items())), scope.root
    if not isinstance(value, exp.Column) or scope.place(value)[0] != child:
        raise NotServed(
            "aggregate", "it does not count 0 for a parent without rows: count the key of the rows"
        )
    outputs, column = [output.unalias() for output in select.expressions], _counted(function, scope)
    by = _grouped(select, outputs, scope)
    others = [
        one
        for clause in (*outputs, *group.expressions)
        if clause is not function
        for one in clause.find_all(exp.Column)
    ]
    is_parents = all(isinstance(one.this, exp.Star) or scope.place(one)[0] == parent for one in others)
    if column is None or not is_parents or not any(by.issuperset(key) for key in scope.tables[parent].proved):
        raise NotServed("aggregate")
    alias = _total_name(kind, column, scope.tables[child], joined.on)
    names = (fact.name for fact in scope.tables[parent].columns)
    total = Total(
        free_name(alias, names), kind, column, scope.tables[child].name, joined.on, nullable=kind != "count"
    )
    scope.turn(parent)
    scope.parent_of = ""
    return total


def _total_name(kind: Aggregate, column: str, child: TableFacts, on: On) -> str:
    what = "rows" if column == ALL else plain_name(column)
    return f"{kind}_{what}_of_{plain_name(child.name)}_by_{'_'.join(plain_name(own) for own, _ in on)}"


_WITH_NONE = "for the first ones by a COUNT join the rows to their parents by LEFT JOIN, which keeps parents without rows"


def _function(select: exp.Select) -> exp.Expr:
    functions: list[exp.Expr] = [
        function for output in select.expressions for function in output.find_all(exp.AggFunc)
    ]
    if len(functions) != 1:
        raise NotServed("aggregate")
    return functions[0]


class OfParents(Struct, frozen=True):
    """An aggregate of children as a question for their parents.

    `outputs`: columns of the parent, and the total.
    `sql`: the same answer as the parents' items, with a blank for each parameter in the order of `total.on`.
    """

    parent: str
    total: Total
    outputs: tuple[Path, ...]
    sql: str


def total_of_parents(
    select: exp.Select, scope: QueryScope, conditions: Sequence[QuestionCondition], facts: SchemaFacts
) -> OfParents | None:
    """The total of one parent, or GROUP BY the foreign key of several or all.

    Requires a foreign key, so that no child is without its parent.
    """
    table = scope.tables[scope.root]
    asked = {condition.path[1]: condition.bound for condition in conditions if condition.params}
    others = any(select.args.get(word) for word in ("order", "limit", "offset"))
    lowered = any(condition.lowered or condition.path[0] for condition in conditions)
    if others or lowered or scope.joined or len(asked) != len(conditions):
        return None
    outputs = [output.unalias() for output in select.expressions]
    grouped = _grouped(select, outputs, scope)
    foreign = next(
        (key for key in parent_keys(facts, table) if set(key.columns) == (grouped or set(asked))), None
    )
    if foreign is None or not _is_each(foreign, asked, table, is_grouped=bool(grouped)):
        return None
    functions = [output for output in outputs if type(output) in _KINDS]
    named = [scope.place(output)[1].name for output in outputs if isinstance(output, exp.Column)]
    is_plain = len(functions) == 1 and len(named) == len(set(named)) == len(outputs) - 1
    if not is_plain or not set(named) <= (grouped or set()):
        return None
    kind, column = _KINDS[type(functions[0])], _counted(functions[0], scope)
    if column is None or (kind != "count" and column == ALL):
        return None
    parent, on = facts.tables[foreign.table], tuple(zip(foreign.columns, foreign.referred, strict=True))
    alias = _total_name(kind, column, table, on)
    total = Total(free_name(alias, (fact.name for fact in parent.columns)), kind, column, table.name, on)
    columns = dict(on)
    paths = tuple(
        ("", columns[scope.place(output)[1].name] if isinstance(output, exp.Column) else total.alias)
        for output in outputs
    )
    return OfParents(parent.name, total, paths, _sql(facts, table, parent, total, paths, asked))


def _grouped(select: exp.Select, outputs: Sequence[exp.Expr], scope: QueryScope) -> set[str]:
    group = select.args.get("group")
    values = [value.unnest() for value in group.expressions] if group is not None else []
    places = (
        outputs[int(value.name) - 1] if isinstance(value, exp.Literal) and value.is_int else value
        for value in values
    )
    names = [scope.place(value)[1].name for value in places if isinstance(value, exp.Column)]
    return set(names) if len(names) == len(values) else set()


def _is_each(foreign: ForeignKey, asked: Mapping[str, Bound], table: TableFacts, *, is_grouped: bool) -> bool:
    if not is_grouped:
        return set(asked.values()) == {"="}
    columns = [column for name in foreign.columns if (column := table.column(name)) is not None]
    is_all = not asked and not any(column.nullable for column in columns)
    return is_all or (set(asked) == set(foreign.columns) and set(asked.values()) <= {"=", "in"})


def _aggregates_some(
    select: exp.Select, scope: QueryScope, conditions: Sequence[QuestionCondition], facts: SchemaFacts
) -> bool:
    asked = {condition.path[1] for condition in conditions if condition.bound == "=" and condition.params}
    keys = parent_keys(facts, scope.tables[scope.root])
    of_one = not select.args.get("group") and any(set(key.columns) <= asked for key in keys)
    parts = any(output.find(exp.Filter, exp.Case) for output in select.expressions)
    return of_one and (parts or not any(set(key.columns) == asked for key in keys))


def _counted(function: exp.Expr, scope: QueryScope) -> str | None:
    value = function.this
    if isinstance(value, exp.Column):
        column = scope.place(value)[1]
        if isinstance(function, exp.Count):
            return None if column.nullable else ALL
        return column.name if column.sql is None else None
    rows = isinstance(value, exp.Star) or (isinstance(value, exp.Literal) and value.is_int)
    return ALL if isinstance(function, exp.Count) and rows else None


def _sql(
    facts: SchemaFacts,
    child: TableFacts,
    parent: TableFacts,
    total: Total,
    outputs: Sequence[Path],
    asked: Mapping[str, Bound],
) -> str:
    quoted = Speller("", facts.dialect).quoted

    def named(table: TableFacts, name: str) -> str:
        column = table.column(name)
        return quoted(name if column is None else column.real)

    what = "*" if total.column == ALL else f"children.{named(child, total.column)}"
    on = " AND ".join(
        f"children.{named(child, own)} = parent.{named(parent, theirs)}" for own, theirs in total.on
    )
    number = f"SELECT {total.kind.upper()}({what}) FROM {quoted(child.real)} AS children WHERE {on}"
    returned = ", ".join(
        f"({number}) AS {quoted(total.alias)}" if name == total.alias else f"parent.{named(parent, name)}"
        for _, name in outputs
    )
    select = f"SELECT {returned} FROM {quoted(parent.real)} AS parent"
    compared = (
        f"parent.{named(parent, theirs)} {'IN ({})' if asked[own] == 'in' else '= {}'}"
        for own, theirs in total.on
        if asked
    )
    return " WHERE ".join(filter(None, (select, " AND ".join(compared))))


LONGEST = 20_000
"""Maximum characters of a statement that is parsed."""

_MARK = "migrator_p"
_PLACEHOLDER = re.compile(
    r"(?<![\w:$]):(?P<name>[A-Za-z_]\w*)|%\((?P<format>\w+)\)s|%s|\$(?P<place>\d+)|\?(?P<number>\d*)"
)
_FIRST_WORDS = {
    "write": "insert update delete replace merge upsert truncate copy load call do",
    "definition": "create alter drop rename comment grant revoke analyze vacuum reindex optimize cluster refresh",
    "session": "begin start commit rollback savepoint release set reset show use pragma explain describe desc lock unlock"
    " discard fetch close declare deallocate prepare execute listen notify unlisten end abort kill flush checkpoint",
}
_REASON_OF_WORD = {word: reason for reason, words in _FIRST_WORDS.items() for word in words.split()}
_TYPES = {"integer": "integer", "number": "number", "float": "number", "text": "text", "boolean": "boolean"}
_TYPES |= {"date": "date", "timestamp": "timestamp", "uuid": "uuid", "binary": "binary"}
_BOUNDS: dict[type[exp.Expr], tuple[Bound, Bound]] = {
    exp.EQ: ("=", "="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
"""By comparison, the bound of its left side, and of its right one."""
_ROWS_ALONE = {
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "order",
    "limit",
    "kind",
    "offset",
    "distinct",
}


def question_of(statement: Statement, facts: SchemaFacts) -> StatementQuestion | Unserved:
    try:
        return _StatementReader(statement, facts).question()
    except NotServed as no_question:
        return Unserved(statement, no_question.reason, no_question.what)


def first_word(sql: str) -> str:
    match = re.match(r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/|#[^\n]*\n)*([A-Za-z]+)", sql, re.DOTALL)
    return match[1].lower() if match else ""


def asks_nothing(sql: str) -> bool:
    return first_word(sql) in _REASON_OF_WORD


def marked(sql: str, dialect: str) -> tuple[str, tuple[str, ...]]:
    """The statement with :migrator_p0, … for placeholders of any style, and their names ('' for none)."""
    quoted = [match.span() for match in engine_of(dialect).statements.quotes.finditer(sql)]
    pieces: list[str] = []
    names: list[str] = []
    done, places = 0, dict[str, int]()
    spans = iter(quoted)
    span = next(spans, None)
    for match in _PLACEHOLDER.finditer(sql):
        while span is not None and span[1] <= match.start():
            span = next(spans, None)
        if span is not None and span[0] <= match.start():
            continue
        name = match["name"] or match["format"] or ""
        same = name or (match["place"] and f"${match['place']}") or f"at {match.start()}"
        if same not in places:
            places[same] = len(names)
            names.append(name)
        done, before = match.end(), sql[done : match.start()]
        # A word directly after a ? would become part of the name.
        pieces += [before, f":{_MARK}{places[same]}", " " if sql[done : done + 1].isalnum() else ""]
    return "".join([*pieces, sql[done:]]), tuple(names)


def tree_of(text: str, dialect: str) -> exp.Expr | None:
    try:
        with quietly():
            (tree,) = sqlglot_dialect(dialect).parse(text)
    except (SqlglotError, RecursionError, ValueError):
        return None
    return tree


class _StatementReader:
    def __init__(self, statement: Statement, facts: SchemaFacts) -> None:
        self.statement = statement
        self.facts = facts
        self.names: tuple[str, ...] = ()
        self.params: dict[int, tuple[str, str]] = {}
        self.aliases: dict[str, Path] = {}
        self.total: Total | None = None
        self.function: exp.Expr | None = None
        self.nulls_moved: list[Path] = []
        self.notes: list[str] = []
        self.is_rewritten = False

    def question(self) -> StatementQuestion:
        text = self._text()
        select, asks_existence, conditional = self._folded(text)
        self.scope = scope_of(select, self.facts, conditional)
        aggregates = bool(select.args.get("group")) or any(
            output.find(exp.AggFunc) for output in select.expressions
        )
        with_none = aggregates and bool(self.scope.parent_of)
        if with_none:
            self.total = total_or_none(select, self.scope)
        conditions = self._conditions(select)
        if asks_existence or self._returns_any_key(select):
            self._ask_for_key(select, conditions)
        if aggregates and not with_none:
            of_parents = total_of_parents(select, self.scope, conditions, self.facts)
            if of_parents is not None:
                return self._of_parents(of_parents, conditions, is_grouped=bool(select.args.get("group")))
            if _aggregates_some(select, self.scope, conditions, self.facts):
                raise NotServed("some")
            self.total = total_of_each(select, self.scope, conditions)
        outputs = self._outputs(select)
        if not outputs:
            raise NotServed("computed", "it returns no column")
        self._check_distinct(select, outputs)
        order = self._order(select, outputs)
        is_ordered = self.total is not None and order[:1] and order[0][0] == ("", self.total.alias)
        if self.total is not None and not with_none and not is_ordered:
            raise NotServed("aggregate")
        limit = self._limit(select)
        self._check_offset(select, conditions)
        return StatementQuestion(
            statement=self.statement,
            sql=self._named(self._spelled(select) if self.is_rewritten else text),
            table=self.scope.tables[self.scope.root].name,
            params=tuple(self.params[number] for number in sorted(self.params)),
            conditions=tuple(self._with_names(condition) for condition in conditions),
            outputs=outputs,
            joins=self._joins_read(outputs, conditions, order),
            required=tuple(sorted(self.scope.required)),
            order=order,
            limit=limit,
            total=self.total,
            nulls_moved=tuple(self.nulls_moved),
            notes=tuple(dict.fromkeys(self.notes)),
            with_parent=bool(self.scope.parent_of),
        )

    # ── the statement ──

    def _text(self) -> str:
        sql = self.statement.sql.strip().rstrip(";").rstrip()
        word = first_word(sql)
        if word in _REASON_OF_WORD:
            raise NotServed(_REASON_OF_WORD[word])
        if sql.endswith(CUT):
            raise NotServed("cut")
        if len(sql) > LONGEST:
            raise NotServed("long")
        text, self.names = marked(sql, self.facts.dialect)
        return text

    def _folded(self, text: str) -> tuple[exp.Select, bool, frozenset[str]]:
        try:
            with quietly():
                tree = read_select(text, self.facts.dialect)[1].copy()
        except SettingsError:
            raise NotServed("unknown") from None
        if not isinstance(tree, exp.Query):
            raise NotServed("unknown")
        named = {cte.alias for cte in tree.find_all(exp.CTE)}
        tables = [table for table in tree.find_all(exp.Table) if table.name not in named]
        if all(is_of_the_database(table.db, table.name) for table in tables):
            raise NotServed("catalogue")
        try:
            CheckedStatement(text, self.facts.dialect)
        except SettingsError as error:
            raise NotServed("unsafe", str(error)) from None
        select, asks_existence, conditional = folded_statement(tree, self.facts)
        if not isinstance(select, exp.Select) or select.find(
            exp.Subquery, exp.Window, exp.Exists, exp.Lateral
        ):
            raise NotServed("shape")
        if len(list(select.find_all(exp.Select))) > 1:
            raise NotServed("shape")
        given = {name for name, value in select.args.items() if value}
        if not given <= _ROWS_ALONE or "from_" not in given:
            raise NotServed("shape")
        return select, asks_existence, conditional

    def _spelled(self, select: exp.Select) -> str:
        def marks(node: exp.Expr) -> exp.Expr:
            is_mark = isinstance(node, exp.Placeholder) and mark_of(node) is not None
            return exp.var(f":{_MARK}{mark_of(node)}") if is_mark else node

        return select.transform(marks).sql(dialect=sqlglot_dialect(self.facts.dialect), comments=False)

    def _returns_any_key(self, select: exp.Select) -> bool:
        limit, order = select.args.get("limit"), select.args.get("order")
        is_first = isinstance(limit, exp.Limit) and limit.expression.name == "1" and order is None
        outputs = [output.unalias() for output in select.expressions] if is_first else []
        columns = [
            self.scope.path(output)
            for output in outputs
            if isinstance(output, exp.Column) and output.name != "*"
        ]
        key = row_key(self.scope.tables[self.scope.root])
        return bool(key) and len(columns) == len(outputs) and {("", name) for name in key} == set(columns)

    def _ask_for_key(self, select: exp.Select, conditions: Sequence[QuestionCondition]) -> None:
        table = self.scope.tables[self.scope.root]
        source = next(
            one for one in select.find_all(exp.Table) if one.alias_or_name.lower() == self.scope.root
        )
        reals = [column.real for name in row_key(table) if (column := table.column(name)) is not None]
        if not reals:
            raise NotServed("key", "its table has no key")
        name = exp.to_identifier(source.alias_or_name, quoted=True)
        keys = [exp.column(exp.to_identifier(real, quoted=True), name.copy()) for real in reals]
        is_one = self._is_one_row(conditions)
        select.set("expressions", keys)
        select.set("order", None)
        select.set("distinct", None)
        if select.args.get("limit") is not None and is_one:
            select.set("limit", None)
        elif select.args.get("limit") is not None:
            select.set("limit", exp.Limit(expression=exp.Literal.number(1)))
            first = self._puts_null_first(False)
            ordered = [exp.Ordered(this=key.copy(), nulls_first=first) for key in keys]
            select.set("order", exp.Order(expressions=ordered))
        self.is_rewritten = True
        self.notes.append("asks whether there is a row: the answer is the row's key, or nothing")

    def _check_distinct(self, select: exp.Select, outputs: Sequence[Path]) -> None:
        distinct = select.args.get("distinct")
        if distinct is None:
            return
        key = row_key(self.scope.tables[self.scope.root])
        if distinct.args.get("on") or not key or not {("", name) for name in key} <= set(outputs):
            raise NotServed("distinct")

    def _check_offset(self, select: exp.Select, conditions: Sequence[QuestionCondition]) -> None:
        """Drop OFFSET if there is at most one row: it is never skipped. Raises: NotServed for others."""
        if select.args.get("offset") is None:
            return
        if mark_of(select.args["offset"].expression) is None:
            raise NotServed("offset")
        if not self._is_one_row(conditions):
            raise NotServed(
                "offset", "if it is always 0, as an ORM may send it, write OFFSET 0 in a file of statements"
            )
        select.set("offset", None)
        self.is_rewritten = True
        self.notes.append("OFFSET is left out: there is one row at most")

    def _is_one_row(self, conditions: Sequence[QuestionCondition]) -> bool:
        fixed = {one.path[1] for one in conditions if one.bound == "=" and not one.path[0]}
        return any(set(key) <= fixed for key in self.scope.tables[self.scope.root].proved)

    # ── conditions ──

    def _conditions(self, select: exp.Select) -> list[QuestionCondition]:
        conditions = [
            condition
            for part in conjuncts(select)
            if not compares_columns(part)
            for condition in self._read(part)
        ]
        seen = set()
        for condition in conditions:
            side = condition.path, condition.bound.rstrip("=") or "="
            if side in seen:
                raise NotServed("condition", "a column is compared twice")
            seen.add(side)
        return [condition for condition in conditions if not self._always_holds(condition)]

    def _always_holds(self, condition: QuestionCondition) -> bool:
        """IS NOT NULL of a column that is never NULL."""
        column = self.scope.tables[self.scope.root].column(condition.path[1])
        is_own = not condition.path[0] and condition.bound == "is not null"
        return is_own and column is not None and not column.nullable

    def _read(self, part: exp.Expr) -> Iterator[QuestionCondition]:
        part, is_negated = _positive(part)
        is_negated ^= bool(part.args.get("negate")) and not isinstance(part, exp.Is)
        if (flag := self._flag(part, is_negated=is_negated)) is not None:
            yield flag
            return
        if not {name for name, value in part.args.items() if value} <= _SAID:
            raise NotServed("condition")
        if _is_null_test(part):
            is_null = is_negated == bool(part.args.get("negate"))
            yield QuestionCondition(
                self.scope.path(part.this.unnest()), "is null" if is_null else "is not null"
            )
        elif is_negated:
            raise NotServed(_why_not(part)[0], _NOT)
        elif isinstance(part, exp.Or):
            yield self._either(part)
        elif isinstance(part, exp.Between):
            yield self._compared(part.this, ">=", part.args["low"])
            yield self._compared(part.this, "<=", part.args["high"])
        elif isinstance(part, exp.In):
            yield self._listed(part)
        elif (bounds := _BOUNDS.get(type(part))) is not None and isinstance(part.this, exp.Tuple):
            yield self._row_compared(part)
        elif isinstance(part, (exp.Like, exp.Escape)):
            yield self._begun(part)
        elif bounds is not None:
            flipped = _is_value(part.this)
            column, value = (part.expression, part.this) if flipped else (part.this, part.expression)
            yield self._compared(column, bounds[flipped], value)
        else:
            raise NotServed(*_why_not(part))

    def _flag(self, part: exp.Expr, *, is_negated: bool) -> QuestionCondition | None:
        is_test = isinstance(part, exp.Is) and isinstance(part.expression, exp.Boolean)
        column = part.this.unnest() if is_test else part
        if not isinstance(column, exp.Column) or self.scope.place(column)[1].kind.name != "boolean":
            return None
        if is_test and (is_negated or part.args.get("negate")):
            return None  # IS NOT TRUE holds for NULL
        value = bool(part.expression.this) if is_test else not is_negated
        return QuestionCondition(self.scope.path(column), "=", value=value)

    def _either(self, part: exp.Or) -> QuestionCondition:
        one = without_or(part)
        if one is None:
            raise NotServed(*_why_not(part))
        part.replace(one)
        self.is_rewritten = True
        self.notes.append("OR is written as one condition, with each value once")
        return self._listed(one) if isinstance(one, exp.In) else self._row_compared(one)

    def _row_compared(self, part: exp.Expr) -> QuestionCondition:
        """Read (a, b) < (?, ?)."""
        columns, values = (
            [each.unnest() for each in side.expressions] if isinstance(side, exp.Tuple) else []
            for side in (part.this, part.expression)
        )
        bound = _BOUNDS[type(part)][0]
        if bound == "=" or not 1 < len(columns) == len(values):
            raise NotServed("condition")
        paths: list[Path] = []
        numbers: list[str] = []
        for column, value in zip(columns, values, strict=True):
            number = mark_of(self._given(column, value)) if isinstance(column, exp.Column) else None
            if not isinstance(column, exp.Column) or number is None:
                raise NotServed("condition")
            paths.append(self.scope.path(column))
            side = "from_" if bound[0] == ">" else "to_"
            self._param(number, side + plain_name(paths[-1][1]), self._type(column))
            numbers.append(str(number))
        return QuestionCondition(paths[0], bound, tuple(numbers), then=tuple(paths[1:]))

    def _begun(self, part: exp.Expr) -> QuestionCondition:
        """Read LIKE with a parameter followed by '%'."""
        value = part.expression.unnest() if isinstance(part, exp.Like) else part
        pair = (value.this, value.expression) if isinstance(value, exp.DPipe) else tuple(value.expressions)
        is_begin = len(pair) == 2 and isinstance(pair[1], exp.Literal) and pair[1].name in ("%", "%%")
        side = _uncast(part.this)
        number = mark_of(pair[0]) if is_begin else None
        if number is None or not isinstance(side, exp.Column):
            raise NotServed("search")
        column, loose = self.scope.place(side)[1], engine_of(self.facts.dialect).schema.loosely_typed
        if column.kind.name != "text":
            raise NotServed("search", f"{column.name} is {column.kind.name}")
        if loose:
            raise NotServed("search", "LIKE ignores the case of ASCII letters here, a key does not")
        if "case" in column.alike:
            raise NotServed("case", f"by the collation of {column.name}")
        path = self.scope.path(side)
        self._param(number, f"{plain_name(path[1])}_prefix", "text")
        self.notes.append("the prefix must contain neither % nor _ nor \\")
        return QuestionCondition(path, "prefix", (str(number),))

    def _compared(self, side: exp.Expr, bound: Bound, value: exp.Expr) -> QuestionCondition:
        side, value = _uncast(side), value.unnest()
        lowered = isinstance(side, (exp.Lower, exp.Upper)) and (
            isinstance(value, type(side)) or mark_of(value) is not None
        )
        if lowered:
            is_lowered = isinstance(value, type(side))
            value = value.this.unnest() if is_lowered else self._lowered(value, type(side))
            side = _uncast(side.this)
        if not isinstance(side, exp.Column):
            raise NotServed("function")
        if isinstance(value, exp.Column):
            raise NotServed("columns")
        path = self.scope.path(side)
        value = self._given(side, value)
        number = mark_of(value)
        if number is not None:
            suffix = {"<": "to_", "<=": "to_", ">": "from_", ">=": "from_"}.get(bound, "")
            self._param(number, suffix + plain_name(path[1]), self._type(side))
            return QuestionCondition(path, bound, (str(number),), lowered=lowered)
        if bound != "=" or lowered:
            raise NotServed("constant")
        return QuestionCondition(path, bound, value=_constant(value))

    def _lowered(self, value: exp.Expr, function: type[exp.Expr]) -> exp.Expr:
        """The parameter, case-insensitive as the key is."""
        parameter = value.copy()
        value.replace(function(this=parameter))
        self.is_rewritten = True
        self.notes.append("the text may be in upper or lower case")
        return parameter

    def _given(self, column: exp.Column, value: exp.Expr) -> exp.Expr:
        kind = self.scope.place(column)[1].kind.name
        is_time = kind in ("timestamp", "date")
        inner = value.this if isinstance(value, exp.Cast) else value
        is_computed = isinstance(inner, (exp.Func, exp.Add, exp.Sub)) and not _is_value(inner)
        if isinstance(value, exp.Cast) and value.to.is_type(*_NARROWER.get(kind, ())):
            if not is_time:
                raise NotServed("condition", "a cast rounds the parameter")
            is_computed = True
        if not is_time or not is_computed or value.find(exp.Column, exp.Query, exp.Rand, exp.Array):
            return value
        parameter = exp.Placeholder(this=f"{_MARK}{len(self.names)}")
        self.names = (*self.names, "")
        value.replace(parameter)
        self.is_rewritten = True
        self.notes.append("the time that SQL computed is a parameter")
        return parameter

    def _listed(self, part: exp.In) -> QuestionCondition:
        values = [value.unnest() for value in part.expressions]
        numbers = [mark_of(value) for value in values]
        side = _uncast(part.this)
        if part.args.get("query") is not None:
            raise NotServed("shape")
        if not isinstance(side, exp.Column) or not numbers or numbers[0] is None or None in numbers:
            raise NotServed("list")
        if len(values) > 1 or self.is_rewritten:
            # A cast of a list would be one of its first value.
            part.set("expressions", [exp.Placeholder(this=f"{_MARK}{numbers[0]}")])
            self.is_rewritten = True
        path = self.scope.path(side)
        self._param(numbers[0], f"{plain_name(path[1])}s", f"list of {self._type(side)}")
        return QuestionCondition(path, "in", (str(numbers[0]),))

    def _type(self, column: exp.Column) -> str:
        kind = self.scope.place(column)[1].kind
        if kind.name not in _TYPES:
            raise NotServed("key", "a parameter of its type is not taken")
        return _TYPES[kind.name]

    def _param(self, number: int, wanted: str, type_: str) -> None:
        if number in self.params and self.params[number][1] != type_:
            raise NotServed("condition", "one parameter is compared with two types")
        if number not in self.params:
            # Drivers handle other characters in parameter names differently, or not at all.
            given = re.sub(r"\W", "_", self.names[number] or wanted, flags=re.ASCII).strip("_") or "value"
            self.params[number] = free_name(given, (name for name, _ in self.params.values())), type_

    def _with_names(self, condition: QuestionCondition) -> QuestionCondition:
        return replace(condition, params=tuple(self.params[int(number)][0] for number in condition.params))

    def _named(self, text: str) -> str:
        numbers = {int(number) for number in re.findall(rf":{_MARK}(\d+)", text)}
        if numbers != set(self.params):
            raise NotServed("condition", "a parameter is compared with no column")
        return re.sub(rf":{_MARK}(\d+)", lambda match: f":{self.params[int(match[1])][0]}", text)

    # ── output and order ──

    def _outputs(self, select: exp.Select) -> tuple[Path, ...]:
        outputs: list[Path] = []
        written: set[str] = set()
        for output in select.expressions:
            column = output.this if isinstance(output, exp.Alias) else output
            if isinstance(column, exp.Star) and not column.args.get("except_"):
                outputs += [path for name in self.scope.tables for path in self.scope.all_paths(name)]
            elif isinstance(column, exp.Column) and isinstance(column.this, exp.Star):
                outputs += self.scope.all_paths(column.table.lower())
            elif isinstance(column, exp.Column):
                if column.sql() in written:
                    raise NotServed("computed", "it returns one column twice")
                written.add(column.sql())
                outputs.append(self.scope.path(column))
                self.aliases[output.alias_or_name.lower()] = outputs[-1]
            elif self.total is not None and isinstance(column, exp.AggFunc):
                self.function = column
                outputs.append(("", self.total.alias))
                self.aliases[output.alias.lower()] = outputs[-1]
            else:
                raise NotServed("computed")
        return self._once(select, outputs)

    def _once(self, select: exp.Select, outputs: Sequence[Path]) -> tuple[Path, ...]:
        """A parent's key is the child's column that refers to it."""
        if len(set(outputs)) == len(outputs):
            return tuple(outputs)
        order = select.args.get("order")
        by_place = order is not None and any(isinstance(one.this, exp.Literal) for one in order.expressions)
        if len(select.expressions) != len(outputs) or by_place:
            raise NotServed("computed", "it returns one column twice")
        kept = dict(reversed([*zip(outputs, select.expressions, strict=True)]))
        once = tuple(dict.fromkeys(outputs))
        select.set("expressions", [kept[path] for path in once])
        self.is_rewritten = True
        self.notes.append("a column that is returned twice is returned once")
        return once

    def _order(self, select: exp.Select, outputs: Sequence[Path]) -> tuple[tuple[Path, bool], ...]:
        order = select.args.get("order")
        made: list[tuple[Path, bool]] = []
        for ordered in order.expressions if order is not None else ():
            path, descends = self._ordered_by(ordered.this, outputs), bool(ordered.args.get("desc"))
            moved = bool(ordered.args.get("nulls_first")) != self._puts_null_first(descends)
            if moved and self._has_null(path):
                if path[0]:
                    raise NotServed("limit", NULLS_MOVED)
                self.nulls_moved.append(path)
            made.append((path, descends))
        return tuple(made)

    def _puts_null_first(self, descends: bool) -> bool:
        return descends == (sqlglot_dialect(self.facts.dialect).NULL_ORDERING == "nulls_are_large")

    def _has_null(self, path: Path) -> bool:
        column = self.scope.tables[self.scope.root].column(path[1])
        return bool(path[0]) or column is None or column.nullable

    def _ordered_by(self, value: exp.Expr, outputs: Sequence[Path]) -> Path:
        if isinstance(value, exp.Literal) and value.is_int and 0 < int(value.this) <= len(outputs):
            return outputs[int(value.this) - 1]
        if isinstance(value, exp.Column) and not value.table and value.name.lower() in self.aliases:
            return self.aliases[value.name.lower()]
        if self.total is not None and value == self.function:
            return "", self.total.alias
        if isinstance(value, exp.Column):
            return self.scope.path(value)
        raise NotServed("function", "the order is that of a computed value")

    def _limit(self, select: exp.Select) -> str | None:
        limit = select.args.get("limit")
        if limit is None:
            return None
        options = limit.args.get("limit_options")
        if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
            raise NotServed("limit", "FETCH with PERCENT or WITH TIES")
        value = limit.args.get("count" if isinstance(limit, exp.Fetch) else "expression")
        if isinstance(limit, exp.Fetch) and value is None:
            return "1"
        if isinstance(value, exp.Literal) and value.is_int and int(value.this) > 0:
            return str(int(value.this))
        number = mark_of(value) if value is not None else None
        if number is None:
            raise NotServed("limit", "LIMIT is neither a number nor a parameter")
        self._param(number, "n", "integer")
        return self.params[number][0]

    def _joins_read(
        self,
        outputs: Sequence[Path],
        conditions: Sequence[QuestionCondition],
        order: Sequence[tuple[Path, bool]],
    ) -> tuple[Joined, ...]:
        read = {
            alias
            for alias, _ in (
                *outputs,
                *(condition.path for condition in conditions),
                *(path for path, _ in order),
            )
        }
        kept: list[Joined] = []
        for joined in reversed(list(self.scope.joined.values())):
            if joined.alias in read:
                kept.append(joined)
                read.add(joined.parent)
        return tuple(reversed(kept))

    def _of_parents(
        self, total: OfParents, conditions: Sequence[QuestionCondition], *, is_grouped: bool
    ) -> StatementQuestion:
        asked = {condition.path[1]: condition for condition in conditions}
        params = {name: self.params[int(condition.params[0])] for name, condition in asked.items()}
        pairs = [(own, theirs) for own, theirs in total.total.on if asked]
        return StatementQuestion(
            statement=self.statement,
            sql=total.sql.format(*(f":{params[own][0]}" for own, _ in pairs)),
            table=total.parent,
            params=tuple(params[own] for own, _ in pairs),
            conditions=tuple(
                QuestionCondition(("", theirs), asked[own].bound, (params[own][0],)) for own, theirs in pairs
            ),
            outputs=total.outputs,
            total=total.total,
            notes=(_OF_ALL if is_grouped else _OF_NONE,),
        )


_OF_ALL = "a parent without rows is in the answer"
_OF_NONE = "for a missing parent SQL returns 0 or NULL, and the pattern no item: read that as 0 or NULL"

_SAID = {"this", "expression", "negate", "low", "high", "expressions", "query"}
"""Arguments of a condition in sqlglot's tree that are handled here; any other (BETWEEN SYMMETRIC) may change its meaning."""


def _positive(part: exp.Expr) -> tuple[exp.Expr, bool]:
    is_negated = False
    while isinstance(part, (exp.Not, exp.Paren)):
        is_negated ^= isinstance(part, exp.Not)
        part = part.this
    return part, is_negated


def _is_null_test(part: exp.Expr) -> bool:
    return (
        isinstance(part, exp.Is)
        and isinstance(part.expression, exp.Null)
        and isinstance(part.this.unnest(), exp.Column)
    )


_NOT = "a key cannot leave rows out: leave them out in the application"
_ILIKE = "for whole texts in any letters query LOWER(column) = LOWER(?)"
_OR = "OR of different conditions: run one query for each, and merge their rows"


def _why_not(part: exp.Expr) -> tuple[str, str]:
    """Return (reason, details) for a condition that cannot be one on a key."""
    if isinstance(part, exp.ILike):
        return ("case", "") if isinstance(part.expression.unnest(), exp.DPipe) else ("search", _ILIKE)
    if part.find(exp.Like, exp.ILike, exp.RegexpLike, exp.MatchAgainst, exp.SimilarTo):
        return "search", ""
    return "condition", _OR if isinstance(part, exp.Or) else _NOT if part.find(exp.NEQ, exp.Not) else ""


def _uncast(side: exp.Expr) -> exp.Expr:
    side = side.unnest()
    is_text = isinstance(side, exp.Cast) and side.to.is_type(*exp.DataType.TEXT_TYPES)
    inner = side.this.unnest() if is_text else side
    return inner if isinstance(inner, exp.Column) else side


_NARROWER: Mapping[str, tuple[Any, ...]] = {
    "timestamp": (exp.DataType.Type.DATE,),
    "number": tuple(exp.DataType.INTEGER_TYPES),
    "float": tuple(exp.DataType.INTEGER_TYPES),
}
"""Types by kind of a column whose casts lose something of its values."""


def _is_value(side: exp.Expr) -> bool:
    return isinstance(side.unnest(), (exp.Literal, exp.Boolean)) or mark_of(side) is not None


def parameter_of(value: exp.Expr) -> str:
    """Return the parameter's name, also inside casts; '' for anything else."""
    value = value.unnest()
    while isinstance(value, exp.Cast):
        value = value.this.unnest()
    return value.name if isinstance(value, exp.Placeholder) else ""


def mark_of(value: exp.Expr) -> int | None:
    name = parameter_of(value)
    number = name.removeprefix(_MARK)
    return int(number) if number != name and number.isdecimal() else None


def _constant(value: exp.Expr) -> str | int | bool:
    if isinstance(value, exp.Cast) and value.to.is_type(*exp.DataType.TEMPORAL_TYPES):
        value = value.this.unnest()
    if isinstance(value, exp.Boolean):
        return bool(value.this)
    if isinstance(value, exp.Literal) and (value.is_string or value.is_int):
        return str(value.this) if value.is_string else int(value.this)
    raise NotServed("condition")
