"""Ports of the journal: runs, pages, findings and their groups, leases."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, Protocol

from msgspec import Struct

from migrator.mapping.model.table import ItemKey, SourceKey
from migrator.runtime.values import Summed

# ── The journal as the stages see it: runs, pages, findings, and what reports on and guards a run ──

# ── journal ─────────────────────────────────────────────────────────────────────────────────────

RunKind = Literal["backfill", "verify", "relay", "gone", "strip", "direct", "export", "import"]
"""`gone` replaces items of removed entities with tombstones. `direct` starts direct writes by the service: its scope
names the entities."""
RunState = Literal["running", "interrupted", "failed", "done"]


class RunIdentity(Struct, frozen=True):
    """An unfinished run of an equal identity is resumed."""

    kind: RunKind
    job: str
    table_id: str
    revision: str
    """Digest of the mapping, and of the columns that it reads."""
    scope: str = ""
    """Entities and limit as text; '' is everything."""


class Run(Struct, frozen=True):
    id: int
    identity: RunIdentity
    state: RunState
    started_at: str
    ended_at: str | None = None
    resumed: bool = False


class Tally(Summed, frozen=True):
    rows: int = 0
    items: int = 0
    refused: int = 0
    expired: int = 0
    bytes: int = 0
    write_units: float = 0.0
    different: int = 0


class Page(Struct, frozen=True):
    """Keys of one entity: after < key <= upto."""

    entity: str
    number: int
    after: SourceKey | None
    upto: SourceKey | None


FindingKind = Literal[
    "refused",
    "collision",
    "unwritten",
    "missing",
    "unexpected",
    "different",
    "count",
    "sum",
    "foreign",
    "schema",
    "mark",
    "apart",
]


class Finding(Struct, frozen=True):
    """A refused row or a difference. Names keys and attributes, never a value.

    Each of these may be '':
    `source_key`: the row.
    `item_key`: the item's key as JSON text.
    `item_type`: its type.
    `owner`: the row that has the item's key, as in `_src`.
    `reason`: for people; programs must not parse it.
    """

    kind: FindingKind
    entity: str
    reason: str
    source_key: str = ""
    item_key: str = ""
    attribute: str = ""
    item_type: str = ""
    owner: str = ""


class SegmentState(Struct, frozen=True):
    """A scan segment's checkpoint: where to continue (None: at the start), and the counts."""

    start: ItemKey | None = None
    done: bool = False
    tally: Mapping[str, Any] = {}


DIGESTS, TABLE = "(digests)", "(table)"
SCANS = {DIGESTS, TABLE}
"""Names of a verify's scans, next to entities: table segments with digests (page 0 is the agreement of its processes),
and segments with traced items."""


class Progress(Protocol):
    """Receives the progress of a stage. Called from the stage's own thread only; on display inside of a with."""

    def __enter__(self) -> Progress: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def page_planned(self, entity: str, number: int) -> None: ...

    def entity_started(self, entity: str, rows_done: int, rows_total: int) -> None: ...

    def page_done(self, entity: str, number: int, tally: Tally, took_ms: int) -> None: ...

    def others_done(self, entity: str, tally: Tally) -> None:
        """Called with the work of other processes since the last call."""

    def entity_done(self, entity: str) -> None: ...


# ── Findings counted by the database, so that a million of them can be summed up without being read ──


class FindingGroup(Struct, frozen=True):
    """Findings of one kind, entity and attribute ('' for a whole row)."""

    kind: str
    entity: str
    attribute: str
    count: int
