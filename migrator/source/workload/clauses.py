"""Columns that filter and order the rows of any statement, and its OFFSET and LIMIT."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from migrator.mapping.model.facts import SchemaFacts
from migrator.mapping.model.questions import Clauses, OrderTerm, TableColumn
from migrator.runtime.errors import SettingsError, did_you_mean
from migrator.source.sql.spelling import sqlglot_dialect
from migrator.source.sql.statements import read_select
from migrator.source.workload.reading import column_named, parameter_of, table_named

_FILTERS_OF: dict[type[exp.Expr], str] = {exp.Lower: "lower", exp.Upper: "upper", exp.Trim: "trim"}
"""By function, the mapping's filter with the same order."""
_COARSER = (exp.Collate, exp.Date, exp.DateTrunc, exp.TimestampTrunc, exp.TsOrDsToDate, exp.Year)
"""Functions that keep the order of a column's rows."""


def clauses_of(sql: str, facts: SchemaFacts) -> Clauses | None:
    reader = _reader_of(sql, facts)
    return None if reader is None else reader.clauses()


def unknown_name(sql: str, facts: SchemaFacts) -> str:
    reader = _reader_of(sql, facts)
    if reader is None:
        return ""
    scopes = reader.scopes
    sources = {alias.lower(): source for scope in scopes for alias, source in scope.sources.items()}
    for source in sources.values():
        if isinstance(source, exp.Table) and table_named(facts, source) is None:
            known = [table.real for table in facts.tables.values()]
            return f"the source has no table '{source.name}'{did_you_mean(source.name, known)}"
    columns = [(scope, column) for scope in scopes for column in scope.columns]
    unknown = [column for scope, column in columns if not reader.places(scope, column)]
    column = next((column for column in unknown if isinstance(column.this, exp.Identifier)), None)
    return "" if column is None else _unknown_column(column, sources, facts)


def _reader_of(sql: str, facts: SchemaFacts) -> _ClauseReader | None:
    try:
        _, tree = read_select(sql, facts.dialect)
        scopes = traverse_scope(tree) if isinstance(tree, exp.Query) else []
    except (SettingsError, SqlglotError, RecursionError):
        return None
    return _ClauseReader(facts, scopes) if scopes else None


def _unknown_column(column: exp.Column, sources: Mapping[str, exp.Expr | Scope], facts: SchemaFacts) -> str:
    named = column.table.lower()
    if named and named not in sources:
        return f"no table is called '{column.table}' in it{did_you_mean(column.table, sources)}"
    own = [
        source for alias, source in sources.items() if named in ("", alias) and isinstance(source, exp.Table)
    ]
    tables = [table for source in own if (table := table_named(facts, source)) is not None]
    where = f"table {tables[0].real} has" if len(tables) == 1 else "its tables have"
    known = [each.real for table in tables for each in table.columns]
    return f"{where} no column '{column.name}'{did_you_mean(column.name, known)}"


class _ClauseReader:
    """Reads the clauses of one statement. `scopes`: of its SELECTs, the outermost last."""

    def __init__(self, facts: SchemaFacts, scopes: list[Scope]) -> None:
        self.facts = facts
        self.scopes = scopes
        self.outermost = scopes[-1]
        self.joined: dict[TableColumn, set[TableColumn]] = {}
        self.filters: dict[TableColumn, None] = {}
        self.equal: set[TableColumn] = set()
        self.groups = ""
        self.offset = False
        self.limit = ""

    def clauses(self) -> Clauses:
        for scope in self.scopes:
            self._read(scope)
        order = tuple(self._order())
        return Clauses(
            filters=tuple(self._same(self.filters)),
            equal=frozenset(self._same(self.equal)),
            groups=self.groups,
            order=order,
            offset=self.offset,
            limit=self.limit,
            once=frozenset(self._once()),
        )

    def _once(self) -> Iterator[str]:
        sources = (source for scope in self.scopes for source in scope.sources.values())
        tables = (table_named(self.facts, source) for source in sources if isinstance(source, exp.Table))
        named = Counter(table.name for table in tables if table is not None)
        return (name for name, number in named.items() if number == 1)

    def _read(self, scope: Scope) -> None:
        for node in scope.walk():
            if isinstance(node, exp.EQ):
                self._equality(scope, node)
            elif isinstance(node, exp.Column) and _filters(node):
                places = self.places(scope, node)
                is_joined = isinstance(node.parent, exp.EQ) and self._is_join(scope, node.parent)
                if not is_joined and not _is_in_subquery(node):
                    self.filters |= dict.fromkeys(places)
            elif isinstance(node, exp.Having) and node.find(exp.Column) is None:
                self.groups = self._text(node.this)
            elif isinstance(node, (exp.Limit, exp.Fetch)) and node.parent is not None:
                value = node.expression if isinstance(node, exp.Limit) else node.args.get("count")
                self.offset |= bool(node.args.get("offset"))
                if _gives_rows(node.parent):
                    limit = self._text(value) if value is not None else "1"
                    self.limit = "" if limit in ("ALL", "NULL") else limit
            elif isinstance(node, exp.Offset):
                self.offset |= not (isinstance(node.expression, exp.Literal) and node.expression.name == "0")

    def _equality(self, scope: Scope, node: exp.EQ) -> None:
        if self._is_join(scope, node):
            left, right = self._columns(scope, node.left), self._columns(scope, node.right)
            for ours, theirs in product(left, right):
                if ours[0] != theirs[0]:
                    self.joined.setdefault(ours, set()).add(theirs)
                    self.joined.setdefault(theirs, set()).add(ours)
            return
        for side, other in ((node.left.unnest(), node.right), (node.right.unnest(), node.left)):
            # An equality below OR or NOT does not hold for every row.
            if isinstance(side, exp.Column) and not list(other.find_all(exp.Column)) and _always_holds(node):
                self.equal |= set(self.places(scope, side))

    def _is_join(self, scope: Scope, node: exp.EQ) -> bool:
        if not (isinstance(node.left, exp.Column) and isinstance(node.right, exp.Column)):
            return False
        if node.left.table and node.right.table:
            return node.left.table.lower() != node.right.table.lower()
        left, right = self.places(scope, node.left), self.places(scope, node.right)
        return bool(left) and bool(right) and {table for table, _ in left} != {table for table, _ in right}

    def _same(self, places: dict[TableColumn, None] | set[TableColumn]) -> Iterator[TableColumn]:
        yield from dict.fromkeys(one for place in places for one in (place, *self.joined.get(place, ())))

    # ── columns ──

    def places(self, scope: Scope | None, column: exp.Column, depth: int = 0) -> list[TableColumn]:
        if scope is None or not isinstance(column.this, exp.Identifier):
            return []
        sources = {alias.lower(): source for alias, source in scope.sources.items()}
        named = [column.table.lower()] if column.table else list(sources)
        for alias in named:
            source = sources.get(alias)
            found = self._in_source(source, column.this, depth) if source is not None else []
            if found:
                return found
        if not column.table and (output := _output(scope.expression, column.name)) is not None and depth < 9:
            return self._columns(scope, output, depth + 1)
        return self.places(scope.parent, column, depth)

    def _in_source(self, source: exp.Expr | Scope, name: exp.Identifier, depth: int) -> list[TableColumn]:
        if isinstance(source, exp.Table):
            table = table_named(self.facts, source)
            column = column_named(table, name) if table is not None else None
            return [(table.name, column.name)] if table is not None and column is not None else []
        if not isinstance(source, Scope) or depth > 9:
            return []
        output = _output(source.expression, name.name)
        if output is not None:
            return self._columns(source, output, depth + 1)
        if any(isinstance(one.unalias(), exp.Star) for one in _outputs(source.expression)):
            return self.places(source, exp.column(name.copy()), depth + 1)
        return []

    def _columns(self, scope: Scope, value: exp.Expr, depth: int = 0) -> list[TableColumn]:
        return [place for column in value.find_all(exp.Column) for place in self.places(scope, column, depth)]

    # ── the order ──

    def _order(self) -> Iterator[OrderTerm]:
        tree, scope = self.outermost.expression, self.outermost
        while isinstance(scope.expression, exp.SetOperation) and scope.set_operation_scopes:
            scope = scope.set_operation_scopes[0]
        order = tree.args.get("order")
        for ordered in order.expressions if order is not None else ():
            written = ordered.this.unnest()
            value = self._ordered_by(scope, written)
            filters = []
            while isinstance(value, (*_COARSER, *_FILTERS_OF)) or _is_day(value):
                filters += [_FILTERS_OF[type(value)]] if type(value) in _FILTERS_OF else []
                value = value.this.unnest()
            places = tuple(self._same(dict.fromkeys(self._columns(scope, value))))
            # A subquery's output has another name in the item, as a parent's columns have.
            if (places or isinstance(value, exp.Rand)) and value.find(exp.Query) is None:
                is_column = isinstance(value, exp.Column)
                descends = bool(ordered.args.get("desc"))
                yield OrderTerm(self._text(written), places, is_column, tuple(filters), descends)

    def _ordered_by(self, scope: Scope, value: exp.Expr) -> exp.Expr:
        outputs = _outputs(scope.expression)
        output = None
        if isinstance(value, exp.Literal) and value.is_int and 0 < int(value.this) <= len(outputs):
            output = outputs[int(value.this) - 1]
        elif isinstance(value, exp.Column) and not value.table:
            output = _output(scope.expression, value.name)
        return value if output is None else output.unalias().unnest()

    def _text(self, value: exp.Expr) -> str:
        named = value.transform(_named) if value.find(exp.Placeholder) is not None else value
        return named.sql(dialect=sqlglot_dialect(self.facts.dialect))


def _named(node: exp.Expr) -> exp.Expr:
    name = parameter_of(node)
    return exp.var(f":{name}") if name else node


def _is_day(value: exp.Expr) -> bool:
    return isinstance(value, exp.Cast) and value.to.is_type(exp.DataType.Type.DATE)


def _filters(column: exp.Column) -> bool:
    clause = column.find_ancestor(exp.Where, exp.Having, exp.Join, exp.Order, exp.Group, exp.Select)
    if isinstance(clause, exp.Join):
        return (clause.side or "").upper() not in ("LEFT", "FULL")
    return isinstance(clause, (exp.Where, exp.Having))


def _is_in_subquery(column: exp.Column) -> bool:
    test = column.parent
    if not isinstance(test, exp.In) or test.this is not column or not _always_holds(test):
        return False
    query = test.args.get("query")
    outputs = _outputs(query.unnest()) if query is not None else []
    return len(outputs) == 1 and isinstance(outputs[0].unalias(), exp.Column)


def _always_holds(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, (exp.And, exp.Paren)):
        parent = parent.parent
    return isinstance(parent, (exp.Where, exp.Join))


def _gives_rows(query: exp.Expr) -> bool:
    return query.find_ancestor(exp.Where, exp.Having, exp.Exists) is None and not any(
        query in one.walk() for outer in [query.find_ancestor(exp.Select)] if outer for one in outer.selects
    )


def _outputs(query: exp.Expr) -> list[exp.Expr]:
    return query.selects if isinstance(query, exp.Query) else []


def _output(query: exp.Expr, name: str) -> exp.Expr | None:
    named = (one for one in _outputs(query) if one.alias_or_name.lower() == name.lower())
    output = next((one for one in named if not isinstance(one, exp.Star)), None)
    return None if output is None else output.unalias()
