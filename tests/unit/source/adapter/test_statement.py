from __future__ import annotations

import logging
import threading
import warnings

import pytest
import sqlglot

from migrator.source.adapter.statement import (
    Fragment,
    Opaque,
    StatementStyle,
    StatementValue,
    StatementWrite,
    Written,
    escaped,
    first_word,
    may_write,
    numbered,
    placeholder,
    quietly,
    unnamed,
    written,
)
from tests import pins

FORMATS = StatementStyle("postgresql", True)
DOLLARS = StatementStyle("postgresql")
SQLITE = StatementStyle("sqlite")


@pytest.mark.parametrize(
    ("spoken", "text", "wanted", "places"),
    [
        (FORMATS, "a = %s AND b = %(x)s AND c = %b", "a = migrator_p0 AND b = migrator_p1 AND c = migrator_p2", (0, "x", 2)),
        (FORMATS, "a LIKE 'x%%' AND b = %s", "a LIKE 'x%' AND b = migrator_p0", (0,)),
        (FORMATS, "a = '%s' AND b = %s", "a = 'migrator_p0' AND b = migrator_p1", (0, 1)),
        (FORMATS, "a = 1 -- %s\nAND b = %s", "a = 1 -- migrator_p0\nAND b = migrator_p1", (0, 1)),
        (FORMATS, "a ? 'k' AND b = %s", "a ? 'k' AND b = migrator_p0", (0,)),
        (DOLLARS, "a = $2 AND b = '$1' AND c = x$1", "a = migrator_p0 AND b = '$1' AND c = x$1", (1,)),
        (DOLLARS, "a = $q$ $1 $q$ AND b = E'\\'$1' AND c = $1", "a = $q$ $1 $q$ AND b = E'\\'$1' AND c = migrator_p0", (0,)),
        (DOLLARS, "a LIKE'\\' AND b = $1", "a LIKE'\\' AND b = migrator_p0", (0,)),
        (DOLLARS, "a LIKE '%s'", "a LIKE '%s'", ()),
        (SQLITE, "a = ? AND b = '?' AND c = \"?\" AND d = [?] AND e = `?` AND f = ?", "a = migrator_p0 AND b = '?' AND c = \"?\" AND d = [?] AND e = `?` AND f = migrator_p1", (0, 1)),
        (SQLITE, "a = ?2 /* ? */ AND b = :x AND c = @y AND d = $z", "a = migrator_p0 /* ? */ AND b = migrator_p1 AND c = migrator_p2 AND d = migrator_p3", (1, "x", "y", "z")),
        (SQLITE, "a LIKE '%s%%'", "a LIKE '%s%%'", ()),
    ],
)  # fmt: skip
def test_placeholders_are_named_and_lookalikes_are_not(
    spoken: StatementStyle, text: str, wanted: str, places: tuple[int | str, ...]
) -> None:
    found = numbered(text, spoken)
    assert (found.text, found.places) == (wanted, places)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("DELETE FROM t WHERE a = %s AND b = %(x)s RETURNING id", Fragment((" a = ", " AND b = ", " "), (0, "x"))),
        ("WITH x AS (SELECT 1 WHERE 2 = 2) DELETE FROM t WHERE a = 1", Fragment((" a = 1",))),
        ("UPDATE t SET a = (SELECT 1 WHERE true) WHERE b IN (SELECT 2 ORDER BY 1 LIMIT 3)", Fragment((" b IN (SELECT 2 ORDER BY 1 LIMIT 3)",))),
        ("DELETE FROM t WHERE a = ' WHERE b'; ", Fragment((" a = ' WHERE b'",))),
    ],
)  # fmt: skip
def test_where_is_the_outermost_one(text: str, where: Fragment) -> None:
    assert numbered(text, FORMATS).where(FORMATS) == where


def test_escaped_text_doubles_percent_for_formatting_drivers() -> None:
    assert [placeholder(style, 1) for style in ("pyformat", "format", "qmark", "numeric_dollar")] == [
        "%s", "%s", "?", "$2",
    ]  # fmt: skip
    assert [escaped("100%", style) for style in ("pyformat", "qmark")] == ["100%%", "100%"]


MYSQL = StatementStyle("mysql", True)
SPOKEN = {"postgresql": FORMATS, "mysql": MYSQL, "sqlite": SQLITE}


def read(dialect: str, text: str) -> Written:
    assert may_write(text, dialect), "it would not be parsed"
    return written(text, SPOKEN[dialect])


def write(dialect: str, text: str) -> StatementWrite:
    found = read(dialect, text)
    assert isinstance(found, StatementWrite), found
    return found


@pytest.mark.parametrize(
    ("dialect", "text", "word"),
    [
        ("postgresql", "delete from orders", "DELETE"),
        ("postgresql", "  \n\t(DELETE FROM orders)", "DELETE"),
        ("postgresql", "-- why\n/* what */ UPDATE orders", "UPDATE"),
        ("postgresql", "/* a /* nested */ b */ DELETE FROM orders", "DELETE"),
        ("mysql", "/* a /* not nested */ DELETE FROM orders", "DELETE"),
        ("mysql", "# why\nDELETE FROM orders", "DELETE"),
        ("mysql", "UPDATE`orders`SET a = 1", "UPDATE"),
        ("sqlite", "INSERT/**/INTO orders VALUES (1)", "INSERT"),
        ("sqlite", "\ufeff; REPLACE INTO orders VALUES (1)", "REPLACE"),
        ("sqlite", "/* never closed", ""),
        ("sqlite", "", ""),
    ],
)
def test_first_word_follows_space_comments_and_parentheses(dialect: str, text: str, word: str) -> None:
    assert first_word(text, dialect) == word


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM orders FOR UPDATE",
        "SELECT * FROM orders;",
        "TABLE orders",
        "VALUES (1)",
        "ANALYZE orders",
        "EXPLAIN SELECT * FROM orders",
        "SET search_path = orders",
        "CREATE TABLE x AS SELECT * FROM orders",
        "CREATE TABLE x (note text DEFAULT 'AS WITH')",
        "ALTER TABLE orders ADD COLUMN b text",
        "BEGIN",
    ],
)
def test_what_only_reads_is_not_looked_at(text: str) -> None:
    assert not may_write(text, "postgresql")


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("postgresql", "WITH x AS (SELECT 1) SELECT * FROM orders"),
        ("postgresql", "SELECT 1; SELECT 2"),
        ("postgresql", "COPY orders TO STDOUT"),
        ("postgresql", "EXPLAIN DELETE FROM orders"),
        ("mysql", "SET @update = 1"),
        ("mysql", "SELECT /*!40001 SQL_NO_CACHE */ id FROM orders"),
    ],
)
def test_read_only_statement_is_recognized(dialect: str, text: str) -> None:
    assert read(dialect, text) is None


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("postgresql", "SELECT 1; DELETE FROM orders"),
        ("postgresql", "WITH x AS (DELETE FROM orders RETURNING *) SELECT * FROM x"),
        ("postgresql", "MERGE INTO orders USING x ON orders.id = x.id WHEN MATCHED THEN DELETE"),
        ("postgresql", "TRUNCATE orders, other"),
        ("postgresql", "COPY orders FROM STDIN"),
        ("postgresql", "COPY orders (a) FROM STDIN (FORMAT BINARY)"),
        ("postgresql", "COPY (DELETE FROM orders RETURNING *) TO STDOUT"),
        ("postgresql", "INSERT INTO orders SELECT * FROM other"),
        ("postgresql", "INSERT INTO orders TABLE other"),
        ("postgresql", "INSERT INTO orders (id) SELECT 1 UNION ALL SELECT 2"),
        ("postgresql", "DELETE FROM orders WHERE CURRENT OF c"),
        ("postgresql", "EXPLAIN ANALYZE DELETE FROM orders"),
        ("postgresql", "EXPLAIN ANALYSE DELETE FROM orders"),
        (
            "postgresql",
            "CREATE -- it's\n TABLE x AS WITH y AS (UPDATE orders SET a = 1 RETURNING 1) SELECT * FROM y",
        ),
        ("postgresql", "ALTER TABLE orders DETACH PARTITION orders_2025 CONCURRENTLY"),
        ("mysql", "ALTER TABLE orders /* x */ TRUNCATE PARTITION p0"),
        ("postgresql", "INSERT INTO orders (id) OVERRIDING USER VALUE VALUES (1)"),
        ("mysql", "ANALYZE DELETE FROM orders"),
        ("mysql", "SET STATEMENT max_statement_time = 1 FOR DELETE FROM orders"),
        ("mysql", "BEGIN NOT ATOMIC DELETE FROM orders; END"),
        ("mysql", "/*!40000 DELETE FROM orders */"),
        ("mysql", "/*M! DELETE FROM orders */"),
        ("mysql", "LOAD DATA INFILE 'x' INTO TABLE orders"),
        ("mysql", "UPDATE other, orders SET orders.a = 1"),
        ("mysql", "UPDATE other JOIN orders ON orders.id = other.id SET orders.a = 1"),
        ("mysql", "DELETE orders FROM orders JOIN x ON x.id = orders.id"),
        ("mysql", "DELETE FROM o USING orders AS o JOIN x"),
        ("mysql", "DELETE FROM orders FOR PORTION OF p FROM 1 TO 2"),
        ("sqlite", "UPDATE OR REPLACE orders SET name = ? WHERE id = ?"),
        ("sqlite", "WITH RECURSIVE x AS (SELECT 1) INSERT INTO orders SELECT * FROM x"),
    ],
    ids=[
        "several-statements",
        "writes",
        "case",
        "case-postgresql",
        "case-2",
        "understood",
        "understood-returning",
        "query",
        "query-table",
        "query-union",
        "understood-current",
        "case-3",
        "case-analyse",
        "writes-made",
        "partition",
        "partition-mysql",
        "understood-insert",
        "case-4",
        "case-set",
        "case-begin",
        "case-5",
        "case-6",
        "understood-load",
        "several-tables",
        "several-tables-2",
        "several-tables-3",
        "several-tables-using",
        "understood-for",
        "understood-sqlite",
        "query-sqlite",
    ],
)
def test_opaque_statement_has_a_reason_and_its_table_names(dialect: str, text: str) -> None:
    found = read(dialect, text)
    assert isinstance(found, Opaque)
    assert pins.said(found.reason)
    assert "orders" in found.tables


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("mysql", "IF 1 THEN DELETE FROM orders WHERE name = 'a secret'; END IF"),
        ("postgresql", "MERGE orders 'a secret'"),
        ("postgresql", "COPY orders FROM PROGRAM 'a secret'"),
        ("mysql", "LOAD DATA INFILE 'a secret' INTO TABLE orders"),
        ("sqlite", "BEGIN; DELETE FROM orders WHERE name = 'a secret'; ATTACH 'a secret'"),
        ("mysql", "SELECT 1; RENAME USER 'a secret' TO x"),
        ("postgresql", 'SELECT 1; LISTEN orders; GRANT ALL ON orders TO "a secret"'),
    ],
)
def test_nothing_of_a_statement_is_logged(dialect: str, text: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as warned:
        read(dialect, text)
    assert caplog.text == ""
    assert warned == []


def test_sqlglot_read_by_a_service_itself_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Also in another thread, while the adapter reads."""
    with quietly():
        thread = threading.Thread(target=sqlglot.parse, args=("IF 1 THEN DELETE",), kwargs={"read": "mysql"})
        thread.start()
        thread.join()
    assert caplog.text.count("unsupported syntax") == 1
    sqlglot.parse("IF 1 THEN DELETE", read="mysql")
    assert caplog.text.count("unsupported syntax") == 2


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "sqlite"])
def test_a_statement_of_many_conditions_is_understood(dialect: str) -> None:
    tests = " AND ".join(f"c{number} = {number}" for number in range(5000))
    found = write(dialect, f"UPDATE orders SET a = 1 WHERE {tests} AND id = 3 AND (((n = 4)))")
    assert found.wanted["id"] == (StatementValue(None, 3),)
    assert len(found.wanted) == 5002


@pytest.mark.parametrize("nested", ["(" * 9000 + "id = 1" + ")" * 9000, "NOT " * 9000 + "id = 1"])
def test_a_statement_that_is_too_deep_is_not_understood(nested: str) -> None:
    found = read("postgresql", f"DELETE FROM orders WHERE {nested}")
    assert isinstance(found, Opaque)
    assert pins.said(found.reason)
    assert "orders" in found.tables


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("postgresql", "CALL p(1)"),
        ("postgresql", "DO $$ BEGIN END $$"),
        ("postgresql", "EXECUTE del(1)"),
        ("postgresql", "EXPLAIN (ANALYZE, COSTS OFF) EXECUTE del(1)"),
        ("postgresql", "EXPLAIN (VERBOSE, ANALYSE true) EXECUTE del(1)"),
        ("postgresql", "CREATE TEMP TABLE IF NOT EXISTS x AS EXECUTE del"),
        ("postgresql", "CREATE /* a -- */ TABLE x AS EXECUTE del"),
        ("mysql", "BEGIN del(); END"),
        ("postgresql", "SELECT 1; CALL p(1)"),
        ("postgresql", "SELECT 1; DO LANGUAGE plpgsql 'BEGIN END'"),
        ("postgresql", 'DELETE FROM U&"\\006frders"'),
        ("mysql", "SET STATEMENT max_statement_time = 1 FOR EXECUTE p"),
        ("mysql", "BEGIN NOT ATOMIC DO f(); END"),
        ("mysql", "/*!50000 CALL p() */"),
    ],
)
def test_statement_running_database_code_may_write_any_table(dialect: str, text: str) -> None:
    assert may_write(text, dialect)
    found = read(dialect, text)
    assert isinstance(found, Opaque)
    assert found.tables == frozenset()


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("postgresql", "EXPLAIN EXECUTE del(1)"),
        ("postgresql", "INSERT INTO notes VALUES ('call; execute; do')"),
        ("postgresql", "INSERT INTO notes VALUES (1) ON CONFLICT DO NOTHING; SELECT 1"),
        ("postgresql", "CREATE TRIGGER t AFTER UPDATE ON orders EXECUTE FUNCTION f(); SELECT 1"),
        ("postgresql", "INSERT INTO notes VALUES ('U&') /* U& */"),
        ("mysql", 'INSERT INTO notes VALUES (U&"x")'),
        ("mysql", "CREATE PROCEDURE p() BEGIN CALL other(); END"),
    ],
)
def test_statement_that_names_all_its_writes_is_not_code(dialect: str, text: str) -> None:
    assert unnamed(text, dialect) == ""


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("INSERT LOW_PRIORITY INTO orders (id) VALUES (1)", "insert"),
        ("UPDATE LOW_PRIORITY orders SET a = 1 WHERE id = 1", "update"),
        ("UPDATE IGNORE orders SET a = 1 WHERE id = 1", "update"),
        ("DELETE QUICK IGNORE FROM orders WHERE id = 1", "delete"),
        ("/* x */ REPLACE DELAYED INTO orders VALUES (1)", "insert"),
        ("REPLACE orders VALUES (1)", "insert"),
    ],
)
def test_mysqls_words_of_manners_are_no_table(text: str, action: str) -> None:
    found = write("mysql", text)
    assert (found.action, found.table) == (action, "orders")


@pytest.mark.parametrize(
    ("dialect", "text", "upserts", "replaces"),
    [
        ("postgresql", "INSERT INTO orders (id) VALUES (1)", False, False),
        ("postgresql", "INSERT INTO orders (id) VALUES (1) ON CONFLICT DO NOTHING", True, False),
        ("mysql", "INSERT IGNORE INTO orders (id) VALUES (1)", True, False),
        ("mysql", "INSERT HIGH_PRIORITY IGNORE INTO orders (id) VALUES (1)", True, False),
        ("mysql", "INSERT INTO orders (id) VALUES (1) ON DUPLICATE KEY UPDATE a = 1", True, False),
        ("mysql", "REPLACE INTO orders SET id = 1", True, True),
        ("sqlite", "INSERT OR IGNORE INTO orders (id) VALUES (1)", True, False),
        ("sqlite", "INSERT OR REPLACE INTO orders (id) VALUES (1)", True, True),
        ("sqlite", "REPLACE INTO orders (id) VALUES (1)", True, True),
    ],
)
def test_an_upsert_differs_from_an_insert(dialect: str, text: str, upserts: bool, replaces: bool) -> None:
    found = write(dialect, text)
    assert (found.is_upsert, found.replaces) == (upserts, replaces)


def test_a_statement_that_ends_in_a_comment_is_one_statement() -> None:
    assert write("postgresql", "DELETE FROM orders WHERE id = 1; -- done").table == "orders"


def test_a_key_of_an_identity_column_may_be_given() -> None:
    text = "INSERT INTO orders (id) OVERRIDING SYSTEM VALUE VALUES (%s)"
    assert write("postgresql", text).columns == ("id",)
