"""A design's items, made from its source's rows and discarded: sizes, item collections, and reads of patterns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import cast

import orjson
from msgspec import Struct

from migrator.mapping.capacity.collections import (
    Call,
    CallReads,
    ItemCollections,
    Measured,
    WaitingReads,
    condition_text,
    reads_of,
)
from migrator.mapping.capacity.design import narrower
from migrator.mapping.items.items import CompiledEntity, project, stamp
from migrator.mapping.items.wire import (
    ENTRY_OVERHEAD_BYTES,
    base64_text,
    encode_item,
    entry_bytes,
    item_bytes,
    write_units,
)
from migrator.mapping.model.capacity import PatternReads, TypeSize
from migrator.mapping.model.edges import Questions, Rows
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.table import ITEM_BYTES, Item, RowTree, TableDesign
from migrator.mapping.patterns.answers import Designs
from migrator.mapping.patterns.param_sources import reachable_keys
from migrator.runtime.errors import SettingsError
from migrator.stages.patterns.param_sampling import ParamSet, RowSample, draw
from migrator.stages.patterns.question import Question

NEAR = 0.8
"""Share of a limit from which on a value is near it."""
HOTTEST = 10
_PAGE_ROWS = 1_000
_KEYS_AT_ONCE = 200
_CALLS_BY_SQL = 10
"""For a pattern with too many rows to read: each call is also a statement of the application."""
_ALL_CALLS = 4_000
_FEWEST_CALLS = 20
"""The fewest calls of a pattern, for any number of patterns."""
_MORE = 1.25
"""A tenth of the drawn parameters are in no row, and are left out here."""


@dataclass(frozen=True)
class SampleBounds:
    """An entity up to `rows_exact` is read whole, a larger one by `sampled` random rows. `calls`: per pattern."""

    rows_exact: int = 100_000
    sampled: int = 10_000
    calls: int = 100
    seed: int = 0


@dataclass
class TypeTotals:
    """Sums over one type's items, weighted to represent all."""

    entity: str
    items: float = 0.0
    bytes: float = 0.0
    stored_bytes: float = 0.0
    json_bytes: float = 0.0
    table_units: float = 0.0
    index_units: defaultdict[str, float] = field(default_factory=partial(defaultdict, float))
    entry_bytes: defaultdict[str, float] = field(default_factory=partial(defaultdict, float))
    entries: defaultdict[str, float] = field(default_factory=partial(defaultdict, float))
    narrow_bytes: defaultdict[str, float] = field(default_factory=partial(defaultdict, float))
    largest_bytes: int = 0
    near: float = 0.0

    def size(self, type_: str, *, exact: bool) -> TypeSize:
        items = self.items or 1.0
        by_index = {index: units / items for index, units in self.index_units.items()}
        units = self.table_units / items + sum(by_index.values())
        sizes = (round(self.items), round(self.bytes), self.largest_bytes, units, by_index)
        return TypeSize(type_, self.entity, *sizes, round(self.near), exact)


class Sized(Struct, frozen=True):
    """`rows`, `read`, `refused`: number of rows per entity.
    `reasons`: of refusals, by entity.
    `with_local`: the table's item collections, with entries of local indexes.
    """

    rows: Mapping[str, int]
    read: Mapping[str, int]
    refused: Mapping[str, float]
    reasons: Mapping[str, str]
    types: Mapping[str, TypeTotals]
    places: Mapping[str, Measured]
    with_local: Measured | None
    patterns: Sequence[PatternReads]

    def is_exact(self, entity: str) -> bool:
        return self.read[entity] >= self.rows[entity]

    @property
    def exact(self) -> bool:
        return all(map(self.is_exact, self.rows))


class Sizing:
    def __init__(
        self,
        source: Rows,
        mapping: MappingModel,
        entities: Sequence[CompiledEntity],
        bounds: SampleBounds,
        now_s: float,
    ) -> None:
        self.source = source
        self.mapping = mapping
        self.entities = entities
        self.bounds = bounds
        self.now_s = now_s
        self._table = mapping.table
        self._reads = WaitingReads(mapping)
        self._places = {
            "": ItemCollections(),
            **{index.name: ItemCollections() for index in self._table.indexes},
        }
        self._local = {index.name for index in self._table.indexes if index.local}
        self._with_local = ItemCollections() if self._local else None
        self._types: dict[str, TypeTotals] = {}
        self._narrower = narrower(mapping)

    def sized(self) -> Sized:
        pool = RowSample(self.source, self.entities, self.bounds.seed)
        rows = {entity.name: pool.count(entity.name) for entity in self.entities}
        sampled = {name for name, number in rows.items() if number > self.bounds.rows_exact}
        calls = self._calls(pool, rows, sampled)
        read: dict[str, int] = {}
        refused: dict[str, float] = {}
        reasons: dict[str, str] = {}
        for entity in self.entities:
            name = entity.name
            read[name], refusals, reason = self._measure(entity, rows[name])
            if name not in sampled:
                rows[name] = read[name]
            if refusals:
                refused[name], reasons[name] = refusals, reason
        return Sized(
            rows,
            read,
            refused,
            reasons,
            self._types,
            {index: place.measured(HOTTEST) for index, place in self._places.items()},
            self._with_local.measured(HOTTEST) if self._with_local else None,
            [self._pattern(called, rows) for called in calls],
        )

    # ── rows and items ──

    def _measure(self, entity: CompiledEntity, rows: int) -> tuple[int, float, str]:
        """(rows read, refused rows of all they represent, first reason)."""
        read, refused, reason = 0, 0, ""
        if not rows:
            return read, refused, reason
        pages = self._whole(entity) if rows <= self.bounds.rows_exact else self._by_chance(entity, rows)
        weight = 1.0
        for trees, wanted in pages:
            weight = rows / wanted if wanted else 1.0
            projected = project(entity, trees, self.now_s)
            stamp(projected.items, self._table, 0)
            for item in projected.items:
                self._see(entity.name, item, max(1.0, weight))
            read += projected.rows
            refused += len(projected.refused)
            reason = reason or next((finding.reason for finding in projected.refused), "")
        return read, refused * max(1.0, weight), reason

    def _whole(self, entity: CompiledEntity) -> Iterator[tuple[list[RowTree], int]]:
        bounds = self.source.page_bounds(entity.plan, _PAGE_ROWS)
        for after, upto in pairwise([None, *bounds, None]):
            yield self.source.read_page(entity.plan, after, upto), 0

    def _by_chance(self, entity: CompiledEntity, rows: int) -> Iterator[tuple[list[RowTree], int]]:
        keys = self.source.random_keys(entity.plan, self.bounds.sampled, rows, self.bounds.seed)
        for begin in range(0, len(keys), _KEYS_AT_ONCE):
            yield self.source.read_rows(entity.plan, keys[begin : begin + _KEYS_AT_ONCE]), len(keys)

    def _see(self, entity: str, item: Item, weight: float) -> None:
        table, sizes = self._table, self._sizes(item)
        type_ = table.type_of(item)
        totals = self._types.setdefault(type_, TypeTotals(entity))
        totals.items += weight
        totals.bytes += sizes[""] * weight
        totals.json_bytes += _line_bytes(item, table) * weight
        totals.table_units += write_units(sizes[""]) * weight
        totals.largest_bytes = max(totals.largest_bytes, sizes[""])
        totals.near += weight if sizes[""] > NEAR * ITEM_BYTES else 0.0
        for index, size_bytes in sizes.items():
            totals.stored_bytes += (size_bytes + ENTRY_OVERHEAD_BYTES) * weight
            if index:
                totals.entries[index] += weight
                totals.entry_bytes[index] += size_bytes * weight
                totals.index_units[index] += write_units(size_bytes) * weight
                if index in self._narrower:
                    narrow = entry_bytes(item, self._narrower[index], table) or 0
                    totals.narrow_bytes[index] += narrow * weight
            asked = table.asked(index or None)
            assert asked is not None
            key = tuple(item[attribute.name] for attribute in asked.partition)
            self._places[index].add(key, type_, size_bytes, weight)
            if self._with_local is not None and (not index or index in self._local):
                self._with_local.add(key, type_, size_bytes, weight)
        self._reads.see(item, sizes)

    def _sizes(self, item: Item) -> dict[str, int]:
        whole = item_bytes(item)
        sizes = {"": whole}
        for index in self._table.indexes:
            if index.projection != "all":
                if (size := entry_bytes(item, index, self._table)) is not None:
                    sizes[index.name] = size
            elif all(attribute.name in item for attribute in index.attributes):
                sizes[index.name] = whole
        return sizes

    # ── patterns ──

    def _calls(self, pool: RowSample, rows: Mapping[str, int], sampled: set[str]) -> list[_Called]:
        """Calls of every pattern with parameters of real rows. Those that no row can answer need no items."""
        designs, called = Designs(pool.plans), []
        filled = {name.partition("@")[0] for name, number in rows.items() if number}
        share = _ALL_CALLS // max(1, len(self.mapping.patterns))
        for pattern in self.mapping.patterns.values():
            index = self.mapping.table.asked(pattern.index)
            assert index is not None
            named = {key.entity.name for key in reachable_keys(self.mapping, pattern, index)}
            by_sql = any(name.partition("@")[0] in named for name in sampled)
            wanted = _CALLS_BY_SQL if by_sql else min(self.bounds.calls, max(_FEWEST_CALLS, share))
            # Most tables of a schema without data are empty: nothing is drawn from those.
            number = round(wanted * _MORE) if named & filled else 0
            drawn = draw(self.mapping, pattern, pool, number, self.bounds.seed)
            params = [chosen for chosen in drawn.draws if not chosen.absent][:wanted]
            question = Question(self.mapping, pattern, designs)
            counted = [] if by_sql else params
            calls = [self._reads.call(pattern, question.requests, one.values) for one in counted]
            called.append(_Called(question, params, calls, drawn.why, by_sql, frozenset(named)))
        return called

    def _pattern(self, called: _Called, rows: Mapping[str, int]) -> PatternReads:
        pattern, why = called.question.pattern, called.why
        reads: list[CallReads] = []
        try:
            if not any(number for name, number in rows.items() if name.partition("@")[0] in called.entities):
                why = "no row to read"
            elif called.by_sql:
                reads = self._by_sql(called)
            else:
                reads = [call.reads() for call in called.calls]
        except SettingsError as error:
            reads, why = [], str(error)
        number = len(reads) or 1
        return PatternReads(
            pattern=pattern.name,
            index=pattern.index or "",
            condition=condition_text(pattern),
            operation=pattern.operation,
            calls_per_s=pattern.calls_per_s,
            calls=len(reads),
            items=sum(call.items for call in reads) / number,
            bytes=sum(call.bytes for call in reads) / number,
            pages=sum(call.pages for call in reads) / number,
            most_pages=max((call.pages for call in reads), default=0),
            units=sum(call.units for call in reads) / number,
            most_units=max((call.units for call in reads), default=0.0),
            exact=not called.by_sql,
            why="" if reads else why or "no parameters could be drawn",
        )

    def _by_sql(self, called: _Called) -> list[CallReads]:
        """Reads for as many items as SQL counts, at each type's mean size. Only SQL mappings have patterns."""
        pattern = called.question.pattern
        reads = []
        for params in called.params:
            parts = called.question.of_sql(params.values, cast("Questions", self.source)).rows
            sizes = [
                size
                for part in pattern.parts
                for size in [self._mean_bytes(pattern.index or "", part.type)] * len(parts[part.name])
            ]
            partitions = max(1, called.question.requests.of(params.values).calls)
            reads.append(reads_of(pattern, sizes, partitions))
        return reads

    def _mean_bytes(self, index: str, type_: str) -> int:
        of_types = [totals for name, totals in self._types.items() if type_ in ("", name)]
        if not index:
            return round(sum(one.bytes for one in of_types) / (sum(one.items for one in of_types) or 1.0))
        sizes = sum(totals.entry_bytes.get(index, 0.0) for totals in of_types)
        return round(sizes / (sum(totals.entries.get(index, 0.0) for totals in of_types) or 1.0))


class _Called(Struct, frozen=True):
    """A pattern with sample parameters. SQL counts its items if `by_sql`; else `calls` do."""

    question: Question
    params: Sequence[ParamSet]
    calls: Sequence[Call]
    why: str
    by_sql: bool
    entities: frozenset[str]


def _line_bytes(item: Item, table: TableDesign) -> int:
    """Bytes of the item's line in an import file of DynamoDB (see features/bulk/export.py)."""
    wired = encode_item({**item, table.ticket_attribute: 0})
    return len(orjson.dumps(wired, default=base64_text)) + len('{"Item":}\n')
