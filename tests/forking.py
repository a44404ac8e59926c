"""Python processes forked from one that has imported everything: a command starts in a tenth of the time.

`Python` is a `subprocess.Popen`: its process id, signals, exit status, file descriptors and working directory are real.
Two things differ from a new interpreter: all of migrator is imported already, and the hash seed is the server's. A test
about starting uses `sys.executable` itself; a `sitecustomize` in PYTHONPATH gets a new interpreter with the same process id.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
_LENGTH = 4
_KILLED = int(signal.SIGKILL).to_bytes(_LENGTH, "big")
_EVERY_FD = 1 << 30


# ── Client: the test's process ──


class Python(subprocess.Popen[str]):
    """`subprocess.Popen([sys.executable, *words], text=True, …)`, forked from the server of this process."""

    def __init__(self, words: Sequence[object], **options: Any) -> None:
        super().__init__([sys.executable, *map(str, words)], **{"text": True, **options})

    # fmt: off
    def _execute_child(  # type: ignore[no-untyped-def]
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *more,
    ) -> None:
        # fmt: on
        """Start the process. Popen has opened the pipes."""
        assert not any((executable, preexec_fn, pass_fds, shell)), "the fork server has no such option"
        request = {
            "words": args[1:],
            "folder": os.fspath(cwd or os.getcwd()),
            "environment": dict(os.environ if env is None else env),
            "session": more[-2],
        }
        theirs = [fd if fd != -1 else own for own, fd in enumerate((p2cread, c2pwrite, errwrite))]
        here, there = socket.socketpair()
        # A number: the garbage collector would close a socket while Popen still waits for a dropped process.
        self._link = here.detach()
        with there:
            _server().send(request, [*theirs, there.fileno()])
        self.pid = int.from_bytes(os.read(self._link, _LENGTH), "big")
        assert self.pid, "the fork server has ended"
        self._child_created = True
        devnull: Any = getattr(self, "_devnull", None)
        pairs = ((p2cread, p2cwrite), (c2pwrite, c2pread), (errwrite, errread))
        for fd in {child for child, ours in pairs if -1 not in (child, ours)} | {devnull} - {None}:
            os.close(fd)
        self._closed_child_pipe_fds = True

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        ends = select.poll()
        ends.register(self._link, select.POLLIN)
        if wait_flags & os.WNOHANG and not ends.poll(0):
            return 0, 0
        status = os.read(self._link, _LENGTH) or _KILLED  # without a status, the server has ended
        os.close(self._link)
        return self.pid, int.from_bytes(status, "big")

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG) if self.returncode is None else (0, 0)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def run_python(
    words: Sequence[object], *, timeout: float = 120, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run([sys.executable, *words], capture_output=True, text=True, …)`."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with Python(words, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    ended = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        ended.check_returncode()
    return ended


class _Server:
    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._lock = Lock()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with theirs:
            # A session of its own: Ctrl-C is for pytest; the server and its children end with the socket.
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                cwd=ROOT,
                env=environment,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self._end)

    def send(self, request: dict[str, Any], fds: list[int]) -> None:
        data = json.dumps(request).encode("utf-8", "surrogateescape")
        with self._lock:
            socket.send_fds(self._socket, [len(data).to_bytes(_LENGTH, "big")], fds)
            self._socket.sendall(data)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


@functools.cache
def _server() -> _Server:
    return _Server()


# ── Server: a process with one thread ──


def _import_all() -> None:
    """Import what a command imports, and read botocore's model of DynamoDB."""
    import botocore.session
    from botocore.loaders import JSONFileLoader

    import migrator

    ours = [one.name for one in pkgutil.walk_packages(migrator.__path__, "migrator.")]
    for name in ("psycopg", "pymysql", *ours):
        # `-m migrator` runs `migrator.__main__`, which must not be imported before. An extra may be missing.
        with suppress(ImportError):
            if not name.endswith(".__main__"):
                importlib.import_module(name)
    load = functools.cache(functools.partial(JSONFileLoader.load_file, JSONFileLoader()))
    JSONFileLoader.load_file = lambda self, path: load(path)
    session = botocore.session.Session()
    for service in ("dynamodb", "dynamodbstreams"):
        session.create_client(service, "eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")


def _serve(control: socket.socket) -> dict[str, Any]:
    """Fork a process per request. Return the request in the child; end with the socket in the server."""
    asleep, awake = os.pipe()
    os.set_blocking(awake, False)
    signal.set_wakeup_fd(awake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    links: dict[int, int] = {}
    sources: list[socket.socket | int] = [control, asleep]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if asleep in ready:
            os.read(asleep, 4096)
            _report(links)
        if control not in ready:
            continue
        header, fds, _, _ = socket.recv_fds(control, _LENGTH, 4)
        if not header:
            for pid in links:
                os.kill(pid, signal.SIGKILL)
            sys.exit()
        data = b""
        while len(data) < int.from_bytes(header, "big"):
            data += control.recv(int.from_bytes(header, "big") - len(data))
        pid = os.fork()
        if not pid:
            control.detach()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, fd in enumerate(fds[:3]):
                os.dup2(fd, number)
            os.closerange(3, _EVERY_FD)
            request: dict[str, Any] = json.loads(data.decode("utf-8", "surrogateescape"))
            return request
        for fd in fds[:3]:
            os.close(fd)
        links[pid] = fds[3]
        _send(fds[3], pid)


def _report(links: dict[int, int]) -> None:
    """Reap each child that has ended, and send its wait status."""
    for pid in list(links):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            _send(links[pid], status)
            os.close(links.pop(pid))


def _send(link: int, number: int) -> None:
    with suppress(ConnectionError):  # the test has dropped its object
        os.write(link, number.to_bytes(_LENGTH, "big"))


# ── Child: what a new interpreter has ──


def _prepare(request: dict[str, Any]) -> None:
    if request["session"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.stdin = sys.__stdin__ = _stream(0, sys.stdin)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, sys.stdout)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, sys.stderr)  # type: ignore[misc]
    named = [Path(one).absolute() for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    if any((one / "sitecustomize.py").exists() for one in named):  # it comes before all imports
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, *request["words"]])
    sys.path[:1] = map(str, named)


def _stream(number: int, like: Any) -> io.TextIOWrapper:
    """A standard stream as the interpreter opens it."""
    at_once = bool(number and os.environ.get("PYTHONUNBUFFERED"))
    binary = os.fdopen(number, "wb" if number else "rb", buffering=0 if at_once else -1, closefd=False)
    by_lines = not at_once and (number == 2 or os.isatty(number))
    return io.TextIOWrapper(binary, like.encoding, like.errors, "\n", by_lines, at_once)


def _run(words: list[str]) -> None:
    match words:
        case ["-m", module, *rest]:
            sys.argv[:] = [module, *rest]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *rest]:
            sys.argv[:] = ["-c", *rest]
            sys.path.insert(0, "")
            sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))
        case [script, *rest]:
            sys.argv[:] = [script, *rest]
            sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
            runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    _import_all()
    gc.collect()
    gc.freeze()
    asked = _serve(socket.socket(fileno=os.dup(0)))
    _prepare(asked)
    # At the top of this module: the interpreter itself ends the process as it ends any other.
    _run(asked["words"])
