"""The two ways in which a backfill writes a page: alone (fast), or beside other writers (every write has a condition)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from migrator.mapping.items import CompiledEntity
from migrator.mapping.keys import source_named, split_source
from migrator.mapping.sizes import item_bytes, write_units
from migrator.model import Item, ItemKey, RowTree, TableDesign
from migrator.ports import Finding, ObjectStore, Receipt
from migrator.ports.live import Memory, OpenFindings, OwnStore, Root
from migrator.stages.beside import keys_by_root, write_beside
from migrator.stages.claims import Claims
from migrator.stages.projection import Projection, key_text, project, stamp
from migrator.stages.refresh import Refresh
from migrator.stages.together import waves

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


class Puts(Protocol):
    """What a path that writes alone needs of a table; an ItemStore is one."""

    def put(self, items: Sequence[Item]) -> Receipt: ...


@dataclass(frozen=True)
class PutsAmongOthers:
    """Puts over nothing of others': the table holds items that are not of this job."""

    store: OwnStore
    table: TableDesign

    def put(self, items: Sequence[Item]) -> Receipt:
        outcomes = [one for wave in waves(items, self.table) for one in self.store.write_own(wave)]
        stored = [one.item for one in outcomes if one.verdict == "stored"]
        left = {
            verdict: {self.table.key_of(one.item): one for one in outcomes if one.verdict == verdict}
            for verdict in ("unwritten", "taken")
        }
        sizes = [item_bytes(item) for item in stored]
        return Receipt(
            len(stored),
            sum(sizes),
            float(sum(map(write_units, sizes))),
            len(outcomes),
            {key: one.why for key, one in left["unwritten"].items()},
            {key: one.owner for key, one in left["taken"].items()},
        )


@dataclass(frozen=True)
class FastPath:
    """Writes of who writes alone. Safe while nobody else writes: what changes meanwhile has left a mark.

    `store`: unconditional batches where the table is this job's, else PutsAmongOthers. `check` stands before each write and
    raises when the run must stop. `remembered`: entities whose intended keys are kept in `memory` (rule 7); none where no
    capture is installed.
    """

    store: Puts
    claims: Claims
    clock: Callable[[], float]
    check: Callable[[], None]
    objects: ObjectStore | None
    memory: Memory | None
    remembered: frozenset[str]

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
        theirs = [item for item in items if entity.table.key_of(item) in receipt.taken]
        written = (
            [item for item in items if entity.table.key_of(item) not in receipt.taken] if theirs else items
        )
        taken = [_taken(entity, item, receipt) for item in theirs]
        return Copied(projected, receipt, [*projected.refused, *collisions, *taken], written)


@dataclass(frozen=True)
class BesidePath:
    """Inserts and conditional puts: relays and strict services may write the same items."""

    refresh: Refresh
    open_findings: OpenFindings

    def copy(self, entity: CompiledEntity, read: Read) -> Copied:
        beside = write_beside(self.refresh, entity, read)
        unwritten = beside.unwritten
        items = [item for item in beside.projected.items if entity.table.key_of(item) not in unwritten]
        sizes = [item_bytes(item) for item in items]
        units = float(sum(map(write_units, sizes)))
        receipt = Receipt(len(items), sum(sizes), units, len(items), unwritten)
        findings = [*beside.projected.refused, *beside.apart]
        if (last := beside.refreshed) is not None:
            findings = [one for one in findings if (one.entity, one.source_key) not in last.tickets]
            findings += last.findings
        self._close(beside.tickets, findings, unwritten)
        return Copied(beside.projected, receipt, findings, items)

    def _close(
        self, tickets: Mapping[Root, int], findings: Sequence[Finding], unwritten: Collection[ItemKey]
    ) -> None:
        """Closes what relays found of rows that are fine now. What is found here is the run's."""
        if not unwritten:
            found = {(one.entity, one.source_key) for one in findings}
            self.open_findings.settle({root: tickets[root] for root in tickets.keys() - found}, [])


def _taken(entity: CompiledEntity, item: Item, receipt: Receipt) -> Finding:
    owner = source_named(receipt.taken[entity.table.key_of(item)])
    whose = f"{owner} has" if owner else "an item that is not migrator's has"
    return Finding(
        kind="collision",
        entity=entity.name,
        reason=f"{whose} the same key, and stays",
        source_key=split_source(str(item[entity.table.source_attribute]))[1],
        item_key=key_text(entity.table, item),
        item_type=entity.table.type_of(item),
        owner=owner,
    )
