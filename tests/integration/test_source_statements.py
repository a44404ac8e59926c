"""A mapping's statements in the source's own names, on real databases."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from migrator.runtime.errors import SettingsError, SourceError
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests import pins
from tests.support_chinook import golden_runs
from tests.support_source_databases import fill_postgresql, make_sqlite, postgresql_database


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlSource]:
    """The shop of support_source: tables "Purchase Line" and purchase, columns "Id", "Line No" and status."""
    if request.param == "sqlite":
        with opened(make_sqlite(tmp_path_factory.mktemp("statements") / "shop.db")) as source:
            yield source
        return
    with postgresql_database(request.getfixturevalue("postgres_url")) as url:
        fill_postgresql(url)
        with opened(url) as source:
            yield source


def opened(url: str) -> closing[SqlSource]:
    return closing(SqlSource(source_url(url)))


STATEMENTS: list[tuple[str, dict[str, Any], list[tuple[Any, ...]]]] = [
    ("SELECT \"Line No\" FROM \"Purchase Line\" WHERE \"PurchaseId\" = :from ORDER BY \"Line No\" DESC", {"from": 10}, [(3,), (2,), (1,)]),
    ("SELECT \"Id\" FROM purchase WHERE \"Id\" IN :ids ORDER BY \"Id\"", {"ids": [20, 40, 99]}, [(20,), (40,)]),
    ("SELECT \"Id\" FROM purchase WHERE status IN (:s) AND \"Id\" > :n ORDER BY \"Id\"", {"s": ("S", "P"), "n": 10}, [(20,), (50,)]),
    ("SELECT \"Id\" FROM purchase WHERE \"Id\" IN :ids", {"ids": []}, []),
    ("SELECT \"Id\" FROM purchase WHERE paid = :paid ORDER BY \"Id\"", {"paid": False}, [(20,)]),
    ("SELECT \"Id\" FROM purchase WHERE total = :total", {"total": Decimal("10.10")}, [(10,)]),
    ("SELECT \"Id\" FROM purchase WHERE deleted_at > :at", {"at": datetime(2000, 1, 1)}, [(40,)]),
    (
        "SELECT p.\"Id\", (SELECT count(*) FROM \"Purchase Line\" WHERE \"PurchaseId\" = \"Id\") AS n FROM purchase p "
        "WHERE EXISTS (SELECT 1 FROM \"Purchase Line\" l WHERE l.\"PurchaseId\" = p.\"Id\" AND l.\"Line No\" > 1) ORDER BY n, p.\"Id\"",
        {},
        [(50, 2), (10, 3)],
    ),
    (
        "WITH sold AS (SELECT \"PurchaseId\", max(\"Line No\") AS top FROM \"Purchase Line\" GROUP BY \"PurchaseId\") "
        "SELECT purchase.\"Id\", top, ':x', 'a%b' FROM sold JOIN purchase ON purchase.\"Id\" = sold.\"PurchaseId\" "
        "WHERE status LIKE 'P%' ORDER BY top DESC LIMIT :limit -- :nobody; purchase",
        {"limit": 1},
        [(10, 3, ":x", "a%b")],
    ),
    (
        "WITH RECURSIVE up AS (SELECT \"Line No\", \"PurchaseId\" FROM \"Purchase Line\" WHERE \"Line No\" = 1 UNION ALL "
        "SELECT l.\"Line No\", l.\"PurchaseId\" FROM \"Purchase Line\" l JOIN up ON l.\"PurchaseId\" = up.\"PurchaseId\" "
        "AND l.\"Line No\" = up.\"Line No\" + 1) SELECT \"Line No\", count(*) FROM up GROUP BY \"Line No\" ORDER BY 1",
        {},
        [(1, 4), (2, 2), (3, 1)],
    ),
    (
        "SELECT \"PurchaseId\" FROM (SELECT * FROM \"Purchase Line\") x UNION SELECT \"Id\" FROM purchase ORDER BY \"PurchaseId\" DESC LIMIT 2",
        {},
        [(50,), (40,)],
    ),
    (
        "SELECT \"Line No\", row_number() OVER (PARTITION BY \"PurchaseId\" ORDER BY \"Line No\" DESC) AS id FROM \"Purchase Line\" "
        "WHERE \"PurchaseId\" = 10 ORDER BY id",
        {},
        [(3, 1), (2, 2), (1, 3)],
    ),
    ("SELECT \"Id\" FROM purchase WHERE \"Id\" = 10 AND '''; DROP TABLE purchase; --' <> status", {}, [(10,)]),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "params", "rows"), STATEMENTS)
def test_a_statement_in_the_sources_own_names_runs(
    shop: SqlSource, sql: str, params: dict[str, Any], rows: list[tuple[Any, ...]]
) -> None:
    assert shop.query(sql, params) == rows


def test_many_threads_ask_at_once(shop: SqlSource) -> None:
    with ThreadPoolExecutor(4) as threads:
        asked = [
            threads.submit(shop.query, f'SELECT {number}, max("Id") FROM purchase', {})
            for number in range(16)
        ]
    assert [one.result() for one in asked] == [[(number, 50)] for number in range(16)]


def test_statement_other_than_select_never_reaches_the_database(shop: SqlSource) -> None:
    with pins.refused(SettingsError):
        shop.query('SELECT "Id" FROM purchase; DROP TABLE purchase', {})


def test_an_unknown_name_is_the_databases_to_refuse(shop: SqlSource) -> None:
    with pytest.raises(SourceError):
        shop.query("SELECT nothing FROM purchase", {})


def test_a_list_can_be_an_array_of_postgresql(postgres_database: str) -> None:
    with opened(postgres_database) as source:
        assert source.query("SELECT 2 = ANY(:ids)", {"ids": [1, 2]}) == [(True,)]
        moment = datetime(2024, 5, 1, tzinfo=UTC)
        assert source.query("SELECT CAST(:at AS timestamptz)", {"at": moment}) == [(moment,)]


def test_readme_statements_run_on_the_named_chinook(chinook_postgres: str, chinook_dir: Path) -> None:
    with opened(chinook_postgres) as source:
        for one in golden_runs((chinook_dir / "README.md").read_text(encoding="utf-8")):
            assert len(source.query(one.sql, one.values)) == one.rows, (one.pattern, one.params)
