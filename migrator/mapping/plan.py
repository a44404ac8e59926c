"""An entity joined with the source's schema: which columns to read and where each stands in a row tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from migrator.errors import Fault
from migrator.facts import (
    CollectionPlan,
    Column,
    EntityPlan,
    ForeignKey,
    JoinPlan,
    SchemaFacts,
    Slot,
    TableFacts,
)
from migrator.mapping.document import Document, Path, did_you_mean
from migrator.mapping.references import Reference, references_of
from migrator.model import Collection, Entity, Join, Mapping, Value


def plan_entity(
    mapping: Mapping, entity: Entity, facts: SchemaFacts, document: Document
) -> tuple[EntityPlan | None, list[Fault]]:
    """The plan of an entity, or None, and every fault that was found on the way."""
    planner = _Planner(mapping, entity, facts, document)
    return planner.plan(), planner.faults


@dataclass
class _Scope:
    """Aliases of one row (the root's or a child's) with the tables behind them, and the columns asked for so far."""

    tables: dict[str, TableFacts]
    at: Path
    slots: dict[str, Slot] = field(default_factory=dict)

    def want(self, path: str) -> str:
        """Takes the column at `path` into the slots; '' or what is wrong with the path."""
        if path in self.slots:
            return ""
        alias, _, name = path.rpartition(".")
        table = self.tables.get(alias)
        if table is None:
            return f"there is no alias '{alias}'{did_you_mean(alias, [a for a in self.tables if a])}"
        column = table.column(name)
        if column is None:
            names = [one.name for one in table.columns]
            return f"table {table.name} has no column '{name}'{did_you_mean(name, names)}"
        self.slots[path] = Slot(path, alias, column)
        return ""


class _Planner:
    def __init__(self, mapping: Mapping, entity: Entity, facts: SchemaFacts, document: Document) -> None:
        self.mapping = mapping
        self.entity = entity
        self.facts = facts
        self.document = document
        self.at: Path = ("entities", entity.name)
        self.faults: list[Fault] = []

    def plan(self) -> EntityPlan | None:
        table = self._table(self.entity.table, (*self.at, "table"))
        if table is None:
            return None
        scope = _Scope({"": table}, self.at)
        key = self._key(table, scope)
        joins = self._joins(self.entity.joins, scope, (*self.at, "join"))
        children = {one.alias: _Scope({}, self.at) for one in self.entity.collections if one.kind == "list"}
        plans = [self._collection(one, table, children.get(one.alias)) for one in self.entity.collections]
        self._references(scope, children)
        where = self._where(table)
        if self.faults:
            return None
        collections = tuple(self._filled(plan, children) for plan in plans if plan is not None)
        return EntityPlan(self.entity, table, key, tuple(scope.slots.values()), joins, collections, where)

    def _fault(self, at: Path, what: str) -> None:
        self.faults.append(self.document.fault(at, what))

    def _table(self, name: str, at: Path) -> TableFacts | None:
        table = self.facts.tables.get(name)
        if table is None:
            self._fault(at, f"the source has no table '{name}'{did_you_mean(name, self.facts.tables)}")
        return table

    # ── keys, joins, collections ──

    def _key(self, table: TableFacts, scope: _Scope) -> tuple[Column, ...]:
        names = self.entity.key or table.primary_key
        if not names:
            self._fault(
                (*self.at, "key"), f"{table.name} has no primary key; say which columns name a row: key: [id]"
            )
        for name in names:
            self._want(scope, name, (*self.at, "key"))
        return tuple(scope.slots[name].column for name in names if name in scope.slots)

    def _joins(self, joins: Sequence[Join], scope: _Scope, at: Path) -> tuple[JoinPlan, ...]:
        plans = [self._join(join, scope, (*at, join.alias)) for join in joins]
        return tuple(plan for plan in plans if plan is not None)

    def _join(self, join: Join, scope: _Scope, at: Path) -> JoinPlan | None:
        parent = scope.tables.get(join.parent)
        if parent is None:
            return None
        known = len(self.faults)
        target, pairs = self._on(join, parent, at) if join.table else self._by_foreign_key(join, parent, at)
        if target is None or len(self.faults) > known:
            return None
        scope.tables[join.alias] = target
        return JoinPlan(join.alias, join.parent, target, tuple(pairs))

    def _on(
        self, join: Join, parent: TableFacts, at: Path
    ) -> tuple[TableFacts | None, list[tuple[str, str]]]:
        target = self._table(join.table or "", (*at, "table"))
        if target is None:
            return None, []
        pairs = []
        for here, there in join.on:
            ours = self._column(parent, here, (*at, "on", here))
            theirs = self._column(target, there, (*at, "on", here))
            if ours and theirs:
                pairs.append((ours.real, theirs.real))
        if not self._unique(target, {there for _, there in join.on}):
            self._fault(
                at, f"nothing says that {target.name} has one row at most for these columns; join its key"
            )
        return target, pairs

    def _by_foreign_key(
        self, join: Join, parent: TableFacts, at: Path
    ) -> tuple[TableFacts | None, list[tuple[str, str]]]:
        columns = [self._column(parent, name, at) for name in join.columns]
        if None in columns:
            return None, []
        key = next((key for key in parent.foreign_keys if set(key.columns) == set(join.columns)), None)
        if key is None or key.table not in self.facts.tables:
            names = ", ".join(join.columns)
            what = f"{parent.name} declares no foreign key on {names}; write {{table: …, on: {{{names}: …}}}}"
            self._fault(at, what)
            return None, []
        target = self.facts.tables[key.table]
        return target, list(_link(key, parent, target))

    def _unique(self, table: TableFacts, names: set[str]) -> bool:
        return any(key and set(key) <= names for key in (table.primary_key, *table.unique))

    def _collection(self, one: Collection, root: TableFacts, scope: _Scope | None) -> CollectionPlan | None:
        at = (*self.at, "collect", one.alias)
        if root.column(one.alias) is not None:
            self._fault(at, f"{root.name} has a column '{one.alias}'; choose another name")
        child = self._table(one.table, (*at, "of"))
        if child is None:
            return None
        link = self._collection_link(one, child, root, (*at, "by"))
        column = self._column(child, one.column, (*at, one.kind)) if one.column else None
        if column and one.kind == "sum" and column.kind.name not in ("integer", "number", "float"):
            self._fault(
                (*at, "sum"), f"{child.name}.{column.name} is {column.declared}, which cannot be summed"
            )
        if scope is None:
            return CollectionPlan(one, child, link, column=column)
        scope.tables[""] = child
        joins = self._joins(one.joins, scope, (*at, "join"))
        order = one.order_by or child.primary_key
        for path in order:
            self._want(scope, path, (*at, "order_by"))
        if not order:
            self._fault(at, f"{child.name} has no primary key; say order_by, so that the list has one order")
        return CollectionPlan(one, child, link, joins, order_by=tuple(order))

    def _collection_link(
        self, one: Collection, child: TableFacts, root: TableFacts, at: Path
    ) -> tuple[tuple[str, str], ...]:
        if any(self._column(child, name, at) is None for name in one.by):
            return ()
        for key in child.foreign_keys:
            if set(key.columns) == set(one.by) and key.table == root.name:
                return tuple((ours, theirs) for ours, theirs in _link(key, child, root))
        if len(one.by) == len(self.entity.key or root.primary_key):
            pairs = zip(one.by, self.entity.key or root.primary_key, strict=True)
            return tuple((_real(child, ours), _real(root, theirs)) for ours, theirs in pairs)
        self._fault(at, f"{child.name} declares no foreign key on {', '.join(one.by)} to {root.name}")
        return ()

    def _filled(self, plan: CollectionPlan, children: dict[str, _Scope]) -> CollectionPlan:
        scope = children.get(plan.collection.alias)
        slots = tuple(scope.slots.values()) if scope else ()
        return CollectionPlan(
            plan.collection, plan.table, plan.link, plan.joins, slots, plan.order_by, plan.column
        )

    # ── what the items ask for ──

    def _references(self, scope: _Scope, children: dict[str, _Scope]) -> None:
        aggregates = {one.alias for one in self.entity.collections if one.kind != "list"}
        for item in self.entity.items:
            for name in self._kept(item.keep, item.keep_except, scope.tables[""], item.type):
                self._want(scope, name, (*self.at, "items", item.type, "keep"))
        for reference in references_of(self.entity, self.mapping.table):
            if reference.collection is None:
                if reference.path not in aggregates:
                    self._want(scope, reference.path, reference.at, lists=children)
            elif reference.collection in children:
                self._want(children[reference.collection], reference.path, reference.at)
            else:
                self._unknown_list(reference, children)

    def _kept(
        self, keep: str | tuple[str, ...], but: tuple[str, ...], table: TableFacts, item: str
    ) -> Iterator[str]:
        if isinstance(keep, tuple):
            yield from keep
        if keep == "all":
            yield from (column.name for column in table.columns if column.name not in but)
        for name in but:
            self._column(table, name, (*self.at, "items", item, "keep", "except"))

    def _unknown_list(self, reference: Reference, children: dict[str, _Scope]) -> None:
        what = f"'{reference.collection}' is no list of this entity{did_you_mean(reference.collection or '', children)}"
        self._fault(reference.at, what)

    def _where(self, table: TableFacts) -> tuple[tuple[Column, tuple[Value, ...] | None], ...]:
        found = []
        for condition in self.entity.where:
            column = self._column(table, condition.path, (*self.at, "where", condition.path))
            if column is not None:
                found.append((column, condition.allowed))
        return tuple(found)

    def _want(self, scope: _Scope, path: str, at: Path, lists: dict[str, _Scope] | None = None) -> None:
        if lists and path in lists:
            self._fault(at, f"'{path}' is a list; write {{each: {path}, attributes: …}}")
            return
        problem = scope.want(path)
        if problem:
            self._fault(at, problem)

    def _column(self, table: TableFacts, name: str | None, at: Path) -> Column | None:
        column = table.column(name or "")
        if column is None:
            names = [one.name for one in table.columns]
            self._fault(at, f"table {table.name} has no column '{name}'{did_you_mean(name or '', names)}")
        return column


def _link(key: ForeignKey, child: TableFacts, parent: TableFacts) -> Iterator[tuple[str, str]]:
    for ours, theirs in zip(key.columns, key.referred, strict=True):
        yield _real(child, ours), _real(parent, theirs)


def _real(table: TableFacts, name: str) -> str:
    column = table.column(name)
    return column.real if column else name
