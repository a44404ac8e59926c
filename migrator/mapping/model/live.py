"""Ports of live change: capture, marks, tickets, streams, remembered keys, writers, rows that are written back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from migrator.mapping.model.edges import WiredItem
from migrator.mapping.model.facts import Captured, EntityPlan, TableFacts
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.table import EncodedItem, Item, ItemKey, SourceKey

# ──
# What the capture stage needs of a source: triggers that are there, and the statements that put them
# there.

CaptureState = Literal[
    "captured",
    "services",
    "missing",
    "hidden",
    "partition",
    "stale",
    "disabled",
    "extra",
    "refused",
    "unread",
    "lost",
    "unidentified",
]

MarkedBy = Literal["triggers", "services", "log"]
"""The source of marks: migrator's triggers, the services themselves, by the adapter that they import, or a reader of the
database's log."""


class TableCapture(Struct, frozen=True):
    """How one table is captured.

    `extra`: has triggers, but the mapping no longer reads it.
    `services`: neither has nor needs triggers.
    `hidden`: this user may not see triggers.
    `partition`: new since the install; only a TRUNCATE of it leaves no mark.
    `refused`: writes by others than `migrator reverse` are refused.
    `unread`: no stream contains all changes of the DynamoDB table.
    `lost`: the slot of the database's log misses changes.
    `unidentified`: the log lacks columns of keys or links.
    `came`, `gone`: columns that stale triggers should name, or should not.
    """

    table: str
    state: CaptureState
    came: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


class Step(Struct, frozen=True):
    """Statements of one transaction (MariaDB and MySQL commit each), and their reversal. `table`: '' for
    migrator's own.
    """

    table: str
    statements: tuple[str, ...]
    undo: tuple[str, ...] = ()


class Installation(Struct, frozen=True):
    """The installation of capture, and its job. `ticket`: the last one drawn."""

    id: str
    job: str
    version: int
    epoch: int
    ticket: int
    marked_by: MarkedBy = "triggers"


class CaptureRecord(Protocol):
    """The record that capture is installed, for a source that cannot store it. Each method is one transaction."""

    def installed(self) -> Installation | None: ...

    def install(self) -> None:
        """Start a new installation: pending marks were lost, or there were none. Tickets continue."""

    def uninstall(self) -> None:
        """Remove the installation; tickets stay known."""


class Capture(Protocol):
    """Capture in one source. Each method is one transaction, retried if a lock was in the way.

    Raises, from every method: SourceError, without values; Interrupted.
    """

    @property
    def means(self) -> str:
        """The means of capture, in the plural: triggers, streams, publication and slot."""

    def captured(self, plans: Sequence[EntityPlan]) -> list[Captured]:
        """Tables by name, without views that have `changes:` in the mapping."""

    def refusals(self, tables: Sequence[Captured], marked_by: MarkedBy = "triggers") -> list[str]: ...

    def limits(self, marked_by: MarkedBy = "triggers") -> list[str]:
        """Changes that would leave no mark, and therefore must not be made."""

    def installation(self) -> Installation | None: ...

    def install_steps(
        self, tables: Sequence[Captured], job: str, marked_by: MarkedBy = "triggers"
    ) -> list[Step]:
        """Remaining steps until every table is captured.

        If services have left the marks so far, triggers are installed before the marks become theirs.
        """

    def refuse_steps(self, tables: Sequence[TableFacts]) -> list[Step]:
        """Remaining steps until only `migrator reverse` can write these tables. A later install undoes them."""

    def uninstall_steps(self) -> list[Step]: ...

    def taken_away(self, tables: Sequence[str]) -> str: ...

    def do(self, step: Step) -> None: ...

    def states(self, tables: Sequence[Captured]) -> list[TableCapture]: ...


# ──
# What live change needs in addition to the data's edges: marks and tickets in the source, memory and writers
# in the journal.

Root: TypeAlias = tuple[str, SourceKey]
"""A root row: its entity's name and its key."""

Image: TypeAlias = Mapping[str, Any]
"""Relevant columns of a row by written name, values as the driver gives them when it reads the row itself."""

LONGEST_WAIT_S = 300.0
"""The longest wait of a failed mark until it is taken again."""
TICKETS_AN_EPOCH = 10**12

# ── source ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Mark:
    """A durable note that a row changed: of a captured table with its images, or of a root to process.

    `table`: schema.table (or table) as the source has it, '' if `root` is named.
    `keys`: item keys that the root had.
    `cursor`: where a mark of many roots continues ('' at its start).
    `tries`: number of failures.
    `fault`: why it cannot be read, or ''.
    `age_s`: since the change, when the mark was taken, by the source's clock.
    """

    id: int
    table: str = ""
    before: Image | None = None
    after: Image | None = None
    root: Root | None = None
    keys: tuple[ItemKey, ...] = ()
    cursor: str = ""
    tries: int = 0
    fault: str = ""
    age_s: float = field(default=0.0, compare=False)

    @property
    def is_of_whole_table(self) -> bool:
        """Whether any row may have changed, as after a TRUNCATE in a log."""
        has_image = self.before is not None or self.after is not None
        return bool(self.table) and self.root is None and not has_image and not self.fault


MARKS_COUNTED = 50_000
"""The number of marks, the oldest ones, with counted rows."""


SLOT_MEND = "run `migrator capture install`, which begins again, then `migrator verify --repair`"
"""Advice for a log that misses changes."""


class SlotLag(Struct, frozen=True):
    """`slot`: '' if the server keeps its log by age.
    `bytes_behind`: not copied yet.
    `bytes_kept`: by the server.
    `bytes_left`: before the slot is lost, None without a limit.
    `seconds`: since the moment up to which all is copied.
    `lost`: why changes may be missing, or ''.
    `keeps_s`: how long the log is kept, copied or not; None without a limit, or for a slot.
    """

    slot: str
    bytes_behind: int
    bytes_kept: int
    bytes_left: int | None
    seconds: float
    has_reader: bool
    lost: str = ""
    keeps_s: float | None = None

    @property
    def name(self) -> str:
        return "replication slot" if self.slot else "binary log"

    @property
    def remedy(self) -> str:
        """What to do before the log, or the server's disk, is lost; '' for nothing."""
        if self.slot and self.bytes_left is None:
            return "set max_slot_wal_keep_size: without it the server keeps its log until the disk is full"
        if self.keeps_s is not None and self.keeps_s < max(SHORT_S, 2 * self.seconds):
            return "raise binlog_expire_logs_seconds: a relay that does not read for longer loses changes"
        return ""

    def line(self) -> str:
        what = f"slot {self.slot}" if self.slot else "binary log"
        if self.lost:
            return f"{what}: lost: {self.lost}; {SLOT_MEND}"
        left = "" if self.bytes_left is None else f", lost after {_size(self.bytes_left)} more"
        left += "" if self.keeps_s is None else f", each file for {self.keeps_s / 3600:,.0f} hours"
        reader = "read by a relay" if self.has_reader else "no relay reads it"
        behind = f"{_size(self.bytes_behind)} and {self.seconds:,.0f} s behind"
        return f"{what}: {reader}, {behind}, the server keeps {_size(self.bytes_kept)} of log{left}"


SHORT_S = 86_400.0
"""A log that is kept for less is lost over a weekend's outage."""


def _size(number: int) -> str:
    for unit, size in (("GB", 2**30), ("MB", 2**20), ("kB", 2**10)):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number} bytes"


@dataclass(frozen=True, slots=True)
class MarksState:
    """`oldest_age_s`: of the oldest ripe mark, 0 if none waits.
    `failed`: marks put back.
    `rows`: named by the marks, of more than MARKS_COUNTED at least; None if nothing counted them.
    `slot`: of a captured log.
    """

    waiting: int = 0
    oldest_age_s: float = 0.0
    failed: int = 0
    unripe: int = 0
    rows: int | None = None
    slot: SlotLag | None = field(default=None, compare=False)


class Change(Struct, frozen=True):
    """A row that a service's transaction changed: images as in marks."""

    table: str
    before: Any = None
    after: Any = None


class Marks(Protocol):
    """Marks in the source. Every method is one transaction."""

    def take(self, count: int, lease_s: float) -> list[Mark]:
        """Lease free ripe marks, lowest id first.

        A lease only saves work: two relays may process a mark. Marks with lower ids than the last taken (of a
        transaction that committed late, or that waited) may come some takes later.
        """

    def from_the_first(self) -> None:
        """Make the next take read all marks, so that none is left waiting."""

    def finish(self, ids: Sequence[int]) -> int:
        """Delete the marks and return how many existed: others may have finished some."""

    def advance(self, mark: Mark, cursor: str) -> None:
        """Continue the mark's work after `cursor`, behind all waiting marks; its id may change."""

    def release(self, ids: Sequence[int]) -> None:
        """Give marks back unchanged."""

    def put_back(self, ids: Sequence[int], wait_s: float) -> None:
        """Give marks back with one more failure, to be taken again after `wait_s`."""

    def discard_failed(self, tries: int) -> int:
        """Delete marks with at least so many failures; returns how many."""

    def add(self, roots: Mapping[Root, Sequence[ItemKey]]) -> None: ...

    def look(self, after: int, count: int, *, free: bool = False) -> list[Mark]:
        """Marks by id above `after`. `free`: only ripe marks that no relay processes."""

    def state(self) -> MarksState: ...


class KeptMark(Struct, frozen=True):
    """A change that a journal keeps.

    `before`, `after`: images as text.
    `changed_at`: reporter's clock, seconds since 1970.
    `ready_in_s`: delay before it may be taken.
    """

    table: str
    before: str | None
    after: str | None
    changed_at: float
    ready_in_s: float = 0.0


class MarkKeeper(Marks, Protocol):
    """Marks in a journal, of a source that cannot keep them itself."""

    def store(self, marks: Sequence[KeptMark]) -> None:
        """Commit marks with growing ids in their order. Storing them twice is harmless."""

    def discard(self) -> None:
        """Delete all marks: capture is removed."""


class Tickets(Protocol):
    """The counter in the source, or in the journal if the source has none. A ticket is epoch * 10^12 + number."""

    def draw(self) -> int:
        """A number higher than all drawn before; committed before it is returned."""

    def highest(self) -> int: ...

    def generation(self) -> tuple[str, int]:
        """A unique identity of this installation of capture, and its epoch."""

    def raise_epoch(self, above: int) -> int:
        """Begin an epoch with all tickets higher than `above`, and return it."""


# ── target ──────────────────────────────────────────────────────────────────────────────────────

Verdict = Literal[
    "stored", "newer", "tombstoned_by_other", "owned_by_other", "rolled_back", "unwritten", "kept_changed"
]
"""Of a conditional write: stored; refused by something newer of the same source; by a newer tombstone of another row; by
a live item of another row; undone because another item of its transaction was refused; not taken, while others were.

kept_changed: a service changed attributes of its own since they were read; no caller sees it, for the store writes again."""


class Outcome(NamedTuple):
    """Result of one conditional write.

    `owner`: `_src` of the other row's item or tombstone.
    `ticket`: of the item in the way, 0 for none.
    """

    item: EncodedItem
    verdict: Verdict
    owner: str = ""
    why: str = ""
    ticket: int = 0


class ConditionalStore(Protocol):
    """Writes concurrently with other writers; a tombstone is an item of the type `_tombstone`.

    Raises: StoppedError when DynamoDB gave up and took nothing else meanwhile, with any part of the items
    written.
    """

    @property
    def sends_texts(self) -> bool:
        """Whether PutTexts are sent as they are. Of these, outcomes of stored items may be left out."""

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        """Put each item by rule 3, no two under one key; outcomes in the order of `items`.

        The condition: no item there, or (its source is this one's or it is a tombstone) and its ticket is not
        higher. `fresh`: most keys are thought to be free, so inserts are tried first, 25 at a time.
        """

    def write_together(self, groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
        """Put each group by rule 3, all of it or nothing; outcomes in the order of the groups and their items.

        A group is one transaction (see table.py), and no two items of all groups are under one key. If an
        item is refused, the others of its group are `rolled_back`. Raises: ItemRefusedError if DynamoDB
        rejects a group for another reason.
        """

    def remove_tombstones(self, tombstones: Sequence[Item]) -> int: ...


class OwnStore(Protocol):
    """Writes of a single writer to a table with foreign items. Raises: as a ConditionalStore does."""

    @property
    def sends_texts(self) -> bool:
        """As a ConditionalStore's."""

    def write_own(self, items: Sequence[EncodedItem]) -> list[Outcome]:
        """Put each item if the key is free, or holds an item of the same source, or a tombstone, regardless of
        tickets; no two under one key.

        Outcomes in the order of `items`: stored, owned_by_other or unwritten.
        """


# ── journal ─────────────────────────────────────────────────────────────────────────────────────


class Remembered(Struct, frozen=True):
    """Item keys that were intended for a root before, and the highest ticket that intended any (-1: none)."""

    ticket: int = -1
    keys: frozenset[ItemKey] = frozenset()


class KeyRequest(Struct, frozen=True):
    """A root that wants a key that another root's live item has."""

    key: ItemKey
    root: Root


class Memory(Protocol):
    """Keys that cannot be computed again, and keys that two roots want. Each method is one transaction."""

    def remember(self, ticket: int, intended: Mapping[Root, Collection[ItemKey]]) -> dict[Root, Remembered]:
        """Earlier keys of each root. If its ticket is not higher, it becomes `ticket` and the intended keys are
        added; else nothing changes.
        """

    def settle(self, ticket: int, current: Mapping[Root, Collection[ItemKey]]) -> None:
        """Remember only the current keys, if the highest ticket still is `ticket`."""

    def request_keys(self, requests: Sequence[KeyRequest], ticket: int) -> None:
        """Record requests. `ticket`: of the read of the rows; the highest of each request is kept."""

    def requests_of(self, keys: Sequence[ItemKey]) -> list[KeyRequest]: ...

    def reached(self, ticket: int) -> None:
        """Record a ticket before items are written with it: it stays known when the source is restored."""

    def highest(self) -> int: ...

    def withdraw(self, requests: Sequence[KeyRequest], ticket: int) -> None:
        """Forget these requests, unless a later reading than that of `ticket` made them. Missing ones are ignored."""


class OpenFindings(Protocol):
    """Findings of live change that stay open until any run of the job processes their row without fault. One of
    a kind for each row, item key and attribute. Each method is one transaction.
    """

    def settle(self, tickets: Mapping[Root, int], found: Sequence[Finding]) -> None:
        """Open the findings; close other open ones of the processed roots.

        `tickets`: of the read of each root; findings of a newer read stay unchanged.
        """

    def close_marks(self) -> None:
        """Close findings of marks: none is left that could not be processed."""

    def keep_entities(self, names: Collection[str]) -> None: ...

    def counts(self, above: int = -1) -> dict[str, int]: ...

    def read(self, limit: int | None = None) -> list[Finding]: ...

    def roots(self) -> list[Root]: ...


WriterKind = Literal["fast", "conditional", "relay", "strict", "undo"]
"""`undo` deletes; no other writer may run at the same time."""


class Writer(Struct, frozen=True):
    """A process that writes items.

    `since`: start of its oldest work in progress, `alive_at`: last heartbeat, in seconds of the journal's
    clock.
    `fenced`: asked to stop.
    """

    id: str
    kind: WriterKind
    since: float
    alive_at: float
    fenced: bool = False

    @property
    def process(self) -> str:
        """The common part of the ids of one process's writers: a relay is a writer in each of its threads."""
        return self.id[:8]


class Writers(Protocol):
    """Registered writers of one table, so that unsafe combinations are refused. Every method is one transaction."""

    def enter(self, kind: WriterKind) -> Writer:
        """Register a writer. It is 'fast' only if no other kind but 'undo' was ever registered; else
        'conditional'.
        """

    def beat(self, writer: Writer, *, begins: bool = False) -> Writer:
        """Renew the heartbeat; returns whether it was fenced. `begins`: all work in progress begins now."""

    def leave(self, writer: Writer) -> None: ...

    def fence(self) -> list[Writer]:
        """Admit no fast writer from now on, and ask running ones to stop. Returns those that may be alive."""

    def living(self, silent_s: float) -> list[Writer]: ...


# ── A source's knowledge of the writers of its tables, and how their rights are revoked ──


class ActivityCounts(Struct, frozen=True):
    """Changes of tables as the engine counts them; only the difference of two readings has a meaning.

    `tables`: by requested names; without those that the engine does not count.
    `whole`: of all tables that triggers capture, by marks; None without capture.
    `source`: what counts, in words.
    `blind`: why the engine does not count by table.
    `open`: transactions with writes, by the engine's id, with their table ('' if unknown); None without the
    right to see them, which `unseen` names.
    `who`: their user and program.
    `may_write`: roles by table, if everybody may read them.
    """

    tables: Mapping[str, str]
    whole: int | None
    source: str
    blind: str = ""
    open: Mapping[str, str] | None = {}
    unseen: str = ""
    who: Mapping[str, str] = {}
    may_write: Mapping[str, Sequence[str]] = {}


FRESH_S = 23 * 3600.0
"""A shard of which all is processed up to a moment that is not longer ago has lost nothing that is not worked.

A stream keeps each record for 24 hours; the hour less is for clocks that differ and for lists of shards that come late.
Source: Developer Guide, "Change data capture for DynamoDB Streams".
"""

ALL_OF_IT = "NEW_AND_OLD_IMAGES"
"""The view of a stream that a reader needs: the old image identifies the rows."""

MEND = (
    "restart the stream (`migrator reverse start JOB --restart`), then run `migrator reverse verify JOB --repair`, which"
    " writes the rows of lost changes"
)
"""For a rollback. `migrator verify --repair` is not a repair of it: it writes items by rows, and leaves out what services
write themselves."""

MEND_OF_SOURCE = (
    "run `migrator capture install`, which restarts the stream, then `migrator verify --repair`, which captures the rows of"
    " lost changes"
)
"""For a stream of changes in the source."""

# ── the stream ──


class Shard(Struct, frozen=True):
    """`parent`: '' for none. A parent that the stream no longer lists was closed longer ago than its retention."""

    id: str
    parent: str = ""


class StreamState(Struct, frozen=True):
    """A table's stream.

    `arn`: '' if it never had one; it changes with a new table, or a disabled and enabled stream.
    `view`: which images records contain.
    """

    arn: str
    is_on: bool
    view: str
    shards: tuple[Shard, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """One change of one item. Images identify rows, and are never applied: the item may be newer (see
    docs/decisions/0029-streams.md).

    `created_at`: whole seconds since 1970 by the service's clock.
    `old_wired`, `new_wired`: images in DynamoDB's own form, in which sets differ from lists.
    """

    sequence: str
    created_at: float
    keys: Item
    old: Item | None = None
    new: Item | None = None
    old_wired: WiredItem | None = field(default=None, compare=False, repr=False)
    new_wired: WiredItem | None = field(default=None, compare=False, repr=False)


class RecordPage(Struct, frozen=True):
    """Records of one shard in order. `next_iterator`: None after the last page of a closed shard."""

    records: list[StreamRecord]
    next_iterator: str | None


class StreamPosition(Struct, frozen=True):
    """`sequence`: of the record at which, or after which, a reader begins; '' for the other two."""

    kind: Literal["TRIM_HORIZON", "LATEST", "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"]
    sequence: str = ""


class StreamSource(Protocol):
    """The stream of one table. Calls retry transient failures, and raise StoppedError if they persist.

    `mend`: what to do if changes may be lost; the end of messages.
    """

    table: str
    mend: str

    def state(self) -> StreamState:
        """Raises: TargetError if the table does not exist."""

    def iterator(self, stream: str, shard: str, position: StreamPosition) -> str:
        """An iterator for `records`, valid for 15 minutes.

        Raises: LostRecordsError if the stream no longer contains this position, or the shard.
        """

    def records(self, stream: str, shard: str, iterator: str, limit: int) -> RecordPage:
        """At most `limit` records (1,000 and 1 MB), possibly none yet.

        Raises: ExpiredIteratorError; LostRecordsError as above.
        """


# ── progress ──


class Checkpoint(Struct, frozen=True):
    """The progress in a shard.

    `sequence`: of the last processed record; '' for none yet.
    `passed_at`: everything created earlier is processed, by the journal's clock.
    `owner`: the reader until `leased_until`; '' for none.
    """

    shard: str
    parent: str
    sequence: str
    passed_at: float
    is_finished: bool = False
    owner: str = ""
    leased_until: float = 0.0


class Checkpoints(Struct, frozen=True):
    """A stream's checkpoints, and the journal's time when they were read."""

    now: float
    shards: tuple[Checkpoint, ...]

    def lags_s(self) -> dict[str, float]:
        """Lag of unfinished shards; also of one that waits for its parent or a reader."""
        open_shards = (shard for shard in self.shards if not shard.is_finished)
        return {shard.shard: max(0.0, self.now - shard.passed_at) for shard in open_shards}


class StreamJournal(Protocol):
    """Checkpoints of the stream of one table, for one job. Every method is one transaction; all times are the
    journal's.

    `owner`: a reader's name, which no other one ever has.
    """

    def stream(self) -> str: ...

    def begin(self, stream: str) -> None:
        """Switch to this stream, and forget checkpoints of the former one."""

    def list_shards(self, stream: str, shards: Sequence[Shard], age_s: float) -> None:
        """Record the stream's shards of so many seconds ago.

        A new one was absent from the list before, so all its records are younger. Finished ones that it has
        not listed for days are forgotten.
        """

    def claim(self, stream: str, owner: str, lease_s: float) -> Checkpoints:
        """Claim shards for the reader, by `allotted`; surplus ones become free at once. Call it between two
        batches only: lost shards must not be in progress.
        """

    def renew(self, stream: str, owner: str, lease_s: float, passed_at: Mapping[str, float]) -> set[str]:
        """Renew the reader's leases and progress; returns its shards."""

    def save(self, stream: str, owner: str, done: Checkpoint) -> bool:
        """Save `sequence`, `passed_at`, `is_finished`. Returns False, with nothing kept, if another reader has
        the shard.
        """

    def leave(self, stream: str, owner: str) -> None: ...

    def read(self, stream: str) -> Checkpoints: ...


# ── pure ──

FORGOTTEN_S = 48 * 3600.0
"""A finished shard that the stream has not named for so long is never named again: it keeps a closed one for a day."""


def allotted(shards: Collection[Checkpoint], owner: str, readers: int, now: float) -> list[Checkpoint]:
    """Shards for one of so many readers: an equal part, its own first, then the oldest.

    Only shards with finished or missing parents: an item's changes continue in a child of their shard, and
    would otherwise be processed out of order.
    """
    unfinished = {shard.shard for shard in shards if not shard.is_finished}
    ready = [shard for shard in shards if shard.shard in unfinished and shard.parent not in unfinished]
    own = [shard for shard in ready if shard.owner == owner]
    free = [
        shard for shard in ready if shard.owner != owner and not (shard.owner and shard.leased_until > now)
    ]
    free.sort(key=lambda shard: (shard.passed_at, shard.shard))
    return (own + free)[: -(-len(ready) // max(1, readers))]


Row: TypeAlias = Mapping[str, Any]
"""A row, or the key of one, by written column names, each value in the decoded form of the core."""
Check: TypeAlias = Callable[[], None]
"""Raises StoppedError if another process may do the work by now."""

RefusalKind = Literal["foreign key", "unique", "not null", "value", "trigger"]
"""`foreign key`: a parent is missing or children are left; `value`: its type, range or a CHECK; `trigger`: one of the
source's own."""


@dataclass(frozen=True, slots=True)
class IntendedRow:
    """The intended row with this key. `values`: all written columns, with the key's; None: no row."""

    table: TableFacts = field(repr=False)
    key: Row = field(repr=False)
    values: Row | None = field(repr=False)


class RefusedChange(Struct, frozen=True):
    """A change that the source rejects for now. Only `change` contains values."""

    change: IntendedRow
    kind: RefusalKind


class RowWriter(Protocol):
    """Writes rows of the source. Every call may be repeated."""

    def write(self, changes: Sequence[IntendedRow], check: Check) -> list[RefusedChange]:
        """Write the rows in order, in one transaction; if one is refused, in one each, so that the others are
        written.

        Rows that want each other's unique values are then tried together, if such a column is nullable; and
        rows that refer to each other, if a foreign key is nullable or deferred. A row is deleted only if no
        other row refers to it: no ON DELETE of a key acts. `check` is called before each transaction.
        Raises: SourceError; the errors of `check`.
        """

    def move_counters(self, tables: Sequence[TableFacts]) -> None:
        """Raise the source's counters for new rows above the highest number in a row."""


# ── state of a rollback ──

RowId: TypeAlias = tuple[str, SourceKey]
"""A table by its written name, and the row's key as text."""
Waits = Literal["gone", "refused", "misfit", "claims", "changing"]
"""`gone`: no item holds the row, and it goes once all shards have passed that time. `refused`: by the source. `misfit`:
an item of it fits no row. `claims`: its items contradict each other, or one is missing. `changing`: its items differed at
each read, or changed while it waited."""


class WaitingRow(Struct, frozen=True):
    """A row that is checked again.

    `due_at`: journal time; for `gone`, the one that all shards must have passed.
    `looks`: how often that was so, without an item.
    `tries`: how often it waited for the same reason.
    `why`: in words, without values.
    """

    row: RowId
    waits: Waits
    due_at: float
    why: str = ""
    looks: int = 0
    tries: int = 0

    @property
    def is_finding(self) -> bool:
        """Whether a person must check it: no likely change resolves it."""
        return self.waits == "misfit" or self.tries >= TRIES


TRIES = 8
"""About a minute, with pauses that double from half a second."""


class ReverseJournal(Protocol):
    """Keys and waiting rows of one job and its table. Every method is one transaction, and may be repeated."""

    def remember(self, keys: Mapping[RowId, Collection[ItemKey]]) -> None:
        """Record that these items contain the row, or did, until `forget`."""

    def keys_of(self, rows: Collection[RowId]) -> dict[RowId, set[ItemKey]]: ...

    def rows_of(self, keys: Collection[ItemKey]) -> set[RowId]: ...

    def wait(self, rows: Collection[WaitingRow]) -> None:
        """Record the waiting rows, each in place of its former record."""

    def done(self, rows: Collection[RowId]) -> None: ...

    def forget(self, rows: Mapping[RowId, WaitingRow]) -> None:
        """Forget deleted rows with their keys, unless another process has changed their record: it has found an
        item.
        """

    def withdraw(self, tables: Collection[str]) -> None:
        """Stop waiting for rows of these tables, which no process makes from items any longer. Their keys stay."""

    def waiting(
        self, limit: int | None = None, tables: Collection[str] | None = None
    ) -> list[WaitingRow]: ...

    def waiting_of(self, rows: Collection[RowId]) -> dict[RowId, WaitingRow]: ...

    def ask_to_stop(self) -> None: ...

    def stopped_at(self) -> float:
        """When processes were last asked to stop; 0 for never."""

    def now(self) -> float: ...


# ── result of comparing rows with the rows that items make ──

RowDifferenceKind = Literal["no item", "no row", "different", "claims", "misfit"]
"""`no item`: no item holds the row; `no row`: items hold a row that is not there; `claims`: its items contradict each
other, or one is missing; `misfit`: an item of it fits no row."""

MOST = 1_000_000
"""The most rows that may differ; the comparison then stops, as the items do not match at all."""


class RowDifference(Struct, frozen=True):
    """`table`: '' for an item of an unknown row; `key` is then the item's. `why` contains no value."""

    kind: RowDifferenceKind
    table: str
    key: SourceKey
    why: str = ""


class Unkept(Struct, frozen=True):
    """Attributes that no row keeps, with the number of their items, by (item type, attribute).

    `extra`: that rows do not make, so no column has them.
    `forms`: with another type or value than the same row makes, such as a set in place of a list.
    """

    extra: Mapping[tuple[str, str], int] = {}
    forms: Mapping[tuple[str, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self.extra or self.forms)


class RowsVerified(Struct, frozen=True):
    """`counts`: by table and kind.
    `differences`: the first ones.
    `is_cut`: too many differ, the rest was not compared.
    `unkept`: attributes that are lost when items are made from these rows.
    """

    rows: Mapping[str, int]
    items: int
    counts: Mapping[tuple[str, RowDifferenceKind], int]
    differences: tuple[RowDifference, ...]
    is_cut: bool = False
    unkept: Unkept = Unkept()

    @property
    def is_clean(self) -> bool:
        return not self.counts

    def of_kinds(self, *kinds: RowDifferenceKind) -> int:
        return sum(number for (_, kind), number in self.counts.items() if kind in kinds)
