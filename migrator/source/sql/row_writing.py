"""Writes rows to the source: upserts by key, deletes of unreferenced rows, rejections as results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect

from migrator.mapping.model.facts import Column, ForeignKey, SchemaFacts, TableFacts
from migrator.mapping.model.live import Check, IntendedRow, RefusalKind, RefusedChange, Row
from migrator.runtime.retry import Retry
from migrator.source.engines.base import Address, ConnectionOptions, RowWriting
from migrator.source.engines.connect import place_of, write_engine
from migrator.source.engines.shared import OUR_TRIGGER
from migrator.source.sql.transactions import Committing, of_the_source

_DOING = "writing rows"
_SWAPS = 10
"""Maximum tries to write rows that need each other's values, each without one that blocks."""


class SqlRowWriter:
    """Uses its own connections. `facts`: of all tables, for those that refer to a row."""

    def __init__(
        self, address: Address, connection_options: ConnectionOptions, retry: Retry, facts: SchemaFacts
    ) -> None:
        engine = write_engine(address, connection_options)
        self._transactions = _RowTransactions(engine, place_of(address.url()), retry, of_the_source)
        self._rows = self._transactions.kind.rows
        sa.event.listen(engine, "connect", lambda driver, _: self._rows.prepare(driver))
        self._facts = facts
        self._unchanging: dict[str, frozenset[str]] = {}
        """A cache by table; a table's columns do not change while its rows are written."""

    def write(self, changes: Sequence[IntendedRow], check: Check) -> list[RefusedChange]:
        if not changes:
            return []
        check()
        try:
            self._transactions.read(_DOING, lambda connection: self._make(connection, changes))
        except _Refused as refused:
            if len(changes) == 1:
                return [RefusedChange(changes[0], refused.kind)]
            alone = [one for change in changes for one in self.write([change], check)]
            return self._circled(self._swapped(alone, check), check)
        return []

    def _circled(self, refused: list[RefusedChange], check: Check) -> list[RefusedChange]:
        """Write rows that only wait for each other, in a circle of foreign keys; returns the remaining refusals."""
        for is_gone in (False, True):
            left = [
                one.change
                for one in refused
                if one.kind == "foreign key" and (one.change.values is None) == is_gone
            ]
            while len(left) > 1:
                check()
                try:
                    self._transactions.read(_DOING, partial(self._join, changes=left))
                except _Unready as unready:
                    left = [change for change in left if change not in unready.changes]
                except _Refused:
                    break
                else:
                    refused = [one for one in refused if all(one.change is not made for made in left)]
                    break
        return refused

    def _join(self, connection: Connection, changes: Sequence[IntendedRow]) -> None:
        """All puts, or all deletes, in an order that foreign keys allow; nullable columns are NULL until the
        end.

        Raises: _Unready with the rows that no order can write.
        """
        self._rows.begin(connection)
        if self._rows.defer:
            connection.exec_driver_sql(self._rows.defer)
        row = _RowSql(connection, self._rows, self._facts, self._unchanging)
        written = [change for change in changes if change.values is not None]
        if without := [change for change in written if not all(row.parents(change, written))]:
            raise _Unready(without)
        gone = [change for change in changes if change.values is None]
        for change in gone:
            row.lock(change)
        for change in gone:
            row.set_null(change.table, change.key, sorted(_loose(change.table, change.key)))
        # An ON DELETE CASCADE would delete other children.
        if staying := [change for change in gone if row.has_children(change, gone=gone)]:
            raise _Unready(staying)
        left = list(changes)
        while left:
            ready = [change for change in left if row.is_ready(change)]
            if not ready:
                raise _Unready(left)
            for change in ready:
                if change.values is None:
                    row.delete(change, gone)
                else:
                    nothing = dict.fromkeys(_loose(change.table, change.key) & change.values.keys())
                    row.put(change.table, change.key, {**change.values, **nothing})
            left = [change for change in left if change not in ready]
        for change in written:
            row.put(change.table, change.key, change.values or {})
        self._rows.end(connection)

    def _swapped(self, refused: list[RefusedChange], check: Check) -> list[RefusedChange]:
        left = [one for one in refused if one.kind == "unique" and one.change.values is not None]
        for _ in range(_SWAPS):
            if len(left) < 2:
                break
            check()
            changes, made = [one.change for one in left], list[IntendedRow]()
            try:
                self._transactions.read(_DOING, partial(self._swap, changes=changes, made=made))
            except _Refused:
                # This one conflicts with a row that stays as it is.
                left = [one for one in left if one.change is not changes[min(len(made), len(changes) - 1)]]
                continue
            return [one for one in refused if one not in left]
        return refused

    def move_counters(self, tables: Sequence[TableFacts]) -> None:
        def work(connection: Connection) -> None:
            for table in tables:
                self._rows.move_counters(connection, table)

        self._transactions.read("moving counters", work)

    def changing_triggers(self, tables: Sequence[TableFacts]) -> dict[str, list[str]]:
        def work(connection: Connection) -> dict[str, list[str]]:
            found = {}
            for table in tables:
                words = {"schema": table.schema, "name": table.real}
                rows = connection.execute(self._transactions.kind.queries["changing_triggers"], words)
                found[table.name] = sorted(name for (name,) in rows if not OUR_TRIGGER.fullmatch(name))
            return {name: names for name, names in found.items() if names}

        return self._transactions.read("looking for triggers", work)

    def close(self) -> None:
        self._transactions.close()

    def _swap(self, connection: Connection, changes: Sequence[IntendedRow], made: list[IntendedRow]) -> None:
        made.clear()
        self._rows.begin(connection)
        row = _RowSql(connection, self._rows, self._facts, self._unchanging)
        for change in changes:
            row.free(change.table, change.key)
        for change in changes:
            row.put(change.table, change.key, change.values or {})
            made.append(change)
        self._rows.end(connection)

    def _make(self, connection: Connection, changes: Sequence[IntendedRow]) -> None:
        self._rows.begin(connection)
        row = _RowSql(connection, self._rows, self._facts, self._unchanging)
        for change in changes:
            if change.values is None:
                row.delete(change)
            else:
                row.put(change.table, change.key, change.values)
        self._rows.end(connection)


class _Refused(Exception):
    def __init__(self, kind: RefusalKind) -> None:
        super().__init__(kind)
        self.kind: RefusalKind = kind


class _Unready(Exception):
    """Rows with missing parents, or with remaining children."""

    def __init__(self, changes: Sequence[IntendedRow]) -> None:
        super().__init__()
        self.changes = changes


class _RowTransactions(Committing):
    """A rejection ends the transaction as a result: retries cannot succeed."""

    needs = "`migrator reverse`"

    def _once(self, work: Callable[[Connection], Any]) -> Any:
        try:
            return super()._once(work)
        except (UnicodeError, OverflowError):
            # No driver binds half a surrogate pair, which JSON can contain, or a number beyond the engine's.
            raise _Refused("value") from None
        except self._failures as error:
            kind = self.kind.rows.refusal(getattr(error, "orig", None) or error)
            if kind is not None:
                raise _Refused(kind) from None
            raise


class _RowSql:
    """Statements with the driver's own placeholders: values are passed unchanged."""

    def __init__(
        self,
        connection: Connection,
        rows: RowWriting,
        facts: SchemaFacts,
        unchanging: dict[str, frozenset[str]],
    ) -> None:
        self._connection = connection
        self._rows = rows
        self._facts = facts
        self._unchanging = unchanging
        self._mark = "?" if connection.dialect.paramstyle == "qmark" else "%s"

    def put(self, table: TableFacts, key: Row, values: Row) -> None:
        columns = [column for name in values if (column := _column(table, name)) and not column.generated]
        bound = [self._bound(column, values[column.name]) for column in columns]
        place = self._table(table)
        if place not in self._unchanging:
            self._unchanging[place] = self._rows.unchanging(self._connection, place)
        others = [one for one in columns if one.name not in key and one.real not in self._unchanging[place]]
        if self._found(table, key) is False:
            raise _Refused("unique")
        if not self._rows.upserts and self._updated(table, key, values, others or columns):
            return
        names = ", ".join(self._name(column.real) for column in columns)
        marks = ", ".join(self._mark for _ in columns)
        insert = f"INSERT INTO {self._table(table)} ({names}){self._rows.overriding} VALUES ({marks})"
        self._run(insert + (self._on_conflict(table, key, others) if self._rows.upserts else ""), bound)

    def free(self, table: TableFacts, key: Row) -> None:
        """Set one nullable column of each unique index to NULL, if no foreign key refers to it."""
        referred = {name for _, foreign in self._facts.referring({table.name}) for name in foreign.referred}
        freed: dict[str, None] = {}
        for unique in table.unique:
            columns = [column for name in unique if (column := _column(table, name))]
            names = [one.name for one in columns if one.nullable and not one.generated]
            freed |= dict.fromkeys([name for name in names if name not in {*key, *referred}][:1])
        self.set_null(table, key, list(freed))

    def lock(self, change: IntendedRow) -> bool:
        """Return whether the row exists. Until the transaction ends no row that refers to it can be inserted."""
        return bool(self._found(change.table, change.key, always=True))

    def is_ready(self, change: IntendedRow) -> bool:
        if change.values is None:
            return not self.has_children(change, lambda key: not key.deferrable)
        return all(
            self.parents(
                change, (), lambda key: not (key.deferrable or _loose(change.table, change.key, [key]))
            )
        )

    def parents(
        self,
        change: IntendedRow,
        others: Sequence[IntendedRow],
        counts: Callable[[ForeignKey], bool] = lambda _: True,
    ) -> Iterator[bool]:
        """Whether each parent is in the table or among the others."""
        values = change.values or {}
        for foreign in change.table.foreign_keys:
            wanted = [values.get(name) for name in foreign.columns]
            if None in wanted or not counts(foreign):
                continue
            parent = self._facts.tables[foreign.table]
            yield any(
                other.table.name == foreign.table
                and [(other.values or {}).get(name) for name in foreign.referred] == wanted
                for other in others
            ) or self._is_there(parent, dict(zip(foreign.referred, wanted, strict=True)))

    def _is_there(self, table: TableFacts, values: Row) -> bool:
        where, bound = self._where(table, values)
        return self._run(f"SELECT 1 FROM {self._table(table)} WHERE {where}", bound).first() is not None

    def set_null(self, table: TableFacts, key: Row, names: Sequence[str]) -> None:
        if names:
            where, bound = self._where(table, key)
            sets = ", ".join(f"{self._name(_real(table, name))} = NULL" for name in names)
            self._run(f"UPDATE {self._table(table)} SET {sets} WHERE {where}", bound)

    def delete(self, change: IntendedRow, gone: Sequence[IntendedRow] = ()) -> None:
        """Lock the row first, to see a child inserted concurrently, which an ON DELETE CASCADE would delete.

        `gone`: rows deleted in this transaction.
        """
        if not self.lock(change):
            return
        if self.has_children(change, gone=gone):
            raise _Refused("foreign key")
        where, bound = self._where(change.table, change.key)
        self._run(f"DELETE FROM {self._table(change.table)} WHERE {where}", bound)

    def _found(self, table: TableFacts, key: Row, *, always: bool = False) -> bool | None:
        """Whether the found and locked row has this exact key; None for no row, or if not queried.

        If the source compares texts as equal, such as 'a' and 'A', a key may find another row, which has its
        own items.
        `always`: query also if the key cannot find another row.
        """
        columns = [column for name in key if (column := _column(table, name))]
        of_text = [column for column in columns if column.alike and isinstance(key[column.name], str)]
        if not (of_text or always):
            return None
        where, bound = self._where(table, key)
        names = ", ".join(self._name(column.real) for column in of_text) or "1"
        row = self._run(
            f"SELECT {names} FROM {self._table(table)} WHERE {where}{self._rows.locks}", bound
        ).first()
        if row is None:
            return None
        return all(
            _unpadded(column, there) == _unpadded(column, key[column.name])
            for column, there in zip(of_text, row, strict=False)
        )

    def has_children(
        self,
        change: IntendedRow,
        counts: Callable[[ForeignKey], bool] = lambda _: True,
        gone: Sequence[IntendedRow] = (),
    ) -> bool:
        return any(
            self._has_child(child, foreign, change, [one.key for one in gone if one.table.name == child.name])
            for child, foreign in self._facts.referring({change.table.name})
            if counts(foreign)
        )

    def _has_child(
        self, child: TableFacts, foreign: ForeignKey, change: IntendedRow, gone: Sequence[Row]
    ) -> bool:
        table, key = change.table, change.key
        on = [
            f"c.{self._name(_real(child, ours))} = p.{self._name(_real(table, theirs))}"
            for ours, theirs in zip(foreign.columns, foreign.referred, strict=True)
        ]
        where, bound = self._where(table, key, "p.")
        # A row that refers to itself is not a child.
        others = [key, *gone] if child.name == table.name else gone
        if others:
            texts, values = zip(*(self._where(child, one, "c.") for one in others), strict=True)
            on, bound = [*on, f"NOT ({' OR '.join(texts)})"], [*chain(*values), *bound]
        found = (
            f"SELECT 1 FROM {self._table(child)} c JOIN {self._table(table)} p"
            f" ON {' AND '.join(on)} WHERE {where} LIMIT 1"
        )
        return self._run(found, bound).first() is not None

    def _updated(self, table: TableFacts, key: Row, values: Row, columns: Sequence[Column]) -> bool:
        """Update the row and return whether it existed."""
        where, bound = self._where(table, key)
        sets = ", ".join(f"{self._name(column.real)} = {self._mark}" for column in columns)
        new = [self._bound(column, values[column.name]) for column in columns]
        return self._run(f"UPDATE {self._table(table)} SET {sets} WHERE {where}", [*new, *bound]).rowcount > 0

    def _on_conflict(self, table: TableFacts, key: Row, others: Sequence[Column]) -> str:
        at = ", ".join(self._name(_real(table, name)) for name in key)
        names = [self._name(column.real) for column in others]
        sets = ", ".join(f"{name} = excluded.{name}" for name in names)
        return f" ON CONFLICT ({at}) DO {f'UPDATE SET {sets}' if sets else 'NOTHING'}"

    def _where(self, table: TableFacts, key: Row, alias: str = "") -> tuple[str, list[Any]]:
        columns = [column for name in key if (column := _column(table, name))]
        text = " AND ".join(f"{alias}{self._name(column.real)} = {self._mark}" for column in columns)
        return text, [self._bound(column, key[column.name]) for column in columns]

    def _bound(self, column: Column, value: Any) -> Any:
        try:
            return self._rows.bound(column, value)
        except ValueError:
            raise _Refused("value") from None

    def _table(self, table: TableFacts) -> str:
        name = self._name(table.real)
        return name if table.schema is None else f"{self._name(table.schema)}.{name}"

    def _name(self, name: str) -> str:
        return _quoted(self._connection.dialect, name)

    def _run(self, statement: str, bound: Sequence[Any]) -> sa.CursorResult[Any]:
        return self._connection.exec_driver_sql(statement, tuple(bound))


def _loose(table: TableFacts, key: Row, foreign_keys: Sequence[ForeignKey] = ()) -> set[str]:
    """Nullable columns of foreign keys: with NULL a row can precede its parent."""
    return {
        name
        for foreign in foreign_keys or table.foreign_keys
        for name in foreign.columns
        if (column := _column(table, name)) and column.nullable and not column.generated and name not in key
    }


def _quoted(dialect: Dialect, name: str) -> str:
    """Doubles percent signs for drivers that format by %."""
    return dialect.identifier_preparer.quote_identifier(name)


def _column(table: TableFacts, name: str) -> Column | None:
    column = table.column(name)
    return None if column is None or column.sql else column


def _unpadded(column: Column, text: str) -> str:
    """PostgreSQL's character(n) ignores spaces at the end, and returns as many as fit."""
    return text.rstrip(" ") if column.declared.startswith("character(") else text


def _real(table: TableFacts, name: str) -> str:
    column = table.column(name)
    return name if column is None else column.real
