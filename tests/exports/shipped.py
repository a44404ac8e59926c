"""Jobs of every shipped mapping, each for a table of a name that nothing else has; their source is never asked."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from migrator.source.engines.connect import source_url
from tests.journeys.command import Project
from tests.journeys.in_process import Ended, run_here

ROOT = Path(__file__).parents[2]
MAPPINGS = sorted([*ROOT.glob("mappings/*.yaml"), *ROOT.glob("mappings/designs/*.yaml")])


@dataclass(frozen=True)
class Shipped:
    """A job in a folder of its own."""

    folder: Path
    table: str

    def run(self, *words: str) -> Ended:
        """`migrator WORDS` beside the job, which the words call job.yaml."""
        return run_here(words, self.folder, dict(os.environ))

    def exported(self, kind: str) -> str:
        """What `migrator export --as KIND` prints."""
        ended = self.run("export", "job.yaml", "--as", kind)
        assert ended.code == 0, ended.err
        return ended.out


def shipped(folder: Path, mapping: Path, endpoint: str, options: str = "") -> Shipped:
    """`options`: of the target, as YAML."""
    made = folder / mapping.stem
    made.mkdir()
    table = f"Export_{mapping.stem}_{secrets.token_hex(4)}"
    target = f"{{table: {table}, endpoint: '{endpoint}', region: eu-central-1, options: {{{options}}}}}"
    (made / "job.yaml").write_text(
        f"job: 1\nmapping: {mapping}\nsource: {{url: 'sqlite:///never.db'}}\ntarget: {target}\n"
    )
    return Shipped(made, table)


def all_shipped(folder: Path, endpoint: str, options: str = "") -> Sequence[Shipped]:
    return [shipped(folder, mapping, endpoint, options) for mapping in MAPPINGS]


def on_server(made: Project, url: str) -> Project:
    """The same project (tests/journeys/small.py) with its rows in a database of a server."""
    engine = sa.create_engine(source_url(url))
    with engine.begin() as server, sqlite3.connect(made.folder / "shop.db") as here:
        for table in ("customer", "invoice"):
            statement = here.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
            server.exec_driver_sql(statement.replace(" TEXT", " VARCHAR(80)"))
            rows = here.execute(f"SELECT * FROM {table}").fetchall()
            for row in rows:
                server.execute(sa.text(f"INSERT INTO {table} VALUES {row}"))
    engine.dispose()
    made.environment["MIGRATOR_SOURCE_URL"] = url
    return made
