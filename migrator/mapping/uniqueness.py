"""What can be proved about base keys before a row is read: that no two rows, or items, make the same one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.facts import Column, EntityPlan, Kind
from migrator.mapping.expressions import keeps_every_value
from migrator.mapping.filters import FILTERS
from migrator.model import Filter, ItemDesign, Ref, TableDesign, Template

_WHOLE = {
    "date": frozenset(
        {
            Filter("date"),
            Filter("bucket", ("day",)),
            Filter("iso"),
            Filter("iso", ("s",)),
            Filter("iso", ("ms",)),
        }
    ),
    "timestamp": frozenset({Filter("iso")}),
}
"""Filters that drop nothing of a value: a timestamp keeps its microseconds in |iso alone."""

_OPEN_KINDS = frozenset({"text", "json", "unknown", "binary", "plain", "list", "map", "set"})
_DIGITS = "0123456789-."
_MOMENT = f"{_DIGITS}:+TZ"
_SPELLED = frozenset({"uuid", "date", "time", "timestamp"})
"""Kinds whose values can be spelled in two ways where the source keeps them as text."""

_FILTER_TEXTS = {
    **dict.fromkeys(("iso", "date", "month", "year", "bucket", "desc"), _MOMENT),
    **dict.fromkeys(("epoch", "shard", "depth"), _DIGITS),
    "hash": "0123456789abcdef",
    "geohash": "0123456789bcdefghjkmnpqrstuvwxyz",
    "escape": "%0123456789ABCDEF",
}
"""What stands in the text that a filter gives; a separator made of these can stand in it too."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ALPHABETS = {
    "date": _MOMENT,
    "time": _MOMENT,
    "timestamp": _MOMENT,
    "uuid": f"{_DIGITS}abcdef",
    "boolean": _LETTERS,
}
_ANY_VALUE = f"{_MOMENT} ,/{_LETTERS}{_LETTERS.upper()}"
"""What stands in the text of a value of a closed kind; with |text, that of one which its kind has no form for too."""


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
        kept |= {_given_back(ref, plan) for ref in template.refs if _injective(ref, plan)}
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
    if closed and kind is not None:
        alphabet = _ANY_VALUE if keeps_every_value(ref.filters) else _ALPHABETS.get(kind.name, _DIGITS)
        closed = not set(separator) <= set(alphabet)
    for used in ref.filters:
        promise = FILTERS[used.name].closed
        if set(separator) <= set(_FILTER_TEXTS.get(used.name, "")):
            promise = False
        closed = closed if promise == "same" else promise
        if used.name == "or" and separator in used.args[0]:
            closed = False
    return closed


def kind_of(path: str, plan: EntityPlan) -> Kind | None:
    """The kind of the column (or aggregate, or one of a list's rows) at a path; None where there is none."""
    column = column_of(path, plan)
    if column is not None:
        return column.kind
    if any(one.collection.alias == path and not one.collection.is_list for one in plan.collections):
        return Kind("integer")  # a count
    return Kind("plain") if path in plan.transformed else None


def column_of(path: str, plan: EntityPlan) -> Column | None:
    """The column (or that of an aggregate, or of a list's rows) at a path; None where there is none."""
    for slot in plan.slots:
        if slot.path == path:
            return slot.column
    alias, _, name = path.partition(".")
    for one in plan.collections:
        if one.collection.alias == path and not one.collection.is_list:
            return one.column
        if one.collection.alias == alias and one.collection.is_list:
            return next((slot.column for slot in one.slots if slot.path == name), None)
    return None


def unproved_items(plans: Sequence[EntityPlan], table: TableDesign) -> dict[str, frozenset[str]]:
    """Item types per entity whose keys are not proved to be nobody else's; their keys are claimed at run time."""
    unproved: dict[str, set[str]] = {plan.entity.name: set() for plan in plans}
    for plan in plans:
        for item in plan.entity.items:
            if not key_facts(plan, item, table).unique:
                unproved[plan.entity.name].add(item.type)
    for one, other in meeting_items(plans, table):
        for plan, item in (one, other):
            unproved[plan.entity.name].add(item.type)
    return {name: frozenset(types) for name, types in unproved.items()}


Design = tuple[EntityPlan, ItemDesign]


def meeting_items(plans: Sequence[EntityPlan], table: TableDesign) -> list[tuple[Design, Design]]:
    """Every two item designs whose keys can be equal, as far as their forms tell."""
    designs = [(plan, item) for plan in plans for item in plan.entity.items]
    forms = [[_form(template, plan, table.separator) for template in item.key] for plan, item in designs]
    return [
        (one, designs[second])
        for first, one in enumerate(designs)
        for second in range(first + 1, len(designs))
        if not any(_apart(a, b) for a, b in zip(forms[first], forms[second], strict=False))
    ]


def _injective(ref: Ref, plan: EntityPlan) -> bool:
    if len(ref.paths) != 1:
        return False
    kind = kind_of(ref.paths[0], plan)
    if kind is not None and kind.name in _SPELLED and plan.loosely_typed:
        return False
    if kind is not None and len(ref.filters) == 1 and ref.filters[0] in _WHOLE.get(kind.name, ()):
        return True
    return all(FILTERS[used.name].injective for used in ref.filters)


def _holds_unique_key(plan: EntityPlan, kept: set[str]) -> bool:
    """Whether `kept` (paths whose values the key gives back) hold a key of the root table.

    The key that names its rows is one, proved or not: a reading that meets two rows of one key ends there.
    """
    nullable = {column.name for column in plan.table.columns if column.nullable}
    named = tuple(column.name for column in plan.key)
    if set(named) <= kept:
        return True
    return any(set(key) <= kept and not set(key) & nullable for key in plan.table.proved)


def key_doubt(plan: EntityPlan) -> str:
    """Why two rows of the entity could have one key; '' where a constraint of the source says that none have."""
    names = {column.name for column in plan.key}
    if any(set(key) <= names for key in plan.table.proved):
        return ""
    doubts = [why for key, why in plan.table.doubts if set(key) <= names]
    return doubts[0] if doubts else f"{plan.table.name} has no primary key or unique index of these columns"


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


@dataclass(frozen=True)
class _Form:
    """The constant text that a key begins with, whether more follows, and its separators (None: nobody knows)."""

    beginning: str
    open_end: bool
    separators: int | None


def _form(template: Template, plan: EntityPlan, separator: str) -> _Form:
    parts = template.parts
    closed = all(is_closed(ref, plan, separator) for ref in template.refs)
    # Of several characters, half of a separator may stand in a value: only single ones can be counted.
    counted = sum(part.count(separator) for part in parts if isinstance(part, str))
    separators = counted if closed and len(separator) == 1 else None
    if parts and isinstance(parts[0], str):
        return _Form(parts[0], len(parts) > 1, separators)
    return _Form("", bool(parts), separators)


def _apart(one: _Form, other: _Form) -> bool:
    shorter = min(len(one.beginning), len(other.beginning))
    if one.beginning[:shorter] != other.beginning[:shorter]:
        return True
    if None not in (one.separators, other.separators) and one.separators != other.separators:
        return True
    constant = [form.beginning for form in (one, other) if not form.open_end]
    if len(constant) == 2:
        return one.beginning != other.beginning
    return bool(constant) and len(constant[0]) < max(len(one.beginning), len(other.beginning))
