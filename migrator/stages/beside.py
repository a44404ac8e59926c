"""A page of rows written beside other writers: the conditional path of a backfill."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migrator.mapping.items import CompiledEntity
from migrator.mapping.keys import split_source
from migrator.model import Item, ItemKey, RowTree, TableDesign
from migrator.ports.live import Memory, Root
from migrator.results import Refreshed
from migrator.stages.projection import Projection, project, stamp
from migrator.stages.refresh import Refresh, drawn, waves


@dataclass
class Beside:
    """What one page came to; `refreshed`: of the rows whose keys another had, or of which somebody knew more."""

    projected: Projection
    stored: int
    refreshed: Refreshed | None = None


def write_beside(refresh: Refresh, entity: CompiledEntity, read: Callable[[], list[RowTree]]) -> Beside:
    """Reads a page with a ticket of its own and inserts what is not there yet (rules 2, 3 and 7)."""
    ticket = drawn(refresh.tickets, refresh.memory)
    projected = project(entity, read(), refresh.clock())
    stamp(projected.items, refresh.table, ticket)
    intended = keys_by_root(refresh.table, projected.items)
    again = (
        _known_better(refresh.memory, ticket, intended) if refresh.entities[entity.name].remembered else set()
    )
    stored = 0
    if projected.objects and refresh.objects is not None:
        refresh.objects.put(projected.objects)
    wanted = [item for item in projected.items if _root(refresh, item) not in again]
    for wave in waves(wanted, refresh.table):
        refresh.check()
        for outcome in refresh.store.write(wave, fresh=True):
            stored += outcome.verdict == "stored"
            if outcome.verdict in ("buried", "taken"):
                again.add(_root(refresh, outcome.item))
    return Beside(projected, stored, refresh({root: intended[root] for root in again}) if again else None)


def keys_by_root(table: TableDesign, items: Sequence[Item]) -> dict[Root, set[ItemKey]]:
    """The item keys of each root that items are of."""
    found: dict[Root, set[ItemKey]] = defaultdict(set)
    for item in items:
        found[split_source(str(item[table.source_attribute]))].add(table.key_of(item))
    return found


def _known_better(memory: Memory, ticket: int, intended: dict[Root, set[ItemKey]]) -> set[Root]:
    before = memory.remember(ticket, intended) if intended else {}
    return {root for root, known in before.items() if known.ticket > ticket}


def _root(refresh: Refresh, item: Item) -> Root:
    return split_source(str(item[refresh.table.source_attribute]))
