"""Three old tables of DynamoDB's, users, orders and order lines, end in one: designed, backfilled, verified; and bad input."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import pins
from tests.journeys import documents
from tests.journeys.command import project, tuned
from tests.support_documents import old_tables

USERS, ORDERS = 60, 150
MAPPING = """\
mapping: 1
source:
  timezone: UTC
  tables:
    Users:
      key: [id]
      columns: {id: text, name: text, address.city: text, tags: set(text), active: boolean, score: number(2)}
    Orders:
      key: [order_id]
      columns: {order_id: text, user_id: text, placed: timestamp, status: text, notes: list}
    Lines:
      key: [order_id, line]
      columns: {order_id: text, line: integer, sku: text, quantity: integer}
    Logins:
      key: [login_id]
      columns: {login_id: text, user_id: text}
table: {name: Shop, key: [PK, SK], type: type, indexes: {GSI1: {key: [GSI1PK, GSI1SK]}}}
entities:
  user:
    table: Users
    collect: {logins: {count: all, of: Logins, by: user_id}}
    items:
      User:
        key: ["USER#{id}", PROFILE]
        keep: [name, tags, active, score]
        attributes: {city: address.city, logins: logins}
  order:
    table: Orders
    where: {status: [paid, sent]}
    join: {user: {table: Users, on: {user_id: id}}}
    collect:
      lines: {of: Lines, by: order_id, order_by: [line]}
      pieces: {sum: quantity, of: Lines, by: order_id}
    items:
      Order:
        key: ["USER#{user_id}", "ORDER#{placed|iso:s}#{order_id}"]
        GSI1: ["STATUS#{status}", "{placed|iso:s}"]
        keep: [status, notes]
        attributes:
          userName: user.name
          pieces: pieces
          lines: {each: lines, attributes: {sku: sku, quantity: quantity}}
  line:
    table: Lines
    items:
      Line: {key: ["ORDER#{order_id}", "LINE#{line:03}"], keep: [sku, quantity]}
"""


class Shop(documents.Shop):
    def items(self) -> list[dict[str, Any]]:
        pages = self.tables.client.get_paginator("scan").paginate(TableName=self.project.table)
        return [item for page in pages for item in page["Items"]]


def _rows() -> dict[str, list[dict[str, Any]]]:
    users = [
        {
            "id": f"u{n}",
            "name": f"Name {n}",
            "address": {"city": f"City {n % 5}", "street": None},
            "tags": {"a", f"t{n % 3}"} if n % 4 else None,
            "active": n % 2 == 0,
            "score": n if n % 3 else None,
        }
        for n in range(USERS)
    ]
    orders = [
        {
            "order_id": f"o{n}",
            "user_id": f"u{n % (USERS + 1)}",
            "placed": f"2024-03-{n % 28 + 1:02}T10:00:{n % 60:02}",
            "status": ("paid", "sent", "open")[n % 3],
            "notes": ["x", 1, {"y": True}] if n % 2 else None,
        }
        for n in range(ORDERS)
    ]
    lines = [
        {"order_id": f"o{n // 2}", "line": n % 2 + 1, "sku": f"s{n % 9}", "quantity": n % 4}
        for n in range(2 * ORDERS - 20)
    ]
    logins = [{"login_id": f"l{n}", "user_id": f"u{n % 7}"} for n in range(20)]
    return {"Users": users, "Orders": orders, "Lines": lines, "Logins": logins}


KEYS = {
    "Users": {"id": "S"},
    "Orders": {"order_id": "S"},
    "Lines": {"order_id": "S", "line": "N"},
    "Logins": {"login_id": "S"},
}


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Iterator[Shop]:
    mark = secrets.token_hex(3)
    real = {name: f"{mark}-{name.lower()}" for name in KEYS}
    (tmp_path / "mapping.yaml").write_text(MAPPING)
    made = project(tmp_path, "sqlite:///none.db", dynamodb_url, f"S{secrets.token_hex(4)}")
    job = {
        "job": 1,
        "name": "shop",
        "mapping": "mapping.yaml",
        "source": {"dynamodb": {"tables": real, "endpoint": dynamodb_url}},
        "target": {"table": made.table, "endpoint": dynamodb_url},
        "tuning": {"page_rows": 40, "workers": 2},
    }
    made.job.write_text(json.dumps(job))
    with old_tables(dynamodb_url) as tables:
        for name, rows in _rows().items():
            tables.make(real[name], KEYS[name], rows)
        yield Shop(made, tables, real)


def test_four_old_tables_end_in_one(shop: Shop) -> None:
    made, job = shop.project, str(shop.project.job)
    assert pins.said(made.done("mapping", "check", job).out, "declares")
    tried = made.done(
        "mapping", "try", "mapping.yaml", "--source", job, "--entity", "order", "--key", "o4", "--json"
    )
    (order,) = json.loads(tried.out)
    assert order["PK"] == "USER#u4"
    assert [line["sku"] for line in order["lines"]] == ["s8", "s0"]
    made.done("table", "create", job)
    told = made.done("backfill", job)
    assert "shop" not in told.out
    assert pins.said(told.err, "scanned")
    assert "read units" in told.err
    items = shop.items()
    paid = sum(n % 3 != 2 for n in range(ORDERS))
    kinds = [item["type"]["S"] for item in items]
    assert (kinds.count("User"), kinds.count("Order"), kinds.count("Line")) == (USERS, paid, 2 * ORDERS - 20)
    nameless = next(
        item for item in items if item["PK"]["S"] == f"USER#u{USERS}" and item["type"]["S"] == "Order"
    )
    assert "userName" not in nameless
    user = next(item for item in items if item["PK"]["S"] == "USER#u1" and item["SK"]["S"] == "PROFILE")
    assert user["tags"] == {"SS": ["a", "t1"]}
    assert (user["city"], user["logins"]) == ({"S": "City 1"}, {"N": "3"})
    clean = made.done("verify", job)
    assert pins.said(clean.out, "clean")
    assert pins.said(clean.out, "adds")
    made.done("report", job)


def test_stopped_backfill_resumes_at_its_place(shop: Shop) -> None:
    made, job = shop.project, str(shop.project.job)
    text = json.loads(made.job.read_text())
    text["tuning"] |= {"page_rows": 10, "workers": 1}
    text["source"]["max_rows_per_s"] = 60
    made.job.write_text(json.dumps(text))
    made.done("table", "create", job)
    process = made.start("backfill", job)
    while not shop.items() and process.poll() is None:
        time.sleep(0.1)
    process.terminate()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert 0 < len(shop.items()) < USERS + ORDERS
    del text["source"]["max_rows_per_s"]
    made.job.write_text(json.dumps(text))
    assert "is resumed" in made.done("backfill", job).err
    assert pins.said(made.done("verify", job).out)


def test_verify_finds_differences_on_either_side(shop: Shop) -> None:
    made, job = shop.project, str(shop.project.job)
    made.done("table", "create", job)
    made.done("backfill", job)
    client, target = shop.tables.client, made.table
    shop.tables.put(shop.real["Users"], [{"id": "u1", "name": "Another"}])
    client.delete_item(TableName=shop.real["Users"], Key={"id": {"S": "u2"}})
    client.delete_item(TableName=target, Key={"PK": {"S": "USER#u3"}, "SK": {"S": "PROFILE"}})
    ended = made.run("verify", job, "--json")
    assert ended.code == 1
    findings = json.loads(ended.out)["findings"]
    assert findings == {"different": 1, "missing": 1, "unexpected": 1} or {"missing", "unexpected"} <= set(
        findings
    )


def test_sample_proposes_found_attributes_and_reports_variations(shop: Shop) -> None:
    made, job = shop.project, str(shop.project.job)
    shop.tables.put(shop.real["Users"], [{"id": "odd", "name": 5, "yes": True}])
    told = made.done("init", job, "--out", "mapping.yaml", "--force")
    assert pins.said(told.out, users=USERS + 1)
    assert "varies: name" in told.out
    text = (made.folder / "mapping.yaml").read_text()
    for line in (
        f"name: any  # varies: {USERS} have a text (S), 1 have a number (N)",
        f"tags: set(text)  # in {USERS - USERS // 4} of {USERS + 1}",
        "# address.city: text",
        '"yes": boolean',
        "placed: text  # moments: declare timestamp to use |iso",
        "line: integer",
    ):
        assert line in text
    made.done("mapping", "check", job)
    made.done("table", "create", job)
    made.done("backfill", job)
    made.done("verify", job)
    assert len(shop.items()) == sum(map(len, _rows().values())) + 1
    again = made.run("init", job, "--out", "mapping.yaml")
    assert again.code == 2
    assert "add --force" in again.err


# ── bad input ──


def test_a_document_of_another_type_is_a_finding_with_its_key(shop: Shop) -> None:
    made, job = shop.project, str(shop.project.job)
    shop.tables.put(
        shop.real["Users"], [{"id": "odd", "name": 5}, {"id": "flat", "address": "Main Street 1"}]
    )
    shop.tables.put(shop.real["Orders"], [{"order_id": "ox", "user_id": 7, "status": "paid"}])
    made.done("table", "create", job)
    ended = made.run("backfill", job)
    assert ended.code == 1
    found = made.done("status", "--findings", job, "--show-keys")
    assert 'user:["odd"]' in found.out.replace(" ", "") or "odd" in found.out
    assert pins.said(found.out, "document")
    assert pins.said(found.out, "look")
    assert len(shop.items()) > USERS
    assert made.run("verify", job).code == 1


def test_what_the_mapping_declares_must_be_there(shop: Shop) -> None:
    made, job = shop.project, str(shop.project.job)
    made.done("table", "create", job)
    shop.tables.drop(shop.real["Logins"])
    ended = made.run("backfill", job)
    assert ended.code == 3
    assert pins.said(ended.err, "such")
    shop.tables.make(shop.real["Logins"], {"login_id": "N"})
    ended = made.run("backfill", job)
    assert ended.code == 2
    assert pins.said(ended.err, "login")


def test_a_scan_that_costs_more_than_it_may_does_not_begin(shop: Shop) -> None:
    made, job = shop.project, str(shop.project.job)
    made.done("table", "create", job)
    ended = made.run("backfill", job, "--max-cost", "0")
    assert ended.code == 2
    assert pins.said(ended.err)


def test_concurrent_backfill_reports_and_counts_each_pages_scan(shop: Shop) -> None:
    made, job = shop.project, str(shop.project.job)
    mapping = made.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("type: type,", "type: type, ttl: expiresAt,"))
    for command in ("table create", "capture install", "backfill", "relay --once"):
        made.done(*command.split(), job)
    told = made.done("backfill", job, "--restart").err
    assert "path: conditional" in told
    assert pins.said(told)
    assert not pins.said_by("test_four_old_tables_end_in_one scanned", told)


def test_plan_and_verify_count_without_sql(shop: Shop) -> None:
    made, job = shop.project, str(shop.project.job)
    for command in ("table create", "backfill"):
        made.done(*command.split(), job)
    planned = made.done("plan", job).out
    assert "SELECT" not in planned, planned
    shop.tables.put(shop.real["Users"], [{"id": "late", "name": "Late"}])
    verified = made.run("verify", job)
    assert verified.code == 1
    assert "the source counts" in verified.out
    assert "SQL counts" not in verified.out


def test_an_old_table_is_no_target(shop: Shop) -> None:
    made = shop.project
    text = made.job.read_text()
    made.job.write_text(text.replace(f'"table": "{made.table}"', f'"table": "{shop.real["Users"]}"'))
    ended = made.run("backfill", str(made.job))
    assert ended.code == 2
    assert pins.said(ended.err)


@pytest.mark.parametrize(
    "command",
    [
        "relay",
        "shadow replay",
        "reverse check",
        "reverse verify",
        "reverse start --once",
    ],
)
def test_what_documents_lack_is_reported(shop: Shop, command: str) -> None:
    made, job = shop.project, str(shop.project.job)
    made.done("table", "create", job)
    ended = made.run(*command.split(), job)
    assert (ended.code, pins.said(ended.err)) == (2, True), ended.err


def test_several_processes_share_the_read_units(shop: Shop) -> None:
    """Of the table that is largest; each reads segments of its own."""
    made, job = shop.project, str(shop.project.job)
    made.done("table", "create", job)
    text = json.loads(made.job.read_text())
    text["source"]["dynamodb"]["max_read_units"] = 400
    text["tuning"] |= {"page_rows": 10}
    made.job.write_text(json.dumps(text))
    told = tuned(made, processes=2).done("backfill", job, "--json").data
    assert told["total"]["rows"] == USERS + sum(n % 3 != 2 for n in range(ORDERS)) + 2 * ORDERS - 20
    assert pins.said(tuned(made, processes=2).done("verify", job).out)
