"""From the images of a mark to the root rows and item keys that a change affects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Mapping as Dict
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from migrator.mapping.items.changes import image_places, needs_memory
from migrator.mapping.items.filters import FilterContext
from migrator.mapping.items.items import Step, compile_base_key
from migrator.mapping.items.program import base_key
from migrator.mapping.items.rows import Places
from migrator.mapping.items.scalars import NoFormError, Undecodable, of_column
from migrator.mapping.items.values import Decoder, decoder
from migrator.mapping.model.facts import Captured, EntityPlan, Lookup
from migrator.mapping.model.mapping import ItemDesign, paths_in
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.table import Item, ItemKey, SourceKey, TableDesign, encode_key
from migrator.runtime.errors import RowError

# ── Item keys of a changed row, computed from its image without the row tree. Pure ──

ImageKeys: TypeAlias = Callable[[Dict[str, Any]], frozenset[ItemKey]]
"""From an image (values by written name, as the driver gives them) to item keys.

Raises: KeyError where the image lacks a column that a key is made of: it was left for another mapping.
"""


def no_keys(image: Dict[str, Any]) -> frozenset[ItemKey]:
    """ImageKeys of an entity whose keys are remembered."""
    return frozenset()


def image_keys(mapping: MappingModel, plan: EntityPlan) -> ImageKeys:
    """ImageKeys of the entity; `no_keys` if its keys are remembered, as the image may be of another row (see `changes:` in
    the mapping)."""
    return no_keys if needs_memory(plan) else compile_image_keys(mapping, plan)


def compile_image_keys(mapping: MappingModel, plan: EntityPlan) -> ImageKeys:
    """A function giving the base keys of the entity's items, whether their `when` holds or not.

    A key that `items_for` would refuse (a NULL, too long) is left out, and so are designs whose key needs more than
    columns of the root: their keys are remembered (see changes.needs_memory).
    """
    around = FilterContext(mapping.table.separator, mapping.maps, mapping.timezone)
    places = image_places(plan)
    decoders = {slot.path: decoder(slot.column.kind) for slot in plan.slots if slot.path in places.columns}
    getters = [
        _getter(mapping.table, design, places, decoders, around)
        for design in plan.entity.items
        if places.columns.keys() >= set(paths_in(design.key))
    ]

    def keys(image: Dict[str, Any]) -> frozenset[ItemKey]:
        item_keys = (get(image) for get in getters)
        return frozenset(key for key in item_keys if key is not None)

    return keys


def _getter(
    table: TableDesign,
    design: ItemDesign,
    places: Places,
    decoders: Dict[str, Decoder],
    around: FilterContext,
) -> Callable[[Dict[str, Any]], ItemKey | None]:
    base = compile_base_key(base_key(table, design), places, around)
    # Only the columns of this key: an undecodable column elsewhere must not refuse it.
    wanted = {path: decoders[path] for path in dict.fromkeys(paths_in(design.key))}

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


# ── Root rows that a change affects, from the images of a mark: named directly, or found by lookups ──

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
    """The root rows that a change affects, before and after it; a NULL refers to no row."""
    reach = Reach()
    seen: set[tuple[int, tuple[str, ...]]] = set()
    for image in (before,) if after is before else (before, after):
        if image is None:
            continue
        for number, lookup in enumerate(captured.lookups):
            if any(image.get(name) is None for name in lookup.values):
                reach.blind |= {lookup.entity} if not image.keys() >= set(lookup.values) else set()
                continue
            values = tuple(image[name] for name in lookup.values)
            if lookup.is_root:
                _add_root(reach, lookup.entity, values, keys[lookup.entity], image)
            elif (step_key := (number, tuple(map(repr, values)))) not in seen:
                seen.add(step_key)
                reach.steps.append((lookup, values))
    return reach


def _add_root(reach: Reach, entity: str, values: tuple[Any, ...], keys: ImageKeys, image: Image) -> None:
    had = reach.roots.setdefault((entity, encode_key(values)), set())
    try:
        had |= keys(image)
    except KeyError:
        reach.blind.add(entity)
