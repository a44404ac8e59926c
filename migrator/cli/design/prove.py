"""The proof of a proposal: rows moved into an embedded DynamoDB of its own, and each pattern asked of both sides."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from migrator.cli.backfill import PathChoice
from migrator.cli.options import progress, stop_on_signals
from migrator.cli.runs import Session, identity_of
from migrator.cli.verify import replay_progress
from migrator.journal.runs import SqlJournal
from migrator.mapping.design.placing import Design
from migrator.mapping.design.questions import Figures
from migrator.mapping.heart.items import CompiledEntity
from migrator.model.errors import Interrupted, how_to_install
from migrator.model.results import PatternReplay, Proof
from migrator.settings.job import Job, TargetSettings, Tuning
from migrator.settings.source import SourceSettings
from migrator.stages.backfill.estimate import sends_nothing
from migrator.stages.backfill.stage import Backfill, BackfillOptions
from migrator.stages.patterns.replay import Replay, ReplayOptions
from migrator.target import embedded
from migrator.wiring import job as job_wiring
from migrator.wiring.job import JobContext

ROWS = 100_000
"""Of each entity at most so many rows are moved."""
QUESTIONS = 25
"""For each pattern."""
_SEED = 19
"""The same questions each time."""
_WORKERS = 2
_CONNECTIONS = 4


def proof_of(url: str, mapping: Path, design: Design, figures: Figures) -> Proof:
    """What came of it: nothing is left behind, and the source is only read.

    Raises: StoppedError and SourceError where an edge gave up; Interrupted.
    """
    if not embedded.is_installed():
        return Proof(missing=f"the embedded DynamoDB is not installed; {how_to_install('local')}")
    with ExitStack() as until:
        stop = until.enter_context(stop_on_signals())
        endpoint = until.enter_context(embedded.for_a_while())
        context = until.enter_context(
            job_wiring.open_job(_job(url, mapping, endpoint), "init", stop=stop.is_set)
        )
        large = {name for name in design.homes if _is_large(name, figures)}
        try:
            return _Proving.of(until, context, stop, design).proof(large)
        except Interrupted:
            what = "stopped; the files are written, and nothing is proved"
            raise Interrupted(f"{what}: give the same command with --force, or with --no-prove") from None


def _is_large(table: str, figures: Figures) -> bool:
    return table not in figures.exact or figures.rows.get(table, 0) > ROWS


def _job(url: str, mapping: Path, endpoint: str) -> Job:
    table = f"proof-{secrets.token_hex(4)}"
    target = TargetSettings(table=table, endpoint=endpoint, region="us-east-1")
    source = SourceSettings.model_construct(url=url)
    return Job("init", mapping, mapping, source, target, Tuning(workers=_CONNECTIONS, give_up_after_s=60))


@dataclass(frozen=True)
class _Proving:
    """A table of one proof, with nothing in it."""

    context: JobContext
    session: Session
    stop: Event
    design: Design

    @classmethod
    def of(cls, until: ExitStack, context: JobContext, stop: Event, design: Design) -> _Proving:
        table = context.checked.mapping.table
        target = job_wiring.open_target(context.job, table, stop.is_set).fenced(sends_nothing)
        state = target.admin.create(target.design)
        journal = SqlJournal.in_memory()
        until.callback(journal.close)
        session = Session(journal, target.store, state.table_id, sends_nothing, target.objects)
        return cls(context, session, stop, design)

    def proof(self, large: set[str]) -> Proof:
        """`large`: tables of which some rows are moved only, so that answers would lack the others."""
        entities, names = self.context.checked.entities, {self.design.names.entities[name] for name in large}
        refused = self._moved([entity for entity in entities if entity.name not in names], None)
        refused |= self._moved([entity for entity in entities if entity.name in names], ROWS)
        apart = {
            access.name: f"{access.question.table} has more than {ROWS:,} rows, of which a part was moved"
            for access in self.design.accesses
            if access.question.table in large
        }
        asked = [access.name for access in self.design.accesses if access.name not in apart]
        return Proof(self._replayed(asked), apart, {name: count for name, count in refused.items() if count})

    def _moved(self, entities: Sequence[CompiledEntity], limit: int | None) -> dict[str, int]:
        """Rows of each entity that were refused."""
        journal = self.session.journal
        identity = identity_of("backfill", self.context, self.session.table_id, entities, f"limit={limit}")
        stage = Backfill(
            source=self.context.source,
            journal=journal,
            path=PathChoice().path(self.context, self.session),
            progress=progress(),
            options=BackfillOptions(_WORKERS, limit=limit),
            stop=self.stop,
        )
        with stage.progress:
            result = stage.run(journal.start_run(identity), entities)
        return {name: tally.refused for name, tally in result.entities.items()}

    def _replayed(self, names: Sequence[str]) -> dict[str, PatternReplay]:
        mapping = self.context.checked.mapping
        options = ReplayOptions(QUESTIONS, _SEED, settle_s=0, workers=_WORKERS)
        shown = replay_progress()
        stage = Replay(
            mapping,
            self.context.checked.read,
            self.context.source,
            self.session.store,
            options,
            progress=shown,
            stop=self.stop,
        )
        with shown:
            result = stage.run([mapping.patterns[name] for name in names])
        return {replay.pattern.name: replay for replay in result.patterns}
