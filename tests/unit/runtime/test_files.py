"""Files of ours."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from migrator.runtime.system import make_private
from tests import pins

ANOTHER = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0); c.execute('BEGIN IMMEDIATE')"


def test_making_a_database_private_leaves_the_locks_that_this_process_holds(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    make_private(path)
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("CREATE TABLE t (a)")
    held.execute("BEGIN EXCLUSIVE")
    make_private(path)
    ended = subprocess.run(
        [sys.executable, "-c", ANOTHER, str(path)], capture_output=True, text=True, check=False
    )
    assert pins.said(ended.stderr)
    held.close()


def test_a_file_that_others_could_read_becomes_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    path.touch(0o644)
    os.chmod(path, 0o644)
    make_private(path)
    assert path.stat().st_mode & 0o777 == 0o600
