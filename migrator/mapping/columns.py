"""The columns that entities read, and what became of them in the source since they were planned."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from migrator.facts import Column, EntityPlan, JoinPlan, SchemaFacts, Slot, TableFacts

TablePlace: TypeAlias = tuple[str, str]
"""(schema or '', real name)."""


@dataclass(frozen=True, slots=True)
class Change:
    """A column that came, went or has another kind. `read`: whether the entity reads it."""

    table: str
    column: str
    what: Literal["is new", "is gone", "has another type"]
    read: bool

    def __str__(self) -> str:
        return f"table {self.table}: column '{self.column}' {self.what}"


def columns_digest(revision: str, plans: Sequence[EntityPlan]) -> str:
    """32 hex digits that stand for the mapping's revision and for all columns that the plans read, with their kinds."""
    read = sorted(
        (plan.entity.name, place, real, _kind(columns[real]))
        for plan in plans
        for place, columns in _tables(plan).items()
        for real in _read(plan).get(place, ())
        if real in columns
    )
    return hashlib.blake2b(json.dumps([revision, read]).encode(), digest_size=16).hexdigest()


def changes(plan: EntityPlan, now: SchemaFacts) -> list[Change]:
    """What is other than planned in the tables of the plan."""
    there = {_place(table): _columns(table) for table in now.tables.values()}
    read = _read(plan)
    return [
        change
        for place, columns in _tables(plan).items()
        for change in _between(place, columns, there.get(place, {}), read.get(place, set()))
    ]


def _between(
    place: TablePlace, then: dict[str, Column], now: dict[str, Column], read: set[str]
) -> Iterator[Change]:
    name = ".".join(part for part in place if part)
    for real, column in then.items():
        if real not in now:
            yield Change(name, real, "is gone", real in read)
        elif _kind(now[real]) != _kind(column):
            yield Change(name, real, "has another type", real in read)
    for real in now:
        if real not in then:
            yield Change(name, real, "is new", False)


def _tables(plan: EntityPlan) -> dict[TablePlace, dict[str, Column]]:
    """Each table of the plan with its columns by real name."""
    joins = [*plan.joins, *(join for one in plan.collections for join in one.joins)]
    tables = [plan.table, *(one.table for one in plan.collections), *(join.table for join in joins)]
    return {_place(table): _columns(table) for table in tables}


def _columns(table: TableFacts) -> dict[str, Column]:
    return {column.real: column for column in table.columns if column.sql is None}


def _read(plan: EntityPlan) -> dict[TablePlace, set[str]]:
    """By table, the real names of the columns that the plan's SELECTs name."""
    found: dict[TablePlace, set[str]] = {}

    def add(table: TableFacts, reals: Iterable[str]) -> None:
        found.setdefault(_place(table), set()).update(reals)

    def add_joined(root: TableFacts, joins: Sequence[JoinPlan], slots: Sequence[Slot]) -> None:
        tables = {"": root, **{join.alias: join.table for join in joins}}
        for join in joins:
            add(tables[join.parent], (theirs for theirs, _ in join.on))
            add(join.table, (ours for _, ours in join.on))
        for slot in slots:
            add(tables[slot.alias], [slot.column.real])

    add_joined(plan.table, plan.joins, plan.slots)
    add(plan.table, (column.real for column in (*plan.key, *(column for column, _ in plan.where))))
    for one in plan.collections:
        add_joined(one.table, one.joins, one.slots)
        add(one.table, (own for own, _ in one.link))
        add(plan.table, (roots for _, roots in one.link))
        add(one.table, [one.column.real] if one.column else [])
    return found


def _place(table: TableFacts) -> TablePlace:
    return (table.schema or "", table.real)


def _kind(column: Column) -> list[object]:
    """What makes a value another one. A longer text is no other kind, nor is a column that may now be NULL."""
    return [column.kind.name, column.kind.scale, column.kind.zone]
