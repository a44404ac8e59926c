"""The items of a row by Python that `migrator export --as python` generates, beside those of items_for()."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

from migrator.features.exports.model import Model, RowModel, model_of
from migrator.features.exports.python.expressions import function_name
from migrator.features.exports.python.module import python_module
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.items.rows import places_of
from migrator.mapping.items.values import JSON_NULL, Undecodable
from migrator.mapping.items.wire import encode_item
from migrator.mapping.model.table import Item, RowTree
from migrator.runtime.values import replace
from tests.exports.generated import items_of, row_of

_MADE: dict[int, tuple[CompiledEntity, SimpleNamespace, RowModel]] = {}
"""By an entity's id, which no other has while it is kept."""


def generated_alike(entity: CompiledEntity, row: RowTree, made: list[Item]) -> None:
    """Asserts that the generated code makes the same items, where it makes any of this entity, out of these values."""
    _, module, model = _MADE.get(id(entity)) or _made(entity)
    if not hasattr(module, f"{function_name(model.name)}_items"):
        return
    decoded = entity.decode(row)
    if _has_odd_value(decoded) or _has_no_field(entity, model, decoded):
        return
    own = entity.table.own_attributes
    wanted = [{name: value for name, value in item.items() if name not in own} for item in made]
    found = items_of(module, model, row_of(module, entity, model, row))  # type: ignore[arg-type]
    assert list(map(encode_item, found)) == list(map(encode_item, wanted))


def _has_odd_value(decoded: Any) -> bool:
    """Whether a value is none of its column's kind, or the document `null`: no field of a class can hold it."""
    return any(
        isinstance(value, Undecodable)
        or value is JSON_NULL
        or (isinstance(value, list) and _has_odd_value(value))
        for value in decoded
    )


def _has_no_field(entity: CompiledEntity, model: RowModel, decoded: Any) -> bool:
    """Whether a value is one that no field of a class has: none where there must be one, or a moment with a zone that its
    column has not, as texts of SQLite may."""
    places, found = places_of(entity.plan), []
    for value in model.values:
        if value.path in places.lists:
            number, inner = places.lists[value.path]
            columns = [(child, inner.columns[child.path]) for child in value.children]
            found += [(one[place], child) for one in decoded[number] for child, place in columns]
        else:
            found.append((decoded[places.columns[value.path]], value))
    return any(
        not value.nullable
        if one is None
        else isinstance(one, datetime) and one.tzinfo is not None and not value.kind.zone
        for one, value in found
    )


def _made(entity: CompiledEntity) -> tuple[CompiledEntity, SimpleNamespace, RowModel]:
    mapping = entity.mapping
    described = model_of(replace(mapping, patterns={}), [entity.plan], mapping.table)
    _MADE[id(entity)] = entity, _executed(described), described.rows[0]
    return _MADE[id(entity)]


def _executed(model: Model) -> SimpleNamespace:
    space: dict[str, Any] = {"__name__": __name__}
    exec(python_module(model, [], "job.yaml", after=False)[0], space)
    return SimpleNamespace(**space)
