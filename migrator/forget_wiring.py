"""The stage that forgets a row, put together: constructor calls, no decisions."""

from __future__ import annotations

from collections.abc import Sequence

from migrator import live_wiring
from migrator.journal.memory import SqlMemory
from migrator.journal.store import SqlJournal
from migrator.journal.traces import SqlTraces
from migrator.journal.writers import SqlWriters
from migrator.ports.live import Root
from migrator.stages.forget import Forget
from migrator.target.conditional import ConditionalWrites
from migrator.wiring import Laid, Target


def forgetting(
    laid: Laid, target: Target, journal: SqlJournal, table_id: str, roots: Sequence[Root]
) -> Forget:
    """The stage that forgets a row, without marks: those are the caller's to add where capture is installed."""
    writers = SqlWriters(journal.database, table_id)
    entities = {one.name: one for one in laid.checked.entities}
    return Forget(
        roots=roots,
        entity=entities[roots[0][0]],
        source=laid.source.at_primary(),
        store=target.store,
        dead=ConditionalWrites(target.store),
        design=target.design,
        traces=SqlTraces(journal.database, laid.job.name, table_id),
        writers=writers,
        now_s=writers.now_s,
        highest=SqlMemory(journal.database, table_id).highest,
        lifetimes=live_wiring.lifetimes_of(laid.job),
        wait=target.store.retry.wait,
    )
