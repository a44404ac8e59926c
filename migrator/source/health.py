"""What a server says of itself: its version and clock, whether it is a replica, how long it lets a statement run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from migrator.source.pooling import Pooling

Ask = Callable[[str, Mapping[str, Any]], list[tuple[Any, ...]]]

_STATEMENTS = {
    "postgresql": "SELECT 'PostgreSQL ' || current_setting('server_version'), EXTRACT(epoch FROM clock_timestamp()),"
    " pg_is_in_recovery(), current_setting('statement_timeout')",
    # MariaDB and MySQL call their time-out by different names; the one that is asked for and not there is an error.
    "mysql": "SELECT VERSION(), UNIX_TIMESTAMP(), @@read_only, ''",
    "sqlite": "SELECT 'SQLite ' || sqlite_version(), NULL, 0, ''",
}


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
    """`engine`: postgresql, mysql or sqlite; `ask`: runs one SELECT.

    Raises: SourceError when the server does not answer.
    """
    ((version, clock_s, replica, timeout),) = ask(_STATEMENTS[engine], {})
    named = str(version) if engine != "mysql" or "MariaDB" in str(version) else f"MySQL {version}"
    seconds = None if clock_s is None else float(clock_s)
    is_replica = str(replica).lower() in ("true", "t", "1", "on")
    return SourceHealth(named, seconds, is_replica, str(timeout), pooling)
