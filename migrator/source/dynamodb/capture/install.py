"""Capture of DynamoDB tables: a stream of each, switched on, begun with, and compared with what was begun with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from migrator.mapping.items.changes import captured_tables
from migrator.mapping.model.capture import (
    CaptureRecord,
    CaptureState,
    Installation,
    MarkedBy,
    Step,
    TableCapture,
)
from migrator.mapping.model.facts import Captured, EntityPlan, TableFacts
from migrator.mapping.model.live import MarkKeeper
from migrator.mapping.model.shards import (
    ALL_OF_IT,
    FRESH_S,
    Checkpoint,
    Position,
    StreamJournal,
    StreamSource,
    StreamState,
)
from migrator.runtime.errors import LostRecordsError, SettingsError, TargetError


class SwitchedStream(StreamSource, Protocol):
    """A stream that can be switched on."""

    def switch_on(self) -> None:
        """With both images; returns when all that is written from then on is in it."""


class CapturedStream(Struct, frozen=True):
    """The stream of one table of the source, and how far it is read."""

    source: SwitchedStream
    checkpoints: StreamJournal

    def is_lost(self, state: StreamState) -> bool:
        """Whether it tells no more of all changes since it was begun with: by the rule by which a reader stops."""
        begun = self.checkpoints.stream()
        return bool(begun) and (not state.is_on or state.arn != begun or self.has_gap(begun))

    def has_gap(self, begun: str) -> bool:
        """Whether it was not read for so long that it may have dropped records which no reader has seen."""
        known = self.checkpoints.read(begun)
        old = [
            shard
            for shard in known.shards
            if not shard.is_finished and known.now - shard.passed_at >= FRESH_S
        ]
        return not all(self._goes_on(begun, shard) for shard in old)

    def _goes_on(self, stream: str, shard: Checkpoint) -> bool:
        if not shard.sequence:
            return False
        try:
            self.source.iterator(stream, shard.shard, Position("AFTER_SEQUENCE_NUMBER", shard.sequence))
        except LostRecordsError:
            return False
        return True

    def begin(self) -> None:
        """What is written from here on is read; its shards are known, so that it counts as waiting until one reads it."""
        state = self.source.state()
        self.checkpoints.begin(state.arn)
        self.checkpoints.list_shards(state.arn, state.shards, 0.0)


_SWITCH_ON = (
    "aws dynamodb update-table --table-name {table}"
    f" --stream-specification StreamEnabled=true,StreamViewType={ALL_OF_IT}"
)
_BEGIN = "begin with the stream of {table}"
_RECORD = "record a new installation of capture in the journal"
_FORGET = "take the record of capture, and the marks that wait, out of the journal"
_SERVICES = (
    "services leave no marks for a source of DynamoDB tables, whose streams tell of every change whoever makes it; install"
    " without --by services"
)
_NO_LOG = "a source of DynamoDB tables is captured by their streams; install without --by log"
LIMITS = (
    "a stream keeps a change for 24 hours: a relay that is away for longer stops when it comes back, and"
    " `migrator capture install` and `migrator verify --repair` mend it",
    "a table that is restored, or created anew, has another stream: what was written between is in neither, and the relay"
    " stops, for the same mend",
)
"""Source: Developer Guide, "Change data capture for DynamoDB Streams"."""


class StreamCapture(Struct, frozen=True):
    """`model.capture.Capture` by streams. `stream_of`: of a table by its name.

    A stream is never switched off by us: others may read it, and it costs nothing where nobody reads."""

    stream_of: Callable[[str], CapturedStream]
    record: CaptureRecord
    marks: MarkKeeper
    means = "streams"

    def captured(self, plans: Sequence[EntityPlan]) -> list[Captured]:
        return [table for _, table in sorted(captured_tables(plans).items())]

    def refusals(self, tables: Sequence[Captured], marked_by: MarkedBy = "triggers") -> list[str]:
        if marked_by == "services":
            return [_SERVICES]
        if marked_by == "log":
            return [_NO_LOG]
        return [what for table in tables if (what := self._unfit(table.name))]

    def limits(self, marked_by: MarkedBy = "triggers") -> list[str]:
        return list(LIMITS)

    def installation(self) -> Installation | None:
        return self.record.installed()

    def install_steps(
        self, tables: Sequence[Captured], job: str, marked_by: MarkedBy = "triggers"
    ) -> list[Step]:
        is_new = self.record.installed() is None
        steps, is_anything_lost = [], False
        for table in tables:
            stream = self.stream_of(table.name)
            state = stream.source.state()
            is_lost = stream.is_lost(state)
            is_anything_lost |= is_lost
            texts = [] if state.is_on else [_SWITCH_ON]
            texts += [_BEGIN] if is_new or is_lost or not stream.checkpoints.stream() else []
            if texts:
                steps.append(
                    Step(table.name, tuple(text.format(table=stream.source.table) for text in texts))
                )
        # First: were a stream begun with and the record not changed, nobody would know what was lost.
        return [Step("", (_RECORD,), (_FORGET,)), *steps] if is_new or is_anything_lost else steps

    def refuse_steps(self, tables: Sequence[TableFacts]) -> list[Step]:
        """Raises: SettingsError."""
        names = ", ".join(table.name for table in tables)
        what = f"{names}: nothing can refuse what others write to a DynamoDB table"
        raise SettingsError(f"{what}, and rows that follow items are for SQL databases; leave `reverse` out")

    def uninstall_steps(self) -> list[Step]:
        return [] if self.record.installed() is None else [Step("", (_FORGET,))]

    def taken_away(self, tables: Sequence[str]) -> str:
        return "capture's record and marks are taken out of the journal; streams stay on, for others may read them"

    def do(self, step: Step) -> None:
        actions: dict[str, Callable[[], None]] = {_RECORD: self.record.install, _FORGET: self._forget}
        if step.table:
            stream = self.stream_of(step.table)
            real = stream.source.table
            actions |= {
                _SWITCH_ON.format(table=real): stream.source.switch_on,
                _BEGIN.format(table=real): stream.begin,
            }
        for statement in step.statements:
            actions[statement]()

    def states(self, tables: Sequence[Captured]) -> list[TableCapture]:
        is_installed = self.record.installed() is not None
        return [
            TableCapture(table.name, self._state(table.name) if is_installed else "unread")
            for table in tables
        ]

    def _state(self, table: str) -> CaptureState:
        stream = self.stream_of(table)
        state, begun = stream.source.state(), stream.checkpoints.stream()
        is_read = begun and state.is_on and state.view == ALL_OF_IT and not stream.is_lost(state)
        return "captured" if is_read else "unread"

    def _unfit(self, table: str) -> str:
        """Why the table's changes cannot be captured; '' for nothing."""
        source = self.stream_of(table).source
        try:
            state = source.state()
        except (TargetError, LostRecordsError) as error:
            return str(error)
        if not state.is_on or state.view == ALL_OF_IT:
            return ""
        what = f"the table {source.table} has a stream of the view {state.view}, and {ALL_OF_IT} is needed"
        why = "a table has one stream, and another program may read this one"
        return f"{what}: {why}; switch it off when none does, and run `migrator capture install` again"

    def _forget(self) -> None:
        self.marks.discard()
        self.record.uninstall()
