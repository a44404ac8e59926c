"""Where the journal of a job is, and its identity: that of the journal, and of the job's table and source, compared
when they are opened."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from errno import ELOOP
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, exists, func, or_, select, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from migrator.journal.database import Database, insert_or_ignore, repeatable
from migrator.journal.schema import identity, job_name, phase, revision, run, seen_table
from migrator.model.edges import NameKind
from migrator.model.errors import SettingsError
from migrator.runtime.logs import get_logger
from migrator.runtime.system import FOLDER, make_folder

_ONLY_ROW = 1
"""There is one row."""


class SqlIdentity:
    """model.edges.Identity of one job."""

    def __init__(self, database: Database, job: str) -> None:
        self.database = database
        self.job = job

    @repeatable
    def journal_id(self) -> str:
        with self.database.begin() as connection:
            query = select(identity.c.id).where(identity.c.number == _ONLY_ROW)
            if (journal_id := connection.execute(query).scalar()) is None:
                row = {"number": _ONLY_ROW, "id": secrets.token_hex(16)}
                connection.execute(insert_or_ignore(connection, identity), row)
                journal_id = connection.execute(query).scalar_one()
        return str(journal_id)

    @repeatable
    def seen(self, table_id: str) -> int | None:
        here = (seen_table.c.job == self.job, seen_table.c.table_id == table_id)
        with self.database.begin() as connection:
            ticket = connection.execute(select(seen_table.c.ticket).where(*here)).scalar()
        return None if ticket is None else int(ticket)

    @repeatable
    def see(self, table_id: str, table: str, ticket: int) -> None:
        here = (seen_table.c.job == self.job, seen_table.c.table_id == table_id)
        row = {"job": self.job, "table_id": table_id, "name": table, "ticket": ticket}
        with self.database.begin() as connection:
            connection.execute(insert_or_ignore(connection, seen_table), row)
            higher = update(seen_table).where(*here, seen_table.c.ticket < ticket)
            connection.execute(higher.values(ticket=ticket))

    @repeatable
    def repaired(self, table_id: str, table: str, ticket: int) -> None:
        here = (seen_table.c.job == self.job, seen_table.c.table_id == table_id)
        row = {"job": self.job, "table_id": table_id, "name": table, "ticket": ticket}
        with self.database.begin() as connection:
            connection.execute(insert_or_ignore(connection, seen_table), row)
            connection.execute(update(seen_table).where(*here).values(ticket=ticket))

    @repeatable
    def tables_named(self, table: str) -> frozenset[str]:
        query = select(seen_table.c.table_id).where(seen_table.c.job == self.job, seen_table.c.name == table)
        with self.database.begin() as connection:
            return frozenset(connection.execute(query).scalars())

    # ── the job ──

    @repeatable
    def knows_job(self) -> bool:
        """Whether capture or a writer of the job was ever recorded here. A comparison or a reader alone is no sign."""
        writing = run.c.kind.in_(["backfill", "relay", "direct"])
        signs = (
            exists().where(run.c.job == self.job, writing),
            exists().where(revision.c.job == self.job, revision.c.digest != ""),
            exists().where(phase.c.job == self.job),
            exists().where(seen_table.c.job == self.job),
        )
        with self.database.begin() as connection:
            return bool(connection.execute(select(or_(*signs))).scalar())

    @repeatable
    def names(self, kind: NameKind) -> frozenset[str]:
        """What the job's table, or source, is called here."""
        with self.database.begin() as connection:
            return self._names(connection, kind)

    @repeatable
    def first_name(self, kind: NameKind, name: str) -> frozenset[str]:
        """The same, where it is called that from now on if it was not called anything before."""
        with self.database.begin() as connection:
            if not (names := self._names(connection, kind)):
                self._add(connection, kind, 0, name)
                names = self._names(connection, kind)
        return names

    @repeatable
    def add_name(self, kind: NameKind, name: str) -> None:
        """It is called that, too, from now on."""
        here = (job_name.c.job == self.job, job_name.c.kind == kind)
        with self.database.begin() as connection:
            if name not in self._names(connection, kind):
                last = connection.execute(select(func.max(job_name.c.number)).where(*here)).scalar()
                self._add(connection, kind, 0 if last is None else last + 1, name)

    def _names(self, connection: Connection, kind: NameKind) -> frozenset[str]:
        here = (job_name.c.job == self.job, job_name.c.kind == kind)
        names = frozenset(connection.execute(select(job_name.c.name).where(*here)).scalars())
        if kind == "source":
            return names
        # All that older versions kept of it: the names of tables that were written with tickets.
        seen = select(seen_table.c.name).where(seen_table.c.job == self.job)
        return names | set(connection.execute(seen).scalars())

    def _add(self, connection: Connection, kind: NameKind, number: int, name: str) -> None:
        row = {"job": self.job, "kind": kind, "number": number, "name": name}
        connection.execute(insert_or_ignore(connection, job_name), row)


# ── Where it is: beside its job file, wherever a command is run; one under the working directory is moved there ──

_BUSY_S = 5.0
MayMove = Callable[[Mapping[NameKind, frozenset[str]]], None]
MovesFrom = Callable[[Mapping[NameKind, frozenset[str]], str], None]
_log = get_logger("journal")


@dataclass(frozen=True)
class JournalLocation:
    """`url`: of the journal; files by their whole path, so that it stays the same when a process changes its directory.
    `former`: where the same file would stand by the working directory; None where that is no question."""

    url: str | URL
    former: Path | None = None

    @property
    def file(self) -> str:
        """The journal's file; '' of one on a server."""
        return str(self.url.database) if isinstance(self.url, URL) else ""


def location_of(written: str | None, name: str, folder: Path, home: str | None) -> JournalLocation:
    """Where the journal of job `name` is. `written`: its `journal:`, `folder`: the job file's, `home`: $MIGRATOR_HOME."""
    if written is None and home:
        return _file(Path(os.path.abspath(home)) / f"{name}.db")
    path = Path(FOLDER) / f"{name}.db" if written is None else _sqlite_path(written)
    if path is None:
        return JournalLocation(written or "")
    proper, former = Path(os.path.abspath(folder)) / path, Path(os.path.abspath(path))
    return _file(proper, None if proper == former else former)


def _file(path: Path, former: Path | None = None) -> JournalLocation:
    return JournalLocation(URL.create("sqlite", database=str(path)), former)


def _sqlite_path(written: str) -> Path | None:
    """The file of an SQLite URL; None of any other, also of one that cannot be read, which is refused where it is opened."""
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


def settled(
    written: str | None, name: str, file: Path, home: str | None, may_move: MovesFrom
) -> JournalLocation:
    """Where the journal of job `name` is, once one that stood under the working directory was moved there.

    `written`, `home`: as location_of takes them; `file`: the job's. `may_move`: as settle's, with its former path.
    """
    location = location_of(written, name, file.parent, home)
    if os.path.isfile(file.name) and not os.path.samefile(file.name, file):
        # Another job file of this name stands under the working directory, and the journal there is its own.
        location = replace(location, former=None)
    if settle(location, name, lambda known: may_move(known, str(location.former))):
        why = "beside the job file it is the same from every working directory"
        _log.warning("journal_moved", before=str(location.former), now=location.file, why=why)
    return location


def settle(location: JournalLocation, job: str, may_move: MayMove) -> bool:
    """Whether the journal was moved, from where it stood by the working directory to where it belongs.

    `may_move`: is given the names that it knows of the job's table and source, and raises where it is another job's.
    Raises: SettingsError where both are there, or where it cannot be moved.
    """
    former, proper = location.former, Path(location.file)
    # What cannot be looked at is not moved.
    if former is None or not os.path.isfile(former):
        return False
    if not os.path.exists(proper):
        return _moved(former, proper, job, may_move)
    with suppress(FileNotFoundError):  # another process moves it just now
        if not proper.samefile(former):
            raise SettingsError(_BOTH.format(wanted=proper, former=former))
        # A move that was cut short left it two names. One folder that is seen by two paths has one name of it.
        if proper.stat().st_nlink > 1 and not proper.parent.samefile(former.parent):
            former.unlink()
    return False


_BOTH = (
    "there are two journals of this job: {wanted}, beside the job file, and {former}, under the working directory, where"
    " older versions kept it. Look which of them knows the job (`migrator status` with MIGRATOR_HOME set to its folder),"
    " stop what uses the other one, and move that away, with its -wal and -shm"
)


def _moved(former: Path, proper: Path, job: str, may_move: MayMove) -> bool:
    try:
        make_folder(proper.parent)
        _move(former, proper, job, may_move)
    except (sqlite3.Error, OSError) as error:
        if not former.exists():
            return False  # another process has moved it meanwhile
        raise SettingsError(
            f"{_reason(error, former, proper)}; {_STAYS.format(home=former.parent)}"
        ) from None
    return True


_STAYS = "to leave it where it is, name it: `journal: sqlite:///…` in the job, or export MIGRATOR_HOME={home}"


def _reason(error: Exception, former: Path, proper: Path) -> str:
    what = f"the journal {former} belongs beside the job file, at {proper}"
    if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
        return f"{what}, and another process has it open; stop that (a relay, a service), and give the same command again"
    reason = getattr(error, "strerror", None) or type(error).__name__
    return f"{what}, and cannot be moved there ({reason}); move it by hand, with its -wal and -shm"


def _move(former: Path, proper: Path, job: str, may_move: MayMove) -> None:
    """Moves one file, under a lock that is refused while another process has it open; its -wal is folded in before."""
    if former.is_symlink():
        raise OSError(ELOOP, "it is a symbolic link")
    address = f"file:{quote(str(former))}?mode=rw"
    with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_S, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()
        connection.execute("BEGIN EXCLUSIVE")
        may_move({"table": _tables(connection, job), "source": _named(connection, job, "source")})
        # A link and not a rename: it fails where another process has made a journal there meanwhile.
        os.link(former, proper)
        former.unlink(missing_ok=True)
        # A killed process leaves it; in this mode SQLite does not look at it.
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
