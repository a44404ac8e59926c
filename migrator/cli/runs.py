"""Runs as commands begin them: the table is there and fits, one run a job, resumed where one was left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event

from migrator import live_wiring, logs, wiring
from migrator.cutover_settings import Hook
from migrator.errors import Interrupted, MigratorError, SettingsError, TargetError
from migrator.hooks import tell
from migrator.journal.lease import RunLease
from migrator.journal.memory import SqlMemory
from migrator.journal.store import SqlJournal
from migrator.mapping.columns import columns_digest
from migrator.mapping.items import CompiledEntity
from migrator.model import TableDesign
from migrator.ports import ItemStore, Journal, ObjectStore, Run, RunIdentity, RunKind
from migrator.settings import Job
from migrator.stages.dry import DryStore, sends_nothing
from migrator.wiring import Laid, Target

DRY_TABLE = "dry-run"


@dataclass(frozen=True)
class Session:
    """The edges of one command's run. `check` raises when the run has lost its lease. `is_shared`: the table holds, or may
    hold, items that are not of this job."""

    journal: SqlJournal
    store: ItemStore
    table_id: str
    check: Callable[[], None]
    objects: ObjectStore | None = None
    target: Target | None = None
    is_shared: bool = False


def dry_session(stack: ExitStack, design: TableDesign) -> Session:
    """A session that writes nowhere."""
    journal = SqlJournal.in_memory()
    stack.callback(journal.close)
    return Session(journal, DryStore(design), DRY_TABLE, sends_nothing)


def live_session(
    stack: ExitStack, job: Job, design: TableDesign, stop: Event, *, into_existing: bool
) -> Session:
    """A session on the job's table, holding the job's lease until the stack unwinds.

    Raises: TargetError when the table is not there, is another one or is somebody else's; SettingsError when
    another run of the job is at work.
    """
    target = wiring.open_target(job, design, stop.is_set)
    table_id = live_wiring.existing_table(job, target)
    journal = stack.enter_context(wiring.open_journal(job, stop.is_set))
    lease = stack.enter_context(RunLease(journal, job.name))
    if into_existing:
        # For good: a run that goes on without the option finds the same items there.
        journal.keep_shared(table_id)
    else:
        _refuse_foreign(job, target, journal, table_id)
    is_shared = journal.is_shared(table_id)
    return Session(journal, target.store, table_id, lease.check, target.objects, target, is_shared)


def need_bucket(job: Job, entities: Sequence[CompiledEntity]) -> None:
    """Raises SettingsError where the mapping keeps attributes in S3 and the job names no bucket."""
    keeping = [entity.name for entity in entities if entity.contents]
    if keeping and job.target.bucket is None:
        what = f"{job.path}: {', '.join(keeping)} keeps attributes in S3; write target: {{bucket: …}}"
        raise SettingsError(what)


def _refuse_foreign(job: Job, target: Target, journal: SqlJournal, table_id: str) -> None:
    """Raises TargetError when the table holds items though this job has not begun to write to it."""
    if table_id in journal.written_tables(job.name):
        return
    # A strict service, or one that flushes, has no run; but every ticket that it wrote with is known here.
    if SqlMemory(journal.database, table_id).highest():
        return
    for page in target.store.scan(0, 1):
        # A relay that has just begun told the table of its journal, and that one not yet of its run.
        if any(not target.design.is_hidden(item) for item in page.items):
            what = "holds items that this job's journal knows nothing of"
            raise TargetError(
                f"table {target.design.name} {what}; take an empty table, or say --into-existing"
            )


def identity_of(
    kind: RunKind,
    laid: Laid,
    table_id: str,
    entities: Sequence[CompiledEntity],
    scope: str = "",
    *,
    installation: str = "",
) -> RunIdentity:
    """Columns that changed make another run: it begins anew, since half of the items would be made of the old ones.

    So does another `installation` of capture: what changed before it left no mark.
    """
    revision = columns_digest(
        laid.checked.mapping.revision + installation, [entity.plan for entity in entities]
    )
    return RunIdentity(kind, laid.job.name, table_id, revision, scope)


def scope_of(entities: Sequence[CompiledEntity], limit: int | None, *, named: bool) -> str:
    """What a run covers, as text: two runs of one scope are the same work."""
    names = ",".join(entity.name for entity in entities) if named else ""
    return f"{names};limit={limit}" if limit is not None else names


def begin(journal: Journal, identity: RunIdentity, *, again: bool, after: int) -> Run:
    """The run to work on: an unfinished one resumed, or a new one; a finished one as it is unless `again`.

    `after`: the last run whose work is of no use any more, since the job went on to another mapping and back.
    """
    found = journal.find_run(identity)
    if found is None or found.id <= after or (found.state == "done" and again):
        return journal.start_run(identity)
    return found if found.state == "done" else journal.resume_run(found)


def pages_of(journal: Journal, run: Run) -> tuple[int, int]:
    """(done, planned by now)."""
    counts = [journal.page_counts(run, entity) for entity in journal.planned(run)]
    return sum(done for done, _ in counts), sum(planned for _, planned in counts)


class RunEnd:
    """Writes into the journal how a run ended, whatever ended it; the log's lines carry the run. `hooks` are told of a
    failure."""

    def __init__(self, journal: Journal, run: Run, hooks: Sequence[Hook] = ()) -> None:
        self.journal = journal
        self.run = run
        self.hooks = hooks

    def __enter__(self) -> None:
        logs.bind_run(self.run.id)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.journal.end_run(self.run, "done")
        elif isinstance(error, (Interrupted, KeyboardInterrupt)):
            self.journal.end_run(self.run, "interrupted")
        elif isinstance(error, MigratorError):
            identity = self.run.identity
            failed = {"run": self.run.id, "kind": identity.kind, "reason": str(error)}
            try:
                self.journal.end_run(self.run, "failed")
            finally:
                tell(self.hooks, "run_failed", identity.job, **failed)
