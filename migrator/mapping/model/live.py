"""Ports of live change: marks, tickets, remembered keys, writers, database activity."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from migrator.mapping.model.journal import Finding
from migrator.mapping.model.table import EncodedItem, Item, ItemKey, SourceKey

# ──
# What live change needs beside the data's edges: marks and tickets in the source, memory and writers in
# the journal.

Root: TypeAlias = tuple[str, SourceKey]
"""A root row: its entity's name and its key."""

Image: TypeAlias = Mapping[str, Any]
"""Relevant columns of a row by written name, values as the driver gives them when it reads the row itself."""

LONGEST_WAIT_S = 300.0
"""Of a mark that failed, until it is taken again."""
TICKETS_AN_EPOCH = 10**12

# ── source ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Mark:
    """A durable note that a row changed: of a captured table with its images, or of a root that is to be looked at.

    `table`: schema.table (or table) as the source has it, '' where `root` is named. `keys`: item keys that the root
    had. `cursor`: where the work on a mark of many roots goes on ('' at its start). `tries`: how often it failed.
    `fault`: why it cannot be read; '' where it can. `age_s`: how long ago the row changed when the mark was taken, by the
    source's clock.
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
"""Marks whose rows are counted, the oldest ones."""


SLOT_MEND = "run `migrator capture install`, which makes a new slot, then `migrator verify --repair`"
"""Of a log that misses changes."""


class SlotLag(Struct, frozen=True):
    """`bytes_behind`: of log that is not copied yet; `bytes_kept`: that the server keeps for the slot; `bytes_left`: before
    the slot is lost, None without a limit; `seconds`: since the moment up to which all is copied. `lost`: why changes may be
    missing, '' where none is."""

    slot: str
    bytes_behind: int
    bytes_kept: int
    bytes_left: int | None
    seconds: float
    has_reader: bool
    lost: str = ""

    def line(self) -> str:
        if self.lost:
            return f"slot {self.slot}: lost: {self.lost}; {SLOT_MEND}"
        left = "" if self.bytes_left is None else f", lost after {_size(self.bytes_left)} more"
        reader = "read by a relay" if self.has_reader else "no relay reads it"
        behind = f"{_size(self.bytes_behind)} and {self.seconds:,.0f} s behind"
        return f"slot {self.slot}: {reader}, {behind}, the server keeps {_size(self.bytes_kept)} of log{left}"


def _size(number: int) -> str:
    for unit, size in (("GB", 2**30), ("MB", 2**20), ("kB", 2**10)):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number} bytes"


@dataclass(frozen=True, slots=True)
class MarksState:
    """`oldest_age_s`: of the oldest mark that is ripe, 0 where none waits. `failed`: marks that were put back. `rows`: rows
    that the marks name, of more than MARKS_COUNTED at least; None if nothing counted them. `slot`: of a captured log."""

    waiting: int = 0
    oldest_age_s: float = 0.0
    failed: int = 0
    unripe: int = 0
    rows: int | None = None
    slot: SlotLag | None = field(default=None, compare=False)


class Change(Struct, frozen=True):
    """A row that a service's transaction changed: images as marks hold them, None is no row."""

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

        A lease only saves work: a mark may be worked by two. Marks with ids below those that were taken last (of a
        transaction that committed late, or that waited) may come some takes later.
        """

    def from_the_first(self) -> None:
        """The next take looks at all marks, so that nothing waits where it finds none."""

    def finish(self, ids: Sequence[int]) -> int:
        """Delete the marks and return how many were there: others may have finished some of them."""

    def advance(self, mark: Mark, cursor: str) -> None:
        """The mark's work goes on after `cursor`, behind all marks that wait; it may get another id."""

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
        """Raises: SourceError, SettingsError where this user may not do with marks what a relay does; none is changed."""


class KeptMark(Struct, frozen=True):
    """A change as a journal keeps it until it is worked. `before`, `after`: images as text; None is no row. `changed_at`: by
    the clock of who tells of it, seconds since 1970. `ready_in_s`: how long it waits before it may be taken."""

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
        """Deletes all marks: capture is taken away."""


class Tickets(Protocol):
    """The counter in the source, or in the journal of one that has none. A ticket is epoch * 10^12 + number."""

    def draw(self) -> int:
        """A number higher than all drawn before; committed before it is returned."""

    def highest(self) -> int:
        """The last ticket drawn; epoch * 10^12 where none was."""

    def installation(self) -> str:
        """What tells this installation of capture from any before and after it; it outlives an epoch."""

    def raise_epoch(self, above: int) -> int:
        """Moves on to an epoch all of whose tickets are higher than `above`; the new epoch."""


class TriedTickets(Tickets, Protocol):
    def probe(self) -> None:
        """Draws none. Raises: SourceError where this user may not."""


# ── target ──────────────────────────────────────────────────────────────────────────────────────

Verdict = Literal[
    "stored", "newer", "tombstoned_by_other", "owned_by_other", "rolled_back", "unwritten", "kept_changed"
]
"""Of a conditional write: stored; refused by something newer of the same source; by a newer tombstone of another row; by
a live item of another row; undone because another item of its transaction was refused; not taken, while others were.

kept_changed: a service changed attributes of its own since they were read; no caller sees it, for the store writes again."""


class Outcome(NamedTuple):
    """What came of one conditional write. `owner`: the `_src` of the other row's item or tombstone. `why`: it is
    unwritten. `ticket`: of what was in the way, 0 for nothing."""

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

        A group is one transaction (see table.py), and no two items of all of them are under one key. Where any item
        is refused, the others of its group are `rolled_back`. Raises: ItemRefusedError where DynamoDB does not
        take a group for another reason.
        """

    def remove_tombstones(self, tombstones: Sequence[Item]) -> int:
        """Delete each tombstone that still is what was given (same ticket); how many were."""


class OwnStore(Protocol):
    """Writes of a single writer to a table that holds foreign items too. Raises: as a ConditionalStore does."""

    def write_own(self, items: Sequence[EncodedItem]) -> list[Outcome]:
        """Puts each item where nothing is, or what is of its own source, or a tombstone, whatever their tickets; no two
        under one key. Outcomes in the order of `items`: stored, owned_by_other or unwritten."""


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
    """Keys that cannot be worked out again, and keys that two roots want. Every method is one transaction."""

    def remember(self, ticket: int, intended: Mapping[Root, Collection[ItemKey]]) -> dict[Root, Remembered]:
        """What was remembered of each root before. Where its ticket is not higher, it now is `ticket`, and the
        intended keys are added; where it is higher, nothing is changed."""

    def settle(self, ticket: int, current: Mapping[Root, Collection[ItemKey]]) -> None:
        """Only the current keys stay remembered, where the highest ticket still is `ticket`."""

    def request_keys(self, requests: Sequence[KeyRequest], ticket: int) -> None:
        """`ticket`: of the reading in which the rows want the keys; the highest one of each request is kept."""

    def requests_of(self, keys: Sequence[ItemKey]) -> list[KeyRequest]: ...

    def reached(self, ticket: int) -> None:
        """Items are going to be written with this ticket: the highest one stays known when the source is restored."""

    def highest(self) -> int:
        """The highest ticket that was reached; 0 where none was."""

    def withdraw(self, requests: Sequence[KeyRequest], ticket: int) -> None:
        """Forget these requests, as far as no later reading than that of `ticket` made them; those that are gone are no
        fault."""


class OpenFindings(Protocol):
    """Findings of live change that hold until their row was worked well, whichever run of the job does it. One of a kind
    for each row, item key and attribute. Every method is one transaction."""

    def settle(self, tickets: Mapping[Root, int], found: Sequence[Finding]) -> None:
        """What was found is open; what was open of the roots that were worked, and was not found again, is closed.

        `tickets`: of the reading of each root; what a newer reading has found stays as it is.
        """

    def close_marks(self) -> None:
        """No mark is left that could not be worked."""

    def keep_entities(self, names: Collection[str]) -> None:
        """Closes what was found of rows of other entities: nothing will work them any more."""

    def counts(self, above: int = -1) -> dict[str, int]:
        """Open findings per kind, of readings with tickets above that one."""

    def read(self, limit: int | None = None) -> list[Finding]:
        """The oldest readings first."""

    def roots(self) -> list[Root]:
        """The rows that open findings are of."""


WriterKind = Literal["fast", "conditional", "relay", "strict", "undo"]
"""`undo` deletes; no other writer may be at work beside it."""


class Writer(Struct, frozen=True):
    """A process that writes items. `since`: when its oldest work that is under way began, `alive_at` its last heartbeat,
    both in seconds of the journal's clock; `fenced`: told to stop."""

    id: str
    kind: WriterKind
    since: float
    alive_at: float
    fenced: bool = False

    @property
    def process(self) -> str:
        """What the ids of all writers of one process have in common: a relay is a writer in each of its threads."""
        return self.id[:8]


class Writers(Protocol):
    """Registered writers of one table, so that unsafe combinations are refused. Every method is one transaction."""

    def enter(self, kind: WriterKind) -> Writer:
        """Registers a writer. 'fast' is given only while no other kind but 'undo' ever was here; else it is
        'conditional'."""

    def beat(self, writer: Writer, *, begins: bool = False) -> Writer:
        """Renews the heartbeat; `begins`: what is under way from now on begins now. Says whether it was fenced."""

    def leave(self, writer: Writer) -> None: ...

    def fence(self) -> list[Writer]:
        """No fast writer may enter from now on; every one that is here is told to stop. Those that are (or may be)
        alive."""

    def living(self, silent_s: float) -> list[Writer]:
        """Writers whose last heartbeat is younger than `silent_s`."""


# ── What a source knows of the writers of its tables, and how their rights are taken away ──


class ActivityCounts(Struct, frozen=True):
    """Changes of tables as the engine counts them; only a difference of two looks means anything.

    `tables`: by the names that were asked for; those that the engine says nothing of are missing. `whole`: of all tables
    that triggers capture, counted by the marks that they left; None where nothing is captured. `source`: what counts, in
    words. `blind`: why the engine counts nothing by table, '' where it does. `open`: transactions that have written and
    not ended, by an id of the engine's, with the table that they write ('' where the engine does not say which); None
    where they may not be seen, and then `unseen` says what is missing. `who`: the user and program of those, by the same
    id, where the engine tells. `may_write`: roles by table, where everybody may know them.
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
    """What the source itself knows of changes. Raises, from every method: SourceError where it cannot be asked."""

    def look(self, tables: Sequence[str]) -> ActivityCounts: ...

    def views(self) -> set[str]:
        """By their real names."""

    def named(self) -> set[str]:
        """Tables of the source that the job names, as capture would name them: facts may say nothing of them."""

    def read_only(self, tables: Sequence[str]) -> list[str]:
        """What takes the right to write these tables away, as somebody runs it by hand."""

    def drops(self, tables: Sequence[str]) -> list[str]:
        """What takes these tables away, in its order."""

    def waiting(self, tables: Sequence[str]) -> Mapping[str, int]:
        """Marks by table, '' for rows that are to be looked at, and changes of these tables that are none yet; capture must
        be installed."""
