"""A rate limit of write units: estimated before a request, corrected by what it really consumed, as its answer says."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

WINDOW_S = 10.0
TABLE = ""
"""The meter of the table itself and its local indexes, which draw on one capacity; a global index has its own."""

_RESERVE = 2
"""A put into an index can cost a delete and a put, and a put can replace a larger item. Source: AWS Developer Guide,
"Using global secondary indexes", "Write capacity units"."""
_RECOVERY_PER_S = 0.05
_LOWEST = 0.1
_CUT_EVERY_S = 1.0
_NAP_S = 0.05
_KEPT_S = WINDOW_S + 0.01
"""A little longer than the window, so that rounding lets nothing fall between two of them."""


@dataclass
class Request:
    """One request under way: the units that are thought it will take, and per meter what it took, once that is known."""

    units: float
    consumed: Mapping[str, float] | None = None


@dataclass
class _Meter:
    """One capacity: units free to be spent, and those spent in the last seconds, each with the time it was told."""

    free: float
    spent: deque[tuple[float, float]] = field(default_factory=deque)
    in_window: float = 0.0

    def wait_s(self, room: float, now: float) -> float:
        """Seconds until no more than `room` is spent in the window, or until it is time to look again; 0: now."""
        while self.spent and now - self.spent[0][0] > _KEPT_S:
            self.in_window -= self.spent.popleft()[1]
        if self.in_window <= max(room, 0.0):
            return 0.0
        return max(_NAP_S, self.spent[0][0] + _KEPT_S - now)


class WriteLimit:
    """At most `units_per_s`, over any WINDOW_S, of the table and of each index; shared by threads.

    A bucket that fills at the rate paces the requests; the window, which counts requests under way at twice their
    estimate, keeps the bound. Only a request that alone takes more than the window may is let through, when nothing
    else is in it. A throttle halves the rate of the bucket, which then recovers by a twentieth of the limit a second.
    """

    def __init__(
        self,
        units_per_s: float,
        indexes: Iterable[str] = (),
        wait: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.units_per_s = float(units_per_s)
        self.rate = self.units_per_s
        self._wait = wait
        self._clock = clock
        self._lock = Lock()
        self._filled_at = clock()
        self._cut_at = float("-inf")
        self._under_way = 0.0
        self._meters = {name: _Meter(self.units_per_s) for name in (TABLE, *indexes)}

    @contextmanager
    def request(self, units: float) -> Iterator[Request]:
        """Inside of the block there is room for a request of about so many units; set `consumed` when it answered.

        A request that fails counts as what it was estimated at: it may have been taken.
        Raises: what `wait` raises when the run is to stop.
        """
        while (pause_s := self._reserve(units)) > 0:
            self._wait(pause_s)
        request = Request(units)
        try:
            yield request
        finally:
            self._settle(request)

    def throttled(self) -> None:
        """Halves the rate; throttles of requests that were sent together count once."""
        with self._lock:
            now = self._clock()
            self._fill(now)
            if now - self._cut_at >= _CUT_EVERY_S:
                self._cut_at = now
                self.rate = max(self.units_per_s * _LOWEST, self.rate / 2)

    def _reserve(self, units: float) -> float:
        """0 when the units are reserved, else seconds after which to ask again."""
        with self._lock:
            now = self._clock()
            self._fill(now)
            pause_s = max(self._pause_s(meter, units, now) for meter in self._meters.values())
            if pause_s <= 0:
                self._under_way += units
                for meter in self._meters.values():
                    meter.free -= units
            return pause_s

    def _pause_s(self, meter: _Meter, units: float, now: float) -> float:
        lacking = min(units, self.units_per_s) - meter.free
        paced_s = lacking / self.rate if lacking > 1e-6 else 0.0
        room = self.units_per_s * WINDOW_S - _RESERVE * (self._under_way + units)
        if room < 0 and self._under_way:
            return max(paced_s, _NAP_S)
        return max(paced_s, meter.wait_s(room, now))

    def _fill(self, now: float) -> None:
        passed_s, self._filled_at = now - self._filled_at, now
        for meter in self._meters.values():
            meter.free = min(self.units_per_s, meter.free + passed_s * self.rate)
        self.rate = min(self.units_per_s, self.rate + passed_s * self.units_per_s * _RECOVERY_PER_S)

    def _settle(self, request: Request) -> None:
        consumed = {TABLE: request.units} if request.consumed is None else request.consumed
        with self._lock:
            now = self._clock()
            for name in consumed.keys() - self._meters.keys():
                self._meters[name] = _Meter(self.units_per_s - self._under_way)
            self._under_way -= request.units
            for name, meter in self._meters.items():
                units = consumed.get(name, 0.0)
                meter.free += request.units - units
                if units:
                    meter.spent.append((now, units))
                    meter.in_window += units


# ── What an answer says that a request consumed ──
#
# Source: API reference, ConsumedCapacity. That it is there is required where it was asked for (target/answers.py); an
# endpoint that is not AWS may leave out what it says of indexes.


def consumed_units(answer: Mapping[str, Any]) -> float:
    """Capacity units in all, those of indexes included; 0 where the endpoint names none."""
    return sum(float(part.get("CapacityUnits", 0.0)) for part in _parts(answer))


def consumed_by_meter(answer: Mapping[str, Any]) -> dict[str, float] | None:
    """Units of the table (its local indexes included) and of each global index; None where the answer has none.

    Needs ReturnConsumedCapacity: INDEXES; from an answer without that, all is taken for the table's.
    """
    units: Counter[str] = Counter()
    is_reported = False
    for part in _parts(answer):
        is_reported = True
        indexes = part.get("GlobalSecondaryIndexes") or {}
        apart = {name: float(index.get("CapacityUnits", 0.0)) for name, index in indexes.items()}
        # Taken from the sum: local indexes stand beside "Table" there, and draw on the table's capacity.
        units.update(apart | {TABLE: float(part.get("CapacityUnits", 0.0)) - sum(apart.values())})
    return dict(units) if is_reported else None


def _parts(answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """One part per table; a batch answers with a list, another operation with the part itself."""
    capacity = answer.get("ConsumedCapacity") or []
    yield from (part for part in ([capacity] if isinstance(capacity, Mapping) else capacity) if part)
