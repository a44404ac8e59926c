"""Long runs: many kills at random moments, a full disk under the journal, memory that does not grow with the rows."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.command import ROOT, digest, keys, project
from tests.support_services import in_ci

BASE = "0e10dfc2f6319e2f47264525d45a6338"


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


def test_a_full_disk_under_the_journal_stops_the_run_and_room_lets_it_go_on(
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
