"""Service instances, processes of commands, mapping revisions, and lifetimes of writers, as the journal knows them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from msgspec import Struct

from migrator.mapping.model.live import Writer
from migrator.runtime.values import replace

# ── Running services: every process that writes in addition to SQL or reads, from the journal ──

InstanceRole = Literal["dual_write", "read", "dual_write,read"]
"""A process that does both is one instance with both roles."""
DUAL_WRITE: Literal["dual_write"] = "dual_write"
READ: Literal["read"] = "read"
InstanceMode = Literal["outbox", "strict", ""]
"""'' of one that only reads."""


class Instance(Struct, frozen=True):
    """One process of a service.

    `version`: the service's own.
    `migrator`: this package's version.
    `revision`: of its mapping.
    `installation`: of capture.
    `id`, `since`, `alive_at`: from the journal; its last heartbeat in seconds of the journal's clock.
    `sees`: processes that this one can see by their numbers.
    `born`: its own start, so that another can detect its end.
    """

    service: str
    host: str
    pid: int
    version: str
    migrator: str
    role: InstanceRole
    mode: InstanceMode
    revision: str
    installation: str
    id: str = ""
    since: float = 0.0
    alive_at: float = 0.0
    sees: str = ""
    born: str = ""

    @property
    def reads(self) -> bool:
        return READ in self.role

    @property
    def marks(self) -> bool:
        return DUAL_WRITE in self.role


class ServiceRegistry(Struct, frozen=True):
    """Instances of a job, the oldest first.

    `now_s`: journal time.
    `gone_s`: timeout of heartbeats.
    """

    known: tuple[Instance, ...]
    now_s: float
    gone_s: float

    @property
    def living(self) -> list[Instance]:
        return [instance for instance in self.known if self.age_s(instance) < self.gone_s]

    @property
    def silent(self) -> list[Instance]:
        gone = [instance for instance in self.known if self.age_s(instance) >= self.gone_s]
        return sorted(gone, key=self.age_s)

    @property
    def replaced(self) -> list[Instance]:
        """Silent instances replaced by a newer one: of the same service and host, started after their last
        heartbeat.

        They may be frozen, or cut off from the journal, and still exist.
        """
        newest: dict[tuple[str, str], float] = {}
        for instance in self.known:
            newest[instance.service, instance.host] = max(
                instance.since, newest.get((instance.service, instance.host), 0.0)
            )
        return [
            instance
            for instance in self.silent
            if newest[instance.service, instance.host] > instance.alive_at
        ]

    @property
    def marking(self) -> list[Instance]:
        return [instance for instance in self.living if instance.marks]

    def without(self, ids: Collection[str]) -> ServiceRegistry:
        gone = {instance.id for instance in self.silent if instance.id in ids}
        return replace(self, known=tuple(instance for instance in self.known if instance.id not in gone))

    def age_s(self, instance: Instance) -> float:
        return max(0.0, self.now_s - instance.alive_at)


class Instances(Protocol):
    """The instances of one job. Every method is one transaction.

    Raises, from every method: StoppedError, SettingsError if the journal is unreachable.
    """

    def enter(self, instance: Instance) -> Instance:
        """Register the instance; returns it with its id and times."""

    def beat(self, instance: Instance) -> Instance:
        """Renew the heartbeat and roles; registers a forgotten instance again."""

    def leave(self, instance: Instance) -> None: ...

    def known(self) -> list[Instance]: ...

    def registry(self, gone_s: float) -> ServiceRegistry: ...

    def forget_silent(self, older_than_s: float) -> int:
        """Forget instances with an older last heartbeat; returns how many."""


# ── Which revision of a job (its mapping, and the columns that it reads) writers are to work by ──

Standing = Literal["first", "newest", "new", "old"]
"""Of one's own revision: none is registered yet; it is the newest; no writer has used it yet; a newer one came since."""


class MarkedColumns(Struct, frozen=True):
    """Columns in marks of one table, and columns whose changes leave a mark; None: any change."""

    held: tuple[str, ...]
    watched: tuple[str, ...] | None

    def beyond(self, other: MarkedColumns) -> set[str]:
        found = set(self.held) - set(other.held)
        if other.watched is not None:
            found |= {"*"} if self.watched is None else set(self.watched) - set(other.watched)
        return found


@dataclass(frozen=True, slots=True)
class Revision:
    """`digest`: of the mapping and the columns that it reads.
    `mapping`: of the mapping alone.
    `answers`: digests by pattern.
    `marked`: columns of marks by table; None if unknown.
    `meaning`: equal if the same items are made from the same columns, in any wording; '' if unknown.
    """

    digest: str
    mapping: str
    meaning: str = field(default="", compare=False)
    answers: Mapping[str, str] = field(default_factory=dict, compare=False)
    marked: Mapping[str, MarkedColumns] | None = field(default=None, compare=False)
    text: str = field(default="", compare=False, repr=False)

    def is_same(self, other: Revision) -> bool:
        """Whether both make the same items, so that writers may run concurrently."""
        return self.digest == other.digest or (self.meaning != "" and self.meaning == other.meaning)

    def unmarked_by(self, other: Revision) -> list[str] | None:
        """Columns that only this one marks, as table or table.column; None if unknown."""
        if self.marked is None or other.marked is None:
            return None
        found: list[str] = []
        for table, columns in sorted(self.marked.items()):
            theirs = other.marked.get(table)
            found += (
                [table] if theirs is None else [f"{table}.{name}" for name in sorted(columns.beyond(theirs))]
            )
        return found

    def unmarked(self, newest: Newest | None) -> list[str] | None:
        if newest is None or newest.revision.is_same(self):
            return []
        return newest.revision.unmarked_by(self)

    def named_by(self, newest: Newest | None, whole: Callable[[], Revision]) -> Revision:
        """The newest revision, if it is this one in other words. `whole`: this one with its meaning."""
        if newest is None or newest.revision.digest == self.digest:
            return self
        return newest.revision if newest.revision.is_same(whole()) else self


class Answered(Struct, frozen=True):
    """The digest of a pattern's answer in the newest revision, and its begin by the journal's clock."""

    digest: str
    since: float


class Newest(Struct, frozen=True):
    """The revision of the job's writers.

    `since`: seconds of the journal's clock, 0 of the first one.
    `runs_before`: the highest run number then; earlier results are useless if an older revision became the
    newest again.
    `answers`: by pattern; comparisons before an answer's `since` do not count.
    `known`: meanings of all revisions that were ever the newest, by digest.
    """

    revision: Revision
    since: float
    runs_before: int
    answers: Mapping[str, Answered] = {}
    known: Mapping[str, str] = {}


class Revisions(Protocol):
    """One writer's own revision of its job. Every method is one transaction."""

    def enter(self, writer: Writer) -> None:
        """Record the writer's revision. Raises: OldRevisionError if it is not the newest."""

    def leave(self, writer: Writer) -> None: ...

    def is_old(self) -> bool: ...

    def old(self, writers: Sequence[Writer]) -> list[Writer]: ...


_BEATS_A_SILENCE = 6


class Lifetimes(Struct, frozen=True):
    """`request_s`: maximum time of one request, from its signature to its effect.
    `silent_s`: without a heartbeat for so long a writer sends nothing more.
    """

    request_s: float = 60.0
    silent_s: float = 30.0

    @property
    def beat_s(self) -> float:
        return self.silent_s / _BEATS_A_SILENCE

    @property
    def doubted_s(self) -> float:
        """After so long without a heartbeat a writer has failed twice to renew it, or has died."""
        return 3 * self.beat_s

    @property
    def gone_s(self) -> float:
        """After so long without a heartbeat, no request of a writer can take effect."""
        return self.silent_s + self.request_s

    @property
    def late_s(self) -> float:
        """After so long without a heartbeat, requests signed before a process was frozen are rejected.

        With the default of 600 s: AWS takes a signature for five minutes, by a clock that may be five minutes
        ahead.
        """
        return max(self.gone_s, self.ripe_s)

    @property
    def ripe_s(self) -> float:
        """The age at which a tombstone may go, if no writer is older."""
        return 10 * self.request_s


# ── Processes of commands: running backfills and relays, their progress, and an operator's limits for them ──

ProcessKind = Literal["backfill", "relay"]
UNITS: dict[ProcessKind, str] = {"backfill": "rows", "relay": "changes"}
"""Unit of work of each kind of process."""


class Throttle(Struct, frozen=True):
    """The user's limit for all backfills and relays of a job.

    `max_write_units`: per second and process; None: the limit of the job or the command line.
    `who`, `since`: who set it last, and when.
    """

    paused: bool = False
    max_write_units: int | None = None
    who: str = ""
    since: float = 0.0
    reason: str = ""


AS_SET = Throttle()
"""No limit is set."""


class Advance(Struct, frozen=True):
    """Progress of a process.

    `done`, `left`: as in ProcessState.
    `signs`: grows with each finished unit of work, even a failed one.
    `trouble`: the retried work.
    `items`, `write_units`: written since it began.
    `lag_s`: of the oldest waiting mark.
    """

    done: int = 0
    left: int = 0
    signs: int = 0
    trouble: str = ""
    items: int = 0
    write_units: float = 0.0
    lag_s: float = 0.0


class WorkMinute(Struct, frozen=True):
    """Totals of a process since its start, and its lag, at the last heartbeat of a minute. `begun_at`: seconds
    since 1970 by the journal's clock.
    """

    process: str
    begun_at: int
    items: int
    write_units: float
    lag_s: float


class ProcessState(Struct, frozen=True):
    """One process of a command at its last heartbeat.

    `done`: rows or marks since it began.
    `left`: waiting ones.
    `rate`: recently done per second.
    `fall`: recent decrease of `left` per second, below 0 if it grew.
    `silent_s`: time since it last finished a unit of work.
    `held`: why it waits on purpose.
    `trouble`: what it retries.
    `sees`, `born`: as an Instance's.
    `id`, `since`, `alive_at`: from the journal, in its clock's seconds.
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
        return self.done / max(1.0, self.alive_at - self.since)


class Failure(Struct, frozen=True):
    """The last failure that ended a process of a kind, or made it retry. `at`: the journal's clock."""

    kind: str
    host: str
    pid: int
    at: float
    reason: str


class Operations(Struct, frozen=True):
    processes: Sequence[ProcessState]
    failures: Sequence[Failure]
    throttle: Throttle
    now_s: float


class Share(Struct, frozen=True):
    """One process's share of the budgets of `scope` (a run, or a kind of processes).

    One of so many `parts`, 0 for nothing yet; connections to the source: 0 for no limit.
    """

    id: str
    scope: str
    parts: int = 0
    connections: int = 0


# ── A change of a job from one revision of its mapping to another ──

ChangeStep = Literal["indexes", "newest", "items", "gone", "verify", "unasked", ""]
"""The next step, in this order: indexes that are missing are added; the revision becomes the newest, and is captured;
items that change are written; those of entities that are gone are deleted; a verify of the whole table; unused indexes
are removed. '': done."""


class RevisionChange(Struct, frozen=True):
    """`before`, `after`: revisions of the mapping.
    `goes_back`: to one that the job had left.
    """

    number: int
    before: str
    after: str
    goes_back: bool
    step: ChangeStep

    @property
    def is_done(self) -> bool:
        return not self.step
