"""Windows of one pattern added up: calls, differences, errors, parameter kinds and latencies of both sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from migrator.phase import Side
from migrator.ports.evidence import Origin, Window
from migrator.stages.latencies import Latencies


@dataclass
class Counted:
    """What windows come to. `unsettled`: calls that differed and were not looked at again, because there was no time or
    it failed; `ended`: because the process ended; neither are among `compared`. `newest_at`: when the newest began, None
    where there is none."""

    compared: int = 0
    different: int = 0
    transient: int = 0
    unsettled: int = 0
    ended: int = 0
    answered: Counter[Side] = field(default_factory=Counter)
    errors: Counter[Side] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    origins: Counter[Origin] = field(default_factory=Counter)
    found: Counter[Any] = field(default_factory=Counter)
    latency: dict[Side, Latencies] = field(default_factory=lambda: {"table": Latencies(), "sql": Latencies()})
    newest_at: float | None = None

    def add(self, one: Window) -> None:
        self.compared += one.compared
        self.different += one.different
        self.transient += one.transient
        self.unsettled += one.dropped.get("unsettled", 0)
        self.ended += one.dropped.get("ended", 0)
        self.answered.update(one.answered)
        self.errors.update(one.errors)
        self.kinds.update({kind: count for kind, count in one.kinds.items() if count})
        self.origins[one.origin] += one.compared
        self.found.update(one.found)
        for side, text in one.latency.items():
            if side in self.latency:
                self.latency[side].add(text)
        self.newest_at = max(one.begun_at, self.newest_at or 0.0)

    def calls(self, side: Side) -> int:
        """Calls of the side, those that failed among them."""
        return self.answered[side] + self.errors[side]


def counted(windows: Iterable[Window]) -> Counted:
    """The sum of the windows."""
    total = Counted()
    for one in windows:
        total.add(one)
    return total
