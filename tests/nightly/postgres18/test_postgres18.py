"""What PostgreSQL has from 18 on, on the server that `.ci/engine postgres` starts."""

from __future__ import annotations

import secrets
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from tests.journeys.command import Project, project
from tests.support_services import postgres_version

MAPPING = """\
mapping: 1
table: {{name: New, key: [PK, SK], type: type, ttl: expiresAt}}
entities:
  t: {{items: {{T: {{key: [{key}, M], {kept}}}}}}}
"""


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
    """PRIMARY KEY (…, … WITHOUT OVERLAPS), and a foreign key with PERIOD."""
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


def test_what_a_constraint_does_not_enforce_is_not_taken_as_proven(
    postgres_database: str, tmp_path: Path, dynamodb_url: str
) -> None:
    """A foreign key that is NOT ENFORCED may have no parent."""
    made = moved(
        *(tmp_path, postgres_database, dynamodb_url, "T#{id}"),
        "CREATE TABLE up (id integer PRIMARY KEY)",
        "CREATE TABLE t (id uuid DEFAULT uuidv7() PRIMARY KEY, up integer REFERENCES up NOT ENFORCED,"
        " a integer CHECK (a > 0) NOT ENFORCED)",
        "INSERT INTO t (up, a) VALUES (7, -1), (8, 1)",
    )
    run(postgres_database, "INSERT INTO t (up, a) VALUES (9, -2)", "UPDATE t SET a = -3 WHERE up = 7")
    is_followed(made)


def test_what_returning_gives_of_old_and_new_leaves_its_mark(
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
