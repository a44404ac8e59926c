"""Ways to fill a table, and the parts of a design that do not fit DynamoDB, now or soon; each with a way out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from msgspec import Struct

from migrator.mapping.capacity.collections import ItemCollection, Measured
from migrator.mapping.capacity.design import (
    KeyColumn,
    asking,
    forms_of,
    has_time,
    is_bucketed,
    is_constant,
    places_of,
)
from migrator.mapping.items.wire import Price
from migrator.mapping.model.capacity import Advice, PatternReads, Rewrite, TypeSize, Way, Weight, WriteRates
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.mapping import Pattern
from migrator.mapping.model.table import ITEM_BYTES, Index
from migrator.runtime.errors import amount

PLAIN_US, JOINED_US = 16, 24
"""CPU of an item in a backfill, in microseconds: of rows alone with indexes, and with joins or a collection. Measured:
docs/speed.md, the longest of three engines, rounded up."""
EXPORT_US = 50
"""CPU of an item in an export, in microseconds, which packs and shuffles: 39 of plain rows, 48 with joins. Measured:
docs/fill.md."""
WORKER_VCPUS = 4
"""vCPUs of a Spark worker with 16 GB. Source: AWS Glue Developer Guide, "AWS Glue worker types", G.1X."""
MOST_WORKERS = 100
START_S = 120
"""Until a cluster works on pages; modelled, not measured. It is billed."""
AIMED_S = 600
"""Executors are added until their CPU takes no longer than this, or than the write limit."""
_GB = 1024**3
_CENT = Decimal("0.01")


class Filling(Struct, frozen=True):
    """Cost of filling a table.

    `busiest_units`: of the table or the busiest index.
    `limit`: what sets `units_per_s`.
    `cores`: of the host that runs commands, usable by processes.
    `is_journal_on_server`: several hosts need that.
    """

    plain_items: int
    joined_items: int
    write_units: int
    busiest_units: float
    units_per_s: float
    limit: str
    json_bytes: int
    cores: int
    is_journal_on_server: bool
    no_import: str = ""

    @property
    def cpu_s(self) -> float:
        return (self.plain_items * PLAIN_US + self.joined_items * JOINED_US) / 1e6

    @property
    def limit_s(self) -> float:
        return self.busiest_units / self.units_per_s

    @property
    def limited_by(self) -> str:
        return f"{self.units_per_s:,.0f} write units a second, {self.limit}"


def ways_of(filling: Filling, price: Price | None) -> list[Way]:
    usd = None if price is None else price.write * filling.write_units / 1_000_000
    return [_batches(filling, usd), *_spark(filling, usd, price), _import(filling, price)]


def cheapest_of(ways: Sequence[Way]) -> Way | None:
    priced = [way for way in ways if way.usd is not None and not way.impossible]
    return min(priced, key=lambda way: max(way.usd or Decimal(0), _CENT), default=None)


def fastest_of(ways: Sequence[Way]) -> Way | None:
    known = [way for way in ways if not way.is_open_ended and not way.impossible]
    return min(known, key=lambda way: way.hours, default=None)


def _batches(filling: Filling, usd: Decimal | None) -> Way:
    by_cpu_s = filling.cpu_s / filling.cores
    bound = (
        filling.limited_by if filling.limit_s >= by_cpu_s else f"{amount(filling.cores, 'core')} of this host"
    )
    return Way("batches", max(filling.limit_s, by_cpu_s) / 3_600, usd, bound)


def _spark(filling: Filling, usd: Decimal | None, price: Price | None) -> list[Way]:
    aimed_s = max(filling.limit_s, AIMED_S)
    executors = min(MOST_WORKERS - 1, max(1, math.ceil(filling.cpu_s / WORKER_VCPUS / aimed_s)))
    by_cpu_s = filling.cpu_s / (WORKER_VCPUS * executors)
    hours = (START_S + max(filling.limit_s, by_cpu_s)) / 3_600
    is_limited = filling.limit_s >= by_cpu_s
    bound = filling.limited_by if is_limited else f"{amount(executors, 'executor')} of {WORKER_VCPUS} vCPUs"
    against = ["needs a cluster that reaches source and journal"]
    if not filling.is_journal_on_server:
        against.append("its journal is a file: several hosts need one on a server (`journal:` in the job)")
    if is_limited and filling.limit_s >= filling.cpu_s / filling.cores:
        against.append("no faster than batches: the write limit bounds both")
    worker_hours = Decimal(str(hours)) * (executors + 1)
    prices: dict[str, Decimal | None] = {"glue": None, "emr-serverless": None}
    if price is not None:
        prices = {"glue": price.glue_worker_hour, "emr-serverless": price.emr_worker_hour}
    return [
        Way(
            *(name, hours, None if usd is None or hour is None else usd + hour * worker_hours, bound),
            against=tuple(against),
            workers=executors + 1,
        )
        for name, hour in prices.items()
    ]


def _import(filling: Filling, price: Price | None) -> Way:
    usd = None
    if price is not None and price.import_gb is not None:
        usd = price.import_gb * filling.json_bytes / _GB
    hours = (filling.plain_items + filling.joined_items) * EXPORT_US / 1e6 / 3_600
    return Way(
        *(
            "import",
            hours,
            usd,
            "one core of this host for the export; AWS does not publish an import's rate",
        ),
        against=(
            "needs a bucket, and a table name that is not yet in use",
            "nothing can be read before it ends",
        ),
        impossible=filling.no_import,
        is_open_ended=True,
    )


LOCAL_COLLECTION_BYTES = 10 * 1024**3
"""Limit of one item collection of a table with a local index. Source: AWS Developer Guide, "Local secondary indexes"."""
PARTITION_WRITE_UNITS = 1_000
PARTITION_READ_UNITS = 3_000
"""A second, of one partition. Source: AWS Developer Guide, "Best practices for designing partition keys"."""
NEAR = 0.8
"""Share of a limit from which on a value is near it."""
LARGE_ITEMS = 1_000
LARGE_BYTES = 1024 * 1024
"""A larger item collection does not fit into one page of a Query."""
_MB = 1024**2


class Design(Struct, frozen=True):
    mapping: MappingModel
    types: Mapping[str, TypeSize]
    places: Mapping[str, Measured]
    with_local: Measured | None
    writes: WriteRates
    rates: Mapping[str, float]
    """Puts a second, by type."""


def advice_of(design: Design, patterns: Sequence[PatternReads], rewrites: Sequence[Rewrite]) -> list[Advice]:
    order = {"misfit": 0, "warning": 1, "advice": 2}
    advice = [
        *_items(design),
        *_local(design),
        *_busy(design),
        *_asked_partitions(design, patterns),
        *_unbounded(design),
        *_rewrites(rewrites),
    ]
    return sorted(advice, key=lambda one: order[one.weight])


# ── limits of DynamoDB ──


def refusals(refused: Mapping[str, float], reasons: Mapping[str, str]) -> Iterator[Advice]:
    for entity, rows in sorted(refused.items()):
        what = f"{amount(round(rows), 'row', 'make')} no items; the first: {reasons[entity]}"
        yield Advice(
            "misfit", "refused rows", entity, what, "fix the rows, or the mapping as the reason advises"
        )


def _items(design: Design) -> Iterator[Advice]:
    for size in design.types.values():
        if size.near or size.largest_bytes > NEAR * ITEM_BYTES:
            near = amount(size.near, "item")
            what = f"{near} of more than {NEAR:.0%} of 400 KB; the largest has {size.largest_bytes:,} bytes"
            way_out = "keep its largest attribute in S3 ({from: …, to: s3}), or split the item"
            yield Advice("warning", "large items", size.type, what, way_out)


def _local(design: Design) -> Iterator[Advice]:
    largest = design.with_local.largest[0].bytes if design.with_local and design.with_local.largest else 0
    if largest > NEAR * LOCAL_COLLECTION_BYTES:
        what = f"the largest item collection takes {largest / 1024**3:,.1f} GB with its entries in local indexes, of 10 GB"
        way_out = "make it a global index, or end the partition key with a time or a shard"
        yield Advice(_weight(largest, LOCAL_COLLECTION_BYTES), "local index", "the table", what, way_out)


def write_units_per_s(design: Design, index: str, collection: ItemCollection) -> float | None:
    """Write units of one partition, if changes are spread over a type's items; None if no rate is known."""
    if not design.writes.source:
        return None
    total = 0.0
    for type_, items in collection.types.items():
        size = design.types[type_]
        own = size.units - sum(size.index_units.values())
        units = size.index_units.get(index, 0.0) if index else own
        total += design.rates.get(type_, 0.0) * units * items / (size.items or 1)
    return total


def _busy(design: Design) -> Iterator[Advice]:
    for index, measured in design.places.items():
        for collection in measured.largest:
            units = write_units_per_s(design, index, collection)
            if units is None or units <= NEAR * PARTITION_WRITE_UNITS:
                continue
            types = ", ".join(sorted(collection.types))
            what = f"one partition ({types}) takes {units:,.0f} write units a second, of {PARTITION_WRITE_UNITS:,}"
            way_out = "spread it: a shard of the row's key at the end of the partition key, and query all shards with a *"
            yield Advice(_weight(units, PARTITION_WRITE_UNITS), "write units", _at(index), what, way_out)
            break


def _asked_partitions(design: Design, patterns: Sequence[PatternReads]) -> Iterator[Advice]:
    for reads in patterns:
        pattern = design.mapping.patterns[reads.pattern]
        units = reads.units * (reads.calls_per_s or 0.0)
        if is_constant(pattern.key) and units > NEAR * PARTITION_READ_UNITS:
            what = f"reads one partition with {units:,.0f} read units a second, of {PARTITION_READ_UNITS:,}"
            way_out = "spread the partition over shards, or keep the answer in a cache"
            yield Advice(_weight(units, PARTITION_READ_UNITS), "read units", reads.pattern, what, way_out)


# ── growth ──


def _unbounded(design: Design) -> Iterator[Advice]:
    for index in places_of(design.mapping):
        forms = forms_of(design.mapping, index)
        named: set[str] = set()
        for collection in design.places[index.name].largest:
            type_ = max(collection.types, key=lambda name: (collection.types[name], name))
            large = collection.items >= LARGE_ITEMS or collection.bytes >= LARGE_BYTES
            key = forms.get(type_)
            if not large or key is None or type_ in named or is_bucketed(key.partition):
                continue
            named.add(type_)
            kind = "all in one partition" if is_constant(key.partition) else "the largest"
            partition = " ".join(form.source if form else "an attribute" for form in key.partition)
            what = (
                f"{type_} under {partition}: {kind} has {collection.items:,.0f} items, {collection.bytes / _MB:,.1f} MB,"
                " and nothing bounds it"
            )
            way_out = _way_out(asking(design.mapping, index, type_), time=has_time(key.sort))
            yield Advice("warning", "unbounded collection", _at(index.name), what, way_out)


def _way_out(patterns: Sequence[Pattern], *, time: bool) -> str:
    if patterns and all(pattern.limit is not None for pattern in patterns):
        return "top-N: every pattern here reads only the first few; keep only those (collect: with first: on the parent)"
    if time:
        return (
            "bucket: end the partition key with the month or the day of its time, and query a range with a *"
        )
    return "shard: end the partition key with a shard of the row's key, and query all shards with a *"


def _rewrites(rewrites: Sequence[Rewrite]) -> Iterator[Advice]:
    for rewrite in rewrites:
        if rewrite.items >= LARGE_ITEMS:
            what = f"one change of a row rewrites {rewrite.items:,.0f} items of {rewrite.entity} (p99)"
            way_out = "move the columns that change to a separate item"
            yield Advice("warning", "rewrites", rewrite.table, what, way_out)


# ── what could be less ──


def changing_keys(columns: Sequence[KeyColumn], writes: WriteRates) -> Iterator[Advice]:
    rated = [(writes.updates_per_s.get((key.table, key.column), 0.0), key) for key in columns]
    for rate, key in sorted(rated, key=lambda pair: (-pair[0], pair[1].table, pair[1].column, pair[1].type)):
        if rate > 0:
            what = f"{key.column} is in a key of {key.type} and changes {rate:,.4g} times a second"
            if key.index:
                way_out = "each change writes that index twice (a delete and a put): query by a stable column, and filter"
                yield Advice("advice", "changing key", f"{key.table}, {key.index}", what, way_out)
            else:
                way_out = (
                    "each change deletes an item and writes another: take the column out of the table's key"
                )
                yield Advice("warning", "changing key", f"{key.table}, the table", what, way_out)


def unasked(entries: Sequence[tuple[str, str]], types: Mapping[str, TypeSize]) -> Iterator[Advice]:
    for index, type_ in entries:
        units = types[type_].index_units.get(index, 0.0) if type_ in types else 0.0
        cost = f"; each put of an item takes {units:,.3g} write units for one" if units else ""
        what = f"no pattern queries the entries of {type_}{cost}"
        yield Advice("advice", "unasked entries", index, what, f"take {index} out of {type_}")


def repeated(entries: Sequence[tuple[str, str, str]]) -> Iterator[Advice]:
    for index, type_, place in entries:
        what = f"{_at(place)} holds {type_} under the same values, in the same order"
        yield Advice(
            "advice", "repeated entries", index, what, f"query {_at(place)}, and take {index} out of {type_}"
        )


def narrowed(
    indexes: Mapping[str, Index], now: Mapping[str, float], then: Mapping[str, float]
) -> Iterator[Advice]:
    for name, index in indexes.items():
        if now.get(name) and then[name] < NEAR * now[name]:
            saved = 1 - then[name] / now[name]
            names = ", ".join(index.projection) if isinstance(index.projection, tuple) else ""
            what = f"its patterns need {saved:.0%} less than it contains ({now[name] / _MB:,.1f} MB)"
            yield Advice("advice", "projection", name, what, f"project: [{names}]")


def _weight(number: float, limit: float) -> Weight:
    return "misfit" if number > limit else "warning"


def _at(index: str) -> str:
    return index or "the table"
