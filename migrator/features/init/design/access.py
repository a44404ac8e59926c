"""What each question needs of a key: its partition, the beginning of its sort key, and whether SQL's order holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from migrator.features.init.design.keys import Piece, equal_form, key_form, sort_form, span_of
from migrator.mapping.model.facts import Column, SchemaFacts, TableFacts
from migrator.mapping.model.mapping import Order
from migrator.mapping.model.questions import Condition, Figures, Path, Question, Span, column_at, row_key

LARGEST_LIST = 10_000
"""Rows of a table that one partition holds as a whole."""


class NoKey(Exception):
    """Why no key answers a question: a word of REASONS, and what of it."""

    def __init__(self, reason: str, what: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.what = what


@dataclass(frozen=True, slots=True)
class Need:
    """What a question needs of an entry in an index. `sort`: what its sort key must begin with, () for anything.

    `when`: conditions under which an item is in it: (column, what it must be; None: any value), (column, (None,)): NULL.
    `bucket`: the form of the partition's month, '' for none. `order`: whether the key keeps SQL's order. `notes`: what
    differs from SQL.
    """

    partition: tuple[Piece, ...]
    sort: tuple[Piece, ...]
    when: tuple[tuple[str, tuple[str | int | bool | None, ...] | None], ...]
    order: Order
    descending: bool
    notes: tuple[str, ...] = ()
    bucket: Piece | None = None


@dataclass(frozen=True)
class Needs:
    """What questions need, by the schema and what was measured."""

    facts: SchemaFacts
    figures: Figures

    def of(self, question: Question) -> Need:
        """Raises: NoKey."""
        if question.of("in"):
            raise NoKey("list")
        leading = _leading(self.facts.tables[question.table])
        equal = sorted(
            question.of("="), key=lambda condition: (condition.path not in leading, condition.path)
        )
        asked = [condition for condition in equal if condition.params]
        ranges = question.of("<", "<=", ">", ">=")
        if len({condition.path for condition in ranges}) > 1:
            raise NoKey("condition", "ranges of two columns")
        pieces = [self._equal(question, condition, several=len(asked) > 1) for condition in asked]
        ordered = self._ordered(question, ranges)
        need = replace(ordered, partition=tuple(pieces), when=tuple(self._when(question)))
        return need if asked else self._whole_table(question, need, ranges)

    def _equal(self, question: Question, condition: Condition, *, several: bool) -> Piece:
        column = self._column(question, condition.path)
        form = equal_form(
            column, self._span(question, condition.path), several=several, lowered=condition.lowered
        )
        if form is None:
            raise NoKey("key", f"{column.name} is {column.kind.name}")
        return Piece(condition.path, form)

    def _when(self, question: Question) -> Iterator[tuple[str, tuple[str | int | bool | None, ...] | None]]:
        """Sorted by column, one condition for each."""
        made: dict[str, tuple[str | int | bool | None, ...] | None] = {}
        for condition in question.constants:
            alias, name = condition.path
            column = self._column(question, condition.path)
            if alias or name in made or (condition.bound == "=" and not _holds(column, condition.value)):
                raise NoKey("constant")
            if condition.bound == "is not null":
                made[name] = None
            else:
                made[name] = (None,) if condition.bound == "is null" else (condition.value,)
        for name in question.required:
            made.setdefault(name, None)
        if len({values is None for values in made.values()}) > 1:
            raise NoKey("condition", "constants beside columns that must not be NULL")
        yield from sorted(made.items())

    def _whole_table(self, question: Question, need: Need, ranges: tuple[Condition, ...]) -> Need:
        """Nothing is asked by equality: one partition holds all of a small table, or each month of a large one."""
        few = self.figures.rows.get(question.table, 0) <= LARGEST_LIST
        if few or need.when or (question.limit is not None and need.sort):
            return replace(need, notes=(*need.notes, "one partition takes every write of these entries"))
        column = self._column(question, ranges[0].path) if ranges else None
        sides = {condition.bound[0] for condition in ranges}
        if column is None or column.kind.name not in ("timestamp", "date") or sides != {"<", ">"}:
            raise NoKey("scan")
        return replace(need, bucket=Piece(ranges[0].path, "|month"))

    # ── order ──

    def _ordered(self, question: Question, ranges: tuple[Condition, ...]) -> Need:
        """The sort key that the question needs, and whether it keeps SQL's order."""
        fixed = {condition.path for condition in question.of("=", "is null")}
        wanted = [(path, descending) for path, descending in question.order if path not in fixed]
        key = [("", name) for name in row_key(self.facts.tables[question.table])]
        ends = next(
            (place + 1 for place in range(len(wanted)) if self._is_key(question, wanted[: place + 1], fixed)),
            None,
        )
        wanted = wanted[:ends]
        begins = ranges[0].path if ranges else None
        descending = bool(wanted) and wanted[0][1]
        reason = self._unkept(question, wanted, begins)
        pieces: list[Piece] = []
        if begins is not None and (not wanted or reason):
            pieces = [self._sorted(question, begins)]
        if wanted and not reason:
            pieces = [self._sorted(question, path, reverse=way != descending) for path, way in wanted]
        unique = set(key) <= fixed
        if question.limit is not None and not unique and reason:
            raise NoKey("limit", reason)
        if question.limit is not None and not unique and not wanted:
            same = "ORDER BY names only columns that are the same in all rows of the answer"
            raise NoKey("unordered", same if question.order else "there is no ORDER BY")
        total = bool(wanted) and not reason and ends is not None
        notes = [f"the order is the application's to make: {reason}"] if reason else []
        if wanted and not reason and not total:
            notes = ["rows that the order takes for equal come in the order of their keys"]
        return Need(
            (), tuple(pieces), (), "exact" if total else "any", descending and not reason, tuple(notes)
        )

    def _is_key(self, question: Question, ordered: list[tuple[Path, bool]], fixed: set[Path]) -> bool:
        """Whether no two rows of the answer are alike in these columns."""
        names = {path[1] for path in (*(path for path, _ in ordered), *fixed) if not path[0]}
        table = self.facts.tables[question.table]
        nullable = {column.name for column in table.columns if column.nullable}
        return any(set(key) <= names and not set(key) & nullable for key in table.proved)

    def _unkept(self, question: Question, wanted: list[tuple[Path, bool]], begins: Path | None) -> str:
        """Why no sort key keeps the order; '' where one does."""
        if begins is not None and wanted and wanted[0][0] != begins:
            return "the range is of another column"
        present = {("", name) for name in question.required} | {begins}
        present |= {condition.path for condition in question.of("is not null")}
        for path, way in wanted:
            if question.total is not None and path == ("", question.total.alias):
                if self._total_form(question) is None:
                    return "a total may be negative"
                continue
            column = self._column(question, path)
            if column.nullable and path not in present:
                return f"{column.name} may be NULL"
            if sort_form(column, self._span(question, path), reverse=way != wanted[0][1]) is None:
                what = (
                    "may be negative"
                    if column.kind.name in ("integer", "number")
                    else f"is {column.kind.name}"
                )
                return f"{column.name} {what}"
        return ""

    def _sorted(self, question: Question, path: Path, *, reverse: bool = False) -> Piece:
        if question.total is not None and path == ("", question.total.alias):
            return Piece(path, self._total_form(question) or "")
        form = sort_form(self._column(question, path), self._span(question, path), reverse=reverse)
        if form is None:
            raise NoKey("key", f"{path[1]} cannot be sorted as a text")
        return Piece(path, form)

    def _total_form(self, question: Question) -> str | None:
        total = question.total
        assert total is not None
        column = self.facts.tables[total.table].column(total.column)
        span = self.figures.totals.get((total.table, total.column, tuple(own for own, _ in total.on)))
        return None if column is None else sort_form(column, span)

    # ── columns ──

    def _column(self, question: Question, path: Path) -> Column:
        column = column_at(self.facts, question, path)
        if column is None:
            raise NoKey("aggregate")
        return column

    def _span(self, question: Question, path: Path) -> Span | None:
        tables = {"": question.table} | {joined.alias: joined.table for joined in question.joins}
        return span_of(self.figures, tables[path[0]], path[1])


def _leading(table: TableFacts) -> frozenset[Path]:
    """Columns that keys of several columns begin with, such as the tenant's: they stand first in partitions, too."""
    keys = (row_key(table), *(key.columns for key in table.foreign_keys))
    return frozenset(("", key[0]) for key in keys if len(key) > 1)


def _holds(column: Column, value: object) -> bool:
    """Whether items hold exactly the constant where SQL finds it equal."""
    if column.kind.name == "text":
        return isinstance(value, str) and not column.alike
    if column.kind.name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return column.kind.name == "boolean" and isinstance(value, bool)


def tail_of(table: TableFacts, figures: Figures, but: frozenset[Path]) -> tuple[Piece, ...]:
    """The row's key at the end of a sort key, without columns that stand before it."""
    names = [name for name in row_key(table) if ("", name) not in but]
    columns = [column for name in names if (column := table.column(name)) is not None]
    return tuple(
        Piece(("", column.name), key_form(column, span_of(figures, table.name, column.name)))
        for column in columns
    )
