"""Small records of the journal: one table for all kinds, each value as JSON of its type."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

from msgspec import DecodeError, Struct, json
from sqlalchemy import Connection, Row, Select, and_, bindparam, delete, select

from migrator.journal.database import Database, bring_back, insert_or_ignore, insert_or_replace, seconds
from migrator.journal.schema import record
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace

Value = TypeVar("Value")
_NOTHING = "null"
"""The value of a record that exists only to be locked."""


class KeptRecords(Struct, Generic[Value], frozen=True, dict=True):
    """Records of one kind, by scope (a job, or a table's id) and id. Methods with a connection are part of a
    transaction.

    `form`: the type of values for msgspec.
    `time`: the field that the column `alive_at` repeats.
    """

    kind: str
    form: Any
    time: str = "alive_at"

    def get(self, connection: Connection, scope: str, id: str = "") -> Value | None:
        row = connection.execute(self._one(scope, id)).first()
        return None if row is None else self._value(scope, row)

    def read(self, database: Database, scope: str, id: str = "") -> Value | None:
        return database.transaction(
            lambda connection: self.get(connection, scope, id), twice=True, reads=True
        )

    def read_all(self, database: Database, scope: str) -> dict[str, Value]:
        return database.transaction(lambda connection: self.all(connection, scope), twice=True, reads=True)

    def lock(self, connection: Connection, scope: str, id: str = "") -> Value | None:
        """The value, locked until the transaction ends; also locks a missing record."""
        locked = self._one(scope, id).with_for_update()
        # A record that another transaction deletes meanwhile is not found; create it again, and lock it.
        while (row := connection.execute(locked).first()) is None:
            nothing = {"scope": scope, "kind": self.kind, "id": id, "value": _NOTHING, "alive_at": 0.0}
            connection.execute(insert_or_ignore(connection, record), nothing)
        return self._value(scope, row)

    def all(self, connection: Connection, scope: str, since: float | None = None) -> dict[str, Value]:
        query = self._of(scope).order_by(record.c.id)
        rows = connection.execute(query if since is None else query.where(record.c.alive_at >= since))
        values = ((row.id, self._value(scope, row)) for row in rows)
        return {id: value for id, value in values if value is not None}

    def put(self, connection: Connection, scope: str, value: Value, id: str = "") -> None:
        connection.execute(insert_or_replace(connection, record), self._row(scope, id, value))

    def add(self, connection: Connection, scope: str, value: Value, id: str = "") -> None:
        connection.execute(insert_or_ignore(connection, record), self._row(scope, id, value))

    def delete(self, connection: Connection, scope: str, *ids: str) -> None:
        # One by one, in one order, which prevents deadlocks.
        one = delete(record).where(*self._here(scope), record.c.id == bindparam("of_id"))
        if ids:
            connection.execute(one, [{"of_id": id} for id in sorted(ids)])

    def forget(self, connection: Connection, scope: str, before: float) -> None:
        # A record that exists only to be locked has no time, and stays.
        old = (record.c.alive_at > 0.0, record.c.alive_at < before)
        connection.execute(delete(record).where(*self._here(scope), *old))

    def bring_back(self, connection: Connection, scope: str) -> None:
        """Reset heartbeats later than now, from another host's clock. See `database.bring_back`."""
        bring_back(connection, record.c.alive_at, seconds(connection), *self._here(scope))

    def bring_back_first(self, database: Database, scope: str) -> None:
        """bring_back() in its own transaction, before one that only reads or may fail."""
        database.bring_back(record, and_(*self._here(scope)))

    # ── rows ──

    def _here(self, scope: str) -> tuple[Any, ...]:
        return (record.c.scope == scope, record.c.kind == self.kind)

    def _of(self, scope: str) -> Select[tuple[str, str, float]]:
        return select(record.c.id, record.c.value, record.c.alive_at).where(*self._here(scope))

    def _one(self, scope: str, id: str) -> Select[tuple[str, str, float]]:
        return self._of(scope).where(record.c.id == id)

    def _row(self, scope: str, id: str, value: Value) -> Mapping[str, Any]:
        try:
            for name in (scope, id):
                name.encode()
            text = json.encode(value).decode()
            self._decoder.decode(text)
        except (DecodeError, UnicodeEncodeError):
            what = "half of a surrogate pair, or a number that is not finite"
            raise SettingsError(
                f"the journal cannot store a record {self.kind}: it has {what}; correct the name or number"
            ) from None
        time = float(getattr(value, self.time, 0.0))
        return {"scope": scope, "kind": self.kind, "id": id, "value": text, "alive_at": time}

    def _value(self, scope: str, row: Row[tuple[str, str, float]]) -> Value | None:
        if row.value == _NOTHING:
            return None
        try:
            value: Any = self._decoder.decode(row.value)
        except DecodeError:
            what = f"the journal's record {self.kind} '{row.id}' of '{scope}' cannot be read"
            raise SettingsError(
                f"{what}; was it edited, or written by a newer migrator? Restore migrator_record from a backup, or"
                " install the migrator that wrote it"
            ) from None
        if hasattr(value, "alive_at"):
            # Only the column of a heartbeat is reset.
            began = {"since": min(value.since, row.alive_at)} if hasattr(value, "since") else {}
            value = replace(value, alive_at=row.alive_at, **began)
        kept: Value = value
        return kept

    @cached_property
    def _decoder(self) -> json.Decoder[Value]:
        return json.Decoder(self.form)
