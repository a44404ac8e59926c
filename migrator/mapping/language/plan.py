"""An entity, one for each schema that is read, joined with the schema: columns to read, their places in a row tree."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as Dict
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

from migrator.mapping.items.filters import FILTERS, FilterContext
from migrator.mapping.language.document import Document, Path
from migrator.mapping.language.links import Links, Scope
from migrator.mapping.model.facts import (
    CollectionPlan,
    Column,
    EntityPlan,
    JoinPlan,
    SchemaFacts,
    Slot,
    TableFacts,
)
from migrator.mapping.model.mapping import (
    SCHEMA_PATH,
    Condition,
    Const,
    Entity,
    Expression,
    Filter,
    IndexEntry,
    ItemDesign,
    Mapping,
    Ref,
    Template,
    rewritten,
    uses_in,
)
from migrator.mapping.model.table import TableDesign, Value
from migrator.runtime.errors import Fault, did_you_mean

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


def _of_lists(entity: Entity, references: Iterator[Reference]) -> Iterator[Reference]:
    """The references; one to a whole list (line.slug) gets that list as its collection."""
    for reference in references:
        alias, _, name = reference.path.partition(".")
        whole = reference.collection is None and name and alias in entity.lists
        yield replace(reference, path=name, collection=alias) if whole else reference


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


def _values(values: Dict[str, Expression], at: Path) -> Iterator[Reference]:
    for name, value in values.items():
        yield from _value(value, (*at, name))


def _value(value: Expression, at: Path) -> Iterator[Reference]:
    for use in uses_in(value):
        each = use.collection is not None
        for path in use.ref.paths:
            yield Reference(path, (*at, *use.at), use.collection, use.ref, each=each, in_text=use.in_text)


# ── An entity joined with the source's schema: which columns to read and where each stands in a row tree ──


def plan_entity(
    mapping: Mapping, entity: Entity, facts: SchemaFacts, document: Document, at: Path | None = None
) -> tuple[EntityPlan | None, list[Fault]]:
    """The plan of an entity, or None, and every fault that was found on the way. `at`: where it stands, if not among the
    entities."""
    planner = _Planner(mapping, entity, Links(entity, facts, document, at))
    return planner.plan(), planner.links.faults


class _Planner:
    def __init__(self, mapping: Mapping, entity: Entity, links: Links) -> None:
        self.mapping = mapping
        self.entity = entity
        self.links = links
        self.at = self.links.at

    def plan(self) -> EntityPlan | None:
        links, entity = self.links, self.entity
        root = links.table(entity.table, (*self.at, "table"))
        if root is None:
            return None
        table = links.with_computed(root, "", entity.joins)
        scope = Scope({"": table}, transformed={} if entity.transform else None)
        key = self._key(table, scope)
        joins = links.joins(entity.joins, scope, (*self.at, "join"), with_columns=True)
        children = {collection.alias: Scope({}) for collection in entity.collections if collection.is_list}
        plans = [
            links.collection(collection, table, children.get(collection.alias))
            for collection in entity.collections
        ]
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

    # ── columns that the items need ──

    def _references(self, scope: Scope, children: dict[str, Scope]) -> None:
        table = scope.tables[""]
        aggregates = {collection.alias for collection in self.entity.collections if not collection.is_list}
        for item in self.entity.items:
            for name in self._kept(item, table):
                self.links.want(scope, name, (*self.at, "items", item.type, "keep"))
        if self.entity.transform:
            # Its code may read anything in the row tree, so it is given every column.
            for part in (scope, *children.values()):
                self._every_column(part)
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
        hint = did_you_mean(reference.collection or "", children)
        self.links.fault(reference.at, f"'{reference.collection}' is no list of this entity{hint}")

    def _where(self, table: TableFacts) -> tuple[tuple[Column, tuple[Value, ...] | None], ...]:
        conditions = []
        for condition in self.entity.where:
            column = self.links.column(table, condition.path, (*self.at, "where", condition.path))
            if column is not None:
                conditions.append((column, condition.allowed))
        return tuple(conditions)

    def _changes(self, key: tuple[Column, ...]) -> tuple[tuple[TableFacts, tuple[str, ...]], ...]:
        change_tables = []
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
            change_tables.append((table, columns))
        return tuple(change_tables)


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
    """Columns of the plan's tables that differ from the plan."""
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
    joins = [*plan.joins, *(join for collection in plan.collections for join in collection.joins)]
    tables = [
        plan.table,
        *(collection.table for collection in plan.collections),
        *(join.table for join in joins),
    ]
    return {_place(table): _columns(table) for table in tables}


def _columns(table: TableFacts) -> dict[str, Column]:
    return {column.real: column for column in table.columns if column.sql is None}


def _read(plan: EntityPlan) -> dict[TablePlace, set[str]]:
    """By table, the real names of the columns that the plan's SELECTs name."""
    columns: dict[TablePlace, set[str]] = {}

    def add(table: TableFacts, reals: Iterable[str]) -> None:
        columns.setdefault(_place(table), set()).update(reals)

    def add_joined(root: TableFacts, joins: Sequence[JoinPlan], slots: Sequence[Slot]) -> None:
        tables = {"": root, **{join.alias: join.table for join in joins}}
        for join in joins:
            add(tables[join.parent], (theirs for theirs, _ in join.on))
            add(join.table, (ours for _, ours in join.on))
        for slot in slots:
            add(tables[slot.alias], [slot.column.real])

    add_joined(plan.table, plan.joins, plan.slots)
    add(plan.table, (column.real for column in (*plan.key, *(column for column, _ in plan.where))))
    for collection in plan.collections:
        add_joined(collection.table, collection.joins, collection.slots)
        add(collection.table, (own for own, _ in collection.link))
        add(plan.table, (roots for _, roots in collection.link))
        add(collection.table, [collection.column.real] if collection.column else [])
    return columns


def _place(table: TableFacts) -> TablePlace:
    return (table.schema or "", table.real)


def _kind(column: Column) -> list[object]:
    """The parts of a column's type that change its values; a longer text or a column that may now be NULL does not."""
    return [column.kind.name, column.kind.scale, column.kind.zone]


# ── An entity for every schema that the mapping reads: {@schema} is a constant in each ──


def entities_of(mapping: Mapping) -> tuple[Entity, ...]:
    """The mapping's entities; one for every schema, called name@schema, where it reads several."""
    if not mapping.schemas:
        return tuple(mapping.entities.values())
    return tuple(
        _with_schema(schema, entity) for schema in mapping.schemas for entity in mapping.entities.values()
    )


def _with_schema(schema: str, entity: Entity) -> Entity:
    return replace(
        entity,
        name=f"{entity.name}@{schema}",
        schema=schema,
        items=tuple(_schema_item(schema, item) for item in entity.items),
        attributes=_schema_values(schema, entity.attributes),
    )


def _schema_item(schema: str, item: ItemDesign) -> ItemDesign:
    return replace(
        item,
        key=tuple(_schema_template(schema, template) for template in item.key),
        entries=tuple(_schema_entry(schema, entry) for entry in item.entries),
        attributes=_schema_values(schema, item.attributes),
    )


def _schema_entry(schema: str, entry: IndexEntry) -> IndexEntry:
    return replace(entry, values=tuple(_schema_template(schema, template) for template in entry.values))


def _schema_values(schema: str, values: Dict[str, Expression]) -> dict[str, Expression]:
    return {name: rewritten(value, partial(_schema_value, schema)) for name, value in values.items()}


def _schema_value(schema: str, value: Ref | Template) -> Expression:
    if isinstance(value, Template):
        return _schema_template(schema, value)
    return Const(_schema_text(schema, value.filters)) if value.paths == (SCHEMA_PATH,) else value


def _schema_template(schema: str, template: Template) -> Template:
    """The template with the schema's name in it; literals that meet become one."""
    parts: list[str | Ref] = []
    for part in template.parts:
        made = (
            _schema_text(schema, part.filters)
            if isinstance(part, Ref) and part.paths == (SCHEMA_PATH,)
            else part
        )
        if isinstance(made, str) and parts and isinstance(parts[-1], str):
            made = f"{parts.pop()}{made}"
        parts.append(made)
    return replace(template, parts=tuple(parts))


def _schema_text(schema: str, filters: tuple[Filter, ...]) -> str:
    for used in (used for used in filters if FILTERS[used.name].of_schema):
        schema = FILTERS[used.name].make(used.args, FilterContext())(schema)
    return schema
