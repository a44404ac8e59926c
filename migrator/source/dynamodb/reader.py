"""A reader of a DynamoDB stream: processes records in order, children after parents, with checkpoints under a lease."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from migrator.mapping.model.live import (
    ALL_OF_IT,
    FRESH_S,
    Checkpoint,
    RecordPage,
    StreamJournal,
    StreamPosition,
    StreamRecord,
    StreamSource,
    StreamState,
)
from migrator.runtime.errors import (
    ExpiredIteratorError,
    LostRecordsError,
    MigratorError,
    SettingsError,
    StoppedError,
)
from migrator.runtime.logs import get_logger
from migrator.runtime.retry import running_s
from migrator.runtime.values import replace

Check: TypeAlias = Callable[[], None]
Work: TypeAlias = Callable[[Sequence[StreamRecord], Check], None]
"""Processes records of one shard, in order, and must be idempotent: a crash before the checkpoint repeats them. It calls
the check before each of its writes, which raises StoppedError if another reader may have the shard by now.
"""

LEASE_S = 60.0
LIST_S = 10.0
"""How often shards are listed. The service gives a shard a child some four hours after it began."""
PAGE_RECORDS = 1000
_log = get_logger("streams")


# ── which stream ──


def begin(source: StreamSource, journal: StreamJournal) -> str:
    """Begin reading all further writes, regardless of earlier reading. Returns the stream.

    Raises: SettingsError if it does not fit.
    """
    state = source.state()
    _refuse_unfit(source, state)
    journal.begin(state.arn)
    return state.arn


def _refuse_unfit(source: StreamSource, state: StreamState) -> None:
    table = source.table
    if not state.is_on:
        off = "has no stream" if not state.arn else "has a stream that is switched off"
        what = f"the table {table} {off}, so writes to it are not recorded"
        raise SettingsError(f"{what}; switch one on with the view {ALL_OF_IT}, {source.mend}")
    if state.view != ALL_OF_IT:
        what = f"the stream of table {table} has the view {state.view}, and {ALL_OF_IT} is needed"
        raise SettingsError(f"{what}; switch it off, then on with that view, {source.mend}")


def _refuse_other(source: StreamSource, state: StreamState, begun: str) -> None:
    _refuse_unfit(source, state)
    if state.arn != begun:
        what = f"the table {source.table} has another stream than the one that was begun with"
        why = "the table was re-created or restored, or its stream was switched off and on"
        raise SettingsError(f"{what}: {why}, and what was written between is in neither; {source.mend}")


# ── reading ──


@dataclass
class _Held:
    """`iterator`: None before the first page, and if it must be fetched again."""

    checkpoint: Checkpoint
    iterator: str | None = None


def owner_here() -> str:
    return f"{socket.gethostname()[:30]}.{os.getpid()}.{os.urandom(8).hex()}"


@dataclass
class StreamReader:
    """Reads its part of the stream's shards, turn by turn, in one thread; other readers run concurrently in any
    process.

    A context manager, which frees its shards at the end. The next turn may be tried after a StoppedError or
    SourceError. `clock`: monotonic seconds.
    """

    source: StreamSource
    journal: StreamJournal
    work: Work
    owner: str = field(default_factory=owner_here)
    lease_s: float = LEASE_S
    list_s: float = LIST_S
    page_records: int = PAGE_RECORDS
    clock: Callable[[], float] = running_s
    _stream: str = ""
    _held: dict[str, _Held] = field(default_factory=dict)
    _listed_at: float = float("-inf")
    _valid_until: float = float("-inf")
    _renew_at: float = float("-inf")
    _claim_at: float = float("-inf")
    _ahead_s: float = 0.0
    """How far the journal's clock is ahead of `clock`."""

    def __enter__(self) -> StreamReader:
        self._stream = self.journal.stream()
        if not self._stream:
            raise SettingsError(
                f"the stream of table {self.source.table} was not begun with; begin with it first"
            )
        return self

    def __exit__(self, *ended: object) -> None:
        # A lease that is not released expires, and must not hide the error that ended the reader.
        with suppress(MigratorError):
            # Store progress over empty pages as well.
            self.journal.renew(self._stream, self.owner, self.lease_s, self.passed())
            self.journal.leave(self._stream, self.owner)

    def turn(self) -> int:
        """Read, process and checkpoint one page of each held shard; return the number of records.

        Without any, pause before the next turn.

        Raises: LostRecordsError, SettingsError (the stream is off or another one), which no retry fixes;
        StoppedError if an edge gave up or a lease ran out; errors of `work`.
        """
        self._list_shards()
        if self.clock() >= self._claim_at:
            self._claim()
        return sum(self._read(shard) for shard in list(self._held))

    def passed(self) -> Mapping[str, float]:
        """The journal time up to which each shard is processed; the journal gets it later."""
        # A copy: another thread may iterate while shards come and go.
        return {shard: held.checkpoint.passed_at for shard, held in dict(self._held).items()}

    # ── shards ──

    def _list_shards(self) -> None:
        asked_at = self.clock()
        if asked_at - self._listed_at < self.list_s:
            return
        state = self.source.state()
        _refuse_other(self.source, state, self._stream)
        self.journal.list_shards(self._stream, state.shards, self.clock() - asked_at)
        self._listed_at = asked_at

    def _claim(self) -> None:
        """Claim between two pages: a shard that is released here must not be in use.

        Renews its own leases first: a shard that another reader had meanwhile continues at that one's
        checkpoint.
        """
        if self._held:
            self._renew()
        asked_at = self.clock()
        claimed = self.journal.claim(self._stream, self.owner, self.lease_s)
        self._ahead_s = claimed.now - self.clock()
        before = self._held
        self._held = {shard.shard: before.get(shard.shard) or _Held(shard) for shard in claimed.shards}
        self._leased_at(asked_at)
        self._claim_at = self._renew_at
        if before.keys() != self._held.keys():
            _log.info("shards_claimed", shards=len(self._held), before=len(before))

    def _renew(self) -> None:
        asked_at = self.clock()
        kept = self.journal.renew(self._stream, self.owner, self.lease_s, self.passed())
        for shard in self._held.keys() - kept:
            del self._held[shard]
        self._leased_at(asked_at)

    def _leased_at(self, asked_at: float) -> None:
        """Note the time before the call: other readers count the lease from a later moment."""
        self._valid_until, self._renew_at = asked_at + self.lease_s, asked_at + self.lease_s / 3

    def _check(self, shard: str) -> None:
        """Raises: StoppedError if another reader may have the shard."""
        if self._renew_at <= self.clock() < self._valid_until:
            self._renew()
        if shard not in self._held or self.clock() >= self._valid_until:
            self._held.clear()
            self._claim_at = float("-inf")
            what = f"the lease of a shard of table {self.source.table}'s stream ran out before its page was worked"
            raise StoppedError(f"{what}; the page is worked again, by the reader that has the shard now")

    # ── pages ──

    def _read(self, shard: str) -> int:
        held = self._held.get(shard)
        if held is None:
            return 0  # given up while another one was processed
        self._check(shard)
        held.iterator = held.iterator or self._iterator(held.checkpoint)
        asked_at = self.clock() + self._ahead_s
        try:
            page = self.source.records(self._stream, shard, held.iterator, self.page_records)
        except (ExpiredIteratorError, LostRecordsError) as error:
            if isinstance(error, LostRecordsError) and not self._is_fresh(held.checkpoint):
                raise
            held.iterator = None
            return 0
        if page.records:
            self._check(shard)
            self.work(page.records, lambda: self._check(shard))
        self._save(held, page, asked_at)
        return len(page.records)

    def _iterator(self, checkpoint: Checkpoint) -> str:
        """An iterator after the checkpoint. The stream only drops records older than a day. If everything up to
        a later moment is processed, the rest begins with processed records or the next one.
        """
        shard, is_fresh = checkpoint.shard, self._is_fresh(checkpoint)
        if checkpoint.sequence:
            after = StreamPosition("AFTER_SEQUENCE_NUMBER", checkpoint.sequence)
            try:
                return self.source.iterator(self._stream, shard, after)
            except LostRecordsError:
                if not is_fresh:
                    raise
        elif not is_fresh:
            what = f"a shard of table {self.source.table}'s stream was not begun with for {FRESH_S / 3600:.0f} hours"
            raise LostRecordsError(
                f"{what}, and the stream keeps a change for 24, so changes may be lost; {self.source.mend}"
            )
        return self.source.iterator(self._stream, shard, StreamPosition("TRIM_HORIZON"))

    def _is_fresh(self, checkpoint: Checkpoint) -> bool:
        return self.clock() + self._ahead_s - checkpoint.passed_at < FRESH_S

    def _save(self, held: _Held, page: RecordPage, asked_at: float) -> None:
        """Save after the work: a crash between them repeats a page; the other order would lose one.

        An empty page passes the time of the request; that progress is saved with the lease.
        """
        before, is_finished = held.checkpoint, page.next_iterator is None
        last, until = before.sequence, asked_at
        if page.records:
            last, until = page.records[-1].sequence, page.records[-1].created_at
        passed_at = max(before.passed_at, until)
        done = replace(before, sequence=last, passed_at=passed_at, is_finished=is_finished)
        is_kept = not (page.records or is_finished) or self.journal.save(self._stream, self.owner, done)
        if not is_kept or is_finished:
            self._held.pop(before.shard, None)
        if is_finished:
            # Its children can be read now, and may not be listed yet.
            self._listed_at = self._claim_at = float("-inf")
        held.checkpoint, held.iterator = done, page.next_iterator
