"""The author of a mapping as an enemy: statements that write, run programs, read files, or say so in disguise."""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from migrator.model.errors import SettingsError
from migrator.source.connect import source_url
from migrator.source.reader import SqlSource
from migrator.source.sql.gate import CheckedExpression, CheckedStatement
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
    "SELECT NEXTVAL(s)",
    "SELECT NEXT VALUE FOR s",
    "SELECT a FROM t PROCEDURE ANALYSE()",
    "SELECT /*+ SET_VAR(max_execution_time = 0) */ a FROM t",
    "HANDLER t OPEN",
    "LOAD DATA INFILE '/etc/passwd' INTO TABLE t",
    "SELECT 1 -- x\rINTO OUTFILE '/tmp/x'",
]
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
        CheckedExpression(sql, dialect)


def test_postgresql_calls_what_is_written_like_a_column(postgres_database: str) -> None:
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


def test_query_replay_check_and_doctor_refuse_a_program_that_copy_would_run(
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
        made.run("query", job, "stolen", "-p", "id=1"),
        made.run("shadow", "replay", job, "--questions", "1"),
        made.run("mapping", "check", str(tmp_path / "mapping.yaml"), "--source", postgres_database),
        made.run("doctor", job),
    ]
    assert not witness.exists()
    assert [one.code != 0 for one in ended] == [True] * 4
    for one in (ended[0], ended[2], ended[3]):
        assert pins.said(" ".join((one.out + one.err).split()))


def test_mariadbs_outfile_is_refused_before_it_is_asked_for(mysql_database: str, tmp_path: Path) -> None:
    support_mysql.run_script(mysql_database, "CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    witness = tmp_path / "stolen"
    with closing(SqlSource(source_url(mysql_database))) as source:
        for sql in (
            f"SELECT a FROM t INTO OUTFILE '{witness}'",
            f"SELECT a FROM t /*! INTO OUTFILE '{witness}' */",
        ):
            assert source.query_fault(sql, {})
            with pytest.raises(SettingsError):
                source.query(sql, {})
        # A parameter is a value, whatever it says.
        assert source.query("SELECT a FROM t WHERE 'x' <> :x", {"x": "' INTO OUTFILE '/tmp/x' -- "}) == [(1,)]
    assert not witness.exists()
