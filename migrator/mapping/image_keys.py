"""The base keys that a root row had, from the image that a mark holds of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from migrator.errors import RowError
from migrator.facts import EntityPlan
from migrator.mapping.changes import image_places
from migrator.mapping.filters import Surroundings
from migrator.mapping.items import base_key
from migrator.mapping.values import decoder
from migrator.model import Item, ItemKey
from migrator.model import Mapping as MappingFile

ImageKeys = Callable[[Mapping[str, Any]], frozenset[ItemKey]]


def compile_image_keys(mapping: MappingFile, plan: EntityPlan) -> ImageKeys:
    """A function from an image to the keys of all the entity's items, as if every `when` held.

    A key that the heart would refuse is none; nor is one that is made of more than the root row (it is remembered).
    Raises, from the function: KeyError where the image lacks a column.
    """
    table, places = mapping.table, image_places(plan)
    around = Surroundings(table.separator, mapping.maps, mapping.timezone)
    columns = {slot.path: slot.column for slot in plan.slots if slot.alias == ""}
    steps = [(path, decoder(columns[path].kind)) for path in places.columns]
    makers = [
        base_key(table, item, places, around)
        for item in plan.entity.items
        if all(path in places.columns for part in item.key for ref in part.refs for path in ref.paths)
    ]

    def keys(image: Mapping[str, Any]) -> frozenset[ItemKey]:
        row = [step(image[path]) for path, step in steps]
        found = set()
        for make in makers:
            item: Item = {}
            try:
                make(row, item)
            except RowError:
                continue
            found.add(table.key_of(item))
        return frozenset(found)

    return keys
