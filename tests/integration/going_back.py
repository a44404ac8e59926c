"""A shop on PostgreSQL that keeps its journal in the source, a relay that is stepped, and restores of any of the stores."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy.engine import make_url

from migrator.mapping.model.table import Item
from migrator.settings import job as job_settings
from migrator.stages.session.session import ConcurrentEdges, JobSession
from tests.journeys.command import Project, project

MAPPING = """\
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  customer: {items: {Customer: {key: ["C#{id}", META], keep: [name]}}}
  pet:                                           # its key is made of two rows, so that it is remembered
    join: {owner: customer_id}
    items: {Pet: {key: ["OWNER#{owner.name}", "PET#{id}"], keep: [id]}}
access_patterns:
  customer_by_id:
    params: {id: integer}
    get: {key: ["C#{id}", META]}
    returns: {customer: {type: Customer, one: true, attributes: [name]}}
    sql: {customer: "SELECT name FROM customer WHERE id = :id"}
"""
ROWS = """
CREATE TABLE customer (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE pet (id int PRIMARY KEY, customer_id int NOT NULL REFERENCES customer);
INSERT INTO customer VALUES (1, 'ann'), (2, 'bob'), (3, 'cid');
INSERT INTO pet VALUES (1, 1), (2, 2);
"""
REPAIR = "run `migrator recover "


@dataclass
class Shop:
    """`url`: of the source, which holds the journal, too."""

    made: Project
    url: str
    server: str
    copies: list[str] = field(default_factory=list)

    def sql(self, *statements: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def command(self, *words: str) -> Any:
        place = 2 if words[0] in ("capture", "cutover", "table") else 1
        return self.made.run(*words[:place], str(self.made.job), *words[place:])

    def done(self, *words: str) -> Any:
        ended = self.command(*words)
        assert ended.code == 0, (words, ended.err[-3000:])
        return ended

    def marks(self) -> int:
        return int(self.sql("SELECT count(*) FROM migrator.mark")[0][0])

    def items(self) -> dict[tuple[str, str], Item]:
        """Those that readers see."""
        return {
            (str(one["PK"]), str(one["SK"])): one
            for one in self.made.items()
            if not str(one["type"]).startswith("_")
        }

    @contextmanager
    def relay(self) -> Iterator[ConcurrentEdges]:
        """What a relay works with, its start behind it; it keeps what it keeps now and then only when it is told to."""
        job = job_settings.load_job(self.made.job, self.made.environment)
        with JobSession(job, "relay") as session, session.open_concurrent() as edges:
            yield edges

    # ── restores ──

    def saved(self) -> str:
        """The source's database as it is now, under another name."""
        name = f"saved_{secrets.token_hex(4)}"
        self._copied(make_url(self.url).database or "", name)
        self.copies.append(name)
        return name

    def restore(self, saved: str) -> None:
        """The source, and the journal in it, as they were; open connections are cut off."""
        name = make_url(self.url).database or ""
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        self._copied(saved, name)

    def drop_copies(self) -> None:
        """Its own alone: other tests make copies at the same time."""
        with psycopg.connect(self.server, autocommit=True) as connection:
            for name in self.copies:
                connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))

    def _copied(self, old: str, new: str) -> None:
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(new), sql.Identifier(old))
        with psycopg.connect(self.server, autocommit=True) as connection:
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
            connection.execute(ended, (old,))
            connection.execute(statement)


def open_shop(folder: Path, url: str, server: str, endpoint: str, journal: str = "source") -> Shop:
    """Its table made and filled by a relay that has worked, its changes captured."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(ROWS)
    table = f"B{secrets.token_hex(4)}"
    made = project(folder, url, endpoint, table, tuning="request_life_s: 0.5", text=MAPPING)
    made.job.write_text(f"{made.job.read_text()}journal: {journal}\n")
    return Shop(made.prepared("table create", "capture install", "backfill", "relay --once"), url, server)
