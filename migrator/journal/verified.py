"""What is known of a verify that began before: what the source counted of changes then, and how long ago it worked."""

from __future__ import annotations

import json
from datetime import datetime

from sqlalchemy import func, select

from migrator.journal.dialect import insert_or_ignore, seconds
from migrator.journal.engine import Database
from migrator.journal.schema import page, verified_look
from migrator.ports import Run
from migrator.ports.activity import Looked

_KEPT = ("tables", "whole", "source", "blind")


def keep_look(database: Database, run_id: int, look: Looked) -> None:
    """Keeps the first look of a run; one that goes on after a stop has read rows since then."""
    with database.begin() as connection:
        row = {"run_id": run_id, "look": json.dumps({name: getattr(look, name) for name in _KEPT})}
        connection.execute(insert_or_ignore(connection, verified_look), row)


def look_before(database: Database, run_id: int) -> Looked | None:
    """The look that the run began with; None where nobody looked."""
    query = select(verified_look.c.look).where(verified_look.c.run_id == run_id)
    with database.begin() as connection:
        text = connection.execute(query).scalar()
    return None if text is None else Looked(**{name: json.loads(text)[name] for name in _KEPT})


def idle_s(database: Database, run: Run) -> float:
    """Seconds since a run was last seen at work, by the journal's clock."""
    with database.begin() as connection:
        last_page = connection.execute(
            select(func.max(page.c.done_at)).where(page.c.run_id == run.id)
        ).scalar()
        seen = max(run.started_at, run.ended_at or "", last_page or "")
        return seconds(connection) - datetime.fromisoformat(seen).timestamp()
