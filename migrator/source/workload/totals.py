"""Numbers that a statement makes of a row's children: of each parent in the order of the number, or of one parent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from migrator.mapping.model.facts import SchemaFacts, TableFacts
from migrator.mapping.model.mapping import Aggregate
from migrator.mapping.model.questions import Condition, Total, free_name, parent_keys, plain_name
from migrator.source.engines.connect import engine_of
from migrator.source.workload.scope import NoQuestion, Scope

_KINDS: dict[type[exp.Expr], Aggregate] = {exp.Count: "count", exp.Sum: "sum", exp.Min: "min", exp.Max: "max"}
ALL = "all"
"""What a count counts."""


def total_of_each(select: exp.Select, scope: Scope, conditions: Sequence[Condition]) -> Total:
    """SUM, MIN or MAX of a table's rows for each of their parents: the parent is the row of the scope from then on.

    Raises: NoQuestion for every other number of many rows.
    """
    function, group = _function(select), select.args.get("group")
    kind = _KINDS.get(type(function)) if isinstance(function.this, exp.Column) else None
    if group is None or conditions or kind in (None, "count") or len(scope.joined) != 1:
        raise NoQuestion("aggregate")
    assert kind is not None
    (parent, joined), child = next(iter(scope.joined.items())), scope.root
    name, column = scope.place(function.this)
    if not all(isinstance(value, exp.Column) for value in group.expressions):
        raise NoQuestion("aggregate")
    places = [scope.place(value) for value in group.expressions if isinstance(value, exp.Column)]
    by = {(owner, fact.name) for owner, fact in places}
    keys = {(child, own) for own, _ in joined.on}, {(parent, theirs) for _, theirs in joined.on}
    others = {place for place in by if place[0] == child} - keys[0]
    if name != child or column.nullable or others or not any(key <= by for key in keys):
        raise NoQuestion("aggregate")
    alias = f"{kind}_{plain_name(column.name)}_of_{plain_name(scope.tables[child].name)}"
    alias = free_name(alias, (fact.name for fact in scope.tables[parent].columns))
    total = Total(alias, kind, column.name, scope.tables[child].name, joined.on)
    scope.turn(parent)
    return total


def _function(select: exp.Select) -> exp.Expr:
    """The only one that makes a number of rows. Raises: NoQuestion where there are several."""
    functions: list[exp.Expr] = [
        function for output in select.expressions for function in output.find_all(exp.AggFunc)
    ]
    if len(functions) != 1:
        raise NoQuestion("aggregate")
    return functions[0]


@dataclass(frozen=True)
class OfOneParent:
    """COUNT, SUM, MIN or MAX of the children of one parent, asked of the parent. `by`: (the child's column, the parent's);
    `sql`: answers as the parent's item does, with a blank for each parameter in the order of `by`."""

    parent: str
    total: Total
    sql: str


def total_of_one(
    select: exp.Select, scope: Scope, conditions: Sequence[Condition], facts: SchemaFacts
) -> OfOneParent | None:
    """None where the statement is another one. A foreign key says that no child is without its parent."""
    table = scope.tables[scope.root]
    asked = {condition.path[1] for condition in conditions if condition.bound == "=" and condition.params}
    others = any(select.args.get(word) for word in ("group", "order", "limit"))
    lowered = any(condition.lowered or condition.path[0] for condition in conditions)
    if others or lowered or scope.joined or len(asked) != len(conditions) or len(select.expressions) != 1:
        return None
    foreign = next((key for key in parent_keys(facts, table) if set(key.columns) == asked), None)
    output = select.expressions[0].unalias()
    if foreign is None or type(output) not in _KINDS:
        return None
    kind, column = _KINDS[type(output)], _counted(output, scope)
    if column is None or (kind != "count" and column == ALL):
        return None
    parent, on = facts.tables[foreign.table], tuple(zip(foreign.columns, foreign.referred, strict=True))
    what = "rows" if column == ALL else plain_name(column)
    alias = f"{kind}_{what}_of_{plain_name(table.name)}_by_{'_'.join(map(plain_name, foreign.columns))}"
    total = Total(free_name(alias, (fact.name for fact in parent.columns)), kind, column, table.name, on)
    return OfOneParent(parent.name, total, _sql(facts, table, parent, total))


def _counted(function: exp.Expr, scope: Scope) -> str | None:
    """The column of a number, ALL for a count of rows; None for anything else."""
    value = function.this
    if isinstance(value, exp.Column):
        column = scope.place(value)[1]
        if isinstance(function, exp.Count):
            return None if column.nullable else ALL
        return column.name if column.sql is None else None
    rows = isinstance(value, exp.Star) or (isinstance(value, exp.Literal) and value.is_int)
    return ALL if isinstance(function, exp.Count) and rows else None


def _sql(facts: SchemaFacts, child: TableFacts, parent: TableFacts, total: Total) -> str:
    """One row for a parent that is there, and none for another one."""
    quote = engine_of(facts.dialect).sql.quote

    def named(table: TableFacts, name: str) -> str:
        column = table.column(name)
        return quoted(name if column is None else column.real)

    def quoted(name: str) -> str:
        return quote + name.replace(quote, quote * 2) + quote

    what = "*" if total.column == ALL else f"children.{named(child, total.column)}"
    on = " AND ".join(
        f"children.{named(child, own)} = parent.{named(parent, theirs)}" for own, theirs in total.on
    )
    number = f"SELECT {total.kind.upper()}({what}) FROM {quoted(child.real)} AS children WHERE {on}"
    asked = " AND ".join(f"parent.{named(parent, theirs)} = {{}}" for _, theirs in total.on)
    return f"SELECT ({number}) AS {quoted(total.alias)} FROM {quoted(parent.real)} AS parent WHERE {asked}"
