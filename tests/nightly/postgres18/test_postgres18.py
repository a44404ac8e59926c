"""What PostgreSQL has from 18 on, on the server that `.ci/engine postgres` starts."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests.journeys.command import Project, project
from tests.journeys.test_rows_come_back import emptied, filled, made_direct, rows
from tests.support_services import postgres_version

MAPPING = """\
mapping: 1
table: {{name: New, key: [PK, SK], type: type, ttl: expiresAt}}
entities:
  t: {{items: {{T: {{key: [{key}, M], {kept}}}}}}}
"""
PARENTS = {"up": '"U#{id}"', "spell": '"S#{id}#{valid}"'}


def test_the_version_is_the_one_that_is_documented(postgres_url: str) -> None:
    assert (postgres_version(postgres_url) or "").startswith("18.")


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def moved(folder: Path, url: str, endpoint: str, key: str, *tables: str, kept: str = "keep: all") -> Project:
    """Captured and filled."""
    run(url, *tables)
    text = MAPPING.format(key=f'"{key}"', kept=kept)
    made = project(folder, url, endpoint, f"T{secrets.token_hex(4)}", text=text)
    return made.prepared("table create", "capture install", "backfill")


def is_followed(made: Project) -> None:
    made.done("relay", "--once", str(made.job))
    made.done("verify", str(made.job), "--settle", "0")


@pytest.mark.parametrize("kept", ["keep: all", "keep: [v]"])
@pytest.mark.parametrize("key", ["T#{id}", "T#{v}#{id}"])
def test_a_virtual_generated_column_is_followed(
    postgres_database: str, tmp_path: Path, dynamodb_url: str, key: str, kept: str
) -> None:
    """Triggers do not compute such columns."""
    made = moved(
        *(tmp_path, postgres_database, dynamodb_url, key),
        "CREATE TABLE t (id integer PRIMARY KEY, a integer, v integer GENERATED ALWAYS AS (a * 2) VIRTUAL)",
        "INSERT INTO t SELECT n, n FROM generate_series(1, 20) n",
        kept=kept,
    )
    run(
        postgres_database,
        "UPDATE t SET a = a + 1 WHERE id % 2 = 0",
        "DELETE FROM t WHERE id = 3",
        "INSERT INTO t VALUES (30, 7)",
    )
    is_followed(made)
    run(postgres_database, "TRUNCATE t")
    is_followed(made)


def test_a_key_over_time_is_a_key(postgres_database: str, tmp_path: Path, dynamodb_url: str) -> None:
    """PRIMARY KEY (…, … WITHOUT OVERLAPS)."""
    made = moved(
        *(tmp_path, postgres_database, dynamodb_url, "T#{id}#{valid}"),
        "CREATE EXTENSION btree_gist",
        "CREATE TABLE t (id integer, valid daterange, a integer, PRIMARY KEY (id, valid WITHOUT OVERLAPS))",
        "INSERT INTO t SELECT n, daterange('2026-01-01', '2026-02-01'), n FROM generate_series(1, 9) n",
    )
    run(
        postgres_database,
        "UPDATE t SET a = 0 WHERE id = 1",
        "UPDATE t SET valid = daterange('2026-03-01', '2026-04-01') WHERE id = 2",
        "INSERT INTO t VALUES (3, daterange('2026-02-01', '2026-03-01'), 4)",
    )
    is_followed(made)


def test_constraint_not_holding_for_every_row_proves_nothing(postgres_database: str) -> None:
    """NOT ENFORCED; a PERIOD, which a parent's covers and does not equal; NOT NULL for new rows alone."""
    run(
        postgres_database,
        "CREATE EXTENSION btree_gist",
        "CREATE TABLE up (id integer PRIMARY KEY)",
        "CREATE TABLE spell (id integer, valid daterange, PRIMARY KEY (id, valid WITHOUT OVERLAPS))",
        "CREATE TABLE t (id integer PRIMARY KEY, a integer REFERENCES up NOT ENFORCED, b integer, valid daterange,"
        " c integer NOT NULL REFERENCES up, FOREIGN KEY (b, PERIOD valid) REFERENCES spell (id, PERIOD valid))",
        "ALTER TABLE t ADD CONSTRAINT b NOT NULL b NOT VALID",
    )
    with closing(SqlSource(source_url(postgres_database))) as source:
        table = source.facts().tables["t"]
    assert [key.columns for key in table.foreign_keys] == [("c",)]
    assert [column.name for column in table.columns if not column.nullable] == ["id", "c"]


def test_rows_without_an_unenforced_parent_are_followed(
    postgres_database: str, tmp_path: Path, dynamodb_url: str
) -> None:
    """Of a key that is NOT ENFORCED, and of one with PERIOD; named by uuidv7."""
    run(
        postgres_database,
        "CREATE EXTENSION btree_gist",
        "CREATE TABLE up (id integer PRIMARY KEY)",
        "CREATE TABLE spell (id integer, valid daterange, PRIMARY KEY (id, valid WITHOUT OVERLAPS))",
        "INSERT INTO spell VALUES (1, '[2026-01-01,2027-01-01)')",
        "CREATE TABLE t (id uuid DEFAULT uuidv7() PRIMARY KEY, up integer NOT NULL REFERENCES up NOT ENFORCED,"
        " a integer CHECK (a > 0) NOT ENFORCED, b integer NOT NULL DEFAULT 1, valid daterange NOT NULL DEFAULT '[2026-02-01,2026-03-01)',"
        " FOREIGN KEY (b, PERIOD valid) REFERENCES spell (id, PERIOD valid))",
        "INSERT INTO t (up, a) VALUES (7, -1), (8, 1)",
    )
    parents = "".join(
        f"  {one}: {{items: {{{one.title()}: {{key: [{key}, M], keep: all}}}}}}\n"
        for one, key in PARENTS.items()
    )
    (tmp_path / "new.yaml").write_text(MAPPING.format(key='"T#{id}"', kept="keep: all") + parents)
    made = filled(tmp_path, tmp_path / "new.yaml", postgres_database, dynamodb_url)
    run(postgres_database, "INSERT INTO t (up, a) VALUES (9, -2)", "UPDATE t SET a = -3 WHERE up = 7")
    is_followed(made)
    before = rows(made, ["t"])
    made_direct(made)
    made.done("reverse", "start", str(made.job), "--once", "--settle", "0s")
    emptied(made, ["t"])
    made.done("reverse", "verify", str(made.job), "--repair", "--settle", "0s")
    assert rows(made, ["t"]) == before


def test_statistics_of_a_parent_alone_do_not_count_its_rows(postgres_database: str) -> None:
    """ANALYZE ONLY, and statistics that a restore brought."""
    run(
        postgres_database,
        "CREATE TABLE t (id integer, day integer, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (50)",
        "CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (50) TO (100)",
        "INSERT INTO t SELECT n, n % 100 FROM generate_series(1, 1000) n",
        "ANALYZE ONLY t",
    )
    with closing(SqlSource(source_url(postgres_database))) as source:
        table = source.facts().tables["t"]
        assert source.rows_seen(table).at_least is None
        run(
            postgres_database,
            "SELECT pg_restore_relation_stats('schemaname', 'public', 'relname', 't', 'reltuples', 9e9::real)",
        )
        assert source.rows_seen(table).at_least is None
        run(postgres_database, "ANALYZE t")
        seen = source.rows_seen(table)
    assert (seen.at_least, seen.rows) == (750, 1000)


def test_returning_old_and_new_leaves_its_mark(
    postgres_database: str, tmp_path: Path, dynamodb_url: str
) -> None:
    made = moved(
        *(tmp_path, postgres_database, dynamodb_url, "T#{id}"),
        "CREATE TABLE t (id integer PRIMARY KEY, a integer)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
    )
    engine = sa.create_engine(postgres_database.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        returned = connection.execute(sa.text("UPDATE t SET a = a + 5 RETURNING old.a, new.a")).all()
    engine.dispose()
    assert sorted(map(tuple, returned)) == [(1, 6), (2, 7)]
    is_followed(made)
