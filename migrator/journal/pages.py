"""Pages by the table that they were written to: whose they are, and which are to be worked again."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select, update

from migrator.journal.schema import page, plan, run

_NOTHING = {
    "rows": 0,
    "items": 0,
    "refused": 0,
    "expired": 0,
    "bytes": 0,
    "write_units": 0.0,
    "different": 0,
    "done_at": None,
}


def writers(connection: Connection, table_id: str) -> dict[str, set[str]]:
    """Per job, the entities that its backfills into this table have planned."""
    query = (
        select(run.c.job, plan.c.entity)
        .join(plan, plan.c.run_id == run.c.id)
        .where(run.c.table_id == table_id, run.c.kind == "backfill")
        .distinct()
    )
    found: dict[str, set[str]] = {}
    for job, entity in connection.execute(query):
        found.setdefault(job, set()).add(entity)
    return found


def reopen(connection: Connection, job: str, table_id: str, entities: Sequence[str]) -> int:
    """Finished pages of the job's backfills into this table that count as not done from now on."""
    backfills = select(run.c.id).where(run.c.job == job, run.c.table_id == table_id, run.c.kind == "backfill")
    mine = (page.c.run_id.in_(backfills), page.c.entity.in_(entities), page.c.done_at.is_not(None))
    touched = set(connection.execute(select(page.c.run_id).where(*mine).distinct()).scalars())
    count = connection.execute(update(page).where(*mine).values(**_NOTHING)).rowcount
    finished = update(run).where(run.c.id.in_(touched), run.c.state == "done")
    connection.execute(finished.values(state="interrupted"))
    return int(count)
