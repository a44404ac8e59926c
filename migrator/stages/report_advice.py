"""What differences of a kind mostly come from, and what helps: said where their values do not tell more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from migrator.mapping.causes import Pair, value_cause

LATE_S = 300.0
"""Marks that wait longer are late: a relay that runs has worked them by then."""
_WRITTEN_BESIDE = "written beside capture, or a change that left no mark"
_MEND_MAPPING = "change the mapping or the pattern's SQL; `compare:` in the pattern where both are right"
_REPAIR = "`migrator verify JOB --repair`, then `migrator relay JOB --once`"


@dataclass(frozen=True)
class Circumstances:
    """What is known beside the difference. `waiting`: marks that no relay has worked yet, `oldest_s`: the age of the oldest
    at `now_s` (seconds since 1970); `backfilled`: whether a backfill
    has ended; `captured`: whether changes leave marks. `of_pattern`: of answers, not of rows beside items:
    the pattern itself may be what is wrong. `rows`: of how many rows the examples are, 0 where that is not known."""

    waiting: int = 0
    backfilled: bool = True
    captured: bool = True
    of_pattern: bool = True
    oldest_s: float = 0.0
    now_s: float = 0.0
    rows: int = 0

    def of(self, found_at: float | None) -> Circumstances:
        """The same for what was last found then (None: nobody noted when). In a shop that writes some mark nearly always
        waits; one that is younger than the difference is not where it comes from."""
        is_late = self.oldest_s >= LATE_S if found_at is None else self.now_s - self.oldest_s <= found_at
        return self if is_late else replace(self, waiting=0)

    @property
    def repair(self) -> str:
        return (
            _REPAIR
            if self.captured
            else "`migrator backfill JOB --restart`, which writes every row once more"
        )


@dataclass(frozen=True)
class Cause:
    """`likely`: '' where nobody knows."""

    likely: str
    advice: str


SINCE_GONE = Cause(
    "row and item are the same by now: mended since, or the change had been on its way",
    "`migrator verify JOB` says whether all of them are",
)
"""Of differences whose examples were all read again."""

_OF_RUNS: dict[str, Cause] = {
    "refused": Cause(
        "the mapping refuses the row", "mend the row or the mapping; `migrator findings JOB` says why"
    ),
    "collision": Cause("two rows make one key", "give the key another part, or mend the rows"),
    "unwritten": Cause("the table did not take the item", "`migrator backfill JOB` tries again"),
    "foreign": Cause(
        "somebody else wrote items into the table", "remove them, or give this job a table of its own"
    ),
    "schema": Cause("the source's schema changed during a run", "look at the mapping, then run again"),
    "mark": Cause(
        "a mark that the relay cannot work", "`migrator findings JOB` says why; mend the row or the mapping"
    ),
    "apart": Cause("more than one transaction holds", "readers may see a mix; make the row's items fewer"),
    "count": Cause("items are missing, or are too many", "see the other differences of this entity"),
    "sum": Cause("values differ, or items are missing", "see the other differences of this entity"),
}


def cause_of(kind: str, attribute: str, pairs: Sequence[Pair], around: Circumstances) -> Cause:
    """The likely cause of all differences of a group. `pairs`: of the attribute, in the examples that there are."""
    if kind in _OF_RUNS:
        return _OF_RUNS[kind]
    if kind == "error":
        side = "DynamoDB" if attribute == "table" else "SQL"
        return Cause(f"{side} gave no answer; the examples say why", f"mend it, then compare again ({side})")
    if kind == "order":
        what = "the sort key keeps another order than SQL: unpadded numbers, other letters, or no ORDER BY"
        return Cause(what, "pad the sort key or add to ORDER BY; `order: any` where order does not matter")
    if attribute:
        return _of_attribute(kind, pairs, around)
    return _of_row(kind, around)


def _of_attribute(kind: str, pairs: Sequence[Pair], around: Circumstances) -> Cause:
    if said := value_cause(pairs):
        mended = f"{around.repair}; see who else writes these items"
        if around.of_pattern and around.rows == 1:
            return Cause(
                said, f"one row alone shows it: {mended}; only where others do, too: {_MEND_MAPPING}"
            )
        return Cause(said, _MEND_MAPPING if around.of_pattern else mended)
    if around.waiting:
        return Cause(_lagging(around), "`migrator relay JOB`, then compare again")
    if pairs and all(item == "null" for _, item in pairs):
        what = "the items have no such attribute: they were written before the mapping had it, or lost it"
        return Cause(what, around.repair)
    if pairs and all(row == "null" for row, _ in pairs):
        what = "SQL has no value: the item kept an old one, or somebody else wrote it"
        return Cause(what, around.repair)
    return Cause("", f"look at the examples; if the item is old: {around.repair}")


def _of_row(kind: str, around: Circumstances) -> Cause:
    if around.waiting:
        return Cause(_lagging(around), "`migrator relay JOB`, then compare again")
    if kind == "missing" and not around.backfilled:
        return Cause("no backfill has ended yet", "`migrator backfill JOB`")
    if kind == "missing":
        left_out = "; or the pattern's key, index or filter leaves it out" if around.of_pattern else ""
        return Cause(f"never written or lost: {_WRITTEN_BESIDE}{left_out}", around.repair)
    if kind == "unexpected":
        left_out = "; or the pattern's SQL leaves it out" if around.of_pattern else ""
        return Cause(f"its row was deleted or changed its key: {_WRITTEN_BESIDE}{left_out}", around.repair)
    return Cause("", around.repair)


def _lagging(around: Circumstances) -> str:
    return f"changes on their way: {around.waiting:,} mark(s) wait for a relay"
