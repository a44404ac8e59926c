"""A server with a log that can be captured, and a shop on it: on each engine that the test names, or on both."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests import support_mysql
from tests import support_services as services
from tests.log.shops import BinlogShop, LogShop, SlotShop, engine_server
from tests.support_own_server import OwnServer

# A standby takes over on the servers of .ci/engine alone.
collect_ignore = [] if services.LOGICAL_VARIABLE in os.environ else ["test_failover.py"]

SHOPS: dict[str, type[LogShop]] = {"postgresql": SlotShop, "mysql": BinlogShop}
# Settings of the server, and XA transactions of other tests, would be seen by every one.
_MARKS = {"postgresql": (), "mysql": (pytest.mark.nightly, pytest.mark.xdist_group("binlog"))}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        named = metafunc.definition.get_closest_marker("engines")
        names = named.args if named else SHOPS
        metafunc.parametrize("engine", [pytest.param(name, marks=_MARKS[name]) for name in names])


@pytest.fixture(scope="session")
def log_server() -> Iterator[OwnServer]:
    """PostgreSQL's: the one that the environment names, or one with wal_level = logical of the tests' own."""
    if url := os.environ.get(services.LOGICAL_VARIABLE):
        engines = {5416: "postgres16", 5417: "postgres17"}
        yield engine_server(url, engines.get(urlsplit(url).port or 0, "postgres"), signal.SIGQUIT)
        return
    limits = ("max_replication_slots=20", "max_wal_senders=20", "max_prepared_transactions=5")
    try:
        with services.own_postgres("wal_level=logical", *limits) as server:
            yield server
    except services.MissingPart as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def binlog_server(mysql_url: str) -> OwnServer:
    if support_mysql.is_mariadb(mysql_url):
        pytest.skip("the log of MariaDB is not read; .ci/nightly logmysql runs these tests on MySQL")
    return engine_server(mysql_url, "mysql", signal.SIGKILL, BinlogShop.logging)


@pytest.fixture
def server(engine: str, request: pytest.FixtureRequest) -> OwnServer:
    """The engine's: its log can be captured."""
    found: OwnServer = request.getfixturevalue("log_server" if engine == "postgresql" else "binlog_server")
    return found


@pytest.fixture
def shop(engine: str, server: OwnServer, dynamodb_url: str, tmp_path: Path) -> Iterator[LogShop]:
    """Rows are there, and nothing is captured or backfilled."""
    with SHOPS[engine].open(server, tmp_path, dynamodb_url) as shop:
        yield shop


@pytest.fixture
def live(shop: LogShop) -> LogShop:
    """Captured from the log, and backfilled."""
    shop.begun()
    return shop
