"""What a design takes before it exists: items, reads of patterns, collections, rewrites, money, and what does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

SECONDS_A_MONTH = 730 * 3_600
"""AWS counts 730 hours a month."""

Weight = Literal["misfit", "warning", "advice"]
"""What does not fit, what will not for long, and what could be less."""


@dataclass(frozen=True, slots=True)
class TypeSize:
    """The items of one type. `units`: write units of one put, the table's and all entries'; `index_units`: of those the
    indexes' alone, by index; `near`: items of more than eight tenths of DynamoDB's limit."""

    type: str
    entity: str
    items: int
    bytes: int
    largest_bytes: int
    units: float
    index_units: Mapping[str, float]
    near: int
    exact: bool


@dataclass(frozen=True, slots=True)
class PatternReads:
    """What one call of a pattern reads on average, and at most of those that were tried. `why`: why none was."""

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
        """None where no frequency or no price is known, or nothing was measured."""
        if usd_a_million is None or self.calls_per_s is None or not self.calls:
            return None
        return Decimal(str(self.units * self.calls_per_s * SECONDS_A_MONTH)) * usd_a_million / 1_000_000


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle, the ninety-ninth percentile and the largest of many numbers."""

    p50: int
    p99: int
    most: int


@dataclass(frozen=True, slots=True)
class HotKey:
    """A partition key as it may be shown. `share`: of all bytes there; `write_units_per_s`: None where no rate is known."""

    key: str
    items: int
    bytes: int
    share: float
    types: tuple[str, ...]
    write_units_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """The item collections of the table ('') or of an index."""

    index: str
    entries: int
    bytes: int
    collections: int
    sizes: Spread
    counts: Spread
    hottest: tuple[HotKey, ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class FanOut:
    """`roots`: rows of the entity that one row of the table is in, and their `mean`; None where they were not counted, and
    `why`. `is_root`: the table is the entity's own. `columns`: an update of no other rewrites anything (None: each does)."""

    table: str
    entity: str
    roots: Spread | None
    mean: float
    is_root: bool
    columns: tuple[str, ...] | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What one change of a row of `table` rewrites. `roots`: rows of the entity, None where they were not counted (`why`).

    `items` and `units`: of the ninety-ninth percentile of such changes; of all of them on average where there is none.
    """

    table: str
    entity: str
    roots: Spread | None
    items: float
    units: float
    exact: bool
    columns: tuple[str, ...] | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Writes:
    """Changes of rows a second, by table, and of columns by update: (table, column). `source`: where they are from, ''
    for nowhere, and then `why`."""

    per_s: Mapping[str, float] = field(default_factory=dict)
    updates_per_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    source: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """Something of the design that does not fit, or could be less; and a way out."""

    weight: Weight
    kind: str
    where: str
    what: str
    way_out: str


@dataclass(frozen=True, slots=True)
class Bills:
    """US dollars a month: reads, writes and storage on demand; reads and writes with capacity provisioned for seven tenths
    of use. None where the rates or the prices are not known. `backfill`: once."""

    reads: Decimal | None
    writes: Decimal | None
    storage: Decimal | None
    provisioned: Decimal | None
    backfill: Decimal | None
    source: str = ""
    why: str = ""

    @property
    def on_demand(self) -> Decimal | None:
        """Of reads and writes."""
        return None if self.reads is None or self.writes is None else self.reads + self.writes


@dataclass(frozen=True, slots=True)
class Load:
    """What filling the table takes. `pages`: SELECTs of the source; `hours`: by the table's write units a second."""

    rows: int
    pages: int
    tables: int
    write_units: int
    units_per_s: float
    hours: float
    limit: str


@dataclass(frozen=True)
class Capacity:
    """All that `migrator plan` says of one design. `exact`: whether every row was read."""

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
    places: Sequence[Place]
    rewrites: Sequence[Rewrite]
    writes: Writes
    advice: Sequence[Advice]
    bills: Bills
    load: Load
    unmapped_tables: tuple[str, ...]
    unmapped_columns: Mapping[str, tuple[str, ...]]
    usd_a_million_reads: Decimal | None = None
    notes: tuple[str, ...] = ()

    @property
    def misfits(self) -> list[Advice]:
        return [advice for advice in self.advice if advice.weight == "misfit"]
