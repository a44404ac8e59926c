"""The tables of one SELECT: which row it gives, which parents are joined to it by whole keys, and where columns stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from migrator.mapping.model.facts import Column, SchemaFacts, TableFacts
from migrator.mapping.model.questions import Joined, Path, parent_alias
from migrator.source.sql.spelling import folded

Pair = tuple[exp.Column, exp.Column]
On = tuple[tuple[str, str], ...]


class NoQuestion(Exception):
    """Why a statement is no question: a word of REASONS, and what of it."""

    def __init__(self, reason: str, what: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.what = what


@dataclass
class QueryScope:
    """Tables by the name that the statement has for them. `root`: the one whose rows are asked for; `joined`: its parents;
    `optional`: those of a LEFT JOIN; `required`: columns of the root that an inner join leaves out where they are NULL.

    `turned`: of a total, the child's columns that are the root's key.
    """

    tables: dict[str, TableFacts] = field(default_factory=dict)
    root: str = ""
    joined: dict[str, Joined] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)
    required: set[str] = field(default_factory=set)
    turned: dict[tuple[str, str], str] = field(default_factory=dict)

    def place(self, column: exp.Column) -> tuple[str, Column]:
        """The table's name in the statement, and the column. Raises: NoQuestion where it is none, or several."""
        if column.args.get("db") is not None or not isinstance(column.this, exp.Identifier):
            raise NoQuestion("ambiguous")
        named = [column.table.lower()] if column.table else list(self.tables)
        places = [
            (name, fact)
            for name in named
            if name in self.tables and (fact := column_named(self.tables[name], column.this)) is not None
        ]
        if len(places) != 1:
            raise NoQuestion("ambiguous")
        return places[0]

    def path(self, column: exp.Column) -> Path:
        """Where the column stands in the row tree: a parent's key is the child's column that points to it."""
        name, fact = self.place(column)
        return self._lifted(name, fact.name)

    def all_paths(self, name: str) -> list[Path]:
        """Those of the columns that `SELECT *` returns of a table."""
        if name not in self.tables or self.turned:
            raise NoQuestion("ambiguous")
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
                raise NoQuestion("aggregate")
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
        """Makes the only parent the root: a total is asked for, which is a number of its."""
        joined = self.joined.pop(parent)
        self.turned = {(self.root, own): theirs for own, theirs in joined.on}
        self.root = parent
        self.required.clear()


def scope_of(select: exp.Select, facts: SchemaFacts) -> QueryScope:
    """The tables of a SELECT. Raises: NoQuestion where they are not one row and its parents."""
    scope = QueryScope()
    _add_table(scope, select.args["from_"].this, facts)
    pairs: list[Pair] = []
    for join in select.args.get("joins") or []:
        side, kind = ((join.args.get(word) or "").upper() for word in ("side", "kind"))
        if side not in ("", "LEFT") or kind not in ("", "INNER", "CROSS", "OUTER") or join.args.get("method"):
            raise NoQuestion("join", f"{side or kind or 'NATURAL'} JOIN")
        name = _add_table(scope, join.this, facts)
        scope.optional |= {name} if side else set()
        pairs += _pairs_of(scope, join, name)
    # Equalities of columns in WHERE join what commas list.
    pairs += [_pair(part) for part in conjuncts(select) if joins_columns(part)]
    _link(scope, pairs)
    return scope


def conjuncts(select: exp.Select) -> list[exp.Expr]:
    """The conditions of WHERE that all hold."""
    where = select.args.get("where")
    if where is None:
        return []
    condition = where.this.unnest()
    return [part.unnest() for part in condition.flatten()] if isinstance(condition, exp.And) else [condition]


def joins_columns(part: exp.Expr) -> bool:
    """Whether it is an equality of two columns."""
    return (
        isinstance(part, exp.EQ) and isinstance(part.left, exp.Column) and isinstance(part.right, exp.Column)
    )


def _add_table(scope: QueryScope, table: exp.Expr, facts: SchemaFacts) -> str:
    if (
        not isinstance(table, exp.Table)
        or not isinstance(table.this, exp.Identifier)
        or table.args.get("joins")
    ):
        raise NoQuestion("shape")
    named = table_named(facts, table)
    if named is None:
        raise NoQuestion("ambiguous", "a table that the source does not have")
    name = table.alias_or_name.lower()
    if name in scope.tables:
        raise NoQuestion("ambiguous", "one name for two tables")
    scope.tables[name] = named
    return name


def table_named(facts: SchemaFacts, table: exp.Table) -> TableFacts | None:
    """The table of the source that a statement names, in the schema that it names."""
    schemas = (None, table.db.lower())
    real = {
        known.real: known
        for known in facts.tables.values()
        if not table.db or (known.schema and known.schema.lower()) in schemas
    }
    named = folded(real, exp.to_identifier(table.this)) or folded(real, exp.to_identifier(table.name))
    return None if named is None else real[named]


def _pairs_of(scope: QueryScope, join: exp.Join, name: str) -> list[Pair]:
    if join.args.get("using"):
        return [_using(scope, column, name) for column in join.args["using"]]
    on = join.args.get("on")
    parts = list(on.flatten()) if isinstance(on, exp.And) else [on] if on is not None else []
    return [_pair(part) for part in parts]


def _using(scope: QueryScope, column: exp.Expr, name: str) -> Pair:
    if not isinstance(column, exp.Identifier):
        raise NoQuestion("join", "USING names no column")
    owners = [other for other, table in scope.tables.items() if other != name and column_named(table, column)]
    if len(owners) != 1:
        raise NoQuestion("ambiguous", "a column of USING")
    return exp.column(column.copy(), owners[0]), exp.column(column.copy(), name)


def _pair(part: exp.Expr) -> Pair:
    part = part.unnest()
    if not joins_columns(part):
        raise NoQuestion("join", "a condition of the join is no equality of two columns")
    return part.left, part.right  # type: ignore[attr-defined]


def column_named(table: TableFacts, identifier: exp.Identifier) -> Column | None:
    """The column that is meant; names of columns in any case, as most engines have them."""
    columns = {column.real: column for column in table.columns if column.sql is None}
    any_case = {real.lower(): column for real, column in columns.items()}
    return columns.get(folded(columns, identifier) or "") or any_case.get(identifier.name.lower())


def _link(scope: QueryScope, pairs: Sequence[Pair]) -> None:
    """Finds the row whose parents all others are, and joins them to it."""
    links: dict[frozenset[str], list[dict[str, str]]] = {}
    for pair in pairs:
        ends = {name: column.name for name, column in map(scope.place, pair)}
        links.setdefault(frozenset(ends), []).append(ends)
    parents: dict[str, tuple[str, On]] = {}
    for names, ends_of in links.items():
        if len(names) != 2:
            raise NoQuestion("join", "a table with itself by one name")
        child, parent, on = _directed(scope, sorted(names), ends_of)
        if parent in parents or (child in scope.optional and parent not in scope.optional):
            raise NoQuestion("join", "a row with several children, or a LEFT JOIN of children")
        parents[parent] = child, on
    roots = [name for name in scope.tables if name not in parents]
    if len(roots) != 1 or len(links) != len(scope.tables) - 1:
        raise NoQuestion("join", "tables that nothing joins, or that are joined in a circle")
    scope.root = roots[0]
    _join_parents(scope, parents, scope.root, "")


def _directed(
    scope: QueryScope, names: Sequence[str], ends_of: Sequence[dict[str, str]]
) -> tuple[str, str, On]:
    """(child, parent, columns of both): the parent is the one whose whole key is named."""
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
        raise NoQuestion("join", "not by a whole key")
    undeclared, child, parent, on = min(ways)
    if undeclared and parent not in scope.optional:
        raise NoQuestion("join", "by no foreign key of the schema, so that rows may have no parent")
    return child, parent, on


def _join_parents(scope: QueryScope, parents: dict[str, tuple[str, On]], child: str, alias: str) -> None:
    for name, (of, on) in parents.items():
        if of != child:
            continue
        table, parent = scope.tables[child], scope.tables[name]
        own_alias = parent_alias(scope.tables[scope.root], alias, table, parent.name, on)
        if own_alias in (joined.alias for joined in scope.joined.values()):
            raise NoQuestion("join", "one parent twice")
        scope.joined[name] = Joined(own_alias, alias, parent.name, on)
        if name not in scope.optional:
            _require(scope, child, [own for own, _ in on])
        _join_parents(scope, parents, name, own_alias)


def _require(scope: QueryScope, child: str, columns: Sequence[str]) -> None:
    """An inner join leaves out rows whose columns are NULL."""
    table = scope.tables[child]
    nullable = {name for name in columns if (column := table.column(name)) is not None and column.nullable}
    if nullable and child != scope.root:
        raise NoQuestion("join", "an inner join by a column of a parent that may be NULL")
    scope.required |= nullable
