"""Small and private files, fork hooks, liveness of processes, and work repeated on a thread."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import requires
from pathlib import Path
from threading import BoundedSemaphore, Event, Thread, current_thread
from typing import Protocol
from weakref import ref

import psutil

from migrator.runtime.errors import SettingsError

FOLDER = ".migrator"
HOME = "MIGRATOR_HOME"
"""The variable for another folder for our files."""
MOST_BYTES = 8 * 1024 * 1024
"""Maximum size of a mapping, a job, or a file with a URL."""
FILE_MODE = 0o600
FOLDER_MODE = 0o700


def small_text(path: Path) -> str:
    """A file of at most MOST_BYTES.

    Raises: SettingsError if it is larger, or not a regular file (reading a pipe waits for its writer, and a
    device may never end); OSError, UnicodeDecodeError.
    """
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SettingsError(
                f"{path}: not a regular file (a pipe, a socket or a device); write it to a file"
            )
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise SettingsError(f"{path}: the file is larger than 8 MB ({MOST_BYTES:,} bytes); name another one")
    return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def make_folder(path: Path) -> None:
    """Create the folder with missing parents, for the owner only.

    Raises: OSError.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with suppress(FileExistsError):
            folder.mkdir(FOLDER_MODE)
    if not path.is_dir():
        raise NotADirectoryError(20, "a file stands where a folder should", str(path))


def make_private(path: Path) -> None:
    """Create the file for the owner only; an existing file of ours becomes private.

    SQLite gives its -wal and -shm the mode of the database. Raises: OSError.
    """
    make_folder(path.parent)
    # Never open an existing file: closing it would release SQLite's locks on it in this very process. Source:
    # sqlite.org/howtocorrupt.html, "POSIX advisory locks canceled by a separate thread doing close()".
    with suppress(FileExistsError, PermissionError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
    companions = [path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm")]
    for file in (path, *companions):
        with suppress(OSError):
            if file.is_file() and file.stat().st_mode & 0o077:
                file.chmod(FILE_MODE)


def _without_waiting(path: str, flags: int) -> int:
    """Opening a pipe would otherwise wait for its writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


# When a service forks, connections, locks and threads stay with the parent; the child makes its own.


class Forked(Protocol):
    """An object with fork hooks; by default it does nothing before a fork."""

    def before_fork(self) -> None:
        return

    def after_fork(self, *, in_child: bool) -> None: ...


_REGISTERED: list[ref[Forked]] = []


def tell_of_forks(forked: Forked) -> None:
    """Call the hooks at every fork while `forked` lives.

    Order matters: the user of a connection must register later than the connection's owner.
    """
    _REGISTERED[:] = [reference for reference in _REGISTERED if reference() is not None]
    _REGISTERED.append(ref(forked))


class Places(Forked):
    """At most `at_most` at once: acquire and release `free`.

    A request acquires before it is signed, so that no signature expires while waiting.
    """

    def __init__(self, at_most: int) -> None:
        self.at_most = at_most
        self.free = BoundedSemaphore(at_most)
        tell_of_forks(self)

    def after_fork(self, *, in_child: bool) -> None:
        """Places held by the parent's threads would never be released in a child."""
        if in_child:
            self.free = BoundedSemaphore(self.at_most)


def _living() -> list[Forked]:
    return [forked for reference in list(_REGISTERED) if (forked := reference()) is not None]


def _before() -> None:
    # In reverse order: the user of a connection stops before the connection does.
    for forked in reversed(_living()):
        forked.before_fork()


def _after(*, in_child: bool) -> None:
    for forked in _living():
        forked.after_fork(in_child=in_child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before,
        after_in_parent=lambda: _after(in_child=False),
        after_in_child=lambda: _after(in_child=True),
    )


# ── Liveness of a process on this machine, distinguished from a later one with the same pid ──


def birth(pid: int) -> str:
    """When the process began, as this system counts it; '' if it does not exist, has ended, or is not
    accessible.

    On Linux in ticks since boot, which a change of the clock does not affect (proc_pid_stat(5)).
    """
    if Path("/proc/self/stat").exists():
        try:
            # The name before the last bracket may contain anything; what follows begins with the state, Z: ended.
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] == "Z" else fields[19]
    return elsewhere(pid)


def elsewhere(pid: int) -> str:
    """birth() on macOS, the BSDs and Windows, if psutil can read it."""
    try:
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else repr(process.create_time())
    except psutil.Error:
        return ""


def visible_processes() -> str:
    """The scope of pids that this process can see; '' if unknown.

    The running kernel, and its pid namespace. Two containers, or two machines, may have the same host name,
    and each counts its processes from 1 (pid_namespaces(7), random(4)).
    """
    with suppress(OSError):
        # A /proc of another namespace counts other processes.
        if os.readlink("/proc/self") != str(os.getpid()):
            return ""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def has_ended(sees: str, pid: int, born: str) -> bool:
    """Whether it is known to have ended; False if the process is not visible from here."""
    return bool(sees and born) and sees == visible_processes() and not is_alive(pid, born)


def is_alive(pid: int, born: str) -> bool:
    """Whether the process that began at `born` is still running; True if unknown."""
    began_at = birth(pid)
    return began_at == born if began_at else _is_hidden(pid)


def _is_hidden(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.AccessDenied:
        return True
    except psutil.Error:
        return _is_known_to_kernel(pid)


def _is_known_to_kernel(pid: int) -> bool:
    """Used if /proc shows nothing: mounted with hidepid it hides other users' processes (proc(5))."""
    if os.name != "posix":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


# ── A thread that calls one function again and again, and clocks that only go forward ──


class Ticker:
    """Calls `work` every `interval_s()` seconds in its own thread, after a first interval. Never keeps a process
    from ending.

    An error is passed to `failed`, and the next call follows; an error of `failed` ends the thread. A ticker
    runs once; `again` returns the next one, also for a forked child, whose parent keeps the thread.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        failed: Callable[[Exception], None],
        interval_s: Callable[[], float],
    ) -> None:
        self.name = name
        self.work = work
        self.failed = failed
        self.interval_s = interval_s
        self._done = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_ended(self) -> bool:
        return self._done.is_set()

    @property
    def runs(self) -> bool:
        """Whether it was started (also in the parent, before a fork) and not stopped since."""
        return self._thread.ident is not None and not self._done.is_set()

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Start no further call; a running one completes. May be called from within `work`."""
        self._done.set()

    def stop(self, patience_s: float) -> None:
        """end(), and wait so long for a running call, unless that call is the caller."""
        self._done.set()
        if self._thread.ident is not None and self._thread is not current_thread():
            self._thread.join(patience_s)

    def again(self) -> Ticker:
        return Ticker(self.name, self.work, self.failed, self.interval_s)

    def _run(self) -> None:
        while not self._done.wait(self.interval_s()):
            try:
                self.work()
            except Exception as error:
                # Any error: without this thread the work would end silently.
                self.failed(error)


# ── Installation of extras ──


def how_to_install(extra: str) -> str:
    """The command by the library's name, not ours: on a package index, anyone may register our name."""
    asked = (text.partition(";") for text in requires("single-table-migrator") or ())
    wanted = [
        text.strip()
        for text, _, marker in asked
        if marker.strip() in (f'extra == "{extra}"', f"extra == '{extra}'")
    ]
    return "run: pip install " + " ".join(f"'{one}'" for one in wanted)
