"""What a new revision of a mapping takes, by the items that both revisions make of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from migrator.mapping.difference.difference import Difference, TypeDifference
from migrator.mapping.difference.work import TypeWork, Work
from migrator.mapping.items.wire import Price
from migrator.stages.design.sizing import Sized, TypeTotals

_MILLION = 1_000_000


@dataclass(frozen=True)
class Measured:
    """An entity's rows as one revision makes items of them; None where that revision has no such entity."""

    old: Sized | None
    new: Sized | None


@dataclass(frozen=True)
class Limit:
    """`price`: None where it is not known. `units_per_s`: that the table may be written with, as `named` says."""

    price: Price | None
    units_per_s: float
    named: str


def work_of(
    found: Difference, measured: Mapping[str, Measured], limit: Limit, *, tries_inserts: bool
) -> Work:
    """`measured`: by the names of the entities that change. `tries_inserts`: of items that are there already, too."""
    types = [
        _of_type(
            entity.name,
            one,
            *(_totals(sized, one.type) for sized in (pair.old, pair.new)),
            tries_inserts=tries_inserts,
        )
        for entity in found.entities
        for pair in [measured[entity.name]]
        for one in entity.types
    ]
    units = Decimal(str(sum(one.units for one in types)))
    price = limit.price
    sized = [one for pair in measured.values() for one in (pair.old, pair.new) if one is not None]
    return Work(
        rows={name: _rows(pair, name) for name, pair in measured.items()},
        types=types,
        usd=None if price is None else price.write * units / _MILLION,
        source="" if price is None else f"{price.region}, {price.source}",
        units_per_s=limit.units_per_s,
        limit=limit.named,
        exact=all(one.exact for one in sized),
    )


def _rows(pair: Measured, entity: str) -> int:
    sized = pair.new or pair.old
    assert sized is not None
    return sized.rows[entity]


def _totals(sized: Sized | None, type_: str) -> TypeTotals:
    return TypeTotals("") if sized is None else sized.types.get(type_, TypeTotals(""))


def _of_type(
    entity: str, one: TypeDifference, old: TypeTotals, new: TypeTotals, *, tries_inserts: bool
) -> TypeWork:
    went = one.effect in ("gone", "moved")
    if one.effect == "changed":
        units, taken_away = (
            _rewritten(one, old, new, tries_inserts=tries_inserts),
            max(0.0, old.items - new.items),
        )
    else:
        units, taken_away = (_all(old) if went else 0.0) + _all(new), old.items if went else 0.0
    return TypeWork(entity, one.type, one.effect, round(new.items), round(taken_away), units)


def _all(totals: TypeTotals) -> float:
    """Of putting each item, or of a tombstone in its place: either takes what the larger of both takes.

    Source: AWS Developer Guide, "DynamoDB capacity unit consumption for write operations", and "… global secondary indexes".
    """
    return totals.table_units + sum(totals.index_units.values())


def _rewritten(one: TypeDifference, old: TypeTotals, new: TypeTotals, *, tries_inserts: bool) -> float:
    """An item takes the units of its larger version; an entry whose key changes is deleted and put, so it takes both.

    Beside a relay a backfill tries each item as an insert first, which takes the units of the item that is there.
    Source: AWS Developer Guide, "DynamoDB capacity unit consumption for write operations" (conditional writes that fail).
    """
    there = min(1.0, new.items / old.items) if old.items and tries_inserts else 0.0
    units = max(old.table_units, new.table_units) + old.table_units * there
    for index in {*old.index_units, *new.index_units}:
        before, after = (totals.index_units.get(index, 0.0) for totals in (old, new))
        units += before + after if index in one.entries else max(before, after)
    return units
