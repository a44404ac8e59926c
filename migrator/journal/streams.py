"""Checkpoints of a DynamoDB stream's shards, and the leases by which its readers share them, as SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select, update

from migrator.journal.database import Database, insert_or_ignore, insert_or_replace, repeatable, seconds
from migrator.journal.schema import stream as streams
from migrator.journal.schema import stream_reader as readers
from migrator.journal.schema import stream_shard as shards
from migrator.mapping.model.shards import FORGOTTEN_S, Checkpoint, Checkpoints, Shard, allotted


class SqlStreamJournal:
    """model.streams.shards.StreamJournal of one job and the table of this name."""

    def __init__(self, database: Database, job: str, table: str) -> None:
        self.database = database
        self.job = job
        self.table = table
        self._of_table = (streams.c.job == job, streams.c.table_name == table)

    @repeatable
    def stream(self) -> str:
        with self.database.begin(reads=True) as connection:
            return connection.execute(select(streams.c.arn).where(*self._of_table)).scalar() or ""

    @repeatable
    def begin(self, stream: str) -> None:
        with self.database.begin() as connection:
            before = self._alone(connection)
            for arn in {stream} if before is None else {stream, before.arn}:
                for table in (readers, shards):
                    connection.execute(delete(table).where(table.c.job == self.job, table.c.arn == arn))
            row = {"job": self.job, "table_name": self.table, "arn": stream, "listed_at": seconds(connection)}
            connection.execute(insert_or_replace(connection, streams), row)

    @repeatable
    def list_shards(self, stream: str, listed: Sequence[Shard], age_s: float) -> None:
        with self.database.begin() as connection:
            row, now = self._alone(connection), seconds(connection)
            if row is None or row.arn != stream:
                return  # another process has begun with another one meanwhile
            of_stream = (shards.c.job == self.job, shards.c.arn == stream)
            known = set(connection.execute(select(shards.c.shard).where(*of_stream)).scalars())
            new = [self._row(stream, shard, row.listed_at) for shard in listed if shard.id not in known]
            if new:
                connection.execute(insert_or_ignore(connection, shards), new)
            listed_at = max(row.listed_at, now - age_s)
            connection.execute(update(streams).where(*self._of_table).values(listed_at=listed_at))
            named = [shard.id for shard in listed]
            old = (shards.c.is_finished == 1, shards.c.passed_at < now - FORGOTTEN_S)
            connection.execute(delete(shards).where(*of_stream, *old, shards.c.shard.not_in(named)))

    @repeatable
    def claim(self, stream: str, owner: str, lease_s: float) -> Checkpoints:
        with self.database.begin() as connection:
            # One reader after the other: two would find the same shards free.
            row = self._alone(connection)
            now = self._enter(connection, stream, owner, lease_s)
            if row is None or row.arn != stream:
                return Checkpoints(now, ())
            alive = (readers.c.job == self.job, readers.c.arn == stream, readers.c.alive_until > now)
            number = connection.execute(select(func.count()).select_from(readers).where(*alive)).scalar_one()
            held = allotted(self._shards(connection, stream), owner, number, now)
            own, names = self._own(stream, owner), [shard.shard for shard in held]
            connection.execute(update(shards).where(*own, shards.c.shard.not_in(names)).values(owner=""))
            of_stream = (shards.c.job == self.job, shards.c.arn == stream)
            lease = {"owner": owner, "leased_until": now + lease_s}
            connection.execute(update(shards).where(*of_stream, shards.c.shard.in_(names)).values(**lease))
            return Checkpoints(
                now, tuple(shard for shard in self._shards(connection, stream) if shard.owner == owner)
            )

    @repeatable
    def renew(self, stream: str, owner: str, lease_s: float, passed_at: Mapping[str, float]) -> set[str]:
        with self.database.begin() as connection:
            # One that ran out may be claimed at this moment.
            self._alone(connection)
            now, own = self._enter(connection, stream, owner, lease_s), self._own(stream, owner)
            connection.execute(update(shards).where(*own).values(leased_until=now + lease_s))
            for shard, passed in passed_at.items():
                is_later = (shards.c.shard == shard, shards.c.passed_at < passed)
                connection.execute(update(shards).where(*own, *is_later).values(passed_at=passed))
            return set(connection.execute(select(shards.c.shard).where(*own)).scalars())

    @repeatable
    def save(self, stream: str, owner: str, done: Checkpoint) -> bool:
        finished = int(done.is_finished)
        values = {"sequence": done.sequence, "passed_at": done.passed_at, "is_finished": finished}
        with self.database.begin() as connection:
            saved = update(shards).where(*self._own(stream, owner), shards.c.shard == done.shard)
            return connection.execute(saved.values(**values)).rowcount > 0

    @repeatable
    def leave(self, stream: str, owner: str) -> None:
        with self.database.begin() as connection:
            connection.execute(delete(readers).where(readers.c.owner == owner))
            connection.execute(update(shards).where(*self._own(stream, owner)).values(owner=""))

    @repeatable
    def read(self, stream: str) -> Checkpoints:
        with self.database.begin(reads=True) as connection:
            return Checkpoints(seconds(connection), tuple(self._shards(connection, stream)))

    def _alone(self, connection: Connection) -> Row[Any] | None:
        """The stream's row, locked."""
        return connection.execute(select(streams).where(*self._of_table).with_for_update()).first()

    def _enter(self, connection: Connection, stream: str, owner: str, lease_s: float) -> float:
        """Now; the reader is alive for so long from then on."""
        now = seconds(connection)
        row = {"owner": owner, "job": self.job, "arn": stream, "alive_until": now + lease_s}
        connection.execute(insert_or_replace(connection, readers), row)
        gone = (readers.c.job == self.job, readers.c.alive_until < now - FORGOTTEN_S)
        connection.execute(delete(readers).where(*gone))
        return now

    def _own(self, stream: str, owner: str) -> tuple[Any, ...]:
        return (shards.c.job == self.job, shards.c.arn == stream, shards.c.owner == owner)

    def _row(self, stream: str, shard: Shard, passed_at: float) -> dict[str, Any]:
        checkpoint = asdict(Checkpoint(shard.id, shard.parent, "", passed_at))
        return {"job": self.job, "arn": stream, **checkpoint, "is_finished": 0}

    def _shards(self, connection: Connection, stream: str) -> list[Checkpoint]:
        columns = (
            *(shards.c.shard, shards.c.parent, shards.c.sequence, shards.c.passed_at),
            *(shards.c.is_finished, shards.c.owner, shards.c.leased_until),
        )
        query = select(*columns).where(shards.c.job == self.job, shards.c.arn == stream)
        rows = connection.execute(query.order_by(shards.c.shard))
        return [
            Checkpoint(*row[:4], is_finished=bool(row[4]), owner=row[5], leased_until=row[6]) for row in rows
        ]
