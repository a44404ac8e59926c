"""What a run began with: which capture was installed, what the source had counted, how long ago it was at work, and the
export that an import made it of."""

from __future__ import annotations

import json
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, literal, select, update

from migrator.journal.database import Database, insert_or_ignore, seconds
from migrator.journal.memory import number_of
from migrator.journal.schema import claim, page, plan, run, run_capture, verified_look
from migrator.mapping.model.durations import moment
from migrator.mapping.model.journal import Run, RunIdentity
from migrator.mapping.model.live import ActivityCounts

_COUNT_FIELDS = ("tables", "whole", "source", "blind")


def keep_look(database: Database, run_id: int, look: ActivityCounts) -> None:
    """Keeps the first look of a run; one that goes on after a stop has read rows since then."""
    row = {"run_id": run_id, "look": json.dumps({name: getattr(look, name) for name in _COUNT_FIELDS})}

    def keep() -> None:
        with database.begin() as connection:
            connection.execute(insert_or_ignore(connection, verified_look), row)

    database.tried(keep, twice=True)


def look_before(database: Database, run_id: int) -> ActivityCounts | None:
    """The look that the run began with; None where there was none."""
    query = select(verified_look.c.look).where(verified_look.c.run_id == run_id)

    def read() -> str | None:
        with database.begin() as connection:
            return connection.execute(query).scalar()

    text = database.tried(read, twice=True)
    return (
        None if text is None else ActivityCounts(**{name: json.loads(text)[name] for name in _COUNT_FIELDS})
    )


def idle_s(database: Database, of: Run) -> float:
    """Seconds since a run was last seen at work, by the journal's clock."""
    query = select(func.max(page.c.done_at)).where(page.c.run_id == of.id)

    def read() -> float:
        with database.begin() as connection:
            last_page = connection.execute(query).scalar()
            last_seen = max(of.started_at, of.ended_at or "", last_page or "")
            return seconds(connection) - datetime.fromisoformat(last_seen).timestamp()

    return database.tried(read, twice=True)


def keep_installation(database: Database, run_id: int, installation: str) -> None:
    """Keeps which installation of capture ('' for none) a run began with; one that goes on has read rows since then."""
    row = {"run_id": run_id, "installation": installation}

    def keep() -> None:
        with database.begin() as connection:
            connection.execute(insert_or_ignore(connection, run_capture), row)

    database.tried(keep, twice=True)


def installation_of(database: Database, run_id: int) -> str | None:
    """What keep_installation kept; None where it kept nothing."""
    query = select(run_capture.c.installation).where(run_capture.c.run_id == run_id)

    def read() -> str | None:
        with database.begin() as connection:
            installation: str | None = connection.execute(query).scalar()
        return installation

    return database.tried(read, twice=True)


def unverified_run(database: Database, job: str, installation: str) -> int | None:
    """The last backfill into the job's table that began without this installation of capture, and that no full verify
    beside it has looked at since; None where there is none, or where nothing of it is left."""
    return database.tried(lambda: _unverified_run(database, job, installation), twice=True)


def _unverified_run(database: Database, job: str, installation: str) -> int | None:
    begun = select(run.c.id, run.c.kind, run.c.table_id, run.c.state, run.c.scope, run_capture.c.installation)
    query = begun.join(run_capture, run_capture.c.run_id == run.c.id).where(run.c.job == job)
    with database.begin() as connection:
        rows = connection.execute(query.order_by(run.c.id.desc())).all()
        backfills = [candidate for candidate in rows if candidate.kind == "backfill"]
        before = [
            candidate
            for candidate in backfills
            if candidate.table_id == backfills[0].table_id and candidate.installation != installation
        ]
        done = select(page.c.run_id).where(page.c.done_at.is_not(None)).distinct()
        written = set(
            connection.execute(
                done.where(page.c.run_id.in_([candidate.id for candidate in before]))
            ).scalars()
        )
    last = next((candidate for candidate in before if candidate.id in written), None)
    if last is None:
        return None
    verified = [
        candidate.id
        for candidate in rows
        if (candidate.kind, candidate.state, candidate.scope) == ("verify", "done", "")
        and (candidate.table_id, candidate.installation) == (last.table_id, installation)
    ]
    return None if verified and verified[0] > last.id else int(last.id)


# ── An import: what an export has read counts as written to the new table ──


def count_as_done(database: Database, exported: Run, identity: RunIdentity, installation: str) -> None:
    """Makes a backfill of that identity which is done, with the pages and claims of an export; once, however often it is
    asked for."""

    def work() -> None:
        with database.begin() as connection:
            there = select(run.c.id).where(
                run.c.table_id == identity.table_id, run.c.kind == identity.kind, run.c.job == identity.job
            )
            if connection.execute(there).first() is None:
                _count_as_done(connection, exported, identity, installation)

    database.tried(work, twice=True)


def _count_as_done(connection: Connection, exported: Run, identity: RunIdentity, installation: str) -> None:
    now = moment(seconds(connection))
    fields = ("kind", "job", "table_id", "revision", "scope")
    values = {name: getattr(identity, name) for name in fields}
    ended = {"state": "done", "started_at": exported.started_at, "ended_at": now}
    key = connection.execute(insert(run).values(**values, **ended)).inserted_primary_key
    assert key is not None
    for table in (plan, page):
        copied = [literal(int(key[0])) if column.name == "run_id" else column for column in table.columns]
        rows = select(*copied).where(table.c.run_id == exported.id)
        connection.execute(insert(table).from_select(list(table.columns.keys()), rows))
    connection.execute(insert(run_capture).values(run_id=int(key[0]), installation=installation))
    _move_claims(connection, exported.identity.table_id, identity.table_id)


def _move_claims(connection: Connection, before: str, now: str) -> None:
    """Claims are the table's from now on: where a row is forgotten, they are looked for there."""
    number = number_of(connection, now)
    connection.execute(delete(claim).where(claim.c.table_number == number))
    here = claim.c.table_number == number_of(connection, before)
    connection.execute(update(claim).where(here).values(table_number=number))
