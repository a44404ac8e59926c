"""`migrator cutover`: moves access patterns from phase to phase on evidence; and what all moves share."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from typing import Any

from msgspec import Struct

from migrator.cli import cutover_text
from migrator.cli import options as cli
from migrator.cli.command_line import print_json
from migrator.cli.lag import lag_watch
from migrator.cli.runs import known_revision
from migrator.mapping.model import mapping as mappings
from migrator.mapping.model.durations import age_text
from migrator.mapping.model.evidence import (
    AUDIENCE_AT_MOST,
    Judgement,
    Member,
    MovedError,
    PatternPhase,
    State,
    is_back,
)
from migrator.mapping.model.instances import Instance, ServiceRegistry
from migrator.mapping.model.live import MarksState
from migrator.mapping.patterns.params import read_member
from migrator.runtime.errors import (
    CLEAN,
    DIFFERENT,
    WRONG_USE,
    MigratorError,
    SettingsError,
    amount,
    did_you_mean,
)
from migrator.runtime.values import asdict
from migrator.settings.job import Job
from migrator.settings.transforms import sound_mapping
from migrator.stages.cutover.moves import Cutover, LagWatch, Watch, keep_watch, next_step, tell
from migrator.stages.session.evidence import EvidenceGatherer, gatherer_of
from migrator.stages.session.job import ONCE, Live
from migrator.stages.session.session import JobSession

# ── Shared by commands that move access patterns: actor and reason, override, and instances to evict ──

_LETTERS = 500


class MoveOptions(Struct, frozen=True):
    """`override`: the reason for a move against the evidence.
    `shown`: the phase that the pattern must still be in.
    `one_way`: complete may be without a rollback.
    """

    shown: str | None
    who: str
    reason: str
    override: str | None
    gone: tuple[str, ...]
    one_way: bool
    dry_run: bool
    wait: bool
    yes: bool
    as_json: bool

    def __post_init__(self) -> None:
        if self.override is not None and not self.override.strip():
            raise SettingsError(
                '--override wants a reason for the audit: --override "why it is safe all the same"'
            )
        fit_reason(self.override or "")
        fit_reason(self.reason)
        if self.dry_run and self.gone:
            what = "--evict strikes an instance off the list, and --dry-run changes nothing"
            raise SettingsError(f"{what}; give one of them")

    def goes(self, judged: Judgement) -> bool:
        return not self.dry_run and (judged.ok or self.override is not None)

    def need_yes(self, judged: Judgement) -> None:
        """Confirm a move after which SQL must no longer be written.

        Raises: RefusedError if not confirmed; SettingsError without a terminal.
        """
        what = f"from complete {self._way_back}"
        cli.need_yes(f"{judged.pattern}: {what}, and SQL may no longer be written. Go on?", what)

    @property
    def _way_back(self) -> str:
        return "you cannot roll back" if self.one_way else "a rollback needs its services to stop"


def fit_reason(reason: str) -> None:
    if len(reason) > _LETTERS:
        raise SettingsError(f"a reason has at most {_LETTERS} letters")


def refuse_moved(phase: PatternPhase, expected: str | None) -> None:
    if expected is not None and phase.state.phase != expected:
        raise MovedError(
            f"pattern {phase.pattern}: it is in {phase.state}, no longer in {expected}; check it again"
        )


def need_pattern(name: str, patterns: Sequence[str]) -> None:
    if name not in patterns:
        advice = did_you_mean(name, patterns) or "; `migrator cutover status JOB` lists them"
        raise SettingsError(f"the mapping has no access pattern '{name}'{advice}")


def instances_to_evict(service_registry: ServiceRegistry, ids: Sequence[str]) -> list[Instance]:
    by_id = {instance.id: instance for instance in service_registry.known}
    for id_ in ids:
        if id_ not in by_id:
            silent = ", ".join(instance.id for instance in service_registry.silent) or "none"
            raise SettingsError(f"--evict {id_}: instance not found; silent ones: {silent}")
        if by_id[id_] in service_registry.living:
            age = age_text(service_registry.age_s(by_id[id_]))
            raise SettingsError(
                f"--evict {id_}: {cutover_text.instance_label(by_id[id_])} is alive, heard of {age} ago; stop it first"
            )
    return [by_id[id_] for id_ in ids]


def remove_instances(session: JobSession, ids: Sequence[str]) -> None:
    """Remove instances once the audit names the operator; those heard of meanwhile stay.

    One that is alive returns with its next heartbeat.
    """
    for instance in session.service_registry().silent:
        if instance.id in ids:
            session.instances.leave(instance)


# ── The output of a move, with the readers that do not act by it yet ──

_WAIT_LIMIT_S = 60.0
_LOOK_S = 0.2


def print_moves(
    session: JobSession,
    moved: Sequence[tuple[dict[str, Any], PatternPhase]],
    *,
    as_json: bool,
    wait: bool,
    as_list: bool = False,
) -> int:
    """Print the moves and by when readers see them; with `wait`, wait for all moves at once.

    `moved`: each with its JSON, and the phase after it.
    `as_list`: print a JSON list, even of one move.
    """
    seen_s = session.job.reads.seen_within_s
    if not as_json:
        for data, phase in moved:
            cli.print_folded(f"{phase.pattern}: {data['from']} -> {phase.state} (version {phase.version})")
    late = _late(session, [phase for _, phase in moved]) if wait and moved else {}
    if as_json:
        entries = [
            {**data, "version": phase.version, "seen_within_s": seen_s}
            | {"not_confirmed": late.get(phase.pattern, [])}
            for data, phase in moved
        ]
        print_json(entries if as_list else entries[0])
    elif late:
        for pattern, names in late.items():
            cli.print_folded(f"{pattern}: not confirmed within {_WAIT_LIMIT_S:g} s: {', '.join(names)}")
    elif moved:
        cli.print_folded("every living reader uses it" if wait else f"readers use it within {seen_s:g} s")
    return DIFFERENT if late else CLEAN


def _late(session: JobSession, moved: Sequence[PatternPhase]) -> dict[str, list[str]]:
    """Readers that do not act by the moves after a minute, by pattern."""
    ends_at = time.monotonic() + _WAIT_LIMIT_S
    while True:
        confirmed = session.phases.confirmed()
        readers = [reader for reader in session.service_registry().living if reader.reads]
        late: dict[str, list[str]] = defaultdict(list)
        for phase, reader in product(moved, readers):
            if confirmed.get(reader.id, {}).get(phase.pattern, 0) < phase.version:
                late[phase.pattern].append(cutover_text.instance_label(reader))
        if not late or time.monotonic() >= ends_at:
            return late
        time.sleep(_LOOK_S)


# ──
# `migrator cutover`: each access pattern moved from phase to phase, forward on evidence and back at any time.


def pattern_names(job: Job) -> list[str]:
    return list(sound_mapping(job.mapping).mapping.patterns)


def known_patterns(job: Job) -> list[str]:
    """The mapping's; none if it cannot be read, since a rollback and the history need no mapping."""
    with suppress(MigratorError):
        return pattern_names(job)
    return []


@cli.belonging(keeps=True)
def advance(session: JobSession, pattern: str, **options: Any) -> int:
    return _move(session, pattern, next_step, MoveOptions(**options))


@cli.belonging(keeps=True)
def ramp(
    session: JobSession,
    pattern: str,
    percent: int,
    aimed: tuple[str, ...],
    no_more: tuple[str, ...],
    **options: Any,
) -> int:
    if percent > 100:
        raise SettingsError(
            f"a ramp has 1 to 100 percent, not {percent}; at 100 the table answers all, then `migrator cutover advance`"
        )
    more, fewer = (_audience(session.job, pattern, given) for given in (aimed, no_more))

    def after(now: State) -> State:
        """The ramp's parameters persist until removed, at any share."""
        for name, text in sorted(fewer - set(now.audience)):
            raise SettingsError(f"pattern {pattern}: it is not for {name}={text}; it is in {now}")
        state = State("ramp", percent, tuple(sorted({*now.audience, *more} - fewer)))
        if percent < (0 if state.audience else 1):
            advice = "SQL answers all after `migrator cutover rollback`, and 0 goes with --for"
            raise SettingsError(f"a ramp has 1 to 100 percent, not {percent}; {advice}")
        if len(state.audience) > AUDIENCE_AT_MOST:
            raise SettingsError(f"a ramp is for {AUDIENCE_AT_MOST} at most; give it a share instead")
        return state

    return _move(session, pattern, after, MoveOptions(**options))


def _audience(job: Job, pattern: str, given: Sequence[str]) -> set[Member]:
    if not given:
        return set()
    patterns = sound_mapping(job.mapping).mapping.patterns
    need_pattern(pattern, list(patterns))
    return {read_member(patterns[pattern], text) for text in given}


def _move(session: JobSession, pattern: str, to: Callable[[State], State], options: MoveOptions) -> int:
    phase = session.phases.all().get(pattern, PatternPhase(pattern))
    refuse_moved(phase, options.shown)
    after = to(phase.state)
    if not phase.fault and is_back(phase.state, after):
        return _down(session, phase, after, options)
    need_pattern(pattern, pattern_names(session.job))
    with ExitStack() as stack:
        stack.enter_context(cli.stop_on_signals(session.stop))
        evicted = instances_to_evict(session.service_registry(), options.gone)
        sources = stack.enter_context(session.another("cutover", live_patience=ONCE, gone=options.gone))
        stage, gatherer = Cutover(session.phases, options.who, sources.mapping.revision), gatherer_of(sources)
        # Moves the version known at the start of the command; a faster command has moved another version.
        judged = _judged(stage, gatherer, phase, after, options)
        if options.goes(judged) and judged.after.phase == "complete" and not options.yes:
            options.need_yes(judged)
            # The question may have stood for hours, so the evidence is judged once more.
            judged = _judged(stage, gatherer, phase, judged.after, options)
        if not options.goes(judged):
            return _stays(judged, options)
        moved = stage.move(judged, reason=_reason(options, evicted), override=bool(options.override))
        remove_instances(session, options.gone)
        return _tell(session, judged, moved, options)


def _judged(
    stage: Cutover, gatherer: EvidenceGatherer, phase: PatternPhase, after: State, options: MoveOptions
) -> Judgement:
    """Judge by current evidence, and print the lines that are not ok; with --dry-run all."""
    lines = partial(gatherer.lines, one_way=options.one_way)
    judged = stage.judge(phase, after, lines)
    if not options.as_json:
        cli.print_evidence(judged.lines, every=options.dry_run)
    return judged


def _reason(options: MoveOptions, evicted: Sequence[Instance]) -> str:
    one_way = "one way" if options.one_way else ""
    gone = (f"said to be gone: {cutover_text.instance_label(instance)}" for instance in evicted)
    return "; ".join(filter(None, (options.override or options.reason, one_way, *gone)))


def _down(session: JobSession, phase: PatternPhase, after: State, options: MoveOptions) -> int:
    """Move back by the journal alone: an unreachable source or table must not block it."""
    judged = Judgement(phase.pattern, phase.state, after, phase.version, ())
    if options.dry_run:
        return _stays(judged, options)
    evicted = instances_to_evict(session.service_registry(), options.gone)
    stage = Cutover(session.phases, options.who, known_revision(session.job) or "")
    moved = stage.roll_back(phase, after, _reason(options, evicted))
    remove_instances(session, options.gone)
    return _tell(session, judged, moved, options)


def _tell(session: JobSession, judged: Judgement, moved: PatternPhase, options: MoveOptions) -> int:
    data = cutover_text.judgement_data(judged) | {"moved": True}
    return print_moves(session, [(data, moved)], as_json=options.as_json, wait=options.wait)


def _stays(judged: Judgement, options: MoveOptions) -> int:
    if options.as_json:
        print_json(cutover_text.judgement_data(judged) | {"moved": False})
    elif judged.ok:
        cli.print_folded(
            f"{judged.pattern} could go from {judged.before} to {judged.after}; nothing was changed"
        )
    else:
        cli.say(cutover_text.refusal(judged))
    return CLEAN if judged.ok else DIFFERENT


NAME_IN_AUDIT = "migrator cutover watch"


@cli.belonging()
def watch(session: JobSession, once: bool, as_json: bool) -> int:
    read = session.job
    mapping = sound_mapping(read.mapping).mapping
    with ExitStack() as stack:
        stop = stack.enter_context(cli.stop_on_signals(session.stop))
        # Neither a slow hook nor a source that hangs may delay the checks of patterns.
        source = stack.enter_context(ExitStack())
        later = stack.enter_context(ThreadPoolExecutor(1, "hooks"))
        lag_thread = stack.enter_context(ThreadPoolExecutor(1, "lag"))
        stack.callback(stop.set)
        stage = _stage(session, mapping, later)
        lag = lag_watch(read, later, _marks(session, source))
        # Faults of the first look are printed, so that they are seen at the start.
        output = _Output(as_json=as_json)
        output.of(stage.once())
        for why in stage.faults.values():
            cli.say(f"error: {why}")
        if once:
            _look_at_lag(lag)
        else:
            looking = lag_thread.submit(keep_watch, [lag.once], read.cutover.watch.every_s, stop)
            with cli.shown_live(lambda: output.line(stage.faults)):
                keep_watch([lambda: output.of(stage.once())], read.cutover.watch.every_s, stop)
            looking.result()
            what = f"stopped; {amount(len(output.moved), 'pattern')} moved back; the watch has ended"
            cli.say(f"{what}; `migrator cutover watch` watches again")
        output.end(read.name, stage.faults)
    if not once:
        return CLEAN
    return WRONG_USE if stage.faults else DIFFERENT if output.moved else CLEAN


def _marks(session: JobSession, open_until: ExitStack) -> Callable[[], MarksState]:
    """Marks in the source, opened at the first call: the watch itself needs only the journal."""

    @cache
    def live() -> Live:
        return open_until.enter_context(session.open_own_live("watch", ONCE))

    return lambda: MarksState() if live().capture.installation() is None else live().marks.state()


def _stage(session: JobSession, mapping: mappings.Mapping, later: ThreadPoolExecutor) -> Watch:
    cutover, job = Cutover(session.phases, NAME_IN_AUDIT, mapping.revision), session.job

    def report_move(moved: Judgement) -> None:
        words = _data(moved) | {"pattern": moved.pattern, "reason": moved.reason}
        later.submit(partial(tell, job.hooks, "rolled_back", job.name, **words))

    return Watch(session.phases, session.evidence, mapping.patterns, job.cutover.watch, cutover, report_move)


@dataclass
class _Output:
    """Prints moves back as they come, or one JSON document at the end (the log has each at once)."""

    as_json: bool
    moved: list[Judgement] = field(default_factory=list)
    looked_at: float = field(default_factory=time.monotonic)

    def of(self, moved: Sequence[Judgement]) -> None:
        self.moved += moved
        self.looked_at = time.monotonic()
        for move in [] if self.as_json else moved:
            cli.print_folded(f"{move.pattern}: {move.before} -> {move.after}: {move.reason}")

    def line(self, faults: Mapping[str, str]) -> str:
        ago_s = time.monotonic() - self.looked_at
        unwatched = f", {len(faults)} cannot be looked at" if faults else ""
        return f"watch: looked at the patterns {ago_s:.0f} s ago; {len(self.moved)} moved back{unwatched}"

    def end(self, job: str, faults: Mapping[str, str]) -> None:
        if self.as_json:
            moved = [_data(move) | {"pattern": move.pattern, "reason": move.reason} for move in self.moved]
            print_json({"job": job, "moved": moved, "not_watched": dict(faults)})


def _data(moved: Judgement) -> dict[str, Any]:
    lines = [asdict(line) for line in moved.lines]
    return {"from": str(moved.before), "to": str(moved.after), "version": moved.version, "evidence": lines}


def _look_at_lag(lag: LagWatch) -> None:
    try:
        lag.once()
    except MigratorError as error:
        cli.say(f"warning: {error}")


# ── `migrator cutover status`: the phases of patterns, and their history ──


def status(history: bool, **asked: Any) -> int:
    return _history(**asked) if history else _status(**asked)


@cli.belonging(keeps=True)
def _status(session: JobSession, pattern: str | None, as_json: bool) -> int:
    read = session.job
    patterns = pattern_names(read)
    phases = session.phases.all()
    if pattern is not None:
        need_pattern(pattern, [*patterns, *phases])
    service_registry = session.service_registry()
    all_views = cutover_text.views(patterns, phases, service_registry, session.phases.confirmed())
    printed = [view for view in all_views if pattern in (None, view.phase.pattern)]
    silent = {instance.id: cutover_text.instance_label(instance) for instance in service_registry.silent}
    if as_json:
        about = {"job": read.name, "journal": session.journal.name}
        listed = [{"id": id_, "instance": label} for id_, label in silent.items()]
        shown = {"patterns": cutover_text.views_data(printed), "silent": listed, "direct": read.direct}
        print_json(about | shown)
    else:
        cli.print_folded(f"journal: {cli.shown_path(session.journal.name)}")
        cli.stdout().print(cutover_text.views_table(printed, service_registry.now_s))
        if read.direct:
            cli.print_folded(cutover_text.direct_line(read.direct))
        replaced = [instance.id for instance in service_registry.replaced]
        for id_, label in silent.items():
            note = "; a newer one took its place, so only `complete` asks" if id_ in replaced else ""
            once_sure = f"--evict {id_} once it is sure that it is{note}"
            cli.print_folded(f"timed out without deregistering: {label} ({once_sure})")
    if faults := [view.phase.fault for view in printed if view.phase.fault]:
        raise SettingsError("; ".join(faults))
    return CLEAN


@cli.belonging()
def _history(session: JobSession, pattern: str | None, as_json: bool) -> int:
    moves = session.phases.history(pattern)
    if pattern is not None and not moves:
        # Every moved pattern has a history, even with an unreadable mapping.
        need_pattern(pattern, known_patterns(session.job))
    lines = cutover_text.history_lines(moves) if moves else "nothing has been moved yet"
    cli.print_result(cutover_text.history_data(moves), lines, as_json=as_json)
    return CLEAN
