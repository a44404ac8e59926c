"""What PostgreSQL and psycopg raise, in our own words."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migrator.server_failures import mysql_number
from migrator.source.engines import reasons
from migrator.source.engines.base import Errors

SEES_ALL_ROWS = (
    "let the table's owner, or a superuser, run ALTER ROLE … BYPASSRLS for it (or name the owner in the source's URL,"
    " where the table has no FORCE ROW LEVEL SECURITY)"
)


def _reasons(cause: BaseException) -> Iterator[str]:
    # PyMySQL gives a state, too, of which the server's own number says more.
    if not mysql_number(cause):
        yield from reasons.by_sqlstate(cause)


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
