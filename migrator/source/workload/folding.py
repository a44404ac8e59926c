"""ORM-generated statements as one SELECT of tables: wrappers are merged, subqueries of keys become joins."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.merge_subqueries import merge_subqueries
from sqlglot.optimizer.qualify import qualify

from migrator.mapping.model.facts import SchemaFacts
from migrator.source.adapter.statement import quietly
from migrator.source.sql.spelling import sqlglot_dialect

_OF_ROWS = {"expressions", "from_", "joins", "where", "kind"}
"""Clauses of a SELECT that returns rows unchanged."""


def folded_statement(tree: exp.Query, facts: SchemaFacts) -> tuple[exp.Query, bool, frozenset[str]]:
    """The folded statement, with parts that cannot be folded; whether it only tests that a row exists; and tables
    from a condition, which are never returned. May change the tree.
    """
    for offset in list(tree.find_all(exp.Offset)):
        if isinstance(offset.expression, exp.Literal) and offset.expression.name == "0":
            offset.pop()
    of_existence = _existence(tree)
    select = _count_of_rows(of_existence or tree)
    select = _without_wrappers(select, facts)
    if not isinstance(select, exp.Select):
        return select, of_existence is not None, frozenset()
    _drop_schemas(select)
    _move_conditions(select)
    _join_inside(select)
    _compare_rows(select)
    conditional = frozenset(_join_subqueries(select, facts))
    return select, of_existence is not None, conditional


def conjuncts(select: exp.Select) -> list[exp.Expr]:
    where = select.args.get("where")
    return [] if where is None else [part for part in _all_of(where.this) if not _is_true(part)]


def _all_of(condition: exp.Expr) -> Iterator[exp.Expr]:
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from _all_of(condition.left)
        yield from _all_of(condition.right)
    else:
        yield condition


def without_or(part: exp.Or) -> exp.Expr | None:
    """The condition as IN, or as a comparison of rows: a < x OR (a = x AND b < y) is (a, b) < (x, y); else None.

    A value that is given several times is assumed to be the same.
    """
    branches = sorted(_any_of(part), key=len)
    last = branches[-1]
    if all(len(branch) == 1 and isinstance(branch[0], (exp.EQ, exp.In)) for branch in branches):
        column = last[0].this.unnest()
        values = [value for (one,) in branches for value in (one.expressions or [one.expression])]
        is_one = isinstance(column, exp.Column) and all(one.this.unnest() == column for (one,) in branches)
        is_one = is_one and not any(one.args.get("query") or one.args.get("negate") for (one,) in branches)
        return exp.In(this=column.copy(), expressions=[value.copy() for value in values]) if is_one else None
    kind = type(last[-1])
    strict = exp.GT if kind is exp.GTE else exp.LT if kind is exp.LTE else kind
    if strict not in (exp.GT, exp.LT) or not all(isinstance(one, exp.EQ) for one in last[:-1]):
        return None
    columns = [one.this.unnest() for one in last]
    for number, branch in enumerate(branches, 1):
        kinds = [exp.EQ] * (number - 1) + [kind if branch is last else strict]
        if [type(one) for one in branch] != kinds or [one.this.unnest() for one in branch] != columns[
            :number
        ]:
            return None
    values = [one.expression.unnest() for one in last]
    return kind(
        this=exp.Tuple(expressions=[column.copy() for column in columns]),
        expression=exp.Tuple(expressions=[value.copy() for value in values]),
    )


def _any_of(condition: exp.Expr) -> Iterator[list[exp.Expr]]:
    condition = condition.unnest()
    if isinstance(condition, exp.Or):
        yield from _any_of(condition.left)
        yield from _any_of(condition.right)
        return
    *before, last = _all_of(condition)
    if isinstance(last, exp.Or):
        yield from ([*before, *branch] for branch in _any_of(last))
    else:
        yield [*before, last]


def _is_true(part: exp.Expr) -> bool:
    """Whether it is TRUE, or a condition like 1=1."""
    if isinstance(part, exp.EQ):
        return isinstance(part.left, exp.Literal) and part.left == part.right
    return isinstance(part, exp.Boolean) and bool(part.this)


# ── whether there is a row ──


def _existence(tree: exp.Query) -> exp.Select | None:
    if not isinstance(tree, exp.Select) or not tree.expressions or tree.args.get("group"):
        return None
    outputs = [output.unalias().unnest() for output in tree.expressions]
    if tree.args.get("from_") is not None and all(_is_constant(output) for output in outputs):
        return tree
    tested = _tested(outputs[0])
    if len(outputs) > 1 or tested is None:
        return None
    if isinstance(tested, exp.Exists):
        is_alone = {name for name, value in tree.args.items() if value} == {"expressions"}
        if not is_alone or not isinstance(tested.this, exp.Select) or _aggregates(tested.this):
            return None
        tested.this.set("limit", exp.Limit(expression=exp.Literal.number(1)))
        return tested.this
    counted = tested.this.this
    if isinstance(counted, exp.Column):
        # COUNT(column) counts rows with a value in it.
        tree.where(exp.Not(this=exp.Is(this=counted.copy(), expression=exp.Null())), copy=False)
    elif not (isinstance(counted, exp.Star) or _is_constant(counted)):
        return None
    tree.set("expressions", [exp.Literal.number(1)])
    tree.set("limit", exp.Limit(expression=exp.Literal.number(1)))
    return tree


def _tested(output: exp.Expr) -> exp.Expr | None:
    """EXISTS (…) or COUNT(…) > 0, alone or as CASE WHEN … THEN … ELSE … END of two constants."""
    if isinstance(output, exp.Case) and output.this is None and len(output.args["ifs"]) == 1:
        (branch,), default = output.args["ifs"], output.args.get("default")
        if not _is_constant(branch.args["true"]) or default is None or not _is_constant(default):
            return None
        output = branch.this.unnest()
    is_counted = (
        isinstance(output, exp.GT)
        and isinstance(output.left, exp.Count)
        and isinstance(output.right, exp.Literal)
        and output.right.name == "0"
    )
    return output if isinstance(output, exp.Exists) or is_counted else None


def _aggregates(select: exp.Select) -> bool:
    return any(output.find(exp.AggFunc, exp.Window) for output in select.expressions)


def _is_constant(value: exp.Expr) -> bool:
    value = value.this if isinstance(value, exp.Cast) else value
    return isinstance(value, (exp.Literal, exp.Boolean, exp.Null, exp.Placeholder, exp.Parameter))


# ── wrappers ──


def _count_of_rows(tree: exp.Query) -> exp.Query:
    """SELECT COUNT(*) FROM (SELECT …) becomes the count of the inner rows."""
    given = {name for name, value in tree.args.items() if value}
    source = tree.args["from_"].this if given == {"expressions", "from_"} else None
    inner = source.this if isinstance(source, exp.Subquery) else None
    if not isinstance(inner, exp.Select) or len(tree.expressions) != 1:
        return tree
    counts = tree.expressions[0].unalias()
    is_plain = {name for name, value in inner.args.items() if value} <= _OF_ROWS | {"order"}
    if not (isinstance(counts, exp.Count) and isinstance(counts.this, exp.Star) and is_plain):
        return tree
    if _aggregates(inner):
        return tree
    inner.set("expressions", [tree.expressions[0]])
    inner.set("order", None)
    return inner.copy()


def _without_wrappers(tree: exp.Query, facts: SchemaFacts) -> exp.Query:
    if not isinstance(tree, exp.Select):
        return tree
    sources = [tree.args.get("from_"), *(tree.args.get("joins") or [])]
    if not tree.args.get("with_") and not any(
        source and isinstance(source.this, exp.Subquery) for source in sources
    ):
        return tree
    schema: dict[str, object] = {
        table.real: {
            column.real: "TEXT" for column in table.columns if column.sql is None and not column.hidden
        }
        for table in facts.tables.values()
    }
    try:
        with quietly():
            qualified = qualify(
                tree.copy(),
                schema=schema,
                dialect=sqlglot_dialect(facts.dialect),
                validate_qualify_columns=False,
            )
            merged = merge_subqueries(qualified)
    except (SqlglotError, RecursionError):
        return tree
    return _passed_on(merged) if isinstance(merged, exp.Select) else tree


def _passed_on(tree: exp.Select) -> exp.Select:
    given = {name for name, value in tree.args.items() if value}
    source = tree.args["from_"].this if given == {"expressions", "from_"} else None
    inner = source.this if isinstance(source, exp.Subquery) else None
    if not isinstance(inner, exp.Select):
        return tree
    named = {output.alias_or_name: output for output in inner.expressions}
    outputs = [output.unalias() for output in tree.expressions]
    if not all(isinstance(output, exp.Column) and output.name in named for output in outputs):
        return tree
    inner = inner.copy()
    inner.set("expressions", [named[output.name].copy() for output in outputs])
    return inner


def _move_conditions(select: exp.Select) -> None:
    for join in select.args.get("joins") or []:
        on = join.args.get("on")
        if on is None or join.side or (join.kind or "") not in ("", "INNER", "CROSS"):
            continue
        parts = list(_all_of(on))
        others = [part for part in parts if not compares_columns(part)]
        if others and len(others) < len(parts):
            join.set("on", exp.and_(*(part.copy() for part in parts if compares_columns(part))))
            select.where(*(exp.paren(part.copy()) for part in others), copy=False)


def _join_inside(select: exp.Select) -> None:
    """Turn a LEFT JOIN into an inner one if a condition needs its table."""
    needed = {
        column.table.lower()
        for part in conjuncts(select)
        if isinstance(part, (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In)) and not compares_columns(part)
        for column in [part.this.unnest()]
        if isinstance(column, exp.Column)
    }
    for join in select.args.get("joins") or []:
        if join.side == "LEFT" and join.this.alias_or_name.lower() in needed:
            join.set("side", None)
            join.set("kind", None)


def _compare_rows(select: exp.Select) -> None:
    """a <= x AND (a < x OR b < y) becomes (a, b) < (x, y)."""
    parts = conjuncts(select)
    for part in (part for part in parts if isinstance(part, exp.Or)):
        first, last = part.left.unnest(), part.right.unnest()
        kind = exp.LTE if isinstance(first, exp.LT) else exp.GTE
        if not isinstance(first, (exp.LT, exp.GT)) or type(last) is not type(first):
            continue
        bound = next(
            (each for each in parts if type(each) is kind and each.this.unnest() == first.this.unnest()), None
        )
        if bound is not None:
            equal = exp.EQ(this=first.this.copy(), expression=first.expression.copy())
            part.replace(exp.Or(this=first.copy(), expression=exp.And(this=equal, expression=last.copy())))
            bound.replace(exp.true())


def compares_columns(part: exp.Expr) -> bool:
    sides = (part.left.unnest(), part.right.unnest()) if isinstance(part, exp.EQ) else (None,)
    return all(isinstance(side, exp.Column) for side in sides)


def _drop_schemas(select: exp.Select) -> None:
    tables = {(table.name, table.db) for table in select.find_all(exp.Table) if not table.alias}
    for column in select.find_all(exp.Column):
        if column.db and (column.table, column.db) in tables:
            column.set("db", None)


# ── subqueries of a condition ──


def _join_subqueries(select: exp.Select, facts: SchemaFacts) -> Iterator[str]:
    """Turn `x IN (SELECT key …)` and `EXISTS (SELECT … WHERE key = x)` into joins; returns their tables' names.

    Equivalent if the key matches at most one row, which the reader of joins checks.
    """
    taken = {table.alias_or_name.lower() for table in select.find_all(exp.Table)}
    count = len(list(select.find_all(exp.Table)))
    for part in conjuncts(select):
        inner = _subquery(part)
        if inner is None or len(taken) < count:
            continue
        _name_tables(inner, facts)
        _name_tables(select, facts)
        if isinstance(part, exp.In):
            inner.where(
                exp.EQ(this=part.this.unnest().copy(), expression=inner.expressions[0].unalias().copy()),
                copy=False,
            )
        tables = [inner.args["from_"].this, *(join.this for join in inner.args.get("joins") or [])]
        for table in tables:
            select.append("joins", exp.Join(this=table.copy(), kind="CROSS"))
        ons = [join.args["on"] for join in inner.args.get("joins") or [] if join.args.get("on")]
        rest = [*conjuncts(inner), *ons]
        part.replace(exp.and_(*(exp.paren(each.copy()) for each in rest)) if rest else exp.true())
        yield from (table.alias_or_name.lower() for table in tables)


def _subquery(part: exp.Expr) -> exp.Select | None:
    query = part.args.get("query") if isinstance(part, exp.In) else part.this
    inner = query.unnest() if isinstance(query, exp.Subquery) else query
    is_asked = isinstance(part, (exp.In, exp.Exists)) and not part.args.get("negate")
    if not is_asked or not isinstance(inner, exp.Select):
        return None
    given, limit = {name for name, value in inner.args.items() if value}, inner.args.get("limit")
    outputs = [output.unalias() for output in inner.expressions]
    if not given <= _OF_ROWS | {"limit"} or _aggregates(inner):
        return None
    if isinstance(part, exp.In):
        columns = [*outputs, part.this.unnest()]
        if limit or len(columns) != 2 or not all(isinstance(column, exp.Column) for column in columns):
            return None
    elif limit and not (isinstance(limit.expression, exp.Literal) and limit.expression.name != "0"):
        return None
    joins = inner.args.get("joins") or []
    is_inner = all((join.side or "") == "" and (join.kind or "") in ("", "INNER", "CROSS") for join in joins)
    sources = [inner.args["from_"].this, *(join.this for join in joins)] if inner.args.get("from_") else []
    if not sources or not is_inner or not all(isinstance(source, exp.Table) for source in sources):
        return None
    return inner if inner.find(exp.Subquery) is None and inner.find(exp.Exists) is None else None


def _name_tables(select: exp.Select, facts: SchemaFacts) -> None:
    table = select.args["from_"].this if select.args.get("from_") else None
    if not isinstance(table, exp.Table) or select.args.get("joins"):
        return
    known = facts.by_real_name.get(table.name.lower(), ())
    names = {column.real.lower() for each in known for column in each.columns}
    for column in select.find_all(exp.Column):
        if not column.table and column.name.lower() in names and column.parent_select is select:
            column.set("table", exp.to_identifier(table.alias_or_name, quoted=True))
