"""rows_for(): the rows that items were made of, by the mapping read backwards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from migrator.mapping.inverse.designs import ChildList, DesignInverse, Row, read_backwards
from migrator.mapping.inverse.given import Contents
from migrator.mapping.inverse.scope import Scope, filled_by
from migrator.mapping.inverse.tables import TableInverse, stored_columns, table_inverse, types_of_two_tables
from migrator.mapping.items.filters import FilterContext
from migrator.mapping.model.facts import EntityPlan, TableFacts
from migrator.mapping.model.mapping import Mapping
from migrator.mapping.model.table import Item, TableDesign
from migrator.runtime.errors import RowError


@dataclass(frozen=True)
class Inverse:
    """A mapping read backwards over its plans. Made once by `compile_inverse`."""

    table: TableDesign
    tables: tuple[TableInverse, ...]
    designs: tuple[DesignInverse, ...] = field(repr=False)

    @cached_property
    def recovered(self) -> dict[str, frozenset[str]]:
        """By table the columns that come back, of tables whose rows items name."""
        facts = {plan.table.name: plan.table for plan in (one.plan for one in self.designs)}
        facts |= {one.table.name: one.table for design in self.designs for one in design.lists}
        lost = {one.table: {column.column for column in one.lost} for one in self.tables}
        return {
            name: frozenset(
                column.name for column in stored_columns(facts[name]) if column.name not in lost[name]
            )
            for name in lost
        }

    @cached_property
    def sparse(self) -> dict[str, Row]:
        """By table, and column that one item alone has, its value in a row without that item."""
        return {
            name: {
                one.of: one.otherwise
                for one in self.designs
                if one.plan.table.name == name and one.of and not one.present
            }
            for name in self.recovered
        }

    @cached_property
    def with_lost_rows(self) -> frozenset[str]:
        return frozenset(one.table for one in self.tables if one.rows_lost)


def compile_inverse(mapping: Mapping, plans: Sequence[EntityPlan], views: Collection[str] = ()) -> Inverse:
    """What items of the mapping say of the source's rows. `views`: real names of what is no table. Pure."""
    around = FilterContext(mapping.table.separator, mapping.maps, mapping.timezone)
    designs = tuple(
        read_backwards(mapping, Scope(plan, around, filled=filled_by(plan, item)), item)
        for plan in plans
        for item in plan.entity.items
    )
    mixed = types_of_two_tables(plans, mapping.table)
    names = dict.fromkeys(
        name for one in designs for name in (one.plan.table.name, *(child.table.name for child in one.lists))
    )
    tables = tuple(table_inverse(name, designs, mixed, views) for name in names)
    return Inverse(mapping.table, tables, designs)


# ── Items → rows ──


def _no_contents(_: str) -> bytes:
    raise KeyError


@dataclass
class Told:
    """What one item says of a row. `types`: of the items that said it; `is_whole`: one of those that every row has."""

    row: Row = field(default_factory=dict)
    types: tuple[str, ...] = ()
    is_whole: bool = False


RowKey = tuple[str, tuple[Any, ...]]
"""A row: its table by written name, and the values of its key."""


def rows_for(
    inverse: Inverse, items: Iterable[Item], contents: Contents = _no_contents
) -> dict[str, list[Row]]:
    """The rows that the items were made of, by table, with the columns that come back (`inverse.recovered`).

    `items`: all items of each row that has one among them, of any number of rows, in any order; `contents`: objects in S3.
    Raises: RowError for an item that no row makes, and where two items say different things of one row.
    """
    told: dict[str, dict[tuple[Any, ...], list[Told]]] = {}
    for item in items:
        for (table, key), one in told_by(inverse, item, contents).items():
            told.setdefault(table, {}).setdefault(key, []).append(one)
    return {table: [row_of(inverse, table, of) for of in rows.values()] for table, rows in told.items()}


def row_of(inverse: Inverse, table: str, told: Iterable[Told]) -> Row:
    """The row of which all its items say this. Raises: RowError where they differ, or one that every row has is missing."""
    row: Row = {}
    types: list[str] = []
    is_whole = table in inverse.with_lost_rows
    for one in told:
        try:
            _merge(row, one.row)
        except ValueError as error:
            raise RowError(f"an item of type {', '.join(one.types)}: {error}") from None
        types += one.types
        is_whole |= one.is_whole
    sparse = inverse.sparse[table]
    if not is_whole or not inverse.recovered[table] <= row.keys() | sparse.keys():
        what = f"a row of {table} has only items of type {', '.join(sorted(set(types)))}"
        raise RowError(f"{what}; an item that every row has is missing")
    return {column: row.get(column, sparse.get(column)) for column in inverse.recovered[table]}


def told_by(inverse: Inverse, item: Item, contents: Contents = _no_contents) -> dict[RowKey, Told]:
    """What the item says of each row of which it says something. Raises: RowError for an item that no row makes."""
    told: dict[RowKey, Told] = {}
    if inverse.table.is_hidden(item):
        return told
    type_ = inverse.table.type_of(item)
    taking = [one for one in inverse.designs if one.takes(item, inverse.table)]
    if not taking:
        raise RowError(f"an item of type {type_} that no entity makes, or with a key of another form")
    for design in taking:
        try:
            row = {one.column: one.read(item, contents) for one in design.given} | design.constants
            if design.is_keyed:
                key = [column.name for column in design.plan.key]
                _tell(inverse, told, design.plan.table, key, row, type_, whole=design.present)
            for child in design.lists:
                for fields in _children(child, item, row, contents):
                    _tell(inverse, told, child.table, child.table.primary_key, fields, type_, whole=True)
        except ValueError as error:
            raise RowError(f"an item of type {type_}: {error}") from None
    return told


def _children(child: ChildList, item: Item, root: Row, contents: Contents) -> Iterator[Row]:
    value: Any = item
    for step in child.where:
        value = value.get(step) if isinstance(value, dict) else None
    if not isinstance(value, list) or not set(child.link.values()) <= root.keys():
        return
    for fields in value:
        row = {one.column: one.read(fields, contents) for one in child.given}
        row |= {ours: root[theirs] for ours, theirs in child.link.items()}
        if child.table.primary_key and set(child.table.primary_key) <= row.keys():
            yield row


def _tell(
    inverse: Inverse,
    told: dict[RowKey, Told],
    table: TableFacts,
    key: Sequence[str],
    row: Row,
    type_: str,
    *,
    whole: bool,
) -> None:
    try:
        one = told.setdefault((table.name, tuple(row[name] for name in key)), Told(types=(type_,)))
    except TypeError:
        raise ValueError("its row's key is not a single value") from None
    recovered = inverse.recovered[table.name]
    _merge(one.row, row, recovered)
    one.is_whole |= whole


def _merge(row: Row, more: Row, recovered: Collection[str] | None = None) -> None:
    for column, value in more.items():
        if column in row and not is_same(row[column], value):
            raise ValueError(f"column {column} has a value that differs from another item of its row")
        if recovered is None or column in recovered:
            row[column] = value


def is_same(one: Any, other: Any) -> bool:
    """Whether two decoded values are one: true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
