"""Opens what says whether rows are still the truth, asked before old rows could overwrite newer items."""

from __future__ import annotations

from collections.abc import Collection

from migrator.journal.phases import SqlPhases
from migrator.journal.runs import SqlJournal
from migrator.mapping.live.direct import patterns_reading
from migrator.model.entities import Mapping
from migrator.model.errors import SettingsError
from migrator.model.phase import ROUTES
from migrator.settings.job import Job
from migrator.wiring.ownership import on_record

ANSWERING = [phase for phase, route in ROUTES.items() if "table" in (route.answers, route.in_share)]
FORCE = "say --force where you know that nobody has written to the table yet"


def need_rows(job: Job, mapping: Mapping, journal: SqlJournal, advice: str = FORCE) -> None:
    """Raises: as need_direct does; SettingsError with `advice` where every pattern is complete."""
    need_direct(job, mapping, journal)
    refuse_complete(job, mapping, journal, advice)


def refuse_complete(job: Job, mapping: Mapping, journal: SqlJournal, advice: str = FORCE) -> None:
    """Raises: SettingsError with `advice` where every pattern is complete, so that the service may write the table."""
    if all_complete(job, mapping, journal):
        what = "every access pattern is complete, so the service may have written to the table itself"
        raise SettingsError(f"{what}: old rows would be put over newer items (see docs/after.md); {advice}")


def all_complete(job: Job, mapping: Mapping, journal: SqlJournal) -> bool:
    """Whether the table is the truth of every pattern; never of a mapping without patterns."""
    phases = SqlPhases(journal.database, job.name).all() if mapping.patterns else {}
    known = [phases.get(name) for name in mapping.patterns]
    return bool(known) and all(one is not None and one.state.phase == "complete" for one in known)


def refuse_answering(job: Job, mapping: Mapping, journal: SqlJournal, entities: Collection[str]) -> None:
    """Raises: SettingsError where callers are answered from items of the entities."""
    phases = SqlPhases(journal.database, job.name).all()
    reading = [name for name in patterns_reading(mapping, sorted(entities)) if name in phases]
    answering = [
        f"{name} ({phases[name].state})" for name in reading if phases[name].state.phase in ANSWERING
    ]
    if answering:
        what = f"callers are answered from these items: {', '.join(answering)}"
        advice = "`migrator cutover rollback` these patterns to shadow or off first, or say --force"
        raise SettingsError(f"{what}; {advice}")


def need_direct(job: Job, mapping: Mapping, journal: SqlJournal) -> None:
    """Raises: SettingsError where the job and the journal disagree about direct entities, or where a pattern that reads
    one may still ask SQL: old rows would be put over newer items, or items grow old."""
    refuse_taken_out(job, journal)
    reading = patterns_reading(mapping, job.direct)
    phases = SqlPhases(journal.database, job.name).all() if reading else {}
    early = [name for name in reading if name not in phases or phases[name].state.phase != "complete"]
    if early:
        what = f"writes.direct names {', '.join(job.direct)}, and {', '.join(early)} is not complete"
        raise SettingsError(f"{what}: nobody would keep their items as new as the rows; complete them first")


def refuse_taken_out(job: Job, journal: SqlJournal) -> None:
    """Raises: SettingsError where the service writes an entity itself, and the job does not say so."""
    if taken_out := sorted(kept_direct(job, journal) - set(job.direct)):
        what = (
            f"the service writes {', '.join(taken_out)} itself, and writes.direct of this job does not say so"
        )
        raise SettingsError(f"{what}: old rows would be put over newer items; write it there again")


def kept_direct(job: Job, journal: SqlJournal) -> frozenset[str]:
    """Entities that the service writes itself, as capture install was told last."""
    return on_record(job, journal).direct
