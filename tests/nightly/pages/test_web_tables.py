"""The shop on old tables of DynamoDB, as docker/tables/demo.py starts it: filled, moved, and written to with boto3."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from migrator.dynamodb.client import dynamodb_client
from tests import pins
from tests.forking import run_python
from tests.journeys.command import ROOT, project
from tests.journeys.web import Web, served

SHOP = ROOT / "docker" / "tables"
TABLES = ("Users", "Orders", "OrderLines")
ASKED = {
    "get_user": (["user_id=3"], "/users/3"),
    "recent_orders": (["user_id=1", "limit=2"], "/users/1/orders?limit=2"),
    "account": (["user_id=1"], "/users/1/account"),
    "order_lines": (["order_id=8000"], "/orders/8000/lines"),
}
LIMITS = {
    "tuning": {"request_life_s": 1, "silent_s": 20},
    "reads": {"phase_cache_s": 0.2},
}

pytestmark = pytest.mark.xdist_group("web tables")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str) -> Iterator[Web]:
    folder, mark = tmp_path_factory.mktemp("web"), f"{secrets.token_hex(3)}-"
    fill = [SHOP / "fill.py", "--fewer", "40", "--prefix", mark, dynamodb_url]
    told = run_python(fill, check=True).stdout
    assert "2,000 Users, 200 Orders" in told
    made = project(folder, "sqlite:///none.db", dynamodb_url, f"S{secrets.token_hex(4)}")
    at = {"endpoint": dynamodb_url, "region": "eu-central-1"}
    job = {
        "job": 1,
        "mapping": str(SHOP / "mapping.yaml"),
        "source": {"dynamodb": {"tables": {name: mark + name for name in TABLES}, **at}},
        "target": {"table": made.table, **at},
    }
    made.job.write_text(json.dumps(job | LIMITS))
    made.prepared("table create", "capture install", "backfill")
    account = {
        "AWS_ENDPOINT_URL_DYNAMODB": dynamodb_url,
        "AWS_DEFAULT_REGION": at["region"],
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    with served(made, SHOP, SHOP_PREFIX=mark, **account) as shop:
        yield shop
    client = dynamodb_client(region=at["region"], profile=None, endpoint=at["endpoint"])
    for name in TABLES:
        client.delete_table(TableName=mark + name)


def new(web: Web, pattern: str, *params: str) -> list[Any]:
    """Rows of the new table's answer, which is the old tables', too."""
    words = [word for param in params for word in ("-p", param)]
    answer = web.made.done("look", str(web.made.job), "--pattern", pattern, *words, "--json").data
    assert answer["same"], answer
    return [row for part in answer["parts"] for row in part["items"]]


def status_of(web: Web, order: int) -> str:
    """As the list of the second customer's orders has it."""
    rows = new(web, "recent_orders", "user_id=2", "limit=100")
    return next(str(status) for number, status, _ in rows if int(number) == order)


@pytest.mark.parametrize("pattern", ASKED)
def test_every_access_pattern_has_the_same_answer_on_both_sides(web: Web, pattern: str) -> None:
    assert new(web, pattern, *ASKED[pattern][0])


def test_an_order_is_in_the_new_table_when_its_call_returns(web: Web) -> None:
    status, made = web.ask("POST", "/orders", {"user_id": 2, "lines": {"5": 2, "7": 1}})
    assert status == 201
    order = made["order_id"]
    assert len(new(web, "order_lines", f"order_id={order}")) == 2
    assert status_of(web, order) == "pending"
    assert web.ask("PATCH", f"/orders/{order}", {"status": "shipped"})[0] == 204
    assert status_of(web, order) == "shipped"
    assert web.ask("DELETE", f"/orders/{order}")[0] == 204
    assert new(web, "order_lines", f"order_id={order}") == []
    assert web.ask("GET", f"/orders/{order}/lines")[0] == 404


def test_customer_change_arrives_by_stream_with_all_her_orders(web: Web) -> None:
    number = web.ask("POST", "/users", {"email": "ada@example.com", "name": "Ada"})[1]["user_id"]
    assert web.ask("PATCH", "/users/1", {"name": "Ada Lovelace"})[0] == 204
    web.relay()
    assert "ada@example.com" in json.dumps(new(web, "get_user", f"user_id={number}"))
    orders = new(web, "recent_orders", "user_id=1", "limit=10")
    assert json.dumps(orders).count("Ada Lovelace") == len(orders) > 0


def test_answers_are_the_same_from_either_side(web: Web) -> None:
    web.relay()
    paths = [path for _, path in ASKED.values()]
    by_old = {path: web.ask("GET", path) for path in paths}
    for pattern in ASKED:
        for move in (["advance"], ["ramp", "100"]):
            words = ["cutover", move[0], str(web.made.job), pattern, *move[1:]]
            web.made.done(*words, "--override", "a test of answers", "--wait")
    assert set(web.ask("GET", "/healthz")[1]["phases"].values()) == {"ramp 100 %"}
    assert {path: web.ask("GET", path) for path in paths} == by_old
    assert all(status == 200 for status, _ in by_old.values())
    for pattern in ASKED:
        web.made.done("cutover", "rollback", str(web.made.job), pattern, "--to", "off", "--wait")


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/users/999999", None, 404),
        ("GET", "/users/999999/account", None, 404),
        ("GET", "/users/0", None, 422),
        ("GET", "/users/99999999999999999999", None, 422),
        ("PATCH", "/users/999999", {"name": "x"}, 404),
        ("POST", "/users", {"email": "no address", "name": "x"}, 422),
        ("POST", "/users", {"email": "a@example.com", "name": "half a pair: \ud800"}, 422),
        ("POST", "/orders", {"user_id": 1, "lines": {}}, 422),
        ("POST", "/orders", {"user_id": 999999, "lines": {"5": 1}}, 404),
        ("PATCH", "/orders/999999", {"status": "shipped"}, 404),
        ("PATCH", "/orders/8000", {"status": "lost"}, 422),
        ("DELETE", "/orders/999999", None, 404),
    ],
)
def test_invalid_request_is_reported_and_never_a_failure(
    web: Web, method: str, path: str, body: Any, expected: int
) -> None:
    assert web.ask(method, path, body)[0] == expected


def test_customer_changes_are_equal_on_both_sides(web: Web) -> None:
    load = ROOT / "docker" / "shop" / "load.py"
    ended = run_python([load, "--seconds", "3", "--rate", "30", "--tables", web.url])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "requests:" in ended.stdout
    web.relay()
    assert web.made.run("verify", str(web.made.job), "--settle", "1", "--json").data["clean"]


@pytest.mark.parametrize(
    "words",
    [
        ["https://dynamodb.example.com"],
        ["--fewer", "0", "http://127.0.0.1:1"],
    ],
    ids=["machine-alone", "case"],
)
def test_tables_are_filled_on_this_machine_alone(words: list[str]) -> None:
    ended = run_python([SHOP / "fill.py", *words])
    assert ended.returncode == 2
    assert pins.said(ended.stderr)
