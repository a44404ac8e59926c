"""The table, rows and values that an INSERT, UPDATE or DELETE writes, read from its parsed text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from migrator.source.adapter.statement import (
    NAME,
    Fragment,
    Given,
    Numbered,
    Opaque,
    StatementStyle,
    Write,
    Written,
    fold,
    numbered,
    quietly,
    words_of,
)
from migrator.source.engines.table import engine_of

# ── A parsed INSERT, UPDATE or DELETE, read as what it writes ──

Node: TypeAlias = Any
"""A piece of sqlglot's tree, whose classes have other bases in other versions."""


class TreeReader:
    def __init__(self, tree: Node, known: Numbered, spoken: StatementStyle) -> None:
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


# ── What a statement of a service writes, read from its text alone ──

_COMMENT = re.compile(r"/\*|\*/|--[^\n]*|#[^\n]*")
_WRITES = frozenset(
    "INSERT UPDATE DELETE REPLACE MERGE TRUNCATE WITH COPY LOAD CALL DO EXECUTE EXEC".split()  # noqa: SIM905
)
RUNS_CODE = frozenset({"CALL", "DO", "EXECUTE", "EXEC"})
"""What runs code that the database keeps."""
_AROUND = frozenset({"EXPLAIN", "ANALYZE", "DESCRIBE", "DESC", "SET", "BEGIN"})
"""What another statement may follow that runs: EXPLAIN ANALYZE, MariaDB's SET STATEMENT … FOR."""
_VERBS = frozenset({"insert", "update", "delete", "replace", "merge", "truncate"})
_SERVER_COMMENT = re.compile(r"/\*M?!")
"""MySQL runs what stands in such a comment."""


def first_word(text: str, dialect: str) -> str:
    return _word_at(text, _head(text, dialect))


def _word_at(text: str, start: int) -> str:
    found = re.compile(r"[A-Za-z]+").match(text, start)
    return found[0].upper() if found else ""


def _head(text: str, dialect: str) -> int:
    """Where the first word begins, behind white space, parentheses and comments (which may be nested)."""
    at, depth = 0, 0
    deepest = len(text) if engine_of(dialect).statements.nests_comments else 1
    while at < len(text):
        found = _COMMENT.match(text, at)
        if found and (depth == 0 or found[0] in ("/*", "*/")):
            depth = min(deepest, max(0, depth + (found[0] == "/*") - (found[0] == "*/")))
            at = found.end()
        elif depth or text[at].isspace() or text[at] in "(;\ufeff":
            at += 1
        else:
            break
    return at


def may_write(text: str, dialect: str) -> bool:
    """Whether the text is worth to be examined: a SELECT by itself is not."""
    word = first_word(text, dialect)
    if word in _WRITES or ";" in text.rstrip().rstrip(";") or _SERVER_COMMENT.search(text):
        return True
    return word in _AROUND and not _VERBS.isdisjoint(words_of(text))


def written(text: str, spoken: StatementStyle) -> Written:
    """What the statement writes; None where it writes nothing that a table's mark would be of."""
    try:
        return _written(text, spoken)
    except RecursionError:
        # Not remembered: how deep a statement may be depends on how deep its caller stands.
        return Opaque("it is too deeply nested to be understood", words_of(text))


@lru_cache(maxsize=2048)
@quietly()
def _written(text: str, spoken: StatementStyle) -> Written:
    start = _head(text, spoken.dialect)
    word = _word_at(text, start)
    if word in RUNS_CODE:
        return Opaque(f"{word} runs code of the database, which may write anything")
    known, ignores = _plain(numbered(text[start:], spoken), spoken)
    if word in _AROUND or (spoken.engine.statements.runs_comments and _SERVER_COMMENT.search(text)):
        return _hidden(word, words_of(text))
    try:
        found = sqlglot.parse(known.text, read=spoken.read_as)
    except SqlglotError:
        return Opaque("it could not be understood", words_of(known.text))
    trees = [tree for tree in found if tree is not None and not isinstance(tree, exp.Semicolon)]
    if len(trees) != 1:
        writes = any(_writes_inside(tree) for tree in trees)
        return Opaque("it is several statements in one", words_of(known.text)) if writes else None
    return _of_tree(TreeReader(trees[0], known, spoken), word, ignores=ignores)


def _plain(known: Numbered, spoken: StatementStyle) -> tuple[Numbered, bool]:
    """The statement without the words that sqlglot does not read in it, and whether IGNORE was one of them."""
    text, ignores = known.text, False
    rules = spoken.engine.statements
    if rules.modifiers is not None and (found := rules.modifiers.match(text)):
        ignores = "IGNORE" in found[2].upper()
        text = found[1] + text[found.end() :]
    if text[:7].upper() == "REPLACE":
        text = "INSERT" + text[7:]
    if rules.overriding is not None:
        text = rules.overriding.sub("", text, count=1)
    return replace(known, text=text), ignores


def _hidden(word: str, words: frozenset[str]) -> Written:
    """Of a statement that stands in another one, or in a comment that the server runs."""
    harmless = word in ("EXPLAIN", "DESCRIBE", "DESC") and "analyze" not in words
    if harmless or words.isdisjoint(_VERBS) or (word == "SET" and "statement" not in words):
        return None
    return Opaque("it is a statement in another one", words)


def _writes_inside(tree: Any) -> bool:
    kinds = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.TruncateTable, exp.Command, exp.Copy)
    return tree.find(*kinds) is not None


def _of_tree(reader: TreeReader, word: str, *, ignores: bool) -> Written:
    tree, words = reader.tree, words_of(reader.known.text)
    if any(_writes_inside(one.this) for one in tree.find_all(exp.CTE)):
        return Opaque("a WITH of it writes", words)
    if isinstance(tree, exp.Insert):
        return reader.insert(replaces=word == "REPLACE", ignores=ignores)
    if isinstance(tree, exp.Update):
        return reader.update()
    if isinstance(tree, exp.Delete):
        return reader.delete()
    if isinstance(tree, exp.Copy) and not tree.args.get("kind"):
        return None  # COPY … TO
    if _writes_inside(tree):
        return Opaque(f"its rows cannot be known before it ran ({word})", words)
    return None
