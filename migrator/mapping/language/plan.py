"""An entity, one for each schema, joined with the source's schema: columns to read, their places in a row tree."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as Dict
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from msgspec import Struct

from migrator.mapping.items.filters import FILTERS, PLAIN
from migrator.mapping.language.document import Document, Path
from migrator.mapping.model.facts import (
    NO_TABLE,
    CollectionPlan,
    Column,
    EntityPlan,
    ForeignKey,
    JoinPlan,
    Kind,
    SchemaFacts,
    Slot,
    TableFacts,
    tables_of,
)
from migrator.mapping.model.mapping import (
    SCHEMA_PATH,
    TRANSFORM,
    Collection,
    Condition,
    Const,
    Entity,
    Expression,
    Filter,
    ItemDesign,
    Join,
    Mapping,
    Ref,
    Template,
    rewritten,
    uses_in,
)
from migrator.mapping.model.table import Value
from migrator.runtime.errors import Fault, did_you_mean
from migrator.runtime.values import replace

# ── Tables, columns, joins and collections of an entity found in the source's schema ──


_TYPE = re.compile(r"(?P<name>\w+)(?P<zone> with zone)?(?:\((?P<scale>\d+)\))?")


@dataclass
class Scope:
    """Aliases of one row (the root's or a child's) with their tables, and the requested columns.

    `transformed`: paths from the entity's transform, if any.
    `faulty`: aliases with a fault.
    """

    tables: dict[str, TableFacts]
    slots: dict[str, Slot] = field(default_factory=dict)
    transformed: dict[str, None] | None = None
    faulty: set[str] = field(default_factory=set)

    def want(self, path: str) -> str:
        if path in self.slots:
            return ""
        alias, name = self._split(path)
        if alias == TRANSFORM and self.transformed is not None:
            self.transformed[path] = None
            return ""
        table = self.tables.get(alias)
        if table is None and alias in self.faulty:
            return ""
        if table is None:
            return f"alias '{alias}' not found{did_you_mean(alias, [a for a in self.tables if a])}"
        column = table.column(name)
        if column is None and table == NO_TABLE:
            return f"a single entity has no column '{name}'; name its lists by each, or what it counts"
        if column is None:
            names = [column.name for column in table.columns]
            return f"table {table.name} has no column '{name}'{did_you_mean(name, names)}"
        self.slots[path] = Slot(path, alias, column)
        return ""

    def _split(self, path: str) -> tuple[str, str]:
        """Return (alias, column). A column may have a dot in its name, an alias never has one."""
        alias, dot, name = path.partition(".")
        return ("", path) if not dot or self.tables[""].column(path) else (alias, name)


class _Planner:
    """Looks up names in the schema; `faults` collects the missing ones."""

    def __init__(
        self, mapping: Mapping, entity: Entity, facts: SchemaFacts, document: Document, at: Path | None
    ) -> None:
        self.mapping = mapping
        self.entity = entity
        self.facts = facts
        self.document = document
        self.at: Path = at or ("entities", entity.written)
        self.faults: list[Fault] = []

    def plan(self) -> EntityPlan | None:
        entity = self.entity
        root = self.table(entity.table, (*self.at, "table")) if entity.table else NO_TABLE
        if root is None:
            return None
        table = self.with_computed(root, "", entity.joins)
        scope = Scope({"": table}, transformed={} if entity.transform else None)
        key = self._key(table, scope)
        joins = self.joins(entity.joins, scope, (*self.at, "join"), with_columns=True)
        children = {collection.alias: Scope({}) for collection in entity.collections if collection.is_list}
        plans = [
            self.collection(collection, table, children.get(collection.alias))
            for collection in entity.collections
        ]
        self._references(scope, children)
        where = self._where(table)
        changes = self._changes(key)
        if self.faults:
            return None
        collections = tuple(_filled(plan, children) for plan in plans if plan is not None)
        transformed = tuple(scope.transformed or ())
        slots = tuple(scope.slots.values())
        loose = self.facts.loosely_typed
        return EntityPlan(entity, table, key, slots, joins, collections, where, transformed, loose, changes)

    def _key(self, table: TableFacts, scope: Scope) -> tuple[Column, ...]:
        names = self.entity.key or table.primary_key
        if not names:
            what = f"{table.name} has no primary key; write the columns that identify a row: key: [id]"
            self.fault((*self.at, "key"), what)
        for name in names:
            self.want(scope, name, (*self.at, "key"))
        return tuple(scope.slots[name].column for name in names if name in scope.slots)

    # ── columns that the items need ──

    def _references(self, scope: Scope, children: dict[str, Scope]) -> None:
        table = scope.tables[""]
        aggregates = {collection.alias for collection in self.entity.collections if not collection.is_list}
        for item in self.entity.items:
            for name in self._kept(item, table):
                self.want(scope, name, (*self.at, "items", item.type, "keep"))
        if self.entity.transform:
            # Its code may read anything in the row tree, so it receives every column.
            for part in (scope, *children.values()):
                self._every_column(part)
        for reference in references_of(self.entity):
            if reference.collection is None:
                if reference.path not in aggregates:
                    self.want(scope, reference.path, reference.at, lists=children)
            elif reference.collection not in children:
                self._unknown_list(reference, children)
            elif "" in children[reference.collection].tables:
                self.want(children[reference.collection], reference.path, reference.at)

    def _every_column(self, scope: Scope) -> None:
        for alias, table in scope.tables.items():
            for column in table.columns:
                if column.kind.name != "unknown":
                    self.want(scope, f"{alias}.{column.name}" if alias else column.name, self.at)

    def _kept(self, item: ItemDesign, table: TableFacts) -> Iterator[str]:
        if isinstance(item.keep, tuple):
            yield from item.keep
        if item.keep == "all":
            columns = (column for column in table.columns if column.sql is None)
            yield from (column.name for column in columns if column.name not in item.keep_except)
        for name in item.keep_except:
            self.column(table, name, (*self.at, "items", item.type, "keep", "except"))

    def _unknown_list(self, reference: Reference, children: dict[str, Scope]) -> None:
        hint = did_you_mean(reference.collection or "", children)
        self.fault(reference.at, f"'{reference.collection}' is not a list of this entity{hint}")

    def _where(self, table: TableFacts) -> tuple[tuple[Column, tuple[Value, ...] | None], ...]:
        conditions = []
        for condition in self.entity.where:
            column = self.column(table, condition.path, (*self.at, "where", condition.path))
            if column is not None:
                conditions.append((column, condition.allowed))
        return tuple(conditions)

    def _changes(self, key: tuple[Column, ...]) -> tuple[tuple[TableFacts, tuple[str, ...]], ...]:
        change_tables = []
        for name, columns in self.entity.changes:
            at = (*self.at, "changes", name)
            table = self.table(name, at)
            if table is None:
                continue
            for column in columns:
                self.column(table, column, at)
            if len(columns) != len(key):
                names = ", ".join(column.name for column in key)
                self.fault(at, f"name the columns of {name} that hold the key of a row: {names}")
            change_tables.append((table, columns))
        return tuple(change_tables)

    # ── tables and columns ──

    def fault(self, at: Path, what: str) -> None:
        self.faults.append(self.document.fault(at, what))

    def table(self, name: str, at: Path, *, shared: bool = False) -> TableFacts | None:
        """A table in the entity's own schema.

        `shared`: a parent may also be in the default schema; rows of a tenant and its children never are.
        """
        own = f"{self.entity.schema}.{name}" if self.entity.schema else name
        elsewhere = self.facts.tables.get(name) if shared or "." in name else None
        table = self.facts.tables.get(own) or elsewhere
        if table is None and (why := self.facts.left_out.get(own)):
            self.fault(at, f"table '{own}' cannot be migrated: it is {why}")
        elif table is None:
            self.fault(at, f"the source has no table '{own}'{did_you_mean(own, self.facts.tables)}")
        return table

    def column(self, table: TableFacts, name: str | None, at: Path) -> Column | None:
        column = table.column(name or "")
        if column is None:
            names = [known_column.name for known_column in table.columns]
            self.fault(at, f"table {table.name} has no column '{name}'{did_you_mean(name or '', names)}")
        return column

    def with_computed(self, table: TableFacts, alias: str, joins: Sequence[Join]) -> TableFacts:
        """The table with the entity's computed columns of `alias` ('': the row's own, without an alias of
        `joins`).
        """
        added = []
        for path, computed in self.entity.computed.items():
            head, _, rest = path.partition(".")
            of, name = (head, rest) if head in {join.alias for join in joins} else ("", path)
            if of != alias:
                continue
            if table.column(name) is not None:
                what = f"table {table.name} has a column '{name}'; choose another name"
                self.fault((*self.at, "columns", path), what)
            kind = _kind_written(computed.type)
            added.append(Column(name, name, kind, declared=computed.type or "", sql=computed.sql))
        return replace(table, columns=(*table.columns, *added))

    def want(self, scope: Scope, path: str, at: Path, lists: dict[str, Scope] | None = None) -> None:
        if lists and path in lists:
            self.fault(at, f"'{path}' is a list; write {{each: {path}, attributes: …}}")
            return
        problem = scope.want(path)
        if problem:
            self.fault(at, problem)

    # ── joins ──

    def joins(
        self, joins: Sequence[Join], scope: Scope, at: Path, *, with_columns: bool = False
    ) -> tuple[JoinPlan, ...]:
        """`with_columns`: with those that the entity makes of its parents; a list's parents have none."""
        makers = joins if with_columns else ()
        plans = [self._join(join, scope, (*at, join.alias), makers) for join in joins]
        return tuple(plan for plan in plans if plan is not None)

    def _join(self, join: Join, scope: Scope, at: Path, makers: Sequence[Join]) -> JoinPlan | None:
        parent = scope.tables.get(join.parent)
        scope.faulty.add(join.alias)
        if parent is None:
            return None
        faults_before = len(self.faults)
        target, pairs = self._on(join, parent, at) if join.table else self._by_foreign_key(join, parent, at)
        if target is None or len(self.faults) > faults_before:
            return None
        if join in makers:
            target = self.with_computed(target, join.alias, makers)
        scope.tables[join.alias] = target
        return JoinPlan(join.alias, join.parent, target, tuple(pairs))

    def _on(
        self, join: Join, parent: TableFacts, at: Path
    ) -> tuple[TableFacts | None, list[tuple[str, str]]]:
        target = self.table(join.table or "", (*at, "table"), shared=True)
        if target is None:
            return None, []
        pairs = []
        for here, there in join.on:
            ours = self.column(parent, here, (*at, "on", here))
            theirs = self.column(target, there, (*at, "on", here))
            if ours and theirs:
                pairs.append((ours.real, theirs.real))
        self._need_unique(target, {there for _, there in join.on}, at, "join its key")
        return target, pairs

    def _by_foreign_key(
        self, join: Join, parent: TableFacts, at: Path
    ) -> tuple[TableFacts | None, list[tuple[str, str]]]:
        columns = [self.column(parent, name, at) for name in join.columns]
        if None in columns:
            return None, []
        key = next((key for key in parent.foreign_keys if set(key.columns) == set(join.columns)), None)
        if key is None or key.table not in self.facts.tables:
            names = ", ".join(join.columns)
            what = f"{parent.name} declares no foreign key on {names}; write {{table: …, on: {{{names}: …}}}}"
            self.fault(at, what)
            return None, []
        target = self.facts.tables[key.table]
        self._need_unique(target, set(key.referred), at, "join its key")
        return target, list(_link(key, parent, target))

    def _need_unique(self, table: TableFacts, names: set[str], at: Path, instead: str) -> None:
        """A fault if two rows may match: a join would then double rows, and a climb would have two lines."""
        if any(set(key) <= names for key in table.proved):
            return
        why = next((f" ({why})" for key, why in table.doubts if set(key) <= names), "")
        self.fault(
            at,
            f"no constraint proves that {table.name} has at most one row for these columns{why}; {instead}",
        )

    # ── collections ──

    def collection(self, design: Collection, root: TableFacts, scope: Scope | None) -> CollectionPlan | None:
        at: Path = (*self.at, "climb" if design.kind == "climb" else "collect", design.alias)
        if root.column(design.alias) is not None:
            self.fault(at, f"{root.name} has a column '{design.alias}'; choose another name")
        if design.kind == "climb":
            return self._climb(design, root, scope, at)
        child = self.table(design.table, (*at, "of"))
        if child is None:
            return None
        link = () if root == NO_TABLE else self._collection_link(design, child, root, (*at, "by"))
        column = self.column(child, design.column, (*at, design.kind)) if design.column else None
        if column and design.kind == "sum" and column.kind.name not in ("integer", "number", "float"):
            self.fault(
                (*at, "sum"), f"{child.name}.{column.name} is {column.declared}, which cannot be summed"
            )
        if scope is None:
            return CollectionPlan(design, child, link, column=column)
        scope.tables[""] = child
        joins = self.joins(design.joins, scope, (*at, "join"))
        order = design.order_by or child.primary_key
        for path in order:
            self.want(scope, path, (*at, "order_by"))
        if not order:
            self.fault(
                at, f"{child.name} has no primary key; write order_by, so that the list has a fixed order"
            )
        return CollectionPlan(design, child, link, joins, order_by=tuple(order))

    def _collection_link(
        self, design: Collection, child: TableFacts, root: TableFacts, at: Path
    ) -> tuple[tuple[str, str], ...]:
        if any(self.column(child, name, at) is None for name in design.by):
            return ()
        for key in child.foreign_keys:
            if set(key.columns) == set(design.by) and key.table == root.name:
                return tuple((ours, theirs) for ours, theirs in _link(key, child, root))
        if len(design.by) == len(self.entity.key or root.primary_key):
            pairs = zip(design.by, self.entity.key or root.primary_key, strict=True)
            return tuple((_real(child, ours), _real(root, theirs)) for ours, theirs in pairs)
        self.fault(at, f"{child.name} declares no foreign key on {', '.join(design.by)} to {root.name}")
        return ()

    def _climb(
        self, design: Collection, root: TableFacts, scope: Scope | None, at: Path
    ) -> CollectionPlan | None:
        columns = [self.column(root, name, at) for name in design.by]
        key = next(
            (key for key in root.foreign_keys if set(key.columns) == set(design.by) and not design.of), None
        )
        if key is not None and key.table == root.name:
            self._need_unique(root, set(key.referred), at, "climb to its key")
            link = tuple(_link(key, root, root))
        else:
            link = self._undeclared_climb(design, root, at)
        if scope is None or None in columns or not link:
            return None
        scope.tables[""] = root
        for name in self.entity.key or root.primary_key:
            self.want(scope, name, at)
        return CollectionPlan(design, root, link)

    def _undeclared_climb(
        self, design: Collection, root: TableFacts, at: Path
    ) -> tuple[tuple[str, str], ...]:
        referred = design.of or self.entity.key or root.primary_key
        if len(referred) != len(design.by):
            self.fault(at, f"the key of {root.name} has {len(referred)} columns; write {{column: column, …}}")
            return ()
        if any(self.column(root, name, at) is None for name in (*referred, *design.by)):
            return ()
        if set(referred) != set(self.entity.key):
            self._need_unique(root, set(referred), at, "climb to its key")
        return tuple(
            (_real(root, ours), _real(root, theirs)) for ours, theirs in zip(design.by, referred, strict=True)
        )


def _kind_written(written: str | None) -> Kind:
    match = _TYPE.fullmatch(written or "plain")
    if match is None:
        return Kind("unknown")
    scale = None if match["scale"] is None else int(match["scale"])
    return Kind(match["name"], scale=scale, zone=bool(match["zone"]))  # type: ignore[arg-type]


def _link(key: ForeignKey, child: TableFacts, parent: TableFacts) -> Iterator[tuple[str, str]]:
    for ours, theirs in zip(key.columns, key.referred, strict=True):
        yield _real(child, ours), _real(parent, theirs)


def _real(table: TableFacts, name: str) -> str:
    column = table.column(name)
    return column.real if column else name


# ── Every column that the items of an entity name, with the place in the mapping file that names it ──


class Reference(Struct, frozen=True):
    """A path as written, without its list.

    `collection`: the list (None: the row itself).
    `ref`: None for a bare path (when, ttl).
    `each`: inside an `each` over that list, it means one row.
    `in_text`: part of a template, or compared as text.
    """

    path: str
    at: Path
    collection: str | None = None
    ref: Ref | None = None
    each: bool = False
    in_text: bool = False


def references_of(entity: Entity) -> Iterator[Reference]:
    at: Path = ("entities", entity.written)
    version = entity.version
    counter = "" if version is None else version.attribute
    plain = {name: value for name, value in entity.attributes.items() if name != counter}
    yield from _of_lists(entity, _values(plain, (*at, "attributes")))
    if version is not None:
        yield Reference(version.column, (*at, "version"), ref=Ref((version.column,)))
    for item in entity.items:
        yield from _of_lists(entity, _item(item, (*at, "items", item.type)))


def _of_lists(entity: Entity, references: Iterator[Reference]) -> Iterator[Reference]:
    """A reference to a whole list (line.slug) gets that list as its collection."""
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
        compared = any(value is not None for value in condition.allowed or ())
        yield Reference(condition.path, (*at, condition.path), in_text=compared)


def _values(values: Dict[str, Expression], at: Path) -> Iterator[Reference]:
    for name, value in values.items():
        yield from _value(value, (*at, name))


def _value(value: Expression, at: Path) -> Iterator[Reference]:
    for use in uses_in(value):
        each = use.collection is not None
        for path in use.ref.paths:
            yield Reference(path, (*at, *use.at), use.collection, use.ref, each=each, in_text=use.in_text)


# ── An entity joined with the source's schema: the columns to read, and their places in a row tree ──


def plan_entity(
    mapping: Mapping, entity: Entity, facts: SchemaFacts, document: Document, at: Path | None = None
) -> tuple[EntityPlan | None, list[Fault]]:
    """The plan or None, and all faults. `at`: its place, if not among the entities."""
    planner = _Planner(mapping, entity, facts, document, at)
    return planner.plan(), planner.faults


def _filled(plan: CollectionPlan, children: dict[str, Scope]) -> CollectionPlan:
    scope = children.get(plan.collection.alias)
    return replace(plan, slots=tuple(scope.slots.values())) if scope else plan


# ── The columns that entities read, and what became of them in the source since they were planned ──

TablePlace: TypeAlias = tuple[str, str]
"""(schema or '', real name)."""


class ColumnChange(Struct, frozen=True):
    """A column that is new, missing or of another kind. `read`: whether the entity reads it."""

    table: str
    column: str
    what: Literal["is new", "is gone", "has another type"]
    read: bool

    def __str__(self) -> str:
        return f"table {self.table}: column '{self.column}' {self.what}"


def columns_digest(revision: str, plans: Sequence[EntityPlan]) -> str:
    """32 hex digits of the mapping's revision and all columns that the plans read, with their kinds."""
    read = sorted(
        (plan.entity.name, place, real, _kind(columns[real]))
        for plan in plans
        for place, table in tables_read(plan).items()
        for columns in [_columns(table)]
        for real in columns_read(plan).get(place, ())
        if real in columns
    )
    return hashlib.blake2b(json.dumps([revision, read]).encode(), digest_size=16).hexdigest()


def changes(plan: EntityPlan, now: SchemaFacts) -> list[ColumnChange]:
    there = {place_of(table): _columns(table) for table in now.tables.values()}
    read = columns_read(plan)
    return [
        change
        for place, table in tables_read(plan).items()
        for change in _between(place, _columns(table), there.get(place, {}), read.get(place, set()))
    ]


def _between(
    place: TablePlace, then: dict[str, Column], now: dict[str, Column], read: set[str]
) -> Iterator[ColumnChange]:
    name = ".".join(part for part in place if part)
    for real, column in then.items():
        if real not in now:
            yield ColumnChange(name, real, "is gone", real in read)
        elif _kind(now[real]) != _kind(column):
            yield ColumnChange(name, real, "has another type", real in read)
    for real in now:
        if real not in then:
            yield ColumnChange(name, real, "is new", False)


def tables_read(plan: EntityPlan) -> dict[TablePlace, TableFacts]:
    return {place_of(table): table for table in plan.tables}


def _columns(table: TableFacts) -> dict[str, Column]:
    return {column.real: column for column in table.columns if column.sql is None}


def columns_read(plan: EntityPlan) -> dict[TablePlace, set[str]]:
    columns: dict[TablePlace, set[str]] = {}
    for table, real in _columns_read(plan):
        columns.setdefault(place_of(table), set()).add(real)
    return columns


def _columns_read(plan: EntityPlan) -> Iterator[tuple[TableFacts, str]]:
    for one in plan.rows:
        tables = tables_of(one)
        for join in one.joins:
            yield from ((tables[join.parent], theirs) for theirs, _ in join.on)
            yield from ((join.table, ours) for _, ours in join.on)
        yield from ((tables[slot.alias], slot.column.real) for slot in one.slots)
    yield from ((plan.table, column.real) for column in (*plan.key, *(column for column, _ in plan.where)))
    for collection in plan.collections:
        for own, roots in collection.link:
            yield from ((collection.table, own), (plan.table, roots))
        if collection.column is not None:
            yield collection.table, collection.column.real


def place_of(table: TableFacts) -> TablePlace:
    return (table.schema or "", table.real)


def _kind(column: Column) -> list[object]:
    """The parts of a column's type that change values; a longer text or a new NULL does not."""
    return [column.kind.name, column.kind.scale, column.kind.zone]


# ── An entity for every schema that the mapping reads: {@schema} is a constant in each ──


def entities_of(mapping: Mapping) -> tuple[Entity, ...]:
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
        items=tuple(
            replace(
                item,
                key=_schema_templates(schema, item.key),
                entries=tuple(
                    replace(entry, values=_schema_templates(schema, entry.values)) for entry in item.entries
                ),
                attributes=_schema_values(schema, item.attributes),
            )
            for item in entity.items
        ),
        attributes=_schema_values(schema, entity.attributes),
    )


def _schema_templates(schema: str, templates: Iterable[Template]) -> tuple[Template, ...]:
    return tuple(_schema_template(schema, template) for template in templates)


def _schema_values(schema: str, values: Dict[str, Expression]) -> dict[str, Expression]:
    return {name: rewritten(value, partial(_schema_value, schema)) for name, value in values.items()}


def _schema_value(schema: str, value: Ref | Template) -> Expression:
    if isinstance(value, Template):
        return _schema_template(schema, value)
    return Const(_schema_text(schema, value.filters)) if value.paths == (SCHEMA_PATH,) else value


def _schema_template(schema: str, template: Template) -> Template:
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
        schema = FILTERS[used.name].make(used.args, PLAIN)(schema)
    return schema
