"""Children that a foreign key of MariaDB's takes along leave a mark, however old the snapshot of the parent's transaction."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pymysql
import pytest

from tests import support_mysql
from tests.integration.test_capture_triggers import images
from tests.support_capture import Capturing, captured, capturing
from tests.support_mysql import numbers

ISOLATION = ["REPEATABLE READ", "READ COMMITTED"]


@pytest.fixture
def chain(mysql_database: str) -> Iterator[Capturing]:
    """Regions have customers, customers have purchases; only purchases are captured."""
    with capturing("mariadb", mysql_database) as made:
        made.run(
            "CREATE TABLE region (id integer PRIMARY KEY, name varchar(9))",
            """CREATE TABLE customer (id integer PRIMARY KEY, region_id integer,
               FOREIGN KEY (region_id) REFERENCES region (id) ON DELETE CASCADE ON UPDATE CASCADE)""",
            """CREATE TABLE purchase (id integer PRIMARY KEY, customer_id integer,
               FOREIGN KEY (customer_id) REFERENCES customer (id) ON DELETE CASCADE ON UPDATE CASCADE)""",
            "INSERT INTO region VALUES (1, 'a'), (2, 'b'), (3, 'c')",
            "INSERT INTO customer VALUES (1, 1), (2, 1), (3, 2)",
            "INSERT INTO purchase VALUES (10, 1), (20, 2), (30, 3)",
        )
        made.install(captured(made.table("purchase"), ["id", "customer_id"]))
        yield made


def opened(shop: Capturing, isolation: str = "REPEATABLE READ") -> Any:
    """A connection with a transaction that has read, so that its snapshot stands (in READ COMMITTED: none does)."""
    connection = support_mysql.connect(shop.url)
    cursor = connection.cursor()
    cursor.execute(support_mysql.changes_newer_rows(shop.url))
    cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
    cursor.execute("START TRANSACTION")
    cursor.execute("SELECT COUNT(*) FROM purchase")
    return connection


def gone(shop: Capturing) -> list[tuple[int, int]]:
    """What marks say was there and is no more."""
    return sorted(before for _, before, after in images(shop.left()) if after is None)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM customer WHERE id = 3",
        "DELETE c FROM customer c JOIN region r ON r.id = c.region_id WHERE r.id = 2",
        "REPLACE INTO customer VALUES (3, 2)",
        "DELETE FROM region WHERE id = 2",
    ],
)
def test_a_child_that_is_newer_than_the_snapshot_is_marked(chain: Capturing, statement: str) -> None:
    with closing(opened(chain)) as service:
        chain.run("INSERT INTO purchase VALUES (31, 3)")
        assert len(chain.left()) == 1
        service.cursor().execute(statement)
        service.commit()
    assert gone(chain) == [(30, 3), (31, 3)]


def test_so_is_one_under_a_child_that_is_newer_itself(chain: Capturing) -> None:
    with closing(opened(chain)) as service:
        chain.run("INSERT INTO customer VALUES (4, 2)", "INSERT INTO purchase VALUES (40, 4)")
        chain.left()
        service.cursor().execute("DELETE FROM region WHERE id = 2")
        service.commit()
    assert gone(chain) == [(30, 3), (40, 4)]


def test_child_that_moved_in_is_marked_and_one_that_left_is_not(chain: Capturing) -> None:
    with closing(opened(chain)) as service:
        chain.run(
            "UPDATE purchase SET customer_id = 3 WHERE id = 10",
            "UPDATE purchase SET customer_id = 1 WHERE id = 30",
        )
        chain.left()
        service.cursor().execute("DELETE FROM customer WHERE id = 3")
        service.commit()
    assert gone(chain) == [(10, 3)]


def test_new_parent_key_marks_children_newer_than_the_snapshot(chain: Capturing) -> None:
    with closing(opened(chain)) as service:
        chain.run("INSERT INTO purchase VALUES (31, 3)")
        chain.left()
        service.cursor().execute("UPDATE customer SET id = 9 WHERE id = 3")
        service.commit()
    assert sorted(images(chain.left()), key=str) == [
        ("purchase", (30, 3), None),
        ("purchase", (31, 3), None),
        ("purchase", None, (30, 9)),
        ("purchase", None, (31, 9)),
    ]
    chain.run("UPDATE region SET name = 'other'", "UPDATE customer SET region_id = 1 WHERE id = 9")
    assert chain.left() == []


def test_uninstall_removes_the_cover_of_cascades(chain: Capturing) -> None:
    extra = dict.fromkeys(("customer", "purchase", "region"), "extra")
    assert {one.table: one.state for one in chain.capture.states([])} == extra
    chain.uninstall()
    with chain.service() as service:
        service.execute("SELECT COUNT(*) FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()")
        assert service.fetchone()[0] == 0


def test_child_inserted_during_a_delete_of_many_rows_is_marked(chain: Capturing) -> None:
    """READ COMMITTED: triggers read by the snapshot of their statement, which waits for a row here."""
    with (
        closing(opened(chain, "READ COMMITTED")) as service,
        closing(support_mysql.connect(chain.url)) as other,
    ):
        holding = other.cursor()
        holding.execute("START TRANSACTION")
        holding.execute("SELECT * FROM customer WHERE id = 3 FOR UPDATE")
        wait_for = support_mysql.connect(chain.url)

        worker = threading.Thread(
            target=lambda: service.cursor().execute("DELETE FROM customer WHERE id IN (1, 3)")
        )
        worker.start()
        _until_it_waits(wait_for, service.thread_id())
        holding.execute("INSERT INTO purchase VALUES (31, 3)")
        other.commit()
        worker.join()
        service.commit()
        wait_for.close()
    assert gone(chain) == [(10, 1), (30, 3), (31, 3)]


def _until_it_waits(look: Any, thread_id: int) -> None:
    cursor = look.cursor()
    for _ in range(200):
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = %s AND trx_state = 'LOCK WAIT'",
            (thread_id,),
        )
        if cursor.fetchone()[0]:
            return
        # What this table shows is only as new as the last look that came 0.1 s after another.
        time.sleep(0.15)
    raise AssertionError("the statement waits for no lock")


def locked(shop: Capturing, isolation: str, statement: str) -> dict[str, set[int]]:
    """By table, the rows that a transaction holds after the statement, which is then undone."""
    found = {}
    with closing(opened(shop, isolation)) as service, closing(opened(shop, "READ COMMITTED")) as other:
        service.cursor().execute(statement)
        look = other.cursor()
        for table in ("region", "customer", "purchase"):
            rows = []
            for more in ("", " FOR UPDATE SKIP LOCKED"):
                look.execute(f"SELECT id FROM {table} FORCE INDEX (PRIMARY) ORDER BY id{more}")
                rows.append({row[0] for row in look.fetchall()})
            found[table] = rows[0] - rows[1]
        other.rollback()
        service.rollback()
    return found


def may_come(shop: Capturing, isolation: str, statement: str) -> list[bool]:
    """Of new purchases of each customer, whether one may come beside the statement's transaction."""
    with closing(opened(shop, isolation)) as service, closing(support_mysql.connect(shop.url)) as other:
        service.cursor().execute(statement)
        new = other.cursor()
        new.execute("SET innodb_lock_wait_timeout = 0")
        found = [
            _goes(new, f"INSERT INTO purchase (id, customer_id) VALUES ({2000 + n}, {n})") for n in (1, 2, 3)
        ]
        # A connection that only closes is rolled back by the server some time later: the next look would find its locks.
        service.rollback()
        return found


def _goes(cursor: Any, statement: str) -> bool:
    try:
        cursor.execute("START TRANSACTION")
        cursor.execute(statement)
    except pymysql.err.OperationalError:
        return False
    finally:
        cursor.execute("ROLLBACK")
    return True


@pytest.mark.parametrize("isolation", ISOLATION)
def test_cascade_read_locks_only_the_rows_of_the_foreign_key(chain: Capturing, isolation: str) -> None:
    """A customer with a third of all purchases: by its costs alone the server would read, and lock, the whole table."""
    chain.run(
        "ALTER TABLE purchase ADD note varchar(200) DEFAULT 'x'",
        f"INSERT INTO purchase (id, customer_id) SELECT seq, 1 + seq % 3 FROM {numbers(1000, first=100)}",
        "ANALYZE TABLE region, customer, purchase",
    )
    with capturing("mariadb", chain.url) as anew:
        anew.install(captured(anew.table("purchase"), ["id", "customer_id", "note"]))
    statements = (
        "DELETE FROM customer WHERE id = 2",
        "DELETE FROM region WHERE id = 1",
        "UPDATE customer SET id = 9 WHERE id = 2",
        "UPDATE region SET name = 'x' WHERE id = 1",
    )
    rows = [locked(chain, isolation, one) for one in statements]
    new = [may_come(chain, isolation, one) for one in statements]
    chain.uninstall()
    assert rows == [locked(chain, isolation, one) for one in statements]
    assert rows[-1] == {"region": {1}, "customer": set(), "purchase": set()}
    beside = [may_come(chain, isolation, one) for one in statements]
    if isolation == "REPEATABLE READ":
        # The gap before the first purchase of customer 2 is where the next one of customer 1 would stand.
        beside = [[False, *beside[0][1:]], beside[1], [False, *beside[2][1:]], beside[3]]
    assert new == beside


def test_renamed_or_replaced_index_fails_nothing_and_keeps_marks(chain: Capturing) -> None:
    tables = [captured(chain.table("purchase"), ["id", "customer_id"])]
    assert {one.state for one in chain.capture.states(tables)} == {"captured"}
    # The one that the server had made for the foreign key goes by itself.
    chain.run("CREATE INDEX other ON purchase (customer_id, id)")
    with closing(opened(chain)) as service:
        chain.run("INSERT INTO purchase VALUES (31, 3)")
        chain.left()
        service.cursor().execute("DELETE FROM customer WHERE id = 3")
        service.commit()
    assert gone(chain) == [(30, 3), (31, 3)]
    chain.run("UPDATE customer SET id = 9 WHERE id = 2")
    assert gone(chain) == [(20, 2)]
    assert {one.table: one.state for one in chain.capture.states(tables)}["customer"] == "stale"
    chain.install(*tables)
    assert {one.state for one in chain.capture.states(tables)} == {"captured"}


def test_rows_losing_their_parent_lock_nothing_below_them(chain: Capturing) -> None:
    """ON DELETE SET NULL changes the customers; their purchases stay as they are."""
    chain.uninstall()
    chain.run(
        "ALTER TABLE customer DROP FOREIGN KEY customer_ibfk_1",
        "ALTER TABLE customer ADD FOREIGN KEY (region_id) REFERENCES region (id) ON DELETE SET NULL",
    )
    chain.install(captured(chain.table("purchase"), ["id", "customer_id"]))
    assert locked(chain, "REPEATABLE READ", "DELETE FROM region WHERE id = 1")["purchase"] == set()
    chain.run("DELETE FROM customer WHERE id = 3")
    assert gone(chain) == [(30, 3)]
