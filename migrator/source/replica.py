"""Whether a replica may be read: it is one of our primary's, and has replayed what the primary had when the run began."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.errors import SourceError
from migrator.retry import Retry, nap
from migrator.source.pooling import is_pooled

Row: TypeAlias = tuple[Any, ...]
Ask: TypeAlias = Callable[[str, Mapping[str, Any]], Row]
"""The one row that a server answers to a statement with parameters."""

WAIT_S = 60.0
_LOOK_S = 0.5
_CHECKED = "migrator_replayed"


@dataclass(frozen=True, slots=True)
class Mark:
    """The primary when the run began: its cluster, the very server, the database, and how far it had written.

    `system`: what a replica shares with its primary ('' where it shares nothing); `server`: what nobody shares.
    """

    system: str
    server: str
    database: str
    position: str


Verdict = Literal["ready", "behind"]
"""What a look at the other server says; what makes it no replica of ours is raised."""


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
        return str(asker(connection)(_SERVERS[_flavour(connection.dialect)], {})[0])

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
    return _MARKS[_flavour(dialect)](ask)


def verdict_of(dialect: sa.Dialect, mark: Mark, ask: Ask) -> Verdict:
    """Raises: SourceError when the server is no replica of the mark's primary, nor that primary itself."""
    return _VERDICTS[_flavour(dialect)](mark, ask)


def _flavour(dialect: Any) -> str:
    return "mariadb" if getattr(dialect, "is_mariadb", False) else str(dialect.name)


def _refused(why: str) -> SourceError:
    return SourceError(f"read_url: {why}; name a replica of url's server, or leave read_url out")


# ── PostgreSQL ──

_POSTGRESQL_MARK = (
    "SELECT CAST((SELECT system_identifier FROM pg_control_system()) AS text),"
    " CAST(pg_postmaster_start_time() AS text), CAST(current_database() AS text),"
    " CAST(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS text)"
)
_POSTGRESQL_STATE = (
    "SELECT CAST((SELECT system_identifier FROM pg_control_system()) AS text),"
    " CAST(pg_postmaster_start_time() AS text), CAST(current_database() AS text), pg_is_in_recovery(),"
    " pg_wal_lsn_diff(pg_last_wal_replay_lsn(), CAST(:position AS pg_lsn))"
)


def _postgresql_mark(ask: Ask) -> Mark:
    return Mark(*(str(part or "") for part in ask(_POSTGRESQL_MARK, {})))


def _postgresql_verdict(mark: Mark, ask: Ask) -> Verdict:
    """A replica that was promoted keeps its cluster's identifier: only the very server may be out of recovery."""
    system, server, database, in_recovery, ahead_bytes = ask(
        _POSTGRESQL_STATE, {"position": mark.position or None}
    )
    if system != mark.system:
        raise _refused("this server belongs to another cluster")
    if database != mark.database:
        raise _refused("this is another database")
    if not in_recovery:
        if server == mark.server:
            return "ready"
        raise _refused("this server is no replica (any more), it takes writes of its own")
    if ahead_bytes is None:
        raise _refused("this server does not say how far it has replayed")
    return "ready" if ahead_bytes >= 0 else "behind"


# ── MariaDB and MySQL ──

_MARIADB_SERVER = "CONCAT_WS('/', @@hostname, @@port, @@server_id, @@datadir)"
_MARIADB_MARK = f"SELECT '', {_MARIADB_SERVER}, DATABASE(), @@GLOBAL.gtid_current_pos"
_GTID_READ_ONLY = "CAST(@@GLOBAL.read_only AS CHAR) NOT IN ('0', 'OFF') OR @@GLOBAL.innodb_read_only"
"""The second is what a reader of Aurora says. Source: AWS Knowledge Center, read-only errors after a fail-over of Aurora."""
_MARIADB_STATE = (
    f"SELECT {_MARIADB_SERVER}, DATABASE(), MASTER_GTID_WAIT(:position, 0) = 0, {_GTID_READ_ONLY}"
)
_MYSQL_MARK = "SELECT '', @@server_uuid, DATABASE(), @@GLOBAL.gtid_executed"
_MYSQL_STATE = (
    f"SELECT @@server_uuid, DATABASE(), GTID_SUBSET(:position, @@GLOBAL.gtid_executed), {_GTID_READ_ONLY}"
)


def _gtid_verdict(state: str) -> Callable[[Mark, Ask], Verdict]:
    """A server that replays nothing of the primary's never has its GTIDs, and so is behind for ever."""

    def verdict(mark: Mark, ask: Ask) -> Verdict:
        server, database, replayed, read_only = ask(state, {"position": mark.position})
        if database != mark.database:
            raise _refused("this is another database")
        if server == mark.server:
            return "ready"
        if not read_only:
            raise _refused("this server takes writes of its own (read_only is off)")
        if not mark.position:
            raise _refused(
                "url's server writes no binary log with GTIDs, so nobody can tell how far this one is"
            )
        return "ready" if replayed else "behind"

    return verdict


_MARKS: dict[str, Callable[[Ask], Mark]] = {
    "postgresql": _postgresql_mark,
    "mariadb": lambda ask: Mark(*(str(part or "") for part in ask(_MARIADB_MARK, {}))),
    "mysql": lambda ask: Mark(*(str(part or "") for part in ask(_MYSQL_MARK, {}))),
}
_SERVERS = {
    "postgresql": "SELECT CAST(pg_postmaster_start_time() AS text)",
    "mariadb": f"SELECT {_MARIADB_SERVER}",
    "mysql": "SELECT @@server_uuid",
}
_VERDICTS: dict[str, Callable[[Mark, Ask], Verdict]] = {
    "postgresql": _postgresql_verdict,
    "mariadb": _gtid_verdict(_MARIADB_STATE),
    "mysql": _gtid_verdict(_MYSQL_STATE),
}
