"""What is written of an entity's rows where only a part of it changes: item types, and tombstones where older keys were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from migrator.mapping.difference.difference import EntityDifference
from migrator.mapping.items.encoder import Encoder, compile_encoder, encode_page
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.edges import Rows
from migrator.mapping.model.journal import Page
from migrator.mapping.model.live import Root
from migrator.mapping.model.table import EncodedItem, ItemKey

RootKeys = Mapping[Root, set[ItemKey]]


def none_had() -> RootKeys:
    """Of rows that have no keys by an older mapping."""
    return {}


@dataclass(frozen=True)
class Only:
    """`types`: of items that are sent; None for all. `is_new`: whether their keys are thought to be free. `had`: keys that
    an older mapping makes of a page's rows, read when it is called; those that they have no more become tombstones."""

    types: frozenset[str] | None
    is_new: bool
    had: Callable[[], RootKeys]

    def of(self, items: Sequence[EncodedItem]) -> Sequence[EncodedItem]:
        return items if self.types is None else [item for item in items if item.type in self.types]


WHOLE = Only(None, is_new=True, had=none_had)
"""All of it: every backfill but one that brings a table to another mapping."""


# ── what a new revision of a mapping changes of an entity ──


def only_changed(
    changed: EntityDifference,
    together: frozenset[str],
    former: CompiledEntity | None,
    source: Rows,
    *,
    is_first: bool,
) -> Callable[[Page], Only]:
    """For each page of the entity. `former`: the entity as the older mapping has it, whose rows `source` reads; None for a
    new one. If its name was another one, tombstones of that name take the place of its items before these are put.
    `together`: item types that are written in one transaction, all of them or none. `is_first`: whether the job was
    never by the newer mapping; where it was, tombstones lie at the keys that it left, and each insert would fail."""
    effects = {difference.type: difference.effect for difference in changed.types}
    types = frozenset(type_ for type_, effect in effects.items() if effect != "gone")
    is_renamed = former is not None and former.name != changed.name
    is_new = is_first and not is_renamed and all(effects[type_] in ("new", "moved") for type_ in types)
    types |= together if types & together else frozenset()
    if former is None or not (is_renamed or may_give_up(changed)):
        return lambda page: Only(types, is_new, none_had)
    encoder = compile_encoder(former, source.raw_places(former.plan))
    return lambda page: Only(types, is_new, partial(former_keys, encoder, source, page))


def may_give_up(changed: EntityDifference) -> bool:
    """Whether rows of the entity may have had keys that they have no more."""
    types = changed.types
    return bool(changed.rows) or any(type_.effect in ("gone", "moved") or type_.some for type_ in types)


def former_keys(former: Encoder, source: Rows, page: Page) -> RootKeys:
    """Of the rows of a page as they are now, by the older mapping; none of a row that it refuses."""
    rows = source.read_raw(former.entity.plan, former.raw, page.after, page.upto)
    encoded = encode_page(former, rows, 0, 0.0)
    return keys_by_root([*encoded.items, *encoded.expired])


# ── keys by the root that each is of ──


def keys_by_root(items: Sequence[EncodedItem]) -> dict[Root, set[ItemKey]]:
    keys: dict[Root, set[ItemKey]] = defaultdict(set)
    for item in items:
        keys[item.root].add(item.key)
    return keys


def stale_keys(had: RootKeys, *now: RootKeys) -> dict[Root, list[ItemKey]]:
    """Those of `had` that are in none of `now`, in one order."""
    left = {root: keys.difference(*(side.get(root, ()) for side in now)) for root, keys in had.items()}
    return {root: sorted(keys, key=repr) for root, keys in left.items() if keys}


def united(*sides: RootKeys) -> dict[Root, set[ItemKey]]:
    roots = dict.fromkeys(root for side in sides for root in side)
    return {root: set[ItemKey]().union(*(side.get(root, ()) for side in sides)) for root in roots}
