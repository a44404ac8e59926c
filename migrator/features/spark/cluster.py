"""The Spark that a run is worked by: what must be there before it starts, its session, and how many task slots it has."""

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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import Any

from migrator.features.spark.executor import Given, JobText, Outcome, Probe, probe, run_slices
from migrator.runtime.errors import MigratorError, SettingsError, StoppedError
from migrator.runtime.system import how_to_install
from migrator.settings.job import Job
from migrator.stages.process.session import least_connections
from migrator.stages.session.session import JobSession

JAVA = 17
"""The oldest that Spark 3.5 and 4 both run on. Source: their documentation, "Overview"."""
SKEW_S = 10.0
"""Leases last 30 s, and AWS refuses a signature whose time is five minutes off."""
_LOOK_S = 0.1
_GOODBYE_S = 15.0
_ADVICE = "tuning.processes needs no Spark"


@dataclass(frozen=True)
class Cluster:
    """An open SparkContext."""

    context: Any

    @property
    def slots(self) -> int:
        """Tasks that it runs at once when all executors are there that its settings ask for."""
        return _slots(self.context)

    @property
    def is_bounded(self) -> bool:
        """Whether its settings say how many slots there are at most."""
        conf = self.context.getConf()
        is_dynamic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        return not is_dynamic or bool(conf.get("spark.dynamicAllocation.maxExecutors", ""))

    def run(
        self,
        given: Given,
        name: str,
        slices: Sequence[tuple[int, int]],
        stop: Callable[[], bool],
        rest: Callable[[], None],
    ) -> list[Outcome]:
        """What became of each slice; `rest` is done meanwhile. After `stop` tasks are killed, and nothing is returned.

        Raises: StoppedError where Spark gave up a task, as it does when its process was killed too often.
        """
        tasks = self.context.parallelize(list(slices), len(slices))
        worked = tasks.mapPartitions(partial(run_slices, given, name))
        return self._collected(worked, f"{given.kind} {name}", stop, rest)

    def probed(self, text: JobText, source_url: str) -> list[Probe]:
        """What the executors say of themselves, one for each slot at least."""
        tasks = self.context.parallelize(range(self.slots), self.slots)
        probes: list[Probe] = self._collected(
            tasks.mapPartitions(partial(probe, text, source_url)), "probe", lambda: False, lambda: None
        )
        return probes

    def _collected(
        self, tasks: Any, what: str, stop: Callable[[], bool], rest: Callable[[], None]
    ) -> list[Any]:
        group, collected = f"migrator-{secrets.token_hex(4)}", _Collected()

        def collect() -> None:
            # Of this thread's jobs alone: an application may have others.
            self.context.setJobGroup(group, f"migrator {what}")
            collected.fill(tasks)

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
        return collected.outcomes()


class _Collected:
    def __init__(self) -> None:
        self._outcomes: list[Any] = []
        self._error: Exception | None = None

    def fill(self, tasks: Any) -> None:
        try:
            self._outcomes = tasks.collect()
        except Exception as error:
            self._error = error

    def outcomes(self) -> list[Any]:
        if self._error is not None:
            why = reason_of(str(self._error))
            raise StoppedError(f"Spark gave up: {why}") from self._error
        return self._outcomes


_TELLING = re.compile(
    r"^\s*(?:[\w.]+\.)?((?:ModuleNotFound|Import|Attribute|PySpark\w*)Error): (.+)$", re.MULTILINE
)
"""Errors of Python whose text says what an executor lacks; that of any other might hold what a row holds."""


def reason_of(text: str) -> str:
    """Why Spark failed, in one line, of what it says with the stacks of the JVM and of Python."""
    if found := _TELLING.search(text):
        return f"{found[1]}: {found[2].strip()}"
    said = re.search(r"Exception: (.+)", text) or re.search(r"(.+)", text)
    return said[1].strip()[:300] if said else "it does not say why"


# ── Before anything starts ──


def need_server_journal(job: Job, session: JobSession) -> None:
    """Raises: SettingsError where executors on other hosts could not reach the journal."""
    if session.journal.database.sqlite:
        what = (
            f"{job.path}: --engine spark needs a journal that every executor reaches, and this one is a file"
        )
        raise SettingsError(
            f"{what}; name one on PostgreSQL, MariaDB or MySQL (`journal:`), or tuning.processes for one host"
        )


def need_java() -> None:
    """Raises: SettingsError where the JVM that Spark would start is missing or too old."""
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
        where = f"JAVA_HOME is {home}, and there is no Java in it" if home else "there is no java on the PATH"
        raise SettingsError(f"--engine spark: {where}; {advice}")
    if int(found[1]) < JAVA:
        raise SettingsError(f"--engine spark: {java} is Java {found[1]}, and Spark needs {JAVA}; {advice}")


def spark_module() -> Any:
    """Raises: SettingsError where it is not installed."""
    try:
        return importlib.import_module("pyspark")
    except ImportError as error:
        what = f"--engine spark: pyspark, which the extra spark is, cannot be imported ({error})"
        raise SettingsError(f"{what}; {how_to_install('spark')}; {_ADVICE}") from None


@contextmanager
def open_cluster(job: Job, kind: str, master: str | None) -> Iterator[Cluster]:
    """The session that spark-submit, or a notebook, has begun, else one of its own, which ends with the block.

    Raises: SettingsError where there is none and `master` names none, or Java or pyspark are not there.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ and "pyspark" not in sys.modules:
        if not master:
            what = "--engine spark: say --master, such as local[4] or spark://host:7077"
            raise SettingsError(f"{what}, or start it by spark-submit (docs/scale.md)")
        need_java()
    pyspark = spark_module()
    active = pyspark.SparkContext._active_spark_context
    context = active or _begun(pyspark, f"migrator {kind} {job.name}", master)
    try:
        yield Cluster(context)
    finally:
        if active is None:
            context.stop()


def _begun(pyspark: Any, name: str, master: str | None) -> Any:
    conf = pyspark.SparkConf().setAppName(name)
    conf.setIfMissing("spark.ui.showConsoleProgress", "false")
    if master:
        conf.setMaster(master)
    if (master or "").startswith("local"):
        # Workers of this host: this Python, and nothing that listens to others.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        conf.setIfMissing("spark.ui.enabled", "false")
        conf.setIfMissing("spark.driver.host", "127.0.0.1")
    try:
        context = pyspark.SparkContext.getOrCreate(conf)
    except Exception as error:  # of py4j and of Spark, which share no class
        why = reason_of(str(error))
        raise SettingsError(
            f"--engine spark: Spark does not start ({why}); see --master and docs/scale.md"
        ) from error
    # A process that was killed is no fault, and would be told by a stack of the JVM.
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
    """Of the source, for the driver and for the process of each slot; 0 where the job sets no limit. Raises: SettingsError
    where its limit does not allow for so many, or there may be any number of slots."""
    limit, least = job.source.max_connections, least_connections(job)
    if limit is None:
        return 0
    if not is_bounded:
        what = f"{job.path}: source.max_connections is {limit}, and Spark may start any number of executors"
        raise SettingsError(f"{what}; set spark.dynamicAllocation.maxExecutors")
    if limit < (slots + 1) * least:
        what = f"{job.path}: source.max_connections is {limit}, and the driver and {slots} task slot(s) need {least} each"
        raise SettingsError(
            f"{what}: {max(0, limit // least - 1)} slots at most; ask for fewer, or raise the limit"
        )
    return limit // (slots + 1)


def need_executors(cluster: Cluster, text: JobText, source_url: str = "") -> None:
    """Raises: SettingsError with every reason why executors cannot work on the job."""
    try:
        probes = cluster.probed(text, source_url)
    except StoppedError as error:
        what = f"--engine spark: executors cannot run this package ({error})"
        raise SettingsError(
            f"{what}; install the same wheel and the extras of the job on each of them"
        ) from None
    if faults := faults_of(probes, version("single-table-migrator")):
        raise SettingsError(
            "--engine spark, nothing was started:\n" + "\n".join(f"  {one}" for one in faults)
        )


def faults_of(probes: Sequence[Probe], own_version: str) -> list[str]:
    """Why executors cannot work, each reason once."""
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


def wait_for_goodbyes(at_work: Callable[[], int]) -> None:
    """Returns when executors have left the journal by themselves: a relay that starts waits for one that was killed."""
    ends_at = time.monotonic() + _GOODBYE_S
    with suppress(MigratorError):
        while at_work() and time.monotonic() < ends_at:
            time.sleep(_LOOK_S)
