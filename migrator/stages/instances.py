"""The heartbeat of one service's adapter or reader: registered, renewed by a thread, and looked at whether it still fits."""

from __future__ import annotations

import atexit
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from threading import Event, Lock, Thread
from types import TracebackType

from migrator.errors import INTERRUPTED, STOPPED, MigratorError, SettingsError, StoppedError
from migrator.forks import tell_of_forks
from migrator.logs import get_logger
from migrator.ports.instances import Instance, InstanceMode, InstanceRole, Instances

BEAT_S = 5.0
FORGOTTEN_S = 86_400.0
"""Who was silent for so long is listed no more."""
_LETTERS = 100
_LOG_S = 60.0
_GOODBYE_S = 5.0
_log = get_logger("instances")


def this_process(
    service: str, version_: str, role: InstanceRole, mode: InstanceMode, *, revision: str, installation: str
) -> Instance:
    """What this process says of itself; not registered yet. Raises: SettingsError where the service has no name."""
    if not service.strip():
        raise SettingsError("a service has no name, by which `migrator status` could list it; give it one")
    name, own, host = _plain(service), _plain(version_), _plain(socket.gethostname())
    package = version("single-table-migrator")
    return Instance(name, host, os.getpid(), own, package, role, mode, revision, installation)


def _plain(text: str) -> str:
    """The text as it can stand in a terminal's line, and in a column of every journal."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text.strip())
    return shown if len(shown) <= _LETTERS else f"{shown[: _LETTERS - 1]}…"


class Heartbeat:
    """Use as a context manager, or with `start` and `stop`; the end of the process stops it too.

    `look`: called with every beat; raises what no longer fits. What cannot be asked just now (exit code 3) is logged
    once a minute and is no fault: a service must not fail because a journal is away. A forked child is an instance of
    its own.
    """

    def __init__(
        self, instances: Instances, me: Instance, look: Callable[[], object], beat_s: float = BEAT_S
    ) -> None:
        self.instances = instances
        self.me = me
        self.look = look
        self.beat_s = beat_s
        self._fault: MigratorError | None = None
        self._logged_at = float("-inf")
        self._running = self._held = False
        self._new_thread()

    def __enter__(self) -> Heartbeat:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Registers the instance. Raises: what `look` raises, and what the journal does where it cannot be asked."""
        self.look()
        self.instances.forget_silent(FORGOTTEN_S)
        self.me = self.instances.enter(self.me)
        self._running = True
        tell_of_forks(self)
        atexit.register(self.stop)
        self._thread.start()

    def check(self) -> None:
        """Stands before every write. Raises: the fault of the last look, if it had one; StoppedError where nobody looks."""
        if self._fault is not None:
            # Anew, or every write that fails would make its trace longer.
            raise self._fault.with_traceback(None)
        if self._running and not self._thread.is_alive():
            what = "the heartbeat of this service has ended, so nobody looks whether its changes are marked"
            raise StoppedError(f"{what}; start the service again")

    def stop(self) -> None:
        """Says goodbye. A journal that cannot be asked shows the instance as silent."""
        if not self._running:
            return
        self._running = False
        atexit.unregister(self.stop)
        self._done.set()
        self._thread.join(_GOODBYE_S)
        with suppress(MigratorError):
            self.instances.leave(self.me)

    # ── forks ──

    def before_fork(self) -> None:
        """A fork amid a beat would leave its child what the beat holds, with nobody there to let go."""
        self._held = self._beating.acquire(timeout=_GOODBYE_S)

    def after_fork(self, *, in_child: bool) -> None:
        """Threads stay with the parent; a child begins anew, and registers when its thread beats first."""
        if not in_child and self._held:
            self._beating.release()
        elif in_child and self._running:
            self.me = replace(self.me, id="", pid=os.getpid())
            self._new_thread()
            self._thread.start()

    # ── the thread ──

    def _new_thread(self) -> None:
        self._done, self._beating = Event(), Lock()
        self._thread = Thread(target=self._renew, args=(self._done,), name="instance", daemon=True)

    def _renew(self, done: Event) -> None:
        while not done.wait(self.beat_s if self.me.id else 0.0):
            with self._beating:
                self._beat()

    def _beat(self) -> None:
        try:
            self.look()
        except MigratorError as error:
            if error.exit_code in (STOPPED, INTERRUPTED):
                self._log(error)
            else:
                self._fault = error
        else:
            self._fault = None
        try:
            self.me = self.instances.beat(self.me) if self.me.id else self.instances.enter(self.me)
        except MigratorError as error:
            self._log(error)

    def _log(self, error: MigratorError) -> None:
        if time.monotonic() - self._logged_at >= _LOG_S:
            self._logged_at = time.monotonic()
            # Where a log cannot be written (its stream is closed) the heart must go on beating.
            with suppress(OSError, ValueError):
                _log.warning("instance_cannot_look", reason=str(error))
