"""What SQLite raises, in our own words."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.source.engines import reasons
from migrator.source.engines.base import Errors

_BY_SQLITE_NAME = {
    "SQLITE_BUSY": reasons.LOCKED,
    "SQLITE_LOCKED": reasons.LOCKED,
    "SQLITE_NOTADB": "the file is no SQLite database, or an encrypted one; name another",
    "SQLITE_CORRUPT": "the file is damaged; run PRAGMA integrity_check on it",
    "SQLITE_CANTOPEN": "it cannot be opened; let this user read it (and, in WAL mode, write its folder)",
    "SQLITE_READONLY": reasons.WOULD_WRITE,
    "SQLITE_IOERR": "the file cannot be read; look at the disk",
    "SQLITE_PERM": "no permission; let this user read the file",
    "SQLITE_AUTH": "no permission; let this user read the file",
    "SQLITE_INTERRUPT": reasons.TOOK_TOO_LONG,
}


def _reasons(cause: BaseException) -> Iterator[str]:
    name = "_".join((getattr(cause, "sqlite_errorname", None) or "").split("_")[:2])
    if name in _BY_SQLITE_NAME:
        yield _BY_SQLITE_NAME[name]


ERRORS = Errors(_reasons, lambda _: False, lambda _: None)
