"""Requests of access patterns, and results of stages and replays, for output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any, Literal

from msgspec import Struct

from migrator.mapping.model.evidence import Diff, DiffKey, Side
from migrator.mapping.model.journal import Finding, Run, Tally
from migrator.mapping.model.live import KeyRequest, Root
from migrator.mapping.model.mapping import Operation, Part, Pattern
from migrator.mapping.model.report import Curve
from migrator.mapping.model.table import Item, ItemKey

# ── The request to DynamoDB for an access pattern ──


class Nearby(Struct, frozen=True):
    """A circle around a place in degrees, and the attributes of an item's place; latitude first."""

    origin: tuple[float, float]
    at: tuple[str, str]
    within_m: float


class Request(Struct, frozen=True):
    """A request to DynamoDB, as plain data; `sent` may be empty if nothing can match.

    `sent`: parameters of Query, GetItem or BatchGetItem calls, with plain values and without the table's
    name. Several GetItem calls are of copies of one item, and one is sent. Items of several queries are
    merged by `sort` (names of attributes), each `key` (the table's) once.
    `limit`: maximum items of the answer, counted by us, over pages and after filters.
    """

    operation: Operation
    sent: tuple[dict[str, Any], ...]
    key: tuple[str, ...]
    sort: tuple[str, ...] = ()
    descending: bool = False
    limit: int | None = None
    near: Nearby | None = None
    type_attribute: str = ""
    """The attribute that identifies migrator's own items (see TableDesign.is_hidden), which are not in the answer."""
    ttl_attribute: str | None = None
    """The attribute that shows which items have expired: DynamoDB deletes them late, and no answer holds them."""

    @property
    def calls(self) -> int:
        return len(self.sent[:1] if self.operation == "get" else self.sent)


# ── Results of stages, shown by report ──

Rows = list[tuple[Any, ...]]


class BackfillResult(Struct, frozen=True):
    """The journal's totals, resumed parts included. `findings`: by kind."""

    run: Run
    entities: Mapping[str, Tally]
    total: Tally
    findings: Mapping[str, int]
    took_s: float


class Explained(Struct, frozen=True):
    """A database's plan for one SELECT of a page, and the tables that it reads as a whole."""

    what: str
    lines: tuple[str, ...]
    whole_tables: tuple[str, ...] = ()


class NotCompared(Struct, frozen=True):
    """An item type or attribute without a total from SQL, and why."""

    what: str
    why: str


class SampleSize(Struct, frozen=True):
    """A `share` of each entity's rows, or a number of `rows` in all; the `seed` chooses which."""

    seed: int
    share: Fraction | None = None
    rows: int | None = None

    def wanted(self, rows: int, total: int) -> int:
        """How many of an entity's `rows` to read, if all have `total`; at least one, if any exists."""
        share = Fraction(self.rows or 0, max(1, total)) if self.share is None else self.share
        return min(rows, max(1, ceil(rows * share))) if rows else 0

    def __str__(self) -> str:
        return f"{self.rows} rows" if self.share is None else f"{float(self.share * 100):g}%"


class StoredRead(Struct, frozen=True):
    """How a verify reads stored items. `why`: not in one scan; or ''."""

    way: Literal["one scan", "keys"]
    why: str = ""

    def __str__(self) -> str:
        if self.way == "one scan":
            return "stored items: one scan, compared by digests"
        return f"stored items: each by its key; {self.why}"


class VerifyResult(Struct, frozen=True):
    """`scanned`: items of the table.
    `findings`: by kind.
    `not_compared`: totals without a comparison, and why.
    `not_proven`: tables with rows that this user may not see, and why.
    `sample`: only its rows were compared, neither the table nor totals.
    """

    run: Run
    entities: Mapping[str, Tally]
    total: Tally
    scanned: int
    findings: Mapping[str, int]
    not_compared: Sequence[NotCompared]
    took_s: float
    stored: StoredRead
    sample: SampleSize | None = None
    not_proven: Sequence[NotCompared] = ()
    confirmed: Mapping[Root, set[ItemKey]] = {}
    """Live sources only: roots that still differ when compared again, with the item keys in question."""


CheckState = Literal["ok", "warning", "failed"]


class Check(Struct, frozen=True):
    """One requirement of a run, and how to fix it ('' if fulfilled)."""

    name: str
    state: CheckState
    what: str
    mend: str = ""


@dataclass(frozen=True)
class UndoCounts:
    """The job's items per (entity, item type); `gone` ones; items of `others`, which stay."""

    types: Counter[tuple[str, str]] = field(default_factory=Counter)
    gone: int = 0
    others: int = 0

    @property
    def items(self) -> int:
        return self.types.total()


@dataclass(frozen=True)
class RowTraces:
    """Traces of a row to forget.

    `is_there`: in the source.
    `waiting`: marks for a relay.
    `hopeless`: ids of failed ones.
    `items`: live ones.
    `kept`: in the journal, by kind; `page_bounds` there stay.
    `seen_s`, `ticket`: the journal's time after source and marks were read, and the highest ticket before.
    """

    is_there: bool
    waiting: int
    hopeless: tuple[int, ...]
    items: int
    tombstones: tuple[Item, ...] = field(repr=False)
    kept: Mapping[str, int]
    page_bounds: int
    seen_s: float
    ticket: int

    @property
    def counts(self) -> dict[str, int]:
        return {"marks": len(self.hopeless), **self.kept, "tombstones": len(self.tombstones)}


class Forgotten(Struct, frozen=True):
    """Removed traces by kind.

    `young`: tombstones that must stay for `ripe_in_s` seconds.
    `is_late`: a writer still writes a row read before its deletion, or the row has come back: the needed
    traces stay.
    """

    gone: Mapping[str, int]
    young: int
    ripe_in_s: float
    is_late: bool

    @property
    def is_all(self) -> bool:
        return not (self.young or self.is_late)


class PartAnswer(Struct, frozen=True):
    """One part of an answer from both sides, in the order of `part.attributes`.

    `several`: more than one came for a part with `one: true`, which is also a difference.
    `compared`: attributes in the order of `diffs`' rows.
    """

    part: Part
    items: Rows
    rows: Rows
    same: bool
    several: bool = False
    diffs: tuple[Diff, ...] = ()
    compared: tuple[str, ...] = ()


class SideAnswer(Struct, frozen=True):
    """Rows of one side by part, with its costs: requests or statements, and milliseconds."""

    rows: Mapping[str, Rows]
    round_trips: int
    ms: float


class TableAnswer(SideAnswer, frozen=True):
    """`reported_units`: from the endpoint, or 0."""

    request: Request
    reported_units: float


class Answer(Struct, frozen=True):
    """A pattern's answer from both sides, with its costs.

    `read_units`: by the sizes of items.
    `dropped`: items that a filter left out after they were read.
    """

    pattern: Pattern
    parts: tuple[PartAnswer, ...]
    table: TableAnswer
    sql: SideAnswer
    read_units: float
    dropped: int = 0

    @property
    def same(self) -> bool:
        return all(part.same for part in self.parts)


# ── live change ──


@dataclass
class Refreshed:
    """Result of a refresh.

    `collisions`: roots that want a key of another row.
    `apart`: findings of roots with too many items to be written together.
    `tickets`: of the last read of each root.
    `findings`: of all three, when the refresh is done.
    """

    roots: int = 0
    stored: int = 0
    buried: int = 0
    newer: int = 0
    refused: list[Finding] = field(default_factory=list)
    collisions: set[KeyRequest] = field(default_factory=set)
    apart: dict[Finding, None] = field(default_factory=dict)
    tickets: dict[Root, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


@dataclass
class Worked:
    """Result of one take of marks. `changes`: table (or entity) of each finished mark, and seconds since its
    change.
    """

    taken: int = 0
    finished: int = 0
    advanced: int = 0
    put_back: int = 0
    refreshed: list[Refreshed] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    changes: list[tuple[str, float]] = field(default_factory=list)


class Hidden(Struct, frozen=True):
    """Hidden attributes and parameters of one pattern."""

    attributes: frozenset[str] = frozenset()
    params: frozenset[str] = frozenset()


# ── Results of a replay, shown by report ──


class Example(Struct, frozen=True):
    """One difference with the parameters that show it.

    `compared`: attributes of `diff`'s rows.
    `diff`: None for an error, `why` is its message.
    """

    params: Mapping[str, str]
    compared: Sequence[str] = ()
    diff: Diff | None = None
    why: str = ""


@dataclass
class PatternReplay:
    """Result of replaying one pattern.

    `origins`: sources of parameters, in words.
    `kinds`: samples by optional parameters that were set.
    `absent`: for keys that do not exist.
    `empty`: without an answer on both sides.
    `found`: differences, of which one sample may have many.
    `examples`: a few of each.
    `failed`: those of `different` with an error on one side, by optional parameters.
    `histograms`: latencies as text (see stages/patterns/latencies.py).
    `missing_why`: why there are fewer samples than wanted.
    """

    pattern: Pattern
    samples: int = 0
    origins: Mapping[str, str] = field(default_factory=dict)
    hidden: Hidden = Hidden()
    kinds: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    absent: int = 0
    same: int = 0
    empty: int = 0
    transient: int = 0
    different: int = 0
    found: Counter[DiffKey] = field(default_factory=Counter)
    examples: dict[DiffKey, list[Example]] = field(default_factory=dict)
    failed: Counter[tuple[str, ...]] = field(default_factory=Counter)
    latency: dict[Side, Curve] = field(default_factory=dict)
    histograms: dict[Side, str] = field(default_factory=dict)
    missing_why: str = ""


class ReplayResult(Struct, frozen=True):
    """`control`: SQL was compared with SQL.
    `lag_s`: age of the oldest pending change when differences were counted.
    """

    patterns: Sequence[PatternReplay]
    seed: int
    control: bool
    took_s: float
    lag_s: float = 0.0

    @property
    def clean(self) -> bool:
        return not self.different and not self.not_proven

    @property
    def different(self) -> int:
        return sum(pattern.different for pattern in self.patterns)

    @property
    def not_proven(self) -> list[str]:
        """Patterns without any question: neither proven nor disproven."""
        return [
            pattern.pattern.name for pattern in self.patterns if not pattern.samples and pattern.missing_why
        ]


class Proof(Struct, frozen=True):
    """Result of trying a proposed mapping on some rows.

    `apart`: why patterns were not tried.
    `refused`: rows without items by entity, and why the first has none.
    `missing`: why nothing was tried, or ''.
    """

    replays: Mapping[str, PatternReplay] = {}
    apart: Mapping[str, str] = {}
    refused: Mapping[str, tuple[int, str]] = {}
    missing: str = ""

    @property
    def clean(self) -> bool:
        return not self.refused and not any(replay.different for replay in self.replays.values())

    def difference(self, pattern: str) -> str:
        replay = self.replays.get(pattern)
        if replay is None or not replay.different:
            return ""
        kinds = sorted({" ".join(filter(None, (kind.kind, kind.attribute))) for kind in replay.found})
        return f"{replay.different} of {replay.samples} answers differ from SQL's ({', '.join(kinds)})"
