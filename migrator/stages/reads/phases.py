"""A cache of the phases of access patterns: read from the journal every few seconds, kept when it is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock

from migrator.model.errors import SettingsError, reason_of
from migrator.model.evidence import PatternPhase, Phases
from migrator.model.phase import OFF, State
from migrator.runtime.logs import get_logger
from migrator.runtime.processes import tell_of_forks
from migrator.runtime.ticker import Ticker

LOG_S = 60.0
_AGAIN_S = 60.0
_GOODBYE_S = 5.0
_log = get_logger("reads")


class PhaseCache:
    """Use as a context manager. Asking it is asking a dict: no caller ever waits for the journal.

    `instance`: gives the id of this instance, which confirms the versions that it acts by. A forked child goes on with the
    phases of its parent, and a thread of its own.
    """

    def __init__(self, phases: Phases, instance: Callable[[], str], every_s: float) -> None:
        self.phases = phases
        self.instance = instance
        self.every_s = every_s
        self._known: Mapping[str, PatternPhase] = {}
        self._faults: list[str] = []
        self._confirmed: tuple[str, Mapping[str, int]] = ("", {})
        self._confirmed_at = float("-inf")
        self._logged_at = float("-inf")
        self._running = self._held = False
        self._new_thread()

    def state(self, pattern: str) -> State:
        """The phase that calls of the pattern act by; `off` where nobody ever moved it."""
        found = self._known.get(pattern)
        return OFF if found is None else found.state

    def known(self) -> Mapping[str, PatternPhase]:
        return self._known

    def versions(self) -> dict[str, int]:
        """Of the phases that calls act by."""
        return {name: one.version for name, one in self._known.items()}

    def renew(self) -> None:
        """Asks the journal now. Of a pattern that was edited by hand the phase that is known already goes on.

        Raises: StoppedError, SettingsError where it cannot be asked.
        """
        found = dict(self.phases.all())
        self._faults = [one.fault for one in found.values() if one.fault]
        for name in [name for name, one in found.items() if one.fault]:
            del found[name]
            if name in self._known:
                found[name] = self._known[name]
        versions = {name: one.version for name, one in found.items()}
        # From here on calls act by them; only then may anybody be told so.
        self._known = found
        seen = (self.instance(), versions)
        # Now and then anew: an instance that was silent for long may have been forgotten with all that it said.
        stale = time.monotonic() - self._confirmed_at >= _AGAIN_S
        if seen[0] and (stale or seen != self._confirmed):
            self.phases.confirm(*seen)
            self._confirmed, self._confirmed_at = seen, time.monotonic()

    def __enter__(self) -> PhaseCache:
        """Raises: as `renew`, and SettingsError where a phase was edited by hand: a service that does not know who
        answers must not start."""
        self.renew()
        if self._faults:
            raise SettingsError("; ".join(self._faults))
        self._running = True
        tell_of_forks(self)
        self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running = False
        self._ticker.stop(_GOODBYE_S)

    # ── forks ──

    def before_fork(self) -> None:
        """A fork amid a transaction would leave its child what the thread holds."""
        self._held = self._asking.acquire(timeout=_GOODBYE_S)

    def after_fork(self, *, in_child: bool) -> None:
        if not in_child and self._held:
            self._asking.release()
        elif in_child and self._running:
            self._confirmed = ("", {})
            self._new_thread()
            self._ticker.start()

    # ── the thread ──

    def _new_thread(self) -> None:
        self._asking = Lock()
        self._ticker = Ticker("phases", self._go_on, self._failed, lambda: self.every_s)

    def _go_on(self) -> None:
        with self._asking:
            self.renew()
        if self._faults:
            self._log("; ".join(self._faults))

    def _failed(self, error: Exception) -> None:
        self._log(reason_of(error))

    def _log(self, reason: str) -> None:
        if time.monotonic() - self._logged_at >= LOG_S:
            self._logged_at = time.monotonic()
            with suppress(OSError, ValueError):
                _log.warning("phases_cannot_be_read", kept="the last known ones", reason=reason)
