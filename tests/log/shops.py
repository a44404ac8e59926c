"""A shop whose log is captured, on PostgreSQL and on MySQL, and what its tests need to know of the engine."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

import psutil

from migrator.runtime.retry import Backoff, Retry
from migrator.source.capture.install import SqlCapture
from migrator.source.capture.log.opening import open_captured
from migrator.source.capture.log.reader import LogMarks, LogReader
from migrator.source.engines.base import Address, ConnectionOptions
from migrator.source.engines.connect import source_url
from migrator.source.sql.transactions import Writing
from tests import support_mysql
from tests import support_services as services
from tests.journeys.command import ROOT, Project, project
from tests.support_capture import connect
from tests.support_mysql import numbers
from tests.support_own_server import OwnServer

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
TABLES = (
    "CREATE TABLE customer (id integer PRIMARY KEY, name varchar(50) NOT NULL, email varchar(50) UNIQUE, note {long})",
    "CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer NOT NULL, total integer NOT NULL,"
    " FOREIGN KEY (customer_id) REFERENCES customer (id) ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE events (id integer, day integer, what varchar(20) NOT NULL, PRIMARY KEY (id, day))"
    " PARTITION BY RANGE (day) {partitions}",
)
ROWS = (
    f"INSERT INTO customer SELECT seq, concat('Name ', seq), concat('n', seq, '@x.example'), NULL FROM {numbers(20)}",
    f"INSERT INTO orders SELECT seq, seq % 20 + 1, seq FROM {numbers(60)}",
    f"INSERT INTO events SELECT seq, seq * 10 % 200, 'seen' FROM {numbers(30)}",
)
WRITES = (
    "INSERT INTO customer VALUES (100, 'New', 'new@x.example', NULL)",
    "INSERT INTO orders VALUES (100, 100, 7)",
    "UPDATE customer SET name = 'Other' WHERE id = 3",
    "UPDATE customer SET email = 'moved@x.example' WHERE id = 4",
    "UPDATE customer SET email = NULL WHERE id = 6",
    "UPDATE orders SET id = 200 WHERE id = 2",
    "UPDATE orders SET customer_id = 100 WHERE id = 1",
    "DELETE FROM customer WHERE id = 5",
    "UPDATE customer SET id = 107 WHERE id = 7",
    "UPDATE events SET day = 150 WHERE id = 1",
    "UPDATE events SET what = 'said' WHERE id < 10",
    "DELETE FROM events WHERE id = 2",
)
"""Cascades, keys that change, rows that move to another partition."""


@dataclass(frozen=True)
class LogShop:
    """A job whose source is on the server with the log. `sql` runs statements as a service does, in autocommit."""

    project: Project
    url: str
    server: OwnServer

    engine: ClassVar[str]
    marks_table: ClassVar[str]
    origin: ClassVar[str]
    """SQL of where the log is read from by a reader that begins now."""
    triggers: ClassVar[str]
    """SQL of the triggers on the tables."""
    waiting: ClassVar[str]
    """SQL of commits that are in the log and wait for a replica."""
    printed: ClassVar[tuple[str, ...]]
    """Words of an install that is printed."""
    shown: ClassVar[str]
    """How `doctor` calls what captures."""
    reader_ids: ClassVar[str]
    """SQL of the connections that read the log."""
    kill: ClassVar[str]
    copies: ClassVar[int]
    """How often a mark is copied whose reader is killed before it confirms."""
    prepare: ClassVar[tuple[str, ...]]
    """Statements around those of a transaction that is prepared in two phases."""
    commit_prepared: ClassVar[str]
    roll_back_prepared: ClassVar[str]

    # ── what the engine has of its own ──

    @classmethod
    @abstractmethod
    def open(cls, server: OwnServer, folder: Path, endpoint: str) -> AbstractContextManager[LogShop]:
        """Rows are there, and nothing is captured or backfilled."""

    @abstractmethod
    def of_the_log(self) -> list[str]:
        """What the server has for a log that is captured, and not for triggers."""

    @abstractmethod
    def of_ours(self) -> list[str]:
        """All that an install leaves on the server, but triggers."""

    @abstractmethod
    def setting(self, name: str, value: str) -> AbstractContextManager[None]:
        """The server's setting, for a block."""

    @abstractmethod
    def waiting_commits(self) -> AbstractContextManager[None]:
        """Within the block commits are in the log, and wait for a replica that there is not."""

    @abstractmethod
    def user(self) -> AbstractContextManager[tuple[str, str]]:
        """The name and URL of one who may log in, and read the shop's tables."""

    @abstractmethod
    def lacking(self, user: str) -> tuple[str, ...]:
        """What a user without rights is told."""

    # ── what all have ──

    @property
    def job(self) -> str:
        return str(self.project.job)

    @property
    def name(self) -> str:
        """Of the slot and of the publication."""
        return f"migrator_{self.project.job.stem}"

    def sql(self, *statements: str) -> None:
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, statement: str) -> list[Any]:
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def firsts(self, statement: str) -> list[Any]:
        """The first column of its rows."""
        return [row[0] for row in self.rows(statement)]

    def connect(self) -> Any:
        return connect(self.engine, self.url)

    def install(self, *words: str) -> str:
        return self.project.done("capture", "install", self.job, "--by", "log", *words).out

    def begun(self) -> None:
        """Captured from the log, and backfilled."""
        self.project.done("table", "create", self.job)
        self.install()
        self.project.done("backfill", self.job)

    def grown(self, more: str) -> None:
        """The mapping reads one more table, which is captured and backfilled."""
        self.read_more(more)
        self.install()
        self.project.done("backfill", self.job)

    def read_more(self, more: str) -> None:
        mapping = self.project.folder / "mapping.yaml"
        mapping.write_text(mapping.read_text() + more)

    def states(self) -> dict[str, str]:
        status = self.project.run("capture", "status", self.job, "--json").data
        return {table["table"].rpartition(".")[2]: table["state"] for table in status["tables"]}

    def lag(self) -> dict[str, Any]:
        status: dict[str, Any] = self.project.done("capture", "status", self.job, "--json").data
        return dict(status["slot"])

    def checks(self) -> list[tuple[str, str]]:
        """Names and states of doctor's."""
        checks = self.project.run("doctor", self.job, "--json").data["checks"]
        return [(check["name"], check["state"]) for check in checks]

    def relay(self) -> None:
        self.project.done("relay", self.job, "--once")

    def verify(self) -> None:
        """Items are exactly what rows say."""
        self.project.done("verify", self.job)

    def come_to_rest(self) -> None:
        self.relay()
        self.verify()

    def items_of(self, type_: str) -> list[Any]:
        return [item for item in self.project.items() if item["type"] == type_]

    def emails(self) -> set[str]:
        return {item["PK"].removeprefix("EMAIL#") for item in self.items_of("Email")}

    def refused(self, *words: str) -> str:
        """What a command that ends with 2 prints as its error, on one line."""
        ended = self.project.run(words[0], *words[1:])
        assert ended.code == 2, ended.out + ended.err
        return " ".join(ended.err.split())

    def install_refused(self) -> str:
        return self.refused("capture", "install", self.job, "--by", "log")

    def count_of_marks(self) -> int:
        return int(self.rows(f"SELECT count(*) FROM {self.marks_table}")[0][0])

    def prepared(self, xid: str, *statements: str) -> None:
        """In a connection that ends: the transaction stays."""
        first, *last = (statement.format(xid) for statement in self.prepare)
        self.sql(first, *statements, *last)

    @contextmanager
    def using(self, url: str) -> Iterator[None]:
        """The job's source by another URL, for a block."""
        self.project.environment["MIGRATOR_SOURCE_URL"] = url
        try:
            yield
        finally:
            self.project.environment["MIGRATOR_SOURCE_URL"] = self.url

    @contextmanager
    def open_marks(self) -> Iterator[tuple[SqlCapture, LogMarks]]:
        address = Address.of(source_url(self.url))
        writing = Writing(address, ConnectionOptions(name="reader"), Retry(Backoff(attempts=1)))
        job = self.project.job.stem
        capture, marks, _ = open_captured(job, writing, address, "reader", time.sleep, lambda: False)
        assert isinstance(marks, LogMarks)
        with closing(marks):
            yield capture, marks

    @contextmanager
    def open_reader(self) -> Iterator[LogReader]:
        with self.open_marks() as (_, marks):
            yield marks.reader

    def changes(self) -> None:
        """A hundred and three, each a transaction."""
        orders = (f"INSERT INTO orders VALUES ({n}, 3, {n})" for n in range(1000, 1101))
        first = "UPDATE customer SET email = 'k@x.example' WHERE id = 1"
        self.sql(first, "DELETE FROM customer WHERE id = 2", *orders)

    @contextmanager
    def writing(self) -> Iterator[list[int]]:
        """A service writes until the block ends; how many times."""
        stop, written = threading.Event(), [0]

        def write() -> None:
            with closing(self.connect()) as connection, connection.cursor() as cursor:
                while not stop.is_set():
                    written[0] += 1
                    for statement in _statements_of(written[0]):
                        cursor.execute(statement)
                    time.sleep(0.002)

        service = threading.Thread(target=write)
        service.start()
        try:
            yield written
        finally:
            stop.set()
            service.join()


def _statements_of(turn: int) -> Iterator[str]:
    number = turn % 20 + 1
    yield f"UPDATE customer SET email = 'e{turn}@x.example' WHERE id = {number}"
    yield f"INSERT INTO orders VALUES ({10_000 + turn}, {number}, 1)"
    yield f"DELETE FROM orders WHERE id = {10_000 + turn - 7}"
    if not turn % 50:
        yield f"UPDATE customer SET id = id + 1000 WHERE id = {number}"
        yield f"UPDATE customer SET id = id - 1000 WHERE id = {number + 1000}"
    if not turn % 150:
        yield "TRUNCATE TABLE events"
        yield f"INSERT INTO events SELECT seq, seq, 'x' FROM {numbers(9)}"


def statements(text: str) -> list[str]:
    """Those of SQL that a command printed."""
    lines = (line for line in text.splitlines() if not line.startswith("--"))
    return [part for part in "\n".join(lines).split(";\n") if part.strip()]


def _made(folder: Path, url: str, endpoint: str) -> Project:
    """Under a name of its own: a slot is the server's, and not a database's."""
    made = project(folder, url, endpoint, f"U{secrets.token_hex(4)}", text=MAPPING)
    job = made.job.rename(folder / f"shop_{secrets.token_hex(4)}.yaml")
    return Project(made.folder, job, made.table, made.endpoint, made.environment)


# ── PostgreSQL ──

_HERE = "FROM pg_replication_slots WHERE database = current_database()"


class SlotShop(LogShop):
    engine = "postgresql"
    marks_table = "migrator.mark"
    origin = f"SELECT restart_lsn {_HERE}"
    triggers = "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()"
    printed = ("CREATE PUBLICATION", "pg_create_logical_replication_slot")
    shown = "replication slot"
    reader_ids = f"SELECT active_pid {_HERE} AND active"
    kill = "SELECT pg_terminate_backend({})"
    copies = 2
    prepare = ("BEGIN", "PREPARE TRANSACTION '{}'")
    commit_prepared = "COMMIT PREPARED '{}'"
    roll_back_prepared = "ROLLBACK PREPARED '{}'"
    tables = (
        *(table.format(long="text", partitions="") for table in TABLES),
        "ALTER TABLE customer REPLICA IDENTITY FULL",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (100) TO (200)",
        *ROWS,
    )

    @classmethod
    @contextmanager
    def open(cls, server: OwnServer, folder: Path, endpoint: str) -> Iterator[SlotShop]:
        with services.postgres_database(server.url) as url:
            services.run_script(url, "; ".join(cls.tables))
            shop = cls(_made(folder, url, endpoint), url, server)
            try:
                yield shop
            finally:
                # A slot keeps its database from being dropped.
                shop.sql(f"SELECT pg_terminate_backend(active_pid) {_HERE} AND active")
                shop.sql(f"SELECT pg_drop_replication_slot(slot_name) {_HERE}")

    def slots(self) -> list[str]:
        return self.firsts(f"SELECT slot_name {_HERE}")

    def of_the_log(self) -> list[str]:
        return [*self.slots(), *self.firsts("SELECT pubname FROM pg_publication")]

    def of_ours(self) -> list[str]:
        schema = "SELECT nspname FROM pg_namespace WHERE nspname = 'migrator'"
        return [*self.of_the_log(), *self.firsts(schema)]

    @contextmanager
    def setting(self, name: str, value: str) -> Iterator[None]:
        self.sql(f"ALTER SYSTEM SET {name} = '{value}'", "SELECT pg_reload_conf()")
        try:
            yield
        finally:
            local = "SET synchronous_commit = local"
            self.sql(local, f"ALTER SYSTEM RESET {name}", "SELECT pg_reload_conf()")

    def waiting_commits(self) -> AbstractContextManager[None]:
        return self.setting("synchronous_standby_names", "nobody")

    @contextmanager
    def user(self) -> Iterator[tuple[str, str]]:
        name = f"u_{secrets.token_hex(4)}"
        self.sql(f"CREATE ROLE {name} LOGIN", f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}")
        try:
            yield name, self.url.replace("postgres@", f"{name}@")
        finally:
            self.sql(f"DROP OWNED BY {name}", f"DROP ROLE {name}")

    def lacking(self, user: str) -> tuple[str, ...]:
        return f"ALTER ROLE {user} REPLICATION", "only its owner may publish it"


# ── MySQL ──


class BinlogShop(LogShop):
    engine = "mysql"
    marks_table = "migrator_mark"
    origin = "SELECT gtids FROM migrator_log"
    triggers = "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()"
    waiting = "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for semi-sync%'"
    printed = ("gtid_executed", "migrator_log")
    shown = "binary log"
    reader_ids = "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'"
    kill = "KILL {}"
    copies = 1
    prepare = ("XA START '{}'", "XA END '{}'", "XA PREPARE '{}'")
    commit_prepared = "XA COMMIT '{}'"
    roll_back_prepared = "XA ROLLBACK '{}'"
    partitions = "(PARTITION p1 VALUES LESS THAN (100), PARTITION p2 VALUES LESS THAN (200))"
    logging = "SET GLOBAL binlog_row_metadata = FULL"
    """The one setting that is not MySQL's default."""

    @classmethod
    @contextmanager
    def open(cls, server: OwnServer, folder: Path, endpoint: str) -> Iterator[BinlogShop]:
        with support_mysql.mysql_database(server.url) as url:
            tables = (table.format(long="longtext", partitions=cls.partitions) for table in TABLES)
            support_mysql.run_script(url, "; ".join([cls.logging, *tables, *ROWS]))
            yield cls(_made(folder, url, endpoint), url, server)

    @property
    def database(self) -> str:
        return self.url.rpartition("/")[2]

    def of_the_log(self) -> list[str]:
        return self.firsts("SHOW TABLES LIKE 'migrator_log'")

    def of_ours(self) -> list[str]:
        return self.firsts("SHOW TABLES LIKE 'migrator%'")

    @contextmanager
    def setting(self, name: str, value: str) -> Iterator[None]:
        (before,) = self.firsts(f"SELECT @@GLOBAL.{name}")
        self.sql(f"SET GLOBAL {name} = {value}")
        try:
            yield
        finally:
            self.sql(f"SET GLOBAL {name} = {before!r}")

    @contextmanager
    def waiting_commits(self) -> Iterator[None]:
        self.sql("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
        try:
            waits = (
                "SET GLOBAL rpl_semi_sync_source_timeout = 60000, rpl_semi_sync_source_wait_no_replica = ON"
            )
            self.sql(waits, "SET GLOBAL rpl_semi_sync_source_enabled = ON")
            yield
        finally:
            off = "SET GLOBAL rpl_semi_sync_source_enabled = OFF"
            self.sql(off, "UNINSTALL PLUGIN rpl_semi_sync_source")

    @contextmanager
    def user(self) -> Iterator[tuple[str, str]]:
        """It logs in in the server's own way, with the password sent by RSA."""
        name, parts = f"u_{secrets.token_hex(4)}", urlsplit(self.url)
        url = urlunsplit(parts._replace(netloc=f"{name}:word@{parts.hostname}:{parts.port}"))
        created = f"CREATE USER {name}@'%' IDENTIFIED BY 'word'"
        self.sql(created, f"GRANT SELECT ON `{self.database}`.* TO {name}@'%'")
        try:
            yield name, url
        finally:
            self.sql(f"DROP USER {name}@'%'")

    def lacking(self, user: str) -> tuple[str, ...]:
        return ("REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO",)


# ── servers of .ci/engine ──


def engine_home() -> Path:
    return Path(os.environ.get("MIGRATOR_TEST_ENGINES") or "/var/tmp/migrator-engines")


def engine_server(url: str, engine: str, end: signal.Signals, *settings: str) -> OwnServer:
    """A crash meets every test that runs on the server, so run these one after the other."""

    def crash() -> None:
        server = int((engine_home() / f"{engine}.pid").read_text())
        os.kill(server, end)
        # The next one takes its socket only when nothing of it is left.
        psutil.wait_procs([psutil.Process(server)], timeout=60)

    def start() -> None:
        subprocess.run([ROOT / ".ci" / "engine", engine], check=True, stdout=subprocess.DEVNULL)
        for setting in settings:
            support_mysql.run_script(url, setting)

    return OwnServer(url, start, crash)
