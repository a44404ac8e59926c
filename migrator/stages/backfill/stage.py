"""Backfill: every row of the source as items in the table, resumable at any moment; its estimate."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from threading import Event

from msgspec import Struct

from migrator.journal.runs import SqlJournal
from migrator.mapping.items.encoder import item_of
from migrator.mapping.items.items import CompiledEntity, project
from migrator.mapping.items.wire import Estimate, measure
from migrator.mapping.model.edges import Receipt, Rows
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.journal import Finding, Page, Progress, Run, Tally
from migrator.mapping.model.results import BackfillResult
from migrator.mapping.model.table import (
    BATCH_WRITE_ITEMS,
    EncodedItem,
    RowTree,
    TableDesign,
    item_key_text,
)
from migrator.runtime.errors import StoppedError, TooSlowError, TwinRowsError, amount
from migrator.runtime.retry import nap
from migrator.stages.backfill.write import PagePath
from migrator.stages.core.ownership import checked_rows, need_no_twins
from migrator.stages.core.parallel import OpenPages, PageCall, PageClaims, RunPages, Worked

# ── Pages of an entity: planned once, journalled, and handed out until all are done ──


def plan_pages(
    source: Rows, journal: SqlJournal, run: Run, plan: EntityPlan, page_rows: int, progress: Progress
) -> None:
    """Plan all of the entity's pages, unless they exist.

    `progress` is called for each page, since reading a large table's bounds takes minutes.
    Raises: TwinRowsError.
    """
    name = plan.entity.name
    if name in journal.planned(run):
        return
    need_no_twins(source, plan)
    orphans = source.rows_without_key(plan)
    if orphans:
        reason = f"{amount(orphans, 'row', 'have')} a NULL in their primary key, so nothing names them; give them a key"
        journal.add_findings(run, [Finding("refused", name, reason)])
    fitting = rows_that_fit(source, plan, page_rows)
    journal.plan_pages(run, name, _reported(pages_of(source, plan, fitting), progress))


def _reported(pages: Iterator[Page], progress: Progress) -> Iterator[Page]:
    for page in pages:
        progress.page_planned(page.entity, page.number)
        yield page


PAGE_BYTES = 2**22
"""Of a page's rows as text at most, as wide as the first ones are; but FEW_ROWS are read together however wide they are."""
FEW_ROWS = 500
_LOOKED_AT = 50


def rows_that_fit(source: Rows, plan: EntityPlan, page_rows: int) -> int:
    """Rows to read together: fewer than `page_rows` if they are wide, since each worker holds a page."""
    if page_rows <= FEW_ROWS:
        return page_rows
    rows = source.read_page(plan, None, None, _LOOKED_AT)
    width = sum(len(str(row)) for row in rows) // len(rows) if rows else 1
    return max(FEW_ROWS, min(page_rows, PAGE_BYTES // max(1, width)))


def pages_of(source: Rows, plan: EntityPlan, page_rows: int) -> Iterator[Page]:
    name, after, number = plan.entity.name, None, 0
    for number, bound in enumerate(source.page_bounds(plan, page_rows), start=1):
        yield Page(name, number, after, bound)
        after = bound
    # The last page has no upper bound: it includes rows inserted after the planning.
    yield Page(name, number + 1, after, None)


# ── Backfill: every row of the source as items in the table, page by page, resumable at any moment ──


REST_S = 0.5
"""How often an idle process looks for pages that others have planned, or left."""


class BackfillOptions(Struct, frozen=True):
    """`limit`: only the first rows of each entity."""

    workers: int = 4
    page_rows: int = 2000
    limit: int | None = None


LOOK_S = 2.0
_LOOKS_A_PAUSE = 20


@dataclass
class OthersWork:
    """Work of other processes on a run's entities, read from the journal every two seconds or less often.

    Reading takes at most a twentieth of the time.
    """

    known: dict[str, Tally] = field(default_factory=dict)
    _next_at: float = 0.0

    def done(self, entity: str, tally: Tally) -> None:
        self.known[entity] = self.known.get(entity, Tally()) + tally

    def look(self, journal: SqlJournal, run: Run, progress: Progress) -> None:
        began = time.monotonic()
        if began < self._next_at:
            return
        for entity, known in self.known.items():
            more = journal.tally(run, entity) + -known
            if more.rows > 0:
                self.known[entity] = known + more
                progress.others_done(entity, more)
        took_s = time.monotonic() - began
        self._next_at = began + max(LOOK_S, _LOOKS_A_PAUSE * took_s)


@dataclass
class Backfill:
    """One process of a backfill.

    `path`: how pages are written, with the check before each write.
    `begin`: returns when the next page may begin.
    `who`: the process's unique name.
    `pages`: opens the workers for the run's pages.
    """

    source: Rows
    journal: SqlJournal
    path: PagePath
    progress: Progress
    options: BackfillOptions = field(default_factory=BackfillOptions)
    stop: Event = field(default_factory=Event)
    clock: Callable[[], float] = time.time
    begin: Callable[[], None] = lambda: None
    who: str = field(default_factory=lambda: secrets.token_hex(8))
    is_shared: Callable[[], bool] = lambda: False
    pages: OpenPages = PageClaims
    _unwritten_before: Mapping[str, frozenset[str]] | None = None
    _others: OthersWork = field(default_factory=lambda: OthersWork())

    def run(self, run: Run, entities: Sequence[CompiledEntity]) -> BackfillResult:
        """Copy the remaining rows; return when all processes together have copied all.

        Raises: StoppedError, SourceError, Interrupted; the same run continues later.
        """
        started = self.clock()
        with self._claims(run) as claims, checked_rows(self.source, self.journal, run, entities):
            for entity in entities:
                self._plan(run, entity)
                self._copy(run, entity, claims)
                self.progress.entity_done(entity.name)
            for _ in claims.rounds(lambda: self._rest(run)):
                for entity in entities:
                    self._copy(run, entity, claims)
        self._need_all(run, entities)
        return self.result(run, entities, self.clock() - started)

    def join(self, run: Run, entities: Sequence[CompiledEntity], is_over: Callable[[], bool]) -> None:
        """Copy pages of a run that another process plans and ends, until `is_over`. Raises: as `run`."""
        with self._claims(run) as claims, checked_rows(self.source, self.journal, run, entities):
            for entity in entities:
                self._others.done(entity.name, self.journal.tally(run, entity.name))
            while not is_over():
                planned = self.journal.planned(run)
                for entity in entities:
                    if entity.name in planned:
                        self._copy(run, entity, claims)
                self._rest(run)

    def result(self, run: Run, entities: Sequence[CompiledEntity], took_s: float) -> BackfillResult:
        return BackfillResult(
            run=run,
            entities={entity.name: self.journal.tally(run, entity.name) for entity in entities},
            total=self.journal.tally(run),
            findings=self.journal.finding_counts(run),
            took_s=took_s,
        )

    def work(self, run: Run, entity: CompiledEntity) -> PageCall:
        """Work on the pages of one entity of a run. Called by many threads at once."""
        return partial(self._page, run, entity, self._unwritten(run).get(entity.name, frozenset()))

    def _page(self, run: Run, entity: CompiledEntity, unwritten_before: frozenset[str], page: Page) -> Worked:
        """`unwritten_before`: item keys of failed earlier writes."""
        self.begin()
        started, rows = time.monotonic(), (page.after, page.upto, self.options.limit)
        copied = self.path.copy(entity, page, lambda raw: self.source.read_raw(entity.plan, raw, *rows))
        receipt, findings = copied.receipt, copied.findings
        if receipt.unwritten:
            # No checkpoint, so that the page is read again.
            unwritten = [
                Finding("unwritten", entity.name, why, item_key=item_key_text(key))
                for key, why in receipt.unwritten.items()
            ]
            self.journal.leave_page(run, page, self.who, unwritten)
            return page, Tally(), ms_since(started)
        tally = Tally(
            rows=copied.rows,
            items=receipt.items,
            refused=sum(finding.kind != "apart" for finding in findings),
            expired=copied.expired,
            bytes=receipt.bytes,
            write_units=receipt.write_units,
        )
        # The checkpoint comes after the write: a crash between them repeats a page, the other order loses one.
        self.journal.finish_page(run, page, tally, findings)
        if unwritten_before:
            settled = unwritten_before.intersection(item_key_text(item.key) for item in copied.written)
            self.journal.drop_findings(run, "unwritten", sorted(settled))
        return page, tally, ms_since(started)

    def _claims(self, run: Run) -> RunPages:
        return self.pages(self.journal, run, self.who, self.stop)

    def _plan(self, run: Run, entity: CompiledEntity) -> None:
        rows_total = self.source.rows_about(entity.plan)
        if self.options.limit is not None:
            rows_total = min(rows_total, self.options.limit)
            if entity.name not in self.journal.planned(run):
                # One page over all rows.
                self.journal.plan_pages(run, entity.name, [Page(entity.name, 1, None, None)])
        else:
            page_rows = self.options.page_rows
            plan_pages(self.source, self.journal, run, entity.plan, page_rows, self.progress)
        tally = self.journal.tally(run, entity.name)
        self._others.done(entity.name, tally)
        self.progress.entity_started(entity.name, tally.rows, rows_total)

    def _copy(self, run: Run, entity: CompiledEntity, claims: RunPages) -> None:
        work, workers = self.work(run, entity), self.options.workers
        worked = claims.each(entity.name, work, workers, workers, lambda: self._rest(run))
        for page, tally, took_ms in worked:
            self.progress.page_done(entity.name, page.number, tally, took_ms)
            self._others.done(entity.name, tally)
            if self.is_shared():
                self._others.look(self.journal, run, self.progress)

    def _unwritten(self, run: Run) -> Mapping[str, frozenset[str]]:
        if self._unwritten_before is None:
            findings = self.journal.findings(run) if run.resumed else []
            unwritten = [finding for finding in findings if finding.kind == "unwritten"]
            self._unwritten_before = {
                name: frozenset(finding.item_key for finding in unwritten if finding.entity == name)
                for name in {finding.entity for finding in unwritten}
            }
        return self._unwritten_before

    def _rest(self, run: Run) -> None:
        if self.is_shared():
            self._others.look(self.journal, run, self.progress)
        nap(REST_S, self.stop.is_set, time.sleep)

    def _need_all(self, run: Run, entities: Sequence[CompiledEntity]) -> None:
        counts = [self.journal.page_counts(run, entity.name) for entity in entities]
        if all(done == planned for done, planned in counts):
            return
        unwritten = self.journal.finding_counts(run).get("unwritten", 0)
        what = f"DynamoDB did not take {amount(unwritten, 'item')} (see `migrator status --findings`)"
        raise StoppedError(f"{what}; all else is written, and the same command tries them again")


def ms_since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)


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
    """Estimate the remaining work from row counts and sample pages spread over each entity's keys.

    `limit`: only the first rows of each entity. `done`: rows of each entity already written.
    Refused rows make no items.
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
    # Rows with the same key end the run itself, which lists them in its findings.
    with suppress(TwinRowsError):
        for read in _spots(source, entity, rows):
            projected = project(entity, read, now_s)
            total += measure(projected.rows, projected.items, entity.table)
    return total


def _spots(source: Rows, entity: CompiledEntity, rows: int) -> Iterator[list[RowTree]]:
    """Yield rows from the start of each of SPOTS equal parts; all if there are few.

    Yields only the first part if the source times out on the jump to a later one.
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


# ── A store that stores nothing: it measures the cost of a write ──


def sends_nothing() -> None: ...


class DryStore:
    """Puts for --dry-run. Write units are those of an empty table, indexes included."""

    sends_texts = False

    def __init__(self, design: TableDesign) -> None:
        self.design = design

    def put(self, items: Sequence[EncodedItem]) -> Receipt:
        sizes = [item.size_bytes for item in items]
        units = measure(0, list(map(item_of, items)), self.design).write_units
        return Receipt(len(items), sum(sizes), float(units), -(-len(items) // BATCH_WRITE_ITEMS))
