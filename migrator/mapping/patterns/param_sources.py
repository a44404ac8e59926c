"""Sources of parameters: the columns and key templates that a pattern's key can reach; and rows by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as Dict
from decimal import Context, Decimal
from functools import lru_cache
from itertools import islice, product
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from migrator.mapping.items.filters import FILTERS, specs_of, texts_of, unit_of
from migrator.mapping.model.facts import Column, EntityPlan, Lookup, attributes_of
from migrator.mapping.model.mapping import (
    Const,
    Entity,
    Expression,
    ItemDesign,
    Mapping,
    Operator,
    Part,
    Pattern,
    Ref,
    SortCondition,
    Template,
    paths_in,
)
from migrator.mapping.model.table import Index, Value
from migrator.runtime.values import replace

# ── The keys of items in the table or in an index, as defined by the mapping ──

Form = Template | None
"""The template of a key attribute; None for a plain attribute, which matches any template."""


class StoredKey(Struct, frozen=True):
    partition: tuple[Form, ...]
    sort: tuple[Form, ...]
    entity: Entity
    item: ItemDesign

    @property
    def forms(self) -> tuple[Form, ...]:
        return (*self.partition, *self.sort)

    @property
    def templates(self) -> list[Template]:
        return [form for form in self.forms if form is not None]


@lru_cache(maxsize=64)
def stored_keys(mapping: Mapping, index: Index) -> Sequence[StoredKey]:
    count = len(index.partition)
    keys = []
    for entity in mapping.entities.values():
        for item in entity.items:
            forms = forms_of(mapping, entity, item, index)
            # An item that lacks one attribute of an index's key is not in the index.
            if len(forms) == len(index.attributes):
                keys.append(StoredKey(tuple(forms[:count]), tuple(forms[count:]), entity, item))
    return keys


@lru_cache(maxsize=64)
def _by_partition(mapping: Mapping, index: Index) -> Dict[tuple[str, ...], list[StoredKey]]:
    found: dict[tuple[str, ...], list[StoredKey]] = {}
    for key in stored_keys(mapping, index):
        found.setdefault(tuple(map(_form_text, key.partition)), []).append(key)
    return found


def matching_keys(mapping: Mapping, wanted: Sequence[Template], index: Index) -> Iterator[StoredKey]:
    by_partition = _by_partition(mapping, index)
    # A plain attribute matches any template.
    places = ((_form_text(template), _ANY_FORM) for template in wanted)
    for forms in dict.fromkeys(product(*places)):
        yield from by_partition.get(forms, ())


def key_forms(pattern: Pattern) -> tuple[Template, ...]:
    star = pattern.star
    if star is None or pattern.operation == "query":
        return pattern.key
    first, *_ = texts_of(star.filters[0], ())
    return tuple(template.with_star(first) for template in pattern.key)


def reachable_keys(mapping: Mapping, pattern: Pattern, index: Index) -> Sequence[StoredKey]:
    reached = _reached(mapping, index)
    asked, keys = reached.get(pattern.name, (None, ()))
    if asked is not pattern:
        keys = [
            key
            for key in matching_keys(mapping, key_forms(pattern), index)
            if all(map(may_give, pattern.sort, key.sort))
        ]
        reached[pattern.name] = pattern, keys
    return keys


@lru_cache(maxsize=64)
def _reached(mapping: Mapping, index: Index) -> dict[str, tuple[Pattern, Sequence[StoredKey]]]:
    """Reachable keys by the pattern's name: a check reads those of a pattern eight times."""
    return {}


def typed_parts(mapping: Mapping, pattern: Pattern) -> tuple[Part, ...]:
    """The pattern's parts. One without an item type has that of the pattern's key, if the key gives one type.

    Items of other types may have attributes of the same names, made from columns of other types.
    """
    index = mapping.table.asked(pattern.index)
    keys = reachable_keys(mapping, pattern, index) if index is not None else ()
    types = {key.item.type for key in keys}
    type_ = types.pop() if len(types) == 1 else ""
    return tuple(part if part.type else replace(part, type=type_) for part in pattern.parts)


def may_give(condition: SortCondition, stored: Form) -> bool:
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
    # A longer key with this beginning is also larger: nothing is below the beginning itself.
    return _at_most(begin, open_end or condition.operator == "lt", bounds[0])


def _beginning(template: Template) -> tuple[str, bool]:
    return template.beginning, len(template.parts) > bool(template.beginning)


def _at_least(begin: str, open_end: bool, bound: str) -> bool:
    return begin >= bound or (open_end and bound.startswith(begin))


def _at_most(begin: str, beyond: bool, bound: tuple[str, bool]) -> bool:
    text, open_end = bound
    if open_end:
        return begin <= text or begin.startswith(text)
    return begin < text or (begin == text and not beyond)


def forms_of(mapping: Mapping, entity: Entity, item: ItemDesign, index: Index) -> list[Form]:
    entry = next((entry.values for entry in item.entries if entry.index == index.name), ())
    attributes = {**entity.attributes, **item.attributes}
    keys = {attribute.name: form for attribute, form in zip(mapping.table.key, item.key, strict=False)}
    own = index.own_attributes(mapping.table)
    keys |= {attribute.name: form for attribute, form in zip(own, entry, strict=False)}
    forms: list[Form] = []
    for name in (attribute.name for attribute in index.attributes):
        if name in keys:
            forms.append(keys[name])
        elif name in attributes:
            forms.append(_attribute_form(attributes[name]))
        elif _keeps(mapping, item, index, name):
            forms.append(None)
        else:
            break
    return forms


def same_forms(templates: Sequence[Template], stored: Sequence[Form]) -> bool:
    return all(
        form is None or _form(template) == _form(form)
        for template, form in zip(templates, stored, strict=False)
    )


def same_ref(wanted: Ref, stored: Ref) -> bool:
    return _ref_form(wanted) == _ref_form(stored)


def shown(forms: Sequence[Sequence[Form]]) -> str:
    texts = {
        " + ".join("(an attribute)" if template is None else template.source for template in form)
        for form in forms
    }
    return ", ".join(sorted(texts)) or "none"


def _attribute_form(expression: Expression) -> Form:
    if isinstance(expression, Const):
        return Template((str(expression.value),), str(expression.value))
    return expression if isinstance(expression, Template) else None


def _keeps(mapping: Mapping, item: ItemDesign, index: Index, name: str) -> bool:
    if isinstance(item.keep, tuple):
        return name in item.keep
    if item.keep != "all" or name in item.keep_except:
        return False
    return index.name not in _entered(mapping)


@lru_cache(maxsize=64)
def _entered(mapping: Mapping) -> frozenset[str]:
    designs = (design for entity in mapping.entities.values() for design in entity.items)
    return frozenset(entry.index for design in designs for entry in design.entries)


_ANY_FORM = ""


def _form_text(template: Form) -> str:
    return _ANY_FORM if template is None else repr(_form(template))


def _form(template: Template) -> list[object]:
    return [part if isinstance(part, str) else _ref_form(part) for part in template.parts]


def _ref_form(ref: Ref) -> tuple[object, ...]:
    specs = specs_of(ref)
    # A filter's result from a whole list (a path, a depth) is a pattern's parameter in its stored form.
    joined = [place for place, spec in enumerate(specs) if spec.of_list and not spec.same_kind]
    filters = ref.filters[joined[0] + 1 :] if joined else ref.filters
    kept = [unit_of(used) or used for used in filters if not FILTERS[used.name].same_kind]
    return None if joined else ref.format, kept


# ── Sources of a pattern's parameters: columns of the entities with items that its key can reach. Pure ──

Role = Literal["equal", "low", "high", "bucket"]
"""How a parameter is compared: for equality, as a bound, or by the time bucket that it falls into."""


class ParamSource(Struct, frozen=True):
    """A row's value that gives the parameter.

    `place`: the index in `ref.paths`.
    `unit`: length of a bucket.
    """

    ref: Ref
    role: Role = "equal"
    place: int = 0
    unit: str = ""

    @property
    def path(self) -> str:
        return self.ref.paths[self.place]


EntityParamSources: TypeAlias = tuple[EntityPlan, Dict[str, ParamSource]]
"""An entity with rows that give parameters, and the sources by parameter name."""
PlansByEntity = Dict[str, Sequence[EntityPlan]]


def plans_by_entity(plans: Iterable[EntityPlan]) -> PlansByEntity:
    by_entity: dict[str, list[EntityPlan]] = {}
    for plan in plans:
        by_entity.setdefault(plan.entity.written, []).append(plan)
    return by_entity


def origins_of(mapping: Mapping, pattern: Pattern, plans: PlansByEntity) -> list[EntityParamSources]:
    index = mapping.table.asked(pattern.index)
    assert index is not None
    names = {param.name for param in pattern.params}
    sources = []
    for key in reachable_keys(mapping, pattern, index):
        for plan in plans.get(key.entity.name, ()):
            design = next(item for item in plan.entity.items if item.type == key.item.type)
            by_name: dict[str, ParamSource] = {}
            for name, source in _pairs(pattern, key, attributes_of(plan, design), index):
                # Equality before bounds.
                is_better = source.role == "equal" and by_name.get(name, source).role != "equal"
                if name in names and (name not in by_name or is_better):
                    by_name[name] = source
            sources.append((plan, by_name))
    most = max((len(of) for _, of in sources), default=0)
    return [(plan, of) for plan, of in sources if len(of) == most]


def redacted_params(pattern: Pattern, sources: Sequence[EntityParamSources]) -> frozenset[str]:
    hidden = {param.name for param in pattern.params} & set(pattern.redact)
    for plan, of in sources:
        entity = plan.entity
        written = [entity.attributes, *(item.attributes for item in entity.items)]
        behind = [attributes[name] for attributes in written for name in pattern.redact if name in attributes]
        paths = set(paths_in(behind))
        hidden |= {name for name, origin in of.items() if origin.path in paths | set(pattern.redact)}
    return frozenset(hidden)


def _pairs(
    pattern: Pattern, key: StoredKey, written: Dict[str, Expression], index: Index
) -> Iterator[tuple[str, ParamSource]]:
    count, stored = len(key.partition), zip(index.attributes, key.forms, strict=False)
    forms = [_written_form(written, attribute.name, form) for attribute, form in stored]
    for template, form in zip(key_forms(pattern), forms[:count], strict=False):
        yield from _paired(template, form, "equal")
    for condition, form in zip(pattern.sort, forms[count:], strict=False):
        for role, template in zip(_ROLES[condition.operator], condition.values, strict=False):
            yield from _paired(template, form, role)
    for comparison in pattern.filters:
        form = _written_form(written, comparison.attribute)
        for role, value in zip(_ROLES[comparison.operator], comparison.values, strict=False):
            if isinstance(value, (Ref, Template)):
                yield from _paired(_as_template(value), form, role)


def _written_form(written: Dict[str, Expression], name: str, form: Form = None) -> Form:
    expression = written.get(name) if form is None else form
    return _as_template(expression) if isinstance(expression, (Ref, Template)) else None


def _as_template(expression: Ref | Template) -> Template:
    return expression if isinstance(expression, Template) else Template((expression,))


_ROLES: dict[Operator, tuple[Role, ...]] = {
    "equal": ("equal", "equal"),
    "begins_with": ("equal", "equal"),
    "between": ("low", "high"),
    "ge": ("low", "low"),
    "gt": ("low", "low"),
    "le": ("high", "high"),
    "lt": ("high", "high"),
    "exists": (),
    "absent": (),
}


def _paired(template: Template, stored: Form, role: Role) -> Iterator[tuple[str, ParamSource]]:
    if stored is None:
        return
    for ref, stored_ref in zip(template.refs, stored.refs, strict=False):
        if ref.every:
            yield from _starred(ref, stored_ref)
        elif same_ref(ref, stored_ref) or (_writes_time(ref) and _writes_time(stored_ref)):
            yield from _values(ref, stored_ref, role)
        elif not ref.filters and ref.format is None:
            # The parameter is the text that the filters made.
            yield ref.paths[0], ParamSource(stored_ref, role)


def _starred(ref: Ref, stored: Ref) -> Iterator[tuple[str, ParamSource]]:
    way = FILTERS[ref.filters[0].name].way
    if way is not None and way.of == "place":
        yield from _values(ref, stored, "equal")
        return
    for name, role in zip(ref.paths, _ROLES["between"], strict=False):
        yield name, ParamSource(_plain(stored), role)


def _values(ref: Ref, stored: Ref, role: Role) -> Iterator[tuple[str, ParamSource]]:
    plain = _plain(stored)
    unit = next((bucket_unit for used in ref.filters if (bucket_unit := unit_of(used))), "")
    falling = any(spec.order == "reversed" for spec in specs_of(ref))
    if role == "equal" and unit:
        role = "bucket"
    elif falling and role != "equal":
        role = "high" if role == "low" else "low"
    for place, name in enumerate(ref.paths[: len(plain.paths)]):
        yield name, ParamSource(plain, role, place, unit)


def _writes_time(ref: Ref) -> bool:
    return any(spec.writes_time for spec in specs_of(ref))


def _plain(ref: Ref) -> Ref:
    lists = [place for place, spec in enumerate(specs_of(ref)) if spec.of_list]
    if not lists:
        return replace(ref, format=None, filters=())
    chosen = FILTERS[ref.filters[lists[0]].name].same_kind
    return replace(ref, format=None if chosen else ref.format, filters=ref.filters[: lists[0] + 1])


_EXACT = Context(prec=400)
_READINGS = 16
"""The most ways to divide a key's text among a template's references; beyond, the key is not used to find rows."""
_KINDS = frozenset({"integer", "text", "number", "uuid"})
"""Kinds of columns with a text in a key that can be bound as the column's value."""
_LOOSE_KINDS = frozenset({"integer", "text"})
"""The kinds if the source keeps values in other forms than the column's type."""


class AskedKey(Struct, frozen=True):
    """The key of an item collection: of the table (an index without a name) or an index.

    `sort`: the prefix of the first part of the sort key, or its value if it is not text; '' matches all.
    """

    index: Index
    partition: tuple[Value, ...]
    sort: Value = ""

    def holds(self, item: Dict[str, Value]) -> bool:
        names = [attribute.name for attribute in self.index.attributes]
        if any(item.get(name) is None for name in names):
            return False
        own = tuple(item[attribute.name] for attribute in self.index.partition)
        return own == self.partition and self._begins(item)

    def _begins(self, item: Dict[str, Value]) -> bool:
        if self.sort == "":
            return True
        value = item[self.index.sort[0].name]
        if isinstance(value, str) and isinstance(self.sort, str):
            return value.startswith(self.sort)
        return value == self.sort


class RowLookup(Struct, frozen=True):
    """Rows of an entity that may make an item under a key. `lookup` None: any row."""

    lookup: Lookup | None = None
    values: tuple[Any, ...] = ()


_Texts: TypeAlias = dict[str, str]
"""Values of columns in a key, by their paths."""


def row_lookups(mapping: Mapping, plan: EntityPlan, asked: AskedKey) -> list[RowLookup]:
    """Lookups; none if no item of the entity can have the key.

    They find more rows than make such an item, never fewer.
    """
    lookups: dict[str, RowLookup] = {}
    for design in plan.entity.items:
        forms = forms_of(mapping, plan.entity, design, asked.index)
        if len(forms) != len(asked.index.attributes):
            continue  # it is not in the index
        names, written = [attribute.name for attribute in asked.index.attributes], attributes_of(plan, design)
        templates = [_written_form(written, name, form) for name, form in zip(names, forms, strict=True)]
        for lookup in _of_design(plan, templates[: len(asked.partition)], asked):
            lookups[repr(lookup)] = lookup
    if any(found.lookup is None for found in lookups.values()):
        return [RowLookup()]
    return list(lookups.values())


def _of_design(
    plan: EntityPlan, templates: Sequence[Template | None], asked: AskedKey
) -> Iterator[RowLookup]:
    readings: list[_Texts] = [{}]
    for template, value in zip(templates, asked.partition, strict=True):
        if template is not None:
            # One more than is used: a text of separators alone has too many readings to list.
            own = list(islice(_readings(template, str(value)), _READINGS + 1))
            readings = [{**one, **other} for one in readings for other in own]
    if len(readings) > _READINGS:
        yield RowLookup()
        return
    yield from (lookup for reading in readings if (lookup := _lookup(plan, reading)) is not None)


def _readings(template: Template, text: str, at: int = 0, place: int = 0) -> Iterator[_Texts]:
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
    kinds = _LOOSE_KINDS if plan.loosely_typed else _KINDS
    slots = [
        slot
        for slot in plan.slots
        # Rows cannot be found by values that SQL or a transform makes.
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
    """The value as from the source's driver, so that its text is that of a row's key.

    Raises: ValueError or ArithmeticError if it is not a value of the column's type.
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
    return -(2**63) <= number < 2**64


def _storable(number: int) -> int:
    if not is_held(number):
        raise ValueError("no source stores it")
    return number
