"""How the shop's migration ends: its service asks by a generated module, through migrator and then on boto3 alone."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests import pins
from tests import support_services as services
from tests.forking import run_python
from tests.journeys.command import ROOT, Project, project
from tests.journeys.cutover import live
from tests.journeys.test_shop import ASKED, FEWER

SHOP = ROOT / "docker" / "shop"
ORDERS = """
UPDATE orders SET user_id = 1 WHERE id IN (SELECT id FROM orders ORDER BY id LIMIT 5);
"""


@pytest.fixture
def own_dynamodb(tmp_path: Path) -> Iterator[str]:
    with services.embedded_dynamodb(tmp_path / "dynamodb") as url:
        yield url


@pytest.fixture
def shop(tmp_path: Path, own_dynamodb: str) -> Project:
    """Captured, filled and verified; every pattern is off."""
    source = f"sqlite:///{tmp_path / 'shop.db'}"
    build = [SHOP / "build.py", "--scale", "1", source]
    run_python(build, check=True)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.executescript(FEWER + ORDERS)
    # The class in the modules is called after the table, and the service after the class.
    made = project(tmp_path, source, own_dynamodb, "AppTable", mapping="ecommerce")
    made.job.write_text(made.job.read_text() + "\ncutover: {quiet: 0.1}\n")
    made.environment["MIGRATOR_HOME"] = str(tmp_path / ".migrator")
    return made.prepared("table create", "capture install", "backfill", "verify --settle 0")


def test_one_import_changes_and_every_answer_stays(shop: Project) -> None:
    job = str(shop.job)
    shop.done("export", "--as", "python", job, "--out", "modules")
    shop.done("export", "--as", "boto3", job, "--out", "modules")
    by_sql = served(shop, "app_table")
    assert f"{len(ASKED)} questions" in by_sql
    completed(shop)
    assert served(shop, "app_table") == by_sql
    checked = shop.done("decommission", "check", job)
    assert pins.said(checked.out, "depends")
    # No row is left to be asked: whatever answers from here on is the table.
    (shop.folder / "shop.db").unlink()
    afterwards = served(shop, "app_table_after")
    assert afterwards.startswith(by_sql)
    written = afterwards.removeprefix(by_sql)
    assert pins.said(written, "second")
    assert pins.said(written, "shipped")


def completed(shop: Project) -> None:
    live(shop, list(ASKED))
    for pattern in ASKED:
        shop.done("cutover", "advance", str(shop.job), pattern, "--override", "closed", "--yes")


def served(shop: Project, module: str) -> str:
    """What the service prints that imports this module."""
    environment = {
        **shop.environment,
        "SHOP_MODULE": module,
        "PYTHONPATH": os.pathsep.join([str(shop.folder / "modules"), str(ROOT)]),
        "MIGRATOR_JOB": str(shop.job),
        "AWS_ENDPOINT_URL_DYNAMODB": shop.endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
    }
    ended = run_python([SHOP / "after.py"], cwd=shop.folder, env=environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
