"""What a server says of itself: its version and clock, whether it is a replica, how long it lets a statement run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from migrator.source.engines.table import engine_of
from migrator.source.pooling import Pooling

Ask = Callable[[str, Mapping[str, Any]], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """`version`: with the product's name. `clock_s`: seconds since 1970; None for an engine without a server.

    `timeout`: as the server writes it; '0' for none, '' where it does not say. `pooling`: how a pooler that stands
    between shares the server's sessions; '' for none.
    """

    version: str
    clock_s: float | None = None
    replica: bool = False
    timeout: str = ""
    pooling: Pooling = ""


def source_health(engine: str, ask: Ask, pooling: Pooling) -> SourceHealth:
    """`engine`: by the name of its dialect; `ask`: runs one SELECT.

    Raises: SourceError when the server does not answer.
    """
    server = engine_of(engine).server
    ((version, clock_s, replica, timeout),) = ask(server.health, {})
    seconds = None if clock_s is None else float(clock_s)
    is_replica = str(replica).lower() in ("true", "t", "1", "on")
    return SourceHealth(server.product(str(version)), seconds, is_replica, str(timeout), pooling)
