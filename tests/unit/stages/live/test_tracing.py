from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from migrator.stages.live import daemon


def test_a_span_goes_to_the_applications_tracer(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    with daemon.span("migrator.relay", marks=3):
        pass
    (span,) = exporter.get_finished_spans()
    assert (span.name, dict(span.attributes or {})) == ("migrator.relay", {"marks": 3})


def test_without_opentelemetry_there_is_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "trace", None)
    with daemon.span("migrator.relay") as nothing:
        assert nothing is None
