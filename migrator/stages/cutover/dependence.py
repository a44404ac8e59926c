"""What still depends on SQL: the checks before `complete`, decommission, and direct entities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from migrator.model.durations import limit_text
from migrator.model.evidence import Line, PatternPhase
from migrator.model.instances import ServiceRegistry
from migrator.model.live import ActivityCounts, MarksState
from migrator.settings.cutover import CutoverSettings
from migrator.stages.cutover.evidence import Unknown, Verified, named, silent_line, verdict
from migrator.stages.live.instances import FORGOTTEN_S

# ──
# Decommission: what still depends on SQL, line by line, before the last phase and before anything is taken
# away.

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
    `revision`: of the mapping; `confirmed`: versions of phases by instance and pattern.
    """

    phases: Mapping[str, PatternPhase]
    service_registry: ServiceRegistry
    tables: Sequence[str]
    unread: Sequence[str]
    looks: tuple[ActivityCounts, ActivityCounts] | Unknown
    apart_s: float
    marks: MarksState | Unknown
    waiting: Mapping[str, int] | Unknown
    verified: Verified | None | Unknown
    tombstones: Tombstones | None = None
    revision: str = ""
    confirmed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def reading(self) -> list[str]:
        """Patterns that are not complete, or of which nobody can say it."""
        return [name for name, one in self.phases.items() if one.fault or one.state.phase != "complete"]


def still_needed(found: Dependence, limits: CutoverSettings) -> list[Line]:
    """What still depends on SQL, asked before a pattern is complete and before SQL goes."""
    asked = (_patterns, writers_lines, changes_lines, open_lines, marks_lines)
    lines = (*(ask(found) for ask in asked), _verify(found, limits))
    return [line for some in (*lines, _unread(found, limits)) for line in some]


def before_the_end(found: Dependence, limits: CutoverSettings) -> list[Line]:
    """What a check of the whole job asks beside."""
    return [
        *_complete(found),
        *_confirmed(found),
        *_services(found),
        *_silent(found),
        *still_needed(found, limits),
        *_tombstones(found),
    ]


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
    reading = found.reading
    said = f"not yet: {', '.join(reading)}" if reading else "they are"
    mend = "run `migrator cutover advance` for each, once the rest is green" if reading else ""
    yield Line(
        "complete", "every pattern is complete: no reader asks SQL", said, verdict(not reading), mend=mend
    )


def _confirmed(found: Dependence) -> Iterator[Line]:
    """A reader that has not seen a move goes on as before it, and one of another mapping has patterns of its own."""
    readers = [one for one in found.service_registry.living if one.reads]
    late = []
    for one in readers:
        seen = found.confirmed.get(one.id, {})
        behind = [name for name, phase in found.phases.items() if seen.get(name, 0) != phase.version]
        if one.revision != found.revision:
            late.append(f"{named([one])} (another mapping)")
        elif behind:
            late.append(f"{named([one])} ({_shortened(behind)})")
    said = f"not yet: {_shortened(late, '; ')}" if late else "all do"
    mend = "wait some seconds, or start them again with the job's mapping" if late else ""
    asked = "every living reader acts by the phases of now"
    yield Line("confirmed", asked, said, verdict(not late), mend=mend)


def _shortened(words: Sequence[str], between: str = ", ") -> str:
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return between.join(words[:_SHOWN]) + more


def _services(found: Dependence) -> Iterator[Line]:
    """Whoever loads a `Migration` lays the mapping over the source; without its tables no such service starts."""
    living = found.service_registry.living
    said = f"{len(living)}: {named(living)}" if living else "none"
    way_out = "start them anew without `Migration`, asking the table (docs/after.md)"
    mend = f"{'once every pattern is complete: ' if found.reading else ''}{way_out}" if living else ""
    asked = "no instance of a service reads or marks through migrator"
    yield Line("services", asked, said, verdict(not living), mend=mend)


def _silent(found: Dependence) -> Iterator[Line]:
    """With all complete no move can strike it off, and nobody is left whose heartbeats forget it after a day."""
    service_registry = found.service_registry
    recent = tuple(one for one in service_registry.known if service_registry.age_s(one) < FORGOTTEN_S)
    line = silent_line(replace(service_registry, known=recent))
    if line.mend and not found.reading:
        line = replace(line, mend="make sure that they are gone; here they count for a day")
    yield line


_LOOK_AGAIN = "mend what stands in the way, and check again"


def writers_lines(found: Dependence) -> Iterator[Line]:
    marking = found.service_registry.marking
    named = ", ".join(f"{one.service} on {one.host}:{one.pid}" for one in marking[:_SHOWN])
    said = f"{len(marking)}: {named}" if marking else "none"
    mend = "start them again without dual_write, writing to the table" if marking else ""
    yield Line("writers", "no instance of a service writes to SQL", said, verdict(not marking), mend=mend)


def changes_lines(found: Dependence) -> Iterator[Line]:
    asked = f"no table changed within {found.apart_s:g} s"
    mend = "find out which program writes (see writers), and take away its right to write"
    if isinstance(found.looks, Unknown):
        yield Line("changes", asked, found.looks.why, "unknown", mend=_LOOK_AGAIN)
        return
    before, after = found.looks
    changed = [name for name in found.tables if before.tables.get(name) != after.tables.get(name)]
    if changed:
        through = ", ".join(_through(name, before, after) for name in changed)
        yield Line("changes", asked, f"by {after.source}: {through}", "no", mend=mend)
    elif before.whole != after.whole:
        left = (after.whole or 0) - (before.whole or 0)
        yield Line("changes", asked, f"{left:,} new mark(s); {after.blind or after.source}", "no", mend=mend)
    elif after.blind and after.whole is None:
        yield Line("changes", asked, f"{after.blind}, and nothing is captured", "unknown", mend=mend)
    else:
        yield from _unseen(found, after, asked)


def _through(name: str, before: ActivityCounts, after: ActivityCounts) -> str:
    """The table and who writes to it just now; where nobody was seen at it, who may."""
    at_it = {
        look.who[id_]
        for look in (before, after)
        for id_, table in (look.open or {}).items()
        if table == name and id_ in look.who
    }
    if at_it:
        return f"{name} (by {_shortened(sorted(at_it))})"
    may = after.may_write.get(name, ())
    return f"{name} ({_shortened(may)} may write)" if may else name


def _unseen(found: Dependence, after: ActivityCounts, asked: str) -> Iterator[Line]:
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
        yield Line("transactions", asked, found.looks.why, "unknown", mend=_LOOK_AGAIN)
        return
    before, after = found.looks
    if after.open is None:
        yield Line("transactions", asked, after.unseen, "unknown", mend="give it the right, or ask who may")
        return
    # Where the engine does not say what they write, those that are gone within a moment may be anybody's.
    still = {id_: table for id_, table in after.open.items() if table or id_ in (before.open or {})}
    tables = _shortened(sorted({table for table in still.values() if table}))
    of = _shortened(sorted({after.who[id_] for id_ in still if id_ in after.who}))
    told = f", writing to {tables}" if tables else ""
    said = f"{len(still):,}{told}{f', of {of}' if of else ''}" if still else "none is"
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
    mend = _LEFT_EARLY if found.reading else _LEFT_LATE
    yield Line("marks", asked, said, verdict(not (left or failed)), mend=mend if left or failed else "")


_LEFT_EARLY = "run `migrator relay --once`; see `migrator findings` for those that failed"
_LEFT_LATE = (
    "`migrator relay --once --force` puts their rows over items, `migrator capture uninstall --discard-marks`"
    " leaves the items as they are"
)


def _verify(found: Dependence, limits: CutoverSettings) -> Iterator[Line]:
    # With all complete the table may be newer than the rows: no later verify is clean, and none is asked for.
    limit_s = limits.verify_max_age_s if found.reading else float("inf")
    within = f", within {limit_text(limit_s)}" if found.reading else ""
    asked = f"a full verify by this mapping, clean{within}"
    known, mend = found.verified, "run `migrator verify` anew"
    if isinstance(known, Unknown):
        yield Line("verify", asked, known.why, "unknown", mend=mend)
    elif known is None or known.age_s is None:
        said = "none of this mapping and this table" if known is None else f"run {known.run} has not ended"
        yield Line("verify", asked, said, "unknown", mend=mend)
    else:
        is_ok = not known.findings and known.age_s <= limit_s
        said = f"run {known.run}: {known.findings:,} finding(s)"
        if is_ok and not isinstance(found.looks, Unknown):
            yield _since(found, known, found.looks[1], Line("verify", asked, said, "ok", known.age_s))
            return
        yield Line("verify", asked, said, verdict(is_ok), known.age_s, "" if is_ok else mend)


def _since(found: Dependence, known: Verified, after: ActivityCounts, line: Line) -> Line:
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


# ── Direct entities: what has to be so before the service may write an entity past SQL ──


def may_be_direct(
    found: Dependence, reading: Sequence[str], writing: Sequence[str], revision: str
) -> list[Line]:
    """The evidence. `found.tables`: those that direct entities alone read; `reading`: patterns that give their items;
    `writing`: kinds of our own writers that live."""
    return [
        *_direct_patterns(found, reading),
        *marks_lines(found),
        *changes_lines(found),
        *open_lines(found),
        *writers_lines(found),
        *_ours(writing),
        *_instances(found, revision),
    ]


def not_complete(found: Dependence, reading: Sequence[str]) -> list[str]:
    known = [found.phases[name] for name in reading]
    return [one.pattern for one in known if one.fault or one.state.phase != "complete"]


def _direct_patterns(found: Dependence, reading: Sequence[str]) -> Iterator[Line]:
    left = not_complete(found, reading)
    said = f"not yet: {', '.join(left)}" if left else f"{len(reading)} of {len(reading)}"
    mend = "run `migrator cutover advance` for each" if left else ""
    yield Line("complete", "every pattern that reads them is complete", said, verdict(not left), mend=mend)


def _ours(writing: Sequence[str]) -> Iterator[Line]:
    """Who began before the job said so would go on to write the entities by old rows."""
    said = ", ".join(writing) or "none"
    mend = "stop them, and start them again afterwards" if writing else ""
    yield Line("ours", "no relay or backfill is alive", said, verdict(not writing), mend=mend)


def _instances(found: Dependence, revision: str) -> Iterator[Line]:
    others = [one for one in found.service_registry.living if one.revision != revision]
    silent = found.service_registry.silent
    said = f"{len(others)} of another mapping, {len(silent)} silent"
    mend = "see `migrator cutover status`" if others or silent else ""
    asked = "no instance has another mapping, or fell silent without a goodbye"
    yield Line("instances", asked, said, verdict(not others and not silent), mend=mend)
