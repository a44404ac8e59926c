"""A mapping's statements in written names, on real databases whose names are other ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from migrator.errors import SettingsError, SourceError
from migrator.source import SqlSource, source_url
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
    return closing(SqlSource(source_url(url), names="snake_case"))


STATEMENTS: list[tuple[str, dict[str, Any], list[tuple[Any, ...]]]] = [
    ("SELECT line_no FROM purchase_line WHERE purchase_id = :from ORDER BY line_no DESC", {"from": 10}, [(3,), (2,), (1,)]),
    ("SELECT id FROM purchase WHERE id IN :ids ORDER BY id", {"ids": [20, 40, 99]}, [(20,), (40,)]),
    ("SELECT id FROM purchase WHERE status IN (:s) AND id > :n ORDER BY id", {"s": ("S", "P"), "n": 10}, [(20,), (50,)]),
    ("SELECT id FROM purchase WHERE id IN :ids", {"ids": []}, []),
    ("SELECT id FROM purchase WHERE paid = :paid ORDER BY id", {"paid": False}, [(20,)]),
    ("SELECT id FROM purchase WHERE total = :total", {"total": Decimal("10.10")}, [(10,)]),
    ("SELECT id FROM purchase WHERE deleted_at > :at", {"at": datetime(2000, 1, 1)}, [(40,)]),
    (
        "SELECT p.id, (SELECT count(*) FROM purchase_line WHERE purchase_id = id) AS n FROM purchase p "
        "WHERE EXISTS (SELECT 1 FROM purchase_line l WHERE l.purchase_id = p.id AND l.line_no > 1) ORDER BY n, p.id",
        {},
        [(50, 2), (10, 3)],
    ),
    (
        "WITH sold AS (SELECT purchase_id, max(line_no) AS top FROM purchase_line GROUP BY purchase_id) "
        "SELECT purchase.id, top, ':x', 'a%b' FROM sold JOIN purchase ON purchase.id = sold.purchase_id "
        "WHERE status LIKE 'P%' ORDER BY top DESC LIMIT :limit -- :nobody; purchase",
        {"limit": 1},
        [(10, 3, ":x", "a%b")],
    ),
    (
        "WITH RECURSIVE up AS (SELECT line_no, purchase_id FROM purchase_line WHERE line_no = 1 UNION ALL "
        "SELECT l.line_no, l.purchase_id FROM purchase_line l JOIN up ON l.purchase_id = up.purchase_id "
        "AND l.line_no = up.line_no + 1) SELECT line_no, count(*) FROM up GROUP BY line_no ORDER BY 1",
        {},
        [(1, 4), (2, 2), (3, 1)],
    ),
    (
        "SELECT purchase_id FROM (SELECT * FROM purchase_line) x UNION SELECT id FROM purchase ORDER BY purchase_id DESC LIMIT 2",
        {},
        [(50,), (40,)],
    ),
    (
        "SELECT line_no, row_number() OVER (PARTITION BY purchase_id ORDER BY line_no DESC) AS id FROM purchase_line "
        "WHERE purchase_id = 10 ORDER BY id",
        {},
        [(3, 1), (2, 2), (1, 3)],
    ),
    ("SELECT id FROM purchase WHERE id = 10 AND '''; DROP TABLE purchase; --' <> status", {}, [(10,)]),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "params", "rows"), STATEMENTS)
def test_a_statement_in_written_names_runs(
    shop: SqlSource, sql: str, params: dict[str, Any], rows: list[tuple[Any, ...]]
) -> None:
    assert shop.query(sql, params) == rows


def test_many_threads_ask_at_once(shop: SqlSource) -> None:
    with ThreadPoolExecutor(4) as threads:
        asked = [
            threads.submit(shop.query, f"SELECT {number}, max(id) FROM purchase", {}) for number in range(16)
        ]
    assert [one.result() for one in asked] == [[(number, 50)] for number in range(16)]


def test_what_is_no_select_never_reaches_the_database(shop: SqlSource) -> None:
    with pytest.raises(SettingsError, match="second statement"):
        shop.query("SELECT id FROM purchase; DROP TABLE purchase", {})


def test_an_unknown_name_is_the_databases_to_refuse(shop: SqlSource) -> None:
    with pytest.raises(SourceError):
        shop.query("SELECT nothing FROM purchase", {})


def test_a_list_can_be_an_array_of_postgresql(postgres_database: str) -> None:
    with opened(postgres_database) as source:
        assert source.query("SELECT 2 = ANY(:ids)", {"ids": [1, 2]}) == [(True,)]
        moment = datetime(2024, 5, 1, tzinfo=UTC)
        assert source.query("SELECT CAST(:at AS timestamptz)", {"at": moment}) == [(moment,)]


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_the_readmes_own_statements_run_on_every_chinook(
    engine: str, request: pytest.FixtureRequest, chinook_dir: Path, tmp_path: Path
) -> None:
    """Written with PostgreSQL's names; SQLite has TrackId and InvoiceLine."""
    if engine == "sqlite":
        shutil.copyfile(chinook_dir / "Chinook_Sqlite.sqlite", tmp_path / "chinook.db")
        url = f"sqlite:///{tmp_path / 'chinook.db'}"
    else:
        url = request.getfixturevalue("chinook_postgres")
    with opened(url) as source:
        for one in golden_runs((chinook_dir / "README.md").read_text(encoding="utf-8")):
            assert len(source.query(one.sql, one.values)) == one.rows, (one.pattern, one.params)
