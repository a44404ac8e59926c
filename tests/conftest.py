"""Fixtures for every test: a clean environment and the real parts (PostgreSQL, MariaDB, Chinook, DynamoDB)."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar
from urllib.parse import urlsplit

import pytest
import structlog
from hypothesis import HealthCheck, settings

from migrator.runtime import logs
from tests import support_mysql
from tests import support_services as services
from tests.support_database_pool import DatabasePool
from tests.support_pooler import pooler

Part = TypeVar("Part")
_MARKER_OF_FIXTURE = {
    "postgres_url": "postgres",
    "log_server": "postgres",
    "mysql_url": "mysql",
    "chinook_dir": "chinook",
    "dynamodb_url": "dynamodb",
}
_NAMES_A_SERVER = re.compile(r"(?:journal on )?(?:(postgres)(?:ql)?|mysql|mariadb)(?:_\w+)?")
"""A parameter that is an engine, or a fixture of one."""
_SERVER_MARKERS = frozenset(_MARKER_OF_FIXTURE.values())


def pytest_report_header() -> list[str]:
    try:
        chinook = "found" if services.chinook_folder() else ""
    except services.MissingPart:
        chinook = "none"
    named = os.environ.get(services.DYNAMODB_VARIABLE)
    dynamodb = f"{services.DYNAMODB_VARIABLE} ({urlsplit(named).hostname})" if named else "embedded MiniStack"
    servers = f"PostgreSQL: {services.postgres_source()}; MySQL: {support_mysql.mysql_source()}"
    return [f"real parts: {servers}; DynamoDB: {dynamodb}; Chinook: {chinook}"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A run that is asked to be quiet has no header; this is said all the same, since such a test passes without it."""
    reports = (report for reports in terminalreporter.stats.values() for report in reports)
    if any("exports/test_terraform.py" in getattr(report, "nodeid", "") for report in reports):
        terminalreporter.write_line(f"Terraform: {services.terraform_source()}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test with the servers that it uses: by its fixtures, and by the engine that it is made for."""
    for item in items:
        fixtures = (_MARKER_OF_FIXTURE.get(name) for name in getattr(item, "fixturenames", ()))
        values = (value for value in _parameters(item) if type(value) is str)
        engines = (named[1] or "mysql" for named in map(_NAMES_A_SERVER.fullmatch, values) if named)
        for marker in {*fixtures, *engines} - {None}:
            item.add_marker(str(marker))
    # Long tests begin first, so that no worker is left with one at the end.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_configure() -> None:
    """One profile for all properties: no deadline, since no test depends on the machine's speed.

    Hypothesis would search all objects for trio's random generator, which selenium installs.
    """
    os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what runs in its background so, and each process of ours would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.register_profile("migrator", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("migrator")


def _parameters(item: pytest.Item) -> list[object]:
    """The values that one run of a test is made with; those of a test without any: none."""
    of_it = getattr(item, "callspec", None)
    return list(of_it.params.values()) if of_it else []


def _is_marked(item: pytest.Item, server: str) -> None:
    """A test that asks for a server while it runs would be left out where its engine's tests are selected."""
    assert item.get_closest_marker(server), f"this test needs pytest.mark.{server}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test of a real part that is skipped has failed."""
    report = yield
    of_a_server = any(item.get_closest_marker(name) for name in _SERVER_MARKERS)
    if services.in_ci() and of_a_server and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
    return report


@pytest.fixture(scope="session", autouse=True)
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of the caller's AWS account or of a job's settings reaches a test."""
    nowhere = tmp_path_factory.mktemp("aws") / "absent"
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("AWS_", "MIGRATOR_")) and not name.startswith("MIGRATOR_TEST_"):
                patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        # Commands fold what they print at so many columns; a test of that sets its own.
        patch.setenv("COLUMNS", "1000")
        patch.setenv("AWS_CONFIG_FILE", str(nowhere))
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere))
        # PyMySQL reads every certificate of the system for each connection; none of ours asks for one.
        patch.setenv("SSL_CERT_FILE", os.devnull)
        yield


@pytest.fixture(autouse=True)
def logs_as_new() -> Iterator[None]:
    """What a test sets up for log lines, and the stream that it caught them with, ends with it."""
    yield
    structlog.reset_defaults()
    logs._run.set(None)


# ── PostgreSQL ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A server's URL; the tests make databases of their own on it."""
    with _or_skip(services.postgres_server()) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_pool(postgres_url: str) -> Iterator[DatabasePool]:
    """Databases that one test after another has for itself."""
    with closing(DatabasePool(postgres_url)) as pool:
        yield pool


@pytest.fixture
def postgres_database(postgres_pool: DatabasePool, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty database of this test's own."""
    _is_marked(request.node, "postgres")
    with postgres_pool.database() as url:
        yield url


@pytest.fixture(scope="module")
def new_postgres_database(postgres_pool: DatabasePool) -> Iterator[Callable[[], str]]:
    """A function that gives the URL of one more empty database; all are given back with the module."""
    with ExitStack() as databases:
        yield lambda: databases.enter_context(postgres_pool.database())


@pytest.fixture
def pooled_database(postgres_database: str) -> Iterator[str]:
    """The URL of the same database through a PgBouncer in transaction mode."""
    with _or_skip(pooler(postgres_database)) as pooled:
        yield pooled.url


# ── MySQL and MariaDB ───────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def mysql_url() -> Iterator[str]:
    """A server's URL; the tests make databases of their own on it."""
    with _or_skip(support_mysql.mysql_server()) as url:
        yield url


@pytest.fixture
def mysql_database(mysql_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty database of this test's own."""
    _is_marked(request.node, "mysql")
    with support_mysql.mysql_database(mysql_url) as url:
        yield url


@pytest.fixture(scope="module")
def new_mysql_database(mysql_url: str) -> Iterator[Callable[[], str]]:
    """A function that makes one more empty database and gives its URL; all are dropped with the module."""
    with ExitStack() as databases:
        yield lambda: databases.enter_context(support_mysql.mysql_database(mysql_url))


# ── Chinook ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def chinook_dir() -> Path:
    try:
        return services.chinook_folder()
    except services.MissingPart as missing:
        _missing(missing)


@pytest.fixture
def chinook_sqlite(chinook_dir: Path, tmp_path: Path) -> Path:
    """A copy of Chinook that this test may change."""
    copy = tmp_path / "chinook.sqlite"
    shutil.copyfile(chinook_dir / "Chinook_Sqlite.sqlite", copy)
    return copy


@pytest.fixture(scope="session")
def chinook_template(postgres_url: str, chinook_dir: Path) -> Iterator[str]:
    """The name of a database with Chinook in it, without connections, so that it can be copied."""
    with services.postgres_database(postgres_url) as url:
        services.run_script(url, services.chinook_postgres_script(chinook_dir))
        yield urlsplit(url).path.lstrip("/")


@pytest.fixture(scope="session")
def chinook_postgres(postgres_url: str, chinook_template: str) -> Iterator[str]:
    """Chinook as it stands, one for all tests: read it, do not change it."""
    with services.postgres_database(postgres_url, chinook_template) as url:
        yield url


@pytest.fixture(scope="session")
def chinook_mysql(mysql_url: str, chinook_dir: Path) -> Iterator[str]:
    """Chinook as it stands, one for all tests: read it, do not change it."""
    with support_mysql.mysql_database(mysql_url) as url:
        support_mysql.run_script(url, support_mysql.chinook_mysql_script(chinook_dir))
        yield url


@pytest.fixture
def chinook_postgres_overlay(postgres_url: str, chinook_template: str, chinook_dir: Path) -> Iterator[str]:
    """Chinook of this test's own, with the tricky rows laid over it."""
    with services.postgres_database(postgres_url, chinook_template) as url:
        services.run_script(url, (chinook_dir / "overlay" / "tricky_pg.sql").read_text(encoding="utf-8"))
        yield url


# ── DynamoDB ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def dynamodb_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A DynamoDB endpoint that all tests share: give tables random names."""
    named = os.environ.get(services.DYNAMODB_VARIABLE)
    if named:
        yield named
        return
    home = tmp_path_factory.mktemp("ministack")
    with _or_skip(services.embedded_dynamodb(home)) as url:
        yield url


@contextmanager
def _or_skip(part: AbstractContextManager[Part]) -> Iterator[Part]:
    """What the part gives; where the part is missing, the test is skipped (in CI it fails)."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(part)
        except services.MissingPart as missing:
            _missing(missing)
        yield found


def _missing(missing: services.MissingPart) -> NoReturn:
    if services.in_ci():
        pytest.fail(f"CI=true, and {missing}", pytrace=False)
    pytest.skip(str(missing))
