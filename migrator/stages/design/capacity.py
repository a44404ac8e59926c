"""Capacity of a design, from measured items, the source's statistics, and prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal

from msgspec import Struct

from migrator.mapping.capacity.advice import (
    Design,
    Filling,
    advice_of,
    changing_keys,
    cheapest_of,
    fastest_of,
    narrowed,
    refusals,
    repeated,
    unasked,
    ways_of,
    write_units_per_s,
)
from migrator.mapping.capacity.collections import ItemCollection, Measured
from migrator.mapping.capacity.design import (
    KeyMask,
    key_columns,
    narrower,
    repeated_entries,
    unasked_entries,
    unmapped_columns,
)
from migrator.mapping.check.check import Checked
from migrator.mapping.items.wire import Price
from migrator.mapping.model.capacity import (
    SECONDS_A_MONTH,
    Advice,
    Bills,
    Capacity,
    FanOut,
    HotKey,
    Load,
    PlaceSizes,
    Rewrite,
    TypeSize,
    WriteRates,
)
from migrator.stages.design.sizing import Sized

NEW_TABLE_UNITS = 4_000
"""Write units per second that a new table on demand takes at once. Source: AWS Developer Guide, "On-demand capacity
mode"."""
USED = 0.7
"""Target utilization of auto scaling for provisioned capacity. Source: AWS Developer Guide, "DynamoDB auto scaling"."""
_GB = 1024**3
_MILLION = 1_000_000


class CapacityContext(Struct, frozen=True):
    """`triggers`: those that capture would install.
    `page_rows`: of a backfill.
    `units_per_s`: write limit of the table, set by `limit`.
    `unpriced`: why no price is known.
    `cores`, `is_journal_on_server`: as in Filling.
    """

    mapping: str
    triggers: int
    unread_tables: Sequence[str]
    fan_outs: Sequence[FanOut]
    writes: WriteRates
    page_rows: int
    units_per_s: float
    limit: str
    price: Price | None
    unpriced: str
    cores: int
    is_journal_on_server: bool
    notes: tuple[str, ...] = ()
    whole_keys: bool = False


def capacity_of(checked: Checked, sized: Sized, around: CapacityContext) -> Capacity:
    return _Joining(checked, sized, around).capacity()


class _Joining:
    def __init__(self, checked: Checked, sized: Sized, around: CapacityContext) -> None:
        self.mapping = checked.mapping
        self.plans = checked.plans
        self.sized = sized
        self.around = around
        self.types = {
            name: totals.size(name, exact=sized.is_exact(totals.entity))
            for name, totals in sized.types.items()
        }
        self.rewrites = list(map(self._rewrite, around.fan_outs))
        self.rates = {name: self._puts_per_s(size) for name, size in self.types.items()}
        self.design = Design(
            self.mapping, self.types, sized.places, sized.with_local, around.writes, self.rates
        )

    def capacity(self) -> Capacity:
        around, sized, table = self.around, self.sized, self.mapping.table
        price = around.price
        ways = ways_of(self._filling(), price)
        index_units = sum(round(self._units(name)) for name in self._index_names())
        return Capacity(
            table=table.name,
            mapping=around.mapping,
            indexes=tuple(index.name for index in table.indexes),
            triggers=around.triggers,
            captured=len({fan_out.table for fan_out in around.fan_outs}),
            rows=sum(sized.rows.values()),
            items=sum(size.items for size in self.types.values()),
            stored_bytes=self._stored_bytes(),
            write_units=round(self._units("")) + index_units,
            index_units=index_units,
            refused=round(sum(sized.refused.values())),
            exact=sized.exact,
            types=sorted(self.types.values(), key=lambda size: (-size.bytes, size.type)),
            patterns=sized.patterns,
            places=list(self._places()),
            rewrites=self.rewrites,
            writes=around.writes,
            advice=self._advice(),
            bills=self._bills(),
            load=self._load(),
            unmapped_tables=tuple(around.unread_tables),
            unmapped_columns=unmapped_columns(self.plans),
            usd_a_million_reads=price.read if price else None,
            notes=around.notes,
            ways=ways,
            cheapest=cheapest_of(ways),
            fastest=fastest_of(ways),
        )

    # ── writes ──

    def _index_names(self) -> list[str]:
        return [index.name for index in self.mapping.table.indexes]

    def _units(self, index: str) -> float:
        every = self.sized.types.values()
        return sum(totals.index_units.get(index, 0.0) if index else totals.table_units for totals in every)

    def _items_a_row(self, entity: str) -> tuple[float, float]:
        """(items, write units) that a refresh of one of the entity's rows puts."""
        of_entity = [size for size in self.types.values() if size.entity == entity]
        rows = self.sized.rows[entity] or 1
        return sum(size.items for size in of_entity) / rows, sum(s.items * s.units for s in of_entity) / rows

    def _rewrite(self, fan_out: FanOut) -> Rewrite:
        items, units = self._items_a_row(fan_out.entity)
        roots = fan_out.roots.p99 if fan_out.roots else 0
        exact = self.sized.is_exact(fan_out.entity) and fan_out.roots is not None
        amounts = (fan_out.roots, roots * items, roots * units, exact)
        return Rewrite(fan_out.table, fan_out.entity, *amounts, fan_out.columns, fan_out.why)

    def _puts_per_s(self, size: TypeSize) -> float:
        writes = self.around.writes
        changed = 0.0
        for fan_out in self.around.fan_outs:
            if fan_out.entity == size.entity:
                rate = writes.per_s.get(fan_out.table, 0.0)
                if not fan_out.is_root and writes.updates_per_s and fan_out.columns is not None:
                    updates = (
                        writes.updates_per_s.get((fan_out.table, name), 0.0) for name in fan_out.columns
                    )
                    rate = min(rate, sum(updates))
                changed += rate * fan_out.mean
        return changed * size.items / (self.sized.rows[size.entity] or 1)

    # ── item collections ──

    def _places(self) -> Iterator[PlaceSizes]:
        masking = KeyMask.of(self.mapping, self.plans, whole=self.around.whole_keys)
        for index, measured in self.sized.places.items():
            hottest = tuple(self._hot(masking, index, measured, one) for one in measured.largest)
            sizes = (measured.entries, measured.bytes, measured.collections, measured.sizes, measured.counts)
            yield PlaceSizes(index, *sizes, hottest, measured.exact)

    def _hot(self, masking: KeyMask, index: str, measured: Measured, collection: ItemCollection) -> HotKey:
        types = tuple(sorted(collection.types))
        return HotKey(
            masking.text(index, collection.key, types),
            round(collection.items),
            round(collection.bytes),
            collection.bytes / (measured.bytes or 1),
            types,
            write_units_per_s(self.design, index, collection),
        )

    # ── advice ──

    def _advice(self) -> list[Advice]:
        sized, mapping = self.sized, self.mapping
        every = sized.types.values()
        indexes = narrower(mapping)
        now = {name: sum(totals.entry_bytes.get(name, 0.0) for totals in every) for name in indexes}
        then = {name: sum(totals.narrow_bytes.get(name, 0.0) for totals in every) for name in indexes}
        return [
            *refusals(sized.refused, sized.reasons),
            *advice_of(self.design, sized.patterns, self.rewrites),
            *changing_keys(key_columns(mapping, self.plans), self.around.writes),
            *unasked(unasked_entries(mapping), self.types),
            *repeated(repeated_entries(mapping)),
            *narrowed(indexes, now, then),
        ]

    # ── money and time ──

    def _bills(self) -> Bills:
        price = self.around.price
        if price is None:
            return Bills(None, None, None, None, None, why=self.around.unpriced)
        reads_per_s, writes_per_s = self._read_units_per_s(), self._write_units_per_s()
        known = reads_per_s is not None and writes_per_s is not None
        return Bills(
            reads=_monthly(reads_per_s, price.read),
            writes=_monthly(writes_per_s, price.write),
            storage=price.storage * self._stored_bytes() / _GB,
            provisioned=_provisioned(reads_per_s or 0.0, writes_per_s or 0.0, price) if known else None,
            backfill=price.write * round(sum(map(self._units, ["", *self._index_names()]))) / _MILLION,
            source=f"{price.region}, {price.source}",
            why=self._unknown_rates(),
            imported=None if price.import_gb is None else price.import_gb * self._json_bytes() / _GB,
        )

    def _stored_bytes(self) -> int:
        return round(sum(totals.stored_bytes for totals in self.sized.types.values()))

    def _json_bytes(self) -> int:
        return round(sum(totals.json_bytes for totals in self.sized.types.values()))

    def _read_units_per_s(self) -> float | None:
        rated = [reads for reads in self.sized.patterns if reads.calls_per_s is not None and reads.calls]
        return sum(reads.units * (reads.calls_per_s or 0.0) for reads in rated) if rated else None

    def _write_units_per_s(self) -> float | None:
        if not self.around.writes.source:
            return None
        return sum(self.rates[name] * size.units for name, size in self.types.items())

    def _unknown_rates(self) -> str:
        patterns, whys = self.sized.patterns, []
        if silent := sum(reads.calls_per_s is None for reads in patterns):
            whys.append(f"{silent} of {len(patterns)} patterns have no frequency, and are not counted")
        if not self.around.writes.source:
            whys.append(f"writes a second are not known: {self.around.writes.why}")
        return "; ".join(whys)

    def _load(self) -> Load:
        filling, rows = self._filling(), self.sized.rows
        return Load(
            rows=sum(rows.values()),
            pages=sum(-(-number // self.around.page_rows) for number in rows.values()),
            tables=len({fan_out.table for fan_out in self.around.fan_outs}),
            write_units=filling.write_units,
            units_per_s=filling.units_per_s,
            hours=filling.limit_s / 3_600,
            limit=filling.limit,
            json_bytes=filling.json_bytes,
            no_import=filling.no_import,
        )

    def _filling(self) -> Filling:
        joined = {plan.entity.name for plan in self.plans if plan.joins or plan.collections}
        items = Counter[bool]()
        for size in self.types.values():
            items[size.entity in joined] += size.items
        meters = [self._units(name) for name in ["", *self._index_names()]]
        has_local = any(index.local for index in self.mapping.table.indexes)
        return Filling(
            plain_items=items[False],
            joined_items=items[True],
            write_units=round(sum(meters)),
            busiest_units=max(meters),
            units_per_s=self.around.units_per_s,
            limit=self.around.limit,
            json_bytes=self._json_bytes(),
            cores=self.around.cores,
            is_journal_on_server=self.around.is_journal_on_server,
            no_import="it has a local index" if has_local else "",
        )


def _monthly(units_per_s: float | None, price: Decimal) -> Decimal | None:
    return None if units_per_s is None else price * Decimal(str(units_per_s * SECONDS_A_MONTH)) / _MILLION


def _provisioned(reads_per_s: float, writes_per_s: float, price: Price) -> Decimal:
    reads, writes = Decimal(str(reads_per_s / USED)), Decimal(str(writes_per_s / USED))
    return (reads * price.read_hour + writes * price.write_hour) * 730
