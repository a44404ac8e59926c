"""Users with no more rights than are needed, table by table; what is refused names the object, the right and the GRANT."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from migrator.runtime.errors import SourceError
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.source.sql.transactions import source_error
from tests import pins
from tests.journeys.command import Project, project
from tests.journeys.small import MAPPING
from tests.support_mysql import connect, is_mariadb

TABLES = (
    "CREATE TABLE customer (id integer PRIMARY KEY, name varchar(40))",
    "CREATE TABLE invoice (id integer PRIMARY KEY, customer_id integer NOT NULL, total integer)",
    "CREATE TABLE secret (id integer PRIMARY KEY)",
    "INSERT INTO customer VALUES (1, 'Ann'), (2, 'Bob')",
    "INSERT INTO invoice VALUES (1, 1, 5), (2, 2, 6)",
)
OURS = ("migrator_mark", "migrator_ticket")
PATTERN = """\
access_patterns:
  one_customer:
    params: {id: integer}
    query: {key: ["C#{id}", META]}
    returns: [name]
    sql: SELECT name FROM customer WHERE id = :id
"""


class MariaDb:
    """A database, and a user of it without rights yet."""

    def __init__(self, url: str) -> None:
        self.database = str(make_url(url).database)
        self.root = connect(url)
        self.user = f"'h_{secrets.token_hex(4)}'@'%'"
        self.run(*TABLES, f"CREATE USER {self.user} IDENTIFIED BY 'x'")
        name = self.user.split("'")[1]
        at = make_url(url).set(username=name, password="x")
        self.url = at.render_as_string(hide_password=False)

    def run(self, *statements: str) -> None:
        with self.root.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def grant(self, rights: str, *tables: str) -> None:
        self.run(*(f"GRANT {rights} ON `{self.database}`.`{name}` TO {self.user}" for name in tables))

    def revoke(self, rights: str, *tables: str) -> None:
        self.run(*(f"REVOKE {rights} ON `{self.database}`.`{name}` FROM {self.user}" for name in tables))


@contextmanager
def mariadb(url: str) -> Iterator[MariaDb]:
    made = MariaDb(url)
    try:
        yield made
    finally:
        made.run(f"DROP USER {made.user}")
        made.root.close()


def shop_of(folder: Path, url: str, endpoint: str) -> Project:
    text = MAPPING.replace("type: type", "type: type, ttl: ttl") + PATTERN
    return project(folder, url, endpoint, f"R{secrets.token_hex(4)}", text=text).prepared("table create")


def test_grants_on_tables_are_enough_on_mariadb(
    mysql_database: str, tmp_path: Path, dynamodb_url: str
) -> None:
    with mariadb(mysql_database) as server:
        server.grant("SELECT, TRIGGER", "customer", "invoice")
        server.grant("CREATE, SELECT, INSERT, UPDATE, DELETE", *OURS)
        shop = shop_of(tmp_path, server.url, dynamodb_url)
        job = str(shop.job)
        shop.done("mapping", "check", "mapping.yaml", "--source", server.url)
        shop.done("capture", "install", job)
        shop.done("backfill", job)
        server.run("UPDATE customer SET name = 'Eve' WHERE id = 1")
        shop.done("relay", job, "--once")
        shop.done("verify", job)
        shop.done("look", job, "--pattern", "one_customer", "-p", "id=1")
        shop.done("capture", "status", job)
        assert "Eve" in str(shop.items())
        found = shop.done("doctor", job, "--write", "--json").data["checks"]
        assert [one for one in found if one["state"] == "failed"] == []


_DOTTED = """\
mapping: 1
table: {name: Dotted, key: [PK, SK], type: type}
entities: {visit: {table: "visits.2024", items: {Visit: {key: ["V#{id}", META], keep: all}}}}
access_patterns:
  visit:
    params: {id: integer}
    get: {key: ["V#{id}", META]}
    returns: [id]
    sql: SELECT id FROM `visits.2024` WHERE id = :id
"""


def test_grants_name_a_table_with_a_dot_in_its_own_schema(mysql_database: str, tmp_path: Path) -> None:
    with closing(connect(mysql_database)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE `visits.2024` (id integer PRIMARY KEY)")
    job = project(tmp_path, mysql_database, "http://127.0.0.1:1", "Dotted", text=_DOTTED)
    written = job.done("export", str(job.job), "--as", "grants", "--role", "service-reading").out
    assert f"GRANT SELECT ON `{make_url(mysql_database).database}`.`visits.2024` TO" in written
    assert "`visits`" not in written


def test_read_only_user_can_move_a_source_without_writers(
    mysql_database: str, tmp_path: Path, dynamodb_url: str
) -> None:
    with mariadb(mysql_database) as server:
        server.grant("SELECT", "customer", "invoice")
        shop = shop_of(tmp_path, server.url, dynamodb_url)
        job = str(shop.job)
        shop.done("mapping", "check", "mapping.yaml", "--source", server.url)
        # Whether changes are captured must be known: without it, rows that change meanwhile would be lost.
        # MySQL says of a table that it is not there; MariaDB that this user may not know.
        if is_mariadb(mysql_database):
            blind = shop.run("backfill", job)
            assert blind.code == 3
            ticket = f"`{server.database}`.`migrator_ticket`"
            assert pins.said(blind.err, ticket=ticket)
        server.grant("CREATE, SELECT", "migrator_ticket")
        shop.done("backfill", job)
        shop.done("verify", job)
        found = {one["name"]: one for one in shop.done("doctor", job, "--json").data["checks"]}
        assert [name for name, one in found.items() if one["state"] == "failed"] == []
        assert f"GRANT TRIGGER ON `{server.database}`.`customer` TO {server.user}" in found["capture"]["mend"]
        refused = shop.run("capture", "install", job)
        assert refused.code == 2
        for own, lacks in zip(
            OURS, ("CREATE, INSERT, UPDATE, DELETE, SELECT", "INSERT, UPDATE, DELETE"), strict=True
        ):
            grant = f"GRANT {lacks} ON `{server.database}`.{own} TO {server.user}"
            assert grant in " ".join(refused.err.split())
        for name in ("customer", "invoice"):
            grant = f"GRANT TRIGGER ON `{server.database}`.`{name}` TO {server.user}"
            assert grant in " ".join(refused.err.split())


# ── each right taken away is named with its object ──


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id FROM customer",
        'SELECT id FROM "In voice"',
        "SELECT id FROM of_customers",
        "SELECT id FROM apart.customer",
        "SELECT made()",
    ],
)
def test_postgresql_names_the_object_and_the_right(postgres_database: str, statement: str) -> None:
    role = f"h_{secrets.token_hex(4)}"
    with psycopg.connect(postgres_database, autocommit=True) as server:
        server.execute(SCHEMA_OF_POSTGRESQL)
        server.execute(f"CREATE ROLE {role} LOGIN")
        url = make_url(postgres_database).set(username=role).render_as_string(hide_password=False)
        try:
            with closing(SqlSource(source_url(url))) as source, pytest.raises(SourceError) as caught:
                source.query(statement, {})
            assert pins.said(str(caught.value))
        finally:
            server.execute(f"DROP ROLE {role}")


SCHEMA_OF_POSTGRESQL = """
    CREATE TABLE customer (id integer PRIMARY KEY, name text); CREATE TABLE "In voice" (id integer);
    CREATE VIEW of_customers AS SELECT * FROM customer; CREATE SCHEMA apart; CREATE TABLE apart.customer (id integer);
    CREATE FUNCTION made() RETURNS integer LANGUAGE sql AS 'SELECT 1'; REVOKE EXECUTE ON FUNCTION made() FROM PUBLIC;
"""
WRITES = {
    "UPDATE migrator_ticket SET number = 1": ("UPDATE", "migrator_ticket"),
    "INSERT INTO migrator_mark (id) VALUES (1)": ("INSERT", "migrator_mark"),
    "DELETE FROM migrator_mark": ("DELETE", "migrator_mark"),
    "CREATE TRIGGER t AFTER INSERT ON customer FOR EACH ROW SET @a = 1": ("TRIGGER", "customer"),
    "SELECT total FROM invoice": ("SELECT", "total"),
    "SELECT * FROM information_schema.INNODB_TRX": ("PROCESS", "*.*"),
}


def test_mariadb_names_the_object_and_the_right(mysql_database: str) -> None:
    with mariadb(mysql_database) as server:
        server.run("CREATE TABLE migrator_mark (id integer)", "CREATE TABLE migrator_ticket (number integer)")
        server.grant("SELECT (id)", "invoice")
        server.grant("SELECT", *OURS)
        engine = sa.create_engine(make_url(server.url).set(drivername="mysql+pymysql"))
        for statement, (right, name) in WRITES.items():
            with engine.connect() as connection, pytest.raises(sa.exc.DBAPIError) as caught:
                connection.exec_driver_sql(statement)
            said = str(source_error(caught.value, "MariaDB", "reading"))
            assert pins.said(said, right=right)
            assert name in said
            assert "GRANT " in said
            assert "127.0.0.1" not in said
        engine.dispose()


def test_relay_and_doctor_name_a_revoked_right(
    mysql_database: str, tmp_path: Path, dynamodb_url: str
) -> None:
    with mariadb(mysql_database) as server:
        server.grant("SELECT, TRIGGER", "customer", "invoice")
        server.grant("CREATE, SELECT, INSERT, UPDATE, DELETE", *OURS)
        shop = shop_of(tmp_path, server.url, dynamodb_url)
        job = str(shop.job)
        shop.done("capture", "install", job)
        server.revoke("DELETE", "migrator_mark")
        server.run("UPDATE customer SET name = 'Eve' WHERE id = 1")
        refused = shop.run("relay", job, "--once")
        assert refused.code == 3
        database = f"`{server.database}`." if is_mariadb(mysql_database) else ""
        lacks = f"this user lacks DELETE on table {database}`migrator_mark`"
        assert lacks in refused.err
        assert "Eve" not in refused.err
        found = {one["name"]: one for one in shop.run("doctor", job, "--json").data["checks"]}
        assert (found["marks"]["state"], lacks in found["marks"]["what"]) == ("failed", True)
        assert found["tickets"]["state"] == "ok"
