"""Redaction: which attributes, keys and values must be masked, and their masked text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from decimal import Decimal
from itertools import groupby
from typing import Any, TypeAlias

from msgspec import Struct

from migrator.mapping.language.plan import entities_of
from migrator.mapping.model.facts import CollectionPlan, EntityPlan, TableFacts, kept_columns, tables_of
from migrator.mapping.model.mapping import ItemDesign, Pattern, Template, paths_in
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.results import Hidden
from migrator.mapping.patterns.param_sources import (
    PlansByEntity,
    origins_of,
    plans_by_entity,
    redacted_params,
)

# ── Attributes that must not be shown: those that a pattern redacts, and others from the same columns. Pure
# ──

_WORD = re.compile(r"\w+")
_Column: TypeAlias = tuple[str | None, str, str]
"""Schema, table, column, by their real names."""


class Redaction(Struct, frozen=True):
    """`names`: written in some `redact:`.
    `columns`: behind them.
    """

    names: frozenset[str]
    columns: frozenset[_Column]

    def hidden(self, plan: EntityPlan, design: ItemDesign) -> frozenset[str]:
        hidden = self.paths(plan)
        written = {**plan.entity.attributes, **design.attributes}
        made = {name for name, value in written.items() if not hidden.isdisjoint(paths_in([value]))}
        return self.names | made | (hidden & set(kept_columns(plan, design)))

    def hides_key(self, plan: EntityPlan, template: Template) -> bool:
        return not self.paths(plan).isdisjoint(paths_in([template]))

    def paths(self, plan: EntityPlan) -> set[str]:
        hidden = {path for path, column in _places(plan).items() if column in self.columns}
        if hidden:
            hidden |= set(plan.transformed)
        hidden |= self.names
        # A computed column may reveal any column that its SQL names.
        for _, computed in plan.computed:
            words = _WORD.findall(computed.column.sql or "")
            if not hidden.isdisjoint([*words, *(f"{computed.alias}.{word}" for word in words)]):
                hidden.add(computed.path)
        return hidden


def redaction_of(mapping: MappingModel, plans: Sequence[EntityPlan]) -> Redaction:
    names = frozenset(name for pattern in mapping.patterns.values() for name in pattern.redact)
    columns = {column for plan in plans for column in _behind(plan, names)}
    by_entity = plans_by_entity(plans)
    for pattern in mapping.patterns.values():
        for plan, of in origins_of(mapping, pattern, by_entity) if pattern.redact else ():
            places = _places(plan)
            paths = [origin.path for name, origin in of.items() if name in pattern.redact]
            columns |= {places[path] for path in paths if path in places}
    return Redaction(names, frozenset(columns))


def hidden_by_pattern(mapping: MappingModel, plans: Sequence[EntityPlan]) -> dict[str, Hidden]:
    redaction = redaction_of(mapping, plans)
    by_type: dict[str, frozenset[str]] = {}
    for plan in plans:
        for design in plan.entity.items:
            by_type[design.type] = by_type.get(design.type, frozenset()) | redaction.hidden(plan, design)
    by_entity = plans_by_entity(plans)
    return {
        name: Hidden(
            _of_answers(redaction, pattern, by_type), _of_params(redaction, mapping, pattern, by_entity)
        )
        for name, pattern in mapping.patterns.items()
    }


def _of_answers(
    redaction: Redaction, pattern: Pattern, by_type: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    types = {part.type for part in pattern.parts}
    return redaction.names.union(*(names for type_, names in by_type.items() if types & {"", type_}))


def _of_params(
    redaction: Redaction, mapping: MappingModel, pattern: Pattern, plans: PlansByEntity
) -> frozenset[str]:
    if not redaction.names:
        return frozenset()
    sources = origins_of(mapping, pattern, plans)
    hidden = {
        name for plan, of in sources for name, origin in of.items() if origin.path in redaction.paths(plan)
    }
    named = redaction.names & {param.name for param in pattern.params}
    return named | hidden | redacted_params(pattern, sources)


def _behind(plan: EntityPlan, names: frozenset[str]) -> Iterator[_Column]:
    places = _places(plan)
    yield from (column for path, column in places.items() if path.rpartition(".")[2] in names)
    yield from (_column(plan.table, column.real) for column in plan.table.columns if column.name in names)
    for design in plan.entity.items:
        for name, value in {**plan.entity.attributes, **design.attributes}.items():
            if name in names:
                yield from (places[path] for path in paths_in([value]) if path in places)


def _places(plan: EntityPlan) -> dict[str, _Column]:
    columns = dict(_slots(plan))
    for collection in plan.collections:
        columns |= _children(collection)
    return columns


def _children(plan: CollectionPlan) -> dict[str, _Column]:
    alias = plan.collection.alias
    columns = {f"{alias}.{path}": column for path, column in _slots(plan)}
    if plan.column is not None:
        columns[alias] = _column(plan.table, plan.column.real)
    return columns


def _slots(plan: EntityPlan | CollectionPlan) -> Iterator[tuple[str, _Column]]:
    tables = tables_of(plan)
    for slot in plan.slots:
        if slot.alias in tables:
            yield slot.path, _column(tables[slot.alias], slot.column.real)


def _column(table: TableFacts, column: str) -> _Column:
    return table.schema, table.real, column


# ── Keys as they may be shown: parts that could name a person are replaced by a short mask ──

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TIME = re.compile(r"\d{4}-\d\d(-\d\d([T ]\d\d(:?\d\d(:?\d\d(\.\d+)?)?)?(Z|[+-]\d\d(:?\d\d)?)?)?)?")
_NUMBER = re.compile(r"-?0*(\d{0,6}(?:\.\d+)?)")
"""Numbers that a text may show: up to six digits after padding; longer ones can be a telephone's or a card's."""
_SEPARATOR = re.compile("(#)")


def key_templates(mapping: MappingModel) -> tuple[Template, ...]:
    designs = [item for entity in entities_of(mapping) for item in entity.items]
    templates = {form for design in designs for form in design.templates}
    return tuple(sorted(filter(_constant, templates), key=lambda form: (-_constant(form), form.source)))


def integers_of(key: str) -> frozenset[str]:
    values = json.loads(key) if key else []
    return frozenset(str(value) for value in values if isinstance(value, int) and not isinstance(value, bool))


def masked_keys(text: str, templates: Sequence[Template], allowed: frozenset[str] = frozenset()) -> str:
    """Masks every key (a JSON array) in the text.

    Constant texts of the templates, integers, `allowed` texts, UUIDs, dates and times are not masked.
    """
    pieces: list[str] = []
    begin = 0
    for start, end, values in _arrays(text):
        masked = [_masked(value, templates, allowed) for value in values]
        shown = json.dumps(masked, ensure_ascii=False, separators=(",", ":"))
        pieces += [text[begin:start], text[start:end] if masked == values else shown]
        begin = end
    return "".join([*pieces, text[begin:]])


def mask(text: str) -> str:
    """Four hex digits: the same for the same text, and shared by so many texts that it identifies none."""
    return f"…{hashlib.blake2b(text.encode(errors='surrogatepass'), digest_size=2).hexdigest()}"


def _arrays(text: str) -> Iterator[tuple[int, int, list[Any]]]:
    decoder, place = json.JSONDecoder(), 0
    while (start := text.find("[", place)) >= 0:
        try:
            values, place = decoder.raw_decode(text, start)
        except ValueError:
            place = start + 1
        else:
            yield start, place, values


def _masked(value: Any, templates: Sequence[Template], allowed: frozenset[str]) -> Any:
    if isinstance(value, str):
        pieces = next((fitted for form in templates if (fitted := _fitted(form, value)) is not None), None)
        if pieces is None:
            pieces = [(piece, piece == "#") for piece in _SEPARATOR.split(value)]
        return "".join(piece if constant else _part(piece, allowed) for piece, constant in pieces)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return mask(json.dumps(value, sort_keys=True))


def _part(text: str, allowed: frozenset[str]) -> str:
    number = _NUMBER.fullmatch(text)
    plain = number is not None or _UUID.fullmatch(text) or _TIME.fullmatch(text)
    return text if not text or plain or (text.lstrip("0") or "0") in allowed else mask(text)


def _fitted(form: Template, text: str) -> list[tuple[str, bool]] | None:
    pieces: list[tuple[str, bool]] = []
    place, parts = 0, _parts(form)
    for number, part in enumerate(parts):
        if part is None:
            continue
        start = len(text) - len(part) if number == len(parts) - 1 else text.find(part, place)
        open_before = number > 0
        if start < place or not text.startswith(part, start) or (start > place and not open_before):
            return None
        pieces += [(text[place:start], False), (part, True)]
        place = start + len(part)
    if place < len(text) and (not parts or parts[-1] is not None):
        return None
    return [*pieces, (text[place:], False)]


def _parts(form: Template) -> list[str | None]:
    runs = groupby(form.parts, key=lambda part: isinstance(part, str))
    return ["".join(map(str, run)) if constant else None for constant, run in runs]


def _constant(form: Template) -> int:
    return sum(len(part) for part in form.parts if isinstance(part, str))


# ── Values of rows and items as text that may be shown, with a pattern's redactions masked. Pure ──


def json_ready(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: json_ready(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(inner) for inner in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else value
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode("ascii")}
    return value


def value_mask(value: Any) -> str:
    return mask(json.dumps(json_ready(value), sort_keys=True, default=str))


def json_text(value: Any, *, indent: int = 0) -> str:
    """JSON with every digit of a number. `indent`: spaces a level, one entry a line."""
    return _text(json_ready(value), indent)


def value_text(value: Any, *, redacted: bool = False) -> str:
    """JSON with every digit of a number, so that 9.90 and "9.90" differ; a mask if redacted. NULL is never masked."""
    return value_mask(value) if redacted and value is not None else _text(value)


def value_texts(names: Sequence[str], values: Sequence[Any], hidden: Set[str]) -> tuple[str, ...]:
    pairs = zip(names, values, strict=True)
    return tuple(value_text(value, redacted=name in hidden) for name, value in pairs)


def _text(value: Any, indent: int = 0, level: int = 1) -> str:
    if isinstance(value, Mapping):
        named = ((json.dumps(str(name), ensure_ascii=False), inner) for name, inner in value.items())
        return _joined(
            "{}", [f"{name}: {_text(inner, indent, level + 1)}" for name, inner in named], indent, level
        )
    if isinstance(value, (list, tuple)):
        return _joined("[]", [_text(inner, indent, level + 1) for inner in value], indent, level)
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(json_ready(value), ensure_ascii=False, default=str)


def _joined(brackets: str, pieces: Sequence[str], indent: int, level: int) -> str:
    if not indent or not pieces:
        return f"{brackets[0]}{', '.join(pieces)}{brackets[1]}"
    line, last = ("\n" + " " * indent * deep for deep in (level, level - 1))
    return f"{brackets[0]}{line}{f',{line}'.join(pieces)}{last}{brackets[1]}"
