"""A page of a partitioned table is read from the partitions that its keys are in: real plans of real servers."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise

import pytest

from migrator.model.facts import EntityPlan
from migrator.source.connect import source_url
from migrator.source.reader import SqlSource
from tests.support_mysql import run_script
from tests.support_source import plan_of

ROWS = 4000
DAYS = 40
PAGE_ROWS = 300
PARTS = [("p0", 10), ("p1", 20), ("p2", 30), ("p3", DAYS + 1)]
NUMBERS = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})"
TABLE = (
    "CREATE TABLE seen (day integer NOT NULL, id integer NOT NULL, note varchar(20), PRIMARY KEY (day, id))"
)
FILLED = f"INSERT INTO seen {NUMBERS} SELECT i * {DAYS} / {ROWS}, i, 'x' FROM n"


@pytest.fixture(params=["postgresql", "mariadb"])
def source(request: pytest.FixtureRequest) -> closing[SqlSource]:
    if request.param == "postgresql":
        import psycopg

        url = request.getfixturevalue("postgres_database")
        bounds = zip([0, *(end for _, end in PARTS)], PARTS, strict=False)
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(f"{TABLE} PARTITION BY RANGE (day)".encode())
            for begin, (name, end) in bounds:
                server.execute(
                    f"CREATE TABLE {name} PARTITION OF seen FOR VALUES FROM ({begin}) TO ({end})".encode()
                )
            server.execute(f"{FILLED}; ANALYZE seen".encode())
        return closing(SqlSource(source_url(url)))
    url = request.getfixturevalue("mysql_database")
    parts = ", ".join(f"PARTITION {name} VALUES LESS THAN ({end})" for name, end in PARTS)
    filled = FILLED.replace("/ 4000", "DIV 4000")
    run_script(
        url,
        f"SET max_recursive_iterations = 5000; {TABLE} PARTITION BY RANGE (day) ({parts}); {filled}; ANALYZE TABLE seen",
    )
    return closing(SqlSource(source_url(url)))


def whole_plan(source: SqlSource) -> EntityPlan:
    return plan_of(source.facts().tables["seen"])


def test_the_pages_of_a_partitioned_table_hold_every_row_once(source: closing[SqlSource]) -> None:
    with source as opened:
        plan = whole_plan(opened)
        bounds = [None, *opened.page_bounds(plan, PAGE_ROWS), None]
        pages = [opened.read_page(plan, after, upto) for after, upto in pairwise(bounds)]
    assert [len(page) for page in pages[:-1]] == [PAGE_ROWS] * (len(pages) - 1)
    assert sorted(row[1] for page in pages for row in page) == list(range(1, ROWS + 1))


def test_a_page_is_read_from_the_partitions_of_its_keys_alone(source: closing[SqlSource]) -> None:
    with source as opened:
        plan = whole_plan(opened)
        (explained,) = opened.explain(plan, PAGE_ROWS)
    # The first page ends on the fourth day.
    text = "\n".join(explained.lines)
    assert "p0" in text
    assert [name for name, _ in PARTS[1:] if name in text] == []
