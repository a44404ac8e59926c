"""Writing within a service: strict mode (items before the commit) and flush (items right after it)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from migrator.model.errors import MigratorError, StoppedError
from migrator.model.live import Change, ChangeMarks, Mark, Root, RootFinder
from migrator.model.table import ItemKey
from migrator.runtime.logs import get_logger
from migrator.runtime.retry import ending_at
from migrator.stages.live.relay import Relay
from migrator.stages.live.writers import Lifetimes, SharedLeases

# ── Strict mode: a service's items are written before its transaction commits, or the transaction fails ──

RelayOf = Callable[[RootFinder, Callable[[], None]], Relay]
"""A relay that reads with the finder, and asks the check before every write."""


@dataclass(frozen=True)
class Strict:
    """DESIGN §6, "Fail closed"; docs/protocol.md, "Strict mode".

    `check` raises when this writer must send nothing more. `longest_s`: what a transaction may last from its first
    change to its last write of an item.
    """

    marks: ChangeMarks
    relay_of: RelayOf
    lifetimes: Lifetimes
    clock: Callable[[], float]
    check: Callable[[], None]
    longest_s: float

    def write_first(self, changes: Sequence[Change], rows: RootFinder, begun_at: float) -> None:
        """Writes the items of the roots that the changes touch, as `rows` shows them inside of the transaction.

        Before that the changes are pre-marked: whatever becomes of the transaction, a relay looks at its rows again when
        nothing of this writing can take effect any more.
        Raises: StoppedError, or what an edge raises that gave up: the transaction is to be rolled back.
        """
        left_s = begun_at + self.longest_s - self.clock()
        what = f"dual write: the transaction has lasted longer than {self.longest_s:g} s"
        why = f"{what}; roll it back, and raise longest_transaction_s where it may"

        def check() -> None:
            """Lets nothing be sent when the pre-marks may be ripe already."""
            self.check()
            if self.clock() >= begun_at + self.longest_s:
                raise StoppedError(why)

        check()
        with ending_at(time.monotonic() + left_s, why):
            marks = self.marks.pre_mark(changes, left_s + 2 * self.lifetimes.request_s)
            relay = self.relay_of(rows, check)
            relay.refresh(reached(relay, marks))


def reached(relay: Relay, marks: Sequence[Mark]) -> dict[Root, set[ItemKey]]:
    """All roots that the marks touch, with the item keys that their images tell."""
    told: dict[Root, set[ItemKey]] = defaultdict(set)
    for mark in marks:
        for root, keys in relay.reach(mark).items():
            told[root] |= keys
    return told


# ── Flush: a service makes the items of its own changes at once, so that it reads its own writes ──

LONGEST_S = 5.0
"""After that it is left to the relay."""
REST_S = 10.0
"""So long nothing is tried after a failure: a table that does not answer would cost each commit LONGEST_S."""
_LATE = f"it took longer than {LONGEST_S:g} s"
_log = get_logger("flush")


@dataclass(frozen=True)
class Flush:
    """Best effort: the marks stay, and a relay finds everything as it should be, or does what was left."""

    marks: ChangeMarks
    relay: Callable[[], Relay]
    shared_leases: SharedLeases
    clock: Callable[[], float] = time.monotonic
    _failed_at: list[float] = field(default_factory=list)
    """The time of the last failure, or nothing."""

    def __call__(self, changes: Sequence[Change]) -> bool:
        """Whether the items of what was committed are written. Never raises: the service's commit is done."""
        if self._failed_at and self.clock() - self._failed_at[0] < REST_S:
            return False
        why = self._why_not(changes)
        self._failed_at[:] = [self.clock()] if why else []
        if why:
            _log.warning("flush_left_to_the_relay", reason=why, rests_s=REST_S)
        return not why

    def _why_not(self, changes: Sequence[Change]) -> str:
        try:
            with ending_at(time.monotonic() + LONGEST_S, _LATE), self.shared_leases.turn():
                relay = self.relay()
                relay.refresh(reached(relay, self.marks.shown(changes)))
        except MigratorError as error:
            return str(error) or type(error).__name__
        except Exception as error:
            # Whatever it is, the change is committed: a caller who saw an error would write it twice.
            return type(error).__name__
        return ""
