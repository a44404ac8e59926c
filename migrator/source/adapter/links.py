"""Which tables hang together over any number of steps; engines say over one (source/engines/foreign_keys.py)."""

from __future__ import annotations

from collections.abc import Iterable

from migrator.source.engines.foreign_keys import Pairs, Place


def above(pairs: Pairs, places: Iterable[Place]) -> set[Place]:
    """The places, and all from which a line of pairs leads to one."""
    return _closed([(child, parent) for parent, child in pairs], places)


def beneath(pairs: Pairs, places: Iterable[Place]) -> set[Place]:
    """The places, and all to which a line of pairs leads from one."""
    return _closed(pairs, places)


def _closed(pairs: Pairs, places: Iterable[Place]) -> set[Place]:
    following: dict[Place, list[Place]] = {}
    for one, other in pairs:
        following.setdefault(one, []).append(other)
    found = set(places)
    left = list(found)
    while left:
        new = set(following.get(left.pop(), ())) - found
        found |= new
        left += new
    return found
