"""Processes: what a fork keeps and makes anew, and whether another process is alive."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from weakref import ref

import psutil

# ──
# What happens when a service forks: connections, locks and threads stay with the parent, the child makes
# its own.


class Forked(Protocol):
    """What must know of a fork; a class that inherits from it has nothing to do before."""

    def before_fork(self) -> None:
        return

    def after_fork(self, *, in_child: bool) -> None: ...


_KNOWN: list[ref[Forked]] = []


def tell_of_forks(one: Forked) -> None:
    """Nothing; `one` is told of every fork as long as it lives.

    In the order of these calls: what uses a connection must ask later than who makes it.
    """
    _KNOWN[:] = [kept for kept in _KNOWN if kept() is not None]
    _KNOWN.append(ref(one))


def _living() -> list[Forked]:
    return [one for kept in list(_KNOWN) if (one := kept()) is not None]


def _before() -> None:
    # The other way round: who uses a connection comes to rest before the connection does.
    for one in reversed(_living()):
        one.before_fork()


def _after(*, in_child: bool) -> None:
    for one in _living():
        one.after_fork(in_child=in_child)


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
        return f"{boot} {found}" if (found := namespace()) else ""
    return ""


def namespace() -> str:
    """In which namespace of process numbers this one counts; '' where the system does not say."""
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def is_alive(pid: int, born: str) -> bool:
    """Whether the process that began at `born` is still there; True also where the system does not let us know."""
    found = birth(pid)
    return found == born if found else _is_hidden(pid)


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
