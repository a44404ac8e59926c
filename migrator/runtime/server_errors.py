"""The meaning of database errors: the server's state, and missing rights."""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from migrator.runtime.errors import SettingsError, StoppedError

# Unless a service has handlers of its own: our messages name the failure, and these lines contain drivers' own texts and,
# at a second Ctrl-C, a traceback.
logging.getLogger("sqlalchemy.pool").addHandler(logging.NullHandler())

ALIVE = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Parameters of libpq: a connection dropped by a firewall or a network is noticed within a minute. The system's
default is two hours, and 15 minutes for a connection that waits for an answer."""

# What a driver's error means: server gone, busy, conflict, read-only, login refused.

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
_CLOSED_TEXT = re.compile(r"^\(0, ''\)$|closed database|connection (is|already) closed")
"""Of a connection that this process has closed; the first is PyMySQL's."""
_BUSY_SQLSTATES = frozenset({"53300", "57P03"})
_BUSY_MYSQL = frozenset({1040, 1203})
_BUSY_TEXT = re.compile(
    r"too many (clients|connections)|connection slots|starting up|shutting down|in recovery mode"
    r"|not (yet )?accepting connections",
    re.IGNORECASE,
)
_USER_LIMIT = 1226
"""MySQL's error for any limit of a user; the limit of concurrent connections passes, hourly ones do not."""
_BY_NETWORK = frozenset({"OperationalError", "ConnectionTimeout"})
"""psycopg errors without a SQLSTATE: libpq raised them, not the server."""
_BY_DRIVER = frozenset({"InterfaceError", "ProgrammingError"})
_CONTENDED_SQLSTATES = frozenset({"40001", "40P01", "55006", "55P03"})
"""55006: PostgreSQL, for a replication slot that another process reads."""
_CONTENDED_MYSQL = frozenset({1020, 1205, 1213})
"""1020: MariaDB from 11.6 on, for a row newer than the transaction's snapshot."""
_FILES_MYSQL = range(1, 1000)
_LOGIN_MYSQL = frozenset({1044, 1045, 1049, 1129, 1130, 1698, 1862, 3118, 4151})
_READ_ONLY_MYSQL = frozenset({1290, 1792, 1836})


def is_broken(error: BaseException) -> bool:
    """Whether the connection or the snapshot failed, not the statement: a new one may work."""
    if getattr(error, "connection_invalidated", False):
        return True
    cause = getattr(error, "orig", None) or error
    state, number = getattr(cause, "sqlstate", None), mysql_number(cause)
    if state or number:
        by_code = state in _BROKEN_SQLSTATES or (state or "").startswith("08") or number in _BROKEN_MYSQL
        return by_code or _at_limit(cause)
    name = type(cause).__name__
    if name in _BY_NETWORK:
        return bool(_BROKEN_TEXT.search(str(cause)))
    return name in _BY_DRIVER and bool(_CLOSED_TEXT.search(str(cause)))


def is_busy(error: BaseException) -> bool:
    """Whether the server is up but takes no connection: all are in use, or it is starting or stopping."""
    cause = getattr(error, "orig", None) or error
    state, number = getattr(cause, "sqlstate", None), mysql_number(cause)
    if state or number:
        return state in _BUSY_SQLSTATES or number in _BUSY_MYSQL or _at_limit(cause)
    return type(cause).__name__ in _BY_NETWORK and bool(_BUSY_TEXT.search(str(cause)))


def _at_limit(cause: BaseException) -> bool:
    return mysql_number(cause) == _USER_LIMIT and "max_user_connections" in str(cause)


def is_contended(error: BaseException) -> bool:
    """Whether another transaction conflicted (a deadlock, a lock timeout): a retry may succeed."""
    cause = getattr(error, "orig", None) or error
    if getattr(cause, "sqlstate", None) in _CONTENDED_SQLSTATES or mysql_number(cause) in _CONTENDED_MYSQL:
        return True
    return str(getattr(cause, "sqlite_errorname", "")).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def is_of_a_file(error: BaseException) -> bool:
    """Whether MariaDB or MySQL missed a file, such as when a database is dropped while information_schema is read."""
    return mysql_number(getattr(error, "orig", None) or error) in _FILES_MYSQL


def takes_no_writes(error: BaseException) -> bool:
    """Whether the server or file is read-only, such as a standby."""
    cause = getattr(error, "orig", None) or error
    if getattr(cause, "sqlstate", None) == "25006" or mysql_number(cause) in _READ_ONLY_MYSQL:
        return True
    # A standby's answer to BEGIN READ WRITE; the SQLSTATE alone means "not supported".
    if getattr(cause, "sqlstate", None) == "0A000" and "recovery" in str(cause):
        return True
    return str(getattr(cause, "sqlite_errorname", "")).startswith("SQLITE_READONLY")


def refuses_login(error: BaseException) -> bool:
    if getattr(error, "sqlstate", None) in ("28P01", "28000") or mysql_number(error) in (
        1045,
        1698,
        1862,
        3118,
        4151,
    ):
        return True
    return bool(re.search(r"authentication failed|is not permitted to log in", str(error)))


_UNREACHED = {
    r"invalid response to SSL negotiation|packet sequence number wrong - got \d+ expected 0": (
        "another kind of server responds there; correct host and port in {}"
    ),
    r"connection refused": "no server listens there; start it or correct host and port in {}",
    r"resolve host|translate host|name or service not known|getaddrinfo": "host not found; correct {}",
    r"timeout|timed out": "no answer in time; look at the network, the firewall and {}",
    r"ssl|certificate": "no agreement on TLS; correct sslmode and the certificates in {}",
    r"invalid (connection option|URI query parameter)": "its driver does not know an option of {}; correct it",
}


def why_unreached(error: BaseException, url: str) -> str:
    """Why the connection failed, and what to do; or ''. `url`: what to call the URL."""
    text = str(getattr(error, "orig", None) or error)
    found = (why for pattern, why in _UNREACHED.items() if re.search(pattern, text, re.IGNORECASE))
    return next(found, "").format(url)


@contextmanager
def naming_options(url: str) -> Iterator[None]:
    """Raises: SettingsError for an option that a driver does not take, or a file of one that cannot be read;
    StoppedError if another kind of server responds.
    """
    try:
        yield
    except (IndexError, struct.error):
        what = (
            f"what responds at the host and port of {url} is another kind of server, or cuts its answer off"
        )
        raise StoppedError(
            f"{what}; check them and any proxy there, then run the same command again"
        ) from None
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        what = f"an option of {url}, or a file that it names, does not suit its driver"
        raise SettingsError(f"{what} ({type(error).__name__}); correct it") from None


def connected(dialect: Any, words: Sequence[Any], named: Mapping[str, Any], url: str) -> Any:
    """A connection of a SQLAlchemy dialect's driver. Raises: as naming_options, and the driver's errors.

    PyMySQL's `connect_timeout` ends before the server's first packet, for which a silent server would be waited
    for as long as for an answer, or forever.
    """
    greeted = {}
    if dialect.driver == "pymysql" and "connect_timeout" in named:
        greeted = {"read_timeout": named["connect_timeout"]}
    with naming_options(url):
        connection = dialect.connect(*words, **{**named, **greeted})
    if greeted:
        connection._read_timeout = named.get("read_timeout")
    return connection


_REFUSED_AT_START = re.compile(r"connection to server .*failed: FATAL:\s+(?P<words>[^\n]+)")
_NAMED = re.compile(r"\"[^\"]*\"|'[^']*'(@'[^']*')?")
_REFUSED_BY_MYSQL = re.compile(r"Access denied|Account|Host|Unknown database|Your password has expired")


_UNDEFINED_OBJECT = "42704"


def own_reason(error: BaseException) -> str:
    """The server's message in parentheses, for a refused connection (without names), and for a type, role or
    trigger that PostgreSQL does not find; or ''.

    Before a login it cannot quote a statement or a row; for an object it contains only kind and name.
    """
    cause = getattr(error, "orig", None) or error
    if getattr(cause, "sqlstate", None) == _UNDEFINED_OBJECT:
        words = getattr(getattr(cause, "diag", None), "message_primary", None)
        return f" (server: {words})" if words else ""
    if number := mysql_number(cause):
        words = str(cause.args[1]) if number in _LOGIN_MYSQL and len(cause.args) > 1 else ""
        return _server_words(words) if _REFUSED_BY_MYSQL.match(words) else ""
    is_start = type(cause).__name__ in _BY_NETWORK and not getattr(cause, "sqlstate", None)
    match = _REFUSED_AT_START.search(str(cause)) if is_start else None
    return _server_words(match["words"]) if match else ""


def _server_words(words: str) -> str:
    return f" (server: {_NAMED.sub('…', words)})"


def mysql_number(cause: BaseException) -> int:
    number = cause.args[0] if type(cause).__module__.startswith("pymysql") and cause.args else 0
    return number if isinstance(number, int) else 0


# A database user's missing right: object and right from the server's message, with our GRANT statement.

_DENIED = "42501"
_FOR_OBJECT = re.compile(r"^permission denied for (?P<kind>[a-z ]+?) (?P<name>\S.*)$")
_OF_OWNER = re.compile(r"^must be owner of (?P<kind>[a-z ]+?) (?P<name>\S.*)$")
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_OURS = re.compile(r"\bmigrator_\w+`?$")
_MYSQL: Mapping[int, re.Pattern[str]] = {
    1142: re.compile(r"^(?P<right>[A-Z, ]+?) command denied to user .* for table (?P<name>\S.*)$"),
    1143: re.compile(
        r"^(?P<right>[A-Z, ]+?) command denied to user .* for column '(?P<column>.+)' in table '(?P<name>.+)'$"
    ),
    1044: re.compile(r"to database '(?P<name>.+)'$"),
    1227: re.compile(r"at least one of\) the (?P<right>[A-Z, _]+?)(?: or [A-Z, _]+)? privilege"),
    1370: re.compile(r"command denied to user .* for routine '(?P<name>.+)'$"),
}
"""Source: MariaDB, sql/share/errmsg-utf8.txt; MySQL 9.7, tested. The messages contain names, never row values."""


def denial(error: BaseException) -> str:
    """The denied action, with the GRANT that fixes it; '' for other errors and unknown messages."""
    cause = getattr(error, "orig", None) or error
    if getattr(cause, "sqlstate", None) == _DENIED:
        message = getattr(getattr(cause, "diag", None), "message_primary", None) or ""
        return _of_postgresql(message, str(getattr(error, "statement", None) or ""))
    number = mysql_number(cause)
    match = _MYSQL[number].search(str(cause.args[1])) if number in _MYSQL and len(cause.args) > 1 else None
    return _OF_MYSQL[number](match.groupdict()) if match else ""


# ── PostgreSQL ──


def _of_postgresql(message: str, statement: str) -> str:
    if owned := _OF_OWNER.match(message):
        what = f"{owned['kind']} {_quoted(owned['name'])}"
        return f"only the owner of {what} may do that; connect as its owner, or make this user a member of that role"
    match = _FOR_OBJECT.match(message)
    if match is None:
        return ""
    kind, name = match["kind"], _qualified(match["name"], statement)
    right = _right(kind, statement)
    # The kinds that GRANT writes as a table.
    on = f"{kind.upper()} {name}" if kind in _RIGHTS else name
    return f"this user lacks {right} on {kind} {name}; GRANT {right} ON {on} to it"


_RIGHTS: Mapping[str, str] = {
    "sequence": "USAGE",
    "function": "EXECUTE",
    "procedure": "EXECUTE",
    "schema": "",
    "database": "",
}
_CREATING = {"schema": "USAGE", "database": "CONNECT"}
_WORDS = ("INSERT", "UPDATE", "DELETE", "TRUNCATE")


def _right(kind: str, statement: str) -> str:
    words = statement.upper().split()
    first = words[0] if words else ""
    if kind in _RIGHTS:
        return _RIGHTS[kind] or ("CREATE" if first == "CREATE" else _CREATING[kind])
    if first in _WORDS:
        return first
    if first == "CREATE" and "TRIGGER" in words[:4]:
        return "TRIGGER"
    return "SELECT, UPDATE" if " FOR UPDATE" in statement.upper() else "SELECT"


def _qualified(name: str, statement: str) -> str:
    for written in (name, name.rsplit("_", 2)[0]):
        if match := re.search(rf'("[^"]+"|[\w$]+)\."?{re.escape(written)}\b', statement):
            return f"{match[1]}.{_quoted(name)}"
    return _quoted(name)


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return name if _PLAIN.fullmatch(name) else f'"{escaped}"'


# ── MariaDB and MySQL ──


def _on_table(groups: Mapping[str, Any]) -> str:
    # MySQL writes 'invoice', MariaDB `shop`.`invoice`.
    right, name = groups["right"], re.sub("^'(.*)'$", r"`\1`", groups["name"])
    if _OURS.search(name) and "CREATE" not in right:
        # A right on a table that does not exist yet can only be granted together with this one.
        right = f"CREATE, {right}"
    return f"this user lacks {groups['right']} on table {name}; GRANT {right} ON {name} to it"


def _on_column(groups: Mapping[str, Any]) -> str:
    right, column, name = groups["right"], groups["column"], groups["name"]
    return f"this user lacks {right} on column {column} of table {name}; GRANT {right} ON {name} to it"


def _on_database(groups: Mapping[str, Any]) -> str:
    what = f"this user has no right in database {groups['name']}"
    return f"{what}; GRANT SELECT on its tables to it, or correct the URL"


def _on_server(groups: Mapping[str, Any]) -> str:
    return f"this user lacks {groups['right']}; GRANT {groups['right'].split(',')[0]} ON *.* to it"


def _on_routine(groups: Mapping[str, Any]) -> str:
    return f"this user lacks EXECUTE on routine {groups['name']}; GRANT EXECUTE ON FUNCTION {groups['name']} to it"


_OF_MYSQL: Mapping[int, Callable[[Mapping[str, Any]], str]] = {
    1142: _on_table,
    1143: _on_column,
    1044: _on_database,
    1227: _on_server,
    1370: _on_routine,
}
