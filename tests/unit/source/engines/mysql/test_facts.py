from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlsplit, urlunsplit

import pytest

from migrator.mapping.model.facts import ForeignKey, Kind, SchemaFacts
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests.support_mysql import run_script
from tests.unit.source.engines.test_reflect import check_chinook


def facts_of(url: str, script: str = "") -> SchemaFacts:
    if script:
        run_script(url, script)
    with closing(SqlSource(source_url(url))) as source:
        return source.facts()


def test_columns_have_the_servers_words_and_their_kind(mysql_database: str) -> None:
    script = """
        CREATE TABLE t (id int unsigned PRIMARY KEY, a varchar(7) NOT NULL, b datetime(3), c timestamp NULL,
            d boolean, e enum('x','y(3)') NOT NULL, f numeric(10,2), g point, h int AS (id + 1), i int INVISIBLE)
    """
    facts = facts_of(mysql_database, script)
    assert facts.dialect == "mysql"
    columns = facts.tables["t"].columns
    assert [(column.name, column.kind, column.nullable) for column in columns] == [
        ("id", Kind("integer"), False),
        ("a", Kind("text", length=7), False),
        ("b", Kind("timestamp"), True),
        ("c", Kind("timestamp", zone=True), True),
        ("d", Kind("boolean"), True),
        ("e", Kind("text"), False),
        ("f", Kind("number", scale=2), True),
        ("g", Kind("unknown"), True),
        ("h", Kind("integer"), True),
        ("i", Kind("integer"), True),
    ]
    assert [column.name for column in columns if column.hidden] == ["i"]
    assert [columns[place].declared for place in (5, 6)] == ["enum('x','y(3)')", "decimal(10,2)"]


@pytest.mark.mariadb
def test_json_of_mariadb_is_known_by_its_check(mysql_database: str) -> None:
    script = """
        CREATE TABLE t (id int PRIMARY KEY, a json, "b ""c" json NOT NULL, d longtext CHECK (json_valid(d)),
            e longtext, f longtext CHECK (json_valid(f) AND length(f) > 2), g text DEFAULT 'json_valid(g)')
    """
    kinds = [column.kind.name for column in facts_of(mysql_database, script).tables["t"].columns]
    assert kinds == ["integer", "json", "json", "json", "text", "text", "text"]


def test_keys_are_of_whole_columns(mysql_database: str) -> None:
    script = """
        CREATE TABLE t (a int, b varchar(9), c text, d int, PRIMARY KEY (b, a), UNIQUE (d, a), UNIQUE u2 (b),
            UNIQUE (c(5)), UNIQUE (d, b(3)), UNIQUE u1 (b), KEY (d));
        CREATE TABLE prefixed (a text, PRIMARY KEY (a(5)));
        CREATE TABLE keyless (a int UNIQUE);
    """
    tables = facts_of(mysql_database, script).tables
    assert tables["t"].primary_key == ("b", "a")
    assert set(tables["t"].unique) == {("d", "a"), ("b",)}
    assert len(tables["t"].unique) == 2
    assert tables["prefixed"].primary_key == ("a",)
    assert (tables["keyless"].primary_key, tables["keyless"].unique) == ((), (("a",),))


@pytest.mark.mariadb
def test_a_long_text_may_be_unique(mysql_database: str) -> None:
    table = facts_of(mysql_database, "CREATE TABLE t (a int PRIMARY KEY, b longtext UNIQUE)").tables["t"]
    assert table.unique == (("b",),)


def test_foreign_keys_stay_within_the_database(
    mysql_database: str, new_mysql_database: Callable[[], str]
) -> None:
    other = urlsplit(new_mysql_database()).path[1:]
    script = f"""
        CREATE TABLE "Order Line" ("Id" int, "Part No" int, PRIMARY KEY ("Id", "Part No"));
        CREATE TABLE "ReturnedLine" (id int PRIMARY KEY, line int, part int, parent int REFERENCES "ReturnedLine" (id),
            FOREIGN KEY (line, part) REFERENCES "Order Line" ("Id", "Part No"));
        CREATE TABLE {other}.returned_line (id int PRIMARY KEY);
        CREATE TABLE abroad (id int PRIMARY KEY REFERENCES {other}.returned_line (id));
    """
    tables = facts_of(mysql_database, script).tables
    assert set(tables["ReturnedLine"].foreign_keys) == {
        ForeignKey(("line", "part"), "Order Line", ("Id", "Part No")),
        ForeignKey(("parent",), "ReturnedLine", ("id",)),
    }
    assert tables["ReturnedLine"].schema is None
    assert tables["abroad"].foreign_keys == ()


@pytest.mark.mariadb
def test_facts_include_views_but_not_broken_ones_or_sequences(mysql_database: str) -> None:
    script = """
        CREATE TABLE t (id int PRIMARY KEY, a varchar(5));
        CREATE TABLE gone (a int);
        CREATE VIEW good AS SELECT id, a FROM t;
        CREATE VIEW broken AS SELECT a FROM gone;
        DROP TABLE gone;
        CREATE SEQUENCE numbers;
        CREATE TABLE kept (id int PRIMARY KEY) WITH SYSTEM VERSIONING;
        CREATE TABLE migrator_mark (id int);
    """
    tables = facts_of(mysql_database, script).tables
    assert set(tables) == {"t", "good", "kept"}
    assert tables["good"].primary_key == ()
    assert tables["good"].columns[1].kind == Kind("text", length=5)
    assert len(tables["kept"].columns) == 1


def test_a_user_that_may_only_read_sees_the_same(mysql_database: str) -> None:
    script = """
        CREATE TABLE p (id int PRIMARY KEY, u int UNIQUE);
        CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p (id), j json);
    """
    user, parts = f"migrator_{secrets.token_hex(4)}", urlsplit(mysql_database)
    everything = facts_of(mysql_database, script)
    run_script(
        mysql_database, f"CREATE USER {user} IDENTIFIED BY 'x'; GRANT SELECT ON {parts.path[1:]}.* TO {user}"
    )
    try:
        place = f"{user}:x@{parts.hostname}:{parts.port}"
        assert facts_of(urlunsplit(parts._replace(netloc=place))) == everything
    finally:
        run_script(mysql_database, f"DROP USER {user}")


def test_chinook_in_mariadb_is_understood(chinook_mysql: str) -> None:
    check_chinook(facts_of(chinook_mysql))
