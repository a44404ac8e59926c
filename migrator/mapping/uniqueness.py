"""What can be proved about base keys before a row is read: that no two rows, or items, make the same one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.facts import EntityPlan, Kind
from migrator.mapping.filters import FILTERS
from migrator.model import ItemDesign, Ref, TableDesign, Template

_OPEN_KINDS = frozenset({"text", "json", "unknown", "binary", "plain"})


@dataclass(frozen=True)
class KeyFacts:
    """What is known of one item design's base key.

    `ambiguous`: the key attribute in which two open parts stand ('' if none): two rows can make one key.
    `unique`: within the entity, no two rows make the same key.
    """

    ambiguous: str
    unique: bool


def key_facts(plan: EntityPlan, design: ItemDesign, table: TableDesign) -> KeyFacts:
    """What the templates, the column types and the unique constraints prove."""
    ambiguous = ""
    kept: set[str] = set()
    readable = True
    for attribute, template in zip(table.key, design.key, strict=False):
        open_refs = [ref for ref in template.refs if not is_closed(ref, plan, table.separator)]
        if len(open_refs) > 1 and not ambiguous:
            ambiguous = attribute.name
        if len(open_refs) > 1 or not _separated(template, plan, table.separator):
            readable = False
        kept |= {_given_back(ref, plan) for ref in template.refs if _injective(ref)}
    return KeyFacts(ambiguous, readable and _holds_unique_key(plan, kept))


def _given_back(ref: Ref, plan: EntityPlan) -> str:
    """The path whose value an injective reference gives back: a climb's path ends in the row's own value."""
    alias, _, name = ref.paths[0].partition(".")
    climbs = {one.collection.alias for one in plan.collections if one.collection.kind == "climb"}
    return name if alias in climbs and any(used.name == "path" for used in ref.filters) else ref.paths[0]


def is_closed(ref: Ref, plan: EntityPlan, separator: str) -> bool:
    """Whether the text of `ref` can never hold the separator."""
    kind = kind_of(ref.paths[0], plan)
    closed = ref.format is not None or kind is None or kind.name not in _OPEN_KINDS
    if kind is not None and kind.name in ("date", "time", "timestamp", "uuid", "number", "float", "integer"):
        closed = not set(separator) <= set("0123456789-:.TZ+")
    for used in ref.filters:
        promise = FILTERS[used.name].closed
        closed = closed if promise == "same" else promise
        if used.name == "or" and separator in used.args[0]:
            closed = False
    return closed


def kind_of(path: str, plan: EntityPlan) -> Kind | None:
    """The kind of the column (or aggregate, or one of a list's rows) at a path; None where there is none."""
    for slot in plan.slots:
        if slot.path == path:
            return slot.column.kind
    alias, _, name = path.partition(".")
    for one in plan.collections:
        if one.collection.alias == path and not one.collection.is_list:
            return one.column.kind if one.column else Kind("integer")
        if one.collection.alias == alias and one.collection.is_list:
            return next((slot.column.kind for slot in one.slots if slot.path == name), None)
    return Kind("plain") if path in plan.transformed else None


def disjoint(one: ItemDesign, other: ItemDesign) -> bool:
    """Whether two item designs can be told apart by the constant beginnings of their keys."""
    return any(_apart(_beginning(a), _beginning(b)) for a, b in zip(one.key, other.key, strict=False))


def unproved_items(plans: Sequence[EntityPlan], table: TableDesign) -> dict[str, frozenset[str]]:
    """Item types per entity whose keys are not proved to be nobody else's; their keys are claimed at run time."""
    unproved: dict[str, set[str]] = {plan.entity.name: set() for plan in plans}
    for plan in plans:
        for item in plan.entity.items:
            if not key_facts(plan, item, table).unique:
                unproved[plan.entity.name].add(item.type)
    for one, other in meeting_items(plans):
        for plan, item in (one, other):
            unproved[plan.entity.name].add(item.type)
    return {name: frozenset(types) for name, types in unproved.items()}


Design = tuple[EntityPlan, ItemDesign]


def meeting_items(plans: Sequence[EntityPlan]) -> list[tuple[Design, Design]]:
    """Every two item designs whose keys can be equal, as far as the constant beginnings of their keys tell."""
    designs = [(plan, item) for plan in plans for item in plan.entity.items]
    beginnings = [[_beginning(template) for template in item.key] for _, item in designs]
    return [
        (one, designs[second])
        for first, one in enumerate(designs)
        for second in range(first + 1, len(designs))
        if not any(_apart(a, b) for a, b in zip(beginnings[first], beginnings[second], strict=False))
    ]


def _injective(ref: Ref) -> bool:
    return len(ref.paths) == 1 and all(FILTERS[used.name].injective for used in ref.filters)


def _holds_unique_key(plan: EntityPlan, kept: set[str]) -> bool:
    """Whether `kept` (paths whose values the key gives back) hold a key of the root table."""
    nullable = {column.name for column in plan.table.columns if column.nullable}
    named = tuple(column.name for column in plan.key)
    if set(named) <= kept:
        return True
    return any(key and set(key) <= kept and not set(key) & nullable for key in plan.table.unique)


def _separated(template: Template, plan: EntityPlan, separator: str) -> bool:
    """Whether the values can be read back: between two separators stands one value of varying width at most."""
    varying = 0
    for part in template.parts:
        if isinstance(part, str):
            varying = 0 if separator in part else varying
        elif _width(part, plan) == math.inf:
            varying += 1
            if varying > 1:
                return False
    return True


def _width(ref: Ref, plan: EntityPlan) -> float:
    """Characters of the text of `ref` where they are always as many, else infinite."""
    kind = kind_of(ref.paths[0], plan)
    if ref.format is not None and not ref.filters:
        return float(ref.format.lstrip("0").rstrip("df").split(".")[0])
    return 36.0 if kind is not None and kind.name == "uuid" and not ref.filters else math.inf


Beginning = tuple[str, bool]


def _apart(first: Beginning, second: Beginning) -> bool:
    shorter = min(len(first[0]), len(second[0]))
    if first[0][:shorter] != second[0][:shorter]:
        return True
    constant = [begin for begin, open_end in (first, second) if not open_end]
    if len(constant) == 2:
        return first[0] != second[0]
    return bool(constant) and len(constant[0]) < max(len(first[0]), len(second[0]))


def _beginning(template: Template) -> Beginning:
    """(the constant text that the template begins with, whether more follows)."""
    if template.parts and isinstance(template.parts[0], str):
        return template.parts[0], len(template.parts) > 1
    return "", bool(template.parts)
