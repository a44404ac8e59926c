"""Ways to fill a table: batches from one host, Spark on AWS Glue or EMR Serverless, an import from S3.

What each takes in hours and dollars, what bounds it and what speaks against it, by measured CPU of an item, the table's
write limit and AWS's prices. Hours are least ones: a source or a network that is slower is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

from msgspec import Struct

from migrator.mapping.items.wire import Price
from migrator.mapping.model.capacity import Way
from migrator.runtime.errors import amount

PLAIN_US, JOINED_US = 16, 24
"""CPU of an item in a backfill, in microseconds: of rows alone with indexes, and with joins or a collection. Measured:
docs/speed.md, the longest of three engines, rounded up."""
EXPORT_US = 50
"""The same of an export, which packs and shuffles: 39 of plain rows, 48 with joins. Measured: docs/plan.md."""
WORKER_VCPUS = 4
"""Of a Spark worker, with 16 GB. Source: AWS Glue Developer Guide, "AWS Glue worker types", G.1X."""
MOST_WORKERS = 100
START_S = 120
"""Until a cluster works on pages; modelled, not measured. It is billed."""
AIMED_S = 600
"""Executors are added until their CPU takes no longer than this, or than the write limit."""
_GB = 1024**3
_CENT = Decimal("0.01")


class Host(Struct, frozen=True):
    """Where commands run. `cores`: that processes may use; `on_server`: whether the journal is on a server, which several
    hosts need."""

    cores: int
    on_server: bool


class Filling(Struct, frozen=True):
    """What filling a table takes, whichever way. `busiest_units`: of the table or of the index that takes most; `limit`:
    what sets `units_per_s`; `no_import`: why there can be none ('')."""

    plain_items: int
    joined_items: int
    write_units: int
    busiest_units: float
    units_per_s: float
    limit: str
    json_bytes: int
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


def ways_of(filling: Filling, host: Host, price: Price | None) -> list[Way]:
    """All of them, those that are not possible, too."""
    usd = None if price is None else price.write * filling.write_units / 1_000_000
    return [_batches(filling, host, usd), *_spark(filling, host, usd, price), _import(filling, price)]


def cheapest_of(ways: Sequence[Way]) -> Way | None:
    """Of those that are possible and whose price is known; the first of equal ones, as all below a cent are."""
    priced = [way for way in ways if way.usd is not None and not way.impossible]
    return min(priced, key=lambda way: max(way.usd or Decimal(0), _CENT), default=None)


def fastest_of(ways: Sequence[Way]) -> Way | None:
    """Of those that are possible and whose end is known; the first of equal ones."""
    known = [way for way in ways if not way.is_open_ended and not way.impossible]
    return min(known, key=lambda way: way.hours, default=None)


def _batches(filling: Filling, host: Host, usd: Decimal | None) -> Way:
    by_cpu_s = filling.cpu_s / host.cores
    bound = (
        filling.limited_by if filling.limit_s >= by_cpu_s else f"{amount(host.cores, 'core')} of this host"
    )
    return Way("batches", max(filling.limit_s, by_cpu_s) / 3_600, usd, bound)


def _spark(filling: Filling, host: Host, usd: Decimal | None, price: Price | None) -> list[Way]:
    """By the fewest executors whose CPU is not what bounds it, and one worker more for the driver."""
    aimed_s = max(filling.limit_s, AIMED_S)
    executors = min(MOST_WORKERS - 1, max(1, math.ceil(filling.cpu_s / WORKER_VCPUS / aimed_s)))
    by_cpu_s = filling.cpu_s / (WORKER_VCPUS * executors)
    hours = (START_S + max(filling.limit_s, by_cpu_s)) / 3_600
    is_limited = filling.limit_s >= by_cpu_s
    bound = filling.limited_by if is_limited else f"{amount(executors, 'executor')} of {WORKER_VCPUS} vCPUs"
    against = ["needs a cluster that reaches source and journal"]
    if not host.on_server:
        against.append("its journal is a file: several hosts need one on a server (`journal:` in the job)")
    if is_limited and filling.limit_s >= filling.cpu_s / host.cores:
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
    """The export's hours: AWS does not tell how long an import takes."""
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
