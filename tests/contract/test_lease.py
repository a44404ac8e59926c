"""One run of a job at a time, whatever keeps the journal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select, update

from migrator.journal import schema
from migrator.journal.lease import RunLease
from migrator.journal.runs import SqlJournal
from migrator.model.errors import SettingsError, StoppedError
from tests.unit.stages.live.test_instances import until


def test_a_second_run_of_a_job_is_refused(journal: SqlJournal) -> None:
    with RunLease(journal, "shop"):
        with pytest.raises(SettingsError, match=f"another run of job shop is at work.*process {os.getpid()}"):
            RunLease(journal, "shop").__enter__()
        with RunLease(journal, "other"):
            pass
    with RunLease(journal, "shop"):
        pass


def test_a_lease_that_ran_out_is_taken_over_and_its_holder_stops(journal: SqlJournal) -> None:
    now = [1000.0]
    slow = RunLease(journal, "shop", heartbeat_s=3600, clock=lambda: now[0])
    with slow:
        slow.check()
        now[0] += 31
        with pytest.raises(StoppedError, match="lease of job shop"):
            slow.check()
        with RunLease(journal, "shop", clock=lambda: now[0]) as taken:
            slow.__exit__(None, None, None)
            with pytest.raises(SettingsError, match="at work"):
                RunLease(journal, "shop", clock=lambda: now[0]).__enter__()
            taken.check()


def test_a_holder_whose_lease_was_taken_over_stops_at_its_next_heartbeat(journal: SqlJournal) -> None:
    with RunLease(journal, "shop", heartbeat_s=0.05) as lease:
        with journal.database.begin() as connection:
            connection.execute(update(schema.lease).values(holder="another"))
        with pytest.raises(StoppedError, match="lease of job shop"):
            _until(lease.check)


def test_a_lease_is_renewed(journal: SqlJournal) -> None:
    now, ends = [1000.0], select(schema.lease.c.expires_at)

    def ends_at() -> float:
        with journal.database.begin() as connection:
            return float(connection.execute(ends).scalar_one())

    with RunLease(journal, "shop", life_s=1.0, heartbeat_s=0.01, clock=lambda: now[0]) as lease:
        for _ in range(5):
            now[0] += 0.75
            until(lambda: ends_at() == now[0] + 1.0 == lease._valid_until)
            lease.check()


def test_a_lease_may_be_let_go_while_others_ask_for_it(journal: SqlJournal) -> None:
    def take(number: int) -> str:
        try:
            with RunLease(journal, "shop"):
                return "held"
        except SettingsError as error:
            return "busy" if "at work" in str(error) else str(error)

    with ThreadPoolExecutor(4) as executor:
        assert {"held"} <= set(executor.map(take, range(100))) <= {"held", "busy"}


def test_a_lease_that_cannot_be_given_back_hides_no_other_error(journal: SqlJournal) -> None:
    def run() -> None:
        with RunLease(journal, "shop"):
            with journal.database.begin() as connection:
                schema.lease.drop(connection)
            raise ValueError("the run's own")

    with pytest.raises(ValueError, match="the run's own"):
        run()


@pytest.mark.parametrize(
    ("differs", "dead"),
    [
        ({"pid": 2**22 + 1}, True),
        ({"born": "1"}, True),
        ({"host": "elsewhere", "pid": 2**22 + 1}, False),
        ({"namespace": "pid:[1]", "pid": 2**22 + 1}, False),
    ],
    ids=["gone", "its number used again", "another host", "another container"],
)
def test_only_a_holder_that_is_known_to_be_dead_loses_its_lease(
    journal: SqlJournal, differs: dict[str, object], dead: bool
) -> None:
    with RunLease(journal, "shop"):
        with journal.database.begin() as connection:
            holder = json.loads(connection.execute(select(schema.lease.c.holder)).scalar_one())
            connection.execute(update(schema.lease).values(holder=json.dumps({**holder, **differs})))
        if dead:
            with RunLease(journal, "shop"):
                pass
        else:
            with pytest.raises(SettingsError, match="at work"):
                RunLease(journal, "shop").__enter__()


HOLD = """
import sys, time
from migrator.journal.lease import RunLease
from migrator.journal.runs import SqlJournal
from tests.unit.stages.live.test_instances import until
with RunLease(SqlJournal(sys.argv[1]), "shop"):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def _holder(url: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", HOLD, url], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()


@pytest.mark.parametrize("reaped", [True, False], ids=["reaped", "zombie"])
@pytest.mark.parametrize("store", ["file", "postgresql", "mariadb"])
def test_a_lease_of_a_killed_process_is_taken_over_at_once(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, *, reaped: bool
) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    if store != "file":
        server = {"postgresql": "postgres_database", "mariadb": "mysql_database"}[store]
        url = request.getfixturevalue(server)
    journal = SqlJournal(url)
    with _holder(url) as holder:
        with pytest.raises(SettingsError, match=f"process {holder.pid}"):
            RunLease(journal, "shop").__enter__()
        holder.kill()
        _until_dead(holder, reaped=reaped)
        with RunLease(journal, "shop"):
            pass
    journal.close()


def _until_dead(holder: subprocess.Popen[str], *, reaped: bool) -> None:
    if reaped:
        holder.wait(120)
    else:
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)


def _until(check: object, limit_s: float = 120) -> None:
    """Calls again and again until it raises."""
    assert callable(check)
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        check()
        time.sleep(0.02)
