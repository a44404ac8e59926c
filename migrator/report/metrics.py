"""A relay's metrics in Prometheus' form, by prometheus-client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from migrator.errors import SettingsError
from migrator.ports.live import MarksState

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
        for name, said in _COUNTERS.items():
            yield CounterMetricFamily(f"migrator_relay_{name}", said, self.report.totals[name])


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
