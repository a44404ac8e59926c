"""A sample of an entity's pages, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from migrator.facts import EntityPlan
from migrator.ports import Journal, Page, Run, Source
from migrator.results import Sample
from migrator.stages.pages import pages_of

_PAGES = 10
"""So many pages a sample has at least, where there are rows enough: a few large pages would be a few places only."""


def plan_sample(
    source: Source,
    journal: Journal,
    run: Run,
    plan: EntityPlan,
    *,
    sample: Sample,
    page_rows: int,
    total: int,
) -> None:
    """Plans the pages of the sample, unless that is done already. `total`: rows of all entities."""
    name = plan.entity.name
    if name in journal.planned(run):
        return
    rows = source.rows_about(plan)
    wanted = sample.wanted(rows, total)
    pages = list(pages_of(source, plan, max(1, min(page_rows, wanted // _PAGES))))
    # The rows may be more than were expected.
    number = min(len(pages), -(-len(pages) * wanted // rows)) if rows else len(pages)
    journal.plan_pages(run, name, _chosen(pages, number, f"{sample.seed}/{name}"))


def _chosen(pages: Sequence[Page], number: int, seed: str) -> list[Page]:
    """So many of the pages, in their order. The same seed chooses the same of the same pages, on any machine."""
    chosen = random.Random(seed).sample(range(len(pages)), number)
    return [pages[place] for place in sorted(chosen)]
