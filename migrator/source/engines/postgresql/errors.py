"""What PostgreSQL and psycopg raise, in our own words."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migrator.source.engines import reasons
from migrator.source.engines.base import Errors

_BY_SQLSTATE = {
    "28P01": reasons.WRONG_LOGIN,
    "28000": reasons.NOT_LET_IN,
    "3D000": reasons.NO_DATABASE,
    "3F000": "there is no such schema; correct the statement or the source's URL",
    "42501": "no permission; GRANT SELECT on the table (and USAGE on its schema) to this user",
    "57014": reasons.CANCELLED,
    "42P01": reasons.NO_TABLE,
    "42703": reasons.NO_COLUMN,
    "42883": "no such function, or two types that cannot be compared; correct the statement or the condition",
    "42601": reasons.BAD_SYNTAX,
    "42P18": "the type of a parameter cannot be told; write CAST(:name AS its type)",
    "0A000": "the server cannot do that; a standby takes no writes: name its primary in the source's URL",
    **dict.fromkeys(
        ("22021", "22P05"),
        "a text holds bytes that are no UTF-8; correct them there, or read it by `columns:` as convert_to(…, 'SQL_ASCII')",
    ),
    "25006": reasons.WOULD_WRITE,
    "40001": f"a replica cancelled the snapshot; raise max_standby_streaming_delay or {reasons.RESUME}",
    "53300": reasons.NO_CONNECTION_LEFT,
    "55P03": reasons.LOCKED,
    "25P03": f"the server ended a transaction that was left open; {reasons.RESUME}",
    "57P03": reasons.STARTING,
}
_BY_SQLSTATE_CLASS = {
    "08": reasons.BROKEN,
    "22": reasons.BAD_VALUE,
    "42": "the statement is refused; correct the SQL in the mapping, or pull the schema again",
    "53": reasons.FULL,
    "57": reasons.STOPPED,
    "58": reasons.SERVER_FAILURE,
    "XX": reasons.SERVER_FAILURE,
}
SEES_ALL_ROWS = (
    "let the table's owner, or a superuser, run ALTER ROLE … BYPASSRLS for it (or name the owner in the source's URL,"
    " where the table has no FORCE ROW LEVEL SECURITY)"
)


def _reasons(cause: BaseException) -> Iterator[str]:
    state = getattr(cause, "sqlstate", None) or ""
    for known, key in ((_BY_SQLSTATE, state), (_BY_SQLSTATE_CLASS, state[:2])):
        if key in known:
            yield known[key]


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


def _is_connecting(cause: BaseException) -> bool:
    return type(cause).__name__ == "OperationalError" and type(cause).__module__.startswith("psycopg")


ERRORS = Errors(_reasons, _is_connecting, _hidden_rows)
