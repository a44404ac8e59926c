"""Marks of a service's changes, the same as from triggers: rows read before and after each statement, and transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from weakref import WeakKeyDictionary

from msgspec import Struct
from sqlalchemy.engine import Connection

from migrator.mapping.model.live import Change
from migrator.runtime.errors import MissingNameError, UnmarkedError, amount
from migrator.runtime.values import replace
from migrator.source.adapter import images as adapter_images
from migrator.source.adapter.driver import Driver, Row, SqlText, returned_rows
from migrator.source.adapter.images import (
    KEYS_A_SELECT,
    Key,
    Parameters,
    RowImages,
    Shown,
    State,
    StatementKeys,
    equal,
    refused,
)
from migrator.source.adapter.statement import (
    Opaque,
    StatementWrite,
    escaped,
    may_write,
    parameter,
    placeholder,
    unnamed,
    words_of,
    written,
)
from migrator.source.adapter.tables import CapturedTable, CapturedTables
from migrator.source.engines.base import Lock
from migrator.source.engines.catalogue import Place
from migrator.source.engines.ddl import Ddl
from migrator.source.sql.spelling import fold
from migrator.source.sql.transactions import source_error

# ── Marks left in the transaction of a service's change ──


# ── A statement under way: its keys, the rows before it, and the rows that it changed ──


class Changed(Struct, frozen=True):
    table: CapturedTable
    before: str | None
    after: str | None


@dataclass
class Pending:
    """A statement that is about to run.

    `states`: the rows before it, by table.
    `own_keys`: keys of rows that the statement itself selects, not a foreign key.
    `returning`: SQL to be added so that it returns generated keys.
    `made`: keys that it returned.
    `done_before`: Driver.done before it.
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
        return bool(self.returning) and len(self.statement.parameters) > 1

    def may_be_kept(self, driver: Driver, text: str, *, is_refused: bool) -> bool:
        """`is_refused`: the database rejected the statement; else the caller failed, possibly after it ran.

        PostgreSQL keeps nothing of a rejected statement, the others keep the work of earlier parameters,
        SQLite also the part before OR FAIL.
        """
        is_many = len(self.statement.parameters) > 1
        rule = driver.engine.outcomes.keeps_refused
        if rule == "counted":
            in_parts = is_many or self.statement.table.keeps_parts or "fail" in words_of(text)
            return driver.done != self.done_before and (in_parts or not is_refused)
        return not is_refused or (is_many and rule == "earlier")


# ── The keys of rows that an INSERT made ──


def made_keys(driver: Driver, pending: Pending, cursor: Any) -> list[Key]:
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
    what = f"dual write: this INSERT into {table.name} lacks the keys that the database makes"
    raise UnmarkedError(f"{what}; give them with the rows, or let it give them back (RETURNING, or the ORM)")


def made_alone(driver: Driver, cursor: Any) -> list[Key]:
    if driver.has_returning:
        return [tuple(row) for row in cursor.fetchall()]
    return [(cursor.lastrowid,)]


# ── The table that a session means by a name without a schema ──


def home_of(driver: Driver, images: RowImages, name: str) -> str:
    before, _, after = driver.engine.sessions.home.partition("{name}")
    query = driver.sql(before)
    if after:
        query.value(images.ddl.quoted(name)).text(after)
    rows = driver.rows(query)
    return str(rows[0][0]) if rows else ""


def names_this_table(driver: Driver, images: RowImages, statement: StatementKeys) -> bool:
    """Whether the session resolves the name to this table. A query, so it is made only if counts do not match."""
    if statement.write.schema is not None or not driver.engine.sessions.home:
        return True
    home = home_of(driver, images, statement.write.table)
    return images.tables.resolve(None, statement.write.table, home) is statement.table


# ── Changes of a statement: the rows before it compared with the rows after it ──


class StatementOutcome(Struct, frozen=True):
    images: RowImages
    driver: Driver
    pending: Pending

    @property
    def statement(self) -> StatementKeys:
        return self.pending.statement

    def changed(self, cursor: Any) -> list[Changed]:
        """Raises: UnmarkedError if the changed rows cannot be determined."""
        statement = self.statement
        if statement.write.action == "insert" and not statement.write.is_upsert:
            return self._inserted(cursor)
        count = rows_changed(self.driver, statement, cursor)
        moved = {} if statement.write.is_upsert else statement.moved(self.pending.own_keys)
        before: State = self.pending.states[statement.table.place]
        after: State = {}
        # With a count of 0, a trigger of the service may have done something else instead.
        if statement.write.action != "delete" or count != len(before) or self._may_meet_others(before):
            after = self._now([moved.get(key, key) for key in before])
        if not self._is_known(count, before, after):
            return []
        self._refuse_unseen(before, after)
        if count and self._may_meet_others(before) and self._met_others(count, before, after, moved):
            if not names_this_table(self.driver, self.images, statement):
                return []
            raise self._came_between()
        changed = list(compared(statement.table, before, after, moved))
        updated = list(after) if statement.moves_children else []
        return [*changed, *reached(self.images, self.driver, statement.table, self.pending.states, updated)]

    def _now(self, keys: Sequence[Key]) -> State:
        statement = self.statement
        rows: State = {}
        if statement.write.is_upsert:
            # The lock for rows that it updates; whether untouched rows existed does not matter.
            lock: Lock = "upserted" if statement.write.assigned or statement.write.replaces else "own"
            for columns, met in statement.met():
                rows |= self.images.by_keys(self.driver, statement.table, met, columns, lock)
            return rows | self.images.by_keys(self.driver, statement.table, keys, lock=lock)
        return self.images.by_keys(self.driver, statement.table, keys, lock="own")

    def _refuse_unseen(self, before: State, after: State) -> None:
        """Raises: UnmarkedError if an upsert met a row that was not there when its rows were read.

        PostgreSQL counts it like a new one, and its former values are lost.
        """
        unseen = {key for key, row in after.items() if row.is_locked and key not in before}
        if unseen and unseen - self._written_twice():
            what = f"dual write: a row of {self.statement.table.name} came while those that an upsert meets were read"
            advice = "roll the transaction back and run it again"
            why = "a trigger, or a foreign key to its own table, has locked the new row"
            raise UnmarkedError(f"{what}; {advice} (if that never helps, {why}: use INSERT alone)")

    def _written_twice(self) -> set[Key]:
        statement, keys = self.statement, set[Key]()
        if len(statement.parameters) > 1:
            for columns, met in statement.met():
                twice = [key for key, times in Counter(met).items() if times > 1]
                keys |= self.images.by_keys(self.driver, statement.table, twice, columns, "own").keys()
        return keys

    def _is_known(self, count: int | None, before: State, after: State) -> bool:
        """Whether all changed rows were found; False if the statement used another table. Raises: UnmarkedError."""
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
        statement, count = self.statement, len({*before, *after})
        if statement.write.is_upsert and self.driver.engine.outcomes.counts_twice:
            return self._counted(before, after) if count else 0
        most = count if statement.write.is_upsert else len(self.pending.own_keys)
        return most + statement.repeats

    def _counted(self, before: State, after: State) -> int:
        """MySQL's maximum count for an upsert if all rows that it met are known.

        An inserted or unchanged row counts as one, a changed row as two, each time. A REPLACE may count an
        unchanged row as two. Uncertain counts are allowed only if no row is new: they could hide a row
        inserted concurrently.
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
            advice += (
                " (if that never helps, it names a row twice, or unchanged: write one row per statement)"
            )
        return UnmarkedError(f"{what}; {advice}")

    # ── rows that took the place of others ──

    def _may_meet_others(self, before: State) -> bool:
        """Whether a new row may match an UPDATE or DELETE.

        The counts may still agree: if WHERE tests more than keys, a row that was read may not match.
        """
        if self.statement.write.is_upsert or self.driver.engine.outcomes.locks_all:
            return False
        return self.pending.read_by_where or bool(self._absent(before))

    def _absent(self, before: State) -> list[Key]:
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


def reached(
    images: RowImages,
    driver: Driver,
    table: CapturedTable,
    states: Mapping[Place, State],
    updated: Sequence[Key],
) -> Iterator[Changed]:
    """Changes that foreign keys made in other tables than the given one. `states`: their rows before.

    `updated`: keys of the table's rows after it, if their children may have followed them.
    """
    moved: dict[Place, State] = {}
    if len(states) > 1:
        # A foreign key may be a part of the child's own key.
        images.reach(driver, moved, table, updated, is_delete=False)
    for place, before in states.items():
        if place != table.place:
            child = images.tables.tables[place]
            after = images.by_keys(driver, child, before, lock="own") | moved.get(place, {})
            yield from compared(child, before, after, {})


def rows_changed(driver: Driver, statement: StatementKeys, cursor: Any) -> int | None:
    """Return None if unknown (SQLite before all returned rows are fetched)."""
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


# ── State of a service's transactions: the changes of each, from the first one to the commit ──


@dataclass
class TransactionState:
    """Changes of one transaction.

    `begun_at`: start of its first change, in the clock's seconds.
    `changed`: for writing items at the commit.
    `failed_in`: number of open savepoints when a mark could not be left.
    """

    begun_at: float
    changed: list[Changed] = field(default_factory=list)
    failed_in: int | None = None


class Watcher(Protocol):
    """Callbacks for a service's actions, which they stop by raising."""

    @property
    def reads(self) -> bool: ...

    def begins(self, driver: Driver) -> None: ...

    def leaves_marks(self, changed: Changed) -> bool: ...

    @property
    def leaves_any(self) -> bool: ...

    def commits(self, connection: Connection, work: TransactionState) -> None: ...

    def prepares(self, work: TransactionState) -> None: ...


class TransactionStates:
    """The state of each connection's open transaction. Its methods listen to SQLAlchemy's events."""

    def __init__(self, watcher: Watcher, clock: Callable[[], float]) -> None:
        self._watcher = watcher
        self._clock = clock
        self._works: WeakKeyDictionary[Connection, TransactionState] = WeakKeyDictionary()
        self._committed: WeakKeyDictionary[Connection, TransactionState] = WeakKeyDictionary()
        self._savepoints: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()

    def begin(self, connection: Connection) -> TransactionState:
        return self._works.setdefault(connection, TransactionState(self._clock()))

    def add(self, connection: Connection, changed: Sequence[Changed]) -> None:
        self.begin(connection).changed += changed

    def fail(self, connection: Connection) -> None:
        """Record a change without a mark: the transaction must not be committed."""
        self.begin(connection).failed_in = self._savepoints.get(connection, 0)

    def committed(self, connection: Connection) -> list[Changed]:
        """The changes of the last transaction, returned once; empty if it did not commit."""
        work = self._committed.pop(connection, None)
        return [] if work is None else work.changed

    # ── events ──

    def commits(self, connection: Connection) -> None:
        self.commits_twophase(connection, None, is_prepared=False)

    def commits_twophase(self, connection: Connection, _: object, is_prepared: bool) -> None:
        """Accept a prepared transaction: it was checked before, and its commit was promised."""
        work = self._works.pop(connection, None)
        self._savepoints.pop(connection, None)
        if work is None:
            return
        try:
            if not is_prepared:
                _refuse_failed(work)
                self._watcher.commits(connection, work)
        except BaseException:
            _roll_back(connection)
            raise
        if work.changed:
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
        """Undo failures after the last savepoint."""
        work = self._works.get(connection)
        if work is not None and work.failed_in is not None and work.failed_in > self._left(connection):
            work.failed_in = None

    def released(self, connection: Connection, *_: object) -> None:
        """Count failures after a released savepoint for the enclosing level."""
        left, work = self._left(connection), self._works.get(connection)
        if work is not None and work.failed_in is not None:
            work.failed_in = min(work.failed_in, left)

    def _left(self, connection: Connection) -> int:
        left = max(0, self._savepoints.get(connection, 0) - 1)
        self._savepoints[connection] = left
        return left

    def ended(self, connection: Connection, *_: object) -> None:
        self._works.pop(connection, None)
        self._committed.pop(connection, None)
        self._savepoints.pop(connection, None)


def _refuse_failed(work: TransactionState) -> None:
    if work.failed_in is not None:
        what = "dual write: a change of this transaction could not be captured, so nothing of it is committed"
        raise UnmarkedError(f"{what}; it is rolled back, run it again")


def _roll_back(connection: Connection) -> None:
    """Roll back in the database, where SQLAlchemy leaves a transaction open after a failed commit."""
    with suppress(Exception):
        connection.dialect.do_rollback(connection.connection)


def changes(changed: Sequence[Changed]) -> list[Change]:
    return [Change(change.table.name, change.before, change.after) for change in changed]


def leave_marks(driver: Driver, ddl: Ddl, changed: Sequence[Changed]) -> None:
    if not changed:
        return
    style = driver.paramstyle
    values = ", ".join(placeholder(style, number) for number in range(3))
    text = f"INSERT INTO {ddl.mark} (table_name, image_before, image_after, changed_at) VALUES ("
    statement = f"{escaped(text, style)}{values}, {escaped(ddl.now, style)})"
    with explained(), _last_id_kept(driver):
        driver.many(statement, [(change.table.name, change.before, change.after) for change in changed])


@contextmanager
def explained() -> Iterator[None]:
    """Raises: UnmarkedError with advice if the table of marks is missing."""
    try:
        yield
    except Exception as error:
        why = source_error(error, "dual write", "capturing changes")
        if not isinstance(why, MissingNameError):
            raise  # like any statement of the service
        raise UnmarkedError(f"{why}; run `migrator capture install` with this job") from None


@contextmanager
def _last_id_kept(driver: Driver) -> Iterator[None]:
    """Restore the service's LAST_INSERT_ID() afterwards, as with triggers (MariaDB, MySQL)."""
    if not driver.engine.sessions.keeps_last_id:
        yield
        return
    last = driver.rows(driver.sql("SELECT LAST_INSERT_ID()"))[0][0]
    yield
    driver.rows(driver.sql("SELECT LAST_INSERT_ID(").value(last).text(")"))


# ── Marks made by one INSERT … SELECT, instead of a read and a write ──


def left_at_once(images: RowImages, driver: Driver, pending: Pending, cursor: Any) -> bool:
    """Leave marks for new rows with known keys, and for an update of one row that keeps its key.

    Returns False if rows must be compared in full; an extra mark is harmless.
    """
    write, table = pending.statement.write, pending.statement.table
    if not driver.engine.outcomes.marks_at_once or table.captured is None or write.is_upsert:
        return False
    if write.action == "insert":
        return _inserted(images, driver, pending, cursor)
    is_one = len(pending.states) == 1 and len(pending.own_keys) == 1 and cursor.rowcount == 1
    if write.action == "update" and is_one and not pending.statement.moves:
        return _updated(images, driver, pending)
    return False


def _inserted(images: RowImages, driver: Driver, pending: Pending, cursor: Any) -> bool:
    table, keys = pending.statement.table, made_keys(driver, pending, cursor)
    if not 0 < len(keys) <= KEYS_A_SELECT:
        return False
    sql = _begun(images, driver, pending, "image_after")
    sql.text(f"{images.shown(table, 'r')[0]}, {images.ddl.now} FROM {images.place(table.place)} AS r WHERE ")
    equal(sql, images.typed(table, table.key, "r"), keys)
    with explained():
        return driver.run(_if_it_fits(images, pending, sql)) == len(keys)


def _updated(images: RowImages, driver: Driver, pending: Pending) -> bool:
    table, key = pending.statement.table, pending.own_keys[0]
    (before,) = pending.states[table.place].values()
    image, rest = images.shown(table, "r")
    there = f"r.{images.ddl.quoted(table.key[0])} IS NOT NULL"
    sql = _begun(images, driver, pending, "image_before, image_after").value(before.image)
    sql.text(f", CASE WHEN {there} THEN {image} END, {images.ddl.now} FROM (SELECT 1) AS one")
    sql.text(f" LEFT JOIN {images.place(table.place)} AS r ON ")
    equal(sql, images.typed(table, table.key, "r"), [key])
    sql.text(f" WHERE (NOT {there} OR {image} IS DISTINCT FROM CAST(").value(before.image)
    sql.text(f" AS text) OR {rest} IS DISTINCT FROM CAST(").value(before.rest).text(" AS text))")
    with explained():
        return driver.run(_if_it_fits(images, pending, sql)) == 1


def _begun(images: RowImages, driver: Driver, pending: Pending, sides: str) -> SqlText:
    sql = driver.sql(f"INSERT INTO {images.ddl.mark} (table_name, {sides}, changed_at) SELECT ")
    return sql.value(pending.statement.table.name).text(", ")


def _if_it_fits(images: RowImages, pending: Pending, sql: SqlText) -> SqlText:
    names = images.settings(pending.statement.table)
    return sql.text(f" AND {adapter_images.fits(names)}") if names else sql


# ── The rows that a service's statement changes, found by reading before and after it ──

UnknownRows = Literal["refuse", "lock"]
"""Handling of a statement whose rows only its WHERE determines: refused, or read beforehand under lock."""
_COUNTS = (
    "this connection does not count rows that stay as they are (CLIENT.FOUND_ROWS, which SQLAlchemy sets, is"
    " removed), so that an upsert of many rows may meet one that was not read"
)


def _by_key(write: StatementWrite, table: CapturedTable, driver: Driver) -> StatementWrite:
    """Resolve SQLite's aliases of the key. Source: sqlite.org/lang_createtable.html, "ROWIDs"."""
    if len(table.key) != 1 or table.types.get(table.key[0], "").upper() != "INTEGER":
        return write
    own = {name.lower() for name in table.columns}
    key = fold(table.key[0], driver.dialect)
    keys = {name: key for name in driver.engine.statements.key_names if name not in own}

    def known(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(keys.get(name, name) for name in names)

    return replace(
        write,
        columns=None if write.columns is None else known(write.columns),
        assigned=dict(zip(known(write.assigned), write.assigned.values(), strict=True)),
        kept=frozenset(known(write.kept)),
        wanted=dict(zip(known(write.wanted), write.wanted.values(), strict=True)),
        returned=known(write.returned),
    )


class Marking(Struct, frozen=True):
    tables: CapturedTables
    images: RowImages
    unknown: UnknownRows = "refuse"
    keeps_images: bool = True
    """Whether changes are returned to the caller; if not, rows may be marked without being read."""

    # ── before ──

    def concerns(self, text: str) -> bool:
        return self.tables.mentioned(text) or bool(unnamed(text, self.tables.dialect))

    def before(
        self, driver: Driver, text: str, parameters: Sequence[Parameters], begins: Callable[[Driver], None]
    ) -> Pending | None:
        """Read the rows before a statement runs; None if it changes no watched table.

        `begins` is called first. Raises: UnmarkedError if the changed rows cannot be determined.
        """
        if not may_write(text, driver.dialect):
            return None
        write = written(text, driver.spoken(text))
        if isinstance(write, Opaque):
            named = self.tables.named(write.tables)
            if named or not write.tables:
                raise refused(", ".join(named) or "any table", write.reason)
            return None
        if write is None or (table := self._table(driver, write)) is None:
            return None
        begins(driver)
        write = _by_key(write, table, driver)
        pending = Pending(StatementKeys(write, table, list(parameters), driver.dialect))
        may_meet = write.action == "insert" or pending.statement.moves_keys
        if table.replaces and not write.is_upsert and may_meet:
            raise refused(table.name, "the table itself replaces rows (ON CONFLICT REPLACE)")
        driver.hold()
        if write.action == "insert":
            self._before_insert(driver, pending)
        else:
            self._before_change(driver, pending)
        return pending

    def _table(self, driver: Driver, write: StatementWrite) -> CapturedTable | None:
        home = None
        if write.schema is None and self.tables.is_shared(write.table):
            home = home_of(driver, self.images, write.table)
        table = self.tables.resolve(write.schema, write.table, home)
        if table is None and write.table.lower() in self.tables.views and self._is_view(driver, write):
            what = "this is a view or a partition of tables that the mapping reads"
            raise refused(write.table, f"{what}, or a rule of it (CREATE RULE) writes one")
        if table is not None and write.action in self.tables.ruled.get(table.place, ()):
            raise refused(write.table, "a rule of it (CREATE RULE) writes tables that the mapping reads")
        if write.action != "insert" and self.tables.inherits(table, write.table):
            raise refused(write.table, "tables that the mapping reads inherit from it")
        return table

    def _is_view(self, driver: Driver, write: StatementWrite) -> bool:
        schema = write.schema
        if schema is None and driver.engine.sessions.has_search_path:
            schema = home_of(driver, self.images, write.table)
        return self.tables.is_view(schema, write.table)

    def _before_insert(self, driver: Driver, pending: Pending) -> None:
        statement = pending.statement
        if statement.write.is_upsert:
            if statement.moves:
                raise refused(statement.table.name, "it gives new primary keys to the rows that it meets")
            if statement.write.assigned and statement.times > 1 and not driver.counts_found:
                raise refused(statement.table.name, _COUNTS)
            if statement.write.opaque and statement.times > 1:
                raise refused(statement.table.name, statement.write.opaque)
            captured = statement.table.captured
            if statement.write.replaces and captured is not None and captured.table.unique_conflicts:
                raise refused(
                    statement.table.name,
                    "may replace rows by an index with an expression, a condition or a COLLATE",
                )
            state = pending.states.setdefault(statement.table.place, {})
            for columns, keys in statement.met():
                state |= self.images.met(driver, statement.table, keys, columns)
            pending.own_keys = list(state)
            self._reach(driver, pending)
        elif not statement.says_inserted and not statement.write.returned:
            names = ", ".join(self.images.ddl.quoted(name) for name in statement.table.key)
            pending.returning = f"RETURNING {names}"

    def _before_change(self, driver: Driver, pending: Pending) -> None:
        write, table = pending.statement.write, pending.statement.table
        keys = pending.statement.wanted()
        # The lock that the statement itself will take: a stronger one would block others needlessly.
        lock: Lock = "key" if write.action == "delete" or pending.statement.moves_keys else "row"
        if keys is not None:
            state = self.images.by_keys(driver, table, keys, lock=lock)
        else:
            state = self._by_where(driver, pending, lock)
        pending.states[table.place] = state
        pending.own_keys = list(state)
        pending.statement.moved(pending.own_keys)
        self._reach(driver, pending)

    def _reach(self, driver: Driver, pending: Pending) -> None:
        statement = pending.statement
        is_delete = statement.write.replaces or statement.write.action == "delete"
        if is_delete or statement.moves_children:
            keys = pending.own_keys
            self.images.reach(driver, pending.states, statement.table, keys, is_delete=is_delete)

    def _by_where(self, driver: Driver, pending: Pending, lock: Lock) -> State:
        write, name = pending.statement.write, pending.statement.table.name
        if write.opaque:
            raise refused(name, write.opaque)
        if self.unknown == "refuse":
            what = f"dual write: this {write.action.upper()} of {name} lacks the keys of its rows"
            advice = (
                'name them in WHERE, or let them be read first under lock: dual_write(…, unknown_rows="lock")'
            )
            raise UnmarkedError(f"{what}; {advice}")
        if len(pending.statement.parameters) > 1:
            raise refused(name, "it runs once for each of many parameters")
        pending.read_by_where = True
        where, parameters = write.where, pending.statement.parameters[0]
        values = [] if where is None else [parameter(parameters, place) for place in where.places]
        sql = self.images.chosen(driver, pending.statement.table, write.alias, where, values)
        return self.images.read(driver, pending.statement.table, sql, lock)

    # ── after ──

    def after(self, driver: Driver, pending: Pending, cursor: Any) -> list[Changed]:
        """Raises: UnmarkedError if the changed rows cannot be determined."""
        if not self.keeps_images and left_at_once(self.images, driver, pending, cursor):
            return []
        return StatementOutcome(self.images, driver, pending).changed(cursor)
