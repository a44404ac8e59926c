"""Prometheus metrics of a relay, a backfill and a service, labelled with job and process."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from migrator.cli.lag import RelayReport
from migrator.mapping.model.evidence import PHASES, PatternPhase
from migrator.mapping.model.instances import Advance
from migrator.mapping.model.journal import Progress, Tally
from migrator.runtime.measures import Answers, Counts, Histogram, Labels
from migrator.stages.core.presence import Pace

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from migrator.stages.reads.metrics import ReadTotals
    from migrator.stages.reads.reads import MappedReads
    from migrator.stages.session.service import Service

# ── Measurements as the metrics see them ──

PACKAGE = "single-table-migrator"


class Family(Struct, frozen=True):
    """`labels`: names besides those of job and process.
    `samples`: with values of these labels; the number of a histogram is a histogram.
    """

    kind: Literal["Gauge", "Counter", "Histogram"]
    name: str
    help: str
    samples: Iterable[tuple[Labels, Any]]
    labels: tuple[str, ...] = ()

    def metric(self, job: str, process: str) -> Metric:
        from prometheus_client import core

        kind: Callable[..., core.GaugeMetricFamily] = getattr(core, f"{self.kind}MetricFamily")
        family = kind(self.name, self.help, labels=("job", "process", *self.labels))
        for values, number in self.samples:
            # Buckets come with their sum.
            told = (number.buckets(), number.sum_s) if isinstance(number, Histogram) else (number,)
            family.add_metric((job, process, *values), *told)
        return family


gauge, counter, histogram = (partial(Family, kind) for kind in ("Gauge", "Counter", "Histogram"))
Part = Callable[[], Iterator[Family]]
"""Result of one measurement."""


class ProcessMetrics:
    """A collector for any registry of prometheus-client. A scrape queries no database."""

    def __init__(self, job: str, process: str, parts: Sequence[Part]) -> None:
        self.job, self.process = job, process
        self.parts = (_process, *parts)

    def collect(self) -> Iterator[Metric]:
        for part in self.parts:
            for family in part():
                yield family.metric(self.job, self.process)

    def describe(self) -> list[Metric]:
        """Nothing: two jobs in one process have metrics of the same names, with other labels."""
        return []


def _process() -> Iterator[Family]:
    values = (socket.gethostname(), str(os.getpid()), version(PACKAGE))
    yield gauge("migrator_process_info", "Which process this is.", [(values, 1)], ("host", "pid", "version"))


# ── Of every process ──


def table_part(consumed: Counts, throttled: Counts) -> Iterator[Family]:
    units, requests = (throttled[(what,)] for what in ("units", "requests"))
    what = "Capacity units that DynamoDB said it consumed; index '' is the table."
    yield counter("migrator_consumed_units", what, consumed.items(), ("operation", "index"))
    what = "Write units, about, of requests that were throttled."
    yield counter("migrator_throttled_units", what, [((), units)])
    what = "Write requests that were throttled, wholly or in part."
    yield counter("migrator_throttled_requests", what, [((), requests)])


def journal_part(answers: Answers) -> Iterator[Family]:
    took, failures = [((), answers.took)], [((), answers.failures)]
    yield histogram("migrator_journal_seconds", "What transactions of the journal took.", took)
    yield counter("migrator_journal_failures", "Transactions of the journal that failed.", failures)


def phases_part(phases: Callable[[], Mapping[str, PatternPhase]]) -> Iterator[Family]:
    """The phase of each pattern that ever moved, as this process knows it."""
    known = phases()
    is_in = [
        ((name, phase), float(pattern.state.phase == phase))
        for name, pattern in known.items()
        for phase in PHASES
    ]
    what = "1 for the phase that an access pattern is in, 0 for the others."
    yield gauge("migrator_pattern_phase", what, is_in, ("pattern", "phase"))
    percents = [((name,), pattern.state.percent) for name, pattern in known.items()]
    what = "Share of calls that DynamoDB answers, of a pattern in the phase ramp."
    yield gauge("migrator_pattern_ramp_percent", what, percents, ("pattern",))


def pace_part(pace: Pace) -> Iterator[Family]:
    what = "1 while the process waits: paused, or the source is strained."
    yield gauge("migrator_held", what, [((), bool(pace.held))])
    yield counter("migrator_held_seconds", "How long it waited so.", [((), pace.held_s)])
    limit = float("inf") if pace.max_write_units is None else pace.max_write_units
    what = "Write units a second that the process may take at most; +Inf for no limit."
    yield gauge("migrator_write_units_limit", what, [((), limit)])
    strains = pace.strains.items()
    measured, limits = ([((name,), strain[at]) for name, strain in strains] for at in (0, 1))
    yield gauge("migrator_source_strain", "Load or replica lag of the source.", measured, ("of",))
    yield gauge("migrator_source_strain_limit", "Above it the process waits.", limits, ("of",))


# ── Of a relay, a backfill, a service ──

_RELAY_COUNTERS = {
    "finished": "Changes applied and acknowledged.",
    "put_back": "Changes that could not be applied and were deferred.",
    "stored": "Items written.",
    "buried": "Tombstones written.",
    "newer": "Writes that something newer of the same row made needless.",
    "refused": "Rows that the mapping refuses.",
    "collisions": "Rows whose key another row has.",
    "failures": "Times that an edge gave up.",
}


def relay_part(report: RelayReport) -> Iterator[Family]:
    state = report.state
    yield gauge("migrator_marks_waiting", "Pending changes that are ready.", [((), state.waiting)])
    yield gauge("migrator_marks_unripe", "Pending changes that are not ready yet.", [((), state.unripe)])
    yield gauge("migrator_marks_failed", "Pending changes that failed before.", [((), state.failed)])
    age = [((), state.oldest_age_s)]
    yield gauge("migrator_lag_seconds", "Age of the oldest pending change that is ready.", age)
    # Without a captured log: no sample, so an alert on it never fires.
    slots = [] if state.slot is None else [state.slot]
    kept = [((), slot.bytes_kept) for slot in slots if slot.slot]
    yield gauge("migrator_slot_kept_bytes", "Log that the source keeps for our slot.", kept)
    behind = [((), slot.bytes_behind) for slot in slots]
    yield gauge("migrator_slot_behind_bytes", "Log that was not copied yet.", behind)
    for name, help_text in _RELAY_COUNTERS.items():
        yield counter(f"migrator_relay_{name}", help_text, [((), report.totals[name])])
    what = "From the change of a row to its items in the table, by the table of the source and the entities that it is of."
    yield histogram("migrator_change_to_item_seconds", what, report.changes.items(), ("table", "entity"))
    kinds = [((kind,), float(number)) for kind, number in report.open_counts.items()]
    yield gauge("migrator_open_findings", "Findings of live change that are open.", kinds, ("kind",))


_TALLIED = {
    "rows": "Rows copied.",
    "items": "Items written.",
    "refused": "Rows that the mapping refuses.",
    "bytes": "Bytes of the items written.",
}


def backfill_part(copied: CountedProgress) -> Iterator[Family]:
    for name, help_text in _TALLIED.items():
        samples = [((entity,), float(getattr(tally, name))) for entity, tally in copied.tallies.items()]
        yield counter(f"migrator_backfill_{name}", help_text, samples, ("entity",))
    expected = [((entity,), float(rows)) for entity, rows in copied.expected.items()]
    yield gauge("migrator_backfill_rows_expected", "Rows of the entity, about.", expected, ("entity",))


def reads_part(totals: Callable[[], ReadTotals | None]) -> Iterator[Family]:
    counted = totals()
    if counted is None:
        return
    what = "What answers of access patterns took, by the side that answered."
    yield histogram("migrator_read_seconds", what, counted.answers.items(), ("pattern", "side"))
    for name, help_text, numbers, label in (
        ("migrator_read_errors", "Calls whose side failed.", counted.errors, "side"),
        ("migrator_comparisons", "Answers of both sides compared.", counted.comparisons, "verdict"),
        ("migrator_comparisons_dropped", "Answers not compared.", counted.dropped, "why"),
    ):
        yield counter(name, help_text, numbers.items(), ("pattern", label))


@dataclass
class CountedProgress:
    """Progress of a backfill, shown by `shown` and counted by entity.

    `left`: rows when it began.
    `give`: heartbeat of the stage's own thread.
    """

    shown: Progress
    left: int
    give: Callable[[], None]
    tallies: dict[str, Tally] = field(default_factory=dict)
    expected: dict[str, int] = field(default_factory=dict)
    _signs: int = 0
    _others: Tally = Tally()

    def advance(self) -> Advance:
        run = sum(list(self.tallies.values()), Tally())
        own = run + -self._others
        return Advance(own.rows, max(0, self.left - run.rows), self._signs, items=own.items)

    def __enter__(self) -> CountedProgress:
        self.shown.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shown.__exit__(kind, error, trace)

    def page_planned(self, entity: str, number: int) -> None:
        self._sign()
        self.shown.page_planned(entity, number)

    def entity_started(self, entity: str, rows_done: int, rows_total: int) -> None:
        self._sign()
        self.expected[entity] = rows_total
        self.shown.entity_started(entity, rows_done, rows_total)

    def page_done(self, entity: str, number: int, tally: Tally, took_ms: int) -> None:
        self._sign()
        self.tallies[entity] = self.tallies.get(entity, Tally()) + tally
        self.shown.page_done(entity, number, tally, took_ms)

    def others_done(self, entity: str, tally: Tally) -> None:
        """Counts for the remaining work and for the run's metrics, not for this process's rate."""
        self._others += tally
        self.tallies[entity] = self.tallies.get(entity, Tally()) + tally
        self.shown.others_done(entity, tally)

    def entity_done(self, entity: str) -> None:
        self._sign()
        self.shown.entity_done(entity)

    def _sign(self) -> None:
        self._signs += 1
        self.give()


def service_metrics(service: Service, reading: Callable[[], MappedReads | None]) -> ProcessMetrics:
    session, sent = service.session, service.session.target.store.sent

    def phases() -> Mapping[str, PatternPhase]:
        return {} if (read := reading()) is None else read.reads.phases.known()

    def totals() -> ReadTotals | None:
        return None if (read := reading()) is None else read.reads.ledger.totals

    parts = (
        partial(table_part, sent.consumed, sent.throttled),
        partial(journal_part, session.journal.database.answers),
        partial(phases_part, phases),
        partial(reads_part, totals),
    )
    return ProcessMetrics(session.job.name, service.heartbeat.me.service, parts)
