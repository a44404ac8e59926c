"""Shared by several engines: texts and comments in SQL, clock functions, reasons of errors, server connections."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Dialect
from sqlalchemy.engine.interfaces import DBAPIConnection

from migrator.mapping.model.facts import TableFacts
from migrator.runtime.errors import SettingsError, SourceError
from migrator.runtime.server_errors import connected, naming_options, refuses_login
from migrator.runtime.system import how_to_install
from migrator.source.engines.base import LONGEST_ANSWER_BYTES, Address, ConnectionOptions
from migrator.source.engines.catalogue import quoted

# ── SQL of most engines: texts, comments, parameters, clock functions, values as text ──

BACKSLASHED = r"'(?:[^'\\]|''|\\.)*'"
ANSI_STRING = r"'(?:[^']|'')*'"
COMMENTS = r"/\*.*?\*/|--[^\n]*"
PARAMETER = r"(?<![\w:$]):(?P<name>[A-Za-z_]\w*)"
BLANK = r"[ \t\r\n\f\v]"
BLOCK = r"/\*(?:(?!\*/|/\*).)*\*/"
MYSQL_AT_WORK = (
    "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND NOT IN ('Sleep', 'Daemon', 'Binlog Dump')"
    " AND ID <> CONNECTION_ID() AND (SELECT COUNT(*) FROM information_schema.INNODB_TRX) >= 0"
)
"""Without PROCESS a user sees its own sessions only, and the number would be too low; INNODB_TRX rejects such a user."""
BETWEEN = re.compile(rf"(?:{BLANK}|{BLOCK}|--[^\r\n]*)*", re.DOTALL)
"""Blanks and comments, as standard SQL has them."""


CLOCKS = frozenset(
    {
        "current_timestamp",
        "current_date",
        "current_time",
        "localtime",
        "localtimestamp",
        "utc_timestamp",
        "utc_date",
    }
    | {"utc_time", "current_user", "session_user", "current_role"}
)
"""Names of clock functions that need no parentheses."""
AS_TEXT: Mapping[type, Callable[[Any], Any]] = {
    # PostgreSQL converts text to the type it is compared with; SQLite by custom stores such values as text.
    datetime: lambda moment: moment.isoformat(" "),
    date: date.isoformat,
    time: time.isoformat,
    UUID: str,
}
"""The forms of values that drivers bind."""
COMMON_QUOTES = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/"
"""Texts, names and comments of a service's statement, as standard SQL has them."""


# ── Explanations of errors with advice, shared by several engines ──


_ERRORS = (files("migrator.source.engines") / "errors.toml").read_text(encoding="utf-8")
"""Read with this module: an error may come because no file can be opened."""


@cache
def explanations(kind: str) -> Mapping[str, str]:
    tables = tomllib.loads(_ERRORS)
    named: dict[str, str] = {}
    for name, text in tables["reasons"].items():
        named[name] = text.format_map(named)
    return {key: text.format_map(named) for keys, text in tables[kind].items() for key in keys.split(", ")}


def long_answer() -> str:
    what = f"the answer has more than {LONGEST_ANSWER_BYTES >> 20} MB; let the statement give fewer rows, or shorter values"
    return f"{what}; of rows of a table lower page_rows, then {explanations('reasons')['resume']}"


def by_sqlstate(cause: BaseException) -> Iterator[str]:
    """Explanations by SQLSTATE, for drivers that have it; by its class last."""
    state = getattr(cause, "sqlstate", None) or ""
    for kind, key in (("sqlstate", state), ("sqlstate_class", state[:2])):
        if key in explanations(kind):
            yield explanations(kind)[key]


# ── Engines with a server: connections that resolve their address again, checks of URLs, statistics ──

CONNECT_TIMEOUT_S = 10
OUR_TRIGGER = re.compile(r"migrator_[0-9a-f]{8}_[a-z]+_([0-9a-f]{8})")
"""Names of our triggers, which include a digest, on engines where we have no schema."""


def server_engine(
    address: Address, connection_options: ConnectionOptions, arguments: Callable[[URL], dict[str, Any]]
) -> sa.Engine:
    first = address.url()

    def current_url() -> URL:
        try:
            url = address.url()
        except SettingsError as error:
            # It was right when the run began, so the run can continue once it is right again.
            raise SourceError(f"{error}; then run the same command again") from None
        if url.drivername != first.drivername:
            raise SourceError("source: the URL is now one of another kind of database; correct it")
        return url

    def make(dialect: Dialect, url: URL) -> DBAPIConnection:
        with naming_options("the source's URL"):
            words, named = dialect.create_connect_args(url)
            named.update(arguments(url))
        connection: DBAPIConnection = connected(dialect, words, named, "the source's URL")
        return connection

    def connect(dialect: Dialect, *_: object) -> DBAPIConnection:
        url = current_url()
        try:
            return make(dialect, url)
        except dialect.loaded_dbapi.Error as error:
            if not refuses_login(error):
                raise
            # The password may have changed within the time that an answer is cached.
            address.forget()
            if (now := current_url()) == url:
                raise
        return make(dialect, now)

    # The engine itself never holds the password. What only reads is retried when a pooled connection is gone;
    # a ping would be a third of a service's read.
    url, ping = first.set(password=None), connection_options.writes
    with naming_options("the source's URL"):
        engine = sa.create_engine(url, pool_pre_ping=ping, **connection_options.pool())
    sa.event.listen(engine, "do_connect", connect)
    return engine


def unless_in(url: URL, defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in defaults.items() if name not in url.query}


def refuse_stray_at(url: URL) -> None:
    """Raises: SettingsError if an '@' ends the password too early."""
    if any("@" in part for part in (url.host or "", url.database or "")):
        what = "source: the URL holds an '@' too many; write @ : / in a user name or password as %40 %3A %2F"
        raise SettingsError(what)


def need_driver(module: str, what: str, extra: str) -> None:
    """Raises: SettingsError if the driver, which SQLite does not need, is not installed."""
    try:
        import_module(module)
    except ImportError:
        raise SettingsError(f"source: {what}; {how_to_install(extra)}") from None


def places(name: str, home: str) -> list[tuple[str, str]]:
    """Schemas and tables that a name as in Captured.name may mean: both may have dots in them."""
    dots = [at for at, character in enumerate(name) if character == "."]
    return [(home, name), *((name[:at], name[at + 1 :]) for at in dots)]


def split(inspector: sa.Inspector, name: str) -> tuple[str, str]:
    """The schema and table of a name as in Captured.name."""
    own, *others = places(name, str(inspector.default_schema_name))
    if not others or name in inspector.get_table_names():
        return own
    schemas = inspector.get_schema_names()
    there = [place for place in others if place[0] in schemas]
    exact = (place for place in there if place[1] in inspector.get_table_names(place[0]))
    return next(exact, (there or others[-1:])[0])


def shown(connection: Connection, *parts: str, quote: str = '"') -> str:
    """A qualified name, quoted only if necessary."""
    needed = connection.dialect.identifier_preparer.quote
    return ".".join(part if needed(part) == part else quoted(part, quote) for part in parts)


def default_schema(connection: Connection) -> str:
    return str(sa.inspect(connection).default_schema_name)


def drops_unchecked(off: str, on: str) -> Callable[[Sequence[str]], list[str]]:
    return lambda names: [off, *(f"DROP TABLE {name}" for name in names), on]


FEW = 100
"""Statistics of fewer rows are useless: their counts lag by as many."""


def part_of(
    connection: Connection, statement: sa.TextClause, table: TableFacts, *, of: int, by: int
) -> int | None:
    """The share `of` over `by` of the counted rows; None if there are too few."""
    rows = connection.execute(statement, {"schema": table.schema, "name": table.real}).scalar()
    return None if rows is None or int(rows) < FEW else int(rows) * of // by
