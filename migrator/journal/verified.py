"""What the source counted of changes when a verify began, so that later changes are told from earlier ones."""

from __future__ import annotations

import json

from sqlalchemy import select

from migrator.journal.dialect import insert_or_ignore
from migrator.journal.engine import Database
from migrator.journal.schema import verified_look
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
