"""The access patterns of mappings/README.md, asked of a real database and a real table by the command."""

from __future__ import annotations

import os
import secrets
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests import pins
from tests.golden.test_reference import BLOCKS, mapping_text, the
from tests.journeys.command import Project
from tests.journeys.in_process import Ended

# One worker fills the table once.
pytestmark = pytest.mark.xdist_group("reference patterns")

TABLES = """
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, email TEXT, region_id INTEGER, deleted_at TIMESTAMP);
CREATE TABLE orders (id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES users (id), status TEXT,
  total NUMERIC(12, 2), created_at TIMESTAMP, invoice_no TEXT, street TEXT, city TEXT);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, price NUMERIC(12, 2));
CREATE TABLE events (id INTEGER PRIMARY KEY, tenant TEXT, region TEXT, kind TEXT NOT NULL, seen_at TIMESTAMP NOT NULL);
CREATE TABLE shops (id INTEGER PRIMARY KEY, name TEXT, latitude NUMERIC(9, 6), longitude NUMERIC(9, 6));
"""
ASKED = {
    "order_by_key": ["user_id=1", "created_at=2036-01-01T05:00:00", "order_id=5"],
    "large_orders": ["user_id=1", "least=90"],
    "product_by_id": ["id=7"],
    "events_of_tenant": ["tenant=t1", "region=eu", "kind=start", "since=2036-01-02 00:00:00"],
    "events_of_kind": ["kind=stop", "since=2036-01-10 00:00:00", "until=2036-03-10 23:59:59"],
    "events_of_day": ["day=2036-02-01"],
    "shops_near": ["lat=35.6586", "lng=139.7454", "radius=400"],
}


def fill(path: Path) -> None:
    start = datetime(2036, 1, 1)
    with sqlite3.connect(path) as database:
        database.executescript(TABLES)
        database.execute("INSERT INTO users (id, name, email) VALUES (1, 'Ann', 'ann@example.com')")
        for number in range(20):
            moment = (start + timedelta(hours=number)).isoformat(" ")
            row = (number, 1, "P", number * 10, moment)
            database.execute(
                "INSERT INTO orders (id, user_id, status, total, created_at) VALUES (?, ?, ?, ?, ?)", row
            )
        for number in range(300):
            moment = (start + timedelta(hours=7 * number)).isoformat(" ")
            event = (number, f"t{number % 2}", "eu", "stop" if number % 3 else "start", moment)
            database.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", event)
        for number in range(60):
            database.execute("INSERT INTO products VALUES (?, ?, 9.5)", (number, f"product {number}"))
            place = (35.6586 + (number % 10 - 5) / 1000, 139.7454 + (number // 10 - 3) / 1000)
            database.execute("INSERT INTO shops VALUES (?, ?, ?, ?)", (number, f"shop {number}", *place))


ENTITIES = {"user", "order", "product", "event", "shop"}
"""Those of the reference that its patterns ask for."""


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str) -> Project:
    folder = tmp_path_factory.mktemp("reference")
    fill(folder / "shop.db")
    blocks = [text for kind, text in BLOCKS if kind == "entity"]
    entities = {name: text for text in reversed(blocks) if (name := text.partition(":")[0]) in ENTITIES}
    patterns = "".join(text for kind, text in BLOCKS if kind == "patterns")
    text = the("head") + mapping_text("".join(entities.values())) + "access_patterns:\n"
    (folder / "mapping.yaml").write_text(text + "".join(f"  {line}\n" for line in patterns.splitlines()))
    job, table = folder / "shop.yaml", f"App{secrets.token_hex(4)}"
    job.write_text(
        f"job: 1\nmapping: mapping.yaml\nsource: {{url: 'sqlite:///{folder / 'shop.db'}'}}\n"
        f"target: {{table: {table}, endpoint: '{dynamodb_url}'}}\n"
    )
    made = Project(folder, job, table, dynamodb_url, dict(os.environ))
    made.done("table", "create", str(job))
    made.done("backfill", str(job))
    return made


def query(moved: Project, pattern: str, *options: str) -> Ended:
    words = [word for param in ASKED[pattern] for word in ("-p", param)]
    return moved.run("look", str(moved.job), "--pattern", pattern, *words, *options)


@pytest.mark.parametrize("pattern", sorted(ASKED))
def test_both_sides_give_equal_answers(moved: Project, pattern: str) -> None:
    answer = query(moved, pattern, "--json").data
    assert answer["same"], answer
    assert answer["parts"][0]["items"]
    # Of the copies of an item one is read.
    sent = answer["requests"][:1] if pattern == "product_by_id" else answer["requests"]
    assert answer["round_trips"] >= len(sent) >= 1
    assert answer["read_units"] > 0
    assert answer["took_ms"] > 0
    assert answer["sql_took_ms"] > 0


def test_an_explanation_stands_below_the_answer(moved: Project) -> None:
    ended = query(moved, "shops_near", "--explain")
    assert ended.code == 0
    assert 'Query on GSI1: GSI1PK = "GEO#xn76gg"' in ended.out
    assert pins.said(ended.out, "trip")
    assert pins.said(ended.out, "round")


def test_all_of_them_replay_clean(moved: Project) -> None:
    ended = moved.run("shadow", "replay", str(moved.job), "--sample", "20", "--seed", "3", "--json")
    assert ended.code == 0, ended.out
    found = {one["pattern"]: one for one in ended.data["patterns"]}
    assert all(one["same"] == one["samples"] == 20 for one in found.values())
    assert all(one["empty"] < 20 for one in found.values())
    assert found["shops_near"]["parameters"] == {
        "lat": "shops.latitude",
        "lng": "shops.longitude",
        "radius": "made up",
    }
