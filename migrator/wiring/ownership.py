"""Opens the stage that tells whether source, journal and table belong together."""

from __future__ import annotations

from collections.abc import Callable

from migrator.journal.identity import SqlIdentity
from migrator.journal.memory import SqlMemory
from migrator.journal.phases import SqlPhases
from migrator.journal.runs import SqlJournal
from migrator.journal.writers import SqlWriters
from migrator.model.edges import ControlState
from migrator.model.errors import MigratorError
from migrator.model.journal import RunIdentity
from migrator.model.live import Tickets
from migrator.runtime.logs import get_logger
from migrator.runtime.retry import Backoff
from migrator.settings.job import Job
from migrator.stages.live.relay import live_entities
from migrator.stages.ownership import (
    Adoption,
    Keeping,
    OnRecord,
    refuse_another,
    refuse_older_journal,
    refuse_phases_of_others,
)
from migrator.target.control import ControlItem, control_state
from migrator.target.store import by_condition
from migrator.wiring import job as job_wiring
from migrator.wiring.job import JobContext, Requests, Target

_ASKED_S = 5.0
"""How long a table is asked which journal is its own, where the answer is not needed to go on."""
_log = get_logger("journal")


def on_record(job: Job, journal: SqlJournal) -> OnRecord:
    """What the journal says of the job."""
    runs = [run for run in journal.runs(job.name) if run.identity.kind == "direct"]
    direct = frozenset(filter(None, runs[-1].identity.scope.split(","))) if runs else frozenset()
    database = journal.database
    return OnRecord(
        SqlIdentity(database, job.name).journal_id(),
        SqlPhases(database, job.name).all(),
        direct,
        runs[-1].id if runs else 0,
    )


def control_of(job: Job, target: Target, journal: SqlJournal) -> ControlItem:
    """The table's control item, whose writers are told when another journal has become the table's."""

    def changed(state: ControlState) -> None:
        refuse_another(state, job.name, on_record(job, journal), target.design.name)

    return ControlItem(target.store, changed)


def keeping_of(
    job: Job, target: Target, journal: SqlJournal, table_id: str, tickets: Tickets, control: ControlItem
) -> Keeping:
    return Keeping(
        job=job.name,
        table=target.design.name,
        table_id=table_id,
        tickets=tickets,
        memory=SqlMemory(journal.database, table_id),
        control=control,
        identity=SqlIdentity(journal.database, job.name),
        on_record=lambda: on_record(job, journal),
        is_empty=lambda: not any(page.items for page in target.store.scan(0, 1)),
    )


def adoption_of(context: JobContext, target: Target, journal: SqlJournal, table_id: str) -> Adoption:
    job, database = context.job, journal.database
    entities = live_entities(context.checked.mapping, context.checked.entities)

    def keep_direct(entities: frozenset[str]) -> None:
        revision = context.checked.mapping.revision
        run = journal.start_run(
            RunIdentity("direct", job.name, table_id, revision, ",".join(sorted(entities)))
        )
        journal.end_run(run, "done")

    return Adoption(
        job=job.name,
        table_id=table_id,
        design=target.design,
        remembered=frozenset(name for name, one in entities.items() if one.remembered),
        pages=lambda: (page.items for page in target.store.scan(0, 1)),
        memory=SqlMemory(database, table_id),
        writers=SqlWriters(database, table_id),
        control=ControlItem(target.store.fenced(by_condition), _taken_over),
        identity=SqlIdentity(database, job.name),
        phases=SqlPhases(database, job.name),
        on_record=lambda: on_record(job, journal),
        keep_direct=keep_direct,
    )


def _taken_over(state: ControlState) -> None:
    """Nothing: who adopts a table takes it over, whichever journal has told it something meanwhile."""


def refuse_strange(job: Job, target: Target, journal: SqlJournal, *, older: bool = True) -> None:
    """Raises: AnotherJournalError, with `older` also OlderError, where the table keeps what this journal does not know."""
    state = control_state(target.store)
    _refuse_strange(state, job, target, journal, older=older)


def _refuse_strange(
    state: ControlState, job: Job, target: Target, journal: SqlJournal, *, older: bool
) -> None:
    table = target.design.name
    if job.name not in state.jobs:
        if not SqlIdentity(journal.database, job.name).knows_job():
            refuse_phases_of_others(
                state, job.name, job_wiring.sound_mapping(job.mapping).mapping.patterns, table
            )
        return
    journal_of_job = on_record(job, journal)
    refuse_another(state, job.name, journal_of_job, table)
    if older:
        refuse_older_journal(state, job.name, journal_of_job, table)


def jobs_of(target: Target) -> frozenset[str]:
    """The captured jobs that the table keeps something of."""
    return frozenset(control_state(target.store).jobs)


def keep_on_record(job: Job, target: Target, journal: SqlJournal, table_id: Callable[[], str]) -> None:
    """The table keeps the lasting phases and direct entities of the journal, where it does not yet. Of a journal that went
    back it learns nothing."""
    control = control_of(job, target.fenced(by_condition), journal)
    state, journal_of_job = control.read_control(), on_record(job, journal)
    before = state.jobs.get(job.name)
    if before is not None and journal_of_job.contradicts(before):
        return
    kept = journal_of_job.kept(before)
    if kept != before and (before or kept.phases or kept.direct):
        control.keep(table_id(), job.name, kept)


def hasty_target(job: Job) -> Target:
    """The job's table, asked for a few seconds at most."""
    design = job_wiring.sound_mapping(job.mapping).mapping.table
    backoff = Backoff(attempts=2, base_s=0.1, cap_s=0.2, limit_s=_ASKED_S)
    return job_wiring.open_target(job, design, lambda: False, Requests(2, _ASKED_S, backoff))


def refuse_strange_start(job: Job, journal: SqlJournal) -> None:
    """The same before a service reads. A table that cannot be asked is told in the log, and is no reason not to start.

    Raises: AnotherJournalError, OlderError.
    """
    try:
        target = hasty_target(job)
        state = control_state(target.store)
    except MigratorError as error:
        _log.warning("table_cannot_be_asked_for_its_journal", reason=str(error))
        return
    _refuse_strange(state, job, target, journal, older=True)
