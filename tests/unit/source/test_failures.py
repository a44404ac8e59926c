from __future__ import annotations

import sqlite3
from types import SimpleNamespace

import psycopg
import pymysql
import pytest
from sqlalchemy.exc import DBAPIError, ResourceClosedError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from migrator.model.errors import HiddenRowsError
from migrator.runtime.server_errors import is_broken, is_of_a_file
from migrator.source.transactions import source_error


def message_of(error: Exception) -> str:
    return str(source_error(error, "PostgreSQL database shop", "entity order (table orders)"))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (psycopg.errors.QueryCanceled("secret"), "QueryCanceled: the server cancelled it"),
        (psycopg.errors.InsufficientPrivilege("secret"), "GRANT SELECT"),
        (psycopg.errors.UndefinedTable("secret"), "no such table"),
        (psycopg.errors.UndefinedColumn("secret"), "no such column"),
        (psycopg.errors.InvalidTextRepresentation("secret"), "does not fit its type"),
        (psycopg.errors.AdminShutdown("secret"), "run the same command again"),
        (psycopg.errors.DiskFull("secret"), "out of memory, disk or connections"),
        (psycopg.errors.InternalError_("secret"), "a failure of its own"),
        (psycopg.OperationalError("secret: server closed the connection unexpectedly"), "connection broke"),
        (psycopg.OperationalError("secret"), "the connection failed"),
        (pymysql.err.OperationalError(1045, "secret"), "the user or the password is wrong"),
        (pymysql.err.OperationalError(1044, "secret"), "may not use this database"),
        (pymysql.err.OperationalError(1049, "secret"), "no such database"),
        (pymysql.err.OperationalError(1142, "secret"), "GRANT SELECT"),
        (pymysql.err.ProgrammingError(1146, "secret"), "no such table"),
        (pymysql.err.OperationalError(1054, "secret"), "no such column"),
        (pymysql.err.ProgrammingError(1064, "secret"), "syntax error"),
        (
            pymysql.err.OperationalError(2003, "secret ([Errno 111] Connection refused)"),
            "no server listens there",
        ),
        (pymysql.err.OperationalError(2003, "secret (timed out)"), "no answer in time"),
        (pymysql.err.OperationalError(2003, "secret"), "the connection failed"),
        (pymysql.err.OperationalError(2006, "secret"), "the connection broke"),
        (pymysql.err.OperationalError(2013, "secret"), "run the same command again"),
        (pymysql.err.OperationalError(1040, "secret"), "use fewer workers"),
        (pymysql.err.OperationalError(1205, "secret"), "another program holds the lock"),
        (pymysql.err.OperationalError(1213, "secret"), "another program holds the lock"),
        (pymysql.err.OperationalError(1412, "secret"), "the table was altered"),
        (pymysql.err.OperationalError(1969, "secret"), "raise statement_timeout_s"),
        (pymysql.err.OperationalError(3024, "secret"), "max_execution_time"),
        (pymysql.err.OperationalError(1290, "secret"), "only read"),
        (pymysql.err.OperationalError(1792, "secret"), "only read"),
        (pymysql.err.DataError(1292, "secret"), "does not fit its type"),
        (pymysql.err.InterfaceError("secret"), "see the database's own log"),
        (sqlite3.OperationalError("secret"), "see the database's own log"),
        (ResourceClosedError("secret does not return rows"), "write one SELECT"),
        (
            PoolTimeout("QueuePool limit of size 1 overflow 0 reached, connection timed out, timeout 1.00"),
            "raise max_connections",
        ),
        (OverflowError("secret"), "OverflowError"),
    ],
)
def test_a_failure_is_told_in_our_words(error: Exception, words: str) -> None:
    message = message_of(error)
    assert message.startswith("PostgreSQL database shop: entity order (table orders): ")
    assert words in message
    assert "secret" not in message


def test_the_drivers_class_is_named_where_sqlalchemy_wraps_it() -> None:
    wrapped = DBAPIError("SELECT secret", {"id": "secret"}, psycopg.errors.UndefinedTable("secret"))
    assert "UndefinedTable: there is no such table" in message_of(wrapped)
    assert "secret" not in message_of(wrapped)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ('query would be affected by row-level security policy for table "orders"', " of table orders "),
        ("die Abfrage würde von der Policy für die Tabelle »orders« betroffen sein", " of table orders "),
        ("", " of a table "),
    ],
)
def test_rows_that_a_policy_would_hide_are_told_in_any_language(said: str, named: str) -> None:
    class Refused(psycopg.errors.InsufficientPrivilege):
        diag = SimpleNamespace(source_function="check_enable_rls", message_primary=said)  # type: ignore[assignment]

    error = source_error(Refused("secret"), "PostgreSQL database shop", "entity order")
    assert type(error) is HiddenRowsError
    assert f"row level security{named}would hide rows" in str(error)
    assert "BYPASSRLS" in str(error)


@pytest.mark.parametrize(
    ("error", "broken"),
    [
        (psycopg.errors.AdminShutdown("x"), True),
        (psycopg.errors.CannotConnectNow("x"), True),
        (psycopg.errors.SerializationFailure("canceling statement due to conflict with recovery"), True),
        (psycopg.OperationalError("consuming input failed: server closed the connection unexpectedly"), True),
        (psycopg.OperationalError("connection failed: Connection refused"), True),
        (psycopg.OperationalError('FATAL:  password authentication failed for user "x"'), False),
        (psycopg.errors.QueryCanceled("canceling statement due to statement timeout"), False),
        (psycopg.errors.UndefinedTable('relation "timed out" does not exist'), False),
        (pymysql.err.OperationalError(2013, "Lost connection"), True),
        (pymysql.err.OperationalError(1927, "Connection was killed"), True),
        (pymysql.err.OperationalError(1969, "max_statement_time exceeded"), False),
        (pymysql.err.OperationalError(1045, "Access denied"), False),
        (sqlite3.OperationalError("interrupted"), False),
        (DBAPIError("SELECT 1", {}, Exception("x"), connection_invalidated=True), True),
        (
            PoolTimeout("QueuePool limit of size 1 overflow 0 reached, connection timed out, timeout 1.00"),
            False,
        ),
    ],
)
def test_only_what_broke_with_its_connection_is_tried_again(error: Exception, broken: bool) -> None:
    assert is_broken(error) is broken


def test_of_a_driver_that_gives_a_state_too_the_servers_own_number_says_more() -> None:
    error = pymysql.err.OperationalError(1045, "Access denied")
    error.sqlstate = "28000"
    assert "the user or the password is wrong" in str(source_error(error, "there", "reading"))
    error.args = (9999, "something new")
    assert "does not let this user in" in str(source_error(error, "there", "reading"))


@pytest.mark.parametrize(
    ("error", "is_of_one"),
    [
        (pymysql.err.InternalError(29, "File './other/t.TRG' not found (Errcode: 2)"), True),
        (pymysql.err.InternalError("Packet sequence number wrong"), False),
        (pymysql.err.ProgrammingError(1146, "no such table"), False),
        (psycopg.OperationalError("29"), False),
    ],
)
def test_a_file_that_is_gone_while_all_databases_are_looked_at_is_known(
    error: Exception, is_of_one: bool
) -> None:
    assert is_of_a_file(DBAPIError("SELECT", {}, error)) is is_of_one
