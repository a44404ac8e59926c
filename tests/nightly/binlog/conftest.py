"""A shop on MySQL that is captured from its binary log."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from migrator.runtime.retry import Backoff, Retry
from migrator.source.capture.log.mysql.stream import Binlog
from migrator.source.capture.log.reader import LogReader
from migrator.source.engines.base import Address, ConnectionOptions
from migrator.source.engines.connect import source_url
from migrator.source.sql.transactions import Writing
from tests.journeys.command import Project, project
from tests.log.conftest import MAPPING, LogShop
from tests.support_mysql import connect, mysql_database, numbers, run_script

TABLES = f"""
CREATE TABLE customer (id integer PRIMARY KEY, name varchar(50) NOT NULL, email varchar(50) UNIQUE, note longtext);
CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer NOT NULL, total integer NOT NULL,
    FOREIGN KEY (customer_id) REFERENCES customer (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE events (id integer, day integer, what varchar(20) NOT NULL, PRIMARY KEY (id, day))
    PARTITION BY RANGE (day) (PARTITION p1 VALUES LESS THAN (100), PARTITION p2 VALUES LESS THAN (200));
INSERT INTO customer SELECT seq, concat('Name ', seq), concat('n', seq, '@x.example'), NULL FROM {numbers(20)};
INSERT INTO orders SELECT seq, seq % 20 + 1, seq FROM {numbers(60)};
INSERT INTO events SELECT seq, seq * 10 % 200, 'seen' FROM {numbers(30)};
"""
LOGGING = "SET GLOBAL binlog_row_metadata = FULL"
"""The one setting that is not MySQL's default."""


class BinlogShop(LogShop):
    def connect(self) -> Any:
        return connect(self.url)

    def sql(self, *statements: str) -> None:
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, statement: str) -> list[Any]:
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def states(self) -> dict[str, str]:
        status = self.project.run("capture", "status", self.job, "--json").data
        return {table["table"]: table["state"] for table in status["tables"]}

    def triggers(self) -> int:
        here = "SELECT COUNT(*) FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()"
        return int(self.rows(here)[0][0])

    def count_of_marks(self) -> int:
        return int(self.rows("SELECT COUNT(*) FROM migrator_mark")[0][0])


@pytest.fixture
def shop(mysql_url: str, dynamodb_url: str, tmp_path: Path) -> Iterator[BinlogShop]:
    """Rows are there, and nothing is captured or backfilled."""
    run_script(mysql_url, LOGGING)
    with mysql_database(mysql_url) as url:
        run_script(url, TABLES)
        made = project(tmp_path, url, dynamodb_url, f"U{secrets.token_hex(4)}", text=MAPPING)
        job = made.job.rename(tmp_path / f"shop_{secrets.token_hex(4)}.yaml")
        yield BinlogShop(Project(made.folder, job, made.table, made.endpoint, made.environment), url)


@pytest.fixture
def live(shop: BinlogShop) -> BinlogShop:
    return begun(shop)


def begun(shop: BinlogShop) -> BinlogShop:
    """Captured from the log, and backfilled."""
    shop.project.done("table", "create", shop.job)
    shop.install()
    shop.project.done("backfill", shop.job)
    return shop


@contextmanager
def open_reader(shop: BinlogShop, log: type[Binlog] = Binlog) -> Iterator[tuple[Writing, LogReader]]:
    address = Address.of(source_url(shop.url))
    writing = Writing(address, ConnectionOptions(name="reader"), Retry(Backoff(attempts=1)))
    reader = LogReader(writing, log(writing, address, "reader"))
    try:
        yield writing, reader
    finally:
        reader.close()
        writing.close()
