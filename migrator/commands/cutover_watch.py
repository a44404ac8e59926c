"""`migrator cutover watch`: moves patterns back when their limits are passed; and `migrator cutover status`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from migrator.cli.command_line import print_json
from migrator.cli.cutover_text import (
    direct_line,
    history_data,
    history_lines,
    instance_label,
    views,
    views_data,
    views_table,
)
from migrator.cli.lag import lag_watch
from migrator.cli.options import belonging, print_folded, say, shown_live, shown_path, stdout, stop_on_signals
from migrator.commands.cutover_work import need_pattern, pattern_names
from migrator.mapping.model import mapping as mappings
from migrator.mapping.model.live import MarksState
from migrator.runtime.errors import CLEAN, DIFFERENT, WRONG_USE, MigratorError, SettingsError
from migrator.settings.job import Job
from migrator.settings.transforms import sound_mapping
from migrator.stages.cutover.moves import Cutover
from migrator.stages.cutover.watch import LagWatch, MovedBack, Watch, keep_watch, tell
from migrator.stages.session.live import ONCE, Live
from migrator.stages.session.session import JobSession

NAME_IN_AUDIT = "migrator cutover watch"


@belonging()
def watch(session: JobSession, once: bool, as_json: bool) -> int:
    """The exit code of `migrator cutover watch`."""
    read = session.job
    mapping = sound_mapping(read.mapping).mapping
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals(session.stop))
        # Neither a slow hook nor a source that hangs may delay the looks at patterns.
        source = stack.enter_context(ExitStack())
        later = stack.enter_context(ThreadPoolExecutor(1, "hooks"))
        lag_thread = stack.enter_context(ThreadPoolExecutor(1, "lag"))
        stack.callback(stop.set)
        stage = _stage(session, mapping, later)
        lag = lag_watch(read, later, _Marks(session, source))
        # Faults of the first look are printed, so that they are seen at the start.
        output = _Output(as_json=as_json)
        output.of(stage.once())
        for why in stage.faults.values():
            say(f"error: {why}")
        if once:
            _look_at_lag(lag)
        else:
            looking = lag_thread.submit(keep_watch, [lag.once], read.cutover.watch.every_s, stop)
            with shown_live(lambda: output.line(stage.faults)):
                keep_watch([lambda: output.of(stage.once())], read.cutover.watch.every_s, stop)
            looking.result()
            what = f"stopped; {len(output.moved)} pattern(s) were moved back, and none is watched from now on"
            say(f"{what}; `migrator cutover watch` goes on")
        output.end(read.name, stage.faults)
    if not once:
        return CLEAN
    return WRONG_USE if stage.faults else DIFFERENT if output.moved else CLEAN


class _Marks:
    """What waits in the source, which is opened at the first call: the watch itself needs the journal alone."""

    def __init__(self, session: JobSession, open_until: ExitStack) -> None:
        self._session, self._open_until = session, open_until
        self._live: Live | None = None

    def __call__(self) -> MarksState:
        if self._live is None:
            opening = self._session.open_own_live("watch", ONCE)
            self._live = self._open_until.enter_context(opening)
        return MarksState() if self._live.capture.installation() is None else self._live.marks.state()


def _soon(pool: ThreadPoolExecutor, work: Callable[..., None], *words: object) -> None:
    pool.submit(work, *words)


def _stage(session: JobSession, mapping: mappings.Mapping, later: ThreadPoolExecutor) -> Watch:
    cutover = Cutover(session.phases, NAME_IN_AUDIT, mapping.revision)

    def report_move(moved: MovedBack) -> None:
        _soon(later, _tell_back, session.job, moved)

    return Watch(
        session.phases,
        session.evidence,
        mapping.patterns,
        session.job.cutover.watch,
        cutover,
        report_move,
    )


@dataclass
class _Output:
    """Prints moves back as they come; for programs one document at the end (the log has each at once)."""

    as_json: bool
    moved: list[MovedBack] = field(default_factory=list)
    looked_at: float = field(default_factory=time.monotonic)

    def of(self, moved: Sequence[MovedBack]) -> None:
        self.moved += moved
        self.looked_at = time.monotonic()
        for move in [] if self.as_json else moved:
            print_folded(f"{move.pattern}: {move.before} -> {move.after}: {move.reason}")

    def line(self, faults: Mapping[str, str]) -> str:
        """How the watch gets on, on one line."""
        ago_s = time.monotonic() - self.looked_at
        unwatched = f", {len(faults)} cannot be looked at" if faults else ""
        return f"watch: looked at the patterns {ago_s:.0f} s ago; {len(self.moved)} moved back{unwatched}"

    def end(self, job: str, faults: Mapping[str, str]) -> None:
        if self.as_json:
            moved = [_data(move) | {"pattern": move.pattern, "reason": move.reason} for move in self.moved]
            print_json({"job": job, "moved": moved, "not_watched": dict(faults)})


def _data(moved: MovedBack) -> dict[str, Any]:
    """What a hook and a program get of a move, besides its pattern and reason."""
    lines = [asdict(line) for line in moved.lines]
    return {"from": str(moved.before), "to": str(moved.after), "version": moved.version, "evidence": lines}


def _look_at_lag(lag: LagWatch) -> None:
    try:
        lag.once()
    except MigratorError as error:
        say(f"warning: {error}")


def _tell_back(job: Job, moved: MovedBack) -> None:
    tell(job.hooks, "rolled_back", job.name, pattern=moved.pattern, reason=moved.reason, **_data(moved))


# ── `migrator cutover status`: where the patterns are, and how they came there ──


def status(history: bool, **asked: Any) -> int:
    """The exit code of `migrator cutover status`."""
    return _history(**asked) if history else _status(**asked)


@belonging(keeps=True)
def _status(session: JobSession, pattern: str | None, as_json: bool) -> int:
    read = session.job
    patterns = pattern_names(read)
    if isinstance(patterns, MigratorError):
        raise patterns
    phases = session.phases.all()
    if pattern is not None:
        need_pattern(pattern, [*patterns, *phases])
    service_registry = session.service_registry()
    all_views = views(patterns, phases, service_registry, session.phases.confirmed())
    printed = [view for view in all_views if pattern in (None, view.phase.pattern)]
    if as_json:
        about = {"job": read.name, "journal": session.journal.name, "patterns": views_data(printed)}
        silent = [
            {"id": instance.id, "instance": instance_label(instance)} for instance in service_registry.silent
        ]
        click.echo(json.dumps(about | {"silent": silent, "direct": read.direct}))
    else:
        print_folded(f"journal: {shown_path(session.journal.name)}")
        stdout().print(views_table(printed, service_registry.now_s))
        if read.direct:
            print_folded(direct_line(read.direct))
        replaced = [instance.id for instance in service_registry.replaced]
        for instance in service_registry.silent:
            replaced_note = (
                "; a newer one took its place, so only `complete` asks" if instance.id in replaced else ""
            )
            once_sure = f"--evict {instance.id} once it is sure that it is{replaced_note}"
            print_folded(f"timed out without deregistering: {instance_label(instance)} ({once_sure})")
    if faults := [view.phase.fault for view in printed if view.phase.fault]:
        raise SettingsError("; ".join(faults))
    return CLEAN


@belonging()
def _history(session: JobSession, pattern: str | None, as_json: bool) -> int:
    read = session.job
    moves = session.phases.history(pattern)
    if pattern is not None and not moves:
        # What was ever moved has a history, whether the mapping can be read or not.
        patterns = pattern_names(read)
        need_pattern(pattern, patterns if isinstance(patterns, list) else [])
    if as_json:
        click.echo(json.dumps(history_data(moves), ensure_ascii=False))
        return CLEAN
    for line in history_lines(moves) if moves else ["nothing has been moved yet"]:
        print_folded(line)
    return CLEAN
