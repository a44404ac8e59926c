"""A job that is captured from MySQL's binary log, from its install to its end."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from sqlalchemy.engine import Connection

from migrator.source.capture.log.mysql.server import settings, table_faults
from migrator.source.capture.log.reader import LogMarks
from migrator.source.engines.ddl import Ddl
from tests.log.test_from_the_log import _statements, grown
from tests.nightly.binlog.conftest import BinlogShop, begun, open_reader
from tests.support_capture import captured, capturing
from tests.support_mysql import connect, numbers

# Settings of the server, and XA transactions of other tests, would be seen by every one.
pytestmark = pytest.mark.xdist_group("binlog")

WRITES = (
    "INSERT INTO customer VALUES (100, 'New', 'new@x.example', NULL)",
    "INSERT INTO orders VALUES (100, 100, 7)",
    "UPDATE customer SET name = 'Other' WHERE id = 3",
    "UPDATE customer SET email = 'moved@x.example' WHERE id = 4",
    "UPDATE customer SET email = NULL WHERE id = 6",
    "UPDATE orders SET id = 200 WHERE id = 2",
    "UPDATE orders SET customer_id = 100 WHERE id = 1",
    "DELETE FROM customer WHERE id = 5",
    "UPDATE customer SET id = 107 WHERE id = 7",
    "UPDATE events SET day = 150 WHERE id = 1",
    "UPDATE events SET what = 'said' WHERE id < 10",
    "DELETE FROM events WHERE id = 2",
)
"""Cascades, keys that change, rows that move to another partition."""


def test_changes_of_every_kind_become_items(live: BinlogShop) -> None:
    live.sql(*WRITES, "BEGIN", "DELETE FROM orders WHERE id = 7", "ROLLBACK")
    live.relay()
    live.verify()
    assert set(live.states().values()) == {"captured"}
    assert live.triggers() == 0


def test_statements_that_write_in_other_ways(live: BinlogShop, tmp_path: Path) -> None:
    """REPLACE, upserts, several tables, LOAD DATA, SET NULL, no checks of foreign keys, savepoints, a tagged transaction."""
    live.sql(
        "CREATE TABLE pet (id integer PRIMARY KEY, owner integer, name varchar(20) UNIQUE,"
        " FOREIGN KEY (owner) REFERENCES customer (id) ON UPDATE CASCADE ON DELETE SET NULL)",
        f"INSERT INTO pet SELECT seq, seq % 5 + 11, concat('pet', seq) FROM {numbers(20)}",
    )
    grown(live, "  pet: {items: {Pet: {key: ['O#{owner|or:none}', 'P#{id}'], keep: [name]}}}\n")
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
    live.relay()
    live.verify()
    pets = {item["PK"] for item in live.project.items() if item["type"] == "Pet"}
    assert {"O#none", "O#1011"} <= pets


def test_a_chain_of_cascades(live: BinlogShop) -> None:
    live.sql(
        "CREATE TABLE line (id integer PRIMARY KEY, order_id integer, FOREIGN KEY (order_id) REFERENCES orders (id)"
        " ON DELETE CASCADE ON UPDATE CASCADE)",
        f"INSERT INTO line SELECT seq, seq % 60 + 1 FROM {numbers(200)}",
    )
    grown(live, "  line: {items: {Line: {key: ['O#{order_id}', 'L#{id}'], keep: [id]}}}\n")
    live.sql("DELETE FROM customer WHERE id < 4", "UPDATE orders SET id = id + 1000 WHERE id > 50")
    live.relay()
    live.verify()


def test_a_large_transaction_and_long_values(live: BinlogShop) -> None:
    """Rows of more than 16 MB in one event come in several packets."""
    live.sql(
        "UPDATE customer SET note = repeat('x', 17000000) WHERE id = 1",
        f"INSERT INTO customer SELECT seq, 'N', NULL, repeat('y', 900) FROM {numbers(3000, 1000)}",
        "BEGIN",
        "UPDATE customer SET name = 'M' WHERE id >= 1000",
        "DELETE FROM customer WHERE id >= 2000",
        "COMMIT",
        "UPDATE customer SET note = NULL WHERE id = 1",
    )
    live.relay()
    live.verify()


# ── XA transactions: in the log when they are prepared, true when they are committed ──


def prepared(shop: BinlogShop, xid: str, *statements: str) -> None:
    with closing(shop.connect()) as connection, connection.cursor() as cursor:
        for statement in (f"XA START '{xid}'", *statements, f"XA END '{xid}'", f"XA PREPARE '{xid}'"):
            cursor.execute(statement)


def test_xa_transactions_leave_marks_when_they_are_committed(live: BinlogShop) -> None:
    kept, gone = (f"{word}{secrets.token_hex(4)}" for word in ("kept", "gone"))
    prepared(live, kept, "UPDATE customer SET email = 'xa@x.example' WHERE id = 1")
    prepared(live, gone, "UPDATE customer SET email = 'no@x.example' WHERE id = 2")
    live.sql("UPDATE customer SET name = 'between' WHERE id = 3")
    # The reader passes by the two, stores its position, and ends.
    live.relay()
    assert live.rows("SELECT held <> '' FROM migrator_log") == [(1,)]
    live.sql(f"XA COMMIT '{kept}'", f"XA ROLLBACK '{gone}'")
    once = f"once{secrets.token_hex(4)}"
    live.sql(
        f"XA START '{once}'",
        "DELETE FROM orders WHERE id = 9",
        f"XA END '{once}'",
        f"XA COMMIT '{once}' ONE PHASE",
    )
    live.relay()
    live.verify()
    assert "EMAIL#xa@x.example" in {item["PK"] for item in live.project.items()}
    assert live.rows("SELECT held FROM migrator_log") == [("",)]


def test_an_xa_transaction_of_before_the_install_is_told(shop: BinlogShop) -> None:
    """What it changed is nowhere in the log that is read."""
    shop.project.done("table", "create", shop.job)
    xid = secrets.token_hex(4)
    prepared(shop, xid, "UPDATE customer SET email = 'old@x.example' WHERE id = 1")
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
    name = live.url.rpartition("/")[2]
    live.sql("USE mysql", f"TRUNCATE TABLE `{name}`.`events`")
    live.relay()
    live.verify()
    assert not [item for item in live.project.items() if item["type"] == "Event"]


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
def test_rows_that_the_log_does_not_have_are_told(live: BinlogShop, statements: list[str]) -> None:
    """They become findings, until a verify has found the rows."""
    live.sql(*statements)
    ended = live.project.run("relay", live.job, "--once")
    assert ended.code == 1
    assert live.project.run("verify", live.job, "--repair").code == 1
    live.project.run("relay", live.job, "--once")
    live.project.done("relay", live.job, "--once", "--discard-marks")
    live.verify()


def test_columns_that_change(live: BinlogShop) -> None:
    live.sql(
        "UPDATE customer SET name = 'before' WHERE id = 1",
        "ALTER TABLE customer ADD COLUMN more integer DEFAULT 5 FIRST",
        "UPDATE customer SET name = 'between', email = 'between@x.example' WHERE id = 2",
        "ALTER TABLE customer DROP COLUMN more",
        "UPDATE customer SET email = 'after@x.example' WHERE id = 3",
    )
    assert set(live.states().values()) == {"captured"}
    live.relay()
    live.verify()


def test_members_that_are_renamed_make_capture_stale(live: BinlogShop) -> None:
    live.sql("CREATE TABLE person (id integer PRIMARY KEY, m enum('sad', 'glad'))")
    live.sql("INSERT INTO person VALUES (1, 'sad'), (2, 'glad'), (3, 'sad')")
    grown(live, "  person: {items: {Person: {key: ['M#{m}', 'P#{id}'], keep: [id]}}}\n")
    live.sql(
        "UPDATE person SET m = 'glad' WHERE id = 1",
        "ALTER TABLE person MODIFY m enum('sad', 'glad', 'calm', 'blue')",
        "UPDATE person SET m = 'blue' WHERE m = 'sad'",
        "ALTER TABLE person MODIFY m enum('blue', 'glad', 'calm')",
        "DELETE FROM person WHERE id = 2",
    )
    assert live.states()["person"] == "stale"
    live.install()
    live.relay()
    live.verify()


# ── install and uninstall ──


def test_the_install_is_printed_and_nothing_is_done(shop: BinlogShop) -> None:
    printed = shop.install("--dry-run")
    assert "gtid_executed" in printed
    assert printed == shop.install("--as", "sql") or "migrator_log" in printed
    refused = shop.project.run("capture", "install", shop.job, "--by", "log", "--as", "alembic")
    assert (refused.code, "--as sql" in refused.err) == (2, True)
    assert shop.rows("SHOW TABLES LIKE 'migrator%'") == []
    # What is printed is the install.
    shop.sql(*_statements(printed))
    assert "nothing to change" in shop.install()
    assert set(shop.states().values()) == {"captured"}


def test_a_second_install_changes_nothing_and_uninstall_leaves_nothing(live: BinlogShop) -> None:
    assert "nothing to change" in live.install()
    live.sql("UPDATE customer SET name = 'x' WHERE id = 1")
    refused = live.project.run("capture", "uninstall", live.job)
    assert (refused.code, "1 mark waits, and" in refused.err) == (2, True)
    live.relay()
    assert "binary log" in live.project.done("capture", "uninstall", live.job).out
    assert live.rows("SHOW TABLES LIKE 'migrator%'") == []
    assert live.triggers() == 0
    assert "not installed" in live.project.done("capture", "uninstall", live.job).out


def test_a_table_that_the_mapping_reads_later(live: BinlogShop) -> None:
    live.sql(
        "CREATE TABLE note (id integer PRIMARY KEY, words text)", "INSERT INTO note VALUES (1, 'a'), (2, 'b')"
    )
    mapping = live.project.folder / "mapping.yaml"
    mapping.write_text(
        mapping.read_text() + "  note: {items: {Note: {key: ['N#{id}', META], keep: [words]}}}\n"
    )
    assert live.project.run("relay", live.job, "--once").code == 2
    assert "note" in live.project.done("capture", "install", live.job).out
    live.project.done("backfill", live.job)
    live.sql("UPDATE note SET words = 'c' WHERE id = 1", "DELETE FROM note WHERE id = 2")
    live.relay()
    live.verify()


def test_from_triggers_to_the_log_and_back(shop: BinlogShop) -> None:
    """What was written before each turn, and not yet relayed, is not lost."""
    shop.project.done("table", "create", shop.job)
    shop.project.done("capture", "install", shop.job)
    shop.project.done("backfill", shop.job)
    shop.sql(*WRITES[:5])
    shop.install()
    assert shop.triggers() == 0
    shop.sql(*WRITES[5:])
    shop.relay()
    shop.verify()
    shop.sql("UPDATE customer SET email = 'back@x.example' WHERE id = 8")
    assert "nothing to change" in shop.project.done("capture", "install", shop.job).out
    shop.project.done("capture", "install", shop.job, "--by", "triggers")
    shop.sql("UPDATE customer SET email = 'later@x.example' WHERE id = 9")
    assert set(shop.states().values()) == {"captured"}
    assert shop.rows("SHOW TABLES LIKE 'migrator_log'") == []
    shop.relay()
    shop.verify()


def test_installing_does_not_change_whether_a_statement_succeeds(shop: BinlogShop) -> None:
    statements = [*WRITES, "INSERT INTO orders VALUES (1, 1, 1)", "UPDATE orders SET customer_id = 999"]

    def outcomes() -> list[bool]:
        found = []
        with closing(shop.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for statement in statements:
                try:
                    cursor.execute(statement)
                    found.append(True)
                except Exception:
                    found.append(False)
            cursor.execute("ROLLBACK")
        return found

    before = outcomes()
    shop.install()
    assert outcomes() == before
    assert before.count(False) == 2


# ── what is refused ──


@contextmanager
def setting(shop: BinlogShop, name: str, value: str) -> Iterator[None]:
    (before,) = shop.rows(f"SELECT @@GLOBAL.{name}")
    shop.sql(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        shop.sql(
            f"SET GLOBAL {name} = '{before[0]}'"
            if isinstance(before[0], str)
            else f"SET GLOBAL {name} = {before[0]}"
        )


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
    with setting(live, name, value):
        ended = live.project.run("capture", "install", live.job, "--by", "log")
        assert (ended.code, name in " ".join(ended.err.split())) == (2, True)
        assert set(live.states().values()) == {"lost" if name == "gtid_mode" else "missing"}
    assert set(live.states().values()) == {"captured"}


def test_a_log_without_checksums(live: BinlogShop) -> None:
    """Files with and without them, and a reader that goes from the one to the other."""
    live.sql(WRITES[0])
    with setting(live, "binlog_checksum", "NONE"):
        live.sql(*WRITES[1:6])
        live.relay()
        live.sql(*WRITES[6:])
        live.relay()
        (file,) = live.rows("SELECT file FROM migrator_log")
        assert file[0] == live.rows("SHOW BINARY LOG STATUS")[0][0]
        live.sql("UPDATE customer SET name = 'last' WHERE id = 9")
    live.sql("UPDATE customer SET name = 'checked' WHERE id = 10")
    live.relay()
    live.verify()


def test_a_user_without_rights_is_refused_and_one_with_the_printed_grants_relays(shop: BinlogShop) -> None:
    user = f"u_{secrets.token_hex(4)}"
    database = shop.url.rpartition("/")[2]
    parts = urlsplit(shop.url)
    theirs = urlunsplit(parts._replace(netloc=f"{user}:word@127.0.0.1:{parts.port}"))
    # The server's own way of logging in, with the password sent by RSA.
    shop.sql(f"CREATE USER {user}@'%' IDENTIFIED BY 'word'", f"GRANT SELECT ON `{database}`.* TO {user}@'%'")
    try:
        shop.project.environment["MIGRATOR_SOURCE_URL"] = theirs
        ended = shop.project.run("capture", "install", shop.job, "--by", "log")
        assert ended.code == 2
        assert "REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO" in " ".join(ended.err.split())
        shop.project.environment["MIGRATOR_SOURCE_URL"] = shop.url
        live = begun(shop)
        printed = live.project.done(
            "export", "--as", "grants", live.job, "--role", "relay", "--user", user
        ).out
        live.sql(f"REVOKE SELECT ON `{database}`.* FROM {user}@'%'", *_statements(printed))
        live.sql("UPDATE customer SET email = 'granted@x.example' WHERE id = 1")
        live.project.environment["MIGRATOR_SOURCE_URL"] = theirs
        live.relay()
        live.project.environment["MIGRATOR_SOURCE_URL"] = live.url
        live.verify()
    finally:
        shop.sql(f"DROP USER {user}@'%'")


def test_cascading_keys_are_refused_where_the_log_lacks_them(shop: BinlogShop) -> None:
    """By the real keys, with the settings of a server that does not log what they change: each version before 9.6."""
    with capturing("mariadb", shop.url) as opened:
        tables = [captured(opened.table(name), ["id"]) for name in ("customer", "orders")]

        def faults(found: dict[str, str]) -> list[str]:
            def work(connection: Connection, _: Ddl) -> list[str]:
                home = shop.url.rpartition("/")[2]
                return list(table_faults(connection, {**settings(connection), **found}, tables, home))

            return opened.writing.look("looking", work)

        assert faults({}) == []
        (fault,) = faults({"innodb_native_foreign_keys": "ON"})
    assert "table orders: its foreign key orders_ibfk_1 has an action (ON DELETE CASCADE" in fault


def test_keys_of_documents_are_refused(shop: BinlogShop) -> None:
    shop.sql("CREATE TABLE doc (id json, n integer PRIMARY KEY)")
    mapping = shop.project.folder / "mapping.yaml"
    mapping.write_text(
        mapping.read_text() + "  doc: {key: [n], items: {Doc: {key: ['D#{id}', 'N#{n}'], keep: [n]}}}\n"
    )
    ended = shop.project.run("capture", "install", shop.job, "--by", "log")
    assert (ended.code, "a document or a vector" in " ".join(ended.err.split())) == (2, True)


# ── how far it is, and a log that is lost ──


def test_status_shows_how_far_it_is_behind(live: BinlogShop) -> None:
    live.sql(f"INSERT INTO orders SELECT seq, 1, seq FROM {numbers(9000, 1000)}")
    slot = live.project.done("capture", "status", live.job, "--json").data["slot"]
    assert slot["bytes_behind"] > 80_000
    assert slot["keeps_s"] == 2_592_000
    for command in (["capture", "status"], ["status"]):
        assert "binary log: no relay reads it" in live.project.done(*command, live.job).out
    checks = {
        check["name"]: check["state"]
        for check in live.project.run("doctor", live.job, "--json").data["checks"]
    }
    assert checks["binary log"] == "ok"
    with setting(live, "binlog_expire_logs_seconds", "3600"):
        found = live.project.run("doctor", live.job, "--json").data["checks"]
        assert "warning" in [check["state"] for check in found if check["name"] == "binary log"]
    live.relay()
    assert live.project.done("capture", "status", live.job, "--json").data["slot"]["bytes_behind"] < 80_000


def test_counts_for_evidence_hold_what_is_not_copied_yet(live: BinlogShop) -> None:
    live.sql("UPDATE customer SET name = 'unread' WHERE id = 1")
    with open_reader(live) as (writing, reader):
        assert LogMarks(writing, reader).state().waiting == 0
        assert LogMarks(writing, reader).exact().state().waiting == 1


@pytest.mark.parametrize("how", ["purged", "another server"])
def test_a_lost_log_stops_the_relay(live: BinlogShop, how: str) -> None:
    live.sql("UPDATE customer SET name = 'never seen' WHERE id = 1")
    if how == "purged":
        file = live.rows("SHOW BINARY LOG STATUS")[0][0]
        live.sql("FLUSH BINARY LOGS")
        last = live.rows("SHOW BINARY LOG STATUS")[0][0]
        assert last != file
        live.sql(f"PURGE BINARY LOGS TO '{last}'")
    else:
        live.sql("UPDATE migrator_log SET gtids = concat(gtids, ',7e11fa47-31ca-19e1-9e56-c43aa21293f2:1-5')")
    assert set(live.states().values()) == {"lost"}
    ended = live.project.run("relay", live.job, "--once")
    assert ended.code != 0
    assert "migrator capture install" in " ".join(ended.err.split())
    assert "lost: " in live.project.run("capture", "status", live.job).out
    assert "there is a new one" in " ".join(live.project.done("capture", "install", live.job).err.split())
    assert set(live.states().values()) == {"captured"}
    assert live.project.run("verify", live.job, "--repair").code in (0, 1)
    live.relay()
    live.verify()
