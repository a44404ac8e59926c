"""Faults in the keys of items: ambiguity, length, order, collation, and types read atomically."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence

from migrator.mapping.check.patterns import TYPES_IN_KEY, key_templates
from migrator.mapping.check.values import key_facts
from migrator.mapping.items.filters import FILTERS, NUMBERS, kind_after, specs_of
from migrator.mapping.items.program import Key, base_key, entries_of
from migrator.mapping.items.templates import name_in_template
from migrator.mapping.language.document import Document, Path
from migrator.mapping.model.facts import Alike, Column, EntityPlan, Kind, attributes_of, column_of, kind_of
from migrator.mapping.model.mapping import (
    Const,
    Expression,
    Filter,
    ItemDesign,
    Mapping,
    Pattern,
    Ref,
    Template,
    uses_in,
)
from migrator.mapping.model.table import SORT_KEY_BYTES, TRANSACTION_ACTIONS, Index, KeyAttribute
from migrator.mapping.patterns.param_sources import PlansByEntity, origins_of, plans_by_entity, reachable_keys
from migrator.runtime.errors import Fault

# ── Faults and risks in the keys of one entity's items: ambiguity, length, order and type ──

_BYTES_A_CHARACTER = 4

Place = tuple[Path, Key]
"""The place of a key's template, and the key."""


def key_faults(mapping: Mapping, plan: EntityPlan, document: Document) -> Iterator[Fault]:
    for item in plan.entity.items:
        at: Path = ("entities", plan.entity.written, "items", item.type)
        places = list(key_places(mapping, item, at))
        yield from _ambiguities(mapping, plan, item, document, at)
        for place in places:
            yield from _type_faults(place, plan, document)
            yield from _length_warnings(place, plan, document)
        for place in places:
            if place[1].limit == SORT_KEY_BYTES and place[1].attribute.type == "text":
                yield from _unpadded(place, plan, document)
        yield from _plain_key_faults(mapping, plan, item, document, at)


def key_places(mapping: Mapping, item: ItemDesign, at: Path) -> Iterator[Place]:
    for number, key in enumerate(base_key(mapping.table, item)):
        yield (*at, "key", number), key
    for entry in entries_of(mapping.table, item):
        for number, key in enumerate(entry.keys):
            yield (*at, entry.index, number), key


def _ambiguities(
    mapping: Mapping, plan: EntityPlan, item: ItemDesign, document: Document, at: Path
) -> Iterator[Fault]:
    ambiguous, _ = key_facts(plan, item, mapping.table)
    if ambiguous:
        what = (
            f"two rows can make one {ambiguous}: several of its values can contain the separator "
            f"'{mapping.table.separator}'; write |escape on all but one"
        )
        yield document.fault((*at, "key"), what)


def _type_faults(place: Place, plan: EntityPlan, document: Document) -> Iterator[Fault]:
    at, key = place
    attribute, template = key.attribute, key.template
    if attribute.type == "text":
        kinds = [result_kind(ref, plan) for ref in template.refs]
        if any(kind is not None and kind.name == "binary" for kind in kinds):
            yield document.fault(at, "bytes cannot be written as text; use |hash, or a key of type binary")
        return
    if template.sole is None:
        what = f"{attribute.name} is a {attribute.type} key: it takes one value in braces and nothing else"
        yield document.fault(at, what)
        return
    kind = result_kind(template.sole, plan)
    if kind is not None and kind.name not in TYPES_IN_KEY[attribute.type]:
        yield document.fault(at, f"{attribute.name} is a {attribute.type} key; this value is {kind.name}")


def _plain_key_faults(
    mapping: Mapping, plan: EntityPlan, item: ItemDesign, document: Document, at: Path
) -> Iterator[Fault]:
    for where, index, attribute, value in plain_keys(mapping, plan, item, at):
        kind = result_kind(value, plan)
        if kind is not None and kind.name not in TYPES_IN_KEY[attribute.type]:
            what = f"'{attribute.name}' is a {attribute.type} key of {index.name}; here it is {kind.name}"
            yield document.fault(where, what)


def plain_keys(
    mapping: Mapping, plan: EntityPlan, item: ItemDesign, at: Path
) -> Iterator[tuple[Path, Index, KeyAttribute, Expression]]:
    written = attributes_of(plan, item)
    for index in mapping.table.indexes:
        for attribute in index.own_attributes(mapping.table):
            if attribute.name in written:
                yield (*at, "attributes", attribute.name), index, attribute, written[attribute.name]


def result_kind(value: Expression, plan: EntityPlan) -> Kind | None:
    if isinstance(value, Template):
        return Kind("text")
    if isinstance(value, Const):
        kinds = {str: "text", int: "integer", bool: "boolean"}
        return Kind(kinds[type(value.value)]) if type(value.value) in kinds else None  # type: ignore[arg-type]
    if not isinstance(value, Ref):
        return None
    return kind_after(kind_of(value.paths[0], plan), value)


def _length_warnings(place: Place, plan: EntityPlan, document: Document) -> Iterator[Fault]:
    at, key = place
    most = 0
    for part in key.template.parts:
        if isinstance(part, str):
            most += len(part.encode())
            continue
        kind, column = kind_of(part.paths[0], plan), column_of(part.paths[0], plan)
        plain = kind is not None and kind.name == "text" and part.format is None
        specs = specs_of(part)
        kept = all(spec.width == "given" and not spec.of_list for spec in specs)
        widest = _BYTES_A_CHARACTER if column is None else column.widest
        most += (kind.length or 0) * widest if kind is not None and plain and kept else 0
    if most > key.limit:
        what = f"{key.name} can take {most} bytes here; a row that takes more than {key.limit} is refused (|hash is short)"
        yield document.fault(at, what, warning=True)


def _unpadded(place: Place, plan: EntityPlan, document: Document) -> Iterator[Fault]:
    at, key = place
    for ref in key.template.refs:
        kind = kind_of(ref.paths[0], plan)
        specs = specs_of(ref)
        bare = ref.format is None and all(spec.same_kind or spec.holds_list for spec in specs)
        if kind is not None and kind.name in NUMBERS and bare:
            name = ref.paths[0]
            padded = f"{{{name_in_template(name)}:010}}"
            what = f"the number '{name}' is not padded, so 10 sorts before 9; write {padded}"
            yield document.fault(at, what, warning=True)


# ── Collations: keys that differ for texts that the source compares as equal: 'ANN' and 'ann', 'ann' and 'ann
# ' ──

_TEXTS = frozenset({"text", "plain"})


def collation_warnings(mapping: Mapping, plans: Sequence[EntityPlan], document: Document) -> Iterator[Fault]:
    for plan in plans:
        yield from _of_items(mapping, plan, document)
    by_entity = plans_by_entity(plans)
    for pattern in mapping.patterns.values():
        yield from _of_params(mapping, pattern, by_entity, document)


def _of_items(mapping: Mapping, plan: EntityPlan, document: Document) -> Iterator[Fault]:
    for item in plan.entity.items:
        at: Path = ("entities", plan.entity.written, "items", item.type)
        made: list[tuple[Path, Expression]] = [
            (where, key.template) for where, key in key_places(mapping, item, at)
        ]
        plain = plain_keys(mapping, plan, item, at)
        made += [(where, value) for where, _, _, value in plain if isinstance(value, (Ref, Template))]
        for where, value in made:
            for ref in (use.ref for use in uses_in(value)):
                if missing := _missing(ref, column_of(ref.paths[0], plan)):
                    what = f"the source treats texts of {ref.paths[0]} that differ in {' or '.join(missing)} as equal"
                    mend = f"write {_mended(ref, missing)} here and in the access patterns"
                    yield document.fault(where, f"{what}, but this key does not; {mend}", warning=True)


def _of_params(
    mapping: Mapping, pattern: Pattern, plans: PlansByEntity, document: Document
) -> Iterator[Fault]:
    index = mapping.table.asked(pattern.index)
    if index is None:  # the parser has reported it
        return
    origins = origins_of(mapping, pattern, plans)
    asking = [
        (where, ref) for where, _, template, _ in key_templates(pattern, index) for ref in template.refs
    ]
    for where, ref in asking:
        for plan, of in origins:
            # A `*` is a parameter, or none.
            source = of.get(ref.paths[0]) if ref.paths else None
            if source and (missing := _missing(ref, column_of(source.path, plan))):
                what = f"SQL treats values of '{ref.paths[0]}' that differ in {' or '.join(missing)} as equal"
                mend = f"write {_mended(ref, missing)} here and in the items"
                what = f"{what} (it is compared with {source.path}), but this key does not; {mend}"
                yield document.fault(where, what, warning=True)


def _missing(ref: Ref, column: Column | None) -> list[Alike]:
    """Differences between texts that the column ignores and the key does not. A map refuses unlisted values."""
    specs = specs_of(ref)
    if column is None or column.kind.name not in _TEXTS or any(spec.of_map for spec in specs):
        return []
    return [alike for alike in column.alike if all(spec.mends != alike for spec in specs)]


def _mended(ref: Ref, missing: Sequence[Alike]) -> str:
    advised = [next(name for name, spec in FILTERS.items() if spec.mends == alike) for alike in missing]
    filters = [*map(Filter, advised), *ref.filters]
    return "{" + "|".join([",".join(ref.paths), *map(_filter_text, filters)]) + "}"


def _filter_text(used: Filter) -> str:
    args = ",".join(arg or "''" for arg in used.args)
    return f"{used.name}:{args}" if used.args else used.name


# ── Item types that are written in one transaction, because an access pattern with `atomic: true` reads them ──


def written_together(mapping: Mapping) -> dict[str, frozenset[str]]:
    """Item types that atomic patterns read, by entity.

    Two patterns that read items of one entity make one group: an item is in one transaction only.
    """
    types_by_entity: dict[str, set[str]] = defaultdict(set)
    for pattern in mapping.patterns.values():
        if pattern.atomic:
            for entity, types in types_read(mapping, pattern).items():
                types_by_entity[entity] |= types
    return {entity: frozenset(types) for entity, types in types_by_entity.items()}


def groups_text(mapping: Mapping) -> str:
    groups = {name: sorted(types) for name, types in sorted(written_together(mapping).items())}
    return json.dumps(groups) if groups else ""


def atomic_faults(mapping: Mapping, document: Document) -> Iterator[Fault]:
    for pattern in mapping.patterns.values():
        if not pattern.atomic:
            continue
        at: Path = ("access_patterns", pattern.name, "atomic")
        read = types_read(mapping, pattern)
        for what in (
            *_index_risks(mapping.table.asked(pattern.index)),
            *_row_risks(read),
            *_size_risks(read),
        ):
            yield document.fault(at, what, warning=True)


def types_read(mapping: Mapping, pattern: Pattern) -> dict[str, set[str]]:
    """Item types by entity: those of the pattern's parts, else those that its key can match."""
    index = mapping.table.asked(pattern.index)
    named = {part.type for part in pattern.parts if part.type}
    types_by_entity: dict[str, set[str]] = defaultdict(set)
    for key in reachable_keys(mapping, pattern, index) if index is not None else ():
        if not named or key.item.type in named:
            types_by_entity[key.entity.name].add(key.item.type)
    return types_by_entity


def _index_risks(index: Index | None) -> Iterator[str]:
    if index is not None and not index.local:
        yield (
            f"{index.name} is a global index, which follows the table item by item, even for items written together; "
            "query the table"
        )


def _row_risks(read: dict[str, set[str]]) -> Iterator[str]:
    if len(read) > 1:
        yield (
            f"it reads items of several entities ({', '.join(sorted(read))}): items of one row of one entity are written "
            "together, all others row by row"
        )
    elif sum(map(len, read.values())) == 1:
        yield "a row makes one of the items that it reads: only its old key and its new key are written together"


def _size_risks(read: dict[str, set[str]]) -> Iterator[str]:
    for entity, types in sorted(read.items()):
        if len(types) > TRANSACTION_ACTIONS:
            what = f"a row of {entity} makes up to {len(types)} of its items; a transaction takes {TRANSACTION_ACTIONS}"
            yield f"{what}, and a row with more is written item by item"
        elif 2 * len(types) > TRANSACTION_ACTIONS:
            what = f"a row of {entity} makes up to {len(types)} of its items, and as many tombstones if all keys change"
            yield f"{what}; a transaction takes at most {TRANSACTION_ACTIONS}, and a row with more is written item by item"


def patterns_reading(mapping: Mapping, names: Sequence[str]) -> list[str]:
    return [
        name for name, pattern in mapping.patterns.items() if set(types_read(mapping, pattern)) & set(names)
    ]
