"""Tables whose rows are made of items: what others write to them is refused, what the way back writes is not."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from migrator.mapping.model.facts import TableFacts
from migrator.mapping.model.live import CaptureState, IntendedRow
from migrator.runtime.retry import Retry
from migrator.source.engines.base import ConnectionOptions
from migrator.source.engines.connect import address_of
from migrator.source.sql.row_writing import SqlRowWriter
from migrator.stages.reverse.daemon import SqlWriterStatus, sql_writers
from migrator.stages.session.source import secret_providers
from tests import pins
from tests.integration.test_capture_install import catalogue
from tests.support_capture import Capturing, captured

SCHEMA = (
    "CREATE TABLE buyer (id integer PRIMARY KEY, name varchar(20))",
    "CREATE TABLE bill (id integer PRIMARY KEY, buyer_id integer, total integer,"
    " FOREIGN KEY (buyer_id) REFERENCES buyer (id) ON DELETE CASCADE)",
    "INSERT INTO buyer VALUES (1, 'a'), (2, 'b')",
    "INSERT INTO bill VALUES (1, 1, 5), (2, 2, 6)",
)
WRITES = {
    "sqlite": ("INSERT OR REPLACE INTO bill VALUES (1, 1, 9)", "INSERT OR IGNORE INTO bill VALUES (9, 1, 9)"),
    "postgresql": (
        "TRUNCATE bill",
        "INSERT INTO bill VALUES (1, 1, 9) ON CONFLICT (id) DO UPDATE SET total = 9",
    ),
    "mariadb": ("REPLACE INTO bill VALUES (1, 1, 9)", "INSERT IGNORE INTO bill VALUES (9, 1, 9)"),
}
COMMON = (
    "INSERT INTO bill VALUES (9, 1, 9)",
    "UPDATE bill SET total = 9 WHERE id = 1",
    "DELETE FROM bill WHERE id = 1",
)


def bill(shop: Capturing) -> TableFacts:
    return shop.table("bill")


def refused(shop: Capturing) -> SqlWriterStatus:
    return sql_writers(shop.capture, "shop", [bill(shop)], refuse=True)


def write(shop: Capturing, *changes: IntendedRow) -> list[str]:
    address = address_of(shop.url, (), secret_providers(Path()))
    writer = SqlRowWriter(address, ConnectionOptions(pool_size=1), Retry(), shop.source.facts())
    with closing(writer):
        return [one.kind for one in writer.write(changes, lambda: None)]


def change(shop: Capturing, number: int, values: dict[str, Any] | None) -> IntendedRow:
    return IntendedRow(bill(shop), {"id": number}, values)


def bills(shop: Capturing) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in shop.source.query("SELECT id, buyer_id, total FROM bill ORDER BY id", {})]


def states(shop: Capturing, *tables: str) -> dict[str, CaptureState]:
    of = [captured(shop.table(name), ["id"]) for name in tables]
    return {one.table.rpartition(".")[2]: one.state for one in shop.capture.states(of)}


def test_writes_of_others_are_refused_with_a_reason(shop: Capturing) -> None:
    shop.install(captured(shop.table("buyer"), ["id", "name"]))
    assert refused(shop) == SqlWriterStatus(("bill",))
    for statement in (*COMMON, *WRITES[shop.engine]):
        with pins.refused(Exception):
            shop.run(statement)
    assert bills(shop) == [(1, 1, 5), (2, 2, 6)]
    shop.run("UPDATE buyer SET name = 'c' WHERE id = 1")
    assert len(shop.left()) == 1


def test_reverse_writes_and_leaves_nothing_behind(shop: Capturing) -> None:
    shop.install()
    refused(shop)
    values = {"id": 1, "buyer_id": 2, "total": 7}
    assert write(shop, change(shop, 1, values), change(shop, 2, None)) == []
    assert write(shop, change(shop, 3, {"id": 3, "buyer_id": 99, "total": 7})) == ["foreign key"]
    assert bills(shop) == [(1, 2, 7)]
    assert shop.left() == []
    with pins.refused(Exception):
        shop.run("DELETE FROM bill")


def test_done_twice_it_does_nothing_and_an_install_keeps_it(shop: Capturing) -> None:
    buyer = captured(shop.table("buyer"), ["id", "name"])
    shop.install(buyer)
    assert sql_writers(shop.capture, "shop", [bill(shop)], refuse=False) == SqlWriterStatus((), ("bill",))
    refused(shop)
    assert shop.capture.refuse_steps([bill(shop)]) == []
    assert shop.capture.install_steps([buyer], "shop") == []
    assert sql_writers(shop.capture, "shop", [bill(shop)], refuse=False) == SqlWriterStatus(("bill",))
    assert states(shop, "buyer")["bill"] == "refused"


def test_table_captured_again_can_be_written_and_is_marked(shop: Capturing) -> None:
    buyer, again = captured(shop.table("buyer"), ["id"]), captured(bill(shop), ["id"])
    shop.install(buyer)
    refused(shop)
    assert states(shop, "buyer", "bill")["bill"] == "stale"
    shop.install(buyer, again)
    assert states(shop, "buyer", "bill") == {"buyer": "captured", "bill": "captured"}
    shop.run("UPDATE bill SET total = 8 WHERE id = 1")
    assert [mark.table.rpartition(".")[2] for mark in shop.left()] == ["bill"]


def test_marking_services_may_write_again(shop: Capturing) -> None:
    of_services = shop.capture.install_steps([], "shop", "services")
    for step in of_services:
        shop.capture.do(step)
    refused(shop)
    again = captured(bill(shop), ["id"])
    assert shop.capture.refusals([again], "services") == []
    assert {one.state for one in shop.capture.states([])} == {"refused"}
    for step in shop.capture.install_steps([again], "shop", "services"):
        shop.capture.do(step)
    shop.run("UPDATE bill SET total = 8 WHERE id = 1")


def test_uninstall_removes_the_guard_absent_without_capture(shop: Capturing) -> None:
    before = catalogue(shop)
    assert pins.said(refused(shop).why)
    shop.install()
    refused(shop)
    shop.uninstall()
    assert catalogue(shop) == before
    shop.run("DELETE FROM bill")


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_rows_that_a_cascade_deletes_are_refused(shop: Capturing) -> None:
    shop.install()
    refused(shop)
    with pins.refused(Exception):
        shop.run("DELETE FROM buyer WHERE id = 1")


@pytest.mark.parametrize("each", ["mariadb"], indirect=True)
def test_no_trigger_of_mariadb_sees_a_cascade(shop: Capturing) -> None:
    shop.install()
    refused(shop)
    shop.run("DELETE FROM buyer WHERE id = 1")
    assert bills(shop) == [(2, 2, 6)]
