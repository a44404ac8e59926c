"""A database's failure as an error of ours: where, which kind, why in our own words, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migrator.denials import denial
from migrator.errors import HiddenRowsError, MissingNameError, SourceError, TooSlowError, UnfitValueError
from migrator.server_failures import mysql_number

_RESUME = "run the same command again"

_BY_SQLSTATE = {
    "28P01": "the user or the password is wrong; correct the source's URL",
    "28000": "the server does not let this user in; correct the source's URL or the server's pg_hba.conf",
    "3D000": "there is no such database; correct the source's URL",
    "3F000": "there is no such schema; correct the statement or the source's URL",
    "42501": "no permission; GRANT SELECT on the table (and USAGE on its schema) to this user",
    "57014": f"the server cancelled it; raise statement_timeout_s of the job or lower page_rows, then {_RESUME}",
    "42P01": "there is no such table; it was renamed or dropped, or the statement is wrong",
    "42703": "there is no such column; it was renamed or dropped, or the statement is wrong",
    "42883": "no such function, or two types that cannot be compared; correct the statement or the condition",
    "42601": "the statement has a syntax error; correct the SQL in the mapping",
    "42P18": "the type of a parameter cannot be told; write CAST(:name AS its type)",
    "0A000": "the server cannot do that; a standby takes no writes: name its primary in the source's URL",
    **dict.fromkeys(
        ("22021", "22P05"),
        "a text holds bytes that are no UTF-8; correct them there, or read it by `columns:` as convert_to(…, 'SQL_ASCII')",
    ),
    "25006": "the statement would write; the source is only read, write one SELECT",
    "40001": f"a replica cancelled the snapshot; raise max_standby_streaming_delay or {_RESUME}",
    "53300": "the server has no connection left; use fewer workers",
    "55P03": f"another program holds the lock; end its transaction, then {_RESUME}",
    "25P03": f"the server ended a transaction that was left open; {_RESUME}",
    "57P03": f"the server is starting or stopping; wait, then {_RESUME}",
}
_BY_SQLSTATE_CLASS = {
    "08": f"the connection broke; when the server is back, {_RESUME}",
    "22": "a value does not fit its type; correct the parameter or the condition",
    "42": "the statement is refused; correct the SQL in the mapping, or pull the schema again",
    "53": f"the server is out of memory, disk or connections; then {_RESUME}",
    "57": f"the server stopped or was told to; when it is back, {_RESUME}",
    "58": "the server has a failure of its own; see its log",
    "XX": "the server has a failure of its own; see its log",
}
_BY_SQLITE_NAME = {
    "SQLITE_BUSY": f"another program holds the lock; end its transaction, then {_RESUME}",
    "SQLITE_LOCKED": f"another program holds the lock; end its transaction, then {_RESUME}",
    "SQLITE_NOTADB": "the file is no SQLite database, or an encrypted one; name another",
    "SQLITE_CORRUPT": "the file is damaged; run PRAGMA integrity_check on it",
    "SQLITE_CANTOPEN": "it cannot be opened; let this user read it (and, in WAL mode, write its folder)",
    "SQLITE_READONLY": "the statement would write; the source is only read, write one SELECT",
    "SQLITE_IOERR": "the file cannot be read; look at the disk",
    "SQLITE_PERM": "no permission; let this user read the file",
    "SQLITE_AUTH": "no permission; let this user read the file",
    "SQLITE_INTERRUPT": f"it took too long; raise statement_timeout_s of the job or lower page_rows, then {_RESUME}",
}
_BY_MYSQL_NUMBER = {
    **dict.fromkeys((1045, 1698), _BY_SQLSTATE["28P01"]),
    1044: "the user may not use this database; GRANT SELECT on it, or correct the source's URL",
    **dict.fromkeys((1130, 1129), "the server does not let this machine in; see the hosts of its users"),
    1049: _BY_SQLSTATE["3D000"],
    **dict.fromkeys(
        (1142, 1143, 1227, 1370), "no permission; GRANT SELECT on the table or view to this user"
    ),
    1356: "a view cannot be read; what it reads, or its definer's permission, is gone",
    **dict.fromkeys((1051, 1109, 1146), _BY_SQLSTATE["42P01"]),
    1054: _BY_SQLSTATE["42703"],
    **dict.fromkeys((1064, 1065), _BY_SQLSTATE["42601"]),
    **dict.fromkeys((1305, 1630), "no such function; correct the statement"),
    **dict.fromkeys((1040, 1203, 1226), _BY_SQLSTATE["53300"]),
    **dict.fromkeys((2006, 2013, 2055), _BY_SQLSTATE_CLASS["08"]),
    **dict.fromkeys((1053, 1077, 1079, 1152, 1927), _BY_SQLSTATE_CLASS["57"]),
    **dict.fromkeys((1205, 1213), f"another program holds the lock; end its transaction, then {_RESUME}"),
    1412: f"the table was altered while it was read; {_RESUME}",
    1317: f"the statement was interrupted; {_RESUME}",
    **dict.fromkeys(
        (1969, 3024),
        "the server cancelled it; raise statement_timeout_s of the job or max_statement_time of the server"
        f" (MySQL: max_execution_time) or lower page_rows, then {_RESUME}",
    ),
    **dict.fromkeys((1290, 1792, 1836), _BY_SQLSTATE["25006"]),
    **dict.fromkeys((1021, 1037, 1038, 1041, 1114), _BY_SQLSTATE_CLASS["53"]),
    **dict.fromkeys((1153, 1301), "a row is larger than max_allowed_packet; raise it on the server"),
    **dict.fromkeys((1194, 1195, 1030, 1034), _BY_SQLSTATE_CLASS["XX"]),
    **dict.fromkeys((1292, 1366, 1411, 1525, 3854), _BY_SQLSTATE_CLASS["22"]),
    1193: "the server does not know a setting that this needs; MariaDB 10.11 or MySQL 8 is the oldest that works",
}
"""PyMySQL's first argument. Source: MariaDB Knowledge Base, "MariaDB Error Codes"; MySQL's, "Server Error Messages"."""
_BY_TEXT = (
    # First: its text says "timed out", too.
    (
        r"^QueuePool limit",
        "every connection is in use; raise max_connections of the job's source (a service: connections of reads:), or take"
        " fewer workers",
    ),
    (r"^no such table", _BY_SQLSTATE["42P01"]),
    (r"^no such column", _BY_SQLSTATE["42703"]),
    (r"password authentication failed|no password supplied", _BY_SQLSTATE["28P01"]),
    (r"no pg_hba\.conf entry|role .* does not exist|authentication failed", _BY_SQLSTATE["28000"]),
    (r"database .* does not exist", _BY_SQLSTATE["3D000"]),
    (r"too many (clients|connections)|remaining connection slots", _BY_SQLSTATE["53300"]),
    (r"starting up|shutting down", _BY_SQLSTATE["57P03"]),
    (
        r"connection refused",
        "nobody listens there; start the server or correct host and port in the source's URL",
    ),
    (
        r"resolve host|translate host|name or service not known",
        "there is no such host; correct the source's URL",
    ),
    (r"timeout|timed out", "no answer in time; look at the network, the firewall and the source's URL"),
    (r"ssl|certificate", "no agreement on TLS; correct sslmode and the certificates in the source's URL"),
    (r"server closed the connection|connection .*(lost|closed|reset)|terminating", _BY_SQLSTATE_CLASS["08"]),
    (r"syntax error|incomplete input", _BY_SQLSTATE["42601"]),
    (
        r"a value is required for bind parameter",
        "a parameter has no value; name it among the params of the pattern",
    ),
    (r"does not return rows", "the statement returns no rows; write one SELECT"),
    (r"one statement at a time|multiple commands", "there is more than one statement; write one SELECT"),
    (r"too many attached", "the statement would open another file; write one SELECT"),
)
_CANNOT_CONNECT = frozenset({2002, 2003, 2005, 2012, 2026})
_CONNECTING = "the connection failed; look at host, port, user and password of the source's URL"
_OTHERWISE = "see the database's own log; nothing was written"


_MADE: dict[type[SourceError], frozenset[str]] = {
    MissingNameError: frozenset({_BY_SQLSTATE["42P01"], _BY_SQLSTATE["42703"]}),
    TooSlowError: frozenset(
        {_BY_SQLSTATE["57014"], _BY_SQLITE_NAME["SQLITE_INTERRUPT"], _BY_MYSQL_NUMBER[3024]}
    ),
}
_DENIED = "42501"
_OF_ONE_STATEMENT = frozenset({"DataError", "ProgrammingError"})
"""SQLAlchemy's names of errors that another statement, or another value, may not meet."""


def source_error(error: BaseException, place: str, doing: str, tried: str = "") -> SourceError:
    """What to raise for a failure of SQLAlchemy or a driver, met at `place` while `doing` something.

    `tried`: what to add at the end.

    The driver's message is only looked at, never passed on: it may quote values, SQL or the URL.
    """
    cause = getattr(error, "orig", None) or error
    hidden = _hidden_rows(cause)
    reason = hidden or denial(error) or _reason(cause)
    made: type[SourceError] = next((one for one, of in _MADE.items() if reason in of), SourceError)
    if hidden:
        made = HiddenRowsError
    elif made is SourceError and type(error).__name__ in _OF_ONE_STATEMENT:
        made = SourceError if getattr(cause, "sqlstate", "") == _DENIED else UnfitValueError
    return made(f"{place}: {doing}: {type(cause).__name__}: {reason}{tried}")


def _reason(cause: BaseException) -> str:
    of_psycopg = type(cause).__name__ == "OperationalError" and type(cause).__module__.startswith("psycopg")
    connecting = of_psycopg or mysql_number(cause) in _CANNOT_CONNECT
    return next(_reasons(cause), _CONNECTING if connecting else _OTHERWISE)


def _reasons(cause: BaseException) -> Iterator[str]:
    """Reasons that fit, the surest first."""
    yield from _known(_BY_MYSQL_NUMBER.get(mysql_number(cause)))
    state = getattr(cause, "sqlstate", None) or ""
    yield from _known(_BY_SQLSTATE.get(state), _BY_SQLSTATE_CLASS.get(state[:2]))
    name = getattr(cause, "sqlite_errorname", None) or ""
    yield from _known(_BY_SQLITE_NAME.get("_".join(name.split("_")[:2])))
    text = str(cause)
    for pattern, reason in _BY_TEXT:
        if re.search(pattern, text, re.IGNORECASE):
            yield reason


def _hidden_rows(cause: BaseException) -> str | None:
    """What PostgreSQL refuses rather than leave rows out: `row_security` is off on every connection of ours.

    Source: PostgreSQL's src/backend/utils/misc/rls.c, the one function that says so; its text is in the server's language.
    """
    diag = getattr(cause, "diag", None)
    if getattr(diag, "source_function", None) != "check_enable_rls":
        return None
    named = re.search(
        r"[\"“”„«»](?P<table>[^\"“”„«»]+)[\"“”«»]", getattr(diag, "message_primary", None) or ""
    )
    table = f" of table {named['table'].strip()}" if named else " of a table"
    return f"row level security{table} would hide rows from this user; {SEES_ALL_ROWS}"


SEES_ALL_ROWS = (
    "let the table's owner, or a superuser, run ALTER ROLE … BYPASSRLS for it (or name the owner in the source's URL,"
    " where the table has no FORCE ROW LEVEL SECURITY)"
)


def _known(*reasons: str | None) -> Iterator[str]:
    yield from (reason for reason in reasons if reason)
