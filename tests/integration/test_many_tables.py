"""A source with many tables: what is asked of statistics and rights visits the entities' tables alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import event
from sqlalchemy.engine import Engine

from migrator.source.capture.install import SqlActivity
from tests.support_capture import capturing
from tests.support_mysql import run_script

MANY = 300
FEW_ROWS = 150
"""What a statement may visit, however many tables there are; a join of all with all would be 90,000."""


@contextmanager
def counted(engine: Engine) -> Iterator[list[tuple[int, str]]]:
    """(rows visited, statement) of every statement about statistics or rights, by the server's own count."""
    found: list[tuple[int, str]] = []

    def look(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "pg_class" in statement and "pg_locks" not in statement and "EXPLAIN" not in statement:
            plain = cursor.connection.cursor()
            plain.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
            found.append((visited(json.loads(plain.fetchone()[0])[0]["Plan"]), statement))

    event.listen(engine, "before_cursor_execute", look)
    yield found
    event.remove(engine, "before_cursor_execute", look)


def visited(node: dict[str, Any]) -> int:
    """Rows that the nodes of a plan gave and threw away, over all of their loops."""
    thrown = sum(count for name, count in node.items() if name.startswith("Rows Removed"))
    own: float = (node["Actual Rows"] + thrown) * node["Actual Loops"]
    return round(own) + sum(visited(one) for one in node.get("Plans", ()))


def test_postgresql_look_at_changes_visits_only_entity_tables(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as server:
        server.execute("CREATE TABLE customer (id integer PRIMARY KEY, name text)")
        each = "EXECUTE format('CREATE TABLE t%s (id integer)', i)"
        server.execute(f"DO $$ BEGIN FOR i IN 1..{MANY} LOOP {each}; END LOOP; END $$")
        server.execute("ANALYZE pg_class, pg_namespace")
    with capturing("postgresql", postgres_database) as shop:
        shop.run("INSERT INTO customer VALUES (1, 'Ann')")
        with counted(shop.writing._capture_reading.engine) as statements:
            seen = SqlActivity(shop.writing).look(["public.customer"])
    assert set(seen.tables) == {"public.customer"}
    assert set(seen.may_write) == {"public.customer"}
    assert len(statements) >= 2
    assert [one for one in statements if one[0] > FEW_ROWS] == []


def test_mariadb_look_at_changes_opens_only_entity_tables(mysql_database: str) -> None:
    run_script(
        mysql_database, ";".join(f"CREATE TABLE t{number} (id integer)" for number in range(MANY // 3))
    )
    run_script(
        mysql_database, "CREATE TABLE customer (id integer PRIMARY KEY); INSERT INTO customer VALUES (1)"
    )
    read: list[int] = []

    def before(_: Any, cursor: Any, *__: Any) -> None:
        cursor.connection.cursor().execute("FLUSH STATUS")

    def after(_: Any, cursor: Any, statement: str, *__: Any) -> None:
        if "UPDATE" in statement:
            status = cursor.connection.cursor()
            status.execute("SHOW SESSION STATUS LIKE 'Handler_read_rnd_next'")
            read.append(int(status.fetchone()[1]))

    with capturing("mariadb", mysql_database) as shop:
        engine = shop.writing._capture_reading.engine
        event.listen(engine, "before_cursor_execute", before)
        event.listen(engine, "after_cursor_execute", after)
        seen = SqlActivity(shop.writing).look(["customer"])
    assert set(seen.tables) == {"customer"}
    # One query, and on MySQL one more, whether this user may count changes.
    assert 1 <= len(read) <= 2
    assert max(read) <= FEW_ROWS
