"""Strict mode: a service's items are written before its transaction commits, or the transaction fails."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migrator.errors import StoppedError
from migrator.model import ItemKey
from migrator.ports.live import Change, ChangeMarks, Mark, Root, RootFinder
from migrator.retry import ending_at
from migrator.stages.lifetimes import Lifetimes
from migrator.stages.relay import Relay

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
