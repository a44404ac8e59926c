"""From the images of a mark to the root rows and item keys that a change affects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Mapping as Dict
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from migrator.mapping.heart.changes import image_places, template_paths
from migrator.mapping.heart.expressions import Places
from migrator.mapping.heart.filters import FilterContext
from migrator.mapping.heart.items import Step, compile_base_key
from migrator.mapping.heart.scalars import NoFormError, Undecodable, of_column
from migrator.mapping.heart.values import Decoder, decoder
from migrator.model.capture import Captured, Lookup
from migrator.model.entities import ItemDesign
from migrator.model.entities import Mapping as MappingModel
from migrator.model.errors import RowError
from migrator.model.facts import EntityPlan
from migrator.model.keys import encode_key
from migrator.model.table import Item, ItemKey, SourceKey, TableDesign

# ──
# The item keys that a changed row had, or has, worked out from an image of it: pure, without the row tree.

ImageKeys: TypeAlias = Callable[[Dict[str, Any]], frozenset[ItemKey]]
"""From an image (values by written name, as the driver gives them) to item keys.

Raises: KeyError where the image lacks a column that a key is made of: it was left for another mapping.
"""


def no_keys(image: Dict[str, Any]) -> frozenset[ItemKey]:
    """ImageKeys of an entity whose keys are remembered."""
    return frozenset()


def compile_image_keys(mapping: MappingModel, plan: EntityPlan) -> ImageKeys:
    """A function giving the base keys of the entity's items, whether their `when` holds or not.

    A key that `items_for` would refuse (a NULL, too long) is none. Designs whose key is made of more than columns of the
    root give none either: their keys are remembered (see changes.needs_memory).
    """
    around = FilterContext(mapping.table.separator, mapping.maps, mapping.timezone)
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
    around: FilterContext,
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
    """The decoded row, None in places that are not wanted; None where `items_for` would refuse the row."""
    row: list[Any] = [None] * len(places.columns)
    for path, decode in wanted.items():
        try:
            row[places.columns[path]] = decode(image[path])
        except NoFormError as error:
            row[places.columns[path]] = Undecodable(error.text, of_column(path, error))
        except RowError:
            return None
    return row


# ──
# From the images of a mark to the root rows that it touches: those named outright, and lookups for the
# others.

Root: TypeAlias = tuple[str, SourceKey]
Image: TypeAlias = Mapping[str, Any]


@dataclass
class Reach:
    """`roots`: with the item keys that they had or have. `steps`: lookups and the values that each begins from.

    `blind`: entities whose old keys the images cannot tell, because they lack columns of the mapping.
    """

    roots: dict[Root, set[ItemKey]] = field(default_factory=dict)
    steps: list[tuple[Lookup, tuple[Any, ...]]] = field(default_factory=list)
    blind: set[str] = field(default_factory=set)


def reach_of(
    captured: Captured,
    keys: Mapping[str, ImageKeys],
    before: Image | None,
    after: Image | None,
) -> Reach:
    """What a change touches, before and after it; a NULL leads nowhere."""
    reach = Reach()
    seen: set[tuple[int, tuple[str, ...]]] = set()
    for image in (before, after):
        if image is None:
            continue
        for number, lookup in enumerate(captured.lookups):
            if any(image.get(name) is None for name in lookup.values):
                reach.blind |= {lookup.entity} if not image.keys() >= set(lookup.values) else set()
                continue
            values = tuple(image[name] for name in lookup.values)
            if lookup.is_root:
                _add_root(reach, lookup.entity, values, keys[lookup.entity], image)
            elif (place := (number, tuple(map(repr, values)))) not in seen:
                seen.add(place)
                reach.steps.append((lookup, values))
    return reach


def _add_root(reach: Reach, entity: str, values: tuple[Any, ...], keys: ImageKeys, image: Image) -> None:
    had = reach.roots.setdefault((entity, encode_key(values)), set())
    try:
        had |= keys(image)
    except KeyError:
        reach.blind.add(entity)
