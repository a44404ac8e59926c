"""Backfill: every row of the source as items in the table, page by page, resumable at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event

from migrator.mapping.items import CompiledEntity
from migrator.ports import (
    Finding,
    ItemStore,
    Journal,
    ObjectStore,
    Page,
    Progress,
    Receipt,
    Run,
    Source,
    Tally,
)
from migrator.results import BackfillResult
from migrator.stages.claims import Claims
from migrator.stages.pages import plan_one_page, plan_pages
from migrator.stages.pool import in_parallel
from migrator.stages.projection import project, stamp

NO_TICKET = 0
"""The ticket of items read without capture: nobody else writes, so any ticket drawn later is higher."""


@dataclass(frozen=True)
class BackfillOptions:
    """`limit`: only the first rows of each entity. Sizes in rows."""

    workers: int = 4
    page_rows: int = 500
    limit: int | None = None


@dataclass
class Backfill:
    """One backfill, made of its edges. `check` is called before each write and raises when the run must stop."""

    source: Source
    store: ItemStore
    journal: Journal
    claims: Claims
    progress: Progress
    options: BackfillOptions = field(default_factory=BackfillOptions)
    stop: Event = field(default_factory=Event)
    clock: Callable[[], float] = time.time
    check: Callable[[], None] = lambda: None
    objects: ObjectStore | None = None

    def run(self, run: Run, entities: Sequence[CompiledEntity]) -> BackfillResult:
        """Copies what is not copied yet.

        Raises: StoppedError or SourceError when an edge gave up, Interrupted after `stop`; the same run goes on later.
        """
        started = self.clock()
        for entity in entities:
            self._copy(run, entity)
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
        rows_total = self.source.count(entity.plan)
        if self.options.limit is not None:
            rows_total = min(rows_total, self.options.limit)
            plan_one_page(self.journal, run, entity.plan)
        else:
            plan_pages(self.source, self.journal, run, entity.plan, self.options.page_rows)
        self.progress.entity_started(entity.name, self.journal.tally(run, entity.name).rows, rows_total)
        pages = self.journal.open_pages(run, entity.name)
        work = _PageWork(self, run, entity)
        for page, tally, took_ms in in_parallel(work, pages, self.options.workers, self.stop):
            self.progress.page_done(entity.name, page.number, tally, took_ms)
        self.progress.entity_done(entity.name)


@dataclass(frozen=True)
class _PageWork:
    """One page from reading to checkpoint; called from many threads."""

    stage: Backfill
    run: Run
    entity: CompiledEntity

    def __call__(self, page: Page) -> tuple[Page, Tally, int]:
        started = time.monotonic()
        stage, entity = self.stage, self.entity
        rows = stage.source.read_page(entity.plan, page.after, page.upto, stage.options.limit)
        projected = project(entity, rows, stage.clock())
        items, collisions = stage.claims.sift(entity, projected.items)
        stamp(items, entity.table, NO_TICKET)
        stage.check()
        if projected.objects and stage.objects is not None:
            # Before the items: an item must never point to what is not there.
            stage.objects.put(projected.objects)
        receipt = stage.store.put(items) if items else Receipt()
        findings: list[Finding] = [*projected.refused, *collisions]
        tally = Tally(
            rows=projected.rows,
            items=receipt.items,
            refused=len(findings),
            expired=len(projected.expired),
            bytes=receipt.bytes,
            write_units=receipt.write_units,
        )
        # The checkpoint comes after the write: a crash between them repeats a page, the other order loses one.
        stage.journal.finish_page(self.run, page, tally, findings)
        return page, tally, round((time.monotonic() - started) * 1000)
