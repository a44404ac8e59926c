"""Cost of a backfill, shown before it starts, and compared with the given limit."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from msgspec import Struct

from migrator.cli.options import need_yes, say
from migrator.cli.text import estimate_line, usd
from migrator.mapping.items.wire import Estimate, Price
from migrator.mapping.model.edges import DocumentRows
from migrator.mapping.model.facts import EntityPlan
from migrator.runtime.errors import SettingsError
from migrator.settings.job import Job
from migrator.settings.transforms import USUAL_REGION, known_regions, price_of
from migrator.stages.design.capacity import NEW_TABLE_UNITS
from migrator.stages.session import job as job_wiring


class Bill(Struct, frozen=True):
    """An estimate at the prices of the job's region and table class; None if unknown, and why.

    `note`: a remark on the prices.
    `reading`: US dollars for reading all rows, if reads are paid for.
    """

    estimate: Estimate
    price: Price | None
    unpriced: str = ""
    note: str = ""
    reading: Decimal = Decimal(0)

    @property
    def cost(self) -> Decimal | None:
        return None if self.price is None else self.estimate.write_cost(self.price) + self.reading

    @property
    def what(self) -> str:
        return "reading and writing" if self.reading else "writing"

    def line(self) -> str:
        return estimate_line(self.estimate, self.price, self.unpriced) + self.note


def reading_cost(job: Job, source: object, plans: Sequence[EntityPlan], max_cost: Decimal | None) -> Decimal:
    """US dollars for reading all rows once, printed on stderr before the first read; 0 if reads are free.

    `source`: the source of the pages; reads with concurrent writers cost more.
    `max_cost`: limit in US dollars above which a run does not start.
    Raises: SettingsError if the cost is above --max-cost.
    """
    if not isinstance(source, DocumentRows) or job.source.dynamodb is None:
        return Decimal(0)
    for line in source.read_words(plans, job.tuning.page_rows):
        say(f"reading: {line}")
    units = Decimal(round(source.read_units(plans, job.tuning.page_rows)))
    region = job.source.dynamodb.region or job_wiring.region_of(job) or USUAL_REGION
    price = price_of(region)
    if price is None:
        say(f"reading: about {units:,} read units; no price is known for {region}")
        return Decimal(0)
    cost = price.read * units / 1_000_000
    say(f"reading: about {units:,} read units, {usd(cost)} on demand in {region}")
    if max_cost is not None and cost > max_cost:
        what = f"reading would cost about {usd(cost)}, more than --max-cost {max_cost}"
        raise SettingsError(f"{what}; raise it, move fewer entities at once, or give a child table an index")
    return cost


def bill_of(job: Job, estimate: Estimate, reading: Decimal = Decimal(0)) -> Bill:
    options, region = job.target.options, job_wiring.region_of(job)
    if options.provisioned is not None:
        what = "the table's capacity is provisioned: AWS bills it by the hour, used or not"
        return Bill(estimate, None, what, reading=reading)
    price = price_of(region or USUAL_REGION, options.table_class)
    if price is None:
        regions = ", ".join(known_regions())
        return Bill(estimate, None, f"no price is known for the region {region}; known: {regions}")
    note = "" if region else f"; no region is set: these are {USUAL_REGION}'s"
    return Bill(estimate, price, note=note, reading=reading)


def need_allowed(job: Job, bill: Bill, max_cost: Decimal | None, *, yes: bool) -> None:
    """`yes`: start without a question. Raises: SettingsError above --max-cost, if the price is unknown, or
    without a terminal; RefusedError if the user does not confirm."""
    asks = None if yes else job.tuning.confirm_above
    if max_cost is None and asks is None:
        return
    if bill.cost is None:
        raise SettingsError(f"the cost cannot be held against a limit: {bill.unpriced}")
    if max_cost is not None and bill.cost > max_cost:
        what = f"{bill.what} would cost about {usd(bill.cost)}, more than --max-cost {max_cost}"
        raise SettingsError(f"{what}; raise it, or move fewer entities or rows at once")
    if asks is None or bill.cost <= Decimal(str(asks)):
        return
    unasked = f"{bill.what} would cost about {usd(bill.cost)}, more than tuning.confirm_above"
    need_yes(f"{bill.what.capitalize()} will cost about {usd(bill.cost)}. Start?", unasked)


def write_limit(job: Job) -> tuple[float, str]:
    """(write units per second of a backfill, what sets them)."""
    options, tuning = job.target.options, job.tuning
    if tuning.max_write_units is not None:
        return float(tuning.max_write_units), "the job's max_write_units"
    if options.provisioned is not None:
        return float(options.provisioned.write), "the provisioned capacity"
    if options.warm_throughput is not None:
        return float(options.warm_throughput.write), "the warm throughput"
    return float(NEW_TABLE_UNITS), "what a new table on demand takes at once"
