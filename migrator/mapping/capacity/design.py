"""Advice from the mapping alone: entries that no pattern reads, narrower projections, key columns, and source columns
left out."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from migrator.mapping.items.changes import captured_name
from migrator.mapping.items.filters import specs_of, unit_of
from migrator.mapping.language.plan import TablePlace, columns_read, place_of, tables_read
from migrator.mapping.language.redaction import mask, masked_keys, redaction_of
from migrator.mapping.model.facts import EntityPlan, TableFacts, tables_of
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.mapping import Pattern, Ref, Template, paths_in
from migrator.mapping.model.table import Index
from migrator.mapping.patterns.param_sources import Form, StoredKey, reachable_keys, same_ref, stored_keys
from migrator.runtime.values import replace

PROJECTED = 20
"""Attributes of one index that DynamoDB lets a table name, so that all its indexes together stay below its limit of 100."""


class KeyColumn(Struct, frozen=True):
    """A column in a key. `index`: '' for the table's own key."""

    table: str
    column: str
    type: str
    index: str


def places_of(mapping: MappingModel) -> list[Index]:
    table = mapping.table.asked(None)
    assert table is not None
    return [table, *mapping.table.indexes]


# ── entries and attributes that no pattern asks for ──


def asking(mapping: MappingModel, index: Index, type_: str) -> list[Pattern]:
    patterns = (one for one in mapping.patterns.values() if (one.index or "") == index.name)
    return [
        pattern
        for pattern in patterns
        if any(key.item.type == type_ for key in reachable_keys(mapping, pattern, index))
    ]


def unasked_entries(mapping: MappingModel) -> list[tuple[str, str]]:
    unasked = []
    for index in mapping.table.indexes:
        asked = {
            key.item.type
            for pattern in mapping.patterns.values()
            if pattern.index == index.name
            for key in reachable_keys(mapping, pattern, index)
        }
        types = (key.item.type for key in stored_keys(mapping, index))
        unasked += [(index.name, type_) for type_ in types if type_ not in asked]
    return unasked


def repeated_entries(mapping: MappingModel) -> list[tuple[str, str, str]]:
    """Return (index, type, place) of entries that an earlier place ('' for the table) has with the same values
    and order.

    Without entries that a pattern queries together with those of another type.
    """
    held: dict[str, list[tuple[str, StoredKey]]] = {}
    found = []
    for index in places_of(mapping):
        for type_, key in forms_of(mapping, index).items():
            place = next((name for name, other in held.get(type_, []) if _repeats(key, other)), None)
            held.setdefault(type_, []).append((index.name, key))
            together = (reachable_keys(mapping, pattern, index) for pattern in asking(mapping, index, type_))
            if place is not None and {one.item.type for keys in together for one in keys} == {type_}:
                found.append((index.name, type_, place))
    return found


def _repeats(key: StoredKey, other: StoredKey) -> bool:
    if None in (*key.forms, *other.forms):
        return False
    own, others = _refs(key.partition), _refs(other.partition)
    order, other_order = _refs(key.sort), _refs(other.sort)
    same = len(own) == len(others) and all(any(_same(ref, one) for one in others) for ref in own)
    ordered = len(order) <= len(other_order) and all(map(_same, order, other_order))
    return same and (ordered or not other_order)


def _same(ref: Ref, other: Ref) -> bool:
    return ref.paths == other.paths and same_ref(ref, other)


def _refs(forms: Sequence[Form]) -> list[Ref]:
    return [ref for form in forms if form is not None for ref in form.refs]


def narrower(mapping: MappingModel) -> dict[str, Index]:
    table = mapping.table
    made = {}
    for index in table.indexes:
        patterns = [one for one in mapping.patterns.values() if one.index == index.name]
        keys = {attribute.name for attribute in (*table.key, *index.attributes)}
        needed = {name for pattern in patterns for name in _needed(pattern)}
        needed |= {table.type_attribute, *((table.ttl,) if table.ttl else ())}
        names = tuple(sorted(needed - keys))
        if patterns and index.projection == "all" and len(names) <= PROJECTED:
            made[index.name] = replace(index, projection=names)
    return made


def _needed(pattern: Pattern) -> Iterator[str]:
    yield from (condition.attribute for condition in pattern.filters)
    yield from pattern.near.at if pattern.near else ()
    yield from (name for part in pattern.parts for name in part.attributes)


# ── columns of keys ──


def key_columns(mapping: MappingModel, plans: Sequence[EntityPlan]) -> list[KeyColumn]:
    columns: dict[KeyColumn, None] = {}
    for plan in plans:
        places = dict(_columns_of(plan))
        for design in plan.entity.items:
            forms = [("", design.key), *((entry.index, entry.values) for entry in design.entries)]
            for index, templates in forms:
                for path in paths_in(templates):
                    if path in places:
                        table, column = places[path]
                        columns[KeyColumn(table, column, design.type, index)] = None
    return list(columns)


def _columns_of(plan: EntityPlan) -> Iterator[tuple[str, tuple[str, str]]]:
    tables = tables_of(plan)
    for slot in plan.slots:
        if slot.alias in tables and slot.column.sql is None:
            yield slot.path, (captured_name(tables[slot.alias]), slot.column.real)


def forms_of(mapping: MappingModel, index: Index) -> dict[str, StoredKey]:
    return {key.item.type: key for key in stored_keys(mapping, index)}


def is_constant(forms: Sequence[Form]) -> bool:
    return all(form is not None and not form.refs for form in forms)


def is_bucketed(forms: Sequence[Form]) -> bool:
    refs = (ref for form in forms if form is not None for ref in form.refs)
    return any(unit_of(used) for ref in refs for used in ref.filters)


def has_time(forms: Sequence[Form]) -> bool:
    refs = (ref for form in forms if form is not None for ref in form.refs)
    return any(spec.writes_time for ref in refs for spec in specs_of(ref))


# ── keys as they may be shown ──


class KeyMask(Struct, frozen=True):
    """Masks partition keys: wholly if a pattern redacts them, else the parts that may name a person."""

    templates: Mapping[str, Sequence[Template]]
    secret: frozenset[tuple[str, str]]
    whole: bool

    @classmethod
    def of(cls, mapping: MappingModel, plans: Sequence[EntityPlan], *, whole: bool) -> KeyMask:
        redaction = redaction_of(mapping, plans)
        templates = {
            index.name: sorted(
                {form for key in stored_keys(mapping, index) for form in key.partition if form is not None},
                key=lambda form: (
                    -sum(len(part) for part in form.parts if isinstance(part, str)),
                    form.source,
                ),
            )
            for index in places_of(mapping)
        }
        designs = {design.type: plan for plan in plans for design in plan.entity.items}
        secret = {
            (index.name, key.item.type)
            for index in places_of(mapping)
            for key in stored_keys(mapping, index)
            if key.item.type in designs
            and any(
                form is not None and redaction.hides_key(designs[key.item.type], form)
                for form in key.partition
            )
        }
        return cls(templates, frozenset(secret), whole)

    def text(self, index: str, key: Sequence[object], types: Sequence[str]) -> str:
        if any((index, type_) in self.secret for type_ in types):
            return " ".join(mask(str(value)) for value in key)
        if self.whole:
            return " ".join(map(str, key))
        text = masked_keys(json.dumps([str(value) for value in key]), self.templates[index])
        return " ".join(json.loads(text))


# ── what of the source no entity reads ──


def unmapped_columns(plans: Sequence[EntityPlan]) -> dict[str, tuple[str, ...]]:
    read = defaultdict[TablePlace, set[str]](set)
    tables: dict[TablePlace, TableFacts] = {}
    for plan in plans:
        tables |= tables_read(plan) | {place_of(table): table for table, _ in plan.changes}
        for place, reals in columns_read(plan).items():
            read[place] |= reals
        for table, columns in plan.changes:
            read[place_of(table)] |= set(columns)
    left = {
        captured_name(table): tuple(
            column.name for column in table.columns if column.sql is None and column.real not in read[place]
        )
        for place, table in tables.items()
    }
    return {name: left[name] for name in sorted(left) if left[name]}
