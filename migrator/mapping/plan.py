"""An entity joined with the source's schema: which columns to read and where each stands in a row tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from migrator.errors import Fault
from migrator.facts import CollectionPlan, Column, EntityPlan, SchemaFacts, TableFacts
from migrator.mapping.document import Document, did_you_mean
from migrator.mapping.links import Links, Scope
from migrator.mapping.references import Reference, references_of
from migrator.model import Entity, ItemDesign, Mapping, Value


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
