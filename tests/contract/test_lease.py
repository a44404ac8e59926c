"""One run of a job at a time, whatever keeps the journal."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from migrator.journal import schema
from migrator.journal.database import seconds
from migrator.journal.operations import (
    LEASES,
    LIFE_S,
    HeldLease,
    Holder,
    JoinedLease,
    RunLease,
    is_doing,
    runs_as_they_stand,
)
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.journal import RunIdentity, RunKind
from migrator.runtime.errors import SettingsError, StoppedError
from migrator.runtime.values import replace
from tests import pins
from tests.support_waiting import until


def test_others_see_what_the_holder_does(journal: SqlJournal) -> None:
    assert not is_doing(journal, "job", "way back")
    with RunLease(journal, "job"):
        assert not is_doing(journal, "job", "way back")
    with RunLease(journal, "job", doing="way back"):
        assert is_doing(journal, "job", "way back")
        assert not is_doing(journal, "job", "backfill")
        assert not is_doing(journal, "other", "way back")
    assert not is_doing(journal, "job", "way back")


def test_a_run_that_could_not_record_its_end_is_interrupted(journal: SqlJournal) -> None:
    def states(**words: bool) -> list[str]:
        return [run.state for run in runs_as_they_stand(journal, "shop", **words)]

    kinds: tuple[RunKind, ...] = ("backfill", "verify", "relay")
    for kind in kinds:
        started = journal.start_run(RunIdentity(kind, "shop", "table-1", "revision-1"))
        if kind == "backfill":
            journal.end_run(started, "done")
    assert states() == ["done", "interrupted", "running"]
    assert states(relays_work=False) == ["done", "interrupted", "interrupted"]
    with RunLease(journal, "shop"):
        assert states() == ["done", "running", "running"]


def test_a_second_run_of_a_job_is_refused(journal: SqlJournal) -> None:
    with RunLease(journal, "shop"):
        with pins.refused(SettingsError, getpid=os.getpid()):
            RunLease(journal, "shop").__enter__()
        with RunLease(journal, "other"):
            pass
    with RunLease(journal, "shop"):
        pass


def left_s(journal: SqlJournal) -> float:
    """How long the lease lasts yet, by the journal's clock."""
    with journal.database.begin() as connection:
        held = LEASES.get(connection, "shop")
        assert held is not None
        return held.alive_at + held.life_s - seconds(connection)


def change_held(connection: Connection, change: Callable[[HeldLease], HeldLease]) -> None:
    held = LEASES.get(connection, "shop")
    assert held is not None
    LEASES.put(connection, "shop", change(held))


def pass_by(journal: SqlJournal, passed_s: float) -> None:
    """As if so much time had passed by the journal's clock."""
    with journal.database.begin() as connection:
        change_held(connection, lambda held: replace(held, alive_at=held.alive_at - passed_s))


def test_a_lease_that_ran_out_is_taken_over_and_its_holder_stops(journal: SqlJournal) -> None:
    now = [1000.0]
    slow = RunLease(journal, "shop", heartbeat_s=3600, clock=lambda: now[0])
    with slow:
        slow.check()
        with pins.refused(SettingsError, "work"):
            RunLease(journal, "shop").__enter__()
        now[0] += 31
        pass_by(journal, 31)
        with pins.refused(StoppedError, "lease"):
            slow.check()
        with RunLease(journal, "shop") as taken:
            slow.__exit__(None, None, None)
            with pins.refused(SettingsError, "work-2"):
                RunLease(journal, "shop").__enter__()
            taken.check()


def test_holder_that_lost_its_lease_stops_at_the_next_heartbeat(journal: SqlJournal) -> None:
    with RunLease(journal, "shop", heartbeat_s=0.05) as lease:
        with journal.database.begin() as connection:
            change_held(connection, lambda held: replace(held, holder=Holder.here()))
        with pins.refused(StoppedError):
            _until(lease.check)


def test_a_lease_is_renewed(journal: SqlJournal) -> None:
    now = [1000.0]
    with RunLease(journal, "shop", life_s=600.0, heartbeat_s=0.01, clock=lambda: now[0]) as lease:
        for _ in range(5):
            now[0] += 450
            pass_by(journal, 450)
            until(lambda: 300 < left_s(journal) <= 600 and lease._valid_until == now[0] + 600)
            lease.check()


def test_a_lease_may_be_let_go_while_others_ask_for_it(journal: SqlJournal) -> None:
    def take(number: int) -> str:
        try:
            with RunLease(journal, "shop"):
                return "held"
        except SettingsError as error:
            return "busy" if "is running" in str(error) else str(error)

    with ThreadPoolExecutor(4) as executor:
        assert {"held"} <= set(executor.map(take, range(100))) <= {"held", "busy"}


def test_a_lease_that_cannot_be_given_back_hides_no_other_error(journal: SqlJournal) -> None:
    def run() -> None:
        with RunLease(journal, "shop"):
            with journal.database.begin() as connection:
                schema.record.drop(connection)
            raise ValueError("the run's own")

    with pins.refused(ValueError):
        run()


@pytest.mark.parametrize(
    ("differs", "dead"),
    [
        ({"pid": 2**22 + 1}, True),
        ({"born": "1"}, True),
        ({"host": "elsewhere", "pid": 2**22 + 1}, False),
        ({"sees": "another boot", "pid": 2**22 + 1}, False),
    ],
    ids=["gone", "its number used again", "another host", "a host of the same name"],
)
def test_only_a_holder_that_is_known_to_be_dead_loses_its_lease(
    journal: SqlJournal, differs: dict[str, Any], dead: bool
) -> None:
    with RunLease(journal, "shop"):
        with journal.database.begin() as connection:
            change_held(
                connection,
                lambda held: replace(held, holder=replace(held.holder, **differs)),
            )
        if dead:
            with RunLease(journal, "shop"):
                pass
        else:
            with pins.refused(SettingsError):
                RunLease(journal, "shop").__enter__()


HOLD = """
import sys, time
real, off_s = time.time, float(sys.argv[2])
time.time = lambda: real() + off_s
from migrator.journal.operations import RunLease
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.journal import RunIdentity
journal = SqlJournal(sys.argv[1])
with RunLease(journal, "shop"):
    journal.start_run(RunIdentity("backfill", "shop", "t", "rev"))
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def _holder(url: str, off_s: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lease, on a host whose clock is wrong by so much."""
    command = [sys.executable, "-c", HOLD, url, str(off_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()


STORES = pytest.mark.parametrize("store", ["file", "postgresql", "mariadb"])


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, store: str) -> str:
    """Of a journal that another process can open, too."""
    if store == "file":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    server: str = request.getfixturevalue(
        {"postgresql": "postgres_database", "mariadb": "mysql_database"}[store]
    )
    return server


@pytest.mark.parametrize("reaped", [True, False], ids=["reaped", "zombie"])
@STORES
def test_a_lease_of_a_killed_process_is_taken_over_at_once(url: str, *, reaped: bool) -> None:
    journal = SqlJournal(url)
    with _holder(url) as holder:
        with pins.refused(SettingsError, pid=holder.pid):
            RunLease(journal, "shop").__enter__()
        holder.kill()
        _until_dead(holder, reaped=reaped)
        with RunLease(journal, "shop"):
            pass
    journal.close()


@pytest.mark.parametrize("off_s", [-600.0, 600.0], ids=["behind", "ahead"])
@STORES
def test_lease_uses_the_journals_clock_if_a_host_is_minutes_off(url: str, off_s: float) -> None:
    journal = SqlJournal(url)
    with _holder(url, off_s) as holder:
        with JoinedLease(journal, "shop") as joined:
            assert joined.holder is not None
            assert joined.holder.pid == holder.pid
            joined._look()
            joined.check()
        assert 0 < left_s(journal) <= LIFE_S
        with pins.refused(SettingsError, pid=holder.pid):
            RunLease(journal, "shop").__enter__()
    journal.close()


def test_a_run_that_has_not_begun_cannot_be_joined(journal: SqlJournal) -> None:
    """Its command has the lease while it counts rows and asks about the cost."""
    identity = RunIdentity("backfill", "shop", "t", "rev")
    with RunLease(journal, "shop"):
        with pins.refused(SettingsError, "joined"):
            JoinedLease(journal, "shop").__enter__()
        journal.end_run(journal.start_run(identity), "done")
        with pins.refused(SettingsError, "shop"):
            JoinedLease(journal, "shop").__enter__()
        journal.start_run(identity)
        with JoinedLease(journal, "shop") as joined:
            joined.check()


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
