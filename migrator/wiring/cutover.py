"""Opens what cutover, decommission and direct entities need: the journal alone, or all evidence."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TypeVar

from migrator.journal.evidence import SqlEvidence, installation_of, look_before
from migrator.journal.phases import SqlPhases
from migrator.journal.revisions import digests_of, newest_of
from migrator.journal.runs import SqlJournal
from migrator.journal.writers import SqlInstances, SqlWriters
from migrator.mapping.check.keys import types_read
from migrator.mapping.heart.changes import captured_name
from migrator.mapping.live.direct import direct_tables, patterns_reading
from migrator.mapping.plan import columns_digest
from migrator.model.capture import Installation
from migrator.model.errors import MigratorError, SettingsError, SourceError, StoppedError, TargetError
from migrator.model.evidence import Line, PatternPhase
from migrator.model.facts import EntityPlan
from migrator.model.instances import ServiceRegistry
from migrator.model.journal import Run, RunIdentity
from migrator.model.live import ActivityCounts, MarksState
from migrator.model.patterns import Pattern
from migrator.model.phase import State
from migrator.model.table import TOMBSTONE, Item
from migrator.runtime.retry import nap
from migrator.settings.job import Job
from migrator.source.capture.activity import SqlActivity
from migrator.stages.cutover.dependence import Dependence, Tombstones, may_be_direct, still_needed
from migrator.stages.cutover.evidence import Facts, Unknown, Verified, judge
from migrator.stages.live.capture import MEANINGS
from migrator.stages.live.writers import Purge
from migrator.target.conditional import ConditionalWrites
from migrator.target.store import reads_only
from migrator.wiring import job as job_wiring
from migrator.wiring import live as live_wiring
from migrator.wiring.job import JobContext, Target
from migrator.wiring.live import Live

# ── The edges of cutover and decommission, put together: constructor calls, no decisions ──

_Found = TypeVar("_Found")
_FINDINGS_READ = 100_000
"""Of more than that nobody asks which entities they are of."""


@dataclass(frozen=True)
class JobJournal:
    """What operators of a job need of its journal. `gone`: ids of silent instances that count no more."""

    job: Job
    journal: SqlJournal
    phases: SqlPhases
    evidence: SqlEvidence
    instances: SqlInstances
    gone: Collection[str] = ()

    def service_registry(self) -> ServiceRegistry:
        return live_wiring.registry_of(self.job, self.journal).without(self.gone)


def job_journal_of(job: Job, journal: SqlJournal) -> JobJournal:
    database, name = journal.database, job.name
    return JobJournal(
        job, journal, SqlPhases(database, name), SqlEvidence(database, name), SqlInstances(database, name)
    )


@contextmanager
def open_job_journal(job: Job) -> Iterator[JobJournal]:
    with job_wiring.open_journal(job) as journal:
        yield job_journal_of(job, journal)


@dataclass(frozen=True)
class EvidenceSources:
    """Everything that evidence is gathered from."""

    job_journal: JobJournal
    context: JobContext
    live: Live
    target: Target
    stop: Callable[[], bool] = lambda: False

    def evidence(self, known: PatternPhase, after: State) -> Sequence[Line]:
        """The lines by which a move of the pattern to `after` is judged. Each time everything is asked anew, once."""
        limits, now = self.job_journal.job.cutover, replace(self)
        lines = judge(now.facts(known, is_paused=after.phase == "complete"), limits, after)
        return [*lines, *still_needed(now.dependence(), limits)] if after.phase == "complete" else lines

    def facts(self, known: PatternPhase, *, is_paused: bool = False) -> Facts:
        """What is known of the pattern now. What cannot be asked is unknown, and no failure.

        `is_paused`: whether services are to write nothing just now, and so to mark nothing.
        """
        job_journal, limits = self.job_journal, self.job_journal.job.cutover
        now_s = job_journal.evidence.now_s()
        return Facts(
            pattern=self.pattern(known.pattern),
            revision=self.context.checked.mapping.revision,
            phase=known,
            now_s=now_s,
            windows=job_journal.evidence.windows(
                max(now_s - limits.evidence_max_age_s, self.newest_since_s), known.pattern
            ),
            service_registry=job_journal.service_registry(),
            confirmed={
                instance: versions.get(known.pattern, 0)
                for instance, versions in job_journal.phases.confirmed().items()
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
        newest = newest_of(self.job_journal.journal.database, self.job_journal.job.name)
        return newest.since if newest is not None else 0.0

    def pattern(self, name: str) -> Pattern:
        return self.context.checked.mapping.patterns[name]

    def table_fault(self) -> str:
        """What is wrong with the table, '' for nothing."""
        return _fault(lambda: self.table_id)

    def capture_fault(self, *, is_paused: bool = False) -> str:
        """Why a change could leave no mark, '' where all do. `is_paused`: services are to write nothing just now."""
        stage = live_wiring.capture_stage(self.live, self.context)
        try:
            found = stage.need_captured(self._plans, self.installation)
        except (SettingsError, TargetError) as error:
            return str(error)
        wrong = [
            f"{one.table}: {MEANINGS[one.state]}"
            for one in found.tables
            if one.state in ("disabled", "partition")
        ]
        if (
            found.marked_by == "services"
            and not is_paused
            and not self.job_journal.service_registry().marking
        ):
            wrong.append("services are to mark changes, and no instance of one is alive")
        return "; ".join(wrong)

    def marks(self) -> MarksState | Unknown:
        """What waits; where nothing is captured there is no mark, whatever has changed."""
        if self.installation is None:
            return Unknown("nothing is captured, so no change leaves a mark")
        return self.live.marks.state()

    @cached_property
    def installation(self) -> Installation | None:
        """Of capture."""
        return self.live.capture.installation()

    @cached_property
    def table_id(self) -> str:
        """Raises: TargetError where the table is not there, or another one."""
        return live_wiring.existing_table(self.job_journal.job, self.target)

    def relays(self) -> int | Unknown:
        """How many are alive; unknown where they make items by another mapping than is judged here."""
        gone_s = live_wiring.lifetimes_of(self.job_journal.job).gone_s
        database = self.job_journal.journal.database
        living = SqlWriters(database, self.table_id).living(gone_s)
        relays = [one.id for one in living if one.kind == "relay" and not one.fenced]
        own, known = (
            live_wiring.own_revision(self.context).digest,
            digests_of(database, self.job_journal.job.name),
        )
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
        job_journal, quiet_s = self.job_journal, self.job_journal.job.cutover.quiet_s
        known = job_journal.phases.all()
        names = self.context.checked.mapping.patterns
        now_s = job_journal.evidence.now_s()
        service_registry, unread = job_journal.service_registry(), self.unread()
        looks = _asked(lambda: self._looks(quiet_s, self.tables if tables is None else tables))
        # After the looks, which take a while: the rest is as it is then.
        now = replace(self)
        return Dependence(
            phases={name: known.get(name, PatternPhase(name)) for name in names},
            service_registry=service_registry,
            tables=self.tables,
            unread=unread,
            looks=looks,
            apart_s=quiet_s,
            marks=_asked(now.marks),
            waiting=_asked(now._waiting),
            verified=_asked(lambda: now.verified(None, now_s)),
            tombstones=self.tombstones() if with_tombstones else None,
            revision=self.context.checked.mapping.revision,
            confirmed=job_journal.phases.confirmed(),
        )

    def unread(self) -> list[str]:
        """Tables of the source that no entity reads, without views, ours and the system's."""
        read, views = {*self.tables, *direct_tables(self.context.checked)}, self.activity.views()
        found = {captured_name(table): table.real for table in self.context.source.facts().tables.values()}
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

        writers = SqlWriters(self.job_journal.journal.database, self.table_id)
        lifetimes = live_wiring.lifetimes_of(self.job_journal.job)
        store, design = ConditionalWrites(self.target.store), self.target.design
        purge = Purge(store, writers, design, lifetimes, reads_only, dry_run=True)
        ripe = sum(purge.run(pages(), writers.now_s()))
        return Tombstones(count, ripe)

    @property
    def _plans(self) -> list[EntityPlan]:
        return [entity.plan for entity in self.context.checked.entities]

    def _waiting(self) -> Mapping[str, int]:
        return self.activity.waiting() if self.installation is not None else {}

    def _looks(self, apart_s: float, tables: Sequence[str]) -> tuple[ActivityCounts, ActivityCounts]:
        before = self.activity.look(tables)
        nap(apart_s, self.stop, time.sleep)
        return before, self.activity.look(tables)

    # ── verify ──

    def verified(self, pattern: str | None, now_s: float) -> Verified | None:
        """The last full verify; findings of the pattern's entities, of all where it is None."""
        newest = newest_of(self.job_journal.journal.database, self.job_journal.job.name)
        first = newest.runs_before if newest is not None else 0
        known = self.job_journal.journal.runs(self.job_journal.job.name)
        runs = [run for run in known if run.identity == self._identity() and run.id > first]
        here = self.installation
        runs = [run for run in runs if self._is_of_this_capture(run, here)]
        done = [run for run in runs if run.state == "done"]
        if not done:
            return Verified(runs[-1].id, 0, None) if runs else None
        last = done[-1]
        # What one that goes on has found by now counts, too.
        findings = sum(self._findings(run, pattern) for run in runs if run.id >= last.id)
        look = look_before(self.job_journal.journal.database, last.id)
        return Verified(last.id, findings, max(0.0, now_s - _begun_s(last)), look)

    def _is_of_this_capture(self, run: Run, here: Installation | None) -> bool:
        """Whether every change since the run began has left a mark; of runs that an older version began nobody knows."""
        known = installation_of(self.job_journal.journal.database, run.id)
        return known is None or here is None or known == here.id

    def _identity(self) -> RunIdentity:
        checked = self.context.checked
        revision = columns_digest(checked.mapping.revision, self._plans)
        return RunIdentity("verify", self.job_journal.job.name, self.table_id, revision)

    def _findings(self, run: Run, pattern: str | None) -> int:
        """Those of the pattern's entities, and those that no entity of the mapping can be told by."""
        total = sum(self.job_journal.journal.finding_counts(run).values())
        if pattern is None or total > _FINDINGS_READ:
            return total
        mapping = self.context.checked.mapping
        others = set(mapping.entities) - set(types_read(mapping, self.pattern(pattern)))
        found = self.job_journal.journal.findings(run)
        return sum(one.entity.partition("@")[0] not in others for one in found)


@contextmanager
def open_evidence(
    job_journal: JobJournal, command: str, stop: Callable[[], bool]
) -> Iterator[EvidenceSources]:
    job = job_journal.job
    with (
        job_wiring.open_job(job, command, stop=stop) as context,
        live_wiring.open_live(
            job, command, stop=stop, patience=live_wiring.ONCE, source=context.source
        ) as live,
    ):
        yield EvidenceSources(
            job_journal, context, live, job_wiring.open_target(job, context.checked.mapping.table, stop), stop
        )


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
        return list(job_wiring.sound_mapping(job.mapping).mapping.patterns)
    except MigratorError as error:
        return error


# ── The edges of direct entities, put together: constructor calls, no decisions ──


def keep_direct(evidence_sources: EvidenceSources) -> None:
    """Puts on record which entities the service writes itself from now on, and that it writes all others no more."""
    checked, job, journal = (
        evidence_sources.context.checked,
        evidence_sources.job_journal.job,
        evidence_sources.job_journal.journal,
    )
    scope = ",".join(sorted(job.direct))
    run = journal.start_run(
        RunIdentity("direct", job.name, evidence_sources.table_id, checked.mapping.revision, scope)
    )
    journal.end_run(run, "done")


def direct_evidence(evidence_sources: EvidenceSources) -> Sequence[Line]:
    """What speaks for writing the job's direct entities past SQL from now on, and what against it."""
    checked, job = evidence_sources.context.checked, evidence_sources.job_journal.job
    tables = direct_tables(checked)
    found = replace(evidence_sources.dependence(tables=tables), tables=tables)
    gone_s = live_wiring.lifetimes_of(job).gone_s
    living = SqlWriters(evidence_sources.job_journal.journal.database, evidence_sources.table_id).living(
        gone_s
    )
    reading = patterns_reading(checked.mapping, job.direct)
    return may_be_direct(found, reading, sorted({one.kind for one in living}), checked.mapping.revision)
