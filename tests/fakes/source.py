"""A source of row trees in memory; it passes the same contract tests as the real ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from migrator.mapping.items.values import decoder
from migrator.mapping.model.edges import KeyCounts, QueryCall, RowsSeen, WholeRows
from migrator.mapping.model.facts import (
    CollectionPlan,
    Column,
    EntityPlan,
    JoinPlan,
    Kind,
    Lookup,
    SchemaFacts,
    Slot,
    TableFacts,
)
from migrator.mapping.model.mapping import Statement
from migrator.mapping.model.table import CLIMB_LEVELS, RowTree, SourceKey, Value, decode_key, encode_key

Row = dict[str, Any]
Answer = Callable[[Mapping[str, Any]], list[tuple[Any, ...]]]
Conditions = Sequence[tuple[Column, tuple[Value, ...] | None]]


class MemorySource(WholeRows):
    """`rows`: per real table name, rows by real column name; change it to change the source.

    `answers`: what `query` gives for a statement, as a function of its parameters.
    """

    def __init__(
        self, facts: SchemaFacts, rows: dict[str, list[Row]], answers: Mapping[str, Answer] | None = None
    ) -> None:
        self._facts = facts
        self.rows = rows
        self.answers = dict(answers or {})

    def facts(self) -> SchemaFacts:
        return self._facts

    def count(self, plan: EntityPlan) -> int:
        return self.count_where(plan, ())

    def count_where(self, plan: EntityPlan, conditions: Conditions) -> int:
        return sum(_allowed(row, conditions) for row in self._taking_part(plan))

    def rows_about(self, plan: EntityPlan) -> int:
        return self.count(plan)

    def rows_expected(self, plan: EntityPlan) -> int:
        return self.count(plan)

    def rows_without_key(self, plan: EntityPlan) -> int:
        return sum(None in _key(plan, row) for row in self._taking_part(plan))

    def key_counts(self, plan: EntityPlan) -> KeyCounts:
        keys = [_key(plan, row) for row in self._in_order(plan)]
        texts = {encode_key(key) for key in keys}
        return KeyCounts(len(keys), len({_sort_key(plan, key) for key in keys}), len(texts))

    def rows_seen(self, table: TableFacts) -> RowsSeen:
        return RowsSeen(len(self.rows.get(table.real, [])))

    def twins(self, plan: EntityPlan, at_most: int) -> list[tuple[SourceKey, int]]:
        keys = Counter(encode_key(_key(plan, row)) for row in self._with_key(plan))
        return [(key, count) for key, count in keys.items() if count > 1][:at_most]

    def sums(self, plan: EntityPlan, columns: Sequence[Column]) -> dict[str, Any]:
        rows = self._in_order(plan)
        return {column.name: _reduce("sum", [row.get(column.real) for row in rows]) for column in columns}

    def page_bounds(
        self, plan: EntityPlan, page_rows: int, after: SourceKey | None = None, upto: SourceKey | None = None
    ) -> Iterator[SourceKey]:
        rows = _between(plan, self._in_order(plan), after, upto)
        for last in range(page_rows - 1, len(rows), page_rows):
            yield encode_key(_key(plan, rows[last]))

    def random_keys(self, plan: EntityPlan, number: int, row_count: int, seed: int) -> list[SourceKey]:
        rows_with_key = self._with_key(plan)
        chosen = random.Random(seed).sample(range(len(rows_with_key)), min(number, len(rows_with_key)))
        return [encode_key(_key(plan, rows_with_key[position])) for position in sorted(chosen)]

    def read_page(
        self, plan: EntityPlan, after: SourceKey | None, upto: SourceKey | None, limit: int | None = None
    ) -> list[RowTree]:
        rows = _between(plan, self._in_order(plan), after, upto)
        return [self._tree(plan, row) for row in rows[:limit]]

    def read_rows(self, plan: EntityPlan, keys: Sequence[SourceKey]) -> list[RowTree]:
        wanted = {_sort_key(plan, decode_key(key)) for key in keys}
        return [
            self._tree(plan, row)
            for row in self._in_order(plan)
            if _sort_key(plan, _key(plan, row)) in wanted
        ]

    def find_roots(
        self,
        plan: EntityPlan,
        lookup: Lookup,
        values: Sequence[Sequence[Any]],
        after: SourceKey | None,
        limit: int,
    ) -> list[SourceKey]:
        complete = [key_values for key_values in values if all(value is not None for value in key_values)]
        rows = [
            row
            for row in self._with_key(plan)
            if any(self._is_reached(plan, lookup, key_values, row) for key_values in complete)
        ]
        return [encode_key(_key(plan, row)) for row in _between(plan, rows, after, None)[:limit]]

    def _is_reached(self, plan: EntityPlan, lookup: Lookup, values: Sequence[Any], root: Row) -> bool:
        held = list(zip(lookup.columns or [column.real for column in plan.key], values, strict=True))
        if lookup.climb is not None:
            reached = self._line(lookup.climb, root)
        elif lookup.collection is None:
            reached = [self._with_parents(root, plan.joins)[lookup.parent]]
        else:
            children = self._children(lookup.collection, root)
            joins = lookup.collection.joins
            reached = [self._with_parents(child, joins)[lookup.parent] for child in children]
        return any(all(row.get(real) == value for real, value in held) for row in reached)

    def query(
        self,
        statement: Statement,
        params: Mapping[str, Any],
        schema: str | None = None,
        *,
        at_most: int | None = None,
        what: str = "a query of the mapping",
    ) -> list[tuple[Any, ...]]:
        assert isinstance(statement, str)
        rows = self.answers[statement](params)
        return rows if at_most is None else rows[: at_most + 1]

    def query_faults(self, calls: Sequence[QueryCall]) -> list[str]:
        return ["" if call.statement in self.answers else "no such statement" for call in calls]

    def first_row_of_each(self, selects: Sequence[str], what: str) -> list[tuple[Any, ...]]:
        return [next(iter(self.answers[select]({})), ()) for select in selects]

    def close(self) -> None:
        """Nothing is open."""

    def _taking_part(self, plan: EntityPlan) -> list[Row]:
        return [row for row in self.rows.get(plan.table.real, []) if _allowed(row, plan.where)]

    def _in_order(self, plan: EntityPlan) -> list[Row]:
        return [row for row in self._with_key(plan) if _allowed(row, plan.where)]

    def _with_key(self, plan: EntityPlan) -> list[Row]:
        rows = [row for row in self.rows.get(plan.table.real, []) if None not in _key(plan, row)]
        return sorted(rows, key=lambda row: _sort_key(plan, _key(plan, row)))

    # ── row trees ──

    def _tree(self, plan: EntityPlan, row: Row) -> RowTree:
        values = _slots(plan.slots, self._with_parents(row, plan.joins))
        return (*values, *(self._collected(collection, row) for collection in plan.collections))

    def _with_parents(self, row: Row, joins: Sequence[JoinPlan]) -> dict[str, Row]:
        by_alias = {"": row}
        for join in joins:
            pairs = [(by_alias[join.parent].get(theirs), ours) for theirs, ours in join.on]
            by_alias[join.alias] = next(iter(self._matching(join.table, pairs)), {})
        return by_alias

    def _matching(self, table: TableFacts, pairs: Sequence[tuple[Any, str]]) -> list[Row]:
        """Rows of `table` whose columns hold the values; NULL equals nothing."""
        if any(value is None for value, _ in pairs):
            return []
        rows = list(self.rows.get(table.real, []))
        for value, real in pairs:
            rows = [row for row in rows if row.get(real) == value]
        return rows

    def _collected(self, collection: CollectionPlan, root: Row) -> Any:
        if collection.collection.kind == "climb":
            line = reversed(self._line(collection, root))
            return tuple(_slots(collection.slots, {"": row}) for row in line)
        children = self._children(collection, root)
        if collection.collection.kind == "list":
            trees = [self._with_parents(child, collection.joins) for child in children]
            return tuple(
                _slots(collection.slots, tree) for tree in sorted(trees, key=_child_sort_key(collection))
            )
        if collection.column is None:
            return len(children)
        return _reduce(collection.collection.kind, [child.get(collection.column.real) for child in children])

    def _children(self, collection: CollectionPlan, root: Row) -> list[Row]:
        return self._matching(
            collection.table, [(root.get(theirs), ours) for ours, theirs in collection.link]
        )

    def _line(self, climb: CollectionPlan, row: Row) -> list[Row]:
        """The row and its ancestors, one more than a row may have."""
        line = [row]
        while len(line) <= CLIMB_LEVELS:
            above = self._matching(climb.table, [(line[-1].get(ours), theirs) for ours, theirs in climb.link])
            if not above:
                break
            line.append(above[0])
        return line


def _child_sort_key(collection: CollectionPlan) -> Callable[[dict[str, Row]], tuple[Any, ...]]:
    slots = {slot.path: slot for slot in collection.slots}
    columns = {column.name: Slot(column.name, "", column) for column in collection.table.columns}
    order = [
        slots.get(path) or columns[path] for path in (*collection.order_by, *collection.table.primary_key)
    ]
    return lambda tree: _slots(order, tree)


def _slots(slots: Sequence[Slot], tree: Mapping[str, Row]) -> tuple[Any, ...]:
    return tuple(tree[slot.alias].get(slot.column.real) for slot in slots)


def _key(plan: EntityPlan, row: Row) -> tuple[Any, ...]:
    return tuple(row.get(column.real) for column in plan.key)


def _sort_key(plan: EntityPlan, key: Sequence[Any]) -> tuple[Any, ...]:
    """The key by which rows are ordered and compared with bounds: values in one form per kind."""
    return tuple(_comparable(column.kind, value) for column, value in zip(plan.key, key, strict=True))


def _between(plan: EntityPlan, rows: list[Row], after: SourceKey | None, upto: SourceKey | None) -> list[Row]:
    """Of the rows, those with after < key <= upto; None is open."""
    if after is not None:
        rows = [row for row in rows if _sort_key(plan, _key(plan, row)) > _sort_key(plan, decode_key(after))]
    if upto is not None:
        rows = [row for row in rows if _sort_key(plan, _key(plan, row)) <= _sort_key(plan, decode_key(upto))]
    return rows


def _comparable(kind: Kind, value: Any) -> Any:
    return Decimal(value) if kind.name in ("number", "float") else decoder(kind)(value)


def _allowed(row: Row, conditions: Conditions) -> bool:
    values = ((row.get(column.real), allowed) for column, allowed in conditions)
    return all(value is not None if allowed is None else value in allowed for value, allowed in values)


def _reduce(kind: str, values: Sequence[Any]) -> Any:
    """What SQL's aggregate gives: NULLs are left out; of nothing a count is 0, all else NULL."""
    present = [value for value in values if value is not None]
    if kind == "count":
        return len(present)
    functions: dict[str, Callable[[list[Any]], Any]] = {"sum": sum, "min": min, "max": max}
    return functions[kind](present) if present else None
