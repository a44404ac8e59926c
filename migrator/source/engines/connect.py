"""Connections to a source: supported databases, its URL or secret, engines; and its schema as a mapping sees it."""

from __future__ import annotations

import json
import os
import subprocess
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SAWarning
from sqlalchemy.pool import PoolProxiedConnection

from migrator.mapping.model.facts import ForeignKey, SchemaFacts, TableFacts
from migrator.mapping.model.mapping import Mapping as DesignMapping
from migrator.runtime.errors import SettingsError
from migrator.runtime.system import small_text
from migrator.runtime.values import replace
from migrator.source.engines.base import Address, ConnectionOptions
from migrator.source.engines.base import Engine as DatabaseEngine
from migrator.source.engines.catalogue import Reflected
from migrator.source.engines.mysql.engine import MYSQL
from migrator.source.engines.postgresql.engine import POSTGRESQL
from migrator.source.engines.sqlite.engine import SQLITE, sqlite_file

# ── The table of databases that we can read, by the name of SQLAlchemy's dialect ──

ENGINES: list[DatabaseEngine] = [SQLITE, POSTGRESQL, MYSQL]
"""All engines; a new one is added here."""

SENT_ONCE: Mapping[str, Any] = {"compiled_cache": None}
"""Execution options of texts that are sent once: SQLAlchemy keeps 500, and sorts them whenever it drops some."""


@cache
def engine_of(dialect: str) -> DatabaseEngine:
    """Raises: SettingsError for an unknown dialect, naming those that exist."""
    by_name = {name: engine for engine in ENGINES for name in (engine.name, *engine.also)}
    if (found := by_name.get(dialect)) is not None:
        return found
    names = ", ".join(engine.name for engine in ENGINES)
    what = f"source: no engine for the dialect '{dialect}', only for {names}"
    raise SettingsError(f"{what}; name a database of one of these, or add an engine (docs/architecture.md)")


def engine_at(connects: Connection | Engine) -> DatabaseEngine:
    """Raises: as `engine_of`."""
    return engine_of(connects.dialect.name)


def engine_for_scheme(scheme: str) -> DatabaseEngine | None:
    kind = scheme.partition("+")[0]
    return next((engine for engine in ENGINES if kind in engine.connecting.schemes), None)


def extra_for(url: str) -> tuple[str, str] | None:
    engine = engine_for_scheme(url.partition(":")[0])
    return None if engine is None else engine.connecting.extra


# ── The URL of a source, from the user's text ──

_FORMS = [engine.connecting.form for engine in ENGINES]
SUPPORTED = f"{', '.join(_FORMS[:-1])} or {_FORMS[-1]}"


def source_url(text: str) -> URL:
    """The URL with psycopg 3 for PostgreSQL, PyMySQL for MySQL and MariaDB, or of an existing SQLite file.

    Raises: SettingsError for anything else. Its message never contains a URL, which may contain a password.
    """
    if "://" not in text:
        return sqlite_file(text, SUPPORTED)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        what = f"source: the URL cannot be read; write {SUPPORTED}"
        raise SettingsError(f"{what}, @ : / in a user name or password as %40 %3A %2F") from None
    engine = engine_for_scheme(url.drivername)
    if engine is not None and url.drivername in engine.connecting.schemes:
        return engine.connecting.checked_url(url, SUPPORTED)
    if engine is not None and engine.connecting.driver:
        raise SettingsError(f"source: {engine.connecting.driver}")
    raise SettingsError(f"source: this kind of database is not supported; write {SUPPORTED}")


def place_of(url: URL) -> str:
    """Kind, file or host and database for messages; no user, no password."""
    engine = engine_of(url.get_backend_name())
    if engine.is_file:
        return f"{engine.title} file {url.database}"
    hosts, port, database = _named(url)
    where = f"{','.join(hosts) or 'the local socket'}{f':{port}' if port else ''}"
    return f"{engine.title} database {database or '(default)'} at {where}"


def _named(url: URL) -> tuple[list[str], str, str]:
    """Hosts, port and database. An option after `?` wins, as with the drivers."""
    options = {name: ",".join(given) for name, given in url.normalized_query.items()}
    hosts, port = options.get("host", url.host or ""), options.get("port", str(url.port or ""))
    return [host for host in hosts.split(",") if host], port, options.get("dbname", url.database or "")


_LOCAL = ("", "localhost", "127.0.0.1", "::1")


def url_identity(text: str) -> str:
    """Kind, file or host, port and database; without user and password, so that these may change.

    '' if the text is not a source's URL. Makes no connection.
    """
    try:
        url = make_url(text) if "://" in text else URL.create(SQLITE.name, database=text)
        engine = engine_for_scheme(url.drivername)
    except (ArgumentError, ValueError, NoSuchModuleError):
        return ""
    if engine is not None and engine.is_file:
        return place_of(url.set(database=os.path.realpath(url.database))) if url.database else ""
    if engine is None or "@" in f"{url.host}{url.database}":
        return ""
    hosts, port, database = _named(url)
    query = {
        "host": ",".join(dict.fromkeys(_host(host) for host in hosts or [""])),
        "port": port or str(engine.connecting.port),
    }
    return place_of(URL.create(engine.name, database=database, query=query))


def _host(name: str) -> str:
    plain = name.lower().rstrip(".")
    return "localhost" if plain in _LOCAL or plain.startswith("/") else plain


# ── The database's URL: from the job, or from a secret provider on demand ──

COMMAND_LIMIT_S = 30.0


class SecretProviders(Struct, frozen=True):
    """The environment, files below `folder`, and `secret`, which reads one by its ARN."""

    folder: Path
    environ: Mapping[str, str]
    secret: Callable[[str], str]


def address_of(text: str, command: Sequence[str], secret_providers: SecretProviders) -> Address:
    if not command:
        return Address(_asking(text, secret_providers))
    if not text:
        return Address(lambda: _url("source: the command's output", _output(command)))
    base = _asking(text, secret_providers)
    return Address(lambda: base().set(password=_output(command)))


def identity_of(text: str, secret_providers: SecretProviders) -> str:
    """Identity of a job's `url` (see `url_identity`); for a secret its name, '' for a program. Calls no provider."""
    kind, colon, rest = text.partition(":")
    if colon and kind == "secret":
        return f"what secret {rest.strip()} names"
    if colon and kind in ("env", "file"):
        try:
            answer = (
                secret_providers.environ.get(rest, "")
                if kind == "env"
                else _content(secret_providers.folder / rest.strip())
            )
        except SettingsError:
            return ""
        return url_identity(answer.strip()) if "://" in answer else ""
    return url_identity(text) if text else ""


def _asking(text: str, secret_providers: SecretProviders) -> Callable[[], URL]:
    kind, colon, rest = text.partition(":")
    asks: dict[str, Callable[[], str]] = {
        "env": lambda: _variable(rest, secret_providers.environ),
        "file": lambda: _content(secret_providers.folder / rest.strip()),
        "secret": lambda: secret_providers.secret(rest.strip()),
    }
    if not colon or kind not in asks:
        return lambda: source_url(text)
    place = f"source: {text}"
    return lambda: _url(place, asks[kind]().strip())


def _url(place: str, answer: str) -> URL:
    """Never quotes an answer that is not a URL: it may be a password alone."""
    if answer.startswith("{"):
        return _of_rds(place, answer)
    if "://" not in answer:
        raise SettingsError(f"{place} is not a URL; it must contain {SUPPORTED}")
    return source_url(answer)


def _of_rds(place: str, answer: str) -> URL:
    """The URL of a secret as RDS and its rotation write it.

    Source: AWS Secrets Manager User Guide, "JSON structure of AWS Secrets Manager secrets".
    """
    try:
        secret = json.loads(answer)
    except ValueError:
        raise SettingsError(f"{place} begins like JSON, but cannot be read as such") from None
    needed = ("engine", "host", "username", "password", "dbname")
    missing = [name for name in needed if not isinstance(secret.get(name), str) or not secret[name]]
    if missing:
        what = f"{place} is JSON without {', '.join(missing)}"
        raise SettingsError(f"{what}; a secret of RDS's form has {', '.join(needed)} and port, or is a URL")
    named = secret["engine"].lower()
    driver = next((engine.name for engine in ENGINES if named in engine.connecting.rds), None)
    port = str(secret.get("port") or "")
    if driver is None or not (port.isdecimal() or not port):
        raise SettingsError(
            f"{place} is JSON with an engine or a port that is not known here; write {SUPPORTED}"
        )
    made = URL.create(
        driver,
        secret["username"],
        secret["password"],
        secret["host"],
        int(port) if port else None,
        secret["dbname"],
    )
    return source_url(made.render_as_string(hide_password=False))


# ── secret providers ──


def _variable(name: str, environ: Mapping[str, str]) -> str:
    value = environ.get(name)
    if not value:
        raise SettingsError(f"source: the variable {name} is not set; export {name}=… before the command")
    return value


def _content(path: Path) -> str:
    try:
        return small_text(path)
    except UnicodeDecodeError:
        raise SettingsError(f"source: the file {path} is not UTF-8 text") from None
    except OSError as error:
        raise SettingsError(f"source: the file {path} cannot be read ({error.strerror})") from None


def _output(command: Sequence[str]) -> str:
    """Never quoted in a message: it may contain the secret."""
    try:
        # In its own session, so that Ctrl-C ends the run at its checkpoint and not this program.
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
            start_new_session=True,
        )
        answer = ended.stdout.decode().strip()
    except subprocess.TimeoutExpired:
        raise SettingsError(
            f"source: the command timed out after {COMMAND_LIMIT_S:.0f} s; run it in a shell to check"
        ) from None
    except UnicodeDecodeError:
        raise SettingsError("source: the command's output is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or type(error).__name__
        raise SettingsError(
            f"source: the command cannot be started ({what}); give a program and its arguments"
        ) from None
    if ended.returncode:
        raise SettingsError(
            f"source: the command failed with code {ended.returncode}; run it in a shell to check"
        )
    if not answer:
        raise SettingsError("source: the command printed nothing; run it in a shell to check")
    return answer


# ──
# Engines that hand out the driver's own values; whose every transaction is a read-only snapshot, or one
# that writes.


def read_engine(address: Address, connection_options: ConnectionOptions) -> Engine:
    """An engine that is not connected yet; each new connection asks the address again. Raises: SettingsError."""
    connecting = engine_of(address.url().get_backend_name()).connecting
    engine = connecting.open(address, connection_options)
    begins = partial(connecting.begins, connection_options)
    engine.update_execution_options(migrator_begins=begins)

    def begin(connection: Connection) -> None:
        if not connection_options.writes:
            begin_reading(engine, connection.connection)
        elif statement := begins(connection.info):
            connection.exec_driver_sql(statement)

    sa.event.listen(engine, "begin", begin)
    return engine


def begin_reading(engine: Engine, borrowed: PoolProxiedConnection) -> DBAPICursor:
    """Begin a read_engine's transaction by the driver: through SQLAlchemy that takes as long as a short statement.

    The cursor can run its first statement.
    """
    cursor = borrowed.cursor()
    cursor.execute(engine.get_execution_options()["migrator_begins"](borrowed.info))
    return cursor


def write_engine(address: Address, connection_options: ConnectionOptions) -> Engine:
    """An engine for capture's tables: transactions write, and see what others committed before each statement."""
    return read_engine(address, replace(connection_options, writes=True))


def journal_engine(address: Address, connection_options: ConnectionOptions) -> Engine:
    """An engine for a journal in the source. Raises: SettingsError for a file, which has one writer at a time."""
    if engine_of(address.url().get_backend_name()).is_file:
        what = "journal: source needs a server, and the source is an SQLite file"
        raise SettingsError(f"{what}; leave journal out, or write the URL of another database")
    return write_engine(address, connection_options)


def view_names(connection: Connection) -> set[str]:
    inspector = sa.inspect(connection)
    has_both = engine_at(connection).schema.has_materialized_views
    materialized = inspector.get_materialized_view_names() if has_both else ()
    return {*inspector.get_view_names(), *materialized}


def reflect(connection: Connection, schemas: Sequence[str] = ()) -> SchemaFacts:
    schema = engine_at(connection).schema
    existing = tuple(sa.inspect(connection).get_schema_names()) if schema.has_schemas else ()
    with warnings.catch_warnings():
        # Types and indexes that SQLAlchemy does not know are `unknown` or left out; no warning is needed.
        warnings.simplefilter("ignore", SAWarning)
        read = [_Schema(schema.reflected(connection, None), "")]
        read += [
            _Schema(schema.reflected(connection, name), f"{name}.") for name in schemas if name in existing
        ]
    tables = (table for schema in read for table in schema.tables(read))
    by_name = {table.name: table for table in tables}
    left_out = {f"{one.prefix}{name}": why for one in read for name, why in one.reflected.left_out.items()}
    unread = tuple(table for one in read for table in one.unread(read))
    return SchemaFacts(
        *(connection.dialect.name, by_name, existing),
        left_out=left_out,
        unread=unread,
        loosely_typed=schema.loosely_typed,
    )


class _Schema(Struct, frozen=True):
    reflected: Reflected
    prefix: str

    def tables(self, schemas: Sequence[_Schema]) -> Iterator[TableFacts]:
        for name, columns in self.reflected.columns.items():
            yield TableFacts(
                name=f"{self.prefix}{name}",
                real=name,
                columns=tuple(columns),
                primary_key=tuple(self.reflected.primary_keys.get(name, ())),
                unique=tuple(map(tuple, self.reflected.unique.get(name, ()))),
                foreign_keys=tuple(self._foreign_keys(name, schemas)),
                schema=self.reflected.schema,
                unique_conflicts=self.reflected.unique_conflicts.get(name, ()),
                doubts=tuple((tuple(key), why) for key, why in self.reflected.doubts.get(name, ())),
            )

    def unread(self, schemas: Sequence[_Schema]) -> Iterator[TableFacts]:
        """Tables that are left out and refer to others: their parents must not be deleted."""
        for name in self.reflected.left_out:
            if keys := tuple(self._foreign_keys(name, schemas)):
                schema = self.reflected.schema
                yield TableFacts(f"{self.prefix}{name}", name, (), (), foreign_keys=keys, schema=schema)

    def _foreign_keys(self, name: str, schemas: Sequence[_Schema]) -> Iterator[ForeignKey]:
        for key in self.reflected.foreign_keys.get(name, ()):
            # PostgreSQL leaves out a schema on its search path; MySQL, whose default has no name here, its own.
            referred_schema = key["referred_schema"] or schemas[0].reflected.schema or self.reflected.schema
            other = next((s for s in (self, *schemas) if s.reflected.schema == referred_schema), None)
            table = _any_case(other.reflected.columns, key["referred_table"]) if other else None
            if other is None or table is None:
                continue
            written = key["constrained_columns"]
            ours = [_any_case(self._columns(name) or written, column) for column in written]
            theirs = [
                _any_case(other._columns(table), column)
                for column in key["referred_columns"] or other.reflected.primary_keys.get(table, [])
            ]
            if ours and len(ours) == len(theirs) and None not in ours + theirs:
                columns, referred = (tuple(filter(None, names)) for names in (ours, theirs))
                options = key.get("options", {})
                deferrable, proved = bool(options.get("deferrable")), options.get("proved", True)
                yield ForeignKey(columns, f"{other.prefix}{table}", referred, deferrable, proved)

    def _columns(self, table: str) -> list[str]:
        return [column.real for column in self.reflected.columns.get(table, ())]


def _any_case(names: Collection[str], written: str) -> str | None:
    if written in names:
        return written
    return next((name for name in names if name.lower() == written.lower()), None)


# ── A database, or tables of DynamoDB's ──


def refuse_documents(mapping: DesignMapping) -> None:
    if mapping.documents:
        what = f"{mapping.name} declares old tables of DynamoDB's, and the source is a database"
        raise SettingsError(
            f"{what}; write source: {{dynamodb: {{tables: […]}}}} in the job, or take tables: out"
        )


Needed = TypeVar("Needed")


def of_kind(edge: object, kind: type[Needed]) -> Needed:
    """Raises: SettingsError if the source does not support SQL."""
    if not isinstance(edge, kind):
        what = "this needs SQL, and the source of this job is tables of DynamoDB"
        raise SettingsError(f"{what}; see docs/documents.md for what runs on them")
    return edge
