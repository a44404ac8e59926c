"""A sample of an entity's rows, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from migrator.facts import EntityPlan
from migrator.model import SourceKey
from migrator.ports import Journal, Page, Rows, Run
from migrator.results import Sample
from migrator.stages.pages import pages_of

_PAGES = 10
"""So many pages a sample has at least, where there are rows enough: a few large pages would be a few places only."""
_PLACES = 200
"""At so many places a sample begins at most; a larger one has several pages, one behind the other, at each."""
_WALKED = 10
"""All pages are planned, and some of them chosen, where the sample is this part of the rows or more."""


def plan_sample(
    source: Rows,
    journal: Journal,
    run: Run,
    plan: EntityPlan,
    *,
    sample: Sample,
    page_rows: int,
    rows: int,
    total: int,
) -> None:
    """Plans the pages of the sample, unless that is done already.

    `rows` and `total`: those of the entity and of all entities, about.
    """
    name = plan.entity.name
    if name in journal.planned(run):
        return
    if rows <= _WALKED * sample.wanted(rows, total):
        # So few by an estimate: a walk over the table needs the number itself.
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
    """Of all pages those of the sample, in their order. The same seed chooses the same of the same pages, on any machine."""
    # The rows may be more than were expected.
    number = -(-len(pages) * wanted // rows) if rows else len(pages)
    return [pages[place] for place in _some(len(pages), number, random.Random(seed))]


def _by_chance(
    source: Rows, plan: EntityPlan, wanted: int, rows: int, size: int, seed: str
) -> Iterator[Page]:
    """Pages of `size` rows that begin behind rows chosen by chance, and do not overlap."""
    chance = random.Random(seed)
    pages = -(-wanted // size)
    starts: list[SourceKey | None] = [*_starts(source, plan, min(pages, _PLACES), rows, chance)]
    if chance.randrange(rows) < wanted or not starts:
        starts.insert(0, None)  # the first rows are behind no other
    each, number = -(-pages // len(starts)), 0
    for start, following in pairwise([*starts, None]):
        after = start
        bounds: list[SourceKey | None] = [*islice(source.page_bounds(plan, size, start, following), each)]
        if len(bounds) < each and following not in bounds:
            bounds.append(following)  # what is left of the rows before the next place
        for bound in bounds:
            number += 1
            yield Page(plan.entity.name, number, after, bound)
            after = bound


def _starts(source: Rows, plan: EntityPlan, places: int, rows: int, chance: random.Random) -> list[SourceKey]:
    """Keys by chance; where the source finds less than half of them, keys at equal distances, which are looked for by going
    through the key's index once."""
    seed, share = chance.getrandbits(31), chance.uniform(0.75, 1)
    found = source.random_keys(plan, places, rows, seed)
    if 2 * len(found) >= places:
        return found
    bounds = list(islice(source.page_bounds(plan, max(1, int(rows * share / places))), 2 * places))
    return [bounds[place] for place in _some(len(bounds), places, chance)]


def _some(of: int, number: int, chance: random.Random) -> list[int]:
    """Numbers below `of`, in their order: so many of them, or all."""
    return sorted(chance.sample(range(of), min(number, of)))
