"""Files of ours."""

from __future__ import annotations

import inspect
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, current_thread

import psutil
import pytest

import migrator
from migrator.runtime import system
from migrator.runtime.system import Ticker, birth, elsewhere, is_alive, make_private
from tests import pins

ANOTHER = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0); c.execute('BEGIN IMMEDIATE')"


def test_make_private_keeps_the_locks_that_this_process_holds(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    make_private(path)
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("CREATE TABLE t (a)")
    held.execute("BEGIN EXCLUSIVE")
    make_private(path)
    ended = subprocess.run(
        [sys.executable, "-c", ANOTHER, str(path)], capture_output=True, text=True, check=False
    )
    assert pins.said(ended.stderr)
    held.close()


def test_a_file_that_others_could_read_becomes_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    path.touch(0o644)
    os.chmod(path, 0o644)
    make_private(path)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("born", [birth, elsewhere])
def test_a_process_has_one_birth_until_it_ends(born: object) -> None:
    assert callable(born)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = born(child.pid)
    assert began
    assert born(child.pid) == began
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert born(child.pid) == "", "it has ended, and its parent has not taken note of it"
    child.wait()
    assert born(child.pid) == ""


def test_a_number_that_is_used_again_is_another_process() -> None:
    own = birth(os.getpid())
    assert is_alive(os.getpid(), own)
    assert not is_alive(os.getpid(), own + "1")
    assert not is_alive(2**22 + 1, own)


def test_a_process_that_proc_hides_is_not_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where /proc is mounted with hidepid: the system's list does not show the processes of other users."""

    def hidden(pid: int) -> psutil.Process:
        raise psutil.NoSuchProcess(pid)

    monkeypatch.setattr(psutil, "Process", hidden)
    monkeypatch.setattr(system, "birth", lambda pid: "")
    assert is_alive(os.getppid(), "1")
    assert not is_alive(2**22 + 1, "1")


SOON_S = 0.001
LONG_S = 3600.0
PATIENCE_S = 10.0


def raised(error: Exception) -> None:
    raise error


def ticker(
    work: Callable[[], None], failed: Callable[[Exception], None] = raised, interval_s: float = SOON_S
) -> Ticker:
    return Ticker("tick", work, failed, lambda: interval_s)


def test_ticker_calls_repeatedly_in_its_own_thread_until_stopped() -> None:
    calls: list[str] = []
    often = Event()

    def work() -> None:
        calls.append(current_thread().name)
        if len(calls) >= 3:
            often.set()

    one = ticker(work)
    assert not one.runs
    one.start()
    assert often.wait(PATIENCE_S)
    one.stop(PATIENCE_S)
    count = len(calls)
    assert (one.is_alive, one.runs, one.is_ended) == (False, False, True)
    assert set(calls) == {"tick"}
    assert len(calls) == count


def test_error_of_one_call_is_reported_and_the_next_call_runs() -> None:
    told: list[str] = []
    again = Event()

    def work() -> None:
        if told:
            again.set()
        else:
            raise ValueError("once")

    one = ticker(work, lambda error: told.append(str(error)))
    one.start()
    assert again.wait(PATIENCE_S)
    one.stop(PATIENCE_S)
    assert told == ["once"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_is_raised_about_an_error_ends_it_and_that_shows() -> None:
    def work() -> None:
        raise ValueError("for good")

    one = ticker(work)
    one.start()
    one._thread.join(PATIENCE_S)
    assert (one.is_alive, one.is_ended) == (False, False)


def test_it_stops_in_the_middle_of_a_long_wait() -> None:
    one = ticker(lambda: raised(AssertionError("too early")), interval_s=LONG_S)
    one.start()
    one.stop(PATIENCE_S)
    assert not one.is_alive


def test_a_call_may_end_it_and_stop_it() -> None:
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        one.end()
        one.stop(PATIENCE_S)

    one = ticker(work)
    one.start()
    one._thread.join(PATIENCE_S)
    assert (calls, one.is_alive) == ([1], False)


def test_one_that_was_never_started_stops_at_once() -> None:
    one = ticker(lambda: None)
    one.stop(PATIENCE_S)
    assert not one.runs


def test_restarted_ticker_reads_its_interval_each_time() -> None:
    waits = iter([LONG_S, 0.0, LONG_S])
    called = Event()
    first = Ticker("tick", called.set, raised, lambda: next(waits))
    first.start()
    first.stop(PATIENCE_S)
    assert not called.is_set()
    second = first.again()
    second.start()
    assert called.wait(PATIENCE_S)
    second.stop(PATIENCE_S)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_child_has_no_thread_and_may_start_another() -> None:
    one = ticker(lambda: None)
    one.start()
    child = os.fork()
    if not child:
        called = Event()
        one.work = called.set
        code = 1
        try:
            following = one.again()
            alone = one.runs and not one.is_alive
            following.start()
            code = 0 if alone and called.wait(PATIENCE_S) else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    one.stop(PATIENCE_S)
    assert os.waitstatus_to_exitcode(status) == 0


def test_no_other_thread_calls_one_function_again_and_again() -> None:
    """The shadow pool's threads work off a queue, and its watch is woken by what is put there; a server waits for requests, the
    driver of several processes for their lines, and that of a cluster for a round of tasks. retry.py ends a connection once."""
    root = Path(inspect.getfile(migrator)).parent
    found = {path.stem for path in root.rglob("*.py") if re.search(r"\b(Thread|Timer)\(", path.read_text())}
    assert found == {"system", "retry", "shadow", "server", "watched", "processes", "work"}
