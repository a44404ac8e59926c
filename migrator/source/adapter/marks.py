"""Marks left in the transaction of a service's change, as triggers would leave them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from msgspec import Struct

from migrator.runtime.errors import MissingNameError, UnmarkedError
from migrator.runtime.values import replace
from migrator.source.adapter import images as adapter_images
from migrator.source.adapter.changes import Changed, Pending, StatementOutcome, home_of, made_keys
from migrator.source.adapter.driver import Driver, SqlText
from migrator.source.adapter.images import (
    KEYS_A_SELECT,
    Parameters,
    RowImages,
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
    written,
)
from migrator.source.adapter.tables import CapturedTable, CapturedTables
from migrator.source.engines.base import Lock
from migrator.source.engines.ddl import Ddl
from migrator.source.sql.spelling import fold
from migrator.source.sql.transactions import source_error

# ── Marks left in the transaction of a service's change ──


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
    """Raises: UnmarkedError with advice where the table of marks is gone."""
    try:
        yield
    except Exception as error:
        why = source_error(error, "dual write", "leaving marks")
        if not isinstance(why, MissingNameError):
            raise  # as any statement of the service would
        raise UnmarkedError(f"{why}; run `migrator capture install` with this job") from None


@contextmanager
def _last_id_kept(driver: Driver) -> Iterator[None]:
    """On MariaDB and MySQL restores the service's LAST_INSERT_ID() afterwards, as it would be with triggers."""
    if not driver.engine.sessions.keeps_last_id:
        yield
        return
    last = driver.rows(driver.sql("SELECT LAST_INSERT_ID()"))[0][0]
    yield
    driver.rows(driver.sql("SELECT LAST_INSERT_ID(").value(last).text(")"))


# ── Marks made by one INSERT … SELECT, instead of a read and a write ──


def left_at_once(images: RowImages, driver: Driver, pending: Pending, cursor: Any) -> bool:
    """Whether every mark of the statement was left; if not, its rows are compared in full, and an extra mark is harmless.

    This is for new rows whose keys are known, and for an update of one row that does not change its key.
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
"""The treatment of a statement whose rows only its WHERE determines: refused, or read beforehand under lock."""
_COUNTS = (
    "this connection does not count rows that stay as they are (CLIENT.FOUND_ROWS, which SQLAlchemy sets by itself, is"
    " taken away), so that an upsert of many rows may meet one that was not read"
)


def _by_key(write: StatementWrite, table: CapturedTable, driver: Driver) -> StatementWrite:
    """The write with other names of the key as the key. Source: sqlite.org/lang_createtable.html, "ROWIDs"."""
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
        """Whether the statement names a table of these, or may write tables that it does not name."""
        return self.tables.mentioned(text) or bool(unnamed(text, self.tables.dialect))

    def before(
        self, driver: Driver, text: str, parameters: Sequence[Parameters], begins: Callable[[Driver], None]
    ) -> Pending | None:
        """Reads the rows before a statement runs; None where it changes no watched table.

        `begins` is called before anything is read. Raises: UnmarkedError where the rows it changes cannot be known.
        """
        if not may_write(text, driver.dialect):
            return None
        write = written(text, driver.spoken(text))
        if isinstance(write, Opaque):
            named = self.tables.named(write.tables)
            if named or not write.tables:
                raise refused(", ".join(named) or "any table", write.reason)
            return None
        table = None if write is None else self._table(driver, write)
        if write is None or table is None:
            return None
        begins(driver)
        write = _by_key(write, table, driver)
        pending = Pending(StatementKeys(write, table, list(parameters), driver.dialect))
        if (
            table.replaces
            and not write.is_upsert
            and (write.action == "insert" or pending.statement.moves_keys)
        ):
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
        """Reads the rows that an upsert may change; a plain INSERT changes none."""
        statement = pending.statement
        if statement.write.is_upsert:
            if statement.moves:
                raise refused(statement.table.name, "it gives new primary keys to the rows that it meets")
            if statement.write.assigned and statement.times > 1 and not driver.counts_found:
                raise refused(statement.table.name, _COUNTS)
            if statement.write.opaque and statement.times > 1:
                raise refused(statement.table.name, statement.write.opaque)
            if statement.write.replaces and statement.table.meets_unseen:
                raise refused(
                    statement.table.name,
                    "may replace rows by an index with an expression, a condition or a COLLATE",
                )
            state = pending.states.setdefault(statement.table.place, {})
            for columns, keys in statement.met():
                state |= self.images.met(driver, statement.table, keys, columns)
            pending.own_keys = list(state)
            if statement.write.replaces:
                self.images.reach(driver, pending.states, statement.table, pending.own_keys, is_delete=True)
            elif statement.moves_children:
                self.images.reach(driver, pending.states, statement.table, pending.own_keys, is_delete=False)
        elif not statement.says_inserted and not statement.returned:
            pending.returning = self._returning(pending)

    def _before_change(self, driver: Driver, pending: Pending) -> None:
        write, table = pending.statement.write, pending.statement.table
        keys = pending.statement.wanted()
        # The lock that the statement itself will take: a stronger one would make others wait needlessly.
        lock: Lock = "key" if write.action == "delete" or pending.statement.moves_keys else "row"
        if keys is not None:
            state = self.images.by_keys(driver, table, keys, lock=lock)
        else:
            state = self._by_where(driver, pending, lock)
        pending.states[table.place] = state
        pending.own_keys = list(state)
        pending.statement.moved(pending.own_keys)
        if write.action == "delete":
            self.images.reach(driver, pending.states, table, pending.own_keys, is_delete=True)
        elif pending.statement.moves_children:
            self.images.reach(driver, pending.states, table, pending.own_keys, is_delete=False)

    def _by_where(self, driver: Driver, pending: Pending, lock: Lock) -> State:
        write, name = pending.statement.write, pending.statement.table.name
        if write.opaque:
            raise refused(name, write.opaque)
        if self.unknown == "refuse":
            what = f"dual write: this {write.action.upper()} of {name} does not say the keys of its rows"
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
        """The rows that the statement changed. Raises: UnmarkedError where they cannot be determined."""
        if not self.keeps_images and left_at_once(self.images, driver, pending, cursor):
            return []
        return StatementOutcome(self.images, driver, pending).changed(cursor)

    def _returning(self, pending: Pending) -> str:
        names = ", ".join(self.images.ddl.quoted(name) for name in pending.statement.table.key)
        # On a line of its own, since the statement may end in a comment.
        return f"\nRETURNING {names}"
