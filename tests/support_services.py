"""Real parts for the tests: a PostgreSQL server, databases on it, an embedded DynamoDB."""

from __future__ import annotations

import getpass
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from tests.support_own_server import OwnServer

POSTGRES_VARIABLE = "MIGRATOR_TEST_POSTGRES_URL"
LOGICAL_VARIABLE = "MIGRATOR_TEST_LOGICAL_URL"
"""Of the server that `.ci/engine postgres` starts, for the tests of the log: another version than the installed one."""
DYNAMODB_VARIABLE = "MIGRATOR_TEST_DYNAMODB_URL"
CHINOOK_VARIABLE = "MIGRATOR_TEST_CHINOOK"
LOCAL_POSTGRES = ("127.0.0.1", 5432)
START_LIMIT_S = 120

REPOSITORY = Path(__file__).resolve().parent.parent


class MissingPart(Exception):
    """A real part that this machine has not; the message says how to get it."""


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


# ── Chinook ─────────────────────────────────────────────────────────────────────────────────────


def chinook_folder() -> Path:
    """The folder with the Chinook data.

    Raises: MissingPart where there is none.
    """
    named = os.environ.get(CHINOOK_VARIABLE)
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data" / "chinook"
    if not (folder / "Chinook_Sqlite.sqlite").is_file():
        raise MissingPart(
            f"no Chinook data; set {CHINOOK_VARIABLE} to the folder that holds Chinook_Sqlite.sqlite"
        )
    return folder


def chinook_postgres_script(folder: Path) -> str:
    """Chinook's SQL without the lines that choose a database."""
    lines = (folder / "Chinook_PostgreSql.sql").read_text(encoding="utf-8-sig").splitlines()
    return "\n".join(
        line for line in lines if not line.startswith(("DROP DATABASE", "CREATE DATABASE", "\\c"))
    )


# ── PostgreSQL ──────────────────────────────────────────────────────────────────────────────────


def postgres_version(url: str) -> str | None:
    """The server's version, or None where no server answers or lets us in."""
    try:
        with psycopg.connect(url, connect_timeout=60) as connection:
            return str(connection.info.parameter_status("server_version"))
    except psycopg.Error:
        return None


def answering_postgres() -> str | None:
    """The URL of a server that is already there: the one of the environment, or one on this machine."""
    named = os.environ.get(POSTGRES_VARIABLE)
    if named:
        return named
    host, port = LOCAL_POSTGRES
    with socket.socket() as probe:
        probe.settimeout(60)
        if probe.connect_ex((host, port)) != 0:
            return None
    users = dict.fromkeys([getpass.getuser(), "postgres", "root"])
    urls = [f"postgresql://{user}@{host}:{port}/postgres" for user in users]
    return next((url for url in urls if postgres_version(url)), None)


def postgres_source() -> str:
    """Where a server will come from, in words."""
    url = answering_postgres()
    if url:
        where = urlsplit(url)
        return (
            f"{where.hostname}:{where.port or 5432}, version {postgres_version(url) or '(does not answer)'}"
        )
    if postgres_binaries():
        return "a server of our own from the installed binaries"
    return "a container" if docker_answers() else "none"


@contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of a server's database `postgres`, for as long as the context lasts.

    Raises: MissingPart where there is none and none can be started.
    """
    url = answering_postgres()
    if url:
        if postgres_version(url) is None:
            raise MissingPart(
                f"the server of {POSTGRES_VARIABLE} does not answer; start it, or unset the variable"
            )
        yield url
    elif postgres_binaries():
        with own_postgres() as own:
            yield own.url
    elif docker_answers():
        with _postgres_container() as contained:
            yield contained
    else:
        raise MissingPart(f"no PostgreSQL; set {POSTGRES_VARIABLE}, or install PostgreSQL")


@contextmanager
def postgres_database(server_url: str, template: str | None = None) -> Iterator[str]:
    """The URL of a new database with a random name, in UTF-8 and bytewise order; dropped at the end.

    `template`: the name of a database to copy.
    """
    name = f"migrator_test_{secrets.token_hex(6)}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {} ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'")
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(create.format(sql.Identifier(name), sql.Identifier(template or "template0")))
    try:
        yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )


def run_script(url: str, script: str) -> None:
    """Nothing; the statements are executed in one transaction."""
    with psycopg.connect(url) as connection:
        connection.execute(script.encode())


def postgres_binaries() -> list[Path]:
    """Folders that hold initdb and pg_ctl, oldest version first."""
    on_path = shutil.which("initdb")
    folders = [*Path("/usr/lib/postgresql").glob("*/bin"), *([Path(on_path).parent] if on_path else [])]
    return sorted((folder for folder in folders if (folder / "initdb").is_file()), key=_version_of)


def _version_of(folder: Path) -> int:
    return int(folder.parent.name) if folder.parent.name.isdecimal() else 0


@contextmanager
def own_postgres(*more: str) -> Iterator[OwnServer]:
    """A server in a folder of its own; as root it runs as another user, since PostgreSQL refuses root. `more`: settings."""
    if not postgres_binaries():
        raise MissingPart("no initdb and pg_ctl; install PostgreSQL")
    binaries = postgres_binaries()[-1]
    home = Path(tempfile.mkdtemp(prefix="migrator-pg-"))
    user = other_user()
    if user:
        shutil.chown(home, user)
    port, cluster = free_port(), home / "cluster"

    def run(program: str, *words: str) -> None:
        command = [str(binaries / program), "-D", str(cluster), *words]
        done = subprocess.run(
            command, cwd=home, user=user, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode:
            raise MissingPart(f"{program} of the installed PostgreSQL failed: {done.stderr.strip()[-400:]}")

    try:
        run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        settings = f"-c listen_addresses=127.0.0.1 -p {port} -k {home} -c fsync=off {' '.join(f'-c {setting}' for setting in more)}"
        start = partial(run, "pg_ctl", "-w", "-l", str(home / "log"), "-o", settings, "start")
        crash = partial(run, "pg_ctl", "-m", "immediate", "stop")
        start()
        try:
            yield OwnServer(f"postgresql://postgres@127.0.0.1:{port}/postgres", start, crash)
        finally:
            crash()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def other_user() -> str | None:
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in users), None)


def docker_answers() -> bool:
    try:
        import docker

        docker.from_env(timeout=2).ping()
    except Exception:  # docker raises its own, requests' and urllib3's errors alike: each means "no engine"
        return False
    return True


@contextmanager
def _postgres_container() -> Iterator[str]:
    from testcontainers.postgres import PostgresContainer

    with PostgresContainer("postgres:15", driver=None) as container:
        yield container.get_connection_url()


# ── DynamoDB ────────────────────────────────────────────────────────────────────────────────────


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def embedded_dynamodb(home: Path, **settings: str) -> Iterator[str]:
    """The endpoint of a MiniStack that keeps nothing and ends with the context. `home` takes its files."""
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with (home / "ministack.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ministack"],
            cwd=home,
            env=_ministack_environment(home, port) | settings,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until(lambda: is_ministack(endpoint), process, home / "ministack.log")
        yield endpoint
    finally:
        process.send_signal(signal.SIGKILL)  # nothing of it is kept, so nothing needs saving
        process.wait()


def _ministack_environment(home: Path, port: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MIGRATOR_"))}
    return kept | {
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "PERSIST_STATE": "0",
        "S3_PERSIST": "0",
        "TMPDIR": str(home),
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
    }


def is_ministack(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(f"{endpoint}/_ministack/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + START_LIMIT_S
    while not ready():
        if process.poll() is not None or time.monotonic() > limit:
            raise MissingPart(f"MiniStack did not start: {log.read_text(errors='replace')[-400:]}")
        time.sleep(0.05)


if __name__ == "__main__":
    url = answering_postgres()
    if url is None:
        sys.exit(1)
    sys.stdout.write(url + "\n")


# ── Terraform ──

_TERRAFORM_MIRRORS = ("/opt/*", "/usr/share/terraform/*", "/usr/local/share/terraform/*", "~/.terraform.d/*")


def terraform_mirror() -> Path | None:
    """The folder that Terraform finds the AWS provider in; None where that, or Terraform itself, is not on this machine."""
    named = os.environ.get("MIGRATOR_TEST_TERRAFORM_PLUGINS")
    patterns = [
        f"{os.path.expanduser(mirror)[1:]}/registry.terraform.io/hashicorp/aws"
        for mirror in _TERRAFORM_MIRRORS
    ]
    found = [path.parents[2] for pattern in patterns for path in Path("/").glob(pattern)]
    mirrors = [Path(named)] if named else found
    return mirrors[0] if mirrors and shutil.which("terraform") else None


def terraform_source() -> str:
    """What a test run says of it."""
    if terraform_mirror() is None:
        return "none, what it is given was read by a JSON parser alone"
    return f"found, its providers in {terraform_mirror()}"
