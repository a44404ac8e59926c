"""From the images of a mark to the root rows that it touches: those named outright, and lookups for the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from migrator.mapping.changes import Captured, Lookup
from migrator.mapping.image_keys import ImageKeys
from migrator.mapping.keys import encode_key
from migrator.model import ItemKey, SourceKey

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
