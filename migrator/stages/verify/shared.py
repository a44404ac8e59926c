"""One scan of the table by several processes of a verify: digests that they share through the journal."""

from __future__ import annotations

import secrets
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import orjson

from migrator.journal.runs import SqlJournal
from migrator.mapping.items.encoder import TextEncoder, compile_texts
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.edges import Rows
from migrator.mapping.model.journal import DIGESTS, Page, Run, Tally
from migrator.stages.backfill.encoded import encoders_of
from migrator.stages.verify.digests import DIGESTS_AT_MOST, Digests, DigestScan, Look
from migrator.stages.verify.scan import ScanTotals, TableScan


def look_of(source: Rows, scan: DigestScan, totals: dict[int, ScanTotals], *, is_shared: bool) -> Look | None:
    """What was scanned, ready to be compared; None where digests are too many."""
    if scan.digests.count() > DIGESTS_AT_MOST:
        return None
    scan.digests.sort()

    def compiled(entity: CompiledEntity, offered: frozenset[int]) -> TextEncoder | None:
        return compile_texts(entity, offered, scan.orders(entity))

    encoders = encoders_of(source, list(scan.entities.values()), compiled)
    return Look(scan, totals, encoders, is_shared)


def agree(journal: SqlJournal, run: Run, scan: DigestScan) -> None:
    """Plans the scan, and what all processes go by: one key for digests, one order of attributes."""
    numbers = range(scan.walk.segments + 1)
    journal.plan_pages(run, DIGESTS, [Page(DIGESTS, number, None, None) for number in numbers])
    if agreed(journal, run) is None:
        scan.learn()
        text = orjson.dumps([secrets.token_hex(16), scan.learned()])
        journal.finish_page(run, Page(DIGESTS, 0, None, None), Tally(), [], parts=[text])


def agreed(journal: SqlJournal, run: Run) -> tuple[Digests, list[object]] | None:
    """Digests by the key of the run, empty, and the order of attributes; None before it was agreed on."""
    for number, text in journal.page_parts(run, DIGESTS):
        if number == 0:
            key, orders = orjson.loads(text)
            return Digests(bytes.fromhex(key)), orders
        break
    return None


@dataclass(frozen=True)
class SegmentLook:
    """Scans a segment and leaves its digests in the journal; called from many threads. `check` raises when the run has lost
    its lease."""

    journal: SqlJournal
    run: Run
    scan: DigestScan
    check: Callable[[], None]

    def __call__(self, page: Page) -> tuple[Page, Tally, int]:
        started, digests = time.monotonic(), self.scan.digests.empty()
        totals = self.scan.look(page.number - 1, digests)
        self.check()
        parts = [orjson.dumps(totals.as_json()), *digests.pieces()]
        self.journal.finish_page(self.run, page, Tally(), [], parts=parts)
        return page, _seen(totals), _took_ms(started)

    def loaded(self, source: Rows) -> Look | None:
        """What all segments have left; None where digests are too many."""
        totals = {}
        for number, parts in groupby(self.journal.page_parts(self.run, DIGESTS), itemgetter(0)):
            if number > 0:
                text, *pieces = (data for _, data in parts)
                totals[number - 1] = ScanTotals.from_json(orjson.loads(text))
                self.scan.digests.add_pieces(pieces)
        return look_of(source, self.scan, totals, is_shared=True)


@dataclass(frozen=True)
class SegmentTrace:
    """Traces the stored items of a segment back to their rows; called from many threads."""

    journal: SqlJournal
    run: Run
    scan: TableScan
    check: Callable[[], None]

    def __call__(self, page: Page) -> tuple[Page, Tally, int]:
        started = time.monotonic()
        totals = self.scan.segment(page.number - 1)
        self.check()
        self.journal.finish_page(self.run, page, Tally(), [])
        return page, _seen(totals), _took_ms(started)


def match_others(
    journal: SqlJournal, run: Run, look: Look | None, entities: Sequence[CompiledEntity]
) -> None:
    """Adds what other processes, or an earlier start of the run, have matched."""
    if look is None or not look.is_shared:
        return
    for entity in entities:
        for _, data in journal.page_parts(run, entity.name):
            places = array("I")
            places.frombytes(data)
            look.scan.digests.match_places(places)


def _seen(totals: ScanTotals) -> Tally:
    return Tally(rows=totals.items, items=totals.items)


def _took_ms(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
