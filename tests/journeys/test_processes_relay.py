"""Several relays of one command: marks are worked once, one that is killed is started again, and all end with the first."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.journeys.command import Project, tuned
from tests.journeys.small import small_shop
from tests.journeys.test_processes import children, waits_to_end
from tests.support_waiting import until
from tests.support_worlds import prepared

ROWS = 300


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """A shop whose changes are captured, and whose table is filled."""
    made = small_shop(tmp_path, dynamodb_url, create=False)
    mapping = made.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("type: type}", "type: type, ttl: expiresAt}"))
    return prepared(made, "table create", "capture install", "backfill", "relay --once")


def change(made: Project) -> None:
    with closing(sqlite3.connect(made.folder / "shop.db", timeout=60)) as connection:
        connection.execute("UPDATE customer SET name = name || 'x'")
        first = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM customer").fetchone()[0]
        rows = [(number, "new") for number in range(first, first + ROWS)]
        connection.executemany("INSERT INTO customer VALUES (?, ?)", rows)
        connection.commit()


def test_relays_of_one_command_process_and_count_all_marks(shop: Project) -> None:
    change(shop)
    ended = tuned(shop, relay_processes=3).done("relay", str(shop.job), "--once", "--json")
    assert "process_ended" not in ended.err, ended.err
    assert (ended.data["worked"]["finished"], ended.data["marks"]["waiting"]) == (ROWS + 30, 0)
    assert shop.done("verify", str(shop.job), "--json").data["clean"]


def test_killed_relay_restarts_and_all_end_with_the_first(shop: Project) -> None:
    process = tuned(shop, relay_processes=2).start("relay", str(shop.job))
    until(lambda: len(list(children(process.pid))) == 1)
    (first,) = children(process.pid)
    until(
        lambda: len(shop.done("status", str(shop.job), "--json").data["live"]["writers"]) == 2, "two at work"
    )
    first.kill()
    until(lambda: {one.pid for one in children(process.pid)} - {first.pid} != set())
    started = list(children(process.pid))
    change(shop)
    until(lambda: not shop.done("relay", str(shop.job), "--dry-run", "--json").data["waiting"])
    process.terminate()
    _, err = process.communicate(timeout=120)
    assert (process.returncode, "process_ended" in err) == (0, True), err
    assert waits_to_end(started)
    assert shop.done("verify", str(shop.job), "--json").data["clean"]


def test_relays_end_where_the_first_is_killed(shop: Project) -> None:
    process = tuned(shop, relay_processes=2).start("relay", str(shop.job))
    until(lambda: len(list(children(process.pid))) == 1)
    started: list[psutil.Process] = list(children(process.pid))
    process.kill()
    process.communicate()
    assert waits_to_end(started)
    change(shop)
    shop.done("relay", str(shop.job), "--once")
    assert shop.done("verify", str(shop.job), "--json").data["clean"]


def test_how_many_relays_there_may_be(shop: Project) -> None:
    for number in ("0", "-1", "1000", "two"):
        assert tuned(shop, relay_processes=number).run("relay", str(shop.job)).code == 2
    assert (
        tuned(shop, relay_processes=2).done("relay", str(shop.job), "--dry-run", "--json").data["waiting"]
        == 0
    )
    text = shop.job.read_text()
    url = "'${MIGRATOR_SOURCE_URL}'"
    shop.job.write_text(text.replace(url + "}", url + ", max_connections: 5}"))
    ended = tuned(shop, relay_processes=3).run("relay", str(shop.job))
    assert (ended.code, "source.max_connections is 5" in ended.err) == (2, True), ended.err
