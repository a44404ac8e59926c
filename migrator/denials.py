"""A right that a database's user lacks: the object and the right by the server's own words, and the GRANT in ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from migrator.server_failures import mysql_number

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
    1227: re.compile(r"at least one of\) the (?P<right>[A-Z, _]+?) privilege"),
    1370: re.compile(r"command denied to user .* for routine '(?P<name>.+)'$"),
}
"""Source: MariaDB, sql/share/errmsg-utf8.txt; their words hold names, and no value of a row."""


def denial(error: BaseException) -> str:
    """What the user may not do, with the statement that mends it; '' where the error is another, or says it otherwise."""
    cause = getattr(error, "orig", None) or error
    if getattr(cause, "sqlstate", None) == _DENIED:
        said = getattr(getattr(cause, "diag", None), "message_primary", None) or ""
        return _of_postgresql(said, str(getattr(error, "statement", None) or ""))
    number = mysql_number(cause)
    found = _MYSQL[number].search(str(cause.args[1])) if number in _MYSQL and len(cause.args) > 1 else None
    return _OF_MYSQL[number](found.groupdict()) if found else ""


# ── PostgreSQL ──


def _of_postgresql(said: str, statement: str) -> str:
    if owned := _OF_OWNER.match(said):
        what = f"{owned['kind']} {_quoted(owned['name'])}"
        return f"only the owner of {what} may do that; connect as its owner, or make this user a member of that role"
    found = _FOR_OBJECT.match(said)
    if found is None:
        return ""
    kind, name = found["kind"], _qualified(found["name"], statement)
    right = _right(kind, statement)
    # SQL has no word for the kinds that a table stands for.
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
    """By what the statement was doing; reading where nobody knows."""
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
    """The name with its schema, where the statement says it: of the object itself, or of the table of a sequence."""
    for said in (name, name.rsplit("_", 2)[0]):
        if found := re.search(rf'("[^"]+"|[\w$]+)\."?{re.escape(said)}\b', statement):
            return f"{found[1]}.{_quoted(name)}"
    return _quoted(name)


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return name if _PLAIN.fullmatch(name) else f'"{escaped}"'


# ── MariaDB and MySQL ──


def _on_table(found: Mapping[str, Any]) -> str:
    right, name = found["right"], found["name"]
    if _OURS.search(name) and "CREATE" not in right:
        # A right on a table that is not there yet can only be granted together with this one.
        right = f"CREATE, {right}"
    return f"this user lacks {found['right']} on table {name}; GRANT {right} ON {name} to it"


def _on_column(found: Mapping[str, Any]) -> str:
    right, column, name = found["right"], found["column"], found["name"]
    return f"this user lacks {right} on column {column} of table {name}; GRANT {right} ON {name} to it"


def _on_database(found: Mapping[str, Any]) -> str:
    what = f"this user has no right in database {found['name']}"
    return f"{what}; GRANT SELECT on its tables to it, or correct the URL"


def _on_server(found: Mapping[str, Any]) -> str:
    return f"this user lacks {found['right']}; GRANT {found['right'].split(',')[0]} ON *.* to it"


def _on_routine(found: Mapping[str, Any]) -> str:
    return (
        f"this user lacks EXECUTE on routine {found['name']}; GRANT EXECUTE ON FUNCTION {found['name']} to it"
    )


_OF_MYSQL: Mapping[int, Callable[[Mapping[str, Any]], str]] = {
    1142: _on_table,
    1143: _on_column,
    1044: _on_database,
    1227: _on_server,
    1370: _on_routine,
}
