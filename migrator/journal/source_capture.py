"""The ticket counter and marks in the journal, for a source that cannot store our tables."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, Select, bindparam, case, delete, func, insert, literal, select, update

from migrator.journal.database import Database, OfJob, bring_back, reading, repeatable, seconds
from migrator.journal.records import KeptRecords
from migrator.journal.schema import source_mark
from migrator.mapping.items.wire import MARK_COLUMNS, mark_of, write_keys
from migrator.mapping.model.live import (
    LONGEST_WAIT_S,
    TICKETS_AN_EPOCH,
    Image,
    Installation,
    KeptMark,
    Mark,
    MarksState,
    Root,
)
from migrator.mapping.model.table import ItemKey
from migrator.runtime.errors import SourceError
from migrator.runtime.values import replace

VERSION = 1
"""Version of both tables' content; raised with every change of it."""
FIRST_EPOCH = 1
ReadImage = Callable[[str, str], Image]
"""From a table's name and an image's text to its values; empty for an invalid image."""

# ── The counter: `model.live.Tickets` ──


class Counter(Struct, frozen=True):
    """A job's counter, and its installation of capture; '' after capture was removed, which keeps the counter."""

    installation: str
    version: int = VERSION
    epoch: int = FIRST_EPOCH
    number: int = 0

    @property
    def ticket(self) -> int:
        return self.epoch * TICKETS_AN_EPOCH + self.number


COUNTERS = KeptRecords[Counter]("source_capture", Counter)


class JournalTickets(OfJob):
    """Tickets of one job. Any linearizable counter works, because a ticket is drawn before the rows are read."""

    @repeatable
    def draw(self, connection: Connection) -> int:
        # Locked until the commit, so that no other process draws the same number.
        before = self._sound(COUNTERS.lock(connection, self.job))
        return self._put(connection, replace(before, number=before.number + 1)).ticket

    def highest(self) -> int:
        return self._sound(COUNTERS.read(self.database, self.job)).ticket

    def generation(self) -> tuple[str, int]:
        counter = self._sound(COUNTERS.read(self.database, self.job))
        return counter.installation, counter.epoch

    def probe(self) -> None:
        """Raises: SourceError if the counter does not exist."""
        self.highest()

    @repeatable
    def raise_epoch(self, connection: Connection, above: int) -> int:
        before = self._sound(COUNTERS.lock(connection, self.job))
        epoch = max(before.epoch, above // TICKETS_AN_EPOCH) + 1
        return self._put(connection, replace(before, epoch=epoch, number=0)).epoch

    def installed(self) -> Installation | None:
        counter = COUNTERS.read(self.database, self.job)
        if counter is None or not counter.installation:
            return None
        return Installation(counter.installation, self.job, counter.version, counter.epoch, counter.ticket)

    @repeatable
    def install(self, connection: Connection) -> None:
        """Start an installation. The counter continues: no ticket is ever drawn twice."""
        new = uuid.uuid4().hex
        before = COUNTERS.lock(connection, self.job) or Counter(new)
        self._put(connection, replace(before, installation=new, version=VERSION))

    @repeatable
    def uninstall(self, connection: Connection) -> None:
        if (before := COUNTERS.lock(connection, self.job)) is not None:
            self._put(connection, replace(before, installation=""))

    def _put(self, connection: Connection, counter: Counter) -> Counter:
        COUNTERS.put(connection, self.job, counter)
        return counter

    def _sound(self, counter: Counter | None) -> Counter:
        if counter is None or not counter.installation:
            what = f"capture is not installed for job {self.job}, so changes are not recorded"
            raise SourceError(f"{what}; run `migrator capture install` with this job")
        if counter.version != VERSION:
            what = f"capture of job {self.job} is of version {counter.version}, this migrator needs version {VERSION}"
            raise SourceError(f"{what}; run `migrator capture install` with this job")
        return counter


# ── Marks: `model.live.MarkKeeper` ──

_MARKS = select(*(source_mark.c[name] for name in MARK_COLUMNS), source_mark.c.changed_at)
_COPIED = (
    *(source_mark.c.job, source_mark.c.table_name, source_mark.c.image_before, source_mark.c.image_after),
    *(source_mark.c.root_entity, source_mark.c.root_key, source_mark.c.item_keys),
    *(source_mark.c.tries, source_mark.c.changed_at),
)
_BLANK: Mapping[str, Any] = {
    **{"table_name": "", "image_before": None, "image_after": None, "root_entity": None, "root_key": None},
    **{"item_keys": "[]", "work_cursor": "", "tries": 0, "ready_at": 0.0, "leased_until": 0.0},
}


class JournalMarks(OfJob):
    """Each take begins at the first mark: unlike in a source, no long transaction of a service delays the
    cleanup of processed marks.
    """

    def __init__(self, database: Database, job: str, read_image: ReadImage) -> None:
        super().__init__(database, job)
        self._read_image = read_image
        self._own = source_mark.c.job == job

    @repeatable
    def store(self, connection: Connection, marks: Sequence[KeptMark]) -> None:
        now = seconds(connection)
        self._insert(
            connection,
            [
                {
                    **{"table_name": mark.table, "image_before": mark.before, "image_after": mark.after},
                    # A delayed mark becomes a change of the moment when it may be taken.
                    "changed_at": min(now, mark.changed_at) + mark.ready_in_s,
                    "ready_at": now + mark.ready_in_s if mark.ready_in_s else 0.0,
                }
                for mark in marks
            ],
        )

    @repeatable
    def add(self, connection: Connection, roots: Mapping[Root, Sequence[ItemKey]]) -> None:
        now = seconds(connection)
        self._insert(
            connection,
            [
                {"root_entity": name, "root_key": key, "item_keys": write_keys(keys), "changed_at": now}
                for (name, key), keys in roots.items()
            ],
        )

    # Repeated, it takes the same marks and further ones: those of the first time return when their lease ends.
    @repeatable
    def take(self, connection: Connection, count: int, lease_s: float) -> list[Mark]:
        now = seconds(connection)
        bring_back(connection, source_mark.c.leased_until, now + lease_s, self._own)
        bring_back(connection, source_mark.c.ready_at, now + LONGEST_WAIT_S, self._own)
        chosen = self._free(now).order_by(source_mark.c.id).limit(count)
        # Skip rows locked by others instead of waiting.
        rows = connection.execute(chosen.with_for_update(skip_locked=True)).all()
        self._each(
            connection, update(source_mark).values(leased_until=now + lease_s), [row.id for row in rows]
        )
        return [self._mark(row, now) for row in rows]

    def from_the_first(self) -> None:
        """Does nothing: every take starts at the first mark."""

    @repeatable
    def finish(self, connection: Connection, ids: Sequence[int]) -> int:
        return self._each(connection, delete(source_mark), ids)

    @repeatable
    def advance(self, connection: Connection, mark: Mark, cursor: str) -> None:
        # Replaced by a new row, behind all others, so no other mark waits for a parent with many children.
        columns = (*_COPIED, literal(cursor), literal(0.0), literal(0.0))
        again: Select[Any] = select(*columns).where(self._own, source_mark.c.id == mark.id)
        names = [*(column.name for column in _COPIED), "work_cursor", "ready_at", "leased_until"]
        if connection.execute(insert(source_mark).from_select(names, again)).rowcount:
            self._each(connection, delete(source_mark), [mark.id])

    @repeatable
    def release(self, connection: Connection, ids: Sequence[int]) -> None:
        self._each(connection, update(source_mark).values(leased_until=0.0), ids)

    # Repeated, a failure counts twice, and the mark waits slightly longer.
    @repeatable
    def put_back(self, connection: Connection, ids: Sequence[int], wait_s: float) -> None:
        ready_at = seconds(connection) + wait_s
        again = {"tries": source_mark.c.tries + 1, "ready_at": ready_at, "leased_until": 0.0}
        self._each(connection, update(source_mark).values(**again), ids)

    @repeatable
    def discard_failed(self, connection: Connection, tries: int) -> int:
        return connection.execute(delete(source_mark).where(self._own, source_mark.c.tries >= tries)).rowcount

    @reading
    def look(self, connection: Connection, after: int, count: int, *, free: bool = False) -> list[Mark]:
        now = seconds(connection)
        looked = self._free(now) if free else _MARKS.where(self._own)
        later = looked.where(source_mark.c.id > after).order_by(source_mark.c.id)
        return [self._mark(row, now) for row in connection.execute(later.limit(count))]

    def _free(self, now: float) -> Select[Any]:
        return _MARKS.where(self._own, source_mark.c.ready_at <= now, source_mark.c.leased_until <= now)

    @reading
    def state(self, connection: Connection) -> MarksState:
        now = seconds(connection)
        is_ripe = source_mark.c.ready_at <= now
        counted = select(
            func.count(case((is_ripe, 1))),
            func.min(case((is_ripe, source_mark.c.changed_at))),
            func.count(case((source_mark.c.tries > 0, 1))),
            func.count(case((~is_ripe, 1))),
        ).where(self._own)
        waiting, oldest, failed, unripe = connection.execute(counted).one()
        return MarksState(waiting, 0.0 if oldest is None else max(0.0, now - oldest), failed, unripe)

    @reading
    def by_table(self, connection: Connection) -> dict[str, int]:
        counted = select(source_mark.c.table_name, func.count()).where(self._own)
        rows = connection.execute(counted.group_by(source_mark.c.table_name)).all()
        return {str(name or ""): int(count) for name, count in rows}

    @repeatable
    def discard(self, connection: Connection) -> None:
        connection.execute(delete(source_mark).where(self._own))

    def _insert(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            connection.execute(insert(source_mark), [{**_BLANK, "job": self.job, **row} for row in rows])

    def _each(self, connection: Connection, change: Any, ids: Sequence[int]) -> int:
        """One by one: MySQL would lock the gaps between those of a list. In one order, which prevents deadlocks."""
        if not ids:
            return 0
        of_id = change.where(self._own, source_mark.c.id == bindparam("of_id"))
        return connection.execute(of_id, [{"of_id": number} for number in sorted(ids)]).rowcount

    def _mark(self, row: Sequence[Any], now: float) -> Mark:
        columns, changed_at = row[:-1], row[-1]

        def read(text: str | None) -> Image | None:
            return None if text is None else self._read_image(columns[1], text)

        return mark_of(columns, read, now - changed_at)
