"""Row trees of documents: joins, collections and ancestors from other tables; and the roots that a document concerns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Context, Decimal
from functools import reduce
from threading import Lock
from typing import Any

from msgspec import Struct

from migrator.mapping.items.changes import needed_columns
from migrator.mapping.items.values import Undecodable
from migrator.mapping.model.edges import WiredItem
from migrator.mapping.model.facts import (
    CollectionPlan,
    EntityPlan,
    JoinPlan,
    Lookup,
    Slot,
    TableFacts,
    tables_of,
)
from migrator.mapping.model.table import CLIMB_LEVELS, RowTree
from migrator.source.dynamodb.finding import Finder, Values, reader_of, value_of

Found = Mapping[str, "WiredItem | Undecodable | None"]
"""The documents of one row by alias, '' its own; None for a missing parent."""
_EXACT = Context(prec=400)


class SharedScans:
    """Whole child tables, read once for all pages of a run."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._lock = Lock()
        self._read: dict[tuple[str, tuple[str, ...]], dict[Values, list[WiredItem]]] = {}

    def children(self, table: TableFacts, columns: tuple[str, ...]) -> Mapping[Values, list[WiredItem]]:
        with self._lock:
            if (table.name, columns) not in self._read:
                self._read[table.name, columns] = self._finder.grouped(table, columns)
            return self._read[table.name, columns]


class Trees(Struct, frozen=True):
    """Row trees of one entity. `shared` None: each call does its own scan, which sees all earlier commits."""

    plan: EntityPlan
    finder: Finder
    shared: SharedScans | None = None

    def of(self, roots: Sequence[WiredItem]) -> list[RowTree]:
        plan = self.plan
        rows = self._joined(plan, roots)
        parts = [self._collected(collection, roots) for collection in plan.collections]
        return [
            (*_cells(plan.slots, row), *(part[number] for part in parts)) for number, row in enumerate(rows)
        ]

    # ── parents ──

    def _joined(
        self, plan: EntityPlan | CollectionPlan, items: Sequence[WiredItem]
    ) -> list[dict[str, WiredItem | Undecodable | None]]:
        rows: list[dict[str, WiredItem | Undecodable | None]] = [{"": item} for item in items]
        tables = tables_of(plan)
        for join in plan.joins:
            ours = tuple(parent for parent, _ in join.on)
            theirs = tuple(own for _, own in join.on)
            wanted = [_values(tables[join.parent], ours, row[join.parent]) for row in rows]
            asked = [values for values in wanted if isinstance(values, tuple)]
            found = self.finder.find(join.table, theirs, asked)
            for row, values in zip(rows, wanted, strict=True):
                parents = found.get(values, [None]) if isinstance(values, tuple) else [values]
                row[join.alias] = parents[0]
        return rows

    # ── children ──

    def _collected(self, collection: CollectionPlan, roots: Sequence[WiredItem]) -> list[Any]:
        if collection.collection.kind == "climb":
            return self._climbed(collection, roots)
        theirs = tuple(root for _, root in collection.link)
        wanted = [_values(self.plan.table, theirs, root) for root in roots]
        found = self._children(collection, [values for values in wanted if isinstance(values, tuple)])
        made: dict[Any, Any] = (
            self._lists(collection, found)
            if collection.collection.is_list
            else self._aggregates(collection, found)
        )
        none = {"count": 0}.get(collection.collection.kind, () if collection.collection.is_list else None)
        return [
            _wrong(collection, values) if isinstance(values, Undecodable) else made.get(values, none)
            for values in wanted
        ]

    def _children(
        self, collection: CollectionPlan, asked: Sequence[Values]
    ) -> Mapping[Values, list[WiredItem]]:
        ours = tuple(child for child, _ in collection.link)
        if self.shared is not None and self.finder.way(collection.table, ours).kind == "scan":
            children = self.shared.children(collection.table, ours)
            return {values: children[values] for values in dict.fromkeys(asked) if values in children}
        return self.finder.find(collection.table, ours, asked)

    def _lists(
        self, collection: CollectionPlan, found: Mapping[Values, list[WiredItem]]
    ) -> dict[Values, tuple[RowTree, ...]]:
        items = [item for children in found.values() for item in children]
        rows = iter(self._joined(collection, items))
        order, key = _order_of(collection), _key_order_of(collection.table)
        lists: dict[Values, tuple[RowTree, ...]] = {}
        for values, children in found.items():
            cells = [(_cells(collection.slots, next(rows)), child) for child in children]
            # Equal ones are ordered by key, so that the list has one order.
            cells.sort(key=lambda one: (order(one[0]), key(one[1])))
            lists[values] = tuple(cell for cell, _ in cells)
        return lists

    def _aggregates(
        self, collection: CollectionPlan, found: Mapping[Values, list[WiredItem]]
    ) -> dict[Values, Any]:
        if collection.column is None:
            return {values: len(children) for values, children in found.items()}
        column, make = collection.column, _AGGREGATES[collection.collection.kind]
        return {
            values: _aggregate([value_of(child, column) for child in children], make)
            for values, children in found.items()
        }

    # ── ancestors ──

    def _climbed(self, collection: CollectionPlan, roots: Sequence[WiredItem]) -> list[tuple[RowTree, ...]]:
        table = collection.table
        ours, theirs = zip(*collection.link, strict=True)
        above = reader_of(table, ours)
        lines = [[root] for root in roots]
        seen: dict[Values, WiredItem] = {}
        open_lines = lines
        for _ in range(CLIMB_LEVELS):
            wanted = [(line, above(line[-1])) for line in open_lines]
            missing = {values for _, values in wanted if values is not None and values not in seen}
            found = self.finder.find(table, theirs, sorted(missing, key=repr))
            seen |= {values: items[0] for values, items in found.items()}
            open_lines = [line for line, values in wanted if values in seen]
            for line, values in wanted:
                if values in seen and values is not None:
                    line.append(seen[values])
        return [tuple(_cells(collection.slots, {"": item}) for item in reversed(line)) for line in lines]


def _values(
    table: TableFacts, columns: tuple[str, ...], item: WiredItem | Undecodable | None
) -> Values | Undecodable | None:
    if item is None or isinstance(item, Undecodable):
        return item
    by_real = {column.real: column for column in table.columns}
    values = tuple(value_of(item, by_real[name]) for name in columns)
    wrong = next((value for value in values if isinstance(value, Undecodable)), None)
    return wrong or (None if None in values else values)


def _cells(slots: Sequence[Slot], row: Found) -> RowTree:
    return tuple(_cell(row[slot.alias], slot) for slot in slots)


def _cell(item: WiredItem | Undecodable | None, slot: Slot) -> Any:
    return item if item is None or isinstance(item, Undecodable) else value_of(item, slot.column)


# ── orders and numbers ──


def _order_of(collection: CollectionPlan) -> Callable[[RowTree], tuple[Any, ...]]:
    places = {slot.path: place for place, slot in enumerate(collection.slots)}
    by = [places[path] for path in collection.order_by]
    return lambda child: tuple(_rank(child[place]) for place in by)


def _key_order_of(table: TableFacts) -> Callable[[WiredItem], tuple[Any, ...]]:
    columns = [column for column in table.columns if column.name in table.primary_key]
    return lambda item: tuple(_rank(value_of(item, column)) for column in columns)


def _rank(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, (int, Decimal)):
        return (1, value)
    if isinstance(value, str):
        return (2, value.encode("utf-8", "surrogatepass"))
    return (3, value) if isinstance(value, bytes) else (4, repr(value))


def _aggregate(values: Sequence[Any], make: Callable[[Sequence[Any]], Any]) -> Any:
    wrong = next((value for value in values if isinstance(value, Undecodable)), None)
    there = [value for value in values if value is not None]
    return wrong if wrong is not None else make(there) if there else None


def _sum(values: Sequence[Any]) -> Any:
    total = reduce(_EXACT.add, map(Decimal, values), Decimal(0))
    return int(total) if all(isinstance(value, int) for value in values) else total


_AGGREGATES: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "sum": _sum,
    "min": lambda values: min(values, key=_rank),
    "max": lambda values: max(values, key=_rank),
}


def _wrong(collection: CollectionPlan, why: Undecodable) -> Any:
    return (tuple(why for _ in collection.slots),) if collection.collection.is_list else why


# ── Root documents that a changed document concerns: found the other way along joins, collections and climbs ──


def roots_of(
    finder: Finder, plan: EntityPlan, lookup: Lookup, values: Sequence[Sequence[Any]]
) -> list[WiredItem]:
    wanted = [tuple(row) for row in values if all(value is not None for value in row)]
    filled = () if lookup.climb else needed_columns(plan)
    if lookup.is_root:
        return _items(finder, plan.table, tuple(column.real for column in plan.key), wanted)
    if lookup.collection is not None:
        table, link = lookup.collection.table, lookup.collection.link
        children = _back(finder, table, lookup.collection.joins, lookup.parent, lookup.columns, wanted)
        ours, theirs = zip(*link, strict=True)
        return _items(finder, plan.table, theirs, _held(table, ours, children), filled)
    found = _back(finder, plan.table, plan.joins, lookup.parent, lookup.columns, wanted, filled)
    return found if lookup.climb is None else _below(finder, lookup.climb, found)


def _back(
    finder: Finder,
    table: TableFacts,
    joins: Sequence[JoinPlan],
    alias: str,
    columns: Sequence[str],
    wanted: Iterable[Values],
    filled: Collection[str] = (),
) -> list[WiredItem]:
    by_alias = {join.alias: join for join in joins}
    at = by_alias[alias].table if alias else table
    found = _items(finder, at, columns, wanted, () if alias else filled)
    if not alias:
        return found
    join = by_alias[alias]
    values = _held(at, [own for _, own in join.on], found)
    return _back(finder, table, joins, join.parent, [parent for parent, _ in join.on], values, filled)


def _below(finder: Finder, climb: CollectionPlan, found: Sequence[WiredItem]) -> list[WiredItem]:
    ours, theirs = zip(*climb.link, strict=True)
    every, level = list(found), list(found)
    seen = set(_held(climb.table, theirs, found))
    for _ in range(CLIMB_LEVELS):
        below = _items(finder, climb.table, ours, _held(climb.table, theirs, level))
        read = reader_of(climb.table, theirs)
        level = [item for item in below if (values := read(item)) is not None and values not in seen]
        if not level:
            break
        seen |= set(_held(climb.table, theirs, level))
        every += level
    return every


def _items(
    finder: Finder,
    table: TableFacts,
    columns: Sequence[str],
    wanted: Iterable[Values],
    filled: Collection[str] = (),
) -> list[WiredItem]:
    found = finder.find(table, tuple(columns), wanted, filled)
    return [item for items in found.values() for item in items]


def _held(table: TableFacts, columns: Sequence[str], items: Iterable[WiredItem]) -> list[Values]:
    read = reader_of(table, tuple(columns))
    return list(dict.fromkeys(values for item in items if (values := read(item)) is not None))
