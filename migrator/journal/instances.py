"""Which services run, by the journal database's own clock."""

from __future__ import annotations

import secrets
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Select, delete, func, select, update

from migrator.journal.dialect import insert_or_ignore, seconds
from migrator.journal.engine import Database, once_only, repeatable
from migrator.journal.schema import confirmed_phase as confirmed
from migrator.journal.schema import instance as instances
from migrator.journal.schema import instance_process as processes
from migrator.ports.instances import Instance


class SqlInstances:
    """ports.instances.Instances of one job."""

    def __init__(self, database: Database, job: str) -> None:
        self.database = database
        self.job = job

    def enter(self, instance: Instance) -> Instance:
        return self._enter(instance, secrets.token_hex(8))

    @repeatable
    def _enter(self, instance: Instance, name: str) -> Instance:
        with self.database.begin() as connection:
            now = seconds(connection)
            entered = replace(instance, id=name, since=now, alive_at=now)
            self._add(connection, entered)
        return entered

    @repeatable
    def beat(self, instance: Instance) -> Instance:
        here = instances.c.id == instance.id
        with self.database.begin() as connection:
            beaten = replace(instance, alive_at=seconds(connection))
            said = {name: getattr(instance, name) for name in ("role", "mode", "installation")}
            renewed = update(instances).where(here).values(alive_at=beaten.alive_at, **said)
            if not connection.execute(renewed).rowcount and not connection.scalar(
                select(instances.c.id).where(here)
            ):
                self._add(connection, beaten)
        return beaten

    @repeatable
    def leave(self, instance: Instance) -> None:
        with self.database.begin() as connection:
            self._forget(connection, select(instances.c.id).where(instances.c.id == instance.id))

    @repeatable
    def known(self) -> list[Instance]:
        with self.database.begin() as connection:
            return self._found(connection)

    @repeatable
    def living(self, silent_s: float) -> list[Instance]:
        with self.database.begin() as connection:
            return self._found(connection, instances.c.alive_at > seconds(connection) - silent_s)

    @once_only
    def forget_silent(self, older_than_s: float) -> int:
        with self.database.begin() as connection:
            long_ago = instances.c.alive_at < seconds(connection) - older_than_s
            return self._forget(
                connection, select(instances.c.id).where(instances.c.job == self.job, long_ago)
            )

    @repeatable
    def now_s(self) -> float:
        with self.database.begin() as connection:
            return seconds(connection)

    def _add(self, connection: Connection, entered: Instance) -> None:
        # It is there already where the answer to its commit was lost.
        said = {"job": self.job, **asdict(entered)}
        for table in (instances, processes):
            row = {column.name: said[column.name] for column in table.columns}
            connection.execute(insert_or_ignore(connection, table), row)

    def _forget(self, connection: Connection, which: Select[tuple[str]]) -> int:
        """How many there were."""
        ids = connection.execute(which).scalars().all()
        connection.execute(delete(confirmed).where(confirmed.c.instance.in_(ids)))
        connection.execute(delete(processes).where(processes.c.id.in_(ids)))
        return connection.execute(delete(instances).where(instances.c.id.in_(ids))).rowcount

    def _found(self, connection: Connection, *conditions: Any) -> list[Instance]:
        columns = [column for column in instances.columns if column is not instances.c.job]
        # Instances of older versions say nothing of their process.
        more = [
            func.coalesce(column, "").label(column.name) for column in (processes.c.sees, processes.c.born)
        ]
        joined = instances.outerjoin(processes, processes.c.id == instances.c.id)
        query = select(*columns, *more).select_from(joined).where(instances.c.job == self.job, *conditions)
        ordered = query.order_by(instances.c.since, instances.c.id)
        return [Instance(**row._mapping) for row in connection.execute(ordered)]
