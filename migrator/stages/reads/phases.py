"""A cache of the phases of access patterns: read from the journal every few seconds, kept when it is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from threading import Lock

from msgspec import Struct

from migrator.mapping.model.edges import TableState
from migrator.mapping.model.evidence import OFF, ROUTES, PatternPhase, Phases, State
from migrator.runtime.errors import MigratorError, SettingsError, TargetError, reason_of
from migrator.runtime.logs import get_logger
from migrator.runtime.system import Ticker, tell_of_forks
from migrator.stages.core.ownership import OLDER_ADVICE, OlderError

LOG_S = 60.0
_AGAIN_S = 60.0
_GOODBYE_S = 5.0
_log = get_logger("reads")


def refuse_missing(
    states: Mapping[str, State],
    indexes: Mapping[str, str | None],
    table: str,
    ask: Callable[[], TableState | None],
) -> None:
    """`indexes`: by pattern the one that it asks. Raises: TargetError where a pattern that asks the table asks a table or an
    index that is not there."""
    asking_table = {name: state for name, state in states.items() if state.phase != "off"}
    if not asking_table:
        return
    try:
        state = ask()
    except MigratorError as error:
        # DynamoDB may be away, or the user not allowed to describe it: no reason not to answer from SQL.
        _log.warning("table_cannot_be_described", reason=str(error))
        return
    if state is None:
        raise TargetError(
            f"there is no table {table}, and {min(asking_table)} is in {asking_table[min(asking_table)]}"
        )
    for name, phase in asking_table.items():
        index = indexes[name]
        if index is not None and f"index {index}" in state.parts:
            what = f"{name} is in {phase}, and table {table} has no index {index} like the mapping's"
            raise TargetError(f"{what}; see `migrator table check`, or move the pattern to off first")


class FilledTable(Struct, frozen=True):
    """The table that DynamoDB's answers come from. `state`: of the table with that name now; `known`: ids of the tables of
    that name that the job has written to."""

    name: str
    state: Callable[[], TableState | None]
    known: Callable[[], Collection[str]]

    def refuse_other(self, phases: Iterable[PatternPhase]) -> None:
        """Raises: OlderError if a pattern is answered by DynamoDB, and the table was created again or restored since. If the
        table or the journal cannot be asked, the answers go on."""
        if all(ROUTES[phase.state.phase].in_share == "sql" for phase in phases):
            return
        try:
            state, known = self.state(), self.known()
        except MigratorError:
            return
        if state is not None and known and state.table_id not in known:
            what = f"table {self.name} is not the one that was filled: it was created again, or restored"
            raise OlderError(f"{what}; its answers would lack items; {OLDER_ADVICE}")


class PhaseCache:
    """Use as a context manager. Asking it is asking a dict: no caller ever waits for the journal.

    `instance`: gives the id of this instance, which confirms the versions that it acts by. A forked child goes on with the
    phases of its parent, and a thread of its own.
    """

    def __init__(self, phases: Phases, instance: Callable[[], str], every_s: float) -> None:
        self.phases = phases
        self.instance = instance
        self.every_s = every_s
        self._current: Mapping[str, PatternPhase] = {}
        self._faults: list[str] = []
        self._confirmed: tuple[str, Mapping[str, int]] = ("", {})
        self._confirmed_at = float("-inf")
        self._logged_at = float("-inf")
        self._running = self._held = False
        self._new_thread()

    def state(self, pattern: str) -> State:
        """The phase that calls of the pattern act by; `off` where it was never moved."""
        phase = self._current.get(pattern)
        return OFF if phase is None else phase.state

    def known(self) -> Mapping[str, PatternPhase]:
        return self._current

    def versions(self) -> dict[str, int]:
        """The versions of the phases that calls act by."""
        return {name: phase.version for name, phase in self._current.items()}

    def renew(self) -> None:
        """Asks the journal now. A pattern whose phase was edited by hand keeps the phase that was read before.

        Raises: StoppedError, SettingsError where it cannot be asked.
        """
        phases = dict(self.phases.all())
        self._faults = [phase.fault for phase in phases.values() if phase.fault]
        for name in [name for name, phase in phases.items() if phase.fault]:
            del phases[name]
            if name in self._current:
                phases[name] = self._current[name]
        versions = {name: phase.version for name, phase in phases.items()}
        # From here on calls act by them; only then may the journal be told so.
        self._current = phases
        seen = (self.instance(), versions)
        # Now and then anew: the journal may have dropped an instance that was silent for long, and its confirmations.
        stale = time.monotonic() - self._confirmed_at >= _AGAIN_S
        if seen[0] and (stale or seen != self._confirmed):
            self.phases.confirm(*seen)
            self._confirmed, self._confirmed_at = seen, time.monotonic()

    def __enter__(self) -> PhaseCache:
        """Raises: as `renew`, and SettingsError where a phase was edited by hand: a service that does not know which
        side answers must not start."""
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
