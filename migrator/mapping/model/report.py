"""The model of a report: gathered by its stage, rendered from one model for terminals, programs and browsers.

All values are texts that may be shown: redacted or masked as required.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Literal, TypeVar

from msgspec import Struct

from migrator.mapping.model.capacity import Costs
from migrator.mapping.model.evidence import Side
from migrator.mapping.model.table import ItemKey

Standing = Literal["clean", "different", "unproven"]
"""`unproven`: nothing speaks against it, and not all that must speak for it does."""
Found = Literal[
    "verify", "backfill", "relay", "gone", "strip", "direct", "export", "import", "service", "replay"
]
"""The finder of a difference: a run over rows and items, reads of a service, or a replay."""


class Verdict(Struct, frozen=True):
    """`reasons`: one sentence each.
    `command`: the next one to run.
    """

    standing: Standing
    title: str
    reasons: Sequence[str]
    command: str
    purpose: str


# ── differences ──


class Cell(Struct, frozen=True):
    """One attribute on both sides; None if the side does not have it."""

    attribute: str
    sql: str | None
    item: str | None
    differs: bool


class ShownDifference(Struct, frozen=True):
    """`at`: seconds since 1970, 0 if unknown.
    `cells`: empty if no values are known.
    """

    group: str
    at: float = 0.0
    asked: Mapping[str, str] = {}
    row_key: str = ""
    item_key: str = ""
    cells: Sequence[Cell] = ()
    why: str = ""


class Group(Struct, frozen=True):
    """Differences of one kind.

    `where`: a pattern or an entity.
    `cause`: '' if unknown.
    `count`: of all, of which `differences` are some.
    `rows`: of a pattern, rows in `differences` (0: unknown, or a run found them row by row).
    `before_move`, `before_verify`: found before the pattern's last move, or before the last verify, which
    found nothing; they no longer block.
    `until`: when answers last showed it, seconds since 1970 or 0.
    """

    id: str
    found_by: Sequence[Found]
    where: str
    part: str
    kind: str
    attribute: str
    count: int
    cause: str
    advice: str
    differences: Sequence[ShownDifference] = ()
    before_move: bool = False
    before_verify: bool = False
    until: float = 0.0
    rows: int = 0

    @property
    def is_history(self) -> bool:
        return self.before_move or self.before_verify

    @property
    def is_of_answers(self) -> bool:
        return any(origin in ("service", "replay") for origin in self.found_by)

    @property
    def is_of_totals(self) -> bool:
        """Whether it is a count or a sum by plain SQL, which differs if any item of the entity does."""
        return self.kind in ("count", "sum")


class Refused(Struct, frozen=True):
    """Rows without items, by entity and reason."""

    entity: str
    reason: str
    count: int
    row_keys: Sequence[str]


# ── patterns ──


class Curve(Struct, frozen=True):
    """Latencies of one side: (percentile, ms) in rising order."""

    answers: int
    points: Sequence[tuple[float, float]]
    max_ms: float

    def at(self, percentile: float) -> float:
        """Milliseconds. Raises: KeyError for a percentile without a point."""
        return dict(self.points)[percentile]


class Coverage(Struct, frozen=True):
    """Comparisons of one kind of question: optional parameters that were set, how often, when last, and by which
    runs.
    """

    parameters: Sequence[str]
    compared: int
    age_s: float
    origins: Sequence[Found]


class PatternReport(Struct, frozen=True):
    """One access pattern, since its last move and by this revision of the mapping.

    `before_move`, `outdated`: earlier comparisons, and those of other revisions.
    `answered`, `errors`: by side, of callers and shadows.
    `mended`: different answers before the last verify, which found nothing; the last was at `mended_until`.
    `compared_after`: since that verify began.
    `coverage`, `latency`: of the whole time.
    `budget_ms`: limit of DynamoDB's p99.
    """

    name: str
    phase: str
    since: float
    compared: int = 0
    same: int = 0
    transient: int = 0
    different: int = 0
    mended: int = 0
    mended_until: float = 0.0
    compared_after: int = 0
    before_move: int = 0
    outdated: int = 0
    answered: Mapping[Side, int] = {}
    errors: Mapping[Side, int] = {}
    dropped: Mapping[str, int] = {}
    coverage: Sequence[Coverage] = ()
    latency: Mapping[Side, Curve] = {}
    budget_ms: float | None = None

    @property
    def differing(self) -> int:
        return self.different - self.mended

    @property
    def is_over_budget(self) -> bool:
        curve = self.latency.get("table")
        return self.budget_ms is not None and curve is not None and curve.at(99.0) > self.budget_ms

    @property
    def unsettled(self) -> int:
        return self.dropped.get("unsettled", 0) + self.dropped.get("ended", 0)

    @property
    def age_s(self) -> float | None:
        return min((line.age_s for line in self.coverage), default=None)


class Span(Struct, frozen=True):
    """Comparisons from `begun_at` (seconds since 1970) on."""

    begun_at: int
    same: int = 0
    transient: int = 0
    different: int = 0
    errors: int = 0

    @property
    def all(self) -> int:
        return self.same + self.transient + self.different + self.errors


class WorkSpan(Struct, frozen=True):
    """Writes of backfills and relays from `begun_at` on, and the longest lag."""

    begun_at: int
    items: int = 0
    write_units: float = 0.0
    lag_s: float = 0.0


AnySpan = TypeVar("AnySpan")


class Series(Struct, Generic[AnySpan], frozen=True):
    """Spans of `width_s` seconds each."""

    width_s: int
    spans: Sequence[AnySpan]


class PhaseMove(Struct, frozen=True):
    at: float
    pattern: str
    before: str
    after: str
    who: str
    reason: str
    override: bool


# ── the table ──


class Facet(Struct, frozen=True):
    entity: str
    type: str
    keys: Mapping[str, str]
    attributes: Sequence[str]


class SampleItem(Struct, frozen=True):
    """`key`: of the view that it is shown in.
    `attributes`: the others, with redacted ones as marks.
    """

    type: str
    key: Mapping[str, str]
    attributes: Mapping[str, str]


class ShownCollection(Struct, frozen=True):
    """Items with one partition key. `more`: further items of the rows that were read."""

    partition: str
    items: Sequence[SampleItem]
    more: int = 0


class View(Struct, frozen=True):
    """The table (`name` '') or an index. `more`: further collections of the rows that were read."""

    name: str
    partition: Sequence[str]
    sort: Sequence[str]
    projection: str
    facets: Sequence[Facet]
    collections: Sequence[ShownCollection] = ()
    more: int = 0

    def columns(self, type_: str) -> list[str]:
        items = [item for found in self.collections for item in found.items if item.type == type_]
        return list(dict.fromkeys(name for item in items for name in item.attributes))


# ── work ──


class RunReport(Struct, frozen=True):
    """The last run of a kind. `current`: made by the present mapping (None: unknown)."""

    kind: str
    number: int
    state: str
    started: str
    ended: str
    scope: str
    rows: int
    items: int
    refused: int
    findings: Mapping[str, int]
    current: bool | None


class InstanceReport(Struct, frozen=True):
    """An instance of a service.

    `fits`: its mapping is the job's.
    `silent`: it did not deregister.
    """

    service: str
    where: str
    role: str
    mode: str
    heard_s: float
    fits: bool
    silent: bool


class LagReport(Struct, frozen=True):
    """`waiting` None: capture is not installed, or `reason` shows why it is unknown. `open_findings`: of relays,
    by kind.
    """

    waiting: int | None = None
    oldest_s: float = 0.0
    failed: int = 0
    writers: Sequence[str] = ()
    reason: str = ""
    open_findings: Mapping[str, int] = {}


class ReportModel(Struct, frozen=True):
    """`made_at`: seconds since 1970 by the journal's clock.
    `since_s`: how far back comparisons are counted.
    `notes`: missing parts, and why.
    """

    job: str
    journal: str
    table: str
    revision: str
    version: str
    made_at: float
    since_s: float
    verdict: Verdict
    patterns: Sequence[PatternReport]
    moves: Sequence[PhaseMove]
    groups: Sequence[Group]
    timeline: Series[Span]
    work: Series[WorkSpan]
    costs: Costs
    lag: LagReport
    runs: Sequence[RunReport]
    refused: Sequence[Refused]
    instances: Sequence[InstanceReport]
    views: Sequence[View]
    notes: Sequence[str] = ()

    @property
    def standing(self) -> list[Group]:
        return [group for group in self.groups if not group.is_history]

    @property
    def items_differing(self) -> int:
        """Differences between rows and items, as verify counts them: without answers, which may show one item
        many times, and without totals. The page's template uses it.
        """
        of_items = (group for group in self.standing if not group.is_of_answers and not group.is_of_totals)
        return sum(group.count for group in of_items)

    @property
    def never_compared(self) -> list[str]:
        return [pattern.name for pattern in self.patterns if not pattern.compared]


# ── An item collection: stored items compared with those that rows make now ──

LookState = Literal[
    "same",
    "different",
    "missing",
    "unexpected",
    "foreign",
    "collision",
    "expired",
    "tombstone",
    "control",
    "direct",
]
"""The names that verify uses, and in addition: an item past its TTL, migrator's own items, and those that a service
writes."""
FINE: frozenset[LookState] = frozenset({"same", "expired", "tombstone", "control", "direct"})


class LookedItem(Struct, frozen=True):
    """One base key, with texts that may be shown.

    `row`: of `entity`, '' if unknown.
    `at`: the key of the collection's index.
    `reason`: verify's words, '' if cells show it.
    """

    state: LookState
    type: str
    at: Mapping[str, str]
    key: str
    entity: str
    row: str
    cells: Sequence[Cell]
    reason: str = ""


class ExampleItem(Struct, frozen=True):
    """`key`: as it may be shown.
    `base_key`: as it is.
    """

    type: str
    entity: str
    key: str
    base_key: ItemKey
    is_stored: bool


class LookReport(Struct, frozen=True):
    """An item collection of the table (`index` '') or an index, as it may be shown.

    `refused`: rows that may belong to it and make no item.
    `is_cut`: more items are stored.
    `notes`: unread parts, and why.
    """

    job: str
    table: str
    index: str
    partition: Mapping[str, str]
    items: Sequence[LookedItem]
    refused: Sequence[str] = ()
    is_cut: bool = False
    notes: Sequence[str] = ()

    @property
    def is_clean(self) -> bool:
        return not self.refused and all(item.state in FINE for item in self.items)

    @property
    def counts(self) -> dict[LookState, int]:
        states = [item.state for item in self.items]
        return {state: states.count(state) for state in sorted(set(states), key=lambda s: (s in FINE, s))}
