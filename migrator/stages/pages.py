"""Pages of an entity: planned once, journalled, and handed out until all are done."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.facts import EntityPlan
from migrator.ports import Finding, Journal, Page, Progress, Rows, Run
from migrator.stages.twins import need_no_twins


def plan_pages(
    source: Rows, journal: Journal, run: Run, plan: EntityPlan, page_rows: int, progress: Progress
) -> None:
    """Plans the entity's pages, unless that is done already. All are planned or none.

    `progress` is told of each page: a large table's bounds take minutes to read, in which no row is copied.
    Raises: TwinRowsError.
    """
    name = plan.entity.name
    if name in journal.planned(run):
        return
    need_no_twins(source, plan)
    orphans = source.rows_without_key(plan)
    if orphans:
        reason = f"{orphans} row(s) have a NULL in their primary key, so nothing names them; give them a key"
        journal.add_findings(run, [Finding("refused", name, reason)])
    journal.plan_pages(run, name, _told(pages_of(source, plan, page_rows), progress))


def _told(pages: Iterator[Page], progress: Progress) -> Iterator[Page]:
    for page in pages:
        progress.page_planned(page.entity, page.number)
        yield page


def plan_one_page(journal: Journal, run: Run, plan: EntityPlan) -> None:
    """Plans one page over everything, for runs that take the first rows only."""
    name = plan.entity.name
    if name not in journal.planned(run):
        journal.plan_pages(run, name, [Page(name, 1, None, None)])


def pages_of(source: Rows, plan: EntityPlan, page_rows: int) -> Iterator[Page]:
    """All pages of the entity, by number."""
    name, after, number = plan.entity.name, None, 0
    for number, bound in enumerate(source.page_bounds(plan, page_rows), start=1):
        yield Page(name, number, after, bound)
        after = bound
    # The last page has no upper bound: rows that came after the planning are in it.
    yield Page(name, number + 1, after, None)
