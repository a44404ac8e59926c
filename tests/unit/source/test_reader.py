from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from migrator.mapping.model.table import encode_key
from migrator.runtime.retry import RateLimit
from migrator.source.engines.connect import source_url
from migrator.source.reader import KEYS_A_SELECT, SqlSource
from tests.support_source import LINE, LINES, PAIR, PURCHASE, TABLES, list_of, plan_of, rows_of_the_schema
from tests.support_source_databases import make_sqlite, past_the_gate


@contextmanager
def statements() -> Iterator[list[str]]:
    """The SELECTs that are sent to any database meanwhile."""
    seen: list[str] = []

    def note(*event: Any) -> None:
        if event[2].startswith("SELECT"):
            seen.append(event[2])

    sa.event.listen(Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(Engine, "before_cursor_execute", note)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SqlSource]:
    with closing(SqlSource(source_url(make_sqlite(tmp_path / "shop.db")))) as source:
        yield source


def test_a_limit_bounds_the_collections_as_well(source: SqlSource) -> None:
    plan = plan_of(PURCHASE, ["id"], collections=[list_of("lines", LINE, LINES, ["product"])])
    with statements() as seen:
        source.read_page(plan, None, None, limit=2)
    assert 'root."Id" <= ?' in seen[1]


def test_an_empty_page_asks_for_no_children(source: SqlSource) -> None:
    plan = plan_of(PURCHASE, ["id"], collections=[list_of("lines", LINE, LINES, ["product"])])
    with statements() as seen:
        source.read_page(plan, encode_key([1000]), None)
    assert len(seen) == 1


def test_many_keys_are_requested_in_parts(source: SqlSource) -> None:
    keys = [encode_key(["stranger", number]) for number in range(2 * KEYS_A_SELECT + 1)]
    with statements() as seen:
        source.read_rows(plan_of(PAIR), keys)
    assert len(seen) == 3


def test_statement_parameters_have_the_forms_that_sqlite_stores(source: SqlSource) -> None:
    rows = source.query(
        "SELECT n FROM by_timestamp WHERE k = :k", {"k": rows_of_the_schema()["by_timestamp"][3]["k"]}
    )
    assert rows == [(3,)]
    assert source.query('SELECT "Id" FROM purchase WHERE total > :t', {"t": Decimal("50.5")}) == [(40,)]


def test_settings_of_a_database_change_no_key_and_no_type(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as server:
        name = server.info.dbname
        server.execute(f"ALTER DATABASE {name} SET timezone = 'Asia/Tokyo'".encode())
        server.execute(f"ALTER DATABASE {name} SET datestyle = 'German'".encode())
        server.execute(f"ALTER DATABASE {name} SET quote_all_identifiers = on".encode())
        server.execute("CREATE TABLE by_zoned (k timestamptz PRIMARY KEY, n bigint, t text[])")
        server.execute("INSERT INTO by_zoned VALUES ('2024-05-01 12:00+00', 1), ('2024-05-02 12:00+00', 2)")
    with closing(SqlSource(source_url(postgres_database))) as source:
        bounds = list(source.page_bounds(plan_of(TABLES["by_zoned"]), 1))
        (table,) = source.facts().tables.values()
        assert [column.kind.name for column in table.columns] == ["timestamp", "integer", "list"]
    assert bounds == ['["2024-05-01 12:00:00+00:00"]', '["2024-05-02 12:00:00+00:00"]']


def test_json_is_the_text_of_the_document(postgres_database: str) -> None:
    with closing(SqlSource(source_url(postgres_database))) as source:
        rows = source.query("""SELECT '{"a": 1.10}'::jsonb, '[0.1]'::json""", {})
    assert rows == [('{"a": 1.10}', "[0.1]")]


def test_a_connection_names_itself(postgres_database: str) -> None:
    with closing(SqlSource(source_url(postgres_database))) as source:
        assert past_the_gate(source, "SHOW application_name") == [("migrator",)]
        assert past_the_gate(source, "SHOW transaction_isolation") == [("repeatable read",)]
        assert past_the_gate(source, "SHOW transaction_read_only") == [("on",)]


def test_rows_of_a_query_are_waited_for_like_those_of_pages(tmp_path: Path) -> None:
    naps: list[float] = []
    pace = RateLimit(10, clock=lambda: sum(naps), sleep=naps.append)
    with closing(SqlSource(source_url(make_sqlite(tmp_path / "shop.db")), pace=pace)) as source:
        for _ in range(3):
            source.query(
                "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20) SELECT i FROM n",
                {},
            )
    assert sum(naps) == pytest.approx(
        4, abs=0.3
    )  # the third has to wait for the forty rows of the two before
