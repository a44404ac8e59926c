"""A source that may not take long, and a table that is too large to be counted in that time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.model.facts import TableFacts
from migrator.runtime.errors import TooSlowError
from migrator.settings.job import SourceSettings
from migrator.settings.transforms import checked_on
from migrator.source.reader import SqlSource
from migrator.stages.backfill.stage import estimate
from migrator.stages.session.source import open_source
from tests import pins
from tests.support_mysql import numbers, run_script
from tests.support_source import INTEGER, column, plan_of

SEEN = plan_of(TableFacts("seen", "seen", (column("id", INTEGER, nullable=False),), ("id",)))
MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities: {seen: {key: [id], items: {Seen: {key: ["SEEN#{id}", SEEN]}}}}
"""


@contextmanager
def hurried(url: str) -> Iterator[SqlSource]:
    settings = SourceSettings(url=url, statement_timeout_s=0.4)
    with open_source(settings, examine_mapping(MAPPING, "m.yaml")) as source:
        assert isinstance(source, SqlSource)
        yield source


@pytest.fixture
def postgresql(postgres_database: str) -> str:
    """A thousand rows, of which the server shows one in two milliseconds."""
    with psycopg.connect(postgres_database, autocommit=True) as server:
        server.execute("CREATE TABLE slow (id int PRIMARY KEY)")
        server.execute("INSERT INTO slow SELECT generate_series(1, 1000)")
        server.execute("ANALYZE slow")
        server.execute("CREATE VIEW seen AS SELECT id FROM slow WHERE pg_sleep(0.002) IS NOT NULL")
    return postgres_database


def test_postgresql_estimate_replaces_a_count_that_is_too_slow(postgresql: str) -> None:
    with hurried(postgresql) as source:
        with pins.refused(TooSlowError):
            source.count(SEEN)
        assert 900 <= source.rows_about(SEEN) <= 1000
        assert len(source.read_page(SEEN, None, None, 20)) == 20


def test_a_backfill_is_estimated_anyway(postgresql: str) -> None:
    with hurried(postgresql) as source:
        checked = checked_on(source, examine_mapping(MAPPING, "m.yaml"))
        found = estimate(source, checked.entities, 0.0)
    assert found.rows == found.items > 300


def test_mariadb_estimate_replaces_a_count_that_is_too_slow(mysql_database: str) -> None:
    script = f"""
    CREATE TABLE seen (id int PRIMARY KEY);
    INSERT INTO seen SELECT seq FROM {numbers(300_000)};
    ANALYZE TABLE seen;
    """
    run_script(mysql_database, script)
    settings = SourceSettings(url=mysql_database, statement_timeout_s=0.001)
    with open_source(settings, examine_mapping(MAPPING, "m.yaml")) as source:
        with pytest.raises(TooSlowError):
            source.count(SEEN)
        assert 200_000 < source.rows_about(SEEN) < 400_000
