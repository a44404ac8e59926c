from __future__ import annotations

import pytest

from migrator.errors import SettingsError
from migrator.facts import Column, Kind, SchemaFacts, TableFacts
from migrator.source.names import snake_case
from migrator.source.statements import Statements, translated

DIALECTS = ["sqlite", "postgresql", "mysql"]


def table(real: str, *columns: str, schema: str | None = None) -> TableFacts:
    facts = tuple(Column(snake_case(name), name, Kind("integer")) for name in columns)
    return TableFacts(snake_case(real), real, facts, schema=schema)


TABLES = [
    table("Track", "TrackId", "Name", "AlbumId", "Total"),
    table("InvoiceLine", "InvoiceLineId", "TrackId", "Quantity"),
    table("Album", "AlbumId", "Title"),
    table("Employee", "EmployeeId", "ReportsTo"),
    table("plain", "id", "name", "user"),
    table("Order Line", "Id", 'A"b`c'),
]


def facts(dialect: str) -> SchemaFacts:
    return SchemaFacts(dialect, {one.name: one for one in TABLES}, loosely_typed=dialect == "sqlite")


def said(sql: str, dialect: str = "postgresql", schema: str | None = None) -> str:
    return translated(sql, facts(dialect), schema).sql


# Written names on the left; on the right each real name in «».
CASES = {
    "a column of the list keeps its written name": (
        "SELECT track_id, t.name FROM track t",
        "SELECT «TrackId» AS track_id, t.«Name» AS name FROM «Track» t",
    ),
    "an alias stays, also in ORDER BY": (
        "SELECT t.name AS total FROM track AS t ORDER BY total DESC, lower(total)",
        "SELECT t.«Name» AS total FROM «Track» AS t ORDER BY total DESC, lower(«Total»)",
    ),
    "a table without an alias is called by its real name": (
        "SELECT track.* FROM track JOIN album ON track.album_id = album.album_id",
        "SELECT «Track».* FROM «Track» JOIN «Album» ON «Track».«AlbumId» = «Album».«AlbumId»",
    ),
    "stars and counts": (
        "SELECT *, COUNT(*), count(DISTINCT name) FROM track",
        "SELECT *, COUNT(*), count(DISTINCT «Name») FROM «Track»",
    ),
    "a window": (
        "SELECT row_number() OVER (PARTITION BY album_id ORDER BY name) AS n, sum(total) OVER w FROM track "
        "WINDOW w AS (ORDER BY total)",
        "SELECT row_number() OVER (PARTITION BY «AlbumId» ORDER BY «Name») AS n, sum(«Total») OVER w FROM «Track» "
        "WINDOW w AS (ORDER BY «Total»)",
    ),
    "a correlated subquery: the inner table first, then outward": (
        "SELECT name FROM track WHERE EXISTS (SELECT 1 FROM invoice_line WHERE track_id = track.track_id AND total > 1)",
        "SELECT «Name» AS name FROM «Track» WHERE EXISTS "
        "(SELECT 1 FROM «InvoiceLine» WHERE «TrackId» = «Track».«TrackId» AND «Total» > 1)",
    ),
    "two subqueries with the same columns": (
        "SELECT a.track_id FROM (SELECT track_id FROM track) a, (SELECT track_id FROM invoice_line) b "
        "WHERE a.track_id = b.track_id",
        "SELECT a.track_id FROM (SELECT «TrackId» AS track_id FROM «Track») a, "
        "(SELECT «TrackId» AS track_id FROM «InvoiceLine») b WHERE a.track_id = b.track_id",
    ),
    "a subquery's star gives real names": (
        "SELECT x.name FROM (SELECT * FROM track) x WHERE track_id = 1",
        "SELECT x.«Name» AS name FROM (SELECT * FROM «Track») x WHERE «TrackId» = 1",
    ),
    "a CTE and its columns": (
        "WITH top AS (SELECT track_id, sum(quantity) AS units FROM invoice_line GROUP BY track_id) "
        "SELECT name, units FROM top JOIN track t ON t.track_id = top.track_id ORDER BY units DESC LIMIT :n",
        "WITH top AS (SELECT «TrackId» AS track_id, sum(«Quantity») AS units FROM «InvoiceLine» GROUP BY «TrackId») "
        "SELECT «Name» AS name, units FROM top JOIN «Track» t ON t.«TrackId» = top.track_id ORDER BY units DESC LIMIT :n",
    ),
    "a CTE's list of columns": (
        "WITH x (track_id, b) AS (SELECT * FROM track) SELECT track_id, b, album_id FROM x",
        "WITH x (track_id, b) AS (SELECT * FROM «Track») SELECT track_id, b, «AlbumId» AS album_id FROM x",
    ),
    "a recursive CTE": (
        "WITH RECURSIVE boss AS (SELECT employee_id, 1 AS level FROM employee WHERE reports_to IS NULL UNION ALL "
        "SELECT e.employee_id, level + 1 FROM employee e JOIN boss ON e.reports_to = boss.employee_id) "
        "SELECT employee_id FROM boss ORDER BY level",
        "WITH RECURSIVE boss AS (SELECT «EmployeeId» AS employee_id, 1 AS level FROM «Employee» "
        "WHERE «ReportsTo» IS NULL UNION ALL SELECT e.«EmployeeId» AS employee_id, level + 1 FROM «Employee» e "
        "JOIN boss ON e.«ReportsTo» = boss.employee_id) SELECT employee_id FROM boss ORDER BY level",
    ),
    "a UNION is ordered by the names of its first SELECT": (
        "SELECT name FROM track UNION SELECT title FROM album ORDER BY name LIMIT 3",
        "SELECT «Name» AS name FROM «Track» UNION SELECT «Title» AS title FROM «Album» ORDER BY name LIMIT 3",
    ),
    "USING": (
        "SELECT track_id FROM track JOIN invoice_line USING (track_id) WHERE track_id > 1",
        "SELECT «TrackId» AS track_id FROM «Track» JOIN «InvoiceLine» USING («TrackId») WHERE «TrackId» > 1",
    ),
    "joins in parentheses": (
        "SELECT t.name FROM track t LEFT JOIN (album a JOIN plain ON a.title = plain.name) ON a.album_id = t.album_id",
        "SELECT t.«Name» AS name FROM «Track» t LEFT JOIN («Album» a JOIN plain ON a.«Title» = plain.name) "
        "ON a.«AlbumId» = t.«AlbumId»",
    ),
    "grouping": (
        "SELECT album_id, max(total) m FROM track GROUP BY album_id HAVING max(total) > 1 ORDER BY m, album_id",
        "SELECT «AlbumId» AS album_id, max(«Total») m FROM «Track» GROUP BY «AlbumId» "
        "HAVING max(«Total») > 1 ORDER BY m, «AlbumId»",
    ),
    "parameters may be called like keywords": (
        "SELECT id FROM plain WHERE id >= :from AND id < :to AND name IN :select ORDER BY id LIMIT :limit",
        "SELECT id FROM plain WHERE id >= :from AND id < :to AND name IN :select ORDER BY id LIMIT :limit",
    ),
    "strings and comments stay": (
        "SELECT 'track_id '':x; -- ' || name /* track ; ':from */ FROM track -- track_id; DROP TABLE track",
        "SELECT 'track_id '':x; -- ' || «Name» /* track ; ':from */ FROM «Track» -- track_id; DROP TABLE track",
    ),
    "spaces, lines and unusual letters keep their places": (
        "SELECT '😀', name\n\tFROM\r\n track\nWHERE name = '🎵 é' AND track_id = 1 ;\n",
        "SELECT '😀', «Name» AS name\n\tFROM\r\n «Track»\nWHERE «Name» = '🎵 é' AND «TrackId» = 1 ;\n",
    ),
    "other letter case": (
        "select TRACK_ID from Track t where T.Name = 1",
        "select «TrackId» AS TRACK_ID from «Track» t where T.«Name» = 1",
    ),
    "unknown names are the database's to refuse": (
        "SELECT nothing, t.nobody, u.x FROM track t, elsewhere u WHERE name = 1",
        "SELECT nothing, t.nobody, u.x FROM «Track» t, elsewhere u WHERE «Name» = 1",
    ),
    "a name that two tables have otherwise is left ambiguous": (
        "SELECT name FROM track, plain",
        "SELECT name FROM «Track», plain",
    ),
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("what", CASES)
def test_names_become_the_sources_own(what: str, dialect: str) -> None:
    written, real = CASES[what]
    quote = "`" if dialect == "mysql" else '"'
    assert said(written, dialect) == real.replace("«", quote).replace("»", quote)


@pytest.mark.parametrize(
    ("dialect", "written", "real"),
    [
        ("postgresql", "SELECT name::text FROM track", 'SELECT "Name"::text FROM "Track"'),
        ("postgresql", "SELECT id FROM plain WHERE name::int = :a::int", None),
        ("postgresql", "SELECT name->>'track_id' FROM track", """SELECT "Name"->>'track_id' FROM "Track\""""),
        ("postgresql", "SELECT $$ track :x $$ FROM track", 'SELECT $$ track :x $$ FROM "Track"'),
        ("postgresql", 'SELECT "TrackId" FROM "Track"', None),
        ("postgresql", 'SELECT "track_id" FROM "track"', 'SELECT "TrackId" AS "track_id" FROM "Track"'),
        (
            "postgresql",
            "SELECT t.name, l.n FROM track t, LATERAL (SELECT count(*) n FROM invoice_line WHERE track_id = t.track_id) l",
            'SELECT t."Name" AS name, l.n FROM "Track" t, '
            'LATERAL (SELECT count(*) n FROM "InvoiceLine" WHERE "TrackId" = t."TrackId") l',
        ),
        (
            "postgresql",
            "SELECT name FROM track WHERE name = ANY(:ids)",
            'SELECT "Name" AS name FROM "Track" WHERE "Name" = ANY(:ids)',
        ),
        ("postgresql", "SELECT g FROM generate_series(1, 3) g, plain", None),
        ("postgresql", 'SELECT plain."user" FROM plain', None),
        (
            "sqlite",
            "SELECT [name], `total` FROM [track]",
            'SELECT "Name" AS [name], "Total" AS `total` FROM "Track"',
        ),
        ("sqlite", "SELECT rowid, name FROM main.track", 'SELECT rowid, "Name" AS name FROM main."Track"'),
        ("sqlite", "SELECT a_b_c FROM order_line", 'SELECT "A""b`c" AS a_b_c FROM "Order Line"'),
        ("mysql", "SELECT a_b_c FROM order_line", 'SELECT `A"b``c` AS a_b_c FROM `Order Line`'),
        (
            "mysql",
            "SELECT \"name\", 'it\\'s :x' FROM track # name",
            "SELECT `Name` AS \"name\", 'it\\'s :x' FROM `Track` # name",
        ),
        (
            "mysql",
            "SELECT sum(total) AS total FROM track HAVING total > 1 AND sum(total) > 1",
            "SELECT sum(`Total`) AS total FROM `Track` HAVING total > 1 AND sum(`Total`) > 1",
        ),
    ],
)
def test_each_dialect_has_its_own_words(dialect: str, written: str, real: str | None) -> None:
    assert said(written, dialect) == (real or written)


def test_tables_without_a_schema_get_it() -> None:
    written = "WITH x AS (SELECT * FROM track) SELECT plain.id FROM plain, x, other.plain p, nobody, pg_class"
    assert said(written, schema="My app") == (
        'WITH x AS (SELECT * FROM "My app"."Track") '
        'SELECT plain.id FROM "My app".plain, x, other.plain p, "My app".nobody, pg_class'
    )


def test_where_names_are_the_real_ones_a_statement_is_checked_all_the_same() -> None:
    exact = SchemaFacts("postgresql", {"plain": TABLES[4]}, loosely_typed=False)
    assert translated("SELECT  Id FROM plain -- as it is", exact).sql == "SELECT  Id FROM plain -- as it is"
    assert translated("SELECT id FROM plain", exact, "app").sql == "SELECT id FROM app.plain"
    with pytest.raises(SettingsError, match="no SELECT"):
        translated("DELETE FROM plain", exact)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT 1; SELECT 2", "line 1, column 9: a second statement"),
        ("SELECT 1;\n;DROP TABLE track", "a second statement"),
        ("DELETE FROM track", "no SELECT"),
        ("EXPLAIN SELECT 1", "no SELECT"),
        ("VALUES (1)", "no SELECT"),
        ("WITH x AS (SELECT 1) DELETE FROM track", "would write"),
        ("SELECT a,\n FROM WHERE", "line 2, column"),
        ("SELECT 'open\n FROM track", "cannot be read"),
        ("SELECT (1", "cannot be read"),
        ("", "empty"),
        (" -- nothing\n", "empty"),
        (
            "SELECT name FROM (SELECT track_id AS album_id FROM track) x JOIN album USING (album_id)",
            "write ON",
        ),
    ],
)
def test_anything_but_one_select_is_refused(dialect: str, sql: str, what: str) -> None:
    with pytest.raises(SettingsError) as caught:
        said(sql, dialect)
    assert what in str(caught.value)
    assert "track" not in str(caught.value)


@pytest.mark.parametrize(
    "sql", ["WITH x AS (DELETE FROM track RETURNING *) SELECT * FROM x", "SELECT 1 INTO y FROM track"]
)
def test_a_select_that_writes_is_refused(sql: str) -> None:
    with pytest.raises(SettingsError, match="would write"):
        said(sql)


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(SettingsError, match="nested"):
        said("SELECT " + "(" * 20_000 + "1" + ")" * 20_000)


def test_statements_are_read_once_and_again_when_the_schema_has_changed() -> None:
    asked: list[int] = []

    def reflect() -> SchemaFacts:
        asked.append(1)
        return statements.learn(facts("sqlite"))

    statements = Statements("snake_case", "sqlite", reflect)
    assert statements.translated("SELECT name FROM track").sql == 'SELECT "Name" AS name FROM "Track"'
    assert statements.translated("SELECT name FROM plain").sql == "SELECT name FROM plain"
    assert len(asked) == 1
    statements.learn(SchemaFacts("sqlite", {"track": table("TRACK", "NAME")}, loosely_typed=True))
    assert statements.translated("SELECT name FROM track").sql == 'SELECT "NAME" AS name FROM "TRACK"'
    assert Statements("exact", "sqlite", reflect).translated("SELECT 1").sql == "SELECT 1"
    with pytest.raises(SettingsError):
        Statements("exact", "sqlite", reflect).translated("not even SQL")
    assert len(asked) == 1
