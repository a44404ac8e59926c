"""The walk over a parsed SELECT that finds every name to be spelled as the source spells it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from migrator.errors import SettingsError
from migrator.facts import SchemaFacts, TableFacts
from migrator.source.engines.table import engine_of
from migrator.source.scopes import (
    GIVEN,
    Columns,
    Relation,
    Scope,
    column_in,
    columns_given,
    meant,
    relation_called,
    under_names,
)
from migrator.source.spelling import Edit, Speller, folded

Ctes = dict[str, Columns | None]

_OF_THE_DATABASE = ("pg_", "sqlite_")


def renaming_edits(select: exp.Expr, facts: SchemaFacts, speller: Speller, schema: str | None) -> list[Edit]:
    """The edits that put real names into the statement. `schema`: where tables are that name none."""
    renaming = _Renaming(facts, speller, schema)
    renaming.query(select, None, {})
    return renaming.edits


@dataclass
class _Renaming:
    facts: SchemaFacts
    speller: Speller
    schema: str | None
    edits: list[Edit] = field(default_factory=list)
    done: set[int] = field(default_factory=set)

    def query(self, node: exp.Expr, outer: Scope | None, ctes: Ctes) -> Columns | None:
        """Renames within a SELECT, a UNION, or either in parentheses; the columns that it gives, in order."""
        self.done.add(id(node))
        ctes = self._with(node, outer, ctes)
        if isinstance(node, exp.Select):
            return self._select(node, outer, ctes)
        given = self.query(node.this, outer, ctes)
        if isinstance(node, exp.SetOperation):
            self.query(node.expression, outer, ctes)
        self._after(node, given, ctes)
        return given

    def _after(self, node: exp.Expr, given: Columns | None, ctes: Ctes) -> None:
        """What follows a UNION sees the names that its first SELECT gives, and nothing else."""
        self._names(node, Scope((Relation(None, given),), {}, None), ctes)

    # ── WITH ──

    def _with(self, node: exp.Expr, outer: Scope | None, ctes: Ctes) -> Ctes:
        with_ = node.args.get("with_")
        if with_ is None:
            return ctes
        self.done.add(id(with_))
        found = dict(ctes)
        # SQLite needs no word RECURSIVE.
        recursive = bool(with_.args.get("recursive")) or engine_of(self.facts.dialect).sql.recurses_unasked
        for cte in with_.expressions:
            names = cte.args["alias"].args.get("columns") or []
            if recursive and isinstance(cte.this, exp.SetOperation):
                found[cte.alias] = self._recursive(cte, names, outer, found)
            else:
                found[cte.alias] = under_names(self.query(cte.this, outer, found), names)
        return found

    def _recursive(
        self, cte: exp.Expr, names: Sequence[exp.Identifier], outer: Scope | None, ctes: Ctes
    ) -> Columns | None:
        """As `query`; the second half reads, under the CTE's name, what the first half gives."""
        body = cte.this
        self.done.add(id(body))
        inner = self._with(body, outer, ctes)
        given = under_names(self.query(body.this, outer, inner), names)
        self.query(body.expression, outer, {**inner, cte.alias: given})
        self._after(body, given, inner)
        return given

    # ── SELECT ──

    def _select(self, select: exp.Select, outer: Scope | None, ctes: Ctes) -> Columns | None:
        relations: list[Relation] = []
        for node in _relation_nodes(select):
            # LATERAL sees what stands to its left; in other derived tables the database refuses such names.
            left = Scope(tuple(relations), {}, outer)
            relations.append(self._relation(node, left, ctes))
        aliases = {one.alias: GIVEN for one in select.expressions if isinstance(one, exp.Alias)}
        scope = Scope(tuple(relations), aliases, outer)
        for join in _joins(select):
            self._using(join, scope)
        self._names(select, scope, ctes)
        return columns_given(select.expressions, scope)

    def _relation(self, node: exp.Expr, left: Scope, ctes: Ctes) -> Relation:
        alias = node.args.get("alias")
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            return self._table(node, alias, ctes)
        name, names = (alias.this, alias.args.get("columns") or ()) if alias is not None else (None, ())
        inner = node.this if isinstance(node, exp.Lateral) else node
        columns = self.query(inner, left, ctes) if _is_query(inner) else None
        return Relation(name, under_names(columns, names))

    def _table(self, node: exp.Table, alias: exp.Expr | None, ctes: Ctes) -> Relation:
        identifier, db = node.this, node.args.get("db")
        name = (alias.this if alias is not None else None) or identifier
        names = (alias.args.get("columns") or ()) if alias is not None else ()
        cte = folded(ctes, identifier) if db is None else None
        if cte is not None:
            return Relation(name, under_names(ctes[cte], names))
        table = _table_of(self.facts, identifier, db)
        real = identifier.name if table is None else table.real
        qualified = self.schema is not None and db is None and not real.startswith(_OF_THE_DATABASE)
        before = f"{self.speller.name(self.schema)}." if qualified and self.schema else ""
        if table is None:
            self.edits += self.speller.prefixed(identifier, before)
            return Relation(name, under_names(None, names))
        self.edits += self.speller.edit(identifier, real, before=before)
        columns = {column.name: column.real for column in table.columns}
        return Relation(name, under_names(columns, names), real if name is identifier else None)

    def _using(self, join: exp.Expr, scope: Scope) -> None:
        for name in join.args.get("using") or ():
            identifier = name.this if isinstance(name, exp.Column) else name
            self.done.add(id(name))
            found = {column_in(relation, identifier) for relation in scope.relations} - {None}
            if len(found) > 1:
                what = f"a column of USING, {identifier.name}, has not one name on both sides of the join"
                raise SettingsError(f"{what}; write ON")
            for real in found - {GIVEN}:
                self.edits += self.speller.edit(identifier, str(real))

    # ── names in clauses ──

    def _names(self, node: exp.Expr, scope: Scope, ctes: Ctes) -> None:
        """Every column of `node`, and every query within it that is not done yet."""

        def leave(one: exp.Expr) -> bool:
            return one is not node and (id(one) in self.done or _is_query(one))

        for one in node.walk(prune=leave):
            if one is node or id(one) in self.done:
                continue
            if _is_query(one):
                self.query(one, scope, ctes)
            elif isinstance(one, exp.Column):
                self._column(one, scope)

    def _column(self, column: exp.Column, scope: Scope) -> None:
        qualifier, identifier = column.args.get("table"), column.this
        relation = None if qualifier is None else relation_called(qualifier, scope)
        if qualifier is not None and relation is not None and relation.real is not None:
            self.edits += self.speller.edit(qualifier, relation.real)
        if not isinstance(identifier, exp.Identifier):
            return
        if qualifier is None:
            real = meant(column, scope, self.facts.dialect)
        else:
            real = None if relation is None else column_in(relation, identifier)
        if real:
            in_list = isinstance(column.parent, exp.Select) and column.arg_key == "expressions"
            alias = in_list and identifier.name != real
            after = f" AS {self.speller.written(identifier)}" if alias else ""
            self.edits += self.speller.edit(identifier, real, after=after)


def _is_query(node: exp.Expr) -> bool:
    """Whether it is a SELECT or made of them; parentheses around joined tables are not."""
    return isinstance(node, exp.Query) and not isinstance(node.this, exp.Table)


def _relation_nodes(select: exp.Expr) -> Iterator[exp.Expr]:
    """Tables, derived tables and functions of a FROM, those in parenthesised joins included."""
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from _nested(from_.this)
    for join in [*(select.args.get("joins") or ()), *(select.args.get("laterals") or ())]:
        yield from _nested(join.this if isinstance(join, exp.Join) else join)


def _nested(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
        yield from _nested(node.this)
    else:
        yield node
    for join in node.args.get("joins") or ():
        yield from _nested(join.this)


def _joins(select: exp.Expr) -> Iterator[exp.Expr]:
    for node in (select, *_relation_nodes(select)):
        yield from node.args.get("joins") or ()


def _table_of(facts: SchemaFacts, identifier: exp.Identifier, db: exp.Identifier | None) -> TableFacts | None:
    """The table by its written name, else by its real one."""
    written = folded(facts.tables, identifier)
    table = facts.tables[written] if written else None
    if table is None:
        table = next((one for one in facts.tables.values() if one.real == identifier.name), None)
    if table is not None and db is not None and db.name != (table.schema or "main"):
        return None
    return table
