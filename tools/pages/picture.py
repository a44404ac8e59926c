"""Makes docs/images/report.png: the report of the example shop, moved and compared just now, in Chromium.

    python -m tools.pages.picture

No test compares it, since times and the folder differ; tests of the page are in tests/nightly/browser.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "images" / "report.png"
JOB = "jobs/ecommerce.yaml"
SIZE = "1200,1020"
STEPS = (
    ("table", "create", JOB),
    ("capture", "install", JOB),
    ("backfill", JOB),
    ("relay", JOB, "--once"),
    ("verify", JOB),
    ("shadow", "replay", JOB, "--sample", "40", "--seed", "1"),
    ("report", JOB, "--out", "report.html"),
)


def shop_in(folder: Path) -> dict[str, str]:
    for name in ("jobs", "mappings", "docker"):
        shutil.copytree(ROOT / name, folder / name)
    source = "sqlite:///shop.db"
    environment = os.environ | {"MIGRATOR_SOURCE_URL": source, "MIGRATOR_HOME": ".migrator"}
    _run([sys.executable, "docker/shop/build.py", "--fewer", "8", source], folder, environment)
    return environment


def reported(folder: Path) -> Path:
    environment = shop_in(folder)
    migrator = [sys.executable, "-m", "migrator"]
    try:
        for step in STEPS:
            _run([*migrator, *step, "--quiet"], folder, environment)
    finally:
        _run([*migrator, "local", "stop"], folder, environment)
    return folder / "report.html"


def shot(page: Path, picture: Path, size: str = SIZE) -> None:
    """Save a picture of the page's beginning."""
    picture.parent.mkdir(parents=True, exist_ok=True)
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    command = ["chromium", *options, f"--window-size={size}", f"--screenshot={picture}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True)


def _run(command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    subprocess.run(command, cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="shop-") as name:
        shot(reported(Path(name)), PICTURE)
