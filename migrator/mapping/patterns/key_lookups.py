"""From an item's key back to its rows: the lookups that find every row which may make an item under that key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Context, Decimal
from itertools import islice
from typing import Any, TypeAlias

from msgspec import Struct

from migrator.mapping.model.facts import Column, EntityPlan, Lookup, attributes_of
from migrator.mapping.model.mapping import ItemDesign, Ref, Template
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.table import Index, Value
from migrator.mapping.patterns.param_sources import Form, forms_of

_EXACT = Context(prec=400)
_READINGS = 16
"""Ways to divide a key's text among a template's references that are looked at; with more, no row is looked up by it."""
_KINDS = frozenset({"integer", "text", "number", "uuid"})
"""Of columns whose text in a key can be bound as the column's value."""
_LOOSE_KINDS = frozenset({"integer", "text"})
"""The same where the source keeps a value in other forms than the column's type has."""


class AskedKey(Struct, frozen=True):
    """The key of an item collection: of the table (an index without a name) or of one of its indexes.

    `sort`: what the first part of the sort key begins with, or is where it is no text; '' asks for all.
    """

    index: Index
    partition: tuple[Value, ...]
    sort: Value = ""

    def holds(self, item: Mapping[str, Value]) -> bool:
        """Whether the item is in this collection."""
        names = [attribute.name for attribute in self.index.attributes]
        if any(item.get(name) is None for name in names):
            return False
        own = tuple(item[attribute.name] for attribute in self.index.partition)
        return own == self.partition and self._begins(item)

    def _begins(self, item: Mapping[str, Value]) -> bool:
        if self.sort == "":
            return True
        value = item[self.index.sort[0].name]
        if isinstance(value, str) and isinstance(self.sort, str):
            return value.startswith(self.sort)
        return value == self.sort


class RowLookup(Struct, frozen=True):
    """Rows of an entity that may make an item under a key. `lookup` None: any of them may."""

    lookup: Lookup | None = None
    values: tuple[Any, ...] = ()


_Texts: TypeAlias = dict[str, str]
"""What a key says of columns, by their paths."""


def row_lookups(mapping: MappingModel, plan: EntityPlan, asked: AskedKey) -> list[RowLookup]:
    """The lookups of an entity's rows; none where no item of it can have the key.

    They find more rows than make such an item, never fewer.
    """
    lookups: dict[str, RowLookup] = {}
    for design in plan.entity.items:
        forms = forms_of(mapping, plan.entity, design, asked.index)
        if len(forms) != len(asked.index.attributes):
            continue  # it is not in the index
        names = [attribute.name for attribute in asked.index.attributes]
        templates = [_template(plan, design, name, form) for name, form in zip(names, forms, strict=True)]
        for lookup in _of_design(plan, templates[: len(asked.partition)], asked):
            lookups[repr(lookup)] = lookup
    if any(found.lookup is None for found in lookups.values()):
        return [RowLookup()]
    return list(lookups.values())


def _template(plan: EntityPlan, design: ItemDesign, name: str, form: Form) -> Template | None:
    """The template of a key attribute; one reference becomes a template of it. None where a key says nothing of rows."""
    if form is not None:
        return form
    written = attributes_of(plan, design).get(name)
    return Template((written,), name) if isinstance(written, Ref) else None


def _of_design(
    plan: EntityPlan, templates: Sequence[Template | None], asked: AskedKey
) -> Iterator[RowLookup]:
    readings: list[_Texts] = [{}]
    for template, value in zip(templates, asked.partition, strict=True):
        if template is not None:
            # One more than is looked at: a text of separators alone has more readings than anybody could wait for.
            own = list(islice(_readings(template, str(value)), _READINGS + 1))
            readings = [{**one, **other} for one in readings for other in own]
    if len(readings) > _READINGS:
        yield RowLookup()
        return
    yield from (lookup for reading in readings if (lookup := _lookup(plan, reading)) is not None)


def _readings(template: Template, text: str, at: int = 0, place: int = 0) -> Iterator[_Texts]:
    """Each way in which the template may have made the text: texts of the references that show a column's value."""
    if place == len(template.parts):
        if at == len(text):
            yield {}
        return
    part = template.parts[place]
    if isinstance(part, str):
        if text.startswith(part, at):
            yield from _readings(template, text, at + len(part), place + 1)
        return
    for end in _ends(text, at, template.parts[place + 1 :]):
        is_read = False
        for rest in _readings(template, text, end, place + 1):
            is_read = True
            yield {part.paths[0]: text[at:end], **rest} if not part.filters else rest
        if not is_read:
            return  # what cannot be read from here on cannot be read from further on


def _ends(text: str, at: int, behind: Sequence[str | Ref]) -> Iterator[int]:
    """Where a reference's text may end: before each occurrence of the constant text behind it. `behind`: the parts."""
    if not behind:
        yield len(text)
    elif isinstance(behind[0], Ref):
        yield from range(at, len(text) + 1)
    elif len(behind) == 1:
        end = len(text) - len(behind[0])
        yield from [end] if end >= at and text.endswith(behind[0]) else []
    else:
        end = text.find(behind[0], at)
        while end >= 0:
            yield end
            end = text.find(behind[0], end + 1)


def _lookup(plan: EntityPlan, texts: _Texts) -> RowLookup | None:
    """None where a text is no value of its column, so that no row has it."""
    kinds = _LOOSE_KINDS if plan.loosely_typed else _KINDS
    slots = [
        slot
        for slot in plan.slots
        # What SQL or a transform makes is no column that rows can be found by.
        if slot.path in texts and slot.path not in plan.transformed and slot.column.sql is None
        if slot.column.kind.name in kinds
    ]
    alias = min((slot.alias for slot in slots), default="")
    own = [slot for slot in slots if slot.alias == alias]
    if not own:
        return RowLookup()
    try:
        values = tuple(bindable(texts[slot.path], slot.column, plan) for slot in own)
    except (ValueError, ArithmeticError):
        return None
    names, reals = tuple(slot.path for slot in own), tuple(slot.column.real for slot in own)
    return RowLookup(Lookup(plan.entity.name, names, reals, alias), values)


# ── Texts as values of columns ──


def bindable(text: str, column: Column, plan: EntityPlan) -> Any:
    """The value as the source's driver gives it, so that its text is that of a row's key.

    Raises: ValueError or ArithmeticError where it is no value of the column's type.
    """
    kind = column.kind
    if kind.name == "integer":
        return _storable(int(text))
    if kind.name == "float":
        return float(text)
    if "\0" in text and not plan.loosely_typed:
        raise ValueError("no server stores it in a text")
    if kind.name == "number" and plan.loosely_typed:
        # SQLite keeps a number without decimals as an integer.
        return int(float(text)) if float(text).is_integer() else float(text)
    if kind.name == "number" and kind.scale is not None:
        return Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    return text


def is_held(number: int) -> bool:
    """Whether any source has such a number in an integer column."""
    return -(2**63) <= number < 2**64


def _storable(number: int) -> int:
    if not is_held(number):
        raise ValueError("no source stores it")
    return number
