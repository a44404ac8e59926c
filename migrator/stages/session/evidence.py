"""Gathers evidence for a pattern's move and for the end of SQL, from source, table and journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TypeVar

from msgspec import Struct

from migrator.dynamodb.store import reads_only
from migrator.mapping.check.keys import patterns_reading, types_read
from migrator.mapping.difference.difference import answer_digests
from migrator.mapping.items.changes import captured_name, direct_tables
from migrator.mapping.language.plan import columns_digest
from migrator.mapping.model.evidence import Line, PatternPhase, State
from migrator.mapping.model.instances import Newest, Revision, ServiceRegistry
from migrator.mapping.model.journal import Run, RunIdentity
from migrator.mapping.model.live import ActivityCounts, Installation, MarksState, Writer
from migrator.mapping.model.mapping import Pattern
from migrator.mapping.model.table import TOMBSTONE, Item
from migrator.runtime.errors import SettingsError, SourceError, StoppedError, TargetError
from migrator.runtime.retry import nap
from migrator.runtime.values import replace
from migrator.settings.job import CutoverSettings
from migrator.stages.cutover.dependence import Dependence, may_be_direct, still_needed
from migrator.stages.cutover.evidence import Facts, Unknown, VerifyOnRecord, judge
from migrator.stages.cutover.rollback import WayBack, may_go_back, stays_open
from migrator.stages.session.reverse import way_back_of
from migrator.stages.session.session import JobSession

_Found = TypeVar("_Found")
_FINDINGS_READ = 100_000
"""Beyond this number of findings all are counted, of any entity."""


def gatherer_of(session: JobSession) -> EvidenceGatherer:
    return EvidenceGatherer(session, session.revision_at_work())


class EvidenceGatherer(Struct, frozen=True, dict=True):
    """`own`: the judged revision."""

    session: JobSession
    own: Revision

    def lines(self, current: PatternPhase, after: State, *, one_way: bool) -> Sequence[Line]:
        """Evidence for a move to `after`, gathered again in each call. `one_way`: to complete without a rollback."""
        now = replace(self)
        lines = judge(now.facts(current, is_paused=after.phase == "complete"), self._limits, after)
        if after.phase != "complete":
            return lines
        back = stays_open(lambda: self._way_back(current.pattern), self._limits, one_way=one_way)
        return [*lines, *back, *still_needed(now.dependence(), self._limits)]

    def _way_back(self, pattern: str) -> WayBack | Unknown:
        return _or_unknown(lambda: way_back_of(self.session, self.entities_of(pattern)))

    def entities_of(self, pattern: str) -> frozenset[str]:
        return frozenset(types_read(self.session.checked.mapping, self._pattern(pattern)))

    def back_lines(
        self, entities: Collection[str], unwritten: Collection[str], *, is_drained: bool
    ) -> Sequence[Line]:
        """Evidence on making SQL the truth again. `unwritten`: entities the operator vouches for."""
        kinds = sorted({writer.kind for writer in self._living()})
        way_back = way_back_of(self.session, entities)
        if not entities:  # the operator vouches for all of them, so not even a stream is needed
            way_back = replace(way_back, hindrances=())
        return may_go_back(way_back, kinds, unwritten, is_drained=is_drained)

    def direct_lines(self, direct: Sequence[str], before: Collection[str]) -> Sequence[Line]:
        """Evidence on writing these entities directly from now on. `before`: those already direct."""
        tables = direct_tables(self.session.checked.direct_plans, self.session.checked.plans)
        new = [plan for plan in self.session.checked.direct_plans if plan.entity.name not in before]
        unmarked = direct_tables(new, self.session.checked.plans)
        dependence = replace(self.dependence(tables=tables, unmarked=unmarked), tables=tables)
        reading = patterns_reading(self.session.checked.mapping, direct)
        kinds = sorted({writer.kind for writer in self._living()})
        return may_be_direct(dependence, reading, kinds, self.session.checked.mapping.revision)

    # ── facts about one pattern ──

    def facts(self, current: PatternPhase, *, is_paused: bool = False) -> Facts:
        """Current facts about the pattern; Unknown for those that cannot be read.

        `is_paused`: services are expected not to write, and so to leave no marks.
        """
        # Outside the snapshot, which keeps a transaction open.
        table, capture = _or_unknown(lambda: self.table_id), _or_unknown(lambda: self.installation)
        facts = self.session.journal.database.snapshot(lambda: self._recorded(current, table, capture))
        return replace(
            facts,
            table_fault=_or_unknown(lambda: _fault(lambda: self.table_id)),
            capture_fault=_or_unknown(
                lambda: self._capture_fault(facts.service_registry, is_paused=is_paused)
            ),
            marks=_or_unknown(self._marks),
        )

    def _recorded(
        self, current: PatternPhase, table: str | Unknown, capture: Installation | None | Unknown
    ) -> Facts:
        """The facts in the journal, for a table and an installation of capture that may be unknown."""
        registry, newest = self.session.service_registry(), self.session.newest()
        since_s = registry.now_s - self._limits.evidence_max_age_s
        since_s = max(since_s, _answered_since_s(newest, current.pattern))
        confirmed = self.session.phases.confirmed()
        return Facts(
            pattern=self._pattern(current.pattern),
            revision=self.session.checked.mapping.revision,
            answer=self._answers[current.pattern],
            phase=current,
            now_s=registry.now_s,
            windows=self.session.evidence.windows(since_s, current.pattern),
            service_registry=registry,
            confirmed={
                instance: versions.get(current.pattern, 0) for instance, versions in confirmed.items()
            },
            relays=table if isinstance(table, Unknown) else _or_unknown(self.relays),
            verified=next((one for one in (table, capture) if isinstance(one, Unknown)), None)
            or _or_unknown(lambda: self._verified(current.pattern, newest, registry.now_s)),
        )

    @cached_property
    def _answers(self) -> Mapping[str, str]:
        """Digests as in windows: from the mapping alone, not from a process's view of the source."""
        return answer_digests(self.session.checked.mapping, ())

    def _pattern(self, name: str) -> Pattern:
        return self.session.checked.mapping.patterns[name]

    def _capture_fault(self, registry: ServiceRegistry, *, is_paused: bool) -> str:
        try:
            status = self.session.capture.need_captured(self.session.plans, self.installation)
        except (SettingsError, TargetError) as error:
            return str(error)
        wrong = status.unmarked()
        if status.marked_by == "services" and not is_paused and not registry.marking:
            wrong.append("services must capture changes, and no instance of one is running")
        return "; ".join(wrong)

    def _marks(self) -> MarksState | Unknown:
        if self.installation is None:
            return Unknown("capture is not installed, so changes are not captured")
        return self.session.live.exact_marks.state()

    @cached_property
    def installation(self) -> Installation | None:
        return self.session.live.capture.installation()

    @cached_property
    def table_id(self) -> str:
        return self.session.target.table_id()

    def relays(self) -> int | Unknown:
        """Number of live relays; Unknown if one uses another mapping than the judged one."""
        relays = [writer.id for writer in self._living() if writer.kind == "relay" and not writer.fenced]
        digests = self.session.digests()
        if others := [writer for writer in relays if digests.get(writer) != self.own.digest]:
            what = f"one is, by another mapping than this one, or with other columns ({len(others)} of {len(relays)}"
            return Unknown(f"{what} workers of relays); stop it, and start it again by this one")
        return len(relays)

    def _living(self) -> list[Writer]:
        return self.session.writers_of(self.table_id).living(self.session.lifetimes.gone_s)

    @property
    def _limits(self) -> CutoverSettings:
        return self.session.job.cutover

    # ── what still depends on SQL ──

    @cached_property
    def tables(self) -> list[str]:
        return [table.name for table in self.session.live.capture.captured(self.session.plans)]

    @cached_property
    def old_tables(self) -> list[str]:
        """Tables that entities read, or read before the service wrote them itself."""
        return sorted(
            {*self.tables, *direct_tables(self.session.checked.direct_plans, self.session.checked.plans)}
        )

    def dependence(
        self,
        *,
        with_tombstones: bool = False,
        tables: Sequence[str] | None = None,
        unmarked: Sequence[str] = (),
    ) -> Dependence:
        """Facts about the whole job. Takes cutover.quiet seconds, in which nothing may change in `tables`.

        `tables`: by default all that entities read.
        `unmarked`: tables no longer read, whose changes may have no marks yet.
        """
        phases, names = self.session.phases.all(), self.session.checked.mapping.patterns
        service_registry, unread = self.session.service_registry(), self._unread()
        looks = _or_unknown(lambda: self._looks(self.tables if tables is None else tables))
        # After the looks, which take a while: the other facts are read at their end.
        now = replace(self)
        return Dependence(
            phases={name: phases.get(name, PatternPhase(name)) for name in names},
            service_registry=service_registry,
            tables=self.tables,
            unread=unread,
            looks=looks,
            apart_s=self._limits.quiet_s,
            marks=_or_unknown(now._marks),
            waiting=_or_unknown(lambda: now._waiting([*self.tables, *unmarked])),
            verified=_or_unknown(lambda: now._verified(None, self.session.newest(), service_registry.now_s)),
            tombstones=self._tombstones() if with_tombstones else None,
            revision=self.session.checked.mapping.revision,
            confirmed=self.session.phases.confirmed(),
        )

    def _unread(self) -> list[str]:
        activity = self.session.live.activity
        read, views = set(self.old_tables), activity.views()
        tables = {captured_name(table): table.real for table in self.session.source.facts().tables.values()}
        unread = {name for name, real in tables.items() if name not in read and real not in views}
        return sorted(unread | activity.named() - tables.keys())

    def _tombstones(self) -> tuple[int, int]:
        count, target = 0, self.session.target

        def pages() -> Iterator[list[Item]]:
            nonlocal count
            for page in target.pages():
                count += sum(item.get(target.design.type_attribute) == TOMBSTONE for item in page)
                yield page

        purge = self.session.purge(reads_only, dry_run=True, table_id=self.table_id)
        ripe = sum(purge.run(pages(), self.session.evidence.now_s()))
        return count, ripe

    def _waiting(self, tables: Sequence[str]) -> Mapping[str, int]:
        return {} if self.installation is None else self.session.live.activity.waiting(tables)

    def _looks(self, tables: Sequence[str]) -> tuple[ActivityCounts, ActivityCounts]:
        look = self.session.live.activity.look
        before = look(tables)
        nap(self._limits.quiet_s, self.session.stop.is_set, time.sleep)
        return before, look(tables)

    # ── verify ──

    def _verified(self, pattern: str | None, newest: Newest | None, now_s: float) -> VerifyOnRecord | None:
        session, journal, here = self.session, self.session.journal, self.installation
        revision = columns_digest(session.checked.mapping.revision, session.plans)
        identity = RunIdentity("verify", session.job.name, self.table_id, revision)
        first = newest.runs_before if newest is not None else 0
        runs = [
            run
            for run in journal.runs(session.job.name)
            if run.identity == identity
            and run.id > first
            # Every change since the run began has left a mark.
            and (here is None or journal.installation_of(run) == here.id)
        ]
        done = [run for run in runs if run.state == "done"]
        if not done:
            return VerifyOnRecord(runs[-1].id, 0, None) if runs else None
        last = done[-1]
        # Findings of a run that has not ended also count.
        findings = sum(self._findings(run, pattern) for run in runs if run.id >= last.id)
        # A resumed run read its first rows when it started.
        age_s = max(0.0, now_s - datetime.fromisoformat(last.started_at).timestamp())
        return VerifyOnRecord(last.id, findings, age_s, journal.look_before(last))

    def _findings(self, run: Run, pattern: str | None) -> int:
        """Number of findings of the pattern's entities, and of those outside the mapping."""
        journal = self.session.journal
        total = sum(journal.finding_counts(run).values())
        if pattern is None or total > _FINDINGS_READ:
            return total
        mapping = self.session.checked.mapping
        others = set(mapping.entities) - self.entities_of(pattern)
        return sum(finding.entity.partition("@")[0] not in others for finding in journal.findings(run))


def _answered_since_s(newest: Newest | None, pattern: str) -> float:
    """When writers began to use a revision that gives this answer; earlier comparisons do not count."""
    if newest is None:
        return 0.0
    return newest.answers[pattern].since if pattern in newest.answers else newest.since


def _or_unknown(ask: Callable[[], _Found]) -> _Found | Unknown:
    try:
        return ask()
    except (StoppedError, SourceError, TargetError) as error:
        return Unknown(str(error))


def _fault(ask: Callable[[], object]) -> str:
    try:
        ask()
    except (SettingsError, TargetError) as error:
        return str(error)
    return ""
