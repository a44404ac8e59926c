"""Pages read for the encoder: the same rows as read_page gives them, whatever stands in a column, on each engine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import sqlalchemy as sa
from pymysql.constants import FIELD_TYPE

from migrator.mapping.items.encoder import compile_encoder, encode_page
from migrator.mapping.items.native import IS_NATIVE, InPlace
from migrator.mapping.model.facts import EntityPlan
from migrator.runtime.errors import SourceError
from migrator.runtime.values import replace
from migrator.source.engines.connect import source_url
from migrator.source.engines.mysql.connect import fetched
from migrator.source.engines.postgresql.connect import fetched as postgres_fetched
from migrator.source.reader import SqlSource
from tests.language.context import HEAD, checked

TEXTS = [None, "", "x" * 250, "y" * 251, "é" * 126, '🎵\\"\n\x01', "z" * 70_000, " padded "]
MAPPING = HEAD + 'entities: {t: {items: {T: {key: ["T#{id}", P], keep: all}}}}'
ROWS = 3000


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/raw.db"
    name = "postgres_database" if request.param == "postgresql" else "mysql_database"
    return str(request.getfixturevalue(name))


def execute(url: str, *statements: str) -> None:
    engine = sa.create_engine(url if url.startswith("sqlite") else source_url(url))
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.fixture
def filled(url: str) -> str:
    engine = sa.create_engine(url if url.startswith("sqlite") else source_url(url))
    table = sa.Table(
        "t",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("a", sa.Text().with_variant(sa.Text(10_000_000), "mysql", "mariadb")),
        sa.Column("n", sa.Numeric(12, 3)),
        sa.Column("at", sa.DateTime),
        sa.Column("day", sa.Date),
        sa.Column("data", sa.LargeBinary(10_000_000)),
        sa.Column("f", sa.Double),
    )
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(sa.insert(table), [_row(number) for number in range(1, ROWS + 1)])
    engine.dispose()
    return url


def _row(number: int) -> dict[str, Any]:
    at = datetime(2024, 2, 28, 23, 59, 59) + timedelta(minutes=number)
    return {
        "id": number,
        "a": TEXTS[number % 1000] if number % 1000 < len(TEXTS) else f"text {number}",
        "n": None if number % 7 == 0 else Decimal(number - 1500) / 1000,
        "at": None if number % 5 == 0 else at,
        "day": at.date(),
        "data": bytes([number % 256, 255, 0]),
        "f": number / 7,
    }


@pytest.fixture
def source(filled: str) -> Iterator[SqlSource]:
    source = SqlSource(source_url(filled))
    yield source
    source.close()


def plan_of(url: str) -> EntityPlan:
    return checked(url, MAPPING).entities[0].plan


def test_raw_rows_are_those_of_a_page(source: SqlSource, filled: str) -> None:
    plan = plan_of(filled)
    raw = source.raw_places(plan)
    assert bool(raw) == (not filled.startswith("sqlite"))
    page = source.read_raw(plan, raw, None, None)
    assert page.raw == raw
    assert [repr(page.whole(row)) for row in page.rows] == [
        repr(row) for row in source.read_page(plan, None, None)
    ]
    assert all(type(row[place]) is str for row in page.rows for place in raw if row[place] is not None)


def test_items_of_raw_rows_equal_those_of_tuples(source: SqlSource, filled: str) -> None:
    entity = checked(filled, MAPPING).entities[0]
    encoder = compile_encoder(entity, source.raw_places(entity.plan))
    page = source.read_raw(entity.plan, encoder.raw, None, None)
    assert isinstance(page.rows, InPlace) == (IS_NATIVE and filled.startswith("postgres"))
    placed = encode_page(encoder, page, 7, 0.0)
    assert placed == encode_page(encoder, replace(page, rows=list(page.rows)), 7, 0.0)
    assert len(placed.items) + len(placed.refused) == ROWS


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_rows_of_a_database_of_another_encoding_are_tuples(source: SqlSource, filled: str) -> None:
    """Their texts are no UTF-8."""
    with source.engine.connect() as connection:
        connection.exec_driver_sql("SET client_encoding = 'LATIN1'")
        rows = postgres_fetched(
            connection, sa.text("SELECT id, chr(233) FROM t ORDER BY id LIMIT 1"), frozenset({0})
        ).rows
    assert rows == [("1", "é")]


def test_bounds_and_limits_are_those_of_a_page(source: SqlSource, filled: str) -> None:
    plan = plan_of(filled)
    raw = source.raw_places(plan)
    for bounds in [("[5]", "[9]", None), ("[5]", None, 3), (None, "[0]", None), (None, None, 1)]:
        page = source.read_raw(plan, raw, *bounds)
        assert [page.whole(row) for row in page.rows] == source.read_page(plan, *bounds)


@pytest.mark.parametrize("url", ["postgresql", "mariadb"], indirect=True)
def test_a_column_of_another_type_meanwhile_is_read_as_usual(source: SqlSource, filled: str) -> None:
    """Else its text could be taken for a number's, which nothing looks at again."""
    entity = checked(filled, MAPPING).entities[0]
    encoder = compile_encoder(entity, source.raw_places(entity.plan))
    assert encoder is not None
    using = "TYPE text" if filled.startswith("postgres") else ""
    words = "ALTER COLUMN n" if using else "MODIFY n text"
    execute(filled, f"ALTER TABLE t {words} {using}")
    page = source.read_raw(entity.plan, encoder.raw, None, None)
    assert page.raw == frozenset() != encoder.raw
    assert page.rows == source.read_page(entity.plan, None, None)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_text_that_is_not_utf_8_is_read_as_usual(source: SqlSource, filled: str) -> None:
    execute(filled, "UPDATE t SET a = CAST(x'61ff62' AS TEXT) WHERE id = 2000")
    plan = plan_of(filled)
    page = source.read_raw(plan, frozenset(), None, None)
    assert page.rows == source.read_page(plan, None, None)
    assert page.rows[1999][1] == "a\udcffb"
    assert source.read_raw(plan, frozenset(), "[2000]", None).rows[0][0] == 2001


def test_raw_read_of_a_missing_table_keeps_error_and_connection(source: SqlSource, filled: str) -> None:
    plan = plan_of(filled)
    execute(filled, "ALTER TABLE t RENAME TO t2")
    with pytest.raises(SourceError) as usual:
        source.read_page(plan, None, None)
    with pytest.raises(SourceError) as raw:
        source.read_raw(plan, source.raw_places(plan), None, None)
    assert str(raw.value) == str(usual.value)
    execute(filled, "ALTER TABLE t2 RENAME TO t")
    assert len(source.read_raw(plan, source.raw_places(plan), None, None).rows) == ROWS


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
def test_a_row_longer_than_a_packet_is_whole(source: SqlSource, filled: str) -> None:
    """MySQL's packets have 16 MB at most: a longer row comes in several."""
    execute(filled, "UPDATE t SET a = REPEAT('é', 4500000), data = REPEAT('y', 9000000) WHERE id = 1500")
    plan = plan_of(filled)
    page = source.read_raw(plan, source.raw_places(plan), "[1498]", "[1502]")
    assert [page.whole(row) for row in page.rows] == source.read_page(plan, "[1498]", "[1502]")
    assert len(page.rows) == 4
    assert page.rows[1][1] == "é" * 4_500_000


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
def test_error_after_the_first_rows_keeps_the_connection(source: SqlSource, filled: str) -> None:
    late = sa.text(
        "SELECT id, a, (SELECT 1 UNION ALL SELECT 2 FROM DUAL WHERE t.id > 2900) FROM t ORDER BY id"
    )
    with source.engine.connect() as connection:
        with pytest.raises(sa.exc.DBAPIError, match="more than 1 row"):
            fetched(connection, late, frozenset({0}))
        number = sa.text("SELECT id, at FROM t WHERE id = 3")
        assert fetched(connection, number, frozenset({0})).rows == [("3", _row(3)["at"])]
        assert connection.execute(number).one() == (3, _row(3)["at"])


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
def test_a_read_that_ends_early_leaves_no_answer_to_the_next_one(source: SqlSource, filled: str) -> None:
    def stop(_: str) -> None:
        raise MemoryError

    with source.engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.decoders = {**driver.decoders, FIELD_TYPE.DATE: stop}
        with pytest.raises(MemoryError):
            fetched(connection, sa.text("SELECT id, day FROM t"), frozenset())
        assert not driver.open
        connection.invalidate()


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
def test_a_connection_that_is_ended_within_rows_is_a_lost_one(source: SqlSource, filled: str) -> None:
    with source.engine.connect() as connection:
        own = connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
        slow = sa.text("SELECT id, a, SLEEP(0.001) FROM t ORDER BY id")
        killer = Thread(target=execute, args=(filled, f"KILL {own}"))
        killer.start()
        with pytest.raises(sa.exc.OperationalError) as caught:
            fetched(connection, slow, frozenset())
        killer.join()
        assert caught.value.connection_invalidated
