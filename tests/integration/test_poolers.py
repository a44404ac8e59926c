"""PgBouncer in transaction mode: sessions of the server are the service's and ours by turns."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from migrator.mapping.model.facts import TableFacts
from migrator.runtime.errors import SourceError
from migrator.source.engines.base import ConnectionOptions
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests import pins
from tests import support_services as services
from tests.journeys.command import Project, project
from tests.journeys.small import MAPPING
from tests.support_pooler import pooler, settings_left
from tests.support_source import INTEGER, column, plan_of

pytestmark = pytest.mark.nightly

CONNECTIONS = 5
SHOP = """
CREATE TABLE customer (id int PRIMARY KEY, name text);
CREATE TABLE invoice (id int PRIMARY KEY, customer_id int NOT NULL, total int);
INSERT INTO customer SELECT n, 'Name ' || n FROM generate_series(1, 30) AS n;
INSERT INTO invoice SELECT n, n % 30 + 1, 5 FROM generate_series(1, 60) AS n;
"""

CUSTOMER = plan_of(TableFacts("customer", "customer", (column("id", INTEGER, nullable=False),), ("id",)))


def shop(folder: Path, url: str, endpoint: str, journal: str = "source") -> Project:
    text = MAPPING.replace("type: type", "type: type, ttl: expiresAt")
    made = project(folder, url, endpoint, f"P{secrets.token_hex(4)}", text=text)
    made.job.write_text(f"{made.job.read_text()}journal: {journal}\n")
    return made.prepared("table create")


@contextmanager
def services_of(url: str, number: int) -> Iterator[list[psycopg.Connection]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(psycopg.connect(url, autocommit=True, prepare_threshold=None))
            for _ in range(number)
        ]


def drained(url: str) -> bool:
    with psycopg.connect(url) as one:
        return one.execute("SELECT count(*) FROM migrator.mark").fetchone() == (0,)


@pytest.mark.parametrize("journal", ["source", "server"])
def test_a_service_on_the_same_pooler_writes_on(
    postgres_database: str, pooled_database: str, dynamodb_url: str, tmp_path: Path, journal: str
) -> None:
    services.run_script(postgres_database, SHOP)
    made = shop(tmp_path, pooled_database, dynamodb_url, {"server": pooled_database}.get(journal, journal))
    job = str(made.job)
    for command in ("capture install", "backfill", "verify", "doctor", "relay --once"):
        made.done(*command.split(), job)
    with services_of(pooled_database, 8) as writers, made.beside("relay", job) as relay:
        written = [one.execute("UPDATE invoice SET total = 6").rowcount for one in writers]
        assert written == [60] * 8
        limit = time.monotonic() + 120
        for round_ in range(12):
            # As often as a driver repeats a statement before it prepares it, and then some.
            writers[round_ % 8].execute("UPDATE customer SET name = name || '!' WHERE id = %s", (round_ + 1,))
            while not drained(postgres_database):
                assert relay.poll() is None, "the relay has ended"
                assert time.monotonic() < limit
                time.sleep(0.02)
    assert settings_left(pooled_database, CONNECTIONS) == {}
    assert "clean" in made.done("verify", job, "--settle", "0").out


def test_limits_hold_behind_a_pooler_and_end_with_transactions(
    postgres_database: str, pooled_database: str
) -> None:
    with closing(
        SqlSource(source_url(pooled_database), connection_options=ConnectionOptions(statement_timeout_s=0.3))
    ) as source:
        began = time.monotonic()
        slow = "SELECT count(*) FROM generate_series(1, 100000000) AS a, generate_series(1, 1000) AS b"
        with pytest.raises(SourceError, match="QueryCanceled"):
            source.query(slow, {})
        assert time.monotonic() - began < 120
        # What a service's UPDATE takes is none of our business.
        with services_of(pooled_database, 1) as (service,):
            service.execute("SELECT pg_sleep(0.5)")
    assert settings_left(pooled_database, CONNECTIONS) == {}


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_doctor_names_a_pooler(postgres_database: str, dynamodb_url: str, tmp_path: Path, mode: str) -> None:
    services.run_script(postgres_database, SHOP)
    with pooler(postgres_database, mode=mode) as pooled:
        made = shop(tmp_path, pooled.url, dynamodb_url)
        checks = {
            one["name"]: one["what"] for one in made.done("doctor", str(made.job), "--json").data["checks"]
        }
    assert pins.said(checks["connection pooler"])


def test_a_text_of_two_statements_ends_no_transaction(pooled_database: str) -> None:
    # Past the gate, as a fault in it would let it through.
    with (
        closing(SqlSource(source_url(pooled_database))) as source,
        source.engine.connect() as connection,
        pytest.raises(DBAPIError, match="multiple commands"),
    ):
        connection.exec_driver_sql("SELECT 1; COMMIT; CREATE TABLE made (id int)")


def test_replica_behind_a_pooler_is_checked_in_each_transaction(
    postgres_database: str, request: pytest.FixtureRequest
) -> None:
    services.run_script(postgres_database, SHOP)
    request.getfixturevalue("pooled_database")  # skips where there is no PgBouncer
    address = source_url(postgres_database)
    with services.own_postgres() as other, pooler(postgres_database) as pooled:
        services.run_script(other.url, SHOP)
        with closing(SqlSource(address, replica=source_url(pooled.url))) as source:
            assert len(source.read_page(CUSTOMER, None, None)) == 30
            pooled.lead_to(other.url)
            with pins.refused(SourceError):
                read_for(source, 20)


def read_for(source: SqlSource, limit_s: float) -> None:
    limit = time.monotonic() + limit_s
    while time.monotonic() < limit:
        source.read_page(CUSTOMER, None, None)
