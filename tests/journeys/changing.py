"""A shop whose schema changes while a service writes to it all the time, and a relay makes items of what it writes."""

from __future__ import annotations

import re
import secrets
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sa

from tests.journeys.command import ROOT, STOPPED, Project, project
from tests.journeys.in_process import Ended
from tests.support_capture import connect, new_sqlite
from tests.support_waiting import until

PAGES = [ROOT / "docs" / f"{name}.md" for name in ("schema-changes", "triggers")]
Edits: TypeAlias = Sequence[tuple[str, str]]
TUNING = "request_life_s: 0.5, silent_s: 20, lease_s: 1, backoff_cap_s: 0.1"
MAPPING = """\
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  customer: {items: {Customer: {key: ["C#{id}", META], attributes: {name: name}, keep: [note]}}}
  invoice:
    join: {customer: customer_id}
    items: {Invoice: {key: ["C#{customer_id}", "I#{code}#{id}"], keep: [total], attributes: {customer: customer.note}}}
  remark: {items: {Remark: {key: ["R#{id}", META], keep: [words]}}}
"""
SCHEMA = (
    "CREATE TABLE customer (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(40), note VARCHAR(40))",
    "CREATE TABLE invoice (id INTEGER NOT NULL PRIMARY KEY, customer_id INTEGER NOT NULL, code VARCHAR(20),"
    " total INTEGER NOT NULL, FOREIGN KEY (customer_id) REFERENCES customer (id))",
    "CREATE TABLE remark (id INTEGER NOT NULL PRIMARY KEY, words VARCHAR(40))",
    *(f"INSERT INTO customer VALUES ({n}, 'Name {n}', 'a')" for n in range(10)),
    *(f"INSERT INTO invoice VALUES ({n}, {n % 10}, 'A{n}', 5)" for n in range(20)),
    *(f"INSERT INTO remark VALUES ({n}, 'a')" for n in range(5)),
)
WRITES = {
    "customer": (
        "INSERT INTO customer (id, name, note) VALUES ({n}, 'N{n}', 'a')",
        "UPDATE customer SET name = 'M{n}' WHERE id = {old}",
        "UPDATE customer SET note = 'o{n}' WHERE id = {old}",
    ),
    "invoice": (
        "INSERT INTO invoice (id, customer_id, code, total) VALUES ({n}, {old}, 'B{n}', 5)",
        "UPDATE invoice SET code = 'C{n}' WHERE id = {before}",
        "UPDATE invoice SET customer_id = {old} WHERE id = {before}",
        "UPDATE invoice SET total = total + 1 WHERE id = {n}",
        "DELETE FROM invoice WHERE id = {gone}",
    ),
    "remark": (
        "INSERT INTO remark (id, words) VALUES ({n}, 'a')",
        "UPDATE remark SET words = 'b{n}' WHERE id = {before}",
        "DELETE FROM remark WHERE id = {gone}",
    ),
}
"""What the service writes in each round: rows come, change, move to other keys, and go."""


def writes(**changed: Sequence[str]) -> tuple[str, ...]:
    """WRITES with those of some tables replaced."""
    return tuple(statement for statements in (WRITES | changed).values() for statement in statements)


def as_written(table: str, old: str, new: str) -> tuple[str, ...]:
    """The statements of a table with another name in them."""
    return tuple(re.sub(rf"\b{old}\b", new, statement) for statement in WRITES[table])


@dataclass
class Service:
    """Writes by itself, one transaction a statement, until it is stopped. `failed`: writes by what the database said."""

    engine: str
    url: str
    statements: tuple[str, ...] = writes()
    failed: list[str] = field(default_factory=list)
    rounds: int = 0
    _ends: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Service:
        self._thread = threading.Thread(target=self._write)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def deploy(self, **changed: Sequence[str]) -> None:
        """A new version of the service, which writes other statements; the old one is gone at the end."""
        self.statements = writes(**changed)
        self.goes_round()

    def goes_round(self) -> None:
        """Returns when each of the statements of now was tried, or the service has ended."""
        ends_at, wanted = time.monotonic() + 300, self.rounds + 2
        while self.rounds < wanted and not self._ends.is_set():
            assert time.monotonic() < ends_at
            assert self._thread.is_alive()
            time.sleep(0.01)

    def _write(self) -> None:
        connection = connect(self.engine, self.url)
        cursor = connection.cursor()
        if self.engine == "sqlite":
            cursor.execute("PRAGMA busy_timeout = 120000")
        while not self._ends.is_set():
            n = 100 + self.rounds
            for statement in self.statements:
                try:
                    cursor.execute(statement.format(n=n, before=n - 1, gone=n - 3, old=n % 10))
                except Exception as error:
                    self.failed.append(f"{statement}: {error}")
                # A database and a table that are asked for more would only be busier.
                self._ends.wait(0.01)
            self.rounds += 1
        connection.close()


@dataclass
class Changing:
    """The shop, captured and filled by MAPPING. `given`: the commands since, as the recipes write them."""

    engine: str
    url: str
    made: Project
    service: Service
    given: list[str] = field(default_factory=list)
    relay: subprocess.Popen[str] | None = None

    def sql(self, *statements: str) -> None:
        """By a connection of its own, while the service goes on for a round before and a round after."""
        self.service.goes_round()
        run(self.engine, self.url, *statements)
        self.service.goes_round()

    def at_once(self, table: str, *statements: str) -> None:
        """No write of the service's falls between them."""
        begin = {"mariadb": f"LOCK TABLES {table} WRITE", "sqlite": "BEGIN IMMEDIATE"}
        end = "UNLOCK TABLES" if self.engine == "mariadb" else "COMMIT"
        self.sql(begin.get(self.engine, "BEGIN"), *statements, end)

    def give(self, words: str, codes: Sequence[int] = (0,)) -> Ended:
        """A command as the page has it, while the service goes on."""
        self.given.append(f"migrator {words}")
        more = {"verify": ["--settle", "0"], "clean": ["--yes"]}.get(words.split()[0], [])
        given = [*words.replace("JOB", str(self.made.job)).split(), *more]
        ended = self.made.run(*given)
        while ended.code == STOPPED:
            ended = self.made.run(*given)
        assert ended.code in codes, ended.out + ended.err
        self.service.goes_round()
        return ended

    def map(self, *edits: tuple[str, str]) -> None:
        """The mapping file is changed."""
        (self.made.folder / "mapping.yaml").write_text(edited(edits))

    def go_on(self) -> None:
        """What the page says of each mapping that changes: the new triggers, relays anew, all rows anew."""
        self.give("capture install JOB")
        self.relay_anew()
        self.give("backfill JOB")

    def relay_anew(self) -> None:
        self.end_relay()
        self.relay = self.made.start("relay", str(self.made.job))

    def end_relay(self) -> None:
        if self.relay is not None:
            self.relay.terminate()
            _, err = self.relay.communicate(timeout=300)
            assert "Traceback" not in err, err
            self.relay = None

    def at_rest(self) -> str:
        """What verify says when the service has ended, and the relay has worked its last mark; '' where it is clean."""
        self.end_service()
        # A mark of a new table that the relay of the old mapping took fails there, and comes again after a moment.
        until(
            lambda: not self.made.run("relay", str(self.made.job), "--once").code,
            "a relay without failed marks",
        )
        self.given.append("migrator verify JOB")
        said = self.made.run("verify", str(self.made.job), "--settle", "0")
        return "" if said.code == 0 else said.out + said.err

    def repair(self) -> None:
        """What the page says where marks were left that the new mapping cannot read: those that fail go at last."""
        self.end_service()
        job = str(self.made.job)
        self.made.run("relay", job, "--once")
        self.give("verify JOB --repair", codes=(0, 1))
        self.give("relay JOB --discard-marks")
        # A mark that failed less than three times is kept.
        while self.made.done("relay", job, "--dry-run", "--json").data["failed"]:
            self.made.run("relay", job, "--once")
            self.made.done("relay", job, "--discard-marks")

    def end_service(self) -> None:
        self.service.__exit__()
        self.end_relay()


def commands_of(heading: str) -> list[str]:
    """The commands of a recipe on the pages, in their order."""
    text = "".join(page.read_text() for page in PAGES).split(f"## {heading}\n")[1].split("\n#")[0]
    return [line.strip() for line in text.splitlines() if line.startswith("    migrator ")]


def migration(text: str) -> list[str]:
    """The statements of a migration of Alembic that capture printed, as its `op` is given them."""
    names: dict[str, Any] = {"op": Statements()}
    exec(compile(text.replace("from alembic import op\n", ""), "migration.py", "exec"), names)
    names["upgrade"]()
    taken: list[str] = names["op"].taken
    return taken


@dataclass
class Statements:
    """`op`, of which the migration uses execute() alone. Alembic gives a text to the driver as this does."""

    taken: list[str] = field(default_factory=list)

    def execute(self, statement: sa.TextClause) -> None:
        self.taken.append(str(statement.compile(dialect=sa.create_engine("sqlite://").dialect)))


def run(engine: str, url: str, *statements: str) -> None:
    connection = connect(engine, url)
    try:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
    finally:
        connection.close()


def shop_project(folder: Path, url: str, endpoint: str) -> Project:
    (folder / "mapping.yaml").write_text(MAPPING)
    made = project(folder, url, endpoint, f"C{secrets.token_hex(4)}", tuning=TUNING, mapping="chinook")
    made.job.write_text(made.job.read_text().replace(str(ROOT / "mappings" / "chinook.yaml"), "mapping.yaml"))
    return made


@contextmanager
def changing(engine: str, url: str, made: Project) -> Iterator[Changing]:
    """A service writes to the shop, and a relay works; both end with the block."""
    run(engine, url, *SCHEMA)
    made.prepared("table create", "capture install", "backfill")
    with Service(engine, url) as service:
        shop = Changing(engine, url, made, service)
        shop.relay_anew()
        try:
            yield shop
        finally:
            shop.end_relay()


def printed(engine: str, url: str, made: Project, change: str, edits: Edits) -> str:
    """What `capture install --as alembic` prints in a copy of the source, captured too, that has the change; the copy is gone
    then. Copies have the name of their original, which on MariaDB is in every statement: so it comes first."""

    def printed_by(text: str) -> str:
        (made.folder / "mapping.yaml").write_text(text)
        return made.done("capture", "install", str(made.job), "--as", "alembic").out

    run(engine, url, *SCHEMA)
    run(engine, url, *migration(printed_by(MAPPING)), change)
    text = printed_by(edited(edits))
    (made.folder / "mapping.yaml").write_text(MAPPING)
    if engine == "mariadb":
        name = sa.make_url(url).database
        run(engine, url, f"DROP DATABASE {name}", f"CREATE DATABASE {name}")
    elif engine == "sqlite":
        path = Path(sa.make_url(url).database or "")
        path.unlink()
        new_sqlite(path)
    else:
        run(engine, url, "DROP SCHEMA migrator CASCADE", "DROP TABLE customer, invoice, remark CASCADE")
    return text


def edited(edits: Edits) -> str:
    text = MAPPING
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


def new_file(folder: Path) -> str:
    return new_sqlite(folder / f"{secrets.token_hex(4)}.db")
