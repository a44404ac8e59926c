"""Opens what gives a table another journal, and what tells a journal or a source that went back."""

from __future__ import annotations

from functools import partial

from migrator.dynamodb.control import ControlItem, control_state
from migrator.dynamodb.store import by_condition
from migrator.mapping.model.edges import ControlState
from migrator.stages.core import adoption
from migrator.stages.core import ownership as owner
from migrator.stages.core.adoption import Adoption
from migrator.stages.live.refresh import refuse_behind
from migrator.stages.live.relay import live_entities, remembered
from migrator.stages.session.session import JobSession


def try_tickets(session: JobSession) -> None:
    """Raises: SourceError where this user may not draw tickets; SettingsError where the source went back (rule 8)."""
    session.live.tickets.probe()
    refuse_behind(session.live.tickets, known_tickets(session))


def try_table(session: JobSession) -> None:
    """Raises: OlderError, AnotherJournalError, SettingsError for a table with which a relay does not go on."""
    target = session.target
    if target.admin.state(target.design) is not None:
        session.keeping(session.live.tickets, ControlItem(target.store, _taken_over)).look()


def guard(session: JobSession) -> None:
    """Raises: as try_table does, and where the table is another job's."""
    session.refuse_strange(session.target)
    if session.live.capture.installation() is not None:
        session.keeping(session.live.tickets, session.control_of(session.target.fenced(by_condition))).guard()


def known_tickets(session: JobSession) -> list[int]:
    """The highest tickets that the journal and the table know of."""
    target = session.target
    return adoption.known_tickets(
        target.admin.state(target.design),
        session.memory_of,
        partial(control_state, target.store),
    )


def want_repair(session: JobSession) -> None:
    """Marks the job's table as one that no process writes before it was repaired."""
    target = session.target
    adoption.want_repair(
        target.admin.state(target.design),
        target.design.name,
        lambda: session.identity,
        partial(control_state, target.store),
    )


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
    """Accepts any state: an adoption takes the table over, whichever journal has written to it meanwhile."""
