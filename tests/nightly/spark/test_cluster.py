"""A standalone cluster of Spark's own programs on loopback: a master, and two workers of one core each."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.test_processes import in_journal, need_whole, slow
from tests.nightly.spark.shop import await_pages, await_processes, by_spark, large_shop

pytestmark = pytest.mark.xdist_group("spark")


@dataclass(frozen=True)
class Cluster:
    master: str
    workers: tuple[psutil.Process, ...]

    def executors(self) -> list[psutil.Process]:
        """The JVMs that work tasks; those of an earlier driver may just have ended."""
        started = (child for worker in self.workers for child in worker.children())
        return [one for one in started if "CoarseGrainedExecutorBackend" in command_line(one)]


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def await_text(log: Path, text: str, times: int) -> None:
    """Three JVMs on a busy host take their time."""
    ends_at = time.monotonic() + 600
    while log.read_text().count(text) < times:
        assert time.monotonic() < ends_at, log.read_text()
        time.sleep(0.2)


@pytest.fixture
def cluster(pyspark: Path, tmp_path: Path, spark_environment: dict[str, str]) -> Iterator[Cluster]:
    """Without the variables of the driver: executors on other hosts have none of them either."""
    environment = {**os.environ, **spark_environment, "SPARK_WORKER_DIR": str(tmp_path / "work")}
    environment.pop("MIGRATOR_SOURCE_URL", None)
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    own, worker = ["--port", str(port), "--webui-port", "0"], ["--webui-port", "0", "--cores", "1"]
    words = [["master.Master", *own]] + 2 * [["worker.Worker", *worker, "--memory", "512m", master]]
    started: list[subprocess.Popen[str]] = []
    try:
        for number, (name, *options) in enumerate(words):
            program = [str(pyspark / "pyspark" / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
            log = (tmp_path / f"spark-{number}.log").open("w")
            process = subprocess.Popen(
                [*program, "--host", "127.0.0.1", *options],
                env=environment,
                stdout=log,
                stderr=log,
                text=True,
            )
            started.append(process)
        await_text(tmp_path / "spark-0.log", "Registering worker", times=2)
        yield Cluster(master, tuple(psutil.Process(process.pid) for process in started[1:]))
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(60)


def settings(made: Project, **of_executors: str) -> None:
    """What a cluster's spark-defaults.conf says; tasks are given twice where one takes longer than the others."""
    folder = made.folder / "conf"
    folder.mkdir(exist_ok=True)
    lines = {
        "spark.executor.memory": "512m",
        "spark.speculation": "true",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    } | {f"spark.executorEnv.{name}": value for name, value in of_executors.items()}
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    made.environment["SPARK_CONF_DIR"] = str(folder)


def test_cluster_with_dying_executors_ends_the_run_whole(
    tmp_path: Path,
    dynamodb_url: str,
    postgres_database: str,
    spark_environment: dict[str, str],
    cluster: Cluster,
) -> None:
    made = slow(large_shop(tmp_path, dynamodb_url, postgres_database, spark_environment), units=100)
    settings(made)
    refused = made.run(*by_spark("backfill", made, master=cluster.master))
    assert refused.code == 2
    assert pins.said(refused.err, "started")
    assert pins.said(refused.err, "variable")
    assert in_journal(made, "SELECT count(*) FROM migrator_run") == [(0,)]

    settings(made, MIGRATOR_SOURCE_URL=made.environment["MIGRATOR_SOURCE_URL"])
    words = ["-m", "migrator.spark", "backfill", str(made.job), "--spark", cluster.master, "--json"]
    driver = subprocess.Popen(
        [sys.executable, *words],
        cwd=made.folder,
        env=made.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    await_pages(made, 5)
    await_processes(made, 2)
    cluster.executors()[0].kill()
    out, err = driver.communicate(timeout=600)
    assert driver.returncode == 0, err[-3000:]
    assert re.search(r'"refused": 0', out)
    need_whole(made)
    kept = in_journal(made, "SELECT value FROM migrator_record WHERE kind = 'process' AND id <> ''")
    assert sum('"has_left":false' in str(value) for (value,) in kept) <= 1
