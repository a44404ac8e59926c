"""The rows that a statement changed: before and after images, generated keys, resolved table names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from msgspec import Struct
from sqlalchemy.engine import Connection

from migrator.mapping.model.live import Change
from migrator.runtime.errors import UnmarkedError, amount
from migrator.source.adapter.driver import Driver, Row, returned_rows
from migrator.source.adapter.images import Key, RowImages, Shown, State, StatementKeys
from migrator.source.adapter.statement import words_of
from migrator.source.adapter.tables import CapturedTable
from migrator.source.engines.base import Lock
from migrator.source.engines.catalogue import Place

# ── A statement under way: its keys, the rows before it, and the rows that it changed ──


class Changed(Struct, frozen=True):
    """One row that a transaction changed: images as marks hold them; None is no row."""

    table: CapturedTable
    before: str | None
    after: str | None


@dataclass
class Pending:
    """A statement that is about to run. `states`: the rows as they are before it, by table.

    `own_keys`: keys of rows that the statement itself chooses, not a foreign key. `returning`: SQL to be added so that it
    returns generated keys; `made`: keys that it returned. `done_before`: Driver.done before it.
    """

    statement: StatementKeys
    states: dict[Place, State] = field(default_factory=dict)
    own_keys: list[Key] = field(default_factory=list)
    read_by_where: bool = False
    returning: str = ""
    made: list[Key] = field(default_factory=list)
    done_before: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether the statement is run once for each of its parameters, so that its keys are known."""
        return bool(self.returning) and len(self.statement.parameters) > 1

    def may_be_kept(self, driver: Driver, text: str, *, is_refused: bool) -> bool:
        """Whether the transaction may keep changes of the failed statement.

        `is_refused`: the database refused it; else the caller failed, perhaps after it ran. PostgreSQL keeps nothing of
        a refused statement, the others keep what earlier parameters did, SQLite also the part before OR FAIL.
        """
        is_many = len(self.statement.parameters) > 1
        rule = driver.engine.outcomes.keeps_refused
        if rule == "counted":
            in_parts = is_many or self.statement.table.keeps_parts or "fail" in words_of(text)
            return driver.done != self.done_before and (in_parts or not is_refused)
        return not is_refused or (is_many and rule == "earlier")


# ── The keys of rows that an INSERT made ──


def made_keys(driver: Driver, pending: Pending, cursor: Any) -> list[Key]:
    """The keys of rows that an INSERT made: named by it, returned, or the last one that the database generated."""
    table, rules = pending.statement.table, driver.engine.outcomes
    if pending.made:
        return pending.made
    inserted = pending.statement.inserted
    if rules.zero_makes_key and inserted == [(0,)] and (last := driver.last_key(cursor)):
        return [(last,)]
    if all(None not in key for key in inserted):
        return inserted
    if pending.returning and rules.returns_keys:
        return returned_rows(cursor)
    places = pending.statement.returned
    if places and rules.rereads_returned:
        return [tuple(row[at] for at in places) for row in returned_rows(cursor)]
    last = driver.last_key(cursor) if len(table.key) == 1 and rules.last_key is not None else None
    if last and (len(inserted) == 1 or (rules.counts_keys_on and set(inserted) == {(None,)})):
        return [(last - number,) for number in range(len(inserted))]
    what = f"dual write: this INSERT into {table.name} does not say the keys that the database makes"
    raise UnmarkedError(f"{what}; give them with the rows, or let it give them back (RETURNING, or the ORM)")


def made_alone(driver: Driver, cursor: Any) -> list[Key]:
    """The keys that one of many executions of an INSERT made, to which `returning` was added."""
    if driver.has_returning:
        return [tuple(row) for row in cursor.fetchall()]
    return [(cursor.lastrowid,)]


# ── The table that a session means by a name without a schema ──


def home_of(driver: Driver, images: RowImages, name: str) -> str:
    """The schema in which the session finds a name without a schema; MySQL: its database."""
    before, _, after = driver.engine.sessions.home.partition("{name}")
    query = driver.sql(before)
    if after:
        query.value(images.ddl.quoted(name)).text(after)
    rows = driver.rows(query)
    return str(rows[0][0]) if rows else ""


def names_this_table(driver: Driver, images: RowImages, statement: StatementKeys) -> bool:
    """Whether the statement's name means this table in the session; the database is asked only when counts do not match."""
    if statement.write.schema is not None or not driver.engine.sessions.home:
        return True
    home = home_of(driver, images, statement.write.table)
    return images.tables.resolve(None, statement.write.table, home) is statement.table


# ── What a statement changed: the rows before it compared with the rows after it ──


class StatementOutcome(Struct, frozen=True):
    """The outcome of a statement that just ran."""

    images: RowImages
    driver: Driver
    pending: Pending

    @property
    def statement(self) -> StatementKeys:
        return self.pending.statement

    def changed(self, cursor: Any) -> list[Changed]:
        """The rows that the statement changed. Raises: UnmarkedError where they cannot be determined."""
        statement = self.statement
        if statement.write.action == "insert" and not statement.write.is_upsert:
            return self._inserted(cursor)
        count = rows_changed(self.driver, statement, cursor)
        moved = {} if statement.write.is_upsert else statement.moved(self.pending.own_keys)
        before: State = self.pending.states[statement.table.place]
        after: State = {}
        # Where 0 rows are counted, a trigger of the service may have done something else instead.
        if statement.write.action != "delete" or count != len(before) or self._may_meet_others(before):
            after = self._now([moved.get(key, key) for key in before])
        if not self._is_known(count, before, after):
            return []
        self._refuse_unseen(before, after)
        if count and self._may_meet_others(before) and self._met_others(count, before, after, moved):
            raise self._came_between()
        changed = list(compared(statement.table, before, after, moved))
        return [*changed, *self._reached(list(after))]

    def _reached(self, keys: Sequence[Key]) -> Iterator[Changed]:
        """Rows of other tables that foreign keys changed. `keys`: of the statement's own rows, as they are now."""
        statement = self.statement
        moved: dict[Place, State] = {}
        if statement.moves_children and len(self.pending.states) > 1:
            # A foreign key may be a part of the child's own key.
            self.images.reach(self.driver, moved, statement.table, keys, is_delete=False)
        for place, before in self.pending.states.items():
            if place != statement.table.place:
                table = self.images.tables.tables[place]
                after = self.images.by_keys(self.driver, table, before, lock="own") | moved.get(place, {})
                yield from compared(table, before, after, {})

    def _now(self, keys: Sequence[Key]) -> State:
        """The statement's own rows of those keys after it, and those that an upsert may have met."""
        statement = self.statement
        rows: State = {}
        if statement.write.is_upsert:
            # The lock for rows that it updates; whether rows that it leaves alone existed does not matter.
            lock: Lock = "upserted" if statement.write.assigned or statement.write.replaces else "own"
            for columns, met in statement.met():
                rows |= self.images.by_keys(self.driver, statement.table, met, columns, lock)
            return rows | self.images.by_keys(self.driver, statement.table, keys, lock=lock)
        return self.images.by_keys(self.driver, statement.table, keys, lock="own")

    def _refuse_unseen(self, before: State, after: State) -> None:
        """Raises: UnmarkedError where an upsert met a row that did not exist when its rows were read.

        PostgreSQL counts it like a new one, and its former values are no longer known.
        """
        unseen = {key for key, row in after.items() if row.is_locked and key not in before}
        if unseen and unseen - self._written_twice():
            what = f"dual write: a row of {self.statement.table.name} came while those that an upsert meets were read"
            advice = "roll the transaction back and run it again"
            why = "a trigger, or a foreign key to its own table, has locked the new row"
            raise UnmarkedError(f"{what}; {advice} (where that never helps, {why}: say INSERT alone)")

    def _written_twice(self) -> set[Key]:
        """Rows that an upsert with many parameters may have made first and met afterwards."""
        statement, keys = self.statement, set[Key]()
        if len(statement.parameters) > 1:
            for columns, met in statement.met():
                twice = [key for key, times in Counter(met).items() if times > 1]
                keys |= self.images.by_keys(self.driver, statement.table, twice, columns, "own").keys()
        return keys

    def _is_known(self, count: int | None, before: State, after: State) -> bool:
        """Whether each row that the statement changed is among those found; False where it meant another table.

        Raises: UnmarkedError.
        """
        statement = self.statement
        if count is None or count <= self._at_most(before, after):
            return True
        if not names_this_table(self.driver, self.images, statement):
            return False
        if self.pending.read_by_where or statement.write.is_upsert:
            raise self._came_between()
        what = f"dual write: this statement changed more rows of {statement.table.name} than its keys name"
        raise UnmarkedError(f"{what}; roll the transaction back and run it again")

    def _at_most(self, before: State, after: State) -> int:
        """How many rows the statement can have changed at most if all of them are known."""
        statement, count = self.statement, len({*before, *after})
        if statement.write.is_upsert and self.driver.engine.outcomes.counts_twice:
            return self._counted(before, after) if count else 0
        most = count if statement.write.is_upsert else len(self.pending.own_keys)
        return most + statement.repeats

    def _counted(self, before: State, after: State) -> int:
        """MySQL's count for an upsert at most if all rows that it met are known.

        A row that it makes or leaves as it is counts as one, a changed row as two, for each time that it is named; a
        REPLACE may count an unchanged row as two. Uncertain counts are allowed only if no row is new: they could hide a
        row that came in between.
        """
        statement = self.statement
        changed = sum(key not in after or row.whole != after[key].whole for key, row in before.items())
        if after.keys() - before.keys():
            return statement.times + changed
        return statement.times + (len(before) if statement.write.replaces else changed) + statement.repeats

    def _came_between(self) -> UnmarkedError:
        statement = self.statement
        what = (
            f"dual write: rows of {statement.table.name} came while those that the statement meant were read"
        )
        advice = "roll the transaction back and run it again"
        if statement.write.is_upsert and statement.times > 1 and self.driver.engine.outcomes.counts_twice:
            advice += " (where that never helps, it says a row twice, or as it is: say one row a statement)"
        return UnmarkedError(f"{what}; {advice}")

    # ── rows that took the place of others ──

    def _may_meet_others(self, before: State) -> bool:
        """Whether an UPDATE or DELETE may change rows that did not exist when its rows were read.

        The counts may still agree: where WHERE tests more than keys, a row that was read may be left out.
        """
        if self.statement.write.is_upsert or self.driver.engine.outcomes.locks_all:
            return False
        return self.pending.read_by_where or bool(self._absent(before))

    def _absent(self, before: State) -> list[Key]:
        """Keys that WHERE names without a row being found, or that have another type than in the database."""
        return [key for key in self.statement.wanted() or () if key not in before]

    def _met_others(self, count: int, before: State, after: State, moved: Mapping[Key, Key]) -> bool:
        if self.statement.write.action == "delete":
            return count > len(before.keys() - after.keys())
        now = self.images.by_keys(self.driver, self.statement.table, self._absent(before), lock="own")
        return bool(now.keys() - before.keys() - set(moved.values()))

    def _inserted(self, cursor: Any) -> list[Changed]:
        statement = self.statement
        keys = made_keys(self.driver, self.pending, cursor)
        after = self.images.by_keys(self.driver, statement.table, keys, lock="own")
        count = None if self.pending.made else rows_changed(self.driver, statement, cursor)
        missing = (len(keys) if count is None else min(count, len(keys))) - len(after)
        if missing > 0:
            if not names_this_table(self.driver, self.images, statement):
                return []
            what = (
                f"dual write: {amount(missing, 'row')} inserted into {statement.table.name} not found again"
            )
            raise UnmarkedError(
                f"{what} by their keys; name other keys, or install triggers (`migrator capture install`)"
            )
        return list(compared(statement.table, {}, after, {}))


def rows_changed(driver: Driver, statement: StatementKeys, cursor: Any) -> int | None:
    """The driver's row count; None where it does not know it (SQLite before all returned rows are fetched)."""
    if cursor.rowcount < 0 or (driver.engine.outcomes.counts_late and statement.write.returned):
        return None
    return int(cursor.rowcount)


def compared(
    table: CapturedTable, before: State, after: State, moved: Mapping[Key, Key]
) -> Iterator[Changed]:
    if table.captured is None:
        return
    gone = Shown()
    always = table.captured.watched is None
    if moved and len(before) == len(after) == 1:
        # A key given in another type than the database's still names the same row.
        moved = {key: new for key in before for new in after}
    seen: set[Row] = set()
    for key, old in before.items():
        new_key = moved.get(key, key)
        seen.add(new_key)
        new = after.get(new_key, gone)
        if old != new or (always and new is not gone):
            yield Changed(table, old.image, new.image)
    yield from (Changed(table, None, new.image) for key, new in after.items() if key not in seen)


# ── State of a service's transactions: what each has changed, from the first change to the commit ──


@dataclass
class TransactionState:
    """What one transaction changed. `begun_at`: when its first change began, in the clock's seconds.

    `changed`: changes kept for writing items at the commit; empty where none are written. `failed_in`: how many savepoints
    were open when the mark of a change could not be left; None where every change has its mark.
    """

    begun_at: float
    changed: list[Changed] = field(default_factory=list)
    failed_in: int | None = None


class Watcher(Protocol):
    """Callbacks for what a service does, which stop it by raising. `reads`: whether changed rows must be read."""

    @property
    def reads(self) -> bool: ...

    def begins(self, driver: Driver) -> None:
        """Called before a statement that changes a watched table."""

    def leaves_marks(self, changed: Changed) -> bool:
        """Whether the adapter leaves the mark; False where a trigger does."""

    @property
    def leaves_any(self) -> bool:
        """Whether the adapter leaves the marks of at least one table."""

    def commits(self, connection: Connection, work: TransactionState) -> None:
        """Called before the commit of a transaction that wrote; `work` holds its changes where they are kept."""

    def prepares(self, work: TransactionState) -> None:
        """Called before the first phase of a two-phase commit."""


class TransactionStates:
    """The state of each connection's open transaction. Its methods are listeners of SQLAlchemy's events."""

    def __init__(self, watcher: Watcher, clock: Callable[[], float]) -> None:
        self._watcher = watcher
        self._clock = clock
        self._works: WeakKeyDictionary[Connection, TransactionState] = WeakKeyDictionary()
        self._committed: WeakKeyDictionary[Connection, TransactionState] = WeakKeyDictionary()
        self._savepoints: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()

    def begin(self, connection: Connection) -> TransactionState:
        """The transaction's state, which may exist already."""
        return self._works.setdefault(connection, TransactionState(self._clock()))

    def add(self, connection: Connection, changed: Sequence[Changed]) -> None:
        self.begin(connection).changed += changed

    def fail(self, connection: Connection) -> None:
        """Records that a change has no mark, so that the transaction must not be committed."""
        self.begin(connection).failed_in = self._savepoints.get(connection, 0)

    def committed(self, connection: Connection) -> list[Changed]:
        """The changes of the connection's last transaction, returned once; empty where it did not commit."""
        work = self._committed.pop(connection, None)
        return [] if work is None else work.changed

    # ── events ──

    def commits(self, connection: Connection, *_: object) -> None:
        work = self._works.pop(connection, None)
        self._savepoints.pop(connection, None)
        if work is None:
            return
        try:
            _refuse_failed(work)
            self._watcher.commits(connection, work)
        except BaseException:
            _roll_back(connection)
            raise
        if work.changed:
            self._committed[connection] = work

    def commits_twophase(self, connection: Connection, _: object, is_prepared: bool) -> None:
        """A prepared transaction was checked before, and its commit was promised."""
        if not is_prepared:
            self.commits(connection)
            return
        work = self._works.pop(connection, None)
        self._savepoints.pop(connection, None)
        if work is not None and work.changed:
            self._committed[connection] = work

    def prepares(self, connection: Connection, _: object) -> None:
        if (work := self._works.get(connection)) is None:
            return
        try:
            _refuse_failed(work)
            self._watcher.prepares(work)
        except BaseException:
            self.ended(connection)
            _roll_back(connection)
            raise

    def saves(self, connection: Connection, _: object) -> None:
        self._savepoints[connection] = self._savepoints.get(connection, 0) + 1

    def goes_back(self, connection: Connection, *_: object) -> None:
        """A rollback to the last savepoint: what failed after it is undone."""
        work = self._works.get(connection)
        if work is not None and work.failed_in is not None and work.failed_in > self._left(connection):
            work.failed_in = None

    def goes_on(self, connection: Connection, *_: object) -> None:
        """The last savepoint is released: what failed after it now counts for the level around it."""
        left, work = self._left(connection), self._works.get(connection)
        if work is not None and work.failed_in is not None:
            work.failed_in = min(work.failed_in, left)

    def _left(self, connection: Connection) -> int:
        """How many savepoints stay open after the last one ends."""
        left = max(0, self._savepoints.get(connection, 0) - 1)
        self._savepoints[connection] = left
        return left

    def ended(self, connection: Connection, *_: object) -> None:
        self._works.pop(connection, None)
        self._committed.pop(connection, None)
        self._savepoints.pop(connection, None)


def _refuse_failed(work: TransactionState) -> None:
    """Raises: UnmarkedError where a change of the transaction has no mark."""
    if work.failed_in is not None:
        what = "dual write: a change of this transaction could not be marked, so nothing of it is committed"
        raise UnmarkedError(f"{what}; it is rolled back, run it again")


def _roll_back(connection: Connection) -> None:
    """Rolls back in the database: SQLAlchemy takes a transaction whose commit failed as ended, and leaves it open there."""
    with suppress(Exception):
        connection.dialect.do_rollback(connection.connection)


def changes(changed: Sequence[Changed]) -> list[Change]:
    return [Change(change.table.name, change.before, change.after) for change in changed]
