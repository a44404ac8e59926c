"""Some rows of every entity, spread over its keys, to draw parameters from."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

from migrator.errors import RowError
from migrator.facts import EntityPlan
from migrator.mapping.expressions import Row
from migrator.mapping.items import CompiledEntity
from migrator.model import SourceKey
from migrator.ports import Rows

PLACES = 40
"""Places of an entity's keys that rows are read at."""
ROWS_A_PLACE = 10


class RowPool:
    """Decoded rows by entity, read when first asked for; the same seed gives the same of the same rows."""

    def __init__(self, source: Rows, entities: Sequence[CompiledEntity], seed: int) -> None:
        self._source = source
        self._entities = {one.name: one for one in entities}
        self._seed = seed
        self._rows: dict[str, list[Row]] = {}

    @property
    def plans(self) -> list[EntityPlan]:
        return [one.plan for one in self._entities.values()]

    def rows(self, entity: str) -> list[Row]:
        """Some hundred rows at most, in the order of their keys; those that do not fit their declared types are left out."""
        if entity not in self._rows:
            self._rows[entity] = list(self._read(self._entities[entity]))
        return self._rows[entity]

    def _read(self, entity: CompiledEntity) -> Iterator[Row]:
        for after, upto in pairwise([None, *self._bounds(entity), None]):
            for tree in self._source.read_page(entity.plan, after, upto, ROWS_A_PLACE):
                row = _decoded(entity, tree)
                if row is not None:
                    yield row

    def _bounds(self, entity: CompiledEntity) -> list[SourceKey]:
        """Where the places end. A part of chance in their size makes other seeds look elsewhere."""
        rows = self._source.rows_about(entity.plan)
        share = random.Random(f"{self._seed}/{entity.name}").uniform(0.75, 1)
        size = max(1, int(rows * share / PLACES))
        return list(islice(self._source.page_bounds(entity.plan, size), 2 * PLACES))


def _decoded(entity: CompiledEntity, tree: tuple[Any, ...]) -> Row | None:
    try:
        return entity.decode(tree)
    except RowError:
        return None
