"""Long runs: many kills at random moments, a full disk under the journal, memory that does not grow with the rows."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults
from tests.journeys.command import ROOT, Project, digest, keys, project
from tests.support_services import in_ci

KILLS = 25
STARTS = 4 * KILLS
"""More are not needed: a run takes several kills to its end."""
BASE = "0e10dfc2f6319e2f47264525d45a6338"
SEED = int(os.environ.get("MIGRATOR_TEST_SEED", random.randrange(10**6)))


@pytest.fixture
def chinook(tmp_path: Path, chinook_sqlite: Path, dynamodb_url: str) -> Iterator[tuple[Project, Faults]]:
    """Chinook behind the faults of a storm, all at once."""
    print(f"\nMIGRATOR_TEST_SEED={SEED}")
    faults = Faults(
        unprocessed=0.2, throttle=0.03, slow_down=0.03, errors=0.03, unavailable=0.02, cut_before=0.01, cut_after=0.02, empty=0.01,
        late=0.05, late_s=0.3, seed=SEED,
    )  # fmt: skip
    with FaultProxy(dynamodb_url, faults) as proxy:
        yield (
            project(
                tmp_path,
                f"sqlite:///{chinook_sqlite}",
                dynamodb_url,
                f"Chinook{secrets.token_hex(4)}",
                through=proxy.url,
                tuning="workers: 3, page_rows: 60, attempts: 60, backoff_cap_s: 0.2",
                own_process=True,
            ),
            faults,
        )


def kill_often(made: Project, *words: str) -> None:
    """Starts the command again and again and kills it, as often as KILLS; a run that came to its end is no kill."""
    chance, kills = random.Random(SEED), 0
    for _ in range(STARTS):
        process = made.start(*words)
        try:
            _, err = process.communicate(timeout=chance.uniform(0.8, 4.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            if kills == KILLS:
                return
        else:
            assert process.returncode == 0, err[-2000:]
    pytest.fail(f"only {kills} of {STARTS} starts were killed before their end", pytrace=False)


@pytest.mark.nightly  # each step and fifty kills without faults: test_process_kills.py
def test_kills_of_backfill_and_of_verify_lose_nothing(chinook: tuple[Project, Faults]) -> None:
    made, faults = chinook
    made.done("table", "create", str(made.job))
    kill_often(made, "backfill", str(made.job), "--restart")
    made.done("backfill", str(made.job))
    items = made.items()
    assert len(items) == 15_666
    assert digest(keys(items)) == BASE
    kill_often(made, "verify", str(made.job))
    assert made.done("verify", str(made.job), "--json").data["clean"]
    assert all(
        faults.counts[kind]
        for kind in ("unprocessed", "throttle", "slow_down", "errors", "cut_after", "late")
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder of its own file system of 24 megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode != 0:
        what = "this machine lets nobody mount a tmpfs; run it as root on a machine of its own"
        pytest.fail(what) if in_ci() else pytest.skip(what)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_full_journal_disk_stops_the_run_and_space_resumes_it(
    tmp_path: Path, chinook_sqlite: Path, dynamodb_url: str, small_disk: Path
) -> None:
    made = project(
        tmp_path,
        f"sqlite:///{chinook_sqlite}",
        dynamodb_url,
        f"Chinook{secrets.token_hex(4)}",
        tuning="page_rows: 20",
        own_process=True,  # a run that cannot give its lease back is known for dead by its process
    )
    made.environment["MIGRATOR_HOME"] = str(small_disk)
    made.done("table", "create", str(made.job))
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (shutil.disk_usage(small_disk).free - 120_000))
    ended = made.run("backfill", str(made.job))
    assert ended.code == 3, ended.err[-2000:]
    assert "journal" in ended.err
    filler.unlink()
    made.done("backfill", str(made.job))
    assert digest(keys(made.items())) == BASE


# ── memory ──────────────────────────────────────────────────────────────────────────────────────

MAPPING = """\
mapping: 1
table: {name: Things, key: [PK, SK], type: type}
entities:
  thing:
    items:
      Thing: {key: ["THING#{id}", META], keep: all}
"""


def peak_mb(folder: Path, rows: int) -> float:
    """The most memory that a dry backfill of so many rows takes."""
    connection = sqlite3.connect(folder / f"{rows}.db")
    connection.execute(
        "CREATE TABLE thing (id INTEGER PRIMARY KEY, name TEXT, at TIMESTAMP, price NUMERIC(10, 2))"
    )
    values = ((n, f"name of {n}", "2026-01-02 03:04:05", n % 1000 / 4) for n in range(rows))
    connection.executemany("INSERT INTO thing VALUES (?, ?, ?, ?)", values)
    connection.commit()
    connection.close()
    (folder / "things.yaml").write_text(MAPPING)
    job = folder / f"j{rows}.yaml"
    job.write_text(f"job: 1\nmapping: things.yaml\nsource: {{url: 'sqlite:///{folder}/{rows}.db'}}\n")
    words = [sys.executable, "-m", "migrator", "backfill", str(job), "--dry-run"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return usage.ru_maxrss / 1024


@pytest.mark.nightly
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    started = time.monotonic()
    few, many = peak_mb(tmp_path, 100_000), peak_mb(tmp_path, 1_000_000)
    print(f"\n100,000 rows: {few:.0f} MB; 1,000,000 rows: {many:.0f} MB; {time.monotonic() - started:.0f} s")
    assert many < few * 1.1
