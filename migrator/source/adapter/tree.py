"""A parsed INSERT, UPDATE or DELETE, read as what it writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeAlias

from sqlglot import exp

from migrator.source.adapter.placeholders import NAME, Fragment, Numbered, Spoken
from migrator.source.adapter.write import Given, Opaque, Write, Written, fold, words_of
from migrator.source.engines.table import engine_of

Node: TypeAlias = Any
"""A piece of sqlglot's tree, whose classes have other bases in other versions."""


class TreeReader:
    def __init__(self, tree: Node, known: Numbered, spoken: Spoken) -> None:
        self.tree = tree
        self.known = known
        self.spoken = spoken
        self.dialect = spoken.dialect
        self.engine = engine_of(spoken.dialect)

    # ── the three kinds ──

    def insert(self, *, replaces: bool, ignores: bool) -> Written:
        target = self.tree.this
        columns: tuple[str, ...] | None = None
        if isinstance(target, exp.Schema):
            columns = tuple(self.name(one) for one in target.expressions)
            target = target.this
        args = self.tree.args
        rows = self.rows(args.get("expression"), columns)
        if not isinstance(target, exp.Table) or rows is None:
            return Opaque("its rows come from a query", words_of(self.known.text))
        replaces = replaces or str(args.get("alternative") or "").upper() == "REPLACE"
        is_upsert = replaces or ignores or any(args.get(one) for one in ("conflict", "alternative", "ignore"))
        schema, table = self.place(target)
        assigned, kept = self.on_conflict()
        return Write(
            "insert",
            schema,
            table,
            columns,
            rows,
            is_upsert,
            replaces,
            assigned=assigned,
            kept=kept,
            opaque="with IGNORE it may leave out some of its rows" if ignores and assigned else "",
            returned=self.returned(),
        )

    def on_conflict(self) -> tuple[dict[str, Given | None], frozenset[str]]:
        """What an upsert sets of a row that it meets, and the columns among it that keep or get what is said."""
        conflict = self.tree.args.get("conflict")
        assigned: dict[str, Given | None] = {}
        kept = set()
        for one in conflict.expressions if conflict is not None else ():
            if isinstance(one, exp.EQ) and isinstance(one.this, exp.Column):
                name = self.name(one.this)
                assigned[name] = self.given(one.expression)
                if self._is_itself(one.expression, name):
                    kept.add(name)
            elif isinstance(one, exp.EQ):
                assigned |= dict.fromkeys(self.name(column) for column in one.this.find_all(exp.Column))
        return assigned, frozenset(kept)

    def _is_itself(self, value: Node, name: str) -> bool:
        """`id`, `excluded.id`, `VALUES(id)`, and MySQL's `LAST_INSERT_ID(id)`, which tells the row's key."""
        bare = _bare(value)
        if isinstance(bare, exp.Anonymous) and bare.name.upper() in ("VALUES", "VALUE", "LAST_INSERT_ID"):
            bare = bare.expressions[0] if len(bare.expressions) == 1 else bare
        return isinstance(bare, (exp.Column, exp.Identifier)) and self.name(bare) == name

    def update(self) -> Written:
        target = self.tree.this
        if not isinstance(target, exp.Table):
            return Opaque("it could not be understood", words_of(self.known.text))
        if target.args.get("joins"):
            return Opaque("it names several tables", words_of(self.known.text))
        schema, table = self.place(target)
        assigned = {
            self.name(one.this): self.given(one.expression)
            for one in self.tree.expressions
            if isinstance(one, exp.EQ) and isinstance(one.this, exp.Column)
        }
        opaque = self.opaque(target, "from_")
        if len(assigned) < len(self.tree.expressions):
            opaque = opaque or "it sets more than single columns"
        where = self.where()
        return Write(
            "update",
            schema,
            table,
            assigned=assigned,
            wanted=self.wanted(),
            where=where,
            alias=self.alias(target),
            opaque=opaque,
            returned=self.returned(),
        )

    def delete(self) -> Written:
        target = self.tree.this
        several = self.tree.args.get("tables") or (
            self.engine.statements.deletes_by_using and self.tree.args.get("using")
        )
        if not isinstance(target, exp.Table) or target.args.get("joins") or several:
            return Opaque("it names several tables", words_of(self.known.text))
        schema, table = self.place(target)
        return Write(
            "delete",
            schema,
            table,
            wanted=self.wanted(),
            where=self.where(),
            alias=self.alias(target),
            opaque=self.opaque(target, "using"),
            returned=self.returned(),
        )

    # ── pieces ──

    def rows(
        self, source: Node | None, columns: tuple[str, ...] | None
    ) -> tuple[tuple[Given | None, ...], ...] | None:
        """The rows of VALUES, also of those that SQLAlchemy orders by a counter; None where a query makes them."""
        if source is None:
            # DEFAULT VALUES; what else stands there may be a query in words that sqlglot passes by.
            return ((),) if "values" in words_of(self.known.text) else None
        if isinstance(source, exp.Values):
            return tuple(tuple(self.given(value) for value in _cells(row)) for row in source.expressions)
        came_from = source.args.get("from_") if isinstance(source, exp.Select) else None
        values = came_from.this if came_from is not None else None
        if not isinstance(values, exp.Values) or source.args.get("where") or columns is None:
            return None
        named = [one.name for one in values.args["alias"].columns] if values.args.get("alias") else []
        places = [
            named.index(one.name) if (one := _bare(cell)).name in named else None
            for cell in source.expressions
        ]
        return tuple(
            tuple(None if at is None else self.given(_cells(row)[at]) for at in places)
            for row in values.expressions
        )

    def wanted(self) -> dict[str, tuple[Given, ...]]:
        where = self.tree.args.get("where")
        found: dict[str, tuple[Given, ...]] = {}
        for one in _conjuncts(where.this) if where is not None else ():
            if isinstance(one, exp.EQ):
                for left, right in ((one.this, one.expression), (one.expression, one.this)):
                    value = self.any_of(right) if isinstance(right, exp.Any) else self.given(right)
                    if self.is_column(left) and value is not None:
                        found[self.name(left)] = (value,)
            elif isinstance(one, exp.In) and self.is_column(one.this) and not one.args.get("query"):
                values = [self.given(value) for value in one.expressions]
                if values and None not in values:
                    found[self.name(one.this)] = tuple(value for value in values if value is not None)
        return found

    def any_of(self, value: Node) -> Given | None:
        found = self.given(value.this)
        return None if found is None or found.place is None else replace(found, many=True)

    def given(self, value: Node) -> Given | None:
        bare = _bare(value)
        if isinstance(bare, exp.Column) and (found := NAME.fullmatch(bare.name)):
            return Given(self.known.places[int(found[1])])
        if isinstance(bare, exp.Null):
            return Given(None, None)
        if isinstance(bare, exp.Literal):
            if bare.is_string:
                # A placeholder in quotes becomes a part of the text only in the driver.
                return None if NAME.search(bare.this) else Given(None, bare.this)
            return Given(None, self._number(bare.this))
        if isinstance(bare, exp.Neg) and isinstance(bare.this, exp.Literal) and not bare.this.is_string:
            return Given(None, self._number(f"-{bare.this.this}"))
        return None

    def opaque(self, target: exp.Table, others: str) -> str:
        args = self.tree.args
        if args.get(others) or target.args.get("joins"):
            return "it reads other tables"
        if args.get("limit") or args.get("order"):
            return "it has a LIMIT"
        return "it has a sub-select" if self.tree.find(exp.Select) is not None else ""

    def where(self) -> Fragment | None:
        """The text of WHERE, from the statement itself."""
        if self.tree.args.get("where") is None:
            return None
        return self.known.where(self.spoken)

    def returned(self) -> tuple[str, ...]:
        found = self.tree.args.get("returning")
        return tuple(_returned(one, self) for one in found.expressions) if found is not None else ()

    def is_column(self, one: Node) -> bool:
        """Whether it is a column of the table that is written: where others are read, it has to say so."""
        if not isinstance(one, exp.Column) or NAME.fullmatch(one.name) is not None:
            return False
        target, of = self.tree.this, one.args.get("table")
        if of is None:
            return not (self.tree.args.get("from_") or self.tree.args.get("using"))
        alias = target.args.get("alias")
        return self.name(of) == self.name(alias.this if alias is not None else target.this)

    def place(self, table: exp.Table) -> tuple[str | None, str]:
        schema = table.args.get("db")
        return (self.table_name(schema) if schema is not None else None), self.table_name(table.this)

    def table_name(self, one: Node) -> str:
        """As it was said, where servers know upper and lower case of tables or do not."""
        return str(one.name) if self.engine.statements.names_as_said else self.name(one)

    def _number(self, text: str) -> Any:
        """As the database holds it."""
        if re.fullmatch(r"-?\d+", text):
            return int(text)
        return float(text) if self.engine.statements.decimals_are_floats else Decimal(text)

    def alias(self, table: exp.Table) -> str:
        found = table.args.get("alias")
        return str(found.this.sql(dialect=self.spoken.read_as)) if found is not None else ""

    def name(self, one: Node) -> str:
        """As the database knows it: PostgreSQL folds what stands without quotes, the others know no case."""
        found = one.this if isinstance(one, exp.Column) else one
        quoted = bool(found.args.get("quoted")) if isinstance(found, exp.Identifier) else False
        return fold(str(one.name), self.dialect, quoted=quoted)


def _returned(one: Node, reader: TreeReader) -> str:
    bare = one.this if isinstance(one, exp.Alias) else one
    if isinstance(bare, exp.Star) or bare.is_star:
        return "*"
    return reader.name(bare) if isinstance(bare, exp.Column) else ""


def _cells(row: Node) -> list[Node]:
    return (
        row.expressions if isinstance(row, exp.Tuple) else [row.this if isinstance(row, exp.Paren) else row]
    )


def _bare(value: Node) -> Node:
    while isinstance(value, (exp.Cast, exp.Paren)):
        value = value.this
    return value


def _conjuncts(condition: Node) -> Iterator[Node]:
    left = [condition]
    while left:
        one = left.pop()
        if isinstance(one, exp.And):
            left += [one.right, one.left]
        elif isinstance(one, exp.Paren):
            left.append(one.this)
        else:
            yield one
