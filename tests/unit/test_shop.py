"""The shop and its mapping: what build.py makes on each engine, and that the mapping fits it."""

from __future__ import annotations

import runpy
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.mapping.check.check import Checked, check_mapping
from migrator.mapping.items.items import items_for
from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.model.table import Item
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests import pins
from tests.forking import run_python
from tests.support_services import REPOSITORY

# One worker builds the shop once.
pytestmark = pytest.mark.xdist_group("shop of the demo")

BUILD = REPOSITORY / "docker" / "shop" / "build.py"
MAPPING = REPOSITORY / "mappings" / "ecommerce.yaml"
ROWS = {
    "users": 2_000,
    "categories": 20,
    "products": 500,
    "orders": 8_000,
    "order_items": 23_963,
    "sessions": 3_000,
}
TYPES = {
    "User": 2_000,
    "Order": 8_000,
    "OrderItem": 23_963,
    "Product": 500,
    "Category": 500,
    "Session": 3_000,
}


def _build(*words: str) -> subprocess.CompletedProcess[str]:
    return run_python([BUILD, *words])


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("shop") / "shop.db"
    done = _build(f"sqlite:///{file}")
    assert done.returncode == 0, done.stderr
    return file


def _one(shop: Path, statement: str) -> Any:
    with closing(sqlite3.connect(shop)) as connection:
        return connection.execute(statement).fetchone()[0]


# ── the database ────────────────────────────────────────────────────────────────────────────────


def test_no_row_points_to_a_row_that_is_not_there(shop: Path) -> None:
    with closing(sqlite3.connect(shop)) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_every_order_has_one_to_five_lines_that_sum_to_its_total(shop: Path) -> None:
    wrong = """SELECT count(*) FROM orders o WHERE NOT EXISTS (
        SELECT 1 FROM order_items i WHERE i.order_id = o.id GROUP BY i.order_id
        HAVING count(*) BETWEEN 1 AND 5 AND abs(sum(i.quantity * i.unit_price) - o.total) < 0.001)"""
    assert _one(shop, wrong) == 0


def test_the_same_scale_gives_the_same_database(shop: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.db"
    assert _build(f"sqlite:///{again}").returncode == 0
    assert again.read_bytes() == shop.read_bytes()


def test_existing_file_is_overwritten_only_on_request(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    file.write_text("not to be lost")
    refused = _build(f"sqlite:///{file}")
    assert refused.returncode == 1
    assert "--force" in refused.stderr
    assert file.read_text() == pins.text()
    assert _build("--force", f"sqlite:///{file}").returncode == 0
    assert _one(file, "SELECT count(*) FROM users") == ROWS["users"]


# ── the mapping ─────────────────────────────────────────────────────────────────────────────────


def _checked(source: SqlSource) -> Checked:
    return check_mapping(examine_mapping(MAPPING.read_text(encoding="utf-8"), MAPPING.name), source.facts())


def _items(url: str) -> Iterator[Item]:
    source = SqlSource(source_url(url))
    try:
        for entity in _checked(source).entities:
            for row_tree in source.read_page(entity.plan, None, None):
                yield from items_for(entity, row_tree)
    finally:
        source.close()


@pytest.fixture(scope="module")
def items(shop: Path) -> list[Item]:
    return list(_items(f"sqlite:///{shop}"))


def test_the_mapping_fits_the_shop_without_a_warning(shop: Path) -> None:
    source = SqlSource(source_url(f"sqlite:///{shop}"))
    try:
        assert [str(warning) for warning in _checked(source).warnings] == []
    finally:
        source.close()


def test_every_row_becomes_its_items_and_no_two_share_a_key(items: list[Item]) -> None:
    assert Counter(item["EntityType"] for item in items) == TYPES
    assert len({(item["PK"], item["SK"]) for item in items}) == sum(TYPES.values())


def test_only_orders_under_way_are_in_the_sparse_index(items: list[Item]) -> None:
    active = [item for item in items if "GSI4PK" in item]
    assert {item["status"] for item in active} == {"pending", "processing"}
    assert len(active) == sum(item.get("status") in ("pending", "processing") for item in items)


def test_postgres_and_sqlite_make_the_same_items(items: list[Item], postgres_database: str) -> None:
    assert _build(postgres_database).returncode == 0
    stored = {(item["PK"], item["SK"]): item for item in _items(postgres_database)}
    assert stored == {(item["PK"], item["SK"]): item for item in items}


GOLDEN: dict[tuple[str, str], dict[str, Any]] = {
    ("USER#1", "PROFILE"): {
        "EntityType": "User",
        "GSI1PK": "EMAIL#sren.garcia-perez.1@example.com",
        "GSI1SK": "USER#1",
        "name": "Søren García-Pérez",
        "createdAt": "2023-08-09T02:39:39",
    },
    ("USER#672", "ORDER#2026-06-29T21:48:46#0000008000"): {
        "EntityType": "Order",
        "GSI2PK": "STATUS#pending",
        "GSI2SK": "2026-06-29T21:48:46",
        "GSI4PK": "ACTIVE_ORDER",
        "GSI4SK": "2026-06-29T21:48:46",
    },
    ("PRODUCT#1", "METADATA"): {
        "EntityType": "Product",
        "GSI3PK": "CATEGORY#books",
        "GSI3SK": "PRICE#000080.18#PRODUCT#000001",
        "category": "books",
        "imageUrl": "https://img.example.com/p/1.jpg",
    },
    ("CATEGORY#books", "PRODUCT#000001"): {"EntityType": "Category", "categoryName": "Books"},
    ("SESSION#b8dafbe97c5d85c40c0bba2af7325487", "770"): {
        "EntityType": "Session",
        "userId": 770,
        "expiresAt": 2_087_222_305,
    },
}


@pytest.mark.parametrize("key", sorted(GOLDEN))
def test_an_item_has_the_keys_of_the_design(items: list[Item], key: tuple[str, str]) -> None:
    found = next(item for item in items if (item["PK"], item["SK"]) == key)
    assert {name: found.get(name) for name in GOLDEN[key]} == GOLDEN[key]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module by which both demos are told, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIGRATOR_HOME", ".migrator/demo")
    return SimpleNamespace(**runpy.run_path(str(REPOSITORY / "docker" / "shop" / "story.py")))


@pytest.fixture
def story(told: Any) -> Any:
    made = told.Story("none.yaml", Path(".migrator/demo"), "http://127.0.0.1:1")
    made.home.mkdir(parents=True)
    return made


def test_a_demo_leaves_no_process_of_ours_behind(story: Any) -> None:
    customers = story.beside([sys.executable, "-c", "import time; time.sleep(600)"], "customers.txt")
    assert customers.poll() is None
    story.end()
    assert customers.poll() is not None


def test_a_demo_waits_for_nothing_that_cannot_come(told: Any, story: Any) -> None:
    shop = story.beside([sys.executable, "-c", "raise SystemExit(7)"], "shop.log")
    with pins.refused(told.Failed):
        told.until("the shop answers", lambda: told.answers(story.service), shop)


VERIFY = {"kind": "verify", "findings": {}}


def test_a_demo_ends_with_the_reports_own_verdict(told: Any) -> None:
    clean = {"standing": "clean", "title": "Both sides are equal", "reasons": ["60 rows", "none differs"]}
    assert told.judged({"verdict": clean, "runs": [VERIFY]}) == ["60 rows", "none differs"]


@pytest.mark.parametrize(
    ("standing", "runs"),
    [
        ("different", [VERIFY]),
        ("unproven", [VERIFY]),
        ("clean", []),
        ("clean", [VERIFY | {"findings": {"missing": 1}}]),
    ],
)
def test_demo_fails_if_the_report_is_not_clean(told: Any, standing: str, runs: Any) -> None:
    verdict = {"standing": standing, "title": "Differences stand", "reasons": ["1 of order"]}
    with pins.refused(told.Failed):
        told.judged({"verdict": verdict, "runs": runs})


def test_demo_stops_if_a_command_ends_unlike_its_story(told: Any, story: Any) -> None:
    with pins.refused(told.Failed):
        story.migrator("mapping", "check", "none.yaml")
    with pins.refused(told.Failed):
        story.migrator("local", says_no=True)
