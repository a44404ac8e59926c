"""A rate limit of write units, estimated before a request and corrected by what it consumed; totals of consumption."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from threading import Lock

from migrator.runtime.measures import Counts

WINDOW_S = 10.0
TABLE = ""
"""The meter of the table and its local indexes, which share its capacity; a global index has its own."""

_RESERVE = 2
"""A put into an index can cost a delete and a put, and a put can replace a larger item. Source: AWS Developer Guide, "Using
global secondary indexes", "Write capacity units".
"""
_RECOVERY_PER_S = 0.05
_LOWEST = 0.1
_CUT_EVERY_S = 1.0
_NAP_S = 0.05
_KEPT_S = WINDOW_S + 0.01
"""Slightly longer than the window, so that rounding leaves no gap between two windows."""


@dataclass
class LimitedRequest:
    """A running request: estimated units, and consumed ones per meter. `is_counted`: a limit has reserved room
    for it.
    """

    units: float
    consumed: Mapping[str, float] | None = None
    is_counted: bool = False


@dataclass
class _Meter:
    """One capacity: free units, and recently spent ones with their times."""

    free: float
    spent: deque[tuple[float, float]] = field(default_factory=deque)
    in_window: float = 0.0

    def wait_s(self, room: float, now: float) -> float:
        while self.spent and now - self.spent[0][0] > _KEPT_S:
            self.in_window -= self.spent.popleft()[1]
        if self.in_window <= max(room, 0.0):
            return 0.0
        return max(_NAP_S, self.spent[0][0] + _KEPT_S - now)


class WriteLimit:
    """At most `units_per_s`, over any WINDOW_S, of the table and of each index; shared by threads. None: no
    limit until `change` sets one.

    A bucket that fills at the rate paces the requests; the window, which counts running requests at twice
    their estimate, keeps the bound. A single request larger than the window's limit passes only if nothing
    else is in it. A throttle halves the bucket's rate, which then recovers by a twentieth of the limit a
    second.
    """

    def __init__(
        self,
        units_per_s: float | None,
        indexes: Iterable[str] = (),
        wait: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.units_per_s = math.inf if units_per_s is None else float(units_per_s)
        self.rate = self.units_per_s
        self._of_all, self._parts = self.units_per_s, 1
        self.wait = wait
        self._clock = clock
        self._lock = Lock()
        self._filled_at = clock()
        self._cut_at = float("-inf")
        self._under_way = 0.0
        self._meters = {name: _Meter(self.units_per_s) for name in (TABLE, *indexes)}

    @property
    def units_at_most(self) -> float | None:
        return None if math.isinf(self.units_per_s) else self.units_per_s

    def change(self, units_per_s: float | None) -> None:
        """Change the limit. Units of the last WINDOW_S under another limit count; those without a limit do not."""
        self._of_all = math.inf if units_per_s is None else float(units_per_s)
        self._set()

    @property
    def is_set(self) -> bool:
        return not math.isinf(self._of_all)

    def share(self, parts: int) -> None:
        self._parts = parts
        self._set()

    def _set(self) -> None:
        with self._lock:
            limit = self._of_all / self._parts
            if limit == self.units_per_s:
                return
            self._filled_at = self._clock()
            self.units_per_s = self.rate = limit
            for meter in self._meters.values():
                # Running requests were charged to an unlimited bucket, or to another one.
                meter.free = limit - self._under_way

    def request(self, units: float) -> AbstractContextManager[LimitedRequest]:
        """A block with room for a request of about so many units; set `consumed` after the answer.

        A failed request counts as its estimate: it may have been taken. Raises: errors of `wait` when the run
        is to stop.
        """
        # Without a limit nothing waits; one that is set meanwhile applies from the next request on.
        request = LimitedRequest(units)
        return nullcontext(request) if math.isinf(self.units_per_s) else self._within(request)

    @contextmanager
    def _within(self, request: LimitedRequest) -> Iterator[LimitedRequest]:
        while (pause_s := self.pause_s(request)) > 0:
            self.wait(pause_s)
        try:
            yield request
        finally:
            self.settle(request)

    def pause_s(self, request: LimitedRequest) -> float:
        """Return 0 if there is room, reserved until `settle`; else seconds until the next try."""
        if math.isinf(self.units_per_s):
            return 0.0
        pause_s = self._reserve(request.units)
        request.is_counted = pause_s <= 0
        return pause_s

    def settle(self, request: LimitedRequest) -> None:
        """Count a request that was answered, or never will be; the rest of its room is free again."""
        if request.is_counted:
            request.is_counted = False
            self._settle(request)

    def throttled(self) -> None:
        """Halve the rate; throttles of requests sent together count once."""
        with self._lock:
            if math.isinf(self.units_per_s):
                return
            now = self._clock()
            self._fill(now)
            if now - self._cut_at >= _CUT_EVERY_S:
                self._cut_at = now
                self.rate = max(self.units_per_s * _LOWEST, self.rate / 2)

    def _reserve(self, units: float) -> float:
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
        if math.isinf(self.units_per_s):
            # Of a request that was running or waiting when the limit was removed.
            return
        for meter in self._meters.values():
            meter.free = min(self.units_per_s, meter.free + passed_s * self.rate)
        self.rate = min(self.units_per_s, self.rate + passed_s * self.units_per_s * _RECOVERY_PER_S)

    def _settle(self, request: LimitedRequest) -> None:
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


# ── Results of requests ──


@dataclass
class Sent:
    """Totals of the requests of all stores of one client.

    `taken`: items ever taken; only compared with itself, so a lost count between threads is harmless.
    `unanswered`: interrupted writes, which may take effect later.
    """

    taken: int = 0
    unanswered: int = 0
    consumed: Counts = field(default_factory=Counts)
    """Capacity units by (read or write, index; '' for the table)."""
    throttled: Counts = field(default_factory=Counts)
    """Requests throttled in full or in part, and the units they asked for."""

    @property
    def write_units(self) -> float:
        return sum(number for (kind, *_), number in self.consumed.items() if kind == "write")

    def was_throttled(self, units: float) -> None:
        self.throttled.add(("requests",))
        self.throttled.add(("units",), units)
