"""Verify: rows against items and items against rows, of all rows or of a sample."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from threading import Event
from typing import TypeAlias

from migrator.mapping.heart.items import CompiledEntity
from migrator.mapping.live.direct import DirectItems
from migrator.mapping.patterns.diff import differences
from migrator.model.edges import CountedRows, ItemStore, ObjectStore, Rows
from migrator.model.facts import EntityPlan
from migrator.model.journal import Finding, Journal, Page, Progress, Run, Tally
from migrator.model.keys import source_named
from migrator.model.live import Root
from migrator.model.results import NotCompared, Sample, VerifyResult
from migrator.model.table import Item, ItemKey, SourceKey
from migrator.stages.backfill.stage import pages_of, plan_pages, told_twins
from migrator.stages.parallel import TableWalk, in_parallel
from migrator.stages.projection import Projection, key_text, pinned_columns, project
from migrator.stages.verify.scan import ScanTotals, TableScan, check_keys, check_totals, not_proven

# ── A sample of an entity's rows, the same for the same seed ──

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


# ──
# Verify: rows against items and items against rows, so that missing, differing and unexpected items all
# show.

Confirm: TypeAlias = Callable[[Run], Mapping[Root, set[ItemKey]]]
"""Looks again at a run's findings, drops those that hold no more; the roots that still differ."""


_STOPPED = "stopped; the checkpoint is kept, and the same command goes on from there"


@dataclass(frozen=True)
class VerifyOptions:
    workers: int = 4
    page_rows: int = 500
    scan_segments: int = 4
    sample: Sample | None = None


@dataclass
class Verify:
    """One verify, made of its edges. `check` raises when the run has lost its lease.

    `confirm`: the re-check of what differs, where the source is live; `is_quiet`: whether nothing has changed since
    the run began, so that totals of two moments can be compared. `direct`: items that are not looked at.
    """

    source: CountedRows
    store: ItemStore
    journal: Journal
    progress: Progress
    check: Callable[[], None]
    confirm: Confirm | None
    is_quiet: Callable[[], bool]
    direct: DirectItems
    options: VerifyOptions = field(default_factory=VerifyOptions)
    stop: Event = field(default_factory=Event)
    clock: Callable[[], float] = time.time
    objects: ObjectStore | None = None

    def run(self, run: Run, entities: Sequence[CompiledEntity]) -> VerifyResult:
        """Looks at what it has not looked at yet; findings go to the journal.

        Raises: StoppedError or SourceError when an edge gave up, Interrupted after `stop`; the same run goes on later.
        """
        started = self.clock()
        sample = self.options.sample
        with pinned_columns(self.source, self.journal, run, entities), told_twins(self.journal, run):
            # Of a number of rows the table's size only says how they are divided.
            count = self.source.rows_expected if sample and sample.rows else self.source.rows_about
            counts = {entity.name: count(entity.plan) for entity in entities}
            for entity in entities:
                self._plan(run, entity, counts[entity.name], sum(counts.values()))
                self._rows(run, entity, counts[entity.name])
            scanned = ScanTotals() if sample else self._table(run, entities)
            confirmed = self.confirm(run) if self.confirm else {}
            not_compared = [] if sample else self._totals(run, entities, scanned)
            unproved = [] if sample else not_proven(self.source, entities)
        return VerifyResult(
            run=run,
            entities={entity.name: self.journal.tally(run, entity.name) for entity in entities},
            total=self.journal.tally(run),
            scanned=scanned.items,
            findings=self.journal.finding_counts(run),
            not_compared=not_compared,
            not_proven=unproved,
            took_s=self.clock() - started,
            sample=sample,
            confirmed=confirmed,
        )

    def _totals(self, run: Run, entities: Sequence[CompiledEntity], scanned: ScanTotals) -> list[NotCompared]:
        left_out = check_keys(self.source, self.journal, run, entities)
        if not self.is_quiet():
            return [*left_out, NotCompared("totals", "rows changed meanwhile, and totals are of one moment")]
        return [*left_out, *check_totals(self.source, self.journal, run, entities, scanned)]

    def _plan(self, run: Run, entity: CompiledEntity, rows: int, total: int) -> None:
        """The entity's pages, or the sample's of them; `rows` and `total`: its rows, and those of all entities."""
        sample, page_rows = self.options.sample, self.options.page_rows
        edges = (self.source, self.journal, run, entity.plan)
        if sample is None:
            plan_pages(*edges, page_rows, self.progress)
        else:
            plan_sample(*edges, sample=sample, page_rows=page_rows, rows=rows, total=total)

    def _rows(self, run: Run, entity: CompiledEntity, rows: int) -> None:
        done = self.journal.tally(run, entity.name).rows
        self.progress.entity_started(entity.name, done, rows)
        work = _PageCheck(self, run, entity)
        pages = self.journal.open_pages(run, entity.name)
        for page, tally, took_ms in in_parallel(work, pages, self.options.workers, self.stop):
            self.progress.page_done(entity.name, page.number, tally, took_ms)
        self.progress.entity_done(entity.name)

    def _table(self, run: Run, entities: Sequence[CompiledEntity]) -> ScanTotals:
        options = self.options
        walk = TableWalk(self.store, options.scan_segments, options.workers, self.stop, _STOPPED)
        by_name = {one.name: one for one in entities}
        scan = TableScan(self.source, walk, self.journal, run, by_name, self.direct)
        self.progress.entity_started("(table)", 0, self.journal.tally(run).items)
        totals = ScanTotals()
        for number, one, took_ms in walk.each(_Segment(scan)):
            totals = totals + one
            self.progress.page_done("(table)", number, Tally(rows=one.items, items=one.items), took_ms)
        self.progress.entity_done("(table)")
        return totals


@dataclass(frozen=True)
class _Segment:
    scan: TableScan

    def __call__(self, number: int) -> tuple[int, ScanTotals, int]:
        started = time.monotonic()
        totals = self.scan.segment(number)
        return number, totals, round((time.monotonic() - started) * 1000)


@dataclass(frozen=True)
class _PageCheck:
    """One page of rows against the stored items; called from many threads."""

    stage: Verify
    run: Run
    entity: CompiledEntity

    def __call__(self, page: Page) -> tuple[Page, Tally, int]:
        started = time.monotonic()
        stage, entity = self.stage, self.entity
        rows = stage.source.read_page(entity.plan, page.after, page.upto)
        projected = project(entity, rows, stage.clock())
        stored = stage.store.get([entity.table.key_of(item) for item in projected.items])
        found = [finding for item in projected.items for finding in compare_item(entity, item, stored)]
        found += missing_objects(entity, projected, stage.objects)
        findings = [*projected.refused, *found]
        tally = _tally(projected, found)
        stage.check()
        stage.journal.finish_page(self.run, page, tally, findings)
        return page, tally, round((time.monotonic() - started) * 1000)


def _tally(projected: Projection, found: Sequence[Finding]) -> Tally:
    return Tally(
        rows=projected.rows,
        items=len(projected.items),
        refused=len(projected.refused),
        expired=len(projected.expired),
        different=len({finding.item_key for finding in found}),
    )


def compare_item(entity: CompiledEntity, expected: Item, stored: Mapping[ItemKey, Item]) -> list[Finding]:
    """A finding for each way in which the stored item is not the expected one."""
    table = entity.table
    item = stored.get(table.key_of(expected))
    if item is None or table.is_hidden(item):
        return [_finding("missing", entity, expected, "no item is stored under this key")]
    owner = item.get(table.source_attribute)
    if owner != expected[table.source_attribute] and isinstance(owner, str):
        row = source_named(owner)
        reason = f"the item under this key is that of {row or 'another writer'}"
        return [replace(_finding("collision", entity, expected, reason), owner=row)]
    ignored = frozenset({table.ticket_attribute, table.revision_attribute})
    return [
        _finding(
            "different",
            entity,
            expected,
            f"the attribute's {one.kind} differs"
            if one.kind in ("type", "value")
            else f"the attribute is {one.kind}",
            one.attribute,
        )
        for one in differences(expected, item, ignored)
    ]


def missing_objects(
    entity: CompiledEntity, projected: Projection, objects: ObjectStore | None
) -> list[Finding]:
    """A finding for each object that an item points to and S3 has not, or has in another size."""
    if not projected.objects or objects is None:
        return []
    sizes = objects.sizes(list(projected.objects))
    gone = {name for name, data in projected.objects.items() if sizes.get(name) != len(data)}
    return [
        _finding("missing", entity, item, f"the object {name} that an item points to is not in S3")
        for item in (projected.items if gone else ())
        for name in dict.fromkeys(_pointers(item))
        if name in gone
    ]


def _pointers(item: Item) -> Iterator[str]:
    return (str(value["s3"]) for value in item.values() if isinstance(value, dict) and "s3" in value)


def _finding(kind: str, entity: CompiledEntity, item: Item, reason: str, attribute: str = "") -> Finding:
    source = str(item[entity.table.source_attribute])
    return Finding(
        kind=kind,  # type: ignore[arg-type]
        entity=entity.name,
        reason=reason,
        source_key=source.partition(":")[2],
        item_key=key_text(entity.table, item),
        attribute=attribute,
        item_type=entity.table.type_of(item),
    )
