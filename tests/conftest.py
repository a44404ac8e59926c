"""Fixtures for every test: a clean environment and the real parts (PostgreSQL, MariaDB, Chinook, DynamoDB)."""

from __future__ import annotations

import copy
import gc
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NoReturn, TypeVar
from urllib.parse import urlsplit

import pytest
import structlog
from botocore.hooks import HierarchicalEmitter
from botocore.session import Session

from tests import support_mysql
from tests import support_services as services
from tests.support_database_pool import DatabasePool
from tests.support_lanes import EXCHANGE, LANES
from tests.support_pooler import pooler
from tests.support_shared import share_clients, share_compiled_sql

Part = TypeVar("Part")
_MARKER_OF_FIXTURE = {
    "postgres_url": "postgres",
    "mysql_url": "mysql",
    "chinook_dir": "chinook",
    "dynamodb_url": "dynamodb",
}
_SERVER_MARKERS = frozenset(_MARKER_OF_FIXTURE.values())
_ON_TWO_ENGINES = (
    *("tests/races/", "tests/service/", "tests/designs/", "tests/integration/"),
    *("tests/contract/", "tests/language/", "tests/attacks/"),
)
"""Folders whose tests run on SQLite and PostgreSQL in `make test`, and on MariaDB in `make engines`."""
_ON_ONE_LANE = ("tests/integration/", "tests/attacks/")
"""What runs on each lane to DynamoDB goes by the one that needs no setting in `make test`, and by the others in `make engines`."""
_OTHER_LANES = [name for name in LANES if name != EXCHANGE]
_ON_ONE_ENGINE = "tests/races/"
"""What can run on SQLite runs there in `make test`, and on both servers in `make engines`."""
_JOURNEYS = (
    "bad_input",
    "chinook",
    "complete",
    "cutover",
    "decommission",
    "direct",
    "examples",
    "forget",
    "frozen_service",
    "import",
    "in_process",
    "init",
    "job_names",
    "journal_place",
    "json",
    "live_bad_input",
    "live_findings",
    "live_line",
    "live_storm",
    "metrics",
    "phases_elsewhere",
    "processes",
    "revisions",
    "shadow",
    "shop",
    "standby",
    "status",
    "stopped",
    "undo",
    "verify_again",
    "web_shop",
)
_LONGEST = (
    *("tests/soak/", "tests/spark/", "tests/service/test_strict_", "tests/service/test_migrate_mapping"),
    *(
        "tests/simulation/test_schedules",
        "tests/simulation/test_revisions",
        "tests/journey/test_reverse_storm",
    ),
    "tests/journey/test_rows_come_back.py::test_chinook",
)
_OF_SERVICES = (
    "bad_input",
    "ends",
    "example",
    "old_revisions",
    "outbox",
    "shadow",
    "shadow_noise",
)
_OF_ATTACKS = (
    "capture_after_backfill",
    "journal_away",
    "journals_that_are_lost",
    "long_snapshot",
    "moves_at_once",
    "old_mappings",
    "poolers",
    "refused_rows",
    "relay_once",
    "row_keys",
    "sources_that_go_back",
    "tables_that_go_back",
    "unproved_keys",
)
_OF_INTEGRATION = ("look", "sample_cost", "write_limit")
_LONG_JOURNEYS = (
    *(f"tests/journey/test_{name}" for name in _JOURNEYS),
    *(f"tests/service/test_{name}" for name in _OF_SERVICES),
    *(f"tests/attacks/test_{name}" for name in _OF_ATTACKS),
    *(f"tests/integration/test_{name}" for name in _OF_INTEGRATION),
    *(
        "tests/browser/",
        "tests/bench/test_counts",
        "tests/outside/test_extras",
        "tests/races/test_atomic",
        "tests/simulation/test_atomic",
        "tests/simulation/test_rules",
    ),
    *("tests/exports/test_cloudformation", "tests/exports/test_policies", "tests/exports/test_python_items"),
)
"""They wait for services, relays, lifetimes or a browser, count the work of many rows, or start many processes; `make journeys`
runs them."""


_NIGHTLY = (
    *("tests/designs/test_inverse.py::*on_postgresql", "tests/journey/test_rows_come_back.py::*mariadb*"),
    *(
        "tests/journey/test_rows_come_back.py::test_chinook*sqlite*",
        "tests/journey/test_init_recorded.py::*mariadb*",
    ),
    *(
        "tests/journey/test_init.py::test_chinook*postgresql*",
        "tests/journey/test_init.py::test_chinook*mariadb*",
    ),
    *(
        "tests/journey/test_plan.py::test_chinook*postgresql*",
        "tests/journey/test_plan.py::test_chinook*mariadb*",
    ),
    *(
        "tests/journey/test_chinook_patterns.py::*postgresql*",
        "tests/integration/test_sample_cost.py::*mariadb-[!c]*",
    ),
    *(
        "tests/exports/test_grants.py::test_a_role*mariadb*",
        "tests/service/test_migrate_mapping.py::*mariadb*",
    ),
    *(
        "tests/service/test_strict_kills.py::*mariadb-strict*",
        "tests/service/test_strict_kills.py::*postgresql-flush*",
    ),
    *("tests/soak/test_live_storms.py::*mysql*", "tests/soak/test_service_storms.py::*mysql*"),
    *(
        "tests/soak/test_restarts.py::*mariadb*",
        "tests/soak/test_storms.py::test_memory*",
        "tests/soak/test_claims.py::*",
    ),
    *("tests/spark/test_many_kills.py::*", "tests/spark/test_spark.py::test_a_driver*"),
)
"""The longest of those that show on one server more, or at length, what others show in CI; `make nightly` runs them."""


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
    """Marks every test that asks for a real part, however far down its fixtures do, or for one engine more."""
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in _MARKER_OF_FIXTURE:
                item.add_marker(_MARKER_OF_FIXTURE[fixture])
        if item.nodeid.startswith(_ON_TWO_ENGINES) and "mariadb" in _parameters(item):
            item.add_marker("other_engine")
        if item.nodeid.startswith(_ON_ONE_LANE) and any(one in _OTHER_LANES for one in _parameters(item)):
            item.add_marker("other_engine")
        if item.nodeid.startswith(_ON_ONE_ENGINE) and "postgresql" in _parameters(item):
            named = item.get_closest_marker("engines")
            if named is None or "sqlite" in named.args:
                item.add_marker("other_engine")
        if any(fnmatchcase(item.nodeid, pattern) for pattern in _NIGHTLY):
            item.add_marker("nightly")
        if item.nodeid.startswith(_LONG_JOURNEYS):
            item.add_marker("long_journey")
    # What takes minutes begins first, so that no worker is left with it at the end.
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


def pytest_configure() -> None:
    """Nothing that collecting makes is garbage, and it would be looked through again and again.

    Hypothesis would look through all of it, too, for whoever holds the chance of trio, which selenium brings along.
    """
    gc.disable()
    os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")


def pytest_collection_finish() -> None:
    """Some hundred thousand objects of the tests stay to the end; garbage collection need not look at them.

    What tests leave behind is looked for more seldom, too: as often as usual takes a tenth of the whole suite.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    gc.enable()


def _parameters(item: pytest.Item) -> list[object]:
    """The values that one run of a test is made with; those of a test without any: none."""
    of_it = getattr(item, "callspec", None)
    return list(of_it.params.values()) if of_it else []


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
        patch.setenv("AWS_CONFIG_FILE", str(nowhere))
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere))
        # PyMySQL reads every certificate of the system for each connection; none of ours asks for one.
        patch.setenv("SSL_CERT_FILE", os.devnull)
        yield


@pytest.fixture(scope="session", autouse=True)
def handlers_of_botocore() -> Iterator[None]:
    """botocore's own handlers, looked at for the first session and copied for the others, as it does for each client.

    Commands in the tests' process make some thousand sessions, and half of what one costs is this.
    """
    register, known = Session._register_builtin_handlers, list[HierarchicalEmitter]()

    def registered(session: Session, events: object) -> None:
        if known:
            vars(session._original_handler).update(vars(copy.copy(known[0])))
        else:
            register(session, events)
            known.append(copy.copy(session._original_handler))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "_register_builtin_handlers", registered)
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_by_commands(clean_environment: None) -> Iterator[None]:
    """AWS clients and compiled SQL: a third of what a command in the tests' process costs."""
    with pytest.MonkeyPatch.context() as patch:
        share_clients(patch)
        share_compiled_sql(patch)
        yield


@pytest.fixture(autouse=True)
def logs_as_new() -> Iterator[None]:
    """What a test sets up for log lines, and the stream that it caught them with, ends with it."""
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


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
def postgres_database(postgres_pool: DatabasePool) -> Iterator[str]:
    """The URL of an empty database of this test's own."""
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
def mysql_database(mysql_url: str) -> Iterator[str]:
    """The URL of an empty database of this test's own."""
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
