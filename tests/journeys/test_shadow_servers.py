"""Every access pattern of the shop, replayed on servers as on a file (see test_shadow): clean there, too."""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests import support_mysql
from tests.forking import run_python
from tests.journeys.command import ROOT, project
from tests.journeys.in_process import Ended
from tests.journeys.test_shadow import FEWER, PATTERNS
from tests.support_capture import connect

SHOP = ROOT / "docker" / "shop"
TABLES = ("users", "categories", "products", "orders", "order_items", "sessions")


def _fill(engine: str, url: str, folder: Path, collation: str = "") -> None:
    """The rows of the shop's file in the tables of its schema, as the server makes them. `collation`: of its texts."""
    file = folder / "shop.db"
    build = [SHOP / "build.py", "--scale", "1", f"sqlite:///{file}"]
    run_python(build, check=True)
    with closing(sqlite3.connect(file)) as rows, closing(connect(engine, url)) as server:
        rows.executescript(f"PRAGMA foreign_keys = ON; {FEWER}")
        cursor = server.cursor()
        if collation:
            cursor.execute(f"ALTER DATABASE CHARACTER SET utf8mb4 COLLATE {collation}")
        for statement in (SHOP / "schema.sql").read_text(encoding="utf-8").split(";\n")[:-1]:
            cursor.execute(statement)
        for table in TABLES:
            found = rows.execute(f"SELECT * FROM {table}").fetchall()
            cursor.executemany(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(found[0]))})", found)


def _replayed(url: str, folder: Path, dynamodb_url: str) -> Ended:
    made = project(folder, url, dynamodb_url, f"App{secrets.token_hex(4)}", mapping="ecommerce")
    made.prepared("table create", "backfill")
    words = ("--seed", "7", "--settle", "0.3s", "--sample", "12", "--json")
    return made.run("shadow", "replay", str(made.job), *words)


@pytest.mark.parametrize("engine", ["postgresql", "mariadb"])
def test_every_pattern_is_clean(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str
) -> None:
    fixtures = {"postgresql": "postgres_database", "mariadb": "mysql_database"}
    url = str(request.getfixturevalue(fixtures[engine]))
    tells_spaces = "" if engine == "postgresql" else support_mysql.in_its_collations(url, "utf8mb4_nopad_bin")
    _fill(engine, url, tmp_path, tells_spaces)
    ended = _replayed(url, tmp_path, dynamodb_url)
    assert ended.code == 0, ended.out
    found = {one["pattern"]: one for one in ended.data["patterns"]}
    assert set(found) == PATTERNS
    for name, one in found.items():
        assert one["same"] == one["samples"] == 12, name
        assert one["empty"] < one["samples"], name


def test_texts_that_a_collation_takes_for_one_are_differences(
    mysql_database: str, tmp_path: Path, dynamodb_url: str
) -> None:
    """MariaDB's default collation finds GROCERY where the row says grocery; the mapping's keys tell them apart."""
    _fill("mariadb", mysql_database, tmp_path, "utf8mb4_general_ci")
    ended = _replayed(mysql_database, tmp_path, dynamodb_url)
    assert ended.code == 1, ended.out
    different = {one["pattern"] for one in ended.data["patterns"] if one["different"]}
    assert "products_of_category" in different
    asked_by_text = {
        "user_by_email",
        "get_products_by_category",
        "products_of_category",
        "get_orders_by_status",
    }
    assert different <= asked_by_text | {"get_session"}
