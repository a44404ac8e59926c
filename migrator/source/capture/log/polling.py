"""Reads a slot by SQL, for poolers and proxies that refuse replication connections. Each look decodes the log again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from migrator.runtime.logs import get_logger
from migrator.source.capture.log.decoder import lsn_of, lsn_text
from migrator.source.capture.log.protocol import (
    IN_USE,
    Data,
    Keepalive,
    NoReplicationError,
    Received,
    SlotInUseError,
    SlotStream,
    Stream,
)
from migrator.source.engines.connect import Address
from migrator.source.engines.ddl import Ddl
from migrator.source.engines.postgresql.connect import TEXTS
from migrator.source.sql.transactions import Writing

POLL_S = 0.5
_MESSAGES = 5_000
"""A look ends with the transaction that exceeds this number."""
_LOOK = sa.text("""
    SELECT data FROM pg_catalog.pg_logical_slot_peek_binary_changes(:slot, NULL, :count,
        'proto_version', '1', 'publication_names', pg_catalog.quote_ident(:publication), 'messages', 'true')
""")
_END = sa.text(
    "SELECT pg_catalog.pg_current_wal_flush_lsn()::text, extract(epoch FROM clock_timestamp())::float8"
)
_ADVANCE = sa.text("""
    SELECT pg_catalog.pg_replication_slot_advance(slot_name, CAST(:lsn AS pg_lsn)) FROM pg_catalog.pg_replication_slots
    WHERE slot_name = :slot AND confirmed_flush_lsn < CAST(:lsn AS pg_lsn)
""")
_log = get_logger("log_capture")
Result = TypeVar("Result")


def open_stream(writing: Writing, address: Address, name: str) -> Stream:
    """A replication connection, or a PolledSlot if only SQL gets through. Raises: SourceError."""
    try:
        return SlotStream(address, name, writing.place)
    except NoReplicationError as error:
        _log.warning("log_is_polled", reason=str(error))
        return PolledSlot(writing)


class PolledSlot:
    """A Stream without a session of its own. Two readers may look in turn: marks are doubled then, which does no harm."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._slot = self._publication = ""
        self._received: deque[Received] = deque()
        self._look_at = float("-inf")
        self.waits = False

    def start(self, slot: str, publication: str) -> None:
        self._slot, self._publication = slot, publication
        self._look()

    def receive(self, wait_s: float) -> Received | None:
        now = time.monotonic()
        if not self._received and not self.waits and now >= self._look_at:
            # If another one is looking: the next time.
            with suppress(SlotInUseError):
                self._look()
        if self._received:
            return self._received.popleft()
        time.sleep(0.0 if self.waits else max(0.0, min(wait_s, self._look_at - now)))
        return None

    def confirm(self, lsn: int) -> None:
        def work(connection: Connection, _: Ddl) -> None:
            connection.execute(_ADVANCE, {"slot": self._slot, "lsn": lsn_text(lsn)})

        with suppress(SlotInUseError):
            self._written("confirming the log", work)
        # A look begins at the confirmed position: all of the last one must be stored before the next.
        self.waits = bool(self._received)

    def ask(self) -> None:
        self._look_at = float("-inf")

    def close(self) -> None:
        self._received.clear()

    def _look(self) -> None:
        def work(connection: Connection, _: Ddl) -> list[Received]:
            for setting, value in TEXTS.items():
                connection.exec_driver_sql(f"SET LOCAL {setting} = '{value}'")
            # First: what was committed by then is among the changes.
            end, now = connection.execute(_END).one()
            names = {"slot": self._slot, "publication": self._publication, "count": _MESSAGES}
            found: list[Received] = [Data(bytes(data)) for data in connection.scalars(_LOOK, names)]
            is_all = len(found) < _MESSAGES
            return [*found, Keepalive(lsn_of(end), now, wants_reply=False)] if is_all else found

        try:
            received = self._written("reading the log", work)
        finally:
            self._look_at = time.monotonic() + POLL_S
        self.waits = len(received) > 1
        self._received.extend(received)

    def _written(self, doing: str, work: Callable[[Connection, Ddl], Result]) -> Result:
        """Raises: SlotInUseError while another reader looks; SourceError."""

        def unless_in_use(connection: Connection, ddl: Ddl) -> Result:
            try:
                return work(connection, ddl)
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", "") != IN_USE:
                    raise
            raise SlotInUseError(f"{self._writing.place}: another reader has the slot")

        return self._writing.write(doing, unless_in_use)
