"""Decommission: what still depends on SQL, line by line, before the last phase and before anything is taken away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from migrator.cutover_results import Line
from migrator.cutover_settings import CutoverSettings
from migrator.ports.activity import Looked
from migrator.ports.instances import Roster
from migrator.ports.live import MarksState
from migrator.ports.phases import PatternPhase
from migrator.stages.cutover_facts import Unknown, Verified, age, verdict

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Tombstones:
    """How many there are, and how many of them nobody can be late for any more."""

    all: int
    ripe: int


@dataclass(frozen=True, slots=True)
class Dependence:
    """What is known of a job that is to end. `looks`: two of them, `apart_s` seconds apart.

    `tables`: those that entities read; `unread`: those of the source that none reads. `waiting`: marks by table.
    """

    phases: Mapping[str, PatternPhase]
    roster: Roster
    tables: Sequence[str]
    unread: Sequence[str]
    looks: tuple[Looked, Looked] | Unknown
    apart_s: float
    marks: MarksState | Unknown
    waiting: Mapping[str, int] | Unknown
    verified: Verified | None | Unknown
    tombstones: Tombstones | None = None


def still_needed(found: Dependence, limits: CutoverSettings) -> list[Line]:
    """What still depends on SQL, asked before a pattern is complete and before SQL goes."""
    asked = (_patterns, writers_lines, changes_lines, open_lines, marks_lines)
    lines = (*(ask(found) for ask in asked), _verify(found, limits))
    return [line for some in (*lines, _unread(found, limits)) for line in some]


def before_the_end(found: Dependence, limits: CutoverSettings) -> list[Line]:
    """What a check of the whole job asks beside."""
    return [*_complete(found), *still_needed(found, limits), *_tombstones(found)]


def _patterns(found: Dependence) -> Iterator[Line]:
    by_sql = [
        one for one in found.phases.values() if one.fault or one.state.phase not in ("live", "complete")
    ]
    said = (
        "; ".join(one.fault or f"{one.pattern} is in {one.state}" for one in by_sql[:_SHOWN])
        or "the table does"
    )
    more = f" and {len(by_sql) - _SHOWN} more" if len(by_sql) > _SHOWN else ""
    mend = "move them with `migrator cutover`" if by_sql else ""
    yield Line("patterns", "the table answers every pattern", said + more, verdict(not by_sql), mend=mend)


def _complete(found: Dependence) -> Iterator[Line]:
    reading = [name for name, one in found.phases.items() if one.fault or one.state.phase != "complete"]
    said = f"not yet: {', '.join(reading)}" if reading else "they are"
    mend = "run `migrator cutover advance` for each, once the rest is green" if reading else ""
    yield Line(
        "complete", "every pattern is complete: no reader asks SQL", said, verdict(not reading), mend=mend
    )


def writers_lines(found: Dependence) -> Iterator[Line]:
    marking = found.roster.marking
    named = ", ".join(f"{one.service} on {one.host}:{one.pid}" for one in marking[:_SHOWN])
    said = f"{len(marking)}: {named}" if marking else "none"
    mend = "start them again without dual_write, writing to the table" if marking else ""
    yield Line("writers", "no instance of a service writes to SQL", said, verdict(not marking), mend=mend)


def changes_lines(found: Dependence) -> Iterator[Line]:
    asked = f"no table changed within {found.apart_s:g} s"
    mend = "find who writes (see writers), and take the right to from him"
    if isinstance(found.looks, Unknown):
        yield Line("changes", asked, found.looks.why, "unknown", mend=mend)
        return
    before, after = found.looks
    changed = [name for name in found.tables if before.tables.get(name) != after.tables.get(name)]
    if changed:
        yield Line("changes", asked, f"by {after.source}: {', '.join(changed)}", "no", mend=mend)
    elif before.whole != after.whole:
        left = (after.whole or 0) - (before.whole or 0)
        yield Line("changes", asked, f"{left:,} new mark(s); {after.blind or after.source}", "no", mend=mend)
    elif after.blind and after.whole is None:
        yield Line("changes", asked, f"{after.blind}, and nothing is captured", "unknown", mend=mend)
    else:
        yield from _unseen(found, after, asked)


def _unseen(found: Dependence, after: Looked, asked: str) -> Iterator[Line]:
    """Nothing changed, as far as anybody counts."""
    unseen = [name for name in found.tables if name not in after.tables]
    if unseen and after.whole is None:
        said = f"{after.source} says nothing of {', '.join(unseen)}"
        yield Line("changes", asked, said, "unknown", mend="see who may write to them")
        return
    more = f" ({after.blind}; changes that leave no mark are not seen)" if after.blind else ""
    yield Line("changes", asked, f"none, by {after.source}{more}", "ok")


def open_lines(found: Dependence) -> Iterator[Line]:
    """What a transaction wrote that has not ended nobody else can see: no look, no mark and no verify."""
    asked = "no transaction that has written is open"
    mend = "let it end, or end it (see the engine's list of transactions)"
    if isinstance(found.looks, Unknown):
        yield Line("transactions", asked, found.looks.why, "unknown", mend=mend)
        return
    before, after = found.looks
    if after.open is None:
        yield Line("transactions", asked, after.unseen, "unknown", mend="give it the right, or ask who may")
        return
    # Where the engine does not say what they write, those that are gone within a moment may be anybody's.
    still = [table for id_, table in after.open.items() if table or id_ in (before.open or {})]
    tables = ", ".join(sorted({table for table in still if table})[:_SHOWN])
    said = f"{len(still):,}" + (f", writing to {tables}" if tables else "") if still else "none is"
    yield Line("transactions", asked, said, verdict(not still), mend=mend if still else "")


def marks_lines(found: Dependence) -> Iterator[Line]:
    asked = "no mark waits, ripe or not"
    if isinstance(found.marks, Unknown):
        yield Line("marks", asked, found.marks.why, "unknown")
        return
    left = found.marks.waiting + found.marks.unripe
    by_table = found.waiting if not isinstance(found.waiting, Unknown) else {}
    tables = ", ".join(f"{name or 'rows to look at'}: {count:,}" for name, count in sorted(by_table.items()))
    failed = found.marks.failed
    said = f"{left:,} wait ({tables}), {failed:,} failed before" if left or failed else "none does"
    mend = (
        "run `migrator relay --once`; see `migrator findings` for those that failed" if left or failed else ""
    )
    yield Line("marks", asked, said, verdict(not (left or failed)), mend=mend)


def _verify(found: Dependence, limits: CutoverSettings) -> Iterator[Line]:
    asked = f"a full verify by this mapping, clean, within {age(limits.verify_max_age_s)}"
    known, mend = found.verified, "run `migrator verify` anew"
    if isinstance(known, Unknown):
        yield Line("verify", asked, known.why, "unknown", mend=mend)
    elif known is None or known.age_s is None:
        said = "none of this mapping and this table" if known is None else f"run {known.run} has not ended"
        yield Line("verify", asked, said, "unknown", mend=mend)
    else:
        is_ok = not known.findings and known.age_s <= limits.verify_max_age_s
        said = f"run {known.run}: {known.findings:,} finding(s)"
        if is_ok and not isinstance(found.looks, Unknown):
            yield _since(found, known, found.looks[1], Line("verify", asked, said, "ok", known.age_s))
            return
        yield Line("verify", asked, said, verdict(is_ok), known.age_s, "" if is_ok else mend)


def _since(found: Dependence, known: Verified, after: Looked, line: Line) -> Line:
    """The line of a clean verify, and what has changed in the source since it began: of that it knows nothing."""
    before, mend = known.look, "run `migrator verify` once more, now that nobody writes"
    if before is None:
        return replace(
            line, found=f"{line.found}; what changed since is not known", verdict="unknown", mend=mend
        )
    changed = [name for name in found.tables if before.tables.get(name) != after.tables.get(name)]
    if changed:
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        said = f"{line.found}; changed since it began: {', '.join(changed[:_SHOWN])}{more}"
        return replace(line, found=said, verdict="no", mend=mend)
    if before.whole is not None and after.whole is not None and before.whole != after.whole:
        return replace(line, found=f"{line.found}; new mark(s) since it began", verdict="no", mend=mend)
    if after.blind and (before.whole is None or after.whole is None):
        return replace(
            line, found=f"{line.found}; what changed since is not known", verdict="unknown", mend=mend
        )
    return line


def _unread(found: Dependence, limits: CutoverSettings) -> Iterator[Line]:
    left = [name for name in found.unread if not any(fnmatchcase(name, one) for one in limits.leave)]
    on_purpose = len(found.unread) - len(left)
    said = ", ".join(left[:_SHOWN]) + (f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else "")
    more = f"{on_purpose} left on purpose" if on_purpose else "none"
    mend = "map them, or name them in the job: cutover: {leave: […]}" if left else ""
    asked = "no table is left that nobody has migrated"
    yield Line("unmigrated", asked, said or more, verdict(not left), mend=mend)


def _tombstones(found: Dependence) -> Iterator[Line]:
    if found.tombstones is None:
        return
    counts = found.tombstones
    said = f"{counts.all:,} of them, {counts.ripe:,} ripe"
    mend = "run `migrator purge`" if counts.ripe else "they ripen by themselves" if counts.all else ""
    yield Line("tombstones", "no tombstone is left", said, verdict(not counts.all), mend=mend)
