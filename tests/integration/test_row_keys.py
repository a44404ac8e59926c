"""A column of every type as the key of rows: pages of two rows, and changes that a relay follows, on every engine."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from migrator.runtime.errors import MappingError
from migrator.source.engines.catalogue import TypeRule
from migrator.source.engines.mysql import facts
from migrator.source.engines.postgresql import facts as postgresql_facts
from migrator.source.engines.sqlite import engine as sqlite
from tests import pins
from tests.integration.keyed import Keyed, Values
from tests.language.context import HEAD, checked
from tests.support_adapter_service import assert_same, heard
from tests.support_capture import Capturing, connect, new_sqlite
from tests.support_mysql import is_mariadb
from tests.support_worlds import prepared

pytestmark = pytest.mark.slow


POSTGRESQL: Values = {
    "real": ("0.1", "-2.7", "16777217", "1e20", "3.3"),
    "double precision": ("'NaN'", "0.2::float8 + 0.1", "5e-324", "1.7e308", "-1"),
    "float8": (
        "0.1::real",
        "-2.7::real",
        "16777217::real",
        "1e20::real",
        "3.3::real",
    ),  # the children's is real
    "smallint": ("1", "2", "-3", "4", "5"),
    "bigint": ("1", "9223372036854775807", "-9223372036854775808", "4", "5"),
    "oid": ("1", "2", "4294967295", "4", "5"),
    "numeric": ("0.1", "'NaN'", "12345678901234567890.123456789", "'Infinity'", "5"),
    "numeric(12, 2)": ("0.1", "1.10", "-3", "4", "5"),
    "money": ("0.1", "-1234567.50", "3", "4", "5"),
    "text": ("'a'", "'A'", "'a '", "''", "'Ünï'"),
    "varchar(9)": ("'a'", "'A'", "'a '", "''", "'Ünï'"),
    "name": ("'a'", "'A'", "'a '", "''", "'Ünï'"),
    '"char"': ("'a'", "'A'", "' '", "''", "'#'"),
    "citext": ("'a'", "'B'", "'a '", "''", "'Ünï'"),
    "ltree": ("'a'", "'A'", "'a.b'", "'b'", "'c.d.e'"),
    "char(4)": ("'a'", "'A'", "'ab'", "''", "'Ünï'"),
    "boolean": ("true", "false"),
    "date": ("'2024-01-01'", "'0044-03-15 BC'", "'infinity'", "'9999-12-31'", "'12345-01-01'"),
    "time": ("'01:02:03'", "'24:00'", "'00:00'", "'04:05:06.7'", "'23:59:59.999999'"),
    "timetz": ("'04:05:06+05:30'", "'24:00+00'", "'00:00-12'", "'04:05:06.7+00'", "'04:05:06-05:30'"),
    "timestamp": (
        "'2024-01-01'",
        "'-infinity'",
        "'0044-03-15 BC'",
        "'2024-01-01 00:00:00.000001'",
        "'1969-01-01'",
    ),
    "timestamptz": (
        "'2024-01-01'",
        "'-infinity'",
        "'0044-03-15 BC'",
        "'2024-01-01 00:00:00.000001'",
        "'1969-01-01'",
    ),
    "interval": ("'1 mon'", "'-1 day'", "'1 year 2 days -03:04:05.6'", "'0'", "'5 s'"),
    "uuid": tuple(f"'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A1{n}'" for n in range(5)),
    "bytea": (r"'\x00ff'", "''", r"'\x00'", r"'\xffff'", "'a'"),
    "jsonb": ("""'{"a": 1.10}'""", "'1'", "'\"1\"'", "'null'", "'[]'"),
    "bit(3)": ("B'001'", "B'010'", "B'000'", "B'111'", "B'101'"),
    "varbit": ("B'001'", "B'01'", "B''", "B'111'", "B'101'"),
    "inet": ("'10.1.2.3/8'", "'::1'", "'10.1.2.3'", "'10.0.0.0/8'", "'1.2.3.4'"),
    "cidr": ("'10/8'", "'::1'", "'10.1.2.3'", "'10.0.0.0/9'", "'1.2.3.4'"),
    "macaddr": tuple(f"'08:00:2b:01:02:0{n}'" for n in range(5)),
    "macaddr8": tuple(f"'08:00:2b:01:02:03:04:0{n}'" for n in range(5)),
    "int4range": ("'[1,5]'", "'empty'", "'(,5]'", "'(,)'", "'[7,8)'"),
    "numrange": ("'[1,5]'", "'empty'", "'(,5]'", "'(,)'", "'[1.0,1.5)'"),
    "tstzrange": ("'[2024-01-01,)'", "'empty'", "'(,2024-01-01)'", "'(,)'", "'[2024-01-01,infinity)'"),
    "int4multirange": ("'{[1,5]}'", "'{}'", "'{(,5]}'", "'{(,)}'", "'{[1,2),[7,8)}'"),
    "tsvector": ("'b a'", "'a'", "''", "'b:2 a:1'", "'c'"),
    "tsquery": ("'b & a'", "'a'", "'!a'", "'b | a'", "'c'"),
    "tid": ("'(0,1)'", "'(0,2)'", "'(1,0)'", "'(2,0)'", "'(3,0)'"),
    "xid8": ("'1'", "'2'", "'18446744073709551615'", "'4'", "'5'"),
    "pg_lsn": ("'16/B374D848'", "'0/1'", "'0/2'", "'0/3'", "'0/4'"),
    "mood": ("'sad'", "'happy #1'", "'10'", "'9'", "''"),
    "price": ("1.5", "2", "3", "4", "5.05"),
    "float_domain": ("0.1", "-2.7", "16777217", "1e20", "3.3"),
}
MARIADB: Values = {
    "float": ("0.1", "-2.7", "16777217", "1e20", "3.3"),
    "float unsigned": ("0.1", "2.7", "16777217", "1e20", "3.3"),
    "float(7,3)": ("0.1", "2.7", "1234.567", "1e2", "3.3"),
    "double": ("0.1", "0.1e0 + 0.2e0", "5e-324", "1.7e308", "-1"),
    "double(20,2)": ("0.1", "123456789012345678.12", "2", "3", "-1"),
    "tinyint": ("1", "2", "-3", "4", "5"),
    "bigint unsigned": ("1", "18446744073709551615", "0", "4", "5"),
    "int(8) zerofill": ("1", "2", "0", "4", "5"),
    "tinyint(1)": ("true", "false", "7", "-1", "2"),
    "bit(1)": ("b'0'", "b'1'"),
    "bit(5)": ("b'00101'", "b'0'", "b'11111'", "b'1'", "b'10'"),
    "decimal(30,10)": ("0.1", "12345678901234567890.1234567891", "12345678901234567890.1234567892", "4", "5"),
    "varchar(9)": ("'a'", "'B'", "'ab '", "''", "'Ünï'"),
    "varchar(9) collate utf8mb4_bin": ("'a'", "'A'", "'ab '", "''", "'Ünï'"),
    "char(4)": ("'a'", "'B'", "'ab '", "''", "'Ünï'"),
    "TEXT": ("'a'", "'B'", "'ab '", "''", "'Ünï'"),
    "enum('b', 'a', '10', '9', 'Ü')": ("'a'", "'b'", "'10'", "'9'", "'Ü'"),
    "date": ("'2024-01-01'", "'0000-00-00'", "'1000-01-01'", "'9999-12-31'", "'1969-07-20'"),
    "time(6)": ("'04:05:06.7'", "'-01:00'", "'838:59:59'", "'00:00'", "'01:00:00.000001'"),
    "datetime(6)": (
        "'2024-01-01'",
        "'0000-00-00'",
        "'1000-01-01'",
        "'2024-01-01 00:00:00.000001'",
        "'1969-07-20'",
    ),
    "timestamp(6)": (
        "'2024-01-01'",
        "'0000-00-00'",
        "'2024-01-02'",
        "'2024-01-01 00:00:00.000001'",
        "'1999-07-20'",
    ),
    "year": ("2024", "0", "1901", "2155", "1999"),
    "binary(4)": ("x'00ff'", "x''", "x'01'", "x'ffff'", "'a'"),
    "varbinary(9)": ("x'00ff'", "x''", "x'00'", "x'ffff'", "'a'"),
    "BLOB": ("x'00ff'", "x''", "x'00'", "x'ffff'", "'a'"),
    "uuid": tuple(f"'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A1{n}'" for n in range(5)),
    "inet6": ("'::1'", "'2001:DB8::1'", "'::'", "'::ffff:1.2.3.4'", "'ff::'"),
}
SQLITE: Values = {
    "REAL": ("0.1", "0.1 + 0.2", "5e-324", "9e999", "-1"),
    "FLOAT4": ("0.1", "-2.7", "16777217", "1e20", "3.3"),
    "INT": ("1", "9223372036854775807", "'x'", "1.5", "5"),
    "NUMERIC(10, 2)": ("0.1", "1.1", "'x'", "4", "5"),
    "TEXT": ("'a'", "'A'", "'a '", "''", "'Ünï'"),
    "TEXT COLLATE NOCASE": ("'a'", "'B'", "'a '", "''", "'Ünï'"),
    "BOOLEAN": ("1", "0", "2", "3", "4"),
    "DATE": ("'2024-01-01'", "'x'", "20240101", "'2024-01-02'", "1.5"),
    "TIMESTAMP": ("'2024-01-01'", "'2024-01-01 00:00'", "20240101", "'2024-01-01T00:00'", "1.5"),
    "TIME": ("'01:02'", "'x'", "102", "'01:02:00'", "1.5"),
    "TIMETZ": ("'01:02'", "'x'", "102", "'01:02:00+01'", "1.5"),
    "TIMESTAMPTZ": ("'2024-01-01'", "'2024-01-01 00:00'", "20240101", "'2024-01-01T00:00Z'", "1.5"),
    "UUID": tuple(f"'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A1{n}'" for n in range(5)),
    "BLOB": ("x'00ff'", "x''", "x'00'", "x'61'", "x'ff'"),
    "JSON": ("""'{"a": 1.10}'""", "'1'", "2", "'null'", "'[]'"),
    "ANY": ("'a'", "1", "x'31'", "1.5", "''"),
    "STRANGE": ("'a'", "1", "x'31'", "1.5", "''"),
}
MAKE_TYPES = """
CREATE EXTENSION citext; CREATE EXTENSION ltree;
CREATE TYPE mood AS ENUM ('sad', 'happy #1', '10', '9', '');
CREATE DOMAIN price AS numeric(12, 2); CREATE DOMAIN float_domain AS real
"""


def _bare(declared: str) -> str:
    return re.sub(r"\(.*\)| unsigned| zerofill| COLLATE.*| collate.*", "", declared).upper()


@pytest.mark.parametrize(
    ("tried", "rules"),
    [
        (POSTGRESQL, postgresql_facts.KINDS.rules),
        (MARIADB, facts.KINDS.rules),
        (SQLITE, sqlite.KINDS.rules),
    ],
)
def test_each_type_that_can_name_rows_is_tried(tried: Values, rules: tuple[TypeRule, ...]) -> None:
    names = {_bare(declared) for declared in tried} | {declared.upper() for declared in tried}
    missing = [
        rule.names
        for rule in rules
        if not rule.no_key and rule.form != "none" and not names & set(rule.names)
    ]
    assert missing == []


def test_the_others_are_refused_with_the_reason(postgres_database: str, mysql_database: str) -> None:
    """A view says no primary key, so that any of its columns may be named."""
    for engine, url, rules in (
        ("postgresql", postgres_database, postgresql_facts.KINDS.rules),
        ("mariadb", mysql_database, facts.KINDS.rules),
    ):
        names = [
            name for rule in rules if rule.no_key for name in rule.names if name not in ("HSTORE", "SET")
        ]
        columns = ", ".join(f"c{number} {name}" for number, name in enumerate(names))
        with closing(connect(engine, url)) as connection:
            connection.cursor().execute(f"CREATE TABLE t ({columns})")
        for number, name in enumerate(names):
            mapping = (
                f"entities: {{t: {{key: [c{number}], items: {{T: {{key: ['T#{{c{number}|json}}', M]}}}}}}}}"
            )
            with pytest.raises(MappingError) as caught:
                checked(url, HEAD + mapping)
            assert pins.said(str(caught.value)), name


def stays_true(keyed: Keyed) -> None:
    """Filled page by page, followed by a relay, and judged by plain SQL and by verify."""
    made = keyed.project
    prepared(made, "table create", "capture install", "backfill")
    assert keyed.wrong() == {}
    for change in (keyed.rows_change, keyed.children_change):
        keyed.each(change)
        ended = made.run("relay", str(made.job), "--once")
        assert ended.code == 0, ended.out + made.run("status", "--findings", str(made.job)).out
        assert keyed.wrong() == {}
    made.done("verify", str(made.job))


def test_on_postgresql(postgres_database: str, dynamodb_url: str, tmp_path: Path) -> None:
    with psycopg.connect(postgres_database) as connection:
        connection.execute(MAKE_TYPES)
    keyed = Keyed("postgresql", postgres_database, tmp_path, dynamodb_url, POSTGRESQL)
    stays_true(keyed)
    job = str(keyed.project.job)
    kept = keyed.project.run(
        "clean", "--row", job, "--entity", "t0", "--key", "0.1", "--dry-run", "--json"
    ).data
    assert (kept["row_in_source"], kept["items"]) == (True, 1)


def test_on_mariadb(mysql_database: str, dynamodb_url: str, tmp_path: Path) -> None:
    alone = () if is_mariadb(mysql_database) else ("uuid", "inet6")
    tried = {declared: values for declared, values in MARIADB.items() if declared not in alone}
    stays_true(Keyed("mariadb", mysql_database, tmp_path, dynamodb_url, tried))


def test_on_sqlite(dynamodb_url: str, tmp_path: Path) -> None:
    stays_true(Keyed("sqlite", new_sqlite(tmp_path / "keys.db"), tmp_path, dynamodb_url, SQLITE))


FLOATS = {"postgresql": "real", "mariadb": "float", "sqlite": "FLOAT4"}


def test_the_adapter_knows_rows_by_a_float(each: Capturing) -> None:
    declared = FLOATS[each.engine]
    each.run(f"CREATE TABLE t (k {declared} NOT NULL, n integer, PRIMARY KEY (k))")
    table = sa.table("t", sa.column("k"), sa.column("n"))
    with heard(each, ["t"], "lock") as (engine, seen):
        for statement in (
            "INSERT INTO t VALUES (0.1, 1), (16777217, 1), (-2.7, 1), (0.5, 1)",
            "UPDATE t SET n = 2 WHERE k = 0.5",
            "UPDATE t SET n = 3 WHERE n = 1",
            "UPDATE t SET k = 3.3 WHERE k = 0.5",
            "DELETE FROM t WHERE n = 3",
        ):
            with engine.begin() as connection:
                connection.exec_driver_sql(statement)
        with engine.begin() as connection:
            connection.execute(sa.insert(table), [{"k": 0.7, "n": 1}, {"k": 1e20, "n": 1}])
        assert_same(each, seen, 14)
