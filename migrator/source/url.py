"""The URL of a source, from what a user wrote."""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from migrator.errors import SettingsError, how_to_install

SUPPORTED = (
    "sqlite:///path, the path of an SQLite file, postgresql://user@host:5432/database"
    " or mysql://user@host:3306/database (MariaDB too)"
)

_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_MYSQL = ("mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql")
_SERVERS = {"postgresql": "PostgreSQL", "mysql": "MySQL or MariaDB"}
_SQLITE_MAGIC = b"SQLite format 3\x00"


def source_url(text: str) -> URL:
    """The URL of an SQLite file that exists, of a PostgreSQL database (always by psycopg 3), or of a MySQL or
    MariaDB database (always by PyMySQL).

    Raises: SettingsError for anything else. Its message never holds a URL, which may hold a password.
    """
    if "://" not in text:
        return _sqlite_file(text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        what = f"source: the URL cannot be read; write {SUPPORTED}"
        raise SettingsError(f"{what}, @ : / in a user name or password as %40 %3A %2F") from None
    if url.drivername == "sqlite":
        return _sqlite_url(url)
    if url.drivername in _POSTGRESQL:
        return _postgresql_url(url)
    if url.drivername in _MYSQL:
        return _mysql_url(url)
    raise SettingsError(_unsupported(url.drivername))


def place_of(url: URL) -> str:
    """What a message may call the source: its kind, file or host and database; no user, no password."""
    if url.get_backend_name() == "sqlite":
        return f"SQLite file {url.database}"
    port = f":{url.port}" if url.port else ""
    server = _SERVERS[url.get_backend_name()]
    return f"{server} database {url.database or '(default)'} at {url.host or 'the local socket'}{port}"


_LOCAL = ("", "localhost", "127.0.0.1", "::1")
_PORTS = {"postgresql": 5432, "mysql": 3306}


def identity_of(text: str) -> str:
    """What tells a source from others, in words: kind, file or host, port and database; no user, no password, so that these
    may change. '' where the text is no URL of a source. Nothing is connected to or looked for."""
    try:
        url = make_url(text) if "://" in text else URL.create("sqlite", database=text)
        kind = url.get_backend_name()
    except (ArgumentError, ValueError, NoSuchModuleError):
        return ""
    if kind == "sqlite":
        return place_of(url.set(database=os.path.realpath(url.database))) if url.database else ""
    kind = {"postgres": "postgresql", "mariadb": "mysql"}.get(kind, kind)
    if kind not in _SERVERS or "@" in f"{url.host}{url.database}":
        return ""
    asked = url.query.get("host", ())
    hosts = [url.host] if url.host else [asked] if isinstance(asked, str) else list(asked)
    named = ",".join(dict.fromkeys(_host(one) for one in hosts or [""]))
    return place_of(URL.create(kind, host=named, port=url.port or _PORTS[kind], database=url.database))


def _host(name: str) -> str:
    """One name for this very machine: by its socket, too."""
    plain = name.lower().rstrip(".")
    return "localhost" if plain in _LOCAL or plain.startswith("/") else plain


def _unsupported(drivername: str) -> str:
    name = drivername.partition("+")[0]
    if name in _MYSQL:
        return "source: MySQL and MariaDB are read with PyMySQL; write mysql:// without another driver's name"
    if name in _POSTGRESQL:
        return "source: PostgreSQL is read with psycopg 3; write postgresql:// without another driver's name"
    return f"source: this kind of database is not supported; write {SUPPORTED}"


def _postgresql_url(url: URL) -> URL:
    _check_ats(url)
    try:
        import psycopg  # noqa: F401  (an extra: SQLite alone needs no driver)
    except ImportError:
        what = "source: PostgreSQL needs its driver, psycopg"
        raise SettingsError(f"{what}; {how_to_install('postgres')}") from None
    return url.set(drivername="postgresql+psycopg")


def _mysql_url(url: URL) -> URL:
    _check_ats(url)
    if not url.database:
        raise SettingsError("source: the URL names no database; write mysql://user@host:3306/database")
    try:
        import pymysql  # noqa: F401  (an extra: SQLite alone needs no driver)
    except ImportError:
        what = "source: MySQL and MariaDB need their driver, PyMySQL"
        raise SettingsError(f"{what}; {how_to_install('mysql')}") from None
    return url.set(drivername="mysql+pymysql")


def _check_ats(url: URL) -> None:
    if any("@" in part for part in (url.host or "", url.database or "")):
        what = "source: the URL holds an '@' too many; write @ : / in a user name or password as %40 %3A %2F"
        raise SettingsError(what)


def _sqlite_url(url: URL) -> URL:
    if url.host or url.username or url.password or url.query:
        raise SettingsError(
            "source: an SQLite URL is sqlite:///path (three slashes, four before an absolute path)"
        )
    if not url.database or url.database == ":memory:":
        raise SettingsError(
            "source: an SQLite database in memory holds nothing to migrate; write sqlite:///path"
        )
    return _sqlite_file(url.database)


def _sqlite_file(text: str) -> URL:
    """The URL of the file, which is looked at first: SQLite itself would create a missing one."""
    shown = f"'{text}'" if text and not set("@:") & set(text) else "the path"
    path = Path(text)
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise SettingsError(f"source: {shown} is no regular file; name a file that SQLite can open")
        with path.open("rb") as file:
            beginning = file.read(len(_SQLITE_MAGIC))
    except FileNotFoundError:
        raise SettingsError(f"source: {shown} does not exist; write {SUPPORTED}") from None
    except (OSError, ValueError) as error:
        what = f"source: {shown} cannot be read ({type(error).__name__}); write {SUPPORTED}"
        raise SettingsError(what) from None
    if beginning != _SQLITE_MAGIC:
        what = "is empty" if not beginning else "is no SQLite database, or an encrypted one"
        raise SettingsError(f"source: {shown} {what}; name a file that SQLite can open")
    return URL.create("sqlite", database=text)
