"""Where the parameters of an access pattern come from: columns of the entities whose items its key can reach. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from migrator.facts import EntityPlan
from migrator.mapping.filters import FILTERS, SAME_KIND
from migrator.mapping.items import kept_columns
from migrator.mapping.stored_keys import Form, StoredKey, asked_keys, same_ref
from migrator.model import Filter, ItemDesign, Mapping, Operator, Pattern, Ref, Template

Role = Literal["equal", "low", "high", "bucket"]
"""How a parameter is asked: for equality, as a bound, or for the bucket of time that it falls into."""

_UNITS = {"date": "day", "month": "month", "year": "year"}


@dataclass(frozen=True, slots=True)
class Origin:
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
class Origins:
    """One entity whose rows give parameters of the pattern, by their names."""

    plan: EntityPlan
    of: dict[str, Origin] = field(default_factory=dict)


def origins_of(mapping: Mapping, pattern: Pattern, plans: Sequence[EntityPlan]) -> list[Origins]:
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
                found.append(Origins(plan, {name: one for name, one in paired.items() if name in known}))
    most = max((len(one.of) for one in found), default=0)
    return [one for one in found if len(one.of) == most]


def redacted_params(pattern: Pattern, found: Sequence[Origins]) -> frozenset[str]:
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

    def origins(self, attributes: Sequence[str]) -> dict[str, Origin]:
        """By parameter; `attributes`: of the key that is asked. What is asked for equality goes before bounds."""
        found: dict[str, Origin] = {}
        for name, origin in self._pairs(attributes):
            if name not in found or (origin.role == "equal" and found[name].role != "equal"):
                found[name] = origin
        return found

    def _pairs(self, attributes: Sequence[str]) -> Iterator[tuple[str, Origin]]:
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


def _paired(asked: Template, stored: Form, role: Role) -> Iterator[tuple[str, Origin]]:
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
            yield one.paths[0], Origin(other, role)


def _starred(asked: Ref, stored: Ref) -> Iterator[tuple[str, Origin]]:
    """Of a place both values; of a time its bounds; a shard takes none."""
    if asked.filters[0].name == "geohash":
        yield from _values(asked, stored, "equal")
        return
    for name, role in zip(asked.paths, _ROLES["between"], strict=False):
        yield name, Origin(_plain(stored), role)


def _values(asked: Ref, stored: Ref, role: Role) -> Iterator[tuple[str, Origin]]:
    plain = _plain(stored)
    unit = next((found for used in asked.filters if (found := _unit(used))), "")
    falling = any(used.name == "desc" for used in asked.filters)
    if role == "equal" and unit:
        role = "bucket"
    elif falling and role != "equal":
        role = "high" if role == "low" else "low"
    for place, name in enumerate(asked.paths[: len(plain.paths)]):
        yield name, Origin(plain, role, place, unit)


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
