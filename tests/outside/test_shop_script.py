"""`jobs/shop.sh` leaves the folder of a shop that is running alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tools.pages.site import ROOT


def test_a_second_shop_is_refused_while_one_is_running(tmp_path: Path) -> None:
    script = tmp_path / "jobs" / "shop.sh"
    script.parent.mkdir()
    shutil.copyfile(ROOT / "jobs" / "shop.sh", script)
    home = tmp_path / ".migrator" / "shop"
    home.mkdir(parents=True)
    (home / "shop.pid").write_text(str(os.getpid()))
    ended = subprocess.run(["bash", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, "a shop is running" in ended.stderr) == (2, True)
    assert (home / "shop.pid").exists()
