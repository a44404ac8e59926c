"""A page of rows written beside other writers: the conditional path of a backfill."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from migrator.mapping.items import CompiledEntity
from migrator.mapping.keys import split_source
from migrator.model import Item, ItemKey, RowTree, TableDesign
from migrator.ports import Finding
from migrator.ports.live import Root
from migrator.results import Refreshed
from migrator.stages.projection import Projection, project, row_key, stamp
from migrator.stages.refresh import Refresh, drawn, highest_above, refuse_above
from migrator.stages.round import UnwrittenError
from migrator.stages.together import send, sorted_out

_SETTLED = ("stored", "newer", "unwritten")
"""Outcomes that another reading would not change."""


@dataclass
class Beside:
    """What one page came to; `refreshed`: of the rows whose keys another had, or of which somebody knew more; `apart`:
    findings of rows whose items were too many to be written together; `unwritten`: keys that the table did not take while
    it took others, with why; `tickets`: with which each row was last read."""

    projected: Projection
    stored: int
    refreshed: Refreshed | None = None
    apart: Sequence[Finding] = ()
    unwritten: Mapping[ItemKey, str] = field(default_factory=dict)
    tickets: Mapping[Root, int] = field(default_factory=dict)


def write_beside(refresh: Refresh, entity: CompiledEntity, read: Callable[[], list[RowTree]]) -> Beside:
    """Reads a page with a ticket of its own and inserts what is not there yet (rules 2, 3 and 7)."""
    ticket = drawn(refresh.tickets, refresh.memory, refresh.control)
    rows = read()
    projected = project(entity, rows, refresh.clock())
    stamp(projected.items, refresh.table, ticket)
    intended = keys_by_root(refresh.table, projected.items)
    again = _known_better(refresh, entity.name, ticket, intended)
    if projected.objects and refresh.objects is not None:
        refresh.objects.put(projected.objects)
    wanted = [item for item in projected.items if _root(refresh, item) not in again]
    sending = sorted_out(wanted, refresh.table, refresh.together)
    outcomes = send(refresh.store, sending, refresh.table, refresh.check, fresh=True)
    refuse_above(highest_above(outcomes, ticket), refresh.tickets, refresh.memory)
    again |= {_root(refresh, one.item) for one in outcomes if one.verdict not in _SETTLED}
    # A row that is refused has no items (rule 4): what it had before is buried by its refresh.
    again |= {(entity.name, one.source_key) for one in projected.refused if one.source_key}
    stored = sum(one.verdict == "stored" for one in outcomes)
    unwritten = {refresh.table.key_of(one.item): one.why for one in outcomes if one.verdict == "unwritten"}
    refreshed = None
    try:
        refreshed = refresh({root: intended[root] for root in again}) if again else None
    except UnwrittenError as error:
        unwritten |= error.items
    tickets = {(entity.name, row_key(entity, row)): ticket for row in rows}
    tickets |= refreshed.tickets if refreshed is not None else {}
    return Beside(projected, stored, refreshed, sending.findings(), unwritten, tickets)


def keys_by_root(table: TableDesign, items: Sequence[Item]) -> dict[Root, set[ItemKey]]:
    """The item keys of each root that items are of."""
    found: dict[Root, set[ItemKey]] = defaultdict(set)
    for item in items:
        found[split_source(str(item[table.source_attribute]))].add(table.key_of(item))
    return found


def _known_better(refresh: Refresh, name: str, ticket: int, intended: dict[Root, set[ItemKey]]) -> set[Root]:
    """Roots of which somebody knew more, and those written together that have to bury something with what they put."""
    live = refresh.entities[name]
    before = refresh.memory.remember(ticket, intended) if live.remembered and intended else {}
    return {
        root
        for root, known in before.items()
        if known.ticket > ticket or (live.together and known.keys - intended[root])
    }


def _root(refresh: Refresh, item: Item) -> Root:
    return split_source(str(item[refresh.table.source_attribute]))
