"""Three old tables of DynamoDB's that eight threads write to: captured by their streams, backfilled, relayed, killed, clean."""

from __future__ import annotations

import json
import random
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from threading import Event, Thread
from typing import Any

import pytest

from tests import pins
from tests.journeys import documents
from tests.journeys.command import Project, project
from tests.support_documents import old_tables, wired

WRITERS, USERS, ORDERS, LONGEST_S = 8, 40, 120, 240.0
KEYS = {"Users": {"id": "S"}, "Orders": {"order_id": "S"}, "Lines": {"order_id": "S", "line": "N"}}
MAPPING = """\
mapping: 1
source:
  timezone: UTC
  tables:
    Users:
      key: [id]
      columns: {id: text, name: text}
    Orders:
      key: [order_id]
      columns: {order_id: text, user_id: text, status: text}
    Lines:
      key: [order_id, line]
      columns: {order_id: text, line: integer, sku: text, quantity: integer}
table: {name: Shop, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  user:
    table: Users
    items:
      User: {key: ["USER#{id}", PROFILE], keep: [name]}
  order:
    table: Orders
    join: {user: {table: Users, on: {user_id: id}}}
    collect: {pieces: {sum: quantity, of: Lines, by: order_id}}
    items:
      Order:
        key: ["USER#{user_id}", "ORDER#{order_id}"]
        keep: [status]
        attributes: {userName: user.name, pieces: pieces}
  line:
    table: Lines
    items:
      Line: {key: ["ORDER#{order_id}", "LINE#{line:03}"], keep: [sku, quantity]}
"""


class Shop(documents.Shop):
    def items(self) -> list[dict[str, Any]]:
        pages = self.tables.client.get_paginator("scan").paginate(TableName=self.project.table)
        return [item for page in pages for item in page["Items"]]

    def delete(self, table: str, **key: Any) -> None:
        self.tables.client.delete_item(
            TableName=self.real[table], Key={name: wired(value) for name, value in key.items()}
        )


WriteOne = Callable[[Shop, int, random.Random], None]
"""One change of an old table, by one of the writers."""


@contextmanager
def live_shop(
    folder: Path,
    url: str,
    mapping: str,
    keys: Mapping[str, Mapping[str, str]],
    rows: Mapping[str, list[dict[str, Any]]],
    *,
    indexes: Mapping[str, Mapping[str, Mapping[str, str]]] | None = None,
) -> Iterator[Shop]:
    """Old tables with these rows, and a job with pages of twenty."""
    mark = secrets.token_hex(3)
    real = {name: f"{mark}-{name.lower()}" for name in keys}
    (folder / "mapping.yaml").write_text(mapping)
    made = project(folder, "sqlite:///none.db", url, f"L{secrets.token_hex(4)}")
    job = {
        "job": 1,
        "name": "shop",
        "mapping": "mapping.yaml",
        "source": {"dynamodb": {"tables": real, "endpoint": url}},
        "target": {"table": made.table, "endpoint": url},
        "tuning": {"page_rows": 20, "workers": 2, "silent_s": 5, "request_life_s": 5},
    }
    made.job.write_text(json.dumps(job))
    with old_tables(url) as tables:
        for name, key in keys.items():
            tables.make(real[name], key, rows[name], indexes=(indexes or {}).get(name), projection="ALL")
        yield Shop(made, tables, real)


def filled() -> dict[str, list[dict[str, Any]]]:
    numbers = range(ORDERS)
    return {
        "Users": [{"id": f"u{n}", "name": f"Name {n}"} for n in range(USERS)],
        "Orders": [{"order_id": f"o{n}", "user_id": f"u{n % USERS}", "status": "open"} for n in numbers],
        "Lines": [{"order_id": f"o{n}", "line": 1, "sku": f"s{n}", "quantity": n % 5} for n in numbers],
    }


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Iterator[Shop]:
    with live_shop(tmp_path, dynamodb_url, MAPPING, KEYS, filled()) as made:
        yield made


def test_every_command_of_live_change_runs(shop: Shop) -> None:
    made, job = shop.project, shop.job
    made.done("table", "create", job)
    assert made.run("capture", "status", job).code == 1
    refused = made.run("relay", job, "--once")
    assert refused.code == 2
    assert "capture install" in refused.err
    assert f"--table-name {shop.real['Users']}" in made.done("capture", "install", job, "--dry-run").out
    assert "streams changed: Users" in made.done("capture", "install", job).out
    assert pins.said(made.done("capture", "install", job).out, "change")
    assert pins.said(made.done("capture", "status", job).out, "leaves")
    made.done("backfill", job)
    shop.tables.put(shop.real["Users"], [{"id": "u1", "name": "Renamed"}])
    shop.tables.put(shop.real["Orders"], [{"order_id": "o2", "user_id": "u9", "status": "moved"}])
    shop.delete("Lines", order_id="o3", line=1)
    made.done("relay", job, "--once")
    renamed = [item for item in shop.items() if item["PK"]["S"] == "USER#u1" and "userName" in item]
    assert {item["userName"]["S"] for item in renamed} == {"Renamed"}
    assert len(renamed) == ORDERS // USERS
    made.done("verify", job)
    lost = {"PK": {"S": "USER#u5"}, "SK": {"S": "PROFILE"}}
    shop.tables.client.delete_item(TableName=made.table, Key=lost)
    assert made.run("verify", job, "--repair", "--settle", "0").code == 1
    made.done("relay", job, "--once")
    made.done("verify", job)
    shop.delete("Users", id="u7")
    made.done("relay", job, "--once")
    # 1: its tombstone stays for as long as a request may be on its way.
    assert made.run("clean", "--row", job, "--entity", "user", "--key", "u7", "--yes").code in (0, 1)
    for command in ("status", "doctor"):
        ended = made.run(command, job)
        assert ended.code in (0, 1), (command, ended.out, ended.err)
    made.done("clean", "--all-items", job, "--yes")
    assert not [item for item in shop.items() if not item["type"]["S"].startswith("_")]
    assert pins.said(made.run("doctor", job).out, "streams")
    uninstalled = made.done("capture", "uninstall", job, "--force", "--discard-marks")
    assert pins.said(uninstalled.out, "stay")
    assert "trigger" not in uninstalled.out
    assert made.run("capture", "status", job).code == 1


@pytest.mark.parametrize("command", ["reverse start", "cutover status", "decommission plan"])
def test_command_without_an_old_table_form_is_refused_clearly(shop: Shop, command: str) -> None:
    made = shop.project
    made.done("table", "create", shop.job)
    made.done("capture", "install", shop.job)
    ended = made.run(*command.split(), shop.job)
    assert "internal error" not in ended.err


def test_a_table_that_is_deleted_under_a_relay_ends_it_in_words(shop: Shop) -> None:
    made, job, gone = shop.project, shop.job, shop.real["Lines"]
    for command in ("table create", "capture install", "backfill"):
        made.done(*command.split(), job)
    relay = made.start("relay", job)
    need_relay(made)
    shop.tables.put(shop.real["Lines"], [{"order_id": "o1", "line": 2, "sku": "x", "quantity": 1}])
    shop.tables.drop(gone)
    _, err = relay.communicate(timeout=90)
    assert relay.returncode == 3, err
    assert pins.said(err, gone=gone)
    assert "capture install" in err
    # Nor does another one begin, or seem well.
    refused = made.run("relay", job, "--once")
    assert refused.code == 3
    assert gone in refused.err
    shop.tables.make(gone, KEYS["Lines"])
    anew = made.run("relay", job, "--once")
    assert anew.code in (2, 3)
    assert "capture install" in anew.err
    made.done("capture", "install", job)
    assert made.run("verify", job, "--repair", "--settle", "0").code == 1
    made.done("relay", job, "--once")
    made.done("verify", job)


def write_on(write_one: WriteOne, shop: Shop, writer: int, ended: Event) -> None:
    chosen = random.Random(writer)
    while not ended.wait(0.05):
        write_one(shop, writer, chosen)


def killed(process: Popen[str], shop: Shop, items: int) -> None:
    """By SIGKILL, in the middle of its work: once the table has so many items."""
    until = time.monotonic() + LONGEST_S
    while len(shop.items()) < items:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def need_relay(made: Project) -> None:
    """At work, so that a backfill that begins now writes by condition."""
    until = time.monotonic() + LONGEST_S
    while "no relay is running" in made.done("status", str(made.job)).out:
        assert time.monotonic() < until
        time.sleep(0.1)


def stormed(shop: Shop, write_one: WriteOne) -> None:
    """Eight writers, while a relay and a backfill are killed in the middle of their work, and begin once more."""
    made, job = shop.project, shop.job
    made.done("table", "create", job)
    made.done("capture", "install", job)
    ended = Event()
    words = (write_one, shop)
    writers = [Thread(target=write_on, args=(*words, number, ended)) for number in range(WRITERS)]
    for thread in writers:
        thread.start()
    try:
        relay = made.start("relay", job)
        need_relay(made)
        killed(made.start("backfill", job), shop, 60)
        killed(relay, shop, 61)
        with made.beside("relay", job):
            need_relay(made)
            assert "path: conditional" in made.done_at_last("backfill", job).err
    finally:
        ended.set()
        for thread in writers:
            thread.join()
    made.done_at_last("relay", job, "--once")
    assert pins.said(made.done("verify", job).out, "stormed-clean")


# ── the shipped mapping of four tables ──

SHIPPED = Path(__file__).parents[2] / "mappings" / "old_tables" / "users_and_orders.yaml"
SHIPPED_KEYS = {
    "Users": {"id": "S"},
    "Addresses": {"user_id": "S", "label": "S"},
    "Orders": {"id": "S"},
    "OrderItems": {"order_id": "S", "line": "N"},
}


def address(user: str, label: str, city: str) -> dict[str, Any]:
    return {"user_id": user, "label": label, "street": {"line1": "Main Street 1", "city": city}, "zip": "1"}


def order_of(user: str, order: str, day: int) -> dict[str, Any]:
    return {"id": order, "user_id": user, "ordered": f"2026-05-{day:02}", "total": day, "status": "open"}


def order_item(order: str, line: int, quantity: int) -> dict[str, Any]:
    return {"order_id": order, "line": line, "sku": f"s{line}", "quantity": quantity, "tags": {"a", "b"}}


def write_shipped(shop: Shop, writer: int, chosen: random.Random) -> None:
    """Users are named anew, orders move to other users and days, addresses and items come and go."""
    user, order = f"u{chosen.randrange(USERS)}", f"o{chosen.randrange(ORDERS)}"
    label, line = chosen.choice(["home", "work"]), chosen.randrange(1, 4)
    match chosen.randrange(6):
        case 0:
            shop.tables.put(shop.real["Users"], [{"id": user, "name": f"Name {chosen.random()}"}])
        case 1:
            shop.tables.put(shop.real["Orders"], [order_of(user, order, chosen.randrange(1, 28))])
        case 2:
            shop.tables.put(shop.real["Addresses"], [address(user, label, f"City {writer}")])
        case 3:
            shop.delete("Addresses", user_id=user, label=label)
        case 4:
            shop.tables.put(shop.real["OrderItems"], [order_item(order, line, writer)])
        case _:
            shop.delete("OrderItems", order_id=order, line=line)


def test_the_shipped_tables_end_clean_and_answer_as_the_old_ones(tmp_path: Path, dynamodb_url: str) -> None:
    rows = {
        "Users": [{"id": f"u{n}", "name": f"Name {n}"} for n in range(USERS)],
        "Addresses": [address(f"u{n}", "home", f"City {n}") for n in range(USERS)],
        "Orders": [order_of(f"u{n % USERS}", f"o{n}", n % 27 + 1) for n in range(ORDERS)],
        "OrderItems": [order_item(f"o{n}", 1, n % 5) for n in range(ORDERS)],
    }
    indexes = {"Orders": {"ByUser": {"user_id": "S", "ordered": "S"}}}
    with live_shop(tmp_path, dynamodb_url, SHIPPED.read_text(), SHIPPED_KEYS, rows, indexes=indexes) as shop:
        stormed(shop, write_shipped)
        shop.project.done("shadow", "replay", shop.job, "--sample", "40", "--settle", "0")
