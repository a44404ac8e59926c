"""`migrator cutover watch`: patterns moved back by themselves when their limits are passed."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click

from migrator import live_wiring, wiring
from migrator.cli.lag_hook import lag_watch
from migrator.cli.options import job_argument, json_option, read_job, stop_on_signals
from migrator.cutover_wiring import Desk, open_desk
from migrator.errors import CLEAN, DIFFERENT, WRONG_USE, MigratorError
from migrator.hooks import tell
from migrator.live_wiring import Live
from migrator.model import Mapping
from migrator.ports.live import MarksState
from migrator.settings import Job
from migrator.stages.cutover import Cutover
from migrator.stages.watch import LagWatch, MovedBack, Watch, keep_watch

WHO = "migrator cutover watch"


@click.command()
@job_argument
@click.option("--once", is_flag=True, help="Look once and end; exit code 1 where a pattern was moved back.")
@json_option
def watch(job: Path, once: bool, as_json: bool) -> int:
    """Look at patterns that the table answers, and move one back to shadow when errors, differences or p99 pass a limit.

    Runs until it is stopped (Ctrl-C, SIGTERM). Limits: `cutover: {watch: …}` in the job. Hooks are told of rolled_back
    and of lag_high. Exit code 2 of --once: a pattern could not be looked at.
    """
    read = read_job(job)
    mapping = wiring.sound_mapping(read.mapping).mapping
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        desk = stack.enter_context(open_desk(read))
        # Neither a hook that takes its time nor a source that hangs may hold up the looks at patterns.
        source = stack.enter_context(ExitStack())
        later = stack.enter_context(ThreadPoolExecutor(1, "hooks"))
        beside = stack.enter_context(ThreadPoolExecutor(1, "lag"))
        stack.callback(stop.set)
        stage = _stage(desk, mapping, later)
        lag = lag_watch(read, later, _Marks(read, source, stop.is_set))
        # The first look is loud: who starts it sees what is wrong.
        moved = stage.once()
        _print(moved, as_json=as_json)
        for why in stage.faults.values():
            click.echo(f"error: {why}", err=True)
        if once:
            _look_at_lag(lag)
            return WRONG_USE if stage.faults else DIFFERENT if moved else CLEAN
        looking = beside.submit(keep_watch, [lag.once], read.cutover.watch.every_s, stop)
        keep_watch([_printing(stage, as_json=as_json)], read.cutover.watch.every_s, stop)
        looking.result()
    return CLEAN


class _Marks:
    """What waits in the source, which is opened when somebody asks: the watch needs the journal alone."""

    def __init__(self, job: Job, open_until: ExitStack, stop: Callable[[], bool]) -> None:
        self._job, self._open_until, self._stop = job, open_until, stop
        self._live: Live | None = None

    def __call__(self) -> MarksState:
        if self._live is None:
            opening = live_wiring.open_live(self._job, "watch", stop=self._stop, patience=live_wiring.ONCE)
            self._live = self._open_until.enter_context(opening)
        return MarksState() if self._live.capture.installation() is None else self._live.marks.state()


def _soon(pool: ThreadPoolExecutor, work: Callable[..., None], *words: object) -> None:
    pool.submit(work, *words)


def _stage(desk: Desk, mapping: Mapping, later: ThreadPoolExecutor) -> Watch:
    cutover = Cutover(desk.phases, WHO, mapping.revision)

    def told(moved: MovedBack) -> None:
        _soon(later, _tell_back, desk.job, moved)

    return Watch(desk.phases, desk.evidence, mapping.patterns, desk.job.cutover.watch, cutover, told)


def _printing(stage: Watch, *, as_json: bool) -> Callable[[], None]:
    return lambda: _print(stage.once(), as_json=as_json)


def _print(moved: list[MovedBack], *, as_json: bool) -> None:
    for one in moved:
        if as_json:
            lines = [asdict(line) for line in one.lines]
            said = {"from": str(one.before), "to": str(one.after), "version": one.version, "evidence": lines}
            click.echo(json.dumps({"pattern": one.pattern, "reason": one.reason, **said}))
        else:
            click.echo(f"{one.pattern}: {one.before} -> {one.after}: {one.reason}")


def _look_at_lag(lag: LagWatch) -> None:
    try:
        lag.once()
    except MigratorError as error:
        click.echo(f"warning: {error}", err=True)


def _tell_back(job: Job, moved: MovedBack) -> None:
    fields = {"from": str(moved.before), "to": str(moved.after), "version": moved.version}
    lines = [asdict(line) for line in moved.lines]
    tell(
        job.hooks,
        "rolled_back",
        job.name,
        pattern=moved.pattern,
        reason=moved.reason,
        evidence=lines,
        **fields,
    )
