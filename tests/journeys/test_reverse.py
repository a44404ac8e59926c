"""`migrator reverse`: direct writers through boto3, rows that follow them, killed once, and equal at the end."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from migrator.journal.operations import RunLease
from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import (
    OTHER,
    compared,
    cutover_shop,
    desk_of,
    filled,
    journal_of,
    live,
    obey,
    reader,
)

WRITES = "writes: {direct: [invoice]}\n"


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    """Invoices are the service's to write; the table has its stream."""
    made = cutover_shop(tmp_path, dynamodb_url)
    job = made.job.read_text()
    assert "target: {" in job
    job = job.replace("target: {", "target: {options: {stream: new_and_old_images}, ", 1)
    made.job.write_text(job.replace("cutover: {", "cutover: {lag_max_s: 600, "))
    shop = live(filled(made))
    with desk_of(shop) as session:
        compared(session, shop, OTHER)
        obey(session, one := reader(session, shop))
        compared(session, shop, OTHER)
        shop.done("cutover", "advance", str(shop.job), OTHER, "--yes", "--one-way")
        session.instances.leave(one)
    return shop


def made_direct(shop: Project) -> None:
    shop.job.write_text(shop.job.read_text() + WRITES)
    shop.done("capture", "install", str(shop.job))


def rows(shop: Project) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(shop.folder / "shop.db")) as connection:
        return connection.execute("SELECT id, customer_id, total FROM invoice ORDER BY id").fetchall()


def rows_of_items(shop: Project) -> list[tuple[Any, ...]]:
    items = (item for item in shop.items() if item.get("type") == "Invoice")
    return sorted((int(str(one["id"])), int(str(one["PK"])[2:]), int(str(one["total"]))) for one in items)


def invoice(number: int, of: int, total: int) -> dict[str, Any]:
    return {
        **{"PK": {"S": f"C#{of}"}, "SK": {"S": f"I#{number:06}"}, "type": {"S": "Invoice"}},
        **{"id": {"N": str(number)}, "total": {"N": str(total)}},
    }


def key(number: int, of: int) -> dict[str, Any]:
    return {name: value for name, value in invoice(number, of, 0).items() if name in ("PK", "SK")}


def writes(shop: Project) -> Iterator[None]:
    """New ones, changed ones, deleted ones, and such that move to another customer: one after the other, and at once."""
    client, table = shop.store().client, shop.table
    for number in range(1, 41):
        of = number % 30 + 1
        if number % 4 == 0:
            client.delete_item(TableName=table, Key=key(number, of))
        elif number % 4 == 1:
            move = [
                {"Put": {"TableName": table, "Item": invoice(number, of % 30 + 1, number)}},
                {"Delete": {"TableName": table, "Key": key(number, of)}},
            ]
            client.transact_write_items(TransactItems=move)
        elif number % 4 == 2:
            client.put_item(TableName=table, Item=invoice(1000 + number, of, number))
        else:
            client.update_item(
                TableName=table,
                Key=key(number, of),
                UpdateExpression="SET #total = :total",
                ExpressionAttributeNames={"#total": "total"},
                ExpressionAttributeValues={":total": {"N": str(number)}},
            )
        yield


def test_rows_follow_direct_writers_while_the_daemon_is_killed(shop: Project) -> None:
    job = str(shop.job)
    assert shop.run("reverse", "status", job).code == 1
    assert pins.said(shop.done("reverse", "start", job, "--once").err, "direct")
    assert "ready" in shop.done("reverse", "check", job).out
    made_direct(shop)
    assert rows(shop) == rows_of_items(shop)
    shop.done("reverse", "start", job, "--once", "--settle", "0s")
    working = shop.start("reverse", "start", job, "--settle", "1s")
    for _ in writes(shop):
        time.sleep(0.05)
        if working.poll() is None and rows(shop) != rows_of_items(shop):
            working.kill()
    working.kill()
    working.wait(60)
    shop.done("reverse", "start", job, "--once", "--settle", "1s")
    assert rows(shop) == rows_of_items(shop)
    assert len(rows(shop)) == 60
    told = shop.done("reverse", "status", job, "--json").data
    assert (told["begun"], told["parked"], told["deletes_waiting"]) == (True, [], 0)
    assert told["sql_writers"] == {"refused": ["invoice"], "let_in": [], "why": ""}
    assert pins.said(shop.run("reverse", "status", job).out, "writers")
    assert "invoice: refused" in shop.done("capture", "status", job).out


def test_reverse_is_stopped_remotely_and_reports_waiting_rows(shop: Project) -> None:
    job = str(shop.job)
    made_direct(shop)
    shop.done("reverse", "start", job, "--once", "--settle", "0s")
    working = shop.start("reverse", "start", job, "--json")
    ended: list[str] = []
    reading = threading.Thread(target=lambda: ended.append(working.communicate()[0]))
    reading.start()
    misfit = {**invoice(2000, 1, 5), "total": {"S": "five"}}
    shop.store().client.put_item(TableName=shop.table, Item=misfit)
    while not shop.run("reverse", "status", job, "--json").data["parked"]:
        assert working.poll() is None
    status = shop.run("reverse", "status", job)
    assert status.code == 1
    assert "misfit" in status.out
    assert "five" not in status.out
    shop.done("reverse", "stop", job)
    reading.join(60)
    assert working.returncode == 0
    assert json.loads(ended[0])["findings"] == 1
    shop.job.write_text(shop.job.read_text().replace(WRITES, ""))
    shop.done("recover", job, "entity-taken-back")
    taken_back = shop.done("reverse", "status", job, "--json").data
    assert (taken_back["parked"], taken_back["deletes_waiting"]) == ([], 0)


def test_a_table_without_its_stream_is_refused(shop: Project) -> None:
    made_direct(shop)
    shop.store().client.update_table(TableName=shop.table, StreamSpecification={"StreamEnabled": False})
    for words in (["check"], ["start", "--once"]):
        refused = shop.run("reverse", words[0], str(shop.job), *words[1:])
        assert "no stream" in refused.out + refused.err
        assert refused.code == (1 if words == ["check"] else 2)


def _repair_alone_deletes_none(shop: Project) -> None:
    """And it writes nothing beside the way back."""
    repair = ("reverse", "verify", str(shop.job), "--repair", "--settle", "0s")
    before = rows(shop)
    with journal_of(shop) as journal, RunLease(journal, "shop"):
        beside = shop.run(*repair)
    assert (beside.code, rows(shop)) == (2, before)
    kept = shop.run(*repair)
    assert pins.said(kept.err, "repair_alone_deletes_none-stay")
    assert (kept.code, len(rows(shop)) - len(rows_of_items(shop))) == (1, 1)


def test_changes_lost_with_a_stream_are_repaired_by_verify(shop: Project) -> None:
    job, client = str(shop.job), shop.store().client
    assert shop.done("reverse", "verify", job, "--json").data["clean"]
    made_direct(shop)
    unbegun = shop.run("reverse", "verify", job, "--repair")
    assert (unbegun.code, pins.said(unbegun.err, "begun")) == (2, True)
    for enabled in (False, True):
        client.put_item(TableName=shop.table, Item=invoice(3000 + enabled, 1, 7))
        client.delete_item(TableName=shop.table, Key=key(6, 7))
        view = {"StreamViewType": "NEW_AND_OLD_IMAGES"} if enabled else {}
        client.update_table(TableName=shop.table, StreamSpecification={"StreamEnabled": enabled, **view})
    with closing(sqlite3.connect(shop.folder / "shop.db")) as connection:
        connection.execute("UPDATE invoice SET total = total + 1 WHERE id IN (9, 10)")
        connection.commit()
    shop.done("reverse", "start", job, "--once", "--restart", "--settle", "0s")
    told = shop.run("reverse", "verify", job, "--settle", "0s", "--json")
    assert told.code == 1
    assert {(one["table"], one["kind"], one["rows"]) for one in told.data["differences"]} == {
        ("invoice", "no row", 2),
        ("invoice", "no item", 1),
        ("invoice", "different", 2),
    }
    shown = shop.run("reverse", "verify", job, "--settle", "0s")
    assert (shown.code, pins.said(shown.out, "otherwise")) == (1, True)
    _repair_alone_deletes_none(shop)
    shop.done("reverse", "verify", job, "--repair", "--delete-rows", "--settle", "1s")
    assert rows(shop) == rows_of_items(shop)
    assert shop.done("reverse", "verify", job).out == pins.text("clean")
    with closing(sqlite3.connect(shop.folder / "shop.db")) as connection:
        with pytest.raises(sqlite3.IntegrityError, match="rows of invoice are made of items in DynamoDB"):
            connection.execute("DELETE FROM invoice")
        # As an operator who has to.
        connection.execute("INSERT INTO migrator_mark (id) VALUES (0)")
        connection.execute("DELETE FROM invoice")
        connection.execute("DELETE FROM migrator_mark")
        connection.commit()
    assert shop.run("reverse", "verify", job, "--settle", "0s").code == 1
    shop.done("reverse", "verify", job, "--repair", "--settle", "0s")
    assert rows(shop) == rows_of_items(shop)
    assert len(rows(shop)) == 61


def test_a_repair_reports_what_is_queued(shop: Project) -> None:
    job = str(shop.job)
    made_direct(shop)
    shop.done("reverse", "start", job, "--once", "--settle", "0s")
    many = {**invoice(77, 1, 5), "total": {"S": "many"}}
    shop.store().client.put_item(TableName=shop.table, Item=many)
    ended = shop.run("reverse", "verify", job, "--repair", "--settle", "0s")
    assert (ended.code, "misfit" in ended.err) == (1, True), ended.err
