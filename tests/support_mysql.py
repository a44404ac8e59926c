"""A MySQL or MariaDB server for the tests: one that is there, one of our own, or a container."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import pymysql
from pymysql.constants import CLIENT

from tests.support_own_server import OwnServer
from tests.support_services import START_LIMIT_S, MissingPart, docker_answers, free_port

MYSQL_VARIABLE = "MIGRATOR_TEST_MYSQL_URL"
LOCAL_URL = "mysql://root@127.0.0.1:3306/mysql"


_MODES = "REPLACE(REPLACE(@@sql_mode, 'NO_ZERO_IN_DATE', ''), 'NO_ZERO_DATE', '')"
"""MariaDB takes zero dates, MySQL only when it is told to."""


def connect(url: str, **words: Any) -> pymysql.connections.Connection[Any]:
    """A connection that may write; "Name" is a name in it, as in the SQL of the other databases."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=unquote(parts.path.lstrip("/")) or None,
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=60,
        init_command=f"SET sql_mode = CONCAT({_MODES}, ',ANSI_QUOTES'), time_zone = '+00:00'",
        **words,
    )


def mysql_version(url: str) -> str | None:
    """The server's version, or None where no server answers or lets us in."""
    try:
        with connect(url) as connection:
            # MariaDB puts a version in front that old replicas of MySQL understand.
            return str(connection.get_server_info()).removeprefix("5.5.5-")
    except pymysql.Error:
        return None


def is_mariadb(url: str) -> bool:
    return "MariaDB" in (mysql_version(url) or "")


@cache
def stands_for_mariadb() -> bool:
    """Whether the environment names a MySQL server, on which MariaDB's tests then run."""
    url = os.environ.get(MYSQL_VARIABLE)
    return url is not None and not is_mariadb(url)


@dataclass(frozen=True)
class Settings:
    """What the two servers call settings of a session. `second`: of `time_limit`."""

    time_limit: str
    second: int
    idle_limit: str
    isolation: str
    read_only: str


def settings_of(url: str) -> Settings:
    if is_mariadb(url):
        return Settings("max_statement_time", 1, "idle_transaction_timeout", "tx_isolation", "tx_read_only")
    return Settings(
        "max_execution_time", 1000, "wait_timeout", "transaction_isolation", "transaction_read_only"
    )


def answering_mysql() -> str | None:
    """The URL of a server that is already there: the one of the environment, or one on this machine."""
    return os.environ.get(MYSQL_VARIABLE) or (LOCAL_URL if mysql_version(LOCAL_URL) else None)


def mysql_source() -> str:
    """Where a server will come from, in words."""
    url = answering_mysql()
    if url:
        where = urlsplit(url)
        return f"{where.hostname}:{where.port or 3306}, version {mysql_version(url) or '(does not answer)'}"
    if _server_program():
        return "a server of our own from the installed binaries"
    return "a container" if docker_answers() else "none"


@contextmanager
def mysql_server() -> Iterator[str]:
    """The URL of a server's database `mysql`, for as long as the context lasts.

    Raises: MissingPart where there is none and none can be started.
    """
    url, program = answering_mysql(), _server_program()
    if url:
        if mysql_version(url) is None:
            raise MissingPart(
                f"the server of {MYSQL_VARIABLE} does not answer; start it, or unset the variable"
            )
        yield url
    elif program:
        with own_mariadb() as own:
            yield own.url
    elif docker_answers():
        with _mysql_container() as contained:
            yield contained
    else:
        raise MissingPart(f"no MySQL or MariaDB; set {MYSQL_VARIABLE}, or install MariaDB")


@contextmanager
def mysql_database(server_url: str) -> Iterator[str]:
    """The URL of a new database with a random name, in utf8mb4 and the server's collation; dropped at the end."""
    name = f"migrator_test_{secrets.token_hex(6)}"
    run_script(server_url, f'CREATE DATABASE "{name}" CHARACTER SET utf8mb4')
    try:
        yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    finally:
        run_script(server_url, f'DROP DATABASE IF EXISTS "{name}"')


def end_sessions(url: str, user: str) -> None:
    """Ends all connections of a user; MariaDB alone has KILL USER."""
    with connect(url) as server, server.cursor() as cursor:
        cursor.execute("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = %s", (user,))
        for (number,) in cursor.fetchall():
            cursor.execute(f"KILL {number}")


_COLLATIONS = {"utf8mb4_nopad_bin": "utf8mb4_0900_bin", "utf8mb4_general_nopad_ci": "utf8mb4_0900_as_ci"}
"""MariaDB's that tell trailing spaces, and MySQL's."""


def changes_newer_rows(url: str) -> str:
    """A statement after which a transaction may change rows that are newer than its snapshot: MariaDB's default until 11.6."""
    return "SET SESSION innodb_snapshot_isolation = OFF" if is_mariadb(url) else "SET NAMES utf8mb4"


def in_its_collations(url: str, text: str) -> str:
    """The text with the names that the server has for MariaDB's collations."""
    for theirs, of_mysql in () if is_mariadb(url) else _COLLATIONS.items():
        text = text.replace(theirs, of_mysql)
    return text


def run_script(url: str, script: str) -> None:
    """Nothing; the statements are executed one after the other, each in a transaction of its own."""
    if "_nopad_" in script:
        script = in_its_collations(url, script)
    with connect(url, client_flag=CLIENT.MULTI_STATEMENTS) as connection, connection.cursor() as cursor:
        cursor.execute(script)
        while cursor.nextset():  # raises what the next statement raised
            pass


def numbers(last: int, first: int = 1) -> str:
    """A table `numbers` with a column `seq`, to select from: MariaDB alone has seq_1_to_9, and both limit recursion."""
    digits = "SELECT " + " UNION ALL SELECT ".join(f"{digit} AS digit" for digit in range(10))
    places = range(len(str(last)))
    value = " + ".join(f"p{place}.digit * {10**place}" for place in places)
    joined = " CROSS JOIN ".join(f"({digits}) AS p{place}" for place in places)
    return f"(SELECT seq FROM (SELECT {value} AS seq FROM {joined}) AS every WHERE seq BETWEEN {first} AND {last}) AS numbers"


def chinook_mysql_script(folder: Path) -> str:
    """Chinook's SQL without the lines that choose a database."""
    lines = (folder / "Chinook_MySql.sql").read_text(encoding="utf-8-sig").splitlines()
    return "\n".join(
        line for line in lines if not line.startswith(("DROP DATABASE", "CREATE DATABASE", "USE"))
    )


# ── a server of our own ──


def _server_program() -> str | None:
    """MariaDB's server. MySQL's makes its data folder in another way: name one by the variable."""
    return shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextmanager
def own_mariadb(*more: str) -> Iterator[OwnServer]:
    """A server in a folder of its own; as root it runs as another user, since MariaDB refuses root. `more`: options."""
    program = _server_program()
    if program is None:
        raise MissingPart("no mariadbd; install MariaDB")
    home = Path(tempfile.mkdtemp(prefix="migrator-mysql-"))
    user = _other_user()
    if user:
        shutil.chown(home, user)
    port = free_port()
    # A server that starts removes the temporary tables of every server with the same tmpdir.
    folders = [f"--datadir={home / 'data'}", f"--tmpdir={home}"]
    try:
        _make_data_folder(home, folders, user)
        settings = [f"--port={port}", f"--socket={home / 'socket'}", f"--pid-file={home / 'pid'}"]
        words = [program, "--no-defaults", *folders, "--bind-address=127.0.0.1", *settings, *more]
        url, started = f"mysql://root@127.0.0.1:{port}/mysql", list[subprocess.Popen[bytes]]()

        def start() -> None:
            started.append(_begun(words, home, user))
            _wait_until_it_answers(url, started[-1], home / "log")

        def crash() -> None:
            started[-1].kill()  # as a power cut would; InnoDB mends itself at the next start
            started[-1].wait()

        try:
            start()
            yield OwnServer(url, start, crash)
        finally:
            crash()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _begun(words: list[str], home: Path, user: str | None) -> subprocess.Popen[bytes]:
    with (home / "log").open("ab") as log:
        return subprocess.Popen(
            words, cwd=home, user=user, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )


def _make_data_folder(home: Path, folders: list[str], user: str | None) -> None:
    install = shutil.which("mariadb-install-db")
    if install is None:
        raise MissingPart("the installed MariaDB has no mariadb-install-db")
    made = subprocess.run(
        [install, "--no-defaults", *folders, "--auth-root-authentication-method=normal", "--skip-test-db"],
        cwd=home,
        user=user,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        raise MissingPart(f"mariadb-install-db failed: {(made.stderr or made.stdout).strip()[-400:]}")


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + START_LIMIT_S
    while mysql_version(url) is None:
        if process.poll() is not None or time.monotonic() > limit:
            raise MissingPart(f"MariaDB did not start: {log.read_text(errors='replace')[-400:]}")
        time.sleep(0.1)


def _other_user() -> str | None:
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("mysql", "nobody") if name in users), None)


@contextmanager
def _mysql_container() -> Iterator[str]:
    from testcontainers.mysql import MySqlContainer

    with MySqlContainer("mariadb:10.11", username="root", dialect=None) as container:
        url = urlsplit(container.get_connection_url())
        yield urlunsplit(url._replace(scheme="mysql", path="/mysql"))


if __name__ == "__main__":
    url = answering_mysql()
    if url is None:
        sys.exit(1)
    sys.stdout.write(url + "\n")
