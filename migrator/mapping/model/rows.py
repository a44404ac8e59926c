"""Rows written into the source: what a row is to be, why the source refuses it, and what is remembered on the way back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from migrator.mapping.model.facts import TableFacts
from migrator.mapping.model.table import ItemKey, SourceKey

Row: TypeAlias = Mapping[str, Any]
"""A row, or the key of one, by written column names, each value in the decoded form of the heart."""
Check: TypeAlias = Callable[[], None]
"""Raises StoppedError where another process may do the work by now."""

RefusalKind = Literal["foreign key", "unique", "not null", "value", "trigger"]
"""`foreign key`: a parent is missing or children are left; `value`: its type, range or a CHECK; `trigger`: one of the
source's own."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """What the row with this key is to be. `values`: of all columns that are written, the key's among them; None: no row."""

    table: TableFacts = field(repr=False)
    key: Row = field(repr=False)
    values: Row | None = field(repr=False)


class RefusedChange(Struct, frozen=True):
    """A change that the source does not take as it is now. It holds no value of a row but in `change`."""

    change: RowChange
    kind: RefusalKind


class RowWriter(Protocol):
    """Writes rows of the source. Every call does no harm when it is done twice."""

    def write(self, changes: Sequence[RowChange], check: Check) -> list[RefusedChange]:
        """Makes the rows so, in this order, in one transaction; where one is refused, in one each, so that the others go on.

        Rows that want each other's values of a unique index are then tried together, where a column of it may be NULL; and
        rows that refer to each other, where a foreign key may be NULL or deferred.
        A row is deleted only where no other row refers to it: no key's ON DELETE acts. `check` is asked before each
        transaction.
        Raises: SourceError; what `check` raises.
        """

    def move_counters(self, tables: Sequence[TableFacts]) -> None:
        """What the source numbers new rows by goes past the highest number that a row has."""


# ── what is remembered on the way back ──

RowId: TypeAlias = tuple[str, SourceKey]
"""A table by its written name, and the row's key as text."""
Waits = Literal["gone", "refused", "misfit", "claims", "changing"]
"""`gone`: no item holds the row, and it goes once all shards have passed that time. `refused`: by the source. `misfit`: an
item of it fits no row. `claims`: its items say different things, or one is missing. `changing`: its items were others at
each reading, or changed while it waited."""


class WaitingRow(Struct, frozen=True):
    """A row that is looked at again. `due_at`: a time of the journal's: for `gone`, the one that all shards have to have
    passed. `looks`: how often that was so, and no item held it. `tries`: how often it waited for the same reason; `why`: in
    words, without values."""

    row: RowId
    waits: Waits
    due_at: float
    why: str = ""
    looks: int = 0
    tries: int = 0

    @property
    def is_finding(self) -> bool:
        """Whether somebody has to look at it: nothing that is likely to come mends it."""
        return self.waits == "misfit" or self.tries >= TRIES


TRIES = 8
"""With pauses that double from half a second, these are about a minute."""


class ReverseJournal(Protocol):
    """Keys and waiting rows of one job and its table. Every method is one transaction, and may be done twice."""

    def remember(self, keys: Mapping[RowId, Collection[ItemKey]]) -> None:
        """These items hold the row, or held it. Kept until `forget`."""

    def keys_of(self, rows: Collection[RowId]) -> dict[RowId, set[ItemKey]]: ...

    def rows_of(self, keys: Collection[ItemKey]) -> set[RowId]:
        """Rows that any of these items holds, or held."""

    def wait(self, rows: Collection[WaitingRow]) -> None:
        """Each in place of what was said of its row before."""

    def done(self, rows: Collection[RowId]) -> None:
        """They wait no more."""

    def forget(self, rows: Mapping[RowId, WaitingRow]) -> None:
        """The rows are deleted: neither they nor their keys are kept of those that still wait as it says here. Of another
        one a process has found an item meanwhile."""

    def withdraw(self, tables: Collection[str]) -> None:
        """Rows of these tables wait no more, for no process makes them of items any more. Their keys stay."""

    def waiting(self, limit: int | None = None, tables: Collection[str] | None = None) -> list[WaitingRow]:
        """Those due first come first. `tables`: whose rows; None: of all."""

    def waiting_of(self, rows: Collection[RowId]) -> dict[RowId, WaitingRow]: ...

    def ask_to_stop(self) -> None:
        """Every process that has begun by now is to end."""

    def stopped_at(self) -> float:
        """When they were last asked; 0 for never."""

    def now(self) -> float: ...


# ── what a comparison of rows with the rows that items make came to ──

RowDifferenceKind = Literal["no item", "no row", "different", "claims", "misfit"]
"""`no item`: no item holds the row; `no row`: items hold a row that is not there; `claims`: its items say different things,
or one is missing; `misfit`: an item of it fits no row."""

MOST = 1_000_000
"""Rows that may differ before the rest is not looked at: nothing is like what the items say then."""


class RowDifference(Struct, frozen=True):
    """`table`: '' for an item of which nothing tells whose it is; `key` is the item's then. `why` holds no value."""

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
    """`counts`: by table and kind. `differences`: the first of them. `is_cut`: so many differ that the rest was not looked
    at. `unkept`: what is lost when items are made of these rows again."""

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
