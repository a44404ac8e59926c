"""The keys that items have, in the table or in an index, as far as the mapping alone says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from migrator.mapping.filters import FILTERS, SAME_KIND
from migrator.model import (
    Const,
    Entity,
    Expression,
    Filter,
    Index,
    ItemDesign,
    Mapping,
    Pattern,
    Ref,
    SortCondition,
    Template,
)

Form = Template | None
"""How a key attribute is made; None where it is a plain attribute, which any template may ask for."""

_SAME_TEXTS = {
    Filter("bucket", ("day",)): Filter("date"),
    Filter("bucket", ("month",)): Filter("month"),
    Filter("bucket", ("year",)): Filter("year"),
}


@dataclass(frozen=True)
class StoredKey:
    """A form for each attribute of an item's key."""

    partition: tuple[Form, ...]
    sort: tuple[Form, ...]
    entity: Entity
    item: ItemDesign


def stored_keys(mapping: Mapping, asked: Index) -> Iterator[StoredKey]:
    """The key of every item design that is in the index (or in the table, an index without a name)."""
    for entity in mapping.entities.values():
        for item in entity.items:
            forms = _forms(mapping, entity, item, asked)
            count = len(asked.partition)
            # An item that lacks one attribute of an index's key is not in the index.
            if len(forms) == len(asked.attributes):
                yield StoredKey(tuple(forms[:count]), tuple(forms[count:]), entity, item)


def asked_keys(mapping: Mapping, pattern: Pattern, asked: Index) -> Iterator[StoredKey]:
    """Those of the stored keys that the pattern's key condition can give, as far as constant text tells."""
    for key in stored_keys(mapping, asked):
        if same_forms(pattern.key, key.partition) and all(
            may_give(condition, stored) for condition, stored in zip(pattern.sort, key.sort, strict=False)
        ):
            yield key


def may_give(condition: SortCondition, stored: Form) -> bool:
    """Whether a sort key of this form can hold the condition."""
    if stored is None:
        return True
    if condition.operator == "equal":
        return same_forms(condition.values, (stored,))
    begin, open_end = _beginning(stored)
    bounds = [_beginning(value) for value in condition.values]
    if condition.operator == "begins_with":
        return begin.startswith(bounds[0][0]) or (open_end and bounds[0][0].startswith(begin))
    if condition.operator == "between":
        return _at_least(begin, open_end, bounds[0][0]) and _at_most(begin, open_end, bounds[1])
    if condition.operator in ("ge", "gt"):
        return _at_least(begin, open_end, bounds[0][0])
    # What follows a beginning makes a key longer, and so larger: below the beginning itself there is none.
    return _at_most(begin, open_end or condition.operator == "lt", bounds[0])


def _beginning(template: Template) -> tuple[str, bool]:
    """(the constant text that the template begins with, whether more follows)."""
    first = template.parts[0] if template.parts and isinstance(template.parts[0], str) else ""
    return first, len(template.parts) > (1 if first else 0)


def _at_least(begin: str, open_end: bool, bound: str) -> bool:
    return begin >= bound or (open_end and bound.startswith(begin))


def _at_most(begin: str, beyond: bool, bound: tuple[str, bool]) -> bool:
    """`beyond`: whether the keys are all larger than their beginning. `bound`: its constant text, whether more follows."""
    text, open_end = bound
    if open_end:
        return begin <= text or begin.startswith(text)
    return begin < text or (begin == text and not beyond)


def same_forms(asked: Sequence[Template], stored: Sequence[Form]) -> bool:
    """Whether the templates agree in literals, formats and filters; names may differ."""
    return all(
        form is None or _form(template) == _form(form) for template, form in zip(asked, stored, strict=False)
    )


def same_ref(asked: Ref, stored: Ref) -> bool:
    """Whether both make one text of one value."""
    return _ref_form(asked) == _ref_form(stored)


def shown(forms: Sequence[Sequence[Form]]) -> str:
    """The forms as a person wrote them, each once."""
    texts = {" + ".join("(an attribute)" if one is None else one.source for one in form) for form in forms}
    return ", ".join(sorted(texts)) or "none"


def _forms(mapping: Mapping, entity: Entity, item: ItemDesign, asked: Index) -> list[Form]:
    """Forms of the key's attributes, up to the first one that the item does not have."""
    entry = next((entry.values for entry in item.entries if entry.index == asked.name), ())
    attributes = {**entity.attributes, **item.attributes}
    keys = {attribute.name: form for attribute, form in zip(mapping.table.key, item.key, strict=False)}
    own = asked.own_attributes(mapping.table)
    keys |= {attribute.name: form for attribute, form in zip(own, entry, strict=False)}
    forms: list[Form] = []
    by_entry = any(
        one.index == asked.name for e in mapping.entities.values() for i in e.items for one in i.entries
    )
    for name in (attribute.name for attribute in asked.attributes):
        if name in keys:
            forms.append(keys[name])
        elif name in attributes:
            forms.append(_attribute_form(attributes[name]))
        elif _keeps(item, name, by_entry=by_entry):
            forms.append(None)
        else:
            break
    return forms


def _attribute_form(expression: Expression) -> Form:
    if isinstance(expression, Const):
        return Template((str(expression.value),), str(expression.value))
    return expression if isinstance(expression, Template) else None


def _keeps(item: ItemDesign, name: str, *, by_entry: bool) -> bool:
    """Whether a kept column may be the key attribute. `keep: all` says nothing where items write the key of the index."""
    if isinstance(item.keep, tuple):
        return name in item.keep
    return item.keep == "all" and name not in item.keep_except and not by_entry


_JOINED = frozenset(name for name, spec in FILTERS.items() if spec.of_list) - SAME_KIND
"""Filters that make one value of a list's (a path, a depth). A pattern's parameter is that value, as it is stored."""


def _form(template: Template) -> list[object]:
    """What two templates must have in common; a `*` stands for one text of its filter."""
    return [part if isinstance(part, str) else _ref_form(part) for part in template.parts]


def _ref_form(ref: Ref) -> tuple[object, ...]:
    joined = [place for place, one in enumerate(ref.filters) if one.name in _JOINED]
    filters = ref.filters[joined[0] + 1 :] if joined else ref.filters
    kept = [_SAME_TEXTS.get(one, one) for one in filters if one.name not in SAME_KIND]
    return None if joined else ref.format, kept
