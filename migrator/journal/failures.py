"""Database errors of a journal as our errors: what is wrong, whether it can pass, and what to do."""

from __future__ import annotations

from sqlalchemy.exc import SQLAlchemyError

from migrator.runtime.errors import MigratorError, SettingsError, StoppedError
from migrator.runtime.server_errors import (
    denial,
    is_broken,
    is_busy,
    is_contended,
    mysql_number,
    own_reason,
    refuses_login,
    takes_no_writes,
)

_BEGIN_ANEW = (
    "stop what uses it, put a backup in its place or move it away (of a file with its -wal and -shm), and go on as"
    " docs/lost-journal.md says: the source and the table are as they were, but finished pages, phases with their audit, and"
    " remembered keys are in the journal alone"
)
_DAMAGED_SQLITE = ("malformed", "SQLITE_CORRUPT")
_NO_ROOM = ("disk is full", "disk I/O")
_FULL_SQLSTATES = frozenset({"53100"})
_FULL_MYSQL = frozenset({1021, 1114})
_DENIED_MYSQL = frozenset({1044, 1142, 1143, 1227, 1370})
_LOST_MYSQL = frozenset({1146})
_DAMAGED_SQLSTATES = frozenset({"XX001", "XX002"})
_DAMAGED_MYSQL = frozenset({1034, 1194, 1195, 1712})


class PassingError(StoppedError):
    """The server was away or busy, or another transaction in the way; nothing of the transaction was committed."""


class LostAnswerError(StoppedError):
    """The connection broke during a commit: it is not known whether it was made."""


def in_words(
    error: SQLAlchemyError, where: str, *, on_server: bool, reached: bool, committing: bool
) -> MigratorError:
    """What to raise. `where`: which journal it is. `reached`: the server was there before. `committing`: the failure is
    that of a commit."""
    cause = getattr(error, "orig", None) or error
    kind = type(cause).__name__
    if is_broken(error) and committing:
        what = "its answer to a commit was lost, so it is not known whether it was made"
        return LostAnswerError(f"{where}: {what}; look at what it says now, then give the same command again")
    if is_busy(error) or (reached and is_broken(error)):
        return PassingError(f"{where} does not answer: {kind}; the same command goes on when it does")
    if is_contended(error) and on_server:
        return PassingError(f"{where} is in use by others: {kind}; the same command goes on")
    if denied := denial(error):
        return SettingsError(f"{where}: {denied}")
    if is_broken(error):
        return StoppedError(
            f"{where} does not answer: {kind}; the same command goes on when it does{own_reason(error)}"
        )
    return _lasting(cause, where)


def _lasting(cause: BaseException, where: str) -> MigratorError:
    text, state, number = str(cause).split("\n")[0], getattr(cause, "sqlstate", None), mysql_number(cause)
    kind = type(cause).__name__
    if (
        any(word in text for word in _DAMAGED_SQLITE)
        or state in _DAMAGED_SQLSTATES
        or number in _DAMAGED_MYSQL
    ):
        return SettingsError(f"{where} is damaged; {_BEGIN_ANEW}")
    if "not a database" in text:
        return SettingsError(
            f"{where} is no SQLite database; name another file; if it was the journal, {_BEGIN_ANEW}"
        )
    if "unable to open" in text:
        return SettingsError(f"{where} cannot be opened for writing; look at its folder's permissions")
    if takes_no_writes(cause) or "readonly" in text:
        return SettingsError(
            f"{where} can only be read: this user may not write it or, for a file, its folder, or its disk is full;"
            " fix that, or name another"
        )
    if any(word in text for word in _NO_ROOM) or state in _FULL_SQLSTATES or number in _FULL_MYSQL:
        return StoppedError(
            f"{where} has no room left on its disk, or the disk fails; mend it and give the same command again"
        )
    if state == "42P01" or number in _LOST_MYSQL or text.startswith("no such table"):
        return SettingsError(f"{where} has lost a table; {_BEGIN_ANEW}")
    if state == "42501" or number in _DENIED_MYSQL:
        what = "this user may not do that there; GRANT it to make tables, and to SELECT, INSERT, UPDATE and DELETE in them"
        return SettingsError(f"{where}: {kind}: {what}")
    if refuses_login(cause):
        what = f"the user or the password is wrong; correct the journal's URL{own_reason(cause)}"
        return SettingsError(f"{where}: {kind}: {what}")
    if "locked" in text:
        return StoppedError(f"{where} is locked by another process; the same command goes on when it is not")
    return StoppedError(
        f"{where} failed: {kind}; the same command goes on when it works again{own_reason(cause)}"
    )
