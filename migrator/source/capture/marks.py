"""Marks (change records) and tickets (numbers that only grow) in the source, read and written by SQL."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from migrator.mapping.items.wire import MARK_COLUMNS, mark_of, write_keys
from migrator.mapping.model.live import (
    LONGEST_WAIT_S,
    TICKETS_AN_EPOCH,
    Change,
    Installation,
    Mark,
    MarksState,
    Root,
    SlotLag,
)
from migrator.mapping.model.table import ItemKey
from migrator.runtime.errors import SourceError
from migrator.source.engines.base import Capturing
from migrator.source.engines.ddl import VERSION, Ddl
from migrator.source.sql.transactions import Writing

# ── Images of marks, as the values that the driver returns for the row itself ──


class Images:
    def __init__(self, capturing: Capturing, connection: Connection, domains: dict[int, int]) -> None:
        self._decode = capturing.decode(connection, domains)

    def read(self, text: str | None) -> dict[str, Any] | None:
        """Read without the table, which may have been altered or dropped since.

        A value that no longer fits its type stays text; an invalid image is empty.
        """
        if text is None:
            return None
        try:
            values = _json(text)
            return {name: self._value(value) for name, value in values.items()}
        except (ValueError, TypeError, AttributeError, ArithmeticError, LookupError, RecursionError):
            return {}

    def _value(self, written: str | None) -> Any:
        if written is None:
            return None
        word, _, text = written.partition(":")
        return self._decode(word, text)


# ── Marks in the source: `model.live.Marks` by SQL ──
#
# A processed mark is deleted, but while any snapshot is open (a dump, a report) the database keeps its remains, and a
# reader of the marks from the first one on scans all of them. So most takes begin where the last ones ended. That is a
# hint, not a cursor: a transaction that commits late brings marks with lower ids, so now and then a take begins at the
# first mark.

_COLUMNS = ", ".join(MARK_COLUMNS)
_FREE = "ready_at <= {now} AND leased_until <= {now}"
_READ = (
    f"SELECT {_COLUMNS}, {{now}} - changed_at AS age_s FROM {{mark}}"
    f" WHERE id >= :begin AND {_FREE} ORDER BY id LIMIT :count"
)
_BROWSE = f"SELECT {_COLUMNS}, 0.0 AS age_s FROM {{mark}} WHERE id >= :begin ORDER BY id LIMIT :count"
_LEASE = "leased_until = {now} + :s, lease_owner = :owner"
_BRING_BACK = (
    "UPDATE {mark} SET leased_until = {now} + :s WHERE leased_until > {now} + :s",
    f"UPDATE {{mark}} SET ready_at = {{now}} + {LONGEST_WAIT_S} WHERE ready_at > {{now}} + {LONGEST_WAIT_S}",
)


_IDS_A_LIST = 500
"""Below the 999 parameters of an old SQLite."""

_NO_MARK = -1
"""No mark has this id."""

_COPIED = "table_name, image_before, image_after, root_entity, root_key, item_keys, tries, changed_at"
_AGAIN = (
    f"INSERT INTO {{mark}} ({_COPIED}, work_cursor) SELECT {_COPIED}, :cursor FROM {{mark}} WHERE id = :id"
)


class Begin:
    """Where a take begins: at the first mark, or slightly before the last one that was taken.

    Takes from the first mark get slower while a snapshot is open. Each is followed by a pause of `pause`
    times its duration, so together they take at most that part of the time. The pause is `longest_s` at most:
    until it ends, no take finds marks that were committed late or released. A failed take is repeated at
    once.
    """

    behind = 1000
    """In ids. Concurrent transactions commit in another order than that of their marks' ids."""
    pause = 20.0
    longest_s = 10.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._last = 0
        self._next_s: float | None = None

    def next(self) -> int:
        with self._lock:
            is_due = self._next_s is None or self._clock() >= self._next_s
            begin = max(0, self._last - self.behind)
            if is_due and begin:
                # Other threads continue from the hint meanwhile.
                self._next_s = float("inf")
            return 0 if is_due else begin

    def took(self, begin: int, took_s: float, ids: Sequence[int]) -> None:
        with self._lock:
            self._last = max([self._last, *ids])
            if not begin:
                self._next_s = self._clock() + min(self.pause * took_s, self.longest_s)

    def given_back(self, ids: Sequence[int]) -> None:
        with self._lock:
            self._last = min([self._last, *ids])

    def restart(self) -> None:
        with self._lock:
            self._next_s = None


class SqlMarks:
    """Thread-safe: each thread has its own connection. `owner`: named in leases."""

    def __init__(
        self, writing: Writing, owner: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.writing = writing
        self._capturing = writing.kind.capturing
        self._owner = owner or uuid.uuid4().hex
        self._domains: dict[int, int] = {}
        self._clock = clock
        self._begin = Begin(clock)

    def take(self, count: int, lease_s: float) -> list[Mark]:
        begin = self._begin.next()
        try:
            taken_marks, took_s = self._take(begin, count, lease_s)
        except BaseException:
            self._begin.restart()
            raise
        self._begin.took(begin, took_s, [mark.id for mark in taken_marks])
        return taken_marks

    def from_the_first(self) -> None:
        self._begin.restart()

    def _take(self, begin: int, count: int, lease_s: float) -> tuple[list[Mark], float]:
        def work(connection: Connection, ddl: Ddl) -> tuple[list[Mark], float]:
            started = self._clock()
            if not begin and not self._capturing.locks_rows:
                # Processes on a file use their hosts' clocks: no lease or pause lasts longer than one that begins now.
                for statement in _BRING_BACK:
                    connection.execute(_text(statement, ddl), {"s": lease_s})
            # Skip rows locked by others instead of waiting.
            chosen = _text(f"{_READ}{self._capturing.locks_rows}", ddl)
            rows = connection.execute(chosen, {"begin": begin, "count": count}).all()
            if rows:
                leased = self._listed(ddl, [row.id for row in rows], _LEASE)
                connection.execute(leased, {"s": lease_s, "owner": self._owner})
            return self._read(connection, rows), self._clock() - started

        return self.writing.write("taking changes", work)

    def finish(self, ids: Sequence[int]) -> int:
        return self._of_marks("acknowledging changes", "", ids)

    def advance(self, mark: Mark, cursor: str) -> None:
        def work(connection: Connection, ddl: Ddl) -> None:
            # Replaced by a new row, behind all others, so no other mark waits for a parent with many children.
            values = {"id": mark.id, "cursor": cursor}
            if connection.execute(_text(_AGAIN, ddl), values).rowcount:
                connection.execute(_text("DELETE FROM {mark} WHERE id = :id", ddl), {"id": mark.id})

        self.writing.write("resuming a change", work)

    def release(self, ids: Sequence[int]) -> None:
        self._of_marks("releasing changes", "leased_until = 0", ids)
        self._begin.given_back(ids)

    def put_back(self, ids: Sequence[int], wait_s: float) -> None:
        values = "tries = tries + 1, ready_at = {now} + :s, leased_until = 0"
        self._of_marks("deferring changes", values, ids, s=wait_s)

    def discard_failed(self, tries: int) -> int:
        def work(connection: Connection, ddl: Ddl) -> int:
            return connection.execute(
                _text("DELETE FROM {mark} WHERE tries >= :tries", ddl), {"tries": tries}
            ).rowcount

        return self.writing.write("discarding changes", work)

    def add(self, roots: Mapping[Root, Sequence[ItemKey]]) -> None:
        statement = (
            "INSERT INTO {mark} (root_entity, root_key, item_keys, changed_at)"
            " VALUES (:entity, :key, :item_keys, {now})"
        )
        rows = [
            {"entity": entity, "key": key, "item_keys": write_keys(keys)}
            for (entity, key), keys in roots.items()
        ]
        self._each("adding changes", statement, rows)

    def pre_mark(self, changes: Sequence[Change], wait_s: float) -> list[Mark]:
        statement = (
            "INSERT INTO {mark} (table_name, image_before, image_after, changed_at, ready_at)"
            " VALUES (:table, :before, :after, {now}, {now} + :s)"
        )
        rows = [
            {"table": change.table, "before": change.before, "after": change.after, "s": wait_s}
            for change in changes
        ]
        self._each("capturing changes", statement, rows)
        return self.shown(changes)

    def shown(self, changes: Sequence[Change]) -> list[Mark]:
        def work(connection: Connection, _: Ddl) -> list[Mark]:
            images = Images(self._capturing, connection, self._domains)
            return [
                Mark(0, change.table, images.read(change.before), images.read(change.after))
                for change in changes
            ]

        return self.writing.write("reading images", work)

    def look(self, after: int, count: int, *, free: bool = False) -> list[Mark]:
        def work(connection: Connection, ddl: Ddl) -> list[Mark]:
            chosen = _text(_READ if free else _BROWSE, ddl)
            rows = connection.execute(chosen, {"begin": after + 1, "count": count}).all()
            return self._read(connection, rows)

        return self.writing.look("reading changes", work)

    def _read(self, connection: Connection, rows: Sequence[Row[Any]]) -> list[Mark]:
        images = Images(self._capturing, connection, self._domains)
        return [mark_of(row[:-1], images.read, float(row[-1] or 0)) for row in rows]

    def state(self) -> MarksState:
        def work(connection: Connection, ddl: Ddl) -> MarksState:
            statement = (
                "SELECT COUNT(CASE WHEN ready_at <= {now} THEN 1 END) AS waiting,"
                " {now} - MIN(CASE WHEN ready_at <= {now} THEN changed_at END) AS age,"
                " COUNT(CASE WHEN tries > 0 THEN 1 END) AS failed,"
                " COUNT(CASE WHEN ready_at > {now} THEN 1 END) AS unripe FROM {mark}"
            )
            row = connection.execute(_text(statement, ddl)).one()
            return MarksState(row.waiting, max(0.0, float(row.age or 0)), row.failed, row.unripe)

        return self.writing.look("counting changes", work)

    def exact(self) -> SqlMarks:
        """Itself: a change is a mark at once, so a count includes every earlier commit."""
        return self

    def lag(self) -> SlotLag | None:
        return None

    def probe(self) -> None:
        """Try all statements of a relay on no marks. Raises: SourceError, which names the missing right."""

        def work(connection: Connection, ddl: Ddl) -> None:
            again = _AGAIN.replace(":cursor", "NULL").replace("id = :id", "1 = 0")
            for tried in (f"SELECT {_COLUMNS} FROM {{mark}} WHERE 1 = 0", again):
                connection.execute(_text(tried, ddl))
            for values in ("leased_until = 0", ""):
                connection.execute(self._listed(ddl, [_NO_MARK], values))

        self.writing.write("reading the table of changes", work)

    def close(self) -> None:
        self.writing.close()

    def _of_marks(self, doing: str, values: str, ids: Sequence[int], **parameters: float) -> int:
        """Set the values of these marks, or delete them without values. Returns the number of existing marks."""
        # In one order, which prevents deadlocks.
        ordered = sorted(ids)
        lists = [ordered[start : start + _IDS_A_LIST] for start in range(0, len(ids), _IDS_A_LIST)]

        def work(connection: Connection, ddl: Ddl) -> int:
            statements = [self._listed(ddl, listed, values) for listed in lists]
            return sum(connection.execute(one, parameters).rowcount for one in statements)

        return self.writing.write(doing, work) if lists else 0

    def _listed(self, ddl: Ddl, ids: Sequence[int], values: str) -> sa.TextClause:
        """Numbers in the text: a parameter each would cost the driver more than the mark."""
        statement = self._capturing.updates_listed if values else self._capturing.deletes_listed
        numbers = ", ".join(map(str, map(int, ids)))
        return _text(statement.replace("{values}", values).replace("{ids}", numbers), ddl)

    def _each(self, doing: str, statement: str, rows: list[dict[str, Any]]) -> int:
        def work(connection: Connection, ddl: Ddl) -> int:
            return connection.execute(_text(statement, ddl), rows).rowcount

        return self.writing.write(doing, work) if rows else 0


def _text(statement: str, ddl: Ddl) -> sa.TextClause:
    return sa.text(statement.replace("{mark}", ddl.mark).replace("{now}", ddl.now))


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        # Half of a surrogate pair, and numbers that are invalid in JSON.
        return json.loads(text)


# ── The counter of tickets in the source: `model.live.Tickets` by SQL ──

FIRST_EPOCH = 1


class SqlTickets:
    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def draw(self) -> int:
        def work(connection: Connection, ddl: Ddl) -> int:
            # The row stays locked until the commit, so the SELECT sees this number and no other.
            connection.execute(sa.text(f"UPDATE {ddl.ticket} SET number = number + 1 WHERE id = 1"))
            return self._counter(connection, ddl).ticket

        return self._writing.write("drawing a ticket", work)

    def highest(self) -> int:
        return self._writing.look("reading the last ticket", self._counter).ticket

    def generation(self) -> tuple[str, int]:
        current = self._writing.look("reading capture's installation", self._counter)
        return current.id, current.epoch

    def raise_epoch(self, above: int) -> int:
        def work(connection: Connection, ddl: Ddl) -> int:
            connection.execute(sa.text(f"UPDATE {ddl.ticket} SET number = number WHERE id = 1"))
            current = self._counter(connection, ddl)
            epoch = max(current.epoch, above // TICKETS_AN_EPOCH) + 1
            raised = sa.text(f"UPDATE {ddl.ticket} SET epoch = :epoch, number = 0 WHERE id = 1")
            connection.execute(raised, {"epoch": epoch})
            return epoch

        return self._writing.write("raising the epoch", work)

    def probe(self) -> None:
        """Try the rights without a draw. Raises: SourceError, which names the missing right."""

        def work(connection: Connection, ddl: Ddl) -> None:
            self._counter(connection, ddl)
            connection.execute(sa.text(f"UPDATE {ddl.ticket} SET number = number WHERE 1 = 0"))

        self._writing.write("trying our tickets", work)

    def close(self) -> None:
        self._writing.close()

    def _counter(self, connection: Connection, ddl: Ddl) -> Installation:
        current = counter(connection, ddl)
        if current is None or current.version != VERSION:
            what_is_wrong = (
                "has lost its ticket row" if current is None else f"is of version {current.version}"
            )
            what = f"{self._writing.place}: capture {what_is_wrong}, this migrator needs version {VERSION}"
            raise SourceError(f"{what}; run `migrator capture install` with this job")
        return current


def counter(connection: Connection, ddl: Ddl) -> Installation | None:
    statement = f"SELECT epoch, number, installation, version, job, marked_by FROM {ddl.ticket} WHERE id = 1"
    row = connection.execute(sa.text(statement)).first()
    if row is None:
        return None
    epoch, number, installation, version, job, marked_by = row
    return Installation(installation, job, version, epoch, epoch * TICKETS_AN_EPOCH + number, marked_by)
