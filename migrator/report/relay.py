"""How a relay gets on: log lines, Prometheus metrics, findings in the journal, and a summary at its end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock

from migrator.errors import MigratorError
from migrator.logs import get_logger
from migrator.ports import Finding, Journal, Run
from migrator.ports.live import Marks, MarksState
from migrator.results import Worked, collision_findings

LOOK_S = 10.0
_log = get_logger("relay")


@dataclass
class RelayReport:
    """daemon.Listener. `keep`: what is to be done now and then, beside the look at the marks; `seen` is told of them."""

    journal: Journal
    run: Run
    marks: Marks
    keep: Callable[[], None] = lambda: None
    seen: Callable[[MarksState], None] = lambda state: None
    totals: Counter[str] = field(default_factory=Counter)
    state: MarksState = MarksState()
    looked_at: float = float("-inf")
    _told: Counter[str] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    def worked(self, worked: Worked, took_ms: int) -> None:
        counts = _counts(worked)
        with self._lock:
            self.totals.update(counts)
        _log.debug("marks_worked", took_ms=took_ms, **counts)
        if found := _findings(worked):
            self.journal.add_findings(self.run, found)

    def failed(self, error: MigratorError, wait_s: float) -> None:
        with self._lock:
            self.totals["failures"] += 1
        _log.warning("relay_failed", reason=str(error), wait_s=wait_s)
        # While DynamoDB is away, marks wait, and only the source need be asked for how long.
        with suppress(MigratorError):
            self._look()

    def idle(self) -> None:
        if self._look():
            self.keep()

    def _look(self) -> bool:
        """Whether it was time to look at the marks."""
        with self._lock:
            if time.monotonic() - self.looked_at < LOOK_S:
                return False
            self.looked_at = time.monotonic()
        state = self.state = self.marks.state()
        age_s = round(state.oldest_age_s, 1)
        _log.info(
            "relay_lag", waiting=state.waiting, oldest_age_s=age_s, failed=state.failed, **self._since()
        )
        self.seen(state)
        return True

    def _since(self) -> dict[str, int]:
        """What was worked since the last line."""
        with self._lock:
            told, self._told = self._told, self.totals.copy()
        return {name: count - told[name] for name, count in self._told.items() if count > told[name]}

    def summary(self) -> str:
        state, totals = self.marks.state(), self.totals
        left = state.waiting + state.unripe
        return (
            f"{totals['finished']:,} mark(s) worked: {totals['stored']:,} item(s) written,"
            f" {totals['buried']:,} tombstone(s); {left:,} mark(s) left, {state.failed:,} of them failed before"
        )

    def serve(self, host: str, port: int) -> None:
        """Metrics at http://host:port/metrics. Raises: SettingsError where the port is taken."""
        from migrator.report.metrics import serve_relay

        serve_relay(self, host, port)


def lag_line(state: MarksState) -> str:
    """How far items are behind rows, for people."""
    if not state.waiting + state.unripe:
        return "no mark waits: every captured change is in the table"
    unripe = f", {state.unripe:,} not ripe yet" if state.unripe else ""
    failed = f", {state.failed:,} failed before (see `migrator findings`)" if state.failed else ""
    return f"{state.waiting:,} mark(s) wait, the oldest for {state.oldest_age_s:.1f} s{unripe}{failed}"


def _counts(worked: Worked) -> dict[str, int]:
    return {
        "taken": worked.taken,
        "finished": worked.finished,
        "put_back": worked.put_back,
        "rows": sum(one.roots for one in worked.refreshed),
        "stored": sum(one.stored for one in worked.refreshed),
        "buried": sum(one.buried for one in worked.refreshed),
        "newer": sum(one.newer for one in worked.refreshed),
        "refused": sum(len(one.refused) for one in worked.refreshed),
        "collisions": sum(len(one.collisions) for one in worked.refreshed),
    }


def _findings(worked: Worked) -> list[Finding]:
    found = list(worked.findings)
    for one in worked.refreshed:
        found += [*one.refused, *collision_findings(one), *one.apart]
    return found
