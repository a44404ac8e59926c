"""A hot standby of a PostgreSQL server that the tests started themselves."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tests import support_services as services


@contextmanager
def standby_of(primary_url: str) -> Iterator[str]:
    """The standby's URL of the same database, which holds what the primary had when this was called."""
    binaries = services.postgres_binaries()[-1]
    home = Path(tempfile.mkdtemp(prefix="migrator-pg-standby-"))
    user = services.other_user()
    if user:
        shutil.chown(home, user)
    primary, port, cluster = urlsplit(primary_url), services.free_port(), home / "cluster"

    def run(program: str, *words: str) -> None:
        command = [str(binaries / program), "-D", str(cluster), *words]
        subprocess.run(
            command, cwd=home, user=user, stdin=subprocess.DEVNULL, capture_output=True, check=True
        )

    try:
        where = f"host={primary.hostname} port={primary.port} user={primary.username}"
        run("pg_basebackup", "-d", where, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        settings = f"-c listen_addresses=127.0.0.1 -p {port} -k {home} -c fsync=off"
        run("pg_ctl", "-w", "-l", str(home / "log"), "-o", settings, "start")
        try:
            yield urlunsplit(primary._replace(netloc=f"{primary.username}@127.0.0.1:{port}"))
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)
