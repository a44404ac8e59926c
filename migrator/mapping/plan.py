"""An entity joined with the schema: columns to read, their places in a row tree, and what names them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as Dict
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from migrator.mapping.language.document import Document, Path
from migrator.mapping.links import Links, Scope
from migrator.model.entities import Entity, ItemDesign, Mapping
from migrator.model.errors import Fault, did_you_mean
from migrator.model.expressions import Condition, Const, Each, Expression, MapOf, Ref, Stored, Template
from migrator.model.facts import CollectionPlan, Column, EntityPlan, JoinPlan, SchemaFacts, Slot, TableFacts
from migrator.model.table import TableDesign, Value

# ── Every column that the items of an entity name, with the place in the mapping file that names it ──


@dataclass(frozen=True)
class Reference:
    """`path` as written, without its list; `collection` is the list whose rows it is a column of (None: the row itself).

    `ref` is None where a bare path stands (when, ttl). `each`: it stands inside of an `each` over that list, so it
    means one row of it, not all of them. `in_text`: it is a part of a template.
    """

    path: str
    at: Path
    collection: str | None = None
    ref: Ref | None = None
    each: bool = False
    in_text: bool = False


def references_of(entity: Entity, table: TableDesign) -> Iterator[Reference]:
    """Columns named by keys, indexes, attributes, conditions and expiries (not those that `keep` means)."""
    at: Path = ("entities", entity.written)
    version = entity.version
    plain = {
        name: value
        for name, value in entity.attributes.items()
        if version is None or name != version.attribute
    }
    yield from _of_lists(entity, _values(plain, (*at, "attributes")))
    if version is not None:
        yield Reference(version.column, (*at, "version"), ref=Ref((version.column,)))
    for item in entity.items:
        yield from _of_lists(entity, _item(item, (*at, "items", item.type)))


def _of_lists(entity: Entity, found: Iterator[Reference]) -> Iterator[Reference]:
    """The references, those to a whole list (line.slug) told apart."""
    for one in found:
        alias, _, name = one.path.partition(".")
        whole = one.collection is None and name and alias in entity.lists
        yield replace(one, path=name, collection=alias) if whole else one


def _item(item: ItemDesign, at: Path) -> Iterator[Reference]:
    for number, template in enumerate(item.key):
        yield from _value(template, (*at, "key", number))
    for entry in item.entries:
        for number, template in enumerate(entry.values):
            yield from _value(template, (*at, entry.index, number))
        yield from _conditions(entry.when, (*at, entry.index, "when"))
    yield from _conditions(item.when, (*at, "when"))
    yield from _values(item.attributes, (*at, "attributes"))
    if item.expiry:
        yield Reference(item.expiry.path, (*at, "ttl"))


def _conditions(conditions: tuple[Condition, ...], at: Path) -> Iterator[Reference]:
    for condition in conditions:
        yield Reference(condition.path, (*at, condition.path))


def _values(values: Dict[str, Expression], at: Path, collection: str | None = None) -> Iterator[Reference]:
    for name, value in values.items():
        yield from _value(value, (*at, name), collection)


def _value(value: Expression, at: Path, collection: str | None = None) -> Iterator[Reference]:
    if isinstance(value, Ref):
        for path in value.paths:
            yield Reference(path, at, collection, value, each=collection is not None)
    elif isinstance(value, Template):
        for ref in value.refs:
            yield from (replace(one, in_text=True) for one in _value(ref, at, collection))
    elif isinstance(value, MapOf):
        yield from _values(value.entries, (*at, "map"), collection)
    elif isinstance(value, Each):
        yield from _values(value.attributes, (*at, "attributes"), value.collection)
    elif isinstance(value, Stored):
        yield from _value(value.value, (*at, "from"), collection)
    else:
        assert isinstance(value, Const)


# ── An entity joined with the source's schema: which columns to read and where each stands in a row tree ──


def plan_entity(
    mapping: Mapping, entity: Entity, facts: SchemaFacts, document: Document
) -> tuple[EntityPlan | None, list[Fault]]:
    """The plan of an entity, or None, and every fault that was found on the way."""
    planner = _Planner(mapping, entity, facts, document)
    return planner.plan(), planner.links.faults


class _Planner:
    def __init__(self, mapping: Mapping, entity: Entity, facts: SchemaFacts, document: Document) -> None:
        self.mapping = mapping
        self.entity = entity
        self.links = Links(entity, facts, document)
        self.at = self.links.at

    def plan(self) -> EntityPlan | None:
        links, entity = self.links, self.entity
        found = links.table(entity.table, (*self.at, "table"))
        if found is None:
            return None
        table = links.with_computed(found, "", entity.joins)
        scope = Scope({"": table}, transformed={} if entity.transform else None)
        key = self._key(table, scope)
        joins = links.joins(entity.joins, scope, (*self.at, "join"), with_columns=True)
        children = {one.alias: Scope({}) for one in entity.collections if one.is_list}
        plans = [links.collection(one, table, children.get(one.alias)) for one in entity.collections]
        self._references(scope, children)
        where = self._where(table)
        changes = self._changes(key)
        if links.faults:
            return None
        collections = tuple(_filled(plan, children) for plan in plans if plan is not None)
        transformed = tuple(scope.transformed or ())
        slots = tuple(scope.slots.values())
        loose = links.facts.loosely_typed
        return EntityPlan(entity, table, key, slots, joins, collections, where, transformed, loose, changes)

    def _key(self, table: TableFacts, scope: Scope) -> tuple[Column, ...]:
        names = self.entity.key or table.primary_key
        if not names:
            what = f"{table.name} has no primary key; say which columns name a row: key: [id]"
            self.links.fault((*self.at, "key"), what)
        for name in names:
            self.links.want(scope, name, (*self.at, "key"))
        return tuple(scope.slots[name].column for name in names if name in scope.slots)

    # ── what the items ask for ──

    def _references(self, scope: Scope, children: dict[str, Scope]) -> None:
        table = scope.tables[""]
        aggregates = {one.alias for one in self.entity.collections if not one.is_list}
        for item in self.entity.items:
            for name in self._kept(item, table):
                self.links.want(scope, name, (*self.at, "items", item.type, "keep"))
        if self.entity.transform:
            # What its code reads of the row tree nobody can tell, so it is given all of it.
            for one in (scope, *children.values()):
                self._every_column(one)
        for reference in references_of(self.entity, self.mapping.table):
            if reference.collection is None:
                if reference.path not in aggregates:
                    self.links.want(scope, reference.path, reference.at, lists=children)
            elif reference.collection not in children:
                self._unknown_list(reference, children)
            elif "" in children[reference.collection].tables:
                self.links.want(children[reference.collection], reference.path, reference.at)

    def _every_column(self, scope: Scope) -> None:
        for alias, table in scope.tables.items():
            for column in table.columns:
                if column.kind.name != "unknown":
                    self.links.want(scope, f"{alias}.{column.name}" if alias else column.name, self.at)

    def _kept(self, item: ItemDesign, table: TableFacts) -> Iterator[str]:
        if isinstance(item.keep, tuple):
            yield from item.keep
        if item.keep == "all":
            columns = (column for column in table.columns if column.sql is None)
            yield from (column.name for column in columns if column.name not in item.keep_except)
        for name in item.keep_except:
            self.links.column(table, name, (*self.at, "items", item.type, "keep", "except"))

    def _unknown_list(self, reference: Reference, children: dict[str, Scope]) -> None:
        known = did_you_mean(reference.collection or "", children)
        self.links.fault(reference.at, f"'{reference.collection}' is no list of this entity{known}")

    def _where(self, table: TableFacts) -> tuple[tuple[Column, tuple[Value, ...] | None], ...]:
        found = []
        for condition in self.entity.where:
            column = self.links.column(table, condition.path, (*self.at, "where", condition.path))
            if column is not None:
                found.append((column, condition.allowed))
        return tuple(found)

    def _changes(self, key: tuple[Column, ...]) -> tuple[tuple[TableFacts, tuple[str, ...]], ...]:
        found = []
        for name, columns in self.entity.changes:
            at = (*self.at, "changes", name)
            table = self.links.table(name, at)
            if table is None:
                continue
            for column in columns:
                self.links.column(table, column, at)
            if len(columns) != len(key):
                names = ", ".join(column.name for column in key)
                self.links.fault(at, f"name the columns of {name} that hold the key of a row: {names}")
            found.append((table, columns))
        return tuple(found)


def _filled(plan: CollectionPlan, children: dict[str, Scope]) -> CollectionPlan:
    scope = children.get(plan.collection.alias)
    return replace(plan, slots=tuple(scope.slots.values())) if scope else plan


# ── The columns that entities read, and what became of them in the source since they were planned ──

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
