from __future__ import annotations

import sqlite3
from types import SimpleNamespace

import psycopg
import pymysql
import pytest
from sqlalchemy.exc import DBAPIError, ResourceClosedError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from migrator.journal.database import in_words
from migrator.runtime.errors import HiddenRowsError
from migrator.runtime.server_errors import is_broken, is_of_a_file
from migrator.source.sql.transactions import row_trees, source_error
from tests import pins
from tests.support_source import LINE, LINES, PURCHASE, list_of, number_of, plan_of


def message_of(error: Exception) -> str:
    return str(source_error(error, "PostgreSQL database shop", "entity order (table orders)"))


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.QueryCanceled("secret"),
        psycopg.errors.InsufficientPrivilege("secret"),
        psycopg.errors.UndefinedTable("secret"),
        psycopg.errors.UndefinedColumn("secret"),
        psycopg.errors.InvalidTextRepresentation("secret"),
        psycopg.errors.AdminShutdown("secret"),
        psycopg.errors.DiskFull("secret"),
        psycopg.errors.InternalError_("secret"),
        psycopg.OperationalError("secret: server closed the connection unexpectedly"),
        psycopg.OperationalError("secret"),
        pymysql.err.OperationalError(1045, "secret"),
        pymysql.err.OperationalError(1044, "secret"),
        pymysql.err.OperationalError(1049, "secret"),
        pymysql.err.OperationalError(1142, "secret"),
        pymysql.err.ProgrammingError(1146, "secret"),
        pymysql.err.OperationalError(1054, "secret"),
        pymysql.err.ProgrammingError(1064, "secret"),
        pymysql.err.OperationalError(2003, "secret ([Errno 111] Connection refused)"),
        pymysql.err.OperationalError(2003, "secret (timed out)"),
        pymysql.err.OperationalError(2013, "secret (timed out)"),
        pymysql.err.OperationalError(2003, "secret"),
        pymysql.err.OperationalError(2006, "secret"),
        pymysql.err.OperationalError(2013, "secret"),
        pymysql.err.OperationalError(1040, "secret"),
        pymysql.err.OperationalError(1205, "secret"),
        pymysql.err.OperationalError(1213, "secret"),
        pymysql.err.OperationalError(1412, "secret"),
        pymysql.err.OperationalError(1969, "secret"),
        pymysql.err.OperationalError(3024, "secret"),
        pymysql.err.OperationalError(1290, "secret"),
        pymysql.err.OperationalError(1792, "secret"),
        pymysql.err.DataError(1292, "secret"),
        pymysql.err.InterfaceError("secret"),
        sqlite3.OperationalError("secret"),
        ResourceClosedError("secret does not return rows"),
        PoolTimeout("QueuePool limit of size 1 overflow 0 reached, connection timed out, timeout 1.00"),
        OverflowError("secret"),
    ],
    ids=[
        "server-cancelled",
        "case",
        "such-table",
        "such-column",
        "fit-type",
        "command-again",
        "disk-connections",
        "failure",
        "connection-broke",
        "connection-failed",
        "password-wrong",
        "use-database",
        "such-database",
        "case-pymysql",
        "such-table-pymysql",
        "such-column-pymysql",
        "syntax-error",
        "server-listens",
        "answer-time",
        "answer-time-of-the-handshake",
        "connection-failed-pymysql",
        "connection-broke-pymysql",
        "same-command-again",
        "fewer-workers",
        "program-lock",
        "program-holds-lock",
        "table-altered",
        "raise-timeout",
        "max-time",
        "read",
        "read-2",
        "fit-type-pymysql",
        "see-log",
        "see-log-sqlite",
        "write",
        "max-connections",
        "case-overflowerror",
    ],
)
def test_a_failure_is_reported_in_our_words(error: Exception) -> None:
    message = message_of(error)
    assert message.startswith("PostgreSQL database shop: entity order (table orders): ")
    assert pins.said(message)
    assert "secret" not in message


def test_drivers_class_is_named_if_sqlalchemy_wraps_it() -> None:
    wrapped = DBAPIError("SELECT secret", {"id": "secret"}, psycopg.errors.UndefinedTable("secret"))
    assert pins.said(message_of(wrapped))
    assert "secret" not in message_of(wrapped)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ('query would be affected by row-level security policy for table "orders"', " of table orders "),
        ("die Abfrage würde von der Policy für die Tabelle »orders« betroffen sein", " of table orders "),
        ("", " of a table "),
    ],
)
def test_rows_hidden_by_a_policy_are_reported_in_any_language(said: str, named: str) -> None:
    class Refused(psycopg.errors.InsufficientPrivilege):
        diag = SimpleNamespace(source_function="check_enable_rls", message_primary=said)  # type: ignore[assignment]

    error = source_error(Refused("secret"), "PostgreSQL database shop", "entity order")
    assert type(error) is HiddenRowsError
    assert pins.said(str(error), named=named)
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
        (pymysql.err.InterfaceError(0, ""), True),
        (sqlite3.ProgrammingError("Cannot operate on a closed database."), True),
        (sqlite3.OperationalError("interrupted"), False),
        (DBAPIError("SELECT 1", {}, Exception("x"), connection_invalidated=True), True),
        (
            PoolTimeout("QueuePool limit of size 1 overflow 0 reached, connection timed out, timeout 1.00"),
            False,
        ),
    ],
)
def test_only_work_broken_by_its_connection_is_retried(error: Exception, broken: bool) -> None:
    assert is_broken(error) is broken


def test_server_error_number_outranks_the_drivers_sqlstate() -> None:
    error = pymysql.err.OperationalError(1045, "Access denied")
    error.sqlstate = "28000"
    assert pins.said(str(source_error(error, "there", "reading")), "wrong")
    error.args = (9999, "something new")
    assert pins.said(str(source_error(error, "there", "reading")), "let")


@pytest.mark.parametrize(
    ("error", "is_of_one"),
    [
        (pymysql.err.InternalError(29, "File './other/t.TRG' not found (Errcode: 2)"), True),
        (pymysql.err.InternalError("Packet sequence number wrong"), False),
        (pymysql.err.ProgrammingError(1146, "no such table"), False),
        (psycopg.OperationalError("29"), False),
    ],
)
def test_file_missing_while_all_databases_are_listed_is_known(error: Exception, is_of_one: bool) -> None:
    assert is_of_a_file(DBAPIError("SELECT", {}, error)) is is_of_one


_STARTUP = 'connection failed: connection to server at "10.0.0.1", port 5432 failed: FATAL:  '


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            psycopg.OperationalError(f'{_STARTUP}role "shop" is not permitted to log in'),
            "role … is not permitted to log in",
        ),
        (
            psycopg.OperationalError(f'{_STARTUP}database "shop" is not currently accepting connections'),
            "database … is not currently accepting connections",
        ),
        (
            pymysql.err.OperationalError(4151, "Access denied, this account is locked"),
            "Access denied, this account is locked",
        ),
        (
            pymysql.err.OperationalError(3118, "Access denied for user 'me'@'h'. Account is locked."),
            "Access denied for user …. Account is locked.",
        ),
        (
            pymysql.err.OperationalError(1862, "Your password has expired. To log in you must change it"),
            "Your password has expired. To log in you must change it",
        ),
    ],
)
def test_a_refused_login_has_the_servers_own_reason(error: Exception, words: str) -> None:
    assert f"(server: {words})" in message_of(error)
    told = in_words(error, "the journal", on_server=True, reached=False, committing=False)  # type: ignore[arg-type]
    assert f"(server: {words})" in str(told)


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("connection failed: … port 5432 failed: Connection refused"),
        psycopg.OperationalError("failed to resolve host 'secret': [Errno -2] Name or service not known"),
        psycopg.OperationalError("connection failed: server does not support SSL, but SSL was required"),
        psycopg.ProgrammingError('invalid connection option "secret"'),
        pymysql.err.OperationalError(2003, "Can't connect to MySQL server on 'secret' (timed out)"),
    ],
)
def test_a_journal_that_is_not_reached_has_the_reason_that_a_source_has(error: Exception) -> None:
    reason = message_of(error).partition(f"{type(error).__name__}: ")[2]
    told = in_words(error, "the journal", on_server=True, reached=False, committing=False)  # type: ignore[arg-type]
    assert reason.replace("the source's URL", "the journal's URL") in str(told)
    assert "secret" not in reason


def test_lost_connection_error_has_no_words_of_the_server() -> None:
    lost = psycopg.OperationalError("server closed the connection\nFATAL:  secret", "secret")
    assert "secret" not in message_of(lost)


@pytest.mark.parametrize(
    "read",
    [
        [(20, "fig", 1), (20, "pear", 2)],
        # As a collation orders them that takes two keys for one.
        [(20, "fig", 1), (30, "kiwi", 1), (20, "pear", 2)],
    ],
)
def test_children_go_to_the_root_that_has_their_key(read: list[tuple[object, ...]]) -> None:
    plan = plan_of(
        PURCHASE, ["status", "id"], collections=[list_of("lines", LINE, LINES, ["product", "line_no"])]
    )
    trees = row_trees(plan, [("P", 10), ("S", 20)], [read])
    assert trees == [("P", 10, ()), ("S", 20, (("fig", 1), ("pear", 2)))]


@pytest.mark.parametrize(("kind", "of_none"), [("count", 0), ("sum", None), ("min", None), ("max", None)])
def test_an_aggregate_of_nothing_is_null_or_zero(kind: str, of_none: int | None) -> None:
    plan = plan_of(PURCHASE, ["id"], collections=[number_of(kind, LINE, LINES, "amount")])
    assert row_trees(plan, [(10,), (20,)], [[(10, 3)]]) == [(10, 3), (20, of_none)]
