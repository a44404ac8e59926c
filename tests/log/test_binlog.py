"""Capture from MySQL's binary log, where it has something of its own: statements, XA transactions, settings."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.engine import Connection

from migrator.source.capture.log.mysql.server import settings, table_faults
from migrator.source.engines.ddl import Ddl
from tests.log.shops import WRITES, BinlogShop
from tests.support_capture import captured, capturing
from tests.support_mysql import connect, numbers

pytestmark = [pytest.mark.slow, pytest.mark.engines("mysql")]


def test_statements_that_write_in_other_ways(live: BinlogShop, tmp_path: Path) -> None:
    """REPLACE, upserts, several tables, LOAD DATA, SET NULL, no checks of foreign keys, savepoints, a tagged transaction."""
    live.sql(
        "CREATE TABLE pet (id integer PRIMARY KEY, owner integer, name varchar(20) UNIQUE,"
        " FOREIGN KEY (owner) REFERENCES customer (id) ON UPDATE CASCADE ON DELETE SET NULL)",
        f"INSERT INTO pet SELECT seq, seq % 5 + 11, concat('pet', seq) FROM {numbers(20)}",
    )
    live.grown("  pet: {items: {Pet: {key: ['O#{owner|or:none}', 'P#{id}'], keep: [name]}}}\n")
    live.sql(
        "REPLACE INTO pet VALUES (1, 20, 'pet2')",
        "INSERT INTO pet VALUES (3, 15, 'x'), (300, 15, 'y') ON DUPLICATE KEY UPDATE owner = 16",
        "INSERT IGNORE INTO pet VALUES (4, 15, 'never')",
        "DELETE customer, pet FROM customer JOIN pet ON pet.owner = customer.id WHERE customer.id = 13",
        "UPDATE customer JOIN pet ON pet.owner = customer.id SET customer.name = 'two', pet.name = concat('a', pet.id)"
        " WHERE customer.id = 14",
        "UPDATE customer SET id = 1011 WHERE id = 11",
        "DELETE FROM customer WHERE id = 12",
        "SET foreign_key_checks = 0",
        "DELETE FROM customer WHERE id = 15",
        "BEGIN",
        "UPDATE pet SET name = 'kept' WHERE id = 8",
        "SAVEPOINT one",
        "DELETE FROM pet WHERE id = 9",
        "ROLLBACK TO one",
        "COMMIT",
        "CREATE TABLE copy SELECT * FROM pet",
        "INSERT INTO pet SELECT id + 1000, owner, concat('copy', id) FROM copy",
        "SET gtid_next = 'AUTOMATIC:of_tests'",
        "UPDATE pet SET owner = 20 WHERE id = 10",
    )
    file = tmp_path / "pets"
    file.write_text("2000\t20\tloaded\n1003\t20\tloaded too\n")
    live.sql("SET GLOBAL local_infile = ON")
    with closing(connect(live.url, local_infile=True)) as connection, connection.cursor() as cursor:
        cursor.execute(f"LOAD DATA LOCAL INFILE '{file}' REPLACE INTO TABLE pet")
    live.come_to_rest()
    assert {"O#none", "O#1011"} <= {item["PK"] for item in live.items_of("Pet")}


def test_a_chain_of_cascades(live: BinlogShop) -> None:
    live.sql(
        "CREATE TABLE line (id integer PRIMARY KEY, order_id integer, FOREIGN KEY (order_id) REFERENCES orders (id)"
        " ON DELETE CASCADE ON UPDATE CASCADE)",
        f"INSERT INTO line SELECT seq, seq % 60 + 1 FROM {numbers(200)}",
    )
    live.grown("  line: {items: {Line: {key: ['O#{order_id}', 'L#{id}'], keep: [id]}}}\n")
    live.sql("DELETE FROM customer WHERE id < 4", "UPDATE orders SET id = id + 1000 WHERE id > 50")
    live.come_to_rest()


# ── XA transactions: in the log when they are prepared, true when they are committed ──


def test_a_reader_holds_xa_transactions_until_they_end(live: BinlogShop) -> None:
    """It passes by them, and one that begins at its position gets them again. One in one phase is never prepared."""
    kept, gone, once = (f"{word}{secrets.token_hex(4)}" for word in ("kept", "gone", "once"))
    live.prepared(kept, "UPDATE customer SET email = 'xa@x.example' WHERE id = 1")
    live.prepared(gone, "UPDATE customer SET email = 'no@x.example' WHERE id = 2")
    live.sql("UPDATE customer SET name = 'between' WHERE id = 3")
    live.relay()
    assert live.firsts("SELECT held <> '' FROM migrator_log") == [1]
    live.sql(f"XA COMMIT '{kept}'", f"XA ROLLBACK '{gone}'")
    deletes = ("DELETE FROM orders WHERE id = 9", f"XA END '{once}'")
    live.sql(f"XA START '{once}'", *deletes, f"XA COMMIT '{once}' ONE PHASE")
    live.come_to_rest()
    assert "xa@x.example" in live.emails()
    assert live.firsts("SELECT held FROM migrator_log") == [""]


def test_xa_transaction_before_the_install_is_reported(shop: BinlogShop) -> None:
    """What it changed is nowhere in the log that is read."""
    shop.project.done("table", "create", shop.job)
    xid = secrets.token_hex(4)
    shop.prepared(xid, "UPDATE customer SET email = 'old@x.example' WHERE id = 1")
    shop.install()
    shop.project.done("backfill", shop.job)
    shop.sql(f"XA COMMIT '{xid}'")
    ended = shop.project.run("relay", shop.job, "--once")
    assert (ended.code, "log_has_an_older_xa_transaction" in ended.err) == (1, True)
    assert shop.project.run("verify", shop.job, "--repair").code == 1
    shop.project.run("relay", shop.job, "--once")
    shop.project.done("relay", shop.job, "--once", "--discard-marks")
    shop.verify()


# ── statements that change rows without an event for each ──


@pytest.mark.parametrize(
    "statements",
    [
        ["TRUNCATE TABLE orders"],
        ["TRUNCATE /* all */ events"],
        ["SET sql_mode = 'ANSI_QUOTES'", 'TRUNCATE TABLE "events"'],
        ["ALTER TABLE events TRUNCATE PARTITION p1"],
        ["ALTER TABLE `events` DROP PARTITION p2"],
        [
            "SET foreign_key_checks = 0",
            "TRUNCATE customer",
            "INSERT INTO customer VALUES (1, 'a', NULL, NULL)",
        ],
    ],
    ids=str,
)
def test_rows_that_go_without_events_take_their_items_away(live: BinlogShop, statements: list[str]) -> None:
    live.sql(*statements)
    live.relay()
    if "customer" not in str(statements):
        live.verify()
        return
    # Orders without a customer are refused rows, whose items go.
    live.project.run("verify", live.job, "--repair")
    live.relay()


def test_a_truncate_from_another_database(live: BinlogShop) -> None:
    live.sql("USE mysql", f"TRUNCATE TABLE `{live.database}`.`events`")
    live.come_to_rest()
    assert live.items_of("Event") == []


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE other LIKE events", "ALTER TABLE other REMOVE PARTITIONING", "INSERT INTO other VALUES (500, 5, 'new')",
         "ALTER TABLE events EXCHANGE PARTITION p1 WITH TABLE other"],
        ["CREATE TABLE other LIKE events", "INSERT INTO other VALUES (500, 5, 'new')",
         "RENAME TABLE events TO old, other TO events"],
        ["SET binlog_format = STATEMENT", "SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ",
         "UPDATE events SET what = 'unseen' WHERE id < 5"],
        ["SET binlog_row_image = MINIMAL", "UPDATE events SET what = 'half' WHERE id = 3", "DELETE FROM events WHERE id = 4"],
    ],
    ids=["exchange", "rename", "statement", "minimal"],
)  # fmt: skip
def test_rows_missing_from_the_log_are_reported(live: BinlogShop, statements: list[str]) -> None:
    """They become findings, until a verify has found the rows."""
    live.sql(*statements)
    ended = live.project.run("relay", live.job, "--once")
    assert ended.code == 1
    assert live.project.run("verify", live.job, "--repair").code == 1
    live.project.run("relay", live.job, "--once")
    live.project.done("relay", live.job, "--once", "--discard-marks")
    live.verify()


def test_members_that_are_renamed_make_capture_stale(live: BinlogShop) -> None:
    live.sql(
        "CREATE TABLE person (id integer PRIMARY KEY, m enum('sad', 'glad'))",
        "INSERT INTO person VALUES (1, 'sad'), (2, 'glad'), (3, 'sad')",
    )
    live.grown("  person: {items: {Person: {key: ['M#{m}', 'P#{id}'], keep: [id]}}}\n")
    live.sql(
        "UPDATE person SET m = 'glad' WHERE id = 1",
        "ALTER TABLE person MODIFY m enum('sad', 'glad', 'calm', 'blue')",
        "UPDATE person SET m = 'blue' WHERE m = 'sad'",
        "ALTER TABLE person MODIFY m enum('blue', 'glad', 'calm')",
        "DELETE FROM person WHERE id = 2",
    )
    assert live.states()["person"] == "stale"
    live.install()
    live.come_to_rest()


# ── what is refused ──


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("binlog_row_metadata", "MINIMAL"),
        ("binlog_row_image", "NOBLOB"),
        ("binlog_format", "MIXED"),
        ("binlog_row_value_options", "PARTIAL_JSON"),
        ("binlog_transaction_compression", "ON"),
        ("gtid_mode", "ON_PERMISSIVE"),
    ],
)
def test_a_setting_that_the_log_needs_is_named(live: BinlogShop, name: str, value: str) -> None:
    """Before an install, and in its status afterwards."""
    with live.setting(name, value):
        assert name in live.install_refused()
        assert set(live.states().values()) == {"lost" if name == "gtid_mode" else "missing"}
    assert set(live.states().values()) == {"captured"}


def test_a_log_without_checksums(live: BinlogShop) -> None:
    """Files with and without them, and a reader that goes from the one to the other."""
    live.sql(WRITES[0])
    with live.setting("binlog_checksum", "NONE"):
        live.sql(*WRITES[1:6])
        live.relay()
        live.sql(*WRITES[6:])
        live.relay()
        assert live.firsts("SELECT file FROM migrator_log") == live.firsts("SHOW BINARY LOG STATUS")
        live.sql("UPDATE customer SET name = 'last' WHERE id = 9")
    live.sql("UPDATE customer SET name = 'checked' WHERE id = 10")
    live.come_to_rest()


def test_cascading_keys_are_refused_if_the_log_lacks_them(shop: BinlogShop) -> None:
    """By the real keys, with the settings of a server that does not log what they change: each version before 9.6."""
    with capturing(shop.engine, shop.url) as opened:
        tables = [captured(opened.table(name), ["id"]) for name in ("customer", "orders")]

        def faults(found: dict[str, str]) -> list[str]:
            def work(connection: Connection, _: Ddl) -> list[str]:
                here = {**settings(connection), **found}
                return list(table_faults(connection, here, tables, shop.database))

            return opened.writing.look("looking", work)

        assert faults({}) == []
        (fault,) = faults({"innodb_native_foreign_keys": "ON"})
    assert "table orders: its foreign key orders_ibfk_1 has an action (ON DELETE CASCADE" in fault


def test_keys_of_documents_are_refused(shop: BinlogShop) -> None:
    shop.sql("CREATE TABLE doc (id json, n integer PRIMARY KEY)")
    shop.read_more("  doc: {key: [n], items: {Doc: {key: ['D#{id}', 'N#{n}'], keep: [n]}}}\n")
    assert "a document or a vector" in shop.install_refused()


def test_doctor_warns_of_a_log_that_is_kept_for_a_short_time(live: BinlogShop) -> None:
    assert live.lag()["keeps_s"] == 2_592_000
    with live.setting("binlog_expire_logs_seconds", "3600"):
        assert (live.shown, "warning") in live.checks()
