"""Placement: each table's home in the base table, entries in indexes, and an access pattern per question."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as Dict
from dataclasses import dataclass, field
from datetime import datetime, time
from typing import Any

from msgspec import Struct

from migrator.mapping.items.changes import captured_name
from migrator.mapping.items.templates import name_in_template
from migrator.mapping.items.values import text
from migrator.mapping.model.facts import Column, ForeignKey, Kind, SchemaFacts, TableFacts
from migrator.mapping.model.mapping import Operation, Order
from migrator.mapping.model.questions import (
    NULLS_MOVED,
    Bound,
    Figures,
    Joined,
    NotServed,
    NumberSpan,
    Path,
    QuestionCondition,
    StatementQuestion,
    Unserved,
    column_at,
    free_name,
    parent_keys,
    plain_name,
    row_key,
)
from migrator.mapping.model.table import OWN_TYPES
from migrator.runtime.errors import amount
from migrator.runtime.values import replace

_WIDTHS = (10, 20)
"""Digits of a number without a declared precision: every 32-bit integer fits the first, every 64-bit integer the second."""
_SPARE_DIGITS = 2
"""A number that grows by so many digits still fits its width; then rows are refused, not sorted wrongly."""

PLAIN = frozenset({"integer", "boolean", "date", "time", "uuid"})


class KeyPiece(Struct, frozen=True):
    """A value of a key: its place, and the text after its name within the braces (a format, filters)."""

    path: Path
    form: str

    def of(self, name: str) -> str:
        return "{" + name_in_template(name) + self.form + "}"

    def at(self, column: str) -> KeyPiece:
        return KeyPiece(("", column), self.form)

    @property
    def stored(self) -> str:
        return self.of(".".join(filter(None, self.path)))


def equal_form(
    column: Column, span: NumberSpan | None, *, several: bool, lowered: bool = False
) -> str | None:
    """Form of a value compared by equality; None if its type has none. `several`: it shares the key."""
    kind = column.kind.name
    if kind == "text":
        alike = ("case", *column.alike) if lowered else column.alike
        filters = ["|lower"] if "case" in alike else []
        filters += ["|rtrim"] if "trailing spaces" in column.alike else []
        return "".join([*filters, *(["|escape"] if several else [])])
    if lowered:
        return None
    if kind == "timestamp":
        return "|iso"
    if kind == "binary":
        return "|hash"
    if kind == "number" and column.kind.scale is not None:
        return "" if column.kind.scale == 0 else _padded(column.kind, span)
    return "" if kind in PLAIN else None


def sort_form(column: Column, span: NumberSpan | None, *, reverse: bool = False) -> str | None:
    """Form of a value whose texts sort as values do, or backwards (`reverse`); None if its type has none."""
    kind = column.kind.name
    backwards = "|desc" if reverse else ""
    if kind == "timestamp":
        return f"|iso{backwards}"
    if kind == "date":
        return backwards
    if kind == "uuid":
        return "" if column.kind.sorts_as_text and not reverse else None
    if kind == "integer" or (kind == "number" and column.kind.scale is not None):
        padded = _padded(column.kind, span)
        return None if padded is None else padded + backwards
    return None


def key_form(column: Column, span: NumberSpan | None) -> str:
    """Form of a row's key part at the end of a sort key: sorted if possible, else plain."""
    form = sort_form(column, span)
    if form is None:
        form = equal_form(column, span, several=True)
    return "|escape" if form is None else form


def _padded(kind: Kind, span: NumberSpan | None) -> str | None:
    """None if a number is negative: its text would sort wrongly, and its row would be refused."""
    if span is None or (span.least or 0) < 0:
        return None
    scale, most = kind.scale or 0, len(str(span.most or 0))
    digits = next((width for width in _WIDTHS if most + _SPARE_DIGITS <= width), _WIDTHS[-1])
    if kind.precision is not None and kind.precision - scale >= most:
        digits = min(kind.precision - scale, _WIDTHS[-1])
    return f":0{digits + 1 + scale}.{scale}f" if scale else f":0{digits}"


_SINGULAR = tuple(
    (re.compile(rf"(?:{ending})$"), one)
    for ending, one in {
        r"(?<![a-z])people": "person",
        r"(?<=child)ren": "",
        r"(?<![a-z])(wo)?men": r"\1man",
        r"criteria": "criterion",
        r"indices": "index",
        r"vertices": "vertex",
        r"matrices": "matrix",
        r"analyses": "analysis",
        r"(?<![a-z])axes": "axis",
        r"(movie|cookie|calorie|cache|niche|menu|(?<![a-z])[tp]ie)s": r"\1",
        r"(?<![a-z])[a-z]{1,3}|ss|us|is|news|series|species|goods|lens|canvas|atlas|alias|gas": r"\g<0>",
        r"(status|bonus|campus|census|virus|focus|radius|bus|alias|canvas|quiz)z?es": r"\1",
        r"(ss|sh|ch|zz|x|ero|ato)es": r"\1",
        r"ies": "y",
        r"(shel|hal)ves": r"\1f",
        r"s": "",
    }.items()
)
"""English plural endings with their singular; the first match counts."""


def singular(name: str) -> str:
    """Name of one row, such as order_line of order_lines."""
    ending, one = next(((ending, one) for ending, one in _SINGULAR if ending.search(name)), (None, ""))
    return name if ending is None else ending.sub(one, name)


class EntityNames(Struct, frozen=True):
    entity: str
    type: str
    word: str


class TableNames(Struct, frozen=True):
    """Names of tables in keys (`words`) and as items (`types`), and attribute names that no column has."""

    words: dict[str, str]
    types: dict[str, str]
    entities: dict[str, str]
    partition: str
    sort: str
    type: str
    ttl: str
    index: str
    """Before an index's number in the names of its key attributes."""
    own: dict[str, str]
    """Names of migrator's attributes that are not the usual ones, by their words in `table: {own: …}`."""

    @classmethod
    def of(cls, facts: SchemaFacts, written: Dict[str, EntityNames] = {}) -> TableNames:
        words: dict[str, str] = {}
        types: dict[str, str] = {}
        entities: dict[str, str] = {}
        plains = {table: plain_name(table) for table in sorted(facts.tables)}
        for table, plain in sorted(plains.items(), key=lambda pair: pair[0] not in written):
            name = plain if (one := singular(plain)) in plains.values() else one
            camel = "".join(word.capitalize() for word in name.split("_"))
            names = written.get(table, EntityNames(name, camel, name.upper()))
            entities[table] = free_name(names.entity, entities.values())
            words[table] = free_name(names.word, words.values())
            types[table] = free_name(names.type, (*types.values(), *OWN_TYPES))
        taken = {column.name for table in facts.tables.values() for column in table.columns}
        partition, sort, type_, ttl = (
            _untaken(name, taken) for name in ("PK", "SK", "entity_type", "expires_at")
        )
        of_indexes = [match[1] for name in taken if (match := _OF_INDEX.fullmatch(name))]
        own = {word: name for word, usual in _OWN.items() if (name := _untaken(usual, taken)) != usual}
        return cls(words, types, entities, partition, sort, type_, ttl, _untaken("GSI", of_indexes), own)


_OF_INDEX = re.compile(r"(.*?)\d+[PS]K", re.IGNORECASE)
_OWN = {"source": "_src", "ticket": "_tk", "revision": "_rev"}


def _untaken(name: str, taken: Iterable[str]) -> str:
    lower = {other.lower() for other in taken}
    while name.lower() in lower:
        name = f"_{name}"
    return name


def joined_key(word: str, pieces: Sequence[str]) -> str:
    return "#".join([word, *pieces])


def span_of(figures: Figures, table: str, column: str) -> NumberSpan | None:
    return figures.spans.get((table, column))


# ── What each question needs of a key: its partition, the beginning of its sort key ──


LARGEST_LIST = 10_000
"""Rows of a table that one partition holds as a whole."""


class Need(Struct, frozen=True):
    """A question's requirements for an index entry.

    `sort`: the required beginning of its sort key, () for any.
    `when`: item conditions: (column, required values); None is any value, (None,) is NULL.
    `bucket`: form of the partition's month, '' for none.
    `order`: whether the key keeps SQL's order.
    `notes`: differences from SQL.
    """

    partition: tuple[KeyPiece, ...]
    sort: tuple[KeyPiece, ...]
    when: tuple[tuple[str, tuple[str | int | bool | None, ...] | None], ...]
    order: Order
    descending: bool
    notes: tuple[str, ...] = ()
    bucket: KeyPiece | None = None


class Needs(Struct, frozen=True):
    facts: SchemaFacts
    figures: Figures

    def of(self, question: StatementQuestion) -> Need:
        if len(question.of("in")) > 1:
            raise NotServed("list", "several lists")
        leading = _leading(self.facts.tables[question.table])
        equal = sorted(
            question.of("=", "in"), key=lambda condition: (condition.path not in leading, condition.path)
        )
        asked = [condition for condition in equal if condition.params]
        ranges = question.ranges
        if len({condition.path for condition in ranges}) > 1 or (question.of("prefix") and len(ranges) > 1):
            raise NotServed(
                "condition",
                "several ranges: put the one that leaves fewest rows in SQL, and filter in the application",
            )
        pieces = [self._equal(question, condition, several=len(asked) > 1) for condition in asked]
        ordered = self._ordered(question, ranges)
        need = replace(ordered, partition=tuple(pieces), when=tuple(self._when(question)))
        return need if asked else self._whole_table(question, need, ranges)

    def _equal(self, question: StatementQuestion, condition: QuestionCondition, *, several: bool) -> KeyPiece:
        column = self._column(question, condition.path)
        form = equal_form(
            column, self._span(question, condition.path), several=several, lowered=condition.lowered
        )
        if form is None:
            raise NotServed("key", f"{column.name} is {column.kind.name}")
        return KeyPiece(condition.path, form)

    def _when(
        self, question: StatementQuestion
    ) -> Iterator[tuple[str, tuple[str | int | bool | None, ...] | None]]:
        made: dict[str, tuple[str | int | bool | None, ...] | None] = {}
        for condition in question.constants:
            name = ".".join(filter(None, condition.path))
            held = _held(self._column(question, condition.path), condition.value)
            if name in made or (condition.bound == "=" and held is None):
                raise NotServed("constant")
            if condition.bound == "is not null":
                made[name] = None
            else:
                made[name] = (None,) if condition.bound == "is null" else (held,)
        for name in question.required:
            made.setdefault(name, None)
        if len({values is None for values in made.values()}) > 1:
            raise NotServed("condition", "constants together with columns that must not be NULL")
        yield from sorted(made.items())

    def _whole_table(
        self, question: StatementQuestion, need: Need, ranges: tuple[QuestionCondition, ...]
    ) -> Need:
        """Without equality: one partition contains all of a small table, or each month of a large one."""
        rows = self.figures.rows.get(question.table, 0)
        if rows <= LARGEST_LIST or need.when or (question.limit is not None and need.sort):
            per_s = self.figures.writes.get(captured_name(self.facts.tables[question.table]))
            written = "every write of them" if per_s is None else f"{per_s:g} writes/s (DynamoDB takes 1,000)"
            held = f"{'up to ' if need.when else ''}{amount(rows, 'row')}"
            return replace(need, notes=(*need.notes, f"one partition has {held} and {written}"))
        column = self._column(question, ranges[0].path) if ranges else None
        sides = {condition.bound[0] for condition in ranges}
        if column is None or column.kind.name not in ("timestamp", "date") or sides != {"<", ">"}:
            raise NotServed("scan")
        return replace(need, bucket=KeyPiece(ranges[0].path, "|month"))

    # ── order ──

    def _ordered(self, question: StatementQuestion, ranges: tuple[QuestionCondition, ...]) -> Need:
        """The required sort key, and whether it keeps SQL's order."""
        fixed = {condition.path for condition in question.of("=", "is null") if not condition.lowered}
        wanted = [(path, descending) for path, descending in question.order if path not in fixed]
        table = self.facts.tables[question.table]
        ends = next(
            (place + 1 for place in range(len(wanted)) if self._is_key(question, wanted[: place + 1], fixed)),
            None,
        )
        wanted = wanted[:ends]
        begins = ranges[0].path if ranges else None
        descending = bool(wanted) and wanted[0][1]
        reason = self._unkept(question, wanted, begins)
        pieces: list[KeyPiece] = []
        if begins is not None and (not wanted or reason):
            is_prefix = ranges[0].bound == "prefix"
            pieces = [KeyPiece(begins, "") if is_prefix else self._sorted(question, begins)]
        if wanted and not reason:
            pieces = [self._sorted(question, path, reverse=way != descending) for path, way in wanted]
        for condition in (condition for condition in ranges if condition.then):
            paths = (condition.path, *condition.then)
            ways = {way for path, way in wanted if path in paths}
            if tuple(piece.path for piece in pieces[: len(paths)]) != paths or len(ways) > 1:
                raise NotServed(
                    "condition",
                    "the columns of a row comparison must be those of ORDER BY, all in one direction",
                )
        unique = any({("", name) for name in key} <= fixed for key in table.proved)
        if question.limit is not None and not unique and reason:
            raise NotServed("limit", reason)
        if question.limit is not None and not unique and not wanted:
            same = "ORDER BY names only columns that are the same in all rows of the answer"
            raise NotServed("unordered", same if question.order else "no ORDER BY")
        total = bool(wanted) and not reason and ends is not None
        notes = [f"the order is the application's to make: {reason}"] if reason else []
        if wanted and not reason and not total:
            notes = ["rows that the order takes for equal come in the order of their keys"]
        if wanted and not reason:
            filled = [path[1] for path, _ in wanted if self._is_filled(question, path)]
            notes += [f"served while no row has NULL in {name}" for name in filled]
        return Need(
            (), tuple(pieces), (), "exact" if total else "any", descending and not reason, tuple(notes)
        )

    def _is_key(
        self, question: StatementQuestion, ordered: list[tuple[Path, bool]], fixed: set[Path]
    ) -> bool:
        names = {path[1] for path in (*(path for path, _ in ordered), *fixed) if not path[0]}
        table = self.facts.tables[question.table]
        nullable = {column.name for column in table.columns if column.nullable}
        return any(set(key) <= names and not set(key) & nullable for key in table.proved)

    def _unkept(
        self, question: StatementQuestion, wanted: list[tuple[Path, bool]], begins: Path | None
    ) -> str:
        """Why no sort key keeps the order; '' if one does."""
        if begins is not None and wanted and wanted[0][0] != begins:
            return "the range is of another column"
        present = {("", name) for name in question.required} | {begins}
        present |= {condition.path for condition in question.of("is not null")}
        for path, way in wanted:
            if question.total is not None and path == ("", question.total.alias):
                if question.total.nullable:
                    rows = f"rows without {question.total.table}"
                    return f"it is NULL in {rows}, which JOIN leaves out and LEFT JOIN does not"
                if self._total_form(question) is None:
                    return "a total may be negative"
                continue
            column = self._column(question, path)
            if column.nullable and path not in present and not self._is_filled(question, path):
                return NULLS_MOVED if path in question.nulls_moved else f"{column.name} may be NULL"
            if sort_form(column, self._span(question, path), reverse=way != wanted[0][1]) is None:
                what = (
                    "may be negative"
                    if column.kind.name in ("integer", "number")
                    else f"is {column.kind.name}"
                )
                return f"{column.name} {what}"
        return ""

    def _is_filled(self, question: StatementQuestion, path: Path) -> bool:
        """Whether no present row has NULL in a nullable column.

        Without a LIMIT the application can sort, and misses no row with NULL.
        """
        first_rows = question.limit is not None
        return first_rows and not path[0] and (question.table, path[1]) in self.figures.filled

    def _sorted(self, question: StatementQuestion, path: Path, *, reverse: bool = False) -> KeyPiece:
        if question.total is not None and path == ("", question.total.alias):
            return KeyPiece(path, self._total_form(question) or "")
        form = sort_form(self._column(question, path), self._span(question, path), reverse=reverse)
        if form is None:
            raise NotServed("key", f"{path[1]} cannot be sorted as a text")
        return KeyPiece(path, form)

    def _total_form(self, question: StatementQuestion) -> str | None:
        total = question.total
        assert total is not None
        if total.kind == "count":
            return _padded(Kind("integer"), NumberSpan(0, self.figures.rows.get(total.table)))
        column = self.facts.tables[total.table].column(total.column)
        span = self.figures.totals.get((total.table, total.column, tuple(own for own, _ in total.on)))
        if column is None:
            return None
        # A sum may be longer than the column's numbers.
        return sort_form(replace(column, kind=replace(column.kind, precision=None)), span)

    # ── columns ──

    def _column(self, question: StatementQuestion, path: Path) -> Column:
        column = column_at(self.facts, question, path)
        if column is None:
            raise NotServed("aggregate")
        return column

    def _span(self, question: StatementQuestion, path: Path) -> NumberSpan | None:
        tables = {"": question.table} | {joined.alias: joined.table for joined in question.joins}
        return span_of(self.figures, tables[path[0]], path[1])


def _leading(table: TableFacts) -> frozenset[Path]:
    """First columns of composite keys, such as the tenant's, which also come first in partitions."""
    keys = (row_key(table), *(key.columns for key in table.foreign_keys))
    return frozenset(("", key[0]) for key in keys if len(key) > 1)


def _held(column: Column, value: str | int | bool | None) -> str | int | bool | None:
    """The value of items exactly where SQL finds the column equal to the constant; None if there is none."""
    kind = column.kind
    if isinstance(value, str):
        if kind.name == "text":
            return None if column.alike else value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        if kind.name == "date":
            return text(moment.date()) if moment == datetime.combine(moment, time()) else None
        return text(moment) if kind.name == "timestamp" and not kind.zone and moment.tzinfo is None else None
    wanted: tuple[str, type] = ("boolean", bool) if isinstance(value, bool) else ("integer", int)
    return value if kind.name == wanted[0] and isinstance(value, wanted[1]) else None


def tail_of(table: TableFacts, figures: Figures, but: frozenset[Path]) -> tuple[KeyPiece, ...]:
    """The row's key at the end of a sort key, without columns that come earlier."""
    names = [name for name in row_key(table) if ("", name) not in but]
    columns = [column for name in names if (column := table.column(name)) is not None]
    return tuple(
        KeyPiece(("", column.name), key_form(column, span_of(figures, table.name, column.name)))
        for column in columns
    )


LARGEST_COLLECTION = 100_000
"""Limit of the rows of one parent in its partition."""
LARGEST_FILTERED = 300
"""Rows of one parent that a query reads and filters, rather than an index more."""
_FEWEST_TELLING = 1_000
"""Rows of a table from which on its largest collection is representative, and of any table, the others' rows."""


def filters_of(
    facts: SchemaFacts, question: StatementQuestion, conditions: Iterable[QuestionCondition]
) -> dict[str, Any] | None:
    """The question's conditions as a query's filter; None if items cannot be filtered that way."""
    table = facts.tables[question.table]
    made: dict[str, Any] = {name: {"exists": True} for name in question.required}
    for condition in conditions:
        alias, name = condition.path
        column = table.column(name)
        if alias or column is None or condition.lowered or name in made.keys() - set(question.required):
            return None
        filtered = _filter(column, condition)
        if filtered is None or column.kind.name == "unknown":
            return None
        made[name] = filtered
    return made


def _filter(column: Column, condition: QuestionCondition) -> Any:
    """The condition on the column's attribute; None if items compare differently than SQL."""
    if condition.bound in ("is null", "is not null"):
        return {"exists": condition.bound == "is not null"}
    if condition.bound != "=":
        return None
    if not condition.params:
        held = _held(column, condition.value)
        return None if held is None else {"const": held}
    has_scale = column.kind.name == "number" and column.kind.scale is not None
    return condition.params[0] if has_scale or equal_form(column, None, several=False) == "" else None


_OF_CHILDREN = "each change of {} writes its parent's item"


OWN_SORT = "META"
"""The sort key of a row in a partition of its own."""


class Home(Struct, frozen=True):
    """Base key of a table's items, as templates.

    `parent`: foreign key to the row that owns the partition; None for its own.
    `rest`: the part of the row's key in the sort key.
    """

    table: str
    partition: tuple[str, tuple[KeyPiece, ...]]
    sort: tuple[str, tuple[KeyPiece, ...]]
    parent: ForeignKey | None = None
    ordered: tuple[str, ...] = ()
    """Columns that the sort key begins with for the order of a question."""


class IndexKeys(Struct, frozen=True):
    """Keys of a table's items in index `number`, from 1.

    `closed`: the sort key ends in '#', so that each value of a range has keys behind it.
    """

    partition: tuple[str, tuple[KeyPiece, ...]]
    sort: tuple[str, tuple[KeyPiece, ...]]
    when: tuple[tuple[str, tuple[str | int | bool | None, ...] | None], ...] = ()
    bucket: KeyPiece | None = None
    number: int = 0
    closed: bool = False


class AccessPart(Struct, frozen=True):
    """`on`: columns and the parameters they equal.
    `joins`: other parents of columns.
    `one`: a single item.
    """

    name: str
    table: str
    outputs: tuple[Path, ...]
    on: tuple[tuple[str, str], ...]
    joins: tuple[Joined, ...] = ()
    order: tuple[tuple[str, bool], ...] = ()
    one: bool = False


class Access(Struct, frozen=True):
    """A question as an access pattern. `condition`: operator and templates for the sort key; '' for none.

    `parts`: of a parent with its children; they replace the question's outputs and SQL.
    """

    name: str
    question: StatementQuestion
    operation: Operation
    key: str
    condition: tuple[str, tuple[str, ...]]
    index: int = 0
    descending: bool = False
    order: Order = "exact"
    notes: tuple[str, ...] = ()
    filters: Dict[str, Any] = {}
    """Conditions on other attributes, in the mapping's form."""
    parts: tuple[AccessPart, ...] = ()

    @property
    def stored(self) -> StatementQuestion:
        """The question with the parts that its own table's items must have."""
        last = self.parts[-1] if self.parts else self.question
        return replace(self.question, outputs=last.outputs, joins=last.joins)

    @property
    def tables(self) -> set[str]:
        """Of all rows that its statements read."""
        own: list[StatementQuestion | AccessPart] = [self.question, *self.parts]
        return {name for one in own for name in (one.table, *(join.table for join in one.joins))}


class PlacedTables(Struct, frozen=True):
    """`homes` and numbered `entries` by table; tables without a key have neither."""

    names: TableNames
    homes: Dict[str, Home]
    entries: Dict[str, tuple[IndexKeys, ...]]
    accesses: tuple[Access, ...]
    unserved: tuple[Unserved, ...]
    without_key: tuple[str, ...]

    @property
    def indexes(self) -> int:
        return max((entry.number for entries in self.entries.values() for entry in entries), default=0)


def design_of(
    questions: Sequence[StatementQuestion],
    facts: SchemaFacts,
    figures: Figures,
    *,
    max_indexes: int,
    but: frozenset[str] = frozenset(),
    written: Dict[str, EntityNames] = {},
) -> PlacedTables:
    """The design for the questions, regardless of their order.

    `but`: omitted tables.
    `written`: names of an existing mapping.
    """
    ordered = sorted(questions, key=lambda question: (-question.statement.calls, question.sql))
    placing = _Placing(facts, figures, TableNames.of(facts, written), max_indexes)
    asked: dict[str, list[StatementQuestion]] = {name: [] for name in sorted(set(facts.tables) - but)}
    for question in ordered:
        asked.get(question.table, []).append(question)
    loaded = {
        one.table for question in ordered if question.with_parent for one in question.joins if not one.parent
    }
    for name, own in asked.items():
        placing.add_home(facts.tables[name], own, alone=name in loaded)
    for name in placing.homes:
        placing.add_table(facts.tables[name], asked[name])
    return placing.design(ordered)


@dataclass
class _Placing:
    facts: SchemaFacts
    figures: Figures
    names: TableNames
    max_indexes: int
    homes: dict[str, Home] = field(default_factory=dict)
    entries: dict[str, tuple[IndexKeys, ...]] = field(default_factory=dict)
    accesses: list[Access] = field(default_factory=list)
    unserved: list[Unserved] = field(default_factory=list)
    without_key: list[str] = field(default_factory=list)

    def add_home(self, table: TableFacts, questions: Sequence[StatementQuestion], *, alone: bool) -> None:
        """`alone`: its rows are read with their children, so each has its own partition."""
        if not row_key(table):
            self.without_key.append(table.name)
            self.unserved += [
                Unserved(question.statement, "key", "its table has no key") for question in questions
            ]
        else:
            self.homes[table.name] = self._home_with(table, None) if alone else self._home(table, questions)

    def add_table(self, table: TableFacts, questions: Sequence[StatementQuestion]) -> None:
        home = self.homes[table.name]
        needs: list[tuple[StatementQuestion, Need]] = []
        without: list[tuple[StatementQuestion, NotServed]] = []
        for question in questions:
            try:
                access = self._own_access(question, home)
                if access is None:
                    needs.append((question, Needs(self.facts, self.figures).of(question)))
                else:
                    self.accesses.append(access)
            except NotServed as no_key:
                without.append((question, no_key))
        wider = sorted((need for _, need in needs), key=lambda need: len(need.partition))
        shared = {id(one): self._shared(one, wider) for one, _ in (*needs, *without)}
        for question, why in without:
            found = shared[id(question)]
            if found is None or question.with_parent:
                self.unserved.append(Unserved(question.statement, why.reason, why.what))
            else:
                needs.append((question, found[0]))
        self._index(table, needs, shared)

    def design(self, questions: Sequence[StatementQuestion]) -> PlacedTables:
        places = {id(question): place for place, question in enumerate(questions)}
        named: dict[str, Access] = {}
        for access in sorted(self.accesses, key=lambda access: places[id(access.question)]):
            name = free_name(self._name(access.question), named)
            notes = (*access.question.notes, *access.notes, *self._rewrites(access.stored))
            named[name] = replace(access, name=name, notes=notes)
        unserved = tuple(
            sorted(self.unserved, key=lambda other: (-other.statement.calls, other.statement.sql))
        )
        return PlacedTables(
            self.names,
            self.homes,
            self.entries,
            tuple(named.values()),
            unserved,
            tuple(sorted(self.without_key)),
        )

    def _rewrites(self, question: StatementQuestion) -> Iterator[str]:
        """Items that a change of each parent with columns in the answer rewrites, if measured."""
        read = {alias for alias, _ in question.outputs}
        for joined in question.joins:
            own = {own for own, _ in joined.on}
            counts = self.figures.fan_out.items()
            most = next((n for (name, key), n in counts if name == question.table and set(key) == own), 0)
            if joined.alias in read and not joined.parent and most > 1:
                yield f"a change of one row of {joined.table} rewrites up to {amount(most, 'item')}"

    def _name(self, question: StatementQuestion) -> str:
        if question.statement.name:
            return plain_name(question.statement.name)
        rows = plain_name(question.table)
        if question.total is not None and not question.order:
            by = "_".join(plain_name(own) for own, _ in question.total.on)
            return f"{question.total.kind}_{plain_name(question.total.table)}_by_{by}"
        equal = [plain_name(condition.path[1]) for condition in question.of("=", "in") if condition.params]
        if set(row_key(self.facts.tables[question.table])) == {
            condition.path[1] for condition in question.of("=", "in")
        }:
            return f"get_{self.names.entities[question.table]}"
        columns = equal or [plain_name(path[1]) for path, _ in question.order[:1]]
        word = "top" if question.limit is not None and not equal else "list"
        return f"{word}_{rows}_by_{'_'.join(columns)}" if columns else f"{word}_{rows}"

    # ── the base table ──

    def _home(self, table: TableFacts, questions: Sequence[StatementQuestion]) -> Home:
        """With the parent if most questions are answered there, or if its key begins with the parent's."""
        key = set(row_key(table))
        own = sum(question.statement.calls for question in questions if _asked(question) == key)
        best, home = (0.0, False), self._home_with(table, None)
        for foreign in parent_keys(self.facts, table):
            if not self._may_hold(table, foreign):
                continue
            plain = self._home_with(table, foreign)
            for there in (plain, *self._sorted_homes(table, plain, questions)):
                answered = (question for question in questions if self._is_answered(question, there))
                calls = sum(question.statement.calls for question in answered)
                identifying = set(foreign.columns) < key
                if (identifying or calls > own) and (calls, identifying) > best:
                    best, home = (calls, identifying), there
        return home

    def _sorted_homes(
        self, table: TableFacts, home: Home, questions: Sequence[StatementQuestion]
    ) -> Iterator[Home]:
        """The home with its items in a question's order, by columns known not to change."""
        partition = {piece.path for piece in home.partition[1]}
        updated = self.figures.updated.get(captured_name(table))
        if updated is None:
            return
        for question in questions:
            try:
                need = Needs(self.facts, self.figures).of(question)
            except NotServed:
                continue
            columns = [None if piece.path[0] else table.column(piece.path[1]) for piece in need.sort]
            is_fixed = all(one and not one.nullable and one.real not in updated for one in columns)
            if {piece.path for piece in need.partition} == partition and columns and is_fixed:
                before = frozenset(partition | {piece.path for piece in need.sort})
                sort = (*need.sort, *tail_of(table, self.figures, before))
                yield replace(
                    home, sort=(home.sort[0], sort), ordered=tuple(one.path[1] for one in need.sort)
                )

    def _is_answered(self, question: StatementQuestion, home: Home) -> bool:
        try:
            return self._at_home(question, home) is not None
        except NotServed:
            return False

    def _may_hold(self, table: TableFacts, foreign: ForeignKey) -> bool:
        nullable = {column.name for column in table.columns if column.nullable}
        most = self.figures.fan_out.get((table.name, foreign.columns), 0)
        return (
            foreign.table != table.name and not nullable & set(foreign.columns) and most <= LARGEST_COLLECTION
        )

    def _home_with(self, table: TableFacts, parent: ForeignKey | None) -> Home:
        word = self.names.words[table.name]
        if parent is None:
            pieces = self._pieces(table, row_key(table))
            return Home(table.name, (word, pieces), (OWN_SORT, ()))
        ours = dict(zip(parent.referred, parent.columns, strict=True))
        columns = [ours[name] for name in row_key(self.facts.tables[parent.table])]
        pieces = self._pieces(table, columns)
        rest = tail_of(table, self.figures, frozenset(("", name) for name in columns))
        return Home(table.name, (self.names.words[parent.table], pieces), (word, rest), parent)

    def _pieces(self, table: TableFacts, names: Sequence[str]) -> tuple[KeyPiece, ...]:
        columns = [column for name in names if (column := table.column(name)) is not None]
        return tuple(self._piece(table, column, several=len(columns) > 1) for column in columns)

    def _piece(self, table: TableFacts, column: Column, *, several: bool) -> KeyPiece:
        form = equal_form(column, span_of(self.figures, table.name, column.name), several=several)
        return KeyPiece(("", column.name), ("|escape" if several else "") if form is None else form)

    def _own_access(self, question: StatementQuestion, home: Home) -> Access | None:
        """Like `_at_home`. Raises: NotServed also if the parent of a LEFT JOIN is elsewhere."""
        access = self._at_home(question, home)
        if question.with_parent and not (access and access.parts):
            raise NotServed("join", "a LEFT JOIN of children that are not in one partition with their parent")
        return access

    def _at_home(self, question: StatementQuestion, home: Home) -> Access | None:
        of_each = question.total is not None and bool(question.order)
        plain = not question.constants and not question.required and not of_each
        asked = {condition.path[1]: condition for condition in question.of("=", "in")}
        if (
            not plain
            or len(asked) != len(question.conditions)
            or any(c.path[0] or c.lowered for c in asked.values())
        ):
            return None if of_each else self._filtered(question, home)
        params = {name: condition.params[0] for name, condition in asked.items()}
        lists = [condition for condition in asked.values() if condition.bound == "in"]
        pieces = (*home.partition[1], *home.sort[1])
        if set(params) == {piece.path[1] for piece in pieces} == set(row_key(self.facts.tables[home.table])):
            if len(lists) > 1:
                raise NotServed("list")
            key, sort = (_asking(*part, params) for part in (home.partition, home.sort))
            operation: Operation = "batch_get" if lists else "get"
            order: Order = "any" if lists else "exact"
            notes = () if question.total is None else (_OF_CHILDREN.format(question.total.table),)
            return Access("", question, operation, key, ("equal", (sort,)), order=order, notes=notes)
        if home.parent is None or set(params) != {piece.path[1] for piece in home.partition[1]}:
            return None if lists else self._filtered(question, home)
        access = self._collection(question, home, params)
        return access and self._with_parent(access, home, params)

    def _filtered(self, question: StatementQuestion, home: Home) -> Access | None:
        """Access to one item, or to the few of one parent, with a filter for the other conditions."""
        equal = {c.path[1]: c for c in question.of("=") if c.params and not c.path[0] and not c.lowered}
        for is_whole in (True, False):
            names = {piece.path[1] for piece in (*home.partition[1], *(home.sort[1] if is_whole else ()))}
            others = [one for one in question.conditions if one is not equal.get(one.path[1])]
            others += [one for name, one in equal.items() if name not in names]
            filters = filters_of(self.facts, question, others)
            if not names <= set(equal) or filters is None:
                continue
            params = {name: equal[name].params[0] for name in names}
            if is_whole:
                key, sort = (_asking(*part, params) for part in (home.partition, home.sort))
                notes = () if question.total is None else (_OF_CHILDREN.format(question.total.table),)
                return Access("", question, "query", key, ("equal", (sort,)), notes=notes, filters=filters)
            few = self._few(home.table, names)
            access = self._collection(question, home, params) if few else None
            return access and replace(access, filters=filters, notes=(*access.notes, few))
        return None

    def _few(self, table: str, columns: set[str]) -> str:
        """A note if a query may read and filter all rows with equal values in the columns (or all rows).

        '' if they are many, or not counted, or the table is too small to be representative.
        """
        rows, most = self.figures.rows.get(table, 0), LARGEST_FILTERED + 1
        if not columns and max(self.figures.rows.values(), default=0) >= _FEWEST_TELLING:
            most = rows
        elif rows >= _FEWEST_TELLING:
            parents = self.figures.fan_out.items()
            most = min(
                [n for (name, key), n in parents if name == table and set(key) <= columns], default=most
            )
        is_few = table in self.figures.exact and most <= LARGEST_FILTERED
        return f"a call reads up to {amount(most, 'item')} before the filter" if is_few else ""

    def _collection(self, question: StatementQuestion, home: Home, params: Dict[str, str]) -> Access | None:
        need = Needs(self.facts, self.figures).of(question)
        rest = home.sort[1]
        if need.sort != rest[: len(need.sort)]:
            return None
        key = _asking(*home.partition, params)
        condition = _every(home.sort)
        return Access("", question, "query", key, condition, 0, need.descending, need.order, need.notes)

    def _with_parent(self, access: Access, home: Home, params: Dict[str, str]) -> Access:
        if not (parts := self._parts(access.question, home, params)):
            return access
        differs = f"the {parts[0].name} is returned also if it has no {parts[1].name}"
        notes = (*access.notes, *([] if access.question.with_parent else [differs]))
        return replace(access, condition=("", ()), parts=parts, notes=notes)

    def _parts(
        self, question: StatementQuestion, home: Home, params: Dict[str, str]
    ) -> tuple[AccessPart, ...]:
        """The parent and its children, if the question needs both and their partition has little else; else ()."""
        parent = home.parent
        assert parent is not None
        key, held = dict(zip(parent.columns, parent.referred, strict=True)), self.homes.get(parent.table)
        alias = next((one.alias for one in question.joins if not one.parent and dict(one.on) == key), "")
        partition = home.partition[0], tuple(piece.at(key[piece.path[1]]) for piece in home.partition[1])
        housed = (other for other in self.homes.values() if other.partition[0] == home.partition[0])
        is_small = all(
            other.parent is None or other is home or self._few(other.table, set(other.parent.columns))
            for other in housed
        )
        of_parent = [("", name) for of, name in question.outputs if alias and of == alias]
        if question.with_parent:
            of_parent = list(dict.fromkeys([*(("", name) for name in key.values()), *of_parent]))
        own = tuple(path for path in question.outputs if not alias or path[0] != alias)
        if (
            not (own and of_parent)
            or any(one.parent for one in question.joins)
            or any(of for (of, _), _ in question.order)
            or question.limit is not None
            or held is None
            or held.partition != partition
            or not is_small
        ):
            return ()
        entity = self.names.entities[parent.table]
        on = tuple((key[column], param) for column, param in sorted(params.items()))
        ordered = tuple((column, descending) for (_, column), descending in question.order)
        rows = free_name(plain_name(question.table), [entity])
        joins = tuple(one for one in question.joins if one.alias != alias)
        return (
            AccessPart(entity, parent.table, tuple(of_parent), on, one=True),
            AccessPart(rows, question.table, own, tuple(sorted(params.items())), joins, ordered),
        )

    # ── indexes ──

    def _index(
        self,
        table: TableFacts,
        needs: Sequence[tuple[StatementQuestion, Need]],
        shared: Dict[int, tuple[Need, dict[str, Any]] | None],
    ) -> None:
        """Index entries for questions the base table does not answer: equal ones once, by frequency.

        `shared`: by id of the question, a wider need and a filter in place of its own.
        """
        made: list[IndexKeys] = []
        # Questions that need a sort key of their own come first, so that those that accept any find one.
        for question, asked in sorted(
            needs,
            key=lambda pair: (not pair[1].sort, not _pages(pair[0]), -pair[0].statement.calls, pair[0].sql),
        ):
            need, filters = shared[id(question)] or (asked, {})
            entry = self._entry(table, question, need)
            number = next((place for place, other in enumerate(made, 1) if _serves(other, entry, need)), 0)
            if not number and len(made) >= self.max_indexes:
                self.unserved.append(Unserved(question.statement, "index"))
                continue
            if not number:
                made.append(replace(entry, number=len(made) + 1))
                number = len(made)
            self.accesses.append(replace(_indexed(question, need, made[number - 1]), filters=filters))
        self.entries[table.name] = tuple(made)

    def _shared(
        self, question: StatementQuestion, wider: Iterable[Need]
    ) -> tuple[Need, dict[str, Any]] | None:
        """Another question's need whose few entries also answer this one, and the filter that drops the others."""
        for other in wider:
            paths = {piece.path for piece in other.partition}
            rest = [
                one for one in question.conditions if one not in question.ranges and one.path not in paths
            ]
            filters = filters_of(self.facts, question, rest)
            few = self._few(question.table, {name for alias, name in paths if not alias})
            if other.when or other.bucket or not (filters and few) or any(alias for alias, _ in paths):
                continue
            kept = tuple(one for one in question.conditions if one not in rest)
            try:
                need = Needs(self.facts, self.figures).of(replace(question, conditions=kept, required=()))
            except NotServed:
                continue
            same = {piece.path for piece in need.partition} == paths and need.bucket is None
            if same and need.sort == other.sort[: len(need.sort)]:
                return replace(need, partition=other.partition, notes=(*need.notes, few)), filters
        return None

    def _entry(self, table: TableFacts, question: StatementQuestion, need: Need) -> IndexKeys:
        before = frozenset(piece.path for piece in (*need.partition, *need.sort))
        sort = (*need.sort, *tail_of(table, self.figures, before))
        word = self._partition_word(table, question, need)
        closed = any(len(sort) == len(condition.params) for condition in question.ranges)
        pieces = (*need.partition, *([need.bucket] if need.bucket else []))
        return IndexKeys(
            (word, pieces), (self.names.words[table.name], sort), need.when, need.bucket, closed=closed
        )

    def _partition_word(self, table: TableFacts, question: StatementQuestion, need: Need) -> str:
        """The parent's word if the partition is the only foreign key to it; else a word of the columns."""
        own = self.names.words[table.name]
        columns = [piece.path[1] for piece in need.partition if not piece.path[0]]
        ways = [key for key in table.foreign_keys if set(key.columns) == set(columns)]
        alike = [key for key in table.foreign_keys if ways and key.table == ways[0].table]
        if len(ways) == 1 == len(alike) and len(need.partition) == 1 and ways[0].table in self.names.words:
            return (
                self.names.words[ways[0].table]
                if not need.when and ways[0].table != table.name
                else _worded(own, columns)
            )
        if set(columns) == set(row_key(table)) and len(columns) == len(need.partition) and not need.when:
            return own
        extra = [name for name, _ in need.when]
        total = [question.total.alias] if question.total is not None else []
        paths = ["_".join(filter(None, piece.path)) for piece in need.partition]
        return _worded(own, [*paths, *extra, *total, *(["month"] if need.bucket else [])])


def _worded(word: str, columns: Sequence[str]) -> str:
    if not columns:
        return f"ALL_{word}"
    return "_".join([word, "BY", *(plain_name(name).upper() for name in columns)])


def _asked(question: StatementQuestion) -> set[str]:
    return {
        condition.path[1]
        for condition in question.of("=", "in")
        if condition.params and not condition.path[0]
    }


def _pages(question: StatementQuestion) -> bool:
    """Whether it is paged after the last row, so that keys end in '#'."""
    return any(condition.then for condition in question.conditions)


def _serves(entry: IndexKeys, wanted: IndexKeys, need: Need) -> bool:
    same = (entry.partition, entry.when) == (wanted.partition, wanted.when)
    return (
        same
        and entry.closed >= wanted.closed
        and (not need.sort or entry.sort[1][: len(need.sort)] == need.sort)
    )


def _asking(word: str, pieces: Sequence[KeyPiece], params: Dict[str, str]) -> str:
    return joined_key(word, [piece.of(params[piece.path[1]]) for piece in pieces])


def _indexed(question: StatementQuestion, need: Need, entry: IndexKeys) -> Access:
    asked = [condition for condition in question.of("=", "in") if condition.params]
    by_path = {condition.path: condition.params[0] for condition in asked}
    ranges = {condition.bound: condition.params for condition in question.ranges}
    values = [piece.of(by_path[piece.path]) for piece in need.partition]
    if need.bucket is not None:
        lower, upper = (
            next(names[0] for bound, names in ranges.items() if bound[0] == side) for side in "><"
        )
        values.append("{*" + f"{lower},{upper}{need.bucket.form}" + "}")
    key = joined_key(entry.partition[0], values)
    condition = _range(entry, ranges) if ranges else _every(entry.sort)
    return Access(
        "", question, "query", key, condition, entry.number, need.descending, need.order, need.notes
    )


def _every(sort: tuple[str, tuple[KeyPiece, ...]]) -> tuple[str, tuple[str, ...]]:
    """All sort keys of this form. A word without values is the whole key."""
    word, pieces = sort
    return ("begins_with", (f"{word}#",)) if pieces else ("equal", (word,))


def _range(entry: IndexKeys, ranges: Dict[Bound, tuple[str, ...]]) -> tuple[str, tuple[str, ...]]:
    """First and last key of the range: keys continue after a value with '#', and '~' sorts last.

    '~' does not follow every text: before a text the range ends with '$', the next character after '#'.
    """
    word, pieces = entry.sort
    low, high = f"{word}#", f"{word}#~"
    end = "$" if any("|escape" in piece.form for piece in pieces) else "#~"
    for bound, params in ranges.items():
        value = joined_key(word, [piece.of(param) for piece, param in zip(pieces, params, strict=False)])
        if bound == "prefix":
            return "begins_with", (value,)
        if bound[0] == ">":
            low = value if bound == ">=" else value + end
        else:
            high = value if bound == "<" else value + end
    return "between", (low, high)
