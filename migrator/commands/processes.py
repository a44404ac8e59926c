"""The other processes of a run: their start and end, and a process that joins another one's run."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Literal, Protocol

import click
from msgspec import Struct

from migrator.cli.command_line import ENGINES
from migrator.cli.options import say, stop_on_signals, stopped_says
from migrator.cli.runs_text import Unshown
from migrator.cli.watched import Watched, signs_of
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.instances import Share
from migrator.mapping.model.journal import Progress, Run, RunIdentity
from migrator.mapping.model.results import SampleSize
from migrator.runtime.errors import DIFFERENT, INTERRUPTED, StoppedError
from migrator.runtime.logs import get_logger, noting
from migrator.runtime.retry import nap
from migrator.runtime.system import Ticker
from migrator.runtime.values import replace
from migrator.settings.job import Job
from migrator.stages import process as runs
from migrator.stages.backfill.stage import Backfill, BackfillOptions
from migrator.stages.core.parallel import OpenPages, PageCall
from migrator.stages.core.presence import NoLimit, Pace, Presence
from migrator.stages.process import Tell, choose_path
from migrator.stages.session.session import Held, JobSession
from migrator.stages.verify.scan import direct_items
from migrator.stages.verify.stage import Confirm, Verify, VerifyOptions

_log = get_logger("processes")

# ── The other processes of a command: the same command, which joins this one's run ──

_LOOK_S = 0.2
_GOODBYE_S = 120.0
_ENDED_WELL = (0, DIFFERENT, INTERRUPTED)
_AGAIN_S = 5.0


class Children:
    """Child processes, which end with this one in any case; a context manager around the work.

    `words`: their command line.
    `ended`: receives the journal's name of a child that ended before this process.
    `again`: a killed or failed child is restarted.
    `printed`: their standard output, after they have ended.
    """

    def __init__(
        self,
        words: Sequence[str],
        parts: Sequence[Share],
        stop: Event,
        ended: Callable[[str], None],
        *,
        again: bool = False,
    ) -> None:
        self.words = words
        self.parts = parts
        self.stop = stop
        self.ended = ended
        self.again = again
        self.printed: list[str] = []
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._threads: list[Thread] = []
        self._over = Event()
        self._ticker = Ticker("children", self._look, noting(_log, "processes_not_seen"), lambda: _LOOK_S)

    def __enter__(self) -> Children:
        for part in self.parts:
            self._threads.append(Thread(target=self._keep, args=(part,), daemon=True))
            self._threads[-1].start()
        self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self.wait()

    def wait(self) -> None:
        ends_at = time.monotonic() + _GOODBYE_S
        while any(thread.is_alive() for thread in self._threads):
            if not self._over.is_set():
                ends_at = time.monotonic() + _GOODBYE_S
            elif time.monotonic() > ends_at:
                # The next start repeats its unfinished work.
                for process in self._processes.values():
                    process.kill()
            nap(_LOOK_S, lambda: False, time.sleep)
        self._ticker.stop(_LOOK_S)

    def _keep(self, part: Share) -> None:
        while not self._over.is_set():
            try:
                process = self._processes[part.id] = self._started(part)
            except OSError as error:
                _log.warning("process_not_started", reason=error.strerror)
                self.ended(part.id)
                return
            if self._over.is_set():
                self._end()
            if self._ended_well(process, part) or not self.again:
                return
            self._over.wait(_AGAIN_S)

    def _started(self, part: Share) -> subprocess.Popen[str]:
        # A session of its own: Ctrl-C is for this process, which stops the others.
        return subprocess.Popen(
            [sys.executable, "-m", "migrator", *self.words, "--part", f"{part.id}:{part.connections}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def _look(self) -> None:
        if self.stop.is_set():
            self._end()

    def _end(self) -> None:
        """Closing their standard input stops them, as happens when this process is killed."""
        self._over.set()
        for process in list(self._processes.values()):
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()

    def _ended_well(self, process: subprocess.Popen[str], part: Share) -> bool:
        lines = deque(process.stderr or (), maxlen=3)
        # At most a line of JSON: less than the buffer of an unread pipe.
        self.printed.append(process.stdout.read() if process.stdout else "")
        code = process.wait()
        if self._over.is_set() or code in _ENDED_WELL:
            return True
        said = lines[-1].strip() if lines else ""
        _log.warning("process_ended", pid=process.pid, exit_code=code, said=said)
        self.ended(part.id)
        return False


def end_with_parent(stop: Event) -> None:
    def wait() -> None:
        with suppress(OSError):
            while os.read(0, 1024):
                pass
        stop.set()

    Thread(target=wait, name="parent", daemon=True).start()


def part_of(text: str | None) -> tuple[str, int | None]:
    """Name and connections from --part, as the parent process gives them; own ones without."""
    if not text:
        return secrets.token_hex(8), None
    name, _, connections = text.partition(":")
    return name, int(connections)


def options_of(given: Mapping[str, object]) -> list[str]:
    pairs = [(name, value) for name, value in given.items() if value is not None and value is not False]
    return [word for name, value in pairs for word in ([name] if value is True else [name, str(value)])]


def reserved(session: JobSession, scope: str, number: int, connections: int) -> list[Share]:
    """Shares of processes that a command starts later, so that none waits for another."""
    parts = [Share(secrets.token_hex(8), scope, connections=connections) for _ in range(number)]
    session.processes.reserve(parts)
    return parts


def started(
    stack: ExitStack,
    session: JobSession,
    parts: Sequence[Share],
    words: Sequence[str],
    stop: Event,
    ended: Callable[[str], None] = lambda who: None,
    *,
    again: bool = False,
) -> Children:
    def gone(who: str) -> None:
        ended(who)
        session.processes.ended(who)

    return stack.enter_context(Children(words, parts, stop, gone, again=again))


# ── `--spark`: the work of a cluster, which a feature opens ──


@dataclass(frozen=True, kw_only=True)
class RunWork:
    """A process's input from its run: text and numbers, since compiled objects cannot be pickled.

    `entities`: none for all. `scope`: of a verify.
    """

    kind: Literal["backfill", "verify"]
    entities: tuple[str, ...] = ()
    limit: int | None = None
    max_write_units: int | None = None
    force: bool = False
    scope: str = ""
    sample: SampleSize | None = None
    source_url: str = ""


class PageEngine(Protocol):
    def driver_job(self, job: Job) -> Job: ...

    def pages(self, work: RunWork) -> OpenPages: ...


def refuse_beside_engine(master: str | None, options: Mapping[str, bool]) -> None:
    """`options`: whether each was passed that is incompatible with an engine. Raises: click.UsageError."""
    named = [name for name, is_given in options.items() if is_given]
    if master is not None and named:
        raise click.UsageError(f"--spark goes without {', '.join(named)}")


def open_engine(
    master: str | None, stack: ExitStack, session: JobSession, job: Job, kind: str, source_url: str = ""
) -> PageEngine | None:
    """The cluster of `--spark`; None if this host processes the pages.

    Raises: SettingsError if something is missing, before the start.
    """
    if master is None:
        return None
    opened: PageEngine = ENGINES["spark"](stack, session, job, kind, master, source_url)
    return opened


class Joining(Struct, frozen=True):
    """`who`: a unique name.
    `connections`: to the source; None: those that the others have left.
    `is_counted`: count the remaining rows for `status`.
    """

    job: Job
    who: str
    connections: int | None
    workers: int
    work: RunWork
    is_counted: bool = True
    address: tuple[str, int] | None = None


class JoinedProcess(Struct, frozen=True):
    """`work`: on one page or segment of a name, that the process has claimed."""

    session: JobSession
    lease: Held
    identity: RunIdentity
    run: Run
    entities: Sequence[CompiledEntity]
    stage: Backfill | Verify
    work: Callable[[str], PageCall]

    def until_over(self) -> None:
        """Work on pages until the run is over. Raises: as the stage; StoppedError if the run was cut short."""
        self.stage.join(
            self.run, self.entities, partial(runs.is_over, self.session.journal, self.lease, self.identity)
        )
        runs.need_done(self.session.journal, self.identity)

    def need_at_work(self) -> None:
        if runs.is_over(self.session.journal, self.lease, self.identity):
            raise StoppedError(f"run {self.run.id} is over")


def join(session: JobSession, joining: Joining, *, has_parent: bool) -> int:
    """Work on pages of another process's run, on any host, until it is over."""
    with stop_on_signals(session.stop) as stop:
        if has_parent:
            end_with_parent(stop)
        with (
            OPENED[joining.work.kind](session, joining, say) as joined,
            stopped_says(lambda: "stopped; the run continues without this process"),
        ):
            joined.until_over()
    say(f"run {joined.run.id} is done")
    return 0


@contextmanager
def open_joined_backfill(session: JobSession, joining: Joining, tell: Tell) -> Iterator[JoinedProcess]:
    """Raises: SettingsError without a run to join, or another one than in `joining`."""
    with ExitStack() as stack:
        lease, session, connections = _entered(stack, "backfill", session, joining)
        entities = runs.chosen(session.checked.entities, joining.work.entities)
        runs.need_bucket(session.job, entities)
        edges = runs.run_edges(session, lease.check)
        session.ownership.need_rows(force=joining.work.force)
        choice = choose_path(stack, session, edges, tell, force=joining.work.force)
        scope = runs.scope_of(entities, joining.work.limit, named=bool(joining.work.entities))
        identity = runs.identity_of(
            "backfill", session, session.table_id, entities, scope, installation=choice.installation
        )
        run, tuning = runs.joined_run(session.journal, identity), session.job.tuning
        options = BackfillOptions(joining.workers, tuning.page_rows, joining.work.limit)
        path = choice.path(session, edges)
        stage = Backfill(
            *(choice.source(session), session.journal, path, Unshown(), options, session.stop),
            who=joining.who,
        )
        own = Share(joining.who, runs.scope_of_run(run), connections=connections)
        watched = Watched("backfill", session, signs_of(tuning), joining.address, own)
        left = _left(session, entities, run) if joining.is_counted else 1
        stage = watched.open_backfill(stack, stage, left)
        by_name = {entity.name: entity for entity in entities}
        call = lambda name: stage.work(run, by_name[name])  # noqa: E731
        yield JoinedProcess(session, lease, identity, run, entities, stage, call)


@contextmanager
def open_joined_verify(session: JobSession, joining: Joining, tell: Tell) -> Iterator[JoinedProcess]:
    """Raises: SettingsError without a run to join, or another one than in `joining`."""
    with ExitStack() as stack:
        lease, session, connections = _entered(stack, "verify", session, joining)
        entities, tuning = session.checked.entities, session.job.tuning
        runs.need_bucket(session.job, entities)
        identity = runs.identity_of("verify", session, session.table_id, entities, joining.work.scope)
        run = runs.joined_run(session.journal, identity)
        options = VerifyOptions(joining.workers, tuning.page_rows, tuning.scan_segments, joining.work.sample)
        stage = replace(stage_of(session, lease, options, Unshown(), *STILL), who=joining.who)
        stage = sharing(stack, stage, session, run, connections)
        call = partial(stage.work, run, entities)
        yield JoinedProcess(session, lease, identity, run, entities, stage, call)


OPENED: Mapping[str, Callable[[JobSession, Joining, Tell], AbstractContextManager[JoinedProcess]]] = {
    "backfill": open_joined_backfill,
    "verify": open_joined_verify,
}


STILL: tuple[Confirm | None, Callable[[], bool]] = (None, lambda: True)
"""For a source without marks, which is taken as unchanging."""


def stage_of(
    session: JobSession,
    lease: Held,
    options: VerifyOptions,
    shown: Progress,
    confirm: Confirm | None,
    is_quiet: Callable[[], bool],
) -> Verify:
    return Verify(
        *(session.source, session.target.store, session.journal, shown),
        check=lease.check,
        confirm=confirm,
        is_quiet=is_quiet,
        direct=direct_items(session.checked, session.job.leave),
        options=options,
        stop=session.stop,
        objects=session.target.objects,
    )


def sharing(stack: ExitStack, stage: Verify, session: JobSession, run: Run, connections: int) -> Verify:
    """The stage with its part of the run's budgets: its pages begin when others have made room."""
    pace = Pace(NoLimit())
    own = Share(stage.who, runs.scope_of_run(run), connections=connections)
    stack.enter_context(Presence(session.processes, None, own, [session.source.pace], pace))
    rest = partial(nap, stop=stage.stop.is_set, sleep=time.sleep)
    return replace(stage, is_shared=True, begin=lambda: pace.wait(rest))


def _entered(
    stack: ExitStack, command: str, session: JobSession, joining: Joining
) -> tuple[Held, JobSession, int]:
    """The driver's lease, the job over its source, and its number of connections (0: unlimited)."""
    job, connections = joining.job, joining.connections
    lease = stack.enter_context(session.joined_lease())
    if connections is None:
        latest = session.journal.runs(job.name)[-1]
        connections = runs.left_to_join(job, session.processes, runs.scope_of_run(latest))
    limited = runs.with_connections(job, connections)
    opened = session.another(command, job=limited, workers=joining.workers)
    return lease, stack.enter_context(opened), connections


def _left(session: JobSession, entities: Sequence[CompiledEntity], run: Run) -> int:
    rows = sum(session.source.rows_about(entity.plan) for entity in entities)
    return max(1, rows - session.journal.tally(run).rows)
