"""The edges of live change, put together: constructor calls, no decisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from migrator import wiring
from migrator.errors import SettingsError, TargetError
from migrator.facts import EntityPlan
from migrator.journal.instances import SqlInstances
from migrator.journal.memory import SqlMemory
from migrator.journal.store import SqlJournal
from migrator.journal.writers import SqlWriters
from migrator.mapping.changes import needs_memory
from migrator.mapping.columns import columns_digest
from migrator.mapping.image_keys import compile_image_keys, no_keys
from migrator.ports.capture import Installation
from migrator.ports.instances import Roster
from migrator.retry import Backoff, Retry
from migrator.settings import Job
from migrator.source.address import address_of
from migrator.source.capture.installation import SqlCapture
from migrator.source.capture.marks import SqlMarks
from migrator.source.capture.tickets import SqlTickets
from migrator.source.capture.writing import Writing
from migrator.source.manners import Manners, name_of
from migrator.source.reader import SqlSource
from migrator.stages.capture import CAPTURED, CaptureStage, CaptureStatus, own_installation
from migrator.stages.entities import live_entities
from migrator.stages.lifetimes import Lifetimes
from migrator.stages.presences import Presences
from migrator.stages.refresh import LiveEntity, Refresh, behind
from migrator.stages.relay import Relay, RelayOptions
from migrator.target.conditional import ConditionalWrites
from migrator.target.control import ControlItem
from migrator.wiring import Laid, Target, keepers

DDL_LOCK_WAIT_S = 1.0
"""A change of a table that waits for its lock makes the service's writes wait behind it."""
DDL_PATIENCE = Backoff(attempts=30, base_s=1.0, cap_s=5.0, limit_s=120.0)
ONCE = Backoff(attempts=1)


@dataclass(frozen=True)
class Live:
    """Capture's edges in one source."""

    capture: SqlCapture
    marks: SqlMarks
    tickets: SqlTickets


@contextmanager
def open_live(
    job: Job,
    command: str,
    *,
    stop: Callable[[], bool] = lambda: False,
    patience: Backoff = DDL_PATIENCE,
    source: SqlSource | None = None,
) -> Iterator[Live]:
    """`source`: by whose connections capture is looked at; None: by one of its own. Nothing connects to write before
    something is written."""
    settings = job.source
    address = address_of(settings.url, settings.command, keepers(job.path.parent, job.target))
    manners = Manners(
        name=name_of(job.name, command),
        pool_size=settings.connections_apart(job.tuning.workers + 1),
        lock_wait_s=DDL_LOCK_WAIT_S,
        statement_timeout_s=settings.statement_timeout_s,
    )
    writing = Writing(address, manners, Retry(patience, stop), source.engine if source else None)
    try:
        yield Live(SqlCapture(writing), SqlMarks(writing), SqlTickets(writing))
    finally:
        writing.close()


def found_installation(live: Live, laid: Laid) -> Installation | None:
    """The job's installation of capture, None where there is none. Raises: as need_installation does."""
    return None if live.capture.installation() is None else need_installation(live, laid)


def need_installation(live: Live, laid: Laid) -> Installation:
    """The job's installation of capture.

    Raises: SettingsError where there is none, where it is another job's, or where it does not capture all that the
    mapping reads.
    """
    found = own_installation(live.capture, laid.job.name)
    stage = CaptureStage(live.capture, laid.job.name, laid.checked.mapping.table)
    open_ = [one.table for one in stage.status(_plans(laid)).tables if one.state not in CAPTURED]
    if open_:
        what = f"changes of {', '.join(open_)} would leave no mark, or not the mapping's (see `migrator capture status`)"
        raise SettingsError(f"{what}; run `migrator capture install`, then `migrator verify --repair`")
    return found


def capture_status(laid: Laid) -> CaptureStatus:
    """What is captured in the job's source, by whom."""
    with open_live(laid.job, "doctor", patience=ONCE, source=laid.source) as live:
        stage = CaptureStage(live.capture, laid.job.name, laid.checked.mapping.table)
        return stage.status(_plans(laid))


def _plans(laid: Laid) -> list[EntityPlan]:
    return [entity.plan for entity in laid.checked.entities]


@dataclass(frozen=True)
class Beside:
    """The edges of whoever writes items while others may."""

    laid: Laid
    live: Live
    target: Target
    memory: SqlMemory
    presences: Presences

    @property
    def lifetimes(self) -> Lifetimes:
        return self.presences.lifetimes

    @cached_property
    def entities(self) -> dict[str, LiveEntity]:
        return live_entities(self.laid.checked.mapping, self.laid.checked.entities)

    @cached_property
    def store(self) -> ConditionalWrites:
        return ConditionalWrites(self.target.store)

    def guard_tickets(self) -> bool:
        """Whether the table knows of tickets and the journal of none: another journal was lost, or is in use.

        Nobody writes alone then. Raises: SettingsError where the source's counter is behind what the journal or the
        table knows (rule 8).
        """
        written, here = ControlItem(self.target.store).read_control(), self.memory.highest()
        known, counter = max(here, written), self.live.tickets.highest()
        if counter < known:
            raise SettingsError(behind(counter, known))
        is_lost = bool(written and not here)
        if is_lost:
            self.presences.writers.fence()
            self.memory.reached(written)
        self.keep_ticket()
        return is_lost

    def keep_ticket(self) -> None:
        """Writes the highest ticket into the table, where it outlives source and journal."""
        if highest := self.memory.highest():
            ControlItem(self.target.store).raise_control(highest)

    def refresh(self, check: Callable[[], None]) -> Refresh:
        return Refresh(
            rows=self.laid.source,
            store=self.store,
            tickets=self.live.tickets,
            memory=self.memory,
            entities=self.entities,
            table=self.target.design,
            revision=self.laid.checked.mapping.revision,
            clock=self.presences.now_s,
            check=check,
            objects=self.target.objects,
        )

    def relay(self, check: Callable[[], None]) -> Relay:
        plans = [one.compiled.plan for one in self.entities.values()]
        captured = {one.name: one for one in self.live.capture.captured(plans)}
        mapping = self.laid.checked.mapping
        # Keys that an image cannot tell are remembered; the image may be of another row (see changes: in the mapping).
        keys = {
            name: no_keys
            if needs_memory(one.compiled.plan)
            else compile_image_keys(mapping, one.compiled.plan)
            for name, one in self.entities.items()
        }
        options = RelayOptions(lease_s=self.laid.job.tuning.lease_s)
        return Relay(self.live.marks, self.laid.source, self.refresh(check), captured, keys, options)


def _presences(writers: SqlWriters, job: Job, target: Target) -> Presences:
    return Presences(writers, lifetimes_of(job), running_s, lambda: target.store.unanswered)


def running_s() -> float:
    """A clock that also runs while the machine sleeps, which time.monotonic does not on Linux."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def clock_of(now_s: Callable[[], float]) -> Callable[[], float]:
    """A clock that goes on from what `now_s` says now, whatever this machine's own clock says or is set to."""
    then, before = now_s(), running_s()
    return lambda: then + running_s() - before


def now_s() -> float:
    return time.time()


def lifetimes_of(job: Job) -> Lifetimes:
    return Lifetimes(job.tuning.request_life_s, job.tuning.silent_s)


@contextmanager
def open_beside(
    laid: Laid, target: Target, journal: SqlJournal, table_id: str, stop: Callable[[], bool]
) -> Iterator[Beside]:
    """Everything that a writer beside others needs, its heartbeats running."""
    writers = SqlWriters(journal.database, table_id)
    memory = SqlMemory(journal.database, table_id)
    patience = wiring.backoff_of(laid.job)
    with (
        open_live(laid.job, "live", stop=stop, patience=patience, source=laid.source) as live,
        _presences(writers, laid.job, target) as presences,
    ):
        # Before every single request: a retry may come long after its batch began.
        target.store.check = presences.check
        yield Beside(laid, live, target, memory, presences)


def roster_of(job: Job, journal: SqlJournal) -> Roster:
    """The instances of the job's services, as its journal knows them."""
    instances = SqlInstances(journal.database, job.name)
    return Roster(tuple(instances.known()), instances.now_s(), lifetimes_of(job).gone_s)


def relay_differs(laid: Laid, journal: SqlJournal) -> bool:
    """Whether the relay that was started last works by another mapping, or reads other columns, than the job says now."""
    relays = [run for run in journal.runs(laid.job.name) if run.identity.kind == "relay"]
    own = columns_digest(laid.checked.mapping.revision, [entity.plan for entity in laid.checked.entities])
    return bool(relays) and relays[-1].identity.revision != own


def known_tickets(job: Job) -> list[int]:
    """The highest tickets that the journal and the table know of."""
    design = wiring.sound_mapping(job.mapping).mapping.table
    target = wiring.open_target(job, design, lambda: False)
    state = target.admin.state(target.design)
    if state is None:
        return []
    with wiring.open_journal(job) as journal:
        highest = SqlMemory(journal.database, state.table_id).highest()
    return [highest, ControlItem(target.store).read_control()]


def existing_table(job: Job, target: Target) -> str:
    """The id of the job's table, which must be there and fit the mapping.

    Raises: TargetError when there is none, or another one.
    """
    state = target.admin.state(target.design)
    name = target.design.name
    if state is None:
        raise TargetError(f"there is no table {name}; run `migrator table create` with this job file")
    if state.differences:
        listed = "; ".join(state.differences)
        what = f"table {name} is not the mapping's: {listed}"
        raise TargetError(f"{what}. Mend one of the two, or name another table in the job")
    return state.table_id
