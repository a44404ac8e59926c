"""Spans where OpenTelemetry's API is installed; nothing where it is not."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

try:
    from opentelemetry import trace
except ImportError:  # an application that traces has it
    trace = None  # type: ignore[assignment,unused-ignore]


def span(name: str, **attributes: int | str) -> AbstractContextManager[Any]:
    """A span around a piece of work; attributes are counts and neutral names, as in logs."""
    if trace is None:
        return nullcontext()
    return trace.get_tracer("migrator").start_as_current_span(name, attributes=attributes)
