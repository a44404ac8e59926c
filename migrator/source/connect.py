"""How a source is connected to: its URL or secret, and the rate limit of reading."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from migrator.model.errors import SettingsError
from migrator.runtime.files import small_text
from migrator.runtime.retry import nap
from migrator.source.engines.base import ConnectionOptions
from migrator.source.engines.sqlite.engine import SQLITE, sqlite_file
from migrator.source.engines.table import ENGINES, engine_for_scheme, engine_of

# ── The URL of a source, from what a user wrote ──

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


def url_identity(text: str) -> str:
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


# ── Where the database is: a URL that stands in the job, or one that is asked for whenever it is needed ──

LIFE_S = 60.0
"""How long an answer is believed; a token of AWS IAM lives for 15 minutes."""

COMMAND_LIMIT_S = 30.0


class Address:
    """The URL of a database, from `ask` at most once in LIFE_S. Safe to use from many threads; never shown."""

    def __init__(self, ask: Callable[[], URL], clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = Lock()
        self._known: URL | None = None
        self._asked_at = 0.0

    @classmethod
    def of(cls, url: URL | Address) -> Address:
        return url if isinstance(url, Address) else cls(lambda: url)

    def url(self) -> URL:
        """The URL, no older than LIFE_S. Raises: SettingsError, without anything of the answer."""
        with self._lock:
            if self._known is None or self._clock() - self._asked_at > LIFE_S:
                self._known, self._asked_at = self._ask(), self._clock()
            return self._known

    def forget(self) -> None:
        """The next look asks anew: what was answered is no longer right."""
        with self._lock:
            self._known = None


@dataclass(frozen=True)
class SecretProviders:
    """What is asked for a URL: the environment, files below `folder`, and `secret`, which reads one by its ARN."""

    folder: Path
    environ: Mapping[str, str]
    secret: Callable[[str], str]


def address_of(text: str, command: Sequence[str], secret_providers: SecretProviders) -> Address:
    """The address that a job's `url` and `command` mean, either of which may be empty."""
    if not command:
        return Address(_asking(text, secret_providers))
    if not text:
        return Address(lambda: _url("source: the command's output", _output(command)))
    base = _asking(text, secret_providers)
    return Address(lambda: base().set(password=_output(command)))


def identity_of(text: str, secret_providers: SecretProviders) -> str:
    """What tells the source that a job's `url` means from others (see `url_identity`); the secret's name where it is in one,
    '' where it cannot be known without running a program. Asks nobody."""
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
    """The URL of an answer. Anything else is never quoted: it may be a password alone."""
    if answer.startswith("{"):
        return _of_rds(place, answer)
    if "://" not in answer:
        raise SettingsError(f"{place} is no URL; it shall hold {SUPPORTED}")
    return source_url(answer)


def _of_rds(place: str, answer: str) -> URL:
    """The URL of a secret as RDS and its rotation write it.

    Source: AWS Secrets Manager User Guide, "JSON structure of AWS Secrets Manager secrets".
    """
    try:
        found = json.loads(answer)
    except ValueError:
        raise SettingsError(f"{place} begins like JSON, but cannot be read as such") from None
    needed = ("engine", "host", "username", "password", "dbname")
    missing = [name for name in needed if not isinstance(found.get(name), str) or not found[name]]
    if missing:
        what = f"{place} is JSON without {', '.join(missing)}"
        raise SettingsError(f"{what}; a secret of RDS's form has {', '.join(needed)} and port, or is a URL")
    named = found["engine"].lower()
    driver = next((engine.name for engine in ENGINES if named in engine.connecting.rds), None)
    port = str(found.get("port") or "")
    if driver is None or not (port.isdecimal() or not port):
        raise SettingsError(
            f"{place} is JSON with an engine or a port that is not known here; write {SUPPORTED}"
        )
    made = URL.create(
        driver,
        found["username"],
        found["password"],
        found["host"],
        int(port) if port else None,
        found["dbname"],
    )
    return source_url(made.render_as_string(hide_password=False))


# ── secret providers ──


def _variable(name: str, environ: Mapping[str, str]) -> str:
    found = environ.get(name)
    if not found:
        raise SettingsError(f"source: the variable {name} is not set; export {name}=… before the command")
    return found


def _content(path: Path) -> str:
    try:
        return small_text(path)
    except UnicodeDecodeError:
        raise SettingsError(f"source: the file {path} is no UTF-8 text, so no URL") from None
    except OSError as error:
        raise SettingsError(f"source: the file {path} cannot be read ({error.strerror})") from None


def _output(command: Sequence[str]) -> str:
    """What the program prints. Its words are never in a message: they may hold the secret."""
    try:
        # In a session of its own, so that Ctrl-C ends the run at its checkpoint and not this.
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
        raise SettingsError(f"source: the command gave no answer in {COMMAND_LIMIT_S:.0f} s") from None
    except UnicodeDecodeError:
        raise SettingsError("source: the command's output is no UTF-8 text") from None
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or type(error).__name__
        raise SettingsError(
            f"source: the command cannot be started ({what}); name a program and its words"
        ) from None
    if ended.returncode:
        raise SettingsError(f"source: the command ended with code {ended.returncode}; try it by hand")
    if not answer:
        raise SettingsError("source: the command printed nothing; try it by hand")
    return answer


# ── How fast rows are read: a bucket of tokens that all workers of a run draw from ──

_NO_DEBT_ROWS = 1e-6
"""Rounding leaves so much; to wait for it could ask for sleeps too short for any clock, without end."""


class RateLimit:
    """At most `rows_per_s` on the average, whoever asks; None is no limit. Safe to use from many threads.

    A page's rows are known only when it is read: they are drawn afterwards, and whoever comes next waits until the
    bucket, which never holds more than one second's rows, is out of debt.
    """

    def __init__(
        self,
        rows_per_s: float | None = None,
        stop: Callable[[], bool] = lambda: False,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rows_per_s = rows_per_s
        self._stop = stop
        self._clock = clock
        self._sleep = sleep
        self._lock = Lock()
        self._tokens = 0.0
        self._filled_at = clock()

    def wait(self) -> None:
        """Returns when the next page may be read.

        Raises: Interrupted when the run is asked to stop.
        """
        if self._rows_per_s is None:
            return
        while (debt_s := self._debt_s(self._rows_per_s)) > 0:
            nap(debt_s, self._stop, self._sleep)

    def took(self, rows: int) -> None:
        """Draws the rows that were read."""
        if self._rows_per_s is not None:
            with self._lock:
                self._tokens -= rows

    def _debt_s(self, rows_per_s: float) -> float:
        """How long the bucket needs to be out of debt."""
        with self._lock:
            now = self._clock()
            filled = self._tokens + (now - self._filled_at) * rows_per_s
            self._tokens, self._filled_at = min(filled, rows_per_s), now
            return -self._tokens / rows_per_s if self._tokens < -_NO_DEBT_ROWS else 0.0


# ──
# Engines that hand out the driver's own values; whose every transaction is a read-only snapshot, or one
# that writes.


def read_engine(address: Address, connection_options: ConnectionOptions) -> Engine:
    """An engine with up to `connection_options.pool_size` connections; nothing is connected yet.

    Each new connection asks the address again. Raises: SettingsError as the address does.
    """
    return engine_of(address.url().get_backend_name()).connecting.open(address, connection_options)


def write_engine(address: Address, connection_options: ConnectionOptions) -> Engine:
    """The same for capture's own tables: transactions see what others committed before each statement, and write."""
    return read_engine(address, replace(connection_options, writes=True))
