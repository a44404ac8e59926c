"""A hot standby of a PostgreSQL server that the tests started themselves."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tests import support_services as services


@dataclass(frozen=True)
class Binaries:
    """A server's programs. `root`: of the system that they are installed in, if it is a chroot's."""

    folder: Path
    root: Path | None = None

    @classmethod
    def installed(cls) -> Binaries:
        return cls(services.postgres_binaries()[-1])

    @property
    def user(self) -> str | None:
        return services.other_user() if self.root is None else None

    def new_folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="migrator-pg-standby-", dir=self.root and self.root / "tmp"))
        if self.root is not None:
            subprocess.run(["chroot", self.root, "chown", "postgres:", self._within(folder)], check=True)
        elif self.user:
            shutil.chown(folder, self.user)
        return folder

    def run(self, program: str, cluster: Path, *words: str) -> None:
        enter = [] if self.root is None else ["chroot", "--userspec=postgres:postgres", str(self.root)]
        command = [*enter, str(self.folder / program), "-D", self._within(cluster), *words]
        output = subprocess.DEVNULL
        subprocess.run(command, cwd="/tmp", user=self.user, stdin=output, stdout=output, check=True)

    def _within(self, path: Path) -> str:
        return str(path) if self.root is None else f"/{path.relative_to(self.root)}"


@contextmanager
def standby_of(
    primary_url: str, *settings: str, slot: str = "", binaries: Binaries | None = None
) -> Iterator[str]:
    """The standby's URL of the same database, which holds what the primary had when this was called.

    `slot`: of the primary, which keeps its log for the standby; it is created, and stays.
    """
    programs = binaries or Binaries.installed()
    home, port = programs.new_folder(), services.free_port()
    primary, cluster = urlsplit(primary_url), home / "cluster"
    try:
        where = (
            f"host={primary.hostname} port={primary.port} user={primary.username} dbname={primary.path[1:]}"
        )
        kept = ["-C", "-S", slot] if slot else []
        programs.run(
            "pg_basebackup", cluster, "-d", where, "-R", "-X", "stream", "-c", "fast", "--no-sync", *kept
        )
        given = f"-c listen_addresses=127.0.0.1 -p {port} -k /tmp -c fsync=off"
        given += "".join(f" -c {setting}" for setting in settings)
        programs.run(
            "pg_ctl", cluster, "-w", "-s", "-l", programs._within(home / "log"), "-o", given, "start"
        )
        try:
            yield urlunsplit(primary._replace(netloc=f"{primary.username}@127.0.0.1:{port}"))
        finally:
            programs.run("pg_ctl", cluster, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)
