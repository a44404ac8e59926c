"""What tells whether a server is a replica of another one, and how far it has replayed it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from migrator.errors import SourceError

Row: TypeAlias = tuple[Any, ...]
Ask: TypeAlias = Callable[[str, Mapping[str, Any]], Row]
"""The one row that a server answers to a statement with parameters."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The primary when the run began: its cluster, the very server, the database, and how far it had written.

    `system`: what a replica shares with its primary ('' where it shares nothing); `server`: what nobody shares.
    """

    system: str
    server: str
    database: str
    position: str


Verdict = Literal["ready", "behind"]
"""What a look at the other server says; what makes it no replica of ours is raised."""


@dataclass(frozen=True)
class Replication:
    """`mark`: the primary's; raises SourceError when it has none that a replica could be compared with. `server`: SQL that
    says which server this is, and since when it runs. `verdict`: raises SourceError when the server is no replica of the
    mark's primary, nor that primary itself.
    """

    mark: Callable[[Ask], Mark]
    server: str
    verdict: Callable[[Mark, Ask], Verdict]


def no_replica(why: str) -> SourceError:
    return SourceError(f"read_url: {why}; name a replica of url's server, or leave read_url out")
