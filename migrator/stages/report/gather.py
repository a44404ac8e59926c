"""A report gathered: what the journal knows of a job, with examples read again from both sides."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from migrator.mapping.heart.items import CompiledEntity
from migrator.mapping.plan import columns_digest
from migrator.model.edges import ItemStore, Rows
from migrator.model.entities import Mapping as MappingModel
from migrator.model.evidence import Evidence, Phases
from migrator.model.instances import ServiceRegistry
from migrator.model.journal import FindingGroups, Journal, Run
from migrator.model.report import (
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
from migrator.model.table import TableDesign
from migrator.stages.report.differences import SHOWN_AT_MOST, Differences, Pairs, Place, place_of
from migrator.stages.report.shown import Showing, Windows, clipped
from migrator.stages.report.verdict import Circumstances, Standings, verdict_of
from migrator.stages.report.views import Views

_REFUSED_READ = 2_000
_KEYS_SHOWN = 3
_MOVES_SHOWN = 50


@dataclass(frozen=True)
class ReportOptions:
    """`since_s`: how far back comparisons are counted. `values`: whether rows are read, so that examples are shown at all;
    `whole_values`: whether their values are shown and not masked, and with them keys."""

    since_s: float = 86_400.0
    values: bool = True
    whole_values: bool = False
    whole_keys: bool = False


@dataclass(frozen=True)
class ReportRecords:
    """What the job's journal holds."""

    journal: Journal
    groups: FindingGroups
    evidence: Evidence
    phases: Phases


@dataclass(frozen=True)
class ReportSides:
    """The mapping, laid over the source where it can be asked; `source` and `store` None where they cannot.

    `table`: under the job's name for it. `notes`: why a side is not there.
    """

    mapping: MappingModel
    table: TableDesign
    entities: Sequence[CompiledEntity] = ()
    source: Rows | None = None
    store: ItemStore | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class ReportContext:
    """`job`: its name, `file`: as the user named it, `journal`: where it is. `version`: of migrator."""

    job: str
    file: str
    journal: str
    version: str
    service_registry: ServiceRegistry
    lag: LagReport


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
        windows = Windows(kept, self.sides.mapping.revision, now_s, phases)
        patterns = windows.patterns(self.sides.mapping.patterns)
        budgets = {name: one.p99_ms for name, one in self.sides.mapping.patterns.items()}
        patterns = [replace(one, budget_ms=budgets[one.name]) for one in patterns]
        groups, refused = self._groups(windows, since), self._refused()
        runs = [self._run(one) for one in self._runs.values()]
        views = Views(self.sides.mapping, self.sides.entities, self._showing, self._sampled())
        shown = [self._showing.view(one) for one in views.all()]
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
        entities = {one.name: one for one in sides.entities}
        return Pairs(sides.source, sides.store, entities, sides.table, self._showing)

    def _sampled(self) -> Rows | None:
        return self.sides.source if self.options.values else None

    def _groups(self, windows: Windows, since: float) -> list[Group]:
        """The most numerous first, those of shadow reads before those of runs; last those from before a pattern's move."""
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
        samples = [
            one for one in self.records.evidence.samples() if one.at >= since and one.revision == revision
        ]
        found = made.of_windows(windows, samples)
        left = SHOWN_AT_MOST - sum(len(one.differences) for one in found)
        told: set[Place] = set()
        for run in self._looked_runs():
            of_run = list(made.of_run(run, self.records.groups, max(0, left), told))
            told |= self._places(run)
            left -= sum(len(one.differences) for one in of_run)
            found += of_run
        # Causes are told by whole values, so these give way to masks only now.
        named = [
            replace(
                one,
                advice=one.advice.replace("JOB", self.around.file),
                differences=[self._showing.difference(difference) for difference in one.differences],
            )
            for one in found
        ]
        return sorted(named, key=lambda one: (one.before_move, -one.count))

    def _places(self, run: Run) -> set[Place]:
        """Of the first findings of the run that one of another run may be, too."""
        groups = self.records.groups
        found = (groups.some(run, group, SHOWN_AT_MOST) for group in groups.groups(run))
        return {place_of(one) for some in found for one in some}

    def _looked_runs(self) -> list[Run]:
        """The last runs of each kind; a backfill before the last verify is told by that verify."""
        verify = self._runs.get("verify")
        return [
            run
            for kind, run in self._runs.items()
            if kind != "backfill" or verify is None or verify.id < run.id or verify.state != "done"
        ]

    def _refused(self) -> list[Refused]:
        found: dict[tuple[str, str], Refused] = {}
        for run in self._looked_runs():
            for group in self.records.groups.groups(run):
                if group.kind == "refused":
                    of_group = self.records.groups.some(run, group, _REFUSED_READ)
                    reasons: dict[str, list[str]] = defaultdict(list)
                    for one in of_group:
                        reason = self._showing.key(one.reason, one.source_key or "[]")
                        reasons[reason].append(self._showing.key(one.source_key))
                    for reason, keys in reasons.items():
                        # What was not read is counted to the reason that is most of what was.
                        more = (
                            group.count - len(of_group) if len(keys) == max(map(len, reasons.values())) else 0
                        )
                        shown = Refused(group.entity, clipped(reason), len(keys) + more, keys[:_KEYS_SHOWN])
                        found.setdefault((group.entity, reason), shown)
        return sorted(found.values(), key=lambda one: -one.count)

    # ── the rest ──

    def _verdict(
        self,
        groups: Sequence[Group],
        refused: Sequence[Refused],
        patterns: Sequence[PatternReport],
        runs: Sequence[RunReport],
    ) -> Verdict:
        return verdict_of(Standings(self.around.file, groups, refused, patterns, runs, self.around.lag))

    def _run(self, run: Run) -> RunReport:
        tally = self.records.journal.tally(run)
        plans = [entity.plan for entity in self.sides.entities]
        known = run.identity.kind == "verify" and bool(plans)
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
            if known
            else None,
        )

    def _counts(self, run: Run) -> dict[str, int]:
        """Findings per kind, as the differences of the report count them: of relays those that are open."""
        counted: Counter[str] = Counter()
        for group in self.records.groups.groups(run):
            counted[group.kind] += group.count
        return dict(counted)

    def _moves(self) -> list[PhaseMove]:
        history = list(self.records.phases.history())[-_MOVES_SHOWN:]
        return [
            PhaseMove(
                one.at,
                one.pattern,
                str(one.before),
                str(one.after),
                one.who,
                clipped(one.reason),
                one.override,
            )
            for one in reversed(history)
        ]

    def _instances(self) -> list[InstanceReport]:
        service_registry = self.around.service_registry
        return [
            InstanceReport(
                service=" ".join(filter(None, (one.service, one.version))),
                where=f"{one.host}:{one.pid}",
                role=one.role,
                mode=one.mode,
                heard_s=service_registry.age_s(one),
                fits=one.revision == self.sides.mapping.revision,
                silent=one in service_registry.silent,
            )
            for one in (*service_registry.living, *service_registry.silent)
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


def _last_runs(runs: Sequence[Run]) -> Mapping[str, Run]:
    """The last run of each kind; of verify the last whole one, unless there were samples alone."""
    found: dict[str, Run] = {}
    for run in runs:
        known = found.get(run.identity.kind)
        if known is None or not (
            run.identity.kind == "verify" and run.identity.scope and not known.identity.scope
        ):
            found[run.identity.kind] = run
    return {kind: found[kind] for kind in ("backfill", "verify", "relay") if kind in found}
