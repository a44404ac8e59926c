"""Remaining dependence on SQL: the checks before `complete`, decommission, and direct entities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from migrator.mapping.model.durations import limit_text
from migrator.mapping.model.evidence import Line, PatternPhase
from migrator.mapping.model.instances import ServiceRegistry
from migrator.mapping.model.live import ActivityCounts, MarksState
from migrator.runtime.errors import amount
from migrator.runtime.values import replace
from migrator.settings.job import CutoverSettings
from migrator.stages.cutover.evidence import (
    Unknown,
    VerifyOnRecord,
    condition,
    named,
    silent_line,
    unknown,
    verify_line,
)
from migrator.stages.live.instances import FORGOTTEN_S

# ── Decommission: what still depends on SQL, line by line, before the last phase and before anything is removed ──

_SHOWN = 5


class Dependence(Struct, frozen=True):
    """`tables`: those that entities read; `unread`: the source's other tables.
    `looks`: two counts of changes, `apart_s` seconds apart.
    `waiting`: marks by table.
    `confirmed`: versions of phases by instance and pattern.
    """

    phases: Mapping[str, PatternPhase]
    service_registry: ServiceRegistry
    tables: Sequence[str]
    unread: Sequence[str]
    looks: tuple[ActivityCounts, ActivityCounts] | Unknown
    apart_s: float
    marks: MarksState | Unknown
    waiting: Mapping[str, int] | Unknown
    verified: VerifyOnRecord | None | Unknown
    tombstones: tuple[int, int] | None = None
    """Of all, and of the ripe ones, which are past the reach of any late writer."""
    revision: str = ""
    confirmed: Mapping[str, Mapping[str, int]] = {}

    @property
    def reading(self) -> list[str]:
        """Patterns that are not complete, or have an unreadable phase."""
        return [name for name, phase in self.phases.items() if phase.fault or phase.state.phase != "complete"]


def still_needed(dependence: Dependence, limits: CutoverSettings) -> list[Line]:
    """Lines on remaining dependence on SQL, checked before a pattern is complete and before SQL is removed."""
    rules = (_patterns, writers_lines, changes_lines, open_lines, marks_lines)
    lines = (*(ask(dependence) for ask in rules), _verify(dependence, limits))
    return [line for some in (*lines, _unread(dependence, limits)) for line in some]


def before_the_end(dependence: Dependence, limits: CutoverSettings) -> list[Line]:
    return [
        _complete_line("every pattern is complete: no reader uses SQL", dependence.reading, "they are"),
        *_confirmed(dependence),
        *_services(dependence),
        *_silent(dependence),
        *still_needed(dependence, limits),
        *_tombstones(dependence),
    ]


def _patterns(dependence: Dependence) -> Iterator[Line]:
    by_sql = [
        phase
        for phase in dependence.phases.values()
        if phase.fault or phase.state.phase not in ("live", "complete")
    ]
    where = [phase.fault or f"{phase.pattern} is in {phase.state}" for phase in by_sql]
    observed = _shortened(where, "; ") or "the table does"
    mend = _next_move_of(by_sql[0].pattern) if by_sql else ""
    yield condition("patterns", "the table answers every pattern", not by_sql, observed, mend)


def _next_move_of(pattern: str) -> str:
    return f"`migrator cutover advance --dry-run JOB {pattern}` lists what the next move of {pattern} needs"


def _complete_line(requirement: str, left: Sequence[str], none_left: str) -> Line:
    observed = f"not yet: {', '.join(left)}" if left else none_left
    return condition("complete", requirement, not left, observed, _next_move_of(left[0]) if left else "")


def _confirmed(dependence: Dependence) -> Iterator[Line]:
    """Readers that missed a move still use the phase before; those of another mapping have other patterns."""
    readers = [instance for instance in dependence.service_registry.living if instance.reads]
    late = []
    for reader in readers:
        seen = dependence.confirmed.get(reader.id, {})
        behind = [name for name, phase in dependence.phases.items() if seen.get(name, 0) != phase.version]
        if reader.revision != dependence.revision:
            late.append(f"{named([reader])} (another mapping)")
        elif behind:
            late.append(f"{named([reader])} ({_shortened(behind)})")
    observed = f"not yet: {_shortened(late, '; ')}" if late else "all do"
    mend = "wait some seconds, or start them again with the job's mapping"
    yield condition("confirmed", "every living reader uses the present phases", not late, observed, mend)


def _shortened(words: Sequence[str], between: str = ", ") -> str:
    rest = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return between.join(words[:_SHOWN]) + rest


def _services(dependence: Dependence) -> Iterator[Line]:
    """A service with a `Migration` checks the mapping against the source: without its tables it fails to start."""
    living = dependence.service_registry.living
    observed = f"{len(living)}: {named(living)}" if living else "none"
    way_out = "restart them without `Migration`, reading the table (docs/after.md)"
    mend = f"{'once every pattern is complete: ' if dependence.reading else ''}{way_out}"
    requirement = "no instance of a service reads or writes through migrator"
    yield condition("services", requirement, not living, observed, mend)


def _silent(dependence: Dependence) -> Iterator[Line]:
    """Once all patterns are complete, no move removes a silent instance, and no heartbeat forgets it."""
    service_registry = dependence.service_registry
    recent = tuple(
        instance for instance in service_registry.known if service_registry.age_s(instance) < FORGOTTEN_S
    )
    line = silent_line(replace(service_registry, known=recent))
    if line.mend and not dependence.reading:
        line = replace(line, mend="make sure that they are gone; here they count for a day")
    yield line


_LOOK_AGAIN = "fix what blocks the move, and check again"


def writers_lines(dependence: Dependence) -> Iterator[Line]:
    marking = dependence.service_registry.marking
    named = ", ".join(
        f"{instance.service} on {instance.host}:{instance.pid}" for instance in marking[:_SHOWN]
    )
    observed = f"{len(marking)}: {named}" if marking else "none"
    mend = "start them again without dual_write, writing to the table"
    yield condition("writers", "no instance of a service writes to SQL", not marking, observed, mend)


def changes_lines(dependence: Dependence) -> Iterator[Line]:
    requirement = f"no table changed within {dependence.apart_s:g} s"
    mend = "find out which program writes (see writers), and take away its right to write"
    if isinstance(dependence.looks, Unknown):
        yield unknown("changes", requirement, dependence.looks.why, _LOOK_AGAIN)
        return
    before, after = dependence.looks
    changed = [name for name in dependence.tables if before.tables.get(name) != after.tables.get(name)]
    if changed:
        through = ", ".join(_through(name, before, after) for name in changed)
        yield Line("changes", requirement, f"by {after.source}: {through}", "no", mend=mend)
    elif before.whole != after.whole:
        left = (after.whole or 0) - (before.whole or 0)
        observed = f"{amount(left, 'new change')}; {after.blind or after.source}"
        yield Line("changes", requirement, observed, "no", mend=mend)
    elif after.blind and after.whole is None and not after.tables:
        yield unknown("changes", requirement, f"{after.blind}, and capture is not installed", mend)
    else:
        yield from _unseen(dependence, after, requirement)


def _through(name: str, before: ActivityCounts, after: ActivityCounts) -> str:
    """The table and the accounts that write to it now; if none was seen, those that may."""
    writers = {
        look.who[id_]
        for look in (before, after)
        for id_, table in (look.open or {}).items()
        if table == name and id_ in look.who
    }
    if writers:
        return f"{name} (by {_shortened(sorted(writers))})"
    may = after.may_write.get(name, ())
    return f"{name} ({_shortened(may)} may write)" if may else name


def _unseen(dependence: Dependence, after: ActivityCounts, requirement: str) -> Iterator[Line]:
    unseen = [name for name in dependence.tables if name not in after.tables]
    if unseen and after.whole is None:
        observed = f"{after.source} reports nothing of {', '.join(unseen)}"
        yield unknown("changes", requirement, observed, "see which accounts may write to them")
        return
    unmarked = "" if after.tables else "; changes that are not captured are not seen"
    remark = f" ({after.blind}{unmarked})" if after.blind else ""
    yield Line("changes", requirement, f"none, by {after.source}{remark}", "ok")


def open_lines(dependence: Dependence) -> Iterator[Line]:
    """Lines on open transactions. Their writes are invisible to counts, marks and verify."""
    requirement = "no transaction that has written is open"
    mend = "let it end, or end it (see the engine's list of transactions)"
    if isinstance(dependence.looks, Unknown):
        yield unknown("transactions", requirement, dependence.looks.why, _LOOK_AGAIN)
        return
    before, after = dependence.looks
    if after.open is None:
        grant = "grant it the right, or use an account that has it"
        yield unknown("transactions", requirement, after.unseen, grant)
        return
    # If the engine does not report their tables, short transactions may be unrelated and are left out.
    still = {id_: table for id_, table in after.open.items() if table or id_ in (before.open or {})}
    tables = _shortened(sorted({table for table in still.values() if table}))
    of = _shortened(sorted({after.who[id_] for id_ in still if id_ in after.who}))
    writing = f", writing to {tables}" if tables else ""
    observed = f"{len(still):,}{writing}{f', of {of}' if of else ''}" if still else "0 open"
    yield condition("transactions", requirement, not still, observed, mend)


def marks_lines(dependence: Dependence) -> Iterator[Line]:
    requirement = "no change is pending"
    if isinstance(dependence.marks, Unknown):
        yield unknown("marks", requirement, dependence.marks.why)
        return
    mend = _LEFT_EARLY if dependence.reading else _LEFT_LATE
    if isinstance(dependence.waiting, Unknown):
        yield unknown("marks", requirement, dependence.waiting.why, mend)
        return
    # It counts changes without a stored mark, and no shard that merely was not read for a while.
    by_table = dependence.waiting
    left = sum(by_table.values())
    tables = ", ".join(f"{name or 'rows to look at'}: {count:,}" for name, count in sorted(by_table.items()))
    failed = dependence.marks.failed
    observed = f"{left:,} wait ({tables}), {failed:,} failed before" if left or failed else "none does"
    yield condition("marks", requirement, not (left or failed), observed, mend)


_LEFT_EARLY = "run `migrator relay --once`; see `migrator status --findings` for those that failed"
_LEFT_LATE = (
    "`migrator relay --once --force` puts their rows over items, `migrator capture uninstall --discard-marks`"
    " leaves the items as they are"
)


def _verify(dependence: Dependence, limits: CutoverSettings) -> Iterator[Line]:
    # Once all are complete the table may be newer than the rows: no later verify is clean, so none is required.
    limit_s = limits.verify_max_age_s if dependence.reading else float("inf")
    within = f", within {limit_text(limit_s)}" if dependence.reading else ""
    requirement = f"a full verify by this mapping, clean{within}"
    verified, looks = dependence.verified, dependence.looks
    line = verify_line(verified, requirement, limit_s)
    if isinstance(verified, VerifyOnRecord) and line.verdict == "ok" and not isinstance(looks, Unknown):
        line = _since(dependence, verified, looks[1], line)
    yield line


def _since(dependence: Dependence, verified: VerifyOnRecord, after: ActivityCounts, line: Line) -> Line:
    before, mend = verified.look, "run `migrator verify` once more, now that writing ended"
    if before is None:
        observed = f"{line.found}; what changed since is not known"
        return replace(line, found=observed, verdict="unknown", mend=mend)
    changed = [name for name in dependence.tables if before.tables.get(name) != after.tables.get(name)]
    if changed:
        observed = f"{line.found}; changed since it began: {_shortened(changed)}"
        return replace(line, found=observed, verdict="no", mend=mend)
    if before.whole is not None and after.whole is not None and before.whole != after.whole:
        return replace(line, found=f"{line.found}; new changes since it began", verdict="no", mend=mend)
    if after.blind and (before.whole is None or after.whole is None):
        observed = f"{line.found}; what changed since is not known: {after.blind}"
        return replace(line, found=observed, verdict="unknown", mend=_FIND_OUT)
    return line


_FIND_OUT = "find out otherwise whether somebody wrote"


def _unread(dependence: Dependence, limits: CutoverSettings) -> Iterator[Line]:
    left = [name for name in dependence.unread if not any(fnmatchcase(name, glob) for glob in limits.leave)]
    on_purpose = len(dependence.unread) - len(left)
    observed = _shortened(left)
    none_left = f"{on_purpose} left on purpose" if on_purpose else "none"
    mend = "map them, or name them in the job: cutover: {leave: […]}"
    requirement = "no table is left that is not migrated"
    yield condition("unmigrated", requirement, not left, observed or none_left, mend)


def _tombstones(dependence: Dependence) -> Iterator[Line]:
    if dependence.tombstones is None:
        return
    count, ripe = dependence.tombstones
    observed = f"{count:,} of them, {ripe:,} ripe"
    mend = "run `migrator clean --tombstones`" if ripe else "they ripen by themselves"
    yield condition("tombstones", "no tombstone is left", not count, observed, mend)


# ── Direct entities: the conditions under which the service may write an entity past SQL ──


def may_be_direct(
    dependence: Dependence, reading: Sequence[str], writing: Sequence[str], revision: str
) -> list[Line]:
    """Evidence for direct writes.

    `dependence.tables`: those that only direct entities read.
    `reading`: patterns that return their items.
    `writing`: kinds of our live writers.
    """
    return [
        *_direct_patterns(dependence, reading),
        *marks_lines(dependence),
        *changes_lines(dependence),
        *open_lines(dependence),
        *writers_lines(dependence),
        *ours_lines(writing),
        *_instances(dependence, revision),
    ]


def _direct_patterns(dependence: Dependence, reading: Sequence[str]) -> Iterator[Line]:
    left = [name for name in reading if name in dependence.reading]
    all_complete = f"{len(reading)} of {len(reading)}"
    yield _complete_line("every pattern that reads them is complete", left, all_complete)


def ours_lines(writing: Sequence[str]) -> Iterator[Line]:
    """Lines about writers started before the entities became direct, which would overwrite items from old rows."""
    observed = ", ".join(writing) or "none"
    mend = "stop them, and start them again afterwards"
    yield condition("ours", "no relay or backfill is alive", not writing, observed, mend)


def _instances(dependence: Dependence, revision: str) -> Iterator[Line]:
    others = [instance for instance in dependence.service_registry.living if instance.revision != revision]
    silent = dependence.service_registry.silent
    observed = f"{len(others)} of another mapping, {len(silent)} silent"
    requirement = "no instance has another mapping, or timed out without deregistering"
    is_ok = not others and not silent
    yield condition("instances", requirement, is_ok, observed, "see `migrator cutover status`")
