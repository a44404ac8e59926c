"""The embedded DynamoDB (MiniStack or dynoxide): started once, shared by commands, stopped with its tables saved."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from filelock import FileLock
from msgspec import Struct

from migrator.runtime.errors import SettingsError, StoppedError
from migrator.runtime.logs import get_logger
from migrator.runtime.system import FOLDER, HOME, birth, how_to_install, is_alive, make_folder, make_private
from migrator.runtime.values import asdict

READY_S = 30.0
STOP_S = 120.0
"""Saving 120,000 items takes MiniStack about 7 s."""

_log = get_logger("embedded")


class EmbeddedServer(Struct, frozen=True):
    """A server that was started here; `born` detects a reused pid."""

    pid: int
    born: str
    port: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"


NAMES = ("embedded", "dynoxide")
"""Names of embedded servers, as a job's endpoint."""


def folder(name: str) -> Path:
    return Path(os.environ.get(HOME) or FOLDER) / name


def ensure_running(home: Path, *, lasting: bool = False) -> str:
    """The endpoint of the embedded server, started if needed.

    `lasting`: dynoxide, which writes its file with each request. Otherwise MiniStack; its saved state is
    discarded after an unclean stop, because it is older than what was written
    (docs/decisions/0004-embedded-unclean.md).
    Raises: SettingsError if the program is not installed, on Windows, or if the folder cannot be written;
    StoppedError if it does not start.
    """
    if os.name != "posix":
        what = "the embedded DynamoDB saves its tables when it receives a signal to end, which this system cannot send"
        raise SettingsError(
            f"{what}; use WSL, or name another endpoint (such as DynamoDB Local's) in the job"
        )
    with _kept_in(home), _locked(home):
        server = running(home)
        if server is not None:
            return server.endpoint
        if lasting and _dynoxide() is None:
            raise SettingsError(
                "endpoint: dynoxide needs the program dynoxide on the PATH; it is in npm's package @dynoxide/linux-x64"
            )
        if not lasting and not is_installed():
            raise SettingsError(f"the embedded DynamoDB needs MiniStack; {how_to_install('local')}")
        if not lasting and _flag(home).exists():
            shutil.rmtree(home / "state", ignore_errors=True)
            _log.warning(
                "embedded_state_discarded", why="the server was killed before it could save its tables"
            )
        return _start(home, lasting=lasting).endpoint


@contextmanager
def _kept_in(home: Path) -> Iterator[None]:
    try:
        make_folder(home)
        yield
    except OSError as error:
        what = f"the embedded DynamoDB cannot write its folder {home} ({error.strerror})"
        raise SettingsError(
            f"{what}; let this user write it, or set MIGRATOR_HOME to another folder"
        ) from None


def is_installed() -> bool:
    return os.name == "posix" and importlib.util.find_spec("ministack") is not None


@contextmanager
def for_a_while() -> Iterator[str]:
    """A temporary server, which is removed when the block ends.

    Raises: StoppedError if it does not start.
    """
    with TemporaryDirectory(prefix="migrator-", ignore_cleanup_errors=True) as name:
        server = _start(Path(name))
        try:
            yield server.endpoint
        finally:
            process = psutil.Process(server.pid)
            process.kill()
            process.wait(timeout=STOP_S)


def running(home: Path) -> EmbeddedServer | None:
    try:
        server = EmbeddedServer(**json.loads((home / "server.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return server if is_alive(server.pid, server.born) else None


def status(server: EmbeddedServer | None) -> str:
    if server is None:
        return "the embedded DynamoDB is not running"
    return f"the embedded DynamoDB runs at {server.endpoint} (process {server.pid})"


def stop(home: Path) -> bool:
    """Wait until tables are saved; False if no server was running.

    Raises: StoppedError if it does not end in time.
    """
    if not home.exists():
        return False
    with _kept_in(home), _locked(home):
        server = running(home)
        if server is None:
            return False
        os.kill(server.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while running(home) is not None:
            if time.monotonic() > deadline:
                raise StoppedError(
                    f"the embedded DynamoDB (process {server.pid}) does not end; see {home / 'server.log'}"
                )
            _reap(server.pid)
            time.sleep(0.05)
        (home / "server.json").unlink(missing_ok=True)
        _flag(home).unlink(missing_ok=True)
        return True


def _dynoxide() -> str | None:
    return shutil.which("dynoxide")


def _start(home: Path, *, lasting: bool = False) -> EmbeddedServer:
    port = _free_port()
    words = [sys.executable, "-m", "ministack"]
    if lasting:
        words = [str(_dynoxide()), "--port", str(port), "--db-path", str(home / "state" / "tables.db")]
    _flag(home).touch()
    make_private(home / "server.log")
    with (home / "server.log").open("ab") as log:
        process = subprocess.Popen(
            words,
            env=_environment(home, port),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            # Only the owner may read the stored tables.
            umask=0o077,
        )
    server = EmbeddedServer(process.pid, birth(process.pid), port)
    deadline = time.monotonic() + READY_S
    while not _answers(server.endpoint):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise StoppedError(f"the embedded DynamoDB did not come up; see {home / 'server.log'}")
        time.sleep(0.05)
    (home / "server.json").write_text(json.dumps(asdict(server)))
    return server


def _environment(home: Path, port: int) -> dict[str, str]:
    """MiniStack's settings: loopback only, state under `home`, unused services off."""
    state = (home / "state").resolve()
    for folder in (state, state / "s3", state / "tmp"):
        make_folder(folder)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MIGRATOR_"))}
    return kept | {
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "PERSIST_STATE": "1",
        "STATE_DIR": str(state),
        "S3_PERSIST": "1",
        "S3_DATA_DIR": str(state / "s3"),
        "TMPDIR": str(state / "tmp"),
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
    }


def _answers(endpoint: str) -> bool:
    try:
        urllib.request.urlopen(endpoint, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _flag(home: Path) -> Path:
    """A file that exists while the server runs, and after a kill."""
    return home / "unclean"


def _reap(pid: int) -> None:
    """Wait for an ended child, which would otherwise stay as a zombie."""
    with suppress(psutil.Error):
        psutil.Process(pid).wait(timeout=0)


def _locked(home: Path) -> FileLock:
    return FileLock(home / "lock")
