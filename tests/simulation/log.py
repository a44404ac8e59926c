"""A database whose log is captured: commits leave no marks, and who takes marks copies the log first."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from greenlet import getcurrent

from migrator.mapping.model.live import Mark
from migrator.runtime.errors import SourceError
from migrator.runtime.values import replace
from tests.simulation.database import Database, Kept, Row, RowId
from tests.simulation.world import Parts


@dataclass
class Committed:
    """A transaction in the log. Others see its rows a moment later."""

    marks: Sequence[Mark]
    is_visible: bool = False


@dataclass
class LogDatabase(Database):
    """`copied`: how much of the log is among the marks; `confirmed`: how much the slot does not send again."""

    log: list[Committed] = field(default_factory=list)
    copied: int = 0
    confirmed: int = 0
    reader: object = None

    def committed(self, changes: Mapping[RowId, Row | None], marks: Sequence[Mark]) -> None:
        entry, generation = Committed(self.recorded(marks)), self.restores
        self.log.append(entry)
        try:
            self.schedule.step()
        finally:
            # Also of a service that is killed here: it is committed.
            if generation == self.restores:
                super().committed(changes, [])
                entry.is_visible = True

    def take(self, count: int, lease_s: float) -> list[Mark]:
        self.copy()
        return super().take(count, lease_s)

    def look(self, after: int, count: int, *, free: bool = False) -> list[Mark]:
        if not after:
            self.copy()
        return super().look(after, count, free=free)

    def pending(self) -> Mapping[int, Kept]:
        self.copy()
        return self.marks

    def copy(self) -> None:
        """What a reader does, unless another one has the slot."""
        if self.reader is not None:
            return
        self.reader, generation = getcurrent(), self.restores
        try:
            sent = self.confirmed
            while sent < len(self.log):
                read = self.log[sent : sent + self.schedule.random.randrange(1, 4)]
                self.wait(generation)
                if not self.may_store(read):
                    break
                sent += len(read)
                self.keep_copied(read, sent, generation)
        finally:
            if generation == self.restores:
                self.reader = None

    def keep_copied(self, read: Sequence[Committed], sent: int, generation: int) -> None:
        self.store(read, sent)
        self.wait(generation)
        self.confirm(sent)

    def store(self, read: Sequence[Committed], sent: int) -> None:
        """Marks and position in one transaction."""
        for mark in (mark for entry in read for mark in entry.marks):
            self.keep(Kept(replace(mark, id=self.new_id())))
        self.copied = max(self.copied, sent)

    def confirm(self, sent: int) -> None:
        assert sent <= self.copied, "the slot would be told of as lost"
        self.confirmed = max(self.confirmed, sent)

    def wait(self, generation: int) -> None:
        self.schedule.step()
        if generation != self.restores:
            raise SourceError("the server has ended the stream")

    def saved(self) -> Any:
        log = [entry for entry in self.log if entry.is_visible]
        return super().saved(), copy.deepcopy((log, self.copied, self.confirmed))

    def restore(self, saved: Any) -> None:
        """As a snapshot of the server's disk does: the slot goes back as well."""
        rows, log = saved
        super().restore(rows)
        self.log, self.copied, self.confirmed = copy.deepcopy(log)
        self.reader = None

    # ── what a test breaks ──

    def recorded(self, marks: Sequence[Mark]) -> Sequence[Mark]:
        return marks

    def may_store(self, read: Sequence[Committed]) -> bool:
        return all(entry.is_visible for entry in read)


LOG = Parts(database=LogDatabase)
