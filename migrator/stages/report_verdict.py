"""What a report comes to: one line on what stands, and the command that helps next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migrator.report_results import Found, Group, LagReport, PatternReport, Refused, RunReport, Verdict

_LAG_S = 300.0
"""Marks that wait longer are told: a relay that runs has worked them by then."""
_NAMED = 3
_UNSETTLED = 0.003
"""The share of answers that may have differed without being settled: a few are each time a service ends."""
_OF_RUNS: frozenset[Found] = frozenset({"verify", "backfill", "relay"})


@dataclass(frozen=True)
class Standings:
    """What the verdict is made of. `runs`: the last of each kind; `job`: as the user named it."""

    job: str
    groups: Sequence[Group]
    refused: Sequence[Refused]
    patterns: Sequence[PatternReport]
    runs: Sequence[RunReport]
    lag: LagReport

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
    against = [point for ask in _AGAINST if (point := ask(known)) is not None]
    gaps = [point for ask in _GAPS if (point := ask(known)) is not None]
    points = [*against, *gaps]
    if not points:
        return _clean(known)
    title = (
        "Differences stand; do not move a pattern yet"
        if against
        else "Nothing differs as far as was looked, and not all was looked at"
    )
    first = points[0]
    reasons = [one.reason for one in points]
    return Verdict("different" if against else "unproven", title, reasons, first.command, first.purpose)


# ── what stands against a move ──


def _differences(known: Standings) -> _Point | None:
    if not known.groups:
        return None
    count = sum(one.count for one in known.groups)
    where = list(dict.fromkeys(one.where for one in known.groups))
    listed = ", ".join(where[:_NAMED]) + (f" and {len(where) - _NAMED} more" if len(where) > _NAMED else "")
    reason = f"{count:,} difference(s) of {len(known.groups)} kind(s), in {listed}"
    command, purpose = _mending(known)
    return _Point(reason, known.command(command), purpose)


def _mending(known: Standings) -> tuple[str, str]:
    """What helps against differences: (command, what for)."""
    if any(found in _OF_RUNS for one in known.groups for found in one.found_by):
        if known.lag.waiting is not None:
            return "migrator verify JOB --repair", "mark the rows that differ, for the relay to write again"
        return "migrator backfill JOB --again", "write every row once more"
    if _not_verified(known) is not None:
        return "migrator verify JOB", "see whether items are wrong, or only the patterns"
    return "migrator shadow replay JOB", "compare again, once the mapping or the patterns' SQL is mended"


def _refused(known: Standings) -> _Point | None:
    count = sum(one.count for one in known.refused)
    if not count:
        return None
    return _Point(
        f"{count:,} row(s) were refused and have no items",
        known.command("migrator findings JOB"),
        "see why rows are refused",
    )


def _late(known: Standings) -> _Point | None:
    lag = known.lag
    if not lag.waiting or (lag.oldest_s < _LAG_S and not lag.failed):
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
    never = [one.name for one in known.patterns if not one.compared]
    if not never:
        return None
    listed = ", ".join(never[:_NAMED]) + (f" and {len(never) - _NAMED} more" if len(never) > _NAMED else "")
    reason = f"{len(never)} of {len(known.patterns)} pattern(s) were not compared in this time by this mapping: {listed}"
    return _Point(reason, known.command("migrator shadow replay JOB"), "compare the answers of every pattern")


def _not_settled(known: Standings) -> _Point | None:
    counts = {one.name: one.unsettled for one in known.patterns if one.unsettled > _UNSETTLED * one.compared}
    if not counts:
        return None
    listed = ", ".join(list(counts)[:_NAMED])
    more = f" and {len(counts) - _NAMED} more" if len(counts) > _NAMED else ""
    reason = f"{sum(counts.values()):,} answer(s) differed and were never looked at again, of {listed}{more}"
    return _Point(reason, known.command("migrator shadow replay JOB"), "see whether they differ for good")


_Ask = Callable[[Standings], _Point | None]
_AGAINST: tuple[_Ask, ...] = (_differences, _refused, _late)
_GAPS: tuple[_Ask, ...] = (_not_filled, _not_verified, _not_compared, _not_settled)


def _clean(known: Standings) -> Verdict:
    compared = sum(one.compared for one in known.patterns)
    reasons = [f"{compared:,} answer(s) of {len(known.patterns)} pattern(s) compared, none differs"]
    if (run := known.run("verify")) is not None:
        reasons.append(f"{run.rows:,} row(s) and their items say the same")
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
