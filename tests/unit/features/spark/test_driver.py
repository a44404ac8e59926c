"""What Spark is handed and what its answers mean, without a cluster."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from migrator.features.spark.executor import ExecutorReport, JobText, SliceOutcome, TaskInput
from migrator.features.spark.work import connections_of_slot, failed_rounds, faults_of, reason_of, slices_of
from migrator.runtime.errors import MissingNameError, RefusedError, SettingsError, SourceError, StoppedError
from migrator.settings.job import load_job
from tests import pins

MAPPING = """\
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities:
  customer: {transform: "shapes:plain", items: {Customer: {key: ["C#{id}", META], keep: [name]}}}
"""


def job_in(folder: Path, limit: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "mapping.yaml").write_text(MAPPING)
    (folder / "shapes.py").write_text("def plain(row):\n    return row\n")
    job = folder / "shop.yaml"
    job.write_text(
        f"job: 1\nmapping: mapping.yaml\nsource: {{url: '${{SHOP_URL:-sqlite:///shop.db}}'{limit}}}\n"
    )
    return job


def test_every_number_is_in_one_slice() -> None:
    numbers = [1, 2, 3, 5, 8, 9, 10, 40]
    assert list(slices_of(numbers, 3, 20)) == [(1, 2), (3, 5), (8, 9), (10, 40)]
    assert list(slices_of(numbers, 100, 20)) == [(number, number) for number in numbers]
    assert list(slices_of(range(1, 101), 2, 20)) == [(n, n + 19) for n in range(1, 100, 20)]


def test_job_is_read_on_a_host_without_its_files(tmp_path: Path) -> None:
    job = job_in(tmp_path / "driver")
    given = pickle.loads(
        pickle.dumps(TaskInput(text=JobText.of(load_job(job, {})), kind="backfill", max_write_units=7))
    )
    before = load_job(job, {})
    for file in job.parent.iterdir():
        file.unlink()
    read = given.job()
    assert (read.name, read.source.url, read.tuning.max_write_units) == (before.name, before.source.url, 7)
    assert read.mapping.read_text() == MAPPING
    assert (read.mapping.parent / "shapes.py").read_text().startswith("def plain")
    assert read.mapping.parent.parent.stat().st_mode & 0o777 == 0o700


def test_existing_file_is_read_in_place_unless_its_text_differs(tmp_path: Path) -> None:
    job = job_in(tmp_path / "driver")
    text = JobText.of(load_job(job, {}))
    assert text.opened().path == job
    job.write_text(f"{job.read_text()}tuning: {{workers: 9}}\n")
    assert text.opened().path != job


def test_one_failure_in_a_round_that_advanced_does_not_stop() -> None:
    failed = [SliceOutcome("b", 3), SliceOutcome("a", error="it is away", kind="SourceError")]
    for _ in range(9):
        assert failed_rounds(failed, 0, has_advanced=True) == 0
    assert failed_rounds(failed, 0, has_advanced=False) == 1
    assert failed_rounds([SliceOutcome("a")], 1, has_advanced=False) == 0
    assert failed_rounds(failed, 0, has_advanced=False) == 1
    assert failed_rounds(failed, 1, has_advanced=False) == 2
    with pins.refused(SourceError):
        failed_rounds(failed, 2, has_advanced=False)


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        ("SettingsError", SettingsError),
        ("MissingNameError", MissingNameError),
        ("TwinRowsError", SettingsError),
        ("RowError", RefusedError),
        ("Unheard", StoppedError),
    ],
)
def test_permanent_failure_ends_the_run_at_once(kind: str, raised: type[Exception]) -> None:
    with pins.refused(raised) as caught:
        failed_rounds([SliceOutcome("a", error="no", kind=kind, is_final=True)], 0, has_advanced=True)
    assert type(caught.value) is raised


def test_each_reason_of_a_failing_executor_is_reported_once() -> None:
    probes = [
        ExecutorReport("a", "2.0"),
        ExecutorReport("b", "1.0", ahead_s=-11.0),
        ExecutorReport("b", "1.0", ahead_s=9.0),
        ExecutorReport("c", "1.0", error="the variable URL is not set"),
        ExecutorReport("c", "1.0", error="the variable URL is not set"),
    ]
    assert faults_of(probes, "1.0") == [pins.text("wheel"), pins.text("clocks"), pins.text("variable")]


def test_spark_error_is_one_line_without_row_values() -> None:
    job = (
        "An error occurred while calling z:….\n: org.apache.spark.SparkException: Job aborted: Lost task 0.0"
    )
    stack = f'{job} (host): Traceback (most recent call last):\n  File "worker.py", line 1\n'
    missing = f"{stack}ModuleNotFoundError: No module named 'migrator'\n\n\tat org.apache.spark…"
    assert reason_of(missing) == "ModuleNotFoundError: No module named 'migrator'"
    assert "jane@" not in reason_of(f"{stack}ValueError: jane@example.org\n")
    assert reason_of(f"{job}: Python worker exited") == "Job aborted: Lost task 0.0: Python worker exited"
    assert reason_of("") == pins.text()


def test_connections_are_divided_among_driver_and_slots(tmp_path: Path) -> None:
    assert connections_of_slot(load_job(job_in(tmp_path / "a"), {}), 100, is_bounded=False) == 0
    limited = load_job(job_in(tmp_path / "b", ", max_connections: 20"), {})
    assert connections_of_slot(limited, 4, is_bounded=True) == 4
    with pins.refused(SettingsError, "slots"):
        connections_of_slot(limited, 10, is_bounded=True)
    with pins.refused(SettingsError, "spark"):
        connections_of_slot(limited, 4, is_bounded=False)
