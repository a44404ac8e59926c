"""Which services run, by the journal database's own clock."""

from __future__ import annotations

import secrets
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from migrator.journal.dialect import seconds
from migrator.journal.engine import Database
from migrator.journal.schema import confirmed_phase as confirmed
from migrator.journal.schema import instance as instances
from migrator.ports.instances import Instance


class SqlInstances:
    """ports.instances.Instances of one job."""

    def __init__(self, database: Database, job: str) -> None:
        self.database = database
        self.job = job

    def enter(self, instance: Instance) -> Instance:
        with self.database.begin() as connection:
            now = seconds(connection)
            entered = replace(instance, id=secrets.token_hex(8), since=now, alive_at=now)
            self._add(connection, entered)
        return entered

    def beat(self, instance: Instance) -> Instance:
        here = instances.c.id == instance.id
        with self.database.begin() as connection:
            beaten = replace(instance, alive_at=seconds(connection))
            renewed = update(instances).where(here).values(alive_at=beaten.alive_at)
            if not connection.execute(renewed).rowcount and not connection.scalar(
                select(instances.c.id).where(here)
            ):
                self._add(connection, beaten)
        return beaten

    def leave(self, instance: Instance) -> None:
        with self.database.begin() as connection:
            connection.execute(delete(confirmed).where(confirmed.c.instance == instance.id))
            connection.execute(delete(instances).where(instances.c.id == instance.id))

    def known(self) -> list[Instance]:
        with self.database.begin() as connection:
            return self._found(connection)

    def living(self, silent_s: float) -> list[Instance]:
        with self.database.begin() as connection:
            return self._found(connection, instances.c.alive_at > seconds(connection) - silent_s)

    def forget_silent(self, older_than_s: float) -> int:
        with self.database.begin() as connection:
            long_ago = instances.c.alive_at < seconds(connection) - older_than_s
            mine = (instances.c.job == self.job, long_ago)
            silent = select(instances.c.id).where(*mine)
            connection.execute(delete(confirmed).where(confirmed.c.instance.in_(silent)))
            return connection.execute(delete(instances).where(*mine)).rowcount

    def now_s(self) -> float:
        with self.database.begin() as connection:
            return seconds(connection)

    def _add(self, connection: Connection, entered: Instance) -> None:
        connection.execute(insert(instances).values(job=self.job, **asdict(entered)))

    def _found(self, connection: Connection, *conditions: Any) -> list[Instance]:
        columns = [column for column in instances.columns if column is not instances.c.job]
        query = select(*columns).where(instances.c.job == self.job, *conditions)
        ordered = query.order_by(instances.c.since, instances.c.id)
        return [Instance(**row._mapping) for row in connection.execute(ordered)]
