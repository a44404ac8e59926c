"""Cost of a command's start, compared with bare Python and with loading all of our code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MAPPING = Path(__file__).resolve().parents[1] / "mappings" / "ecommerce.yaml"
EVERYTHING = """
import importlib, pkgutil, migrator
for module in pkgutil.walk_packages(migrator.__path__, "migrator."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
SHARES = {
    ("--help",): 0.1,
    ("backfill", "--help"): 0.1,
    ("cutover", "advance", "--help"): 0.1,
    ("local"): 0.15,
    ("mapping", "check", str(MAPPING)): 0.3,
}
"""The most that a command may take of the CPU time in which everything is loaded."""


def cpu_s(folder: Path, *words: str) -> float:
    """CPU time of a new process, the least of five: other load only increases it."""
    return min(_cpu_once_s(folder, words) for _ in range(5))


def _cpu_once_s(folder: Path, words: tuple[str, ...]) -> float:
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "MIGRATOR_HOME": str(folder)},
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def test_a_command_that_needs_no_database_starts_fast(tmp_path: Path) -> None:
    bare, everything = cpu_s(tmp_path, "-c", "pass"), cpu_s(tmp_path, "-c", EVERYTHING)
    print(f"\npython -c pass: {bare:.3f} s; everything loaded: {everything:.3f} s")
    late = []
    for words, share in SHARES.items():
        used = cpu_s(tmp_path, "-m", "migrator", *words)
        shown = " ".join(Path(word).name for word in words)
        print(
            f"migrator {shown}: {used:.3f} s of CPU, {used / everything:.0%} of everything (at most {share:.0%})"
        )
        late += [shown] if used > share * everything else []
    assert not late
