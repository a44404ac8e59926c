"""The URL of a source, from what a user wrote."""

from __future__ import annotations

import os

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from migrator.errors import SettingsError
from migrator.source.engines.sqlite.engine import SQLITE, sqlite_file
from migrator.source.engines.table import ENGINES, engine_for_scheme, engine_of

_FORMS = [engine.connecting.form for engine in ENGINES]
SUPPORTED = f"{', '.join(_FORMS[:-1])} or {_FORMS[-1]}"


def source_url(text: str) -> URL:
    """The URL of an SQLite file that exists, of a PostgreSQL database (always by psycopg 3), or of a MySQL or
    MariaDB database (always by PyMySQL).

    Raises: SettingsError for anything else. Its message never holds a URL, which may hold a password.
    """
    if "://" not in text:
        return sqlite_file(text, SUPPORTED)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        what = f"source: the URL cannot be read; write {SUPPORTED}"
        raise SettingsError(f"{what}, @ : / in a user name or password as %40 %3A %2F") from None
    for engine in ENGINES:
        if url.drivername in engine.connecting.schemes:
            return engine.connecting.checked_url(url, SUPPORTED)
    raise SettingsError(_unsupported(url.drivername))


def place_of(url: URL) -> str:
    """What a message may call the source: its kind, file or host and database; no user, no password."""
    engine = engine_of(url.get_backend_name())
    if engine.is_file:
        return f"{engine.title} file {url.database}"
    port = f":{url.port}" if url.port else ""
    return f"{engine.title} database {url.database or '(default)'} at {url.host or 'the local socket'}{port}"


_LOCAL = ("", "localhost", "127.0.0.1", "::1")


def identity_of(text: str) -> str:
    """What tells a source from others, in words: kind, file or host, port and database; no user, no password, so that these
    may change. '' where the text is no URL of a source. Nothing is connected to or looked for."""
    try:
        url = make_url(text) if "://" in text else URL.create(SQLITE.name, database=text)
        engine = engine_for_scheme(url.drivername)
    except (ArgumentError, ValueError, NoSuchModuleError):
        return ""
    if engine is not None and engine.is_file:
        return place_of(url.set(database=os.path.realpath(url.database))) if url.database else ""
    if engine is None or "@" in f"{url.host}{url.database}":
        return ""
    asked = url.query.get("host", ())
    hosts = [url.host] if url.host else [asked] if isinstance(asked, str) else list(asked)
    named = ",".join(dict.fromkeys(_host(one) for one in hosts or [""]))
    port = url.port or engine.connecting.port
    return place_of(URL.create(engine.name, host=named, port=port, database=url.database))


def _host(name: str) -> str:
    """One name for this very machine: by its socket, too."""
    plain = name.lower().rstrip(".")
    return "localhost" if plain in _LOCAL or plain.startswith("/") else plain


def _unsupported(drivername: str) -> str:
    engine = engine_for_scheme(drivername)
    if engine is not None and engine.connecting.driver:
        return f"source: {engine.connecting.driver}"
    return f"source: this kind of database is not supported; write {SUPPORTED}"
