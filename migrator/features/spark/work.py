"""`--spark`: the checks of a cluster for a backfill or a verify, and its work on their pages."""

from __future__ import annotations

import importlib
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from threading import Event, Thread
from typing import Any

from msgspec import Struct

from migrator.commands.processes import RunWork
from migrator.features.spark.executor import (
    ExecutorReport,
    JobText,
    SliceOutcome,
    TaskInput,
    probe,
    run_slices,
)
from migrator.mapping.model.journal import Run
from migrator.runtime import errors
from migrator.runtime.errors import Interrupted, MigratorError, SettingsError, StoppedError, amount
from migrator.runtime.logs import get_logger
from migrator.runtime.system import how_to_install
from migrator.runtime.values import replace
from migrator.settings.job import Job
from migrator.stages.core.parallel import OpenPages, PageCall, Worked
from migrator.stages.process import least_connections, scope_of_run, with_connections
from migrator.stages.session.session import JobSession

JAVA = 17
"""The oldest that Spark 3.5 and 4 both run on. Source: their documentation, "Overview"."""
SUBMIT = "submit"
"""The master of a session that spark-submit or a notebook has started."""
SKEW_S = 10.0
"""Leases last 30 s, and AWS refuses a signature with a time five minutes off."""
_LOOK_S = 0.1
_GOODBYE_S = 15.0
_ADVICE = "tuning.processes needs no Spark"


class Cluster(Struct, frozen=True):
    context: Any

    @property
    def slots(self) -> int:
        """Concurrent tasks once all requested executors are available."""
        return _slots(self.context)

    @property
    def is_bounded(self) -> bool:
        conf = self.context.getConf()
        is_dynamic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        return not is_dynamic or bool(conf.get("spark.dynamicAllocation.maxExecutors", ""))

    def run(
        self,
        given: TaskInput,
        name: str,
        slices: Sequence[tuple[int, int]],
        stop: Callable[[], bool],
        rest: Callable[[], None],
    ) -> list[SliceOutcome]:
        """Results of the slices; `rest` is called in between. After `stop`, tasks are killed without results.

        Raises: StoppedError if Spark gave up a task, as it does when its process was killed too often.
        """
        tasks = self.context.parallelize(list(slices), len(slices))
        worked = tasks.mapPartitions(partial(run_slices, given, name))
        return self._collected(worked, f"{given.kind} {name}", stop, rest)

    def probed(self, text: JobText, source_url: str) -> list[ExecutorReport]:
        tasks = self.context.parallelize(range(self.slots), self.slots)
        probes: list[ExecutorReport] = self._collected(
            tasks.mapPartitions(partial(probe, text, source_url)), "probe", lambda: False, lambda: None
        )
        return probes

    def _collected(
        self, tasks: Any, what: str, stop: Callable[[], bool], rest: Callable[[], None]
    ) -> list[Any]:
        group, collected = f"migrator-{secrets.token_hex(4)}", Future[list[Any]]()

        def collect() -> None:
            try:
                # Of this thread's jobs alone: an application may have others.
                self.context.setJobGroup(group, f"migrator {what}")
                collected.set_result(tasks.collect())
            except Exception as error:
                collected.set_exception(error)

        thread = Thread(target=collect, name="spark", daemon=True)
        thread.start()
        thread.join(_LOOK_S)
        while thread.is_alive():
            if stop():
                self.context.cancelJobGroup(group)
                thread.join(_GOODBYE_S)
                return []
            rest()
            thread.join(_LOOK_S)
        try:
            return collected.result()
        except Exception as error:
            raise StoppedError(f"Spark gave up: {reason_of(str(error))}") from error


_TELLING = re.compile(
    r"^\s*(?:[\w.]+\.)?((?:ModuleNotFound|Import|Attribute|PySpark\w*)Error): (.+)$", re.MULTILINE
)
"""Python errors that show what an executor lacks; the text of any other might contain values of a row."""


def reason_of(text: str) -> str:
    """Why Spark failed, in one line, from its output with stacks of JVM and Python."""
    if found := _TELLING.search(text):
        return f"{found[1]}: {found[2].strip()}"
    said = re.search(r"Exception: (.+)", text) or re.search(r"(.+)", text)
    return said[1].strip()[:300] if said else "no reason given"


# ── Before anything starts ──


def need_server_journal(job: Job, session: JobSession) -> None:
    """Raises: SettingsError if executors on other hosts could not reach the journal."""
    if session.journal.database.sqlite:
        what = f"{job.path}: --spark needs a journal that every executor reaches, and this one is a file"
        raise SettingsError(
            f"{what}; name one on PostgreSQL, MariaDB or MySQL (`journal:`), or tuning.processes for one host"
        )


def need_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    told = ""
    if java:
        with suppress(OSError, subprocess.TimeoutExpired):
            told = subprocess.run(
                [java, "-version"], capture_output=True, text=True, check=False, timeout=60
            ).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    advice = f"install Java {JAVA} or set JAVA_HOME to one; {_ADVICE}"
    if found is None:
        where = f"JAVA_HOME is {home}, which has no Java" if home else "no java on the PATH"
        raise SettingsError(f"--spark: {where}; {advice}")
    if int(found[1]) < JAVA:
        raise SettingsError(f"--spark: {java} is Java {found[1]}, and Spark needs {JAVA}; {advice}")


def spark_module() -> Any:
    try:
        return importlib.import_module("pyspark")
    except ImportError as error:
        what = f"--spark: pyspark, which the extra spark is, cannot be imported ({error})"
        raise SettingsError(f"{what}; {how_to_install('spark')}; {_ADVICE}") from None


@contextmanager
def open_cluster(job: Job, kind: str, master: str) -> Iterator[Cluster]:
    """The session of spark-submit or a notebook, else an own one, which ends with the block.

    Raises: SettingsError for SUBMIT without a session, or without Java or pyspark.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ and "pyspark" not in sys.modules:
        if master == SUBMIT:
            what = "--spark submit: found no session; name a master, such as local[4] or spark://host:7077"
            raise SettingsError(f"{what}, or start it by spark-submit (docs/spark.md)")
        need_java()
    pyspark = spark_module()
    active = pyspark.SparkContext._active_spark_context
    context = active or _begun(pyspark, f"migrator {kind} {job.name}", master)
    try:
        yield Cluster(context)
    finally:
        if active is None:
            context.stop()


def _begun(pyspark: Any, name: str, master: str) -> Any:
    conf = pyspark.SparkConf().setAppName(name)
    conf.setIfMissing("spark.ui.showConsoleProgress", "false")
    if master != SUBMIT:
        conf.setMaster(master)
    if master.startswith("local"):
        # Workers of this host: this Python, and nothing that listens to others.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        conf.setIfMissing("spark.ui.enabled", "false")
        conf.setIfMissing("spark.driver.host", "127.0.0.1")
    try:
        context = pyspark.SparkContext.getOrCreate(conf)
    except Exception as error:  # of py4j and of Spark, which share no class
        why = reason_of(str(error))
        raise SettingsError(f"--spark: Spark does not start ({why}); see docs/fill.md") from error
    # A killed process is not a fault, but the JVM would print a stack trace.
    context.setLogLevel("FATAL")
    return context


def _slots(context: Any) -> int:
    conf = context.getConf()

    def number(name: str, default: int) -> int:
        return int(conf.get(name, "") or default)

    cpus, cores = max(1, number("spark.task.cpus", 1)), number("spark.executor.cores", 1)
    is_dynamic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
    executors = number(
        "spark.dynamicAllocation.maxExecutors" if is_dynamic else "spark.executor.instances", 0
    )
    total = executors * cores or number("spark.cores.max", 0) or int(context.defaultParallelism)
    return max(1, total // cpus)


def connections_of_slot(job: Job, slots: int, *, is_bounded: bool) -> int:
    """Connections to the source of the driver and of each slot's process; 0 if the job sets no limit.

    Raises: SettingsError if the job's limit is too low, or the slots are unlimited.
    """
    limit, least = job.source.max_connections, least_connections(job)
    if limit is None:
        return 0
    if not is_bounded:
        what = f"{job.path}: source.max_connections is {limit}, and Spark may start any number of executors"
        raise SettingsError(f"{what}; set spark.dynamicAllocation.maxExecutors")
    if limit < (slots + 1) * least:
        each = f"the driver and {amount(slots, 'task slot')} need {least} each"
        what = f"{job.path}: source.max_connections is {limit}, and {each}"
        raise SettingsError(
            f"{what}: {max(0, limit // least - 1)} slots at most; use fewer, or raise the limit"
        )
    return limit // (slots + 1)


def need_executors(cluster: Cluster, text: JobText, source_url: str = "") -> None:
    """Raises: SettingsError with every reason why executors cannot work on the job."""
    try:
        probes = cluster.probed(text, source_url)
    except StoppedError as error:
        what = f"--spark: executors cannot run this package ({error})"
        raise SettingsError(
            f"{what}; install the same wheel and the extras of the job on each of them"
        ) from None
    if faults := faults_of(probes, version("single-table-migrator")):
        raise SettingsError("--spark, nothing was started:\n" + "\n".join(f"  {one}" for one in faults))


def faults_of(probes: Sequence[ExecutorReport], own_version: str) -> list[str]:
    faults = dict[str, None]()
    for told in probes:
        if told.version != own_version:
            fault = f"has version {told.version} of this package, and the driver {own_version}; install the same wheel"
        elif told.error:
            fault = f"cannot work on the job: {told.error}"
        elif abs(told.ahead_s) > SKEW_S:
            fault = f"has a clock that is {told.ahead_s:+.0f} s off the journal's; set the clocks by NTP"
        else:
            continue
        faults[f"executor on {told.host} {fault}"] = None
    return list(faults)


def wait_until_deregistered(at_work: Callable[[], int]) -> None:
    """Return when executors have deregistered: a starting relay waits for those that were killed."""
    ends_at = time.monotonic() + _GOODBYE_S
    with suppress(MigratorError):
        while at_work() and time.monotonic() < ends_at:
            time.sleep(_LOOK_S)


# ── A run's pages processed by Spark: in rounds over the open ones ──


TASK_PAGES = 20
"""At most in one task: as many are repeated by Spark, at most, when its process is killed."""
_TASKS_A_SLOT = 4
_TRIES = 3
_log = get_logger("spark")


@dataclass
class SparkPages:
    """RunPages of a cluster. Tasks receive page numbers and claim them; the driver processes none.

    The journal alone decides which pages are done: a task may be killed, run twice or lose its answer. The
    next round does the rest.
    """

    cluster: Cluster
    given: TaskInput
    session: JobSession
    run: Run
    stop: Callable[[], bool]
    _failed_rounds: int = 0

    def __enter__(self) -> SparkPages:
        return self

    def __exit__(self, *ended: object) -> None:
        # What ended the work must not be hidden by a journal that is away; the claims run out by themselves.
        with suppress(MigratorError):
            self.session.journal.release_pages(self.run, self.given.who)

    def each(
        self, name: str, work: PageCall, at_once: int, ahead: int, rest: Callable[[], None]
    ) -> Iterator[Worked]:
        """Yields nothing; returns when all pages are done, or left open for good. The journal has the results."""
        most = self.cluster.slots * _TASKS_A_SLOT * TASK_PAGES
        while numbers := self.session.journal.waiting_pages(self.run, name, most):
            if self.stop():
                raise Interrupted("stopped; the checkpoint is kept, and the same command resumes")
            self._round(name, numbers, TASK_PAGES if ahead > 1 else 1, rest)
        return iter(())

    def rounds(self, rest: Callable[[], None]) -> Iterator[None]:
        """One round: `each` returns when all pages are done, by any process."""
        return iter(())

    def _round(self, name: str, numbers: Sequence[int], task_pages: int, rest: Callable[[], None]) -> None:
        done_before, _ = self.session.journal.page_counts(self.run, name)
        slices = list(slices_of(numbers, self.cluster.slots * _TASKS_A_SLOT, task_pages))
        outcomes: list[SliceOutcome] = []
        try:
            outcomes = self.cluster.run(self.given, name, slices, self.stop, rest)
        except StoppedError as error:
            outcomes = [SliceOutcome("", error=str(error), kind="StoppedError")]
        # Claims of killed processes: all tasks of this round have ended.
        self.session.journal.release_pages(self.run, self.given.who)
        done, _ = self.session.journal.page_counts(self.run, name)
        _log.debug("round_done", entity=name, tasks=len(slices), pages=done - done_before)
        self._failed_rounds = failed_rounds(outcomes, self._failed_rounds, has_advanced=done > done_before)
        if done == done_before:
            rest()


def slices_of(numbers: Sequence[int], tasks: int, most: int) -> Iterator[tuple[int, int]]:
    size = max(1, min(most, len(numbers) // tasks))
    for start in range(0, len(numbers), size):
        part = numbers[start : start + size]
        yield part[0], part[-1]


def failed_rounds(outcomes: Sequence[SliceOutcome], before: int, *, has_advanced: bool) -> int:
    """Rounds in a row with failures and without a finished page, of which there were so many `before`.

    Raises: a task's error, if it is final, or has come in three such rounds.
    """
    failed = [outcome for outcome in outcomes if outcome.error]
    for outcome in failed:
        _log.warning("task_failed", host=outcome.host, reason=outcome.error)
    rounds = 0 if has_advanced or not failed else before + 1
    for outcome in failed:
        if outcome.is_final or rounds >= _TRIES:
            raise _raised(outcome)
    return rounds


def _raised(outcome: SliceOutcome) -> MigratorError:
    """The executor's error. A class that takes more than a text becomes another one of the same exit code."""
    known = getattr(errors, outcome.kind, StoppedError)
    text = f"executor on {outcome.host}: {outcome.error}" if outcome.host else outcome.error
    if issubclass(known, MigratorError) and known.__init__ is Exception.__init__:
        return known(text)
    return _SAME_EXIT.get(known.exit_code, StoppedError)(text)


_SAME_EXIT: dict[int, type[MigratorError]] = {
    kind.exit_code: kind for kind in (errors.SettingsError, errors.StoppedError, errors.RefusedError)
}


@dataclass
class Spark:
    """`connections`: per process; 0: no limit."""

    cluster: Cluster
    text: JobText
    connections: int
    session: JobSession
    _runs: list[Run] = field(default_factory=list)

    def driver_job(self, job: Job) -> Job:
        return with_connections(job, self.connections)

    def pages(self, work: RunWork) -> OpenPages:
        given = TaskInput(text=self.text, connections=self.connections, **vars(work))

        def opened(_: object, run: Run, who: str, stop: Event) -> SparkPages:
            self._runs.append(run)
            of_run = replace(given, run=run.id, who=who)
            return SparkPages(self.cluster, of_run, self.session, run, stop.is_set)

        return opened

    def deregister(self) -> None:
        for run in self._runs:
            wait_until_deregistered(partial(self.session.processes.at_work, scope_of_run(run)))


def open_spark(
    stack: ExitStack, session: JobSession, job: Job, kind: str, master: str, source_url: str
) -> Spark:
    need_server_journal(job, session)
    text = JobText.of(job)
    cluster = stack.enter_context(open_cluster(job, kind, master))
    need_executors(cluster, text, source_url)
    spark = Spark(
        cluster, text, connections_of_slot(job, cluster.slots, is_bounded=cluster.is_bounded), session
    )
    stack.callback(spark.deregister)
    return spark
