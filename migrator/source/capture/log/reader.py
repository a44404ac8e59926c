"""Copies changes from the log into our marks, in commit order; the server gets its confirmation after our commit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from migrator.mapping.model.live import SLOT_MEND, KeptMark, Mark, MarksState, SlotLag
from migrator.runtime.errors import LostRecordsError, SourceError
from migrator.runtime.logs import get_logger
from migrator.runtime.values import replace
from migrator.source.capture.install import SqlActivity
from migrator.source.capture.log import decoder
from migrator.source.capture.log.decoder import Relation, Row, RowChange, Unchanged, Value, lsn_of, lsn_text
from migrator.source.capture.log.place import (
    LOG,
    LogPlace,
    MarkedTable,
    loss,
    place_of_log,
    slot_lag,
    slot_named,
    tables_of,
)
from migrator.source.capture.log.protocol import Data, Keepalive, SlotInUseError, Stream
from migrator.source.capture.marks import SqlMarks
from migrator.source.engines.ddl import Ddl
from migrator.source.sql.transactions import Writing

# ── Marks of changes in the log: images in the form that triggers write. Pure ──


def whole_table(table: MarkedTable, at: float) -> KeptMark:
    """A mark that says: any row of the table may have changed."""
    return KeptMark(table.name, None, None, at)


class RelationMarks(Struct, frozen=True, dict=True):
    """Makes marks of the changes of one relation as the log describes it, which is `table` or a partition of it."""

    table: MarkedTable
    relation: Relation

    def kept(self, change: RowChange, at: float) -> KeptMark | None:
        """None if no watched column changed."""
        if self._is_unwatched(change):
            return None
        # In the image of a key all other columns are NULL, even if they hold values.
        full_old = None if change.old_is_key else change.old
        after = self._image(self._places, change.new, full_old, change.old)
        # If an UPDATE has no image before, the columns of the identity are as they were.
        old = change.old or (change.new if change.kind == "update" else None)
        before = self._image(self._identity, old, change.new, change.new)
        if after is UNKNOWN or before is UNKNOWN:
            return whole_table(self.table, at)
        return KeptMark(self.table.name, _text(before), _text(after), at)

    @cached_property
    def _places(self) -> dict[str, int]:
        """By real name."""
        return {column.name: place for place, column in enumerate(self.relation.columns)}

    @cached_property
    def _identity(self) -> dict[str, int]:
        return {column.name: place for place, column in enumerate(self.relation.columns) if column.is_key}

    def _image(
        self, places: Mapping[str, int], row: Row | None, other: Row | None, other_key: Row | None
    ) -> _Image | None:
        """Columns that the log does not hold are left out; a mark without them becomes a finding. `other`,
        `other_key`: where a value that the row leaves out may stand, of any column and of one of the identity."""
        if row is None:
            return None
        image: _Image = {}
        for name, real in self.table.columns:
            place = places.get(real)
            if place is None:
                continue
            value = row[place]
            if isinstance(value, Unchanged):
                found = other_key if self.relation.columns[place].is_key else other
                value = value if found is None else found[place]
            if isinstance(value, Unchanged):
                return UNKNOWN
            image[name] = self._written(place, value)
        return image

    def _written(self, place: int, value: bytes | None) -> str | None:
        if value is None:
            return None
        return f"{self.relation.columns[place].type_oid}:{value.decode(errors='surrogateescape')}"

    def _is_unwatched(self, change: RowChange) -> bool:
        watched, places = self.table.watched, self._places
        if watched is None or change.old is None or change.new is None or change.old_is_key:
            return False
        # A column that the log leaves out, as a generated one, is made of others.
        if not watched <= places.keys():
            return False
        return all(_is_same(change.old[places[name]], change.new[places[name]]) for name in watched)


_Image = dict[str, "str | None"]
UNKNOWN: _Image = {"": None}
"""Of a row whose value the log left out, and does not hold elsewhere."""


def _is_same(old: Value, new: Value) -> bool:
    return isinstance(new, Unchanged) or old == new


def _text(image: _Image | None) -> str | None:
    return None if image is None else json.dumps(image)


PREFIX = "migrator"
"""Of messages by which a process asks a reader to keep what it has read at once."""
MARKS_AT_ONCE = 2_000
TURN_S = 1.0
IDLE_S = 10.0
"""How often the position goes on while nothing that we capture changes: the server may remove its log then."""
LOOK_S = 1.0
"""How often a reader looks whether it is still to read, and another one whether it may."""
_UNSEEN_S = 0.02
_log = get_logger("log_capture")

_ANCESTORS = sa.text("""
    SELECT n.nspname || '.' || c.relname AS name,
        EXISTS (SELECT FROM pg_catalog.pg_publication_rel p JOIN pg_catalog.pg_publication o ON o.oid = p.prpubid
            WHERE o.pubname = :slot AND p.prrelid = c.oid) AS is_published
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = CAST(:oid AS oid)
        OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors(CAST(:oid AS oid)))
""")
_PARTITIONED = sa.text("""
    SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'p'
""")
_KEEP = sa.text(f"""
    UPDATE {LOG} SET lsn = greatest(lsn, CAST(:lsn AS pg_lsn)), passed_at = greatest(passed_at, :at)
    WHERE id = 1 AND slot = :slot AND tables = :tables
""")
_SNAPSHOT = "SELECT pg_catalog.pg_current_snapshot()::text"
_ASK = f"SELECT pg_catalog.pg_logical_emit_message(true, '{PREFIX}', '')::text"


class _ChangedError(Exception):
    """The row says something else than the reader goes by: another slot, other tables, or it is gone."""


@dataclass
class _Opened:
    """A stream, and what was read of it. `marks`: not stored yet; `lsn`: up to where they are all there is; `is_asked`: a
    process waits for what was read to be stored."""

    stream: Stream
    place: LogPlace
    tables: dict[str, MarkedTable]
    relations: dict[int, list[RelationMarks]] = field(default_factory=dict)
    marks: list[KeptMark] = field(default_factory=list)
    lsn: int = 0
    at: float = 0.0
    commit_at: float = 0.0
    xid: int = 0
    xids: set[int] = field(default_factory=set)
    """Transactions that the marks are of."""
    is_within: bool = False
    is_asked: bool = False
    stored_at: float = float("-inf")
    looked_at: float = float("-inf")


@dataclass
class LogReader:
    """The reader of the job's slot in this process, by one thread at a time. `connect`: opens the log's stream."""

    writing: Writing
    connect: Callable[[], Stream]
    clock: Callable[[], float] = time.monotonic
    is_on: bool = False
    """Whether the log was captured when it was looked at last."""
    _opened: _Opened | None = None
    _try_at: float = float("-inf")

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def place(self) -> LogPlace | None:
        """How far the log is copied; None where it is not captured."""
        return self.writing.look("looking at the log's place", lambda connection, _: place_of_log(connection))

    def ask(self) -> int:
        """A position in the log that every change committed by now comes before; a reader stores what it has up to there."""

        def work(connection: Connection, _: Ddl) -> str:
            return str(connection.exec_driver_sql(_ASK).scalar_one())

        return lsn_of(self.writing.write("asking the log's reader", work))

    def turn(self, until: int = 0) -> bool:
        """Copies what there is, for about TURN_S; `until`: at least that position is waited for so long. False where another
        reader has the slot, or none is to read.

        Raises: LostRecordsError where the slot misses changes; SourceError.
        """
        opened = self._opened or self._open()
        if opened is None:
            return False
        try:
            self._read(opened, until)
        except _ChangedError:
            self.close()
        except SourceError as error:
            # What was read and not stored comes again.
            self.close()
            self._refuse_lost()
            _log.warning("log_stream_ended", reason=str(error))
        except BaseException:
            self.close()
            raise
        return True

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.stream.close()

    # ── the stream ──

    def _open(self) -> _Opened | None:
        if self.clock() < self._try_at:
            return None
        self._try_at = self.clock() + LOOK_S
        place = self._refuse_lost()
        self.is_on = place is not None
        if place is None or self._is_read(place):
            return None
        stream = self.connect()
        try:
            stream.start(place.slot, place.slot)
        except SlotInUseError:
            stream.close()
            return None
        except SourceError:
            stream.close()
            self._refuse_lost()
            raise
        # Only now: whoever had the slot before has stored all that it will.
        known = self._refuse_lost()
        if known is None or known.slot != place.slot:
            stream.close()
            return None
        self._opened = _Opened(stream, known, tables_of(known.tables), lsn=known.lsn)
        _log.info("log_stream_opened", slot=place.slot)
        return self._opened

    def _is_read(self, place: LogPlace) -> bool:
        """Whether another reader has the slot: who may not open a replication connection can wait for that one."""

        def work(connection: Connection, _: Ddl) -> bool:
            slot = slot_named(connection, place.slot)
            return slot is not None and slot.active_pid is not None

        return self.writing.look("looking at the replication slot", work)

    def _refuse_lost(self) -> LogPlace | None:
        """The place. Raises: LostRecordsError."""

        def work(connection: Connection, _: Ddl) -> tuple[LogPlace | None, str]:
            place = place_of_log(connection)
            return place, "" if place is None else loss(connection, place)

        place, lost = self.writing.look("looking at the replication slot", work)
        if lost:
            raise LostRecordsError(f"{self.writing.place}: {lost}, so changes may be missing; {SLOT_MEND}")
        return place

    def _read(self, opened: _Opened, until: int) -> None:
        end = self.clock() + TURN_S
        if opened.xids and not self._store(opened):
            time.sleep(_UNSEEN_S)
            return
        if until:
            opened.stream.ask()
        while self.clock() < end:
            received = opened.stream.receive(0.05 if opened.lsn < until else 0.0)
            if received is None:
                if opened.lsn >= until or opened.stream.waits:
                    break
                continue
            self._take(opened, received)
            is_full = len(opened.marks) >= MARKS_AT_ONCE or (opened.is_asked and not opened.is_within)
            if is_full and not self._store(opened):
                return
        is_due = opened.lsn > opened.place.lsn and self.clock() - opened.stored_at >= IDLE_S
        if opened.marks or is_due or opened.stream.waits:
            self._store(opened)
        elif self.clock() - opened.looked_at >= LOOK_S:
            self._look(opened)

    def _take(self, opened: _Opened, received: Data | Keepalive) -> None:
        if isinstance(received, Keepalive):
            if not opened.is_within and received.lsn > opened.lsn:
                opened.lsn, opened.at = received.lsn, received.at
            if received.wants_reply:
                opened.stream.confirm(0)
            return
        match decoder.decode(received.payload):
            case decoder.Begin(at=at, xid=xid):
                opened.is_within, opened.commit_at, opened.xid = True, at, xid
            case decoder.Commit(end_lsn=end_lsn):
                opened.is_within, opened.lsn, opened.at = False, end_lsn, opened.commit_at
            case decoder.Relation() as relation:
                opened.relations[relation.oid] = self._marks_of(opened, relation)
            case decoder.RowChange() as change:
                made = (one.kept(change, opened.commit_at) for one in opened.relations[change.relation])
                opened.marks += [mark for mark in made if mark is not None]
                opened.xids.add(opened.xid)
            case decoder.Truncate(relations=oids):
                tables = {one.table.name: one.table for oid in oids for one in opened.relations[oid]}
                opened.marks += [whole_table(table, opened.commit_at) for table in tables.values()]
                opened.xids.add(opened.xid)
            case decoder.Emitted(prefix=prefix):
                opened.is_asked |= prefix == PREFIX
            case decoder.Ignored():
                pass

    def _marks_of(self, opened: _Opened, relation: decoder.Relation) -> list[RelationMarks]:
        """Of the captured tables that it is, or is a partition of; a partition that is gone may have been any table's."""

        def work(connection: Connection, _: Ddl) -> tuple[set[str], bool, set[str]]:
            rows = connection.execute(_ANCESTORS, {"oid": relation.oid, "slot": opened.place.slot}).all()
            is_published = any(row.is_published for row in rows)
            return {row.name for row in rows}, is_published, set(connection.scalars(_PARTITIONED))

        names, is_published, partitioned = self.writing.look("looking at a partition", work)
        known = (names | {f"{relation.schema}.{relation.name}"}) & opened.tables.keys()
        if not known and not is_published:
            held = {column.name for column in relation.columns}
            known = {name for name in partitioned & opened.tables.keys() if opened.tables[name].reals <= held}
        return [RelationMarks(opened.tables[name], relation) for name in sorted(known)]

    # ── what is kept ──

    def _store(self, opened: _Opened) -> bool:
        """Marks and position in one transaction, then the confirmation: a crash between the two repeats marks.

        False where a transaction of theirs is not visible yet: who reads its rows now finds them as they were before.
        """
        marks, lsn = opened.marks, opened.lsn
        values = {
            "lsn": lsn_text(lsn),
            "at": opened.at,
            "slot": opened.place.slot,
            "tables": opened.place.tables,
        }

        def work(connection: Connection, ddl: Ddl) -> bool | None:
            # In this order: what this snapshot sees every reading sees that a mark of ours leads to.
            snapshot = str(connection.exec_driver_sql(_SNAPSHOT).scalar_one())
            if not all(decoder.is_visible(xid, snapshot) for xid in opened.xids):
                return None
            is_same = bool(connection.execute(_KEEP, values).rowcount)
            if is_same and marks:
                connection.execute(sa.text(_INSERT.format(mark=ddl.mark)), _rows(marks))
            return is_same

        is_stored = self.writing.write("copying the log", work)
        if is_stored is None:
            return False
        if not is_stored:
            raise _ChangedError
        opened.marks, opened.is_asked = [], False
        opened.xids.clear()
        opened.stored_at = opened.looked_at = self.clock()
        opened.stream.confirm(lsn)
        return True

    def _look(self, opened: _Opened) -> None:
        opened.looked_at = self.clock()
        place = self.place()
        if place is None or (place.slot, place.tables) != (opened.place.slot, opened.place.tables):
            raise _ChangedError


_INSERT = "INSERT INTO {mark} (table_name, image_before, image_after, changed_at) VALUES (:table, :before, :after, :at)"


def _rows(marks: Sequence[KeptMark]) -> list[dict[str, object]]:
    return [
        {"table": mark.table, "before": mark.before, "after": mark.after, "at": mark.changed_at}
        for mark in marks
    ]


# ── Marks of a source whose log is captured: what triggers would leave there, a reader copies before marks are taken ──

COPY_S = 0.5
"""The log is copied this often at least while it is captured and marks wait: a slot keeps the server's log."""
UNCAPTURED_LOOK_S = 5.0
"""How often a process whose source's log is not captured looks whether it is by now."""
UNSEEN_S = 30.0
"""A log that was not copied for so long counts as a mark that waits."""
EXACT_S = 10.0
"""So long an exact count waits for the reader; then the log counts as a mark that waits."""
_PAUSE_S = 0.1


class LogMarks(SqlMarks):
    """SqlMarks of PostgreSQL. Where the log is captured it is copied before marks are taken, and to its end before anything
    counts on there being none; where triggers leave the marks it is SqlMarks.

    `wait`: a pause, which raises Interrupted where the command is to end. `is_over`: whether no relay needs to read.
    """

    def __init__(
        self,
        writing: Writing,
        reader: LogReader,
        wait: Callable[[float], None] = time.sleep,
        is_over: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(writing, clock=clock)
        self.reader = reader
        self._wait = wait
        self._is_over = is_over
        self._copying = Lock()
        self._is_exact = False
        self._copy_at = float("-inf")
        self._is_short = True
        self._drain_asked_at = float("-inf")
        self._drained_at = float("-inf")

    def take(self, count: int, lease_s: float) -> list[Mark]:
        """Raises: LostRecordsError where the slot misses changes, and as SqlMarks' does."""
        self._drain_where_asked()
        # First: were it to fail afterwards, marks that were taken would wait for the end of their lease.
        now = self._clock()
        if now >= self._copy_at or (self._is_short and self.reader.is_open):
            self._copy()
        taken = super().take(count, lease_s)
        self._is_short = len(taken) < count
        return taken

    def from_the_first(self) -> None:
        self._drain_asked_at = self._clock()
        super().from_the_first()

    def look(self, after: int, count: int, *, free: bool = False) -> list[Mark]:
        if not after:
            self.drain()
        return super().look(after, count, free=free)

    def state(self) -> MarksState:
        """A log that is behind counts as a mark, as old as what it may hold."""
        self._drain_where_asked()
        is_behind = self._is_exact and not self._drains_within(EXACT_S)
        state, lag = super().state(), self.lag()
        is_behind |= lag is not None and (bool(lag.lost) or lag.seconds > UNSEEN_S)
        if lag is None:
            return state
        state = replace(state, slot=lag)
        if not is_behind or self._is_over():
            return state
        return replace(state, waiting=state.waiting + 1, oldest_age_s=max(state.oldest_age_s, lag.seconds))

    def lag(self) -> SlotLag | None:
        """How far the log is behind; None where it is not captured."""

        def work(connection: Connection, ddl: Ddl) -> SlotLag | None:
            place = place_of_log(connection)
            if place is None:
                return None
            now = float(connection.exec_driver_sql(f"SELECT {ddl.now}").scalar_one())
            return slot_lag(connection, place, now)

        return self.writing.look("looking at the replication slot", work)

    def drain(self) -> None:
        """Returns when all that was committed by now is among the marks, by any reader.

        Raises: LostRecordsError; SourceError; Interrupted.
        """
        self._drains_within(float("inf"))

    def exact(self) -> LogMarks:
        """Counts from now on are of all that was committed before; as many as that where it cannot be known in time."""
        self._is_exact = True
        return self

    def probe(self) -> None:
        super().probe()
        if self.reader.place() is not None:
            tried = sa.text(f"UPDATE {LOG} SET lsn = lsn WHERE 1 = 0")
            self.writing.write("trying to copy the log", lambda connection, _: connection.execute(tried))

    def _drains_within(self, limit_s: float) -> bool:
        begun_at = self._clock()
        until = 0 if self.reader.place() is None else self.reader.ask()
        while until and not self._has_passed(until):
            # Another thread that copies needs the time as well as another process.
            if not self._copy(until):
                self._wait(_PAUSE_S)
            if self._clock() - begun_at > limit_s:
                return False
        self._drained_at = begun_at
        return True

    def leave(self) -> None:
        """Another reader may have the slot."""
        with self._copying:
            self.reader.close()

    def close(self) -> None:
        self.leave()
        super().close()

    def _has_passed(self, until: int) -> bool:
        place: LogPlace | None = self.reader.place()
        return place is None or place.lsn >= until

    def _drain_where_asked(self) -> None:
        if self._drained_at < self._drain_asked_at:
            self.drain()

    def _copy(self, until: int = 0) -> bool:
        """Whether this thread has copied: none does where another one is at it."""
        if not self._copying.acquire(blocking=False):
            return False
        try:
            is_reader = self.reader.turn(until)
            self._copy_at = self._clock() + (COPY_S if self.reader.is_on else UNCAPTURED_LOOK_S)
            return is_reader
        finally:
            self._copying.release()


class LogActivity(SqlActivity):
    """SqlActivity of a source whose log may be captured: what is not copied yet is copied before it counts marks."""

    def __init__(self, writing: Writing, marks: LogMarks) -> None:
        super().__init__(writing)
        self._marks = marks

    def waiting(self, tables: Sequence[str]) -> Mapping[str, int]:
        self._marks.drain()
        return super().waiting(tables)
