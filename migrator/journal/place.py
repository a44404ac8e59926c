"""The path of a journal: beside its job file, wherever a command is run. One that stood under the working
directory, as older versions had it, is moved there."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from errno import ELOOP
from pathlib import Path
from urllib.parse import quote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from migrator.journal.schema import job_name, seen_table
from migrator.model.edges import NameKind
from migrator.model.errors import SettingsError
from migrator.runtime.files import FOLDER, make_folder

_BUSY_S = 5.0
MayMove = Callable[[Mapping[NameKind, frozenset[str]]], None]


@dataclass(frozen=True)
class Place:
    """`url`: of the journal; files by their whole path, so that it stays the same when a process changes its directory.
    `former`: where the same file would stand by the working directory; None where that is no question."""

    url: str | URL
    former: Path | None = None

    @property
    def file(self) -> str:
        """The journal's file; '' of one on a server."""
        return str(self.url.database) if isinstance(self.url, URL) else ""


def place_of(written: str | None, name: str, folder: Path, home: str | None) -> Place:
    """Where the journal of job `name` is. `written`: its `journal:`, `folder`: the job file's, `home`: $MIGRATOR_HOME."""
    if written is None and home:
        return _file(Path(os.path.abspath(home)) / f"{name}.db")
    path = Path(FOLDER) / f"{name}.db" if written is None else _sqlite_path(written)
    if path is None:
        return Place(written or "")
    wanted, former = Path(os.path.abspath(folder)) / path, Path(os.path.abspath(path))
    return _file(wanted, None if wanted == former else former)


def _file(path: Path, former: Path | None = None) -> Place:
    return Place(URL.create("sqlite", database=str(path)), former)


def _sqlite_path(written: str) -> Path | None:
    """The file of an SQLite URL; None of any other, also of one that cannot be read, which is told where it is opened."""
    with suppress(ArgumentError, ValueError):
        url = make_url(written)
        if (
            url.get_backend_name() == "sqlite"
            and url.database
            and url.database[0] not in ":"
            and not url.query
        ):
            return Path(url.database)
    return None


def settle(place: Place, job: str, may_move: MayMove) -> bool:
    """Whether the journal was moved, from where it stood by the working directory to where it belongs.

    `may_move`: is given the names that it knows of the job's table and source, and raises where it is another job's.
    Raises: SettingsError where both are there, or where it cannot be moved.
    """
    former, wanted = place.former, Path(place.file)
    # What cannot be looked at is not moved.
    if former is None or not os.path.isfile(former):
        return False
    if not os.path.exists(wanted):
        return _moved(former, wanted, job, may_move)
    with suppress(FileNotFoundError):  # another process moves it just now
        if not wanted.samefile(former):
            raise SettingsError(_BOTH.format(wanted=wanted, former=former))
        # A move that was cut short left it two names. One folder that is seen by two paths has one name of it.
        if wanted.stat().st_nlink > 1 and not wanted.parent.samefile(former.parent):
            former.unlink()
    return False


_BOTH = (
    "there are two journals of this job: {wanted}, beside the job file, and {former}, under the working directory, where"
    " older versions kept it. Look which of them knows the job (`migrator status` with MIGRATOR_HOME set to its folder),"
    " stop what uses the other one, and move that away, with its -wal and -shm"
)


def _moved(former: Path, wanted: Path, job: str, may_move: MayMove) -> bool:
    try:
        make_folder(wanted.parent)
        _move(former, wanted, job, may_move)
    except (sqlite3.Error, OSError) as error:
        if not former.exists():
            return False  # another process has moved it meanwhile
        raise SettingsError(
            f"{_reason(error, former, wanted)}; {_STAYS.format(home=former.parent)}"
        ) from None
    return True


_STAYS = "to leave it where it is, name it: `journal: sqlite:///…` in the job, or export MIGRATOR_HOME={home}"


def _reason(error: Exception, former: Path, wanted: Path) -> str:
    what = f"the journal {former} belongs beside the job file, at {wanted}"
    if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
        return f"{what}, and another process has it open; stop that (a relay, a service), and give the same command again"
    reason = getattr(error, "strerror", None) or type(error).__name__
    return f"{what}, and cannot be moved there ({reason}); move it by hand, with its -wal and -shm"


def _move(former: Path, wanted: Path, job: str, may_move: MayMove) -> None:
    """Under a lock that nobody gets while another has the file open; its -wal is folded in, so that there is one to move."""
    if former.is_symlink():
        raise OSError(ELOOP, "it is a symbolic link")
    address = f"file:{quote(str(former))}?mode=rw"
    with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_S, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()
        connection.execute("BEGIN EXCLUSIVE")
        may_move({"table": _tables(connection, job), "source": _named(connection, job, "source")})
        # A link and not a rename: it fails where somebody has made a journal there meanwhile.
        os.link(former, wanted)
        former.unlink(missing_ok=True)
        # Whoever was killed leaves it; in this mode SQLite does not look at it.
        former.with_name(f"{former.name}-shm").unlink(missing_ok=True)
        connection.execute("COMMIT")


def _tables(connection: sqlite3.Connection, job: str) -> frozenset[str]:
    seen = _read(connection, f"SELECT name FROM {seen_table.name} WHERE job = ?", job)
    return seen | _named(connection, job, "table")


def _named(connection: sqlite3.Connection, job: str, kind: NameKind) -> frozenset[str]:
    return _read(connection, f"SELECT name FROM {job_name.name} WHERE job = ? AND kind = ?", job, kind)


def _read(connection: sqlite3.Connection, query: str, *words: str) -> frozenset[str]:
    try:
        return frozenset(name for (name,) in connection.execute(query, words))
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return frozenset()  # an older version made it
        raise
