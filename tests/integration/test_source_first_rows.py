"""The first rows of a statement that has a million: no more than these leave the database."""

from __future__ import annotations

import time
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from migrator.runtime.errors import SourceError
from migrator.source.engines.base import ConnectionOptions
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests import pins
from tests.support_capture import new_sqlite
from tests.support_mysql import numbers

SERIES = {
    "postgresql": "SELECT n, n / 2.0 FROM (SELECT generate_series(1, 1000000)) AS s (n)",
    "mysql": f"SELECT seq, seq / 2 FROM {numbers(1_000_000)}",
    "sqlite": "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000000)"
    " SELECT n, n / 2.0 FROM s",
}
URLS = {"postgresql": "postgres_url", "mysql": "mysql_url"}


@pytest.fixture
def url(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> str:
    return request.getfixturevalue(URLS[kind]) if kind in URLS else new_sqlite(tmp_path / "a.db")


def source_of(url: str, statement_timeout_s: float) -> SqlSource:
    options = ConnectionOptions(pool_size=1, statement_timeout_s=statement_timeout_s)
    return SqlSource(source_url(url), connection_options=options)


@pytest.mark.parametrize("kind", SERIES)
def test_rows_beyond_the_statement_time_limit_are_not_waited_for(url: str, kind: str) -> None:
    many = SERIES[kind].replace("1000000", "1000000000")
    # A billion rows take minutes; the first of them may take seconds where a machine is busy.
    with closing(source_of(url, 60)) as source:
        for _ in range(5):
            found = source.query(many, {}, at_most=2)
            pairs = [(int(n), Decimal(half)) for n, half in found]
            assert len(pairs) == 3
            assert all(Decimal(n) / 2 == half for n, half in pairs)
        # The connection, or a new one, is as good as before.
        assert len(source.query(f"SELECT * FROM ({SERIES[kind]}) AS few LIMIT 7", {})) == 7


@pytest.mark.parametrize("kind", SERIES)
def test_a_statement_that_lasts_is_ended_as_any_other(url: str, kind: str) -> None:
    many = SERIES[kind].replace("1000000", "100000000")
    if kind == "mysql":
        many = f"SELECT seq FROM {numbers(99_999_999)}"
    with closing(source_of(url, 2)) as source, pins.refused(SourceError):
        source.query(f"SELECT count(*) FROM ({many}) AS few", {}, at_most=2)


def test_reader_without_a_free_connection_waits_up_to_the_limit(tmp_path: Path) -> None:
    connection_options = ConnectionOptions(pool_size=1, pool_wait_s=0.2)
    with (
        closing(
            SqlSource(source_url(new_sqlite(tmp_path / "a.db")), connection_options=connection_options)
        ) as source,
        source._reading.engine.connect(),
    ):
        began = time.monotonic()
        with pins.refused(SourceError):
            source.query("SELECT 1", {})
        assert 0.2 <= time.monotonic() - began < 20
