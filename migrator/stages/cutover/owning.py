"""Items that a service wrote itself become ours again: with the row that they are of, and a ticket."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.mapping.items.items import project, stamp
from migrator.mapping.model.edges import Control, ItemOwner
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.live import Memory, Root, Tickets
from migrator.mapping.model.table import Item, ItemKey, RowTree, SourceKey, TableDesign
from migrator.stages.live.refresh import drawn
from migrator.stages.live.rounds import LiveEntity

PAGE_ROWS = 500


class PageReader(Protocol):
    def read_page(
        self, plan: EntityPlan, after: SourceKey | None, upto: SourceKey | None, limit: int | None = None
    ) -> list[RowTree]: ...


class StoredItems(Protocol):
    def get(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Item]:
        """The stored items among `keys`, read consistently."""


def named(entities: Mapping[str, LiveEntity], names: Collection[str]) -> list[LiveEntity]:
    """Those with these written names: one that stands in several schemas is an entity of each."""
    return [entity for entity in entities.values() if entity.compiled.plan.entity.written in names]


@dataclass(frozen=True)
class Owning:
    """Puts our attributes onto the stored items of every row, and changes nothing else of them.

    A service's item has no source, or that of the row that it was copied from; a relay would take it for another row's, and
    never write it (rule 3). Rows and items are equal when this begins, and no service writes either, so the item under a
    row's key is the row's. As any writer it draws a ticket before it reads (2), keys that cannot be recomputed are
    remembered (7), and a request that lands late changes nothing that has a higher ticket.
    """

    rows: PageReader
    items: StoredItems
    owner: ItemOwner
    tickets: Tickets
    memory: Memory
    control: Control
    entities: Iterable[LiveEntity]
    design: TableDesign
    now_s: Callable[[], float]
    check: Callable[[], None]

    def run(self) -> int:
        """How many items were not ours before."""
        return sum(self._entity(entity) for entity in self.entities)

    def _entity(self, entity: LiveEntity) -> int:
        owned, after = 0, None
        while True:
            self.check()
            ticket = drawn(self.tickets, self.memory, self.control)
            page = self.rows.read_page(entity.compiled.plan, after, None, PAGE_ROWS)
            if not page:
                return owned
            owned += self._page(entity, page, ticket)
            after = entity.compiled.source_key(page[-1])

    def _page(self, entity: LiveEntity, page: Sequence[RowTree], ticket: int) -> int:
        made = self._made(entity, page, ticket)
        stored = self.items.get(list(made))
        source = self.design.source_attribute
        strange = [
            item for key, item in made.items() if key in stored and stored[key].get(source) != item[source]
        ]
        stamp(strange, self.design, ticket)
        self.check()
        return self.owner.own(strange)

    def _made(self, entity: LiveEntity, page: Sequence[RowTree], ticket: int) -> Mapping[ItemKey, Item]:
        """Items by key. Those that cannot be recomputed are remembered before anything says that they are ours."""
        made: dict[ItemKey, Item] = {}
        intended: dict[Root, list[ItemKey]] = {}
        for row in page:
            items = project(entity.compiled, [row], self.now_s()).items
            keys = [self.design.key_of(item) for item in items]
            made |= zip(keys, items, strict=True)
            intended[(entity.compiled.name, entity.compiled.source_key(row))] = keys
        if entity.remembered:
            self.memory.remember(ticket, intended)
        return made
