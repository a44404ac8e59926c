"""The two ways in which a backfill writes a page: alone (fast), or beside other writers (every write has a condition)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from migrator.mapping.items import CompiledEntity
from migrator.mapping.sizes import item_bytes, write_units
from migrator.model import Item, RowTree
from migrator.ports import Finding, ItemStore, ObjectStore, Receipt
from migrator.ports.live import Memory
from migrator.results import collision_findings
from migrator.stages.beside import keys_by_root, write_beside
from migrator.stages.claims import Claims
from migrator.stages.projection import Projection, project, stamp
from migrator.stages.refresh import Refresh

Read: TypeAlias = Callable[[], list[RowTree]]

NO_TICKET = 0
"""The ticket of items read while nobody else writes: any ticket drawn later is higher."""


@dataclass(frozen=True)
class Copied:
    """What became of a page. `written`: the items that are in the table now, as far as this path knows."""

    projected: Projection
    receipt: Receipt
    findings: list[Finding]
    written: Sequence[Item] = field(default=(), repr=False)


class PagePath(Protocol):
    def copy(self, entity: CompiledEntity, read: Read) -> Copied:
        """Reads a page and writes its items; called from many threads."""


@dataclass(frozen=True)
class FastPath:
    """Unconditional batches. Safe while nobody else writes: what changes meanwhile has left a mark.

    `check` stands before each write and raises when the run must stop. `remembered`: entities whose intended keys are
    kept in `memory` (rule 7); none where no capture is installed.
    """

    store: ItemStore
    claims: Claims
    clock: Callable[[], float]
    check: Callable[[], None]
    objects: ObjectStore | None = None
    memory: Memory | None = None
    remembered: frozenset[str] = frozenset()

    def copy(self, entity: CompiledEntity, read: Read) -> Copied:
        projected = project(entity, read(), self.clock())
        items, collisions = self.claims.sift(entity, projected.items)
        stamp(items, entity.table, NO_TICKET)
        self.check()
        if self.memory is not None and entity.name in self.remembered:
            self.memory.remember(NO_TICKET, keys_by_root(entity.table, items))
        if projected.objects and self.objects is not None:
            # Before the items: an item must never point to what is not there.
            self.objects.put(projected.objects)
        receipt = self.store.put(items) if items else Receipt()
        return Copied(projected, receipt, [*projected.refused, *collisions], items)


@dataclass(frozen=True)
class BesidePath:
    """Inserts and conditional puts: relays and strict services may write the same items."""

    refresh: Refresh

    def copy(self, entity: CompiledEntity, read: Read) -> Copied:
        beside = write_beside(self.refresh, entity, read)
        unwritten = beside.unwritten
        items = [item for item in beside.projected.items if entity.table.key_of(item) not in unwritten]
        sizes = [item_bytes(item) for item in items]
        units = float(sum(map(write_units, sizes)))
        receipt = Receipt(len(items), sum(sizes), units, len(items), unwritten)
        findings = [*beside.projected.refused, *beside.apart]
        if beside.refreshed is not None:
            findings += [*collision_findings(beside.refreshed), *beside.refreshed.apart]
        return Copied(beside.projected, receipt, findings, items)
