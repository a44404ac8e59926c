"""Opens a verify: the run that it goes on with, and what it leaves as evidence for the end of a migration."""

from __future__ import annotations

from dataclasses import dataclass

from migrator.journal import evidence
from migrator.journal.revisions import newest_of
from migrator.journal.runs import SqlJournal
from migrator.model.errors import SettingsError, SourceError
from migrator.model.journal import Run, RunIdentity
from migrator.runtime.logs import get_logger
from migrator.source.capture.activity import SqlActivity
from migrator.wiring.job import JobContext
from migrator.wiring.live import Live

RESUMED_WITHIN_S = 3600.0
"""A verify that was stopped longer ago begins anew: what it looked at then says little about now."""

_log = get_logger("verify")


@dataclass(frozen=True)
class Begun:
    """`told`: what the operator should know of how it begins; '' for a run like any other."""

    run: Run
    told: str = ""


def begin(journal: SqlJournal, identity: RunIdentity, *, again: bool) -> Begun:
    """A stopped run resumed where that is young enough, or a new one. `again`: a new one in any case."""
    found = journal.find_run(identity)
    newest = newest_of(journal.database, identity.job)
    is_outdated = found is not None and newest is not None and found.id <= newest.runs_before
    if found is None or found.state == "done" or again or is_outdated:
        return Begun(journal.start_run(identity))
    idle_s = evidence.idle_s(journal.database, found)
    if idle_s > RESUMED_WITHIN_S:
        why = f"it was stopped {idle_s / 3600:.1f} hours ago, and what it looked at may have changed"
        run = journal.start_run(identity)
        return Begun(
            run, f"run {found.id} of {found.started_at} does not go on: {why}; run {run.id} begins anew"
        )
    return Begun(journal.resume_run(found), f"run {found.id} of {found.started_at} goes on")


def keep_look(live: Live, context: JobContext, journal: SqlJournal, run: Run) -> None:
    """Keeps what the source counts of changes as a verify begins: later ones are told by it before SQL goes.

    Where the source does not tell, the verify goes on; the move to complete will say that it is not known.
    """
    try:
        tables = [one.name for one in live.capture.captured([one.plan for one in context.checked.entities])]
        evidence.keep_look(journal.database, run.id, SqlActivity(live.marks.writing).look(tables))
    except (SettingsError, SourceError) as error:
        _log.info("changes_not_counted", reason=str(error))
