"""Digests of what a mapping means: of each pattern's answer, and of all its items.

What was compared counts for every mapping that gives the same answer; writers of one meaning make the same items.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence

from migrator.mapping.difference.difference import index_text
from migrator.mapping.difference.meaning import (
    JUDGED,
    KEPT,
    WHEN,
    EntityMeaning,
    Parts,
    asks_for,
    meanings,
    pattern_form,
    reached,
)
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.mapping import Mapping, Pattern

_WHOLE = (WHEN, KEPT)
"""Parts of an item type with which any of its items, or any attribute, may change."""


def answer_digests(mapping: Mapping, plans: Sequence[EntityPlan]) -> dict[str, str]:
    """By pattern a digest (32 hex digits) of its answer: another one where `mapping diff` finds that the answer can change.

    `plans`: of all entities, to see what the source's columns change; none: by the mapping alone.
    """
    meant = meanings(mapping, plans)
    return {name: _digest(mapping, meant, pattern) for name, pattern in mapping.patterns.items()}


def items_digest(mapping: Mapping, plans: Sequence[EntityPlan]) -> str:
    """Equal where `mapping diff` finds no difference but in patterns. `plans`: all entities, on the source as it is."""
    table, meant = mapping.table, meanings(mapping, plans)
    design = [
        [table.name, table.type_attribute, table.ttl, table.own_attributes],
        [[attribute.name, attribute.type] for attribute in table.key],
        sorted([index.name, index_text(index)] for index in table.indexes),
    ]
    items = sorted(
        [entity.name, type_.type, _forms(entity.rows), _forms(type_.parts)]
        for entity in meant.values()
        for type_ in entity.types.values()
    )
    # The code of a transform is part of the mapping's revision, and of nothing else.
    code = mapping.revision if any(entity.transform for entity in mapping.entities.values()) else ""
    return _digest_of([design, items, code])


def _digest(mapping: Mapping, meant: dict[str, EntityMeaning], pattern: Pattern) -> str:
    form = {name: value for name, value in pattern_form(mapping, pattern).items() if name not in JUDGED}
    indexes = [index_text(index) for index in mapping.table.indexes if index.name == pattern.index]
    return _digest_of([form, indexes, sorted(_items(mapping, meant, pattern))])


def _digest_of(values: object) -> str:
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _items(mapping: Mapping, meant: dict[str, EntityMeaning], pattern: Pattern) -> Iterator[list[object]]:
    """Of each item type that the pattern reaches, the rows that it has and the parts that the answer is made of."""
    types = reached(mapping, pattern)
    for entity in meant.values():
        for type_ in entity.types.values():
            if (entity.written, type_.type) in types:
                yield [entity.name, type_.type, _forms(entity.rows), _forms(_asked(pattern, type_.parts))]


def _asked(pattern: Pattern, parts: Parts) -> Parts:
    return {
        name: meant
        for (name, meant), asks in zip(parts.items(), asks_for(pattern, parts), strict=True)
        if asks or name in _WHOLE
    }


def _forms(parts: Parts) -> list[tuple[str, str]]:
    return sorted((name, meant.form) for name, meant in parts.items())
