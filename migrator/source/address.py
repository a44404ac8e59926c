"""Where the database is: a URL that stands in the job, or one that is asked for whenever it is needed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from sqlalchemy.engine import URL

from migrator.errors import SettingsError
from migrator.files import small_text
from migrator.source.engines.table import ENGINES
from migrator.source.url import SUPPORTED, source_url
from migrator.source.url import identity_of as url_identity

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
class Keepers:
    """What is asked for a URL: the environment, files below `folder`, and `secret`, which reads one by its ARN."""

    folder: Path
    environ: Mapping[str, str]
    secret: Callable[[str], str]


def address_of(text: str, command: Sequence[str], keepers: Keepers) -> Address:
    """The address that a job's `url` and `command` mean, either of which may be empty."""
    if not command:
        return Address(_asking(text, keepers))
    if not text:
        return Address(lambda: _url("source: the command's output", _output(command)))
    base = _asking(text, keepers)
    return Address(lambda: base().set(password=_output(command)))


def identity_of(text: str, keepers: Keepers) -> str:
    """What tells the source that a job's `url` means from others (see source/url.py); the secret's name where it is in one,
    '' where it cannot be known without running a program. Asks nobody."""
    kind, colon, rest = text.partition(":")
    if colon and kind == "secret":
        return f"what secret {rest.strip()} names"
    if colon and kind in ("env", "file"):
        try:
            answer = (
                keepers.environ.get(rest, "") if kind == "env" else _content(keepers.folder / rest.strip())
            )
        except SettingsError:
            return ""
        return url_identity(answer.strip()) if "://" in answer else ""
    return url_identity(text) if text else ""


def _asking(text: str, keepers: Keepers) -> Callable[[], URL]:
    kind, colon, rest = text.partition(":")
    asks: dict[str, Callable[[], str]] = {
        "env": lambda: _variable(rest, keepers.environ),
        "file": lambda: _content(keepers.folder / rest.strip()),
        "secret": lambda: keepers.secret(rest.strip()),
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


# ── who is asked ──


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
