"""Row statistics, connection poolers, query plans (EXPLAIN) and replication lag, as a source's server reports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Literal

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection, Engine

from migrator.mapping.model.edges import SourceHealth
from migrator.mapping.model.facts import JoinPlan, TableFacts
from migrator.mapping.model.results import Explained
from migrator.runtime.errors import SourceError
from migrator.runtime.retry import Retry, nap
from migrator.source.engines.base import Ask, Mark, Replication, Row, Verdict
from migrator.source.engines.connect import SENT_ONCE, engine_at, engine_of
from migrator.source.sql.selects import named

# Minimum rows of a table by the catalogue's own statistics, which are independent of policies and view conditions.


def rows_at_least(connection: Connection, table: TableFacts) -> int | None:
    """A very probable minimum; None without usable statistics.

    For PostgreSQL three quarters of the last ANALYZE's count, less all changes since; for MariaDB, which
    samples some pages, a quarter of its estimate. SQLite has none, MySQL none younger than a day, a view has
    none.
    """
    return engine_at(connection).server.rows_at_least(connection, table)


# Whether a connection pooler (PgBouncer, a proxy) is between us and the server, and how it shares sessions.

Pooling = Literal["", "by session", "by transaction"]
"""No pooler; a connection apparently keeps its server session; transactions share sessions."""


def pooling_of(connection: Connection, engine: Engine) -> Pooling:
    if not is_pooled(connection):
        return ""
    first = _session(connection)
    connection.rollback()
    return "by transaction" if _shared(connection, engine, first) else "by session"


def is_pooled(connection: Connection) -> bool:
    """Whether the serving session differs from the one reported at login, which a pooler invents."""
    if engine_at(connection).server.session is None:
        return False
    return _session(connection) != _session_of_login(connection.connection.driver_connection)


def _shared(connection: Connection, engine: Engine, first: int) -> bool:
    pool = engine.pool
    if not isinstance(pool, sa.QueuePool) or pool.size() < 2:
        return False
    with engine.connect() as other:
        shared = _session(other) == first or _session(connection) != first
    connection.rollback()
    return shared


def _session(connection: Connection) -> int:
    query = engine_at(connection).server.session
    return 0 if query is None else int(connection.execute(query).scalar_one())


def _session_of_login(driver_connection: Any) -> int:
    of_mysql = hasattr(driver_connection, "thread_id")
    return int(driver_connection.thread_id() if of_mysql else driver_connection.info.backend_pid)


# The database's plans for a page's SELECTs, and the tables that they would read as a whole.


class PageSelect(Struct, frozen=True):
    """`tables`: by alias, without those of joins, which selects.py calls j1, j2 and so on."""

    what: str
    select: sa.Executable
    tables: Mapping[str, TableFacts]
    joins: Sequence[JoinPlan]


def explained(connection: Connection, statement: PageSelect, page_rows: int) -> Explained:
    """The plan of a statement that does not run. A table of up to a page of rows may be read as a whole."""
    server = engine_at(connection).server
    names, rows = _answer_of(connection, statement.select)
    lines, whole = server.plan(names, rows, page_rows)
    by_alias = {**statement.tables, **{f"j{n}": join.table for n, join in enumerate(statement.joins, 1)}}
    # PostgreSQL's plans contain table names, the others aliases.
    tables_known = {table.real: table for table in by_alias.values()} | by_alias
    tables = {name: tables_known.get(name) for name in whole}
    large = (
        name if table is None else table.real
        for name, table in tables.items()
        if table is None or _has_more_than(connection, table, page_rows)
    )
    return Explained(statement.what, tuple(lines), tuple(dict.fromkeys(large)))


def _has_more_than(connection: Connection, table: TableFacts, rows: int) -> bool:
    first: sa.Select[Any] = (
        sa.select(sa.literal_column("1")).select_from(named(table, "root")).limit(rows + 1)
    )
    counted = sa.select(sa.func.count()).select_from(first.subquery("first_rows"))
    return bool(connection.execute(counted).scalar_one() > rows)


def rows_expected(connection: Connection, statement: sa.Executable) -> int | None:
    server = engine_at(connection).server
    if server.expected is None:
        return None
    return server.expected(*_answer_of(connection, statement))


def _answer_of(connection: Connection, select: sa.Executable) -> tuple[list[str], list[Row]]:
    word = engine_at(connection).server.explain(connection.dialect)

    def put_in_front(*event_arguments: Any) -> tuple[str, Any]:
        text, parameters, context = event_arguments[2:5]
        # The transaction's own BEGIN passes here as well; it is not a compiled statement.
        return (f"{word} {text}" if context.compiled is not None else text), parameters

    # Only here do statement and parameters have the form for the driver.
    sa.event.listen(connection, "before_cursor_execute", put_in_front, retval=True)
    try:
        with connection.execute(select) as result:
            assert isinstance(result, sa.CursorResult)
            assert result.cursor is not None
            return [column[0] for column in result.cursor.description], list(result.cursor.fetchall())
    finally:
        sa.event.remove(connection, "before_cursor_execute", put_in_front)


# A server's health: its version and clock, whether it is a replica, its statement timeout.

Query = Callable[[str, Mapping[str, Any]], list[tuple[Any, ...]]]


def source_health(engine: str, ask: Query, pooling: Pooling) -> SourceHealth:
    """`engine`: its dialect's name. `ask`: runs one SELECT.

    Raises: SourceError if the server does not answer.
    """
    server = engine_of(engine).server
    ((version, clock_s, replica, timeout),) = ask(server.health, {})
    seconds = None if clock_s is None else float(clock_s)
    is_replica = str(replica).lower() in ("true", "t", "1", "on")
    return SourceHealth(server.product(str(version)), seconds, is_replica, str(timeout), pooling)


# ── Replicas: whether one replicates the job's primary, and has replayed its state at the start of the run ──

WAIT_S = 60.0
_LOOK_S = 0.5
_CHECKED = "migrator_replayed"


class ReplicaCheck:
    """Accepts a replica's connection once it has replayed the mark. Each new connection may reach another
    replica; behind a pooler each transaction may.

    `mark`: queries the primary, once and before anything is read from the replica.
    """

    def __init__(self, mark: Callable[[], Mark], retry: Retry, limit_s: float = WAIT_S) -> None:
        self._ask_mark = mark
        self._retry = retry
        self._limit_s = limit_s
        self._lock = Lock()
        self._mark: Mark | None = None
        self._ready: set[str] = set()

    def __call__(self, connection: Connection) -> None:
        """Raises: SourceError if it is not our primary's replica, or stays behind; Interrupted."""
        if connection.info.get(_CHECKED):
            return
        mark, ask = self._primary(), asker(connection)
        if is_pooled(connection):
            # Queried in the transaction that will read the page: it keeps its server session until it ends.
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
            # The page's snapshot must begin after the check that found everything replayed.
            connection.rollback()
            return verdict

        wait_until_ready(look, self._retry, self._limit_s)

    def _server(self, connection: Connection) -> str:
        return str(asker(connection)(_of(connection.dialect).server, {})[0])

    def _primary(self) -> Mark:
        with self._lock:
            if self._mark is None:
                self._mark = self._ask_mark()
            return self._mark


def wait_until_ready(look: Callable[[], Verdict], retry: Retry, limit_s: float) -> None:
    """Raises: SourceError if `look` still returns 'behind' after the limit; Interrupted."""
    began = retry.clock()
    while look() != "ready":
        if retry.clock() - began >= limit_s:
            what = f"the replica of read_url has not replayed in {limit_s:.0f} s what the primary had written when"
            raise SourceError(f"{what} the run began; look at its lag, or leave read_url out, then run again")
        nap(_LOOK_S, retry.stop, retry.sleep)


def asker(connection: Connection) -> Ask:
    return lambda sql, params: tuple(connection.execute(sa.text(sql), params).one())


def first_row_of_each(selects: Sequence[str], connection: Connection) -> list[tuple[Any, ...]]:
    texts = (sa.text(select.replace(":", r"\:")) for select in selects)
    rows = (connection.execute(text, execution_options=SENT_ONCE).first() for text in texts)
    return [() if row is None else tuple(row) for row in rows]


def asked(question: str, connection: Connection) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(sa.text(question))]


def mark_of(dialect: sa.Dialect, ask: Ask) -> Mark:
    """Raises: SourceError if the primary has no mark for comparisons."""
    return _of(dialect).mark(ask)


def verdict_of(dialect: sa.Dialect, mark: Mark, ask: Ask) -> Verdict:
    """Raises: SourceError if the server is neither a replica of the mark's primary, nor that primary itself."""
    return _of(dialect).verdict(mark, ask)


def _of(dialect: sa.Dialect) -> Replication:
    engine = engine_of(dialect.name)
    replication = engine.server.replication(dialect)
    if replication is None:
        raise SourceError(f"read_url: {engine.title} has no replicas; leave read_url out")
    return replication
