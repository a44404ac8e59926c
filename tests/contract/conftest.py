"""Each kind of journal and of item store that there is, new and empty; each kind of source, with the same rows in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.store import DynamoStore
from migrator.journal.runs import SqlJournal
from migrator.journal.schema import meta, metadata
from migrator.mapping.model.edges import ItemStore, Source
from migrator.mapping.model.table import TableDesign
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests.fakes.source import MemorySource
from tests.fakes.store import FakeStore
from tests.support_engine import NAME, pond_known
from tests.support_fence import no_fence
from tests.support_journal_file import journal_in_file
from tests.support_source import facts_by_hand, rows_of_the_schema
from tests.support_source_databases import (
    LINGUISTIC,
    OUR_SELECTS,
    PRODUCT_SQL,
    fill_mysql,
    fill_postgresql,
    make_sqlite,
    postgresql_database,
)

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker asks all that a module asks, so that each source is filled once."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.xdist_group(f"contract {item.path.stem}"))


# `make test` asks the fake and one real engine; the others once a landing.
POND = pytest.param("pond", marks=pytest.mark.slow)
JOURNALS = ["file", pytest.param("memory", marks=pytest.mark.slow), "postgresql", "mariadb"]


@pytest.fixture(params=JOURNALS)
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlJournal]:
    made = _journal(request, tmp_path)
    yield made
    _put_away(made)


@pytest.fixture(params=["fake", *JOURNALS])
def journal_or_fake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlJournal | None]:
    """None where the test is to use a fake."""
    made = None if request.param == "fake" else _journal(request, tmp_path)
    yield made
    if made is not None:
        _put_away(made)


def _journal(request: pytest.FixtureRequest, folder: Path) -> SqlJournal:
    if request.param == "file":
        return journal_in_file(folder / "deep" / "shop.db")
    if request.param == "memory":
        return SqlJournal.in_memory()
    return SqlJournal(request.getfixturevalue(f"{request.param}_journal"))


def _put_away(journal: SqlJournal) -> None:
    """A server's tables are emptied for the next test: making them anew takes a second each time."""
    if not journal.database.sqlite:
        kept = [table for table in metadata.sorted_tables if table is not meta]
        with journal.database.begin() as connection:
            metadata.create_all(connection)  # a test may have taken one away
            for table in kept:
                connection.execute(delete(table))
    journal.close()


@pytest.fixture(scope="module")
def postgresql_journal(new_postgres_database: Callable[[], str]) -> str:
    """The URL of a database of the module's own."""
    return new_postgres_database()


@pytest.fixture(scope="module")
def mariadb_journal(new_mysql_database: Callable[[], str]) -> str:
    return new_mysql_database()


@pytest.fixture(params=["fake", "dynamodb"])
def store(request: pytest.FixtureRequest, design: TableDesign) -> Iterator[ItemStore]:
    """`design`: a fixture of the test's module."""
    if request.param == "fake":
        yield FakeStore(design, no_fence)
        return
    client = dynamodb_client(region=None, profile=None, endpoint=request.getfixturevalue("dynamodb_url"))
    DynamoTableAdmin(client).create(design)
    yield DynamoStore(client, design, no_fence)
    client.delete_table(TableName=design.name)


@pytest.fixture(scope="module")
def sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_sqlite(tmp_path_factory.mktemp("source") / "shop #1?.db")


@pytest.fixture(scope="module")
def postgresql_url(postgres_url: str) -> Iterator[str]:
    with postgresql_database(postgres_url, *LINGUISTIC) as url:
        fill_postgresql(url)
        yield url


@pytest.fixture(scope="module")
def mariadb_url(new_mysql_database: Callable[[], str]) -> str:
    url = new_mysql_database()
    fill_mysql(url)
    return url


@pytest.fixture(scope="module")
def pond_url(sqlite_url: str) -> Iterator[str]:
    """An engine that was added by the recipe of docs/architecture.md."""
    with pond_known():
        yield sqlite_url.replace("sqlite", NAME, 1)


@pytest.fixture(scope="module", params=["memory", "sqlite", POND, "postgresql", "mariadb"])
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    if request.param == "memory":
        answers = {PRODUCT_SQL: lambda params: [("fig",), ("pear",), ("plum",)] if params["id"] == 10 else []}
        ours = {select: lambda _, rows=rows: rows for select, rows in OUR_SELECTS.items()}
        yield MemorySource(facts_by_hand(), rows_of_the_schema(), answers | ours)
        return
    real = SqlSource(source_url(request.getfixturevalue(f"{request.param}_url")))
    yield real
    real.close()
