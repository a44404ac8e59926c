"""What an error of a database's driver says of its server: gone, busy, in the way, read-only, closed to us."""

from __future__ import annotations

import re

_BROKEN_SQLSTATES = frozenset({"57P01", "57P02", "57P03", "25P03", "53300", "40001"})
_BROKEN_MYSQL = frozenset(
    {1040, 1053, 1077, 1079, 1152, 1203, 1412, 1927, 2002, 2003, 2006, 2013, 2055, 4031}
)
_BROKEN_TEXT = re.compile(
    r"connection refused|timeout expired|timed out|unreachable|no route|starting up|shutting down|terminating"
    r"|server closed the connection|connection .*(lost|closed|reset)|too many (clients|connections)|connection slots"
    r"|EOF detected|in recovery mode|not (yet )?accepting connections|could not (receive|send)",
    re.IGNORECASE,
)
_BUSY_SQLSTATES = frozenset({"53300", "57P03"})
_BUSY_MYSQL = frozenset({1040, 1203})
_BUSY_TEXT = re.compile(
    r"too many (clients|connections)|connection slots|starting up|shutting down|in recovery mode"
    r"|not (yet )?accepting connections",
    re.IGNORECASE,
)
_USER_LIMIT = 1226
"""MySQL's for every limit of a user; that of connections at once passes, those of an hour do not."""
_BY_NETWORK = frozenset({"OperationalError", "ConnectionTimeout"})
"""Errors of psycopg's that come without a state: libpq made them, not the server."""
_CONTENDED_SQLSTATES = frozenset({"40001", "40P01", "55P03"})
_CONTENDED_MYSQL = frozenset({1205, 1213})
_READ_ONLY_MYSQL = frozenset({1290, 1792, 1836})


def is_broken(error: BaseException) -> bool:
    """Whether the connection or the snapshot failed and not the statement: a new one may serve."""
    if getattr(error, "connection_invalidated", False):
        return True
    cause = getattr(error, "orig", None) or error
    state, number = getattr(cause, "sqlstate", None), mysql_number(cause)
    if state or number:
        known = state in _BROKEN_SQLSTATES or (state or "").startswith("08") or number in _BROKEN_MYSQL
        return known or _at_limit(cause)
    return type(cause).__name__ in _BY_NETWORK and bool(_BROKEN_TEXT.search(str(cause)))


def is_busy(error: BaseException) -> bool:
    """Whether the server is there and lets nobody in just now: no connection is left, or it is starting or stopping."""
    cause = getattr(error, "orig", None) or error
    state, number = getattr(cause, "sqlstate", None), mysql_number(cause)
    if state or number:
        return state in _BUSY_SQLSTATES or number in _BUSY_MYSQL or _at_limit(cause)
    return type(cause).__name__ in _BY_NETWORK and bool(_BUSY_TEXT.search(str(cause)))


def _at_limit(cause: BaseException) -> bool:
    return mysql_number(cause) == _USER_LIMIT and "max_user_connections" in str(cause)


def is_contended(error: BaseException) -> bool:
    """Whether another transaction was in the way (a deadlock, a lock that was held too long): a new one may serve."""
    cause = getattr(error, "orig", None) or error
    if getattr(cause, "sqlstate", None) in _CONTENDED_SQLSTATES or mysql_number(cause) in _CONTENDED_MYSQL:
        return True
    return str(getattr(cause, "sqlite_errorname", "")).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def takes_no_writes(error: BaseException) -> bool:
    """Whether the server, or the file, only lets itself be read: a standby, one that was made read-only."""
    cause = getattr(error, "orig", None) or error
    if getattr(cause, "sqlstate", None) == "25006" or mysql_number(cause) in _READ_ONLY_MYSQL:
        return True
    # What a standby says to BEGIN READ WRITE; the state alone says no more than "not supported".
    if getattr(cause, "sqlstate", None) == "0A000" and "recovery" in str(cause):
        return True
    return str(getattr(cause, "sqlite_errorname", "")).startswith("SQLITE_READONLY")


def refuses_login(error: BaseException) -> bool:
    """Whether the server was there, but takes neither this user nor this password."""
    if getattr(error, "sqlstate", None) in ("28P01", "28000") or mysql_number(error) in (1045, 1698):
        return True
    return "authentication failed" in str(error)


def mysql_number(cause: BaseException) -> int:
    """The number of an error of PyMySQL's; 0 for any other error."""
    number = cause.args[0] if type(cause).__module__.startswith("pymysql") and cause.args else 0
    return number if isinstance(number, int) else 0
