"""The meaning of each part of a mapping in canonical form: the same for the same items, in any order and wording."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec import Struct

from migrator.mapping.check.keys import types_read
from migrator.mapping.items.changes import captured_name
from migrator.mapping.items.filters import FILTERS
from migrator.mapping.items.program import entries_of
from migrator.mapping.language.plan import entities_of, references_of
from migrator.mapping.model.facts import CollectionPlan, EntityPlan, JoinPlan, TableFacts, kept_columns
from migrator.mapping.model.mapping import (
    Collection,
    Condition,
    Const,
    Each,
    Entity,
    Expression,
    Filter,
    ItemDesign,
    Join,
    MapOf,
    Pattern,
    Ref,
    Statement,
    Template,
)
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.runtime.values import replace

ATTRIBUTE, ENTRY, KEPT = "attribute ", "entry of ", "keep"
BASE_KEY, WHEN, TTL = "base key", "when", "ttl"
TABLE, ROW_KEY = "table", "row key"


@dataclass(frozen=True)
class Meant:
    """`form`: equal for equal meanings.
    `shown`: as written.
    """

    form: str
    shown: str = field(compare=False)


Parts = Mapping[str, Meant]


class EntityMeaning(Struct, frozen=True):
    """`rows`: the entity's rows, and their identity.
    `types`: meaning of items by type.
    `reads`: columns of its items.
    """

    name: str
    written: str
    rows: Parts
    types: Mapping[str, Parts]
    reads: frozenset[Meant]


def meanings(mapping: MappingModel, plans: Sequence[EntityPlan]) -> dict[str, EntityMeaning]:
    by_name = {plan.entity.name: plan for plan in plans}
    return {
        entity.name: _Meaning(mapping, entity, by_name.get(entity.name)).entity_meaning()
        for entity in entities_of(mapping)
    }


# ── expressions as text ──

Naming = Callable[[str, str | None], str]
"""(path, list that an `each` goes over) → the column's name."""


class ExpressionWriter(Struct, frozen=True):
    """Writes expressions with canonical names of columns and filters."""

    naming: Naming
    filter_text: Callable[[Filter], str]

    def text(self, value: Expression, collection: str | None = None) -> str:
        if isinstance(value, Ref):
            return self._ref(value, collection)
        if isinstance(value, Template):
            return json.dumps(self.inside(value, collection), ensure_ascii=False)
        if isinstance(value, Const):
            return json.dumps(value.value, ensure_ascii=False, sort_keys=True, default=str)
        if isinstance(value, MapOf):
            return f"map({self._named(value.entries, collection)})"
        if isinstance(value, Each):
            by = f" by {self.text(value.key, value.collection)}" if value.key else ""
            return f"each {self.naming('', value.collection)}{by} ({self._named(value.attributes, value.collection)})"
        return f"in S3 over {value.over} bytes: {self.text(value.value, collection)}"

    def inside(self, template: Template, collection: str | None = None) -> str:
        return "".join(
            part.replace("{", "{{") if isinstance(part, str) else self._ref(part, collection)
            for part in template.parts
        )

    def conditions(self, conditions: Iterable[Condition]) -> str:
        return " and ".join(sorted(map(self._condition, conditions)))

    def _ref(self, ref: Ref, collection: str | None) -> str:
        paths = ",".join(self.naming(path, collection) for path in ref.paths)
        form = "" if ref.format is None else f":{ref.format}"
        filters = "".join(f"|{self.filter_text(used)}" for used in ref.filters)
        return f"{{{'*' if ref.every else ''}{paths}{form}{filters}}}"

    def _named(self, values: Mapping[str, Expression], collection: str | None) -> str:
        return ", ".join(f"{name}: {self.text(value, collection)}" for name, value in sorted(values.items()))

    def _condition(self, condition: Condition) -> str:
        path = self.naming(condition.path, None)
        if condition.allowed is None:
            return f"{path} has a value"
        return (
            f"{path} in ({', '.join(sorted(json.dumps(value, default=str) for value in condition.allowed))})"
        )


def filter_as_written(used: Filter) -> str:
    return ":".join([used.name, ",".join(used.args)]) if used.args else used.name


def filter_form(mapping: MappingModel, used: Filter) -> str:
    spec, text = FILTERS[used.name], filter_as_written(used)
    if spec.of_map:
        text = f"{used.name}:{json.dumps(mapping.maps.get(used.args[0], {}), sort_keys=True)}"
    if spec.by_separator:
        text += f" separator {mapping.table.separator}"
    return f"{text} in {mapping.timezone or 'UTC'}" if spec.by_timezone else text


AS_WRITTEN = ExpressionWriter(
    lambda path, collection: path if collection is None else f"{collection}.{path}".rstrip("."),
    filter_as_written,
)


# ── an entity's columns by their place in the source, independent of the names of its joins and lists ──


class _Meaning:
    def __init__(self, mapping: MappingModel, entity: Entity, plan: EntityPlan | None) -> None:
        self.mapping = mapping
        self.entity = entity
        self.plan = plan
        self.joins = {join.alias: join for join in entity.joins}
        self.lists = {collection.alias: collection for collection in entity.collections}
        self.by_form = ExpressionWriter(self._form_of, partial(filter_form, mapping))

    def entity_meaning(self) -> EntityMeaning:
        entity = self.entity
        references = references_of(entity)
        reads = {
            Meant(
                self._form_of(reference.path, reference.collection),
                ".".join(filter(None, (reference.collection, reference.path))),
            )
            for reference in references
        }
        if self.plan is not None:
            names = {column.name for column in self.plan.key}
            names |= {name for design in entity.items for name in kept_columns(self.plan, design)}
            reads |= {Meant(self._form_of(name, None), name) for name in names}
        types = {design.type: dict(self._type(design)) for design in entity.items}
        return EntityMeaning(entity.name, entity.written, dict(self._rows()), types, frozenset(reads))

    def _rows(self) -> Iterator[tuple[str, Meant]]:
        entity, plan = self.entity, self.plan
        table = entity.table if plan is None else captured_name(plan.table)
        key = entity.key if plan is None else tuple(column.real for column in plan.key)
        yield TABLE, Meant(table, entity.table or "whole tables (single)")
        yield ROW_KEY, Meant(json.dumps(key), ", ".join(key) or "the table's primary key")
        if entity.where:
            yield "where", self._conditions(entity.where)
        if entity.transform:
            yield "transform", Meant(entity.transform, entity.transform)

    def _type(self, design: ItemDesign) -> Iterator[tuple[str, Meant]]:
        base = self._templates(design.key)
        shown = " + ".join(template.source for template in design.key)
        # Of copies the last one is compared, and all are shown.
        yield BASE_KEY, Meant(base.form, shown) if design.copy else base
        if design.when:
            yield WHEN, self._conditions(design.when)
        for entry in entries_of(self.mapping.table, design):
            meant, when = self._templates([key.template for key in entry.keys]), self._conditions(entry.when)
            own = ", ".join(f"{key.name} {key.attribute.type}" for key in entry.keys)
            form, shown = f"{own} = {meant.form}", meant.shown
            if entry.when:
                form, shown = f"{form} when {when.form}", f"{shown} when {when.shown}"
            yield f"{ENTRY}{entry.index}", Meant(form, shown)
        expiry = design.expiry
        if expiry is not None and self.mapping.table.ttl is not None:
            zone = self.mapping.timezone or "UTC"
            form = f"{self._form_of(expiry.path, None)} + {expiry.days} in {zone}"
            form += f" / {expiry.per_s}, 0 {expiry.zero}" if (expiry.per_s, expiry.zero) != (1, "") else ""
            yield TTL, Meant(form, f"{expiry.path} + {expiry.days} days" if expiry.days else expiry.path)
        yield from self._attributes(design)

    def _attributes(self, design: ItemDesign) -> Iterator[tuple[str, Meant]]:
        values: dict[str, Expression] = {}
        if self.plan is not None:
            values = {name: Ref((name,)) for name in kept_columns(self.plan, design)}
        elif isinstance(design.keep, tuple):
            values = {name: Ref((name,)) for name in design.keep}
        elif design.keep == "all":
            shown = f"all but {', '.join(sorted(design.keep_except))}" if design.keep_except else "all"
            yield KEPT, Meant(shown, shown)
        values |= {**self.entity.attributes, **design.attributes}
        for name, value in values.items():
            yield f"{ATTRIBUTE}{name}", Meant(self.by_form.text(value), AS_WRITTEN.text(value))

    def _templates(self, templates: Sequence[Template]) -> Meant:
        return Meant(
            " + ".join(map(self.by_form.text, templates)), " + ".join(map(AS_WRITTEN.inside, templates))
        )

    def _conditions(self, conditions: Iterable[Condition]) -> Meant:
        return Meant(self.by_form.conditions(conditions), AS_WRITTEN.conditions(conditions))

    # ── columns ──

    def _form_of(self, path: str, collection: str | None) -> str:
        head, _, rest = path.partition(".")
        if collection is not None:
            listed = self.lists.get(collection)
            return f"{collection}.{path}" if listed is None else self._in_list(listed, path)
        if path in self.lists:
            return self._in_list(self.lists[path], "")
        if rest and head in self.lists:
            return self._in_list(self.lists[head], rest)
        plans = () if self.plan is None else self.plan.joins
        if path in self.entity.computed:
            computed = self.entity.computed[path]
            of = self._join(self.joins, plans, head) if head in self.joins else ""
            return f"{of}sql({computed.sql} as {computed.type})"
        if rest and head in self.joins:
            facts = next((join.table for join in plans if join.alias == head), None)
            return f"{self._join(self.joins, plans, head)}.{self._column(facts, rest)}"
        return self._column(None if self.plan is None else self.plan.table, path)

    def _in_list(self, collection: Collection, path: str) -> str:
        plan = None if self.plan is None else self.plan.collected(collection.alias)
        return f"{self._list(collection, plan)}.{self._of_child(collection, plan, path)}"

    def _list(self, collection: Collection, plan: CollectionPlan | None) -> str:
        if plan is None:
            of = f"{collection.table} by {collection.by} of {collection.of}"
        else:
            of = f"{captured_name(plan.table)} by {sorted(plan.link)}"
        column = collection.column and self._column(_facts(plan), collection.column)
        order = [self._of_child(collection, plan, place) for place in collection.order_by]
        return f"[{collection.kind} {of} {column} {order} {collection.at_most} {collection.first}]"

    def _of_child(self, collection: Collection, plan: CollectionPlan | None, path: str) -> str:
        joins, (head, _, rest) = {join.alias: join for join in collection.joins}, path.partition(".")
        if rest and head in joins:
            plans = () if plan is None else plan.joins
            facts = next((join.table for join in plans if join.alias == head), None)
            return f"{self._join(joins, plans, head)}.{self._column(facts, rest)}"
        return self._column(_facts(plan), path) if path else ""

    def _join(self, joins: Mapping[str, Join], plans: Sequence[JoinPlan], alias: str) -> str:
        if alias not in joins:
            return ""
        join = joins[alias]
        plan = next((one for one in plans if one.alias == alias), None)
        if plan is None:
            to = f"{join.table} {sorted(join.on)}" if join.table else ",".join(join.columns)
        else:
            to = f"{captured_name(plan.table)} {sorted(plan.on)}"
        return f"{self._join(joins, plans, join.parent)}>{to}"

    def _column(self, table: TableFacts | None, name: str) -> str:
        found = None if table is None else table.column(name)
        return name if found is None else found.real


def _facts(plan: CollectionPlan | None) -> TableFacts | None:
    return None if plan is None else plan.table


ItemType = tuple[str, str]
"""(entity as written, item type)."""
ChangedParts = Mapping[ItemType, frozenset[str] | None]
"""By item type the names of its changed parts; None if every item may have changed."""
JUDGED = ("p99_ms", "calls_per_s", "redact")
"""Settings for judging and showing a pattern, which do not affect its answer."""


class PatternDifference(Struct, frozen=True):
    """`parts`: changed ones of the pattern itself.
    `answer_changes`: evidence starts again.
    `loses`: item types that it no longer reaches.
    `old_loses`: the same for requests of services with the old revision on new items.
    """

    name: str
    effect: str
    parts: tuple[str, ...]
    answer_changes: bool
    loses: tuple[str, ...] = ()
    old_loses: tuple[str, ...] = ()


def pattern_differences(
    old: MappingModel, new: MappingModel, changed: ChangedParts, indexes: frozenset[str]
) -> Iterator[PatternDifference]:
    for name in dict.fromkeys([*new.patterns, *old.patterns]):
        before, after = old.patterns.get(name), new.patterns.get(name)
        if before is None:
            yield PatternDifference(name, "new", (), answer_changes=True)
        elif after is None:
            lost = _lost(old, before, new, before)
            yield PatternDifference(name, "gone", (), answer_changes=False, old_loses=lost)
        else:
            found = _both(old, before, new, after, changed, indexes)
            if found.parts or found.answer_changes or found.loses or found.old_loses:
                yield found


def _both(
    old: MappingModel,
    before: Pattern,
    new: MappingModel,
    after: Pattern,
    changed: ChangedParts,
    indexes: frozenset[str],
) -> PatternDifference:
    forms = [pattern_form(mapping, pattern) for mapping, pattern in ((old, before), (new, after))]
    parts = tuple(name for name in forms[1] if forms[0][name] != forms[1][name])
    types = reached(old, before) | reached(new, after)
    names = [changed.get(key, frozenset()) for key in types]
    items = any(some is None or any(asks_for(after, some)) for some in names)
    answers = items or after.index in indexes or bool(set(parts) - set(JUDGED))
    return PatternDifference(
        after.name,
        "changed" if parts else "same",
        parts,
        answers,
        _lost(old, before, new, after),
        _lost(old, before, new, before),
    )


def reached(mapping: MappingModel, pattern: Pattern) -> set[ItemType]:
    read = types_read(mapping, pattern).items()
    return {(entity, type_) for entity, types in read for type_ in types}


def _lost(old: MappingModel, before: Pattern, new: MappingModel, after: Pattern) -> tuple[str, ...]:
    return tuple(sorted(f"{entity}.{type_}" for entity, type_ in reached(old, before) - reached(new, after)))


def asks_for(pattern: Pattern, names: Iterable[str]) -> Iterator[bool]:
    attributes = {name for part in pattern.parts for name in part.attributes}
    attributes |= {condition.attribute for condition in pattern.filters}
    attributes |= set(pattern.near.at) if pattern.near else set()
    wanted = {BASE_KEY, TTL, f"{ENTRY}{pattern.index}", *(f"{ATTRIBUTE}{name}" for name in attributes)}
    named_all = all(part.attributes for part in pattern.parts) and pattern.parts
    for name in names:
        yield name in wanted or (not named_all and name.startswith(ATTRIBUTE))


# ── a pattern's question, in canonical form ──


def pattern_form(mapping: MappingModel, pattern: Pattern) -> dict[str, object]:
    writing = ExpressionWriter(AS_WRITTEN.naming, lambda used: filter_form(mapping, used))
    star = pattern.star
    return {
        "params": sorted((one.name, one.type, one.optional, one.many) for one in pattern.params),
        "request": (pattern.operation, pattern.index, pattern.descending, pattern.limit, pattern.consistent),
        "key": [writing.inside(one) for one in pattern.key] + ([] if star is None else ["*"]),
        "sort": [(one.operator, [writing.inside(value) for value in one.values]) for one in pattern.sort],
        "filter": sorted(
            (one.attribute, one.operator, [writing.text(value) for value in one.values])
            for one in pattern.filters
        ),
        "near": pattern.near,
        "atomic": pattern.atomic,
        "schema": pattern.schema,
        "returns": sorted((one.name, one.type, sorted(one.attributes), one.one) for one in pattern.parts),
        "order": pattern.order,
        "sql": {name: _statement_form(mapping, one) for name, one in pattern.statements.items()},
        "compare": pattern.compare,
        "redact": sorted(pattern.redact),
        "p99_ms": pattern.p99_ms,
        "calls_per_s": pattern.calls_per_s,
    }


def _statement_form(mapping: MappingModel, statement: Statement) -> object:
    if isinstance(statement, str):
        return statement.strip()
    asked = pattern_form(replace(mapping, table=statement.design), statement.asked)
    return {**asked, "table": statement.design, "join": statement.entity.joins, "columns": statement.returns}
