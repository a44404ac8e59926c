"""The author of a mapping as an enemy: statements that write, run programs, read files, or say so in disguise."""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import URL

from migrator.mapping.model.edges import QueryCall
from migrator.runtime.errors import SettingsError, SourceError
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.source.sql.statements import (
    CheckedStatement,
    bound_statement,
    checked_expression,
    has_comment,
    masked,
    parameter_names,
)
from tests import pins, support_mysql
from tests.journeys.command import Project
from tests.journeys.small import small_shop

ALL = ["sqlite", "postgresql", "mysql", "mariadb"]
MYSQL = ["mysql", "mariadb"]

ANYWHERE = [
    "",
    "SELECT 1; SELECT 2",
    "SELECT 1;DROP TABLE t",
    "SELECT 1 /*;*/ ; COMMIT",
    "DELETE FROM t",
    "UPDATE t SET a = 1",
    "CREATE TABLE x AS SELECT 1",
    "WITH x AS (SELECT 1) DELETE FROM t",
    "WITH x AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM x",
    "SELECT a INTO x FROM t",
    "SELECT (SELECT a INTO x FROM t)",
    "TABLE t",
    "VALUES (1)",
    "EXPLAIN ANALYZE SELECT 1",
    "EXPLAIN SELECT 1",
    "CALL f()",
    "SET x = 1",
    "SHOW TABLES",
    "BEGIN",
    "SELECT a FROM t FOR UPDATE",
    "SELECT 'x\x00'; DROP TABLE t",
    "SELECT 1 /* left open",
]
POSTGRESQL = [
    "COPY (SELECT 1) TO PROGRAM 'id'",
    "COPY t TO '/tmp/x'",
    "DO $$ BEGIN PERFORM 1; END $$",
    "SELECT a FROM t FOR NO KEY UPDATE",
    "SELECT a FROM t FOR KEY SHARE",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT PG_READ_FILE('/etc/passwd')",
    "SELECT \"pg_read_file\"('/etc/passwd')",
    "SELECT pg_catalog.pg_read_file('/etc/passwd')",
    'SELECT "pg_catalog" . "pg_read_file" (\'/etc/passwd\')',
    "SELECT pg_read_file/* x */('/etc/passwd')",
    "SELECT pg_read_file -- x\n('/etc/passwd')",
    "SELECT ('/etc/passwd'::text).pg_read_file",
    "SELECT ('/etc/passwd'::text).\"pg_read_file\"",
    "SELECT t.pg_ls_dir FROM (SELECT '/'::text) AS t (a)",
    "SELECT U&\"pg\\005fread_file\"('/etc/passwd')",
    "SELECT u&\"!0070g_read_file\" UESCAPE '!' ('/etc/passwd')",
    "SELECT * FROM pg_ls_dir('/') AS t",
    "SELECT * FROM t, LATERAL pg_read_binary_file(a)",
    "SELECT * FROM ROWS FROM (pg_ls_dir('/')) AS t",
    "SELECT (SELECT lo_import('/etc/passwd'))",
    "SELECT lo_export(1, '/tmp/x')",
    "SELECT * FROM dblink('', 'COMMIT') AS t (a text)",
    "SELECT dblink_exec('DROP TABLE t')",
    "SELECT query_to_xml('SELECT pg_read_file(''/etc/passwd'')', true, true, '')",
    "SELECT * FROM ts_stat('SELECT to_tsvector(pg_read_file(''/etc/passwd''))')",
    "SELECT * FROM aws_lambda.invoke('arn:aws:lambda:eu-central-1:1:function:x', '{}')",
    "SELECT * FROM aws_s3.query_export_to_s3('SELECT 1', 'bucket', 'key')",
    "SELECT aws_s3.table_import_from_s3('t', '', '', 'bucket', 'key', 'eu-central-1')",
    "SELECT cron.schedule('* * * * *', 'DELETE FROM t')",
    "SELECT cron.schedule_in_database('x', '* * * * *', 'DELETE FROM t', 'shop')",
    "SELECT cron.unschedule(1)",
    "SELECT cron.alter_job(1, '* * * * *')",
    "SELECT run_command_on_workers('DROP TABLE t')",
    "SELECT run_command_on_shards('t', 'DROP TABLE %s')",
    "SELECT master_run_on_worker(a, b, c, true) FROM t",
    "SELECT citus_remove_node('h', 5432)",
    "SELECT create_distributed_table('t', 'a')",
    "SELECT azure_storage.blob_put('a', 'b', 'c', 't')",
    'SELECT "aws_lambda"."invoke"(a, b) FROM t',
    "SELECT myschema.lambda_invoke(a) FROM t",
    "SELECT pg_sleep(9)",
    "SELECT 1 WHERE pg_terminate_backend(1)",
    "SELECT pg_advisory_lock(1)",
    "SELECT set_config('row_security', 'on', false)",
    "SELECT nextval('s')",
    "WITH RECURSIVE a AS (UPDATE t SET a = 1 RETURNING *) SELECT * FROM a",
    # What the server takes for a comment ends, or begins, elsewhere.
    "SELECT 1 /* /* */ , pg_read_file('/etc/passwd') */ --*/",
    "SELECT 1 -- x\r, pg_read_file('/etc/passwd')",
    "SELECT $$ $$, $a$ $a$; DROP TABLE t",
    "SELECT 'a\\'; DROP TABLE t; --'",
]
OF_MYSQL = [
    "SELECT 'x' INTO OUTFILE '/tmp/x'",
    "SELECT 'x' INTO DUMPFILE '/tmp/x'",
    "SELECT a FROM t INTO OUTFILE '/tmp/x' FIELDS TERMINATED BY ','",
    "SELECT a FROM t UNION SELECT a FROM t INTO OUTFILE '/tmp/x'",
    "SELECT 1 INTO @x",
    "SELECT @x := 1",
    "SELECT a FROM t LOCK IN SHARE MODE",
    "SELECT /*! 'x' INTO OUTFILE '/tmp/x' */",
    "SELECT /*!50000 'x' INTO OUTFILE '/tmp/x' */",
    "SELECT /*M!100000 'x' INTO OUTFILE '/tmp/x' */",
    "SELECT 1 /*!INTO/**/OUTFILE '/tmp/x'*/",
    "SELECT 1 /* /* */ INTO OUTFILE '/tmp/x' -- */",
    "SELECT LOAD_FILE('/etc/passwd')",
    "SELECT `load_file`('/etc/passwd')",
    "SELECT \"load_file\" ('/etc/passwd')",
    "SELECT load_file/**/('/etc/passwd')",
    "SELECT SLEEP(9)",
    "SELECT BENCHMARK(1000000000, MD5('x'))",
    "SELECT sys_exec('id')",
    "SELECT sys_eval('id')",
    "SELECT GET_LOCK('x', 9)",
    "SELECT lambda_sync('arn:aws:lambda:eu-central-1:1:function:x', '{}')",
    "SELECT mysql.lambda_async('arn:aws:lambda:eu-central-1:1:function:x', '{}')",
    "SELECT SPACE(1000000000)",
    "SELECT NEXTVAL(s)",
    "SELECT NEXT VALUE FOR s",
    "SELECT a FROM t PROCEDURE ANALYSE()",
    "SELECT /*+ SET_VAR(max_execution_time = 0) */ a FROM t",
    "HANDLER t OPEN",
    "LOAD DATA INFILE '/etc/passwd' INTO TABLE t",
    "SELECT 1 -- x\rINTO OUTFILE '/tmp/x'",
]
TOO_LARGE = [
    "SELECT repeat('x', 1000000000)",
    "SELECT repeat('x', 1e9)",
    "SELECT REPEAT('x', 1000*1000*1000)",
    "SELECT repeat('x', a) FROM t",
    "SELECT repeat('x', :size)",
    "SELECT lpad(a, 100001, 'x') FROM t",
    "SELECT rpad(concat(a, 'b'), (1e9), ',') FROM t",
    "SELECT repeat(repeat('x', 9), 1e9)",
    "SELECT a FROM t WHERE length(repeat(repeat('x', 1e9), 9)) > 1",
    "SELECT pg_catalog.repeat('x', 1e9)",
    'SELECT "myschema" . "repeat" (\'x\', 1e9)',
    "SELECT repeat/* x */('x', 1e9)",
    "SELECT repeat(repeat('x', 100000), 9000)",
    "SELECT lpad(concat('a', rpad(a, 1000, 'x')), 1000, 'x'), 1 FROM t",
    "SELECT replace(repeat('x', 100000), 'x', repeat('y', 9000))",
    "SELECT format('%900000000s', 'x')",
    "SELECT format('%-*s', 900000000, 'x')",
]
"""Of the servers: the size of a value is no small number, whatever else the call is made of."""
SQLITE = [
    "SELECT load_extension('x')",
    "SELECT [load_extension]('x')",
    "SELECT \"load_extension\"('x')",
    "SELECT writefile('/tmp/x', 'x')",
    "SELECT readfile('/etc/passwd')",
    "SELECT * FROM fsdir('/')",
    "ATTACH 'x' AS x",
    "PRAGMA query_only = OFF",
    "SELECT * FROM pragma_query_only(0)",
]
CASES = [
    *((dialect, sql) for dialect in ALL for sql in ANYWHERE),
    *(("postgresql", sql) for sql in POSTGRESQL),
    *((dialect, sql) for dialect in MYSQL for sql in OF_MYSQL),
    *(("sqlite", sql) for sql in SQLITE),
    *((dialect, sql) for dialect in ["postgresql", *MYSQL] for sql in TOO_LARGE),
]


@pytest.mark.parametrize(("dialect", "sql"), CASES)
def test_it_is_refused(dialect: str, sql: str) -> None:
    with pytest.raises(SettingsError) as refused:
        CheckedStatement(sql, dialect)
    assert "/etc/passwd" not in str(refused.value)


FINE = {
    **dict.fromkeys(
        [
            "SELECT a, count(*) FROM t WHERE b IN :ids AND c = :into GROUP BY a ORDER BY 1 LIMIT 10",
            "WITH x AS (SELECT 1 AS a) SELECT * FROM x -- the end",
            "SELECT 'COPY t TO PROGRAM; -- INTO OUTFILE' AS text /* kept */ FROM t",
            "(SELECT 1) UNION ALL (SELECT 2);",
            "SELECT t.sleep, t.edit, t.pg_rating, t.benchmark FROM t",
            "SELECT CASE WHEN a IS NULL THEN 0 ELSE a END FROM t AS x",
        ],
        ALL,
    ),
    "SELECT lpad(concat(a, ','), 8, '0'), repeat('-', 3), t.repeat FROM t": ["postgresql", *MYSQL],
    "SELECT lpad(repeat(a, 100), 1000, '0'), lpad(b, 1000), rpad(c, 1000), replace(d, 'x', '') FROM t": [
        *["postgresql", *MYSQL]
    ],
    "SELECT format('%s is %20s', a, b), format(c, 2), t.format FROM t": ["postgresql", *MYSQL],
    "SELECT pg_typeof(a), t.pg_size FROM pg_catalog.pg_class AS t": ["postgresql"],
    "SELECT a::text, $$it's$$, E'\\n', make_interval(days := 1) FROM t": ["postgresql"],
    "SELECT a #>> '{x}', a -> 'b' FROM t": ["postgresql"],
    "SELECT _utf8mb4'x', N'y', 5--1 FROM t # the end": MYSQL,
    "SELECT @@read_only, VERSION() FROM t": MYSQL,
    'SELECT [a], `b`, "c" FROM t': ["sqlite"],
}


@pytest.mark.parametrize(("sql", "dialect"), [(sql, one) for sql, names in FINE.items() for one in names])
def test_what_reads_is_let_through_as_it_stands(sql: str, dialect: str) -> None:
    assert CheckedStatement(sql, dialect).sql == sql


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("postgresql", "pg_read_file(name)"),
        ("postgresql", "name.pg_read_file"),
        ("postgresql", "lo_import(name)"),
        ("mysql", "LOAD_FILE(name)"),
        ("mysql", "1 /*! , 2 INTO OUTFILE '/tmp/x' */"),
        ("sqlite", "load_extension(name)"),
    ],
)
def test_an_expression_passes_the_same_gate(dialect: str, sql: str) -> None:
    with pytest.raises(SettingsError):
        checked_expression(sql, dialect)


@pytest.mark.parametrize(
    "large",
    [
        "zeroblob(1000000000)",
        "hex(zeroblob(200000000))",
        "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 99) SELECT group_concat(zeroblob(9999999)) FROM n)",
    ],
)
def test_sqlite_ends_a_value_that_is_too_large(tmp_path: Path, large: str) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as rows:
        rows.execute("CREATE TABLE t (a)")
    with (
        closing(SqlSource(source_url(f"sqlite:///{tmp_path / 'shop.db'}"))) as source,
        pytest.raises(SourceError),
    ):
        source.query(f"SELECT length({large})", {})


def test_postgresql_calls_functions_written_like_a_column(postgres_database: str) -> None:
    """The reason why names behind a dot are looked at: the outside fact itself."""
    with psycopg.connect(postgres_database) as server:
        assert server.execute("SELECT ('pg_sleep'::text).upper").fetchone() == ("PG_SLEEP",)


# ── by every way that a statement goes ──

PATTERN = """
access_patterns:
  stolen:
    params: {{id: integer}}
    query: {{key: ["C#{{id}}", META]}}
    returns: [name]
    sql: "{sql}"
"""


def hostile(folder: Path, endpoint: str, sql: str) -> Project:
    made = small_shop(folder, endpoint)
    mapping = folder / "mapping.yaml"
    mapping.write_text(mapping.read_text() + PATTERN.format(sql=sql))
    return made


def test_query_replay_check_and_doctor_refuse_a_copy_program(
    postgres_database: str, dynamodb_url: str, tmp_path: Path
) -> None:
    witness = Path("/tmp") / f"migrator-{secrets.token_hex(6)}"
    made = hostile(tmp_path, dynamodb_url, f"COPY (SELECT 1) TO PROGRAM 'touch {witness}'")
    with sqlite3.connect(tmp_path / "shop.db") as rows, psycopg.connect(postgres_database) as server:
        server.execute("CREATE TABLE customer (id int PRIMARY KEY, name text)")
        server.execute("CREATE TABLE invoice (id int PRIMARY KEY, customer_id int NOT NULL, total int)")
    rows.close()
    made.environment["MIGRATOR_SOURCE_URL"] = postgres_database
    job = str(made.job)
    ended = [
        made.run("look", job, "--pattern", "stolen", "-p", "id=1"),
        made.run("shadow", "replay", job, "--sample", "1"),
        made.run("mapping", "check", str(tmp_path / "mapping.yaml"), "--source", postgres_database),
        made.run("doctor", job),
    ]
    assert not witness.exists()
    assert [one.code != 0 for one in ended] == [True] * 4
    for one in (ended[0], ended[2], ended[3]):
        assert pins.said(" ".join((one.out + one.err).split()))


def test_mariadb_outfile_is_refused_before_it_is_sent(mysql_database: str, tmp_path: Path) -> None:
    support_mysql.run_script(mysql_database, "CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    witness = tmp_path / "stolen"
    with closing(SqlSource(source_url(mysql_database))) as source:
        for sql in (
            f"SELECT a FROM t INTO OUTFILE '{witness}'",
            f"SELECT a FROM t /*! INTO OUTFILE '{witness}' */",
        ):
            assert source.query_faults([QueryCall(sql)]) != [""]
            with pytest.raises(SettingsError):
                source.query(sql, {})
        # A parameter is a value, whatever it says.
        assert source.query("SELECT a FROM t WHERE 'x' <> :x", {"x": "' INTO OUTFILE '/tmp/x' -- "}) == [(1,)]
    assert not witness.exists()


DIALECTS = ["sqlite", "postgresql", "mysql"]


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT :a, :from, ':b', \":c\", :a", {"a", "from"}),
        ("SELECT 'it''s :a' /* :b ' */ -- :c '\n, :d", {"d"}),
        ("SELECT x::int, a[1:n], '12:30', :d::text", {"d"}),
        ("SELECT :1, x :y, :_z", {"y", "_z"}),
        ("SELECT `:a`, :b", {"b"}),
    ],
)
def test_a_colon_is_not_always_a_parameter(sql: str, names: set[str]) -> None:
    assert parameter_names(sql, "sqlite") == names


@pytest.mark.parametrize(
    ("dialect", "sql", "names"),
    [
        ("sqlite", "SELECT [a:b :c] WHERE x = :d", {"d"}),
        ("postgresql", "SELECT a[:c] WHERE x = :d", {"c", "d"}),
        ("postgresql", r"SELECT E'\':a', '\', :b, $$ :c $$, $x$ $$ :d $x$, :e", {"b", "e"}),
        ("postgresql", "SELECT a #> :b, c -- :d", {"b"}),
        ("mysql", r"""SELECT '\':a', ":b", `:b`, :c # :d""", {"c"}),
        ("mysql", "SELECT 1 --:a\n-- :b", {"a"}),
        ("mysql", "SELECT @x := 1, :a", {"a"}),
    ],
)  # fmt: skip
def test_each_dialect_has_its_own_strings_and_comments(dialect: str, sql: str, names: set[str]) -> None:
    assert parameter_names(sql, dialect) == names


def test_masking_moves_nothing() -> None:
    assert masked("SELECT :from, ':x' -- :y", "sqlite") == "SELECT :____, ':x' -- :y"
    assert has_comment("a /* b */", "sqlite")
    assert not has_comment("'--'", "sqlite")


def compiled(sql: str, dialect: str, **params: Any) -> str:
    statement, _ = bound_statement(CheckedStatement(sql, dialect), params)
    made: Any = URL.create(dialect).get_dialect()
    return str(statement.compile(dialect=made(paramstyle="named")))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ':a', '::', ':', \"b:c\" /* :d */ -- :e",
        "SELECT a::int, b[1:2], '12:30:00', 'x\\:y' FROM t",
        "SELECT '100%' LIKE '%:x%'",
    ],
)
def test_all_but_the_parameters_reaches_the_database_as_it_is(sql: str, dialect: str) -> None:
    assert compiled(sql, dialect) == sql


@pytest.mark.parametrize("written", ["IN :ids", "IN (:ids)", "in ( :ids )", "IN(:ids)", "IN\n:ids"])
@pytest.mark.parametrize(("ids", "found"), [([1, 3], [1, 3]), ((2,), [2]), ([], [])])
def test_a_list_after_in_is_its_values(written: str, ids: Any, found: list[int]) -> None:
    sql = (
        f"WITH t(id) AS (VALUES (1), (2), (3)) SELECT id FROM t WHERE id {written} AND id > :low ORDER BY id"
    )
    statement, bound = bound_statement(CheckedStatement(sql, "sqlite"), {"ids": ids, "low": 0})
    with sa.create_engine("sqlite://").connect() as connection:
        assert [row[0] for row in connection.execute(statement, bound)] == found


def test_a_list_after_not_in_must_not_be_empty() -> None:
    with pins.refused(SettingsError):
        bound_statement(CheckedStatement("SELECT 1 WHERE 1 NOT IN :ids", "sqlite"), {"ids": []})
    _, bound = bound_statement(CheckedStatement("SELECT 1 WHERE 1 NOT IN (:ids)", "sqlite"), {"ids": [2]})
    assert bound == {"ids_0": 2}


@pytest.mark.parametrize("value", ["a\0", ["a", "a\0"]])
def test_a_text_that_postgresql_cannot_hold_is_refused(value: str | list[str]) -> None:
    sql = "SELECT 1 WHERE 'a' IN :name"
    with pytest.raises(SettingsError):
        bound_statement(CheckedStatement(sql, "postgresql"), {"name": value})
    bound_statement(CheckedStatement(sql, "sqlite"), {"name": value})


def test_a_list_elsewhere_is_the_drivers_to_bind() -> None:
    statement, bound = bound_statement(
        CheckedStatement("SELECT 1 = ANY(:ids)", "postgresql"), {"ids": [1, 2]}
    )
    assert (statement.text, bound) == ("SELECT 1 = ANY(:ids)", {"ids": [1, 2]})


def test_parameters_missing_from_the_statement_are_left_out() -> None:
    _, bound = bound_statement(CheckedStatement("SELECT :a", "sqlite"), {"a": None, "b": 2})
    assert bound == {"a": None}


MOMENT = datetime(2024, 5, 1, 12, 0, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("value", "sqlite", "postgresql", "mysql"),
    [
        (True, True, True, True),
        (Decimal("5"), 5, Decimal("5"), Decimal("5")),
        (
            Decimal("9007199254740993"),
            9007199254740993,
            Decimal("9007199254740993"),
            Decimal("9007199254740993"),
        ),
        (Decimal("0.5"), 0.5, Decimal("0.5"), Decimal("0.5")),
        (date(2024, 5, 1), "2024-05-01", "2024-05-01", "2024-05-01"),
        (time(1, 2), "01:02:00", "01:02:00", "01:02:00"),
        (datetime(2024, 5, 1), *["2024-05-01 00:00:00"] * 3),
        (MOMENT, "2024-05-01 12:00:00+02:00", "2024-05-01 12:00:00+02:00", "2024-05-01 10:00:00"),
        (UUID(int=1), *["00000000-0000-0000-0000-000000000001"] * 3),
        (b"x", b"x", b"x", b"x"),
    ],
)
def test_values_are_bound_as_each_driver_takes_them(
    value: Any, sqlite: Any, postgresql: Any, mysql: Any
) -> None:
    for dialect, form in {"sqlite": sqlite, "postgresql": postgresql, "mysql": mysql}.items():
        _, bound = bound_statement(
            CheckedStatement("SELECT :a, :b WHERE 1 IN :c", dialect), {"a": value, "b": None, "c": [value]}
        )
        assert bound == {"a": form, "b": None, "c_0": form}


@pytest.mark.parametrize("given", [2**63, -(2**63) - 1, [1, 2**63]])
def test_sqlite_is_sent_no_integer_that_it_cannot_store(given: Any) -> None:
    sql = "SELECT 1 WHERE 1 IN :n" if isinstance(given, list) else "SELECT 1 WHERE 1 = :n"
    with pins.refused(SettingsError):
        bound_statement(CheckedStatement(sql, "sqlite"), {"n": given})
    bound_statement(CheckedStatement(sql, "mysql"), {"n": given})
    bound_statement(CheckedStatement(sql, "sqlite"), {"n": 2**63 - 1})
