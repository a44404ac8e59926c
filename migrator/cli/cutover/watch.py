"""`migrator cutover watch`: moves patterns back by itself when their limits are passed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from migrator.cli.command_line import print_json
from migrator.cli.lag import lag_watch
from migrator.cli.options import shown_live, stop_on_signals
from migrator.cli.ownership import belonging
from migrator.model import entities
from migrator.model.errors import CLEAN, DIFFERENT, WRONG_USE, MigratorError
from migrator.model.live import MarksState
from migrator.settings.job import Job
from migrator.stages.cutover.hooks import tell
from migrator.stages.cutover.moves import Cutover
from migrator.stages.cutover.watch import LagWatch, MovedBack, Watch, keep_watch
from migrator.wiring import job as job_wiring
from migrator.wiring import live
from migrator.wiring.cutover import JobJournal, job_journal_of
from migrator.wiring.job import CommandJob
from migrator.wiring.live import Live

WHO = "migrator cutover watch"


@belonging()
def watch(command_job: CommandJob, once: bool, as_json: bool) -> int:
    """The exit code of `migrator cutover watch`."""
    read = command_job.job
    mapping = job_wiring.sound_mapping(read.mapping).mapping
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        job_journal = job_journal_of(read, command_job.journal())
        # Neither a hook that takes its time nor a source that hangs may hold up the looks at patterns.
        source = stack.enter_context(ExitStack())
        later = stack.enter_context(ThreadPoolExecutor(1, "hooks"))
        beside = stack.enter_context(ThreadPoolExecutor(1, "lag"))
        stack.callback(stop.set)
        stage = _stage(job_journal, mapping, later)
        lag = lag_watch(read, later, _Marks(read, source, stop.is_set))
        # The first look is loud: who starts it sees what is wrong.
        told = _Told(as_json=as_json)
        told.of(stage.once())
        for why in stage.faults.values():
            click.echo(f"error: {why}", err=True)
        if once:
            _look_at_lag(lag)
        else:
            looking = beside.submit(keep_watch, [lag.once], read.cutover.watch.every_s, stop)
            with shown_live(lambda: told.line(stage.faults)):
                keep_watch([lambda: told.of(stage.once())], read.cutover.watch.every_s, stop)
            looking.result()
            what = f"stopped; {len(told.moved)} pattern(s) were moved back, and none is watched from now on"
            click.echo(f"{what}; `migrator cutover watch` goes on", err=True)
        told.end(read.name, stage.faults)
    if not once:
        return CLEAN
    return WRONG_USE if stage.faults else DIFFERENT if told.moved else CLEAN


class _Marks:
    """What waits in the source, which is opened when somebody asks: the watch needs the journal alone."""

    def __init__(self, job: Job, open_until: ExitStack, stop: Callable[[], bool]) -> None:
        self._job, self._open_until, self._stop = job, open_until, stop
        self._live: Live | None = None

    def __call__(self) -> MarksState:
        if self._live is None:
            opening = live.open_live(self._job, "watch", stop=self._stop, patience=live.ONCE)
            self._live = self._open_until.enter_context(opening)
        return MarksState() if self._live.capture.installation() is None else self._live.marks.state()


def _soon(pool: ThreadPoolExecutor, work: Callable[..., None], *words: object) -> None:
    pool.submit(work, *words)


def _stage(job_journal: JobJournal, mapping: entities.Mapping, later: ThreadPoolExecutor) -> Watch:
    cutover = Cutover(job_journal.phases, WHO, mapping.revision)

    def told(moved: MovedBack) -> None:
        _soon(later, _tell_back, job_journal.job, moved)

    return Watch(
        job_journal.phases,
        job_journal.evidence,
        mapping.patterns,
        job_journal.job.cutover.watch,
        cutover,
        told,
    )


@dataclass
class _Told:
    """Moves back, told as they come; to programs in one document at the end (the log has each at once)."""

    as_json: bool
    moved: list[MovedBack] = field(default_factory=list)
    looked_at: float = field(default_factory=time.monotonic)

    def of(self, moved: Sequence[MovedBack]) -> None:
        self.moved += moved
        self.looked_at = time.monotonic()
        for one in [] if self.as_json else moved:
            click.echo(f"{one.pattern}: {one.before} -> {one.after}: {one.reason}")

    def line(self, faults: Mapping[str, str]) -> str:
        """How the watch gets on, on one line."""
        ago_s = time.monotonic() - self.looked_at
        left = f", {len(faults)} cannot be looked at" if faults else ""
        return f"watch: looked at the patterns {ago_s:.0f} s ago; {len(self.moved)} moved back{left}"

    def end(self, job: str, faults: Mapping[str, str]) -> None:
        if self.as_json:
            moved = [_data(one) | {"pattern": one.pattern, "reason": one.reason} for one in self.moved]
            print_json({"job": job, "moved": moved, "not_watched": dict(faults)})


def _data(moved: MovedBack) -> dict[str, Any]:
    """What a hook and a program are told of a move, beside its pattern and reason."""
    lines = [asdict(line) for line in moved.lines]
    return {"from": str(moved.before), "to": str(moved.after), "version": moved.version, "evidence": lines}


def _look_at_lag(lag: LagWatch) -> None:
    try:
        lag.once()
    except MigratorError as error:
        click.echo(f"warning: {error}", err=True)


def _tell_back(job: Job, moved: MovedBack) -> None:
    tell(job.hooks, "rolled_back", job.name, pattern=moved.pattern, reason=moved.reason, **_data(moved))
