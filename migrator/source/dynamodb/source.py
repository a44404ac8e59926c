"""The port Rows on old DynamoDB tables: pages are scan segments, totals are counted by scans."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from random import Random
from typing import Any

from msgspec import Struct

from migrator.mapping.items.changes import needed_columns
from migrator.mapping.items.values import Undecodable
from migrator.mapping.items.wire import encode
from migrator.mapping.language.document import Document
from migrator.mapping.language.documents import DIALECT, facts_of, key_type
from migrator.mapping.language.plan import plan_entity
from migrator.mapping.model.edges import ActionProbe, KeyCounts, QueryCall, RowsSeen, WholeRows, WiredItem
from migrator.mapping.model.facts import (
    CollectionPlan,
    Column,
    EntityPlan,
    Lookup,
    SchemaFacts,
    TableFacts,
    tables_of,
)
from migrator.mapping.model.mapping import DocumentQuestion, Statement
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.results import Explained, Request, Rows
from migrator.mapping.model.table import READ_UNIT_BYTES, RowTree, SourceKey, Value, decode_key, encode_key
from migrator.mapping.patterns.requests import Requests
from migrator.runtime.errors import MissingNameError, NotCountedError, SettingsError, SourceError
from migrator.runtime.retry import RateLimit, Retry
from migrator.runtime.values import replace
from migrator.settings.roles import Rights
from migrator.source.dynamodb.finding import Finder, key_of_text, name_of, value_of, wired_key
from migrator.source.dynamodb.trees import SharedScans, Trees, roots_of

_NOWHERE = Document("", {}, {})


class _AskedQuestion(Struct, frozen=True):
    question: DocumentQuestion
    requests: Requests
    plan: EntityPlan
    places: tuple[int, ...]


class DocumentAnswers:
    """Thread-safe. Reads like a service, without a rate limit.

    Raises, from every method: MissingNameError if a table is gone; StoppedError, TargetError, Interrupted.
    """

    def __init__(self, mapping: MappingModel, finder: Finder) -> None:
        self.finder = finder
        self._mapping = mapping
        self._compiled: dict[int, _AskedQuestion] = {}

    def query(
        self,
        statement: Statement,
        params: Mapping[str, Any],
        schema: str | None = None,
        *,
        at_most: int | None = None,
        what: str = "a query of the mapping",
    ) -> Rows:
        """Parents are read consistently.

        Raises: SettingsError if a key parameter is missing or unfit; SourceError if a document has another
        type than declared.
        """
        asked = self._asked(statement)
        request = asked.requests.of(params)
        most = None if at_most is None else at_most + 1
        limit = min((limit for limit in (request.limit, most) if limit is not None), default=None)
        documents = list(islice(self._documents(asked, request, limit), limit))
        return [self._row(asked, tree, what) for tree in Trees(asked.plan, self.finder).of(documents)]

    def query_faults(self, calls: Sequence[QueryCall]) -> list[str]:
        """Missing indexes, and those with another key. Ignores `params`."""
        return [self._fault(call.statement) for call in calls]

    def _fault(self, statement: Statement) -> str:
        asked = self._asked(statement)
        design, name = asked.question.design, asked.question.asked.index
        if name is None:
            return ""
        try:
            described = self.finder.described(asked.plan.table)
        except MissingNameError as error:
            return str(error)
        real = self.finder.real_name(asked.plan.table)
        keys = {index.name: tuple(index.key) for index in described.indexes}
        if name not in keys:
            return f"table {real} has no index {name}; its indexes: {', '.join(keys) or 'none'}"
        wanted = tuple(attribute.name for attribute in design.indexes[0].attributes)
        if keys[name][: len(wanted)] != wanted:
            return (
                f"index {name} of table {real} has the key {', '.join(keys[name])}, not {', '.join(wanted)}"
            )
        return ""

    def _asked(self, statement: Statement) -> _AskedQuestion:
        """Compiled once: questions live as long as their mapping, which this object references."""
        assert isinstance(statement, DocumentQuestion), "check_mapping refuses SQL"
        if id(statement) not in self._compiled:
            mapping, entity = self._mapping, statement.entity
            plan, faults = plan_entity(mapping, entity, facts_of(mapping), _NOWHERE)
            assert plan is not None, faults
            places = {slot.path: place for place, slot in enumerate(plan.slots)}
            requests = Requests(replace(mapping, table=statement.design), statement.asked)
            columns = tuple(places[path] for path in statement.returns)
            self._compiled[id(statement)] = _AskedQuestion(statement, requests, plan, columns)
        return self._compiled[id(statement)]

    def _documents(self, asked: _AskedQuestion, request: Request, limit: int | None) -> Iterator[WiredItem]:
        reader, real = self.finder.reader, self.finder.real_name(asked.plan.table)
        for sent in request.sent:
            if request.operation == "query":
                size = {"Limit": limit} if limit and "FilterExpression" not in sent else {}
                yield from reader.asked(real, {**sent, **size, **_wired_values(sent)})
                continue
            table, consistent = asked.plan.table, bool(sent["ConsistentRead"])
            keys = [sent["Key"]] if request.operation == "get" else sent["Keys"]
            wired = [key for key in (wired_key(table, key) for key in keys) if key is not None]
            if request.operation == "get":
                for key in wired:
                    yield from reader.one(real, key, consistent=consistent)
            else:
                yield from _in_order(wired, reader.get(real, wired, consistent=consistent))

    def _row(self, asked: _AskedQuestion, tree: tuple[Any, ...], what: str) -> tuple[Any, ...]:
        row = tuple(tree[place] for place in asked.places)
        for path, value in zip(asked.question.returns, row, strict=True):
            if isinstance(value, Undecodable):
                where = f"{asked.question.asked.name}: {what} gives {asked.plan.table.name}.{path}"
                raise SourceError(f"{where}, and {value.reason}")
        return row


def _wired_values(sent: Mapping[str, Any]) -> dict[str, Any]:
    given = sent["ExpressionAttributeValues"].items()
    wired = {name: {"B": value} if isinstance(value, bytes) else encode(value) for name, value in given}
    return {"ExpressionAttributeValues": wired}


def _in_order(keys: Iterable[WiredItem], items: Iterable[WiredItem]) -> Iterator[WiredItem]:
    wanted = list(keys)
    names = list(wanted[0]) if wanted else []
    found = {name_of({name: item[name] for name in names}): item for item in items}
    return (found[name] for name in map(name_of, wanted) if name in found)


MOST_SEGMENTS = 1_000_000
"""Source: API reference, Scan, TotalSegments."""
MOST_SEGMENTS_HERE = 32
"""For a server on this machine: MiniStack walks the whole table for each request of a segment."""
_SEGMENT = "segment"
_PARTS = 3
"""More than a DynamoDB key has attributes, so that no key looks like the end of a segment."""


class SegmentEnd(Struct, frozen=True):
    """The position after the last document of segment `number` (from 0) of `of`."""

    number: int
    of: int

    @property
    def text(self) -> SourceKey:
        return encode_key([_SEGMENT, self.number, self.of])


def place_of(text: SourceKey | None) -> SegmentEnd | SourceKey | None:
    if text is None:
        return None
    values = decode_key(text)
    return SegmentEnd(values[1], values[2]) if len(values) == _PARTS and values[0] == _SEGMENT else text


class Stretch(Struct, frozen=True):
    """One scan: a segment of `of`, or everything after the key `start` up to the key `stop`."""

    segment: int = 0
    of: int = 1
    start: SourceKey | None = None
    stop: SourceKey | None = None


def stretches(after: SourceKey | None, upto: SourceKey | None) -> list[Stretch]:
    """Raises: SourceError for positions of two orders."""
    begin, end = place_of(after), place_of(upto)
    orders = {place.of if isinstance(place, SegmentEnd) else 0 for place in (begin, end) if place is not None}
    if len(orders) > 1:
        raise SourceError(
            "a page of documents begins and ends in two different orders; start the run again (--restart)"
        )
    if not any(orders):
        return [Stretch(start=after, stop=upto)]
    (of,) = orders
    first = begin.number + 1 if isinstance(begin, SegmentEnd) else 0
    last = end.number if isinstance(end, SegmentEnd) else of - 1
    return [Stretch(number, of) for number in range(first, last + 1)]


def segment_bounds(
    rows: int, page_rows: int, most: int, after: SourceKey | None, upto: SourceKey | None
) -> Iterator[SourceKey]:
    """Ends of segments of about `page_rows` of about `rows` documents; one more page follows the last bound."""
    begin, end = place_of(after), place_of(upto)
    given = next((place for place in (begin, end) if isinstance(place, SegmentEnd)), None)
    of = given.of if given else segments_of(rows, page_rows, most)
    first = begin.number + 1 if isinstance(begin, SegmentEnd) else 0
    last = end.number if isinstance(end, SegmentEnd) else of - 2
    yield from (SegmentEnd(number, of).text for number in range(first, last + 1))


def segments_of(rows: int, page_rows: int, most: int) -> int:
    return min(most, MOST_SEGMENTS, max(1, math.ceil(rows / page_rows)))


Conditions = Sequence[tuple[Column, tuple[Value, ...] | None]]
_PLACES = 64
"""Segments from which random keys are drawn; each costs a request."""


class ReadPace:
    """Documents and read units a second, shared by all processes."""

    def __init__(self, rows: RateLimit, units: RateLimit) -> None:
        self.rows = rows
        self.units = units

    @property
    def is_set(self) -> bool:
        return self.rows.is_set or self.units.is_set

    def share(self, parts: int) -> None:
        self.rows.share(parts)
        self.units.share(parts)


class DocumentSource(DocumentAnswers, WholeRows):
    """Thread-safe. Every read is consistent, per document.

    `mapping`: declares the tables.
    `most_segments`: maximum segments of a table.
    Raises, from every method: MissingNameError if a table is gone; StoppedError, TargetError, Interrupted.
    """

    dialect = DIALECT
    hides_rows = False
    takes_rows = False
    """Rows can be written back to databases only."""
    _closes = True

    def __init__(
        self, mapping: MappingModel, finder: Finder, pace: ReadPace, most_segments: int = MOST_SEGMENTS
    ) -> None:
        super().__init__(mapping, finder)
        self._declared = facts_of(mapping)
        self.pace = pace
        self._most_segments = most_segments
        self._shared: SharedScans | None = SharedScans(finder)
        self._rows: dict[str, int] = {}

    # ── facts ──

    def facts(self) -> SchemaFacts:
        """Declared facts, if each table has the declared key. Raises: SettingsError, with all faults."""
        faults = [fault for table in self._declared.tables.values() for fault in self._key_faults(table)]
        if faults:
            raise SettingsError("\n".join(faults))
        return self._declared

    def _key_faults(self, table: TableFacts) -> Iterator[str]:
        described = self.finder.described(table, again=True)
        columns = {column.name: key_type(column.declared) for column in table.columns}
        declared = {name: columns.get(name, "") for name in table.primary_key}
        if list(declared.items()) != list(described.key.items()):
            real = ", ".join(f"{name} ({type_})" for name, type_ in described.key.items())
            what = f"table {self.finder.real_name(table)} has the key {real}, and the mapping declares another one"
            yield f"{what}; correct source: tables: {table.name} there"

    def table_ids(self) -> dict[str, str]:
        tables = self._declared.tables.values()
        return {self.finder.described(table).id: self.finder.real_name(table) for table in tables}

    def views(self) -> set[str]:
        return set()

    def hidden_faults(self, tables: Sequence[TableFacts]) -> list[str]:
        return [""] * len(tables)

    def computed_fault(self, table: TableFacts, column: Column) -> str:
        return "a source of documents computes no columns"

    def volatile_parts(self, column: Column) -> list[str]:
        return []

    # ── counts ──

    def rows_about(self, plan: EntityPlan) -> int:
        """DynamoDB's count of the last six hours; by a scan if that is 0."""
        return self.finder.described(plan.table).items or self._counted(plan.table)

    def rows_expected(self, plan: EntityPlan) -> int:
        return self.rows_about(plan)

    def _counted(self, table: TableFacts) -> int:
        if table.name not in self._rows:
            pages = self.finder.reader.scan(self.finder.real_name(table), counts=True)
            self._rows[table.name] = sum(page.count for page in pages)
        return self._rows[table.name]

    def rows_without_key(self, plan: EntityPlan) -> int:
        return 0

    def twins(self, plan: EntityPlan, at_most: int) -> list[tuple[SourceKey, int]]:
        return []

    def key_counts(self, plan: EntityPlan) -> KeyCounts:
        return KeyCounts(0, 0, 0)

    def rows_seen(self, table: TableFacts) -> RowsSeen:
        return RowsSeen(0)

    def count(self, plan: EntityPlan) -> int:
        return self.count_where(plan, ())

    def count_where(self, plan: EntityPlan, conditions: Conditions) -> int:
        real, all_conditions = self.finder.real_name(plan.table), (*plan.where, *conditions)
        if not all_conditions:
            return sum(page.count for page in self.finder.reader.scan(real, counts=True))
        pages = self.finder.reader.scan(real)
        return sum(_holds(item, all_conditions) is True for page in pages for item in page.items)

    def sums(self, plan: EntityPlan, columns: Sequence[Column]) -> dict[str, Any]:
        """Raises: NotCountedError, always."""
        raise NotCountedError("DynamoDB adds nothing up; documents are counted, and compared one by one")

    # ── pages ──

    def page_bounds(
        self, plan: EntityPlan, page_rows: int, after: SourceKey | None = None, upto: SourceKey | None = None
    ) -> Iterator[SourceKey]:
        places = [place_of(place) for place in (after, upto) if place is not None]
        if any(not isinstance(place, SegmentEnd) for place in places):
            yield from self._key_bounds(plan, page_rows, after, upto)
            return
        rows = self.rows_about(plan)
        yield from segment_bounds(rows, page_rows, self._most_segments, after, upto)

    def _key_bounds(
        self, plan: EntityPlan, page_rows: int, after: SourceKey | None, upto: SourceKey | None
    ) -> Iterator[SourceKey]:
        items = self._items(plan, Stretch(start=after, stop=upto), page_rows)
        for count, item in enumerate(items, start=1):
            if count % page_rows == 0:
                yield self._key_text(plan, item)

    def random_keys(self, plan: EntityPlan, number: int, rows: int, seed: int) -> list[SourceKey]:
        """Keys at the beginning of random segments; the same for the same seed."""
        if number < 1:
            return []
        chance = Random(seed)
        of = min(self._most_segments, max(1, rows))
        drawn = sorted(chance.sample(range(of), min(of, _PLACES, number)))
        each = math.ceil(number / len(drawn))
        found = (islice(self._items(plan, Stretch(segment, of), each), each) for segment in drawn)
        return [self._key_text(plan, item) for items in found for item in items][:number]

    def read_page(
        self, plan: EntityPlan, after: SourceKey | None, upto: SourceKey | None, limit: int | None = None
    ) -> list[RowTree]:
        self.pace.rows.wait()
        items = (item for part in stretches(after, upto) for item in self._items(plan, part, limit))
        return self._trees(plan, islice(_chosen(plan, items), limit), self._shared)

    def read_rows(self, plan: EntityPlan, keys: Sequence[SourceKey]) -> list[RowTree]:
        self.pace.rows.wait()
        wired = [key_of_text(plan.table, key) for key in keys]
        items = self.finder.by_keys(plan.table, wired).values() if wired else ()
        return self._trees(plan, _chosen(plan, items), None)

    def find_roots(
        self,
        plan: EntityPlan,
        lookup: Lookup,
        values: Sequence[Sequence[Any]],
        after: SourceKey | None,
        limit: int,
    ) -> list[SourceKey]:
        found = {self._key_text(plan, item) for item in roots_of(self.finder, plan, lookup, values)}
        return sorted(key for key in found if after is None or key > after)[:limit]

    def _items(self, plan: EntityPlan, stretch: Stretch, limit: int | None) -> Iterator[WiredItem]:
        table, real = plan.table, self.finder.real_name(plan.table)
        start = None if stretch.start is None else key_of_text(table, stretch.start)
        ends = self._ends(plan, stretch)
        for page in self.finder.reader.scan(real, stretch.segment, stretch.of, start, limit=limit):
            for item in page.items:
                if ends and (key := self._key_text(plan, item)) in ends:
                    if key == stretch.stop:
                        yield item
                    return
                yield item

    def _ends(self, plan: EntityPlan, stretch: Stretch) -> frozenset[SourceKey]:
        if stretch.stop is None:
            return frozenset()
        real, last = self.finder.real_name(plan.table), key_of_text(plan.table, stretch.stop)
        page = next(self.finder.reader.scan(real, start=last, limit=1))
        return frozenset({stretch.stop, *(self._key_text(plan, item) for item in page.items)})

    def _trees(
        self, plan: EntityPlan, chosen: Iterable[_Chosen], shared: SharedScans | None
    ) -> list[RowTree]:
        roots = list(chosen)
        trees = Trees(plan, self.finder, shared).of([item for item, _ in roots])
        self.pace.rows.took(len(trees))
        return [
            _refused(plan, tree, holds) if isinstance(holds, Undecodable) else tree
            for tree, (_, holds) in zip(trees, roots, strict=True)
        ]

    def _key_text(self, plan: EntityPlan, item: WiredItem) -> SourceKey:
        return encode_key([value_of(item, column) for column in plan.key])

    # ── costs ──

    def explain(self, plan: EntityPlan, page_rows: int) -> list[Explained]:
        rows, reading = self.rows_about(plan), self.finder.described(plan.table)
        size = f"about {rows:,} documents, {reading.bytes:,} bytes, {self.scan_units(plan.table):,.0f} read units"
        told = [Explained("rows", (f"a scan of {self.finder.real_name(plan.table)}: {size}",))]
        for join in plan.joins:
            way = self.finder.way(join.table, [own for _, own in join.on])
            told.append(Explained(f"join {join.alias}", (f"{self.finder.real_name(join.table)}: {way}",)))
        for collection in plan.collections:
            design, link = collection.collection, collection.link
            side = 1 if design.kind == "climb" else 0
            way = self.finder.way(collection.table, [pair[side] for pair in link])
            line = f"{self.finder.real_name(collection.table)}: {way}"
            if way.kind == "scan":
                line += f" ({self.scan_units(collection.table):,.0f} read units), kept in memory"
            told.append(Explained(f"{design.kind} {design.alias}", (line,)))
        return told

    def scan_units(self, table: TableFacts) -> float:
        """Units of one consistent scan, by DynamoDB's size of the last six hours."""
        return float(math.ceil(self.finder.described(table).bytes / READ_UNIT_BYTES))

    def read_units(self, plans: Sequence[EntityPlan], page_rows: int) -> float:
        units = 0.0
        scanned: set[tuple[str, tuple[str, ...]]] = set()
        for plan in plans:
            rows = self.rows_about(plan)
            units += self.scan_units(plan.table) + rows * len(plan.joins)
            for collection in plan.collections:
                ours = tuple(child for child, _ in collection.link)
                if not self._is_scanned(collection):
                    units += rows
                elif self._shared is None:
                    units += self.scan_units(collection.table) * self._pages(plan, page_rows)
                elif (collection.table.name, ours) not in scanned:
                    units += self.scan_units(collection.table)
                    scanned.add((collection.table.name, ours))
        return units

    def read_words(self, plans: Sequence[EntityPlan], page_rows: int) -> Sequence[str]:
        told: dict[str, tuple[int, str]] = {}
        for plan in plans:
            for collection in filter(self._is_scanned, plan.collections):
                table, ours = collection.table, [child for child, _ in collection.link]
                times = self._pages(plan, page_rows) + told.get(table.name, (0, ""))[0]
                how = "once, and kept in memory" if self._shared else f"{times:,} times, once for each page"
                size = self.finder.described(table)
                cost = f"{size.items:,} documents, {size.bytes:,} bytes, {self.scan_units(table):,.0f} read units"
                why = f"neither its key nor an index of all its documents begins with {' or '.join(ours)}"
                what = f"{self.finder.real_name(table)} is scanned as a whole, {how} ({cost}): {why}"
                told[table.name] = (times, what)
        return [what for _, what in told.values()]

    def _is_scanned(self, collection: CollectionPlan) -> bool:
        ours = [child for child, _ in collection.link]
        is_climb = collection.collection.kind == "climb"
        return not is_climb and self.finder.way(collection.table, ours).kind == "scan"

    def _pages(self, plan: EntityPlan, page_rows: int) -> int:
        return segments_of(self.rows_about(plan), page_rows, self._most_segments)

    def goes_by_index(self, plan: EntityPlan) -> bool:
        """Whether a global index finds rows. It lags its table, so changes are processed a second time."""
        ways = (self.finder.way(*found_by) for found_by in _found_by(plan))
        return any(way.index is not None and not way.index.is_local for way in ways)

    def probe(self, plans: Sequence[EntityPlan], rights: Rights) -> Iterator[tuple[str, list[ActionProbe]]]:
        """The probes of each table, by its real name; of its indexes, those that find rows or answer patterns."""
        ways = [(by[0].name, self.finder.way(*by)) for plan in plans for by in _found_by(plan)]
        used = {(table, way.index.name) for table, way in ways if way.index is not None}
        used |= {(asked.entity.table, asked.asked.index or "") for asked in self._mapping.old_questions}
        for table in self._declared.tables.values():
            allowed = {name for of, name in rights.old_indexes if of == table.name}
            names = [name for of, name in used if of == table.name and (name in allowed or "*" in allowed)]
            yield self.finder.real_name(table), self.finder.probe(table, rights.old_tables, names)

    # ── other forms of the same ──

    def at_primary(self) -> DocumentSource:
        """The source without shared scans: each page shows the state after its ticket was drawn (rule 2), not an
        earlier one.
        """
        same = copy.copy(self)
        same._shared = None
        return same

    def with_own_connections(self, _: object, retry: Retry) -> DocumentSource:
        same = copy.copy(self)
        same.finder = self.finder.patient(retry)
        same._closes = False
        return same

    def strain(self, measure: str, sql: str | None = None) -> float:
        """Raises: SettingsError, always."""
        what = f"tables of DynamoDB's have no {measure}"
        raise SettingsError(f"tuning: {what}; remove it, and set source: dynamodb: max_read_units")

    def close(self) -> None:
        if self._closes:
            self.finder.reader.client.close()


def _found_by(plan: EntityPlan) -> Iterator[tuple[TableFacts, list[str], Collection[str]]]:
    """Tables with the columns by which documents are found, and those that the documents certainly have."""
    filled = needed_columns(plan)
    yield from _found_by_joins(plan, filled)
    for collection in plan.collections:
        yield collection.table, [ours for ours, _ in collection.link], ()
        # A climb goes up and down in one table, the root's own.
        is_climb = collection.collection.kind == "climb"
        table = collection.table if is_climb else plan.table
        yield table, [theirs for _, theirs in collection.link], () if is_climb else filled
        yield from _found_by_joins(collection, ())


def _found_by_joins(
    plan: EntityPlan | CollectionPlan, filled: Collection[str]
) -> Iterator[tuple[TableFacts, list[str], Collection[str]]]:
    tables = tables_of(plan)
    for join in plan.joins:
        yield join.table, [own for _, own in join.on], ()
        yield tables[join.parent], [parent for parent, _ in join.on], () if join.parent else filled


_Chosen = tuple[WiredItem, "bool | Undecodable"]


def _chosen(plan: EntityPlan, items: Iterable[WiredItem]) -> Iterator[_Chosen]:
    """The items that fulfil the conditions, and those of which this cannot be known."""
    looked = ((item, _holds(item, plan.where)) for item in items)
    return ((item, holds) for item, holds in looked if holds is not False)


def _holds(item: WiredItem, conditions: Conditions) -> bool | Undecodable:
    """An Undecodable if a value is of another type than declared."""
    for column, allowed in conditions:
        value = value_of(item, column)
        if isinstance(value, Undecodable):
            return value
        if value is None if allowed is None else value not in allowed:
            return False
    return True


def _refused(plan: EntityPlan, tree: RowTree, why: Undecodable) -> RowTree:
    """The tree with the fault in place of all values except the key: without its conditions it makes no items.

    Raises: SourceError if all columns are part of the key.
    """
    key = {column.real for column in plan.key}
    free = [n for n, slot in enumerate(plan.slots) if slot.alias or slot.column.real not in key]
    if not free:
        raise SourceError(
            f"entity {plan.entity.name}: where: reads a column of another type than declared: {why.reason}"
        )
    return tuple(why if n in free else value for n, value in enumerate(tree))
