"""A job that is captured from PostgreSQL's log, from its install to its end."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

import pytest

from migrator.mapping.model.live import MarkedBy
from migrator.source.capture.log.postgresql.install import SlotCapture
from migrator.source.capture.log.reader import LogMarks
from tests import support_mysql
from tests import support_services as services
from tests.journeys.command import project
from tests.journeys.small import small_shop
from tests.log.conftest import TABLES, LogShop, open_reader
from tests.support_capture import captured, capturing
from tests.support_own_server import OwnServer
from tests.support_prometheus import fetched, free_port
from tests.support_waiting import until

pytestmark = pytest.mark.slow

WRITES = (
    "INSERT INTO customer VALUES (100, 'New', 'new@x.example', NULL)",
    "INSERT INTO orders VALUES (100, 100, 7)",
    "UPDATE customer SET name = 'Other' WHERE id = 3",
    "UPDATE customer SET email = 'moved@x.example' WHERE id = 4",
    "UPDATE customer SET email = NULL WHERE id = 6",
    "UPDATE orders SET id = 200 WHERE id = 2",
    "UPDATE orders SET customer_id = 100 WHERE id = 1",
    "DELETE FROM customer WHERE id = 5",
    "UPDATE events SET day = 150 WHERE id = 1",
    "UPDATE events SET what = 'said' WHERE id < 10",
    "DELETE FROM events WHERE id = 2",
)
"""Cascades, keys that change, rows that move to another partition."""


def test_changes_of_every_kind_become_items(live: LogShop) -> None:
    live.sql(*WRITES, "BEGIN; DELETE FROM orders WHERE id = 7; ROLLBACK")
    live.relay()
    live.verify()
    assert set(live.states().values()) == {"captured"}
    assert live.rows("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal") == [(0,)]


def test_savepoints_and_prepared_transactions(live: LogShop) -> None:
    live.sql(
        "BEGIN; UPDATE customer SET name = 'kept' WHERE id = 1; SAVEPOINT a; DELETE FROM customer WHERE id = 2;"
        " ROLLBACK TO a; UPDATE customer SET name = 'kept' WHERE id = 3; COMMIT"
    )
    with closing(live.connect()) as connection:
        connection.execute("BEGIN")
        connection.execute("UPDATE customer SET name = 'prepared', email = 'p@x.example' WHERE id = 4")
        connection.execute("PREPARE TRANSACTION 'one'")
    live.relay()
    live.verify()
    live.sql("COMMIT PREPARED 'one'")
    live.relay()
    live.verify()
    assert any(item.get("name") == "prepared" for item in live.project.items())


def test_values_kept_out_of_line_and_a_large_transaction(live: LogShop) -> None:
    """The log leaves out a long value that an UPDATE did not change."""
    live.sql(
        "UPDATE customer SET note = (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 3000) n)",
        "INSERT INTO customer SELECT n, 'N' || n FROM generate_series(1000, 5000) n",
        "UPDATE customer SET name = 'long' WHERE id < 5",
    )
    live.relay()
    live.verify()
    live.sql(
        "UPDATE customer SET email = 'long@x.example' WHERE id = 1", "DELETE FROM customer WHERE id >= 1000"
    )
    live.relay()
    live.verify()


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE customer CASCADE",
        "TRUNCATE orders",
        "TRUNCATE events",
        "TRUNCATE events_1",
        "BEGIN; TRUNCATE orders; INSERT INTO orders VALUES (7, 7, 7); COMMIT",
    ],
)
def test_a_truncate_takes_the_items_away(live: LogShop, statement: str) -> None:
    live.sql(statement)
    live.relay()
    live.verify()


def test_partitions_that_come_and_are_dropped(live: LogShop) -> None:
    """What was written to a partition before it was dropped is still in the log."""
    live.sql(
        "CREATE TABLE events_3 PARTITION OF events FOR VALUES FROM (200) TO (300)",
        "INSERT INTO events VALUES (300, 250, 'new')",
        "UPDATE events SET what = 'newer' WHERE id = 300",
    )
    live.relay()
    live.verify()
    live.sql("DELETE FROM events WHERE day >= 200", "DROP TABLE events_3")
    live.relay()
    live.verify()


def test_columns_and_types_that_change(live: LogShop) -> None:
    live.sql(
        "UPDATE customer SET name = 'before' WHERE id = 1",
        "ALTER TABLE customer ADD COLUMN more integer DEFAULT 5",
        "UPDATE customer SET name = 'between' WHERE id = 2",
        "ALTER TABLE customer DROP COLUMN more",
        "UPDATE customer SET name = 'after' WHERE id = 3",
    )
    live.relay()
    live.verify()


def test_the_install_is_printed_and_nothing_is_done(shop: LogShop) -> None:
    printed = shop.install("--dry-run")
    assert f'CREATE PUBLICATION "{shop.name}"' in printed
    assert "pg_create_logical_replication_slot" in printed
    refused = shop.project.run("capture", "install", shop.job, "--by", "log", "--as", "alembic")
    assert (refused.code, "--as sql" in refused.err) == (2, True)
    assert shop.slots() == []
    # What is printed is the install.
    shop.sql(*(part for part in _statements(printed)))
    assert "nothing to change" in shop.install()
    assert set(shop.states().values()) == {"captured"}


def _statements(text: str) -> list[str]:
    lines = (line for line in text.splitlines() if not line.startswith("--"))
    return [part for part in "\n".join(lines).split(";\n") if part.strip()]


def test_a_second_install_changes_nothing_and_uninstall_leaves_nothing(live: LogShop) -> None:
    assert "nothing to change" in live.install()
    live.sql("UPDATE customer SET name = 'x' WHERE id = 1")
    refused = live.project.run("capture", "uninstall", live.job)
    assert (refused.code, "1 mark waits, and" in refused.err) == (2, True)
    live.relay()
    live.project.done("capture", "uninstall", live.job)
    left = live.rows(
        "SELECT (SELECT count(*) FROM pg_publication), to_regnamespace('migrator'),"
        " (SELECT count(*) FROM pg_replication_slots WHERE database = current_database())"
    )
    assert left == [(0, None, 0)]
    assert "not installed" in live.project.done("capture", "uninstall", live.job).out


def test_the_slot_shows_how_far_it_is_behind(live: LogShop) -> None:
    live.sql("INSERT INTO orders SELECT n, 1, n FROM generate_series(1000, 3000) n")
    slot = live.project.done("capture", "status", live.job, "--json").data["slot"]
    assert slot["bytes_behind"] > 100_000
    assert live.name in live.project.done("capture", "status", live.job).out
    assert live.name in live.project.done("status", live.job).out
    checks = live.project.run("doctor", live.job, "--json").data["checks"]
    assert ("replication slot", "warning") in [(check["name"], check["state"]) for check in checks]
    live.relay()
    assert live.project.done("capture", "status", live.job, "--json").data["slot"]["bytes_behind"] < 100_000


def test_statements_that_write_in_other_ways(live: LogShop) -> None:
    """COPY, MERGE, upserts, writing CTEs, actions of foreign keys, a session whose triggers do not fire, two-phase roll-backs."""
    live.sql(
        "CREATE TABLE pet (id integer PRIMARY KEY, owner integer DEFAULT 1 REFERENCES customer (id) ON UPDATE CASCADE"
        " ON DELETE SET NULL, name text)",
        "CREATE UNIQUE INDEX pet_links ON pet (owner, id)",
        "ALTER TABLE pet REPLICA IDENTITY FULL",
        "INSERT INTO pet SELECT n, n % 5 + 11, 'pet' FROM generate_series(1, 20) n",
    )
    more = "  pet: {items: {Pet: {key: ['O#{owner|or:none}', 'P#{id}'], keep: [name]}}}\n"
    grown(live, more)
    with closing(live.connect()) as connection:
        with connection.cursor().copy("COPY pet FROM STDIN") as copy:
            copy.write("100\t11\tcopied\n101\t12\tcopied\n")
        connection.execute("BEGIN; DELETE FROM pet WHERE id = 100; PREPARE TRANSACTION 'undone'")
        connection.execute("ROLLBACK PREPARED 'undone'")
    live.sql(
        "MERGE INTO pet USING (VALUES (1, 20), (200, 20)) AS v (id, owner) ON pet.id = v.id"
        " WHEN MATCHED THEN UPDATE SET owner = v.owner WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.owner, 'merged')",
        "MERGE INTO pet USING (VALUES (2)) AS v (id) ON pet.id = v.id WHEN MATCHED THEN DELETE",
        "INSERT INTO pet VALUES (3, 15, 'x'), (300, 15, 'x') ON CONFLICT (id) DO UPDATE SET owner = 16",
        "INSERT INTO pet VALUES (4, 15, 'never') ON CONFLICT DO NOTHING",
        "WITH gone AS (DELETE FROM pet WHERE id = 5 RETURNING *) INSERT INTO pet SELECT 500, owner, name FROM gone",
        "DELETE FROM orders WHERE customer_id = 11",
        "UPDATE customer SET id = 1011 WHERE id = 11",
        "DELETE FROM customer WHERE id = 12",
        "SET session_replication_role = replica; UPDATE pet SET owner = 13 WHERE id = 6; DELETE FROM pet WHERE id = 7",
    )
    live.relay()
    live.verify()


def grown(live: LogShop, more: str) -> None:
    """The mapping reads one more table, which is captured and backfilled."""
    mapping = live.project.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text() + more)
    live.install()
    live.project.done("backfill", live.job)


@pytest.mark.parametrize("identity", ["DEFAULT", "USING INDEX pet_links", "FULL"])
def test_links_that_an_identity_holds_are_followed(live: LogShop, identity: str) -> None:
    live.sql(
        "CREATE TABLE pet (id integer, owner integer NOT NULL, name text, PRIMARY KEY (owner, id))",
        "CREATE UNIQUE INDEX pet_links ON pet (id, owner)",
        f"ALTER TABLE pet REPLICA IDENTITY {identity}",
        "INSERT INTO pet SELECT n, n % 5, 'pet' FROM generate_series(1, 20) n",
    )
    grown(live, "  pet: {key: [id], items: {Pet: {key: ['O#{owner}', 'P#{id}'], keep: [name]}}}\n")
    live.sql(
        "UPDATE pet SET owner = 9 WHERE id < 4",
        "UPDATE pet SET name = 'other' WHERE id = 5",
        "UPDATE pet SET id = id + 100 WHERE owner = 2",
        "DELETE FROM pet WHERE id = 8",
    )
    live.relay()
    live.verify()


def test_a_transaction_that_the_server_spills_to_its_disk(live: LogShop, log_server: OwnServer) -> None:
    """It arrives as a whole, with those of its savepoints that were kept."""
    live.sql("ALTER SYSTEM SET logical_decoding_work_mem = '64kB'", "SELECT pg_reload_conf()")
    try:
        kept = "".join(
            f"SAVEPOINT s; UPDATE orders SET customer_id = {n} WHERE id % 20 = {n}; "
            f"{'ROLLBACK TO s' if n % 3 else 'RELEASE s'}; "
            for n in range(1, 20)
        )
        live.sql(
            "INSERT INTO orders SELECT n, 1, n FROM generate_series(1000, 3000) n",
            f"BEGIN; UPDATE orders SET total = total + 1; {kept} DELETE FROM orders WHERE id % 7 = 0; COMMIT",
        )
        live.relay()
        spilled = f"SELECT spill_txns > 0 FROM pg_stat_replication_slots WHERE slot_name = '{live.name}'"
        until(lambda: live.rows(spilled) == [(True,)], "the server reports the spilled transaction")
        live.verify()
    finally:
        live.sql("ALTER SYSTEM RESET logical_decoding_work_mem", "SELECT pg_reload_conf()")


MOODS = """
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TABLE person (id integer PRIMARY KEY, m mood, n text);
ALTER TABLE person REPLICA IDENTITY FULL;
INSERT INTO person VALUES (1, 'sad', 'a'), (2, 'glad', 'b'), (3, 'sad', 'c');
"""


@pytest.mark.parametrize(
    ("harmless", "change"),
    [
        ("ALTER TYPE mood ADD VALUE 'calm'", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'"),
        (
            "ALTER TABLE person ADD COLUMN more text",
            "BEGIN; ALTER TABLE person RENAME m TO x; ALTER TABLE person RENAME n TO m; ALTER TABLE person RENAME x TO n;"
            " COMMIT",
        ),
    ],
    ids=["label", "columns"],
)
def test_values_that_a_rename_changes_make_capture_stale(live: LogShop, harmless: str, change: str) -> None:
    """No row is written by a rename. Marks of before it have the values that items were made of."""
    live.sql(MOODS)
    grown(live, "  person: {items: {Person: {key: ['M#{m}', 'P#{id}'], keep: [id]}}}\n")
    live.sql("UPDATE person SET m = 'glad' WHERE id = 1", harmless)
    assert live.states()["person"] == "captured"
    live.sql(change, "DELETE FROM person WHERE id = 2")
    assert live.states()["person"] == "stale"
    refused = live.project.run("relay", live.job, "--once")
    assert (refused.code, "--repair`" in refused.err) == (2, True)
    assert "1 table changed" in live.install()
    assert live.states()["person"] == "captured"
    live.relay()
    assert live.project.run("verify", live.job, "--repair").code == 1
    live.relay()
    live.verify()


def test_partitions_that_are_attached_and_detached_with_rows(live: LogShop) -> None:
    """No row is written by that. Changes of their rows are followed while they are attached."""
    live.sql(
        "CREATE TABLE more (id integer, day integer, what text NOT NULL, PRIMARY KEY (id, day))",
        "INSERT INTO more VALUES (400, 210, 'a'), (401, 220, 'b'), (402, 230, 'c')",
        "ALTER TABLE events ATTACH PARTITION more FOR VALUES FROM (200) TO (300)",
        "UPDATE events SET what = 'seen' WHERE id = 400",
        "UPDATE more SET day = 240 WHERE id = 401",
        "ALTER TABLE events DETACH PARTITION events_2",
        "UPDATE events_2 SET what = 'not ours'",
    )
    assert set(live.states().values()) == {"captured"}
    live.relay()
    assert live.project.run("verify", live.job, "--repair").code == 1
    live.relay()
    live.verify()


def test_a_relay_serves_the_slots_bytes_as_metrics(live: LogShop) -> None:
    port = free_port()

    def bytes_of(name: str) -> float:
        text = fetched(f"http://127.0.0.1:{port}/metrics")[1]
        return max([float(size) for size in re.findall(rf"(?m)^{name}\{{.*\}} (\S+)$", text)], default=-1)

    with live.project.beside("relay", live.job, "--metrics-port", str(port)):
        answers_at(port)
        until(lambda: bytes_of("migrator_slot_kept_bytes") > 0, "the slot's bytes are served")
        assert bytes_of("migrator_slot_behind_bytes") >= 0


def answers_at(port: int) -> None:
    def answers() -> bool:
        try:
            return fetched(f"http://127.0.0.1:{port}/healthz")[0] == 200
        except OSError:
            return False

    until(answers, "the relay serves its metrics")


# ── what is refused ──


def test_a_table_without_identity_is_refused(shop: LogShop) -> None:
    """Published, it would refuse the service's UPDATEs."""
    shop.sql("ALTER TABLE orders REPLICA IDENTITY NOTHING", "ALTER TABLE customer REPLICA IDENTITY DEFAULT")
    ended = shop.project.run("capture", "install", shop.job, "--by", "log")
    assert ended.code == 2
    assert "ALTER TABLE public.orders REPLICA IDENTITY FULL" in ended.err
    assert "does not hold email" in " ".join(ended.err.split())
    shop.sql("UPDATE orders SET total = 1 WHERE id = 1")
    assert (shop.slots(), shop.rows("SELECT count(*) FROM pg_publication")) == ([], [(0,)])


def test_a_server_without_logical_log_is_refused(shop: LogShop, postgres_url: str) -> None:
    """All faults at once."""
    with services.postgres_database(postgres_url) as url:
        services.run_script(url, TABLES.replace("ALTER TABLE orders REPLICA IDENTITY FULL;", ""))
        shop.project.environment["MIGRATOR_SOURCE_URL"] = url
        ended = shop.project.run("capture", "install", shop.job, "--by", "log")
    assert ended.code == 2
    err = " ".join(ended.err.split())
    assert "rds.logical_replication" in err
    assert "REPLICA IDENTITY FULL" in err


def test_a_user_without_the_right_is_refused(shop: LogShop) -> None:
    role = f"r_{shop.name[-8:]}"
    shop.sql(f"CREATE ROLE {role} LOGIN", f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
    try:
        shop.project.environment["MIGRATOR_SOURCE_URL"] = shop.url.replace("postgres@", f"{role}@")
        ended = shop.project.run("capture", "install", shop.job, "--by", "log")
    finally:
        shop.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    err = " ".join(ended.err.split())
    assert ended.code == 2
    assert f"ALTER ROLE {role} REPLICATION" in err
    assert "only its owner may publish it" in err


def test_installing_does_not_change_whether_a_statement_succeeds(shop: LogShop) -> None:
    statements = [
        *WRITES,
        "INSERT INTO orders VALUES (1, 1, 1)",
        "UPDATE orders SET customer_id = 999",
        "TRUNCATE orders",
    ]

    def outcomes() -> list[bool]:
        with closing(shop.connect()) as connection:
            found = []
            connection.execute("BEGIN")
            for statement in statements:
                connection.execute("SAVEPOINT s")
                try:
                    connection.execute(statement)
                    found.append(True)
                except Exception:
                    connection.execute("ROLLBACK TO s")
                    found.append(False)
            connection.execute("ROLLBACK")
            return found

    before = outcomes()
    shop.install()
    assert outcomes() == before
    assert before.count(False) == 2


# ── from triggers to the log and back ──


def test_from_triggers_to_the_log_and_back(shop: LogShop) -> None:
    """What was written before each turn, and not yet relayed, is not lost."""
    shop.project.done("table", "create", shop.job)
    shop.project.done("capture", "install", shop.job)
    shop.project.done("backfill", shop.job)
    shop.sql(*WRITES[:5])
    shop.install()
    assert shop.rows("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal") == [(0,)]
    shop.sql(*WRITES[5:])
    shop.relay()
    shop.verify()
    shop.sql("UPDATE customer SET email = 'back@x.example' WHERE id = 8")
    assert "nothing to change" in shop.project.done("capture", "install", shop.job).out
    shop.project.done("capture", "install", shop.job, "--by", "triggers")
    shop.sql("UPDATE customer SET email = 'later@x.example' WHERE id = 9")
    assert (shop.slots(), shop.rows("SELECT count(*) FROM pg_publication")) == ([], [(0,)])
    assert set(shop.states().values()) == {"captured"}
    shop.relay()
    shop.verify()


# ── a slot that is lost ──


@pytest.mark.parametrize("how", ["dropped", "made again", "moved on", "unpublished"])
def test_a_lost_slot_stops_the_relay(live: LogShop, how: str) -> None:
    live.sql("UPDATE customer SET name = 'never seen' WHERE id = 1")
    if how == "unpublished":
        live.sql(f"DROP PUBLICATION {live.name}", "UPDATE customer SET name = 'nor this' WHERE id = 2")
    if how in ("dropped", "made again"):
        live.sql(f"SELECT pg_drop_replication_slot('{live.name}')")
    if how == "made again":
        live.sql(f"SELECT pg_create_logical_replication_slot('{live.name}', 'pgoutput')")
    if how == "moved on":
        live.sql(f"SELECT pg_replication_slot_advance('{live.name}', pg_current_wal_lsn())")
    assert set(live.states().values()) == {"lost"}
    ended = live.project.run("relay", live.job, "--once")
    assert ended.code != 0
    assert "migrator capture install" in " ".join(ended.err.split())
    assert "there is a new one" in " ".join(live.project.done("capture", "install", live.job).err.split())
    assert live.project.run("verify", live.job, "--repair").code in (0, 1)
    live.relay()
    live.verify()


def test_a_server_that_keeps_too_little_log(live: LogShop, log_server: OwnServer) -> None:
    live.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    try:
        for _ in range(4):
            live.sql(
                "UPDATE customer SET note = (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 5000) n)",
                "SELECT pg_switch_wal()",
            )
        live.sql("CHECKPOINT")
        assert set(live.states().values()) == {"lost"}
        assert "max_slot_wal_keep_size" in live.project.run("capture", "status", live.job).out
    finally:
        live.sql("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
    live.install()
    assert live.project.run("verify", live.job, "--repair").code in (0, 1)
    live.relay()
    live.verify()


def test_a_relay_with_the_printed_grants_alone(live: LogShop) -> None:
    """A user of its own, with the attribute that reading the log takes."""
    role = f"relay_{live.name[-8:]}"
    live.sql(f"CREATE ROLE {role} LOGIN")
    printed = live.project.done("export", "--as", "grants", live.job, "--role", "relay", "--user", role).out
    try:
        live.sql(*(part for part in _statements(printed)))
        live.sql("UPDATE customer SET email = 'granted@x.example' WHERE id = 1")
        live.project.environment["MIGRATOR_SOURCE_URL"] = live.url.replace("postgres@", f"{role}@")
        live.relay()
        live.project.environment["MIGRATOR_SOURCE_URL"] = live.url
        live.verify()
    finally:
        live.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize(
    "change",
    [
        "ALTER PUBLICATION {} SET (publish = 'insert')",
        "ALTER PUBLICATION {} DROP TABLE customer",
        "ALTER PUBLICATION {} SET TABLE customer WHERE (id > 5), orders, events",
        "ALTER PUBLICATION {} SET TABLE customer (id, email), orders, events",
    ],
)
def test_a_publication_that_somebody_changed_is_seen_and_made_good(live: LogShop, change: str) -> None:
    live.sql(change.format(live.name))
    assert live.states()["customer"] == "missing"
    assert live.project.run("relay", live.job, "--once").code == 2
    live.install()
    assert set(live.states().values()) == {"captured"}
    live.sql("UPDATE customer SET name = 'x', email = 'x@x.example' WHERE id = 1")
    live.relay()
    live.verify()


def test_an_identity_that_somebody_changed_is_seen(live: LogShop) -> None:
    live.sql("ALTER TABLE customer REPLICA IDENTITY DEFAULT")
    assert live.states()["customer"] == "unidentified"
    live.sql("ALTER TABLE customer REPLICA IDENTITY FULL")
    assert live.states()["customer"] == "captured"


def test_a_table_that_the_mapping_reads_later(live: LogShop) -> None:
    """The slot goes on; what was written before the install is backfilled."""
    live.sql(
        "CREATE TABLE note (id integer PRIMARY KEY, words text)", "INSERT INTO note VALUES (1, 'a'), (2, 'b')"
    )
    mapping = live.project.folder / "mapping.yaml"
    mapping.write_text(
        mapping.read_text() + "  note: {items: {Note: {key: ['N#{id}', META], keep: [words]}}}\n"
    )
    assert live.project.run("relay", live.job, "--once").code == 2
    slots = live.rows("SELECT restart_lsn FROM pg_replication_slots WHERE database = current_database()")
    assert "public.note" in live.project.done("capture", "install", live.job).out
    assert (
        live.rows("SELECT restart_lsn FROM pg_replication_slots WHERE database = current_database()") == slots
    )
    live.project.done("backfill", live.job)
    live.sql("UPDATE note SET words = 'c' WHERE id = 1", "DELETE FROM note WHERE id = 2")
    live.relay()
    live.verify()


def test_generated_columns_are_followed_though_the_log_leaves_them_out(live: LogShop) -> None:
    """PostgreSQL has virtual ones from 18 on."""
    kinds = ["STORED", *(["VIRTUAL"] if live.rows("SHOW server_version_num")[0][0] >= "180000" else [])]
    made = [f"{kind.lower()} integer GENERATED ALWAYS AS (n * 2) {kind}" for kind in kinds]
    live.sql(f"CREATE TABLE sum (id integer PRIMARY KEY, n integer, {', '.join(made)})")
    live.sql("INSERT INTO sum SELECT n, n FROM generate_series(1, 5) n")
    mapping = live.project.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text() + "  sum: {items: {Sum: {key: ['S#{id}', META], keep: all}}}\n")
    live.install()
    live.project.done("backfill", live.job)
    live.sql(
        "UPDATE sum SET n = 7 WHERE id = 1", "DELETE FROM sum WHERE id = 2", "INSERT INTO sum VALUES (9, 9)"
    )
    live.relay()
    live.verify()
    items = {item["id"]: item for item in live.project.items() if item["type"] == "Sum"}
    assert {items[1][kind.lower()] for kind in kinds} == {14}


def test_counts_for_evidence_hold_what_is_not_copied_yet(live: LogShop) -> None:
    live.sql("UPDATE customer SET name = 'unread' WHERE id = 1")
    with open_reader(live) as (writing, reader):
        assert LogMarks(writing, reader).state().waiting == 0
        assert LogMarks(writing, reader).exact().state().waiting == 1


def test_images_are_those_that_triggers_write(shop: LogShop) -> None:
    """Of every type, whatever the settings of the service's session are."""
    columns = {
        "a": ("bigint", "9007199254740993"),
        "b": ("numeric", "0.10"),
        "c": ("text", "'ä \" \\ 漢'"),
        "d": ("char(5)", "'x'"),
        "e": ("uuid", "'00000000-0000-0000-0000-00000000000a'"),
        "f": ("date", "'2024-02-29'"),
        "g": ("timetz", "'10:11:12.5+02'"),
        "h": ("timestamp", "'2024-02-29 01:02:03.000004'"),
        "i": ("timestamptz", "'2024-02-29 01:02:03+05'"),
        "j": ("bytea", "'\\x00ff'"),
        "k": ("boolean", "true"),
        "l": ("double precision", "0.1"),
        "m": ("real", "'-Infinity'"),
        "n": ("interval", "'1 month 2 days 03:00'"),
        "o": ("inet", "'10.0.0.1/8'"),
        "p": ("mood", "'so la la'"),
        "q": ("short", "'yes'"),
        "r": ("bit(3)", "'101'"),
        "s": ("varchar", "NULL"),
    }
    declared = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
    values = ", ".join(value for _, value in columns.values())
    shop.sql(
        "CREATE TYPE mood AS ENUM ('so la la')",
        "CREATE DOMAIN short AS varchar(3)",
        f"CREATE TABLE odd (id integer PRIMARY KEY, {declared})",
        "ALTER TABLE odd REPLICA IDENTITY FULL",
    )

    def images(marked_by: MarkedBy) -> list[tuple[str, str]]:
        with capturing("postgresql", shop.url) as opened, open_reader(shop) as (writing, reader):
            table, job = captured(opened.table("odd"), ["id", *columns]), shop.project.job.stem
            marks = LogMarks(writing, reader)
            capture = SlotCapture(writing, job, marks)
            for step in capture.install_steps([table], job, marked_by):
                capture.do(step)
            shop.sql(
                "SET DateStyle = 'German'; SET TimeZone = 'Asia/Tokyo'; SET IntervalStyle = 'sql_standard';"
                " SET bytea_output = 'escape'; SET extra_float_digits = 0;"
                f" INSERT INTO odd VALUES (1, {values})",
                "UPDATE odd SET id = 2",
                "DELETE FROM odd",
            )
            marks.drain()
            found = shop.rows("SELECT image_before, image_after FROM migrator.mark ORDER BY id")
            for step in capture.uninstall_steps():
                capture.do(step)
            return [tuple(text and json.loads(text) for text in row) for row in found]

    by_triggers = images("triggers")
    assert len(by_triggers) == 3
    assert images("log") == by_triggers


def test_other_databases_are_refused(tmp_path: Path, dynamodb_url: str) -> None:
    shop = small_shop(tmp_path, dynamodb_url, create=False)
    ended = shop.run("capture", "install", str(shop.job), "--by", "log")
    assert (
        ended.code,
        "only the logs of PostgreSQL and MySQL can be captured" in " ".join(ended.err.split()),
    ) == (2, True)


@pytest.mark.mariadb
def test_mariadb_is_refused(mysql_database: str, tmp_path: Path, dynamodb_url: str) -> None:
    support_mysql.run_script(
        mysql_database, "CREATE TABLE customer (id integer PRIMARY KEY, name varchar(20))"
    )
    text = "mapping: 1\ntable: {name: Shop, key: [PK, SK], type: type, ttl: expiresAt}\nentities:\n"
    text += "  customer: {items: {Customer: {key: ['C#{id}', META], keep: [name]}}}\n"
    made = project(tmp_path, mysql_database, dynamodb_url, "Refused", text=text)
    ended = made.run("capture", "install", str(made.job), "--by", "log")
    assert (
        ended.code,
        "it lacks rows that a cascading foreign key changes" in " ".join(ended.err.split()),
    ) == (2, True)
    made.done("capture", "install", str(made.job))
    made.done("capture", "uninstall", str(made.job))


def test_a_partition_that_is_gone_before_it_is_read(live: LogShop) -> None:
    live.sql(
        "UPDATE events SET what = 'last' WHERE day >= 100",
        "DELETE FROM events WHERE day >= 100",
        "DROP TABLE events_2",
        "CREATE TABLE other (id integer, day integer, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
    )
    live.relay()
    live.verify()
