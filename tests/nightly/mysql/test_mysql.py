"""What MySQL alone has, or has otherwise than MariaDB, on the server that `.ci/engine mysql` starts."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from migrator.mapping.model.facts import Kind
from migrator.mapping.model.questions import row_key
from migrator.runtime.server_errors import denial
from migrator.source.engines.connect import source_url
from migrator.source.engines.mysql.capture import cascades
from migrator.source.reader import SqlSource
from tests.journeys.command import Project, project
from tests.nightly.vectors import assert_its_text_is_what_check_says
from tests.support_capture import captured, capturing
from tests.support_mysql import connect, mysql_version, run_script
from tests.support_source import plan_of

HEAD = "mapping: 1\ntable: {name: Chain, key: [PK, SK], type: type, ttl: expiresAt}\nentities:\n"


def test_the_version_is_the_one_that_is_documented(mysql_url: str) -> None:
    assert (mysql_version(mysql_url) or "").startswith("9.7.")


def facts_of(url: str, script: str) -> Any:
    run_script(url, script)
    with closing(SqlSource(source_url(url))) as source:
        return source.facts().tables


# ── the whole way, with cascades ──

LEVELS = {"region": "", "customer": "region", "purchase": "customer", "line": "purchase"}
CHAIN = ";".join(
    f"CREATE TABLE {name} (id int PRIMARY KEY, up int, n int, doc json, word varchar(20)"
    + (f", FOREIGN KEY (up) REFERENCES {up} (id) ON UPDATE CASCADE ON DELETE CASCADE)" if up else ")")
    for name, up in LEVELS.items()
)


def chain_of(folder: Path, url: str, endpoint: str) -> Project:
    lines = "".join(
        f"  {name}: {{items: {{{name.title()}: {{key: ['{name.upper()}#{{id}}', M], keep: all}}}}}}\n"
        for name in LEVELS
    )
    return project(folder, url, endpoint, f"T{secrets.token_hex(4)}", text=HEAD + lines)


def changes(chance: random.Random, many: int) -> Iterator[str]:
    """Statements of a service; those that the server refuses change nothing."""
    for _ in range(many):
        name = chance.choice(list(LEVELS))
        key, other, number = (chance.randrange(1, 40) for _ in range(3))
        values = f"({key}, {other}, {number}, '{{\"b\": {number}, \"aa\": [1.10]}}', 'ä{number}')"
        yield chance.choice(
            [
                f"INSERT INTO {name} VALUES {values}",
                f"REPLACE INTO {name} VALUES {values}",
                f"INSERT INTO {name} VALUES {values} AS new ON DUPLICATE KEY UPDATE n = new.n",
                f"UPDATE {name} SET n = {number}, doc = JSON_SET(doc, '$.b', {other}) WHERE id < {key}",
                f"UPDATE {name} SET id = {40 + key} WHERE id = {key}",
                f"UPDATE {name} SET id = {key} WHERE id = {40 + key}",
                f"UPDATE {name} SET up = {other} WHERE id = {key}",
                f"DELETE FROM {name} WHERE id = {key}",
                "DELETE p, l FROM purchase p JOIN line l ON l.up = p.id WHERE p.id = " + str(key),
            ]
        )


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "READ COMMITTED"])
def test_three_levels_of_cascades_come_out_clean(
    mysql_database: str, tmp_path: Path, dynamodb_url: str, isolation: str
) -> None:
    run_script(mysql_database, CHAIN)
    for name, up in LEVELS.items():
        rows = ", ".join(f"({n}, {n if up else 'NULL'}, {n}, '{{}}', 'x')" for n in range(1, 31))
        run_script(mysql_database, f"INSERT INTO {name} VALUES {rows}")
    made = chain_of(tmp_path, mysql_database, dynamodb_url)
    job = str(made.job)
    made.prepared("table create", "capture install", "backfill")
    chance, done = random.Random(35), 0
    with connect(mysql_database) as service, service.cursor() as cursor:
        cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
        for statement in changes(chance, 400):
            try:
                cursor.execute(statement)
            except service.Error:
                continue
            done += cursor.rowcount > 0
        cursor.execute("UPDATE region SET id = id + 100")
        cursor.execute("DELETE FROM region WHERE id % 2 = 0")
    assert done > 100
    made.done("relay", "--once", job)
    made.done("verify", job)
    made.done("doctor", job)


def test_a_cascade_is_seen_with_the_keys_that_are_not_of_innodb(mysql_database: str) -> None:
    """The SQL layer enforces foreign keys since 9.6, and the catalogue still tells them."""
    run_script(mysql_database, CHAIN)
    with capturing("mariadb", mysql_database) as shop, shop.writing.engine.connect() as connection:
        home = urlsplit(mysql_database).path[1:]
        found = {(one.parent[1], one.child[1]) for one in cascades(connection) if one.child[0] == home}
    assert found == {(up, name) for name, up in LEVELS.items() if up}


# ── tables ──


@pytest.mark.parametrize("form", ["TRADITIONAL", "JSON", "TREE"])
def test_plan_is_read_in_any_explain_format_of_the_server(mysql_database: str, form: str) -> None:
    """explain_format, which is TREE where nobody sets it."""
    script = (
        "CREATE TABLE t (id int PRIMARY KEY, a int); INSERT INTO t VALUES (1, 1), (2, 2); ANALYZE TABLE t"
    )
    url = f"{mysql_database}?init_command=SET%20explain_format%3D{form}"
    run_script(mysql_database, script)
    with closing(SqlSource(source_url(url))) as source:
        assert source.query("SELECT @@explain_format", {}) == [(form,)]
        (found,) = source.explain(plan_of(source.facts().tables["t"]), 100)
    assert "table=root" in found.lines[0]


def test_a_key_that_the_server_makes_itself_is_a_key(mysql_database: str) -> None:
    """Generated invisible primary keys; a replica, or a setting, may hide them from the catalogue."""
    script = "SET sql_generate_invisible_primary_key = ON; CREATE TABLE t (a int); INSERT INTO t VALUES (7)"
    (table,) = facts_of(mysql_database, script).values()
    assert table.primary_key == ("my_row_id",)
    assert [column.name for column in table.columns] == ["my_row_id", "a"]
    with capturing("mariadb", mysql_database) as shop:
        shop.install(captured(shop.table("t"), ["my_row_id", "a"]))
        shop.run("UPDATE t SET a = 8")
        (mark,) = shop.left()
    assert (mark.before, mark.after) == ({"my_row_id": 1, "a": 7}, {"my_row_id": 1, "a": 8})


def test_our_tables_have_the_keys_that_a_server_may_require(mysql_database: str) -> None:
    """sql_require_primary_key, which group replication and managed servers set."""
    run_script(mysql_database, "CREATE TABLE t (id int PRIMARY KEY, a int)")
    url = f"{mysql_database}?init_command=SET%20sql_require_primary_key%3D1"
    with capturing("mariadb", url) as shop:
        shop.install(captured(shop.table("t"), ["id", "a"]))


def test_indexes_of_expressions_and_checks_are_passed_by(mysql_database: str) -> None:
    script = """
        CREATE TABLE t (id int PRIMARY KEY, a int, b json, c int CHECK (c > 0), UNIQUE ((a + 1)), UNIQUE (c, (a * 2)),
            KEY multi ((CAST(b->'$.n' AS unsigned ARRAY))), CONSTRAINT doc CHECK (json_valid(b)))
    """
    (table,) = facts_of(mysql_database, script).values()
    assert (table.primary_key, table.unique) == (("id",), ())
    assert {column.name: column.kind.name for column in table.columns}["b"] == "json"


def test_values_equal_by_newer_collations_are_queried(mysql_database: str) -> None:
    """utf8mb4_0900_ai_ci, the default, tells trailing spaces."""
    script = "CREATE TABLE t (id int PRIMARY KEY, a varchar(9), b varchar(9) COLLATE utf8mb4_0900_as_cs)"
    (table,) = facts_of(mysql_database, script).values()
    assert [column.alike for column in table.columns] == [(), ("case",), ()]


def test_vectors_and_bits_have_their_kinds(mysql_database: str) -> None:
    script = "CREATE TABLE t (id int PRIMARY KEY, v vector(3), hidden int INVISIBLE, g geomcollection)"
    (table,) = facts_of(mysql_database, script).values()
    assert [column.kind.name for column in table.columns] == ["integer", "unknown", "integer", "unknown"]
    assert table.columns[0].kind == Kind("integer")


def test_vector_is_refused_with_a_replacement(mysql_database: str) -> None:
    assert_its_text_is_what_check_says(mysql_database, "STRING_TO_VECTOR")


def test_a_column_that_is_added_at_once_is_read_and_captured(mysql_database: str) -> None:
    run_script(
        mysql_database,
        "CREATE TABLE t (id int PRIMARY KEY, a int); INSERT INTO t VALUES (1, 1);"
        "ALTER TABLE t ADD COLUMN b varchar(9) DEFAULT 'x', ALGORITHM = INSTANT",
    )
    with capturing("mariadb", mysql_database) as shop:
        shop.install(captured(shop.table("t"), ["id", "a", "b"]))
        shop.run("ALTER TABLE t ADD COLUMN c int FIRST, ALGORITHM = INSTANT", "UPDATE t SET a = 2")
        (mark,) = shop.left()
    assert mark.after == {"id": 1, "a": 2, "b": "x"}


def test_two_phase_transaction_leaves_its_mark_at_its_commit(mysql_database: str) -> None:
    run_script(mysql_database, "CREATE TABLE t (id int PRIMARY KEY, a int); INSERT INTO t VALUES (1, 1)")
    name = secrets.token_hex(4)
    with capturing("mariadb", mysql_database) as shop:
        shop.install(captured(shop.table("t"), ["id", "a"]))
        with connect(mysql_database) as service, service.cursor() as cursor:
            for statement in ("START", "UPDATE t SET a = 2", "END", "PREPARE"):
                cursor.execute(statement if " " in statement else f"XA {statement} '{name}'")
        assert shop.left() == []
        shop.run(f"XA COMMIT '{name}'")
        assert len(shop.left()) == 1


def test_a_key_that_the_server_hides_is_not_made_up(mysql_database: str) -> None:
    """show_gipk_in_create_table_and_information_schema."""
    run_script(mysql_database, "SET sql_generate_invisible_primary_key = ON; CREATE TABLE t (a int)")
    hiding = "init_command=SET%20show_gipk_in_create_table_and_information_schema%3DOFF"
    (table,) = facts_of(f"{mysql_database}?{hiding}", "SELECT 1").values()
    assert (row_key(table), [column.name for column in table.columns]) == ((), ["a"])


# ── users ──


@pytest.fixture
def user(mysql_database: str) -> Iterator[tuple[str, str]]:
    """A user without rights, and its URL."""
    name, parts = f"h_{secrets.token_hex(4)}", urlsplit(mysql_database)
    run_script(
        mysql_database,
        f"CREATE USER {name} IDENTIFIED WITH caching_sha2_password BY 'x'; CREATE TABLE t (id int PRIMARY KEY, a int)",
    )
    yield name, urlunsplit(parts._replace(netloc=f"{name}:x@{parts.hostname}:{parts.port}"))
    run_script(mysql_database, f"DROP USER {name}")


def test_the_newer_passwords_let_in_without_tls(mysql_database: str, user: tuple[str, str]) -> None:
    """caching_sha2_password: a first log-in is encrypted with the server's RSA key, later ones are by its cache."""
    name, url = user
    run_script(mysql_database, f"GRANT SELECT ON {urlsplit(mysql_database).path[1:]}.* TO {name}")
    asked = f"SELECT plugin FROM mysql.user WHERE user = '{name}'"
    with closing(SqlSource(source_url(mysql_database))) as source:
        assert source.query(asked, {}) == [("caching_sha2_password",)]
    for _ in range(2):
        with closing(SqlSource(source_url(url))) as source:
            assert list(source.facts().tables) == ["t"]


def test_a_right_by_a_role_is_a_right(mysql_database: str, user: tuple[str, str]) -> None:
    name, url = user
    home, role = urlsplit(mysql_database).path[1:], f"r_{name}"
    run_script(
        mysql_database,
        f"CREATE ROLE {role}; GRANT ALL ON {home}.* TO {role}; GRANT {role} TO {name}; SET DEFAULT ROLE ALL TO {name}",
    )
    try:
        with capturing("mariadb", url) as shop:
            table = captured(shop.table("t"), ["id", "a"])
            assert shop.capture.refusals([table]) == []
            shop.install(table)
    finally:
        run_script(mysql_database, f"DROP ROLE {role}")


@pytest.mark.parametrize(
    ("statement", "lacks"),
    [
        ("INSERT INTO t VALUES (1, 1)", "GRANT INSERT ON `t` to it"),
        ("SET GLOBAL max_connections = 9", "this user lacks SUPER; GRANT SUPER ON *.* to it"),
    ],
)
def test_a_missing_right_is_reported_in_words(
    mysql_database: str, user: tuple[str, str], statement: str, lacks: str
) -> None:
    name, url = user
    run_script(mysql_database, f"GRANT SELECT (id) ON {urlsplit(mysql_database).path[1:]}.t TO {name}")
    with connect(url) as service, service.cursor() as cursor, pytest.raises(service.Error) as caught:
        cursor.execute(statement)
    assert lacks in denial(caught.value)
