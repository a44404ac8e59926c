"""Items of entities that a new mapping has no more, replaced by tombstones, beside writers of the new mapping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event

from migrator.journal.runs import SqlJournal
from migrator.mapping.model.edges import ItemStore
from migrator.mapping.model.journal import Run, SegmentState
from migrator.mapping.model.live import OpenFindings, Outcome, Root
from migrator.mapping.model.table import TOMBSTONE, Item, ItemKey, TableDesign, split_source
from migrator.runtime.errors import StoppedError
from migrator.stages.core.parallel import TableWalk
from migrator.stages.live.refresh import Refresh, drawn, highest_above, refuse_above


@dataclass(frozen=True)
class Gone:
    """Reads every item of the table, a segment at a time; those whose `_src` names one of `entities` become tombstones of
    their rows.

    No writer by an older mapping may be at work any more. Tombstones all the same, and no deletes: a request of such a
    writer that lands later than any should, or that the network repeats, finds a newer ticket there (rule 3) where else it
    would find nothing, and leave an item that no row of this mapping makes.
    """

    refresh: Refresh
    store: ItemStore
    table: TableDesign
    entities: frozenset[str]
    open_findings: OpenFindings
    segments: int
    workers: int
    stop: Event = field(default_factory=Event)

    def run(self, journal: SqlJournal, run: Run) -> int:
        """How many items were replaced, by all calls of this run; it goes on behind the last page of each segment.

        Raises: StoppedError when the table gave up, Interrupted after `stop`; the same run goes on later.
        """
        refresh = self.refresh
        # Before the look: what is found by it was read from rows under a lower ticket.
        ticket = drawn(refresh.tickets, refresh.memory, refresh.control)
        return sum(self._walk.each(lambda number: self._segment(journal, run, number, ticket)))

    @property
    def _walk(self) -> TableWalk:
        stopped = "stopped; what is done stays, and the same command goes on from there"
        return TableWalk(self.store, self.segments, self.workers, self.stop, stopped)

    def _segment(self, journal: SqlJournal, run: Run, number: int, ticket: int) -> int:
        state = journal.segment(run, number)
        replaced = int(state.tally.get("replaced", 0))
        if state.done:
            return replaced
        for page in self._walk.pages(number, state.start):
            replaced += self._replace(page.items, ticket)
            # After the writes: a crash between them repeats a page, where nothing is left to replace.
            done = SegmentState(page.next_start, page.next_start is None, {"replaced": replaced})
            journal.save_segment(run, number, done, [])
        return replaced

    def _replace(self, items: Sequence[Item], ticket: int) -> int:
        refresh, table = self.refresh, self.table
        own = [(item, root) for item in items if (root := self._root(item)) is not None]
        live = [(table.key_of(item), root) for item, root in own if table.type_of(item) != TOMBSTONE]
        outcomes: Sequence[Outcome] = ()
        if live:
            refresh.check()
            outcomes = refresh.store.write([refresh.tombstone(root, key, ticket) for key, root in live])
            self._refuse(outcomes, ticket)
        # Also of tombstones: a call that was killed had written them, and offered their keys to no row yet.
        self._offer([table.key_of(item) for item, _ in own], ticket)
        return sum(outcome.verdict == "stored" for outcome in outcomes)

    def _refuse(self, outcomes: Sequence[Outcome], ticket: int) -> None:
        """Raises: StoppedError where the table did not take all of them; RestoredError where the source went back."""
        refuse_above(highest_above(outcomes, ticket), self.refresh.tickets, self.refresh.memory)
        if why := next((outcome.why for outcome in outcomes if outcome.verdict == "unwritten"), None):
            raise StoppedError(f"the table did not take every tombstone ({why}); give the same command again")

    def _offer(self, keys: Sequence[ItemKey], ticket: int) -> None:
        """Rows that requested a key which is free now are read again; of rows of no entity the request is withdrawn."""
        memory, entities = self.refresh.memory, self.refresh.entities
        requests = memory.requests_of(keys) if keys else []
        memory.withdraw([request for request in requests if request.root[0] not in entities], ticket)
        wanted: dict[Root, set[ItemKey]] = {}
        for request in requests:
            if request.root[0] in entities:
                wanted.setdefault(request.root, set()).add(request.key)
        if wanted:
            refreshed = self.refresh(wanted)
            self.open_findings.settle(refreshed.tickets, refreshed.findings)

    def _root(self, item: Item) -> Root | None:
        """The row that an item or a tombstone of these entities is of; None for every other item."""
        try:
            root = split_source(str(item.get(self.table.source_attribute, "")))
        except ValueError:
            return None
        return root if root[0] in self.entities else None
