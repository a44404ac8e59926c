"""Database errors of a source as our errors: where, which kind, why, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator

from migrator.model.errors import (
    HiddenRowsError,
    MissingNameError,
    SourceError,
    TooSlowError,
    UnfitValueError,
)
from migrator.runtime.server_errors import denial
from migrator.source.engines import words
from migrator.source.engines.table import ENGINES

_BY_TEXT = (
    # First: its text says "timed out", too.
    (
        r"^QueuePool limit",
        "every connection is in use; raise max_connections of the job's source (a service: connections of reads:), or take"
        " fewer workers",
    ),
    (r"^no such table", words.NO_TABLE),
    (r"^no such column", words.NO_COLUMN),
    (r"password authentication failed|no password supplied", words.WRONG_LOGIN),
    (r"no pg_hba\.conf entry|role .* does not exist|authentication failed", words.NOT_LET_IN),
    (r"database .* does not exist", words.NO_DATABASE),
    (r"too many (clients|connections)|remaining connection slots", words.NO_CONNECTION_LEFT),
    (r"starting up|shutting down", words.STARTING),
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
    (r"server closed the connection|connection .*(lost|closed|reset)|terminating", words.BROKEN),
    (r"syntax error|incomplete input", words.BAD_SYNTAX),
    (
        r"a value is required for bind parameter",
        "a parameter has no value; name it among the params of the pattern",
    ),
    (r"does not return rows", "the statement returns no rows; write one SELECT"),
    (r"one statement at a time|multiple commands", "there is more than one statement; write one SELECT"),
    (r"too many attached", "the statement would open another file; write one SELECT"),
)
_CONNECTING = "the connection failed; look at host, port, user and password of the source's URL"
_OTHERWISE = "see the database's own log; nothing was written"


_MADE: dict[type[SourceError], frozenset[str]] = {
    MissingNameError: frozenset({words.NO_TABLE, words.NO_COLUMN}),
    TooSlowError: frozenset({words.CANCELLED, words.TOOK_TOO_LONG, words.CANCELLED_BY_TIME}),
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
    hidden = next(filter(None, (engine.errors.hidden_rows(cause) for engine in ENGINES)), None)
    reason = hidden or denial(error) or _reason(cause)
    made: type[SourceError] = next((one for one, of in _MADE.items() if reason in of), SourceError)
    if hidden:
        made = HiddenRowsError
    elif made is SourceError and type(error).__name__ in _OF_ONE_STATEMENT:
        made = SourceError if getattr(cause, "sqlstate", "") == _DENIED else UnfitValueError
    return made(f"{place}: {doing}: {type(cause).__name__}: {reason}{tried}")


def _reason(cause: BaseException) -> str:
    connecting = any(engine.errors.is_connecting(cause) for engine in ENGINES)
    return next(_reasons(cause), _CONNECTING if connecting else _OTHERWISE)


def _reasons(cause: BaseException) -> Iterator[str]:
    """Reasons that fit, the surest first."""
    for engine in ENGINES:
        yield from engine.errors.reasons(cause)
    text = str(cause)
    for pattern, reason in _BY_TEXT:
        if re.search(pattern, text, re.IGNORECASE):
            yield reason
