"""What a verify leaves behind for the end of a migration."""

from __future__ import annotations

from migrator.errors import SettingsError, SourceError
from migrator.journal import verified
from migrator.journal.store import SqlJournal
from migrator.live_wiring import Live
from migrator.logs import get_logger
from migrator.ports import Run
from migrator.source.activity import SqlActivity
from migrator.wiring import Laid

_log = get_logger("verify")


def keep_look(live: Live, laid: Laid, journal: SqlJournal, run: Run) -> None:
    """Keeps what the source counts of changes as a verify begins: later ones are told by it before SQL goes.

    Where the source does not tell, the verify goes on; the move to complete will say that it is not known.
    """
    try:
        tables = [one.name for one in live.capture.captured([one.plan for one in laid.checked.entities])]
        verified.keep_look(journal.database, run.id, SqlActivity(live.marks.writing).look(tables))
    except (SettingsError, SourceError) as error:
        _log.info("changes_not_counted", reason=str(error))
