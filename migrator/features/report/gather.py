"""Gathers a report: a job's records in the journal, with examples read again from both sides."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from typing import TypeAlias

from msgspec import Struct

from migrator.features.report.causes import pairs_of
from migrator.features.report.verdict import (
    SINCE_GONE,
    Cause,
    Circumstances,
    Standings,
    cause_of,
    found_nothing,
    verdict_of,
)
from migrator.journal.runs import SqlJournal
from migrator.mapping.difference.difference import answer_digests
from migrator.mapping.items.items import CompiledEntity, items_for
from migrator.mapping.language.plan import columns_digest
from migrator.mapping.model.capacity import SECONDS_A_MONTH, Capacity, Costs, PatternCost
from migrator.mapping.model.edges import ItemStore, Rows
from migrator.mapping.model.evidence import DiffKey, Evidence, Phases, Sample, Side
from migrator.mapping.model.instances import ServiceRegistry, WorkMinute
from migrator.mapping.model.journal import Finding, FindingGroup, Run, Tally
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.report import (
    Cell,
    Found,
    Group,
    InstanceReport,
    LagReport,
    PhaseMove,
    Refused,
    ReportModel,
    RunReport,
    ShownDifference,
)
from migrator.mapping.model.table import Item, ItemKey, TableDesign, item_key_of
from migrator.mapping.patterns.diff import equal
from migrator.runtime.errors import Interrupted, MigratorError, RowError
from migrator.runtime.values import replace
from migrator.stages.design.shown import Age, Counted, Showing, Windows, clipped, work_series
from migrator.stages.design.sizing import SampleBounds
from migrator.stages.design.views import Views

# ── Groups of recorded differences, with example rows and items side by side ──


# ── The row and the item of a finding, read again and shown side by side ──


@dataclass
class Pairs:
    """Current values of both sides: a difference that has gone since shows no differing cell.

    `entities`: by name.
    `failed`: why reading was given up; nothing is read afterwards.
    """

    source: Rows
    store: ItemStore
    entities: Mapping[str, CompiledEntity]
    table: TableDesign
    showing: Showing
    failed: str = ""

    def cells(self, finding: Finding) -> list[Cell] | None:
        """The row's and the item's value by attribute; empty if neither exists, None if they cannot be read."""
        entity = self.entities.get(finding.entity)
        if entity is None or not finding.item_key or self.failed:
            return None
        try:
            key = item_key_of(finding.item_key, self.table)
            expected, stored = self._expected(entity, finding, key), self.store.get([key]).get(key)
        except Interrupted:
            raise
        except MigratorError as error:
            self.failed = str(error)
            return None
        except (ValueError, KeyError, TypeError):
            return None  # the finding is of another mapping: its key has other parts than this table's
        return self._side_by_side(entity, expected, stored)

    def _expected(self, entity: CompiledEntity, finding: Finding, key: ItemKey) -> Item | None:
        rows = self.source.read_rows(entity.plan, [finding.source_key]) if finding.source_key else []
        try:
            made = [item for row in rows for item in items_for(entity, row)]
        except RowError:
            return None
        return next((item for item in made if self.table.key_of(item) == key), None)

    def _side_by_side(self, entity: CompiledEntity, expected: Item | None, stored: Item | None) -> list[Cell]:
        if stored is not None and self.table.is_hidden(stored):
            stored = None
        sql = {} if expected is None else self.showing.item(entity.name, expected)
        item = {} if stored is None else self.showing.item(entity.name, stored)
        return [
            Cell(name, sql.get(name), item.get(name), _pair_differs(name, expected, stored))
            for name in sql | item
        ]


def _pair_differs(name: str, expected: Item | None, stored: Item | None) -> bool:
    if expected is None or stored is None or (name in expected) != (name in stored):
        return True
    return not equal(expected[name], stored[name])


# ── Groups of differences found by shadow reads, replays and runs, with examples side by side ──

Place: TypeAlias = tuple[str, ...]
_Kind: TypeAlias = tuple[str, DiffKey]
"""The pattern of a difference and the key by which its windows count it."""
SHOWN_AT_MOST = 5_000
"""Differences of one report; the rest is counted."""
_OF_ITEMS = ("missing", "unexpected", "different")
"""Kinds of findings about one row and one item, which are gone when the two agree."""
_AGES: tuple[Age, ...] = ("standing", "verified", "moved")
_WHEN: Mapping[Age, str] = {"standing": "", "verified": "verified", "moved": "before"}
_LOOKED_UP = 5
"""The most findings of a group whose row and item are read again, to show both sides."""


class Differences(Struct, frozen=True):
    """`values`: whether row values may be shown at all. `pairs`: None if rows and items cannot be read."""

    showing: Showing
    around: Circumstances
    values: bool = True
    pairs: Pairs | None = None

    # ── differences of shadow reads and replays ──

    def of_windows(self, windows: Windows, samples: Sequence[Sample]) -> list[Group]:
        by_age = {age: windows.differences(age) for age in _AGES}
        of_age: dict[tuple[_Kind, Age], list[Sample]] = defaultdict(list)
        for sample in samples:
            kind = sample.pattern, sample.key
            own = windows.age_of(*kind, sample.at)
            # Windows are minutes: one that began before a verify may have ended after it, and counts.
            ages = (own,) if own == "moved" else (own, *_AGES)
            of_age[kind, next((age for age in ages if kind in by_age[age]), own)].append(sample)
        groups: dict[tuple[_Kind, Age], Group] = {}
        for age, counted in by_age.items():
            for kind, counts in counted.items():
                is_first = not any((kind, other) in groups for other in _AGES)
                made = self._of_pattern(kind, counts, of_age[kind, age], "" if is_first else _WHEN[age])
                groups[kind, age] = replace(
                    made, before_move=age == "moved", before_verify=age == "verified", until=counts.until
                )
        return list(groups.values())

    def _of_pattern(self, kind: _Kind, counts: Counted, samples: Sequence[Sample], when: str = "") -> Group:
        """`when`: distinguishes the group from another one of its kind."""
        pattern, key = kind
        both = [
            (sample.attributes, sample.row, sample.item)
            for sample in samples
            if sample.row is not None and sample.item is not None
        ]
        # Several answers that show the same row are evidence of one row only.
        rows = len({sample.subject for sample in samples}) if all(sample.subject for sample in samples) else 0
        around = replace(self.around.of(max((sample.at for sample in samples), default=None)), rows=rows)
        cause = cause_of(key.kind, key.attribute, list(pairs_of(key.attribute, both)), around)
        id_ = _id("pattern", pattern, key.kind, key.part, key.attribute, *filter(None, [when]))
        origins: list[Found] = [origin for origin in ("service", "replay") if counts.by_origin[origin]]
        made = Group(
            id=id_,
            found_by=origins,
            where=pattern,
            part=key.part,
            kind=key.kind,
            attribute=key.attribute,
            count=counts.by_origin.total(),
            cause=cause.likely,
            advice=cause.advice,
            rows=rows,
        )
        return replace(made, differences=[self._of_sample(id_, sample) for sample in samples])

    def _of_sample(self, group: str, sample: Sample) -> ShownDifference:
        if not self.values:
            return ShownDifference(group, sample.at, why=sample.why)
        sql, item = (self._shown_side(sample, side) for side in (sample.row, sample.item))
        cells = [
            Cell(name, sql[place], item[place], _differs(sample, name, place))
            for place, name in enumerate(sample.attributes)
        ]
        shown = cells if sample.row is not None or sample.item is not None else []
        return ShownDifference(group, sample.at, self._params(sample), cells=shown, why=sample.why)

    def _shown_side(self, sample: Sample, texts: Sequence[str] | None) -> Sequence[str | None]:
        if texts is None:
            return [None] * len(sample.attributes)
        return self.showing.sample(sample.pattern, sample.attributes, texts)

    def _params(self, sample: Sample) -> dict[str, str]:
        names = list(sample.params)
        return dict(
            zip(names, self.showing.sample(sample.pattern, names, list(sample.params.values())), strict=True)
        )

    # ── differences of runs ──

    def of_run(
        self,
        run: Run,
        journal: SqlJournal,
        limit: int = SHOWN_AT_MOST,
        other_places: Collection[Place] = (),
    ) -> Iterator[Group]:
        """A group for each kind of finding except refused rows.

        `limit`: of differences in all groups.
        `other_places`: differences of another run, which are left out.
        """
        counted = [group for group in journal.finding_groups(run) if group.kind != "refused"]
        for place, group in enumerate(counted):
            share = max(_LOOKED_UP, limit // (len(counted) - place))
            findings = journal.findings_of(run, group, min(share, max(0, limit)))
            limit -= len(findings)
            new = [finding for finding in findings if place_of(finding) not in other_places]
            if count := group.count - len(findings) + len(new):
                yield self._of_group(run, replace(group, count=count), new)

    def _of_group(self, run: Run, group: FindingGroup, findings: Sequence[Finding]) -> Group:
        id_ = _id(run.identity.kind, group.entity, group.kind, "", group.attribute)
        looked_up = findings[:_LOOKED_UP] if self.values and self.pairs is not None else []
        seen = [self.pairs.cells(finding) for finding in looked_up] if self.pairs is not None else []
        around = replace(self.around.of(_ended_s(run)), of_pattern=False)
        cause = self._cause_now(group, [cells for cells in seen if cells is not None], around)
        cells = [pair_cells or [] for pair_cells in seen] + [[]] * (len(findings) - len(seen))
        return Group(
            id=id_,
            found_by=[run.identity.kind],
            where=group.entity,
            part="",
            kind=group.kind,
            attribute=group.attribute,
            count=group.count,
            cause=cause.likely,
            advice=cause.advice,
            differences=[
                self._of_finding(id_, finding, row) for finding, row in zip(findings, cells, strict=True)
            ],
        )

    def _cause_now(
        self, group: FindingGroup, looked_up: Sequence[Sequence[Cell]], around: Circumstances
    ) -> Cause:
        """Cause by the current values; values that agree by now do not show why they differed."""
        name = group.attribute
        compared = [
            [cell for cell in cells if name in ("", cell.attribute)]
            for cells in looked_up
            # Some attributes are never shown, so whether they still differ is not known.
            if not cells or not name or any(cell.attribute == name for cell in cells)
        ]
        differing = [cell for cells in compared for cell in cells if cell.differs]
        if compared and not differing and group.kind in _OF_ITEMS:
            return SINCE_GONE
        pairs = [(cell.sql or "null", cell.item or "null") for cell in differing if name]
        return cause_of(group.kind, name, pairs, around)

    def _of_finding(self, group: str, finding: Finding, cells: Sequence[Cell]) -> ShownDifference:
        show = self.showing
        why = f"{finding.item_type}: {finding.reason}" if finding.item_type else finding.reason
        return ShownDifference(
            group,
            row_key=clipped(show.key(finding.source_key)),
            item_key=clipped(show.key(finding.item_key, finding.source_key or "[]")),
            cells=cells,
            why=clipped(show.key(why, finding.source_key or "[]")),
        )


def place_of(finding: Finding) -> Place:
    """The fields that are equal when two runs find the same difference."""
    return finding.kind, finding.entity, finding.source_key, finding.item_key, finding.attribute


def _ended_s(run: Run) -> float:
    """End of the run in seconds since 1970; for an unended run its start, as findings may be that old."""
    return datetime.fromisoformat(run.ended_at or run.started_at).timestamp()


def _differs(sample: Sample, name: str, place: int) -> bool:
    if sample.row is None or sample.item is None:
        return True
    return (
        sample.row[place] != sample.item[place] if not sample.key.attribute else name == sample.key.attribute
    )


def _id(*words: str) -> str:
    """A short id, the same for a kind of difference in every report, so that links stay valid."""
    return f"g-{blake2b(repr(words).encode(errors='surrogatepass'), digest_size=5).hexdigest()}"


_REFUSED_READ = 2_000
_KEYS_SHOWN = 3
_MOVES_SHOWN = 50


class ReportOptions(Struct, frozen=True):
    """`since_s`: how far back comparisons count.
    `values`: whether rows are read for examples.
    `whole_values`: whether their values and keys are unmasked.
    """

    since_s: float = 86_400.0
    values: bool = True
    whole_values: bool = False
    whole_keys: bool = False


class ReportRecords(Struct, frozen=True):
    """The job and its records in the journal.

    `file`: as the user named it. `journal`: its location. `version`: of migrator.
    `minutes`: progress of processes in each minute since a time.
    `comparisons_min`: answers that a move needs.
    """

    job: str
    file: str
    journal: str
    version: str
    service_registry: ServiceRegistry
    lag: LagReport
    runs: Sequence[Run]
    tally: Callable[[Run], Tally]
    findings: SqlJournal
    evidence: Evidence
    phases: Phases
    minutes: Callable[[float], Sequence[WorkMinute]]
    comparisons_min: int = 200


class ReportSides(Struct, frozen=True):
    """`source`, `store`: None if unreachable.
    `table`: with the job's name for it.
    `capacity`: measured on rows of the source, or None.
    `notes`: why a side is missing.
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


class Report:
    def __init__(self, records: ReportRecords, sides: ReportSides, options: ReportOptions) -> None:
        self.records = records
        self.sides = sides
        self.options = options
        plans = [entity.plan for entity in sides.entities]
        whole_keys = options.whole_keys or options.whole_values
        self._showing = Showing(
            sides.mapping, plans, whole_keys=whole_keys, whole_values=options.whole_values
        )
        self._runs = _last_runs(records.runs)
        self._pairs = self._open_pairs()

    def is_empty(self) -> bool:
        evidence = self.records.evidence
        return not (self._runs or evidence.windows(0.0) or self.records.phases.all())

    def gather(self) -> ReportModel:
        """Raises: StoppedError if the journal is unreachable."""
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
        refused = self._refused()
        groups = self._groups(windows, since, sum(one.count for one in refused))
        job, lag = self.records, self.records.lag
        standings = Standings(
            job.file, groups, refused, patterns, runs, lag, job.comparisons_min, self.sides.away
        )
        sampled = self.sides.source if self.options.values else None
        views = Views(self.sides.mapping, self.sides.entities, self._showing, sampled)
        shown = [self._showing.view(view) for view in views.all()]
        return ReportModel(
            job=job.job,
            journal=job.journal,
            table=self.sides.table.name,
            revision=self.sides.mapping.revision,
            version=job.version,
            made_at=now_s,
            since_s=self.options.since_s,
            verdict=verdict_of(standings),
            patterns=patterns,
            moves=self._moves(),
            groups=groups,
            timeline=windows.timeline(since),
            work=work_series(self.records.minutes(since), since, now_s),
            costs=costs_of(self.sides.capacity, windows, since, list(self.sides.mapping.patterns)),
            lag=lag,
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

    def _groups(self, windows: Windows, since: float, refused: int) -> list[Group]:
        """Most differences first, shadow reads before runs, and history last."""
        lag, backfill = self.records.lag, self._runs.get("backfill")
        around = Circumstances(
            waiting=lag.waiting or 0,
            backfilled=backfill is not None and backfill.state == "done",
            captured=lag.waiting is not None,
            oldest_s=lag.oldest_s,
            now_s=windows.now_s,
            refused=refused,
        )
        made = Differences(self._showing, around, self.options.values, self._pairs)
        revision = self.sides.mapping.revision
        samples = [sample for sample in windows.samples if sample.at >= since and sample.revision == revision]
        groups = made.of_windows(windows, samples)
        left = SHOWN_AT_MOST - sum(len(group.differences) for group in groups)
        seen_places: set[Place] = set()
        for run in self._looked_runs():
            of_run = list(made.of_run(run, self.records.findings, max(0, left), seen_places))
            seen_places |= self._places(run)
            left -= sum(len(group.differences) for group in of_run)
            groups += of_run
        # Causes are found from whole values, so masking comes last.
        named = [
            replace(
                group,
                advice=group.advice.replace("JOB", self.records.file),
                differences=[self._showing.difference(difference) for difference in group.differences],
            )
            for group in groups
        ]
        return sorted(named, key=lambda group: (group.is_history, -group.count))

    def _places(self, run: Run) -> set[Place]:
        journal = self.records.findings
        groups = journal.finding_groups(run)
        findings = (journal.findings_of(run, group, SHOWN_AT_MOST) for group in groups)
        return {place_of(finding) for some in findings for finding in some}

    def _looked_runs(self) -> list[Run]:
        """The last runs of each kind, without a backfill whose findings a later verify replaced."""
        verify = self._runs.get("verify")
        return [
            run
            for kind, run in self._runs.items()
            if kind != "backfill" or verify is None or verify.id < run.id or verify.state != "done"
        ]

    def _refused(self) -> list[Refused]:
        by_reason: dict[tuple[str, str], Refused] = {}
        for run in self._looked_runs():
            for group in self.records.findings.finding_groups(run):
                if group.kind == "refused":
                    of_group = self.records.findings.findings_of(run, group, _REFUSED_READ)
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

    def _run(self, run: Run) -> RunReport:
        tally, findings = self.records.tally(run), self._counts(run)
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
            # A relay refuses rows of marks, and keeps no tally of them.
            refused=max(tally.refused, findings.get("refused", 0)),
            findings=findings,
            current=run.identity.revision == columns_digest(self.sides.mapping.revision, plans)
            if is_comparable
            else None,
        )

    def _counts(self, run: Run) -> dict[str, int]:
        counted: Counter[str] = Counter()
        for group in self.records.findings.finding_groups(run):
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
        service_registry = self.records.service_registry
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
            notes.append("values of rows are left out (--no-values)")
        elif not self.options.whole_values:
            notes.append(
                "values of rows, and parts of keys that may name a person, are masked (…): --show-values shows them"
            )
        return list(dict.fromkeys(notes))


def _verified_s(runs: Sequence[RunReport]) -> float:
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


# ── Costs ──


LIGHT = SampleBounds(rows_exact=2_000, sampled=1_000, calls=20)
"""A report is made often, and reads less than a plan."""
_LEAST_S = 60.0


def costs_of(capacity: Capacity | None, windows: Windows, since: float, patterns: Sequence[str]) -> Costs:
    """`capacity`: measured on some rows; None if the source was unreachable.

    Counts services' calls since the pattern's last move, within the report's time; without calls, the
    mapping's frequency.
    """
    if capacity is None:
        return Costs(why="rows of the source were not read")
    reads, price = {one.pattern: one for one in capacity.patterns}, capacity.usd_a_million_reads
    costs = []
    for name in patterns:
        measured = reads.get(name)
        units = measured.units if measured is not None and measured.calls else None
        now, full = _rates(windows, name, since)
        if full is None and measured is not None:
            full = measured.calls_per_s
        monthly = _monthly(units, price)
        costs.append(PatternCost(name, units, now, full, monthly(now), monthly(full)))
    largest = [place for place in capacity.places if place.hottest]
    return Costs(
        costs, largest, capacity.exact, capacity.bills.source, capacity.bills.why if price is None else ""
    )


def _monthly(units: float | None, price: Decimal | None) -> Callable[[float | None], float | None]:
    def usd(calls_per_s: float | None) -> float | None:
        if units is None or price is None or calls_per_s is None:
            return None
        return units * calls_per_s * SECONDS_A_MONTH * float(price) / 1_000_000

    return usd


def _rates(windows: Windows, pattern: str, since: float) -> tuple[float | None, float | None]:
    """(DynamoDB calls per second, the same if it answered all), None if no service called.

    Each side is called at most once per call, so the side with the most calls was called for each.
    """
    seen = [
        window
        for window in windows.all
        if window.pattern == pattern
        and window.origin == "service"
        and windows.is_since_move(pattern, window.begun_at)
    ]
    if not seen:
        return None, None
    lasted_s = max(_LEAST_S, windows.now_s - max(since, min(window.begun_at for window in seen)))
    calls: Counter[Side] = Counter()
    for window in seen:
        calls.update(Counter(window.answered) + Counter(window.errors))
    if not calls:
        return None, None
    return calls["table"] / lasted_s, max(calls.values()) / lasted_s
