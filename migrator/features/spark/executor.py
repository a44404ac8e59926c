"""An executor's part: one process of a run per task slot, which processes slices of its pages."""

from __future__ import annotations

import secrets
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from threading import Event, RLock

from msgspec import Struct

from migrator.commands.processes import OPENED, JoinedProcess, Joining, RunWork
from migrator.runtime import logs
from migrator.runtime.errors import (
    MappingError,
    MigratorError,
    MissingNameError,
    SettingsError,
    TwinRowsError,
)
from migrator.runtime.logs import get_logger, noting
from migrator.runtime.system import Ticker
from migrator.runtime.values import replace
from migrator.settings.job import Job, place
from migrator.settings.transforms import sound_mapping
from migrator.stages.core.ownership import recording_twins
from migrator.stages.core.parallel import PageClaims
from migrator.stages.session.job import read_job
from migrator.stages.session.session import JobSession

_log = get_logger("executor")

# ── A job on a host without its files ──


class JobText(Struct, frozen=True):
    path: str
    job: bytes = b""
    mapping_name: str = ""
    mapping: bytes = b""
    modules: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def of(cls, job: Job) -> JobText:
        entities = sound_mapping(job.mapping).mapping.entities.values()
        names = {entity.transform.partition(":")[0] for entity in entities if entity.transform}
        files = (Path(*name.split(".")).with_suffix(".py") for name in sorted(names))
        beside = [(str(file), job.mapping.parent / file) for file in files]
        return cls(
            str(job.path.resolve()),
            job.path.read_bytes(),
            job.mapping.name,
            job.mapping.read_bytes(),
            tuple((name, path.read_bytes()) for name, path in beside if path.is_file()),
        )

    def opened(self) -> Job:
        """The job with this host's variables: from the driver's path if its texts are the same, else unpacked.

        Referenced files may be next to the driver's path. Raises: MappingError if a variable is not set here.
        """
        path = Path(self.path)
        with suppress(OSError):
            if path.read_bytes() == self.job and read_job(path).mapping.read_bytes() == self.mapping:
                return read_job(path)
        folder = _unpacked(self)
        return replace(read_job(folder / path.name), mapping=folder / "mapping" / self.mapping_name)


@cache
def _unpacked(text: JobText) -> Path:
    """A private folder: another user's files must not be read as a mapping."""
    folder = Path(tempfile.mkdtemp(prefix="migrator-"))
    texts = {Path(text.path).name: text.job, f"mapping/{text.mapping_name}": text.mapping}
    texts |= {f"mapping/{module}": lines for module, lines in text.modules}
    for file, lines in texts.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(lines)
    return folder


# ── Input and output of a task ──


@dataclass(frozen=True, kw_only=True)
class TaskInput(RunWork):
    """`who`: the driver's name in the journal. `connections`: to the source, per process; 0: no limit."""

    text: JobText
    who: str = ""
    run: int = 0
    connections: int = 0

    @property
    def key(self) -> tuple[str, int, str]:
        return self.text.path, self.run, self.who

    def job(self) -> Job:
        job = self.text.opened().limited(self.max_write_units)
        return job.read_from(place(self.source_url)) if self.source_url else job


class SliceOutcome(Struct, frozen=True):
    """Result of a slice: processed `pages`, or `error`, the text of a migrator error.

    `is_final`: a retry would fail on any host.
    """

    host: str
    pages: int = 0
    error: str = ""
    kind: str = ""
    is_final: bool = False


_FINAL = (SettingsError, MappingError, MissingNameError, TwinRowsError)


def run_slices(given: TaskInput, name: str, slices: Iterable[tuple[int, int]]) -> Iterator[SliceOutcome]:
    """Process the open pages of `name` in each slice, from one number to another.

    Pages that another process has claimed are left to it, so that a task may be given twice.
    """
    for first, last in slices:
        yield _worked(given, name, first, last)


def _worked(given: TaskInput, name: str, first: int, last: int) -> SliceOutcome:
    host = socket.gethostname()
    with _lock:
        try:
            return SliceOutcome(host, _kept_for(given).slice(name, first, last))
        except MigratorError as error:
            _close(error)
            return SliceOutcome(host, 0, str(error), type(error).__name__, isinstance(error, _FINAL))


# ── The process of this task slot ──

IDLE_S = 30.0
"""After so long without a task it leaves, so that its part of the run's budgets is another's."""
_LOOK_S = 1.0
_lock = RLock()
_kept: dict[tuple[str, int, str], _Process] = {}


class _Process:
    def __init__(self, given: TaskInput) -> None:
        self.given = given
        self.stop = Event()
        self.used_at = time.monotonic()
        self._stack = ExitStack()
        try:
            self._joined, self._claims = self._opened(self._stack)
        except BaseException as error:
            self._stack.__exit__(type(error), error, error.__traceback__)
            raise

    def slice(self, name: str, first: int, last: int) -> int:
        joined, done = self._joined, 0
        # At once: a slice that is handed out twice is processed once, by the first process.
        pages = self._claims.claimed(name, first, last)
        call = joined.work(name) if pages else None
        with recording_twins(joined.session.journal, joined.run):
            for page in pages:
                joined.need_at_work()
                assert call is not None
                call(page)
                done += 1
        self.used_at = time.monotonic()
        return done

    def is_idle(self) -> bool:
        if time.monotonic() - self.used_at > IDLE_S:
            return True
        try:
            self._joined.lease.check()
        except MigratorError:
            return True
        return False

    def close(self, error: MigratorError | None) -> None:
        self.stop.set()
        # The error that ended the work is more useful than one of its end.
        with suppress(MigratorError):
            self._stack.__exit__(None if error is None else type(error), error, None)

    def _opened(self, stack: ExitStack) -> tuple[JoinedProcess, PageClaims]:
        given, job = self.given, self.given.job()
        logs.configure(json=True)
        who = f"{given.who}.{secrets.token_hex(4)}"
        session = stack.enter_context(JobSession(job, "spark", stop=self.stop))
        joining = Joining(job, who, given.connections, 1, given, is_counted=False)
        joined = stack.enter_context(
            OPENED[given.kind](session, joining, lambda line: _log.debug("told", line=line))
        )
        if joined.run.id != given.run:
            raise SettingsError(f"run {joined.run.id} is running, and the driver's is {given.run}")
        claims = stack.enter_context(PageClaims(session.journal, joined.run, who, self.stop))
        return joined, claims


def _kept_for(given: TaskInput) -> _Process:
    if given.key not in _kept:
        # One run at a time: an application that runs a backfill and then its verify leaves no process of the
        # first.
        _close(None)
        _kept[given.key] = _Process(given)
        _idle_watch(_kept[given.key]).start()
    return _kept[given.key]


def _close(error: MigratorError | None) -> None:
    while _kept:
        _, process = _kept.popitem()
        process.close(error)


def _idle_watch(process: _Process) -> Ticker:
    """Close the process between tasks, once it is idle; a running task holds the lock."""

    def look() -> None:
        with _lock:
            is_kept = _kept.get(process.given.key) is process
            if is_kept and not process.is_idle():
                return
            if is_kept:
                _close(None)
        ticker.end()

    ticker = Ticker("executor", look, noting(_log, "idle_not_seen"), lambda: _LOOK_S)
    return ticker


# ── Whether an executor can work: asked before anything starts ──


class ExecutorReport(Struct, frozen=True):
    """`ahead_s`: of its clock before the journal's. `error`: why it cannot work."""

    host: str
    version: str
    ahead_s: float = 0.0
    error: str = ""


def probe(text: JobText, source_url: str, slots: Iterable[int]) -> Iterator[ExecutorReport]:
    """Open and close everything that a page needs: variables, drivers, source, journal, table."""
    here = socket.gethostname(), version("single-table-migrator")
    for _ in slots:
        try:
            given = TaskInput(text=text, kind="verify", source_url=source_url)
            yield ExecutorReport(*here, _clock_ahead_s(given.job()))
        except MigratorError as error:
            yield ExecutorReport(*here, error=str(error))


def _clock_ahead_s(job: Job) -> float:
    with JobSession(job, "spark", workers=1) as session:
        _ = session.journal, session.checked, session.table_id
        return time.time() - session.journal.now_s()
