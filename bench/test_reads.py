"""CPU of a read through `Migration.read` against a bare read of the same side, and the effect of an agreeing
shadow on callers.

Ways alternate in one run; figures are medians. Only this process's CPU counts.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
import sqlalchemy as sa
from boto3.dynamodb.conditions import Key

from bench.measure import Tables
from bench.shapes import engine_of
from migrator.api import Migration
from tests.service.reading import ReadShop, open_read_shop, seen

CALLS = int(os.environ.get("MIGRATOR_TEST_CALLS", 300))
ROUNDS = int(os.environ.get("MIGRATOR_TEST_ROUNDS", 7))
CALLS_A_SECOND = 100
SHADOWS_A_SECOND = 20
PATTERN, PARAMS = "recent_orders", {"user_id": 1}


@pytest.fixture
def shop(empty: str, dynamodb_url: str, tmp_path: Path) -> Iterator[ReadShop]:
    with open_read_shop(engine_of(empty).lower(), empty, dynamodb_url, tmp_path) as opened:
        yield opened


def cpu_us(work: Callable[[], Any]) -> float:
    began = time.process_time()
    for _ in range(CALLS):
        work()
    return (time.process_time() - began) / CALLS * 1e6


def compared(
    tables: Tables, shop: ReadShop, phase: str, bare: Callable[[], Any], ours: Callable[[], Any]
) -> None:
    assert len(bare()) == len(ours()) == 10
    rounds = [(cpu_us(bare), cpu_us(ours)) for _ in range(ROUNDS)]
    alone, through = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = statistics.median(one / other for other, one in rounds)
    tables.add(
        "Migration.read, µs of CPU for a page of ten items",
        source=engine_of(shop.engine.url.render_as_string()),
        phase=phase,
        bare=f"{alone:.0f}",
        by_Migration_read=f"{through:.0f}",
        ratio=f"{ratio:.2f}",
    )


def bare_query(shop: ReadShop, dynamodb_url: str) -> Callable[[], Any]:
    """The pattern's request with boto3 alone."""
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
    table = boto3.resource("dynamodb", endpoint_url=dynamodb_url, **keys).Table(shop.store.design.name)
    condition = Key("PK").eq("USER#1") & Key("SK").begins_with("ORDER#")
    return lambda: table.query(KeyConditionExpression=condition, ScanIndexForward=False)["Items"]


def test_complete(shop: ReadShop, dynamodb_url: str, tables: Tables) -> None:
    shop.move("complete", 0, PATTERN)
    with shop.migration() as migration:
        seen(migration, "complete", PATTERN)
        bare = bare_query(shop, dynamodb_url)
        compared(tables, shop, "complete", bare, lambda: migration.read(PATTERN, **PARAMS))


def test_off(shop: ReadShop, tables: Tables) -> None:
    """Against the statement as a service sends it, by SQLAlchemy with its own transaction."""
    statement = sa.text(
        "SELECT id, total, status, placed_at, paid FROM orders WHERE user_id = :user_id AND"
        " (SELECT count(*) FROM orders newer WHERE newer.user_id = :user_id AND newer.id > orders.id) < 100000"
        " ORDER BY id DESC"
    )

    def bare() -> list[Any]:
        with shop.engine.begin() as connection:
            return list(connection.execute(statement, PARAMS).mappings())

    with shop.migration() as migration:
        seen(migration, "off", PATTERN)
        compared(tables, shop, "off", bare, lambda: migration.read(PATTERN, **PARAMS))


def test_p99_with_a_shadow_that_agrees(shop: ReadShop, dynamodb_url: str, tables: Tables) -> None:
    """With callers at a rate like a service's: alone, with a shadow, and with bare questions."""
    shop.move("shadow", 0, PATTERN)
    text = shop.job.read_text().replace("per_s: 10000", f"per_s: {SHADOWS_A_SECOND}")
    shop.job.write_text(text)
    with shop.migration() as shadowed:
        shop.job.write_text(text.replace("shadow: {", "shadow: {sample: 0, "))
        with shop.migration() as alone:
            for migration in (shadowed, alone):
                seen(migration, "shadow", PATTERN)
            without, beside, bare = list[float](), list[float](), list[float]()
            for _ in range(ROUNDS):
                with asked_beside(bare_query(shop, dynamodb_url)):
                    bare += calls_ms(alone)
                without += calls_ms(alone)
                beside += calls_ms(shadowed)
    found = shop.windows()[PATTERN]
    assert found.same > 0
    tables.add(
        f"Migration.read beside a shadow that agrees, p99 of {ROUNDS * CALLS:,} calls at {CALLS_A_SECOND} a second",
        source=engine_of(shop.engine.url.render_as_string()),
        alone=f"{p99(without):.2f} ms",
        with_a_shadow=f"{p99(beside):.2f} ms",
        ratio=f"{p99(beside) / p99(without):.2f}",
        beside_a_thread_that_asks_boto3=f"{p99(bare):.2f} ms",
        its_ratio=f"{p99(bare) / p99(without):.2f}",
    )


@contextmanager
def asked_beside(question: Callable[[], Any]) -> Iterator[None]:
    """At a shadow's rate, in a thread of this interpreter."""
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(1 / SHADOWS_A_SECOND):
            question()

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        ended.set()
        asking.join()


def calls_ms(migration: Migration) -> list[float]:
    took, begins_at = list[float](), time.perf_counter()
    for _ in range(CALLS):
        time.sleep(max(0.0, begins_at - time.perf_counter()))
        began = time.perf_counter()
        migration.read(PATTERN, **PARAMS)
        took.append((time.perf_counter() - began) * 1000)
        begins_at += 1 / CALLS_A_SECOND
    return took


def p99(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)]
