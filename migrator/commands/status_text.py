"""What `migrator status` says first: lag, rate, what is left, what failed last, the pace, and a line for each process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from migrator.mapping.model.durations import age_text
from migrator.mapping.model.instances import Failure, Operations, ProcessState, Throttle

Standing = Literal["works", "idle", "slow", "stalled", "tries again", "held", "silent", "dead"]
HEARD_S = 20.0
"""A process beats every five seconds; after so long it has failed to several times."""
STALLED_S = 60.0
SLOW = 0.5
"""A rate of less than this part of the usual one is slow."""
KNOWN_S = 120.0
"""A process younger than that has no usual rate."""


@dataclass(frozen=True)
class ProcessStanding:
    """A process, how it stands, and why."""

    process: ProcessState
    standing: Standing
    why: str = ""
    replaced: bool = False
    """It has ended, and a process of its kind that began later is alive."""

    @property
    def is_at_work(self) -> bool:
        return self.standing not in ("silent", "dead")


def standing_of(process: ProcessState, now_s: float, *, is_dead: bool) -> ProcessStanding:
    """`is_dead`: this machine knows that it has ended. Slow does something, stalled does nothing and has work."""
    heard_s = now_s - process.alive_at
    if is_dead:
        return ProcessStanding(process, "dead", f"{_ended(process, now_s)}; start it again")
    if heard_s > HEARD_S:
        why = f"not heard of for {age_text(heard_s)}: killed, frozen, or cut off from the journal"
        return ProcessStanding(process, "silent", why)
    if process.held:
        return ProcessStanding(process, "held", process.held)
    if process.trouble:
        return ProcessStanding(process, "tries again", process.trouble)
    if not process.left:
        return ProcessStanding(process, "idle", f"no {process.unit} wait")
    if process.silent_s >= STALLED_S:
        return ProcessStanding(
            process,
            "stalled",
            f"{process.left:,} {process.unit} wait, and none was done for {age_text(process.silent_s)}",
        )
    if process.alive_at - process.since >= KNOWN_S and process.rate < SLOW * process.usual_rate:
        return ProcessStanding(
            process,
            "slow",
            f"{_rate(process.rate, process)}, {_rate(process.usual_rate, process)} since it began",
        )
    return ProcessStanding(process, "works", _rate(process.rate, process))


def standings(
    operations: Operations, is_dead: Callable[[ProcessState], bool], waiting: int | None = None
) -> list[ProcessStanding]:
    """`waiting`: marks in the source just now; a relay that is kept by one request knows only what waited before it."""
    known = [
        _with_waiting(process, waiting) if waiting is not None and process.kind == "relay" else process
        for process in operations.processes
    ]
    all_ = [standing_of(process, operations.now_s, is_dead=is_dead(process)) for process in known]
    return [
        replace(
            one,
            why=f"{_ended(one.process, operations.now_s)}; a later {one.process.kind} runs",
            replaced=True,
        )
        if one.standing == "dead" and _has_successor(one, all_)
        else one
        for one in all_
    ]


def _with_waiting(process: ProcessState, waiting: int) -> ProcessState:
    """A backlog that has grown since the last heartbeat does not fall, whatever it did in the minute before."""
    fall = process.fall if waiting <= process.left else min(process.fall, 0.0)
    return replace(process, left=waiting, fall=fall)


def _has_successor(dead: ProcessStanding, others: Sequence[ProcessStanding]) -> bool:
    return any(
        one.is_at_work and one.process.kind == dead.process.kind and one.process.since > dead.process.alive_at
        for one in others
    )


def _ended(process: ProcessState, now_s: float) -> str:
    return f"did not deregister; last heard of {age_text(now_s - process.alive_at)} ago"


# ── For people ──


def status_lines(
    lag: str,
    operations: Operations,
    standing: Sequence[ProcessStanding],
    ended_at: Mapping[str, float] | None = None,
    unwritable: str = "",
) -> Iterator[str]:
    """`lag`: how far items are behind rows. `ended_at`: when a run of each kind last came to its end. `unwritable`: why
    the journal takes no failure."""
    at_work = [one for one in standing if one.is_at_work]
    yield f"lag      {lag}"
    yield f"rate     {_rates(at_work)}"
    yield f"left     {_left(at_work)}"
    yield f"failure  {f'now: {unwritable}' if unwritable else _failure(operations, at_work, ended_at or {})}"
    yield f"pace     {pace_line(operations.throttle, operations.now_s)}"
    label = "alive   "
    for one in (one for one in standing if not one.replaced):
        yield f"{label} {process_line(one, operations.now_s)}"
        label = " " * 8
    if not standing:
        yield f"{label} no backfill and no relay is at work"


def pace_line(throttle: Throttle, now_s: float) -> str:
    """What is asked of a job's processes."""
    units = throttle.max_write_units
    limit = (
        "write units as the job says"
        if units is None
        else f"at most {units:,} write units a second for a run, and for all relays"
    )
    since = f"by {throttle.who}, {age_text(now_s - throttle.since)} ago"
    why = f" ({throttle.reason})" if throttle.reason else ""
    if throttle.paused:
        return f"paused {since}{why}; `migrator pace --resume` goes on; {limit} then"
    return f"{limit}, {since}{why}" if throttle.who else "as the job says"


def _rate(rate: float, process: ProcessState) -> str:
    return f"{rate:,.0f} {process.unit}/s" if rate >= 10 or not rate else f"{rate:.1f} {process.unit}/s"


def _rates(at_work: Sequence[ProcessStanding]) -> str:
    kinds = dict.fromkeys(one.process.kind for one in at_work)
    said = []
    for kind in kinds:
        of_kind = [one.process for one in at_work if one.process.kind == kind]
        said.append(f"{kind} {_rate(sum(process.rate for process in of_kind), of_kind[0])}")
    return ", ".join(said) or "nothing is at work"


def _left(at_work: Sequence[ProcessStanding]) -> str:
    return (
        "; ".join(f"{one.process.kind} {left_text(one.process)}" for one in at_work) or "nothing is at work"
    )


def left_text(process: ProcessState) -> str:
    """How much a process has left, and when it will be done at the pace of the last minute."""
    if not process.left:
        return "cannot say while it tries again" if process.trouble else "has nothing left"
    what = f"has {process.left:,} {process.unit} left"
    eta = eta_s(process)
    if eta is not None:
        return f"{what}, done in about {age_text(eta)}"
    if process.held:
        return f"{what}, and is held"
    if process.trouble:
        return f"{what}, and tries again"
    if process.fall < 0:
        return f"{what}, and they grow by {_rate(-process.fall, process)}"
    is_young = process.alive_at - process.since < STALLED_S
    return f"{what}, done when is not known yet" if is_young else f"{what}, no end in sight"


def eta_s(process: ProcessState) -> float | None:
    """Seconds until nothing is left, at the pace of the last minute; None where there is no end to be seen."""
    if process.held or process.trouble or process.fall <= 0:
        return None
    return process.left / process.fall


def _failure(
    operations: Operations, at_work: Sequence[ProcessStanding], ended_at: Mapping[str, float]
) -> str:
    if not operations.failures:
        return "none on record"
    going_on = [one for one in operations.failures if not _is_over(one, at_work, ended_at)]
    last = (going_on or operations.failures)[0]
    over = "" if going_on else "none now; last "
    ago = age_text(operations.now_s - last.at)
    return f"{over}{ago} ago, {last.kind} on {last.host}:{last.pid}: {last.reason}"


def _is_over(failure: Failure, at_work: Sequence[ProcessStanding], ended_at: Mapping[str, float]) -> bool:
    """Whether work of its kind got on since, and nothing of that kind is retried now."""
    same_kind = [one.process for one in at_work if one.process.kind == failure.kind]
    if any(process.trouble for process in same_kind):
        return False
    return ended_at.get(failure.kind, 0.0) > failure.at or any(
        (process.host, process.pid) == (failure.host, failure.pid)
        or (process.since > failure.at and process.done > 0)
        for process in same_kind
    )


def process_line(one: ProcessStanding, now_s: float) -> str:
    process = one.process
    where = f"{process.kind} on {process.host}:{process.pid}"
    since = age_text(now_s - process.since)
    return f"{where} (migrator {process.version}, for {since}): {one.standing}; {one.why}"


# ── For programs ──


def operations_data(operations: Operations, standing: Sequence[ProcessStanding]) -> dict[str, Any]:
    hidden = ("sees", "born", "id")
    processes = [
        {name: value for name, value in asdict(one.process).items() if name not in hidden}
        | {"standing": one.standing, "why": one.why, "eta_s": eta_s(one.process), "unit": one.process.unit}
        for one in standing
    ]
    return {
        "processes": processes,
        "failures": [asdict(failure) for failure in operations.failures],
        "throttle": asdict(operations.throttle),
    }
