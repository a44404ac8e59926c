"""Verify: compares rows with items and items with rows, all or a sample."""

from __future__ import annotations

import random
import secrets
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice, pairwise
from operator import itemgetter
from threading import Event
from typing import TypeAlias

import orjson
from msgspec import Struct

from migrator.journal.runs import SqlJournal
from migrator.mapping.items.items import CompiledEntity, Projection, project
from migrator.mapping.items.native import EXECUTOR
from migrator.mapping.model.edges import ItemStore, ObjectStore, Rows
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.instances import Newest
from migrator.mapping.model.journal import (
    DIGESTS,
    TABLE,
    Finding,
    Page,
    Progress,
    Run,
    RunIdentity,
    SegmentState,
    Tally,
)
from migrator.mapping.model.live import ActivityCounts, Root
from migrator.mapping.model.results import NotCompared, SampleSize, StoredRead, VerifyResult
from migrator.mapping.model.table import Item, ItemKey, SourceKey
from migrator.runtime.errors import SettingsError, SourceError
from migrator.runtime.logs import get_logger
from migrator.runtime.retry import nap
from migrator.stages.backfill.stage import OthersWork, ms_since, pages_of, plan_pages
from migrator.stages.core.ownership import checked_rows
from migrator.stages.core.parallel import OpenPages, PageCall, PageClaims, RunPages, TableWalk, Worked
from migrator.stages.verify.digests import (
    DIGESTS_AT_MOST,
    KEY_BYTES,
    Digester,
    Digests,
    DigestScan,
    Places,
    match_rows,
)
from migrator.stages.verify.page_check import compare_item, missing_objects
from migrator.stages.verify.scan import (
    DirectItems,
    ScanTotals,
    TableScan,
    check_keys,
    check_totals,
    not_proven,
)

# ── One scan of the table by several processes of a verify ──


def agree(journal: SqlJournal, run: Run, segments: int) -> None:
    """Plan the scan, with one key of digests for all processes."""
    journal.plan_pages(run, DIGESTS, [Page(DIGESTS, number, None, None) for number in range(segments + 1)])
    if agreed(journal, run) is None:
        text = orjson.dumps([secrets.token_hex(KEY_BYTES), EXECUTOR])
        journal.finish_page(run, Page(DIGESTS, 0, None, None), Tally(), [], parts=[text])


def agreed(journal: SqlJournal, run: Run) -> bytes | None:
    """The key of the run's digests; None before `agree`. Raises: SettingsError if this process makes others."""
    for number, text in journal.page_parts(run, DIGESTS):
        if number == 0:
            key, executor = orjson.loads(text)
            if executor != EXECUTOR:
                raise SettingsError(
                    f"the first process of this verify has the {executor} executor, this one the {EXECUTOR} one, "
                    "and their digests of items differ; install the package in the same way for all of them"
                )
            return bytes.fromhex(key)
        break
    return None


# ── The pages of a sample of an entity's rows, the same for the same seed ──


_PAGES = 10
"""The fewest pages of a sample, if the table has enough rows: a few large pages would cover only a few places."""
_PLACES = 200
"""The places of a sample at most; a larger sample has several consecutive pages at each place."""
_WALKED = 10
"""If the sample is at least 1/10 of the rows, all pages are planned and some of them chosen."""


def plan_sample(
    source: Rows,
    journal: SqlJournal,
    run: Run,
    plan: EntityPlan,
    *,
    sample: SampleSize,
    page_rows: int,
    rows: int,
    total: int,
) -> None:
    """Plan the pages of the sample, unless they are planned already.

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
    # The rows may be more than were expected.
    number = -(-len(pages) * wanted // rows) if rows else len(pages)
    return [pages[place] for place in _some(len(pages), number, random.Random(seed))]


def _by_chance(
    source: Rows, plan: EntityPlan, wanted: int, rows: int, size: int, seed: str
) -> Iterator[Page]:
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
    """Random keys; if the source finds less than half of them, equally spaced ones by one index scan."""
    seed, share = chance.getrandbits(31), chance.uniform(0.75, 1)
    keys = source.random_keys(plan, places, rows, seed)
    if 2 * len(keys) >= places:
        return keys
    bounds = list(islice(source.page_bounds(plan, max(1, int(rows * share / places))), 2 * places))
    return [bounds[place] for place in _some(len(bounds), places, chance)]


def _some(of: int, number: int, chance: random.Random) -> list[int]:
    return sorted(chance.sample(range(of), min(number, of)))


# ── Verify: rows compared with items and items with rows, to find missing, differing and unexpected items ──

Confirm: TypeAlias = Callable[[Run], Mapping[Root, set[ItemKey]]]
"""Re-checks a run's findings and drops those that no longer hold; returns the roots that still differ."""


_TOO_MANY = f"more than {DIGESTS_AT_MOST:,} items, and their digests would take too much memory"
_STOPPED = "stopped; the checkpoint is kept, and the same command resumes"


RESUMED_WITHIN_S = 3600.0
"""A verify that was stopped longer ago starts over: its comparisons are out of date."""
_log = get_logger("verify")


def begin(
    journal: SqlJournal,
    identity: RunIdentity,
    newest: Newest | None,
    idle_s: Callable[[Run], float],
    tell: Callable[[str], None],
    *,
    again: bool,
) -> Run:
    """Resume the stopped run if it is recent enough, or begin a new one; with `again` always a new one.

    `idle_s`: seconds since a run was last active.
    `tell`: reports that a stopped run continues, or why not.
    """
    last = journal.find_run(identity)
    is_outdated = last is not None and newest is not None and last.id <= newest.runs_before
    if last is None or last.state == "done" or again or is_outdated:
        return journal.start_run(identity)
    if (idle := idle_s(last)) > RESUMED_WITHIN_S:
        why = f"it was stopped {idle / 3600:.1f} hours ago, and what it looked at may have changed"
        run = journal.start_run(identity)
        tell(
            f"run {last.id} of {last.started_at} is not resumed: {why}; run {run.id} starts from the beginning"
        )
        return run
    tell(f"run {last.id} of {last.started_at} is resumed")
    return journal.resume_run(last)


def keep_look(look: Callable[[], ActivityCounts], keep: Callable[[ActivityCounts], None]) -> None:
    """Record the source's change counts as a verify begins, to notice later changes before SQL is removed.

    If the source cannot count them, the verify continues; the move to complete then reports them as unknown.
    """
    try:
        keep(look())
    except (SettingsError, SourceError) as error:
        _log.info("changes_not_counted", reason=str(error))


class VerifyOptions(Struct, frozen=True):
    workers: int = 4
    page_rows: int = 2000
    scan_segments: int = 4
    sample: SampleSize | None = None


SHARED_SEGMENTS = 4
"""Factor of segments if several processes work, so that none of them ends long after the others."""
_SCANS = 2
"""Segments at once per process: reads are bound by Python."""
_REST_S = 0.2


_Scanned: TypeAlias = tuple[Rows, TableWalk, SqlJournal, Run, Mapping[str, CompiledEntity], DirectItems]


@dataclass
class Verify:
    """One process of a verify.

    `check`: raises when the run has lost its lease.
    `confirm`: re-checks differences, if the source is live.
    `is_quiet`: nothing has changed since the run began, so that totals of two moments are comparable.
    `direct`: items that are not compared.
    `begin`: returns when the next page may begin.
    `who`: the process's unique name.
    `pages`: opens the workers for the run's pages.
    """

    source: Rows
    store: ItemStore
    journal: SqlJournal
    progress: Progress
    check: Callable[[], None]
    confirm: Confirm | None
    is_quiet: Callable[[], bool]
    direct: DirectItems
    options: VerifyOptions = field(default_factory=VerifyOptions)
    stop: Event = field(default_factory=Event)
    clock: Callable[[], float] = time.time
    objects: ObjectStore | None = None
    begin: Callable[[], None] = lambda: None
    who: str = field(default_factory=lambda: secrets.token_hex(8))
    is_shared: bool = False
    pages: OpenPages = PageClaims
    _others: OthersWork = field(default_factory=lambda: OthersWork())
    _looks: dict[int, DigestScan | None] = field(default_factory=dict)
    _matched: set[int] = field(default_factory=set)

    def run(self, run: Run, entities: Sequence[CompiledEntity]) -> VerifyResult:
        """Compare the open pages; return when all processes together are done. Findings go to the journal.

        Raises: StoppedError, SourceError, Interrupted; the same run continues later.
        """
        started = self.clock()
        sample = self.options.sample
        with self._claims(run) as claims, checked_rows(self.source, self.journal, run, entities):
            # For a sample of a fixed number of rows an estimate of the table's size is enough.
            count = self.source.rows_expected if sample and sample.rows else self.source.rows_about
            counts = {entity.name: count(entity.plan) for entity in entities}
            for entity in entities:
                self._plan(run, entity, counts[entity.name], sum(counts.values()))
            look, stored = self._look(run, entities, counts, claims)
            for entity in entities:
                self._entity(run, entity, counts[entity.name], look, claims)
            scanned = ScanTotals() if sample else self._table(run, entities, look, claims)
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
            stored=stored,
            sample=sample,
            confirmed=confirmed,
        )

    def join(self, run: Run, entities: Sequence[CompiledEntity], is_over: Callable[[], bool]) -> None:
        """Compare pages of a run that another process plans and ends, until `is_over`. Raises: as `run`."""
        with self._claims(run) as claims, checked_rows(self.source, self.journal, run, entities):
            look, is_matched = self._joined_look(run, entities, claims, is_over), False
            while not is_over():
                planned = self.journal.planned(run)
                for entity in entities:
                    self._rows(run, entity, look, claims)
                if TABLE in planned and not is_matched:
                    _match_others(look)
                    is_matched = True
                if is_matched:
                    self._segments(run, TABLE, self._trace(run, entities, look), claims)
                self._rest(run)

    def work(self, run: Run, entities: Sequence[CompiledEntity], name: str) -> PageCall:
        """Return the work on each page of an entity, or each segment, for any host. Called by one thread.

        All of DIGESTS is processed before entities, and all of these before TABLE.
        """
        if name == DIGESTS:
            scan = self._agreed(run, entities)
            assert scan is not None, "segments are planned by what is agreed on"
            return partial(self._digest, run, scan)
        if run.id not in self._looks:
            scan = self._agreed(run, entities)
            self._looks[run.id] = None if scan is None else self._loaded(run, scan)
        look = self._looks[run.id]
        if name != TABLE:
            entity = next(entity for entity in entities if entity.name == name)
            return partial(self._page, run, entity, look)
        if run.id not in self._matched:
            _match_others(look)
            self._matched.add(run.id)
        return self._trace(run, entities, look)

    def _claims(self, run: Run) -> RunPages:
        return self.pages(self.journal, run, self.who, self.stop)

    def _totals(self, run: Run, entities: Sequence[CompiledEntity], scanned: ScanTotals) -> list[NotCompared]:
        left_out = check_keys(self.source, self.journal, run, entities)
        # `is_quiet` looks at this process's time only.
        was_away = run.resumed and self.confirm is not None
        if was_away or not self.is_quiet():
            why = "may have changed while it was stopped" if was_away else "changed meanwhile"
            return [*left_out, NotCompared("totals", f"rows {why}, and totals are of one moment")]
        return [*left_out, *check_totals(self.source, self.journal, run, entities, scanned)]

    def _plan(self, run: Run, entity: CompiledEntity, rows: int, total: int) -> None:
        sample, page_rows = self.options.sample, self.options.page_rows
        edges = (self.source, self.journal, run, entity.plan)
        if sample is None:
            plan_pages(*edges, page_rows, self.progress)
        else:
            plan_sample(*edges, sample=sample, page_rows=page_rows, rows=rows, total=total)

    # ── one scan that collects digests of the stored items ──

    def _look(
        self, run: Run, entities: Sequence[CompiledEntity], counts: Mapping[str, int], claims: RunPages
    ) -> tuple[DigestScan | None, StoredRead]:
        """Digests of the stored items, None if each item is read by its key; and the planned way of reading."""
        items = sum(counts[entity.name] * len(entity.plan.entity.items) for entity in entities)
        is_planned = DIGESTS in self.journal.planned(run)
        reason = "" if is_planned else self._unfit(run, items)
        if reason:
            if self.is_shared:
                self.journal.plan_pages(run, DIGESTS, [])
            return None, _planned(StoredRead("keys", reason))
        stored = _planned(StoredRead("one scan"))
        self.progress.entity_started(TABLE, 0, items)
        if self.is_shared or is_planned:
            agree(self.journal, run, self._segments_of(run))
            look = self._look_together(run, entities, claims, lambda: False)
        else:
            key = secrets.token_bytes(KEY_BYTES)
            look = self._look_alone(self._digest_scan(run, entities, key, is_shared=False))
        self.progress.entity_done(TABLE)
        return look, stored if look else _planned(StoredRead("keys", _TOO_MANY))

    def _look_alone(self, scan: DigestScan) -> DigestScan | None:
        for number, seen in scan.walk.each(lambda number: (number, scan.look(number, scan.digests))):
            scan.totals[number] = seen
            self.progress.page_done(TABLE, number, Tally(rows=seen.items, items=seen.items), 0)
        return scan.ready()

    def _unfit(self, run: Run, items: int) -> str:
        if self.options.sample is not None:
            return "a sample is read by its keys"
        segments = range(self._segments_of(run))
        if any(self.journal.segment(run, number) != SegmentState() for number in segments):
            return "the scan was begun before it was stopped"
        return _TOO_MANY if items > DIGESTS_AT_MOST else ""

    def _joined_look(
        self, run: Run, entities: Sequence[CompiledEntity], claims: RunPages, is_over: Callable[[], bool]
    ) -> DigestScan | None:
        while not is_over():
            _, planned = self.journal.page_counts(run, DIGESTS)
            if DIGESTS in self.journal.planned(run) and not planned:
                return None
            if planned and agreed(self.journal, run) is not None:
                return self._look_together(run, entities, claims, is_over)
            self._rest(run)
        return None

    def _look_together(
        self, run: Run, entities: Sequence[CompiledEntity], claims: RunPages, is_over: Callable[[], bool]
    ) -> DigestScan | None:
        scan = self._agreed(run, entities)
        if scan is None:
            return None
        while not self._segments(run, DIGESTS, partial(self._digest, run, scan), claims):
            if is_over():
                return None
            self._rest(run)
        return self._loaded(run, scan)

    def _agreed(self, run: Run, entities: Sequence[CompiledEntity]) -> DigestScan | None:
        key = agreed(self.journal, run)
        return None if key is None else self._digest_scan(run, entities, key, is_shared=True)

    def _digest(self, run: Run, scan: DigestScan, page: Page) -> Worked:
        """Scan a segment, and leave its digests in the journal."""
        started, digests = time.monotonic(), Digests()
        totals = scan.look(page.number - 1, digests)
        parts = [orjson.dumps(totals.as_json()), *digests.pieces()]
        return self._segment_done(run, page, started, totals, parts)

    def _loaded(self, run: Run, scan: DigestScan) -> DigestScan | None:
        for number, parts in groupby(self.journal.page_parts(run, DIGESTS), itemgetter(0)):
            if number > 0:
                text, *pieces = (data for _, data in parts)
                scan.totals[number - 1] = ScanTotals.from_json(orjson.loads(text))
                scan.digests.add_pieces(pieces)
        return scan.ready()

    def _segment_done(
        self, run: Run, page: Page, started: float, totals: ScanTotals, parts: Sequence[bytes]
    ) -> Worked:
        self.check()
        self.journal.finish_page(run, page, Tally(), [], parts=parts)
        return page, Tally(rows=totals.items, items=totals.items), ms_since(started)

    # ── rows against items ──

    def _entity(
        self, run: Run, entity: CompiledEntity, rows: int, look: DigestScan | None, claims: RunPages
    ) -> None:
        tally = self.journal.tally(run, entity.name)
        self.progress.entity_started(entity.name, tally.rows, rows)
        self._others.done(entity.name, tally)
        while not self._rows(run, entity, look, claims):
            self._rest(run)
        self.progress.entity_done(entity.name)

    def _rows(self, run: Run, entity: CompiledEntity, look: DigestScan | None, claims: RunPages) -> bool:
        work, workers = partial(self._page, run, entity, look), self.options.workers
        worked = claims.each(entity.name, work, workers, workers, lambda: self._rest(run))
        for page, tally, took_ms in worked:
            self.progress.page_done(entity.name, page.number, tally, took_ms)
            self._others.done(entity.name, tally)
            if self.is_shared:
                self._others.look(self.journal, run, self.progress)
        return self._is_done(run, entity.name)

    def _page(self, run: Run, entity: CompiledEntity, look: DigestScan | None, page: Page) -> Worked:
        """Check a page of rows. Called by many threads at once.

        `look`: digests of the stored items; without it each item is read by its key.
        """
        self.begin()
        started, places = time.monotonic(), array("I")
        encoder = None if look is None else look.encoders.get(entity.name)
        if look is None or encoder is None:
            trees = self.source.read_page(entity.plan, page.after, page.upto)
            rows, projected = len(trees), project(entity, trees, self.clock())
            refused, differing = projected.refused, self._differing(entity, look, projected, places)
            items, expired = len(projected.items), len(projected.expired)
        else:
            raw = self.source.read_raw(entity.plan, encoder.raw, page.after, page.upto)
            rows, now_s = len(raw.rows), self.clock()
            matched = match_rows(encoder, raw, look, now_s, places)
            refused, items, expired = matched.refused, matched.items, matched.expired
            differing = self._differing(entity, look, project(entity, matched.left, now_s), places)
        different = len({finding.item_key for finding in differing})
        tally = Tally(rows=rows, items=items, refused=len(refused), expired=expired, different=different)
        self.check()
        parts = [places.tobytes()] if look is not None and look.is_shared else []
        self.journal.finish_page(run, page, tally, [*refused, *differing], parts=parts)
        return page, tally, ms_since(started)

    def _differing(
        self, entity: CompiledEntity, look: DigestScan | None, projected: Projection[Item], places: Places
    ) -> list[Finding]:
        expected = projected.items
        if look is not None:
            expected = [item for item in expected if not look.has(item, places)]
            for item in projected.expired:
                look.has(item, places)
        stored = self.store.get([entity.table.key_of(item) for item in expected])
        differing = [finding for item in expected for finding in compare_item(entity, item, stored)]
        return differing + missing_objects(entity, projected, self.objects)

    # ── items against rows ──

    def _table(
        self, run: Run, entities: Sequence[CompiledEntity], look: DigestScan | None, claims: RunPages
    ) -> ScanTotals:
        _match_others(look)
        if look is not None and look.digests.are_all_matched():
            for number, totals in look.totals.items():
                self.journal.save_segment(run, number, SegmentState(None, True, totals.as_json()), [])
            return sum(look.totals.values(), ScanTotals())
        numbers = range(self._segments_of(run))
        self.journal.plan_pages(run, TABLE, [Page(TABLE, number + 1, None, None) for number in numbers])
        self.progress.entity_started(TABLE, 0, self.journal.tally(run).items)
        while not self._segments(run, TABLE, self._trace(run, entities, look), claims):
            self._rest(run)
        self.progress.entity_done(TABLE)
        states = (self.journal.segment(run, number) for number in numbers)
        return sum((ScanTotals.from_json(state.tally) for state in states), ScanTotals())

    def _trace(self, run: Run, entities: Sequence[CompiledEntity], look: DigestScan | None) -> PageCall:
        scan = TableScan(*self._scanned(run, entities)) if look is None else look
        return partial(self._traced, run, scan)

    def _traced(self, run: Run, scan: TableScan, page: Page) -> Worked:
        started = time.monotonic()
        return self._segment_done(run, page, started, scan.segment(page.number - 1), ())

    def _digest_scan(
        self, run: Run, entities: Sequence[CompiledEntity], key: bytes, *, is_shared: bool
    ) -> DigestScan:
        digester = Digester(entities[0].table, key)
        edges = self._scanned(run, entities)
        return DigestScan(*edges, store=self.store, digester=digester, is_shared=is_shared)

    def _scanned(self, run: Run, entities: Sequence[CompiledEntity]) -> _Scanned:
        segments, options = self._segments_of(run), self.options
        walk = TableWalk(self.store, segments, options.workers, self.stop, _STOPPED)
        by_name = {entity.name: entity for entity in entities}
        return self.source, walk, self.journal, run, by_name, self.direct

    def _segments_of(self, run: Run) -> int:
        for name, others in ((DIGESTS, 1), (TABLE, 0)):
            _, planned = self.journal.page_counts(run, name)
            if planned > others:
                return planned - others
        return self.options.scan_segments * (SHARED_SEGMENTS if self.is_shared else 1)

    def _segments(self, run: Run, name: str, work: PageCall, claims: RunPages) -> bool:
        at_once = min(self.options.workers, _SCANS) if self.is_shared else self.options.workers
        for page, tally, took_ms in claims.each(name, work, at_once, 1, lambda: self._rest(run)):
            self.progress.page_done(TABLE, page.number, tally, took_ms)
        return self._is_done(run, name)

    def _is_done(self, run: Run, name: str) -> bool:
        done, planned = self.journal.page_counts(run, name)
        return done == planned

    def _rest(self, run: Run) -> None:
        self._others.look(self.journal, run, self.progress)
        nap(_REST_S, self.stop.is_set, time.sleep)


def _planned(stored: StoredRead) -> StoredRead:
    _log.debug("verify_planned", stored_items=stored.way, reason=stored.why)
    return stored


def _match_others(look: DigestScan | None) -> None:
    if look is not None:
        look.match_others()
