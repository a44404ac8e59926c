"""Checks that source, journal and table belong together, and that the source's columns and keys still hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct

from migrator.journal.identity import SqlIdentity
from migrator.journal.runs import SqlJournal
from migrator.mapping.check.values import key_doubt
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.language.plan import ColumnChange, changes
from migrator.mapping.model.edges import (
    UNIMPORTED,
    UNREPAIRED,
    Control,
    ControlState,
    DocumentRows,
    Identity,
    Kept,
    KeptPhase,
    NameKind,
    Rows,
)
from migrator.mapping.model.evidence import PatternPhase
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.journal import Finding, Run, RunIdentity
from migrator.mapping.model.live import Memory, Tickets
from migrator.runtime.errors import (
    MigratorError,
    MissingNameError,
    SettingsError,
    SourceError,
    TooSlowError,
    TwinRowsError,
)
from migrator.stages.live.refresh import RestoredError, behind

# ── Checks before a write that source, journal and table still belong together, by what each knows of the others ──

LASTING = ("live", "complete")
"""Phases that a journal must not forget: SQL may no longer be read, or no longer be written."""


class AnotherJournalError(SettingsError):
    """The table was written with another journal, with state that this one lacks."""


class AnotherJobError(SettingsError):
    """The journal has another job of this name, with another table or source."""


class UnaskedSourceError(MigratorError):
    """Other journals' record of the job cannot be read. Has the exit code of the cause."""

    def __init__(self, what: str, cause: MigratorError) -> None:
        super().__init__(what)
        self.exit_code = cause.exit_code


class OlderError(SettingsError):
    """The table or the journal is in an older state than the other has recorded."""


class OnRecord(Struct, frozen=True):
    """A journal's record of one job. `direct_run`: the run that names the direct entities; 0 for none."""

    journal: str
    phases: Mapping[str, PatternPhase] = {}
    direct: frozenset[str] = frozenset()
    direct_run: int = 0

    def kept(self, before: Kept | None) -> Kept:
        """State the table must keep: lasting phases, and the current state of phases kept before."""
        named = {name for name, phase in self.phases.items() if phase.state.phase in LASTING}
        named |= set(before.phases if before else ()) & set(self.phases)
        phases = {
            name: KeptPhase(self.phases[name].state.word, self.phases[name].version) for name in sorted(named)
        }
        return Kept(self.journal, phases, self.direct, self.direct_run)

    def contradicts(self, kept: Kept) -> bool:
        """Whether the table keeps newer records than this journal."""
        moved = any(self.version(name) < phase.version for name, phase in kept.phases.items())
        return moved or self.direct_run < kept.direct_run

    def version(self, pattern: str) -> int:
        return self.phases[pattern].version if pattern in self.phases else 0


def on_record(journal: str, phases: Mapping[str, PatternPhase], runs: Sequence[Run]) -> OnRecord:
    """Return the journal's record of a job. `journal`: its id. `runs`: all of the job's, oldest first."""
    runs = [run for run in runs if run.identity.kind == "direct"]
    if not runs:
        return OnRecord(journal, phases)
    direct = frozenset(filter(None, runs[-1].identity.scope.split(",")))
    return OnRecord(journal, phases, direct, runs[-1].id)


def keep_direct(
    journal: SqlJournal, job: str, table_id: str, revision: str, entities: Collection[str]
) -> None:
    """Record that the service now writes exactly these entities itself."""
    run = journal.start_run(RunIdentity("direct", job, table_id, revision, ",".join(sorted(entities))))
    journal.end_run(run, "done")


def take_names(
    job: str, file: str, names: Mapping[NameKind, str], recorded: SqlIdentity, journal: str
) -> None:
    before = {kind: recorded.names(kind) for kind in names}
    _refuse_other_names(job, file, names, before, journal)
    if not all(before.values()):
        # A job that is refused leaves nothing in the journal.
        after = {kind: recorded.first_name(kind, name) for kind, name in names.items()}
        _refuse_other_names(job, file, names, after, journal)


def _refuse_other_names(
    job: str,
    file: str,
    names: Mapping[NameKind, str],
    recorded: Mapping[NameKind, Collection[str]],
    journal: str,
) -> None:
    """Raises: AnotherJobError."""
    for kind, name in names.items():
        if not (known := recorded[kind]) or name in known:
            continue
        what = f"{file}: the {kind} is {name}, and journal {journal} knows job {job} with {' and '.join(sorted(known))}"
        why = "two jobs of one name would share phases, pages and remembered keys"
        own = "write `name:` with a name of its own in this job"
        same = f"if it is that job, and its {kind} has another name or place now, run once"
        raise AnotherJobError(f"{what}: {why}; {own}; {same} `migrator recover {file} renamed`")


def refuse_phases_of_others(state: ControlState, job: str, patterns: Collection[str], table: str) -> None:
    for former, kept in sorted(state.jobs.items()):
        if former != job and (moved := sorted(kept.phases.keys() & set(patterns))):
            what = f"table {table} keeps the phase of {', '.join(moved)} for job {former}"
            other = "if it is another job, give its access patterns other names"
            raise AnotherJobError(
                f"{what}, and the journal knows nothing of job {job}; {renamed_advice(former)}; {other}"
            )


def renamed_advice(former: str) -> str:
    return f"if it is the same job in a file of another name, write `name: {former}` in it"


def refuse_another(state: ControlState, job: str, journal: OnRecord, table: str) -> None:
    kept = state.jobs.get(job)
    if kept is None or kept.journal == journal.journal:
        return
    what = f"table {table} was written with another journal than this one{_kept_text(kept)}"
    why = "item keys that the other one remembers would be missed, and its phases are not known here"
    raise AnotherJournalError(f"{what}: {why}; {LOST_ADVICE}")


LOST_ADVICE = (
    "most often it is only elsewhere: set MIGRATOR_HOME as it was for the commands before (or unset it), and take their job"
    " file; else name that journal (`journal:` in the job, one on a server where services or hosts share it), or restore it;"
    " if it is lost for good, run `migrator recover JOB journal-lost`"
    " (see docs/lost-journal.md)"
)


def refuse_older_journal(state: ControlState, job: str, journal: OnRecord, table: str) -> None:
    kept = state.jobs.get(job)
    if kept is not None and journal.contradicts(kept):
        raise OlderError(f"{_OLDER_JOURNAL.format(table=table)}{_kept_text(kept)}; {OLDER_ADVICE}")


_OLDER_JOURNAL = "the journal is in an older state than table {table} knows of: it was restored from a backup"
OLDER_ADVICE = "stop all relays and services, then run `migrator verify --repair`, which makes it whole again"


def _kept_text(kept: Kept) -> str:
    phases = [f"{name} {phase.phase}" for name, phase in kept.phases.items()]
    direct = [f"written by the service itself: {', '.join(sorted(kept.direct))}"] if kept.direct else []
    text = "; ".join([*([f"phases: {', '.join(phases)}"] if phases else []), *direct])
    return f" (the table keeps of it: {text})" if text else ""


class Keeping(Struct, frozen=True):
    """Check before every write with a ticket (rule 8). `table`: its name."""

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
        """Check, and keep the agreed state in the table, where it outlives source and journal. Raises: as
        `look`."""
        try:
            self.sign(*self.look())
        except RestoredError:
            # Recorded in the journal so that no writer draws: once the counter has caught up, nothing would show it.
            self.memory.reached(self.control.read_control().ticket)
            raise

    def look(self) -> tuple[ControlState, OnRecord]:
        """Return the records of table and journal.

        Raises: RestoredError, AnotherJournalError, OlderError if source, journal and table are in conflict.
        """
        # In this order: each value only grows, so the one read later covers at least those read before.
        seen = self.identity.seen(self.table_id)
        state = self.control.read_control()
        journal, reached = self.on_record(), self.memory.highest()
        refuse_another(state, self.job, journal, self.table)
        highest, counter = max(reached, state.ticket), self.tickets.highest()
        if counter < highest:
            raise RestoredError(behind(counter, highest))
        self._refuse_older_table(state, seen, journal)
        refuse_older_journal(state, self.job, journal, self.table)
        self._refuse_forgetful(state, seen, reached)
        return state, journal

    def sign(self, state: ControlState, journal: OnRecord) -> None:
        """Write the lasting state to the table, and the ticket seen there to the journal."""
        kept = journal.kept(state.jobs.get(self.job))
        if state.jobs.get(self.job) != kept or state.table_id != self.table_id:
            self.control.keep(self.table_id, self.job, kept)
        # Not raised here: the writer that drew a ticket raises it, and would otherwise take it for another writer's.
        self.identity.see(self.table_id, self.table, state.ticket)

    def _refuse_older_table(self, state: ControlState, seen: int | None, journal: OnRecord) -> None:
        if seen == UNIMPORTED:
            what = f"an import into table {self.table} has not ended well"
            mend = (
                "give `migrator table import` again; where the import itself failed, delete the table first"
            )
            raise SettingsError(f"{what}; {mend}")
        if seen == UNREPAIRED:
            what = f"the epoch was raised, and table {self.table} may hold what the source has lost"
            raise OlderError(f"{what}; {OLDER_ADVICE}")
        copied = bool(state.table_id) and state.table_id != self.table_id
        forgot = seen is not None and (state.ticket < seen or self.job not in state.jobs)
        if copied or forgot or self._is_from_before(state, journal):
            what = f"table {self.table} is in an older state than this journal knows of"
            why = "it was restored from a backup or created again, is a copy of another table, or lost its control item"
            raise OlderError(f"{what}: {why}; {OLDER_ADVICE}")

    def _is_from_before(self, state: ControlState, journal: OnRecord) -> bool:
        """Return whether the table lacks records, though it has items or answers patterns, from an earlier one."""
        if self.job in state.jobs or not self.identity.tables_named(self.table) - {self.table_id}:
            return False
        is_asked = any(phase.state.phase in (*LASTING, "ramp") for phase in journal.phases.values())
        return is_asked or not self.is_empty()

    def _refuse_forgetful(self, state: ControlState, seen: int | None, reached: int) -> None:
        if state.ticket <= reached:
            return
        if seen is not None:
            raise OlderError(f"{_OLDER_JOURNAL.format(table=self.table)}; {OLDER_ADVICE}")
        what = f"table {self.table} was written with another journal than this one, which knows nothing of it"
        raise AnotherJournalError(
            f"{what}: item keys that the other one remembers would be missed; {LOST_ADVICE}"
        )


def refuse_source_table(source: object, table_id: str) -> None:
    """Raises: SettingsError if rows are read from the table that their items would be written to."""
    if isinstance(source, DocumentRows) and (name := source.table_ids().get(table_id)):
        what = f"table {name} is the target, and one of the old tables that it is made of"
        raise SettingsError(f"{what}; name another table in target:, so that no item stands among documents")


# ── A run keeps to the columns that it began with: a column that comes, goes or changes is reported ──

_ADVICE = (
    "rows read before and after do not fit together. Correct the mapping where it names them (or put them back),"
    " then run the same command again: over other columns it begins a new run"
)


@contextmanager
def pinned_columns(
    source: Rows, journal: SqlJournal, run: Run, entities: Sequence[CompiledEntity]
) -> Iterator[None]:
    """Check the source's columns if a SELECT misses one, and at the end, since new columns stop no SELECT.

    Raises: SourceError with the changes of columns that are read; other changes become findings.
    """
    try:
        yield
    except MissingNameError:
        _check(source, journal, run, entities)
        raise
    _check(source, journal, run, entities)


def _check(source: Rows, journal: SqlJournal, run: Run, entities: Sequence[CompiledEntity]) -> None:
    facts = source.facts()
    for entity in entities:
        changed = changes(entity.plan, facts)
        if any(change.read for change in changed):
            what = "; ".join(str(change) for change in changed)
            raise SourceError(f"entity {entity.name}: since the run began, {what}; {_ADVICE}")
        journal.add_findings(run, [_finding(entity, change) for change in changed])


def _finding(entity: CompiledEntity, change: ColumnChange) -> Finding:
    what = f"{change} since the run began; the run does not read it"
    return Finding("schema", entity.name, what, attribute=change.column)


# ── Rows with one key: looked for before anything moves, and reported as findings wherever they are met ──

AT_MOST = 100
"""The most keys that are shown; the rest is found once these are fixed."""


def need_no_twins(source: Rows, plan: EntityPlan) -> None:
    """Look for rows with the same key if no constraint rules them out.

    If the source times out, only the check of each page as it is read remains.
    Raises: TwinRowsError.
    """
    if not key_doubt(plan):
        return
    try:
        twins = source.twins(plan, AT_MOST)
    except TooSlowError:
        return
    if twins:
        where = f"entity {plan.entity.name} (table {plan.table.real})"
        raise TwinRowsError(where, plan.entity.name, twins)


@contextmanager
def checked_rows(
    source: Rows, journal: SqlJournal, run: Run, entities: Sequence[CompiledEntity]
) -> Iterator[None]:
    with pinned_columns(source, journal, run, entities), recording_twins(journal, run):
        yield


@contextmanager
def recording_twins(journal: SqlJournal, run: Run) -> Iterator[None]:
    """Record rows with the same key, which end the run, as findings."""
    try:
        yield
    except TwinRowsError as error:
        recorded = {
            (finding.entity, finding.source_key)
            for finding in journal.findings(run)
            if finding.kind == "collision"
        }
        findings = [
            Finding("collision", error.entity, f"{count} rows have this key", key)
            for key, count in error.keys
            if (error.entity, key) not in recorded
        ]
        journal.add_findings(run, findings)
        raise
