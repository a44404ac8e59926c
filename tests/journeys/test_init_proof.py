"""`migrator init` proves its proposal: what differs stands beside the pattern, and what is not proved is told with why."""

from __future__ import annotations

import random
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.in_process import LIMIT_S
from tests.journeys.proposals import here, proposed
from tests.support_design import SHOP, filled
from tests.support_schemas import northwind

__all__ = ["here"]

TIES = "-- dearest 5/s\nSELECT id FROM products ORDER BY price DESC LIMIT 3;\n-- 9/s\nSELECT name FROM products WHERE id = ?;"


@pytest.fixture
def trade(here: Callable[[str], Project], tmp_path: Path) -> Project:
    """Products of which many have one price."""
    with closing(sqlite3.connect(tmp_path / "source.db")) as connection:
        connection.executescript(northwind(random.Random(3)).script + "UPDATE products SET price = 7;")
    return here(f"sqlite:///{tmp_path / 'source.db'}")


def test_differences_are_in_the_mapping_and_in_the_worksheet(trade: Project, tmp_path: Path) -> None:
    (tmp_path / "log.sql").write_text(TIES, encoding="utf-8")
    ended = proposed(trade, "--statements", "log.sql", prove=True)
    assert ended.code == 1, ended.err
    assert pins.said(ended.out, "differ")
    mapping = (tmp_path / "shop.yaml").read_text(encoding="utf-8")
    assert pins.said(mapping, "unexpected")
    sheet = (tmp_path / "shop.patterns.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(): line for line in sheet.splitlines() if line.startswith("| ")}
    assert pins.said(rows["dearest"], "answers")
    assert pins.said(rows["get_product"], "answered")
    source = trade.environment["MIGRATOR_SOURCE_URL"]
    assert trade.run("mapping", "check", "shop.yaml", "--source", source).code == 0


WHOLE = """
SELECT c.email, o.id, o.total FROM customers c JOIN orders o ON o.customer_id = c.id WHERE c.id = ? ORDER BY o.id;
SELECT o.status, l.product_id, l.quantity FROM orders o JOIN lines l ON l.order_id = o.id WHERE o.id = ?;
SELECT status, placed_at FROM orders WHERE id = ? AND customer_id = ? AND shipped_at IS NULL;
SELECT line_no FROM lines WHERE order_id = ? AND quantity = ?;
SELECT s.name, b.name FROM staff s JOIN staff b ON b.id = s.boss_id WHERE s.id = ?;
"""


def test_single_few_and_nested_items_answer_as_sql_does(
    here: Callable[[str], Project], tmp_path: Path
) -> None:
    filled(tmp_path / "source.db", 7)
    (tmp_path / "log.sql").write_text(WHOLE, encoding="utf-8")
    ended = proposed(
        here(f"sqlite:///{tmp_path / 'source.db'}"), "--statements", "log.sql", "--json", prove=True
    )
    assert ended.code == 0, ended.out
    asked = ended.data["proof"]["patterns"].values()
    assert [one["different"] for one in asked] == [0] * 5
    assert all(one["questions"] for one in asked)
    text = (tmp_path / "shop.yaml").read_text(encoding="utf-8")
    assert (text.count("filter: "), text.count("one: true"), ended.data["indexes"]) == (3, 1, 0)


def test_a_pattern_of_empty_tables_is_read_once(here: Callable[[str], Project], tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "source.db")) as connection:
        connection.executescript(
            "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT);"
            "CREATE TABLE notes (id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES users (id), text TEXT);"
            "INSERT INTO users VALUES (1, 'Ann'), (2, 'Bob');"
        )
    statements = (
        "-- user 1/s\nSELECT name FROM users WHERE id = ?;\n-- note 1/s\nSELECT text FROM notes WHERE id = ?;\n"
        "-- notes 1/s\nSELECT u.name, n.text FROM users u JOIN notes n ON n.user_id = u.id WHERE u.id = ?;"
    )
    (tmp_path / "log.sql").write_text(statements, encoding="utf-8")
    project = here(f"sqlite:///{tmp_path / 'source.db'}")
    ended = proposed(project, "--statements", "log.sql", "--json", prove=True)
    assert ended.code == 0, ended.out
    asked = {name: one["questions"] for name, one in ended.data["proof"]["patterns"].items()}
    assert asked == {"user": 25, "note": 1, "notes": 25}


def test_a_row_that_makes_no_item_is_reported(here: Callable[[str], Project], tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "source.db")) as connection:
        connection.executescript(SHOP + "UPDATE orders SET placed_at = 'yesterday' WHERE id = 43;")
    (tmp_path / "log.sql").write_text("SELECT total FROM orders WHERE id = ?", encoding="utf-8")
    project = here(f"sqlite:///{tmp_path / 'source.db'}")
    ended = proposed(project, "--statements", "log.sql", prove=True)
    assert ended.code == 1, ended.err
    assert pins.said(ended.out)
    assert "yesterday" not in ended.out + (tmp_path / "shop.patterns.md").read_text(encoding="utf-8")


def test_tables_that_are_moved_in_part_are_not_proved(trade: Project, tmp_path: Path) -> None:
    (tmp_path / "log.sql").write_text("SELECT name FROM products WHERE id = ?", encoding="utf-8")
    ended = proposed(trade, "--statements", "log.sql", "--rows-exact", "5", "--json", prove=True)
    assert ended.code == 0, ended.err
    assert ended.data["proof"]["patterns"] == {}
    assert "products" in ended.data["proof"]["not_asked"]["get_product"]


def test_init_without_the_embedded_server_names_its_install(
    trade: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log.sql").write_text("SELECT name FROM products WHERE id = ?", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "ministack", None)
    ended = proposed(trade, "--statements", "log.sql", prove=True)
    assert ended.code == 0, ended.err
    assert pins.said(ended.out, "proved")
    assert pins.said(ended.out, "pip")


def test_team_list_is_served_and_entries_without_sql_need_it(trade: Project, tmp_path: Path) -> None:
    (tmp_path / "team.csv").write_text(
        "name,question,who asks,SQL,rate,latency\n"
        "product,Get a product,web,SELECT name FROM products WHERE id = 7,300/min,< 10 ms\n"
        ",Products that are like another one,app,,high,\n",
        encoding="utf-8",
    )
    ended = proposed(trade, "--statements", "team.csv", prove=True)
    assert ended.code == 1, ended.err
    assert "SQL statement" in ended.out
    mapping = (tmp_path / "shop.yaml").read_text(encoding="utf-8")
    assert "    frequency: 5/s\n    budget: {p99_ms: 10}" in mapping
    sheet = (tmp_path / "shop.patterns.md").read_text(encoding="utf-8")
    assert "| product | web | 5/s | 4.8 % | `get the table: PRODUCT#{id}, META` | 1 |" in sheet
    assert "Products that are like another one" in sheet


def test_faults_of_a_list_write_nothing(trade: Project, tmp_path: Path) -> None:
    (tmp_path / "team.csv").write_text("name,SQL,rate\na,,often\nb,SELECT 1; SELECT 2,", encoding="utf-8")
    ended = proposed(trade, "--statements", "team.csv")
    assert ended.code == 2
    assert [line.split(" ")[0] for line in ended.err.splitlines()[:3]] == [
        "team.csv:2:",
        "team.csv:2:",
        "team.csv:3:",
    ]
    assert not (tmp_path / "shop.yaml").exists()


def test_a_proof_that_is_stopped_leaves_the_files_and_no_server(trade: Project, tmp_path: Path) -> None:
    source = trade.environment["MIGRATOR_SOURCE_URL"]
    process = trade.start("init", source, "--out", "shop.yaml", "--statements", "none", "-v")
    assert process.stderr is not None
    while "entity_started" not in process.stderr.readline():
        assert process.poll() is None
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, err
    assert pins.said(err)
    assert (tmp_path / "shop.yaml").exists()
    assert children
    assert not psutil.wait_procs(children, timeout=LIMIT_S)[1]


def test_null_in_an_order_column_is_reported_by_every_command(
    here: Callable[[str], Project], tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "source.db")) as connection:
        connection.executescript(
            "CREATE TABLE visit (id INTEGER PRIMARY KEY, page TEXT NOT NULL, at DATE);"
            "INSERT INTO visit VALUES (1, 'a', '2026-01-01'), (2, 'a', '2026-01-02');"
        )
    (tmp_path / "log.sql").write_text("SELECT id FROM visit WHERE page = ? ORDER BY at DESC LIMIT 3;")
    project = here(f"sqlite:///{tmp_path / 'source.db'}")
    ended = proposed(project, "--statements", "log.sql", prove=True)
    assert (ended.code, pins.said((tmp_path / "shop.yaml").read_text(), "served")) == (0, True)
    project.done("table", "create", "shop.job.yaml")
    with closing(sqlite3.connect(tmp_path / "source.db")) as connection:
        connection.executescript("INSERT INTO visit VALUES (3, 'a', NULL)")
    project.done("backfill", "shop.job.yaml")
    source = project.environment["MIGRATOR_SOURCE_URL"]
    for words in (
        ("mapping", "check", "shop.yaml", "--source", source),
        ("doctor", "shop.job.yaml"),
        ("plan", "shop.job.yaml"),
        ("shadow", "replay", "shop.job.yaml"),
    ):
        ended = project.run(*words)
        assert pins.said(ended.out + ended.err, "null"), words
    assert ended.code == 1
