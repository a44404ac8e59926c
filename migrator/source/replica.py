"""Replica checks: it replicates the job's primary, and has replayed what was there when the run began."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.model.errors import SourceError
from migrator.runtime.retry import Retry, nap
from migrator.source.engines.base import Ask, Mark, Replication, Verdict
from migrator.source.engines.table import engine_of
from migrator.source.server_facts import is_pooled

WAIT_S = 60.0
_LOOK_S = 0.5
_CHECKED = "migrator_replayed"


class ReplicaCheck:
    """Lets a connection to the replica pass when it has replayed the mark. Each new connection may be another replica's,
    and behind a pooler each transaction.

    `mark`: asks the primary, once and before anything is read from the replica.
    """

    def __init__(self, mark: Callable[[], Mark], retry: Retry, limit_s: float = WAIT_S) -> None:
        self._ask_mark = mark
        self._retry = retry
        self._limit_s = limit_s
        self._lock = Lock()
        self._mark: Mark | None = None
        self._ready: set[str] = set()

    def __call__(self, connection: Connection) -> None:
        """Raises: SourceError when it is no replica of our primary, or stays behind; Interrupted."""
        if connection.info.get(_CHECKED):
            return
        mark, ask = self._primary(), asker(connection)
        if is_pooled(connection):
            # Asked in the transaction that will read the page: its session of the server stays until it ends.
            while self._server(connection) not in self._ready:
                connection.rollback()
                self._wait(connection, mark, ask)
            return
        self._wait(connection, mark, ask)
        connection.info[_CHECKED] = True

    def _wait(self, connection: Connection, mark: Mark, ask: Ask) -> None:
        def look() -> Verdict:
            server, verdict = self._server(connection), verdict_of(connection.dialect, mark, ask)
            if verdict == "ready":
                self._ready.add(server)
            # The page's snapshot must begin after the look that found everything replayed.
            connection.rollback()
            return verdict

        wait_until_ready(look, self._retry, self._limit_s)

    def _server(self, connection: Connection) -> str:
        """Which server this is, and since when it runs."""
        return str(asker(connection)(_of(connection.dialect).server, {})[0])

    def _primary(self) -> Mark:
        with self._lock:
            if self._mark is None:
                self._mark = self._ask_mark()
            return self._mark


def wait_until_ready(look: Callable[[], Verdict], retry: Retry, limit_s: float) -> None:
    """Raises: SourceError when `look` still says 'behind' after the limit; Interrupted."""
    began = retry.clock()
    while look() != "ready":
        if retry.clock() - began >= limit_s:
            what = f"the replica of read_url has not replayed in {limit_s:.0f} s what the primary had written when"
            raise SourceError(f"{what} the run began; look at its lag, or leave read_url out, then run again")
        nap(_LOOK_S, retry.stop, retry.sleep)


def asker(connection: Connection) -> Ask:
    return lambda sql, params: tuple(connection.execute(sa.text(sql), params).one())


def mark_of(dialect: sa.Dialect, ask: Ask) -> Mark:
    """The primary's mark. Raises: SourceError when it has none that a replica could be compared with."""
    return _of(dialect).mark(ask)


def verdict_of(dialect: sa.Dialect, mark: Mark, ask: Ask) -> Verdict:
    """Raises: SourceError when the server is no replica of the mark's primary, nor that primary itself."""
    return _of(dialect).verdict(mark, ask)


def _of(dialect: sa.Dialect) -> Replication:
    engine = engine_of(dialect.name)
    found = engine.server.replication(dialect)
    if found is None:
        raise SourceError(f"read_url: {engine.title} has no replicas; leave read_url out")
    return found
