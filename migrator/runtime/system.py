"""Small and private files, hooks around a fork, whether a process is alive, and work repeated on a thread."""

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
"""The variable that names another folder for what is ours."""
MOST_BYTES = 8 * 1024 * 1024
"""Of a mapping, a job, or a file that holds a URL."""
FILE_MODE = 0o600
FOLDER_MODE = 0o700


def small_text(path: Path) -> str:
    """The text of a file of MOST_BYTES at most.

    Raises: SettingsError where it is larger, or no regular file (a read of a pipe waits for its writer, and a
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
    """Makes the folder, and each one on the way to it, where it is missing; what is made is its owner's alone.

    Raises: OSError.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with suppress(FileExistsError):
            folder.mkdir(FOLDER_MODE)
    if not path.is_dir():
        raise NotADirectoryError(20, "a file stands where a folder should", str(path))


def make_private(path: Path) -> None:
    """Makes the file where it is missing, its owner's alone; an older file of ours becomes private, too.

    SQLite gives its -wal and -shm the mode of the database. Raises: OSError.
    """
    make_folder(path.parent)
    # A file that is there is never opened: closing it would end the locks that SQLite holds on it in this very process.
    # Source: sqlite.org/howtocorrupt.html, "POSIX advisory locks canceled by a separate thread doing close()".
    with suppress(FileExistsError, PermissionError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
    companions = [path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm")]
    for file in (path, *companions):
        with suppress(OSError):
            if file.is_file() and file.stat().st_mode & 0o077:
                file.chmod(FILE_MODE)


def _without_waiting(path: str, flags: int) -> int:
    """Else the very opening of a pipe would wait for its writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


# ──
# What happens when a service forks: connections, locks and threads stay with the parent, the child makes
# its own.


class Forked(Protocol):
    """What must know of a fork; a class that inherits from it has nothing to do before."""

    def before_fork(self) -> None:
        return

    def after_fork(self, *, in_child: bool) -> None: ...


_REGISTERED: list[ref[Forked]] = []


def tell_of_forks(forked: Forked) -> None:
    """Registers `forked`, whose hooks are called at every fork as long as it lives.

    In the order of these calls: what uses a connection must register later than what makes it.
    """
    _REGISTERED[:] = [reference for reference in _REGISTERED if reference() is not None]
    _REGISTERED.append(ref(forked))


class Places(Forked):
    """`at_most` of something at once, by acquiring and releasing `free`.

    A request waits for its place before it is signed, so that no signature grows old.
    """

    def __init__(self, at_most: int) -> None:
        self.at_most = at_most
        self.free = BoundedSemaphore(at_most)
        tell_of_forks(self)

    def after_fork(self, *, in_child: bool) -> None:
        """The places that threads of the parent hold would never be given back in a child."""
        if in_child:
            self.free = BoundedSemaphore(self.at_most)


def _living() -> list[Forked]:
    return [forked for reference in list(_REGISTERED) if (forked := reference()) is not None]


def _before() -> None:
    # In reverse order: what uses a connection comes to rest before the connection does.
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


# ── Whether a process of this machine is alive, told apart from a later one of the same number ──


def birth(pid: int) -> str:
    """When the process began, as this system counts it; '' where there is none, it has ended, or it may not be looked at.

    On Linux in ticks since the start of the machine, which no change of the clock moves (proc_pid_stat(5)).
    """
    if Path("/proc/self/stat").exists():
        try:
            # The name before the last bracket may hold anything; what follows begins with the state, Z: ended.
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] == "Z" else fields[19]
    return elsewhere(pid)


def elsewhere(pid: int) -> str:
    """The same on macOS, the BSDs and Windows, where psutil knows it."""
    try:
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else repr(process.create_time())
    except psutil.Error:
        return ""


def visible_processes() -> str:
    """Which processes this one can see by their numbers; '' where the system does not say.

    The running kernel, and the namespace of process numbers in it: two containers, or two machines, may share a host's
    name, and each counts its processes from 1 (pid_namespaces(7), random(4)).
    """
    with suppress(OSError):
        # A /proc of another namespace counts other processes.
        if os.readlink("/proc/self") != str(os.getpid()):
            return ""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def has_ended(sees: str, pid: int, born: str) -> bool:
    """Whether a process that sees these processes and began at `born` is known to be gone; False also if that cannot be
    seen from here."""
    return bool(sees and born) and sees == visible_processes() and not is_alive(pid, born)


def is_alive(pid: int, born: str) -> bool:
    """Whether the process that began at `born` is still there; True also where the system does not let us know."""
    began_at = birth(pid)
    return began_at == born if began_at else _is_hidden(pid)


def _is_hidden(pid: int) -> bool:
    """Whether there is a process of that number that is another user's, and may not be looked at."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.AccessDenied:
        return True
    except psutil.Error:
        return _is_known_to_kernel(pid)


def _is_known_to_kernel(pid: int) -> bool:
    """Asked where /proc shows nothing: mounted with hidepid it hides the processes of other users (proc(5))."""
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
    """Calls `work` every `interval_s()` seconds in a thread of its own, from `start` to `stop`; the first time after one
    interval. It never keeps a process from ending.

    What a call raises is passed to `failed`, and the next call comes in its time; what `failed` raises ends the thread.
    A ticker runs once; `anew` gives the next one, also to a forked child, whose parent has kept the thread.
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
        self._thread = Thread(target=self._go_on, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_ended(self) -> bool:
        """Whether it was ended, in the middle of a call perhaps."""
        return self._done.is_set()

    @property
    def runs(self) -> bool:
        """Whether it was started, in this process or in the parent of a fork, and not stopped since."""
        return self._thread.ident is not None and not self._done.is_set()

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """No call begins after this; one that is under way goes on. A call may say it itself."""
        self._done.set()

    def stop(self, patience_s: float) -> None:
        """The same, and waits so long for a call that is under way; not where that call is the caller."""
        self._done.set()
        if self._thread.ident is not None and self._thread is not current_thread():
            self._thread.join(patience_s)

    def anew(self) -> Ticker:
        """Another one that does the same and is yet to be started."""
        return Ticker(self.name, self.work, self.failed, self.interval_s)

    def _go_on(self) -> None:
        while not self._done.wait(self.interval_s()):
            try:
                self.work()
            except Exception as error:
                # Whatever it is: without this thread the work would end, without an error that is seen.
                self.failed(error)


# ── What installs an extra ──


def how_to_install(extra: str) -> str:
    """What installs an extra, wherever migrator itself was installed from. By its library's name and not by ours: on a
    package index, anybody may register ours."""
    asked = (text.partition(";") for text in requires("single-table-migrator") or ())
    wanted = [
        text.strip()
        for text, _, marker in asked
        if marker.strip() in (f'extra == "{extra}"', f"extra == '{extra}'")
    ]
    return "run: pip install " + " ".join(f"'{one}'" for one in wanted)
