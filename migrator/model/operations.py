"""What an operator sees and asks of a job's processes: who is at work, how far, what failed last, and how fast to go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

ProcessKind = Literal["backfill", "relay"]
UNITS: dict[ProcessKind, str] = {"backfill": "rows", "relay": "marks"}
"""What each kind of process counts its work in."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """What a person asks of all backfills and relays of a job. `max_write_units`: a second, of each process by itself; None:
    as the job or the command line says. `who`, `since`: who asked last, and when, by the journal's clock."""

    paused: bool = False
    max_write_units: int | None = None
    who: str = ""
    since: float = 0.0
    reason: str = ""


AS_SET = Throttle()
"""Nobody has asked for anything."""


@dataclass(frozen=True, slots=True)
class Advance:
    """How far a process is. `done`, `left`: as in ProcessState. `signs`: grows with whatever came to an end, done or not;
    `trouble`: what is tried again."""

    done: int = 0
    left: int = 0
    signs: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process of a command at its last heartbeat.

    `done`: rows or marks since it began; `left`: as many wait. `rate`: done a second lately; `fall`: by how much `left`
    shrank a second lately, below 0 where it grew. `silent_s`: for so long nothing of its work came to an end. `held`: why it
    waits on purpose, `trouble`: what it tries again; '' for nothing. `sees`, `born`: as an Instance's. The journal gives
    `id`, `since` and `alive_at` (its clock's seconds).
    """

    kind: ProcessKind
    host: str
    pid: int
    version: str
    sees: str = ""
    born: str = ""
    done: int = 0
    left: int = 0
    rate: float = 0.0
    fall: float = 0.0
    silent_s: float = 0.0
    held: str = ""
    trouble: str = ""
    id: str = ""
    since: float = 0.0
    alive_at: float = 0.0

    @property
    def unit(self) -> str:
        return UNITS[self.kind]

    @property
    def usual_rate(self) -> float:
        """Done a second since it began."""
        return self.done / max(1.0, self.alive_at - self.since)


@dataclass(frozen=True, slots=True)
class Failure:
    """What last ended a process of a kind, or made it try again. `at`: the journal's clock."""

    kind: str
    host: str
    pid: int
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class Operations:
    """All of a job at one moment. `now_s`: the journal's time."""

    processes: Sequence[ProcessState]
    failures: Sequence[Failure]
    throttle: Throttle
    now_s: float


class Processes(Protocol):
    """The processes of one job. Every method is one transaction.

    Raises, from every method: StoppedError, SettingsError where the journal cannot be asked.
    """

    def beat(self, state: ProcessState) -> tuple[ProcessState, Throttle]:
        """The same, kept, with its id and times; and what is asked of it."""

    def leave(self, state: ProcessState) -> None: ...

    def failed(self, state: ProcessState, reason: str) -> None:
        """Keeps it as the last failure of its kind."""
