"""What surrounds a backfill or a relay at work: its pace, its presence in the journal, its metrics and health."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event

from msgspec import Struct

from migrator.cli.cutover_text import phases_document
from migrator.cli.endpoint import Monitored, Readiness, serve
from migrator.cli.lag import Signs
from migrator.cli.metrics import (
    CountedProgress,
    Part,
    ProcessMetrics,
    backfill_part,
    journal_part,
    pace_part,
    phases_part,
    table_part,
)
from migrator.mapping.model.evidence import PatternPhase
from migrator.mapping.model.instances import Advance, ProcessKind, Share
from migrator.runtime.errors import Interrupted, MigratorError
from migrator.runtime.retry import nap
from migrator.runtime.values import replace
from migrator.settings.job import Tuning
from migrator.stages.backfill.stage import Backfill
from migrator.stages.core.pace import Pace, Strain
from migrator.stages.core.presence import Presence, process_of
from migrator.stages.session.job import JobSource
from migrator.stages.session.session import JobSession

SPARE_S = 60.0


def signs_of(tuning: Tuning) -> Signs:
    """A worker may try a store for `give_up_after_s`, and wait for a lease; longer than both nothing takes."""
    return Signs(tuning.give_up_after_s + tuning.lease_s + SPARE_S)


@dataclass
class KnownPhases:
    """The phases of a job's patterns, as they were when last asked; a scrape asks no journal."""

    ask: Callable[[], Mapping[str, PatternPhase]]
    phases: Mapping[str, PatternPhase] = field(default_factory=dict)
    asked_at: float = 0.0

    def renew(self) -> None:
        # Before it is asked: they are never younger than they are said to be.
        began = time.monotonic()
        self.phases, self.asked_at = self.ask(), began

    def document(self, job: str, patterns: Sequence[str]) -> Mapping[str, object]:
        # In this order: a renewal in between makes them look older than they are, never younger.
        asked_at = self.asked_at
        return phases_document(job, patterns, self.phases, time.monotonic() - asked_at)


class Watched(Struct, frozen=True):
    """A process that is about to work. `signs`: of its workers; `address`: where it is monitored, None for nowhere;
    `own`: its part of budgets; None where it spends nothing of them."""

    kind: ProcessKind
    session: JobSession
    signs: Signs
    address: tuple[str, int] | None
    own: Share | None

    def open(self, stack: ExitStack, advance: Callable[[], Advance], parts: Sequence[Part]) -> Pace:
        """The pace that it is to keep; it is on record, and served, until the stack unwinds."""
        session, job, target = self.session, self.session.job, self.session.target
        phases = KnownPhases(session.phases.all)
        phases.renew()
        sent, limit = target.store.sent, target.store.limit

        def advanced() -> Advance:
            return replace(advance(), write_units=sent.write_units)

        source = stack.enter_context(session.strained())
        pace = stack.enter_context(Pace(limit, tuple(_strains(job.tuning, source))))
        known = (session.processes, process_of(self.kind), self.own, (limit, session.source.pace), pace)
        stack.enter_context(Presence(*known, advanced, also=phases.renew))
        if self.address is not None:
            everywhere = (
                partial(table_part, sent),
                partial(journal_part, session.journal.database.answers),
                partial(phases_part, lambda: phases.phases),
                partial(pace_part, pace),
            )
            asks = {
                "source": session.health,
                "journal": session.processes.throttle,
                "table": target.table_id,
            }
            metrics = ProcessMetrics(job.name, self.kind, (*everywhere, *parts))
            held = partial(getattr, pace, "held")
            document = partial(phases.document, job.name, list(session.checked.mapping.patterns))
            serve(Monitored(metrics, self.signs, Readiness(asks), document, held), *self.address)
        return pace

    def open_backfill(self, stack: ExitStack, stage: Backfill, rows: int) -> Backfill:
        """The stage with its progress on record; its pages begin as an operator and the source let them.

        `rows`: how many are left to copy.
        """
        counted = CountedProgress(stage.progress, rows, self.signs.give)
        pace = self.open(stack, counted.advance, [partial(backfill_part, counted)])
        begin = waits_with(pace, self.signs, stage.stop)
        return replace(stage, progress=counted, begin=begin, is_shared=lambda: pace.parts != 1)


def _strains(tuning: Tuning, source: JobSource) -> Iterator[Strain]:
    asked = (
        ("load", "", tuning.max_source_load, tuning.source_load_query),
        ("replica lag", " s", tuning.max_replica_lag_s, tuning.replica_lag_query),
    )
    for name, unit, most, sql in asked:
        if most is not None:
            yield Strain(name, unit, most, partial(source.strain, name, sql))


def waits_with(pace: Pace, signs: Signs, stop: Event) -> Callable[[], None]:
    """What a worker calls before each piece of work: it returns when nothing holds the process."""

    def rest(seconds: float) -> None:
        signs.give()
        nap(seconds, stop.is_set, time.sleep)

    def begin() -> None:
        signs.give()
        if pace.held:
            pace.wait(rest)

    return begin


@contextmanager
def failure_kept(kind: ProcessKind, session: JobSession) -> Iterator[None]:
    """What ends the block is kept as the last failure of its kind, also where the work had not begun."""
    try:
        yield
    except Interrupted:
        raise
    except MigratorError as error:
        # The journal itself may be what failed.
        with suppress(MigratorError):
            session.processes.failed(process_of(kind), str(error))
        raise


def address_of(host: str, port: int | None) -> tuple[str, int] | None:
    return None if port is None else (host, port)
