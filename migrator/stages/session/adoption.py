"""Opens what gives a table another journal, and what tells a journal or a source that went back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from migrator.dynamodb.control import ControlItem, control_state
from migrator.dynamodb.store import by_condition
from migrator.journal.identity import SqlIdentity
from migrator.journal.memory import SqlMemory
from migrator.journal.phases import SqlPhases
from migrator.journal.runs import SqlJournal
from migrator.journal.writers import SqlWriters
from migrator.mapping.model.edges import ControlState
from migrator.settings.job import Job
from migrator.settings.transforms import sound_mapping
from migrator.stages.core import adoption
from migrator.stages.core import ownership as owner
from migrator.stages.core.adoption import Adoption
from migrator.stages.live.refresh import refuse_behind
from migrator.stages.live.relay import live_entities, remembered
from migrator.stages.session import job as job_wiring
from migrator.stages.session.job import JobContext, Target
from migrator.stages.session.live import ONCE, open_live


def try_tickets(context: JobContext, journal: Callable[[], SqlJournal]) -> None:
    """Raises: SourceError where this user may not draw tickets; SettingsError where the source went back (rule 8)."""
    with open_live(context.job, "doctor", patience=ONCE, source=context.source) as live:
        live.tickets.probe()
        refuse_behind(live.tickets, known_tickets(context.job, journal))


def try_table(context: JobContext, journal: Callable[[], SqlJournal]) -> None:
    """Raises: OlderError, AnotherJournalError, SettingsError for a table with which a relay does not go on."""
    job = context.job
    target = job_wiring.open_target(job, context.checked.mapping.table, lambda: False)
    if target.admin.state(target.design) is None:
        return
    control = ControlItem(target.store, _taken_over)
    with open_live(job, "doctor", patience=ONCE, source=context.source) as live:
        tickets, table_id = live.tickets, target.table_id()
        job_wiring.keeping_of(job, target, journal(), table_id, tickets, control).look()


def known_tickets(job: Job, journal: Callable[[], SqlJournal]) -> list[int]:
    """The highest tickets that the journal and the table know of."""
    target = job_wiring.open_target(job, sound_mapping(job.mapping).mapping.table, lambda: False)
    return adoption.known_tickets(
        target.admin.state(target.design),
        lambda table_id: SqlMemory(journal().database, table_id),
        partial(control_state, target.store),
    )


def want_repair(job: Job, journal: Callable[[], SqlJournal]) -> None:
    """Marks the job's table as one that no process writes before it was repaired."""
    target = job_wiring.open_target(job, sound_mapping(job.mapping).mapping.table, lambda: False)
    adoption.want_repair(
        target.admin.state(target.design),
        target.design.name,
        lambda: SqlIdentity(journal().database, job.name),
        partial(control_state, target.store),
    )


def adoption_of(context: JobContext, target: Target, journal: SqlJournal, table_id: str) -> Adoption:
    job, database = context.job, journal.database
    entities = live_entities(context.checked.mapping, context.checked.entities, context.source)

    revision = context.checked.mapping.revision
    return Adoption(
        job=job.name,
        table_id=table_id,
        design=target.design,
        remembered=remembered(entities),
        pages=target.pages,
        memory=SqlMemory(database, table_id),
        writers=SqlWriters(database, table_id),
        control=ControlItem(target.store.fenced(by_condition), _taken_over),
        identity=SqlIdentity(database, job.name),
        phases=SqlPhases(database, job.name),
        on_record=lambda: job_wiring.on_record(job, journal),
        keep_direct=partial(owner.keep_direct, journal, job.name, table_id, revision),
    )


def _taken_over(state: ControlState) -> None:
    """Accepts any state: an adoption takes the table over, whichever journal has written to it meanwhile."""
