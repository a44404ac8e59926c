"""Evidence for a move: facts about a pattern, and the rules that judge them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import exp, lgamma, log, log1p
from typing import Any, TypeAlias

from msgspec import Struct, field

from migrator.mapping.model.durations import limit_text
from migrator.mapping.model.evidence import Line, Origin, PatternPhase, Phase, Side, State, Window, is_back
from migrator.mapping.model.instances import Instance, ServiceRegistry
from migrator.mapping.model.live import ActivityCounts, MarksState
from migrator.mapping.model.mapping import Pattern
from migrator.runtime.errors import amount
from migrator.runtime.values import replace
from migrator.settings.job import CutoverSettings
from migrator.stages.patterns.latencies import Latencies

# ── Sums over the windows of one pattern: calls, differences, errors, parameter kinds, latencies of both sides ──


class Aggregate(Struct):
    """`unsettled`: differing calls not compared again, for lack of time or an error; not in `compared`.
    `ended`: the same, because the process ended.
    `newest_at`: start of the newest window; None without windows.
    """

    compared: int = 0
    different: int = 0
    transient: int = 0
    unsettled: int = 0
    ended: int = 0
    answered: Counter[Side] = field(default_factory=Counter)
    errors: Counter[Side] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    origins: Counter[Origin] = field(default_factory=Counter)
    found: Counter[Any] = field(default_factory=Counter)
    latency: dict[Side, Latencies] = field(default_factory=lambda: {"table": Latencies(), "sql": Latencies()})
    newest_at: float | None = None

    def add(self, window: Window) -> None:
        self.compared += window.compared
        self.different += window.different
        self.transient += window.transient
        self.unsettled += window.dropped.get("unsettled", 0)
        self.ended += window.dropped.get("ended", 0)
        self.answered.update(window.answered)
        self.errors.update(window.errors)
        self.kinds.update({kind: count for kind, count in window.kinds.items() if count})
        self.origins[window.origin] += window.compared
        self.found.update(window.found)
        for side, text in window.latency.items():
            if side in self.latency:
                self.latency[side].add(text)
        self.newest_at = max(window.begun_at, self.newest_at or 0.0)

    def calls(self, side: Side) -> int:
        return self.answered[side] + self.errors[side]


def counted(windows: Iterable[Window]) -> Aggregate:
    total = Aggregate()
    for window in windows:
        total.add(window)
    return total


# ── Tests whether a share is above or below a limit, by exact binomial tails, so that few calls prove little ──

_NEGLIGIBLE = 1e-18


def chance_of_more(count: int, of: int, share: float) -> float:
    """Probability of `count` or more hits in `of` trials with hit probability `share` (0 < share < 1)."""
    if count <= 0:
        return 1.0
    return _tail(count, of, share, step=1)


def chance_of_fewer(count: int, of: int, share: float) -> float:
    """Probability of `count` or fewer hits in `of` trials with hit probability `share` (0 < share < 1)."""
    if count >= of:
        return 1.0
    return _tail(count, of, share, step=-1)


def _tail(count: int, of: int, share: float, *, step: int) -> float:
    """Sum of the binomial's terms from `count` on in one direction; 1 if that direction contains the mean.

    Such a tail proves nothing, and is slow to sum.
    """
    middle = of * share
    if (count - middle) * step <= 0:
        return 1.0
    term = exp(_log_term(count, of, share))
    total, here = term, count
    odds = share / (1 - share)
    while 0 < here < of if step < 0 else here < of:
        # Each term is smaller than the one before it: the sum runs away from the middle.
        term *= (of - here) / (here + 1) * odds if step > 0 else here / (of - here + 1) / odds
        here += step
        total += term
        if term < total * _NEGLIGIBLE:
            break
    return min(1.0, total)


def _log_term(count: int, of: int, share: float) -> float:
    ways = lgamma(of + 1) - lgamma(count + 1) - lgamma(of - count + 1)
    return ways + count * log(share) + (of - count) * log1p(-share)


# ── Facts about one pattern when a move of it is judged ──


class Unknown(Struct, frozen=True):
    why: str


class VerifyOnRecord(Struct, frozen=True):
    """The last full verify of this mapping's revision into this table. `findings`: of the pattern's entities.

    `age_s`: since its start; None if it has not ended.
    `look`: the source's change counts at its start; None if not read.
    """

    run: int
    findings: int
    age_s: float | None
    look: ActivityCounts | None = None


class Facts(Struct, frozen=True):
    """State of one pattern at one moment, by the journal's clock.

    `answer`: digest of its answer in the judged mapping.
    `table_fault`, `capture_fault`: '' for none.
    `confirmed`: versions by instance.
    """

    pattern: Pattern
    revision: str
    answer: str
    phase: PatternPhase
    now_s: float
    windows: Sequence[Window]
    service_registry: ServiceRegistry
    confirmed: Mapping[str, int]
    table_fault: str | Unknown = ""
    capture_fault: str | Unknown = ""
    marks: MarksState | Unknown = field(default_factory=MarksState)
    relays: int | Unknown = 0
    verified: VerifyOnRecord | None | Unknown = None

    @property
    def readers(self) -> list[Instance]:
        return [instance for instance in self.service_registry.living if instance.reads]

    def counts(self, limits: CutoverSettings, *, since_move: bool) -> Aggregate:
        """Sums of recent windows of this mapping's answer. `since_move`: only those since the last move.

        A replay's calls count like a service's only until the table answers the pattern.
        """
        since = self.now_s - limits.evidence_max_age_s
        if since_move:
            since = max(since, self.phase.since)
        origins = ("service",) if since_move and self.phase.state.phase in ("ramp", "live") else None
        return counted(
            window
            for window in self.windows
            if window.answer == self.answer
            and window.begun_at >= since
            and (origins is None or window.origin in origins)
        )


def condition(
    name: str, requirement: str, is_ok: bool, observed: str, mend: str = "", age_s: float | None = None
) -> Line:
    """A line that is ok, or has its fix."""
    return Line(name, requirement, observed, "ok" if is_ok else "no", age_s, "" if is_ok else mend)


def unknown(name: str, requirement: str, why: str, mend: str = "") -> Line:
    return Line(name, requirement, why, "unknown", mend=mend)


def age_of(facts: Facts, counts: Aggregate) -> float | None:
    return None if counts.newest_at is None else max(0.0, facts.now_s - counts.newest_at)


# ── Evidence for a move of a pattern: each line tests one condition; unknown counts as not fulfilled ──

DOUBT = 0.05
"""A share counts as below its limit if chance alone explains the counts with less than this probability."""
_SHOWN = 3
_ANEW = "`migrator cutover rollback --to off`, then advance: counts start again"


Rule: TypeAlias = Callable[[Facts, CutoverSettings], Iterable[Line]]
_More: TypeAlias = Callable[[int], str]
"""What to do for so many more answers."""


def judge(facts: Facts, limits: CutoverSettings, after: State) -> list[Line]:
    """Evidence for a move to `after`; empty for a move back, such as to a smaller ramp."""
    if is_back(facts.phase.state, after):
        return []
    return [line for rule in NEEDS.get(after.phase, ()) for line in rule(facts, limits)]


def _table(facts: Facts, _: CutoverSettings) -> Iterable[Line]:
    requirement = "the table and its indexes are there, and fit the mapping"
    yield _of_fault("table", requirement, facts.table_fault, "see `migrator table check`")


def _capture(facts: Facts, _: CutoverSettings) -> Iterable[Line]:
    requirement = "every change in the source is captured"
    yield _of_fault("capture", requirement, facts.capture_fault, "see `migrator capture status`")


def _of_fault(name: str, requirement: str, fault: str | Unknown, mend: str) -> Line:
    if isinstance(fault, Unknown):
        return unknown(name, requirement, fault.why, mend)
    return condition(name, requirement, not fault, fault or "so it is", mend)


def _relay(facts: Facts, limits: CutoverSettings) -> Iterable[Line]:
    relays, marks = facts.relays, facts.marks
    requirement, mend = "a relay is alive", "start `migrator relay`"
    if isinstance(relays, Unknown):
        yield unknown("relay", requirement, relays.why, mend)
    else:
        yield condition("relay", requirement, relays > 0, "running" if relays else "0 running", mend)
    requirement = f"no change is pending for more than {limits.lag_max_s:g} s, and none failed"
    if isinstance(marks, Unknown):
        yield unknown("lag", requirement, marks.why)
        return
    is_ok = marks.oldest_age_s <= limits.lag_max_s and not marks.failed
    observed = (
        f"{marks.waiting:,} wait, the oldest for {marks.oldest_age_s:.1f} s; {marks.failed:,} failed before"
    )
    yield condition(
        "lag", requirement, is_ok, observed, "wait for the relay, or see `migrator status --findings`"
    )


def _verify(facts: Facts, limits: CutoverSettings) -> Iterable[Line]:
    within = limit_text(limits.verify_max_age_s)
    requirement = f"a full verify by this mapping, clean for the pattern's entities, within {within}"
    mend = "see `migrator status --findings`; `migrator verify --repair`, then the relay and verify again"
    yield verify_line(
        facts.verified, requirement, limits.verify_max_age_s, of=" of its entities", if_findings=mend
    )


_VERIFY_AGAIN = "run `migrator verify` again"


def verify_line(
    verified: VerifyOnRecord | None | Unknown,
    requirement: str,
    limit_s: float,
    *,
    of: str = "",
    if_findings: str = _VERIFY_AGAIN,
) -> Line:
    """`of`: of what the findings are. `if_findings`: the fix then."""
    if isinstance(verified, Unknown):
        return unknown("verify", requirement, verified.why, _VERIFY_AGAIN)
    if verified is None:
        return unknown("verify", requirement, "none of this mapping and this table", _VERIFY_AGAIN)
    if verified.age_s is None:
        return unknown("verify", requirement, f"run {verified.run} has not ended", _VERIFY_AGAIN)
    is_ok = not verified.findings and verified.age_s <= limit_s
    observed = f"run {verified.run}: {amount(verified.findings, 'finding')}{of}"
    mend = if_findings if verified.findings else _VERIFY_AGAIN
    return condition("verify", requirement, is_ok, observed, mend, verified.age_s)


def _comparisons(facts: Facts, limits: CutoverSettings) -> Iterable[Line]:
    recent = facts.counts(limits, since_move=True)
    since = (
        "since the last move" if facts.phase.version else f"within {limit_text(limits.evidence_max_age_s)}"
    )
    requirement = f"{limits.comparisons_min:,} answers compared {since}"
    others = sum(window.compared for window in facts.windows if window.answer != facts.answer)
    others_text = f"; {others:,} by another mapping do not count" if others else ""
    origins = f"{recent.origins['service']:,} of services, {recent.origins['replay']:,} replayed"
    observed = f"{recent.compared:,} ({origins}){others_text}"
    is_ok = recent.compared >= limits.comparisons_min
    mend = _advice(facts, answers_needed(limits) - recent.compared)
    yield condition("comparisons", requirement, is_ok, observed, mend, age_of(facts, recent))


def _advice(facts: Facts, lacking: int) -> str:
    if facts.phase.state.phase in ("ramp", "live"):
        return f"wait for {amount(lacking, 'more read')} of the services"
    pattern = f"--pattern {facts.pattern.name}"
    return f"wait for more reads, or run `migrator shadow replay {pattern} --sample {lacking}`"


_SLOW = 0.01
"""The share of answers above the limit of a p99."""


def answers_needed(limits: CutoverSettings) -> int:
    shares = (limits.mismatch_max, limits.error_max, _SLOW)
    return max(limits.comparisons_min, *(_lacking(0, 0, share) for share in shares))


def _lacking(count: int, of: int, limit: float) -> int:
    """Further trials without a hit needed to prove that the share of hits is below the limit."""
    low, high = 0, 1
    while chance_of_fewer(count, of + high, limit) > DOUBT:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if chance_of_fewer(count, of + middle, limit) > DOUBT:
            low = middle
        else:
            high = middle
    return high


def _kinds(facts: Facts, limits: CutoverSettings) -> Iterable[Line]:
    """Lines on kinds of calls. Windows before a move count, since rare kinds need not recur."""
    all_ = facts.counts(limits, since_move=False)
    possible = 2 ** sum(param.optional for param in facts.pattern.params)
    seen = len(all_.kinds)
    is_ok = seen > 0 and seen >= limits.kinds_min * possible
    requirement = f"{limits.kinds_min:.0%} of the ways to set optional parameters compared"
    mend = "run `migrator shadow replay`, which sets them in every way"
    yield condition("kinds", requirement, is_ok, f"{seen} of {possible}", mend, age_of(facts, all_))


def _calls(facts: Facts, limits: CutoverSettings) -> Iterable[Line]:
    recent = facts.counts(limits, since_move=True)
    age_s = age_of(facts, recent)
    more = partial(_advice, facts)
    for line in (*_rates(recent, limits, more), *_p99(facts.pattern, recent, limits, more)):
        yield replace(line, age_s=age_s)


def _rates(recent: Aggregate, limits: CutoverSettings, more: _More) -> Iterable[Line]:
    mend = f"see `migrator report`; once it is fixed: {_ANEW}"
    yield _mismatches(recent, limits.mismatch_max, mend, more)
    requirement = f"fewer than {limits.error_max:.2%} of the table's answers fail"
    counts = (recent.errors["table"], recent.calls("table"))
    yield _share("errors", requirement, counts, limits.error_max, mend, more)


def _mismatches(recent: Aggregate, limit: float, mend: str, more: _More) -> Line:
    """Line on mismatches. Unsettled differences may be lasting, so they can make it unknown."""
    requirement = f"fewer than {limit:.2%} of the answers differ for good"
    settled = _share("mismatches", requirement, (recent.different, recent.compared), limit, mend, more)
    unsettled = recent.unsettled + recent.ended
    if not unsettled:
        return settled
    observed = f"{settled.found}; {unsettled:,} more differed and were never settled"
    counts = (recent.different + unsettled, recent.compared + unsettled)
    if settled.verdict != "ok" or _share("", "", counts, limit, "", more).verdict == "ok":
        return replace(settled, found=observed)
    return replace(settled, found=observed, verdict="unknown", mend=_UNSETTLED)


_UNSETTLED = "wait for more reads; if that does not help, raise reads.shadow.per_s, or see `migrator report`"


def _share(
    name: str, requirement: str, counts: tuple[int, int], limit: float, mend: str, more: _More
) -> Line:
    count, of = counts
    if not of:
        return unknown(name, requirement, "nothing was counted", "see comparisons")
    observed = f"{count:,} of {of:,} ({count / of:.2%})"
    is_sure = chance_of_fewer(count, of, limit) <= DOUBT
    if not is_sure and count / of < limit:
        mend = more(_lacking(count, of, limit))
        return unknown(name, requirement, f"{observed}: too few calls to be sure", mend)
    return condition(name, requirement, is_sure, observed, mend)


def _p99(pattern: Pattern, recent: Aggregate, limits: CutoverSettings, more: _More) -> Iterable[Line]:
    table, limit_ms, words = recent.latency["table"], *p99_limit(pattern, recent, limits.p99_factor)
    requirement = f"the table's p99 within {words}"
    if limit_ms is None or not table.answers:
        lacking = max(SIDES_MIN - recent.latency["sql"].answers, _lacking(0, table.answers, _SLOW))
        mend = more(lacking) if table.answers else "see comparisons"
        yield unknown("p99", requirement, "not enough answers of both sides", mend)
        return
    above = table.above(limit_ms)
    observed = f"{table.p99_ms:,.1f} ms of {table.answers:,} answers; limit {limit_ms:,.1f} ms"
    is_sure = chance_of_fewer(above, table.answers, _SLOW) <= DOUBT
    if not is_sure and table.p99_ms <= limit_ms:
        mend = more(_lacking(above, table.answers, _SLOW))
        yield unknown("p99", requirement, f"{observed}: too few to be sure", mend)
        return
    mend = f"see `migrator report`; a budget in the mapping if it is fine; once fixed: {_ANEW}"
    yield condition("p99", requirement, is_sure, observed, mend)


SIDES_MIN = 100
"""SQL answers needed at least for a p99 of SQL."""


def p99_limit(pattern: Pattern, counts: Aggregate, factor: float) -> tuple[float | None, str]:
    """Limit of the table's p99 in milliseconds (None: unknown), and its description."""
    if pattern.p99_ms is not None:
        return pattern.p99_ms, f"its budget of {pattern.p99_ms:g} ms"
    words = f"{factor:g} times SQL's"
    old = counts.latency["sql"]
    return (old.p99_ms * factor if old.answers >= SIDES_MIN else None), words


def _readers(facts: Facts, _: CutoverSettings) -> Iterable[Line]:
    service_registry, mend = facts.service_registry, "start its service with the job's mapping"
    strangers = [instance for instance in service_registry.living if instance.revision != facts.revision]
    requirement = "at least one reader is alive, and every living instance has this mapping"
    observed = f"{amount(len(facts.readers), 'reader')}, {amount(len(service_registry.living), 'instance')}"
    if strangers:
        observed += f"; another mapping: {named(strangers)}"
    is_ok = bool(facts.readers) and not strangers
    yield condition("instances", requirement, is_ok, observed, mend)
    version = facts.phase.version
    late = [reader for reader in facts.readers if facts.confirmed.get(reader.id, 0) != version]
    requirement = f"every reader acts by {facts.phase.state} (version {version})"
    observed = f"not yet: {named(late)}" if late else "all do"
    yield condition("confirmed", requirement, not late, observed, "wait some seconds")


def _silent(facts: Facts, _: CutoverSettings) -> Iterable[Line]:
    yield silent_line(facts.service_registry)


def _silent_while_sql_is_written(facts: Facts, _: CutoverSettings) -> Iterable[Line]:
    """A replaced silent instance does no harm while every write begins in SQL, in any phase: its writes leave
    marks, and its reads from SQL are current. See docs/protocol.md.
    """
    replaced = facts.service_registry.replaced
    line = silent_line(facts.service_registry.without([instance.id for instance in replaced]))
    remark = f"; replaced by a newer one of their service and host: {named(replaced)}" if replaced else ""
    yield replace(line, found=f"{line.found}{remark}")


def silent_line(service_registry: ServiceRegistry) -> Line:
    """An instance cut off from the journal still acts by the last phase it saw."""
    silent = service_registry.silent
    requirement = "no instance timed out without deregistering"
    observed = f"silent: {named(silent)}" if silent else "none did"
    ids = " ".join(f"--evict {instance.id}" for instance in silent[:_SHOWN])
    mend = f"once it is sure that they are gone: {ids}" if silent else ""
    return Line("silent", requirement, observed, "unknown" if silent else "ok", mend=mend)


def named(instances: Sequence[Instance]) -> str:
    shown = [f"{instance.service} on {instance.host}:{instance.pid}" for instance in instances[:_SHOWN]]
    rest = f" and {len(instances) - _SHOWN} more" if len(instances) > _SHOWN else ""
    return ", ".join(shown) + rest


def _ramped(facts: Facts, _: CutoverSettings) -> Iterable[Line]:
    is_ok = facts.phase.state.word == State("ramp", 100).word
    mend = f"run `migrator cutover ramp JOB {facts.pattern.name} 100` first"
    yield condition("ramp", "the table answers every call already", is_ok, facts.phase.state.word, mend)


_ALL: tuple[Rule, ...] = (
    _table,
    _capture,
    _relay,
    _verify,
    _comparisons,
    _kinds,
    _calls,
    _readers,
    _silent_while_sql_is_written,
)
NEEDS: Mapping[Phase, tuple[Rule, ...]] = {
    "shadow": (_table, _capture),
    "ramp": _ALL,
    "live": (_ramped, *_ALL),
    "complete": (_table, _capture, _comparisons, _calls, _readers, _silent),
}
"""The rules for a move forward to each phase; `complete` also needs those of decommission."""
