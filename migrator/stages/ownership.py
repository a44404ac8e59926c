"""Whether source, journal and table belong together, and how a table is given another journal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from migrator.model.edges import UNREPAIRED, Control, ControlState, Identity, Kept, KeptPhase, NameKind
from migrator.model.errors import MigratorError, SettingsError
from migrator.model.evidence import PatternPhase, Phases
from migrator.model.keys import split_source
from migrator.model.live import Memory, Root, Tickets, Writers
from migrator.model.table import Item, ItemKey, TableDesign
from migrator.stages.live.refresh import RestoredError, behind

# ──
# Whether source, journal and table still belong together: what each knows of the others, compared before a
# write.

LASTING = ("live", "complete")
"""Phases that a journal must not forget: SQL may not be asked, or not be written, any more."""


class AnotherJournalError(SettingsError):
    """The table was written with another journal, which knows what this one does not."""


class AnotherJobError(SettingsError):
    """The journal knows another job of this name: with another table, or another source."""


class UnaskedSourceError(MigratorError):
    """Nobody can say whether another journal knows the job; the exit code is that of what stood in the way."""

    def __init__(self, what: str, cause: MigratorError) -> None:
        super().__init__(what)
        self.exit_code = cause.exit_code


class OlderError(SettingsError):
    """The table, or the journal, is in an older state than the other one knows of."""


@dataclass(frozen=True)
class OnRecord:
    """What a journal says of one job. `direct_run`: of the run that says which entities are direct; 0 for none."""

    journal: str
    phases: Mapping[str, PatternPhase] = field(default_factory=dict)
    direct: frozenset[str] = frozenset()
    direct_run: int = 0

    def kept(self, before: Kept | None) -> Kept:
        """What is to be kept of it: lasting phases, and what became of those that were."""
        named = {name for name, one in self.phases.items() if one.state.phase in LASTING}
        named |= set(before.phases if before else ()) & set(self.phases)
        phases = {
            name: KeptPhase(str(self.phases[name].state), self.phases[name].version) for name in sorted(named)
        }
        return Kept(self.journal, phases, self.direct, self.direct_run)

    def contradicts(self, kept: Kept) -> bool:
        """Whether the table keeps something that is newer than what this journal says."""
        moved = any(self.version(name) < one.version for name, one in kept.phases.items())
        return moved or self.direct_run < kept.direct_run

    def version(self, pattern: str) -> int:
        return self.phases[pattern].version if pattern in self.phases else 0


def refuse_other_job(
    job: str, file: str, kind: NameKind, name: str, known: Collection[str], journal: str
) -> None:
    """`name`: of the job's table or source, '' where it is not known; `known`: those on record. Raises: AnotherJobError."""
    if not name or name in known:
        return
    what = f"{file}: the {kind} is {name}, and journal {journal} knows job {job} with {' and '.join(sorted(known))}"
    why = "two jobs of one name would share phases, pages and remembered keys"
    own = "write `name:` with a name of its own in this job"
    same = f"if it is that job, and its {kind} has another name or place now, say once"
    raise AnotherJobError(f"{what}: {why}; {own}; {same} `migrator status {file} --same-job`")


def refuse_unknown_job(job: str, journal: str) -> None:
    """Raises: AnotherJournalError, of a journal that knows nothing of a job whose source is captured."""
    what = f"the source is captured for job {job}, and journal {journal} knows nothing of that"
    why = "another one has its phases, services and remembered keys"
    first = "if there is none yet (the triggers are of a migration file), run `migrator capture install`"
    raise AnotherJournalError(f"{what}: {why}; {LOST_ADVICE}; {first}")


def refuse_renamed_job(job: str, former: str, journal: str) -> None:
    """Raises: AnotherJobError, of a journal that knows nothing of a job whose source is captured for another one."""
    what = f"the source is captured for job {former}, and journal {journal} knows nothing of job {job}"
    raise AnotherJobError(
        f"{what}; {_renamed(former)}; if it is not, take that capture away with that job first"
    )


def refuse_phases_of_others(state: ControlState, job: str, patterns: Collection[str], table: str) -> None:
    """Raises: AnotherJobError where the table keeps lasting phases of these patterns, and another job moved them."""
    for former, kept in sorted(state.jobs.items()):
        if former != job and (moved := sorted(kept.phases.keys() & set(patterns))):
            what = f"table {table} keeps the phase of {', '.join(moved)} for job {former}"
            other = "if it is another job, give its access patterns other names"
            raise AnotherJobError(
                f"{what}, and the journal knows nothing of job {job}; {_renamed(former)}; {other}"
            )


def _renamed(former: str) -> str:
    return f"if it is the same job in a file of another name, write `name: {former}` in it"


def refuse_another(state: ControlState, job: str, journal: OnRecord, table: str) -> None:
    """Raises: AnotherJournalError where the table is another journal's, with what it keeps that this one does not know."""
    kept = state.jobs.get(job)
    if kept is None or kept.journal == journal.journal:
        return
    what = f"table {table} was written with another journal than this one{_told(kept)}"
    why = "item keys that the other one remembers would be missed, and its phases are not known here"
    raise AnotherJournalError(f"{what}: {why}; {LOST_ADVICE}")


LOST_ADVICE = (
    "name that journal (`journal:` in the job, one on a server where services or hosts share it), or restore it; if it"
    " is lost for good, say --adopt-journal once, "
    "then run `migrator verify --repair` (see docs/lost-journal.md)"
)


def refuse_older_journal(state: ControlState, job: str, journal: OnRecord, table: str) -> None:
    """Raises: OlderError where the journal went back behind what the table keeps of it."""
    kept = state.jobs.get(job)
    if kept is not None and journal.contradicts(kept):
        raise OlderError(f"{_OLDER_JOURNAL.format(table=table)}{_told(kept)}; {OLDER_ADVICE}")


_OLDER_JOURNAL = "the journal is in an older state than table {table} knows of: it was restored from a backup"
OLDER_ADVICE = "stop all relays and services, then run `migrator verify --repair`, which makes it whole again"


def _told(kept: Kept) -> str:
    phases = [f"{name} {one.phase}" for name, one in kept.phases.items()]
    direct = [f"written by the service itself: {', '.join(sorted(kept.direct))}"] if kept.direct else []
    said = "; ".join([*([f"phases: {', '.join(phases)}"] if phases else []), *direct])
    return f" (the table keeps of it: {said})" if said else ""


@dataclass(frozen=True)
class Keeping:
    """The guard of everybody who writes with tickets (rule 8). `table`: its name; `is_empty`: whether nothing is in it;
    `on_record`: asks the journal."""

    job: str
    table: str
    table_id: str
    tickets: Tickets
    memory: Memory
    control: Control
    identity: Identity
    on_record: Callable[[], OnRecord]
    is_empty: Callable[[], bool]

    def guard(self) -> None:
        """Raises: RestoredError, AnotherJournalError, OlderError where the source, the journal or the table is not what the
        others know. What is in order is kept in the table, where it outlives the others."""
        # In this order: each may only grow, and who is asked later knows at least what was asked before.
        seen = self.identity.seen(self.table_id)
        state = self.control.read_control()
        journal, reached = self.on_record(), self.memory.highest()
        refuse_another(state, self.job, journal, self.table)
        known, counter = max(reached, state.ticket), self.tickets.highest()
        if counter < known:
            # Told to the journal, so that nobody draws: a counter that comes up again would not be noticed any more.
            self.memory.reached(known)
            raise RestoredError(behind(counter, known))
        self._refuse_older_table(state, seen)
        refuse_older_journal(state, self.job, journal, self.table)
        self._refuse_forgetful(state, seen, reached)
        self.sign(state, journal)

    def sign(self, state: ControlState, journal: OnRecord) -> None:
        """The table keeps what must not be contradicted, and the journal what the table was seen to know."""
        kept = journal.kept(state.jobs.get(self.job))
        if state.jobs.get(self.job) != kept or state.table_id != self.table_id:
            self.control.keep(self.table_id, self.job, kept)
        # Not raised here: the writer that drew a ticket raises it, and would take it for another's.
        self.identity.see(self.table_id, self.table, state.ticket)

    def _refuse_older_table(self, state: ControlState, seen: int | None) -> None:
        if seen == UNREPAIRED:
            what = f"the epoch was raised, and table {self.table} may hold what the source has lost"
            raise OlderError(f"{what}; {OLDER_ADVICE}")
        copied = bool(state.table_id) and state.table_id != self.table_id
        forgot = seen is not None and (state.ticket < seen or self.job not in state.jobs)
        if copied or forgot or self._is_from_before(state):
            what = f"table {self.table} is in an older state than this journal knows of"
            why = "it was restored from a backup, is a copy of another table, or lost its control item"
            raise OlderError(f"{what}: {why}; {OLDER_ADVICE}")

    def _is_from_before(self, state: ControlState) -> bool:
        """Whether it is a table of the same name as one that was written into, with items, and nothing kept in it."""
        if self.job in state.jobs:
            return False
        return bool(self.identity.tables_named(self.table) - {self.table_id}) and not self.is_empty()

    def _refuse_forgetful(self, state: ControlState, seen: int | None, reached: int) -> None:
        """Raises: where the table knows of tickets that the journal never heard of."""
        if state.ticket <= reached:
            return
        if seen is not None:
            raise OlderError(f"{_OLDER_JOURNAL.format(table=self.table)}; {OLDER_ADVICE}")
        what = f"table {self.table} was written with another journal than this one, which knows nothing of it"
        raise AnotherJournalError(
            f"{what}: item keys that the other one remembers would be missed; {LOST_ADVICE}"
        )


# ──
# Adoption: a journal becomes the table's, and knows again what it must: remembered keys, phases, direct
# entities.

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
