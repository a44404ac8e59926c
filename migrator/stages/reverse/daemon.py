"""The rollback's daemon: whether it may start, its turns, its end, and its progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any

from msgspec import Struct, field

from migrator.mapping.inverse.rows import Inverse
from migrator.mapping.items.changes import captured_name, captured_tables
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.facts import EntityPlan, ForeignKey, TableFacts
from migrator.mapping.model.live import (
    ALL_OF_IT,
    Capture,
    Check,
    Checkpoints,
    ReverseJournal,
    Step,
    StreamJournal,
    StreamRecord,
    StreamState,
    WaitingRow,
)
from migrator.runtime.errors import Interrupted, MigratorError, SourceError, StoppedError
from migrator.runtime.logs import get_logger
from migrator.source.dynamodb.reader import StreamReader
from migrator.stages.live.capture import owned
from migrator.stages.reverse.stage import ITEM_ALONE, Reverse, WrittenTable

IDLE_S = 0.5
_FAILURES = 5
"""Limit of consecutive failures: expired leases, and servers that did not come back."""
_log = get_logger("reverse")


# ── may it begin ──


def hindrances(
    inverse: Inverse, entities: Sequence[CompiledEntity], state: StreamState, *, takes_rows: bool
) -> Iterator[str]:
    """Why rows cannot be made from the table's writes. `takes_rows`: the source is of a writable kind."""
    yield from unreadable(inverse, entities, takes_rows=takes_rows)
    if not takes_rows:
        return
    if not state.is_on:
        option = "`target: {options: {stream: new_and_old_images}}` in the job"
        yield f"the table has no stream; switch one on with the view {ALL_OF_IT} ({option})"
    elif state.view != ALL_OF_IT:
        yield f"the table's stream has the view {state.view}, and {ALL_OF_IT} is needed"


def unreadable(inverse: Inverse, entities: Sequence[CompiledEntity], *, takes_rows: bool) -> Iterator[str]:
    if not takes_rows:
        yield "rows are made of items for databases alone, and the old side is tables of DynamoDB's"
        return
    for table in inverse.tables:
        if not table.invertible:
            what = table.rows_lost or f"{', '.join(lost.column for lost in table.lost)} would be lost"
            yield f"table {table.table} does not come back from its items: {what}"
    for entity in entities:
        plan = entity.plan
        if plan.is_single:
            continue
        key = tuple(column.name for column in plan.key)
        if key not in plan.table.proved:
            names = ", ".join(key)
            yield f"table {plan.table.name} has no primary key or unique key of {names}, by which a row could be written"
        if documents := [column.name for column in plan.key if column.kind.name == "json"]:
            what = "one document has several texts, so its row could not be found"
            yield f"table {plan.table.name} has a JSON document in its key ({', '.join(documents)}): {what}"
        if entity.contents:
            yield f"entity {entity.name} keeps attributes in S3, which are not read back"


def made_one_way(tables: Mapping[str, WrittenTable], others: Sequence[EntityPlan]) -> dict[str, WrittenTable]:
    roots = _root_tables(others)
    return {name: table for name, table in tables.items() if captured_name(table.facts) not in roots}


def _root_tables(plans: Iterable[EntityPlan]) -> dict[str, str]:
    return {captured_name(plan.table): plan.entity.written for plan in plans if not plan.is_single}


def shared_tables(others: Sequence[EntityPlan], inverse: Inverse) -> Iterator[str]:
    """Why a table's rows would be made both ways. `others`: entities made from their rows."""
    roots = _root_tables(others)
    for design in inverse.designs:
        for name in sorted({captured_name(child.table) for child in design.lists} & roots.keys()):
            what = f"entity {design.plan.entity.written} has rows of {name} in lists, and entity {roots[name]} is made of"
            yield f"{what} those rows, which are the truth; also name {roots[name]} in writes.direct"


def notes(tables: Sequence[TableFacts], triggers: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """`triggers`: the source's own, by table, which may write other values than an item has."""
    if circle := _fixed_circle(tables):
        what = f"rows of {', '.join(circle)} can refer to each other by foreign keys that are NOT NULL and not deferrable"
        yield f"{what}; new ones that do wait until one column may be NULL or a key is DEFERRABLE"
    for name, names in triggers.items():
        what = f"table {name} has triggers of its own that may change what is written: {', '.join(names)}"
        yield f"{what}; where one does, `migrator reverse verify` finds the row different each time"


def _fixed_circle(tables: Sequence[TableFacts]) -> list[str]:
    """Tables in circles of foreign keys checked at every statement, sorted."""
    refers_to = {
        table.name: {key.table for key in table.foreign_keys if _is_fixed(table, key)} for table in tables
    }
    for _ in refers_to:
        refers_to = {
            name: names.union(*(refers_to.get(other, ()) for other in names))
            for name, names in refers_to.items()
        }
    return sorted(name for name, names in refers_to.items() if name in names)


def _is_fixed(table: TableFacts, key: ForeignKey) -> bool:
    columns = [column for name in key.columns if (column := table.column(name))]
    return not (key.deferrable or any(column.nullable and not column.generated for column in columns))


# ── SQL writers ──


class SqlWriterStatus(Struct, frozen=True):
    """Tables whose rows follow items, by whether writes by others are refused. `why`: reason for missing triggers."""

    refused: tuple[str, ...] = ()
    let_in: tuple[str, ...] = ()
    why: str = ""


def following(
    tables: Iterable[WrittenTable], ours: Sequence[EntityPlan], plans: Sequence[EntityPlan]
) -> list[TableFacts]:
    """Tables whose rows only follow items: entities outside of `ours` do not read them."""
    names = {plan.entity.name for plan in ours}
    read = captured_tables([plan for plan in plans if plan.entity.name not in names])
    return [table.facts for table in tables if captured_name(table.facts) not in read]


def sql_writers(capture: Capture, job: str, tables: Sequence[TableFacts], *, refuse: bool) -> SqlWriterStatus:
    """`refuse`: create the missing triggers. A failure stops nothing, since following rows matter more."""
    names = tuple(table.name for table in tables)
    if not tables:
        return SqlWriterStatus()
    why = ""
    try:
        owned(capture.installation(), job)
        steps = capture.refuse_steps(tables)
        if refuse:
            why = _done(capture, steps)
            steps = capture.refuse_steps(tables)
    except Interrupted:
        raise
    except MigratorError as error:
        return SqlWriterStatus((), names, str(error))
    open_ = {step.table for step in steps}
    let_in = tuple(table.name for table in tables if captured_name(table) in open_)
    return SqlWriterStatus(tuple(name for name in names if name not in let_in), let_in, why if let_in else "")


def _done(capture: Capture, steps: Sequence[Step]) -> str:
    why = ""
    for step in steps:
        try:
            capture.do(step)
        except SourceError as error:
            why = str(error)
    return why


# ── its turns ──


def passed_by_all(checkpoints: Checkpoints) -> float:
    """Time up to which every shard is processed; without an open shard, one is still to be named."""
    return min((one.passed_at for one in checkpoints.shards if not one.is_finished), default=float("-inf"))


def looks_at_waiting_rows(checkpoints: Checkpoints, owner: str) -> bool:
    """Whether this reader, which has the first open shard, checks waiting rows for all."""
    unfinished = [one for one in checkpoints.shards if not one.is_finished]
    first = min(unfinished, key=lambda one: one.shard, default=None)
    return first is not None and first.owner == owner and first.leased_until > checkpoints.now


class DirectChangedError(MigratorError):
    """The direct entities are no longer those whose rows are being made."""


class WhileDirect(Struct, frozen=True):
    """A reader's work, as long as the same entities are direct.

    Checked after a page is read, before waiting rows are checked (any process may find those of any entity),
    and before each write. So a stale process neither discards a page with a service's own writes nor
    overwrites a row that is the truth again.
    `written`: changes of items of these entities.
    """

    stage: Reverse
    direct: frozenset[str]
    direct_on_record: Callable[[], frozenset[str]]
    written: Counter[str] = field(default_factory=Counter)

    def __call__(self, records: Sequence[StreamRecord], check: Check) -> None:
        def is_still_direct() -> None:
            check()
            self.need_direct()

        is_still_direct()
        self.stage.work(records, is_still_direct)
        table = self.stage.inverse.table
        for record in records:
            images = (image for image in (record.old, record.new) if image is not None)
            self.written.update({table.type_of(image) for image in images} & self.stage.types)

    def need_direct(self) -> None:
        if self.direct_on_record() != self.direct:
            raise DirectChangedError("other entities are direct now")


@dataclass
class ReverseDaemon:
    """Reads the stream and makes rows until stopped.

    `once`: until all records written before its start are processed.
    `tables`: those that must have no waiting rows by then; None: all written ones.
    `begun_at`: by the journal's clock.
    """

    reader: StreamReader
    work: WhileDirect
    shards: StreamJournal
    stop: Event
    once: bool
    pause: Callable[[float], Any]
    begun_at: float
    tables: Collection[str] | None

    def run(self) -> None:
        """Raises: an error that retries cannot resolve; Interrupted if `once` was stopped early."""
        begun_at, failures = self.begun_at, 0
        with self.reader:
            while not self.stop.is_set() and self.work.stage.journal.stopped_at() <= begun_at:
                try:
                    records, passed_at = self._turn()
                    failures = 0
                except StoppedError as error:
                    failures += 1
                    if failures >= _FAILURES:
                        raise
                    _log.warning("turn_failed", reason=str(error), failures=failures)
                    self.pause(IDLE_S)
                    continue
                if self.once and passed_at > begun_at and self._is_settled():
                    return
                if not records:
                    self.pause(IDLE_S)
        if self.once:
            raise Interrupted("stopped before all writes are in the source; the same command resumes")

    def _turn(self) -> tuple[int, float]:
        records = self.reader.turn()
        checkpoints = self.shards.read(self.shards.stream())
        passed_at = passed_by_all(checkpoints)
        self.work.need_direct()
        if looks_at_waiting_rows(checkpoints, self.reader.owner):
            self.work.stage.again(passed_at, self.work.need_direct)
        return records, passed_at

    def _is_settled(self) -> bool:
        tables = self.work.stage.tables if self.tables is None else self.tables
        waiting = self.work.stage.journal.waiting(None, (ITEM_ALONE, *tables))
        return all(one.is_finding for one in waiting)


# ── how far it is ──


class ReverseStatus(Struct, frozen=True):
    """`lags_s`: by open shard. `processes`: those with a shard. `begun`: whether the stream is in use."""

    begun: bool
    lags_s: dict[str, float]
    processes: int
    waiting: list[WaitingRow]

    @property
    def lag_s(self) -> float:
        return max(self.lags_s.values(), default=0.0)

    @property
    def parked(self) -> list[WaitingRow]:
        """Rows that do not go as soon as the shards have passed."""
        return [one for one in self.waiting if one.waits != "gone" or one.is_finding]

    @property
    def findings(self) -> list[WaitingRow]:
        """Rows that a person must look at. Others only wait a moment, as rows with frequent writes do."""
        return [one for one in self.waiting if one.is_finding]

    def is_well(self, longest_lag_s: float) -> bool:
        return self.begun and self.lag_s <= longest_lag_s and not self.findings


def status_of(shards: StreamJournal, journal: ReverseJournal) -> ReverseStatus:
    stream = shards.stream()
    checkpoints = shards.read(stream)
    owners = {one.owner for one in checkpoints.shards if one.owner and one.leased_until > checkpoints.now}
    return ReverseStatus(bool(stream), checkpoints.lags_s(), len(owners), journal.waiting())
