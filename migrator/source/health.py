"""What a server says of itself: its clock, whether it is a replica, how long it lets a statement run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Ask = Callable[[str, Mapping[str, Any]], list[tuple[Any, ...]]]

_STATEMENTS = {
    "postgresql": "SELECT EXTRACT(epoch FROM clock_timestamp()), pg_is_in_recovery(), current_setting('statement_timeout')",
    "mysql": "SELECT UNIX_TIMESTAMP(), @@read_only, 'as the server says'",
}


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """`clock_s`: seconds since 1970; None for an engine without a server. `timeout`: as the server writes it."""

    clock_s: float | None = None
    replica: bool = False
    timeout: str = ""


def source_health(engine: str, ask: Ask) -> SourceHealth:
    """`engine`: postgresql, mysql or sqlite; `ask`: runs one SELECT.

    Raises: SourceError when the server does not answer.
    """
    if engine not in _STATEMENTS:
        return SourceHealth()
    ((clock_s, replica, timeout),) = ask(_STATEMENTS[engine], {})
    return SourceHealth(float(clock_s), str(replica).lower() in ("true", "t", "1", "on"), str(timeout))
