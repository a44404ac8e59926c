"""Every committed change of a captured table leaves exactly its marks, on every engine."""

from __future__ import annotations

import secrets
import sqlite3
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pymysql
import pytest

from migrator.mapping.model.live import Mark
from tests import pins
from tests.support_capture import Capturing, captured, capturing

SCHEMA = [
    "CREATE TABLE customer (id integer PRIMARY KEY, name varchar(40), city varchar(40))",
    """CREATE TABLE purchase (id integer PRIMARY KEY, customer_id integer, status varchar(20), note varchar(20), rate float,
       FOREIGN KEY (customer_id) REFERENCES customer (id) ON DELETE CASCADE ON UPDATE CASCADE)""",
    "INSERT INTO customer VALUES (1, 'Ada', 'Wien'), (2, 'Bob', 'Köln')",
    "INSERT INTO purchase VALUES (10, 1, 'new', 'a', 0.1), (20, 1, 'new', 'b', 0.2), (30, NULL, NULL, NULL, NULL)",
]


@pytest.fixture
def shop(each: Capturing) -> Capturing:
    # MariaDB's default collation takes texts for one by itself.
    folded = "varchar(20) COLLATE NOCASE" if each.engine == "sqlite" else "varchar(20)"
    each.run(*(statement.replace("status varchar(20)", f"status {folded}") for statement in SCHEMA))
    install(each)
    return each


def install(shop: Capturing) -> None:
    customer, purchase = shop.table("customer"), shop.table("purchase")
    shop.install(
        captured(customer, ["id"], ["id", "name"]),
        captured(purchase, ["id", "customer_id"], ["id", "customer_id", "status", "rate"]),
    )


def images(marks: list[Mark]) -> list[tuple[str, Any, Any]]:
    """(table, values before, values after), each in the order of its columns."""
    return [(mark.table.rpartition(".")[2], _values(mark.before), _values(mark.after)) for mark in marks]


def _values(image: Any) -> Any:
    return None if image is None else tuple(image.values())


def test_each_kind_of_change_leaves_its_mark(shop: Capturing) -> None:
    shop.run("INSERT INTO purchase VALUES (40, 2, 'new', '', 1), (50, NULL, 'new', '', 1)")
    assert images(shop.left()) == [("purchase", None, (40, 2)), ("purchase", None, (50, None))]
    shop.run("UPDATE purchase SET status = 'sent' WHERE id < 25")
    assert images(shop.left()) == [("purchase", (10, 1), (10, 1)), ("purchase", (20, 1), (20, 1))]
    shop.run("UPDATE purchase SET customer_id = 2 WHERE id = 10", "UPDATE purchase SET id = 11 WHERE id = 10")
    assert images(shop.left()) == [("purchase", (10, 1), (10, 2)), ("purchase", (10, 2), (11, 2))]
    shop.run("DELETE FROM purchase WHERE id IN (11, 30)")
    assert sorted(images(shop.left()), key=str) == [
        ("purchase", (11, 2), None),
        ("purchase", (30, None), None),
    ]


def test_a_change_that_no_entity_reads_leaves_none(shop: Capturing) -> None:
    shop.run(
        "UPDATE purchase SET note = 'other'",
        "UPDATE purchase SET status = status, rate = rate",
        "UPDATE customer SET city = 'Ulm'",
        "DELETE FROM purchase WHERE id = 99",
    )
    assert shop.left() == []


@pytest.mark.parametrize(
    ("before", "after"),
    [("'new'", "'NEW'"), ("'new'", "'new '"), ("NULL", "''"), ("'é'", "'e'"), ("''", "NULL"), ("'a'", "'ä'")],
)
def test_texts_that_a_collation_takes_for_one_are_two(shop: Capturing, before: str, after: str) -> None:
    shop.run(f"UPDATE purchase SET status = {before} WHERE id = 10")
    shop.left()
    shop.run(f"UPDATE purchase SET status = {after} WHERE id = 10")
    assert images(shop.left()) == [("purchase", (10, 1), (10, 1))]


def test_a_transaction_that_is_rolled_back_leaves_none(shop: Capturing) -> None:
    with shop.service() as service:
        service.execute("BEGIN")
        service.execute("DELETE FROM purchase WHERE id = 10")
        service.execute("ROLLBACK")
        service.execute("BEGIN")
        service.execute("DELETE FROM purchase WHERE id = 10")
        service.execute("SAVEPOINT here")
        service.execute("DELETE FROM purchase WHERE id = 20")
        service.execute("ROLLBACK TO SAVEPOINT here")
        if shop.engine != "sqlite":
            assert shop.left() == [], "not committed"
        service.execute("COMMIT")
    assert images(shop.left()) == [("purchase", (10, 1), None)]


def test_upsert_leaves_the_mark_of_its_effect(shop: Capturing) -> None:
    update = (
        "ON CONFLICT (id) DO UPDATE SET status"
        if shop.engine != "mariadb"
        else "ON DUPLICATE KEY UPDATE status"
    )
    for id_ in (10, 60):
        shop.run(f"INSERT INTO purchase VALUES ({id_}, 2, 'x', '', 1) {update} = 'upserted'")
    found = images(shop.left())
    # On SQLite one more says that REPLACE may be about to take the row away.
    assert found[-2:] == [("purchase", (10, 1), (10, 1)), ("purchase", None, (60, 2))]
    assert found[:-2] == ([("purchase", (10, 1), None)] if shop.engine == "sqlite" else [])


@pytest.mark.parametrize("each", ["postgresql", "sqlite"], indirect=True)
def test_a_cascade_leaves_marks_of_the_children(shop: Capturing) -> None:
    shop.run("UPDATE customer SET id = 3 WHERE id = 1")
    assert sorted(images(shop.left())) == [
        ("customer", (1,), (3,)),
        ("purchase", (10, 1), (10, 3)),
        ("purchase", (20, 1), (20, 3)),
    ]
    shop.run("DELETE FROM customer WHERE id = 3")
    found = images(shop.left())
    assert sorted(found, key=str) == [
        ("customer", (3,), None),
        ("purchase", (10, 3), None),
        ("purchase", (20, 3), None),
    ]


def test_two_installations_leave_each_mark_once(shop: Capturing) -> None:
    install(shop)
    shop.run("UPDATE customer SET name = 'Eve' WHERE id = 1")
    assert images(shop.left()) == [("customer", (1,), (1,))]


# PostgreSQL's lastval() sees our sequence; docs/triggers.md names it.
@pytest.mark.parametrize("each", ["sqlite", "mariadb"], indirect=True)
def test_the_last_id_of_the_service_is_its_own(shop: Capturing) -> None:
    key = "INTEGER PRIMARY KEY" if shop.engine == "sqlite" else "integer PRIMARY KEY AUTO_INCREMENT"
    shop.run(f"CREATE TABLE counted (id {key}, n integer)")
    shop.install(captured(shop.table("counted"), ["id"]))
    with shop.service() as service:
        for number in (1, 2):
            service.execute(f"INSERT INTO counted (n) VALUES ({number})")
            found = service.execute(
                "SELECT last_insert_rowid()" if shop.engine == "sqlite" else "SELECT LAST_INSERT_ID()"
            )
            assert (found if shop.engine == "sqlite" else service).fetchone()[0] == number


# ── servers ──


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_postgresql_role_without_rights_on_our_tables_can_write(shop: Capturing) -> None:
    role = f"service_{secrets.token_hex(4)}"
    shop.run(f"CREATE ROLE {role} LOGIN", f"GRANT ALL ON purchase, customer TO {role}")
    parts = urlsplit(shop.url)
    url = urlunsplit(parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port or 5432}"))
    try:
        with shop.service(url) as service:
            service.execute("UPDATE purchase SET status = 'sent' WHERE id = 10")
            service.execute("TRUNCATE purchase")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                service.execute("SELECT * FROM migrator.mark")
        assert len(shop.left()) == 4
    finally:
        shop.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize("each", ["mariadb"], indirect=True)
def test_mariadb_user_without_rights_on_our_tables_can_write(shop: Capturing) -> None:
    user, parts = f"service_{secrets.token_hex(4)}", urlsplit(shop.url)
    home = parts.path.lstrip("/")
    shop.run(
        f"CREATE USER {user}@'%'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON \"{home}\".purchase TO {user}@'%'",
    )
    url = urlunsplit(parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port or 3306}"))
    try:
        with shop.service(url) as service:
            service.execute("UPDATE purchase SET status = 'sent' WHERE id = 10")
            with pins.refused(Exception):
                service.execute("SELECT * FROM migrator_mark")
        assert len(shop.left()) == 1
    finally:
        shop.run(f"DROP USER {user}@'%'")


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_a_truncate_leaves_a_mark_for_every_row(shop: Capturing) -> None:
    shop.run("TRUNCATE customer CASCADE")
    assert sorted(images(shop.left()), key=str) == [
        ("customer", (1,), None),
        ("customer", (2,), None),
        ("purchase", (10, 1), None),
        ("purchase", (20, 1), None),
        ("purchase", (30, None), None),
    ]
    shop.run("INSERT INTO customer VALUES (7, 'x', 'y')")
    with shop.service() as service:
        service.execute("BEGIN")
        service.execute("TRUNCATE customer CASCADE")
        service.execute("ROLLBACK")
    assert len(shop.left()) == 1


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_truncate_that_may_not_see_every_row_is_refused(shop: Capturing, isolation: str) -> None:
    """A row that was committed after its snapshot would go without a mark."""
    with shop.service() as service:
        service.execute(f"BEGIN ISOLATION LEVEL {isolation}")
        service.execute("SELECT 1 FROM purchase")
        shop.run("INSERT INTO customer VALUES (7, 'x', 'y')")
        with pins.refused(psycopg.errors.FeatureNotSupported) as refused:
            service.execute("TRUNCATE purchase")
        assert "DELETE" in str(refused.value.diag.message_hint)
        service.execute("ROLLBACK")
        service.execute(f"BEGIN ISOLATION LEVEL {isolation}")
        service.execute("DELETE FROM purchase")
        service.execute("COMMIT")
    assert len(shop.left()) == 1 + 3


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_truncate_is_refused_where_row_security_may_hide_rows(shop: Capturing) -> None:
    role, parts = f"owner_{secrets.token_hex(4)}", urlsplit(shop.url)
    shop.run(f"CREATE ROLE {role} LOGIN", f"GRANT CREATE ON DATABASE {parts.path[1:]} TO {role}")
    shop.uninstall()
    shop.run(f"ALTER TABLE customer OWNER TO {role}")
    url = urlunsplit(parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port or 5432}"))
    try:
        with capturing("postgresql", url) as owned:
            owned.install(captured(owned.table("customer"), ["id"]))
        shop.run(
            "ALTER TABLE purchase DROP CONSTRAINT purchase_customer_id_fkey",
            "ALTER TABLE customer ENABLE ROW LEVEL SECURITY",
            "ALTER TABLE customer FORCE ROW LEVEL SECURITY",
            "CREATE POLICY half ON customer USING (id < 2)",
        )
        with shop.service() as service, pytest.raises(psycopg.errors.InsufficientPrivilege):
            service.execute("TRUNCATE customer")
        shop.run("DELETE FROM customer", "ALTER TABLE customer DISABLE ROW LEVEL SECURITY")
        assert len(shop.left()) == 2
        shop.run("TRUNCATE customer")
    finally:
        shop.run(f"REASSIGN OWNED BY {role} TO CURRENT_USER", f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_trigger_ignores_functions_on_the_sessions_search_path(shop: Capturing) -> None:
    """It runs as its owner: a service that could choose what it calls would have the owner's rights."""
    fails = "LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END'"
    functions = (
        "json_object(text[], text[]) RETURNS json",
        "concat(VARIADIC text[]) RETURNS text",
        "concat(oid, text, integer) RETURNS text",
        "pg_typeof(integer) RETURNS regtype",
        "pg_typeof(text) RETURNS regtype",
        "format(text, regclass) RETURNS text",
        "current_setting(text) RETURNS text",
        "row_security_active(oid) RETURNS boolean",
        "compare(text, text) RETURNS boolean",
        "compare(integer, integer) RETURNS boolean",
        "compare(record, record) RETURNS boolean",
    )
    operators = [
        f"CREATE OPERATOR theirs.{name} (LEFTARG = {type_}, RIGHTARG = {type_}, FUNCTION = theirs.compare)"
        for name in ("=", "<>", "!~~", "*<>")
        for type_ in ("text", "integer", "record")
    ]
    types = [
        f"CREATE DOMAIN theirs.{name} AS integer CHECK (VALUE < 0)" for name in ("text", "oid", "regclass")
    ]
    shop.run(
        "CREATE SCHEMA theirs",
        *(f"CREATE FUNCTION theirs.{one} {fails}" for one in functions),
        *operators,
        *types,
    )
    with shop.service() as service:
        service.execute("SET search_path = theirs, pg_catalog, public")
        service.execute("INSERT INTO purchase (id) VALUES (40)")
        service.execute("UPDATE purchase SET customer_id = 2 WHERE purchase.id OPERATOR(pg_catalog.=) 40")
        service.execute("DELETE FROM purchase WHERE purchase.id OPERATOR(pg_catalog.>) 10")
        service.execute("TRUNCATE purchase")
    found = images(shop.left())
    assert (found[0], found[-1]) == (("purchase", None, (40, None)), ("purchase", (10, 1), None))
    assert len(found) == 6


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_a_replicated_change_leaves_its_mark(shop: Capturing) -> None:
    with shop.service() as service:
        service.execute("SET session_replication_role = replica")
        service.execute("DELETE FROM purchase WHERE id = 10")
    assert images(shop.left()) == [("purchase", (10, 1), None)]


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_changes_of_partitions_leave_marks_of_the_parent(shop: Capturing) -> None:
    shop.run(
        "CREATE TABLE sensor (at date, id integer, v integer, PRIMARY KEY (at, id)) PARTITION BY RANGE (at)",
        "CREATE TABLE sensor_23 PARTITION OF sensor FOR VALUES FROM ('2023-01-01') TO ('2024-01-01')",
    )
    shop.install(captured(shop.table("sensor"), ["id"], ["at", "id", "v"]))
    shop.run("CREATE TABLE sensor_24 PARTITION OF sensor FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')")
    shop.run("INSERT INTO sensor VALUES ('2023-05-01', 1, 1), ('2024-05-01', 2, 2)")
    shop.run("INSERT INTO sensor_24 VALUES ('2024-06-01', 3, 3)", "UPDATE sensor SET v = 9 WHERE id = 2")
    assert images(shop.left()) == [
        ("sensor", None, (1,)),
        ("sensor", None, (2,)),
        ("sensor", None, (3,)),
        ("sensor", (2,), (2,)),
    ]
    with shop.service() as service:
        service.execute("SET session_replication_role = replica")
        service.execute("UPDATE sensor SET at = '2024-05-02' WHERE id = 1")
    assert sorted(images(shop.left()), key=str) == [("sensor", (1,), None), ("sensor", None, (1,))]
    wanted = captured(shop.table("sensor"), ["id"], ["at", "id", "v"])
    assert [(one.table, one.state) for one in shop.capture.states([wanted])][:3] == [
        ("public.sensor", "captured"),
        ("public.sensor_23", "captured"),
        ("public.sensor_24", "partition"),
    ]
    shop.install(wanted)
    shop.run("INSERT INTO sensor VALUES ('2023-05-01', 4, 1)")
    shop.left()
    shop.run("TRUNCATE sensor_23")
    assert images(shop.left()) == [("sensor", (4,), None)]
    shop.run("TRUNCATE sensor")
    # Of the parent and of each partition: one mark more does no harm.
    found = images(shop.left())
    assert len(found) == 6
    assert len(set(found)) == 3


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_a_column_that_items_hold_cannot_be_dropped_unnoticed(shop: Capturing) -> None:
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        shop.run("ALTER TABLE purchase DROP COLUMN status")
    shop.run(
        "ALTER TABLE purchase RENAME COLUMN status TO state", "UPDATE purchase SET state = 'x' WHERE id = 10"
    )
    assert len(shop.left()) == 1


ALL = {"INSERT", "UPDATE", "DELETE"}
WRITES = (
    "INSERT INTO purchase (id, rate) VALUES (60, 1)",
    "UPDATE purchase SET rate = 7 WHERE id = 20",
    "DELETE FROM purchase WHERE id = 30",
)


@pytest.mark.parametrize(
    ("change", "held", "failing"),
    [
        ("RENAME COLUMN status TO state", "customer_id", {"mariadb": {"UPDATE"}}),
        ("RENAME COLUMN customer_id TO buyer_id", "buyer_id", {"mariadb": ALL, "postgresql": ALL}),
        ("DROP COLUMN status", "customer_id", {"mariadb": {"UPDATE"}, "postgresql": None, "sqlite": None}),
    ],
)
def test_alter_unknown_to_capture_fails_the_documented_writes(
    shop: Capturing, change: str, held: str, failing: dict[str, set[str] | None]
) -> None:
    """docs/triggers.md has the table. None: the ALTER itself is refused."""
    expected = failing.get(shop.engine, set())
    if expected is None:
        with pytest.raises((psycopg.Error, sqlite3.Error)):
            shop.run(f"ALTER TABLE purchase {change}")
        return
    shop.run(f"ALTER TABLE purchase {change}")
    assert {write.split()[0] for write in WRITES if fails(shop, write)} == expected
    wanted = ["id", held, "rate"]
    shop.install(
        captured(shop.table("customer"), ["id"], ["id", "name"]),
        captured(shop.table("purchase"), wanted[:2], wanted),
    )
    shop.left()
    assert not any(fails(shop, write.replace("60", "61").replace("7", "8")) for write in WRITES[:2])
    assert len(shop.left()) == 2


def fails(shop: Capturing, write: str) -> bool:
    try:
        shop.run(write)
    except (psycopg.Error, sqlite3.Error, pymysql.Error):
        return True
    return False
