"""Row trees, counts and answers read from a database by SQLAlchemy."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import Executable
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.sql.elements import ColumnElement

from migrator.mapping.model.edges import KeyCounts, QueryCall, RawPage, RowsSeen
from migrator.mapping.model.facts import CollectionPlan, Column, EntityPlan, Lookup, SchemaFacts, TableFacts
from migrator.mapping.model.mapping import Statement
from migrator.mapping.model.results import Explained
from migrator.mapping.model.table import RowTree, SourceKey, decode_key, encode_key
from migrator.runtime.errors import HiddenRowsError, SettingsError, SourceError, TooSlowError, TwinRowsError
from migrator.runtime.retry import RateLimit, Retry
from migrator.runtime.values import replace
from migrator.source.engines.base import Address, ConnectionOptions, Mark
from migrator.source.engines.connect import engine_at, engine_of, place_of, read_engine, reflect, view_names
from migrator.source.sql import selects
from migrator.source.sql.random_keys import random_keys
from migrator.source.sql.selects import (
    ColumnType,
    Conditions,
    Key,
    KeyRange,
    RootSelect,
    Where,
    climb_select,
    collection_select,
    column_of,
    entity_words,
    exact,
    key_of,
    kind_of,
    named,
    roots_select,
    unnamed,
    where_of,
    with_key,
)
from migrator.source.sql.server_facts import (
    PageSelect,
    Pooling,
    ReplicaCheck,
    asked,
    asker,
    explained,
    first_row_of_each,
    mark_of,
    pooling_of,
    rows_at_least,
    rows_expected,
)
from migrator.source.sql.transactions import (
    Reading,
    first_rows,
    key_reader,
    of_the_source,
    row_trees,
    rows_read,
    twins_of,
)

if TYPE_CHECKING:
    from migrator.source.adapter.in_transaction import InTransaction

# ── Their SELECTs ──


def count_select(plan: EntityPlan, conditions: Conditions = ()) -> selects.Statement:
    root = named(plan.table, "root")
    return sa.select(sa.func.count()).select_from(root).where(*where_of(root, (*plan.where, *conditions)))


def all_select(plan: EntityPlan) -> selects.Statement:
    root = named(plan.table, "root")
    return sa.select(sa.literal_column("1")).select_from(root).where(*where_of(root, plan.where))


def without_key_select(plan: EntityPlan) -> selects.Statement:
    root = named(plan.table, "root")
    no_key = sa.or_(
        sa.false(), *(is_null(column_of(root, column.real)) for column in plan.key if column.nullable)
    )
    return sa.select(sa.func.count()).select_from(root).where(no_key, *where_of(root, plan.where))


def keys_select(plan: EntityPlan, *, as_text: bool = False, distinct: bool = True) -> selects.Statement:
    root = named(plan.table, "root")
    columns = [exact(column_of(root, column.real)) for column in plan.key]
    keys = (
        sa.select(*(text_of(column) if as_text else column for column in columns))
        .select_from(root)
        .where(*with_key(plan, root), *where_of(root, plan.where))
    )
    return sa.select(sa.func.count()).select_from((keys.distinct() if distinct else keys).subquery("keys"))


def whole_select(table: TableFacts) -> selects.Statement:
    """Count all rows, including those that an entity's `where` excludes."""
    return sa.select(sa.func.count()).select_from(named(table, "root"))


def twins_select(plan: EntityPlan, limit: int) -> selects.Statement:
    root = named(plan.table, "root")
    key, many = key_of(plan, root), sa.func.count()
    conditions = [*with_key(plan, root), *where_of(root, plan.where)]
    grouped = sa.select(*key, many).select_from(root).where(*conditions).group_by(*key)
    return grouped.having(many > 1).limit(limit)


def computed_select(table: TableFacts, column: Column) -> selects.Statement:
    """A SELECT without rows that raises the database's errors in the column's SQL."""
    columns = tuple(other for other in table.columns if other.sql is None or other == column)
    return sa.select(named(replace(table, columns=columns), "root").c[column.real]).limit(0)


def no_rows_select(tables: Sequence[TableFacts]) -> selects.Statement:
    """A SELECT without rows that raises the database's errors in reading the tables."""
    nothing: sa.Select[Any] = sa.select(sa.literal_column("1")).limit(0)
    names = (unnamed(replace(table, columns=())) for table in tables)
    return sa.select(*(nothing.select_from(name).scalar_subquery() for name in names))


def sums_select(plan: EntityPlan, columns: Sequence[Column]) -> selects.Statement:
    root = named(plan.table, "root")
    sums = (sa.func.sum(_addable(column_of(root, column.real))) for column in columns)
    return sa.select(*sums).select_from(root).where(*with_key(plan, root), *where_of(root, plan.where))


def _addable(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """PostgreSQL has no sum of an oid."""
    is_oid = isinstance(column.type, ColumnType) and column.type.declared == "oid"
    return sa.cast(column, sa.BigInteger()) if is_oid else exact(column)


def text_of(column: ColumnElement[Any]) -> ColumnElement[Any]:
    plain = Where("collates", sa.func.quote(column), sa.cast(column, sa.Text()).collate("C"))
    kind = kind_of(column)
    # MySQL's HEX rounds a number; and invalid bytes would be cast to a text of question marks.
    written = sa.cast(column, sa.CHAR()) if kind is None or kind.name in _WRITTEN else column
    return Where("compares in hex", plain, sa.func.hex(written))


_WRITTEN = frozenset({"integer", "number", "float", "boolean", "date", "time", "timestamp"})


def is_null(column: ColumnElement[Any]) -> ColumnElement[bool]:
    """MySQL's IS NULL is also true for a zero date in a NOT NULL column.

    Source: MySQL Reference Manual, "Comparison Functions and Operators", IS NULL.
    """
    return Where("zero date is NULL", column.is_(None), column.op("<=>", is_comparison=True)(sa.null()))


# ── The part of `model.edges.Source` that counts ──


class SqlTotals:
    """Each from one reading. Raises, from every method: SourceError, without values, parameters or passwords."""

    takes_rows = True

    _reading: Reading | InTransaction

    def count(self, plan: EntityPlan) -> int:
        return self.count_where(plan, ())

    def rows_about(self, plan: EntityPlan) -> int:
        """Count, or the database's estimate if that takes too long. SQLite has none."""
        try:
            return self.count(plan)
        except TooSlowError:
            if rows := self._rows_expected(plan):
                return rows
            raise

    def rows_expected(self, plan: EntityPlan) -> int:
        estimated = self._rows_expected(plan)
        return self.count(plan) if estimated is None else estimated

    def count_where(self, plan: EntityPlan, conditions: Conditions) -> int:
        return int(self._first_row(plan, count_select(plan, conditions))[0])

    def rows_without_key(self, plan: EntityPlan) -> int:
        if not any(column.nullable for column in plan.key):
            return 0
        return int(self._first_row(plan, without_key_select(plan))[0])

    def key_counts(self, plan: EntityPlan) -> KeyCounts:
        every, unlike = keys_select(plan, distinct=False), keys_select(plan)
        statements = every, unlike, keys_select(plan, as_text=True)

        def work(connection: Connection) -> KeyCounts:
            return KeyCounts(*(int(connection.execute(statement).scalar_one()) for statement in statements))

        return self._reading.read(entity_words(plan), work)

    def rows_seen(self, table: TableFacts) -> RowsSeen:
        def work(connection: Connection) -> RowsSeen:
            at_least = rows_at_least(connection, table)
            if at_least is None:
                return RowsSeen(0)
            return RowsSeen(int(connection.execute(whole_select(table)).scalar_one()), at_least)

        return self._reading.read(f"table {table.name}", work)

    def twins(self, plan: EntityPlan, at_most: int) -> list[tuple[SourceKey, int]]:
        rows = self._rows(entity_words(plan), twins_select(plan, at_most))
        return [(self._key_text(plan, row[:-1]), int(row[-1])) for row in rows]

    def sums(self, plan: EntityPlan, columns: Sequence[Column]) -> dict[str, Any]:
        if not columns:
            return {}
        row = self._first_row(plan, sums_select(plan, columns))
        return {column.name: value for column, value in zip(columns, row, strict=True)}

    def _rows_expected(self, plan: EntityPlan) -> int | None:
        statement = all_select(plan)
        return self._reading.read(entity_words(plan), lambda connection: rows_expected(connection, statement))

    def _first_row(self, plan: EntityPlan, statement: sa.Select[Any]) -> tuple[Any, ...]:
        return self._rows(entity_words(plan), statement)[0]

    def _rows(
        self, doing: str, statement: sa.Executable, params: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        return self._reading.read(doing, partial(first_rows, statement=statement, params=params))

    def _key_text(self, plan: EntityPlan, values: Sequence[Any]) -> SourceKey:
        try:
            return encode_key(values)
        except TypeError as error:
            what = f"{self._reading.place}: {entity_words(plan)}: {error}; name other columns in key:"
            raise SourceError(what) from None


# ── Readings of an address: of the source itself, or of one of its replicas ──


def reading_of(address: Address, connection_options: ConnectionOptions, retry: Retry) -> Reading:
    return Reading(read_engine(address, connection_options), place_of(address.url()), retry, of_the_source)


def replica_of(
    address: Address, connection_options: ConnectionOptions, retry: Retry, primary: Reading
) -> Reading:
    """A reading of pages on the replica, on connections that have replayed everything the primary had at the
    first one.
    """
    engine = read_engine(address, connection_options)
    kind = engine_at(engine)
    if kind is not engine_at(primary.engine) or kind.is_file:
        what = "names no replica: it must be a server of url's kind (an SQLite file has no replica)"
        raise SettingsError(f"source: read_url {what}; correct it, or leave it out")

    def mark() -> Mark:
        return primary.read("its position", lambda connection: mark_of(connection.dialect, asker(connection)))

    return Reading(engine, f"{place_of(address.url())} (read_url)", retry, ReplicaCheck(mark, retry))


# ── The source of row trees on a real database: `model.edges.Source` by SQLAlchemy ──

TOGETHER = 50
"""Short statements per transaction."""
KEYS_A_SELECT = 200
"""Keys per SELECT: far below the 999 parameters of an old SQLite, even for keys of four columns."""

Value = TypeVar("Value")
PLANS_KEPT = 500
"""Cached SELECTs: a mapping has one per entity."""


class SqlSource(SqlTotals):
    """Each call reads one read-only snapshot. Thread-safe.

    `url`: from `source_url`, or its provider; the first call connects.
    `schemas`: in addition to the default one.
    `replica`: URL for pages.
    `pace`: the rate limit; waits before pages, and counts their rows, children included.
    Raises, from every method: SourceError, without values, parameters or passwords.
    """

    def __init__(
        self,
        url: URL | Address,
        connection_options: ConnectionOptions = ConnectionOptions(),  # noqa: B008  (frozen)
        *,
        schemas: Sequence[str] = (),
        pace: RateLimit | None = None,
        retry: Retry = Retry(),  # noqa: B008  (frozen)
        replica: URL | Address | None = None,
    ) -> None:
        self._address = Address.of(url)
        primary = reading_of(self._address, connection_options, retry)
        self._reading = primary
        self._pages: Reading | InTransaction = primary
        if replica is not None:
            self._pages = replica_of(Address.of(replica), connection_options, retry, primary)
        self.pace = pace or RateLimit()
        self._schemas = tuple(schemas)
        self._root_selects: dict[int, RootSelect] = {}
        self._is_inside = False

    @property
    def database(self) -> str:
        """The database's name; for SQLite the file's, without folder and extension."""
        return Path(self._address.url().database or "").stem

    @property
    def dialect(self) -> str:
        return str(self._reading.engine.dialect.name)

    @property
    def hides_rows(self) -> bool:
        return engine_of(self.dialect).server.hides_rows

    @property
    def engine(self) -> Engine:
        """The primary's engine; others may also use it, within the limit of connections."""
        return self._reading.engine

    def facts(self) -> SchemaFacts:
        return self._reading.read("reading the schema", lambda connection: reflect(connection, self._schemas))

    def views(self) -> set[str]:
        return self._reading.read("listing views", view_names)

    def computed_fault(self, table: TableFacts, column: Column) -> str:
        try:
            self._rows("its SQL", computed_select(table, column))
        except HiddenRowsError:
            return ""  # not a fault of the SQL; reads of rows raise it
        except (SettingsError, SourceError) as error:
            return str(error)
        return ""

    def hidden_faults(self, tables: Sequence[TableFacts]) -> list[str]:
        """Why rows may be hidden from this user, by table or view; '' for none."""

        def look(some: Sequence[TableFacts]) -> None:
            self._rows(f"table {some[0].name}", no_rows_select(some))

        return _faults(tables, look, HiddenRowsError)

    def volatile_parts(self, column: Column) -> list[str]:
        from migrator.source.sql.statements import volatile_parts  # only what parses SQL loads sqlglot

        return self._reading.read("its SQL", lambda connection: volatile_parts(connection, column.sql or ""))

    def page_bounds(
        self, plan: EntityPlan, page_rows: int, after: SourceKey | None = None, upto: SourceKey | None = None
    ) -> Iterator[SourceKey]:
        """Bounds, each from its own snapshot, so that a long walk holds no transaction open."""
        select = self._root_select(plan)
        while True:
            statement = select.bound(KeyRange(_key(after), _key(upto)), page_rows)
            rows = self._rows(entity_words(plan), statement)
            if not rows:
                return
            bound = self._key_text(plan, rows[0])
            if after == bound:
                what = "its keys have no total order; name other columns in key:"
                raise SourceError(f"{self._reading.place}: {entity_words(plan)}: {what}")
            after = bound
            yield bound

    def random_keys(self, plan: EntityPlan, number: int, rows: int, seed: int) -> list[SourceKey]:
        keys = self._reading.read(
            entity_words(plan), lambda connection: random_keys(connection, plan, number, rows, seed)
        )
        return [self._key_text(plan, key) for key in keys]

    def read_page(
        self, plan: EntityPlan, after: SourceKey | None, upto: SourceKey | None, limit: int | None = None
    ) -> list[RowTree]:
        return list(self.read_raw(plan, frozenset(), after, upto, limit).rows)

    def raw_places(self, plan: EntityPlan) -> frozenset[int]:
        raw = engine_of(self.dialect).connecting.raw
        places = (place for place, slot in enumerate(plan.slots) if slot.column.kind.name in raw)
        # Children are found by the key's own values.
        key = {column.real for column in plan.key} if plan.collections else set()
        return frozenset(
            place
            for place in places
            if not ((slot := plan.slots[place]).alias == "" and slot.column.real in key)
            and not (slot.column.kind.name == "time" and slot.column.kind.zone)
        )

    def read_raw(
        self,
        plan: EntityPlan,
        raw: frozenset[int],
        after: SourceKey | None,
        upto: SourceKey | None,
        limit: int | None = None,
    ) -> RawPage:
        select = self._root_select(plan)

        def page(connection: Connection) -> RawPage:
            chosen = KeyRange(_key(after), _key(upto))
            # One row more than requested: the last one's twin would begin no other page, and no read would see it.
            read = self._fetched(connection, select.of(chosen, limit and limit + 1), raw)
            if twins_of(plan, read.rows):
                self._need_no_twins(plan, list(map(read.whole, read.rows)))
            roots = read.rows if limit is None else read.rows[:limit]
            if limit is not None and roots:
                last = self._key_text(plan, key_reader(plan)(read.whole(roots[-1])))
                chosen = KeyRange(chosen.after, decode_key(last))
            return replace(read, rows=self._with_collections(connection, plan, chosen, roots))

        self.pace.wait()
        read = self._pages.read(entity_words(plan), page)
        self.pace.took(rows_read(plan, read.rows))
        return read

    def read_rows(self, plan: EntityPlan, keys: Sequence[SourceKey]) -> list[RowTree]:
        return [row for page in self.read_raw_rows(plan, frozenset(), keys) for row in page.rows]

    def read_raw_rows(
        self, plan: EntityPlan, raw: frozenset[int], keys: Sequence[SourceKey]
    ) -> list[RawPage]:
        select = self._root_select(plan)

        def pages(connection: Connection) -> list[RawPage]:
            pages_read: list[RawPage] = []
            for start in range(0, len(keys), KEYS_A_SELECT):
                chosen = tuple(map(decode_key, keys[start : start + KEYS_A_SELECT]))
                read = self._fetched(connection, select.of(chosen), raw)
                self._need_no_twins(plan, read.rows)
                rows = self._with_collections(connection, plan, chosen, read.rows)
                pages_read.append(replace(read, rows=rows))
            return pages_read

        self.pace.wait()
        read_pages = self._reading.read(entity_words(plan), pages)
        self.pace.took(sum(rows_read(plan, page.rows) for page in read_pages))
        return read_pages

    def _fetched(self, connection: Connection, statement: Executable, raw: frozenset[int]) -> RawPage:
        """Inside a service's transaction, rows come as its connection returns them."""
        if self._is_inside:
            return RawPage(first_rows(connection, statement))
        return engine_of(self.dialect).connecting.fetched(connection, statement, raw)

    def _with_collections(
        self, connection: Connection, plan: EntityPlan, chosen: selects.Rows, roots: Sequence[RowTree]
    ) -> Sequence[RowTree]:
        if not roots or not plan.collections:
            return roots
        statements = [_children_select(plan, collection, chosen) for collection in plan.collections]
        children = [self._fetched(connection, statement, frozenset()).rows for statement in statements]
        return row_trees(plan, list(roots), children)

    def find_roots(
        self,
        plan: EntityPlan,
        lookup: Lookup,
        values: Sequence[Sequence[Any]],
        after: SourceKey | None,
        limit: int,
    ) -> list[SourceKey]:
        with_values = [row for row in values if all(value is not None for value in row)]
        if not with_values:
            return []
        statement = roots_select(plan, lookup, with_values, _key(after), limit)
        return [self._key_text(plan, row) for row in self._rows(entity_words(plan), statement)]

    def explain(self, plan: EntityPlan, page_rows: int) -> list[Explained]:
        """Plans of the first page. If it is the only page, reading a whole table is fine."""
        bound = next(self.page_bounds(plan, page_rows), None)
        chosen, root = KeyRange(None, _key(bound)), {"root": plan.table}
        page_selects = [PageSelect("rows", selects.root_select(plan, chosen), root, plan.joins)] + [
            PageSelect(
                f"{collection.collection.kind} {collection.collection.alias}",
                _children_select(plan, collection, chosen),
                {**root, "child": collection.table},
                collection.joins,
            )
            for collection in plan.collections
        ]
        many = page_rows if bound else sys.maxsize

        def work(connection: Connection) -> list[Explained]:
            return [explained(connection, page_select, many) for page_select in page_selects]

        return self._reading.read(entity_words(plan), work)

    def query(
        self,
        statement: Statement,
        params: Mapping[str, Any],
        schema: str | None = None,
        *,
        at_most: int | None = None,
        what: str = "a query of the mapping",
    ) -> list[tuple[Any, ...]]:
        """Values as the driver returns them. A list after IN becomes its values.

        `schema`: of tables without one. `at_most`: maximum rows, plus one if there are more. `what`: its name
        in errors.
        Raises: SettingsError if it is not a read-only SELECT.
        """
        from migrator.source.sql.statements import bound_statement, checked_statement

        sql, bound = bound_statement(checked_statement(str(statement), self.dialect, schema), params)
        self.pace.wait()
        if at_most is None and isinstance(self._reading, Reading):
            rows = self._reading.rows(what, sql, bound)
        else:
            work = partial(first_rows, statement=sql, params=bound, at_most=at_most)
            rows = self._reading.read(what, work)
        self.pace.took(len(rows))
        return rows

    def strain(self, measure: str, sql: str | None = None) -> float:
        """The source's present load. `sql`: the user's, instead of the engine's own query.

        Raises: SettingsError if neither exists; SourceError if it returns no number, or this user may not see
        it.
        """
        server, title = engine_of(self.dialect).server, engine_of(self.dialect).title
        setting = f"tuning.{'source_load' if measure == 'load' else 'replica_lag'}_query"
        ours = server.strains.get(measure)
        if sql is None and ours is None:
            what = f"{title} has no question of ours for its {measure}"
            raise SettingsError(f"{what}; write one SELECT that gives it as a number: {setting}")
        need = f"look at {setting}" if sql else server.strains_need
        try:
            # Ours reads the server's sessions, which a user's statement must not.
            ask = partial(asked, str(ours))
            rows = self.query(sql, {}, at_most=1) if sql else self._reading.read(f"its {measure}", ask)
            return float(rows[0][0])
        except (SettingsError, SourceError) as error:
            raise type(error)(f"the question for the source's {measure}: {error}; {need}") from None
        except (IndexError, TypeError, ValueError):
            what = f"the source gives no number for its {measure} (may this user see it?)"
            raise SourceError(f"{what}; {need}") from None

    def first_row_of_each(self, selects: Sequence[str], what: str) -> list[tuple[Any, ...]]:
        """Return () for no row. Raises: SourceError for the first SELECT that fails."""
        rows: list[tuple[Any, ...]] = []
        for some in _groups(selects):
            self.pace.wait()
            rows += self._reading.read(what, partial(first_row_of_each, some))
            self.pace.took(len(some))
        return rows

    def query_faults(self, calls: Sequence[QueryCall]) -> list[str]:
        from migrator.source.sql.statements import checked_statement, examine

        def look(some: Sequence[QueryCall]) -> None:
            checked = [
                (checked_statement(str(call.statement), self.dialect, call.schema), call.params)
                for call in some
            ]
            self._reading.read("its SQL", partial(examine, checked))

        return _faults(calls, look, SettingsError, SourceError)

    def pooling(self) -> Pooling:
        engine = self._reading.engine
        return self._reading.read("looking for a pooler", lambda connection: pooling_of(connection, engine))

    def at_primary(self) -> SqlSource:
        """The source with pages also from the primary: a replica may lag a ticket drawn just now."""
        return self._reading_from(self._reading, self.pace)

    def with_own_connections(self, connection_options: ConnectionOptions, retry: Retry) -> SqlSource:
        """The source without a rate limit; the schema that was read is shared."""
        return self._reading_from(reading_of(self._address, connection_options, retry), RateLimit())

    @contextmanager
    def inside(self, connection: Connection) -> Iterator[SqlSource]:
        from migrator.source.adapter.in_transaction import within  # a service's, which loads the ORM

        with within(self._reading, connection) as reading:
            same = self._reading_from(reading, RateLimit())
            same._is_inside = True
            yield same

    def _reading_from(self, reading: Reading | InTransaction, pace: RateLimit) -> SqlSource:
        same = copy.copy(self)
        same._reading = same._pages = reading
        same.pace = pace
        return same

    def close(self) -> None:
        self._reading.close()
        self._pages.close()

    def _root_select(self, plan: EntityPlan) -> RootSelect:
        """Cached by the plan's id; the cached select references the plan, so the id stays unique."""
        select = self._root_selects.get(id(plan))
        if select is None:
            if len(self._root_selects) >= PLANS_KEPT:
                self._root_selects.clear()
            traits = engine_of(self.dialect).sql.traits
            select = self._root_selects[id(plan)] = RootSelect(plan, traits)
        return select

    def _need_no_twins(self, plan: EntityPlan, roots: Sequence[tuple[Any, ...]]) -> None:
        """Raises: TwinRowsError if rows read together share a key. No page ends between two such rows."""
        if repeated := twins_of(plan, roots):
            keys = [(self._key_text(plan, key), count) for key, count in repeated.items()]
            raise TwinRowsError(f"{self._reading.place}: {entity_words(plan)}", plan.entity.name, keys)


def _key(text: SourceKey | None) -> Key | None:
    return None if text is None else decode_key(text)


def _children_select(plan: EntityPlan, collection: CollectionPlan, chosen: selects.Rows) -> selects.Statement:
    climb = collection.collection.kind == "climb"
    return climb_select(plan, collection, chosen) if climb else collection_select(plan, collection, chosen)


def _faults(
    values: Sequence[Value], look: Callable[[Sequence[Value]], None], *kinds: type[Exception]
) -> list[str]:
    """The message about each value, '' for none; many at once, and one by one if there is one."""
    faults = []
    for some in _groups(values):
        try:
            look(some)
            faults += [""] * len(some)
        except (SettingsError, SourceError) as error:
            if len(some) == 1 and not isinstance(error, kinds):
                raise
            faults += [str(error)] if len(some) == 1 else [_faults([one], look, *kinds)[0] for one in some]
    return faults


def _groups(values: Sequence[Value]) -> Iterator[Sequence[Value]]:
    return (values[start : start + TOGETHER] for start in range(0, len(values), TOGETHER))
