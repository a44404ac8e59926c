"""How fast a process may go: a pause and write units that an operator asked for, load and replica lag of the source."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

from msgspec import Struct

from migrator.mapping.model.instances import AS_SET, Throttle
from migrator.runtime.errors import MigratorError
from migrator.runtime.logs import get_logger, noting
from migrator.runtime.system import Ticker

LOOK_S = 1.0
"""How often the source is asked how strained it is."""
_NAP_S = 0.2
_GOODBYE_S = 5.0
_log = get_logger("pace")


class Limited(Protocol):
    """What limits write units."""

    @property
    def units_at_most(self) -> float | None: ...

    def change(self, units_per_s: float | None) -> None: ...


class NoLimit:
    """Of a process that writes nothing."""

    units_at_most = None

    def change(self, units_per_s: float | None) -> None: ...


class Strain(Struct, frozen=True):
    """One measure of the source. `ask` gives it as it is now; above `most` the process waits."""

    name: str
    unit: str
    most: float
    ask: Callable[[], float]


@dataclass
class Pace:
    """Pages and turns of marks begin only while nothing holds them; what is under way goes on.

    Use as a context manager where there are `strains`: a thread asks them. A source that cannot be asked holds, too: it may
    be the load that keeps it from answering.
    """

    limit: Limited
    strains_asked: Sequence[Strain] = ()
    clock: Callable[[], float] = time.monotonic
    throttle: Throttle = AS_SET
    parts: int = 1
    """One of so many parts of the run's budgets is this process's; 0: it has none yet."""
    _unshared: str = ""
    _own_units: float | None = None
    _strained: str = ""
    _seen: dict[str, tuple[float, float]] = field(default_factory=dict)
    _held_since: float | None = None
    _held_before_s: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._own_units = self.limit.units_at_most
        self._ticker = Ticker("pace", self.look, noting(_log, "source_not_asked"), lambda: LOOK_S)

    def __enter__(self) -> Pace:
        """Raises: SourceError where the source does not say what it is to be asked: the job file asks for it."""
        if self.strains_asked:
            for strain in self.strains_asked:
                strain.ask()
            self.look()
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ticker.stop(_GOODBYE_S)

    # ── what holds it ──

    @property
    def held(self) -> str:
        """Why nothing begins just now; '' where it may."""
        throttle = self.throttle
        if throttle.paused:
            why = f" ({throttle.reason})" if throttle.reason else ""
            return f"paused by {throttle.who}{why}"
        return self._strained or self._unshared

    @property
    def held_s(self) -> float:
        """For how long it was held so far, in all."""
        with self._lock:
            since = self._held_since
            return self._held_before_s + (0.0 if since is None else self.clock() - since)

    @property
    def max_write_units(self) -> float | None:
        return self.limit.units_at_most

    @property
    def strains(self) -> Mapping[str, tuple[float, float]]:
        return dict(self._seen)

    def wait(self, nap: Callable[[float], object]) -> None:
        """Returns when nothing holds. Raises: what `nap` raises, where the process is to stop."""
        while self.held:
            nap(_NAP_S)

    # ── what it is told ──

    def obey(self, throttle: Throttle) -> None:
        """From now on this is asked."""
        if throttle == self.throttle:
            return
        self.throttle = throttle
        units = throttle.max_write_units
        self.limit.change(self._own_units if units is None else float(units))
        _log.info(
            "pace_changed", paused=throttle.paused, max_write_units=self.limit.units_at_most, by=throttle.who
        )
        self._note()

    def divide(self, parts: int, why: str) -> None:
        """`why`: what this process waits for before it takes its part; '' for nothing."""
        self.parts, self._unshared = parts, why
        self._note()

    def look(self) -> None:
        """Asks the source."""
        self._strained = next(filter(None, map(self._over, self.strains_asked)), "")
        self._note()

    def _over(self, strain: Strain) -> str:
        try:
            now = strain.ask()
        except MigratorError as error:
            return f"the source's {strain.name} cannot be asked: {error}"
        self._seen[strain.name] = (now, strain.most)
        return (
            f"the source's {strain.name} is {now:g}{strain.unit}, above {strain.most:g}{strain.unit}"
            if now > strain.most
            else ""
        )

    def _note(self) -> None:
        """Since when it is held; a person at a terminal is told, too, why nothing gets on."""
        with self._lock:
            if self.held and self._held_since is None:
                self._held_since = self.clock()
                _log.warning("process_held", why=self.held)
            elif not self.held and self._held_since is not None:
                held_s = self.clock() - self._held_since
                self._held_before_s += held_s
                self._held_since = None
                _log.warning("process_goes_on", held_s=round(held_s, 1))
