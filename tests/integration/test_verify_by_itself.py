"""Verify by another way than the copy: rows that the user does not see, keys that are no keys, and no false alarms."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from migrator.source.engines.connect import source_url
from migrator.source.engines.postgresql import connect
from migrator.source.reader import SqlSource
from migrator.source.sql.server_facts import rows_at_least
from tests import pins
from tests.journeys.command import Project, project
from tests.support_mysql import run_script
from tests.support_source import plan_of

MAPPING = """\
mapping: 1
table: {{name: Rows, key: [PK, SK], type: type, ttl: expiresAt}}
entities:
  thing:
    {entity}
    items:
      Thing: {{key: ["T#{{{key}}}", META], keep: [name, n]}}
"""
Make = Callable[..., Project]


@pytest.fixture
def make(tmp_path: Path, dynamodb_url: str) -> Make:
    """A job for one table, `thing`; its DynamoDB table is there."""

    def made(url: str, entity: str = "table: thing", key: str = "id") -> Project:
        name, text = f"V{secrets.token_hex(4)}", MAPPING.format(entity=entity, key=key)
        found = project(tmp_path, url, dynamodb_url, name, tuning="max_refused: 100", text=text)
        return found.prepared("table create")

    return made


def sql(url: str, text: str) -> None:
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(text)


HALF = """
    CREATE TABLE thing (id int PRIMARY KEY, name text, n int);
    INSERT INTO thing SELECT i, 'name', 1 FROM generate_series(1, 400) AS i;
    ALTER TABLE thing ENABLE ROW LEVEL SECURITY;
    CREATE POLICY half ON thing USING (id <= 200);
    SELECT pg_stat_force_next_flush();
"""


@pytest.fixture
def role(postgres_database: str) -> Iterator[str]:
    """The URL of a user that sees half of the rows of `thing`."""
    name = f"reader_{secrets.token_hex(4)}"
    sql(postgres_database, f"{HALF} CREATE ROLE {name} LOGIN; GRANT SELECT ON thing TO {name}")
    sql(postgres_database, "ANALYZE thing")
    yield make_url(postgres_database).set(username=name, password=None).render_as_string(hide_password=False)
    sql(postgres_database, f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_rows_hidden_from_the_user_are_not_proven(
    make: Make, role: str, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where nothing tells of hidden rows: the guard of every connection is taken away."""
    monkeypatch.delitem(connect._SETTINGS, "row_security")
    monkeypatch.setattr(connect, "_opening", connect._opening.__wrapped__)
    shop = make(role)
    shop.done("backfill", str(shop.job))
    ended = shop.run("verify", str(shop.job))
    assert pins.said(ended.out, "proven")
    assert pins.said(ended.out)
    # Another role sees what the copy did not.
    shop.environment["OTHER_URL"] = postgres_database
    other = shop.run("verify", "--source", "env:OTHER_URL", "--json", str(shop.job))
    assert other.code == 1
    assert other.data["not_proven"] == []
    assert other.data["findings"] == {"missing": 200, "count": 1, "sum": 1}
    assert shop.run("verify", "--source", "env:", str(shop.job)).code == 2


def test_statistics_that_are_stale_are_no_alarm(postgres_database: str) -> None:
    sql(postgres_database, HALF)
    sql(postgres_database, "ANALYZE thing")
    with closing(SqlSource(source_url(postgres_database))) as source:
        table = source.facts().tables["thing"]
        assert source.rows_seen(table).at_least == 300
        sql(postgres_database, "DELETE FROM thing WHERE id > 40; SELECT pg_stat_force_next_flush()")
        seen = source.rows_seen(table)
        assert seen.at_least is None or seen.rows >= seen.at_least
        sql(postgres_database, "TRUNCATE thing")
        assert source.rows_seen(table).at_least is None


@pytest.mark.mariadb
def test_the_statistics_of_mariadb_are_of_whole_tables_alone(mysql_database: str) -> None:
    run_script(
        mysql_database,
        "CREATE TABLE thing (id int PRIMARY KEY);"
        "INSERT INTO thing SELECT seq FROM seq_1_to_4000; ANALYZE TABLE thing;"
        "CREATE VIEW few AS SELECT * FROM thing WHERE id < 10;"
        "CREATE TABLE kept (id int PRIMARY KEY) WITH SYSTEM VERSIONING;"
        "INSERT INTO kept SELECT seq FROM seq_1_to_4000; DELETE FROM kept; ANALYZE TABLE kept",
    )
    with closing(SqlSource(source_url(mysql_database))) as source:
        tables = source.facts().tables
        with source.engine.connect() as connection:
            least = {name: rows_at_least(connection, table) for name, table in tables.items()}
        assert least["few"] is None
        assert least["kept"] is None
        assert 100 < (least["thing"] or 0) <= source.rows_seen(tables["thing"]).rows == 4000


def test_keys_that_are_no_keys_are_a_finding(make: Make, postgres_database: str) -> None:
    """A table with heirs: its primary key is of its own rows alone, and declarations are not believed."""
    sql(
        postgres_database,
        "CREATE TABLE thing (id int PRIMARY KEY, name text, n int); CREATE TABLE heir () INHERITS (thing);"
        "INSERT INTO thing SELECT i, 'a', 1 FROM generate_series(1, 5) AS i; INSERT INTO heir SELECT * FROM thing",
    )
    shop = make(postgres_database)
    for command in ("backfill", "verify"):
        ended = shop.run(command, str(shop.job))
        assert ended.code == 2
        assert pins.said(ended.err)


@pytest.mark.parametrize(
    ("declared", "values", "counts"),
    [
        ("real", "(1.1), (0.1), (16777216), (1e-30)", (4, 4, 4)),
        ("char(4)", "('a'), ('b'), ('A')", (3, 3, 3)),
        ('text COLLATE "any_case"', "('a'), ('b'), ('A')", (3, 2, 3)),
        ("numeric", "(1), (1.0), (2)", (3, 2, 3)),
        ("timestamptz", "('2020-01-01 00:00+00'), ('2020-01-01 01:00+01')", (2, 1, 1)),
        ("bytea", r"('\x00'), ('\x0000')", (2, 2, 2)),
    ],
)
def test_postgresql_compares_keys_as_values_and_as_text(
    postgres_database: str, declared: str, values: str, counts: tuple[int, ...]
) -> None:
    sql(
        postgres_database,
        "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
        f"CREATE TABLE thing (id {declared}); INSERT INTO thing VALUES {values}, (NULL)",
    )
    assert counted(postgres_database) == counts


@pytest.mark.parametrize(
    ("declared", "values", "counts"),
    [
        ("float", "(1.1), (0.1), (16777216), (1.0000001)", (4, 4, 4)),
        ("char(4)", "('a'), ('b'), ('A')", (3, 2, 3)),
        ("varchar(4) COLLATE utf8mb4_bin", "('a'), ('b'), ('A')", (3, 3, 3)),
        ("binary(2)", "(x'80ff'), (x'81ff'), (x'ffff')", (3, 3, 3)),
        ("varbinary(2)", "(x'80'), (x'81'), ('')", (3, 3, 3)),
        ("decimal(20, 2)", "(0.10), (123456789012345678.91), (123456789012345678.92)", (3, 3, 3)),
        ("bit(64)", "(b'0'), (0xffffffffffffffff), (0xfffffffffffffffe)", (3, 3, 3)),
        ("datetime(6)", "('2020-01-01 00:00:00.000001'), ('2020-01-01'), ('0000-00-00')", (3, 3, 3)),
        pytest.param(
            "uuid",
            "('00000000-0000-0000-0000-000000000001'), ('ffffffff-0000-0000-0000-000000000001')",
            (2, 2, 2),
            marks=pytest.mark.mariadb,
        ),
        ("enum('b', 'a')", "('a'), ('b')", (2, 2, 2)),
        ("date", "('0000-00-00'), ('2020-01-01')", (2, 2, 2)),
    ],
)
def test_mariadb_compares_keys_as_values_and_as_text(
    mysql_database: str, declared: str, values: str, counts: tuple[int, ...]
) -> None:
    run_script(
        mysql_database,
        f"SET sql_mode = ''; CREATE TABLE thing (id {declared}); INSERT INTO thing VALUES {values}, (NULL)",
    )
    assert counted(mysql_database) == counts


def counted(url: str) -> tuple[int, int, int]:
    """Rows, keys by value and keys as text of `thing`, its one column taken for a key."""
    with closing(SqlSource(source_url(url))) as source:
        table = source.facts().tables["thing"]
        found = source.key_counts(plan_of(table, key=table.columns))
        return found.rows, found.values, found.texts


# ── false alarms ──


def test_rows_without_a_key_are_reported_once_and_keep_totals(make: Make, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE thing (id TEXT PRIMARY KEY, name TEXT, n INTEGER)")
        database.execute(
            "INSERT INTO thing VALUES ('a', 'x', 1), ('b', 'x', 1), (NULL, 'x', 1), (NULL, 'x', 1)"
        )
        database.commit()
    shop = make(f"sqlite:///{tmp_path}/shop.db")
    shop.run("backfill", str(shop.job))
    told = shop.run("verify", "--json", str(shop.job)).data
    assert told["findings"] == {"refused": 1}
    # They keep no total from being compared.
    assert told["not_compared"] == []


def test_a_zero_date_in_a_key_is_no_null(make: Make, mysql_database: str) -> None:
    run_script(
        mysql_database,
        "SET sql_mode = ''; CREATE TABLE thing (d date NOT NULL, id int NOT NULL, name text, n int, PRIMARY KEY (d, id));"
        "INSERT INTO thing VALUES ('0000-00-00', 1, 'a', 1), ('2020-01-01', 2, 'a', 1);"
        "CREATE TABLE more (id int PRIMARY KEY); INSERT INTO more VALUES (1), (2);"
        "CREATE VIEW seen AS SELECT t.d, m.id, t.name, t.n FROM more m LEFT JOIN thing t ON t.id = m.id",
    )
    with closing(SqlSource(source_url(mysql_database))) as source:
        for table in (source.facts().tables[name] for name in ("thing", "seen")):
            key = tuple(one for one in table.columns if one.name in ("d", "id"))
            assert source.rows_without_key(plan_of(table, key=key)) == 0
    shop = make(mysql_database, key="id")
    shop.done("backfill", str(shop.job))
    ended = shop.run("verify", str(shop.job))
    assert "NULL in their primary key" not in ended.out
    assert ended.code == 0, ended.out


def test_refused_row_of_another_type_is_not_a_wrong_count(make: Make, postgres_database: str) -> None:
    """Its `when` would have left it out: SQL does not count it, and it is not to be taken off."""
    sql(
        postgres_database,
        "CREATE TABLE thing (id int PRIMARY KEY, name text, n text);"
        "INSERT INTO thing VALUES (1, 'a', 'P'), (2, 'a', 'P'), (3, 'b', 'unlisted')",
    )
    shop = make(postgres_database)
    mapping = shop.folder / "mapping.yaml"
    text = mapping.read_text().replace("keep: [name, n]", "when: {name: [a]}")
    text = text.replace("entities:", "maps: {known: {P: pending}}\nentities:")
    mapping.write_text(f'{text}      All: {{key: ["A#{{id}}", META], attributes: {{n: n|map:known}}}}\n')
    shop.run("backfill", str(shop.job))
    told = shop.run("verify", "--json", str(shop.job)).data
    assert told["findings"] == {"refused": 1}
