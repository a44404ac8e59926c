from __future__ import annotations

import pytest

from migrator.mapping.model.facts import Column, Kind, TableFacts
from migrator.runtime.errors import SettingsError
from migrator.source.sql.statements import checked_statement, row_expression
from tests import pins

DIALECTS = ["sqlite", "postgresql", "mysql"]


def said(sql: str, dialect: str = "postgresql", schema: str | None = None) -> str:
    return checked_statement(sql, dialect, schema).sql


# {} is where the schema's name goes.
CASES = {
    "aliases, and a table's name before its columns": (
        "SELECT track.name AS total, t.* FROM {}track, {}track AS t ORDER BY total DESC, lower(total)"
    ),
    "joins, also in parentheses": (
        "SELECT t.name FROM {}track t LEFT JOIN ({}album a JOIN {}plain ON a.title = plain.name) ON a.id = t.id "
        "JOIN {}line USING (id)"
    ),
    "subqueries": (
        "SELECT (SELECT count(*) FROM {}line l WHERE l.id = track.id) FROM {}track WHERE EXISTS "
        "(SELECT 1 FROM {}line) AND id IN (SELECT id FROM {}album) UNION SELECT x.a FROM (SELECT a FROM {}plain) x"
    ),
    "a CTE is no table": (
        "WITH top AS (SELECT id FROM {}line) SELECT name FROM top JOIN {}track t ON t.id = top.id, "
        "(SELECT id FROM TOP) x ORDER BY name LIMIT :n"
    ),
    "a CTE sees those before it, not itself": (
        "WITH a AS (SELECT 1 FROM {}a), b AS (SELECT 1 FROM a, {}c), c AS (SELECT 1 FROM a, b) SELECT 1 FROM c"
    ),
    "a recursive CTE sees itself": (
        "WITH RECURSIVE boss AS (SELECT id, 1 AS level FROM {}employee UNION ALL SELECT e.id, level + 1 "
        "FROM {}employee e JOIN boss ON e.reports_to = boss.id) SELECT id FROM boss"
    ),
    "a CTE of a subquery ends with it": (
        "SELECT 1 FROM (WITH x AS (SELECT 1 FROM {}track) SELECT * FROM x) y, {}x"
    ),
    "a quoted name, strings, comments, lines and unusual letters": (
        "SELECT '😀 track', \"track\".a\n\tFROM\r\n {}\"track\" -- track; :from\nWHERE a = '🎵 é' /* FROM track */ ;\n"
    ),
    "parameters may be called like keywords": (
        "SELECT id FROM {}plain WHERE id >= :from AND id < :to AND name IN :select ORDER BY id LIMIT :limit"
    ),
    "another schema's table, and the database's own": (
        "SELECT 1 FROM other.plain p, pg_class, sqlite_schema, {}nobody"
    ),
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("what", CASES)
def test_tables_without_a_schema_get_it_and_all_else_stays(what: str, dialect: str) -> None:
    plain = CASES[what].replace("{}", "")
    quote = "`" if dialect == "mysql" else '"'
    assert said(plain, dialect, "app") == CASES[what].replace("{}", "app.")
    assert said(plain, dialect, "My app") == CASES[what].replace("{}", f"{quote}My app{quote}.")
    assert said(plain, dialect) == plain


@pytest.mark.parametrize(
    ("dialect", "written"),
    [
        ("postgresql", "SELECT name::text FROM {}track WHERE id = ANY(:ids) AND n = :a::int"),
        ("postgresql", "SELECT name->>'track' , $$ FROM track :x $$ FROM {}track"),
        ("postgresql", 'SELECT "TrackId" AS "track_id" FROM {}"Track"'),
        (
            "postgresql",
            "SELECT l.n FROM {}track t, LATERAL (SELECT count(*) n FROM {}line WHERE id = t.id) l",
        ),
        ("postgresql", "SELECT g FROM generate_series(1, 3) g, {}plain"),
        ("sqlite", "SELECT rowid, [name], `total` FROM main.track, {}[track]"),
        ("sqlite", "WITH x AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM x) SELECT a FROM x"),
        ("mysql", "SELECT \"name\", 'it\\'s :x' FROM {}`track` # FROM name"),
    ],
)
def test_each_dialect_has_its_own_words(dialect: str, written: str) -> None:
    plain = written.replace("{}", "")
    assert said(plain, dialect, "app") == written.replace("{}", "app.")
    assert said(plain, dialect) == plain


@pytest.mark.parametrize("schema", [None, "app"])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1; SELECT 2",
        "SELECT 1;\n;DROP TABLE track",
        "DELETE FROM track",
        "EXPLAIN SELECT 1",
        "VALUES (1)",
        "WITH x AS (SELECT 1) DELETE FROM track",
        "SELECT a,\n FROM WHERE",
        "SELECT 'open\n FROM track",
        "SELECT (1",
        "",
        " -- nothing\n",
    ],
    ids=[
        "line-second",
        "second-statement",
        "case",
        "case-explain",
        "case-values",
        "write",
        "line-column",
        "read",
        "read-2",
        "empty",
        "empty-nothing",
    ],
)
def test_anything_but_one_select_is_refused(schema: str | None, dialect: str, sql: str) -> None:
    with pytest.raises(SettingsError) as caught:
        said(sql, dialect, schema)
    assert pins.said(str(caught.value))
    assert "track" not in str(caught.value)


@pytest.mark.parametrize("schema", [None, "app"])
@pytest.mark.parametrize(
    "sql", ["WITH x AS (DELETE FROM track RETURNING *) SELECT * FROM x", "SELECT 1 INTO y FROM track"]
)
def test_a_select_that_writes_is_refused(schema: str | None, sql: str) -> None:
    with pins.refused(SettingsError):
        said(sql, "postgresql", schema)


@pytest.mark.parametrize("schema", [None, "app"])
def test_nesting_without_end_is_refused(schema: str | None) -> None:
    with pins.refused(SettingsError):
        said("SELECT " + "(" * 20_000 + "1" + ")" * 20_000, "postgresql", schema)


TRACK = TableFacts(
    "track",
    "Track",
    tuple(
        Column(name, real, Kind("integer")) for name, real in [("album_id", "AlbumId"), ("total", "total")]
    ),
)


@pytest.mark.parametrize(
    ("dialect", "written", "placed"),
    [
        ("sqlite", 'total - "AlbumId"', 'root.total - root."AlbumId"'),
        ("sqlite", "TOTAL - AlbumId", "root.TOTAL - root.AlbumId"),
        (
            "mysql",
            "CASE WHEN `AlbumId` = 'total' THEN 1 ELSE total END",
            "CASE WHEN root.`AlbumId` = 'total' THEN 1 ELSE root.total END",
        ),
        ("postgresql", "lower(total) || ' -- ; :x'", "lower(root.total) || ' -- ; :x'"),
        ("postgresql", "total::int", "root.total::int"),
        ("postgresql", "album_id + nobody + 1", "album_id + nobody + 1"),
        ("postgresql", "CURRENT_DATE", "CURRENT_DATE"),
    ],
)
def test_expression_stays_and_names_its_columns(dialect: str, written: str, placed: str) -> None:
    assert row_expression(written, TRACK, dialect) == written
    assert row_expression(written, TRACK, dialect, alias="root") == placed


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql", "mysql"])
@pytest.mark.parametrize(
    "sql",
    [
        "1; DROP TABLE track",
        "total;",
        "total) , (name",
        "total, name",
        "(total, name)",
        "total AS x",
        "total x",
        "total FROM track",
        "total -- ",
        "total /* x */",
        "/* x",
        "SELECT 1",
        "(SELECT 1)",
        "EXISTS (SELECT 1)",
        "sum(total)",
        "row_number() OVER ()",
        "*",
        "track.*",
        "track.total",
        ":x",
        "?",
        "",
        "'open",
        "DROP TABLE track",
        "DISTINCT total",
        "total INTO x",
        "total LIMIT 1",
        "total UNION SELECT 1",
        "1 OR 1=1) --",
    ],
)
def test_only_one_value_of_one_row_is_an_expression(sql: str, dialect: str) -> None:
    with pytest.raises(SettingsError):
        row_expression(sql, TRACK, dialect)
