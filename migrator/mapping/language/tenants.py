"""An entity for every schema that the mapping reads: {@schema} is a constant in each."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Dict
from dataclasses import replace

from migrator.model.entities import Entity, IndexEntry, ItemDesign, Mapping
from migrator.model.expressions import (
    SCHEMA_PATH,
    Const,
    Each,
    Expression,
    Filter,
    MapOf,
    Ref,
    Stored,
    Template,
)

_TEXTS: dict[str, Callable[[str], str]] = {"lower": str.lower, "upper": str.upper, "text": str}
"""Filters that a schema's name may take."""


def entities_of(mapping: Mapping) -> tuple[Entity, ...]:
    """The mapping's entities; one for every schema, called name@schema, where it reads several."""
    if not mapping.schemas:
        return tuple(mapping.entities.values())
    return tuple(_in(schema, entity) for schema in mapping.schemas for entity in mapping.entities.values())


def schema_fault(ref: Ref, mapping: Mapping) -> str:
    """What is wrong with a reference to @schema; '' for any other."""
    if SCHEMA_PATH not in ref.paths:
        return ""
    if not mapping.schemas:
        return "'@schema' stands for one of source.schemas; write source: {schemas: […]}"
    wrong = [used.name for used in ref.filters if used.name not in _TEXTS]
    if len(ref.paths) > 1 or ref.format is not None or wrong:
        return f"'@schema' takes no format, and of the filters {', '.join(_TEXTS)}"
    return ""


def _in(schema: str, entity: Entity) -> Entity:
    return replace(
        entity,
        name=f"{entity.name}@{schema}",
        schema=schema,
        items=tuple(_item(schema, item) for item in entity.items),
        attributes=_values(schema, entity.attributes),
    )


def _item(schema: str, item: ItemDesign) -> ItemDesign:
    return replace(
        item,
        key=tuple(_template(schema, template) for template in item.key),
        entries=tuple(_entry(schema, entry) for entry in item.entries),
        attributes=_values(schema, item.attributes),
    )


def _entry(schema: str, entry: IndexEntry) -> IndexEntry:
    return replace(entry, values=tuple(_template(schema, template) for template in entry.values))


def _values(schema: str, values: Dict[str, Expression]) -> dict[str, Expression]:
    return {name: _value(schema, value) for name, value in values.items()}


def _value(schema: str, value: Expression) -> Expression:
    if isinstance(value, Ref):
        return Const(_text(schema, value.filters)) if value.paths == (SCHEMA_PATH,) else value
    if isinstance(value, Template):
        return _template(schema, value)
    if isinstance(value, MapOf):
        return MapOf(_values(schema, value.entries))
    if isinstance(value, Each):
        return replace(value, attributes=_values(schema, value.attributes))
    return replace(value, value=_value(schema, value.value)) if isinstance(value, Stored) else value


def _template(schema: str, template: Template) -> Template:
    """The template with the schema's name in it; literals that meet become one."""
    parts: list[str | Ref] = []
    for part in template.parts:
        made = _text(schema, part.filters) if isinstance(part, Ref) and part.paths == (SCHEMA_PATH,) else part
        if isinstance(made, str) and parts and isinstance(parts[-1], str):
            made = f"{parts.pop()}{made}"
        parts.append(made)
    return replace(template, parts=tuple(parts))


def _text(schema: str, filters: tuple[Filter, ...]) -> str:
    for used in filters:
        schema = _TEXTS[used.name](schema) if used.name in _TEXTS else schema
    return schema
