"""Evidence for a move: what is known of a pattern, and each line of it judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from migrator.model.durations import limit_text
from migrator.model.evidence import Line, PatternPhase, Verdict, Window
from migrator.model.instances import Instance, ServiceRegistry
from migrator.model.live import ActivityCounts, MarksState
from migrator.model.patterns import Pattern
from migrator.model.phase import Phase, State, is_back
from migrator.settings.cutover import CutoverSettings
from migrator.stages.cutover.counts import Aggregate, chance_of_fewer, counted

# ── What is known of one pattern when a move of it is judged ──


@dataclass(frozen=True, slots=True)
class Unknown:
    """An edge that could not be asked, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Verified:
    """The last full verify of this mapping's revision into this table. `findings`: of the pattern's entities.

    `age_s`: since it began; None where it has not ended. `look`: what the source counted of changes when it began, None
    where nobody looked.
    """

    run: int
    findings: int
    age_s: float | None
    look: ActivityCounts | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one pattern at one moment, all times by the journal's clock.

    `table_fault`, `capture_fault`: what is wrong there, '' for nothing. `verified` None: there was none. `relays`: those
    that live. `confirmed`: versions by instance.
    """

    pattern: Pattern
    revision: str
    phase: PatternPhase
    now_s: float
    windows: Sequence[Window]
    service_registry: ServiceRegistry
    confirmed: Mapping[str, int]
    table_fault: str | Unknown = ""
    capture_fault: str | Unknown = ""
    marks: MarksState | Unknown = field(default_factory=MarksState)
    relays: int | Unknown = 0
    verified: Verified | None | Unknown = None

    @property
    def readers(self) -> list[Instance]:
        return [one for one in self.service_registry.living if one.reads]

    def counts(self, limits: CutoverSettings, *, since_move: bool) -> Aggregate:
        """Of this mapping's windows that are young enough; `since_move`: that began after the last one, too.

        Before a pattern answers from the table, a replay's questions are as good as a service's; then they are not.
        """
        since = self.now_s - limits.evidence_max_age_s
        if since_move:
            since = max(since, self.phase.since)
        origins = ("service",) if since_move and self.phase.state.phase in ("ramp", "live") else None
        return counted(
            one
            for one in self.windows
            if one.revision == self.revision
            and one.begun_at >= since
            and (origins is None or one.origin in origins)
        )


def verdict(is_ok: bool) -> Verdict:
    return "ok" if is_ok else "no"


def age_of(facts: Facts, counts: Aggregate) -> float | None:
    """Seconds since the newest of the counted windows began."""
    return None if counts.newest_at is None else max(0.0, facts.now_s - counts.newest_at)


# ──
# Evidence for a move of a pattern: each line asks one thing of what was found, and what is not known
# counts as a no.

DOUBT = 0.05
"""A share counts as below its limit where chance alone explains the counts less often than that."""
_SHOWN = 3
_ANEW = "`migrator cutover rollback --to off`, then advance: counts begin anew"


Rule: TypeAlias = Callable[[Facts, CutoverSettings], Iterable[Line]]


def judge(facts: Facts, limits: CutoverSettings, after: State) -> list[Line]:
    """The evidence for a move to `after`; none is asked where it goes back, as to a smaller ramp."""
    if is_back(facts.phase.state, after):
        return []
    return [line for rule in NEEDS.get(after.phase, ()) for line in rule(facts, limits)]


def _table(facts: Facts, _: CutoverSettings) -> Iterable[Line]:
    asked = "the table and its indexes are there, and fit the mapping"
    yield _of_fault("table", asked, facts.table_fault, "see `migrator table check`")


def _capture(facts: Facts, _: CutoverSettings) -> Iterable[Line]:
    asked = "every change in the source leaves a mark"
    yield _of_fault("capture", asked, facts.capture_fault, "see `migrator capture status`")


def _of_fault(name: str, asked: str, fault: str | Unknown, mend: str) -> Line:
    if isinstance(fault, Unknown):
        return Line(name, asked, fault.why, "unknown", mend=mend)
    return Line(name, asked, fault or "so it is", verdict(not fault), mend=mend if fault else "")


def _relay(facts: Facts, limits: CutoverSettings) -> Iterable[Line]:
    relays, marks = facts.relays, facts.marks
    mend = "start `migrator relay`"
    if isinstance(relays, Unknown):
        yield Line("relay", "a relay is alive", relays.why, "unknown", mend=mend)
    else:
        yield Line(
            "relay",
            "a relay is alive",
            "at least one is" if relays else "none is",
            verdict(relays > 0),
            mend="" if relays else mend,
        )
    asked = f"no mark waits longer than {limits.lag_max_s:g} s, and none failed"
    if isinstance(marks, Unknown):
        yield Line("lag", asked, marks.why, "unknown")
        return
    is_ok = marks.oldest_age_s <= limits.lag_max_s and not marks.failed
    found = (
        f"{marks.waiting:,} wait, the oldest for {marks.oldest_age_s:.1f} s; {marks.failed:,} failed before"
    )
    mend = "" if is_ok else "wait for the relay, or see `migrator findings`"
    yield Line("lag", asked, found, verdict(is_ok), mend=mend)


def _verify(facts: Facts, limits: CutoverSettings) -> Iterable[Line]:
    asked = f"a full verify by this mapping, clean for the pattern's entities, within {limit_text(limits.verify_max_age_s)}"
    found, mend = facts.verified, "run `migrator verify` anew"
    if isinstance(found, Unknown):
        yield Line("verify", asked, found.why, "unknown", mend=mend)
    elif found is None:
        yield Line("verify", asked, "none of this mapping and this table", "unknown", mend=mend)
    elif found.age_s is None:
        yield Line("verify", asked, f"run {found.run} has not ended", "unknown", mend=mend)
    else:
        is_ok = not found.findings and found.age_s <= limits.verify_max_age_s
        said = f"run {found.run}: {found.findings:,} finding(s) of its entities"
        if found.findings:
            mend = "see `migrator findings`; `migrator verify --repair`, then the relay and verify again"
        yield Line("verify", asked, said, verdict(is_ok), found.age_s, "" if is_ok else mend)


def _comparisons(facts: Facts, limits: CutoverSettings) -> Iterable[Line]:
    recent = facts.counts(limits, since_move=True)
    since = (
        "since the last move" if facts.phase.version else f"within {limit_text(limits.evidence_max_age_s)}"
    )
    asked = f"{limits.comparisons_min:,} answers compared {since}"
    others = sum(one.compared for one in facts.windows if one.revision != facts.revision)
    more = f"; {others:,} by another mapping do not count" if others else ""
    found = f"{recent.compared:,} ({recent.origins['service']:,} of services, {recent.origins['replay']:,} replayed){more}"
    is_ok = recent.compared >= limits.comparisons_min
    mend = "" if is_ok else _more(facts)
    yield Line("comparisons", asked, found, verdict(is_ok), age_of(facts, recent), mend)


def _more(facts: Facts) -> str:
    if facts.phase.state.phase in ("ramp", "live"):
        return "wait for more reads of the services"
    return "wait for more reads, or run `migrator shadow replay`"


def _kinds(facts: Facts, limits: CutoverSettings) -> Iterable[Line]:
    """Kinds that a service asks seldom need not come again after every move."""
    all_ = facts.counts(limits, since_move=False)
    possible = 2 ** sum(param.optional for param in facts.pattern.params)
    seen = len(all_.kinds)
    is_ok = seen > 0 and seen >= limits.kinds_min * possible
    asked = f"{limits.kinds_min:.0%} of the ways to set optional parameters compared"
    mend = "" if is_ok else "run `migrator shadow replay`, which sets them in every way"
    yield Line("kinds", asked, f"{seen} of {possible}", verdict(is_ok), age_of(facts, all_), mend)


def _calls(facts: Facts, limits: CutoverSettings) -> Iterable[Line]:
    """What the calls since the last move came to, as old as the newest of their windows."""
    recent = facts.counts(limits, since_move=True)
    age_s = age_of(facts, recent)
    for line in (*_rates(recent, limits), *_p99(facts.pattern, recent, limits)):
        yield replace(line, age_s=age_s)


def _rates(recent: Aggregate, limits: CutoverSettings) -> Iterable[Line]:
    mend = f"see `migrator report`; once it is mended: {_ANEW}"
    yield _mismatches(recent, limits.mismatch_max, mend)
    asked = f"fewer than {limits.error_max:.2%} of the table's answers fail"
    yield _share("errors", asked, (recent.errors["table"], recent.calls("table")), limits.error_max, mend)


def _mismatches(recent: Aggregate, limit: float, mend: str) -> Line:
    """Of what differed and was never settled nobody knows that it was not for good."""
    asked = f"fewer than {limit:.2%} of the answers differ for good"
    known = _share("mismatches", asked, (recent.different, recent.compared), limit, mend)
    unsettled = recent.unsettled + recent.ended
    if not unsettled:
        return known
    found = f"{known.found}; {unsettled:,} more differed and were never settled"
    counts = (recent.different + unsettled, recent.compared + unsettled)
    if known.verdict != "ok" or _share("", "", counts, limit, "").verdict == "ok":
        return replace(known, found=found)
    return replace(known, found=found, verdict="unknown", mend=_UNSETTLED)


_UNSETTLED = "wait for more reads; if that does not help, raise reads.shadow.per_s, or see `migrator report`"


def _share(name: str, asked: str, counts: tuple[int, int], limit: float, mend: str) -> Line:
    count, of = counts
    if not of:
        return Line(name, asked, "nothing was counted", "unknown", mend="see comparisons")
    found = f"{count:,} of {of:,} ({count / of:.2%})"
    if chance_of_fewer(count, of, limit) <= DOUBT:
        return Line(name, asked, found, "ok")
    if count / of < limit:
        return Line(name, asked, f"{found}: too few calls to be sure", "unknown", mend="wait for more reads")
    return Line(name, asked, found, "no", mend=mend)


def _p99(pattern: Pattern, recent: Aggregate, limits: CutoverSettings) -> Iterable[Line]:
    table, limit_ms, words = recent.latency["table"], *p99_limit(pattern, recent, limits.p99_factor)
    asked = f"the table's p99 within {words}"
    if unread := sum(one.unread for one in recent.latency.values()):
        said = f"the latencies of {unread:,} window(s) cannot be read"
        yield Line("p99", asked, said, "unknown", mend="do all services have the same version of migrator?")
        return
    if limit_ms is None or not table.answers:
        yield Line("p99", asked, "not enough answers of both sides", "unknown", mend="see comparisons")
        return
    above = table.above(limit_ms)
    found = f"{table.p99_ms:,.1f} ms of {table.answers:,} answers; limit {limit_ms:,.1f} ms"
    if chance_of_fewer(above, table.answers, 0.01) <= DOUBT:
        yield Line("p99", asked, found, "ok")
    elif table.p99_ms <= limit_ms:
        yield Line("p99", asked, f"{found}: too few to be sure", "unknown", mend="wait for more reads")
    else:
        yield Line(
            "p99",
            asked,
            found,
            "no",
            mend=f"see `migrator report`; a budget in the mapping if it is fine; once mended: {_ANEW}",
        )


SIDES_MIN = 100
"""Answers of SQL's that a p99 of it is made of at least."""


def p99_limit(pattern: Pattern, counts: Aggregate, factor: float) -> tuple[float | None, str]:
    """What the table's p99 may be, in milliseconds (None: not known), and what that is in words."""
    if pattern.p99_ms is not None:
        return pattern.p99_ms, f"its budget of {pattern.p99_ms:g} ms"
    words = f"{factor:g} times SQL's"
    old = counts.latency["sql"]
    return (old.p99_ms * factor if old.answers >= SIDES_MIN else None), words


def _readers(facts: Facts, _: CutoverSettings) -> Iterable[Line]:
    service_registry, mend = facts.service_registry, "start its service with the job's mapping"
    strangers = [one for one in service_registry.living if one.revision != facts.revision]
    asked = "at least one reader is alive, and every living instance has this mapping"
    found = f"{len(facts.readers)} reader(s), {len(service_registry.living)} instance(s)"
    if strangers:
        found += f"; another mapping: {named(strangers)}"
    is_ok = bool(facts.readers) and not strangers
    yield Line("instances", asked, found, verdict(is_ok), mend="" if is_ok else mend)
    version = facts.phase.version
    late = [one for one in facts.readers if facts.confirmed.get(one.id, 0) != version]
    asked = f"every reader acts by {facts.phase.state} (version {version})"
    found = f"not yet: {named(late)}" if late else "all do"
    yield Line("confirmed", asked, found, verdict(not late), mend="wait some seconds" if late else "")


def _silent(facts: Facts, _: CutoverSettings) -> Iterable[Line]:
    yield silent_line(facts.service_registry)


def _silent_while_sql_is_written(facts: Facts, _: CutoverSettings) -> Iterable[Line]:
    """One that a newer instance replaced does no harm while every write begins in SQL, whatever phase it acts by: what it
    writes leaves its mark, and what it reads from SQL is true. See docs/protocol.md."""
    replaced = facts.service_registry.replaced
    line = silent_line(facts.service_registry.without([one.id for one in replaced]))
    more = f"; replaced by a newer one of their service and host: {named(replaced)}" if replaced else ""
    yield replace(line, found=f"{line.found}{more}")


def silent_line(service_registry: ServiceRegistry) -> Line:
    """One that was cut off from the journal still answers as the phase was that it saw last."""
    silent = service_registry.silent
    asked = "no instance fell silent without a goodbye"
    found = f"silent: {named(silent)}" if silent else "none did"
    sure = f"once it is sure that they are gone: --evict {silent[0].id}" if silent else ""
    mend = f"{sure}; of many: --evict-older-than 10m" if len(silent) > 1 else sure
    return Line("silent", asked, found, "unknown" if silent else "ok", mend=mend)


def named(instances: Sequence[Instance]) -> str:
    """The first of them, in words."""
    shown = [f"{one.service} on {one.host}:{one.pid}" for one in instances[:_SHOWN]]
    more = f" and {len(instances) - _SHOWN} more" if len(instances) > _SHOWN else ""
    return ", ".join(shown) + more


def _ramped(facts: Facts, _: CutoverSettings) -> Iterable[Line]:
    is_ok = facts.phase.state == State("ramp", 100)
    mend = "" if is_ok else "run `migrator cutover ramp JOB PATTERN 100` first"
    yield Line(
        "ramp", "the table answers every call already", str(facts.phase.state), verdict(is_ok), mend=mend
    )


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
"""What each phase asks of whoever moves forward to it; `complete` asks what decommission does, too."""
