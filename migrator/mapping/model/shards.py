"""DynamoDB Streams as stages see them: shards, records, checkpoints under leases; which shards a reader is to hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from msgspec import Struct

from migrator.mapping.model.edges import WiredItem
from migrator.mapping.model.table import Item

FRESH_S = 23 * 3600.0
"""A shard of which all is worked up to a moment that is not longer ago has lost nothing that is not worked.

A stream keeps each record for 24 hours; the hour less is for clocks that differ and for lists of shards that come late.
Source: Developer Guide, "Change data capture for DynamoDB Streams".
"""

ALL_OF_IT = "NEW_AND_OLD_IMAGES"
"""The view of a stream that a reader needs: what a record was before says which rows it concerned."""

MEND = (
    "restart the stream (`migrator reverse start JOB --restart`), then run `migrator reverse verify JOB --repair`, which"
    " writes the rows of lost changes"
)
"""Of the way back. `migrator verify --repair` is no mend: it writes items by rows, and leaves out what services write
themselves."""

MEND_OF_SOURCE = (
    "run `migrator capture install`, which restarts the stream, then `migrator verify --repair`, which captures the rows of"
    " lost changes"
)
"""Of a stream that tells what changes in the source."""

# ── the stream ──


class Shard(Struct, frozen=True):
    """`parent`: '' for none. One that the stream does not name any more was closed longer ago than it keeps records."""

    id: str
    parent: str = ""


class StreamState(Struct, frozen=True):
    """The stream of a table as it is now. `arn`: '' where there never was one; a table that was created anew, or whose
    stream was switched off and on, has another. `view`: which images its records hold."""

    arn: str
    is_on: bool
    view: str
    shards: tuple[Shard, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """One change of one item. Images say which rows may have changed, and are never applied: by the time that a record is
    read the item may be newer (see docs/decisions/0029-streams.md).

    `created_at`: seconds since 1970 by the service's clock, rounded down to whole ones. `old_wired`, `new_wired`: the
    images in DynamoDB's own form, which tells a set from a list.
    """

    sequence: str
    created_at: float
    keys: Item
    old: Item | None = None
    new: Item | None = None
    old_wired: WiredItem | None = field(default=None, compare=False, repr=False)
    new_wired: WiredItem | None = field(default=None, compare=False, repr=False)


class RecordPage(Struct, frozen=True):
    """Records of one shard in their order. `next_iterator`: None where the shard was closed and this was its last page."""

    records: list[StreamRecord]
    next_iterator: str | None


class Position(Struct, frozen=True):
    """`sequence`: of the record at which, or after which, a reader begins; '' for the other two."""

    kind: Literal["TRIM_HORIZON", "LATEST", "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"]
    sequence: str = ""


class StreamSource(Protocol):
    """The stream of one table. Every call retries what can pass and raises StoppedError when it does not.

    `mend`: what to do where changes may be lost; the end of messages."""

    table: str
    mend: str

    def state(self) -> StreamState:
        """Raises: TargetError where there is no such table."""

    def iterator(self, stream: str, shard: str, position: Position) -> str:
        """Where `records` begins; it is valid for 15 minutes.

        Raises: LostRecordsError where the stream holds this place, or the shard, no more.
        """

    def records(self, stream: str, shard: str, iterator: str, limit: int) -> RecordPage:
        """The next records, `limit` or fewer (1,000 and 1 MB at most); none where there are none yet.

        Raises: ExpiredIteratorError; LostRecordsError as above.
        """


# ── how far it is worked ──


class Checkpoint(Struct, frozen=True):
    """How far a shard is worked. `sequence`: of the last record of those that all are; '' for none yet. `passed_at`:
    whatever was created before it is worked, by the journal's clock. `owner`: the reader that has it until `leased_until`;
    '' for none.
    """

    shard: str
    parent: str
    sequence: str
    passed_at: float
    is_finished: bool = False
    owner: str = ""
    leased_until: float = 0.0


class Checkpoints(Struct, frozen=True):
    """Those of a stream's shards, and the time by the journal's clock at which they were read."""

    now: float
    shards: tuple[Checkpoint, ...]

    def lags_s(self) -> dict[str, float]:
        """By shard that is not finished, the seconds it is behind; also of one that waits for its parent or a reader."""
        open_shards = (shard for shard in self.shards if not shard.is_finished)
        return {shard.shard: max(0.0, self.now - shard.passed_at) for shard in open_shards}


class StreamJournal(Protocol):
    """Checkpoints of the stream of one table, for one job. Every method is one transaction; all times are the journal's.

    A reader is named by its `owner`, which no other one ever has.
    """

    def stream(self) -> str:
        """The stream that was begun with; '' for none."""

    def begin(self, stream: str) -> None:
        """From now on it is this one, and nothing of it is worked yet. Checkpoints of the one before are forgotten."""

    def list_shards(self, stream: str, shards: Sequence[Shard], age_s: float) -> None:
        """The stream named these shards so many seconds ago.

        One that is new is known to have been absent when it was asked before, so that all its records are younger.
        Finished ones that it has not named for days are forgotten.
        """

    def claim(self, stream: str, owner: str, lease_s: float) -> Checkpoints:
        """The shards that are the reader's for so long, by `allotted`; what it had beyond them is free at once.

        Call it between two batches only: what it loses must not be under way.
        """

    def renew(self, stream: str, owner: str, lease_s: float, passed_at: Mapping[str, float]) -> set[str]:
        """The shards that still are the reader's, now for so long from now on; how far each of them is passed."""

    def save(self, stream: str, owner: str, done: Checkpoint) -> bool:
        """The checkpoint: `sequence`, `passed_at`, `is_finished`. False, with nothing kept, where another reader has it."""

    def leave(self, stream: str, owner: str) -> None:
        """The reader has ended: what it had may be claimed at once."""

    def read(self, stream: str) -> Checkpoints:
        """All shards that are known."""


# ── pure ──

FORGOTTEN_S = 48 * 3600.0
"""A finished shard that the stream has not named for so long is never named again: it keeps a closed one for a day."""


def allotted(shards: Collection[Checkpoint], owner: str, readers: int, now: float) -> list[Checkpoint]:
    """The shards that one of so many readers is to hold: an equal part, those that it has before others, the oldest first.

    Only shards whose parents are finished or gone: an item's changes go on in a child of the shard that they were in, so
    that they would be worked in another order otherwise.
    """
    unfinished = {shard.shard for shard in shards if not shard.is_finished}
    ready = [shard for shard in shards if shard.shard in unfinished and shard.parent not in unfinished]
    own = [shard for shard in ready if shard.owner == owner]
    free = [
        shard for shard in ready if shard.owner != owner and not (shard.owner and shard.leased_until > now)
    ]
    free.sort(key=lambda shard: (shard.passed_at, shard.shard))
    return (own + free)[: -(-len(ready) // max(1, readers))]
