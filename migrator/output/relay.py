"""A relay's log lines, findings, summary and Prometheus metrics."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from migrator.model.errors import MigratorError, SettingsError
from migrator.model.instances import Standing
from migrator.model.journal import Finding, Journal, Page, Run, Tally
from migrator.model.live import Marks, MarksState, OpenFindings
from migrator.model.results import Worked
from migrator.runtime.logs import get_logger

# ──
# How a relay gets on: log lines, Prometheus metrics, findings in the journal, and a summary at its end.

LOOK_S = 10.0
_log = get_logger("relay")

STANDINGS: Mapping[Standing, str] = {
    "first": "mapping: no relay, backfill or install has worked by any yet",
    "newest": "mapping: it is the one that the job's writers work by",
    "new": "mapping: new to the job, or its columns are; the next install, backfill or relay goes on to it, and tells those"
    " of another one to stop",
    "old": "mapping: the job has gone on to another one, or to other columns: writers by this one are refused; take"
    " the newer file, or go back with `migrator capture install --go-back`, then `migrator backfill`",
}
"""How the mapping in hand stands among those that the job has worked by."""


@dataclass
class RelayReport:
    """daemon.Listener. `keep`: what is to be done now and then; `seen` is called with the state of the marks."""

    journal: Journal
    run: Run
    marks: Marks
    open_findings: OpenFindings
    keep: Callable[[], None]
    seen: Callable[[MarksState], None]
    totals: Counter[str] = field(default_factory=Counter)
    state: MarksState = MarksState()
    open_counts: Mapping[str, int] = field(default_factory=dict)
    """Findings of live change that were open when the marks were looked at last, by kind."""
    looked_at: float = float("-inf")
    trouble: str = ""
    """Why it has not got on since; '' where it has."""
    _reported_totals: Counter[str] = field(default_factory=Counter)
    _page: Page = field(default_factory=lambda: Page(f"(relay {secrets.token_hex(8)})", 1, None, None))
    _lock: Lock = field(default_factory=Lock)

    def worked(self, worked: Worked, took_ms: int) -> None:
        counts = _counts(worked)
        with self._lock:
            self.totals.update(counts)
            self.trouble = ""
        _log.debug("marks_worked", took_ms=took_ms, **counts)
        if new_findings := _findings(worked):
            self.journal.add_findings(self.run, new_findings)
            _log.warning("findings_made", **Counter(str(finding.kind) for finding in new_findings))

    def failed(self, error: MigratorError, wait_s: float) -> None:
        with self._lock:
            self.totals["failures"] += 1
            self.trouble = f"waits {wait_s:.0f} s: {error}"
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
        # Last: this asks the journal, and lag is to be reported while that is away, too.
        self._look_at_findings(state)
        self._keep_totals()
        return True

    def _look_at_findings(self, state: MarksState) -> None:
        if not state.failed:
            self.open_findings.close_marks()
        self.open_counts = self.open_findings.counts()

    def _keep_totals(self) -> None:
        """What this relay has worked so far, for `migrator status`: a page of its own in a run that several relays share."""
        with self._lock:
            totals = self.totals.copy()
        # A journal that is away has them at the next look.
        with suppress(MigratorError):
            if totals["rows"]:
                self.journal.plan_pages(self.run, self._page.entity, [self._page])
                tally = Tally(rows=totals["rows"], items=totals["stored"])
                self.journal.finish_page(self.run, self._page, tally, [])

    def _since(self) -> dict[str, int]:
        """What was worked since the last line."""
        with self._lock:
            before, self._reported_totals = self._reported_totals, self.totals.copy()
        return {
            name: count - before[name]
            for name, count in self._reported_totals.items()
            if count > before[name]
        }

    def line(self) -> str:
        """The relay's progress on one line, from what is known already."""
        with self._lock:
            finished, stored, trouble = self.totals["finished"], self.totals["stored"], self.trouble
        lag = (
            lag_line(self.state, self.open_counts)
            if self.looked_at > float("-inf")
            else "the marks are looked at"
        )
        return f"relay: {finished:,} mark(s) worked, {stored:,} item(s) written; {trouble or lag}"

    def summary(self) -> str:
        return "\n".join(filter(None, (self._worked_line(), open_line(self.open_findings.counts()))))

    def _worked_line(self) -> str:
        self._keep_totals()
        state, totals = self.marks.state(), self.totals
        self.state = state
        self._look_at_findings(state)
        remaining = state.waiting + state.unripe
        return (
            f"{totals['finished']:,} mark(s) worked: {totals['stored']:,} item(s) written,"
            f" {totals['buried']:,} tombstone(s); {remaining:,} mark(s) left, {state.failed:,} of them failed before"
        )

    def data(self) -> dict[str, Any]:
        """What was worked, and the marks that are left, as plain values."""
        open_counts = self.open_findings.counts()
        marks = asdict(self.marks.state())
        return {"run": self.run.id, "worked": dict(self.totals), "marks": marks, "open_findings": open_counts}

    def serve(self, host: str, port: int) -> None:
        """Metrics at http://host:port/metrics. Raises: SettingsError where the port is taken."""
        pass

        serve_relay(self, host, port)


def open_line(counts: Mapping[str, int]) -> str:
    """How much is open of what relays found, by kind; '' where nothing is."""
    if not counts:
        return ""
    listed = ", ".join(f"{number:,} {kind}" for kind, number in sorted(counts.items()))
    return f"{sum(counts.values()):,} finding(s) of live change are open ({listed}); see `migrator findings`"


def lag_line(state: MarksState, counts: Mapping[str, int]) -> str:
    """How far items are behind rows, for people. `counts`: of findings that are open, by kind."""
    if not state.waiting + state.unripe:
        return "no mark waits" if counts else "no mark waits: every captured change is in the table"
    unripe = f", {state.unripe:,} not ripe yet" if state.unripe else ""
    failed = f", {state.failed:,} failed before (see `migrator findings`)" if state.failed else ""
    return f"{state.waiting:,} mark(s) wait, the oldest for {state.oldest_age_s:.1f} s{unripe}{failed}"


def _counts(worked: Worked) -> dict[str, int]:
    return {
        "taken": worked.taken,
        "finished": worked.finished,
        "put_back": worked.put_back,
        "rows": sum(refreshed.roots for refreshed in worked.refreshed),
        "stored": sum(refreshed.stored for refreshed in worked.refreshed),
        "buried": sum(refreshed.buried for refreshed in worked.refreshed),
        "newer": sum(refreshed.newer for refreshed in worked.refreshed),
        "refused": sum(len(refreshed.refused) for refreshed in worked.refreshed),
        "collisions": sum(len(refreshed.collisions) for refreshed in worked.refreshed),
    }


def _findings(worked: Worked) -> list[Finding]:
    all_findings = list(worked.findings)
    for refreshed in worked.refreshed:
        all_findings += refreshed.findings
    return all_findings


# ── A relay's metrics in Prometheus' form, by prometheus-client ──

_COUNTERS = {
    "finished": "Marks worked and put away.",
    "put_back": "Marks that could not be worked and were put back.",
    "stored": "Items written.",
    "buried": "Tombstones written.",
    "newer": "Writes that something newer of the same row made needless.",
    "refused": "Rows that the mapping refuses.",
    "collisions": "Rows whose key another row has.",
    "failures": "Times that an edge gave up.",
}


class Measured(Protocol):
    state: MarksState

    @property
    def totals(self) -> dict[str, int]: ...


class _Relay(Collector):
    def __init__(self, report: Measured) -> None:
        self.report = report

    def collect(self) -> Iterator[Metric]:
        state = self.report.state
        yield GaugeMetricFamily("migrator_marks_waiting", "Marks that could be taken.", state.waiting)
        yield GaugeMetricFamily("migrator_marks_unripe", "Marks whose time has not come.", state.unripe)
        yield GaugeMetricFamily("migrator_marks_failed", "Marks that failed before.", state.failed)
        yield GaugeMetricFamily(
            "migrator_lag_seconds", "Age of the oldest mark that could be taken.", state.oldest_age_s
        )
        for name, help_text in _COUNTERS.items():
            yield CounterMetricFamily(f"migrator_relay_{name}", help_text, self.report.totals[name])


def serve_relay(report: Measured, host: str, port: int) -> None:
    """Serves the metrics from a thread of its own. Raises: SettingsError where the port cannot be had."""
    registry = CollectorRegistry()
    registry.register(_Relay(report))
    try:
        start_http_server(port, host, registry)
    except OSError as error:
        raise SettingsError(
            f"--metrics-port {port}: cannot be served ({error.strerror}); name another one"
        ) from None
