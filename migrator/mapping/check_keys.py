"""What is wrong, or risky, in the keys of one entity's items: ambiguity, length, order and type."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.errors import Fault
from migrator.facts import EntityPlan, Kind
from migrator.limits import PARTITION_KEY_BYTES, SORT_KEY_BYTES
from migrator.mapping.document import Document, Path
from migrator.mapping.filters import FILTERS, SAME_KIND
from migrator.mapping.items import kept_columns
from migrator.mapping.uniqueness import column_of, key_facts, kind_of
from migrator.model import Const, Expression, Index, ItemDesign, KeyAttribute, Mapping, Ref, Template

_NUMBERS = frozenset({"integer", "number", "float"})
_OF_TYPE: dict[str, frozenset[str]] = {
    "text": frozenset({"text", "bits", "uuid", "date", "time", "timestamp", "plain"}),
    "number": frozenset({"integer", "number", "float", "plain"}),
    "binary": frozenset({"binary", "plain"}),
}
_BYTES_A_CHARACTER = 4

Place = tuple[Path, KeyAttribute, Template, int]
"""Where a template stands, the key attribute that it fills, and the most bytes that this may take."""


def key_faults(mapping: Mapping, plan: EntityPlan, document: Document) -> Iterator[Fault]:
    """Faults and warnings of the base and index keys of the entity's items."""
    for item in plan.entity.items:
        at: Path = ("entities", plan.entity.written, "items", item.type)
        places = list(key_places(mapping, item, at))
        yield from _ambiguities(mapping, plan, item, document, at)
        for place in places:
            yield from _type_faults(place, plan, document)
            yield from _length_warnings(place, plan, document)
        for place in places:
            if place[3] == SORT_KEY_BYTES and place[1].type == "text":
                yield from _unpadded(place, plan, document)
        yield from _plain_key_faults(mapping, plan, item, document, at)


def key_places(mapping: Mapping, item: ItemDesign, at: Path) -> Iterator[Place]:
    """Those of the base key, then those of indexes."""
    limits = (PARTITION_KEY_BYTES, SORT_KEY_BYTES)
    for number, (attribute, template) in enumerate(zip(mapping.table.key, item.key, strict=False)):
        yield (*at, "key", number), attribute, template, limits[number]
    indexes = {index.name: index for index in mapping.table.indexes}
    for entry in item.entries:
        index = indexes[entry.index]
        own = index.own_attributes(mapping.table)
        for number, (attribute, template) in enumerate(zip(own, entry.values, strict=True)):
            limit = PARTITION_KEY_BYTES if attribute in index.partition else SORT_KEY_BYTES
            yield (*at, entry.index, number), attribute, template, limit


def _ambiguities(
    mapping: Mapping, plan: EntityPlan, item: ItemDesign, document: Document, at: Path
) -> Iterator[Fault]:
    facts = key_facts(plan, item, mapping.table)
    if facts.ambiguous:
        what = (
            f"two rows can make one {facts.ambiguous}: several of its values can hold the separator "
            f"'{mapping.table.separator}'; write |escape on all but one"
        )
        yield document.fault((*at, "key"), what)


def _type_faults(place: Place, plan: EntityPlan, document: Document) -> Iterator[Fault]:
    at, attribute, template, _ = place
    if attribute.type == "text":
        return
    if len(template.parts) != 1 or not isinstance(template.parts[0], Ref):
        what = f"{attribute.name} is a {attribute.type} key: it takes one value in braces and nothing else"
        yield document.fault(at, what)
        return
    kind = result_kind(template.parts[0], plan)
    if kind is not None and kind.name not in _OF_TYPE[attribute.type]:
        yield document.fault(at, f"{attribute.name} is a {attribute.type} key; this value is {kind.name}")


def _plain_key_faults(
    mapping: Mapping, plan: EntityPlan, item: ItemDesign, document: Document, at: Path
) -> Iterator[Fault]:
    """Plain attributes that are keys of an index by their name must be of its type."""
    for where, index, attribute, value in plain_keys(mapping, plan, item, at):
        kind = result_kind(value, plan)
        if kind is not None and kind.name not in _OF_TYPE[attribute.type]:
            what = f"'{attribute.name}' is a {attribute.type} key of {index.name}; here it is {kind.name}"
            yield document.fault(where, what)


def plain_keys(
    mapping: Mapping, plan: EntityPlan, item: ItemDesign, at: Path
) -> Iterator[tuple[Path, Index, KeyAttribute, Expression]]:
    """Plain attributes that are keys of an index by their name, with what they are made of."""
    written: dict[str, Expression] = {name: Ref((name,)) for name in kept_columns(plan, item)}
    written |= {**plan.entity.attributes, **item.attributes}
    for index in mapping.table.indexes:
        for attribute in index.own_attributes(mapping.table):
            if attribute.name in written:
                yield (*at, "attributes", attribute.name), index, attribute, written[attribute.name]


def result_kind(value: Expression, plan: EntityPlan) -> Kind | None:
    """The kind of an attribute that a value makes, as far as it can be told; of maps and lists None."""
    if isinstance(value, Template):
        return Kind("text")
    if isinstance(value, Const):
        known = {str: "text", int: "integer", bool: "boolean"}
        return Kind(known[type(value.value)]) if type(value.value) in known else None  # type: ignore[arg-type]
    if not isinstance(value, Ref):
        return None
    kind = kind_of(value.paths[0], plan)
    for used in value.filters:
        kind = kind if used.name in SAME_KIND else FILTERS[used.name].gives
    return Kind("text") if value.format is not None and not value.filters else kind


def _length_warnings(place: Place, plan: EntityPlan, document: Document) -> Iterator[Fault]:
    at, attribute, template, limit = place
    most = 0
    for part in template.parts:
        if isinstance(part, str):
            most += len(part.encode())
            continue
        kind, column = kind_of(part.paths[0], plan), column_of(part.paths[0], plan)
        plain = kind is not None and kind.name == "text" and part.format is None
        kept = all(used.name in ("or", "lower", "upper", "trim", "text") for used in part.filters)
        widest = _BYTES_A_CHARACTER if column is None else column.widest
        most += (kind.length or 0) * widest if kind is not None and plain and kept else 0
    if most > limit:
        what = f"{attribute.name} can take {most} bytes here; a row that takes more than {limit} is refused (|hash is short)"
        yield document.fault(at, what, warning=True)


def _unpadded(place: Place, plan: EntityPlan, document: Document) -> Iterator[Fault]:
    at, _, template, _ = place
    for ref in template.refs:
        kind = kind_of(ref.paths[0], plan)
        bare = ref.format is None and all(used.name in (*SAME_KIND, "path") for used in ref.filters)
        if kind is not None and kind.name in _NUMBERS and bare:
            name = ref.paths[0]
            what = f"the number '{name}' is not padded, so 10 sorts before 9; write {{{name}:010}}"
            yield document.fault(at, what, warning=True)
