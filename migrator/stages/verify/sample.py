"""The pages of a sample of an entity's rows, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from migrator.journal.runs import SqlJournal
from migrator.mapping.model.edges import Rows
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.journal import Page, Run
from migrator.mapping.model.results import Sample
from migrator.mapping.model.table import SourceKey
from migrator.stages.backfill.stage import pages_of

_PAGES = 10
"""The pages of a sample at least, where there are rows enough: a few large pages would cover a few places only."""
_PLACES = 200
"""The places of a sample at most; a larger sample has several consecutive pages at each place."""
_WALKED = 10
"""Where the sample is at least 1/10 of the rows, all pages are planned and some of them chosen."""


def plan_sample(
    source: Rows,
    journal: SqlJournal,
    run: Run,
    plan: EntityPlan,
    *,
    sample: Sample,
    page_rows: int,
    rows: int,
    total: int,
) -> None:
    """Plans the pages of the sample, unless they are planned already.

    `rows` and `total`: estimated rows of the entity and of all entities.
    """
    name = plan.entity.name
    if name in journal.planned(run):
        return
    if rows <= _WALKED * sample.wanted(rows, total):
        # The estimate is small: a walk over the table needs a better number.
        rows = source.rows_about(plan)
    wanted = sample.wanted(rows, max(rows, total))
    size = max(1, min(page_rows, wanted // _PAGES))
    seed = f"{sample.seed}/{name}"
    if rows <= _WALKED * wanted:
        pages = _chosen(list(pages_of(source, plan, size)), wanted, rows, seed)
    else:
        pages = list(_by_chance(source, plan, wanted, rows, size, seed))
    journal.plan_pages(run, name, pages)


def _chosen(pages: Sequence[Page], wanted: int, rows: int, seed: str) -> list[Page]:
    """The pages of the sample, in order. The same seed chooses the same pages on any machine."""
    # The rows may be more than were expected.
    number = -(-len(pages) * wanted // rows) if rows else len(pages)
    return [pages[place] for place in _some(len(pages), number, random.Random(seed))]


def _by_chance(
    source: Rows, plan: EntityPlan, wanted: int, rows: int, size: int, seed: str
) -> Iterator[Page]:
    """Pages of `size` rows that begin after rows chosen at random, and do not overlap."""
    chance = random.Random(seed)
    pages = -(-wanted // size)
    starts: list[SourceKey | None] = [*_starts(source, plan, min(pages, _PLACES), rows, chance)]
    if chance.randrange(rows) < wanted or not starts:
        starts.insert(0, None)  # the first rows come after no other row
    each, number = -(-pages // len(starts)), 0
    for start, following in pairwise([*starts, None]):
        after = start
        bounds: list[SourceKey | None] = [*islice(source.page_bounds(plan, size, start, following), each)]
        if len(bounds) < each and following not in bounds:
            bounds.append(following)  # the rest of the rows before the next place
        for bound in bounds:
            number += 1
            yield Page(plan.entity.name, number, after, bound)
            after = bound


def _starts(source: Rows, plan: EntityPlan, places: int, rows: int, chance: random.Random) -> list[SourceKey]:
    """Random keys; where the source finds less than half of them, keys at equal distances, found by one walk through the
    key's index."""
    seed, share = chance.getrandbits(31), chance.uniform(0.75, 1)
    keys = source.random_keys(plan, places, rows, seed)
    if 2 * len(keys) >= places:
        return keys
    bounds = list(islice(source.page_bounds(plan, max(1, int(rows * share / places))), 2 * places))
    return [bounds[place] for place in _some(len(bounds), places, chance)]


def _some(of: int, number: int, chance: random.Random) -> list[int]:
    """`number` random numbers below `of` in rising order, or all of them."""
    return sorted(chance.sample(range(of), min(number, of)))
