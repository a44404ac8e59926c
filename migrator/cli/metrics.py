"""Metrics in Prometheus' form: of a relay, a backfill and a service, each labelled with its job and its process."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from types import TracebackType
from typing import Protocol

from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from migrator.mapping.model.evidence import PHASES, PatternPhase
from migrator.mapping.model.instances import Advance
from migrator.mapping.model.journal import Progress, Tally
from migrator.mapping.model.live import MarksState
from migrator.runtime.measures import Answers, Counts, Histogram, Histograms, Labels
from migrator.stages.core.pace import Pace
from migrator.stages.reads.metrics import ReadTotals
from migrator.stages.reads.reads import MappedReads
from migrator.stages.session.service import Service

# ── What is measured, as the metrics see it ──

PACKAGE = "single-table-migrator"


class Requests(Protocol):
    """What became of the requests to a table."""

    consumed: Counts
    throttled: Counts


class Marked(Protocol):
    """What a relay counts."""

    state: MarksState
    changes: Histograms
    open_counts: Mapping[str, int]

    @property
    def totals(self) -> Mapping[str, int]: ...


# ── Families of one process ──

Sample = tuple[Labels, float]


class Families(Struct, frozen=True):
    """Metrics of one process: each sample is labelled with its job and its process."""

    job: str
    process: str

    def gauge(
        self, name: str, help_text: str, samples: Iterable[Sample], labels: Sequence[str] = ()
    ) -> Metric:
        family = GaugeMetricFamily(name, help_text, labels=("job", "process", *labels))
        return self._filled(family, samples)

    def counter(
        self, name: str, help_text: str, samples: Iterable[Sample], labels: Sequence[str] = ()
    ) -> Metric:
        family = CounterMetricFamily(name, help_text, labels=("job", "process", *labels))
        return self._filled(family, samples)

    def histogram(
        self,
        name: str,
        help_text: str,
        histograms: Iterable[tuple[Labels, Histogram]],
        labels: Sequence[str] = (),
    ) -> Metric:
        family = HistogramMetricFamily(name, help_text, labels=("job", "process", *labels))
        for values, histogram in histograms:
            family.add_metric((self.job, self.process, *values), histogram.buckets(), histogram.sum_s)
        return family

    def _filled(
        self, family: GaugeMetricFamily | CounterMetricFamily, samples: Iterable[Sample]
    ) -> GaugeMetricFamily | CounterMetricFamily:
        for values, number in samples:
            family.add_metric((self.job, self.process, *values), number)
        return family


Part = Callable[[Families], Iterator[Metric]]
"""What one thing that is measured gives."""


class ProcessMetrics(Collector):
    """A collector for any registry of prometheus-client; asks no database when it is scraped."""

    def __init__(self, job: str, process: str, parts: Sequence[Part]) -> None:
        self.families = Families(job, process)
        self.parts = (_process, *parts)

    def collect(self) -> Iterator[Metric]:
        for part in self.parts:
            yield from part(self.families)

    def describe(self) -> list[Metric]:
        """Nothing: two jobs in one process have metrics of the same names, with other labels."""
        return []


def _process(families: Families) -> Iterator[Metric]:
    labels = ("host", "pid", "version")
    values = (socket.gethostname(), str(os.getpid()), version(PACKAGE))
    yield families.gauge("migrator_process_info", "Which process this is.", [(values, 1)], labels)


# ── Of every process ──


def table_part(requests: Requests) -> Part:
    """Units that the table's requests consumed, and those that were throttled."""

    def part(families: Families) -> Iterator[Metric]:
        consumed, throttled = requests.consumed, requests.throttled
        yield families.counter(
            "migrator_consumed_units",
            "Capacity units that DynamoDB said it consumed; index '' is the table.",
            consumed.items(),
            ("operation", "index"),
        )
        yield families.counter(
            "migrator_throttled_units",
            "Write units, about, of requests that were throttled.",
            [((), throttled[("units",)])],
        )
        yield families.counter(
            "migrator_throttled_requests",
            "Write requests that were throttled, wholly or in part.",
            [((), throttled[("requests",)])],
        )

    return part


def journal_part(answers: Answers) -> Part:
    def part(families: Families) -> Iterator[Metric]:
        yield families.histogram(
            "migrator_journal_seconds", "What transactions of the journal took.", [((), answers.took)]
        )
        yield families.counter(
            "migrator_journal_failures", "Transactions of the journal that failed.", [((), answers.failures)]
        )

    return part


def phases_part(phases: Callable[[], Mapping[str, PatternPhase]]) -> Part:
    """The phase of each access pattern that was ever moved, as this process knows it."""

    def part(families: Families) -> Iterator[Metric]:
        known = phases()
        yield families.gauge(
            "migrator_pattern_phase",
            "1 for the phase that an access pattern is in, 0 for the others.",
            [
                ((name, phase), float(pattern.state.phase == phase))
                for name, pattern in known.items()
                for phase in PHASES
            ],
            ("pattern", "phase"),
        )
        yield families.gauge(
            "migrator_pattern_ramp_percent",
            "Share of calls that DynamoDB answers, of a pattern in the phase ramp.",
            [((name,), pattern.state.percent) for name, pattern in known.items()],
            ("pattern",),
        )

    return part


def pace_part(pace: Pace) -> Part:
    def part(families: Families) -> Iterator[Metric]:
        yield families.gauge(
            "migrator_held",
            "1 while the process waits: paused, or the source is strained.",
            [((), bool(pace.held))],
        )
        yield families.counter("migrator_held_seconds", "How long it waited so.", [((), pace.held_s)])
        limit = pace.max_write_units
        yield families.gauge(
            "migrator_write_units_limit",
            "Write units a second that the process may take at most; +Inf for no limit.",
            [((), float("inf") if limit is None else limit)],
        )
        strains = pace.strains
        measured = [((name,), now) for name, (now, _) in strains.items()]
        yield families.gauge(
            "migrator_source_strain", "Load or replica lag of the source.", measured, ("of",)
        )
        limits = [((name,), most) for name, (_, most) in strains.items()]
        yield families.gauge("migrator_source_strain_limit", "Above it the process waits.", limits, ("of",))

    return part


# ── Of a relay, a backfill, a service ──

_RELAY_COUNTERS = {
    "finished": "Marks worked and put away.",
    "put_back": "Marks that could not be worked and were put back.",
    "stored": "Items written.",
    "buried": "Tombstones written.",
    "newer": "Writes that something newer of the same row made needless.",
    "refused": "Rows that the mapping refuses.",
    "collisions": "Rows whose key another row has.",
    "failures": "Times that an edge gave up.",
}


def relay_part(report: Marked) -> Part:
    def part(families: Families) -> Iterator[Metric]:
        state = report.state
        gauge = families.gauge
        yield gauge("migrator_marks_waiting", "Marks that could be taken.", [((), state.waiting)])
        yield gauge("migrator_marks_unripe", "Marks whose time has not come.", [((), state.unripe)])
        yield gauge("migrator_marks_failed", "Marks that failed before.", [((), state.failed)])
        age = [((), state.oldest_age_s)]
        yield gauge("migrator_lag_seconds", "Age of the oldest mark that could be taken.", age)
        # Without a captured log: no sample, so an alert on it never fires.
        slots = [] if state.slot is None else [state.slot]
        kept = [((), slot.bytes_kept) for slot in slots]
        yield gauge("migrator_slot_kept_bytes", "Log that the source keeps for our slot.", kept)
        behind = [((), slot.bytes_behind) for slot in slots]
        yield gauge("migrator_slot_behind_bytes", "Log that was not copied yet.", behind)
        for name, help_text in _RELAY_COUNTERS.items():
            yield families.counter(f"migrator_relay_{name}", help_text, [((), report.totals[name])])
        yield families.histogram(
            "migrator_change_to_item_seconds",
            "From the change of a row to its items in the table, by the table of the source and the entities that it is of.",
            report.changes.items(),
            ("table", "entity"),
        )
        kinds = [((kind,), float(number)) for kind, number in report.open_counts.items()]
        yield families.gauge(
            "migrator_open_findings", "Findings of live change that are open.", kinds, ("kind",)
        )

    return part


_TALLIED = {
    "rows": "Rows copied.",
    "items": "Items written.",
    "refused": "Rows that the mapping refuses.",
    "bytes": "Bytes of the items written.",
}


def backfill_part(copied: CountedProgress) -> Part:
    def part(families: Families) -> Iterator[Metric]:
        for name, help_text in _TALLIED.items():
            samples = [((entity,), float(getattr(tally, name))) for entity, tally in copied.tallies.items()]
            yield families.counter(f"migrator_backfill_{name}", help_text, samples, ("entity",))
        expected = [((entity,), float(rows)) for entity, rows in copied.expected.items()]
        yield families.gauge(
            "migrator_backfill_rows_expected", "Rows of the entity, about.", expected, ("entity",)
        )

    return part


def reads_part(totals: Callable[[], ReadTotals | None]) -> Part:
    """What a service reads and compares; nothing before its first read."""

    def part(families: Families) -> Iterator[Metric]:
        counted = totals()
        if counted is None:
            return
        yield families.histogram(
            "migrator_read_seconds",
            "What answers of access patterns took, by the side that answered.",
            counted.answers.items(),
            ("pattern", "side"),
        )
        for name, help_text, numbers, label in (
            ("migrator_read_errors", "Calls whose side failed.", counted.errors, "side"),
            ("migrator_comparisons", "Answers of both sides compared.", counted.comparisons, "verdict"),
            ("migrator_comparisons_dropped", "Answers not compared.", counted.dropped, "why"),
        ):
            yield families.counter(name, help_text, numbers.items(), ("pattern", label))

    return part


@dataclass
class CountedProgress:
    """A backfill's progress, shown by `shown` and counted by entity. `left`: rows when it began; `give`: tells that the
    stage's own thread lives."""

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
        """Counted as this process's for what is left, and for metrics of the run; not for its own rate."""
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
    """`reading`: what the service reads by; None before its first read."""
    session = service.session
    return ProcessMetrics(
        session.job.name,
        service.heartbeat.me.service,
        (
            table_part(session.target.store.sent),
            journal_part(session.journal.database.answers),
            phases_part(lambda: next((read.reads.phases.known() for read in filter(None, [reading()])), {})),
            reads_part(lambda: next((read.reads.ledger.totals for read in filter(None, [reading()])), None)),
        ),
    )
