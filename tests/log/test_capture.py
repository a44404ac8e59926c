"""A job that is captured from its source's log, from its install to its end, on PostgreSQL and on MySQL."""

from __future__ import annotations

import re
import secrets
from contextlib import closing
from pathlib import Path

import pytest

from tests import support_mysql
from tests.journeys.command import project
from tests.journeys.small import small_shop
from tests.log.shops import WRITES, LogShop, statements
from tests.support_mysql import numbers
from tests.support_prometheus import fetched, free_port
from tests.support_waiting import until

pytestmark = pytest.mark.slow


def test_changes_of_every_kind_become_items(live: LogShop) -> None:
    live.sql(*WRITES, "BEGIN", "DELETE FROM orders WHERE id = 7", "ROLLBACK")
    live.come_to_rest()
    assert set(live.states().values()) == {"captured"}
    assert live.rows(live.triggers) == []


def test_savepoints_and_prepared_transactions(live: LogShop) -> None:
    kept, undone = secrets.token_hex(4), secrets.token_hex(4)
    live.sql(
        "BEGIN",
        "UPDATE customer SET name = 'kept' WHERE id = 1",
        "SAVEPOINT a",
        "DELETE FROM customer WHERE id = 2",
        "ROLLBACK TO a",
        "UPDATE customer SET name = 'kept' WHERE id = 3",
        "COMMIT",
    )
    live.prepared(kept, "UPDATE customer SET name = 'prepared', email = 'p@x.example' WHERE id = 4")
    live.prepared(undone, "UPDATE customer SET email = 'no@x.example' WHERE id = 5")
    # The reader passes by the two, stores its position, and ends.
    live.come_to_rest()
    live.sql(live.commit_prepared.format(kept), live.roll_back_prepared.format(undone))
    live.come_to_rest()
    assert any(item["name"] == "prepared" for item in live.items_of("Customer"))
    assert live.emails() & {"p@x.example", "no@x.example"} == {"p@x.example"}


def test_long_values_and_a_large_transaction(live: LogShop) -> None:
    """PostgreSQL's log leaves out a long value that an UPDATE did not change; rows of more than 16 MB come in several
    packets of MySQL's."""
    live.sql(
        "UPDATE customer SET note = repeat('x', 17000000) WHERE id = 1",
        "UPDATE customer SET note = repeat('y', 300000)",
        f"INSERT INTO customer SELECT seq, 'N', NULL, repeat('z', 900) FROM {numbers(5000, 1000)}",
        "UPDATE customer SET name = 'long' WHERE id < 5",
    )
    live.come_to_rest()
    live.sql(
        "BEGIN",
        "UPDATE customer SET name = 'M' WHERE id >= 1000",
        "UPDATE customer SET email = 'long@x.example' WHERE id = 1",
        "DELETE FROM customer WHERE id >= 2000",
        "COMMIT",
    )
    live.come_to_rest()


def test_columns_that_come_and_go(live: LogShop) -> None:
    place = " FIRST" if live.engine == "mysql" else ""
    live.sql(
        "UPDATE customer SET name = 'before' WHERE id = 1",
        f"ALTER TABLE customer ADD COLUMN more integer DEFAULT 5{place}",
        "UPDATE customer SET name = 'between', email = 'between@x.example' WHERE id = 2",
        "ALTER TABLE customer DROP COLUMN more",
        "UPDATE customer SET name = 'after', email = 'after@x.example' WHERE id = 3",
    )
    assert set(live.states().values()) == {"captured"}
    live.come_to_rest()


def test_generated_columns_are_followed(live: LogShop) -> None:
    """PostgreSQL's log leaves them out, and it has virtual ones from 18 on."""
    is_old = live.engine == "postgresql" and live.firsts("SHOW server_version_num")[0] < "180000"
    kinds = ["STORED"] if is_old else ["STORED", "VIRTUAL"]
    made = [f"g_{kind.lower()} integer GENERATED ALWAYS AS (n * 2) {kind}" for kind in kinds]
    live.sql(
        f"CREATE TABLE sums (id integer PRIMARY KEY, n integer, {', '.join(made)})",
        f"INSERT INTO sums (id, n) SELECT seq, seq FROM {numbers(5)}",
    )
    live.grown("  sums: {items: {Sum: {key: ['S#{id}', META], keep: all}}}\n")
    live.sql(
        "UPDATE sums SET n = 7 WHERE id = 1",
        "DELETE FROM sums WHERE id = 2",
        "INSERT INTO sums (id, n) VALUES (9, 9)",
    )
    live.come_to_rest()
    (changed,) = (item for item in live.items_of("Sum") if item["id"] == 1)
    assert {changed[f"g_{kind.lower()}"] for kind in kinds} == {14}


def test_names_that_need_quotes(live: LogShop) -> None:
    columns = '"Row No" integer PRIMARY KEY, "n:o" varchar(9), "Per%Cent" varchar(9), "Όνομα" varchar(9)'
    name = '"It\'s ""odd"": Ä%"'
    identity = [f"ALTER TABLE {name} REPLICA IDENTITY FULL"] if live.engine == "postgresql" else []
    live.sql(
        f"CREATE TABLE {name} ({columns})",
        *identity,
        f"INSERT INTO {name} VALUES (1, 'a', 'b', 'γ'), (2, 'a', 'b', 'γ'), (3, 'a', 'b', 'γ')",
    )
    live.grown(
        "  odd:\n    table: 'It''s \"odd\": Ä%'\n"
        "    items: {Odd: {key: ['ODD#{Row No}', '{\"n:o\"}'], keep: [Per%Cent, Όνομα]}}\n"
    )
    live.sql(
        f'UPDATE {name} SET "n:o" = \'x%y\', "Όνομα" = \'Ω\' WHERE "Row No" = 1',
        f'DELETE FROM {name} WHERE "Row No" = 2',
    )
    live.come_to_rest()
    assert {(item["PK"], item["SK"]) for item in live.items_of("Odd")} == {("ODD#1", "x%y"), ("ODD#3", "a")}


# ── install and uninstall ──


def test_the_install_is_printed_and_nothing_is_done(shop: LogShop) -> None:
    printed = shop.install("--dry-run")
    for text in (printed, shop.install("--as", "sql")):
        assert all(words in text for words in shop.printed)
    assert "--as sql" in shop.refused("capture", "install", shop.job, "--by", "log", "--as", "alembic")
    assert shop.of_ours() == []
    # What is printed is the install.
    shop.sql(*statements(printed))
    assert "nothing to change" in shop.install()
    assert set(shop.states().values()) == {"captured"}


def test_second_install_changes_nothing_and_uninstall_clears_all(live: LogShop) -> None:
    assert "nothing to change" in live.install()
    live.sql("UPDATE customer SET name = 'x' WHERE id = 1")
    assert "1 change waits, and" in live.refused("capture", "uninstall", live.job)
    live.relay()
    assert live.shown in live.project.done("capture", "uninstall", live.job).out
    assert live.of_ours() == live.rows(live.triggers) == []
    assert "not installed" in live.project.done("capture", "uninstall", live.job).out


def test_a_table_that_the_mapping_reads_later(live: LogShop) -> None:
    """The log is read on from where it was; rows of before the install are backfilled."""
    live.sql(
        "CREATE TABLE note (id integer PRIMARY KEY, words text)", "INSERT INTO note VALUES (1, 'a'), (2, 'b')"
    )
    live.read_more("  note: {items: {Note: {key: ['N#{id}', META], keep: [words]}}}\n")
    live.refused("relay", live.job, "--once")
    origin = live.rows(live.origin)
    assert "note" in live.project.done("capture", "install", live.job).out
    assert live.rows(live.origin) == origin
    live.project.done("backfill", live.job)
    live.sql("UPDATE note SET words = 'c' WHERE id = 1", "DELETE FROM note WHERE id = 2")
    live.come_to_rest()


def test_from_triggers_to_the_log_and_back(shop: LogShop) -> None:
    """What was written before each turn, and not yet relayed, is not lost."""
    shop.project.done("table", "create", shop.job)
    shop.project.done("capture", "install", shop.job)
    shop.project.done("backfill", shop.job)
    shop.sql(*WRITES[:5])
    shop.install()
    assert shop.rows(shop.triggers) == []
    shop.sql(*WRITES[5:])
    shop.come_to_rest()
    shop.sql("UPDATE customer SET email = 'back@x.example' WHERE id = 8")
    assert "nothing to change" in shop.project.done("capture", "install", shop.job).out
    shop.project.done("capture", "install", shop.job, "--by", "triggers")
    shop.sql("UPDATE customer SET email = 'later@x.example' WHERE id = 9")
    assert shop.of_the_log() == []
    assert set(shop.states().values()) == {"captured"}
    shop.come_to_rest()


def test_installing_does_not_change_whether_a_statement_succeeds(shop: LogShop) -> None:
    refused = ["INSERT INTO orders VALUES (1, 1, 1)", "UPDATE orders SET customer_id = 999"]
    # MySQL commits before a TRUNCATE.
    more = ["TRUNCATE orders"] if shop.engine == "postgresql" else []

    def outcomes() -> list[bool]:
        found = []
        with closing(shop.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for statement in (*WRITES, *refused, *more):
                cursor.execute("SAVEPOINT s")
                try:
                    cursor.execute(statement)
                    found.append(True)
                except Exception:
                    cursor.execute("ROLLBACK TO s")
                    found.append(False)
            cursor.execute("ROLLBACK")
        return found

    before = outcomes()
    shop.install()
    assert outcomes() == before
    assert before.count(False) == 2


# ── users and their rights ──


def test_a_user_without_rights_is_refused(shop: LogShop) -> None:
    with shop.user() as (name, url), shop.using(url):
        told = shop.install_refused()
        assert all(words in told for words in shop.lacking(name))
    assert shop.of_ours() == []


def test_a_relay_with_the_printed_grants_alone(live: LogShop) -> None:
    """A user of its own, with the right that reading the log takes."""
    with live.user() as (name, url):
        words = ("--as", "grants", live.job, "--role", "relay", "--user", name)
        live.sql(*statements(live.project.done("export", *words).out))
        live.sql("UPDATE customer SET email = 'granted@x.example' WHERE id = 1")
        with live.using(url):
            live.relay()
        live.verify()


# ── how far it is ──


def test_status_and_doctor_show_how_far_the_log_is_behind(live: LogShop) -> None:
    live.sql(f"INSERT INTO orders SELECT seq, 1, seq FROM {numbers(9000, 1000)}")
    assert live.lag()["bytes_behind"] > 80_000
    for command in (["capture", "status"], ["status"]):
        assert "no relay reads it" in live.project.done(*command, live.job).out
    # A slot without a limit warns: the server keeps its log for it until the disk is full.
    expected = {"postgresql": "warning", "mysql": "ok"}
    assert (live.shown, expected[live.engine]) in live.checks()
    live.relay()
    assert live.lag()["bytes_behind"] < 80_000


def test_counts_for_evidence_include_uncopied_changes(live: LogShop) -> None:
    live.sql("UPDATE customer SET name = 'unread' WHERE id = 1")
    with live.open_marks() as (_, marks):
        assert marks.state().waiting == 0
        assert marks.exact().state().waiting == 1


def test_decommission_waits_for_uncopied_changes(live: LogShop) -> None:
    live.relay()

    def marks() -> tuple[str, str]:
        ended = live.project.run("decommission", "check", live.job, "--json")
        return next(
            (line["verdict"], line["found"]) for line in ended.data["lines"] if line["name"] == "marks"
        )

    assert marks()[0] == "ok"
    live.sql("UPDATE customer SET name = 'unread' WHERE id = 1")
    assert marks()[0] == "no"
    live.relay()
    assert marks()[0] == "ok"


def test_a_relay_serves_the_logs_bytes_as_metrics(live: LogShop) -> None:
    port = free_port()

    def bytes_of(name: str) -> float:
        try:
            text = fetched(f"http://127.0.0.1:{port}/metrics")[1]
        except OSError:
            return -1
        return max([float(size) for size in re.findall(rf"(?m)^{name}\{{.*\}} (\S+)$", text)], default=-1)

    with live.project.beside("relay", live.job, "--metrics-port", str(port)):
        until(lambda: bytes_of("migrator_slot_behind_bytes") >= 0, "the log's bytes are served")
        # MySQL keeps its log by its age, and not for us.
        is_kept_for_us = live.engine == "postgresql"
        assert (bytes_of("migrator_slot_kept_bytes") > 0) == is_kept_for_us


# ── other databases ──


def test_other_databases_are_refused(tmp_path: Path, dynamodb_url: str) -> None:
    shop = small_shop(tmp_path, dynamodb_url, create=False)
    ended = shop.run("capture", "install", str(shop.job), "--by", "log")
    told = "only the logs of PostgreSQL and MySQL can be captured" in " ".join(ended.err.split())
    assert (ended.code, told) == (2, True)


@pytest.mark.mariadb
def test_mariadb_is_refused(mysql_database: str, tmp_path: Path, dynamodb_url: str) -> None:
    support_mysql.run_script(
        mysql_database, "CREATE TABLE customer (id integer PRIMARY KEY, name varchar(20))"
    )
    text = "mapping: 1\ntable: {name: Shop, key: [PK, SK], type: type, ttl: expiresAt}\nentities:\n"
    text += "  customer: {items: {Customer: {key: ['C#{id}', META], keep: [name]}}}\n"
    made = project(tmp_path, mysql_database, dynamodb_url, "Refused", text=text)
    ended = made.run("capture", "install", str(made.job), "--by", "log")
    told = "it lacks rows that a cascading foreign key changes" in " ".join(ended.err.split())
    assert (ended.code, told) == (2, True)
    made.done("capture", "install", str(made.job))
    made.done("capture", "uninstall", str(made.job))
