"""Estimate of a backfill: rows, items, write units and dollars, from some pages of each entity; and a dry run's store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from migrator.mapping.items.encoder import item_of
from migrator.mapping.items.items import CompiledEntity, project
from migrator.mapping.items.wire import Estimate, measure
from migrator.mapping.model.edges import Receipt, Rows
from migrator.mapping.model.table import BATCH_WRITE_ITEMS, EncodedItem, RowTree, TableDesign
from migrator.runtime.errors import TooSlowError, TwinRowsError

SPOTS = 8
SPOT_ROWS = 50


def estimate(
    source: Rows,
    entities: Sequence[CompiledEntity],
    now_s: float,
    *,
    limit: int | None = None,
    done: Mapping[str, int] | None = None,
) -> Estimate:
    """What is left to write: counts by SQL (or what it expects), items of SPOTS pages spread over each entity's keys.

    `limit`: only the first rows of each entity. `done`: rows of each entity that are written already.
    Refused rows are rows that make nothing.
    """
    total = Estimate()
    for entity in entities:
        rows = source.rows_about(entity.plan)
        wanted = rows if limit is None else min(rows, limit)
        left = max(0, wanted - (done or {}).get(entity.name, 0))
        if left:
            total += _sample(source, entity, rows, now_s).scaled(left)
    return total


def _sample(source: Rows, entity: CompiledEntity, rows: int, now_s: float) -> Estimate:
    total = Estimate()
    # Rows of one key end the run itself, which tells them in its findings.
    with suppress(TwinRowsError):
        for read in _spots(source, entity, rows):
            projected = project(entity, read, now_s)
            total += measure(projected.rows, projected.items, entity.table)
    return total


def _spots(source: Rows, entity: CompiledEntity, rows: int) -> Iterator[list[RowTree]]:
    """Rows from the beginning of each of SPOTS equal parts; all rows where there are few.

    Where the source ends a jump over so many rows, only the first ones.
    """
    if rows <= SPOTS * SPOT_ROWS:
        yield source.read_page(entity.plan, None, None)
        return
    try:
        starts = list(islice(source.page_bounds(entity.plan, rows // SPOTS), SPOTS - 1))
    except TooSlowError:
        starts = []
    for start in (None, *starts):
        yield source.read_page(entity.plan, start, None, SPOT_ROWS)


# ── A store that stores nothing: it measures what a write would take ──


def sends_nothing() -> None:
    """The check of a dry run: it sends nothing that could come too late."""


class DryStore:
    """Puts for --dry-run; the write units are those of a table with nothing in it, indexes included."""

    def __init__(self, design: TableDesign) -> None:
        self.design = design

    def put(self, items: Sequence[EncodedItem]) -> Receipt:
        sizes = [item.size_bytes for item in items]
        units = measure(0, list(map(item_of, items)), self.design).write_units
        return Receipt(len(items), sum(sizes), float(units), -(-len(items) // BATCH_WRITE_ITEMS))
