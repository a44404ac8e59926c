"""Ports of the journal: runs, pages, findings and their groups, leases."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Protocol

from migrator.model.table import ItemKey, SourceKey

# ── The journal as the stages see it: runs, pages, findings, and what tells and guards a run ──

# ── journal ─────────────────────────────────────────────────────────────────────────────────────

RunKind = Literal["backfill", "verify", "relay", "gone", "strip", "direct", "export", "import"]
"""`gone` puts tombstones in place of items of entities that a mapping has no more. `direct` says which entities the service
writes itself from then on: its scope names them."""
RunState = Literal["running", "interrupted", "failed", "done"]


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What makes two runs the same work: an unfinished run of an equal identity is resumed."""

    kind: RunKind
    job: str
    table_id: str
    revision: str
    """What the run is made by: the mapping, and the columns that it reads."""
    scope: str = ""
    """Entities and limit as text; '' is everything."""


@dataclass(frozen=True, slots=True)
class Run:
    id: int
    identity: RunIdentity
    state: RunState
    started_at: str
    ended_at: str | None = None
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts that add up: of a page, an entity, a run."""

    rows: int = 0
    items: int = 0
    refused: int = 0
    expired: int = 0
    bytes: int = 0
    write_units: float = 0.0
    different: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.rows + other.rows,
            self.items + other.items,
            self.refused + other.refused,
            self.expired + other.expired,
            self.bytes + other.bytes,
            self.write_units + other.write_units,
            self.different + other.different,
        )

    def __neg__(self) -> Tally:
        return Tally(
            *(-self.rows, -self.items, -self.refused, -self.expired, -self.bytes),
            *(-self.write_units, -self.different),
        )


@dataclass(frozen=True, slots=True)
class Page:
    """A range of keys of one entity: after < key <= upto."""

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


@dataclass(frozen=True, slots=True)
class Finding:
    """A refused row or a difference. Names keys and attributes, never a value.

    `source_key` is the row (''), `item_key` the item's key as JSON text (''), `attribute` the attribute (''), `item_type`
    the item's type ('' where it is of none, or an older migrator wrote it), `owner` the row that has the item's key, as
    `_src` says it (''). Nothing is to be read out of `reason`: it is for people.
    """

    kind: FindingKind
    entity: str
    reason: str
    source_key: str = ""
    item_key: str = ""
    attribute: str = ""
    item_type: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class SegmentState:
    """A scan segment's checkpoint: where to go on (None: at the start), whether done, and what was counted so far."""

    start: ItemKey | None = None
    done: bool = False
    tally: Mapping[str, Any] = field(default_factory=dict)


DIGESTS, TABLE = "(digests)", "(table)"
SCANS = {DIGESTS, TABLE}
"""What the pages of a verify's scans are called beside entities: segments of the table, of which digests are taken
(page 0 is what its processes agree on), and those whose items are traced."""


class Journal(Protocol):
    """What was done, kept outside of the process. Every method is one transaction; safe to call from threads."""

    def find_run(self, identity: RunIdentity) -> Run | None:
        """The newest run of this identity, finished or not."""

    def start_run(self, identity: RunIdentity) -> Run: ...

    def resume_run(self, run: Run) -> Run: ...

    def end_run(self, run: Run, state: RunState) -> None: ...

    def runs(self, job: str) -> list[Run]:
        """All runs of the job, oldest first."""

    def planned(self, run: Run) -> set[str]:
        """Entities whose pages are planned."""

    def plan_pages(self, run: Run, entity: str, pages: Iterable[Page]) -> None:
        """All pages of an entity at once: either all are planned or none."""

    def open_pages(self, run: Run, entity: str) -> Iterator[Page]:
        """Pages not yet done, by number, read in chunks."""

    def page_counts(self, run: Run, entity: str) -> tuple[int, int]:
        """(done, planned)."""

    def claim_pages(
        self,
        run: Run,
        entity: str,
        who: str,
        n: int,
        lease_s: float,
        after: int = 0,
        upto: int | None = None,
    ) -> list[Page]:
        """The next open pages behind `after`, and up to `upto`, `n` at most, which nobody else is given for `lease_s`
        seconds.

        A page whose claim ran out is claimed again. No page is given twice to one claimant.
        """

    def renew_pages(self, run: Run, who: str, lease_s: float) -> None:
        """What `who` has claimed and not finished stays claimed for so long from now on."""

    def release_pages(self, run: Run, who: str) -> None:
        """What `who` has claimed and not finished may be claimed at once; so may what processes have that it has started,
        whose names begin with its own and a dot."""

    def claimed_by_others(self, run: Run, who: str) -> int:
        """Pages that others are at work on, or were when they were killed."""

    def waiting_pages(self, run: Run, entity: str, limit: int) -> list[int]:
        """The first numbers of pages that are neither done nor left open, claimed or not."""

    def leave_page(self, run: Run, page: Page, who: str, findings: Sequence[Finding]) -> None:
        """The page stays open, and nobody claims it before the run is resumed."""

    def finish_page(
        self,
        run: Run,
        page: Page,
        tally: Tally,
        findings: Sequence[Finding],
        *,
        again: bool = False,
        parts: Sequence[bytes] = (),
    ) -> None:
        """The checkpoint. Where another process was first, its tally and its parts stay, unless `again`.

        Findings of equal text are kept once, so a page that is repeated adds none. `parts`: what the page leaves for the
        run's other processes, until the run is done.
        """

    def page_parts(self, run: Run, entity: str) -> Iterator[tuple[int, bytes]]:
        """The parts of finished pages with the page's number, in their order, read in chunks."""

    def reopen_pages(self, job: str, table_id: str, entities: Sequence[str]) -> int:
        """Pages of these entities that this job's backfills finished count as not done; how many there were.

        A run that was done counts as interrupted, so that the next backfill goes on with it.
        """

    def tally(self, run: Run, entity: str | None = None) -> Tally: ...

    def add_findings(self, run: Run, findings: Sequence[Finding]) -> None: ...

    def findings(self, run: Run, limit: int | None = None) -> list[Finding]: ...

    def drop_findings(self, run: Run, kind: FindingKind, item_keys: Sequence[str]) -> None:
        """Forget findings of these items that hold no more."""

    def finding_counts(self, run: Run) -> dict[str, int]:
        """Findings per kind."""

    def segment(self, run: Run, number: int) -> SegmentState: ...

    def save_segment(self, run: Run, number: int, state: SegmentState, findings: Sequence[Finding]) -> None:
        """The segment's checkpoint. One that is done stays done, whatever a slower process says of it."""

    def written_tables(self, job: str) -> set[str]:
        """Ids of the tables that a backfill or a relay of this job has begun to write to."""

    def writers(self, table_id: str) -> dict[str, set[str]]:
        """Per job, the entities whose pages a backfill of it has planned for the table."""

    def claim(self, table_id: str, claims: Sequence[tuple[bytes, str]]) -> dict[bytes, str]:
        """Claim key digests for their source rows; the owner of each digest that another row had claimed before.

        The first of two claims in one call wins, too. Claims last until `release`.
        """

    def release(self, table_id: str, given_up: Sequence[tuple[bytes, str]]) -> None:
        """Free each digest that this owner has; one that another owner has claimed meanwhile stays."""

    def close(self) -> None: ...


class Traces(Protocol):
    """What a journal holds of rows that are to be forgotten, for one job and one table.

    `kinds` are words for people: findings, claims, contests, remembered keys, samples (all of the job: nothing tells
    whose values they hold). `item_keys`: as findings hold them, of
    items that the rows had. Every method is one transaction.
    """

    def count(
        self, roots: Sequence[tuple[str, SourceKey]], item_keys: Collection[str] = ()
    ) -> dict[str, int]:
        """How much there is of each kind; kinds of which there is nothing are among them."""

    def forget(
        self,
        roots: Sequence[tuple[str, SourceKey]],
        kinds: Collection[str],
        item_keys: Collection[str] = (),
        *,
        ticket: int,
    ) -> dict[str, int]:
        """Deletes what there is of these kinds; how much it was. What was remembered with a higher ticket stays."""

    def page_bounds(self, roots: Sequence[tuple[str, SourceKey]]) -> int:
        """Pages that begin or end at one of the rows; they stay, for the runs' sake."""


class Progress(Protocol):
    """Receives the progress of a stage. Called from the stage's own thread only; on display inside of a with."""

    def __enter__(self) -> Progress: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def page_planned(self, entity: str, number: int) -> None:
        """Before the entity is started; nothing of the page is read yet."""

    def entity_started(self, entity: str, rows_done: int, rows_total: int) -> None: ...

    def page_done(self, entity: str, number: int, tally: Tally, took_ms: int) -> None: ...

    def others_done(self, entity: str, tally: Tally) -> None:
        """Other processes of the run have done so much since this was called last."""

    def entity_done(self, entity: str) -> None: ...


# ── Findings counted by the database, so that a million of them can be summed up without being read ──


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """Findings of one kind, entity and attribute ('' where they are of a whole row)."""

    kind: str
    entity: str
    attribute: str
    count: int


class FindingGroups(Protocol):
    """Every method is one transaction. A relay's findings are all that are open of its job and table, whichever relay found
    them. Raises, from every method: StoppedError where the journal cannot be asked."""

    def groups(self, run: Run) -> Sequence[FindingGroup]:
        """The largest first."""

    def some(self, run: Run, group: FindingGroup, limit: int) -> Sequence[Finding]:
        """The first ones of a group, as they were found."""
