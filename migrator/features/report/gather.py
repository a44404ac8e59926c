"""Gathers a report: what the journal holds of a job, with examples read again from both sides."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from migrator.features.report.costs import costs_of
from migrator.features.report.differences import SHOWN_AT_MOST, Differences, Pairs, Place, place_of
from migrator.features.report.verdict import Circumstances, Standings, found_nothing, verdict_of
from migrator.journal.operations import SqlProcesses
from migrator.journal.runs import SqlJournal
from migrator.mapping.difference.answers import answer_digests
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.language.plan import columns_digest
from migrator.mapping.model.capacity import Capacity
from migrator.mapping.model.edges import ItemStore, Rows
from migrator.mapping.model.evidence import Evidence, Phases
from migrator.mapping.model.instances import ServiceRegistry
from migrator.mapping.model.journal import FindingGroups, Run
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.report import (
    Group,
    InstanceReport,
    LagReport,
    PatternReport,
    PhaseMove,
    Refused,
    ReportModel,
    RunReport,
    Verdict,
)
from migrator.mapping.model.table import TableDesign
from migrator.stages.design.shown import Showing, Windows, clipped, work_series
from migrator.stages.design.views import Views

_REFUSED_READ = 2_000
_KEYS_SHOWN = 3
_MOVES_SHOWN = 50


@dataclass(frozen=True)
class ReportOptions:
    """`since_s`: how far back comparisons are counted. `values`: whether rows are read, so that examples can be shown;
    `whole_values`: whether their values and keys are shown unmasked."""

    since_s: float = 86_400.0
    values: bool = True
    whole_values: bool = False
    whole_keys: bool = False


@dataclass(frozen=True)
class ReportRecords:
    """What the job's journal holds."""

    journal: SqlJournal
    groups: FindingGroups
    evidence: Evidence
    phases: Phases
    processes: SqlProcesses


@dataclass(frozen=True)
class ReportSides:
    """The mapping, compiled for the source where it can be reached; `source` and `store` None where they cannot.

    `table`: with the job's name for it. `capacity`: measured on rows of the source, or None. `notes`: why a side is missing.
    """

    mapping: MappingModel
    table: TableDesign
    entities: Sequence[CompiledEntity] = ()
    source: Rows | None = None
    store: ItemStore | None = None
    capacity: Capacity | None = None
    notes: Sequence[str] = ()

    @property
    def away(self) -> str:
        return "source" if self.source is None else "table" if self.store is None else ""


@dataclass(frozen=True)
class ReportContext:
    """`job`: its name, `file`: as the user named it, `journal`: where it is. `version`: of migrator.
    `comparisons_min`: the answers that a move needs."""

    job: str
    file: str
    journal: str
    version: str
    service_registry: ServiceRegistry
    lag: LagReport
    comparisons_min: int = 200


class Report:
    """Gathers one report. Reads everything, writes nothing."""

    def __init__(
        self, records: ReportRecords, sides: ReportSides, around: ReportContext, options: ReportOptions
    ) -> None:
        self.records = records
        self.sides = sides
        self.around = around
        self.options = options
        plans = [entity.plan for entity in sides.entities]
        whole_keys = options.whole_keys or options.whole_values
        self._showing = Showing(
            sides.mapping, plans, whole_keys=whole_keys, whole_values=options.whole_values
        )
        self._runs = _last_runs(records.journal.runs(around.job))
        self._pairs = self._open_pairs()

    def is_empty(self) -> bool:
        """Whether nothing of the job is on record."""
        evidence = self.records.evidence
        return not (self._runs or evidence.windows(0.0) or self.records.phases.all())

    def gather(self) -> ReportModel:
        """Raises: StoppedError where the journal cannot be asked."""
        now_s = self.records.evidence.now_s()
        since = max(0.0, now_s - self.options.since_s)
        kept, phases = self.records.evidence.windows(since), self.records.phases.all()
        runs = [self._run(run) for run in self._runs.values()]
        samples = self.records.evidence.samples()
        answers = answer_digests(self.sides.mapping, ())
        windows = Windows(kept, answers, now_s, phases, verified_s=_verified_s(runs), samples=samples)
        patterns = windows.patterns(self.sides.mapping.patterns)
        budgets = {name: pattern.p99_ms for name, pattern in self.sides.mapping.patterns.items()}
        patterns = [replace(report, budget_ms=budgets[report.name]) for report in patterns]
        groups, refused = self._groups(windows, since), self._refused()
        views = Views(self.sides.mapping, self.sides.entities, self._showing, self._sampled())
        shown = [self._showing.view(view) for view in views.all()]
        return ReportModel(
            job=self.around.job,
            journal=self.around.journal,
            table=self.sides.table.name,
            revision=self.sides.mapping.revision,
            version=self.around.version,
            made_at=now_s,
            since_s=self.options.since_s,
            verdict=self._verdict(groups, refused, patterns, runs),
            patterns=patterns,
            moves=self._moves(),
            groups=groups,
            timeline=windows.timeline(since),
            work=work_series(self.records.processes.minutes(since), since, now_s),
            costs=costs_of(self.sides.capacity, windows, since, list(self.sides.mapping.patterns)),
            lag=self.around.lag,
            runs=runs,
            refused=refused,
            instances=self._instances(),
            views=shown,
            notes=self._notes(views),
        )

    # ── differences ──

    def _open_pairs(self) -> Pairs | None:
        sides = self.sides
        if sides.source is None or sides.store is None:
            return None
        entities = {entity.name: entity for entity in sides.entities}
        return Pairs(sides.source, sides.store, entities, sides.table, self._showing)

    def _sampled(self) -> Rows | None:
        return self.sides.source if self.options.values else None

    def _groups(self, windows: Windows, since: float) -> list[Group]:
        """Groups in order: most differences first, shadow reads before runs, and last those that are history."""
        lag, backfill = self.around.lag, self._runs.get("backfill")
        around = Circumstances(
            waiting=lag.waiting or 0,
            backfilled=backfill is not None and backfill.state == "done",
            captured=lag.waiting is not None,
            oldest_s=lag.oldest_s,
            now_s=windows.now_s,
        )
        made = Differences(self._showing, around, self.options.values, self._pairs)
        revision = self.sides.mapping.revision
        samples = [sample for sample in windows.samples if sample.at >= since and sample.revision == revision]
        groups = made.of_windows(windows, samples)
        left = SHOWN_AT_MOST - sum(len(group.differences) for group in groups)
        seen_places: set[Place] = set()
        for run in self._looked_runs():
            of_run = list(made.of_run(run, self.records.groups, max(0, left), seen_places))
            seen_places |= self._places(run)
            left -= sum(len(group.differences) for group in of_run)
            groups += of_run
        # Causes are found from whole values, so masking comes last.
        named = [
            replace(
                group,
                advice=group.advice.replace("JOB", self.around.file),
                differences=[self._showing.difference(difference) for difference in group.differences],
            )
            for group in groups
        ]
        return sorted(named, key=lambda group: (group.is_history, -group.count))

    def _places(self, run: Run) -> set[Place]:
        """The places of the run's first findings, for comparison with another run's."""
        groups = self.records.groups
        findings = (groups.some(run, group, SHOWN_AT_MOST) for group in groups.groups(run))
        return {place_of(finding) for some in findings for finding in some}

    def _looked_runs(self) -> list[Run]:
        """The last runs of each kind, without a backfill whose findings a later verify has replaced."""
        verify = self._runs.get("verify")
        return [
            run
            for kind, run in self._runs.items()
            if kind != "backfill" or verify is None or verify.id < run.id or verify.state != "done"
        ]

    def _refused(self) -> list[Refused]:
        by_reason: dict[tuple[str, str], Refused] = {}
        for run in self._looked_runs():
            for group in self.records.groups.groups(run):
                if group.kind == "refused":
                    of_group = self.records.groups.some(run, group, _REFUSED_READ)
                    reasons: dict[str, list[str]] = defaultdict(list)
                    for finding in of_group:
                        reason = self._showing.key(finding.reason, finding.source_key or "[]")
                        reasons[reason].append(self._showing.key(finding.source_key))
                    for reason, keys in reasons.items():
                        # Findings that were not read are counted to the most frequent reason.
                        unread = (
                            group.count - len(of_group) if len(keys) == max(map(len, reasons.values())) else 0
                        )
                        shown = Refused(group.entity, clipped(reason), len(keys) + unread, keys[:_KEYS_SHOWN])
                        by_reason.setdefault((group.entity, reason), shown)
        return sorted(by_reason.values(), key=lambda refused: -refused.count)

    # ── the rest ──

    def _verdict(
        self,
        groups: Sequence[Group],
        refused: Sequence[Refused],
        patterns: Sequence[PatternReport],
        runs: Sequence[RunReport],
    ) -> Verdict:
        around = self.around
        standings = Standings(
            around.file, groups, refused, patterns, runs, around.lag, around.comparisons_min, self.sides.away
        )
        return verdict_of(standings)

    def _run(self, run: Run) -> RunReport:
        tally = self.records.journal.tally(run)
        plans = [entity.plan for entity in self.sides.entities]
        is_comparable = run.identity.kind == "verify" and bool(plans)
        return RunReport(
            kind=run.identity.kind,
            number=run.id,
            state=run.state,
            started=run.started_at,
            ended=run.ended_at or "",
            scope=run.identity.scope,
            rows=tally.rows,
            items=tally.items,
            refused=tally.refused,
            findings=self._counts(run),
            current=run.identity.revision == columns_digest(self.sides.mapping.revision, plans)
            if is_comparable
            else None,
        )

    def _counts(self, run: Run) -> dict[str, int]:
        """Findings per kind, counted as in the report's differences: of relays only open ones."""
        counted: Counter[str] = Counter()
        for group in self.records.groups.groups(run):
            counted[group.kind] += group.count
        return dict(counted)

    def _moves(self) -> list[PhaseMove]:
        history = list(self.records.phases.history())[-_MOVES_SHOWN:]
        return [
            PhaseMove(
                move.at,
                move.pattern,
                move.before.masked,
                move.after.masked,
                move.who,
                clipped(move.reason),
                move.override,
            )
            for move in reversed(history)
        ]

    def _instances(self) -> list[InstanceReport]:
        service_registry = self.around.service_registry
        return [
            InstanceReport(
                service=" ".join(filter(None, (instance.service, instance.version))),
                where=f"{instance.host}:{instance.pid}",
                role=instance.role,
                mode=instance.mode,
                heard_s=service_registry.age_s(instance),
                fits=instance.revision == self.sides.mapping.revision,
                silent=instance in service_registry.silent,
            )
            for instance in (*service_registry.living, *service_registry.silent)
        ]

    def _notes(self, views: Views) -> list[str]:
        notes = list(self.sides.notes)
        for failed, what in (
            (views.failed, "sample items"),
            (self._pairs.failed if self._pairs else "", "examples"),
        ):
            if failed:
                notes.append(f"{what} are missing: {failed}")
        if not self.options.values:
            notes.append("values of rows are left out (--no-samples)")
        elif not self.options.whole_values:
            notes.append(
                "values of rows, and parts of keys that may name a person, are masked (…): --samples shows them"
            )
        return list(dict.fromkeys(notes))


def _verified_s(runs: Sequence[RunReport]) -> float:
    """When the last verify began, if it found nothing, else 0."""
    clean = [run.started for run in runs if run.kind == "verify" and found_nothing(run)]
    return datetime.fromisoformat(clean[0]).timestamp() if clean else 0.0


def _last_runs(runs: Sequence[Run]) -> Mapping[str, Run]:
    """The last run of each kind; of verify the last full one, unless there were only samples."""
    last_runs: dict[str, Run] = {}
    for run in runs:
        last = last_runs.get(run.identity.kind)
        if last is None or not (
            run.identity.kind == "verify" and run.identity.scope and not last.identity.scope
        ):
            last_runs[run.identity.kind] = run
    return {kind: last_runs[kind] for kind in ("backfill", "verify", "relay") if kind in last_runs}
