"""Writers and instances that have been silent for long, without a test that waits for it."""

from __future__ import annotations

from sqlalchemy import update

from migrator.journal import schema
from migrator.journal.writers import SqlInstances, SqlWriters
from migrator.mapping.model.instances import Instance, Instances
from migrator.mapping.model.live import Writer, Writers
from migrator.runtime.values import replace
from tests.fakes.journal import FakeInstances, FakeWriters

LONG_S = 1000.0


def silence(known: Instances | Writers, one: Instance | Writer) -> None:
    """Its last beat was LONG_S earlier."""
    alive_at = one.alive_at - LONG_S
    if isinstance(known, FakeInstances):
        known.instances[one.id] = replace(known.instances[one.id], alive_at=alive_at)
    elif isinstance(known, FakeWriters):
        known.writers[one.id] = replace(known.writers[one.id], alive_at=alive_at)
    else:
        assert isinstance(known, SqlInstances | SqlWriters)
        table = schema.record if isinstance(known, SqlInstances) else schema.writer
        with known.database.begin() as connection:
            connection.execute(update(table).where(table.c.id == one.id).values(alive_at=alive_at))
