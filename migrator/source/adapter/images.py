"""Row images, read in a service's own transaction with the session settings that triggers use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeAlias

from msgspec import Struct

from migrator.mapping.model.facts import Column, columns_of
from migrator.runtime.errors import UnmarkedError
from migrator.source.adapter.driver import Driver, Row, SqlText, key_of
from migrator.source.adapter.statement import Fragment, StatementValue, StatementWrite
from migrator.source.adapter.tables import CapturedTable, CapturedTables
from migrator.source.engines.base import Lock
from migrator.source.engines.catalogue import Below, Place
from migrator.source.engines.connect import engine_of
from migrator.source.engines.ddl import Ddl
from migrator.source.engines.postgresql.facts import TEXTS
from migrator.source.sql.spelling import fold

# ── Keys of the rows that a service's statement writes, from the statement and its parameters ──

Key: TypeAlias = Row
Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]


class StatementKeys(Struct, frozen=True):
    write: StatementWrite
    table: CapturedTable
    parameters: Sequence[Parameters]
    dialect: str

    # ── INSERT ──

    @property
    def inserted(self) -> list[Key]:
        cells = [self._cells(row, self.table.key) for row in self.write.rows]
        return [_values(row, parameters) for parameters in self.parameters for row in cells]

    def _cells(
        self, row: Sequence[StatementValue | None], names: Sequence[str]
    ) -> list[StatementValue | None]:
        places = {name: at for at, name in enumerate(self._columns())}
        given = (places.get(self.fold(name), len(row)) for name in names)
        return [row[at] if at < len(row) else None for at in given]

    @property
    def says_inserted(self) -> bool:
        return all(None not in self._cells(row, self.table.key) for row in self.write.rows)

    @property
    def returned(self) -> list[int]:
        returned = self.write.returned
        if returned == ("*",):
            returned = tuple(self.fold(name) for name in self.table.columns if name not in self.table.hidden)
        if "*" in returned or not all(self.fold(name) in returned for name in self.table.key):
            return []
        return [returned.index(self.fold(name)) for name in self.table.key]

    def met(self) -> Iterator[tuple[tuple[str, ...], list[Key]]]:
        """Keys of rows that an upsert may conflict with, by unique key.

        Raises: UnmarkedError if no unique key is complete.
        """
        met = False
        for columns in dict.fromkeys([self.table.key, *self.table.unique]):
            cells = [self._cells(row, columns) for row in self.write.rows]
            if any(None in row for row in cells):
                continue
            met = True
            yield columns, [_values(row, parameters) for parameters in self.parameters for row in cells]
        if not met:
            raise refused(self.table.name, "it lacks the whole key of the rows that it may replace")

    # ── UPDATE and DELETE ──

    def wanted(self) -> list[Key] | None:
        if any(self.fold(name) not in self.write.wanted for name in self.table.key):
            return None
        keys = [self._wanted(parameters) for parameters in self.parameters]
        return None if None in keys else [key for some in keys for key in some or ()]

    def _wanted(self, parameters: Parameters) -> list[Key] | None:
        each: list[list[Any]] = []
        for name in self.table.key:
            lists = [given.each_of(parameters) for given in self.write.wanted[self.fold(name)]]
            if None in lists:
                return None
            each.append([value for values in lists for value in values or ()])
        return [key_of(key) for key in product(*each)]

    @property
    def moves(self) -> list[str]:
        set_anew = self.write.assigned.keys() - self.write.kept
        return [name for name in self.table.key if self.fold(name) in set_anew]

    def moved(self, keys: Sequence[Key]) -> dict[Key, Key]:
        """New keys by old ones. Raises: UnmarkedError if the statement computes them."""
        if not (columns := self.moves):
            return {}
        assigned = [(name, self.write.assigned[self.fold(name)]) for name in columns]
        given = [(name, given_value) for name, given_value in assigned if given_value is not None]
        if len(given) < len(assigned):
            raise refused(self.table.name, "it computes new primary keys")
        moved = {key: key for key in keys}
        for parameters in self.parameters:
            new = {name: given_value.of(parameters) for name, given_value in given}
            chosen = None if len(self.parameters) == 1 else self._wanted(parameters)
            for key, now in moved.items():
                if chosen is None or now in chosen:
                    named = zip(self.table.key, now, strict=True)
                    moved[key] = key_of([new.get(name, value) for name, value in named])
        return moved

    @property
    def moves_keys(self) -> bool:
        """Whether an update sets a column of any unique key: foreign keys may refer to it."""
        names = {self.fold(name) for key in (self.table.key, *self.table.unique) for name in key}
        return not names.isdisjoint(self.write.assigned)

    @property
    def times(self) -> int:
        return len(self.parameters) * len(self.write.rows)

    @property
    def repeats(self) -> int:
        keys = self.inserted if self.write.action == "insert" else (self.wanted() or [])
        complete = [key for key in keys if None not in key]
        return len(complete) - len(set(complete)) if self.times > 1 or len(self.parameters) > 1 else 0

    @property
    def moves_children(self) -> bool:
        columns = {self.fold(name) for tie in self.table.below if tie.on_update for _, name in tie.columns}
        return not columns.isdisjoint(self.write.assigned)

    def fold(self, name: str) -> str:
        return fold(name, self.dialect)

    def _columns(self) -> Sequence[str]:
        if self.write.columns is not None:
            return self.write.columns
        return [self.fold(name) for name in self.table.columns if name not in self.table.unfilled]


def _values(row: Sequence[StatementValue | None], parameters: Parameters) -> Key:
    return key_of([None if given is None else given.of(parameters) for given in row])


def refused(name: str, why: str) -> UnmarkedError:
    what = f"dual write: this statement may write {name}, and {why}"
    advice = (
        "write it with the keys of its rows, or capture it with mark_changed and pass migrator_marked=True"
    )
    return UnmarkedError(f"{what}; {advice}")


# ── Session settings on PostgreSQL that would make an image differ from a trigger's ──

EVERY_SETTING = tuple(TEXTS)
_WHOLE = {"row_security": "off"}
"""Makes a read fail if a policy would hide rows."""
FOR_READING = (*EVERY_SETTING, *_WHOLE)
"""Settings that our reads in a service's transaction need."""
_AS_THEY_ARE = frozenset({"integer", "number", "text", "boolean", "uuid"})
_BY_KIND: Mapping[str, tuple[str, ...]] = {
    # The time zone is part of the text, so any zone works.
    **dict.fromkeys(("date", "time", "timestamp"), ("DateStyle",)),
    "float": ("extra_float_digits",),
    "binary": ("bytea_output",),
}
_PLAIN_TEXT = ("character", "text", "varchar", "char", "bpchar", "name", "citext")


def settings_for(columns: Sequence[Column]) -> tuple[str, ...]:
    settings: list[str] = []
    for column in columns:
        kind = column.kind.name
        if kind in _BY_KIND:
            settings += _BY_KIND[kind]
        elif kind not in _AS_THEY_ARE or (
            kind == "text" and not column.declared.lower().startswith(_PLAIN_TEXT)
        ):
            settings += TEXTS
    return tuple(dict.fromkeys(settings))


def fits(names: Sequence[str]) -> str:
    tests = {"DateStyle": "LIKE 'ISO%'", "extra_float_digits": "IN ('1', '2', '3')"}
    wanted = [f"current_setting('{name}') {tests.get(name, f'= {TEXTS[name]!r}')}" for name in names]
    return " AND ".join(wanted) or "true"


@contextmanager
def as_wanted(driver: Driver, names: Sequence[str]) -> Iterator[None]:
    """Within the block, set the settings that images need, never longer than the transaction."""
    settings = ", ".join(f"current_setting('{name}')" for name in names)
    before = dict(zip(names, driver.rows(driver.sql(f"SELECT {settings}"))[0], strict=True))
    _set(driver, {name: (TEXTS | _WHOLE)[name] for name in names})
    try:
        yield
    except BaseException:
        # A failed transaction accepts no further statements, and its settings end with it.
        with suppress(Exception):
            _set(driver, before)
        raise
    _set(driver, before)


def _set(driver: Driver, values: Mapping[str, str]) -> None:
    sql = driver.sql("SELECT ")
    for number, (name, value) in enumerate(values.items()):
        sql.text(f"{', ' if number else ''}set_config('{name}', ").value(value).text(", true)")
    driver.rows(sql)


# ── Images of rows of watched tables, read in a service's own transaction ──

KEYS_A_SELECT = 100
_FLOAT = "FLOAT"


@dataclass(frozen=True, slots=True)
class Shown:
    """A row's image, and a digest of `rest`: other columns whose changes leave a mark.

    `is_locked`: whether an upsert on PostgreSQL updated the row.
    `whole`: a digest of all columns, for rows that an upsert on MySQL meets.
    """

    image: str | None = None
    rest: str | None = None
    is_locked: bool = field(default=False, compare=False)
    whole: str | None = field(default=None, compare=False)


Typed: TypeAlias = tuple[str, str]
"""(SQL of a column, its type; '' if values need none)."""
State: TypeAlias = dict[Key, Shown]
"""Rows of one table by the values of their primary key."""


class RowImages(Struct, frozen=True):
    """Reads rows under lock, so that they do not change before the transaction ends."""

    tables: CapturedTables
    ddl: Ddl

    def by_keys(
        self,
        driver: Driver,
        table: CapturedTable,
        keys: Iterable[Key],
        columns: Sequence[str] = (),
        lock: Lock = "row",
    ) -> State:
        names = tuple(columns) or table.key
        rows: State = {}
        wanted = [key for key in dict.fromkeys(keys) if None not in key]
        for start in range(0, len(wanted), KEYS_A_SELECT):
            sql = self._select(driver, table, asks=lock in ("met", "upserted"))
            equal(sql.text(" WHERE "), self.typed(table, names, "r"), wanted[start : start + KEYS_A_SELECT])
            rows |= self.read(driver, table, sql, lock)
        return rows

    def met(self, driver: Driver, table: CapturedTable, keys: Sequence[Key], columns: Sequence[str]) -> State:
        """Existing rows. Missing keys are not locked if the engine locks gaps: two services would block each
        other's inserts.
        """
        if driver.engine.outcomes.locks_gaps:
            there = self.by_keys(driver, table, keys, columns, "none")
            return self.by_keys(driver, table, list(there), lock="met")
        return self.by_keys(driver, table, keys, columns, "met")

    def chosen(
        self,
        driver: Driver,
        table: CapturedTable,
        alias: str,
        where: Fragment | None,
        values: Sequence[object],
    ) -> SqlText:
        sql = self._select(driver, table, alias or self.ddl.quoted(table.place.name))
        if where is not None:
            sql.text(" WHERE ")
            for number, text in enumerate(where.texts):
                if number:
                    sql.value(values[number - 1])
                sql.text(text)
        return sql

    def below(self, driver: Driver, table: CapturedTable, keys: Sequence[Key], tie: Below) -> State:
        """The child's rows that refer to these keys.

        A join locks both tables; a sub-select would read MySQL's snapshot, in which a newer parent is
        missing.
        """
        child = self.tables.tables[tie.child]
        ties = " AND ".join(
            f"r.{self.ddl.quoted(own)} = p.{self.ddl.quoted(theirs)}" for own, theirs in tie.columns
        )
        rows: State = {}
        for start in range(0, len(keys), KEYS_A_SELECT):
            sql = self._select(driver, child)
            sql.text(f" JOIN {self.place(table.place)} AS p ON {ties} WHERE ")
            equal(sql, self.typed(table, table.key, "p"), keys[start : start + KEYS_A_SELECT])
            rows |= self.read(driver, child, sql, "key")
        return rows

    def reach(
        self,
        driver: Driver,
        states: dict[Place, State],
        table: CapturedTable,
        keys: Sequence[Key],
        *,
        is_delete: bool,
    ) -> None:
        for tie in table.below:
            if keys and (tie.on_delete if is_delete else tie.on_update):
                rows = self.below(driver, table, keys, tie)
                reached = states.setdefault(tie.child, {})
                new = [key for key in rows if key not in reached]
                reached |= {key: rows[key] for key in new}
                self.reach(driver, states, self.tables.tables[tie.child], new, is_delete=is_delete)

    # ── statements ──

    def _select(
        self, driver: Driver, table: CapturedTable, alias: str = "r", *, asks: bool = False
    ) -> SqlText:
        shown = [self._whole(table, name, alias) for name in table.key] + self.shown(table, alias)
        if asks:
            shown += driver.engine.outcomes.met(alias, [self.ddl.quoted(name) for name in table.columns])
        shown.append(fits(names) if (names := self.settings(table)) else "1")
        name = self.place(table.place)
        as_alias = (
            "" if alias == self.ddl.quoted(table.place.name) and name.endswith(alias) else f" AS {alias}"
        )
        return driver.sql(f"SELECT {', '.join(shown)} FROM {name}{as_alias}")

    def _whole(self, table: CapturedTable, name: str, alias: str) -> str:
        """A form that can be compared: some engines show only six digits of a FLOAT, and drivers do not send the
        values that they make of JSON.
        """
        column = f"{alias}.{self.ddl.quoted(name)}"
        if table.types.get(name, "").lower() == "jsonb":
            return f"CAST({column} AS text)"
        return f"({column} + 0e0)" if self._is_rounded(table, name) else column

    def _is_rounded(self, table: CapturedTable, name: str) -> bool:
        rounds = "rounds floats" in engine_of(self.tables.dialect).sql.traits
        return rounds and table.types.get(name, "").lower().startswith("float")

    def shown(self, table: CapturedTable, alias: str) -> list[str]:
        if table.captured is None:
            return ["NULL", "NULL"]
        columns = columns_of(table.captured, table.captured.columns)
        rest = [name for name in table.captured.watched or () if name not in table.captured.columns]
        rest_image = self.ddl.image(columns_of(table.captured, rest), alias) if rest else "NULL"
        return [self.ddl.image(columns, alias), rest_image]

    def read(self, driver: Driver, table: CapturedTable, sql: SqlText, lock: Lock) -> State:
        # On a line of its own, since a statement's WHERE may end in a comment.
        sql.text(f"\n{driver.engine.outcomes.locks[lock]}")
        count = len(table.key)
        try:
            rows = driver.rows(sql)
            if not all(row[-1] for row in rows):
                rows = self._as_wanted(driver, sql, self.settings(table))
        except NotImplementedError:
            # psycopg reads times and intervals in some settings only.
            rows = self._as_wanted(driver, sql, EVERY_SETTING)
        return {key_of(row[:count]): Shown(*row[count:-1]) for row in rows}

    def _as_wanted(self, driver: Driver, sql: SqlText, names: Sequence[str]) -> list[Row]:
        with as_wanted(driver, names):
            try:
                return driver.rows(sql)
            except NotImplementedError:
                what = "dual write: the driver cannot read the key of a table that this statement writes"
                advice = "let triggers capture its changes (`migrator capture install`)"
                raise UnmarkedError(f"{what}; {advice}") from None

    def settings(self, table: CapturedTable) -> Sequence[str]:
        captured = table.captured
        if captured is None or not self._compares_types:
            return ()
        return settings_for(columns_of(captured, captured.columns))

    def typed(self, table: CapturedTable, columns: Sequence[str], alias: str) -> list[Typed]:
        """The columns with the types for values compared with them.

        PostgreSQL does not compare a text column with a number or an array of them. MySQL compares a FLOAT
        with the given number, which differs from the stored value.
        """
        named = {name: f"{alias}.{self.ddl.quoted(name)}" for name in columns}
        if not self._compares_types:
            floats = {name for name in columns if self._is_rounded(table, name)}
            return [(sql, _FLOAT if name in floats else "") for name, sql in named.items()]
        # No operator compares a domain over an enum, not even with its own values.
        enums = _enums(table)
        return [
            (f"CAST({sql} AS {enums[name]})", enums[name])
            if name in enums
            else (sql, table.types.get(name, ""))
            for name, sql in named.items()
        ]

    @property
    def _compares_types(self) -> bool:
        return engine_of(self.tables.dialect).outcomes.compares_types

    def place(self, place: Place) -> str:
        schema = place.schema or engine_of(self.tables.dialect).sessions.own_schema
        return ".".join(self.ddl.quoted(part) for part in (schema, place.name) if part)


def _enums(table: CapturedTable) -> dict[str, str]:
    columns = () if table.captured is None else table.captured.table.columns
    return {
        column.real: column.kind.read_as
        for column in columns
        if column.kind.name == "text" and column.kind.read_as
    }


def equal(sql: SqlText, columns: Sequence[Typed], keys: Sequence[Key]) -> None:
    for number, key in enumerate(keys):
        if len(columns) == 1:
            sql.text(", " if number else f"{columns[0][0]} IN (")
            _value(sql, key[0], columns[0][1])
            continue
        sql.text(" OR (" if number else "((")
        for place, ((name, declared), value) in enumerate(zip(columns, key, strict=True)):
            _value(sql.text(f" AND {name} = " if place else f"{name} = "), value, declared)
        sql.text(")")
    sql.text(")")


def _value(sql: SqlText, value: Any, declared: str) -> None:
    # PostgreSQL converts a text to the column's type itself, and the session may not find the types' names.
    if declared and (declared == _FLOAT or not isinstance(value, str)):
        sql.text("CAST(").value(value).text(f" AS {declared})")
    else:
        sql.value(value)
