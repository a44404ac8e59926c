"""Heartbeat of a service's process: registers an instance with its roles, renews it, and checks the roles."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from threading import RLock
from typing import Literal

from migrator.mapping.model.instances import DUAL_WRITE, READ, Instance, InstanceMode, InstanceRole, Instances
from migrator.runtime.errors import INTERRUPTED, STOPPED, MigratorError, SettingsError, StoppedError
from migrator.runtime.logs import get_logger
from migrator.runtime.system import Ticker, birth, has_ended, tell_of_forks, visible_processes
from migrator.runtime.values import replace

BEAT_S = 5.0
FORGOTTEN_S = 86_400.0
"""An instance without a heartbeat for so long is no longer listed."""
STRIKE_S = 60.0
"""How often each process looks whether others of its machine ended and did not deregister."""
SILENT_S = 30.0
_LETTERS = 100
_LOG_S = 60.0
_GOODBYE_S = 5.0
_ANEW_S = 2.0
_log = get_logger("instances")


def this_process(service: str, version_: str, *, revision: str) -> Instance:
    """As a reader; `Heartbeat` sets the roles."""
    if not service.strip():
        raise SettingsError("a service has no name, by which `migrator status` could list it; give it one")
    name, own, host = _plain(service), _plain(version_), _plain(socket.gethostname())
    package = version("single-table-migrator")
    pid = os.getpid()
    words = (name, host, pid, own, package, READ)
    blank = Instance(*words, mode="", revision=revision, installation="")
    return replace(blank, sees=visible_processes(), born=birth(pid))


def _plain(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in text.strip())
    return shown if len(shown) <= _LETTERS else f"{shown[: _LETTERS - 1]}…"


@dataclass(eq=False)
class ServiceRole:
    """One role of a service in a job. `look`: called with each beat; raises if the role no longer fits.

    An unreachable server (exit code 3) is logged once a minute and is not a fault, so that a service survives
    its journal.
    """

    name: Literal["dual_write", "read"]
    look: Callable[[], object]
    mode: InstanceMode = ""
    installation: str = ""
    fault: MigratorError | None = field(default=None, init=False)

    def refuse(self) -> None:
        if self.fault is not None:
            # Without the old traceback, which each failing call would make longer.
            raise self.fault.with_traceback(None)


class Heartbeat:
    """One per process and job, registered while it has a role. A forked child is its own instance.

    `silent_s`: time without a heartbeat after which this process counts as gone.
    `clock`: monotonic seconds that include the machine's sleep.
    `aside`: runs blocking work, in a thread if an event loop must not wait.
    """

    def __init__(
        self,
        instances: Instances,
        me: Instance,
        *,
        beat_s: float = BEAT_S,
        silent_s: float = SILENT_S,
        clock: Callable[[], float] = time.monotonic,
        aside: Callable[[Callable[[], None]], None] = lambda work: work(),
    ) -> None:
        self.instances = instances
        self.me = me
        self.beat_s = beat_s
        self.silent_s = silent_s
        self.clock = clock
        self.aside = aside
        self._roles: list[ServiceRole] = []
        self._logged_at = float("-inf")
        self._running = self._held = False
        self._new_thread()
        tell_of_forks(self)

    @contextmanager
    def playing(self, role: ServiceRole) -> Iterator[None]:
        """Hold the role until the block ends. Raises: the error of its look; the journal's if it is unreachable."""
        self._begin(role)
        try:
            yield
        finally:
            self._end(role)

    def check(self, role: ServiceRole) -> None:
        """Called before every write. Raises: the fault of the last look; StoppedError if the thread has ended."""
        if self._running and self.clock() - self._looked_at >= self.silent_s:
            # The process was frozen: its state is old, and others may have continued without it.
            self.aside(self._refresh_once)
        role.refuse()
        if self._running and not self._ticker.is_alive:
            what = "the heartbeat of this service has ended, so nothing checks that its changes are captured"
            raise StoppedError(f"{what}; start the service again")

    def _begin(self, role: ServiceRole) -> None:
        role.look()
        with self._beating:
            self._roles.append(role)
            try:
                self._register()
            except BaseException:
                self._roles.remove(role)
                raise
            if not self._running:
                self._running = True
                self._ticker.start()

    def _register(self) -> None:
        me = self._described()
        if me.id:
            self.me = self.instances.beat(me)
            return
        self.instances.forget_silent(FORGOTTEN_S)
        self.me = self.instances.enter(me)
        # A failed cleanup must not prevent the start.
        with suppress(MigratorError):
            self._remove_ended()
        self._looked_at = self.clock()

    def _end(self, role: ServiceRole) -> None:
        with self._beating:
            self._roles.remove(role)
            if self._roles:
                with suppress(MigratorError):
                    self._register()
                return
            self._running = False
            ticker, me = self._ticker, self.me
            # Before another role may begin: it finds all as new.
            self.me = replace(me, id="")
            ticker.end()
            self._new_thread()
        ticker.stop(_GOODBYE_S)
        # An unreachable journal shows the instance as silent.
        with suppress(MigratorError):
            self.instances.leave(me)

    def _described(self) -> Instance:
        names = {role.name for role in self._roles}
        role: InstanceRole = (
            READ if names == {"read"} else DUAL_WRITE if len(names) == 1 else "dual_write,read"
        )
        modes = {role.mode for role in self._roles}
        mode: InstanceMode = "strict" if "strict" in modes else "outbox" if "outbox" in modes else ""
        installation = next((role.installation for role in self._roles if role.installation), "")
        return replace(self.me, role=role, mode=mode, installation=installation)

    # ── forks ──

    def before_fork(self) -> None:
        """A fork during a beat would leave the child a lock that no thread there releases."""
        self._held = self._beating.acquire(timeout=_GOODBYE_S)

    def after_fork(self, *, in_child: bool) -> None:
        """Threads stay with the parent; a child registers at the first beat of its own thread."""
        if not in_child and self._held:
            self._beating.release()
        elif in_child:
            self._new_thread()
            if self._running:
                pid = os.getpid()
                self.me = replace(self.me, id="", pid=pid, born=birth(pid))
                self._ticker.start()

    # ── the thread ──

    def _new_thread(self) -> None:
        self._beating = RLock()
        self._struck_at = self._gave_up_at = float("-inf")
        self._looked_at = self.clock()
        # An instance that is not registered yet, as a forked child is, does so at once.
        made = Ticker(
            "instance", lambda: self._renew(made), _given_up, lambda: self.beat_s if self.me.id else 0.0
        )
        self._ticker = made

    def _renew(self, ticker: Ticker) -> None:
        with self._beating:
            if not ticker.is_ended:
                self._look()
                self._beat()

    def _refresh_once(self) -> None:
        """Look once, for all callers. While the thread waits for an unreachable journal, callers wait only briefly."""
        if self.clock() - self._gave_up_at < self.beat_s:
            return
        if not self._beating.acquire(timeout=_ANEW_S):
            self._gave_up_at = self.clock()
            return
        try:
            if self._running and self.clock() - self._looked_at >= self.silent_s:
                self._look()
        finally:
            self._beating.release()

    def _look(self) -> None:
        # The time before the look: the state read may be as old as that.
        now = self.clock()
        for role in list(self._roles):
            try:
                role.look()
            except MigratorError as error:
                if error.exit_code in (STOPPED, INTERRUPTED):
                    self._log(error)
                    # Writes do not repeat a failed query.
                    now = self.clock()
                else:
                    role.fault = error
            else:
                role.fault = None
        self._looked_at = now

    def _beat(self) -> None:
        try:
            self.me = self.instances.beat(self.me) if self.me.id else self.instances.enter(self.me)
            self._remove_ended()
        except MigratorError as error:
            self._log(error)

    def _remove_ended(self) -> None:
        """Remove this machine's instances with ended processes. Processes frozen or without the journal still
        run, and stay registered."""
        if self.clock() - self._struck_at < STRIKE_S:
            return
        self._struck_at = self.clock()
        for instance in self.instances.known():
            if has_ended(instance.sees, instance.pid, instance.born):
                self.instances.leave(instance)
                _log.info("instance_struck", instance=instance.id, process=instance.pid)

    def _log(self, error: MigratorError) -> None:
        if time.monotonic() - self._logged_at >= _LOG_S:
            self._logged_at = time.monotonic()
            # If a log cannot be written (its stream is closed) the heartbeat must continue.
            with suppress(OSError, ValueError):
                _log.warning("instance_cannot_look", reason=str(error))


def _given_up(error: Exception) -> None:
    raise error
