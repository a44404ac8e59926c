"""A hot standby as the source: it may be moved and verified, since all that reads is read-only."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.runtime.values import replace
from tests import pins
from tests import support_services as services
from tests.journeys.command import Project, project
from tests.journeys.small import MAPPING
from tests.support_standby import standby_of

pytestmark = pytest.mark.postgres

SHOP = """
CREATE TABLE customer (id int PRIMARY KEY, name text);
CREATE TABLE invoice (id int PRIMARY KEY, customer_id int NOT NULL, total int);
INSERT INTO customer SELECT n, 'Name ' || n FROM generate_series(1, 30) AS n;
INSERT INTO invoice SELECT n, n % 30 + 1, 5 FROM generate_series(1, 60) AS n;
"""


@pytest.fixture(scope="module")
def primary() -> Iterator[str]:
    try:
        with services.own_postgres() as server, services.postgres_database(server.url) as url:
            services.run_script(url, SHOP)
            yield url
    except services.MissingPart as missing:
        pytest.skip(str(missing))


def shop(folder: Path, url: str, endpoint: str) -> Project:
    text = MAPPING.replace("type: type", "type: type, ttl: expiresAt")
    return project(folder, url, endpoint, f"S{secrets.token_hex(4)}", text=text).prepared("table create")


def of(made: Project, url: str) -> Project:
    return replace(made, environment={**made.environment, "MIGRATOR_SOURCE_URL": url})


def test_a_standby_is_moved_and_verified_without_capture(
    primary: str, tmp_path: Path, dynamodb_url: str
) -> None:
    with standby_of(primary) as url:
        made = shop(tmp_path, url, dynamodb_url)
        made.prepared("doctor", "backfill")
        assert len(made.items()) == 30 + 2 * 60
        made.done("verify", str(made.job))
        assert made.run("verify", str(made.job), "--settle", "1s").code == 2, "nothing is captured"
        status = json.loads(made.done("status", str(made.job), "--json").out)
    assert {run["state"] for run in status["runs"]} == {"done"}


def test_standby_of_captured_primary_is_verified_and_names_it(
    primary: str, tmp_path: Path, dynamodb_url: str
) -> None:
    made = shop(tmp_path, primary, dynamodb_url)
    made.done("capture", "install", str(made.job))
    try:
        made.done("backfill", str(made.job))
        with standby_of(primary) as url:
            beside = of(made, url)
            beside.done("recover", str(made.job), "renamed")
            beside.done("verify", str(made.job), "--settle", "0s")
            refused = beside.run("relay", str(made.job), "--once")
        assert refused.code == 3
        assert pins.said(refused.err, "database")
        assert pins.said(refused.err, "primary")
    finally:
        made.done("capture", "uninstall", str(made.job))


def test_reverse_verify_compares_rows_of_the_primary(primary: str, tmp_path: Path, dynamodb_url: str) -> None:
    made = shop(tmp_path, primary, dynamodb_url)
    with standby_of(primary) as url:
        services.run_script(url, "SELECT pg_wal_replay_pause()")
        services.run_script(primary, "UPDATE customer SET name = 'Another' WHERE id = 7")
        made.done("backfill", str(made.job))
        text = made.job.read_text()
        made.job.write_text(text.replace("source: {", f"source: {{read_url: '{url}', "))
        assert "clean" in made.done("reverse", "verify", str(made.job), "--settle", "0s").out
