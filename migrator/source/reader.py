"""Row trees, counts and answers read from a database by SQLAlchemy."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from migrator.model.capture import Lookup
from migrator.model.edges import KeyCounts, RowsSeen
from migrator.model.errors import HiddenRowsError, SettingsError, SourceError, TooSlowError, TwinRowsError
from migrator.model.facts import CollectionPlan, Column, EntityPlan, SchemaFacts, TableFacts
from migrator.model.keys import decode_key, encode_key
from migrator.model.results import Explained
from migrator.model.table import RowTree, SourceKey
from migrator.runtime.retry import Retry
from migrator.source import selects
from migrator.source.adapter.in_transaction import InTransaction, within
from migrator.source.connect import Address, RateLimit, place_of, read_engine
from migrator.source.engines.base import ConnectionOptions, Mark
from migrator.source.engines.table import engine_at, engine_of
from migrator.source.explain import PageSelect, examine, explained, rows_expected
from migrator.source.names import NameRule, expression_advice, statement_advice
from migrator.source.random_keys import random_keys
from migrator.source.reading import Reading, of_the_source
from migrator.source.reflect import reflect
from migrator.source.replica import ReplicaCheck, asker, mark_of
from migrator.source.roots import climb_select, roots_select
from migrator.source.selects import Key, KeyRange, KeySet, RootSelect
from migrator.source.server_facts import Pooling, pooling_of, rows_at_least
from migrator.source.sql.gate import bound_statement
from migrator.source.sql.statements import checked_statement
from migrator.source.sql.volatile import volatile_parts
from migrator.source.trees import first_rows, key_reader, row_trees, rows_read, twins_of

# ── Readings of an address: of the source itself, or of a replica of it ──


def reading_of(address: Address, connection_options: ConnectionOptions, retry: Retry) -> Reading:
    return Reading(read_engine(address, connection_options), place_of(address.url()), retry, of_the_source)


def replica_of(
    address: Address, connection_options: ConnectionOptions, retry: Retry, primary: Reading
) -> Reading:
    """Pages by the replica, on connections that have replayed all that the primary had at the first of them."""
    engine = read_engine(address, connection_options)
    kind = engine_at(engine)
    if kind is not engine_at(primary.engine) or kind.is_file:
        what = "names no replica: it must be a server of url's kind (an SQLite file has no replica)"
        raise SettingsError(f"source: read_url {what}; correct it, or leave it out")

    def mark() -> Mark:
        return primary.read("its position", lambda one: mark_of(one.dialect, asker(one)))

    return Reading(engine, f"{place_of(address.url())} (read_url)", retry, ReplicaCheck(mark, retry))


# ── The source of row trees on a real database: `model.edges.Source` by SQLAlchemy ──

KEYS_A_SELECT = 200
"""Keys named in one SELECT: far below the 999 parameters of an old SQLite, even for keys of four columns."""

PLANS_KEPT = 500
"""Plans whose SELECT is kept: a mapping has one for each entity."""


class SqlSource:
    """Reads by SQL; each call is one read-only snapshot. Safe to call from many threads at once.

    `url`: as `source_url` gives it, or where it is asked for; the first call connects. `schemas`: those to read beside
    the default one. `replica`: the URL of one that pages are read from. `pace`: the rate limit, waited for before
    pages, and told of their rows, children included.
    Raises, from every method: SourceError, without values, parameters or passwords.
    """

    def __init__(
        self,
        url: URL | Address,
        names: NameRule = "exact",
        connection_options: ConnectionOptions = ConnectionOptions(),  # noqa: B008  (frozen)
        *,
        schemas: Sequence[str] = (),
        pace: RateLimit | None = None,
        retry: Retry = Retry(),  # noqa: B008  (frozen)
        replica: URL | Address | None = None,
    ) -> None:
        self._address = Address.of(url)
        primary = reading_of(self._address, connection_options, retry)
        self._reading: Reading | InTransaction = primary
        self._pages: Reading | InTransaction = primary
        if replica is not None:
            self._pages = replica_of(Address.of(replica), connection_options, retry, primary)
        self._pace = pace or RateLimit()
        self._names = names
        self._schemas = tuple(schemas)
        self._facts: SchemaFacts | None = None
        self._root_selects: dict[int, RootSelect] = {}

    @property
    def dialect(self) -> str:
        return str(self._reading.engine.dialect.name)

    @property
    def hides_rows(self) -> bool:
        """Whether the database may hide rows from a user by policies."""
        return engine_of(self.dialect).server.hides_rows

    @property
    def engine(self) -> Engine:
        """The primary's, by which others may look too: within the limit of connections."""
        return self._reading.engine

    def facts(self) -> SchemaFacts:
        doing = "reading the schema"
        found = self._reading.read(doing, lambda one: reflect(one, self._names, self._schemas))
        self._facts = found
        return found

    def count(self, plan: EntityPlan) -> int:
        """Rows that take part, by plain SQL; rows without a key among them."""
        return self.count_where(plan, ())

    def rows_about(self, plan: EntityPlan) -> int:
        """As `count`; where that takes too long, what the database expects. SQLite expects nothing."""
        try:
            return self.count(plan)
        except TooSlowError:
            if rows := self._rows_expected(plan):
                return rows
            raise

    def rows_expected(self, plan: EntityPlan) -> int:
        """By the database's own estimate; SQLite has none, and counts."""
        found = self._rows_expected(plan)
        return self.count(plan) if found is None else found

    def count_where(self, plan: EntityPlan, conditions: selects.Conditions) -> int:
        """Rows that take part and fit `conditions` (as in `EntityPlan.where`), by plain SQL."""
        return int(self._one(plan, selects.count_select(plan, conditions))[0])

    def rows_without_key(self, plan: EntityPlan) -> int:
        if not any(column.nullable for column in plan.key):
            return 0
        return int(self._one(plan, selects.without_key_select(plan))[0])

    def key_counts(self, plan: EntityPlan) -> KeyCounts:
        """All three of one snapshot."""
        wanted = (
            selects.keys_select(plan, distinct=False),
            selects.keys_select(plan),
            selects.keys_select(plan, as_text=True),
        )

        def work(connection: Connection) -> KeyCounts:
            return KeyCounts(*(int(connection.execute(one).scalar_one()) for one in wanted))

        return self._reading.read(_entity(plan), work)

    def rows_seen(self, table: TableFacts) -> RowsSeen:
        """Counted only where statistics say something."""

        def work(connection: Connection) -> RowsSeen:
            at_least = rows_at_least(connection, table)
            if at_least is None:
                return RowsSeen(0)
            return RowsSeen(int(connection.execute(selects.whole_select(table)).scalar_one()), at_least)

        return self._reading.read(f"table {table.name}", work)

    def twins(self, plan: EntityPlan, at_most: int) -> list[tuple[SourceKey, int]]:
        """Keys that several of the rows that take part have, as the source compares them, and how many rows."""
        found = self._rows(_entity(plan), selects.twins_select(plan, at_most))
        return [(self._key_text(plan, row[:-1]), int(row[-1])) for row in found]

    def sums(self, plan: EntityPlan, columns: Sequence[Column]) -> dict[str, Any]:
        """By column name, the sum over the rows that take part and have a key, by plain SQL; None where all is NULL."""
        if not columns:
            return {}
        row = self._one(plan, selects.sums_select(plan, columns))
        return {column.name: value for column, value in zip(columns, row, strict=True)}

    def computed_fault(self, table: TableFacts, column: Column) -> str:
        """What the database has against the SQL of a computed column; '' for nothing."""
        fault = ""
        try:
            self._rows("its SQL", selects.computed_select(table, column))
        except HiddenRowsError:
            return ""  # no fault of the SQL's; whoever reads rows is told
        except (SettingsError, SourceError) as error:
            fault = str(error)
        if self._names == "exact":
            return fault
        advice = expression_advice(column.sql or "", table, self._known_facts(), refused=bool(fault))
        return "; ".join(filter(None, (fault, advice)))

    def hidden_fault(self, table: TableFacts) -> str:
        """What would leave rows of a table or view out for this user; '' for nothing."""
        try:
            self._rows(f"table {table.name}", selects.no_rows_select(table))
        except HiddenRowsError as error:
            return str(error)
        return ""

    def volatile_parts(self, column: Column) -> list[str]:
        """What in the SQL of a computed column gives another value though the row is the same, each with why."""
        return self._reading.read("its SQL", lambda one: volatile_parts(one, column.sql or ""))

    def page_bounds(
        self, plan: EntityPlan, page_rows: int, after: SourceKey | None = None, upto: SourceKey | None = None
    ) -> Iterator[SourceKey]:
        """The last key of every full page; each is a snapshot of its own, so a long walk stops nobody."""
        while True:
            statement = selects.bound_select(plan, KeyRange(_key(after), _key(upto)), page_rows)
            rows = self._rows(_entity(plan), statement)
            if not rows:
                return
            bound = self._key_text(plan, rows[0])
            if after == bound:
                what = "its keys have no order that goes on; name other columns in key:"
                raise SourceError(f"{self._reading.place}: {_entity(plan)}: {what}")
            after = bound
            yield bound

    def random_keys(self, plan: EntityPlan, number: int, rows: int, seed: int) -> list[SourceKey]:
        """Up to so many different keys of rows chosen by chance, in the source's order; see random_keys.py."""
        found = self._reading.read(_entity(plan), lambda one: random_keys(one, plan, number, rows, seed))
        return [self._key_text(plan, key) for key in found]

    def read_page(
        self, plan: EntityPlan, after: SourceKey | None, upto: SourceKey | None, limit: int | None = None
    ) -> list[RowTree]:
        select = self._root_select(plan)

        def page(connection: Connection) -> list[RowTree]:
            chosen = KeyRange(_key(after), _key(upto))
            # One row more than is asked for: the last one's twin would begin no other page, and be seen by nobody.
            roots = first_rows(connection, select.of(chosen, limit and limit + 1))
            self._need_no_twins(plan, roots)
            roots = roots[:limit]
            if limit is not None and roots:
                last = self._key_text(plan, key_reader(plan)(roots[-1]))
                chosen = KeyRange(chosen.after, decode_key(last))
            return _with_collections(connection, plan, chosen, roots)

        self._pace.wait()
        trees = self._pages.read(_entity(plan), page)
        self._pace.took(rows_read(plan, trees))
        return trees

    def read_rows(self, plan: EntityPlan, keys: Sequence[SourceKey]) -> list[RowTree]:
        """Row trees of the keys, as many as there are; all of one snapshot."""

        select = self._root_select(plan)

        def rows(connection: Connection) -> list[RowTree]:
            found: list[RowTree] = []
            for start in range(0, len(keys), KEYS_A_SELECT):
                chosen = KeySet(tuple(decode_key(key) for key in keys[start : start + KEYS_A_SELECT]))
                roots = first_rows(connection, select.of(chosen))
                self._need_no_twins(plan, roots)
                found += _with_collections(connection, plan, chosen, roots)
            return found

        self._pace.wait()
        trees = self._reading.read(_entity(plan), rows)
        self._pace.took(rows_read(plan, trees))
        return trees

    def find_roots(
        self,
        plan: EntityPlan,
        lookup: Lookup,
        values: Sequence[Sequence[Any]],
        after: SourceKey | None,
        limit: int,
    ) -> list[SourceKey]:
        """Keys of root rows that the lookup reaches from any of the values: distinct, in key order, past `after`."""
        known = [one for one in values if all(value is not None for value in one)]
        if not known:
            return []
        statement = roots_select(plan, lookup, known, _key(after), limit)
        return [self._key_text(plan, row) for row in self._rows(_entity(plan), statement)]

    def explain(self, plan: EntityPlan, page_rows: int) -> list[Explained]:
        """The database's plans for the SELECTs of the first page. Where that is the only one, no table is too much."""
        bound = next(self.page_bounds(plan, page_rows), None)
        chosen, root = KeyRange(None, _key(bound)), {"root": plan.table}
        wanted = [PageSelect.of("rows", selects.root_select(plan, chosen), root, plan.joins)] + [
            PageSelect.of(
                f"{one.collection.kind} {one.collection.alias}",
                _beside(plan, one, chosen),
                {**root, "child": one.table},
                one.joins,
            )
            for one in plan.collections
        ]
        many = page_rows if bound else sys.maxsize

        def work(connection: Connection) -> list[Explained]:
            return [explained(connection, one, many) for one in wanted]

        return self._reading.read(_entity(plan), work)

    def query(
        self,
        sql: str,
        params: Mapping[str, Any],
        schema: str | None = None,
        *,
        at_most: int | None = None,
    ) -> list[tuple[Any, ...]]:
        """Rows of one SELECT in the source's own names, values as the driver gives them. A list after IN is its values.

        `schema`: of tables that name none. `at_most`: so many, and one more where there are more.
        Raises: SettingsError when it is no SELECT that only reads.
        """
        statement, bound = bound_statement(checked_statement(sql, self.dialect, schema), params)
        self._pace.wait()
        work = partial(first_rows, statement=statement, params=bound, at_most=at_most)
        found = self._reading.read("a query of the mapping", work)
        self._pace.took(len(found))
        return found

    def query_fault(self, sql: str, params: Mapping[str, Any], schema: str | None = None) -> str:
        """What the database has against a statement of `query`, which is not run; '' for nothing."""
        fault = ""
        try:
            statement, bound = bound_statement(checked_statement(sql, self.dialect, schema), params)
            self._reading.read("its SQL", lambda connection: examine(connection, statement, bound))
        except (SettingsError, SourceError) as error:
            fault = str(error)
        if self._names == "exact":
            return fault
        advice = statement_advice(sql, self._known_facts(), refused=bool(fault))
        return "; ".join(filter(None, (fault, advice)))

    def _known_facts(self) -> SchemaFacts:
        return self._facts or self.facts()

    def pooling(self) -> Pooling:
        """What stands between us and the server."""
        engine = self._reading.engine
        return self._reading.read("looking for a pooler", lambda one: pooling_of(one, engine))

    def at_primary(self) -> SqlSource:
        """The same source, its pages read from the primary too: a replica may be behind a ticket drawn just now."""
        same = copy.copy(self)
        same._pages = self._reading
        return same

    def beside(self, connection_options: ConnectionOptions, retry: Retry) -> SqlSource:
        """The same source by its own connections, without a rate limit; what one has learnt of the schema both know."""
        same = copy.copy(self)
        same._reading = same._pages = reading_of(self._address, connection_options, retry)
        same._pace = RateLimit()
        return same

    @contextmanager
    def inside(self, connection: Connection) -> Iterator[SqlSource]:
        """The same source as a service's open transaction shows it, until the block ends."""
        with within(self._reading, connection) as reading:
            same = copy.copy(self)
            same._reading = same._pages = reading
            same._pace = RateLimit()
            yield same

    def close(self) -> None:
        self._reading.close()
        self._pages.close()

    def _root_select(self, plan: EntityPlan) -> RootSelect:
        """Of this very plan, whose select keeps it alive: so its id names no other one."""
        found = self._root_selects.get(id(plan))
        if found is None:
            if len(self._root_selects) >= PLANS_KEPT:
                self._root_selects.clear()
            found = self._root_selects[id(plan)] = RootSelect(plan)
        return found

    def _rows_expected(self, plan: EntityPlan) -> int | None:
        statement = selects.all_select(plan)
        return self._reading.read(_entity(plan), lambda one: rows_expected(one, statement))

    def _one(self, plan: EntityPlan, statement: sa.Select[Any]) -> tuple[Any, ...]:
        return self._rows(_entity(plan), statement)[0]

    def _rows(
        self, doing: str, statement: sa.Executable, params: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        return self._reading.read(doing, partial(first_rows, statement=statement, params=params))

    def _need_no_twins(self, plan: EntityPlan, roots: Sequence[tuple[Any, ...]]) -> None:
        """Raises: TwinRowsError where rows that were read together have one key. No page ends between two such rows."""
        if repeated := twins_of(plan, roots):
            keys = [(self._key_text(plan, key), count) for key, count in repeated.items()]
            raise TwinRowsError(f"{self._reading.place}: {_entity(plan)}", plan.entity.name, keys)

    def _key_text(self, plan: EntityPlan, values: Sequence[Any]) -> SourceKey:
        try:
            return encode_key(values)
        except TypeError as error:
            what = f"{self._reading.place}: {_entity(plan)}: {error}; name other columns in key:"
            raise SourceError(what) from None


def _entity(plan: EntityPlan) -> str:
    return f"entity {plan.entity.name} (table {plan.table.real})"


def _key(text: SourceKey | None) -> Key | None:
    return None if text is None else decode_key(text)


def _with_collections(
    connection: Connection, plan: EntityPlan, chosen: selects.Rows, roots: list[tuple[Any, ...]]
) -> list[RowTree]:
    if not roots or not plan.collections:
        return roots
    wanted = [_beside(plan, one, chosen) for one in plan.collections]
    return row_trees(plan, roots, [first_rows(connection, statement) for statement in wanted])


def _beside(plan: EntityPlan, one: CollectionPlan, chosen: selects.Rows) -> selects.Statement:
    climb = one.collection.kind == "climb"
    return climb_select(plan, one, chosen) if climb else selects.collection_select(plan, one, chosen)
