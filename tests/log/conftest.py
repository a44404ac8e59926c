"""A PostgreSQL server with wal_level = logical, and a shop on it that is captured from the log."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from migrator.runtime.retry import Backoff, Retry
from migrator.source.capture.log.postgresql.protocol import SlotStream
from migrator.source.capture.log.postgresql.slot import SlotLog
from migrator.source.capture.log.reader import LogReader
from migrator.source.engines.base import Address, ConnectionOptions
from migrator.source.engines.connect import source_url
from migrator.source.sql.transactions import Writing
from tests import support_services as services
from tests.journeys.command import ROOT, Project, project
from tests.support_own_server import OwnServer
from tests.support_waiting import until

# A standby takes over on the servers of .ci/engine alone.
collect_ignore = [] if services.LOGICAL_VARIABLE in os.environ else ["test_failover.py"]

MAPPING = """\
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  customer:
    collect: {placed: {count: all, of: orders, by: customer_id}}
    items:
      Customer: {key: ["C#{id}", META], keep: [name, note], attributes: {orders: placed}}
      Email: {key: ["EMAIL#{email}", META], when: email, attributes: {customer: id}}
  order:
    table: orders
    join: {customer: customer_id}
    items:
      Order: {key: ["C#{customer_id}", "O#{id}"], keep: [total], attributes: {customer_name: customer.name}}
  event:
    table: events
    key: [id, day]
    items:
      Event: {key: ["E#{id}", "{day}"], keep: [what]}
"""
TABLES = """
CREATE TABLE customer (id integer PRIMARY KEY, name text NOT NULL, email text UNIQUE, note text);
ALTER TABLE customer REPLICA IDENTITY FULL;
CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer NOT NULL REFERENCES customer (id) ON DELETE CASCADE,
    total integer NOT NULL);
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE TABLE events (id integer, day integer, what text NOT NULL, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (100);
CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (100) TO (200);
INSERT INTO customer SELECT n, 'Name ' || n, 'n' || n || '@x.example', NULL FROM generate_series(1, 20) n;
INSERT INTO orders SELECT n, n % 20 + 1, n FROM generate_series(1, 60) n;
INSERT INTO events SELECT n, n * 10 % 200, 'seen' FROM generate_series(1, 30) n;
"""


@dataclass(frozen=True)
class LogShop:
    """A job whose source is on the server with the log. `sql` runs statements as a service does, each a transaction."""

    project: Project
    url: str

    @property
    def job(self) -> str:
        return str(self.project.job)

    @property
    def name(self) -> str:
        """Of the slot and of the publication."""
        return f"migrator_{self.project.job.stem}"

    def sql(self, *statements: str) -> None:
        with closing(self.connect()) as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, statement: str) -> list[Any]:
        with closing(self.connect()) as connection:
            return connection.execute(statement).fetchall()

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True)

    def install(self, *words: str) -> str:
        return self.project.done("capture", "install", self.job, "--by", "log", *words).out

    def states(self) -> dict[str, str]:
        status = self.project.run("capture", "status", self.job, "--json").data
        return {table["table"].partition(".")[2]: table["state"] for table in status["tables"]}

    def relay(self) -> None:
        self.project.done("relay", self.job, "--once")

    def verify(self) -> None:
        """Items are exactly what rows say."""
        self.project.done("verify", self.job)

    def slots(self) -> list[str]:
        return [
            row[0]
            for row in self.rows(
                "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
            )
        ]


def engine_home() -> Path:
    return Path(os.environ.get("MIGRATOR_TEST_ENGINES") or "/var/tmp/migrator-engines")


def engine_server(url: str) -> OwnServer:
    """A crash meets every test that runs on the server, so run these one after the other."""
    engine = {5416: "postgres16", 5417: "postgres17"}.get(urlsplit(url).port or 0, "postgres")

    def crash() -> None:
        os.kill(int((engine_home() / f"{engine}.pid").read_text()), signal.SIGQUIT)
        until(lambda: services.postgres_version(url) is None, "the server has ended")

    def start() -> None:
        subprocess.run([ROOT / ".ci" / "engine", engine], check=True, stdout=subprocess.DEVNULL)

    return OwnServer(url, start, crash)


@pytest.fixture(scope="session")
def log_server() -> Iterator[OwnServer]:
    if named := os.environ.get(services.LOGICAL_VARIABLE):
        yield engine_server(named)
        return
    settings = (
        "wal_level=logical",
        "max_replication_slots=20",
        "max_wal_senders=20",
        "max_prepared_transactions=5",
    )
    try:
        with services.own_postgres(*settings) as server:
            yield server
    except services.MissingPart as missing:
        pytest.skip(str(missing))


@pytest.fixture
def shop(log_server: OwnServer, dynamodb_url: str, tmp_path: Path) -> Iterator[LogShop]:
    """Rows are there, and nothing is captured or backfilled."""
    with services.postgres_database(log_server.url) as url:
        services.run_script(url, TABLES)
        made = project(tmp_path, url, dynamodb_url, f"U{secrets.token_hex(4)}", text=MAPPING)
        job = made.job.rename(tmp_path / f"shop_{secrets.token_hex(4)}.yaml")
        made = Project(made.folder, job, made.table, made.endpoint, made.environment)
        shop = LogShop(made, url)
        try:
            yield shop
        finally:
            # A slot keeps its database from being dropped.
            shop.sql(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                " WHERE database = current_database() AND active",
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()",
            )


@pytest.fixture
def live(shop: LogShop) -> LogShop:
    """Captured from the log, and backfilled."""
    shop.project.done("table", "create", shop.job)
    shop.install()
    shop.project.done("backfill", shop.job)
    return shop


@contextmanager
def open_reader(
    shop: LogShop, stream: Callable[..., SlotStream] = SlotStream
) -> Iterator[tuple[Writing, LogReader]]:
    address = Address.of(source_url(shop.url))
    writing = Writing(address, ConnectionOptions(name="reader"), Retry(Backoff(attempts=1)))
    reader = LogReader(writing, SlotLog(writing, lambda: stream(address, "reader", "the shop")))
    try:
        yield writing, reader
    finally:
        reader.close()
        writing.close()


class Killed(BaseException):
    """The process ends here."""


def changes(shop: LogShop) -> None:
    shop.sql(
        "UPDATE customer SET email = 'k@x.example' WHERE id = 1",
        "DELETE FROM customer WHERE id = 2",
        "INSERT INTO orders SELECT n, 3, n FROM generate_series(1000, 1100) n",
    )


def count_of_marks(shop: LogShop) -> int:
    return int(shop.rows("SELECT count(*) FROM migrator.mark")[0][0])


@contextmanager
def writing(shop: LogShop) -> Iterator[list[int]]:
    """A service writes until the block ends; how many times."""
    stop, written = threading.Event(), [0]

    def write() -> None:
        with closing(shop.connect()) as connection:
            while not stop.is_set():
                written[0] += 1
                turn = written[0]
                number = turn % 20 + 1
                connection.execute(
                    "UPDATE customer SET email = %s WHERE id = %s", (f"e{turn}@x.example", number)
                )
                connection.execute("INSERT INTO orders VALUES (%s, %s, 1)", (10_000 + turn, number))
                connection.execute("DELETE FROM orders WHERE id = %s", (10_000 + turn - 7,))
                if not turn % 150:
                    connection.execute("TRUNCATE events")
                    connection.execute("INSERT INTO events SELECT n, n, 'x' FROM generate_series(1, 9) n")
                time.sleep(0.002)

    service = threading.Thread(target=write)
    service.start()
    try:
        yield written
    finally:
        stop.set()
        service.join()
