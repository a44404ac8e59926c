"""The shop's web service, as jobs/shop.sh starts it: it writes with marks, reads by phase, and says how it is."""

from __future__ import annotations

import json
import secrets
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests import pins
from tests.forking import run_python
from tests.journeys.command import ROOT, project
from tests.journeys.web import Web, served

SHOP = ROOT / "docker" / "shop"
FEWER = """
DELETE FROM order_items WHERE order_id % 16 > 0;
DELETE FROM orders WHERE id % 16 > 0;
DELETE FROM sessions;
"""

pytestmark = pytest.mark.xdist_group("web shop")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str) -> Iterator[Web]:
    folder = tmp_path_factory.mktemp("web")
    source = f"sqlite:///{folder / 'shop.db'}"
    run_python([SHOP / "build.py", source], check=True)
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        database.executescript(FEWER)
    made = project(folder, source, dynamodb_url, f"App{secrets.token_hex(4)}", mapping="ecommerce")
    job = made.job.read_text() + "reads: {phase_cache_s: 0.2}\n"
    made.job.write_text(job.replace("tuning: {}", "tuning: {request_life_s: 1, silent_s: 20}"))
    made.prepared("table create", "capture install", "backfill")
    with served(made, SHOP, SHOP_DATABASE_URL=source) as shop:
        yield shop


def test_orders_are_read_and_their_items_follow(web: Web) -> None:
    status, made = web.ask("POST", "/orders", {"user_id": 1, "lines": {"5": 2, "7": 1}})
    assert status == 201
    order = made["order_id"]
    assert [line["productId"] for line in web.ask("GET", f"/orders/{order}/lines")[1]] == [5, 7]
    assert web.ask("GET", "/users/1/orders?limit=1")[1][0]["orderId"] == order
    assert web.ask("PATCH", f"/orders/{order}", {"status": "shipped"})[0] == 204
    web.relay()
    asked = ["-p", "user_id=1", "-p", "limit=1", "--json"]
    (part,) = web.made.done("look", str(web.made.job), "--pattern", "recent_orders", *asked).data["parts"]
    assert part["same"]
    assert "shipped" in json.dumps(part["items"])
    assert web.ask("DELETE", f"/orders/{order}")[0] == 204
    assert web.ask("GET", f"/orders/{order}/lines")[0] == 404


def test_answers_are_the_same_from_either_side(web: Web) -> None:
    web.relay()
    paths = {
        "get_user": "/users/2",
        "get_user_with_orders": "/users/2/account",
        "recent_orders": "/users/2/orders",
        "get_product": "/products/9",
        "get_products_by_category": "/products?category=books&max_price=500",
        "order_with_items": "/orders/2160/lines",
    }
    by_sql = {path: web.ask("GET", path) for path in paths.values()}
    for pattern in paths:
        for move in (["advance"], ["ramp", "100"]):
            words = ["cutover", move[0], str(web.made.job), pattern, *move[1:]]
            web.made.done(*words, "--override", "a test of answers", "--wait")
    assert web.ask("GET", "/healthz")[1]["phases"]["get_user"] == "ramp 100 %"
    assert {path: web.ask("GET", path) for path in paths.values()} == by_sql
    assert all(status == 200 for status, _ in by_sql.values())
    for pattern in paths:
        web.made.done("cutover", "rollback", str(web.made.job), pattern, "--to", "off", "--wait")


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/users/999999", None, 404),
        ("GET", "/users/0", None, 422),
        ("GET", "/users/none", None, 422),
        ("GET", "/users/99999999999999999999", None, 422),
        ("GET", "/products?category=nothing", None, 200),
        ("GET", "/orders?status=lost", None, 422),
        ("POST", "/orders", {"user_id": 1, "lines": {}}, 422),
        ("POST", "/orders", {"user_id": 1, "lines": {"5": 0}}, 422),
        ("POST", "/orders", {"user_id": 1, "lines": {"99999": 1}}, 404),
        ("POST", "/orders", {"user_id": 99999, "lines": {"5": 1}}, 404),
        ("POST", "/users", {"email": "no address", "name": "x"}, 422),
        ("POST", "/users", {"email": "a@example.com", "name": "half a pair: \ud800"}, 422),
        ("POST", "/users", {"email": "sren.garcia-perez.1@example.com", "name": "x"}, 409),
        ("PATCH", "/products/5", {"price": "-1"}, 422),
        ("PATCH", "/orders/99999", {"status": "shipped"}, 404),
    ],
)
def test_invalid_request_is_reported_and_never_a_failure(
    web: Web, method: str, path: str, body: Any, expected: int
) -> None:
    assert web.ask(method, path, body)[0] == expected


def test_customer_changes_are_counted_without_naming_any(web: Web) -> None:
    ended = run_python([SHOP / "load.py", "--seconds", "3", "--rate", "30", web.url])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "requests:" in ended.stdout
    told = web.http.request("GET", web.url + "/metrics").data.decode()
    assert 'route="GET /users/{user_id}/orders",status="200"' in told
    assert "/users/1" not in told
    web.relay()
    verified = web.made.run("verify", str(web.made.job), "--settle", "1", "--json")
    assert verified.data["clean"], verified.out


def test_shop_without_its_database_reports_and_counts_it(web: Web) -> None:
    away = web.made.folder / "shop.db"
    away.rename(away.with_name("elsewhere.db"))
    try:
        status, told = web.ask("POST", "/users", {"email": "away@example.com", "name": "x"})
    finally:
        away.unlink(missing_ok=True)  # SQLite makes a new one of what is not there
        away.with_name("elsewhere.db").rename(away)
    assert (status, told) == (503, {"detail": "the shop cannot answer just now"})
    metrics = web.http.request("GET", web.url + "/metrics").data.decode()
    assert 'route="POST /users",status="503"' in metrics


def test_load_without_answers_ends_when_it_was_to_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        began = time.monotonic()
        ended = run_python([SHOP / "load.py", "--seconds", "2", "--rate", "50", "--wait", "1", url])
    assert ended.returncode == 1
    assert "not asked" in ended.stdout
    assert time.monotonic() - began < 60


def test_load_is_for_this_machine_alone() -> None:
    ended = run_python([SHOP / "load.py", "https://shop.example.com"])
    assert ended.returncode == 2
    assert pins.said(ended.stderr)
