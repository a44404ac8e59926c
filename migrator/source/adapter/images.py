"""Row images read through a service's own transaction, in the session settings that triggers see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from migrator.model.errors import UnmarkedError
from migrator.model.facts import Column
from migrator.source.adapter.driver import Driver, Row, Sql, key_of
from migrator.source.adapter.keys import Key
from migrator.source.adapter.statement import Fragment
from migrator.source.adapter.tables import CapturedTable, CapturedTables
from migrator.source.engines.base import Lock
from migrator.source.engines.catalogue import Below, Place
from migrator.source.engines.ddl import Ddl, columns_of
from migrator.source.engines.table import engine_of

# ──
# A service's session on PostgreSQL: what of its settings would make an image another one than a trigger
# makes.

_WANTED = {
    "DateStyle": "ISO",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "TimeZone": "UTC",
}
EVERY_SETTING = tuple(_WANTED)
_WHOLE = {"row_security": "off"}
"""An error where a policy would leave rows out."""
FOR_READING = (*EVERY_SETTING, *_WHOLE)
"""What our reads inside of a service's transaction need."""
_AS_THEY_ARE = frozenset({"integer", "number", "text", "boolean", "uuid"})
_BY_KIND: Mapping[str, tuple[str, ...]] = {
    # A zone is written with the moment, so that any will do.
    **dict.fromkeys(("date", "time", "timestamp"), ("DateStyle",)),
    "float": ("extra_float_digits",),
    "binary": ("bytea_output",),
}
_PLAIN_TEXT = ("character", "text", "varchar", "char", "bpchar", "name", "citext")


def settings_for(columns: Sequence[Column]) -> tuple[str, ...]:
    """The settings that the text of such columns depends on."""
    found: list[str] = []
    for column in columns:
        kind = column.kind.name
        if kind in _BY_KIND:
            found += _BY_KIND[kind]
        elif kind not in _AS_THEY_ARE or (
            kind == "text" and not column.declared.lower().startswith(_PLAIN_TEXT)
        ):
            found += _WANTED
    return tuple(dict.fromkeys(found))


def fits(names: Sequence[str]) -> str:
    """SQL that says whether the session's settings are as images need them."""
    tests = [f"current_setting('{name}') {_test(name)}" for name in names]
    return " AND ".join(tests) or "true"


def _test(name: str) -> str:
    if name == "DateStyle":
        return "LIKE 'ISO%'"
    if name == "extra_float_digits":
        return "IN ('1', '2', '3')"
    return f"= '{_WANTED[name]}'"


@contextmanager
def as_wanted(driver: Driver, names: Sequence[str]) -> Iterator[None]:
    """The settings as images need them, until the block ends; never longer than the transaction."""
    asked = ", ".join(f"current_setting('{name}')" for name in names)
    before = dict(zip(names, driver.rows(driver.sql(f"SELECT {asked}"))[0], strict=True))
    _set(driver, {name: (_WANTED | _WHOLE)[name] for name in names})
    try:
        yield
    except BaseException:
        # A transaction that has failed takes no statement any more, and its settings end with it.
        with suppress(Exception):
            _set(driver, before)
        raise
    _set(driver, before)


def _set(driver: Driver, values: Mapping[str, str]) -> None:
    sql = driver.sql("SELECT ")
    for number, (name, value) in enumerate(values.items()):
        sql.text(f"{', ' if number else ''}set_config('{name}', ").value(value).text(", true)")
    driver.rows(sql)


# ── Rows of watched tables as a mark shows them, read through a service's own transaction ──

KEYS_A_SELECT = 100
_FLOAT = "FLOAT"


@dataclass(frozen=True, slots=True)
class Shown:
    """A row: `image` as marks have it, `rest` the other columns of which a change leaves a mark.

    `is_locked`: of a row that an upsert of PostgreSQL's wrote, that it met it and did not make it. `whole`: of rows that an
    upsert of MySQL's meets, a digest of all columns.
    """

    image: str | None = None
    rest: str | None = None
    is_locked: bool = field(default=False, compare=False)
    whole: str | None = field(default=None, compare=False)


Typed: TypeAlias = tuple[str, str]
"""(SQL of a column, its type; '' where values need none)."""
State: TypeAlias = dict[Key, Shown]
"""Rows of one table by the values of their primary key."""


@dataclass(frozen=True)
class Images:
    """Reads rows under lock: nobody changes them before the transaction ends."""

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
        """The rows of which `columns` (the primary key, where nothing is said) hold one of the keys."""
        names = tuple(columns) or table.key
        found: State = {}
        wanted = [key for key in dict.fromkeys(keys) if None not in key]
        for start in range(0, len(wanted), KEYS_A_SELECT):
            sql = self._select(driver, table, asks=lock in ("met", "upserted"))
            equal(sql.text(" WHERE "), self.typed(table, names, "r"), wanted[start : start + KEYS_A_SELECT])
            found |= self.read(driver, table, sql, lock)
        return found

    def met(self, driver: Driver, table: CapturedTable, keys: Sequence[Key], columns: Sequence[str]) -> State:
        """The rows of those keys that are there already.

        Where gaps are locked, a key that is not there must not be: two services would each lock the gap that the other one
        inserts into.
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
    ) -> Sql:
        """A SELECT of the rows that a statement's WHERE chooses, in the statement's own words."""
        sql = self._select(driver, table, alias or self.ddl.quoted(table.place.name))
        if where is not None:
            sql.text(" WHERE ")
            for number, text in enumerate(where.texts):
                if number:
                    sql.value(values[number - 1])
                sql.text(text)
        return sql

    def below(self, driver: Driver, table: CapturedTable, keys: Sequence[Key], one: Below) -> State:
        """The child's rows that a foreign key ties to rows of the table.

        By a join, which locks both: of a sub-select MySQL would read the snapshot, in which a newer parent is missing.
        """
        child = self.tables.tables[one.child]
        ties = " AND ".join(
            f"r.{self.ddl.quoted(own)} = p.{self.ddl.quoted(theirs)}" for own, theirs in one.columns
        )
        found: State = {}
        for start in range(0, len(keys), KEYS_A_SELECT):
            sql = self._select(driver, child)
            sql.text(f" JOIN {self.place(table.place)} AS p ON {ties} WHERE ")
            equal(sql, self.typed(table, table.key, "p"), keys[start : start + KEYS_A_SELECT])
            found |= self.read(driver, child, sql, "key")
        return found

    def reach(
        self,
        driver: Driver,
        states: dict[Place, State],
        table: CapturedTable,
        keys: Sequence[Key],
        *,
        is_delete: bool,
    ) -> None:
        """Adds the rows that foreign keys change by themselves when rows of the table go, or get another key."""
        for one in table.below:
            if keys and (one.on_delete if is_delete else one.on_update):
                found = self.below(driver, table, keys, one)
                known = states.setdefault(one.child, {})
                new = [key for key in found if key not in known]
                known |= {key: found[key] for key in new}
                self.reach(driver, states, self.tables.tables[one.child], new, is_delete=is_delete)

    # ── statements ──

    def _select(self, driver: Driver, table: CapturedTable, alias: str = "r", *, asks: bool = False) -> Sql:
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
        """The column with all that it holds: some engines show six digits of a FLOAT."""
        column = f"{alias}.{self.ddl.quoted(name)}"
        return f"({column} + 0e0)" if self._is_rounded(table, name) else column

    def _is_rounded(self, table: CapturedTable, name: str) -> bool:
        rounds = "rounds floats" in engine_of(self.tables.dialect).sql.traits
        return rounds and table.types.get(name, "").lower().startswith("float")

    def shown(self, table: CapturedTable, alias: str) -> list[str]:
        """SQL of the row's image, and of what else of it is watched."""
        if table.captured is None:
            return ["NULL", "NULL"]
        columns = columns_of(table.captured, table.captured.columns)
        rest = [name for name in table.captured.watched or () if name not in table.captured.columns]
        more = self.ddl.image(columns_of(table.captured, rest), alias) if rest else "NULL"
        return [self.ddl.image(columns, alias), more]

    def read(self, driver: Driver, table: CapturedTable, sql: Sql, lock: Lock) -> State:
        # On a line of its own, since a statement's WHERE may end in a comment.
        sql.text(f"\n{driver.engine.outcomes.locks[lock]}")
        count = len(table.key)
        try:
            rows = driver.rows(sql)
            if not all(row[-1] for row in rows):
                rows = self._as_wanted(driver, sql, self.settings(table))
        except NotImplementedError:
            # psycopg reads moments and spans of time in some settings only.
            rows = self._as_wanted(driver, sql, EVERY_SETTING)
        return {key_of(row[:count]): Shown(*row[count:-1]) for row in rows}

    def _as_wanted(self, driver: Driver, sql: Sql, names: Sequence[str]) -> list[Row]:
        with as_wanted(driver, names):
            try:
                return driver.rows(sql)
            except NotImplementedError:
                what = "dual write: the driver cannot read the key of a table that this statement writes"
                advice = "let triggers leave its marks (`migrator capture install`)"
                raise UnmarkedError(f"{what}; {advice}") from None

    def settings(self, table: CapturedTable) -> Sequence[str]:
        captured = table.captured
        if captured is None or not self._compares_types:
            return ()
        return settings_for(columns_of(captured, captured.columns))

    def typed(self, table: CapturedTable, columns: Sequence[str], alias: str) -> list[Typed]:
        """The columns, with the types of values that are compared with them.

        PostgreSQL stores a number in a column of texts, and compares the two with an error; so with arrays. MySQL
        compares a FLOAT with the number as it was said, which is not what it made of it.
        """
        named = {name: f"{alias}.{self.ddl.quoted(name)}" for name in columns}
        if not self._compares_types:
            floats = {name for name in columns if self._is_rounded(table, name)}
            return [(sql, _FLOAT if name in floats else "") for name, sql in named.items()]
        # No operator compares a domain over an enum, not even with itself.
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
        parts = [place.schema, place.name] if place.schema is not None else [place.name]
        return ".".join(self.ddl.quoted(part) for part in parts if part is not None)


def _enums(table: CapturedTable) -> dict[str, str]:
    """By real column name, the enum that a domain is made of."""
    columns = () if table.captured is None else table.captured.table.columns
    return {one.real: one.kind.read_as for one in columns if one.kind.name == "text" and one.kind.read_as}


def equal(sql: Sql, columns: Sequence[Typed], keys: Sequence[Key]) -> None:
    """Adds: the columns hold one of the keys."""
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


def _value(sql: Sql, value: Any, declared: str) -> None:
    # PostgreSQL itself takes a text for what it is compared with, and names of types may be strange to the session.
    if declared and (declared == _FLOAT or not isinstance(value, str)):
        sql.text("CAST(").value(value).text(f" AS {declared})")
    else:
        sql.value(value)
