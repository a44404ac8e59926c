"""Which revision of a job (its mapping, and the columns that it reads) writers are to work by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from migrator.ports.live import Writer

Standing = Literal["first", "newest", "new", "old"]
"""Of one's own revision: none is registered yet; it is the newest; nobody has worked by it yet; a newer one came since."""


@dataclass(frozen=True, slots=True)
class Revision:
    """`digest` stands for the mapping and for the columns that it reads, `mapping` for the mapping alone."""

    digest: str
    mapping: str


@dataclass(frozen=True, slots=True)
class Newest:
    """The revision that the job's writers work by. `since`: in seconds of the journal's clock, 0 of the first one.

    `runs_before`: the highest number of a run that was there when it became that; what such runs did is of no use where
    an older revision became the newest again.
    """

    revision: Revision
    since: float
    runs_before: int


class Revisions(Protocol):
    """One writer's own revision among those of its job. Every method is one transaction."""

    def enter(self, writer: Writer) -> None:
        """Writes down that the writer works by it. Raises: OldRevisionError where it is not the newest."""

    def leave(self, writer: Writer) -> None: ...

    def is_old(self) -> bool:
        """Whether another one is the newest."""

    def old(self, writers: Sequence[Writer]) -> list[Writer]:
        """Those of the job's writers that work by another one than the newest."""
