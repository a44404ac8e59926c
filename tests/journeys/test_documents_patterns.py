"""Access patterns on old tables of DynamoDB: asked of both sides, replayed, compared, and read by a service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.api import Migration
from tests.journeys.documents import PATTERNS, Shop, old_shop


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Iterator[Shop]:
    with old_shop(tmp_path, dynamodb_url) as made:
        yield made


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (["profile", "-p", "user_id=u4"], [["Name 4", "City 4", 4]]),
        (["profile", "-p", "user_id=nobody"], []),
        (
            ["orders_of_user", "-p", "user_id=u4", "-p", "status=paid"],
            [["o52", "paid", "Name 4"], ["o40", "paid", "Name 4"], ["o28", "paid", "Name 4"]],
        ),
        (
            ["orders_of_user", "-p", "user_id=u4", "-p", "since=2024-03-01T10:00:40Z"],
            [["o52", "paid", "Name 4"], ["o40", "paid", "Name 4"]],
        ),
        (["lines_of_order", "-p", "order_id=o1"], [[1, "s2", ["a", "b"]], [2, "s3", None]]),
        (["one_line", "-p", "order_id=o1", "-p", "line=2"], [["s3"]]),
        (["users", "-p", "ids=u3,nobody,u1"], [["u3", "Name 3"], ["u1", "Name 1"]]),
    ],
)
def test_both_sides_give_the_same_answer(shop: Shop, words: list[str], rows: list[list[Any]]) -> None:
    answer = shop.project.done("look", shop.job, "--pattern", *words, "--json").data
    assert answer["same"]
    (part,) = answer["parts"]
    assert part["items"] == part["rows"] == rows


def test_replay_queries_both_sides_and_finds_differences(shop: Shop) -> None:
    made = shop.project
    clean = made.done("shadow", "replay", shop.job, "--sample", "20", "--settle", "0", "--json").data
    assert len(clean["patterns"]) == PATTERNS
    made.done("doctor", shop.job)
    shop.tables.put(shop.real["Lines"], [{"order_id": "o1", "line": 1, "sku": "another"}])
    words = ("--pattern", "one_line", "--sample", "500", "--seed", "1", "--settle", "0")
    asked = ("shadow", "replay", shop.job, *words)
    assert made.run(*asked).code == 1
    made.done("relay", shop.job, "--once")
    made.done(*asked)
    made.done("report", shop.job)


def test_a_service_reads_the_old_tables_page_by_page(shop: Shop) -> None:
    made = shop.project
    made.job.write_text(json.dumps(json.loads(made.job.read_text()) | {"reads": {"cursor_key": "k" * 32}}))
    with Migration.load(shop.job) as migration:
        answer = migration.read("profile", user_id="u4")
        assert (answer, answer.origin) == ([{"name": "Name 4", "city": "City 4", "score": 4}], "sql")
        page = migration.read_page("lines_of_order", order_id="o1", size=1)
        assert [row["sku"] for row in page.items] == ["s2"]
        rest = migration.read_page("lines_of_order", order_id="o1", size=5, cursor=page.next)
        assert ([row["sku"] for row in rest.items], rest.next) == (["s3"], None)
