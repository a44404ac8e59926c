"""One page of a backfill: read, made into items, written, checkpointed; on any host, with no stage around it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migrator.journal.runs import SqlJournal
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.edges import RawPage, Receipt, Rows
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.journal import Finding, Page, Run, Tally
from migrator.mapping.model.table import ItemKey, item_key_text
from migrator.stages.backfill.write import PagePath


@dataclass(frozen=True)
class PageRead:
    """One page of an entity's rows."""

    source: Rows
    plan: EntityPlan
    page: Page
    limit: int | None

    def __call__(self, raw: frozenset[int]) -> RawPage:
        return self.source.read_raw(self.plan, raw, self.page.after, self.page.upto, self.limit)


@dataclass(frozen=True)
class PageWork:
    """Pages of one entity of one run, one with each call; called from many threads, and by many processes at once.

    `who`: has claimed the pages. `begin`: returns when the next page may begin. `unwritten_before`: item keys that an
    earlier try of this run could not write.
    """

    source: Rows
    journal: SqlJournal
    path: PagePath
    run: Run
    entity: CompiledEntity
    who: str
    begin: Callable[[], None]
    limit: int | None = None
    unwritten_before: frozenset[str] = frozenset()

    def __call__(self, page: Page) -> tuple[Page, Tally, int]:
        self.begin()
        started = time.monotonic()
        copied = self.path.copy(self.entity, PageRead(self.source, self.entity.plan, page, self.limit))
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
        self.journal.finish_page(self.run, page, tally, findings)
        if self.unwritten_before:
            self._settle(copied.written)
        return page, tally, _took_ms(started)

    def _left_open(self, page: Page, receipt: Receipt, started: float) -> tuple[Page, Tally, int]:
        """A page with items that the table does not take: findings, and no checkpoint, so that it comes again."""
        findings = [
            Finding("unwritten", self.entity.name, why, item_key=item_key_text(key))
            for key, why in receipt.unwritten.items()
        ]
        self.journal.leave_page(self.run, page, self.who, findings)
        return page, Tally(), _took_ms(started)

    def _settle(self, written: Sequence[ItemKey]) -> None:
        """Takes back what an earlier try of these items found."""
        keys = set(map(item_key_text, written))
        self.journal.drop_findings(self.run, "unwritten", sorted(keys & self.unwritten_before))


def _took_ms(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
