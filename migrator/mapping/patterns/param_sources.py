"""Where parameters come from: the columns and key templates that a pattern's key can reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from migrator.mapping.heart.filters import FILTERS, SAME_KIND
from migrator.mapping.heart.items import kept_columns
from migrator.model.entities import Entity, ItemDesign, Mapping
from migrator.model.expressions import Const, Expression, Filter, Ref, Template
from migrator.model.facts import EntityPlan
from migrator.model.patterns import Operator, Pattern, SortCondition
from migrator.model.table import Index

# ── The keys that items have, in the table or in an index, as far as the mapping alone says ──

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


# ──
# Where the parameters of an access pattern come from: columns of the entities whose items its key can
# reach. Pure.

Role = Literal["equal", "low", "high", "bucket"]
"""How a parameter is asked: for equality, as a bound, or for the bucket of time that it falls into."""

_UNITS = {"date": "day", "month": "month", "year": "year"}


@dataclass(frozen=True, slots=True)
class ParamSource:
    """What of a row gives the parameter. `place`: which one of the values of `ref`, where it has several.

    `unit`: of a bucket, how long it is.
    """

    ref: Ref
    role: Role = "equal"
    place: int = 0
    unit: str = ""

    @property
    def path(self) -> str:
        return self.ref.paths[self.place]


@dataclass(frozen=True)
class EntityParamSources:
    """One entity whose rows give parameters of the pattern, by their names."""

    plan: EntityPlan
    of: dict[str, ParamSource] = field(default_factory=dict)


def origins_of(mapping: Mapping, pattern: Pattern, plans: Sequence[EntityPlan]) -> list[EntityParamSources]:
    """The entities that give most of the pattern's parameters; one that gives none where no entity gives any."""
    asked = mapping.table.asked(pattern.index)
    assert asked is not None
    known = {param.name for param in pattern.params}
    found = []
    for key in asked_keys(mapping, pattern, asked):
        for plan in plans:
            if plan.entity.written == key.entity.name:
                design = next(item for item in plan.entity.items if item.type == key.item.type)
                paired = _Pairing(pattern, key, plan, design).origins([one.name for one in asked.attributes])
                found.append(
                    EntityParamSources(plan, {name: one for name, one in paired.items() if name in known})
                )
    most = max((len(one.of) for one in found), default=0)
    return [one for one in found if len(one.of) == most]


def redacted_params(pattern: Pattern, found: Sequence[EntityParamSources]) -> frozenset[str]:
    """Parameters whose values are not to be shown: those named, and those of columns behind attributes that are named."""
    hidden = {param.name for param in pattern.params} & set(pattern.redact)
    for one in found:
        entity = one.plan.entity
        written = [entity.attributes, *(item.attributes for item in entity.items)]
        behind = [attributes[name] for attributes in written for name in pattern.redact if name in attributes]
        templates = [_as_template(value) for value in behind if isinstance(value, (Ref, Template))]
        paths = {path for template in templates for ref in template.refs for path in ref.paths}
        hidden |= {name for name, origin in one.of.items() if origin.path in paths | set(pattern.redact)}
    return frozenset(hidden)


class _Pairing:
    """A pattern beside one item design that its key can reach."""

    def __init__(self, pattern: Pattern, key: StoredKey, plan: EntityPlan, design: ItemDesign) -> None:
        self.pattern = pattern
        self.key = key
        self.plan = plan
        self.written = {**plan.entity.attributes, **design.attributes}
        self.kept = kept_columns(plan, design)

    def origins(self, attributes: Sequence[str]) -> dict[str, ParamSource]:
        """By parameter; `attributes`: of the key that is asked. What is asked for equality goes before bounds."""
        found: dict[str, ParamSource] = {}
        for name, origin in self._pairs(attributes):
            if name not in found or (origin.role == "equal" and found[name].role != "equal"):
                found[name] = origin
        return found

    def _pairs(self, attributes: Sequence[str]) -> Iterator[tuple[str, ParamSource]]:
        count = len(self.key.partition)
        stored = zip(attributes, (*self.key.partition, *self.key.sort), strict=False)
        forms = [self._form(name, form) for name, form in stored]
        for template, form in zip(self.pattern.key, forms[:count], strict=False):
            yield from _paired(template, form, "equal")
        for condition, form in zip(self.pattern.sort, forms[count:], strict=False):
            for role, template in zip(_ROLES[condition.operator], condition.values, strict=False):
                yield from _paired(template, form, role)
        for one in self.pattern.filters:
            form = self._form(one.attribute, None)
            for role, value in zip(_ROLES[one.operator], one.values, strict=False):
                if isinstance(value, (Ref, Template)):
                    yield from _paired(_as_template(value), form, role)

    def _form(self, name: str, form: Form) -> Form:
        """How the attribute is made, one that is no template as a template of its one value."""
        if form is not None:
            return form
        expression = self.written.get(name)
        if expression is None:
            return _as_template(Ref((name,))) if name in self.kept else None
        return _as_template(expression) if isinstance(expression, (Ref, Template)) else None


def _as_template(expression: Ref | Template) -> Template:
    return expression if isinstance(expression, Template) else Template((expression,))


_ROLES: dict[Operator, tuple[Role, Role]] = {
    "equal": ("equal", "equal"),
    "begins_with": ("equal", "equal"),
    "between": ("low", "high"),
    "ge": ("low", "low"),
    "gt": ("low", "low"),
    "le": ("high", "high"),
    "lt": ("high", "high"),
}


def _paired(asked: Template, stored: Form, role: Role) -> Iterator[tuple[str, ParamSource]]:
    """The parameters of a template beside the references of a stored one, in their order."""
    if stored is None:
        return
    for one, other in zip(asked.refs, stored.refs, strict=False):
        if one.every:
            yield from _starred(one, other)
        elif same_ref(one, other) or (_is_time(one) and _is_time(other)):
            yield from _values(one, other, role)
        elif not one.filters and one.format is None:
            # The parameter is the text that the filters made.
            yield one.paths[0], ParamSource(other, role)


def _starred(asked: Ref, stored: Ref) -> Iterator[tuple[str, ParamSource]]:
    """Of a place both values; of a time its bounds; a shard takes none."""
    if asked.filters[0].name == "geohash":
        yield from _values(asked, stored, "equal")
        return
    for name, role in zip(asked.paths, _ROLES["between"], strict=False):
        yield name, ParamSource(_plain(stored), role)


def _values(asked: Ref, stored: Ref, role: Role) -> Iterator[tuple[str, ParamSource]]:
    plain = _plain(stored)
    unit = next((found for used in asked.filters if (found := _unit(used))), "")
    falling = any(used.name == "desc" for used in asked.filters)
    if role == "equal" and unit:
        role = "bucket"
    elif falling and role != "equal":
        role = "high" if role == "low" else "low"
    for place, name in enumerate(asked.paths[: len(plain.paths)]):
        yield name, ParamSource(plain, role, place, unit)


def _is_time(ref: Ref) -> bool:
    """Whether it makes the text of a time: a day begins as its moments do."""
    return any(used.name == "iso" or _unit(used) for used in ref.filters)


def _unit(used: Filter) -> str:
    return used.args[0] if used.name == "bucket" else _UNITS.get(used.name, "")


def _plain(ref: Ref) -> Ref:
    """The reference as far as it makes the value that both templates begin with: one out of a list, or a column's."""
    lists = [place for place, used in enumerate(ref.filters) if FILTERS[used.name].of_list]
    if not lists:
        return replace(ref, format=None, filters=())
    chosen = ref.filters[lists[0]].name in SAME_KIND
    return replace(ref, format=None if chosen else ref.format, filters=ref.filters[: lists[0] + 1])
