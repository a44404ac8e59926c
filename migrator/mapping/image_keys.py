"""The item keys that a changed row had, or has, worked out from an image of it: pure, without the row tree."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Dict
from typing import Any, TypeAlias

from migrator.errors import RowError
from migrator.facts import EntityPlan
from migrator.mapping.changes import image_places, template_paths
from migrator.mapping.expressions import Places
from migrator.mapping.filters import Surroundings
from migrator.mapping.item_keys import Step, compile_base_key
from migrator.mapping.unfit import NoFormError, Unfit, of_column
from migrator.mapping.values import Decoder, decoder
from migrator.model import Item, ItemDesign, ItemKey, Mapping, TableDesign

ImageKeys: TypeAlias = Callable[[Dict[str, Any]], frozenset[ItemKey]]
"""From an image (values by written name, as the driver gives them) to item keys.

Raises: KeyError where the image lacks a column that a key is made of: it was left for another mapping.
"""


def no_keys(image: Dict[str, Any]) -> frozenset[ItemKey]:
    """ImageKeys of an entity whose keys are remembered."""
    return frozenset()


def compile_image_keys(mapping: Mapping, plan: EntityPlan) -> ImageKeys:
    """A function giving the base keys of the entity's items, whether their `when` holds or not.

    A key that the heart would refuse (a NULL, too long) is none. Designs whose key is made of more than columns of the
    root give none either: their keys are remembered (see changes.needs_memory).
    """
    around = Surroundings(mapping.table.separator, mapping.maps, mapping.timezone)
    places = image_places(plan)
    decoders = {slot.path: decoder(slot.column.kind) for slot in plan.slots if slot.path in places.columns}
    getters = [
        _getter(mapping.table, design, places, decoders, around)
        for design in plan.entity.items
        if template_paths(design.key) <= places.columns.keys()
    ]

    def keys(image: Dict[str, Any]) -> frozenset[ItemKey]:
        found = (get(image) for get in getters)
        return frozenset(key for key in found if key is not None)

    return keys


def _getter(
    table: TableDesign,
    design: ItemDesign,
    places: Places,
    decoders: Dict[str, Decoder],
    around: Surroundings,
) -> Callable[[Dict[str, Any]], ItemKey | None]:
    base = compile_base_key(table, design, places, around)
    # Its own columns alone: one that cannot be read refuses no key that it is no part of.
    wanted = {path: decoders[path] for path in places.columns if path in template_paths(design.key)}

    def get(image: Dict[str, Any]) -> ItemKey | None:
        return _key(table, base, _row(places, wanted, image))

    return get


def _key(table: TableDesign, base: Step, row: list[Any] | None) -> ItemKey | None:
    item: Item = {}
    if row is None:
        return None
    try:
        base(row, item)
    except RowError:
        return None
    return table.key_of(item)


def _row(places: Places, wanted: Dict[str, Decoder], image: Dict[str, Any]) -> list[Any] | None:
    """The decoded row, None in places that are not wanted; None where the heart would refuse the row."""
    row: list[Any] = [None] * len(places.columns)
    for path, decode in wanted.items():
        try:
            row[places.columns[path]] = decode(image[path])
        except NoFormError as error:
            row[places.columns[path]] = Unfit(error.text, of_column(path, error))
        except RowError:
            return None
    return row
