"""Opens the stage that forgets a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event

from migrator.journal.memory import SqlMemory
from migrator.journal.runs import SqlJournal
from migrator.journal.traces import SqlTraces
from migrator.journal.writers import SqlWriters
from migrator.model.live import Root
from migrator.stages.forget import Forget
from migrator.target.conditional import ConditionalWrites
from migrator.wiring import live as live_wiring
from migrator.wiring.job import JobContext, Target
from migrator.wiring.live import Live


def forgetting(
    context: JobContext,
    target: Target,
    journal: SqlJournal,
    table_id: str,
    roots: Sequence[Root],
    *,
    check: Callable[[], None],
    live: Live | None,
    stop: Event,
) -> Forget:
    """The stage that forgets a row. `live`: capture's edges where it is installed; None where no change leaves a mark."""
    plans, tuning = [one.plan for one in context.checked.entities], context.job.tuning
    writers = SqlWriters(journal.database, table_id)
    entities = {one.name: one for one in context.checked.entities}
    return Forget(
        roots=roots,
        entity=entities[roots[0][0]],
        source=context.source.at_primary(),
        store=target.store,
        dead=ConditionalWrites(target.store),
        design=target.design,
        traces=SqlTraces(journal.database, context.job.name, table_id),
        writers=writers,
        now_s=writers.now_s,
        highest=SqlMemory(journal.database, table_id).highest,
        lifetimes=live_wiring.lifetimes_of(context.job),
        wait=target.store.retry.wait,
        check=check,
        marks=None if live is None else live.marks,
        captured={} if live is None else {one.name: one for one in live.capture.captured(plans)},
        segments=tuning.scan_segments,
        workers=tuning.workers,
        stop=stop,
    )
