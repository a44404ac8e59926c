"""Mappings of the simulation, each compiled once: schedules are many, and their mappings few."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from migrator.mapping.check.check import Checked
from migrator.mapping.items.changes import captured_tables, needs_memory
from migrator.mapping.items.items import CompiledEntity, ImageKeys, compile_image_keys, no_keys
from migrator.mapping.items.rows import Row
from migrator.mapping.model.facts import Captured
from migrator.mapping.model.table import Item, ItemKey
from migrator.runtime.values import replace
from migrator.stages.live.relay import live_entities
from migrator.stages.live.send import LiveEntity
from tests.golden.heart import check, facts, table
from tests.simulation.database import Database, Reader
from tests.simulation.scheduler import Scheduler

HEAD = """
mapping: 1
table: {name: Sim, key: [PK, SK], type: T, ttl: expiresAt}
"""
MAPPING = """
entities:
  owner:
    collect: {pets: {count: all, of: pet, by: owner_id}}
    items:
      Owner:
        key: ["OWNER#{id}", OWNER]
        attributes: {name: name, pets: pets}
      Name:
        key: ["NAME#{name}", NAME]
        when: name
        attributes: {owner: id}
      Card:
        key: ["OWNER#{id}", "CARD#{name|or:none}"]
        attributes: {name: name, pets: pets}
  pet:
    join: {owner: owner_id}
    items:
      Pet:
        key: ["OWNER#{owner_id}", "PET#{id}"]
        attributes: {ownerName: owner.name, age: age}
      Named:                                   # its key is the row's own, and another row says whether it is there
        key: ["NAMED#{id}", PET]
        when: owner.name
  tag:
    table: pet
    join: {owner: owner_id}
    items:
      Tag:
        key: ["TAG#{owner.name}", "PET#{id}"]
        when: owner.name
        attributes: {age: age}
access_patterns:
  owner_and_card:
    params: {id: integer}
    query: {key: ["OWNER#{id}"]}
    returns: {owner: {type: Owner, attributes: [name, pets]}, card: {type: Card, attributes: [name, pets]}}
    atomic: true
    sql: {owner: SELECT 1, card: SELECT 1}
  by_name:                                     # its key moves from owner to owner
    params: {name: text}
    get: {key: ["NAME#{name}", NAME]}
    returns: [owner]
    atomic: true
    sql: SELECT 1
"""
SCHEMA = facts(
    table("owner", {"id": "integer!", "name": "text"}),
    table(
        "pet",
        {"id": "integer!", "owner_id": "integer!", "age": "integer"},
        references={"owner_id": "owner.id"},
    ),
)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A mapping as writers work by it. `together`: as its atomic patterns say; `apart`: as if none were atomic."""

    checked: Checked
    captured: Mapping[str, Captured]
    together: Mapping[str, LiveEntity]
    apart: Mapping[str, LiveEntity]
    image_keys: Mapping[str, ImageKeys]

    def entities(self, *, atomic: bool) -> Mapping[str, LiveEntity]:
        return self.together if atomic else self.apart


@functools.cache
def compiled(text: str = MAPPING) -> Compiled:
    checked = check(text, SCHEMA, HEAD)
    captured = captured_tables([entity.plan for entity in checked.entities])
    entities, rows = (
        [_kept_once(entity) for entity in checked.entities],
        Reader(Database(Scheduler(0), captured)),
    )
    together = live_entities(checked.mapping, entities, rows)
    none: frozenset[str] = frozenset()
    return Compiled(
        checked,
        captured,
        together,
        {
            name: replace(entity, remembered=needs_memory(entity.compiled.plan), together=none)
            for name, entity in together.items()
        },
        {
            name: no_keys
            if needs_memory(entity.compiled.plan)
            else _keys_once(compile_image_keys(checked.mapping, entity.compiled.plan))
            for name, entity in together.items()
        },
    )


def _kept_once(entity: CompiledEntity) -> CompiledEntity:
    """The same entity, each different row decoded and made an item once: it is pure, and schedules have few rows."""
    return replace(
        entity,
        decode=lru_cache(None)(entity.decode),
        makers=tuple(_made_once(make) for make in entity.makers),
    )


def _made_once(make: Callable[[Row, str], Item | None]) -> Callable[[Row, str], Item | None]:
    made: dict[int, Item | None] = {}

    def maker(row: Row, source: str) -> Item | None:
        row_id = id(row)  # decoded once, and kept
        if row_id not in made:
            made[row_id] = make(row, source)
        item = made[row_id]
        return None if item is None else dict(item)

    return maker


def _keys_once(keys: ImageKeys) -> ImageKeys:
    cached: dict[tuple[object, ...], frozenset[ItemKey]] = {}

    def of(image: Mapping[str, object]) -> frozenset[ItemKey]:
        shown = tuple(image.items())
        if shown not in cached:
            cached[shown] = frozenset(keys(dict(image)))
        return cached[shown]

    return of
