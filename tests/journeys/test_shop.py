"""The shop of the demo: moved, verified, and every one of its access patterns asked of both sides."""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.forking import run_python
from tests.journeys.command import ROOT, project
from tests.support_mapping import parse_mapping

ASKED = {
    "get_user": ["user_id=1"],
    "user_by_email": ["email=sren.garcia-perez.1@example.com"],
    "recent_orders": ["user_id=1", "limit=5"],
    "get_user_with_orders": ["user_id=672"],
    "get_order": ["user_id=672", "created_at=2026-06-29T21:48:46", "order_id=8000"],
    "order_with_items": ["order_id=8000"],
    "orders_of_product": ["product_id=1"],
    "get_orders_by_status": ["status=shipped"],
    "get_all_active_orders": [],
    "get_product": ["product_id=1"],
    "get_session": ["session_id=b0a6a12ee455ed8e52d013f912fa8478"],  # one that ends in 2036
    "get_products_by_category": ["category=electronics", "min_price=100", "max_price=149.99"],
    "products_of_category": ["category=electronics"],
}


FEWER = """
DELETE FROM order_items WHERE order_id % 16 > 0;
DELETE FROM orders WHERE id % 16 > 0;
DELETE FROM users WHERE id > 50 AND id NOT IN (SELECT user_id FROM orders);
DELETE FROM sessions WHERE rowid % 10 > 0 AND id <> 'b0a6a12ee455ed8e52d013f912fa8478';
"""
"""`make demo` moves all of it."""


def test_every_access_pattern_has_the_same_answer_on_both_sides(tmp_path: Path, dynamodb_url: str) -> None:
    source = f"sqlite:///{tmp_path / 'shop.db'}"
    build = [ROOT / "docker" / "shop" / "build.py", "--scale", "1", source]
    run_python(build, check=True)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.executescript(FEWER)
    made = project(tmp_path, source, dynamodb_url, f"App{secrets.token_hex(4)}", mapping="ecommerce")
    made.prepared("table create", "backfill", "verify")
    text = (ROOT / "mappings" / "ecommerce.yaml").read_text(encoding="utf-8")
    assert set(parse_mapping(text, "ecommerce.yaml").mapping.patterns) == set(ASKED)
    for pattern, params in ASKED.items():
        words = [word for param in params for word in ("-p", param)]
        answer = made.done("look", str(made.job), "--pattern", pattern, *words, "--json").data
        assert answer["same"], pattern
        assert all(part["items"] for part in answer["parts"]), pattern
