"""Adoption: a journal becomes the table's, and knows again what it must: remembered keys, phases, direct entities."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from migrator.mapping.keys import split_source
from migrator.model import Item, ItemKey, TableDesign
from migrator.ports.control import Control, Identity, Kept
from migrator.ports.live import Memory, Root, Writers
from migrator.ports.phases import Phases
from migrator.stages.keeping import OnRecord

WHO = "migrator"


@dataclass(frozen=True)
class Adoption:
    """`pages`: of a scan of the whole table; `remembered`: entities whose keys cannot be worked out from one row;
    `keep_direct`: puts on record which entities the service writes itself."""

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
    keep_direct: Callable[[frozenset[str]], None]

    def run(self, reason: str) -> int:
        """How many keys are remembered anew. Safe to be cut off: the table names this journal last."""
        # Somebody may have written beside it: no backfill may replace what is there without looking.
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
        """Every live item's key is one that its row had, also where the row has it no more: it is buried with the next
        reading of the row."""
        count = 0
        for page in self.pages():
            found: dict[Root, list[ItemKey]] = defaultdict(list)
            for item in page:
                root = self._root(item)
                if root is not None:
                    found[root].append(self.design.key_of(item))
            if found:
                self.memory.remember(ticket, found)
            count += sum(map(len, found.values()))
        return count

    def _root(self, item: Item) -> Root | None:
        """Whose key is to be remembered; None where nobody's is."""
        source = item.get(self.design.source_attribute)
        if self.design.is_hidden(item) or not isinstance(source, str):
            return None
        try:
            root = split_source(source)
        except ValueError:
            return None
        return root if root[0] in self.remembered else None

    def _take_over(self, before: Kept, reason: str) -> None:
        """What the table keeps is newer than a journal that was lost, or that went back."""
        journal = self.on_record()
        is_another = before.journal != journal.journal
        for name, kept in before.phases.items():
            known = journal.phases.get(name)
            differs = known is None or str(known.state) != kept.phase
            if journal.version(name) < kept.version or (is_another and differs):
                self.phases.take_over(name, kept, WHO, reason)
        if journal.direct_run < before.direct_run or (is_another and before.direct != journal.direct):
            self.keep_direct(before.direct)
