"""Adoption of a table by another journal, which learns keys, phases and direct entities; checks before an epoch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from msgspec import Struct

from migrator.dynamodb.control import ControlItem, control_state
from migrator.dynamodb.store import by_condition
from migrator.mapping.model.edges import UNREPAIRED, Control, ControlState, Identity, Kept
from migrator.mapping.model.evidence import Phases
from migrator.mapping.model.live import Memory, Root, Writers
from migrator.mapping.model.table import Item, ItemKey, TableDesign
from migrator.stages.core import ownership as owner
from migrator.stages.core.ownership import OnRecord
from migrator.stages.live.refresh import refuse_behind
from migrator.stages.live.relay import live_entities, remembered
from migrator.stages.session.session import JobSession


def try_tickets(session: JobSession) -> None:
    """Raises: SourceError if this user may not draw tickets; SettingsError if the source went back (rule 8)."""
    session.live.tickets.probe()
    refuse_behind(session.live.tickets, known_tickets(session))


def try_table(session: JobSession) -> None:
    """Raises: OlderError, AnotherJournalError, SettingsError if a relay cannot continue with the table."""
    target = session.target
    if target.admin.state(target.design) is not None:
        session.keeping(session.live.tickets, ControlItem(target.store, _taken_over)).look()


def guard(session: JobSession) -> None:
    session.refuse_strange(session.target)
    if session.live.capture.installation() is not None:
        session.keeping(session.live.tickets, session.control_of(session.target.fenced(by_condition))).guard()


def known_tickets(session: JobSession) -> list[int]:
    target = session.target
    table = target.admin.state(target.design)
    if table is None:
        return []
    return [session.memory_of(table.table_id).highest(), control_state(target.store).ticket]


def want_repair(session: JobSession) -> None:
    """Stop writes to the table until it is repaired. A table without ticketed items needs no repair."""
    target = session.target
    table = target.admin.state(target.design)
    if table is not None and control_state(target.store).is_there:
        session.identity.see(table.table_id, target.design.name, UNREPAIRED)


def adoption_of(session: JobSession) -> Adoption:
    job, target, table_id, checked = session.job, session.target, session.table_id, session.checked
    return Adoption(
        job=job.name,
        table_id=table_id,
        design=target.design,
        remembered=remembered(live_entities(checked.mapping, checked.entities, session.source)),
        pages=target.pages,
        memory=session.memory,
        writers=session.writers,
        control=ControlItem(target.store.fenced(by_condition), _taken_over),
        identity=session.identity,
        phases=session.phases,
        on_record=session.on_record,
        keep_direct=partial(owner.keep_direct, session.journal, job.name, table_id, checked.mapping.revision),
    )


def _taken_over(state: ControlState) -> None:
    """Accept any state: an adoption takes over from any journal that wrote meanwhile."""


# ── Keys that the journal must know, learnt from the items of a table ──


def remember_keys(
    memory: Memory, design: TableDesign, remembered: frozenset[str], ticket: int, page: Sequence[Item]
) -> int:
    """Return how many. `remembered`: entities whose keys cannot be computed from one row."""
    keys_by_root: dict[Root, list[ItemKey]] = defaultdict(list)
    for item in page:
        root = None if design.is_hidden(item) else design.root_of(item)
        if root is not None and root[0] in remembered:
            keys_by_root[root].append(design.key_of(item))
    if keys_by_root:
        memory.remember(ticket, keys_by_root)
    return sum(map(len, keys_by_root.values()))


# ── Adoption: a journal becomes the table's, and learns remembered keys, phases and direct entities again ──

TAKEN_OVER_BY = "migrator"


class Adoption(Struct, frozen=True):
    """`pages`: a scan of the table. `remembered`: entities whose keys cannot be computed from one row.

    `keep_direct`: records the entities the service writes itself.
    """

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
        """Return how many keys are remembered. Safe to interrupt: the table names this journal only at the end."""
        # Others may have written meanwhile: no backfill may replace items without a condition.
        self.writers.fence()
        state = self.control.read_control()
        ticket = max(state.ticket, self.memory.highest())
        self.memory.reached(ticket)
        known = (self.memory, self.design, self.remembered, ticket)
        count = sum(remember_keys(*known, page) for page in self.pages())
        before = state.jobs.get(self.job)
        if before is not None:
            self._take_over(before, reason)
        journal = self.on_record()
        self.control.keep(self.table_id, self.job, journal.kept(before))
        self.control.raise_control(ticket)
        self.identity.repaired(self.table_id, self.design.name, ticket)
        return count

    def _take_over(self, before: Kept, reason: str) -> None:
        journal = self.on_record()
        is_another = before.journal != journal.journal
        for name, kept in before.phases.items():
            phase = journal.phases.get(name)
            differs = phase is None or phase.state.word != kept.phase
            if journal.version(name) < kept.version or (is_another and differs):
                self.phases.take_over(name, kept, TAKEN_OVER_BY, reason)
        if journal.direct_run < before.direct_run or (is_another and before.direct != journal.direct):
            self.keep_direct(before.direct)
