"""Capacity of a design before it exists: items, reads of patterns, collections, rewrites, money, and exceeded limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Literal

from msgspec import Struct

SECONDS_A_MONTH = 730 * 3_600
"""AWS counts 730 hours a month."""

Weight = Literal["misfit", "warning", "advice"]
"""A limit that is exceeded, one that soon will be, and a possible saving."""


class TypeSize(Struct, frozen=True):
    """`units`: write units of one put, with all index entries.
    `index_units`: by index.
    `near`: items above eight tenths of DynamoDB's limit.
    """

    type: str
    entity: str
    items: int
    bytes: int
    largest_bytes: int
    units: float
    index_units: Mapping[str, float]
    near: int
    exact: bool


class PatternReads(Struct, frozen=True):
    """Reads of one call on average, and at most. `why`: why none was tried."""

    pattern: str
    index: str
    condition: str
    operation: str
    calls_per_s: float | None
    calls: int
    items: float
    bytes: float
    pages: float
    most_pages: int
    units: float
    most_units: float
    exact: bool
    why: str = ""

    def usd_a_month(self, usd_a_million: Decimal | None) -> Decimal | None:
        if usd_a_million is None or self.calls_per_s is None or not self.calls:
            return None
        return Decimal(str(self.units * self.calls_per_s * SECONDS_A_MONTH)) * usd_a_million / 1_000_000


class Spread(Struct, frozen=True):
    """Median, 99th percentile and maximum."""

    p50: int
    p99: int
    most: int


class HotKey(Struct, frozen=True):
    """A partition key as it may be shown.

    `share`: of all bytes there.
    `write_units_per_s`: None if no rate is known.
    """

    key: str
    items: int
    bytes: int
    share: float
    types: tuple[str, ...]
    write_units_per_s: float | None = None


class PlaceSizes(Struct, frozen=True):
    index: str
    entries: int
    bytes: int
    collections: int
    sizes: Spread
    counts: Spread
    hottest: tuple[HotKey, ...]
    exact: bool


class FanOut(Struct, frozen=True):
    """`roots`: rows of the entity per row of the table, and their `mean`; None with `why` if they were not
    counted.
    `is_root`: the table is the entity's own.
    `columns`: only their updates rewrite anything (None: all do).
    """

    table: str
    entity: str
    roots: Spread | None
    mean: float
    is_root: bool
    columns: tuple[str, ...] | None
    why: str = ""


class Rewrite(Struct, frozen=True):
    """Rewrites by one change of a row of `table`.

    `roots`: None with `why` if they were not counted.
    `items`, `units`: 99th percentile of such changes; all on average without percentiles.
    """

    table: str
    entity: str
    roots: Spread | None
    items: float
    units: float
    exact: bool
    columns: tuple[str, ...] | None = None
    why: str = ""


class WriteRates(Struct, frozen=True):
    """Changes of rows a second by table, and updates of columns. `source`: '' for none, with `why`."""

    per_s: Mapping[str, float] = {}
    updates_per_s: Mapping[tuple[str, str], float] = {}
    source: str = ""
    why: str = ""


class Advice(Struct, frozen=True):
    """A part of the design that does not fit, or could be smaller; and a way out."""

    weight: Weight
    kind: str
    where: str
    what: str
    way_out: str


class Bills(Struct, frozen=True):
    """US dollars a month, None if rates or prices are unknown.

    Provisioned capacity is for seven tenths of use. `backfill`, `imported`: once, by batches or by an import.
    """

    reads: Decimal | None
    writes: Decimal | None
    storage: Decimal | None
    provisioned: Decimal | None
    backfill: Decimal | None
    source: str = ""
    why: str = ""
    imported: Decimal | None = None

    @property
    def on_demand(self) -> Decimal | None:
        return None if self.reads is None or self.writes is None else self.reads + self.writes


class Load(Struct, frozen=True):
    """Cost of filling the table.

    `pages`: SELECTs.
    `hours`: by write units a second.
    `json_bytes`: of an import's files.
    `no_import`: why it is impossible.
    """

    rows: int
    pages: int
    tables: int
    write_units: int
    units_per_s: float
    hours: float
    limit: str
    json_bytes: int = 0
    no_import: str = ""


class Way(Struct, frozen=True):
    """One way to fill the table.

    `hours`: at least.
    `usd`: once, None if unknown.
    `bound`: the resource that sets the hours.
    `against`: requirements and drawbacks.
    `impossible`: why, or ''.
    `is_open_ended`: the duration of its last part is unknown.
    """

    name: str
    hours: float
    usd: Decimal | None
    bound: str
    against: tuple[str, ...] = ()
    workers: int = 0
    impossible: str = ""
    is_open_ended: bool = False


class Capacity(Struct, frozen=True):
    """Report of `migrator plan` for one design.

    `exact`: every row was read.
    `cheapest`, `fastest`: ways to fill it.
    """

    table: str
    mapping: str
    indexes: tuple[str, ...]
    triggers: int
    captured: int
    rows: int
    items: int
    stored_bytes: int
    write_units: int
    index_units: int
    refused: int
    exact: bool
    types: Sequence[TypeSize]
    patterns: Sequence[PatternReads]
    places: Sequence[PlaceSizes]
    rewrites: Sequence[Rewrite]
    writes: WriteRates
    advice: Sequence[Advice]
    bills: Bills
    load: Load
    unmapped_tables: tuple[str, ...]
    unmapped_columns: Mapping[str, tuple[str, ...]]
    usd_a_million_reads: Decimal | None = None
    notes: tuple[str, ...] = ()
    ways: Sequence[Way] = ()
    cheapest: Way | None = None
    fastest: Way | None = None

    @property
    def misfits(self) -> list[Advice]:
        return [advice for advice in self.advice if advice.weight == "misfit"]


# ── Costs of patterns once services use them ──


class PatternCost(Struct, frozen=True):
    """Reads of one pattern by DynamoDB; None if unknown.

    `units`: read units a call, on average.
    `now_per_s`: calls a second that DynamoDB answers.
    `all_per_s`: with every call answered by it.
    """

    pattern: str
    units: float | None
    now_per_s: float | None
    all_per_s: float | None
    usd_now: float | None
    usd_all: float | None


class Costs(Struct, frozen=True):
    """`largest`: item collections.
    `exact`: all rows were read.
    `prices`: their origin, or `why` they are missing.
    """

    patterns: Sequence[PatternCost] = ()
    largest: Sequence[PlaceSizes] = ()
    exact: bool = False
    prices: str = ""
    why: str = ""

    @property
    def usd_now(self) -> float:
        return sum(cost.usd_now or 0.0 for cost in self.patterns)

    @property
    def usd_all(self) -> float:
        return sum(cost.usd_all or 0.0 for cost in self.patterns)

    @property
    def are_known(self) -> bool:
        return any(cost.usd_all is not None for cost in self.patterns)
