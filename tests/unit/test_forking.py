"""A forked Python process behaves as a new one does."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from migrator.runtime.system import birth
from tests.forking import Python, run_python

STATE = """
import gc, json, os, random, secrets, signal, sys, threading
names = [name for name in signal.valid_signals() if name not in (signal.SIGKILL, signal.SIGSTOP)]
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "main": sys.modules["__main__"].__name__, "folder": os.getcwd(),
    "descriptors": [n for n in range(256) if os.path.exists(f"/proc/self/fd/{n}")],
    "signals": {str(name): repr(signal.getsignal(name)).split(" at ")[0] for name in names},
    "blocked": [str(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "environment": sorted(os.environ), "threads": threading.active_count(), "gc": [gc.isenabled(), gc.get_threshold()],
    "streams": [[one.encoding, one.errors, one.newlines, one.line_buffering] for one in (sys.stdin, sys.stdout, sys.stderr)],
    "same": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
    "umask": os.umask(0o022), "group": os.getpgid(0) == os.getpid(), "executable": sys.executable,
}))
"""


@pytest.mark.parametrize("kind", ["-m", "-c", "script"])
def test_forked_state_equals_that_of_a_new_interpreter(tmp_path: Path, kind: str) -> None:
    (tmp_path / "state.py").write_text(STATE)
    words = {"-m": ["-m", "state"], "-c": ["-c", STATE], "script": ["state.py"]}[kind]
    options: dict[str, Any] = {"cwd": tmp_path, "start_new_session": True, "stdin": subprocess.DEVNULL}
    options["env"] = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}here"}
    new = subprocess.run([sys.executable, *words, "x"], capture_output=True, text=True, check=True, **options)
    forked = run_python([*words, "x"], check=True, **options)
    assert (forked.stdout, forked.stderr) == (new.stdout, new.stderr)


def killed(process: subprocess.Popen[str]) -> int:
    process.kill()
    return process.wait(60)


def ended(process: subprocess.Popen[str]) -> int:
    process.terminate()
    return process.wait(60)


def interrupted(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGINT)
    return process.wait(60)


@pytest.mark.parametrize(("end", "code"), [(killed, -9), (ended, -15), (interrupted, -2)])
def test_forked_signal_is_the_return_code(end: Callable[[subprocess.Popen[str]], int], code: int) -> None:
    with Python(
        ["-c", "print('ready', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert process.poll() is None
        assert end(process) == code
        assert not psutil.pid_exists(process.pid)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("", 0),
        ("import sys; sys.exit(3)", 3),
        ("1 / 0", 1),
        ("import os; os._exit(7)", 7),
        ("raise SystemExit('x')", 1),
    ],
)
def test_forked_exit_status_is_real(code: str, status: int) -> None:
    assert run_python(["-c", code]).returncode == status


def test_two_forked_processes_have_streams_of_their_own() -> None:
    pipe = subprocess.PIPE
    code = "import os, random; print(input(), os.getpid(), random.random())"
    both = [Python(["-c", code], stdin=pipe, stdout=pipe) for _ in range(2)]
    born = {birth(process.pid) for process in both}
    first, second = (
        [name, *process.communicate(name)[0].split()] for name, process in zip("ab", both, strict=True)
    )
    assert [first[1:3], second[1:3]] == [["a", str(both[0].pid)], ["b", str(both[1].pid)]]
    assert first[3] != second[3]
    assert "" not in born


def test_a_timeout_leaves_the_forked_process_at_work() -> None:
    with Python(["-c", "input()"], stdin=subprocess.PIPE) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        process.communicate("\n", timeout=60)
        assert process.returncode == 0


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_process_dropped_in_a_cycle_spares_those_after_it() -> None:
    failed: list[object] = [Python(["-c", "input()"], stdin=subprocess.PIPE)]
    failed.append(failed)  # as the traceback of a failed test
    del failed
    gc.collect()
    assert run_python(["-c", "print(1)"]).stdout == "1\n"


def test_forked_processes_end_with_the_test_process() -> None:
    code = (
        "import subprocess; from tests.forking import Python; "
        "process = Python(['-c', 'input()'], stdin=subprocess.PIPE); print(process.pid, flush=True); input()"
    )
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, cwd=Path(__file__).parents[2], stdin=pipe, stdout=pipe, text=True) as tester:
        assert tester.stdout is not None
        forked = psutil.Process(int(tester.stdout.readline()))
        tester.kill()
    assert not psutil.wait_procs([forked], timeout=60)[1]
