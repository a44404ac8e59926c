"""Verify: compares rows with items and items with rows, for all rows or for a sample."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from threading import Event
from typing import TypeAlias

from migrator.mapping.heart.encoder import TextEncoder, compile_texts
from migrator.mapping.heart.items import CompiledEntity, Projection, key_text, project
from migrator.mapping.patterns.diff import differences
from migrator.model.edges import CountedRows, ItemStore, ObjectStore, Rows
from migrator.model.errors import SettingsError, SourceError
from migrator.model.facts import EntityPlan
from migrator.model.instances import Newest
from migrator.model.journal import Finding, Journal, Page, Progress, Run, RunIdentity, SegmentState, Tally
from migrator.model.live import ActivityCounts, Root
from migrator.model.results import NotCompared, Sample, VerifyResult
from migrator.model.table import Item, ItemKey, SourceKey, source_named
from migrator.runtime.logs import get_logger
from migrator.stages.backfill.encoded import encoders_of
from migrator.stages.backfill.stage import PageRead, pages_of, plan_pages
from migrator.stages.parallel import TableWalk, in_parallel
from migrator.stages.source_checks import pinned_columns, recording_twins
from migrator.stages.verify.digests import (
    DIGESTS_AT_MOST,
    Digests,
    DigestScan,
    EncodedScans,
    Look,
    match_rows,
)
from migrator.stages.verify.scan import (
    DirectItems,
    ScanTotals,
    TableScan,
    check_keys,
    check_totals,
    not_proven,
)

# ── A sample of an entity's rows, the same for the same seed ──

_PAGES = 10
"""The pages of a sample at least, where there are rows enough: a few large pages would cover a few places only."""
_PLACES = 200
"""The places of a sample at most; a larger sample has several consecutive pages at each place."""
_WALKED = 10
"""Where the sample is at least 1/10 of the rows, all pages are planned and some of them chosen."""


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


# ── Verify: rows compared with items and items with rows, to find missing, differing and unexpected items ──

Confirm: TypeAlias = Callable[[Run], Mapping[Root, set[ItemKey]]]
"""Re-checks a run's findings and drops those that no longer hold; returns the roots that still differ."""


_TOO_MANY = f"more than {DIGESTS_AT_MOST:,} items, and their digests would take too much memory"
_STOPPED = "stopped; the checkpoint is kept, and the same command goes on from there"


RESUMED_WITHIN_S = 3600.0
"""A verify that was stopped longer ago begins anew: its comparisons say little about the present."""
_log = get_logger("verify")


@dataclass(frozen=True)
class Begun:
    """A run that was begun. `told`: a note for the operator, if it was resumed or begun anew; else ''."""

    run: Run
    told: str = ""


def begin(
    journal: Journal,
    identity: RunIdentity,
    newest: Newest | None,
    idle_s: Callable[[Run], float],
    *,
    again: bool,
) -> Begun:
    """The stopped run, resumed if that is recent enough, or a new one. `again`: always a new one. `newest`: the revision
    that the job's writers work by; `idle_s`: seconds since a run was last active."""
    last = journal.find_run(identity)
    is_outdated = last is not None and newest is not None and last.id <= newest.runs_before
    if last is None or last.state == "done" or again or is_outdated:
        return Begun(journal.start_run(identity))
    if (idle := idle_s(last)) > RESUMED_WITHIN_S:
        why = f"it was stopped {idle / 3600:.1f} hours ago, and what it looked at may have changed"
        run = journal.start_run(identity)
        return Begun(
            run, f"run {last.id} of {last.started_at} does not go on: {why}; run {run.id} begins anew"
        )
    return Begun(journal.resume_run(last), f"run {last.id} of {last.started_at} goes on")


def keep_look(look: Callable[[], ActivityCounts], keep: Callable[[ActivityCounts], None]) -> None:
    """Keeps the source's counts of changes as a verify begins, so that later changes are noticed before SQL goes.

    Where the source cannot count them, the verify goes on; the move to complete then reports them as unknown.
    """
    try:
        keep(look())
    except (SettingsError, SourceError) as error:
        _log.info("changes_not_counted", reason=str(error))


@dataclass(frozen=True)
class VerifyOptions:
    workers: int = 4
    page_rows: int = 500
    scan_segments: int = 4
    sample: Sample | None = None


@dataclass
class Verify:
    """One verify, with its ports. `check` raises when the run has lost its lease.

    `confirm`: the re-check of differences, where the source is live; `is_quiet`: whether nothing has changed since the
    run began, so that totals of two moments can be compared. `direct`: items that are not compared.
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
        """Compares the pages that are still open; findings go to the journal.

        Raises: StoppedError or SourceError when an edge gave up, Interrupted after `stop`; the same run goes on later.
        """
        started = self.clock()
        sample = self.options.sample
        with pinned_columns(self.source, self.journal, run, entities), recording_twins(self.journal, run):
            # For a sample of a fixed number of rows an estimate of the table's size is enough.
            count = self.source.rows_expected if sample and sample.rows else self.source.rows_about
            counts = {entity.name: count(entity.plan) for entity in entities}
            for entity in entities:
                self._plan(run, entity, counts[entity.name], sum(counts.values()))
            look = None if sample else self._look(run, entities, counts)
            for entity in entities:
                self._rows(run, entity, counts[entity.name], look)
            scanned = ScanTotals() if sample else self._table(run, entities, look)
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
        """Plans the entity's pages, or those of the sample. `rows` and `total`: its rows, and those of all entities."""
        sample, page_rows = self.options.sample, self.options.page_rows
        edges = (self.source, self.journal, run, entity.plan)
        if sample is None:
            plan_pages(*edges, page_rows, self.progress)
        else:
            plan_sample(*edges, sample=sample, page_rows=page_rows, rows=rows, total=total)

    def _look(self, run: Run, entities: Sequence[CompiledEntity], counts: Mapping[str, int]) -> Look | None:
        """Digests of what is stored; None, and a note in the log, where each item is read by its key."""
        items = sum(counts[entity.name] * len(entity.plan.entity.items) for entity in entities)
        reason = self._unfit(run, items)
        scan = None if reason else self._scan(run, entities, Digests())
        if isinstance(scan, DigestScan):
            totals = self._walk("(table)", items, scan, scan.look)
            if scan.digests.count() <= DIGESTS_AT_MOST:
                scan.digests.sort()
                _log.info("verify_planned", stored_items="by one scan", digests=scan.digests.count())

                def compiled(entity: CompiledEntity, offered: frozenset[int]) -> TextEncoder | None:
                    return compile_texts(entity, offered, scan.orders(entity))

                return Look(scan, totals, encoders_of(self.source, entities, compiled))
            reason = _TOO_MANY
        _log.info("verify_planned", stored_items="by their keys, and by a scan", reason=reason)
        return None

    def _unfit(self, run: Run, items: int) -> str:
        """Why digests of stored items are not taken; '' where they are."""
        store, segments = self.store, range(self.options.scan_segments)
        if not isinstance(store, EncodedScans) or not store.takes_encoded:
            return "the table is not read by our own exchange"
        if any(self.journal.segment(run, number) != SegmentState() for number in segments):
            return "the scan was begun before it was stopped"
        return _TOO_MANY if items > DIGESTS_AT_MOST else ""

    def _rows(self, run: Run, entity: CompiledEntity, rows: int, look: Look | None) -> None:
        done = self.journal.tally(run, entity.name).rows
        self.progress.entity_started(entity.name, done, rows)
        work = _PageCheck(self, run, entity, look)
        pages = self.journal.open_pages(run, entity.name)
        for page, tally, took_ms in in_parallel(work, pages, self.options.workers, self.stop):
            self.progress.page_done(entity.name, page.number, tally, took_ms)
        self.progress.entity_done(entity.name)

    def _table(self, run: Run, entities: Sequence[CompiledEntity], look: Look | None) -> ScanTotals:
        if look is None:
            scan = self._scan(run, entities, None)
        elif not look.scan.digests.are_all_matched():
            scan = look.scan
        else:
            for number, totals in look.totals.items():
                self.journal.save_segment(run, number, SegmentState(None, True, totals.as_json()), [])
            return sum(look.totals.values(), ScanTotals())
        by_segment = self._walk("(table)", self.journal.tally(run).items, scan, scan.segment)
        return sum(by_segment.values(), ScanTotals())

    def _scan(self, run: Run, entities: Sequence[CompiledEntity], digests: Digests | None) -> TableScan:
        options = self.options
        walk = TableWalk(self.store, options.scan_segments, options.workers, self.stop, _STOPPED)
        by_name = {entity.name: entity for entity in entities}
        edges = (self.source, walk, self.journal, run, by_name, self.direct)
        if digests is None or not isinstance(self.store, EncodedScans):
            return TableScan(*edges)
        return DigestScan(*edges, store=self.store, digests=digests)

    def _walk(
        self, name: str, items: int, scan: TableScan, work: Callable[[int], ScanTotals]
    ) -> dict[int, ScanTotals]:
        """The totals of each segment."""
        self.progress.entity_started(name, 0, items)
        totals = {}
        for number, segment_totals, took_ms in scan.walk.each(_Segment(work)):
            totals[number] = segment_totals
            tally = Tally(rows=segment_totals.items, items=segment_totals.items)
            self.progress.page_done(name, number, tally, took_ms)
        self.progress.entity_done(name)
        return totals


@dataclass(frozen=True)
class _Segment:
    work: Callable[[int], ScanTotals]

    def __call__(self, number: int) -> tuple[int, ScanTotals, int]:
        started = time.monotonic()
        totals = self.work(number)
        return number, totals, round((time.monotonic() - started) * 1000)


@dataclass(frozen=True)
class _PageCheck:
    """One page of rows against the stored items; called from many threads."""

    stage: Verify
    run: Run
    entity: CompiledEntity
    look: Look | None

    def __call__(self, page: Page) -> tuple[Page, Tally, int]:
        started = time.monotonic()
        stage, entity, look = self.stage, self.entity, self.look
        encoder = None if look is None else look.encoders.get(entity.name)
        if look is None or encoder is None:
            rows = stage.source.read_page(entity.plan, page.after, page.upto)
            now_s = stage.clock()
            projected = project(entity, rows, now_s)
            refused, differing = projected.refused, self._differing(projected)
            items, expired = len(projected.items), len(projected.expired)
        else:
            raw = PageRead(stage.source, entity.plan, page, None).raw(encoder.raw)
            rows, now_s = raw.rows, stage.clock()
            matched = match_rows(encoder, raw, look.scan.digests, now_s)
            refused, items, expired = matched.refused, matched.items, matched.expired
            differing = self._differing(project(entity, matched.left, now_s))
        different = len({finding.item_key for finding in differing})
        tally = Tally(rows=len(rows), items=items, refused=len(refused), expired=expired, different=different)
        stage.check()
        stage.journal.finish_page(self.run, page, tally, [*refused, *differing])
        return page, tally, round((time.monotonic() - started) * 1000)

    def _differing(self, projected: Projection) -> list[Finding]:
        """What is found of items that are read by their keys and compared attribute by attribute."""
        stage, entity, look = self.stage, self.entity, self.look
        expected = projected.items
        if look is not None:
            expected = [item for item in expected if not look.has(item)]
            for item in projected.expired:
                look.has(item)
        stored = stage.store.get([entity.table.key_of(item) for item in expected])
        differing = [finding for item in expected for finding in compare_item(entity, item, stored)]
        return differing + missing_objects(entity, projected, stage.objects)


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
            f"the attribute's {difference.kind} differs"
            if difference.kind in ("type", "value")
            else f"the attribute is {difference.kind}",
            difference.attribute,
        )
        for difference in differences(expected, item, ignored)
    ]


def missing_objects(
    entity: CompiledEntity, projected: Projection, objects: ObjectStore | None
) -> list[Finding]:
    """A finding for each object that an item points to and that S3 lacks, or has in another size."""
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
