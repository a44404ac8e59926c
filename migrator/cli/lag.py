"""How far items are behind rows, and who writes them: what `migrator status` says beside the runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from migrator import live_wiring
from migrator.errors import MigratorError
from migrator.journal.store import SqlJournal
from migrator.journal.writers import SqlWriters
from migrator.ports.live import MarksState, Writer
from migrator.report.relay import lag_line
from migrator.settings import Job


@dataclass(frozen=True)
class Lag:
    """`marks` None: capture is not installed, or `reason` says why the source could not be asked."""

    marks: MarksState | None
    writers: Sequence[Writer]
    reason: str = ""

    def data(self) -> dict[str, Any]:
        state = self.marks
        marks = None if state is None else {name: getattr(state, name) for name in state.__slots__}
        writers = [
            {
                "id": one.id,
                "kind": one.kind,
                "since": one.since,
                "alive_at": one.alive_at,
                "fenced": one.fenced,
            }
            for one in self.writers
        ]
        return {"marks": marks, "reason": self.reason, "writers": writers}

    def lines(self) -> Iterator[str]:
        """For people."""
        if self.reason:
            yield f"marks: the source cannot be asked: {self.reason}"
        else:
            yield "capture is not installed" if self.marks is None else lag_line(self.marks)
        kinds = [f"{one.kind} (told to stop)" if one.fenced else one.kind for one in self.writers]
        if kinds:
            counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
            yield f"writers that are, or may be, alive: {counted}"


def lag_of(job: Job, journal: SqlJournal) -> Lag:
    """A source that cannot be reached is told, and is no failure: the journal's part can be shown all the same."""
    lifetimes = live_wiring.lifetimes_of(job)
    tables = dict.fromkeys(run.identity.table_id for run in journal.runs(job.name))
    writers = [
        one for table_id in tables for one in SqlWriters(journal.database, table_id).living(lifetimes.gone_s)
    ]
    try:
        with live_wiring.open_live(job, "status", patience=live_wiring.ONCE) as live:
            marks = None if live.capture.installation() is None else live.marks.state()
    except MigratorError as error:
        return Lag(None, writers, str(error))
    return Lag(marks, writers)
