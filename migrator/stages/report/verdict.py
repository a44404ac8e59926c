"""The verdict of a report, and advice for each kind of difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from migrator.mapping.show.causes import Pair, value_cause
from migrator.model.phase import SIDES, Side
from migrator.model.report import Group, LagReport, PatternReport, Refused, RunReport, Verdict

# ──
# What differences of a kind mostly come from, and what helps: said where their values do not tell more.

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


# ── What a report comes to: one line on what stands, and the command that helps next ──

_NAMED = 3
_ERRORS = 0.003
"""The share of calls that may fail: what cutover allows unless the job says otherwise."""
_UNSETTLED = 0.003
"""The share of answers that may have differed without being settled: a few are each time a service ends."""


@dataclass(frozen=True)
class Standings:
    """What the verdict is made of. `runs`: the last of each kind; `job`: as the user named it."""

    job: str
    groups: Sequence[Group]
    refused: Sequence[Refused]
    patterns: Sequence[PatternReport]
    runs: Sequence[RunReport]
    lag: LagReport

    @property
    def standing(self) -> list[Group]:
        """Differences that count."""
        return [one for one in self.groups if not one.before_move]

    def run(self, kind: str) -> RunReport | None:
        return next((one for one in self.runs if one.kind == kind), None)

    def command(self, rest: str) -> str:
        return rest.replace("JOB", self.job)


@dataclass(frozen=True)
class _Point:
    """One thing that speaks against moving on, and what helps."""

    reason: str
    command: str
    purpose: str


def verdict_of(known: Standings) -> Verdict:
    """Differences before gaps, gaps before moves; the first point gives the command."""
    against = [*_differences(known), *(point for ask in _AGAINST if (point := ask(known)) is not None)]
    gaps = [point for ask in _GAPS if (point := ask(known)) is not None]
    points = [*against, *gaps]
    if not points:
        return _clean(known)
    first, reasons = points[0], [one.reason for one in points]
    if not against:
        title = "Nothing differs as far as was looked, and not all was looked at"
        return Verdict("unproven", title, reasons, first.command, first.purpose)
    title = f"{'Differences stand; do' if known.standing else 'Do'} not move a pattern yet"
    return Verdict("different", title, reasons, first.command, first.purpose)


# ── what stands against a move ──


def _differences(known: Standings) -> list[_Point]:
    """Rows and items first. Answers are counted apart: many of them may show one item."""
    reasons = [_differing_items(known), _differing_answers(known)]
    command, purpose = _mending(known) if known.standing else ("", "")
    return [_Point(reason, known.command(command), purpose) for reason in reasons if reason]


def _differing_items(known: Standings) -> str:
    groups = [one for one in known.standing if not one.is_of_answers]
    if not groups:
        return ""
    count, where = sum(one.count for one in groups), _listed(list(dict.fromkeys(one.where for one in groups)))
    return f"{count:,} difference(s) between rows and items, of {len(groups)} kind(s), in {where}"


def _differing_answers(known: Standings) -> str:
    """As many as the patterns count; of errors alone, and of what no pattern counts any more, what was found."""
    groups = [one for one in known.standing if one.is_of_answers]
    if not groups:
        return ""
    names = list(dict.fromkeys(one.where for one in groups))
    answers = sum(one.different for one in known.patterns if one.name in names)
    if answers:
        return f"{answers:,} answer(s) differ, of {_listed(names)}"
    return f"{sum(one.count for one in groups):,} difference(s) in answers, of {_listed(names)}"


def _mending(known: Standings) -> tuple[str, str]:
    """What helps against differences: (command, what for)."""
    if not all(one.is_of_answers for one in known.standing):
        if known.lag.waiting is not None:
            return "migrator verify JOB --repair", "mark the rows that differ, for the relay to write again"
        return "migrator backfill JOB --restart", "write every row once more"
    if _not_verified(known) is not None:
        return "migrator verify JOB", "see whether items are wrong, or only the patterns"
    return _anew(known, known.standing[0].where)


def _anew(known: Standings, name: str) -> tuple[str, str]:
    """What lets the counts of a pattern begin anew: what was found stands against it until its next move."""
    phase = next((one.phase for one in known.patterns if one.name == name), "complete")
    replay = f"migrator shadow replay JOB --pattern {name}"
    if phase == "complete" or (phase == "off" and known.lag.waiting is None):
        return "migrator shadow replay JOB", "compare again, once the mapping or the patterns' SQL is mended"
    back = "" if phase == "off" else f"migrator cutover rollback JOB {name} --to off && "
    command = f"{back}migrator cutover advance JOB {name} && {replay}"
    return command, f"count {name} anew, once what differs is mended"


def _refused(known: Standings) -> _Point | None:
    count = sum(one.count for one in known.refused)
    if not count:
        return None
    return _Point(
        f"{count:,} row(s) were refused and have no items",
        known.command("migrator findings JOB"),
        "see why rows are refused",
    )


def _failed_of_table(known: Standings) -> _Point | None:
    return _failed(known, "table", "DynamoDB")


def _failed_of_sql(known: Standings) -> _Point | None:
    """What SQL did not answer was not compared, and stands against SQL."""
    return _failed(known, "sql", "SQL")


def _failed(known: Standings, side: Side, named: str) -> _Point | None:
    failing = [one for one in known.patterns if one.errors.get(side, 0) > _ERRORS * _calls(one, side)]
    if not failing:
        return None
    errors, calls = (
        sum(one.errors[side] for one in failing),
        sum(_calls(one, side) for one in failing),
    )
    reason = f"{errors:,} of {calls:,} call(s) of {named} failed, of {_listed([one.name for one in failing])}"
    purpose = "see whether both sides can be asked; the log of the service says why calls fail"
    return _Point(reason, known.command("migrator doctor JOB"), purpose)


def _calls(one: PatternReport, side: Side) -> int:
    """Of callers and of shadows, those that failed among them."""
    return one.answered.get(side, 0) + one.errors.get(side, 0)


def _late(known: Standings) -> _Point | None:
    lag = known.lag
    if not lag.waiting or (lag.oldest_s < LATE_S and not lag.failed):
        return None
    failed = f", {lag.failed:,} of them failed" if lag.failed else ""
    reason = f"{lag.waiting:,} mark(s) wait for a relay{failed}; the oldest for {lag.oldest_s:,.0f} s"
    return _Point(reason, known.command("migrator relay JOB --once"), "work the marks that wait")


# ── what was not compared ──


def _not_filled(known: Standings) -> _Point | None:
    run = known.run("backfill")
    if run is not None and run.state == "done":
        return None
    reason = "no backfill was run" if run is None else f"the last backfill is {run.state}"
    return _Point(reason, known.command("migrator backfill JOB"), "fill the table")


def _not_verified(known: Standings) -> _Point | None:
    run = known.run("verify")
    command, purpose = known.command("migrator verify JOB"), "compare all rows with all items"
    if run is None:
        return _Point("rows and items were never compared", command, purpose)
    if run.state != "done":
        return _Point(f"the last verify is {run.state}", command, purpose)
    if run.scope:
        return _Point("the last verify looked at a sample alone", command, purpose)
    if run.current is False:
        return _Point("the last verify was of another mapping, or of other columns", command, purpose)
    return None


def _not_compared(known: Standings) -> _Point | None:
    # Nothing asks the other side of what is complete any more.
    never = [one for one in known.patterns if not one.compared and one.phase != "complete"]
    if not never:
        return None
    listed = _listed([one.name for one in never])
    reason = f"{len(never)} of {len(known.patterns)} pattern(s) were not compared in this time by this mapping: {listed}"
    if moved := [one.name for one in never if one.before_move]:
        reason += f"; of {_listed(moved)} only what was compared since the last move counts"
    return _Point(reason, known.command("migrator shadow replay JOB"), "compare the answers of every pattern")


def _not_settled(known: Standings) -> _Point | None:
    counts = {one.name: one.unsettled for one in known.patterns if one.unsettled > _UNSETTLED * one.compared}
    if not counts:
        return None
    reason = f"{sum(counts.values()):,} answer(s) differed and were never looked at again, of {_listed(list(counts))}"
    return _Point(reason, known.command("migrator shadow replay JOB"), "see whether they differ for good")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


_Ask = Callable[[Standings], _Point | None]
_AGAINST: tuple[_Ask, ...] = (_refused, _failed_of_table, _late)
_GAPS: tuple[_Ask, ...] = (_not_filled, _not_verified, _not_compared, _failed_of_sql, _not_settled)


def _clean(known: Standings) -> Verdict:
    compared = sum(one.compared for one in known.patterns)
    reasons = [f"{compared:,} answer(s) of {len(known.patterns)} pattern(s) compared, none differs"]
    if (run := known.run("verify")) is not None:
        reasons.append(f"{run.rows:,} row(s) and their items say the same")
    if errors := sum(sum(one.errors.values()) for one in known.patterns):
        calls = sum(_calls(one, side) for one in known.patterns for side in SIDES)
        reasons.append(f"{errors:,} of {calls:,} call(s) failed, too few to stand against a move")
    left = [one for one in known.patterns if one.phase != "complete"]
    if known.lag.waiting is None and not known.lag.reason:
        command, purpose = "migrator capture install JOB", "mark every change from now on, which a move needs"
    elif not left:
        command, purpose = "migrator decommission check JOB", "see what still depends on SQL"
    else:
        command, purpose = (
            f"migrator cutover advance JOB {left[0].name}",
            "move the next pattern, on this evidence",
        )
    return Verdict("clean", "Both sides say the same", reasons, known.command(command), purpose)
