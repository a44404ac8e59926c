"""A journal on a server that goes away: at a statement, at a commit, before the first connection; nothing is done twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, event, func, select
from sqlalchemy.engine import make_url

from migrator.journal import schema
from migrator.journal.memory import SqlMemory, SqlOpenFindings
from migrator.journal.operations import RunLease
from migrator.journal.phases import SqlEvidence, SqlPhases
from migrator.journal.runs import SqlJournal
from migrator.journal.writers import SqlInstances, SqlWriters
from migrator.mapping.model.evidence import OFF, Move, State
from migrator.mapping.model.instances import Instance
from migrator.mapping.model.journal import Finding, Page, RunIdentity, SegmentState, Tally
from migrator.mapping.model.live import KeyRequest
from migrator.runtime.errors import StoppedError
from migrator.runtime.retry import Backoff, Retry, ending_at
from migrator.runtime.server_errors import ALIVE
from migrator.source.engines.base import Address, ConnectionOptions
from migrator.source.engines.connect import read_engine, source_url
from migrator.source.reader import SqlSource
from tests import pins
from tests.faults.tcp import tcp_way
from tests.support_mysql import connect

pytestmark = pytest.mark.slow

QUICK = Retry(Backoff(attempts=30, base_s=0.05, cap_s=0.2, limit_s=120))
IDENTITY = RunIdentity("backfill", "shop", "table-1", "rev1")
PAGES = [Page("order", 1, None, "[5]"), Page("order", 2, "[5]", None)]
ROOT = ("order", "[1]")
KEY = ("a", "b")
SELF = Instance("shop", "here", 1, "", "1", "dual_write", "outbox", "r", "i")
DIGEST = b"1" * 16
SERVERS = ["postgres_database", "mysql_database"]


@pytest.fixture(params=SERVERS)
def journal(request: pytest.FixtureRequest) -> Iterator[SqlJournal]:
    with closing(SqlJournal(request.getfixturevalue(request.param), QUICK)) as made:
        yield made


def test_lost_postgresql_connection_is_noticed_in_a_minute(postgres_database: str) -> None:
    wanted = {name: str(value) for name, value in ALIVE.items()}
    with (
        closing(SqlJournal(f"{postgres_database}?keepalives_idle=7")) as journal,
        journal.database.begin() as own,
        read_engine(Address.of(source_url(postgres_database)), ConnectionOptions()).connect() as other,
    ):
        for connection, expected in ((own, wanted | {"keepalives_idle": "7"}), (other, wanted)):
            driver: Any = connection.connection.driver_connection
            assert expected.items() <= driver.info.get_parameters().items()


@pytest.mark.parametrize("when", ["before it connects", "before its statements", "within"])
@pytest.mark.parametrize("server", SERVERS)
def test_a_frozen_server_is_given_up_when_a_commit_may_not_wait(
    server: str, when: str, request: pytest.FixtureRequest
) -> None:
    url, answers = make_url(request.getfixturevalue(server)), threading.Event()
    port = url.port or {"postgresql": 5432, "mysql": 3306}[url.get_backend_name()]
    answers.set()

    def frozen(_: bytes) -> None:
        answers.wait()

    with (
        tcp_way(str(url.host), port, lambda: frozen) as way,
        closing(SqlJournal(url.set(host="127.0.0.1", port=way.port), QUICK)) as journal,
    ):
        if when == "before it connects":
            journal.database.engine.dispose()

        def work(connection: Connection) -> Any:
            if when == "within":
                answers.clear()
            return connection.execute(select(func.count()).select_from(schema.meta)).scalar_one()

        if when != "within":
            answers.clear()
        with pytest.raises(StoppedError, match="late"), ending_at(time.monotonic() + 0.5, "late"):
            journal.database.transaction(work, twice=True)
        answers.set()
        with ending_at(time.monotonic() + 120, "late"):
            assert journal.database.transaction(lambda one: one.execute(select(1)).scalar_one(), twice=True)


def end_connection(journal: SqlJournal, driver: Any) -> None:
    url = journal.database.url.set(drivername=journal.database.url.get_backend_name())
    if url.get_backend_name() == "postgresql":
        with psycopg.connect(url.render_as_string(hide_password=False)) as server:
            server.execute("SELECT pg_terminate_backend(%s, 5000)", (driver.info.backend_pid,))
        return
    with connect(url.render_as_string(hide_password=False)) as server, server.cursor() as cursor:
        cursor.execute(f"KILL CONNECTION {driver.thread_id()}")


@contextmanager
def broken(
    journal: SqlJournal, *, when: str, then: Callable[[], object] = lambda: None
) -> Iterator[list[str]]:
    """The next transaction's connection is ended by the server before its first statement, or after its commit, so that
    its answer is lost; it is noted, and `then` is called."""
    engine, ended = journal.database.engine, list[str]()
    commit = engine.dialect.do_commit

    def kill(driver: Any) -> None:
        ended.append(when)
        end_connection(journal, driver)

    def before(_: Any, cursor: Any, statement: str, *__: Any) -> None:
        if (
            when == "statement"
            and not ended
            and statement.startswith(("INSERT", "UPDATE", "DELETE", "SELECT"))
        ):
            kill(cursor.connection)

    def committed(dbapi_connection: Any) -> None:
        commit(dbapi_connection)
        if not ended and when == "answer":
            kill(dbapi_connection.driver_connection)
            then()
            ends_at = time.monotonic() + 120
            while time.monotonic() < ends_at:  # the driver says it as soon as it sees it
                dbapi_connection.driver_connection.cursor().execute("SELECT 1")

    event.listen(engine, "before_cursor_execute", before)
    engine.dialect.do_commit = committed  # type: ignore[method-assign]
    try:
        yield ended
    finally:
        engine.dialect.do_commit = commit  # type: ignore[method-assign]
        event.remove(engine, "before_cursor_execute", before)


def counted(journal: SqlJournal) -> dict[str, int]:
    """How many rows each of our tables has."""
    with journal.database.begin() as connection:
        return {
            name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for name, table in schema.metadata.tables.items()
        }


WORKS: dict[str, Callable[[SqlJournal, Any], Any]] = {
    "plan_pages": lambda journal, run: journal.plan_pages(run, "user", iter([Page("user", 1, None, None)])),
    "finish_page": lambda journal, run: journal.finish_page(
        run, PAGES[0], Tally(rows=3), [Finding("refused", "order", "why")]
    ),
    "end_run": lambda journal, run: journal.end_run(run, "done"),
    "save_segment": lambda journal, run: journal.save_segment(run, 1, SegmentState(done=True), []),
    "claim": lambda journal, _: journal.claim("t", [(DIGEST, "order:[1]")]) == {},
    "remember": lambda journal, _: (
        SqlMemory(journal.database, "t").remember(7, {ROOT: [KEY]})[ROOT].ticket <= 7
    ),
    "reached": lambda journal, _: SqlMemory(journal.database, "t").reached(7),
    "contest": lambda journal, _: SqlMemory(journal.database, "t").request_keys([KeyRequest(KEY, ROOT)], 1),
    "open findings": lambda journal, _: SqlOpenFindings(journal.database, "shop", "t").settle(
        {ROOT: 7}, [Finding("refused", "order", "why", "[1]")]
    ),
    "writer": lambda journal, _: SqlWriters(journal.database, "t").enter("relay").fenced,
    "instance": lambda journal, _: SqlInstances(journal.database, "shop").enter(SELF).pid,
    "evidence": lambda journal, _: SqlEvidence(journal.database, "shop").keep([], []),
    "confirm": lambda journal, _: SqlPhases(journal.database, "shop").confirm("me", {"recent": 1}),
    "lease": lambda journal, _: leased(journal),
}


def leased(journal: SqlJournal) -> None:
    with RunLease(journal, "shop") as lease:
        lease.check()


@pytest.mark.parametrize("when", ["statement", "answer"])
def test_what_broke_is_done_once(journal: SqlJournal, when: str) -> None:
    """Beside a journal that nothing happened to: the same answers, the same rows."""
    run = journal.start_run(IDENTITY)
    journal.plan_pages(run, "order", PAGES)
    plain = SqlJournal.in_memory()
    beside = plain.start_run(IDENTITY)
    plain.plan_pages(beside, "order", PAGES)
    for name, work in WORKS.items():
        with broken(journal, when=when) as ended:
            answer = work(journal, run)
        assert ended == [when], name
        assert answer == work(plain, beside), name
        assert counted(journal) == counted(plain), name
    plain.close()


def test_first_statement_of_a_nonrepeatable_call_may_break(journal: SqlJournal) -> None:
    with broken(journal, when="statement") as ended:
        journal.start_run(IDENTITY)
    assert ended
    assert len(journal.runs("shop")) == 1


def test_move_with_a_lost_answer_is_reported_and_made_once(journal: SqlJournal) -> None:
    phases = SqlPhases(journal.database, "shop")
    move = Move("recent", OFF, State("shadow"), who="me", reason="", evidence="", revision="r")
    with broken(journal, when="answer"), pins.refused(StoppedError):
        phases.move(move, 0)
    assert [str(one.after) for one in phases.history()] == ["shadow"]
    assert phases.all()["recent"].version == 1


def test_writer_fenced_before_its_retried_answer_is_fenced(journal: SqlJournal) -> None:
    writers = SqlWriters(journal.database, "t")
    with broken(journal, when="answer", then=writers.fence) as ended:
        made = writers.enter("fast")
    assert ended
    assert made.fenced
    assert made.kind == "fast"
    assert len(writers.living(60.0)) == 1


# ── a server that refuses log-ins just now ──


@contextmanager
def one_connection(url: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """The URL for a user with one connection, which is in use, and a function that frees it."""
    at = make_url(url)
    name = f"narrow_{at.database}"[:30]
    if at.get_backend_name() == "postgresql":
        with psycopg.connect(url, autocommit=True) as root:
            root.execute(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 2")
            root.execute(f"GRANT ALL ON SCHEMA public TO {name}")
            mine = url_for(url, name)
            taken: list[Any] = [psycopg.connect(mine), psycopg.connect(mine)]
            yield mine, partial(_close, taken)
            root.execute(f"DROP OWNED BY {name}")
            root.execute(f"DROP ROLE {name}")
        return
    with connect(url) as root, root.cursor() as cursor:
        cursor.execute(f"CREATE USER '{name}'@'%' IDENTIFIED BY 'x' WITH MAX_USER_CONNECTIONS 2")
        cursor.execute(f"GRANT ALL ON `{at.database}`.* TO '{name}'@'%'")
        mine = at.set(username=name, password="x").render_as_string(False)
        taken = [connect(mine), connect(mine)]
        yield mine, partial(_close, taken)
        cursor.execute(f"DROP USER '{name}'@'%'")


def _close(connections: Sequence[Any]) -> None:
    for one in connections:
        one.close()


def url_for(url: str, name: str) -> str:
    return make_url(url).set(username=name, password=None).render_as_string(False)


@contextmanager
def soon(work: Callable[[], None]) -> Iterator[None]:
    def later() -> None:
        time.sleep(0.4)
        work()

    thread = threading.Thread(target=later)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.parametrize("server", SERVERS)
def test_a_journal_waits_for_a_connection_from_the_first_one_on(
    request: pytest.FixtureRequest, server: str
) -> None:
    with (
        one_connection(request.getfixturevalue(server)) as (url, give_back),
        soon(give_back),
        closing(SqlJournal(url, QUICK)) as journal,
    ):
        assert journal.runs("shop") == []


@pytest.mark.parametrize("server", SERVERS)
def test_a_source_waits_for_a_connection_from_the_first_one_on(
    request: pytest.FixtureRequest, server: str
) -> None:
    with (
        one_connection(request.getfixturevalue(server)) as (url, give_back),
        soon(give_back),
        closing(
            SqlSource(source_url(url), connection_options=ConnectionOptions("one"), retry=QUICK)
        ) as source,
    ):
        assert source.query("SELECT 1", {}) == [(1,)]


@pytest.mark.parametrize("server", SERVERS)
def test_journal_on_a_busy_server_reports_it_in_the_end(request: pytest.FixtureRequest, server: str) -> None:
    impatient = Retry(Backoff(attempts=2, base_s=0.01, limit_s=5))
    with one_connection(request.getfixturevalue(server)) as (url, give_back):
        with pins.refused(StoppedError):
            SqlJournal(url, impatient)
        give_back()
