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
    """How one table is captured. `extra`: it has migrator's triggers, and the mapping no longer reads it; `services`: it
    has none, and needs none; `partition`: it is one that came since the install, and only a TRUNCATE of it leaves no
    mark; `refused`: writes by others than `migrator reverse` are refused; `unread`: of a DynamoDB table, no stream
    contains all its changes. `lost`: the slot of the database's log misses changes; `unidentified`: the log lacks columns
    of keys or links.

    If stale, `came`: columns that triggers should name and do not; `gone`: that they name and should not.
    """

    table: str
    state: CaptureState
    came: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


class Step(Struct, frozen=True):
    """Statements of one transaction (MariaDB and MySQL commit each), and their reversal. `table`: '' for migrator's own."""

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
        """Start a new installation, regardless of the one before: pending marks were lost, or there were none. Tickets
        continue."""

    def uninstall(self) -> None:
        """Its tickets stay known."""


class Capture(Protocol):
    """Capture in one source. Each method is one transaction, retried if a lock was in the way.

    Raises, from every method: SourceError, without values; Interrupted.
    """

    @property
    def means(self) -> str:
        """The means of capture, in the plural: triggers, streams, publication and slot."""

    def captured(self, plans: Sequence[EntityPlan]) -> list[Captured]:
        """The tables to capture, ordered by name; without views with changes declared in the mapping."""

    def refusals(self, tables: Sequence[Captured], marked_by: MarkedBy = "triggers") -> list[str]:
        """All reasons why changes of the tables cannot be captured, with what to do."""

    def limits(self, marked_by: MarkedBy = "triggers") -> list[str]:
        """Changes of the tables that would leave no mark, and that must not be made therefore."""

    def installation(self) -> Installation | None: ...

    def install_steps(
        self, tables: Sequence[Captured], job: str, marked_by: MarkedBy = "triggers"
    ) -> list[Step]:
        """The remaining steps until every table is captured as it should be.

        If services have left the marks so far, triggers are installed before the marks become theirs.
        """

    def refuse_steps(self, tables: Sequence[TableFacts]) -> list[Step]:
        """The remaining steps until only `migrator reverse` can write these tables. An install that captures such a table
        again undoes them."""

    def uninstall_steps(self) -> list[Step]:
        """Steps that remove everything of migrator's; its tables last."""

    def taken_away(self, tables: Sequence[str]) -> str:
        """The result of an uninstall with steps for these tables, as a sentence for people."""

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

    `table`: schema.table (or table) as the source has it, '' if `root` is named. `keys`: item keys that the root had.
    `cursor`: where the work on a mark of many roots continues ('' at its start). `tries`: how often it failed. `fault`:
    why it cannot be read; '' if it can. `age_s`: how long ago the row changed when the mark was taken, by the source's
    clock.
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
        """Whether any row of the table may have changed, as after a TRUNCATE in a log."""
        has_image = self.before is not None or self.after is not None
        return bool(self.table) and self.root is None and not has_image and not self.fault


MARKS_COUNTED = 50_000
"""The number of marks, the oldest ones, with counted rows."""


SLOT_MEND = "run `migrator capture install`, which begins again, then `migrator verify --repair`"
"""Advice for a log that misses changes."""


class SlotLag(Struct, frozen=True):
    """`slot`: '' if the server keeps its log by its age. `bytes_behind`: of log that is not copied yet; `bytes_kept`:
    that the server keeps; `bytes_left`: before the slot is lost, None without a limit; `seconds`: since the moment up to
    which all is copied. `lost`: why changes may be missing, '' if none is. `keeps_s`: how long the log is kept, copied or
    not; None without a limit, or for a slot."""

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
    """`oldest_age_s`: of the oldest mark that is ripe, 0 if none waits. `failed`: marks that were put back. `rows`: rows
    that the marks name, of more than MARKS_COUNTED at least; None if nothing counted them. `slot`: of a captured log."""

    waiting: int = 0
    oldest_age_s: float = 0.0
    failed: int = 0
    unripe: int = 0
    rows: int | None = None
    slot: SlotLag | None = field(default=None, compare=False)


class Change(Struct, frozen=True):
    """A row that a service's transaction changed: images as in marks, None if the row does not exist."""

    table: str
    before: Any = None
    after: Any = None


class ShownMarks(Protocol):
    def shown(self, changes: Sequence[Change]) -> list[Mark]:
        """The marks that the changes would be, kept nowhere; with images as Marks.take gives them."""


class ChangeMarks(ShownMarks, Protocol):
    """Marks of changes that are about to be committed, kept outside of their transaction."""

    def pre_mark(self, changes: Sequence[Change], wait_s: float) -> list[Mark]:
        """A mark for each change, committed, ripe after `wait_s`."""


class Marks(Protocol):
    """Marks in the source. Every method is one transaction of its own."""

    def take(self, count: int, lease_s: float) -> list[Mark]:
        """Ripe marks that no other relay works on, oldest id first; they are this relay's until the lease ends.

        A lease only saves work: a mark may be processed by two. Marks with ids below those that were taken last (of a
        transaction that committed late, or that waited) may come some takes later.
        """

    def from_the_first(self) -> None:
        """The next take reads all marks, so that none is left waiting."""

    def finish(self, ids: Sequence[int]) -> int:
        """Delete the marks and return how many were there: others may have finished some of them."""

    def advance(self, mark: Mark, cursor: str) -> None:
        """The mark's work continues after `cursor`, behind all marks that wait; it may get another id."""

    def release(self, ids: Sequence[int]) -> None:
        """Give marks back as they were; any relay may take them."""

    def put_back(self, ids: Sequence[int], wait_s: float) -> None:
        """Give marks back, one failure more counted, to be taken again after `wait_s`."""

    def discard_failed(self, tries: int) -> int:
        """Delete the marks that were put back so often, or more often; how many there were."""

    def add(self, roots: Mapping[Root, Sequence[ItemKey]]) -> None:
        """A mark for each root, with item keys that it had."""

    def look(self, after: int, count: int, *, free: bool = False) -> list[Mark]:
        """Marks with an id above `after`, in the order of ids; `free`: only ripe marks that no relay works on."""

    def state(self) -> MarksState: ...


class TriedMarks(Marks, Protocol):
    def probe(self) -> None:
        """Raises: SourceError, SettingsError if this user lacks a relay's rights on marks; no mark is changed."""


class KeptMark(Struct, frozen=True):
    """A change that a journal keeps until it is processed. `before`, `after`: images as text; None if the row does not
    exist. `changed_at`: by the reporter's clock, seconds since 1970. `ready_in_s`: how long it waits before it may be
    taken."""

    table: str
    before: str | None
    after: str | None
    changed_at: float
    ready_in_s: float = 0.0


class MarkKeeper(Marks, Protocol):
    """Marks in a journal, of a source that cannot keep them itself."""

    def store(self, marks: Sequence[KeptMark]) -> None:
        """Committed when it returns, with growing ids in their order. Stored twice does no harm."""

    def discard(self) -> None:
        """Deletes all marks: capture is removed."""


class Tickets(Protocol):
    """The counter in the source, or in the journal if the source has none. A ticket is epoch * 10^12 + number."""

    def draw(self) -> int:
        """A number higher than all drawn before; committed before it is returned."""

    def highest(self) -> int:
        """The last ticket drawn; epoch * 10^12 if none was."""

    def installation(self) -> str:
        """Identity of this installation of capture, which differs from any other one and outlives an epoch."""

    def raise_epoch(self, above: int) -> int:
        """Move on to an epoch with all tickets higher than `above`; returns the new epoch."""


class TriedTickets(Tickets, Protocol):
    def probe(self) -> None:
        """Draws none. Raises: SourceError if this user may not."""


# ── target ──────────────────────────────────────────────────────────────────────────────────────

Verdict = Literal[
    "stored", "newer", "tombstoned_by_other", "owned_by_other", "rolled_back", "unwritten", "kept_changed"
]
"""Of a conditional write: stored; refused by something newer of the same source; by a newer tombstone of another row; by
a live item of another row; undone because another item of its transaction was refused; not taken, while others were.

kept_changed: a service changed attributes of its own since they were read; no caller sees it, for the store writes again."""


class Outcome(NamedTuple):
    """Result of one conditional write. `owner`: the `_src` of the other row's item or tombstone. `why`: why it is
    unwritten. `ticket`: of the item in the way, 0 for none."""

    item: EncodedItem
    verdict: Verdict
    owner: str = ""
    why: str = ""
    ticket: int = 0


class ConditionalStore(Protocol):
    """Writes concurrently with other writers; a tombstone is an item of the type `_tombstone`.

    Raises: StoppedError when DynamoDB gave up and took nothing else meanwhile, with any part of the items written.
    """

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        """Puts each item by rule 3, no two under one key; outcomes in the order of `items`.

        The condition: no item there, or (its source is this one's or it is a tombstone) and its ticket is not higher.
        `fresh`: most keys are thought to be free, so inserts are tried first, 25 at a time.
        """

    def write_together(self, groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
        """Puts each group by rule 3, all of it or nothing; outcomes in the order of the groups and their items.

        A group is one transaction (see table.py), and no two items of all of them are under one key. Where any item is
        refused, the others of its group are `rolled_back`. Raises: ItemRefusedError if DynamoDB does not
        take a group for another reason.
        """

    def remove_tombstones(self, tombstones: Sequence[Item]) -> int:
        """Delete each tombstone with an unchanged ticket; returns how many there were."""


class OwnStore(Protocol):
    """Writes of a single writer to a table that holds foreign items too. Raises: as a ConditionalStore does."""

    def write_own(self, items: Sequence[EncodedItem]) -> list[Outcome]:
        """Put each item if the key is free, or holds an item of the same source, or a tombstone, regardless of tickets;
        no two under one key. Outcomes in the order of `items`: stored, owned_by_other or unwritten."""


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
        """The remembered keys of each root before. If its ticket is not higher, it becomes `ticket`, and the intended
        keys are added; if it is higher, nothing is changed."""

    def settle(self, ticket: int, current: Mapping[Root, Collection[ItemKey]]) -> None:
        """Remember only the current keys, if the highest ticket still is `ticket`."""

    def request_keys(self, requests: Sequence[KeyRequest], ticket: int) -> None:
        """`ticket`: of the reading in which the rows want the keys; the highest one of each request is kept."""

    def requests_of(self, keys: Sequence[ItemKey]) -> list[KeyRequest]: ...

    def reached(self, ticket: int) -> None:
        """Items are going to be written with this ticket: the highest one stays known when the source is restored."""

    def highest(self) -> int:
        """The highest ticket that was reached; 0 if none was."""

    def withdraw(self, requests: Sequence[KeyRequest], ticket: int) -> None:
        """Forget these requests, as far as no later reading than that of `ticket` made them; those that are gone are no
        fault."""


class OpenFindings(Protocol):
    """Findings of live change that stay open until their row is processed without fault, by any run of the job. One of a
    kind for each row, item key and attribute. Each method is one transaction."""

    def settle(self, tickets: Mapping[Root, int], found: Sequence[Finding]) -> None:
        """Open the findings; close open ones of the processed roots that were not found again.

        `tickets`: of the read of each root; findings of a newer read stay unchanged.
        """

    def close_marks(self) -> None:
        """No mark is left that could not be processed."""

    def keep_entities(self, names: Collection[str]) -> None:
        """Close findings of rows of other entities, which are no longer processed."""

    def counts(self, above: int = -1) -> dict[str, int]:
        """Open findings per kind, of readings with tickets above that one."""

    def read(self, limit: int | None = None) -> list[Finding]:
        """The oldest readings first."""

    def roots(self) -> list[Root]:
        """The rows that open findings are of."""


WriterKind = Literal["fast", "conditional", "relay", "strict", "undo"]
"""`undo` deletes; no other writer may run at the same time."""


class Writer(Struct, frozen=True):
    """A process that writes items. `since`: start of its oldest work in progress, `alive_at` its last heartbeat, both in
    seconds of the journal's clock; `fenced`: asked to stop."""

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
        """Registers a writer. 'fast' is given only while no other kind but 'undo' ever was here; else it is
        'conditional'."""

    def beat(self, writer: Writer, *, begins: bool = False) -> Writer:
        """Renew the heartbeat; `begins`: all work in progress begins now. Returns whether it was fenced."""

    def leave(self, writer: Writer) -> None: ...

    def fence(self) -> list[Writer]:
        """Admit no fast writer from now on, and ask the running ones to stop. Returns those that are (or may be) alive."""

    def living(self, silent_s: float) -> list[Writer]:
        """Writers whose last heartbeat is younger than `silent_s`."""


# ── A source's knowledge of the writers of its tables, and how their rights are revoked ──


class ActivityCounts(Struct, frozen=True):
    """Changes of tables as the engine counts them; only the difference of two readings has a meaning.

    `tables`: by the requested names; without those that the engine does not count. `whole`: of all tables that triggers
    capture, counted by the marks that they left; None without capture. `source`: what counts, in words.
    `blind`: why the engine does not count by table, '' if it does. `open`: transactions that have written and not ended,
    by an id of the engine's, with the table that they write ('' if unknown); None without the right to see them, which
    `unseen` names. `who`: their user and program, by the same id, if the engine reports them. `may_write`: roles by
    table, if everybody may read them.
    """

    tables: Mapping[str, str]
    whole: int | None
    source: str
    blind: str = ""
    open: Mapping[str, str] | None = {}
    unseen: str = ""
    who: Mapping[str, str] = {}
    may_write: Mapping[str, Sequence[str]] = {}


class Activity(Protocol):
    """The source's own statistics of changes. Raises, from every method: SourceError if it is unreachable."""

    def look(self, tables: Sequence[str]) -> ActivityCounts: ...

    def views(self) -> set[str]:
        """Views, by their real names."""

    def named(self) -> set[str]:
        """Tables of the source that the job names, by capture's names: facts may not contain them."""

    def read_only(self, tables: Sequence[str]) -> list[str]:
        """Statements that revoke the right to write these tables, for a person to run."""

    def drops(self, tables: Sequence[str]) -> list[str]:
        """Statements that drop these tables, in their order."""

    def waiting(self, tables: Sequence[str]) -> Mapping[str, int]:
        """Marks by table, '' for rows to process, and changes of these tables that are not marks yet; capture must be
        installed."""


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
    """The stream of a table as it is now. `arn`: '' if it never had one; a table that was created again, or its stream
    disabled and enabled, has another. `view`: which images its records hold."""

    arn: str
    is_on: bool
    view: str
    shards: tuple[Shard, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """One change of one item. Images identify the rows that may have changed, and are never applied: the item may be
    newer by the time a record is read (see docs/decisions/0029-streams.md).

    `created_at`: seconds since 1970 by the service's clock, rounded down to whole ones. `old_wired`, `new_wired`: the
    images in DynamoDB's own form, in which sets differ from lists.
    """

    sequence: str
    created_at: float
    keys: Item
    old: Item | None = None
    new: Item | None = None
    old_wired: WiredItem | None = field(default=None, compare=False, repr=False)
    new_wired: WiredItem | None = field(default=None, compare=False, repr=False)


class RecordPage(Struct, frozen=True):
    """Records of one shard in their order. `next_iterator`: None if the shard was closed and this was its last page."""

    records: list[StreamRecord]
    next_iterator: str | None


class StreamPosition(Struct, frozen=True):
    """`sequence`: of the record at which, or after which, a reader begins; '' for the other two."""

    kind: Literal["TRIM_HORIZON", "LATEST", "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"]
    sequence: str = ""


class StreamSource(Protocol):
    """The stream of one table. Each call retries transient failures, and raises StoppedError if they persist.

    `mend`: what to do if changes may be lost; the end of messages.
    """

    table: str
    mend: str

    def state(self) -> StreamState:
        """Raises: TargetError if the table does not exist."""

    def iterator(self, stream: str, shard: str, position: StreamPosition) -> str:
        """Iterator at the start of `records`; valid for 15 minutes.

        Raises: LostRecordsError if the stream no longer contains this position, or the shard.
        """

    def records(self, stream: str, shard: str, iterator: str, limit: int) -> RecordPage:
        """The next records, `limit` or fewer (1,000 and 1 MB at most); none if none are there yet.

        Raises: ExpiredIteratorError; LostRecordsError as above.
        """


# ── progress ──


class Checkpoint(Struct, frozen=True):
    """The progress in a shard. `sequence`: of the last record of those all processed; '' for none yet. `passed_at`:
    everything created earlier is processed, by the journal's clock. `owner`: the reader that has it until `leased_until`;
    '' for none."""

    shard: str
    parent: str
    sequence: str
    passed_at: float
    is_finished: bool = False
    owner: str = ""
    leased_until: float = 0.0


class Checkpoints(Struct, frozen=True):
    """Checkpoints of a stream's shards, and the time by the journal's clock at which they were read."""

    now: float
    shards: tuple[Checkpoint, ...]

    def lags_s(self) -> dict[str, float]:
        """By unfinished shard its lag in seconds; also of one that waits for its parent or a reader."""
        open_shards = (shard for shard in self.shards if not shard.is_finished)
        return {shard.shard: max(0.0, self.now - shard.passed_at) for shard in open_shards}


class StreamJournal(Protocol):
    """Checkpoints of the stream of one table, for one job. Every method is one transaction; all times are the journal's.

    A reader is named by its `owner`, which no other one ever has.
    """

    def stream(self) -> str:
        """The stream that was begun with; '' for none."""

    def begin(self, stream: str) -> None:
        """Switch to this stream, with no shard processed yet. Checkpoints of the former one are forgotten."""

    def list_shards(self, stream: str, shards: Sequence[Shard], age_s: float) -> None:
        """The stream named these shards so many seconds ago.

        A new one was absent from the list before, so that all its records are younger. Finished ones that it has not
        listed for days are forgotten.
        """

    def claim(self, stream: str, owner: str, lease_s: float) -> Checkpoints:
        """Claim shards for the reader, by `allotted`; those beyond become free at once. Call it between two batches only:
        lost shards must not be in progress."""

    def renew(self, stream: str, owner: str, lease_s: float, passed_at: Mapping[str, float]) -> set[str]:
        """The shards that still are the reader's, now for so long from now on; how far each of them is passed."""

    def save(self, stream: str, owner: str, done: Checkpoint) -> bool:
        """The checkpoint: `sequence`, `passed_at`, `is_finished`. False, with nothing kept, if another reader has it."""

    def leave(self, stream: str, owner: str) -> None:
        """The reader has ended: its shards may be claimed at once."""

    def read(self, stream: str) -> Checkpoints:
        """All shards that are known."""


# ── pure ──

FORGOTTEN_S = 48 * 3600.0
"""A finished shard that the stream has not named for so long is never named again: it keeps a closed one for a day."""


def allotted(shards: Collection[Checkpoint], owner: str, readers: int, now: float) -> list[Checkpoint]:
    """The shards that one of so many readers is to hold: an equal part, those that it has before others, the oldest
    first.

    Only shards with finished or missing parents: an item's changes continue in a child of their shard, and would
    otherwise be processed out of order.
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
    """The intended row with this key. `values`: of all written columns, with the key's; None: no row."""

    table: TableFacts = field(repr=False)
    key: Row = field(repr=False)
    values: Row | None = field(repr=False)


class RefusedChange(Struct, frozen=True):
    """A change that the source does not take as it is now. It holds no value of a row but in `change`."""

    change: IntendedRow
    kind: RefusalKind


class RowWriter(Protocol):
    """Writes rows of the source. Every call does no harm when it is done twice."""

    def write(self, changes: Sequence[IntendedRow], check: Check) -> list[RefusedChange]:
        """Write the rows in this order, in one transaction; if one is refused, in one each, so that the others are
        written.

        Rows that want each other's values of a unique index are then tried together, if a column of it is nullable; and
        rows that refer to each other, if a foreign key is nullable or deferred. A row is deleted only if no other row
        refers to it: no ON DELETE of a key acts. `check` is called before each transaction.
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
    """A row that is checked again. `due_at`: a time of the journal's: for `gone`, the one that all shards must have
    passed. `looks`: how often that was so, and no item had it. `tries`: how often it waited for the same reason; `why`:
    in words, without values."""

    row: RowId
    waits: Waits
    due_at: float
    why: str = ""
    looks: int = 0
    tries: int = 0

    @property
    def is_finding(self) -> bool:
        """Whether a person must look at it: no likely change resolves it."""
        return self.waits == "misfit" or self.tries >= TRIES


TRIES = 8
"""About a minute, with pauses that double from half a second."""


class ReverseJournal(Protocol):
    """Keys and waiting rows of one job and its table. Every method is one transaction, and may be done twice."""

    def remember(self, keys: Mapping[RowId, Collection[ItemKey]]) -> None:
        """Record that these items contain the row, or did. Kept until `forget`."""

    def keys_of(self, rows: Collection[RowId]) -> dict[RowId, set[ItemKey]]: ...

    def rows_of(self, keys: Collection[ItemKey]) -> set[RowId]:
        """Rows that any of these items holds, or held."""

    def wait(self, rows: Collection[WaitingRow]) -> None:
        """Record the waiting rows, each in place of its former record."""

    def done(self, rows: Collection[RowId]) -> None:
        """Remove the rows from the waiting ones."""

    def forget(self, rows: Mapping[RowId, WaitingRow]) -> None:
        """Forget deleted rows with their keys, if they still wait as given. Another process has found an item of any
        other row meanwhile."""

    def withdraw(self, tables: Collection[str]) -> None:
        """Stop waiting for rows of these tables, which no process makes from items any longer. Their keys stay."""

    def waiting(self, limit: int | None = None, tables: Collection[str] | None = None) -> list[WaitingRow]:
        """The waiting rows, those due first at the beginning. `tables`: of these only; None: of all."""

    def waiting_of(self, rows: Collection[RowId]) -> dict[RowId, WaitingRow]: ...

    def ask_to_stop(self) -> None:
        """Every process that has begun by now is to end."""

    def stopped_at(self) -> float:
        """When they were last asked; 0 for never."""

    def now(self) -> float: ...


# ── result of comparing rows with the rows that items make ──

RowDifferenceKind = Literal["no item", "no row", "different", "claims", "misfit"]
"""`no item`: no item holds the row; `no row`: items hold a row that is not there; `claims`: its items contradict each
other, or one is missing; `misfit`: an item of it fits no row."""

MOST = 1_000_000
"""The most rows that may differ; the comparison then stops, as the items do not match at all."""


class RowDifference(Struct, frozen=True):
    """`table`: '' for an item of an unknown row; `key` is then the item's. `why` holds no value."""

    kind: RowDifferenceKind
    table: str
    key: SourceKey
    why: str = ""


class Unkept(Struct, frozen=True):
    """Attributes of items that no row keeps, each with how many items have it, by (item type, attribute).

    `extra`: those that rows do not make, so that no column has them; `forms`: those with another type or value than the same
    row gives them, such as a set in place of a list.
    """

    extra: Mapping[tuple[str, str], int] = {}
    forms: Mapping[tuple[str, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self.extra or self.forms)


class RowsVerified(Struct, frozen=True):
    """`counts`: by table and kind. `differences`: the first of them. `is_cut`: too many differ, and the rest was not
    compared. `unkept`: attributes that are lost when items are made from these rows again."""

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
