"""The edges of cutover and decommission, put together: constructor calls, no decisions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TypeVar

from migrator import live_wiring, wiring
from migrator.cutover_results import Line
from migrator.errors import MigratorError, SettingsError, SourceError, StoppedError, TargetError
from migrator.facts import EntityPlan
from migrator.journal.evidence import SqlEvidence
from migrator.journal.instances import SqlInstances
from migrator.journal.phases import SqlPhases
from migrator.journal.revisions import digests_of, newest_of
from migrator.journal.store import SqlJournal
from migrator.journal.verified import installation_of, look_before
from migrator.journal.writers import SqlWriters
from migrator.live_wiring import Live
from migrator.mapping.atomic import types_read
from migrator.mapping.changes import captured_name
from migrator.mapping.columns import columns_digest
from migrator.mapping.direct import direct_tables
from migrator.model import TOMBSTONE, Item, Pattern
from migrator.phase import State
from migrator.ports import Run, RunIdentity
from migrator.ports.activity import Looked
from migrator.ports.capture import Installation
from migrator.ports.instances import Roster
from migrator.ports.live import MarksState
from migrator.ports.phases import PatternPhase
from migrator.retry import nap
from migrator.settings import Job
from migrator.source.activity import SqlActivity
from migrator.stages.capture import MEANINGS, CaptureStage
from migrator.stages.cutover_facts import Facts, Unknown, Verified
from migrator.stages.decommission import Dependence, Tombstones, still_needed
from migrator.stages.judging import judge
from migrator.stages.lifetimes import Purge
from migrator.target.conditional import ConditionalWrites
from migrator.target.store import reads_only
from migrator.wiring import Laid, Target

_Found = TypeVar("_Found")
_FINDINGS_READ = 100_000
"""Of more than that nobody asks which entities they are of."""


@dataclass(frozen=True)
class Desk:
    """What operators of a job need of its journal. `gone`: ids of silent instances that count no more."""

    job: Job
    journal: SqlJournal
    phases: SqlPhases
    evidence: SqlEvidence
    instances: SqlInstances
    gone: Collection[str] = ()

    def roster(self) -> Roster:
        return live_wiring.roster_of(self.job, self.journal).without(self.gone)


@contextmanager
def open_desk(job: Job) -> Iterator[Desk]:
    with wiring.open_journal(job) as journal:
        database, name = journal.database, job.name
        yield Desk(
            job, journal, SqlPhases(database, name), SqlEvidence(database, name), SqlInstances(database, name)
        )


@dataclass(frozen=True)
class Court:
    """Everything that evidence is gathered from."""

    desk: Desk
    laid: Laid
    live: Live
    target: Target
    stop: Callable[[], bool] = lambda: False

    def evidence(self, known: PatternPhase, after: State) -> Sequence[Line]:
        """The lines by which a move of the pattern to `after` is judged."""
        limits = self.desk.job.cutover
        lines = judge(self.facts(known, is_paused=after.phase == "complete"), limits, after)
        return [*lines, *still_needed(self.dependence(), limits)] if after.phase == "complete" else lines

    def facts(self, known: PatternPhase, *, is_paused: bool = False) -> Facts:
        """What is known of the pattern now. What cannot be asked is unknown, and no failure.

        `is_paused`: whether services are to write nothing just now, and so to mark nothing.
        """
        desk, limits = self.desk, self.desk.job.cutover
        now_s = desk.evidence.now_s()
        return Facts(
            pattern=self.pattern(known.pattern),
            revision=self.laid.checked.mapping.revision,
            phase=known,
            now_s=now_s,
            windows=desk.evidence.windows(
                max(now_s - limits.evidence_max_age_s, self.newest_since_s), known.pattern
            ),
            roster=desk.roster(),
            confirmed={
                instance: versions.get(known.pattern, 0)
                for instance, versions in desk.phases.confirmed().items()
            },
            table_fault=_asked(self.table_fault),
            capture_fault=_asked(lambda: self.capture_fault(is_paused=is_paused)),
            marks=_asked(self.marks),
            relays=_asked(self.relays),
            verified=_asked(lambda: self.verified(known.pattern, now_s)),
        )

    @cached_property
    def newest_since_s(self) -> float:
        """Since when writers work by the newest revision: what was compared before says nothing of its items."""
        newest = newest_of(self.desk.journal.database, self.desk.job.name)
        return newest.since if newest is not None else 0.0

    def pattern(self, name: str) -> Pattern:
        return self.laid.checked.mapping.patterns[name]

    def table_fault(self) -> str:
        """What is wrong with the table, '' for nothing."""
        return _fault(lambda: live_wiring.existing_table(self.desk.job, self.target))

    def capture_fault(self, *, is_paused: bool = False) -> str:
        """Why a change could leave no mark, '' where all do. `is_paused`: services are to write nothing just now."""
        if fault := _fault(lambda: live_wiring.need_installation(self.live, self.laid)):
            return fault
        stage = CaptureStage(self.live.capture, self.laid.job.name, self.laid.checked.mapping.table)
        found = stage.status(self._plans)
        wrong = [
            f"{one.table}: {MEANINGS[one.state]}"
            for one in found.tables
            if one.state in ("disabled", "partition")
        ]
        if found.marked_by == "services" and not is_paused and not self.desk.roster().marking:
            wrong.append("services are to mark changes, and no instance of one is alive")
        return "; ".join(wrong)

    def marks(self) -> MarksState | Unknown:
        """What waits; where nothing is captured there is no mark, whatever has changed."""
        if self.live.capture.installation() is None:
            return Unknown("nothing is captured, so no change leaves a mark")
        return self.live.marks.state()

    @cached_property
    def table_id(self) -> str:
        return live_wiring.existing_table(self.desk.job, self.target)

    def relays(self) -> int | Unknown:
        """How many are alive; unknown where they make items by another mapping than is judged here."""
        gone_s = live_wiring.lifetimes_of(self.desk.job).gone_s
        database = self.desk.journal.database
        living = SqlWriters(database, self.table_id).living(gone_s)
        relays = [one.id for one in living if one.kind == "relay" and not one.fenced]
        own, known = live_wiring.own_revision(self.laid).digest, digests_of(database, self.desk.job.name)
        if others := [one for one in relays if known.get(one) != own]:
            what = f"one is, by another mapping than this one, or with other columns ({len(others)} of {len(relays)}"
            return Unknown(f"{what} workers of relays); end it, and start it anew by this one")
        return len(relays)

    # ── what still depends on SQL ──

    @cached_property
    def activity(self) -> SqlActivity:
        return SqlActivity(self.live.marks.writing)

    @cached_property
    def tables(self) -> list[str]:
        """Those that entities read, as capture names them."""
        return [one.name for one in self.live.capture.captured(self._plans)]

    def dependence(self, *, with_tombstones: bool = False, tables: Sequence[str] | None = None) -> Dependence:
        """What is known of the whole job. Takes as long as nothing may change (cutover.quiet): in all tables that
        entities read, or in these."""
        desk, quiet_s = self.desk, self.desk.job.cutover.quiet_s
        known = desk.phases.all()
        names = self.laid.checked.mapping.patterns
        now_s = desk.evidence.now_s()
        return Dependence(
            phases={name: known.get(name, PatternPhase(name)) for name in names},
            roster=desk.roster(),
            tables=self.tables,
            unread=self.unread(),
            looks=_asked(lambda: self._looks(quiet_s, self.tables if tables is None else tables)),
            apart_s=quiet_s,
            marks=_asked(self.marks),
            waiting=_asked(self._waiting),
            verified=_asked(lambda: self.verified(None, now_s)),
            tombstones=self.tombstones() if with_tombstones else None,
            revision=self.laid.checked.mapping.revision,
            confirmed=desk.phases.confirmed(),
        )

    def unread(self) -> list[str]:
        """Tables of the source that no entity reads, without views, ours and the system's."""
        read, views = {*self.tables, *direct_tables(self.laid.checked)}, self.activity.views()
        found = {captured_name(table): table.real for table in self.laid.source.facts().tables.values()}
        return sorted(name for name, real in found.items() if name not in read and real not in views)

    def tombstones(self) -> Tombstones:
        """Counted by a scan of the whole table."""
        count = 0

        def pages() -> Iterator[list[Item]]:
            nonlocal count
            for page in self.target.store.scan(0, 1):
                design = self.target.design
                count += sum(item.get(design.type_attribute) == TOMBSTONE for item in page.items)
                yield page.items

        writers = SqlWriters(self.desk.journal.database, self.table_id)
        lifetimes = live_wiring.lifetimes_of(self.desk.job)
        store, design = ConditionalWrites(self.target.store), self.target.design
        purge = Purge(store, writers, design, lifetimes, reads_only, dry_run=True)
        ripe = sum(purge.run(pages(), writers.now_s()))
        return Tombstones(count, ripe)

    @property
    def _plans(self) -> list[EntityPlan]:
        return [entity.plan for entity in self.laid.checked.entities]

    def _waiting(self) -> Mapping[str, int]:
        return self.activity.waiting() if self.live.capture.installation() is not None else {}

    def _looks(self, apart_s: float, tables: Sequence[str]) -> tuple[Looked, Looked]:
        before = self.activity.look(tables)
        nap(apart_s, self.stop, time.sleep)
        return before, self.activity.look(tables)

    # ── verify ──

    def verified(self, pattern: str | None, now_s: float) -> Verified | None:
        """The last full verify; findings of the pattern's entities, of all where it is None."""
        newest = newest_of(self.desk.journal.database, self.desk.job.name)
        first = newest.runs_before if newest is not None else 0
        known = self.desk.journal.runs(self.desk.job.name)
        runs = [run for run in known if run.identity == self._identity() and run.id > first]
        here = self.live.capture.installation()
        runs = [run for run in runs if self._is_of_this_capture(run, here)]
        done = [run for run in runs if run.state == "done"]
        if not done:
            return Verified(runs[-1].id, 0, None) if runs else None
        last = done[-1]
        # What one that goes on has found by now counts, too.
        findings = sum(self._findings(run, pattern) for run in runs if run.id >= last.id)
        look = look_before(self.desk.journal.database, last.id)
        return Verified(last.id, findings, max(0.0, now_s - _begun_s(last)), look)

    def _is_of_this_capture(self, run: Run, here: Installation | None) -> bool:
        """Whether every change since the run began has left a mark; of runs that an older version began nobody knows."""
        known = installation_of(self.desk.journal.database, run.id)
        return known is None or here is None or known == here.id

    def _identity(self) -> RunIdentity:
        checked = self.laid.checked
        revision = columns_digest(checked.mapping.revision, self._plans)
        return RunIdentity("verify", self.desk.job.name, self.table_id, revision)

    def _findings(self, run: Run, pattern: str | None) -> int:
        """Those of the pattern's entities, and those that no entity of the mapping can be told by."""
        total = sum(self.desk.journal.finding_counts(run).values())
        if pattern is None or total > _FINDINGS_READ:
            return total
        mapping = self.laid.checked.mapping
        others = set(mapping.entities) - set(types_read(mapping, self.pattern(pattern)))
        found = self.desk.journal.findings(run)
        return sum(one.entity.partition("@")[0] not in others for one in found)


@contextmanager
def open_court(desk: Desk, command: str, stop: Callable[[], bool]) -> Iterator[Court]:
    job = desk.job
    with (
        wiring.lay(job, command, stop=stop) as laid,
        live_wiring.open_live(job, command, stop=stop, patience=live_wiring.ONCE, source=laid.source) as live,
    ):
        yield Court(desk, laid, live, wiring.open_target(job, laid.checked.mapping.table, stop), stop)


def _asked(ask: Callable[[], _Found]) -> _Found | Unknown:
    """The answer; who cannot be asked just now is unknown."""
    try:
        return ask()
    except (StoppedError, SourceError, TargetError) as error:
        return Unknown(str(error))


def _fault(ask: Callable[[], object]) -> str:
    """Why what is there does not fit; '' where it does."""
    try:
        ask()
    except (SettingsError, TargetError) as error:
        return str(error)
    return ""


def seen_within_s(job: Job) -> float:
    """By when every living reader acts by a new phase."""
    return job.reads.phase_cache_s + 1.0


def _begun_s(run: Run) -> float:
    """A run that was resumed has read its first rows when it began."""
    return datetime.fromisoformat(run.started_at).timestamp()


def known_patterns(job: Job) -> list[str] | MigratorError:
    """The names of the mapping's patterns, or why it cannot be read."""
    try:
        return list(wiring.sound_mapping(job.mapping).mapping.patterns)
    except MigratorError as error:
        return error
