"""An answer of a source that has more bytes than one may have ends by a limit of ours, whether it is many rows or one value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from migrator.runtime.errors import LongAnswerError
from migrator.source.engines.base import ConnectionOptions
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests import pins
from tests.support_capture import new_sqlite
from tests.support_mysql import numbers

URLS = {"postgresql": "postgres_url", "mysql": "mysql_url"}
NUMBERS = {
    "postgresql": "generate_series(1, {}) AS s (n)",
    "mysql": "(SELECT seq AS n FROM {}) AS s",
    "sqlite": "(WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {}) SELECT n FROM s) AS s",
}
TEXTS = {
    "postgresql": "repeat('x', 1000)",
    "mysql": "repeat('x', 1000)",
    "sqlite": "printf('%01000d', n)",
}
JOINED = {"postgresql": "string_agg({}, '')", "mysql": "group_concat({})", "sqlite": "group_concat({})"}
MB = 2**20


@pytest.fixture(params=URLS | {"sqlite": ""})
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> str:
    return str(request.getfixturevalue(URLS[kind])) if kind in URLS else new_sqlite(tmp_path / "a.db")


@pytest.fixture
def source(url: str) -> Iterator[SqlSource]:
    options = ConnectionOptions(pool_size=1, answer_bytes=8 * MB)
    with closing(SqlSource(source_url(url), connection_options=options)) as opened:
        yield opened


def rows(kind: str, number: int) -> str:
    counted = numbers(number) if kind == "mysql" else number
    return NUMBERS[kind].format(counted)


@pytest.mark.parametrize("at_most", [None, 50_000])
def test_many_rows(source: SqlSource, kind: str, at_most: int | None) -> None:
    statement = f"SELECT {TEXTS[kind]} AS t FROM {rows(kind, 100_000)}"
    for _ in range(3):
        with pytest.raises(LongAnswerError):
            source.query(statement, {}, at_most=at_most)
        # The connection, or a new one, is as good as before.
        assert len(source.query(f"SELECT * FROM ({statement}) AS few LIMIT 7", {}, at_most=at_most)) == 7


@pytest.mark.parametrize("at_most", [None, 1])
def test_one_value(source: SqlSource, kind: str, at_most: int | None) -> None:
    statement = f"SELECT {JOINED[kind].format(TEXTS[kind])} FROM {rows(kind, 15_000)}"
    with pins.refused(LongAnswerError):
        source.query(statement, {}, at_most=at_most)
    assert source.query("SELECT 1", {}) == [(1,)]


def test_answers_below_the_limit_are_whole_however_many_they_are(source: SqlSource, kind: str) -> None:
    statement = f"SELECT {TEXTS[kind]} AS t FROM {rows(kind, 3_000)}"
    for _ in range(5):
        found = source.query(statement, {})
        assert len(found) == 3_000
        assert {len(text) for (text,) in found} == {1000}
