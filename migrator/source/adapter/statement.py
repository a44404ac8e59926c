"""One SQL statement of a service: its placeholders, and the table, rows, values and keys that it writes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import sqlglot
from msgspec import Struct
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from migrator.runtime.errors import UnmarkedError
from migrator.runtime.values import replace
from migrator.source.engines.base import Engine
from migrator.source.engines.connect import engine_of
from migrator.source.sql.spelling import escapes, fold, sqlglot_dialect

# ── Placeholders of DB-API drivers: found in a statement, and written for another driver ──

NAME = re.compile(r"migrator_p(\d+)")
"""The name that replaces a placeholder while the statement is parsed."""
_END_OF_WHERE = (TokenType.RETURNING, TokenType.ORDER_BY, TokenType.LIMIT, TokenType.SEMICOLON)
_FORMATTED = re.compile(r"%\((?P<name>[^)]*)\)[sbt]|%[sbt]|%%")


class StatementStyle(Struct, frozen=True):
    dialect: str
    formats: bool = False
    ansi_quotes: bool = False

    @property
    def engine(self) -> Engine:
        return engine_of(self.dialect)

    @property
    def read_as(self) -> Any:
        return sqlglot_dialect(self.dialect) if self.ansi_quotes else self.engine.statements.reader


class Fragment(Struct, frozen=True):
    """A piece of SQL: `texts` with a parameter between each two."""

    texts: tuple[str, ...]
    places: tuple[int | str, ...] = ()


class Numbered(Struct, frozen=True):
    """A statement with names instead of its placeholders; `places`: the parameter of each."""

    text: str
    places: tuple[int | str, ...]

    def where(self, spoken: StatementStyle) -> Fragment:
        tokens = sqlglot.tokenize(self.text, read=spoken.read_as)
        first = next(i for i, _ in _outer(tokens, (TokenType.WHERE,)))
        last = next((i for i, _ in _outer(tokens[first:], _END_OF_WHERE)), None)
        end = len(self.text) if last is None else tokens[first + last].start
        texts = NAME.split(self.text[tokens[first].end + 1 : end])
        return Fragment(tuple(texts[::2]), tuple(self.places[int(number)] for number in texts[1::2]))


def _outer(tokens: Sequence[Token], kinds: Sequence[TokenType]) -> list[tuple[int, Token]]:
    depth, matching = 0, []
    for number, token in enumerate(tokens):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0 and token.token_type in kinds:
            matching.append((number, token))
    return matching


def numbered(text: str, spoken: StatementStyle) -> Numbered:
    """Replace placeholders by migrator_p0, migrator_p1, … and %% by %.

    A driver that formats by % also does so in quotes and comments.
    """
    pieces: list[str] = []
    places: list[int | str] = []
    last = 0
    rules = spoken.engine.statements
    quoted = [] if spoken.formats else [match.span() for match in rules.quotes.finditer(text)]
    for match in (_FORMATTED if spoken.formats else rules.bound).finditer(text):
        if any(start <= match.start() < end for start, end in quoted):
            continue
        pieces.append(text[last : match.start()])
        last = match.end()
        if match[0] == "%%":
            pieces.append("%")
            continue
        pieces.append(f"migrator_p{len(places)}")
        places.append(_place(match, len(places)))
    return Numbered("".join([*pieces, text[last:]]), tuple(places))


def _place(match: re.Match[str], number: int) -> int | str:
    groups = match.groupdict()
    if groups.get("name") is not None:
        return groups["name"]
    return int(groups["place"]) - 1 if groups.get("place") else number


def placeholder(paramstyle: str, number: int) -> str:
    if paramstyle in ("format", "pyformat"):
        return "%s"
    return f"${number + 1}" if paramstyle == "numeric_dollar" else "?"


def escaped(text: str, paramstyle: str) -> str:
    return text.replace("%", "%%") if paramstyle in ("format", "pyformat") else text


# ── The write of one statement, as values ──

Action = Literal["insert", "update", "delete"]


class StatementValue(Struct, frozen=True):
    """A parameter by place or name, or (`place` None) a literal. `many`: a list, as in `= ANY(%s)`."""

    place: int | str | None = None
    value: Any = None
    many: bool = False

    def of(self, parameters: Sequence[Any] | Mapping[str, Any]) -> Any:
        """Raises: UnmarkedError if the parameters do not contain it."""
        return self.value if self.place is None else parameter(parameters, self.place)

    def each_of(self, parameters: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any] | None:
        """Return None if the values cannot be listed, such as an array given as text."""
        value = self.of(parameters)
        if not self.many:
            return [value]
        return value if isinstance(value, (list, tuple)) else None


def parameter(parameters: Sequence[Any] | Mapping[str, Any], place: int | str) -> Any:
    try:
        return parameters[place]  # type: ignore[index]
    except (LookupError, TypeError):
        what = "dual write: a statement's parameters do not fit its placeholders"
        raise UnmarkedError(f"{what}; give one for each of them") from None


class StatementWrite(Struct, frozen=True):
    """One INSERT, UPDATE or DELETE of one table, with names as the database resolves them.

    `rows`: of an insert; None is a value that only the database knows.
    `replaces`: an upsert that deletes the rows that it meets.
    `kept`: columns that an upsert sets to their present value or to that of its own row.
    `wanted`: columns that WHERE restricts to certain values.
    `opaque`: why its rows cannot be read beforehand by its WHERE; '' if they can.
    `returned`: '' for anything but a column, '*' for all.
    """

    action: Action
    schema: str | None
    table: str
    columns: tuple[str, ...] | None = ()
    rows: tuple[tuple[StatementValue | None, ...], ...] = ()
    is_upsert: bool = False
    replaces: bool = False
    assigned: Mapping[str, StatementValue | None] = {}
    kept: frozenset[str] = frozenset()
    wanted: Mapping[str, tuple[StatementValue, ...]] = {}
    where: Fragment | None = None
    alias: str = ""
    opaque: str = ""
    returned: tuple[str, ...] = ()


class Opaque(Struct, frozen=True):
    """A statement that may write. `tables`: names that it mentions (empty: any)."""

    reason: str
    tables: frozenset[str] = frozenset()


Written: TypeAlias = StatementWrite | Opaque | None


def words_of(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in re.findall(r"\w+", text))


# ── A log filter for sqlglot, which would log statements that it cannot parse, with all their values ──

_READING: ContextVar[bool] = ContextVar("migrator_reading", default=False)


class _Silence(logging.Filter):
    """Drops sqlglot's log records while we parse; the service's own use of it is still logged."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _READING.get()


_SILENCE = _Silence()


@contextmanager
def quietly() -> Iterator[None]:
    # Added each time, since a service that configures its logging may remove filters; adding it twice changes nothing.
    logging.getLogger("sqlglot").addFilter(_SILENCE)
    before = _READING.set(True)
    try:
        yield
    finally:
        _READING.reset(before)


# ── From sqlglot's tree of an INSERT, UPDATE or DELETE to its write ──

Node: TypeAlias = Any
"""A node of sqlglot's tree, whose classes have other bases in other versions."""


class TreeReader:
    def __init__(self, tree: Node, statement: Numbered, spoken: StatementStyle) -> None:
        self.tree = tree
        self.statement = statement
        self.spoken = spoken
        self.dialect = spoken.dialect
        self.engine = engine_of(spoken.dialect)

    # ── the three kinds ──

    def insert(self, *, replaces: bool, ignores: bool) -> Written:
        target = self.tree.this
        columns: tuple[str, ...] | None = None
        if isinstance(target, exp.Schema):
            columns = tuple(self.name(column) for column in target.expressions)
            target = target.this
        args = self.tree.args
        rows = self.rows(args.get("expression"), columns)
        if not isinstance(target, exp.Table) or rows is None:
            return Opaque("its rows come from a query", words_of(self.statement.text))
        replaces = replaces or str(args.get("alternative") or "").upper() == "REPLACE"
        is_upsert = (
            replaces or ignores or any(args.get(word) for word in ("conflict", "alternative", "ignore"))
        )
        schema, table = self.place(target)
        assigned, kept = self.on_conflict()
        return StatementWrite(
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

    def on_conflict(self) -> tuple[dict[str, StatementValue | None], frozenset[str]]:
        conflict = self.tree.args.get("conflict")
        assigned: dict[str, StatementValue | None] = {}
        kept = set()
        for assignment in conflict.expressions if conflict is not None else ():
            if isinstance(assignment, exp.EQ) and isinstance(assignment.this, exp.Column):
                name = self.name(assignment.this)
                assigned[name] = self.given(assignment.expression)
                if self._is_itself(assignment.expression, name):
                    kept.add(name)
            elif isinstance(assignment, exp.EQ):
                assigned |= dict.fromkeys(
                    self.name(column) for column in assignment.this.find_all(exp.Column)
                )
        return assigned, frozenset(kept)

    def _is_itself(self, value: Node, name: str) -> bool:
        """Whether the value is the column itself: `id`, `excluded.id`, `VALUES(id)`, or MySQL's
        `LAST_INSERT_ID(id)`.
        """
        bare = _bare(value)
        if isinstance(bare, exp.Anonymous) and bare.name.upper() in ("VALUES", "VALUE", "LAST_INSERT_ID"):
            bare = bare.expressions[0] if len(bare.expressions) == 1 else bare
        return isinstance(bare, (exp.Column, exp.Identifier)) and self.name(bare) == name

    def update(self) -> Written:
        target = self.tree.this
        if not isinstance(target, exp.Table):
            return Opaque("it could not be understood", words_of(self.statement.text))
        if target.args.get("joins"):
            return Opaque("it names several tables", words_of(self.statement.text))
        assigned = {
            self.name(assignment.this): self.given(assignment.expression)
            for assignment in self.tree.expressions
            if isinstance(assignment, exp.EQ) and isinstance(assignment.this, exp.Column)
        }
        opaque = self.opaque(target, "from_")
        if len(assigned) < len(self.tree.expressions):
            opaque = opaque or "it sets more than single columns"
        return self._by_where("update", target, opaque, assigned)

    def delete(self) -> Written:
        target = self.tree.this
        several = self.tree.args.get("tables") or (
            self.engine.statements.deletes_by_using and self.tree.args.get("using")
        )
        if not isinstance(target, exp.Table) or target.args.get("joins") or several:
            return Opaque("it names several tables", words_of(self.statement.text))
        return self._by_where("delete", target, self.opaque(target, "using"), {})

    def _by_where(
        self, action: Action, target: exp.Table, opaque: str, assigned: Mapping[str, StatementValue | None]
    ) -> StatementWrite | None:
        has_where, alias = self.tree.args.get("where") is not None, target.args.get("alias")
        if _selects_nothing(self.tree):
            return None
        return StatementWrite(
            action,
            *self.place(target),
            assigned=assigned,
            wanted=self.wanted(),
            where=self.statement.where(self.spoken) if has_where else None,
            alias="" if alias is None else str(alias.this.sql(dialect=self.spoken.read_as)),
            opaque=opaque,
            returned=self.returned(),
        )

    # ── pieces ──

    def rows(
        self, source: Node | None, columns: tuple[str, ...] | None
    ) -> tuple[tuple[StatementValue | None, ...], ...] | None:
        """Return None for an INSERT from a query. VALUES may have the form that SQLAlchemy orders by a counter."""
        if source is None:
            # DEFAULT VALUES; anything else may be a query in syntax that sqlglot skips.
            return ((),) if "values" in words_of(self.statement.text) else None
        if isinstance(source, exp.Values):
            return tuple(tuple(self.given(value) for value in _cells(row)) for row in source.expressions)
        came_from = source.args.get("from_") if isinstance(source, exp.Select) else None
        values = came_from.this if came_from is not None else None
        if not isinstance(values, exp.Values) or source.args.get("where") or columns is None:
            return None
        named = [column.name for column in values.args["alias"].columns] if values.args.get("alias") else []
        places = [
            named.index(bare.name) if (bare := _bare(cell)).name in named else None
            for cell in source.expressions
        ]
        return tuple(
            tuple(None if at is None else self.given(_cells(row)[at]) for at in places)
            for row in values.expressions
        )

    def wanted(self) -> dict[str, tuple[StatementValue, ...]]:
        where = self.tree.args.get("where")
        by_column: dict[str, tuple[StatementValue, ...]] = {}
        for test in _conjuncts(where.this) if where is not None else ():
            if isinstance(test, exp.EQ):
                for left, right in ((test.this, test.expression), (test.expression, test.this)):
                    value = self.any_of(right) if isinstance(right, exp.Any) else self.given(right)
                    if self.is_column(left) and value is not None:
                        by_column[self.name(left)] = (value,)
            elif isinstance(test, exp.In) and self.is_column(test.this) and not test.args.get("query"):
                values = [self.given(value) for value in test.expressions]
                if values and None not in values:
                    by_column[self.name(test.this)] = tuple(value for value in values if value is not None)
        return by_column

    def any_of(self, value: Node) -> StatementValue | None:
        given = self.given(value.this)
        return None if given is None or given.place is None else replace(given, many=True)

    def given(self, value: Node) -> StatementValue | None:
        bare = _bare(value)
        if isinstance(bare, exp.Column) and (match := NAME.fullmatch(bare.name)):
            return StatementValue(self.statement.places[int(match[1])])
        if isinstance(bare, exp.Null):
            return StatementValue(None, None)
        if isinstance(bare, exp.Literal):
            if bare.is_string:
                # A placeholder in quotes becomes part of the text only in the driver.
                return None if NAME.search(bare.this) else StatementValue(None, bare.this)
            return StatementValue(None, self._number(bare.this))
        if isinstance(bare, exp.Neg) and isinstance(bare.this, exp.Literal) and not bare.this.is_string:
            return StatementValue(None, self._number(f"-{bare.this.this}"))
        return None

    def opaque(self, target: exp.Table, others: str) -> str:
        args = self.tree.args
        if args.get(others) or target.args.get("joins"):
            return "it reads other tables"
        if args.get("limit") or args.get("order"):
            return "it has a LIMIT"
        return "it has a sub-select" if self.tree.find(exp.Select) is not None else ""

    def returned(self) -> tuple[str, ...]:
        returning = self.tree.args.get("returning")
        return tuple(_returned(one, self) for one in (returning.expressions if returning is not None else ()))

    def is_column(self, node: Node) -> bool:
        """Whether it is the table's column; if other tables are read, it must name its table."""
        if not isinstance(node, exp.Column) or NAME.fullmatch(node.name) is not None:
            return False
        target, of = self.tree.this, node.args.get("table")
        if of is None:
            return not (self.tree.args.get("from_") or self.tree.args.get("using"))
        alias = target.args.get("alias")
        return self.name(of) == self.name(alias.this if alias is not None else target.this)

    def place(self, table: exp.Table) -> tuple[str | None, str]:
        schema = table.args.get("db")
        return (self.table_name(schema) if schema is not None else None), self.table_name(table.this)

    def table_name(self, node: Node) -> str:
        """The table's name, as written if the server decides about its case."""
        return str(node.name) if self.engine.statements.tables_keep_case else self.name(node)

    def _number(self, text: str) -> Any:
        if re.fullmatch(r"-?\d+", text):
            return int(text)
        return float(text) if self.engine.statements.decimals_are_floats else Decimal(text)

    def name(self, node: Node) -> str:
        """Return the name as the database resolves it: PostgreSQL folds unquoted names, the others ignore case."""
        inner = node.this if isinstance(node, exp.Column) else node
        quoted = bool(inner.args.get("quoted")) if isinstance(inner, exp.Identifier) else False
        return fold(str(node.name), self.dialect, quoted=quoted)


def _returned(expression: Node, reader: TreeReader) -> str:
    bare = expression.this if isinstance(expression, exp.Alias) else expression
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
        node = left.pop()
        if isinstance(node, exp.And):
            left += [node.right, node.left]
        elif isinstance(node, exp.Paren):
            left.append(node.this)
        else:
            yield node


# ── Conditions that no row meets: SQLAlchemy writes them for IN with an empty list, and for false() ──


def _selects_nothing(tree: Node) -> bool:
    where = tree.args.get("where")
    return where is not None and any(_is_never(test) for test in _conjuncts(where.this))


def _is_never(test: Node) -> bool:
    if isinstance(test, exp.In):
        return _has_no_rows(test)
    if isinstance(test, (exp.EQ, exp.NEQ)):
        left, right = _constant(test.this), _constant(test.expression)
        return None not in (left, right) and (left == right) == isinstance(test, exp.NEQ)
    return _constant(test) == 0


def _has_no_rows(test: exp.In) -> bool:
    given = {name for name, value in test.args.items() if value and name != "this"}
    if given != {"query"}:
        return not given
    query = test.args["query"].unnest()
    clauses = {name for name, value in query.args.items() if value}
    # Without rows, an aggregate and HAVING still return one.
    return (
        isinstance(query, exp.Select)
        and clauses <= {"expressions", "from_", "where"}
        and all(isinstance(_bare(value), (exp.Literal, exp.Null)) for value in query.expressions)
        and _selects_nothing(query)
    )


def _constant(value: Node) -> int | None:
    """A whole number or truth value in the statement itself."""
    bare = _bare(value) if isinstance(value, exp.Paren) else value
    if isinstance(bare, exp.Boolean):
        return int(bare.this)
    is_whole = isinstance(bare, exp.Literal) and not bare.is_string and bare.this.isdecimal()
    return int(bare.this) if is_whole else None


# ── From a statement's text to its write ──

_COMMENT = re.compile(r"/\*|\*/|--[^\n]*|#[^\n]*")
_WRITES = frozenset(
    "INSERT UPDATE DELETE REPLACE MERGE TRUNCATE WITH COPY LOAD CALL DO EXECUTE EXEC".split()  # noqa: SIM905
)
_RUNS_CODE = frozenset({"CALL", "DO", "EXECUTE", "EXEC"})
"""Statements that run code stored in the database, or a prepared statement."""
_CODE_INSIDE = re.compile(
    r"(?i)\b(?:CALL|EXEC|EXECUTE(?!\s+(?:FUNCTION|PROCEDURE|ON)\b)|DO(?!\s+(?:NOTHING|UPDATE)\b))\b"
)
_DEFINES = re.compile(r"(?i)\s*CREATE\b[^;]*?\b(?:PROCEDURE|FUNCTION|TRIGGER|EVENT)\b")
_MADE_BY_A_QUERY = re.compile(r"(?is)\s*CREATE\s+(?:\w+\s+){0,3}TABLE\b.*\bAS\b.*\b(?:WITH|EXECUTE)\b")
_BY_PARTITION = re.compile(r"(?is)\s*ALTER\b.*\b(?:TRUNCATE|DETACH|EXCHANGE|DROP)\s+PARTITION\b")
_BLOCK = re.compile(r"(?is)BEGIN\s+(?!NOT\b|WORK\b)\w")
"""A block of MariaDB's mode ORACLE, in which a name alone calls a procedure."""
_AROUND = frozenset({"EXPLAIN", "ANALYZE", "DESCRIBE", "DESC", "SET", "BEGIN"})
"""Words that may precede an executed statement: EXPLAIN ANALYZE, MariaDB's SET STATEMENT … FOR."""
_VERBS = frozenset({"insert", "update", "delete", "replace", "merge", "truncate"})
_SERVER_COMMENT = re.compile(r"/\*M?!")
"""MySQL executes the content of such a comment."""


def first_word(text: str, dialect: str) -> str:
    return _word_at(text, _head(text, dialect))


def _word_at(text: str, start: int) -> str:
    match = re.compile(r"[A-Za-z]+").match(text, start)
    return match[0].upper() if match else ""


def _head(text: str, dialect: str) -> int:
    at, depth = 0, 0
    deepest = len(text) if engine_of(dialect).statements.nests_comments else 1
    while at < len(text):
        match = _COMMENT.match(text, at)
        if match and (depth == 0 or match[0] in ("/*", "*/")):
            depth = min(deepest, max(0, depth + (match[0] == "/*") - (match[0] == "*/")))
            at = match.end()
        elif depth or text[at].isspace() or text[at] in "(;\ufeff":
            at += 1
        else:
            break
    return at


def appended(text: str, clause: str, dialect: str) -> str:
    """The statement with a clause at its end: before semicolons, and not in a comment."""
    bare = engine_of(dialect).statements.quotes.sub(_blanked, text)
    end = len(bare.rstrip("; \t\r\n\f\v"))
    rest = (" " if mark == ";" else char for char, mark in zip(text[end:], bare[end:], strict=True))
    return f"{text[:end]}{''.join(rest)}\n{clause}"


def _blanked(quoted: re.Match[str]) -> str:
    return (" " if _COMMENT.match(quoted[0]) else "x") * len(quoted[0])


def may_write(text: str, dialect: str) -> bool:
    """Return False for a plain SELECT, which need not be parsed."""
    word = first_word(text, dialect)
    if word in _WRITES or ";" in text.rstrip().rstrip(";") or _SERVER_COMMENT.search(text):
        return True
    if word in ("CREATE", "ALTER"):
        # The usual case has neither: comments may separate the words.
        bare = engine_of(dialect).statements.quotes.sub(" ", text)
        return _MADE_BY_A_QUERY.match(bare) is not None or _BY_PARTITION.match(bare) is not None
    return word in _AROUND and (not _VERBS.isdisjoint(words_of(text)) or bool(unnamed(text, dialect)))


def unnamed(text: str, dialect: str) -> str:
    if '"' in escapes(text, dialect):
        return 'a name in it is written with escapes (U&"…"); write it plainly'
    word, rules = first_word(text, dialect), engine_of(dialect).statements
    if word in _RUNS_CODE or (
        rules.runs_comments and word == "BEGIN" and _BLOCK.match(text, _head(text, dialect))
    ):
        return f"{word} runs code of the database, which may write anything"
    is_executed_comment = rules.runs_comments and _SERVER_COMMENT.search(text) is not None
    makes = word == "CREATE" and _MADE_BY_A_QUERY.match(rules.quotes.sub(" ", text)) is not None
    if word not in _AROUND and not makes and not is_executed_comment and ";" not in text.rstrip().rstrip(";"):
        return ""
    bare = text if is_executed_comment else rules.quotes.sub(" ", text)
    nests = makes or (word in _AROUND and not _only_explains(word, words_of(bare)))
    is_several = ";" in bare.rstrip().rstrip(";") and _DEFINES.match(bare) is None
    if (nests or is_several or is_executed_comment) and (match := _CODE_INSIDE.search(bare)):
        return f"{match[0].upper()} runs code of the database, which may write anything"
    return ""


def written(text: str, spoken: StatementStyle) -> Written:
    try:
        return _written(text, spoken)
    except RecursionError:
        # Not cached: how deep a statement may be nested depends on the depth of the call stack.
        return Opaque("it is too deeply nested to be understood", words_of(text))


@lru_cache(maxsize=2048)
@quietly()
def _written(text: str, spoken: StatementStyle) -> Written:
    start = _head(text, spoken.dialect)
    word = _word_at(text, start)
    if reason := unnamed(text, spoken.dialect):
        return Opaque(reason)
    if word == "ALTER":
        return Opaque("it takes the rows of a partition away", words_of(text))
    statement, ignores = _plain(numbered(text[start:], spoken), spoken)
    if word in _AROUND or (spoken.engine.statements.runs_comments and _SERVER_COMMENT.search(text)):
        return _hidden(word, words_of(text))
    try:
        parsed = sqlglot.parse(statement.text, read=spoken.read_as)
    except SqlglotError:
        return Opaque("it could not be understood", words_of(statement.text))
    trees = [tree for tree in parsed if tree is not None and not isinstance(tree, exp.Semicolon)]
    if len(trees) != 1:
        writes = any(_writes_inside(tree) for tree in trees)
        return Opaque("it is several statements in one", words_of(statement.text)) if writes else None
    return _of_tree(TreeReader(trees[0], statement, spoken), word, ignores=ignores)


def _plain(statement: Numbered, spoken: StatementStyle) -> tuple[Numbered, bool]:
    """The statement without words unknown to sqlglot, and whether IGNORE was among them."""
    text, ignores = statement.text, False
    rules = spoken.engine.statements
    if rules.modifiers is not None and (match := rules.modifiers.match(text)):
        ignores = "IGNORE" in match[2].upper()
        text = match[1] + text[match.end() :]
    if text[:7].upper() == "REPLACE":
        text = "INSERT" + text[7:]
    if rules.reworded is not None:
        text = _reworded(text, *rules.reworded, rules.quotes)
    return replace(statement, text=text), ignores


def _reworded(text: str, words: re.Pattern[str], others: str, quotes: re.Pattern[str]) -> str:
    quoted = [match.span() for match in quotes.finditer(text)]

    def other(match: re.Match[str]) -> str:
        return match[0] if any(start <= match.start() < end for start, end in quoted) else others

    return words.sub(other, text)


def _hidden(word: str, words: frozenset[str]) -> Written:
    sets_variables = word == "SET" and "statement" not in words
    if _only_explains(word, words) or words.isdisjoint(_VERBS) or sets_variables:
        return None
    return Opaque("it is a statement in another one", words)


def _only_explains(word: str, words: frozenset[str]) -> bool:
    return word in ("EXPLAIN", "DESCRIBE", "DESC") and words.isdisjoint({"analyze", "analyse"})


def _writes_inside(tree: Any) -> bool:
    kinds = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.TruncateTable, exp.Command, exp.Copy)
    return tree.find(*kinds) is not None


def _of_tree(reader: TreeReader, word: str, *, ignores: bool) -> Written:
    tree, words = reader.tree, words_of(reader.statement.text)
    if any(_writes_inside(cte.this) for cte in tree.find_all(exp.CTE)):
        return Opaque("a WITH of it writes", words)
    if isinstance(tree, exp.Insert):
        return reader.insert(replaces=word == "REPLACE", ignores=ignores)
    if isinstance(tree, exp.Update):
        return reader.update()
    if isinstance(tree, exp.Delete):
        return reader.delete()
    is_copy_to = isinstance(tree, exp.Copy) and not tree.args.get("kind")
    if is_copy_to or not _writes_inside(tree):
        return None
    return Opaque(f"its rows cannot be known before it ran ({word})", words)
