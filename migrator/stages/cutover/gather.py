"""Gathers evidence for a pattern's move and for the end of SQL, from source, table and journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Protocol, TypeVar

from msgspec import Struct

from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import Checked
from migrator.mapping.check.keys import patterns_reading, types_read
from migrator.mapping.difference.difference import answer_digests
from migrator.mapping.items.changes import captured_name, direct_tables
from migrator.mapping.language.plan import columns_digest
from migrator.mapping.model.edges import Rows
from migrator.mapping.model.evidence import Evidence, Line, PatternPhase, Phases, State
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.instances import Newest, Revision, ServiceRegistry
from migrator.mapping.model.journal import Run, RunIdentity
from migrator.mapping.model.live import (
    Activity,
    ActivityCounts,
    Installation,
    Marks,
    MarksState,
    Writer,
    Writers,
)
from migrator.mapping.model.mapping import Pattern
from migrator.mapping.model.table import TOMBSTONE, Item, TableDesign
from migrator.runtime.errors import SettingsError, SourceError, StoppedError, TargetError
from migrator.runtime.retry import nap
from migrator.runtime.values import replace
from migrator.settings.job import CutoverSettings
from migrator.stages.cutover.dependence import Dependence, Tombstones, may_be_direct, still_needed
from migrator.stages.cutover.evidence import Facts, Unknown, VerifyOnRecord, judge
from migrator.stages.cutover.rollback import WayBack, may_go_back, stays_open
from migrator.stages.live.capture import CaptureStage
from migrator.stages.live.writers import Purge

_Found = TypeVar("_Found")
_FINDINGS_READ = 100_000
"""Beyond this number of findings all are counted, of any entity."""


class JobRecords(Protocol):
    @property
    def journal(self) -> SqlJournal: ...
    @property
    def phases(self) -> Phases: ...
    @property
    def evidence(self) -> Evidence: ...

    def service_registry(self) -> ServiceRegistry: ...

    def newest(self) -> Newest | None: ...

    def digests(self) -> Mapping[str, str]:
        """Revisions of the job's writers, by writer id."""


class OpenTable(Protocol):
    @property
    def design(self) -> TableDesign: ...

    def table_id(self) -> str:
        """Raises: TargetError if the table is missing or is another one."""

    def pages(self) -> Iterator[list[Item]]: ...


class EvidenceGatherer(Struct, frozen=True, dict=True):
    """`own`: the judged revision.
    `writers`, `purge`: by the table's id; `purge` only counts tombstones.
    `gone_s`: silence after which a writer counts as gone.
    """

    job: str
    limits: CutoverSettings
    checked: Checked
    own: Revision
    records: JobRecords
    source: Rows
    capture: CaptureStage
    marks: Marks
    activity: Activity
    table: OpenTable
    writers: Callable[[str], Writers]
    gone_s: float
    purge: Callable[[str], Purge]
    way_back: Callable[[Collection[str]], WayBack]
    stop: Callable[[], bool]

    def lines(self, current: PatternPhase, after: State, *, one_way: bool) -> Sequence[Line]:
        """Evidence for a move to `after`, gathered again in each call. `one_way`: to complete without a rollback."""
        now = replace(self)
        lines = judge(now.facts(current, is_paused=after.phase == "complete"), self.limits, after)
        if after.phase != "complete":
            return lines
        back = stays_open(lambda: self._way_back(current.pattern), self.limits, one_way=one_way)
        return [*lines, *back, *still_needed(now.dependence(), self.limits)]

    def _way_back(self, pattern: str) -> WayBack | Unknown:
        return _or_unknown(lambda: self.way_back(self.entities_of(pattern)))

    def entities_of(self, pattern: str) -> frozenset[str]:
        return frozenset(types_read(self.checked.mapping, self._pattern(pattern)))

    def back_lines(
        self, entities: Collection[str], unwritten: Collection[str], *, is_drained: bool
    ) -> Sequence[Line]:
        """Evidence on making SQL the truth again. `unwritten`: entities the operator vouches for."""
        kinds = sorted({writer.kind for writer in self._living()})
        way_back = self.way_back(entities)
        if not entities:  # the operator vouches for all of them, so not even a stream is needed
            way_back = replace(way_back, hindrances=())
        return may_go_back(way_back, kinds, unwritten, is_drained=is_drained)

    def direct_lines(self, direct: Sequence[str], before: Collection[str]) -> Sequence[Line]:
        """Evidence on writing these entities directly from now on. `before`: those already direct."""
        tables = direct_tables(self.checked.direct_plans, self.checked.plans)
        new = [plan for plan in self.checked.direct_plans if plan.entity.name not in before]
        unmarked = direct_tables(new, self.checked.plans)
        dependence = replace(self.dependence(tables=tables, unmarked=unmarked), tables=tables)
        reading = patterns_reading(self.checked.mapping, direct)
        kinds = sorted({writer.kind for writer in self._living()})
        return may_be_direct(dependence, reading, kinds, self.checked.mapping.revision)

    # ── facts about one pattern ──

    def facts(self, current: PatternPhase, *, is_paused: bool = False) -> Facts:
        """Current facts about the pattern; Unknown for those that cannot be read.

        `is_paused`: services are expected not to write, and so to leave no marks.
        """
        # Outside the snapshot, which keeps a transaction open.
        table, capture = _or_unknown(lambda: self.table_id), _or_unknown(lambda: self.installation)
        facts = self.records.journal.database.snapshot(lambda: self._recorded(current, table, capture))
        return replace(
            facts,
            table_fault=_or_unknown(self._table_fault),
            capture_fault=_or_unknown(
                lambda: self._capture_fault(facts.service_registry, is_paused=is_paused)
            ),
            marks=_or_unknown(self._marks),
        )

    def _recorded(
        self, current: PatternPhase, table: str | Unknown, capture: Installation | None | Unknown
    ) -> Facts:
        """The facts in the journal, for a table and an installation of capture that may be unknown."""
        registry, newest = self.records.service_registry(), self.records.newest()
        since_s = registry.now_s - self.limits.evidence_max_age_s
        since_s = max(since_s, _answered_since_s(newest, current.pattern))
        confirmed = self.records.phases.confirmed()
        return Facts(
            pattern=self._pattern(current.pattern),
            revision=self.checked.mapping.revision,
            answer=self._answers[current.pattern],
            phase=current,
            now_s=registry.now_s,
            windows=self.records.evidence.windows(since_s, current.pattern),
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
        return answer_digests(self.checked.mapping, ())

    def _pattern(self, name: str) -> Pattern:
        return self.checked.mapping.patterns[name]

    def _table_fault(self) -> str:
        return _fault(lambda: self.table_id)

    def _capture_fault(self, registry: ServiceRegistry, *, is_paused: bool) -> str:
        try:
            status = self.capture.need_captured(self._plans, self.installation)
        except (SettingsError, TargetError) as error:
            return str(error)
        wrong = status.unmarked()
        if status.marked_by == "services" and not is_paused and not registry.marking:
            wrong.append("services must capture changes, and no instance of one is running")
        return "; ".join(wrong)

    def _marks(self) -> MarksState | Unknown:
        if self.installation is None:
            return Unknown("capture is not installed, so changes are not captured")
        return self.marks.state()

    @cached_property
    def installation(self) -> Installation | None:
        return self.capture.capture.installation()

    @cached_property
    def table_id(self) -> str:
        return self.table.table_id()

    def relays(self) -> int | Unknown:
        """Number of live relays; Unknown if one uses another mapping than the judged one."""
        relays = [writer.id for writer in self._living() if writer.kind == "relay" and not writer.fenced]
        digests = self.records.digests()
        if others := [writer for writer in relays if digests.get(writer) != self.own.digest]:
            what = f"one is, by another mapping than this one, or with other columns ({len(others)} of {len(relays)}"
            return Unknown(f"{what} workers of relays); stop it, and start it again by this one")
        return len(relays)

    def _living(self) -> list[Writer]:
        return self.writers(self.table_id).living(self.gone_s)

    @property
    def _plans(self) -> list[EntityPlan]:
        return list(self.checked.plans)

    # ── what still depends on SQL ──

    @cached_property
    def tables(self) -> list[str]:
        return [table.name for table in self.capture.capture.captured(self._plans)]

    @cached_property
    def old_tables(self) -> list[str]:
        """Tables that entities read, or read before the service wrote them itself."""
        return sorted({*self.tables, *direct_tables(self.checked.direct_plans, self.checked.plans)})

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
        phases, names = self.records.phases.all(), self.checked.mapping.patterns
        service_registry, unread = self.records.service_registry(), self._unread()
        looks = _or_unknown(lambda: self._looks(self.tables if tables is None else tables))
        # After the looks, which take a while: the other facts are read at their end.
        now = replace(self)
        return Dependence(
            phases={name: phases.get(name, PatternPhase(name)) for name in names},
            service_registry=service_registry,
            tables=self.tables,
            unread=unread,
            looks=looks,
            apart_s=self.limits.quiet_s,
            marks=_or_unknown(now._marks),
            waiting=_or_unknown(lambda: now._waiting([*self.tables, *unmarked])),
            verified=_or_unknown(lambda: now._verified(None, self.records.newest(), service_registry.now_s)),
            tombstones=self._tombstones() if with_tombstones else None,
            revision=self.checked.mapping.revision,
            confirmed=self.records.phases.confirmed(),
        )

    def _unread(self) -> list[str]:
        read, views = set(self.old_tables), self.activity.views()
        tables = {captured_name(table): table.real for table in self.source.facts().tables.values()}
        unread = {name for name, real in tables.items() if name not in read and real not in views}
        return sorted(unread | self.activity.named() - tables.keys())

    def _tombstones(self) -> Tombstones:
        count, kind = 0, self.table.design.type_attribute

        def pages() -> Iterator[list[Item]]:
            nonlocal count
            for page in self.table.pages():
                count += sum(item.get(kind) == TOMBSTONE for item in page)
                yield page

        ripe = sum(self.purge(self.table_id).run(pages(), self.records.evidence.now_s()))
        return Tombstones(count, ripe)

    def _waiting(self, tables: Sequence[str]) -> Mapping[str, int]:
        return self.activity.waiting(tables) if self.installation is not None else {}

    def _looks(self, tables: Sequence[str]) -> tuple[ActivityCounts, ActivityCounts]:
        before = self.activity.look(tables)
        nap(self.limits.quiet_s, self.stop, time.sleep)
        return before, self.activity.look(tables)

    # ── verify ──

    def _verified(self, pattern: str | None, newest: Newest | None, now_s: float) -> VerifyOnRecord | None:
        identity = self._identity()
        first = newest.runs_before if newest is not None else 0
        all_runs = self.records.journal.runs(self.job)
        runs = [run for run in all_runs if run.identity == identity and run.id > first]
        runs = [run for run in runs if self._is_of_this_capture(run)]
        done = [run for run in runs if run.state == "done"]
        if not done:
            return VerifyOnRecord(runs[-1].id, 0, None) if runs else None
        last = done[-1]
        # Findings of a run that has not ended also count.
        findings = sum(self._findings(run, pattern) for run in runs if run.id >= last.id)
        age_s = max(0.0, now_s - _begun_s(last))
        return VerifyOnRecord(last.id, findings, age_s, self.records.journal.look_before(last))

    def _is_of_this_capture(self, run: Run) -> bool:
        """Whether every change since the run began has left a mark."""
        here = self.installation
        return here is None or self.records.journal.installation_of(run) == here.id

    def _identity(self) -> RunIdentity:
        revision = columns_digest(self.checked.mapping.revision, self._plans)
        return RunIdentity("verify", self.job, self.table_id, revision)

    def _findings(self, run: Run, pattern: str | None) -> int:
        """Number of findings of the pattern's entities, and of those outside the mapping."""
        journal = self.records.journal
        total = sum(journal.finding_counts(run).values())
        if pattern is None or total > _FINDINGS_READ:
            return total
        mapping = self.checked.mapping
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


def _begun_s(run: Run) -> float:
    """Start of the run, in seconds since 1970. A resumed run read its first rows then."""
    return datetime.fromisoformat(run.started_at).timestamp()
