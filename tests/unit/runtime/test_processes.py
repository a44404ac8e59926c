"""Which processes are alive, and which numbers are used again."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from migrator.runtime import system
from migrator.runtime.system import birth, elsewhere, is_alive


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
