"""What a report comes to: one line on what stands, and the command that helps next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migrator.phase import SIDES, Side
from migrator.report_results import Group, LagReport, PatternReport, Refused, RunReport, Verdict
from migrator.stages.report_advice import LATE_S

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


# ── what nobody has looked at ──


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
