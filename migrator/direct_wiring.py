"""The edges of direct entities, put together: constructor calls, no decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from migrator import live_wiring
from migrator.cutover_results import Line
from migrator.cutover_wiring import Court
from migrator.journal.writers import SqlWriters
from migrator.mapping.direct import direct_tables, patterns_reading
from migrator.ports import RunIdentity
from migrator.stages.direct import may_be_direct


def keep_direct(court: Court) -> None:
    """Puts on record which entities the service writes itself from now on, and that it writes all others no more."""
    checked, job, journal = court.laid.checked, court.desk.job, court.desk.journal
    scope = ",".join(sorted(job.direct))
    run = journal.start_run(RunIdentity("direct", job.name, court.table_id, checked.mapping.revision, scope))
    journal.end_run(run, "done")


def direct_evidence(court: Court) -> Sequence[Line]:
    """What speaks for writing the job's direct entities past SQL from now on, and what against it."""
    checked, job = court.laid.checked, court.desk.job
    tables = direct_tables(checked)
    found = replace(court.dependence(tables=tables), tables=tables)
    gone_s = live_wiring.lifetimes_of(job).gone_s
    living = SqlWriters(court.desk.journal.database, court.table_id).living(gone_s)
    reading = patterns_reading(checked.mapping, job.direct)
    return may_be_direct(found, reading, sorted({one.kind for one in living}), checked.mapping.revision)
