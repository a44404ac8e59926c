"""The verdict of a report, and advice for each kind of difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from migrator.features.report.causes import Pair, value_cause
from migrator.mapping.model.durations import minute
from migrator.mapping.model.evidence import SIDES, Side
from migrator.mapping.model.report import Group, LagReport, PatternReport, Refused, RunReport, Verdict
from migrator.runtime.errors import amount, verb
from migrator.runtime.values import replace

# ── Likely causes of each kind of difference, with advice, if the values do not show more ──

LATE_S = 300.0
"""Marks that wait longer are late: a running relay has worked them by then."""
_WRITTEN_BESIDE = "written without capture, or a change that was not captured"
_MEND_MAPPING = "change the mapping or the pattern's SQL; `compare:` in the pattern where both are right"
_REPAIR = "`migrator verify JOB --repair`, then `migrator relay JOB --once`"


class Circumstances(Struct, frozen=True):
    """State of the job around a difference.

    `waiting`: unprocessed marks, the oldest `oldest_s` old at `now_s` (seconds since 1970).
    `backfilled`: a backfill has ended.
    `captured`: changes leave marks.
    `of_pattern`: answers differ, not a row and its item, so the pattern itself may be wrong.
    `rows`: number of rows behind the examples, 0 if unknown.
    `refused`: rows without items.
    """

    waiting: int = 0
    backfilled: bool = True
    captured: bool = True
    of_pattern: bool = True
    oldest_s: float = 0.0
    now_s: float = 0.0
    rows: int = 0
    refused: int = 0

    def of(self, found_at: float | None) -> Circumstances:
        """Circumstances of a difference last found at `found_at` (None: unknown).

        A busy source nearly always has a pending mark; one younger than the difference cannot be its cause.
        """
        is_late = self.oldest_s >= LATE_S if found_at is None else self.now_s - self.oldest_s <= found_at
        return self if is_late else replace(self, waiting=0)

    @property
    def repair(self) -> str:
        return (
            _REPAIR
            if self.captured
            else "`migrator backfill JOB --restart`, which writes every row once more"
        )


class Cause(Struct, frozen=True):
    likely: str
    advice: str


SINCE_GONE = Cause(
    "row and item are equal now: fixed since, or the change was pending",
    "`migrator verify JOB` checks all of them",
)
"""The cause of differences with examples that were all read again and agree by now."""

_OF_RUNS: dict[str, Cause] = {
    "refused": Cause(
        "the mapping refuses the row", "fix the row or the mapping; see `migrator status JOB --findings`"
    ),
    "collision": Cause("two rows make one key", "give the key another part, or fix the rows"),
    "unwritten": Cause("the table did not take the item", "`migrator backfill JOB` tries again"),
    "foreign": Cause(
        "another program wrote items into the table",
        "remove them, or name how their keys begin in `writes: {leave: […]}` of the job",
    ),
    "schema": Cause("the source's schema changed during a run", "look at the mapping, then run again"),
    "mark": Cause(
        "a change that the relay cannot apply",
        "see `migrator status JOB --findings`; fix the row or the mapping",
    ),
    "apart": Cause("more than one transaction holds", "readers may see a mix; make the row's items fewer"),
    "count": Cause("items are missing, or are too many", "see the other differences of this entity"),
    "sum": Cause("values differ, or items are missing", "see the other differences of this entity"),
}


def cause_of(kind: str, attribute: str, pairs: Sequence[Pair], around: Circumstances) -> Cause:
    if kind in _OF_RUNS:
        return _OF_RUNS[kind]
    if kind == "error":
        side = "DynamoDB" if attribute == "table" else "SQL"
        return Cause(f"{side} did not answer; see the examples", f"fix it, then compare again ({side})")
    if kind == "order":
        what = "the sort key keeps another order than SQL: unpadded numbers, other letters, or no ORDER BY"
        return Cause(what, "pad the sort key or add to ORDER BY; `order: any` where order does not matter")
    if attribute:
        return _of_attribute(kind, pairs, around)
    return _of_row(kind, around)


def _of_attribute(kind: str, pairs: Sequence[Pair], around: Circumstances) -> Cause:
    if value_reason := value_cause(pairs):
        mended = f"{around.repair}; find out which other program writes these items"
        if around.of_pattern and around.rows == 1:
            return Cause(value_reason, f"only one row shows it: {mended}; if others also do: {_MEND_MAPPING}")
        return Cause(value_reason, _MEND_MAPPING if around.of_pattern else mended)
    if around.waiting:
        return Cause(_lagging(around), "`migrator relay JOB`, then compare again")
    if pairs and all(item == "null" for _, item in pairs):
        what = "the items have no such attribute: they were written before the mapping had it, or lost it"
        return Cause(what, around.repair)
    if pairs and all(row == "null" for row, _ in pairs):
        what = "SQL has no value: the item kept an old one, or another program wrote it"
        return Cause(what, around.repair)
    return Cause("", f"look at the examples; if the item is old: {around.repair}")


def _of_row(kind: str, around: Circumstances) -> Cause:
    if kind == "missing" and around.of_pattern and around.refused:
        what = f"{amount(around.refused, 'row', 'are')} refused by the mapping and have no items"
        return Cause(what, "`migrator status JOB --findings` prints why")
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
    return f"changes on their way: {amount(around.waiting, 'change', 'wait')} for a relay"


# ── The verdict of a report: its reasons, and the command that helps next ──

_NAMED = 3
_ERRORS = 0.003
"""The share of calls that may fail: the default limit of cutover."""
_UNSETTLED = 0.003
"""The share of answers that may have differed without being settled: there are a few whenever a service ends."""


class Standings(Struct, frozen=True):
    """`runs`: the last of each kind. `job`: as the user named it.

    `comparisons_min`: answers that a move needs.
    """

    job: str
    groups: Sequence[Group]
    refused: Sequence[Refused]
    patterns: Sequence[PatternReport]
    runs: Sequence[RunReport]
    lag: LagReport
    comparisons_min: int = 200
    away: str = ""
    """The side that is unavailable; '' if both can."""

    @property
    def standing(self) -> list[Group]:
        """Differences that count against a move. Failed calls are judged by their share of all calls."""
        return [group for group in self.groups if not group.is_history and group.kind != "error"]

    @property
    def differing(self) -> list[str]:
        """Patterns whose answers differ; some have only counts, as not every answer leaves an example."""
        of_answers = [group.where for group in self.standing if group.is_of_answers]
        counted = [pattern.name for pattern in self.patterns if pattern.differing]
        return list(dict.fromkeys([*of_answers, *counted]))

    def run(self, kind: str) -> RunReport | None:
        return next((run for run in self.runs if run.kind == kind), None)

    def command(self, rest: str) -> str:
        return rest.replace("JOB", self.job)

    def replay(self, patterns: Sequence[PatternReport]) -> str:
        lacking = max((self.comparisons_min - pattern.compared for pattern in patterns), default=0)
        one = f" --pattern {patterns[0].name}" if len(patterns) == 1 else ""
        return f"migrator shadow replay JOB{one} --sample {lacking if lacking > 0 else self.comparisons_min}"


class _Point(Struct, frozen=True):
    reason: str
    command: str
    purpose: str


def verdict_of(standings: Standings) -> Verdict:
    """Differences before gaps, gaps before moves; the first point gives the command."""
    against, gaps = ([point for ask in asks for point in ask(standings)] for asks in (_AGAINST, _GAPS))
    points = [*against, *gaps]
    if not points:
        return _clean(standings)
    first, reasons = points[0], [point.reason for point in points]
    after = standings.command(first.command), first.purpose
    if not against:
        title = "Nothing differs as far as was looked, and not all was looked at"
        return Verdict("unproven", title, reasons, *after)
    differs = bool(standings.standing or standings.differing)
    title = f"{'Differences stand; do' if differs else 'Do'} not move a pattern yet"
    return Verdict("different", title, reasons, *after)


# ── reasons against a move ──


def _differences(standings: Standings) -> Iterator[_Point]:
    """Rows and items first; answers count separately, as many may show the same item."""
    for reason in filter(None, (_differing_items(standings), _differing_answers(standings))):
        yield _Point(reason, *_mending(standings))


def _differing_items(standings: Standings) -> str:
    groups = _of_rows(standings)
    if not groups:
        return ""
    totals = sum(group.count for group in groups if group.is_of_totals)
    count = sum(group.count for group in groups) - totals
    counted = [f"{amount(count, 'difference')} between rows and items"] * bool(count)
    if totals:
        counted.append(f"{amount(totals, 'total')} by plain SQL that {verb(totals, 'differ')}")
    return f"{' and '.join(counted)}, in {_listed(list(dict.fromkeys(group.where for group in groups)))}"


def _of_rows(standings: Standings) -> list[Group]:
    return [group for group in standings.standing if not (group.is_of_answers or group.kind == "foreign")]


def _foreign(standings: Standings) -> Iterator[_Point]:
    if count := sum(group.count for group in standings.standing if group.kind == "foreign"):
        yield _Point(
            f"{amount(count, 'stored item', 'are')} of no row of this job",
            "migrator status JOB --findings",
            "see their keys, then remove them or name them in `writes: {leave: […]}`",
        )


def _differing_answers(standings: Standings) -> str:
    names = standings.differing
    if not names:
        return ""
    answers = sum(pattern.differing for pattern in standings.patterns if pattern.name in names)
    if answers:
        return f"{amount(answers, 'answer', 'differ')}, of {_listed(names)}"
    recorded = sum(group.count for group in standings.standing if group.is_of_answers)
    return f"{amount(recorded, 'difference')} in answers, of {_listed(names)}"


def _mending(standings: Standings) -> tuple[str, str]:
    """(command, purpose) against the differences."""
    if _of_rows(standings):
        if standings.lag.waiting is not None:
            return "migrator verify JOB --repair", "queue the rows that differ for the relay"
        return "migrator backfill JOB --restart", "write every row once more"
    if any(_not_verified(standings)):
        return "migrator verify JOB", "see whether items are wrong, or only the patterns"
    return _restarted(standings, standings.differing[0])


def _restarted(standings: Standings, name: str) -> tuple[str, str]:
    """(command, purpose) to restart a pattern's counts: its differences count against it until its next move."""
    pattern = next((pattern for pattern in standings.patterns if pattern.name == name), None)
    phase = "complete" if pattern is None else pattern.phase
    if pattern is None or phase == "complete" or (phase == "off" and standings.lag.waiting is None):
        again = standings.replay(standings.patterns)
        return again, "compare again, after a change of the mapping or of the patterns' SQL"
    back = "" if phase == "off" else f"migrator cutover rollback JOB {name} --to off && "
    replay = standings.replay([replace(pattern, compared=0)])
    command = f"{back}migrator cutover advance JOB {name} && {replay}"
    return command, f"count {name} again from 0: all that was compared since its last move counts against it"


def _refused(standings: Standings) -> Iterator[_Point]:
    if count := sum(refused.count for refused in standings.refused):
        reason = f"{amount(count, 'row', 'were')} refused and have no items"
        yield _Point(reason, "migrator status JOB --findings", "see why rows are refused")


def _failed(side: Side, named: str, standings: Standings) -> Iterator[_Point]:
    failing = [
        pattern
        for pattern in standings.patterns
        if pattern.errors.get(side, 0) > _ERRORS * _calls(pattern, side)
    ]
    errors = sum(pattern.errors[side] for pattern in failing)
    calls = amount(sum(_calls(pattern, side) for pattern in failing), "call")
    if failing:
        listed = _listed([pattern.name for pattern in failing])
        reason = f"{errors:,} of {calls} of {named} failed, of {listed}"
        purpose = "check that both sides are available; the log of the service shows why calls fail"
        yield _Point(reason, "migrator doctor JOB", purpose)


def _calls(pattern: PatternReport, side: Side) -> int:
    return pattern.answered.get(side, 0) + pattern.errors.get(side, 0)


def _late(standings: Standings) -> Iterator[_Point]:
    lag = standings.lag
    if lag.waiting and (lag.oldest_s >= LATE_S or lag.failed):
        failed = f", {lag.failed:,} of them failed" if lag.failed else ""
        what = f"{amount(lag.waiting, 'change', 'wait')} for a relay{failed}; the oldest for {lag.oldest_s:,.0f} s"
        yield _Point(what, "migrator relay JOB --once", "apply the pending changes")


# ── gaps in the comparisons ──


def _not_asked(standings: Standings) -> Iterator[_Point]:
    if standings.away:
        yield _Point(f"the {standings.away} is unavailable", "migrator doctor JOB", "see why")


def _not_filled(standings: Standings) -> Iterator[_Point]:
    run = standings.run("backfill")
    if run is None or run.state != "done":
        reason = "no backfill was run" if run is None else f"the last backfill is {run.state}"
        yield _Point(reason, "migrator backfill JOB", "fill the table")


def _not_verified(standings: Standings) -> Iterator[_Point]:
    run = standings.run("verify")
    reason = ""
    if run is None:
        reason = "rows and items were never compared"
    elif run.state != "done":
        reason = f"the last verify is {run.state}"
    elif run.scope:
        reason = "the last verify looked at a sample alone"
    elif run.current is False:
        reason = "the last verify was of another mapping, or of other columns"
    if reason:
        yield _Point(reason, "migrator verify JOB", "compare all rows with all items")


def _not_compared(standings: Standings) -> Iterator[_Point]:
    # A complete pattern is no longer compared with the other side.
    never = [
        pattern for pattern in standings.patterns if not pattern.compared and pattern.phase != "complete"
    ]
    moved = [pattern for pattern in never if pattern.before_move]
    others = [pattern for pattern in never if not pattern.before_move]
    all_of_them = amount(len(standings.patterns), "pattern")
    reasons = []
    if others:
        listed = _listed([pattern.name for pattern in others])
        told = f"{len(others)} of {all_of_them} not compared in this time by this mapping"
        reasons.append(f"{told}: {listed}")
    if moved:
        before = sum(pattern.before_move for pattern in moved)
        told = f"{len(moved)} of {all_of_them} not compared since their last move"
        listed = _listed([pattern.name for pattern in moved])
        reasons.append(
            f"{told} ({amount(before, 'answer')} before it {verb(before, 'do')} not count for the next one): {listed}"
        )
    if reasons:
        yield _Point("; ".join(reasons), standings.replay(never), "compare the answers of these patterns")


def _not_compared_again(standings: Standings) -> Iterator[_Point]:
    """A verify without differences proves the items, not the answers of a pattern."""
    waiting = [
        pattern
        for pattern in standings.patterns
        if pattern.mended and not pattern.compared_after and pattern.phase != "complete"
    ]
    if waiting:
        what = (
            f"{_history(waiting)}, and no answer was compared since, of {_listed([p.name for p in waiting])}"
        )
        again = standings.replay([replace(pattern, compared=pattern.compared_after) for pattern in waiting])
        yield _Point(what, again, "compare these answers again")


def _history(patterns: Sequence[PatternReport]) -> str:
    mended, until = sum(p.mended for p in patterns), max(p.mended_until for p in patterns)
    return f"{amount(mended, 'answer')} differed until {minute(until)}, before the last verify, which found nothing"


def found_nothing(run: RunReport) -> bool:
    """Whether a verify compared everything by the current mapping without a difference. Refused rows have no items."""
    return (
        run.state == "done"
        and not run.scope
        and run.current is True
        and not run.findings.keys() - {"refused"}
    )


def _not_settled(standings: Standings) -> Iterator[_Point]:
    counts = {
        pattern.name: pattern.unsettled
        for pattern in standings.patterns
        if pattern.unsettled > _UNSETTLED * pattern.compared
    }
    if counts:
        differed = amount(sum(counts.values()), "answer")
        again = standings.replay([replace(p, compared=0) for p in standings.patterns if p.name in counts])
        what = f"{differed} differed and never compared again, of {_listed(list(counts))}"
        yield _Point(what, again, "see whether they differ for good")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


_Ask = Callable[[Standings], Iterator[_Point]]
_AGAINST: tuple[_Ask, ...] = (_differences, _foreign, _refused, partial(_failed, "table", "DynamoDB"), _late)
# Calls that SQL did not answer were not compared, and do not speak against the table.
_GAPS: tuple[_Ask, ...] = (
    _not_asked,
    _not_filled,
    _not_verified,
    _not_compared,
    _not_compared_again,
    partial(_failed, "sql", "SQL"),
    _not_settled,
)


def _next_move(standings: Standings, pattern: PatternReport) -> tuple[str, str]:
    """(command, purpose) towards the pattern's next move. `migrator cutover` checks its other requirements."""
    if pattern.phase == "off":
        return f"migrator cutover advance JOB {pattern.name}", "move the next pattern, on this evidence"
    if pattern.phase == "shadow" and pattern.compared < standings.comparisons_min:
        what = f"compare the answers that the next move of {pattern.name} still needs"
        return standings.replay([pattern]), what
    dry_run = f"migrator cutover advance --dry-run JOB {pattern.name}"
    return dry_run, f"see what the next move of {pattern.name} needs"


def _clean(standings: Standings) -> Verdict:
    compared = sum(pattern.compared for pattern in standings.patterns)
    mended = [pattern for pattern in standings.patterns if pattern.mended]
    differs = "none differs since the last verify" if mended else "none differs"
    reasons = [
        f"{amount(compared, 'answer')} of {amount(len(standings.patterns), 'pattern')} compared, {differs}"
    ]
    if mended:
        reasons.append(f"{_history(mended)}: they are history, of {_listed([p.name for p in mended])}")
    if (run := standings.run("verify")) is not None:
        reasons.append(f"{amount(run.rows, 'row')} and their items are equal")
    if errors := sum(sum(pattern.errors.values()) for pattern in standings.patterns):
        calls = sum(_calls(pattern, side) for pattern in standings.patterns for side in SIDES)
        reasons.append(f"{errors:,} of {amount(calls, 'call')} failed: not enough to block a move")
    left = [pattern for pattern in standings.patterns if pattern.phase != "complete"]
    if standings.lag.waiting is None and not standings.lag.reason:
        command, purpose = (
            "migrator capture install JOB",
            "capture every change from now on, which a move needs",
        )
    elif not left:
        command, purpose = "migrator decommission check JOB", "see what still depends on SQL"
    elif left[0].mended:
        # Cutover judges by all comparisons since the last move, including those of faults fixed since.
        command, purpose = _restarted(standings, left[0].name)
    else:
        command, purpose = _next_move(standings, left[0])
    return Verdict("clean", "Both sides are equal", reasons, standings.command(command), purpose)
