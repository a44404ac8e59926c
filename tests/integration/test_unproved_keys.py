"""Keys that no constraint proves: rows that have one are never one item that counts as all of them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from migrator.runtime.errors import MappingError
from tests import pins, support_mysql
from tests.journeys.command import Project, project
from tests.language import context
from tests.support_capture import connect, new_sqlite
from tests.support_waiting import until

pytestmark = pytest.mark.slow

HEAD = """\
mapping: 1
table: {name: Twins, key: [PK, SK], type: type, ttl: expiresAt}
entities:
"""
ROWS = [(number, number // 2) for number in range(10)]
"""(id, k): each k twice."""


@dataclass
class Place:
    """One empty database."""

    engine: str
    url: str
    folder: Path
    endpoint: str

    def run(self, *statements: str) -> None:
        with closing(connect(self.engine, self.url)) as connection:
            for statement in statements:
                connection.cursor().execute(statement)

    def rows(self, table: str, rows: Sequence[tuple[Any, ...]] = ROWS) -> None:
        self.run(*(f"INSERT INTO {table} VALUES {row}" for row in rows))

    def job(self, entities: str, tuning: str = "page_rows: 2") -> Project:
        name, text = f"T{secrets.token_hex(6)}", HEAD + entities
        made = project(self.folder, self.url, self.endpoint, name, tuning=tuning, text=text)
        return made.prepared("table create")

    def warnings(self, entities: str) -> list[str]:
        return [str(one) for one in context.checked(self.url, HEAD + entities).warnings]


@pytest.fixture
def postgresql(postgres_database: str, dynamodb_url: str, tmp_path: Path) -> Place:
    return Place("postgresql", postgres_database, tmp_path, dynamodb_url)


@pytest.fixture
def mariadb(mysql_database: str, dynamodb_url: str, tmp_path: Path) -> Place:
    return Place("mariadb", mysql_database, tmp_path, dynamodb_url)


@pytest.fixture
def sqlite(tmp_path: Path, dynamodb_url: str) -> Place:
    return Place("sqlite", new_sqlite(tmp_path / "twins.db"), tmp_path, dynamodb_url)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


def entity(name: str, key: str = "k") -> str:
    return f"  {name}: {{key: [{key}], items: {{T: {{key: ['T#{{{key}}}', M], keep: all}}}}}}\n"


def ends_with_findings(made: Project, keys: int) -> None:
    """Nothing is written, and each key is told with the number of its rows."""
    ended = made.run("backfill", str(made.job), "--yes")
    assert ended.code == 2
    assert pins.said(ended.err, keys=keys)
    assert made.items() == []
    told = made.run("status", "--findings", str(made.job), "--show-keys").out
    assert told.count("2 rows have this key") == keys


def ends_so_again(made: Project) -> None:
    """The same findings once more, and verify does not call it clean."""
    told = made.run("status", "--findings", str(made.job), "--show-keys").out
    again = made.run("backfill", str(made.job), "--yes")
    assert again.code == 2
    assert made.run("status", "--findings", str(made.job), "--show-keys").out == told
    assert made.run("verify", str(made.job)).code == 2


def test_a_table_without_a_key(place: Place) -> None:
    place.run("CREATE TABLE t (id integer, k integer)")
    place.rows("t")
    assert pins.said(place.warnings(entity("t")))
    made = place.job(entity("t"))
    ends_with_findings(made, 5)
    ends_so_again(made)
    place.run("DELETE FROM t WHERE id IN (1, 3, 5, 7, 9)")
    made.done("backfill", str(made.job))
    made.done("verify", str(made.job))


def test_a_view(place: Place) -> None:
    place.run("CREATE TABLE t (id integer PRIMARY KEY, k integer)", "CREATE VIEW v AS SELECT id, k FROM t")
    place.rows("t")
    ends_with_findings(place.job(entity("v")), 5)


def test_a_key_that_holds_is_believed_when_it_was_looked_for(place: Place) -> None:
    place.run("CREATE TABLE t (id integer, k integer)")
    place.rows("t")
    made = place.job(entity("t", "id"))
    made.done("backfill", str(made.job))
    assert len(made.items()) == 10
    place.rows("t", [(3, 3)])
    ended = made.run("verify", str(made.job))
    assert ended.code == 2
    assert pins.said(ended.err)
    place.run("DELETE FROM t WHERE id = 3 AND k = 3")
    assert made.run("verify", str(made.job)).code == 0


def test_a_page_of_first_rows_sees_the_twin_behind_its_end(place: Place) -> None:
    place.run("CREATE TABLE t (id integer, k integer)")
    place.rows("t")
    made = place.job(entity("t"))
    assert made.run("backfill", str(made.job), "--yes", "--limit", "3").code == 2
    assert made.items() == []


def test_a_relay_writes_all_but_twins(place: Place) -> None:
    place.run("CREATE TABLE t (id integer, k integer)")
    place.rows("t", [(1, 1), (2, 2)])
    made = place.job(entity("t"))
    made.prepared("capture install", "backfill")
    place.rows("t", [(3, 2), (4, 4)])
    assert made.run("relay", str(made.job), "--once").code == 1
    assert ids(made) == {1, 2, 4}
    assert pins.said(made.run("status", "--findings", str(made.job)).out)
    place.run("DELETE FROM t WHERE id = 2")
    # A mark that failed comes again after a moment.
    until(lambda: not made.run("relay", str(made.job), "--once").code)
    assert ids(made) == {1, 3, 4}


def ids(made: Project) -> set[Any]:
    return {int(one["id"]) for one in made.items() if "id" in one}  # type: ignore[arg-type]


def test_rows_of_a_table_that_others_inherit_from(postgresql: Place) -> None:
    postgresql.run(
        "CREATE TABLE t (id integer, k integer PRIMARY KEY)",
        "CREATE TABLE heir (PRIMARY KEY (k)) INHERITS (t)",
        *(f"INSERT INTO {table} VALUES ({k}, {k})" for table in ("t", "heir") for k in range(5)),
    )
    plain = "  t: {items: {T: {key: ['T#{k}', M], keep: all}}}\n"
    assert pins.said(postgresql.warnings(plain))
    ends_with_findings(postgresql.job(plain), 5)


def test_an_index_that_is_invalid(postgresql: Place) -> None:
    postgresql.run("CREATE TABLE t (id integer, k integer NOT NULL)")
    postgresql.rows("t")
    with (
        psycopg.connect(postgresql.url, autocommit=True) as connection,
        pytest.raises(psycopg.errors.UniqueViolation),
    ):
        connection.execute("CREATE UNIQUE INDEX CONCURRENTLY one ON t (k)")
    assert pins.said(postgresql.warnings(entity("t")))
    ends_with_findings(postgresql.job(entity("t")), 5)


@pytest.mark.parametrize(
    "made",
    [
        "CREATE UNIQUE INDEX one ON t (k) WHERE id > 100",
        "CREATE UNIQUE INDEX one ON t ((k + id))",
        "CREATE UNIQUE INDEX one ON t (k, id)",
        "ALTER TABLE t ADD UNIQUE (id) DEFERRABLE",
        "CREATE UNIQUE INDEX one ON t (id) INCLUDE (k)",
    ],
)
def test_an_index_with_less_information(postgresql: Place, made: str) -> None:
    postgresql.run("CREATE TABLE t (id integer, k integer NOT NULL)", made)
    assert pins.said(postgresql.warnings(entity("t")))
    is_whole = made.endswith("INCLUDE (k)")
    warned = any(
        "no constraint proves that id identifies" in one for one in postgresql.warnings(entity("t", "id"))
    )
    assert warned != is_whole


def test_index_rebuilt_next_to_an_invalid_one_proves(postgresql: Place) -> None:
    postgresql.run("CREATE TABLE t (id integer, k integer NOT NULL)")
    postgresql.rows("t")
    with (
        psycopg.connect(postgresql.url, autocommit=True) as connection,
        pytest.raises(psycopg.errors.UniqueViolation),
    ):
        connection.execute("CREATE UNIQUE INDEX CONCURRENTLY one ON t (k)")
    postgresql.run("DELETE FROM t WHERE id % 2 = 0", "CREATE UNIQUE INDEX other ON t (k)")
    assert not any("no constraint proves" in one for one in postgresql.warnings(entity("t")))


def test_a_foreign_table(postgresql: Place) -> None:
    place = urlsplit(postgresql.url)
    address = f"host '127.0.0.1', port '{place.port}', dbname '{place.path[1:]}'"
    postgresql.run(
        "CREATE TABLE far (id integer, k integer)",
        "CREATE EXTENSION postgres_fdw",
        f"CREATE SERVER here FOREIGN DATA WRAPPER postgres_fdw OPTIONS ({address})",
        "CREATE USER MAPPING FOR CURRENT_USER SERVER here OPTIONS (password_required 'false')",
        "CREATE FOREIGN TABLE t (id integer, k integer NOT NULL) SERVER here OPTIONS (table_name 'far')",
    )
    postgresql.rows("far", [*ROWS, (10, 9)])
    postgresql.run("INSERT INTO far VALUES (11, NULL)")
    ends_with_findings(postgresql.job(entity("t")), 5)


def test_a_materialised_view(postgresql: Place) -> None:
    postgresql.run("CREATE TABLE t (id integer PRIMARY KEY, k integer)")
    postgresql.rows("t")
    postgresql.run("CREATE MATERIALIZED VIEW m AS SELECT * FROM t")
    ends_with_findings(postgresql.job(entity("m")), 5)


@pytest.mark.mariadb
def test_a_merge_of_tables(mariadb: Place) -> None:
    mariadb.run(
        "CREATE TABLE a (id integer, k integer PRIMARY KEY) ENGINE = MyISAM",
        "CREATE TABLE b LIKE a",
        "CREATE TABLE t (id integer, k integer PRIMARY KEY) ENGINE = MERGE UNION = (a, b)",
        *(f"INSERT INTO {table} VALUES ({k}, {k})" for table in ("a", "b") for k in range(5)),
    )
    plain = "  t: {items: {T: {key: ['T#{k}', M], keep: all}}}\n"
    assert pins.said(mariadb.warnings(plain))
    ends_with_findings(mariadb.job(plain), 5)


def test_a_join_of_a_key_that_is_not_unique(mariadb: Place) -> None:
    """InnoDB lets a foreign key refer to columns of which several rows have the same values; MySQL no longer by default."""
    mariadb.run(
        *(
            []
            if support_mysql.is_mariadb(mariadb.url)
            else ["SET SESSION restrict_fk_on_non_standard_key = OFF"]
        ),
        "CREATE TABLE p (id integer PRIMARY KEY, k integer, KEY (k))",
        "CREATE TABLE c (id integer PRIMARY KEY, k integer, FOREIGN KEY (k) REFERENCES p (k))",
    )
    mapping = "  c: {join: {p: k}, items: {C: {key: ['C#{id}', M], attributes: {p: p.id}}}}\n"
    with pins.refused(MappingError):
        mariadb.warnings(mapping)


def test_a_join_of_a_table_that_others_inherit_from(postgresql: Place) -> None:
    postgresql.run(
        "CREATE TABLE p (id integer PRIMARY KEY)",
        "CREATE TABLE heir (PRIMARY KEY (id)) INHERITS (p)",
        "CREATE TABLE c (id integer PRIMARY KEY, p integer REFERENCES p)",
    )
    mapping = "  c: {join: {up: p}, items: {C: {key: ['C#{id}', M], attributes: {p: up.id}}}}\n"
    with pins.refused(MappingError):
        postgresql.warnings(mapping)


def test_keys_that_the_source_takes_for_one(mariadb: Place) -> None:
    """A view says nothing of a and A, which its collation compares as equal."""
    mariadb.run(
        "CREATE TABLE t (id integer PRIMARY KEY, k varchar(9) COLLATE utf8mb4_general_ci)",
        "CREATE VIEW v AS SELECT * FROM t",
        "INSERT INTO t VALUES (1, 'a'), (2, 'A')",
    )
    ends_with_findings(mariadb.job(entity("v")), 1)


@pytest.mark.mysql
def test_filters_that_a_collation_needs_say_what_they_equal(mariadb: Place) -> None:
    mariadb.run("CREATE TABLE t (code varchar(8) COLLATE utf8mb4_general_ci PRIMARY KEY, k varchar(8))")
    written = "  t: {{items: {{T: {{key: ['T#{{{}|lower|rtrim}}', T]}}}}}}\n"
    proved, unproved = (
        [one for one in mariadb.warnings(written.format(name)) if "proves that this key" in one]
        for name in ("code", "k")
    )
    assert ["lower of code" in one for one in proved] == [True]
    assert ["lower of" in one for one in unproved] == [False]


def test_times_of_two_zones_are_two_keys(postgresql: Place) -> None:
    """Python calls them equal, PostgreSQL does not."""
    postgresql.run("CREATE TABLE t (k timetz PRIMARY KEY)", "INSERT INTO t VALUES ('10:00+02'), ('08:00+00')")
    made = postgresql.job("  t: {items: {T: {key: ['T#{k}', M], keep: all}}}\n", "page_rows: 9")
    made.done("backfill", str(made.job))
    made.done("verify", str(made.job))
    assert len(made.items()) == 2
