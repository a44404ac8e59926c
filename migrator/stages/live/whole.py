"""Rows that a mark of a whole table touches: those that have items, and those that the source has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from migrator.mapping.model.facts import Captured, EntityPlan
from migrator.mapping.model.live import Root
from migrator.mapping.model.table import (
    Item,
    ItemKey,
    RowTree,
    SourceKey,
    TableDesign,
    encode_key,
    split_source,
)

PAGE_ROWS = 500


class PageReader(Protocol):
    def read_page(
        self, plan: EntityPlan, after: SourceKey | None, upto: SourceKey | None, limit: int | None = None
    ) -> list[RowTree]: ...


class WholeTable(Struct, frozen=True):
    """The roots that any row of a table may concern, page by page, with item keys that they have.

    `pages`: every item of the target, by one scan of it: after a TRUNCATE nothing else names the rows that were there.
    """

    plans: Mapping[str, EntityPlan]
    source: PageReader
    design: TableDesign
    pages: Callable[[], Iterator[Sequence[Item]]]

    def __call__(self, captured: Captured) -> Iterator[Mapping[Root, Sequence[ItemKey]]]:
        entities = {lookup.entity for lookup in captured.lookups}
        for page in self.pages():
            if roots := self._of_items(page, entities):
                yield roots
        # A row of the truncated table itself that is there by now has a mark of its own.
        for entity in sorted({lookup.entity for lookup in captured.lookups if not lookup.is_root}):
            yield from self._of_rows(entity)

    def _of_items(self, page: Sequence[Item], entities: set[str]) -> dict[Root, list[ItemKey]]:
        roots: dict[Root, list[ItemKey]] = defaultdict(list)
        for item in page:
            root = _root(item.get(self.design.source_attribute))
            key = self.design.key_of(item)
            if root is not None and root[0] in entities and key is not None:
                roots[root].append(key)
        return roots

    def _of_rows(self, entity: str) -> Iterator[dict[Root, list[ItemKey]]]:
        plan, after = self.plans[entity], None
        places = [_place(plan, column.real) for column in plan.key]
        while trees := self.source.read_page(plan, after, None, PAGE_ROWS):
            keys = [encode_key([tree[place] for place in places]) for tree in trees]
            yield {(entity, key): [] for key in keys}
            after = keys[-1]


def _place(plan: EntityPlan, real: str) -> int:
    return next(
        place for place, slot in enumerate(plan.slots) if slot.alias == "" and slot.column.real == real
    )


def _root(text: object) -> Root | None:
    try:
        return split_source(text) if isinstance(text, str) else None
    except ValueError:
        return None
