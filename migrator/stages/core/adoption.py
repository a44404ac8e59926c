"""Adoption: gives a table another journal, which learns keys, phases and direct entities; and checks before an epoch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec import Struct

from migrator.mapping.model.edges import UNREPAIRED, Control, ControlState, Identity, Kept, TableState
from migrator.mapping.model.evidence import Phases
from migrator.mapping.model.live import Memory, Root, Writers
from migrator.mapping.model.table import Item, ItemKey, TableDesign
from migrator.stages.core.ownership import OnRecord

# ── Raising the epoch: the highest known tickets, and no writing before the table was repaired ──


def known_tickets(
    table: TableState | None, memory: Callable[[str], Memory], control: Callable[[], ControlState]
) -> list[int]:
    """The highest tickets that the journal and the table know of. `memory`: of a table's id."""
    return [] if table is None else [memory(table.table_id).highest(), control().ticket]


def want_repair(
    table: TableState | None,
    name: str,
    identity: Callable[[], Identity],
    control: Callable[[], ControlState],
) -> None:
    """Stops writes to the job's table until it was repaired; a table without items written with tickets needs no repair."""
    if table is not None and control().is_there:
        identity().see(table.table_id, name, UNREPAIRED)


# ── Keys that the journal must know, learnt from the items of a table ──


class KeysOfItems(Struct, frozen=True):
    """`remembered`: entities whose keys cannot be computed from one row."""

    design: TableDesign
    remembered: frozenset[str]
    memory: Memory

    def remember(self, ticket: int, page: Sequence[Item]) -> int:
        """Remembers the key of every live item for its row, and how many there were; one that the row no longer has gets a
        tombstone when the row is read next."""
        keys_by_root: dict[Root, list[ItemKey]] = defaultdict(list)
        for item in page:
            root = self._root(item)
            if root is not None:
                keys_by_root[root].append(self.design.key_of(item))
        if keys_by_root:
            self.memory.remember(ticket, keys_by_root)
        return sum(map(len, keys_by_root.values()))

    def _root(self, item: Item) -> Root | None:
        """The root whose key must be remembered; None for an item without one."""
        root = None if self.design.is_hidden(item) else self.design.root_of(item)
        return root if root is not None and root[0] in self.remembered else None


# ── Adoption: a journal becomes the table's, and learns remembered keys, phases and direct entities again ──

TAKEN_OVER_BY = "migrator"


class Adoption(Struct, frozen=True):
    """`pages`: those of a scan of the whole table; `remembered`: entities whose keys cannot be computed from one row;
    `keep_direct`: records which entities the service writes itself."""

    job: str
    table_id: str
    design: TableDesign
    remembered: frozenset[str]
    pages: Callable[[], Iterable[Sequence[Item]]]
    memory: Memory
    writers: Writers
    control: Control
    identity: Identity
    phases: Phases
    on_record: Callable[[], OnRecord]
    keep_direct: Callable[[Collection[str]], None]

    def run(self, reason: str) -> int:
        """How many keys are remembered anew. Safe to interrupt: the table names this journal only at the end."""
        # Others may have written meanwhile: no backfill may replace items without a condition.
        self.writers.fence()
        state = self.control.read_control()
        ticket = max(state.ticket, self.memory.highest())
        self.memory.reached(ticket)
        count = self._remember(ticket)
        before = state.jobs.get(self.job)
        if before is not None:
            self._take_over(before, reason)
        journal = self.on_record()
        self.control.keep(self.table_id, self.job, journal.kept(before))
        self.control.raise_control(ticket)
        self.identity.repaired(self.table_id, self.design.name, ticket)
        return count

    def _remember(self, ticket: int) -> int:
        keys = KeysOfItems(self.design, self.remembered, self.memory)
        return sum(keys.remember(ticket, page) for page in self.pages())

    def _take_over(self, before: Kept, reason: str) -> None:
        """Takes over from the table what is newer than in a journal that was lost, or that went back."""
        journal = self.on_record()
        is_another = before.journal != journal.journal
        for name, kept in before.phases.items():
            phase = journal.phases.get(name)
            differs = phase is None or phase.state.word != kept.phase
            if journal.version(name) < kept.version or (is_another and differs):
                self.phases.take_over(name, kept, TAKEN_OVER_BY, reason)
        if journal.direct_run < before.direct_run or (is_another and before.direct != journal.direct):
            self.keep_direct(before.direct)
