"""What the references of an entity are about: columns of the row itself, of its parents; and which of them may be NULL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from migrator.mapping.inverse.filters import may_be_missing
from migrator.mapping.items.filters import FilterContext, specs_of, takes_null
from migrator.mapping.model.facts import (
    CollectionPlan,
    Column,
    EntityPlan,
    ForeignKey,
    JoinPlan,
    TableFacts,
    column_of,
)
from migrator.mapping.model.mapping import Condition, ItemDesign, Ref
from migrator.runtime.values import replace


class Scope(Struct, frozen=True, dict=True):
    """The rows that expressions are about: those of the entity's table or, with a `collection`, of this list's.

    `filled`: paths that have a value in every row of which there is an item.
    """

    plan: EntityPlan
    around: FilterContext
    collection: CollectionPlan | None = None
    filled: frozenset[str] = frozenset()

    @property
    def table(self) -> TableFacts:
        return self.plan.table if self.collection is None else self.collection.table

    @property
    def _joins(self) -> tuple[JoinPlan, ...]:
        return self.plan.joins if self.collection is None else self.collection.joins

    def whole(self, ref: Ref) -> Ref:
        """The reference with the list's name before its paths, as the whole row tree has them."""
        if self.collection is None:
            return ref
        return replace(ref, paths=tuple(f"{self.collection.collection.alias}.{path}" for path in ref.paths))

    def column(self, ref: Ref) -> Column | None:
        return column_of(self.whole(ref).paths[0], self.plan)

    def own(self, ref: Ref) -> str | None:
        """The column of the row itself that the reference is made of; None where it is of another row."""
        if len(ref.paths) != 1:
            return None
        path = ref.paths[0]
        if (climbed := self._climbed(path)) is not None:
            return climbed if any(spec.holds_list for spec in specs_of(ref)) else None
        if (column := self.table.column(path)) is not None:
            return None if column.sql else path
        return self._referring.get(path)

    def _climbed(self, path: str) -> str | None:
        """The column of a climb's rows, the last of which is the row itself."""
        alias, _, name = path.partition(".")
        collected = self.plan.collected(alias) if self.collection is None else None
        return name if collected is not None and collected.collection.kind == "climb" else None

    @cached_property
    def _referring(self) -> dict[str, str]:
        """By the path of a parent's column that a foreign key refers to, the row's own column, which is equal to it."""
        paths: dict[str, str] = {}
        for join in self._joins:
            key = None if join.parent else _declared(self.table, join.table, join.on)
            if key is None or (len(key.columns) > 1 and self._may_be_null(key)):
                continue
            for ours, theirs in zip(key.columns, key.referred, strict=True):
                pair = self.table.column(ours), join.table.column(theirs)
                if (
                    all(one is not None and not one.alike for one in pair)
                    and len({one.kind for one in pair if one}) == 1
                ):
                    paths[f"{join.alias}.{theirs}"] = ours
        return paths

    def _may_be_null(self, key: ForeignKey) -> bool:
        return any(column.nullable for column in self.table.columns if column.name in key.columns)

    def may_be_null(self, ref: Ref) -> bool:
        """Whether the reference's value can be a NULL."""
        if takes_null(ref):
            return False
        return any(self._path_may_be_null(path, ref) for path in ref.paths)

    def _path_may_be_null(self, path: str, ref: Ref) -> bool:
        alias = path.partition(".")[0]
        if path in self.filled:
            return False
        if self._climbed(path) is not None:
            column = column_of(path, self.plan)
            return may_be_missing(ref) or column is None or column.nullable
        if (own := self.table.column(path)) is not None:
            return own.nullable
        if self.collection is None and (collected := self.plan.collected(alias)) is not None:
            return collected.collection.kind != "count"
        join = next((join for join in self._joins if join.alias == alias), None)
        joined = join.table.column(path.partition(".")[2]) if join else None
        key = None if join is None or join.parent else _declared(self.table, join.table, join.on)
        return joined is None or joined.nullable or key is None or self._may_be_null(key)


def filled_by(plan: EntityPlan, design: ItemDesign) -> frozenset[str]:
    """Paths that are no NULL where there is an item: a NULL in a base key refuses the row, and conditions leave it out."""
    slots = {slot.path for slot in plan.slots}
    refs = [ref for template in design.key for ref in template.refs if not takes_null(ref)]
    named = {path for ref in refs for path in ref.paths}
    named |= {one.path for one in design.when if one.allowed is None or None not in one.allowed}
    named |= {column.name for column, allowed in plan.where if allowed is None or None not in allowed}
    return frozenset(named & slots)


def _declared(table: TableFacts, parent: TableFacts, on: Sequence[tuple[str, str]]) -> ForeignKey | None:
    """The foreign key of the table that pairs these real columns: the source sees to it that there is such a parent."""
    for key in (one for one in table.foreign_keys if one.proved):
        ours = [column.real for name in key.columns if (column := table.column(name))]
        theirs = [column.real for name in key.referred if (column := parent.column(name))]
        if key.table == parent.name and set(zip(ours, theirs, strict=False)) == set(on):
            return key
    return None


def linked(table: TableFacts, list_plan: CollectionPlan) -> dict[str, str] | None:
    """By the child's written column the root's that it equals; None where a child may be without such a root."""
    key = _declared(list_plan.table, table, list_plan.link)
    columns = [] if key is None else [list_plan.table.column(name) for name in key.columns]
    if key is None or any(column is None or column.nullable or column.alike for column in columns):
        return None
    return dict(zip(key.columns, key.referred, strict=True))


def always(conditions: Sequence[Condition], plan: EntityPlan, but: str = "") -> bool:
    """Whether the conditions hold for every row of the entity; of rows in which the column `but` has a value."""
    return all(_implied(condition, plan, but) for condition in conditions)


def _implied(condition: Condition, plan: EntityPlan, but: str) -> bool:
    column = plan.table.column(condition.path)
    if column is None:
        return False
    if condition.allowed is None:
        return not column.nullable or condition.path == but
    wheres = [allowed for one, allowed in plan.where if one.name == condition.path]
    return any(allowed is not None and set(allowed) <= set(condition.allowed) for allowed in wheres)


def decided_by(conditions: Sequence[Condition], scope: Scope) -> tuple[str, bool | None] | None:
    """The one column that decides whether the conditions hold, and its value then; None: any value, NULL otherwise."""
    if len(conditions) != 1:
        return None
    column, allowed = scope.table.column(conditions[0].path), conditions[0].allowed
    if column is None or column.sql:
        return None
    if allowed is None:
        return column.name, None
    is_either = column.kind.name == "boolean" and not column.nullable
    value = allowed[0] if len(allowed) == 1 else None
    return (column.name, value) if is_either and isinstance(value, bool) else None
