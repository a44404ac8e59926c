"""Entities that the service writes itself, on servers: triggers go on evidence, and nothing of ours touches the items."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import OTHER, compared, cutover_shop, desk_of, filled, live, obey, reader
from tests.support_capture import connect
from tests.support_items import put_items

CUSTOMERS = ", ".join(f"({n}, 'Name {n}')" for n in range(1, 31))
INVOICES = ", ".join(f"({n}, {n % 30 + 1}, 5)" for n in range(1, 61))
SHOP = (
    "CREATE TABLE customer (id integer PRIMARY KEY, name varchar(40))",
    "CREATE TABLE invoice (id integer PRIMARY KEY, customer_id integer NOT NULL, total integer)",
    f"INSERT INTO customer VALUES {CUSTOMERS}",
    f"INSERT INTO invoice VALUES {INVOICES}",
)
FIRST = ("C#2", "I#000001")


@pytest.fixture(params=["postgresql", "mariadb"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(engine: str, request: pytest.FixtureRequest) -> str:
    names = {"postgresql": "postgres_database", "mariadb": "mysql_database"}
    return str(request.getfixturevalue(names[engine]))


@pytest.fixture
def shop(engine: str, url: str, tmp_path: Path, dynamodb_url: str) -> Project:
    """Every pattern is live; the one that reads invoices is complete."""
    made = cutover_shop(tmp_path, dynamodb_url)
    made.environment["MIGRATOR_SOURCE_URL"] = url
    change(engine, url, *SHOP)
    live(filled(made))
    with desk_of(made) as session:
        compared(session, made, OTHER)
        obey(session, one := reader(session, made))
        compared(session, made, OTHER)
        made.done("cutover", "advance", str(made.job), OTHER, "--yes", "--one-way")
        session.instances.leave(one)
    made.job.write_text(made.job.read_text() + "writes: {direct: [invoice]}\n")
    return made


def change(engine: str, url: str, *statements: str) -> None:
    """What a service does, each statement in a transaction of its own."""
    with closing(connect(engine, url)) as service:
        cursor = service.cursor()
        for statement in statements:
            cursor.execute(statement)


def test_a_mark_that_waits_keeps_the_triggers_and_then_they_go(shop: Project, engine: str, url: str) -> None:
    job, store = str(shop.job), shop.store()
    change(engine, url, "UPDATE invoice SET total = 6 WHERE id = 3")
    refused = shop.run("capture", "install", job)
    assert (refused.code, pins.said(refused.err)) == (1, True)
    text = shop.job.read_text()
    shop.job.write_text(text.replace("writes: {direct: [invoice]}\n", ""))
    shop.done("relay", job, "--once")
    shop.job.write_text(text)
    shop.done("capture", "install", job)
    status = shop.done("capture", "status", job).out
    assert ("customer: captured" in status, "invoice" in status) == (True, False)
    own = {**store.get([FIRST])[FIRST], "total": 77}
    put_items(store, [own])
    changes = ("UPDATE invoice SET total = 7 WHERE id = 1", "DELETE FROM invoice WHERE id = 2")
    change(engine, url, *changes, "UPDATE customer SET name = 'Grace' WHERE id = 2")
    shop.done("relay", job, "--once")
    shop.done("backfill", job)
    assert "clean" in shop.done("verify", job, "--repair", "--settle", "0").out
    found = store.get([FIRST, ("C#2", "META")])
    assert (found[FIRST], found["C#2", "META"]["name"]) == (own, "Grace")
