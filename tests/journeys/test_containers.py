"""A migration between containers, as docs/reads.md names it: PostgreSQL to DynamoDB Local."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.journeys.command import Project, project
from tests.journeys.small import MAPPING
from tests.support_services import docker_answers

pytestmark = pytest.mark.skipif(
    not docker_answers(),
    reason="no Docker engine answers here: these containers are started by testcontainers",
)
ROWS = """
CREATE TABLE customer (id integer PRIMARY KEY, name text);
CREATE TABLE invoice (id integer PRIMARY KEY, customer_id integer NOT NULL, total integer);
INSERT INTO customer SELECT n, 'Name ' || n FROM generate_series(1, 30) n;
INSERT INTO invoice SELECT n, n % 30 + 1, 5 FROM generate_series(1, 60) n;
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Project]:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy
    from testcontainers.postgres import PostgresContainer

    local = DockerContainer("amazon/dynamodb-local:latest").with_exposed_ports(8000)
    started = local.waiting_for(LogMessageWaitStrategy("Initializing DynamoDB Local"))
    with PostgresContainer("postgres:15", driver=None) as postgres, started as dynamodb:
        url = postgres.get_connection_url()
        with psycopg.connect(url) as source:
            source.execute(ROWS)
        (tmp_path / "mapping.yaml").write_text(MAPPING)
        endpoint = f"http://{dynamodb.get_container_host_ip()}:{dynamodb.get_exposed_port(8000)}"
        made = project(tmp_path, url, endpoint, "Shop")
        made.job.write_text(made.job.read_text().replace("mapping: ", "mapping: mapping.yaml  # ", 1))
        yield made


def test_rows_move_between_containers_and_verify_is_clean(shop: Project) -> None:
    shop.prepared("table create", "capture install", "backfill", "relay --once", "verify")
    assert len(shop.items()) == 150
