"""A real PgBouncer in front of the tests' PostgreSQL, by default in transaction mode."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from tests import support_services as services

_PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin"
START_LIMIT_S = 120


def pooler_program() -> str:
    """Raises: MissingPart where there is none."""
    program = shutil.which("pgbouncer", path=_PLACES)
    if program is None:
        raise services.MissingPart("no PgBouncer; install it (Debian: apt-get install pgbouncer)")
    return program


@dataclass(frozen=True)
class Pooler:
    """`url`: of the server's database, through the pooler."""

    url: str
    process: subprocess.Popen[bytes]
    settings: Path

    def lead_to(self, server_url: str) -> None:
        """The next transactions are of this server's database."""
        rest = self.settings.read_text().partition("[pgbouncer]")[2]
        self.settings.write_text(f"{_databases(server_url)}[pgbouncer]{rest}")
        self.process.send_signal(signal.SIGHUP)


def _databases(server_url: str) -> str:
    server = urlsplit(server_url)
    password = f" password={server.password}" if server.password else ""
    place = f"host={server.hostname} port={server.port or 5432} dbname={server.path.lstrip('/')}"
    return f"[databases]\n* = {place} user={server.username}{password}\n"


@contextmanager
def pooler(server_url: str, *, mode: str = "transaction", connections: int = 5) -> Iterator[Pooler]:
    """A pooler of so many connections to the server's database at most.

    As root it runs as another user, since PgBouncer refuses root. Raises: MissingPart where there is none.
    """
    program, server, port = pooler_program(), urlsplit(server_url), services.free_port()
    home = Path(tempfile.mkdtemp(prefix="migrator-pooler-"))
    user = services.other_user()
    settings = home / "pgbouncer.ini"
    settings.write_text(
        f"{_databases(server_url)}"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"pool_mode = {mode}\ndefault_pool_size = {connections}\nmax_client_conn = 200\n"
        f"logfile = {home / 'log'}\nquery_wait_timeout = 20\n"
    )
    if user:
        for path in (home, settings):
            shutil.chown(path, user)
    process = subprocess.Popen(
        [program, str(settings)],
        cwd=home,
        user=user,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = urlunsplit(server._replace(netloc=f"{server.username}@127.0.0.1:{port}"))
    try:
        _wait_until_it_answers(url, process, home / "log")
        yield Pooler(url, process, settings)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(home, ignore_errors=True)


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + START_LIMIT_S
    while services.postgres_version(url) is None:
        if process.poll() is not None or time.monotonic() > limit:
            log_end = log.read_text(errors="replace")[-400:] if log.exists() else ""
            raise services.MissingPart(f"PgBouncer did not start: {log_end}")
        time.sleep(0.05)


def settings_left(url: str, connections: int) -> dict[str, str]:
    """Settings that are still set in sessions of the server behind the pooler.

    Without those that PgBouncer itself sets for each of its clients anew.
    """
    query = (
        "SELECT name, setting FROM pg_settings WHERE source = 'session'"
        " AND name NOT IN ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings')"
    )
    opened = [psycopg.connect(url) for _ in range(connections)]
    try:
        # Each holds its transaction open, so that every connection of the pool is asked.
        return {name: value for connection in opened for name, value in connection.execute(query).fetchall()}
    finally:
        for connection in opened:
            connection.close()
