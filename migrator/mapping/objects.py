"""What the items of an entity only point to, as functions of a decoded row."""

from __future__ import annotations

from collections.abc import Callable

from migrator.mapping.expressions import Places, Row, compile_conditions, compile_value
from migrator.mapping.filters import Surroundings
from migrator.mapping.stored import Content, content_of
from migrator.model import Entity, Stored


def compile_contents(
    entity: Entity, places: Places, around: Surroundings
) -> tuple[Callable[[Row], Content | None], ...]:
    """For each stored attribute of each item a function giving what S3 is to keep; None where nothing."""
    return tuple(
        _content(one, places, around, compile_conditions(item.when, places))
        for item in entity.items
        for one in {**entity.attributes, **item.attributes}.values()
        if isinstance(one, Stored)
    )


def _content(
    stored: Stored, places: Places, around: Surroundings, when: Callable[[Row], bool] | None
) -> Callable[[Row], Content | None]:
    value = compile_value(stored.value, places, around)
    return lambda row: None if when is not None and not when(row) else content_of(value(row), stored.over)
