"""Backfill: every row of the source as items in the table, page by page, resumable at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event

from migrator.mapping.heart.items import CompiledEntity
from migrator.model.edges import RawPage, RawRows, Receipt, Rows
from migrator.model.errors import StoppedError
from migrator.model.facts import EntityPlan
from migrator.model.journal import Finding, Journal, Page, Progress, Run, Tally
from migrator.model.results import BackfillResult
from migrator.model.table import ItemKey, RowTree, item_key_text
from migrator.stages.backfill.write import PagePath
from migrator.stages.parallel import in_parallel
from migrator.stages.source_checks import need_no_twins, pinned_columns, recording_twins

# ── Pages of an entity: planned once, journalled, and handed out until all are done ──


def plan_pages(
    source: Rows, journal: Journal, run: Run, plan: EntityPlan, page_rows: int, progress: Progress
) -> None:
    """Plans the entity's pages, unless that is done already: all of them or none.

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
    journal.plan_pages(run, name, _reported(pages_of(source, plan, page_rows), progress))


def _reported(pages: Iterator[Page], progress: Progress) -> Iterator[Page]:
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


# ── Backfill: every row of the source as items in the table, page by page, resumable at any moment ──


@dataclass(frozen=True)
class BackfillOptions:
    """`limit`: only the first rows of each entity. Sizes in rows."""

    workers: int = 4
    page_rows: int = 500
    limit: int | None = None


@dataclass
class Backfill:
    """One backfill, made of its edges. `path`: how pages are written, and what is asked before each write. `begin`: returns
    when the next page may begin."""

    source: Rows
    journal: Journal
    path: PagePath
    progress: Progress
    options: BackfillOptions = field(default_factory=BackfillOptions)
    stop: Event = field(default_factory=Event)
    clock: Callable[[], float] = time.time
    unwritten: set[str] = field(default_factory=set)
    begin: Callable[[], None] = lambda: None

    def run(self, run: Run, entities: Sequence[CompiledEntity]) -> BackfillResult:
        """Copies what is not copied yet.

        Raises: StoppedError or SourceError when an edge gave up, Interrupted after `stop`; the same run goes on later.
        """
        started = self.clock()
        with pinned_columns(self.source, self.journal, run, entities), recording_twins(self.journal, run):
            for entity in entities:
                self._copy(run, entity)
        if self.unwritten:
            what = f"DynamoDB did not take {len(self.unwritten)} item(s) (`migrator findings` says why)"
            raise StoppedError(f"{what}; all else is written, and the same command tries them again")
        return self.result(run, entities, self.clock() - started)

    def result(self, run: Run, entities: Sequence[CompiledEntity], took_s: float) -> BackfillResult:
        """What the journal says of the run."""
        return BackfillResult(
            run=run,
            entities={entity.name: self.journal.tally(run, entity.name) for entity in entities},
            total=self.journal.tally(run),
            findings=self.journal.finding_counts(run),
            took_s=took_s,
        )

    def _copy(self, run: Run, entity: CompiledEntity) -> None:
        rows_total = self.source.rows_about(entity.plan)
        if self.options.limit is not None:
            rows_total = min(rows_total, self.options.limit)
            plan_one_page(self.journal, run, entity.plan)
        else:
            page_rows = self.options.page_rows
            plan_pages(self.source, self.journal, run, entity.plan, page_rows, self.progress)
        self.progress.entity_started(entity.name, self.journal.tally(run, entity.name).rows, rows_total)
        pages = self.journal.open_pages(run, entity.name)
        work = _PageWork(self, run, entity, self._unwritten_before(run, entity))
        for page, tally, took_ms in in_parallel(work, pages, self.options.workers, self.stop):
            self.progress.page_done(entity.name, page.number, tally, took_ms)
        self.progress.entity_done(entity.name)

    def _unwritten_before(self, run: Run, entity: CompiledEntity) -> frozenset[str]:
        if not run.resumed:
            return frozenset()
        findings = self.journal.findings(run)
        return frozenset(
            finding.item_key
            for finding in findings
            if finding.kind == "unwritten" and finding.entity == entity.name
        )


@dataclass(frozen=True)
class PageRead:
    """One page of an entity's rows, to be read in either form."""

    source: Rows
    plan: EntityPlan
    page: Page
    limit: int | None

    def __call__(self) -> list[RowTree]:
        return self.source.read_page(self.plan, self.page.after, self.page.upto, self.limit)

    def raw(self, places: frozenset[int]) -> RawPage:
        if not isinstance(self.source, RawRows):
            return RawPage(self())
        return self.source.read_raw(self.plan, places, self.page.after, self.page.upto, self.limit)


@dataclass(frozen=True)
class _PageWork:
    """One page from reading to checkpoint; called from many threads."""

    stage: Backfill
    run: Run
    entity: CompiledEntity
    unwritten_before: frozenset[str] = frozenset()

    def __call__(self, page: Page) -> tuple[Page, Tally, int]:
        self.stage.begin()
        started = time.monotonic()
        stage, entity = self.stage, self.entity
        read = PageRead(stage.source, entity.plan, page, stage.options.limit)
        copied = stage.path.copy(entity, read)
        if copied.receipt.unwritten:
            return self._left_open(page, copied.receipt, started)
        receipt, findings = copied.receipt, copied.findings
        tally = Tally(
            rows=copied.rows,
            items=receipt.items,
            refused=sum(finding.kind != "apart" for finding in findings),
            expired=copied.expired,
            bytes=receipt.bytes,
            write_units=receipt.write_units,
        )
        # The checkpoint comes after the write: a crash between them repeats a page, the other order loses one.
        stage.journal.finish_page(self.run, page, tally, findings)
        self._settle(copied.written)
        return page, tally, _took_ms(started)

    def _left_open(self, page: Page, receipt: Receipt, started: float) -> tuple[Page, Tally, int]:
        """A page with items that the table does not take: findings, and no checkpoint, so that it comes again."""
        findings = [
            Finding("unwritten", self.entity.name, why, item_key=item_key_text(key))
            for key, why in receipt.unwritten.items()
        ]
        self.stage.journal.add_findings(self.run, findings)
        self.stage.unwritten.update(finding.item_key for finding in findings)
        return page, Tally(), _took_ms(started)

    def _settle(self, written: Sequence[ItemKey]) -> None:
        """Takes back what an earlier try of these items found."""
        if self.unwritten_before:
            keys = set(map(item_key_text, written))
            self.stage.journal.drop_findings(self.run, "unwritten", sorted(keys & self.unwritten_before))


def _took_ms(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
