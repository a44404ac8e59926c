"""Capture from PostgreSQL's log, where it has something of its own: identities, publications, partitions, renames."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests import support_services as services
from tests.log.shops import SlotShop
from tests.support_waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.engines("postgresql")]


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
def test_a_truncate_takes_the_items_away(live: SlotShop, statement: str) -> None:
    live.sql(statement)
    live.come_to_rest()


def test_statements_that_write_in_other_ways(live: SlotShop) -> None:
    """COPY, MERGE, upserts, writing CTEs, actions of foreign keys, a session whose triggers do not fire."""
    live.sql(
        "CREATE TABLE pet (id integer PRIMARY KEY, owner integer DEFAULT 1 REFERENCES customer (id) ON UPDATE CASCADE"
        " ON DELETE SET NULL, name text)",
        "CREATE UNIQUE INDEX pet_links ON pet (owner, id)",
        "ALTER TABLE pet REPLICA IDENTITY FULL",
        "INSERT INTO pet SELECT n, n % 5 + 11, 'pet' FROM generate_series(1, 20) n",
    )
    live.grown("  pet: {items: {Pet: {key: ['O#{owner|or:none}', 'P#{id}'], keep: [name]}}}\n")
    with closing(live.connect()) as connection, connection.cursor().copy("COPY pet FROM STDIN") as copy:
        copy.write("100\t11\tcopied\n101\t12\tcopied\n")
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
    live.come_to_rest()


def test_a_transaction_that_the_server_spills_to_its_disk(live: SlotShop) -> None:
    """It arrives as a whole, with those of its savepoints that were kept."""
    kept = "".join(
        f"SAVEPOINT s; UPDATE orders SET customer_id = {n} WHERE id % 20 = {n}; "
        f"{'ROLLBACK TO s' if n % 3 else 'RELEASE s'}; "
        for n in range(1, 20)
    )
    with live.setting("logical_decoding_work_mem", "64kB"):
        live.sql(
            "INSERT INTO orders SELECT n, 1, n FROM generate_series(1000, 3000) n",
            f"BEGIN; UPDATE orders SET total = total + 1; {kept} DELETE FROM orders WHERE id % 7 = 0; COMMIT",
        )
        live.relay()
        spilled = f"SELECT spill_txns > 0 FROM pg_stat_replication_slots WHERE slot_name = '{live.name}'"
        until(lambda: live.firsts(spilled) == [True], "the server reports the spilled transaction")
        live.verify()


# ── partitions ──


def test_partitions_that_come_and_are_dropped(live: SlotShop) -> None:
    """What was written to a partition before it was dropped is still in the log."""
    live.sql(
        "CREATE TABLE events_3 PARTITION OF events FOR VALUES FROM (200) TO (300)",
        "INSERT INTO events VALUES (300, 250, 'new')",
        "UPDATE events SET what = 'newer' WHERE id = 300",
    )
    live.come_to_rest()
    live.sql("DELETE FROM events WHERE day >= 200", "DROP TABLE events_3")
    live.come_to_rest()


def test_a_partition_that_is_gone_before_it_is_read(live: SlotShop) -> None:
    live.sql(
        "UPDATE events SET what = 'last' WHERE day >= 100",
        "DELETE FROM events WHERE day >= 100",
        "DROP TABLE events_2",
        "CREATE TABLE other (id integer, day integer, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
    )
    live.come_to_rest()


def test_partitions_that_are_attached_and_detached_with_rows(live: SlotShop) -> None:
    """No row is written by that. Changes of their rows are followed while they are attached."""
    live.sql(
        "CREATE TABLE more (id integer, day integer, what varchar(20) NOT NULL, PRIMARY KEY (id, day))",
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
    live.come_to_rest()


# ── identities, renames, publications ──


@pytest.mark.parametrize("identity", ["DEFAULT", "USING INDEX pet_links", "FULL"])
def test_links_that_an_identity_holds_are_followed(live: SlotShop, identity: str) -> None:
    live.sql(
        "CREATE TABLE pet (id integer, owner integer NOT NULL, name text, PRIMARY KEY (owner, id))",
        "CREATE UNIQUE INDEX pet_links ON pet (id, owner)",
        f"ALTER TABLE pet REPLICA IDENTITY {identity}",
        "INSERT INTO pet SELECT n, n % 5, 'pet' FROM generate_series(1, 20) n",
    )
    live.grown("  pet: {key: [id], items: {Pet: {key: ['O#{owner}', 'P#{id}'], keep: [name]}}}\n")
    live.sql(
        "UPDATE pet SET owner = 9 WHERE id < 4",
        "UPDATE pet SET name = 'other' WHERE id = 5",
        "UPDATE pet SET id = id + 100 WHERE owner = 2",
        "DELETE FROM pet WHERE id = 8",
    )
    live.come_to_rest()


MOODS = (
    "CREATE TYPE mood AS ENUM ('sad', 'glad')",
    "CREATE TABLE person (id integer PRIMARY KEY, m mood, n text)",
    "ALTER TABLE person REPLICA IDENTITY FULL",
    "INSERT INTO person VALUES (1, 'sad', 'a'), (2, 'glad', 'b'), (3, 'sad', 'c')",
)


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
def test_values_that_a_rename_changes_make_capture_stale(live: SlotShop, harmless: str, change: str) -> None:
    """No row is written by a rename. Marks of before it have the values that items were made of."""
    live.sql(*MOODS)
    live.grown("  person: {items: {Person: {key: ['M#{m}', 'P#{id}'], keep: [id]}}}\n")
    live.sql("UPDATE person SET m = 'glad' WHERE id = 1", harmless)
    assert live.states()["person"] == "captured"
    live.sql(change, "DELETE FROM person WHERE id = 2")
    assert live.states()["person"] == "stale"
    assert "--repair`" in live.refused("relay", live.job, "--once")
    assert "1 table changed" in live.install()
    assert live.states()["person"] == "captured"
    live.relay()
    assert live.project.run("verify", live.job, "--repair").code == 1
    live.come_to_rest()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER PUBLICATION {} SET (publish = 'insert')",
        "ALTER PUBLICATION {} DROP TABLE customer",
        "ALTER PUBLICATION {} SET TABLE customer WHERE (id > 5), orders, events",
        "ALTER PUBLICATION {} SET TABLE customer (id, email), orders, events",
    ],
)
def test_changed_publication_is_detected_and_repaired(live: SlotShop, change: str) -> None:
    live.sql(change.format(live.name))
    assert live.states()["customer"] == "missing"
    live.refused("relay", live.job, "--once")
    live.install()
    assert set(live.states().values()) == {"captured"}
    live.sql("UPDATE customer SET name = 'x', email = 'x@x.example' WHERE id = 1")
    live.come_to_rest()


def test_changed_replica_identity_is_detected(live: SlotShop) -> None:
    live.sql("ALTER TABLE customer REPLICA IDENTITY DEFAULT")
    assert live.states()["customer"] == "unidentified"
    live.sql("ALTER TABLE customer REPLICA IDENTITY FULL")
    assert live.states()["customer"] == "captured"


# ── what is refused ──


def test_a_table_without_identity_is_refused(shop: SlotShop) -> None:
    """Published, it would refuse the service's UPDATEs."""
    shop.sql("ALTER TABLE orders REPLICA IDENTITY NOTHING", "ALTER TABLE customer REPLICA IDENTITY DEFAULT")
    told = shop.install_refused()
    assert "ALTER TABLE public.orders REPLICA IDENTITY FULL" in told
    assert "does not hold email" in told
    shop.sql("UPDATE orders SET total = 1 WHERE id = 1")
    assert shop.of_the_log() == []


def test_a_server_without_logical_log_is_refused(shop: SlotShop, postgres_url: str) -> None:
    """All faults at once."""
    with services.postgres_database(postgres_url) as url:
        has_full = "ALTER TABLE orders REPLICA IDENTITY FULL"
        services.run_script(url, "; ".join(one for one in shop.tables if one != has_full))
        with shop.using(url):
            told = shop.install_refused()
    assert "rds.logical_replication" in told
    assert "REPLICA IDENTITY FULL" in told


def test_a_name_that_another_slot_has_is_refused(shop: SlotShop) -> None:
    shop.sql(f"SELECT pg_create_physical_replication_slot('{shop.name}')")
    try:
        told = shop.install_refused()
    finally:
        shop.sql(f"SELECT pg_drop_replication_slot('{shop.name}')")
    assert f"the replication slot {shop.name} is a physical one, perhaps of another job of this name;" in told
    assert shop.of_ours() == []
