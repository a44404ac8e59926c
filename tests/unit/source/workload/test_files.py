"""Logs as MariaDB, MySQL and SQLAlchemy write them: their statements, databases and times, and what is cut."""

from __future__ import annotations

import pytest

from migrator.mapping.design.questions import CUT
from migrator.source.workload.files import Sent, sent_statements, span_s, statements_of

SLOW = """\
/usr/sbin/mariadbd, Version: 10.11.6-MariaDB (Debian 12). started with:
Tcp port: 3306  Unix socket: /run/mysqld/mysqld.sock
Time\t\t    Id Command\tArgument
# Time: 261123 15:09:34
# User@Host: app[app] @ localhost [127.0.0.1]
# Thread_id: 5  Schema: shop  QC_hit: No
# Query_time: 0.000698  Lock_time: 0.000539  Rows_sent: 0  Rows_examined: 0
# Rows_affected: 0  Bytes_sent: 143
use `shop`;
SET timestamp=1795446574;
select id from orders where
  id = 1 and name = 'secret\\'x
# of a name';
# User@Host: app[app] @ localhost [127.0.0.1]
# Thread_id: 5  Schema: shop  QC_hit: No
# Query_time: 0.000012  Lock_time: 0.000000  Rows_sent: 0  Rows_examined: 0
# administrator command: Quit;
# Time: 2026-11-23T15:09:44.123456Z
# User@Host: app[app] @ localhost []  Id:     8
# Query_time: 0.000123  Lock_time: 0.000050 Rows_sent: 1  Rows_examined: 1
use other;
SET timestamp=1795446584;
SELECT 1 FROM orders;
"""
GENERAL = """\
/usr/sbin/mariadbd, Version: 10.11.6-MariaDB (Debian 12). started with:
Tcp port: 3306  Unix socket: /run/mysqld/mysqld.sock
Time\t\t    Id Command\tArgument
261123  9:09:34\t     3 Connect\tapp@localhost on shop using TCP/IP
\t\t     4 Connect\tapp@localhost on  using TCP/IP
\t\t     3 Query\tselect id from orders where
  id = 'secret'
\t\t     4 Init DB\tother
\t\t     4 Query\tSELECT 1 FROM orders
\t\t     3 Prepare\tSELECT id FROM orders WHERE id = ?
2026-11-23T09:09:44.500000Z\t     3 Execute\tSELECT id FROM orders WHERE id = 7
\t\t     3 Quit\t
"""
ECHO = """\
2026-11-23 15:09:18,832 INFO sqlalchemy.engine.Engine BEGIN (implicit)
2026-11-23 15:09:18,843 INFO sqlalchemy.engine.Engine SELECT t.id, t.name 
FROM t 
WHERE t.id = ? AND t.name = ?
2026-11-23 15:09:18,843 INFO sqlalchemy.engine.Engine [generated in 0.00019s] (1, 'secret')
2026-11-23 15:09:18,844 INFO shop.web secret of another logger
2026-11-23 15:09:28,843 DEBUG sqlalchemy.engine.Engine Row (1, 'secret')
INFO:sqlalchemy.engine.Engine:(SELECT id FROM t)
INFO:sqlalchemy.engine.Engine:('secret',)
2026-11-23 15:09:28,845 INFO sqlalchemy.engine.Engine.pool1 - COMMIT
"""


def sent(text: str) -> list[Sent]:
    statements = sent_statements(text)
    assert statements is not None
    return list(statements)


def test_the_slow_log_is_known_by_its_content() -> None:
    first, second = sent(SLOW)
    assert (first.sql.split(), first.database) == (
        [
            "select",
            "id",
            "from",
            "orders",
            "where",
            "id",
            "=",
            "1",
            "and",
            "name",
            "=",
            "'secret\\'x",
            "#",
            "of",
            "a",
            "name'",
        ],
        "shop",
    )
    assert (second.sql, second.database) == ("SELECT 1 FROM orders", "other")
    assert span_s([first, second]) == 10


def test_the_general_log_is_known_by_its_content() -> None:
    statements = sent(GENERAL)
    assert [(each.sql, each.database) for each in statements] == [
        ("select id from orders where\n  id = 'secret'", "shop"),
        ("SELECT 1 FROM orders", "other"),
        ("SELECT id FROM orders WHERE id = 7", "shop"),
    ]
    assert span_s(statements) == 10.5


def test_sqlalchemys_log_is_known_by_its_content_and_its_parameters_are_not_read() -> None:
    statements = sent(ECHO)
    assert [each.sql.split()[0] for each in statements] == ["BEGIN", "SELECT", "(SELECT", "COMMIT"]
    assert "secret" not in str(statements)
    assert span_s(statements) == pytest.approx(10.013)


def test_a_log_without_a_statement_has_none() -> None:
    assert sent(SLOW[: SLOW.index("# Time")]) == []


def test_a_file_of_sql_is_no_log() -> None:
    assert sent_statements("-- 9/s\nSELECT 1;\n# Time: none\nSELECT 2;") is None


@pytest.mark.parametrize("log", [SLOW, GENERAL, ECHO], ids=["slow", "general", "echo"])
def test_what_is_cut_at_the_beginning_or_at_the_end_is_told_and_nothing_of_a_value_is_left(log: str) -> None:
    for cut in range(len(log)):
        for piece in (log[:cut], log[cut:]):
            for statement in statements_of(piece, "mysql", "shop") if sent_statements(piece) else ():
                assert "secret" not in statement.sql


@pytest.mark.parametrize(
    ("log", "end"),
    [
        (SLOW, "\n  id = 1 and"),
        (SLOW, "SET timestamp=1795446584;"),
        (GENERAL, "WHERE id = 7"),
        (ECHO, "FROM t \n"),
    ],
)
def test_the_last_statement_of_a_log_that_ends_within_it_is_cut(log: str, end: str) -> None:
    last = sent(log[: log.index(end) + len(end)])[-1]
    assert last.sql.endswith(CUT)


@pytest.mark.parametrize(
    ("log", "begin"),
    [
        (SLOW, "  id = 1"),
        (GENERAL, "  id = 's"),
        (ECHO, "2026-11-23 15:09:18,843 INFO sqlalchemy.engine.Engine ["),
    ],
)
def test_the_first_statement_of_a_log_that_begins_within_it_is_cut(log: str, begin: str) -> None:
    assert sent(log[log.index(begin) :])[0].sql == CUT


def test_a_log_says_calls_and_calls_a_second_and_which_went_to_another_database() -> None:
    statements = {
        each.elsewhere: each for each in statements_of(SLOW + SLOW[SLOW.index("# Time") :], "mysql", "Shop")
    }
    assert statements[""].calls == 2
    assert statements[""].per_s == pytest.approx(0.2)
    assert statements["other"].sql == "SELECT 1 FROM orders"
